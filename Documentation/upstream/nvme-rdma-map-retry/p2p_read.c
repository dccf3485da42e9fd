/* SPDX-License-Identifier: GPL-2.0 */
/*
 * p2p_read PROVIDER DEVICE: reads 4096 bytes from the start of a block device, with O_DIRECT, into memory that a PCI
 * function publishes for peer-to-peer DMA (0000:01:00.0, for one an NVMe drive with a controller memory buffer). Says
 * what pread(2) said.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char path[128];
	void *memory;
	ssize_t n;
	int fd;

	if (argc != 3)
		return 2;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/p2pmem/allocate", argv[1]);
	fd = open(path, O_RDWR);
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || memory == MAP_FAILED) {
		perror(path);
		return 2;
	}
	fd = open(argv[2], O_RDONLY | O_DIRECT);
	if (fd < 0) {
		perror(argv[2]);
		return 2;
	}
	n = pread(fd, memory, 4096, 0);
	printf("pread: %zd%s%s\n", n, n < 0 ? ", " : "", n < 0 ? strerror(errno) : "");
	return n < 0 && errno != EIO && errno != EREMOTEIO ? 2 : 0;
}
