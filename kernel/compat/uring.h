/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a driver's io_uring command is completed, which has changed twice.
 */
#ifndef PEERDMA_COMPAT_URING_H
#define PEERDMA_COMPAT_URING_H

#include <linux/io_uring/cmd.h>

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
 * Defines the function name_ that io_uring calls in the submitter's task, around
 * body_(cmd, issue_flags). Since v6.19 it is given a request instead of a command. Drop with 6.12.
 */
#ifdef PEERDMA_HAVE_URING_TW_REQ
#define PEERDMA_URING_TASK_CB(name_, body_)                                              \
	static void name_(struct io_tw_req tw_req, io_tw_token_t tw)                     \
	{                                                                                \
		body_(io_uring_cmd_from_tw(tw_req), IO_URING_CMD_TASK_WORK_ISSUE_FLAGS); \
	}
#else
#define PEERDMA_URING_TASK_CB(name_, body_)                                   \
	static void name_(struct io_uring_cmd *cmd, unsigned int issue_flags) \
	{                                                                     \
		body_(cmd, issue_flags);                                      \
	}
#endif

#endif /* PEERDMA_COMPAT_URING_H */
