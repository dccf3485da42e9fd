// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/syscalls.hpp"
#include "peerdma.h"

// A machine in memory: sysfs, the peerdma driver and its device node. It implements the documented ABI and nothing
// else. A test injects a fault and checks how the library reacts.
class FakeSyscalls final : public peerdma_impl::Syscalls
{
public:
	struct Content {
		std::string bytes;
		uint32_t mode = S_IFREG | 0644;
		int open_error = 0;                             // negative errno
		std::optional<uint64_t> size = {};              // of fstat(2), if not the number of bytes
		int stat_error = 0;                             // of fstat(2): the server does not answer
		int identity_error = 0;                         // of what needs no server
		uint32_t refused_errno = 0, refused_reason = 0; // out_errno and out_reason of PEERDMA_FILE_QUERY
		uint32_t map = PEERDMA_MAP_BUS_ADDR;            // out_map unless refused
		uint32_t leaves = 1;                            // out_nr_leaves
		bool share = false;                             // a leaf without a number
	};
	struct Provider {
		uint32_t domain, bdf, bar;
		uint64_t bar_offset, len;
		uint64_t used = 0;
	};
	struct Buffer {
		uint32_t provider;
		uint64_t offset, len;
		std::string bytes;
	};

	static FakeSyscalls *current; // result of system_calls() in the library

	FakeSyscalls();
	~FakeSyscalls();

	// Adds a PCI function with a register BAR 0 of 4 KiB and a 64-bit prefetchable BAR 2 of bar2 bytes.
	void add_function(const std::string &pci, uint64_t bar2, const std::string &driver = "");
	std::string driver_of(const std::string &pci) const;
	std::string override_of(const std::string &pci) const;
	uint32_t add_provider(uint32_t domain, uint32_t bdf, uint32_t bar, uint64_t bar_offset, uint64_t len);

	std::map<std::string, std::string> files, links;
	std::map<std::string, Content> contents; // files for open(), except the device node
	std::map<uint32_t, Provider> providers;
	std::map<uint32_t, Buffer> buffers;
	std::map<int, std::string> fds;           // a dma-buf is "dmabuf:BUFFER:OFFSET:LENGTH"
	std::map<int, int> flags;                 // flags of open(), by descriptor
	std::vector<int> posix_fds;               // of each pread and pwrite
	int posix_error = 0;                      // of the first call after posix_good
	unsigned posix_good = 0;                  // calls that succeed before it
	int reopen_error = 0;                     // of opening /proc/self/fd
	bool can_see_fds = true;                  // /proc/self/fd has links
	uint64_t posix_limit = 10000;             // bytes that one call moves at most
	std::map<uint32_t, std::string> file_ids; // registered files
	std::map<std::string, int> write_errors;  // path to negative errno
	std::vector<std::pair<std::string, std::string>> writes;
	std::vector<peerdma_io> ios;         // in the order of the calls
	uint64_t io_limit = UINT64_MAX;      // bytes one READ or WRITE moves at most
	int io_error = 0;                    // negative errno of each READ and WRITE
	size_t io_good = 0;                  // calls that succeed before it, in total
	std::map<void *, uint64_t> mappings; // address to length
	uint64_t features = PEERDMA_FEATURE_URING | PEERDMA_FEATURE_URING_VEC;
	// The ring: submitted commands in order, and its behavior.
	std::deque<peerdma_impl::Command> under_way;
	std::vector<uint32_t> commands;   // op of each submitted command
	uint64_t astray = 0;              // error injected into the file offset of commands, in bytes
	bool hold = false;                // nothing completes
	unsigned held = 0;                // the last commands in flight that do not complete
	std::atomic<unsigned> sleeps = 0; // waits that sleep until a real signal, at most a second each
	int submit_error = 0, queue_error = 0, wait_error = 0;
	unsigned submit_most = UINT_MAX; // commands that one submit() takes
	unsigned queues = 0;             // currently open
	int mmap_error = 0;
	int populate_error = 0, store_error = 0;
	bool can_map = true; // false: a module from before out_mmap_offset
	uint32_t block = 512, mem_align = 4;
	int node_error = 0;
	std::map<std::string, int> provider_nodes; // errno of opening each node; list_dir() takes names from files
	std::string opened_node;
	uint32_t abi = PEERDMA_ABI_VERSION;
	std::map<int, int64_t> sizes; // of foreign dma-bufs
	// Of loaded libraries, by "LIBRARY FUNCTION".
	std::map<std::string, void *> functions;
	int publish_error = 0;
	uint32_t publish_flags = 0; // of the last publish
	uint32_t publish_reason = 0;
	// Runs first; with a result > 0 the fake continues.
	std::function<int(unsigned long, void *)> on_ioctl;

	int open(const char *path, int flags) override;
	int close(int fd) override;
	int dup(int fd) override;
	int ioctl(int fd, unsigned long request, void *arg) override;
	int mmap(int fd, uint64_t offset, uint64_t len, void **out) override;
	int map_file(int fd, uint64_t len, void **out) override;
	int populate(void *addr, uint64_t len) override;
	int store(void *to, const void *from, uint64_t len) override;
	int munmap(void *addr, uint64_t len) override;
	int open_queue(int dev, unsigned depth, bool one_thread, std::unique_ptr<peerdma_impl::Queue> &out) override;
	int64_t pread(int fd, void *to, uint64_t len, uint64_t offset) override;
	int64_t pwrite(int fd, const void *from, uint64_t len, uint64_t offset) override;
	int fsync(int fd) override;
	int open_flags(int fd) override;
	int fstat(int fd, struct stat &st) override;
	int identity(int fd, struct stat &st) override;
	off_t seek(int fd, off_t to) override;
	off_t position(int fd) override;
	int access(const std::string &path, int mode) override;
	int read_bounded(const std::string &path, uint64_t most, std::string &out) override;
	int write_file(const std::string &path, std::string_view value) override;
	int read_link(const std::string &path, std::string &out) override;
	int list_dir(const std::string &path, std::vector<std::string> &out) override;
	int64_t size_of(int fd) override;
	void *function(const char *library, const char *name) override;

	// Sets the next descriptor; returns the one it replaces.
	int next_fd(int fd) { return std::exchange(next_fd_, fd); }
	// The program closes this number and opens another file under it.
	void reuse(int fd, const std::string &path);

	// An ioctl of the device node, without on_ioctl.
	int perform(unsigned long request, void *arg);
	// Executes the oldest command in flight.
	peerdma_impl::Completion complete();

private:
	template <class Request> int add_buffer(Request &req, uint32_t provider, uint64_t offset);
	int io(peerdma_io &io, bool write);
	int32_t piece(const peerdma_impl::Command &command, uint64_t file_off, uint64_t buf_off, uint32_t len);

	std::map<int, std::shared_ptr<off_t>> positions_; // shared by the descriptors of a description

	int next_fd_ = 100;
	uint32_t next_provider_ = 1, next_buffer_ = 1, next_file_ = 1;
};
