/* SPDX-License-Identifier: GPL-2.0 */
/*
 * merge_p2p PROVIDER DEVICE: reads the first four blocks of 4096 bytes of a block device with O_DIRECT, by one
 * io_submit(2), in turns to the program's own memory and to memory that a PCI function publishes for peer-to-peer DMA
 * (0000:01:00.0, for one an NVMe drive with a controller memory buffer). Says what each read said.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCK = 4096, NR = 4 };

int main(int argc, char **argv)
{
	struct iocb iocbs[NR] = {}, *list[NR];
	struct io_event events[NR];
	aio_context_t context = 0;
	char *host, *peer;
	char path[128];
	int fd, i;

	if (argc != 3)
		return 2;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/p2pmem/allocate", argv[1]);
	fd = open(path, O_RDWR);
	peer = mmap(NULL, NR * BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	host = aligned_alloc(BLOCK, NR * BLOCK);
	if (fd < 0 || peer == MAP_FAILED || !host) {
		perror(path);
		return 2;
	}
	fd = open(argv[2], O_RDONLY | O_DIRECT);
	if (fd < 0 || syscall(SYS_io_setup, NR, &context)) {
		perror(argv[2]);
		return 2;
	}
	for (i = 0; i < NR; i++) {
		iocbs[i].aio_lio_opcode = IOCB_CMD_PREAD;
		iocbs[i].aio_fildes = fd;
		iocbs[i].aio_buf = (unsigned long)((i % 2 ? peer : host) + i * BLOCK);
		iocbs[i].aio_nbytes = BLOCK;
		iocbs[i].aio_offset = i * BLOCK;
		iocbs[i].aio_data = i;
		list[i] = &iocbs[i];
	}
	if (syscall(SYS_io_submit, context, NR, list) != NR ||
	    syscall(SYS_io_getevents, context, NR, NR, events, NULL) != NR) {
		perror("io_submit");
		return 2;
	}
	for (i = 0; i < NR; i++)
		printf("block %d, %s memory: %d\n", (int)events[i].data, events[i].data % 2 ? "peer" : "host",
		       (int)events[i].res);
	return 0;
}
