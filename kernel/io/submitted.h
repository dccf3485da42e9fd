/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Did devices read all bytes of a read, or did the CPU store some of them?
 *
 * A filesystem stores zeros for a hole or an unwritten extent, and does not report it. submit_bio()
 * adds the bytes it reads to a counter of the current task. If that counter grew by less than the
 * length of the read, the CPU stored the rest.
 *
 * Metadata that the filesystem reads meanwhile is counted too, and could hide as many bytes of
 * zeros. The filesystem sleeps for metadata. So after a context switch the counter proves nothing.
 *
 * A kernel without CONFIG_TASK_IO_ACCOUNTING has no such counter. There every read of a regular
 * file is taken for one that the CPU took part in.
 */
#ifndef PEERDMA_SUBMITTED_H
#define PEERDMA_SUBMITTED_H

#include <linux/fs.h>
#include <linux/sched.h>

/**
 * struct peerdma_submitted - counters of the current task before a read
 * @bytes: read from devices
 * @switches: context switches
 */
struct peerdma_submitted {
	u64 bytes;
	unsigned long switches;
};

static inline struct peerdma_submitted peerdma_submitted(void)
{
	return (struct peerdma_submitted){
#ifdef CONFIG_TASK_IO_ACCOUNTING
		.bytes = current->ioac.read_bytes,
#endif
		.switches = current->nvcsw + current->nivcsw,
	};
}

/*
 * Called right after @file's method has returned. False if the CPU may have stored some of the @len
 * bytes.
 */
static inline bool peerdma_submitted_all(const struct peerdma_submitted *before,
					 const struct file *file, size_t len)
{
	const struct peerdma_submitted now = peerdma_submitted();

	if (!IS_ENABLED(CONFIG_TASK_IO_ACCOUNTING))
		return !S_ISREG(file_inode(file)->i_mode);
	return now.bytes - before->bytes >= len && now.switches == before->switches;
}

#endif /* PEERDMA_SUBMITTED_H */
