/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completing a driver's io_uring command, which has changed twice.
 */
#ifndef PEERDMA_COMPAT_URING_H
#define PEERDMA_COMPAT_URING_H

#include <linux/io_uring/cmd.h>
#include <linux/io_uring_types.h>

/*
 * Called before a command returns -EAGAIN. A kernel of about v6.9 to v6.14 copies the SQE then, but
 * reads the one in the ring when it issues the command again from a worker. By then that may be
 * another command's ("io_uring/uring_cmd: unconditionally copy SQEs at prep time" in v6.15; later
 * kernels copy in time, and have a flag for the second issue). So the SQE is copied here, to the
 * kernel's own place for the copy, and the copy is read. A command that waits for the one before it
 * in a link begins only after the ring's memory may have been reused: that cannot be helped here
 * (Documentation/io.md). Drop with 6.12.
 */
static inline void peerdma_uring_keep_sqe(struct io_uring_cmd *cmd)
{
#ifndef PEERDMA_HAVE_URING_REISSUE
	struct io_kiocb *req = cmd_to_io_kiocb(cmd);
	struct io_uring_sqe *copy = req->async_data;

	if (!(req->flags & REQ_F_ASYNC_DATA) || cmd->sqe == copy)
		return;
	memcpy(copy, cmd->sqe, sizeof(*copy) << !!(req->ctx->flags & IORING_SETUP_SQE128));
	cmd->sqe = copy;
#endif
}

/* io_uring_cmd_done() lost the second result of rings with large CQEs in v6.18. Drop with 6.12. */
static inline void peerdma_uring_done(struct io_uring_cmd *cmd, s32 res, unsigned int issue_flags)
{
#ifdef PEERDMA_HAVE_URING_DONE_SHORT
	io_uring_cmd_done(cmd, res, issue_flags);
#else
	io_uring_cmd_done(cmd, res, 0, issue_flags);
#endif
}

/*
 * PEERDMA_URING_TASK_CB() defines the function name_ that io_uring calls in the submitter's task,
 * around body_(cmd, issue_flags). Since v6.19 its argument is a request instead of a command. Drop
 * with 6.12.
 */
#ifdef PEERDMA_HAVE_URING_TW_REQ
#define PEERDMA_URING_TASK_DECLARE(name_) void name_(struct io_tw_req tw_req, io_tw_token_t tw)
#define PEERDMA_URING_TASK_CB(name_, body_)                                              \
	void name_(struct io_tw_req tw_req, io_tw_token_t tw)                            \
	{                                                                                \
		body_(io_uring_cmd_from_tw(tw_req), IO_URING_CMD_TASK_WORK_ISSUE_FLAGS); \
	}
#else
#define PEERDMA_URING_TASK_DECLARE(name_) \
	void name_(struct io_uring_cmd *cmd, unsigned int issue_flags)
#define PEERDMA_URING_TASK_CB(name_, body_)                            \
	void name_(struct io_uring_cmd *cmd, unsigned int issue_flags) \
	{                                                              \
		body_(cmd, issue_flags);                               \
	}
#endif

#endif /* PEERDMA_COMPAT_URING_H */
