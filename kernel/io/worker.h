/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Runs pieces of commands where they may sleep.
 */
#ifndef PEERDMA_WORKER_H
#define PEERDMA_WORKER_H

struct peerdma_command;
struct peerdma_piece;
struct task_struct;

int peerdma_worker_run(struct peerdma_command *command, struct peerdma_piece *piece,
		       struct task_struct *submitter);
void peerdma_worker_queue(struct peerdma_command *command);
int peerdma_worker_init(void);
void peerdma_worker_exit(void);

#endif /* PEERDMA_WORKER_H */
