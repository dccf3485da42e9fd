/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Were all bytes of a read asked of devices, or has the CPU stored some of them?
 *
 * A filesystem stores zeros where it finds no block (a hole, an unwritten extent), within the read
 * and without a word. submit_bio() adds what is read to a count of the current task. If the count
 * grew by less than the length, the CPU stored the rest.
 *
 * Metadata that the filesystem reads meanwhile is in the count as well, and could hide as many
 * bytes of zeros. The filesystem waits for it. So after a context switch the count proves nothing.
 *
 * A kernel without CONFIG_TASK_IO_ACCOUNTING has no count. There every read of a regular file
 * passes for one that the CPU had a part in.
 */
#ifndef PEERDMA_SUBMITTED_H
#define PEERDMA_SUBMITTED_H

#include <linux/fs.h>
#include <linux/sched.h>

/**
 * struct peerdma_submitted - what the current task had asked of devices, before a read
 * @bytes: that it has read from them
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
 * Right after @file's method has returned. False: the CPU may have stored some of the @len bytes.
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
