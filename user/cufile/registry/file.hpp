// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <memory>

#include "common/short_count.hpp"
#include "cufile/platform/dependencies.hpp"
#include "cufile/platform/descriptor.hpp"

namespace cufile
{

using peerdma_impl::result_after_error;

// Source or target of bytes. Both calls move all bytes or return -errno. A short count of a read is the end of file, of
// a write a full disk.
class File
{
public:
	virtual ~File() = default;
	virtual int64_t read(void *to, uint64_t size, uint64_t offset) = 0;
	virtual int64_t write(const void *from, uint64_t size, uint64_t offset) = 0;
	virtual bool readable() const = 0;
	virtual bool writable() const = 0;
	// Why a range of a writable() file cannot be written: 0, -errno or a negative CUfileOpError. Asked before
	// anything is moved.
	virtual int64_t check_write(uint64_t /*offset*/, uint64_t /*size*/) const { return 0; }
	// True if fd() still is this file's: the program may close it and open another file by that number.
	virtual bool is_valid() const { return true; }
	// -1 for a user-space filesystem.
	virtual int fd() const { return -1; }
	// True if concurrent writes are faster than one. In the page cache they wait for each other.
	virtual bool parallel_writes() const { return false; }
	// True if the calling thread copies each read out of the page cache.
	virtual bool copied() const { return false; }
	// How io_uring may read a range past the page cache: the descriptor, and the alignment of memory, and of offset
	// and size. fd -1: use read().
	struct UringTarget {
		int fd = -1;
		uint64_t memory = 1, offset = 1;
		bool cached = false; // use read_cached()
	};
	virtual UringTarget uring_target(uint64_t /*offset*/, uint64_t /*size*/) const { return {}; }
	// For a range that uring_target() has found in the page cache.
	virtual int64_t read_cached(void *to, uint64_t size, uint64_t offset) { return read(to, size, offset); }
	// Completes a read of which io_uring has returned `came` bytes, or -errno.
	virtual int64_t finish_short_read(void *to, uint64_t size, uint64_t offset, int64_t /*came*/)
	{
		return read(to, size, offset);
	}
};

// A regular file or a block device. It is opened again, so that the program may close its descriptor, change flags
// (O_APPEND, O_DIRECT) and release its locks. A file that cannot be reopened shares the program's open file description
// and follows its flags.
//
// I/O goes past the page cache if the program opened the file with O_DIRECT, otherwise through it. Unaligned parts of
// direct I/O go through the page cache. Without a descriptor for that, reads go through whole blocks of private memory,
// and writes are refused. Long reads of uncached data bypass the page cache if it cannot hold the file.
class SystemFile final : public File
{
public:
	// odirect: bypass the page cache, if the file supports it, even if the program did not ask for it.
	static CUfileOpError open(System &system, int fd, bool odirect, std::shared_ptr<SystemFile> &out);

	SystemFile(System &system, int flags) : system_(system), flags_(flags) {}
	~SystemFile() override;
	SystemFile(const SystemFile &) = delete;
	SystemFile &operator=(const SystemFile &) = delete;

	int64_t read(void *to, uint64_t size, uint64_t offset) override;
	int64_t write(const void *from, uint64_t size, uint64_t offset) override;
	bool readable() const override;
	bool writable() const override;
	int64_t check_write(uint64_t offset, uint64_t size) const override;
	bool is_valid() const override { return main().is_there(system_); }
	int fd() const override { return main().fd; }
	bool parallel_writes() const override { return bypass_cache_; }
	bool copied() const override { return !direct_; }
	UringTarget uring_target(uint64_t offset, uint64_t size) const override;
	int64_t read_cached(void *to, uint64_t size, uint64_t offset) override;
	// The page cache cannot hold it.
	bool large() const { return !bypass_cache_ && direct_; }
	// I/O bypasses the page cache where possible.
	bool bypass_cache() const { return bypass_cache_; }
	dev_t device() const { return main().device; }
	ino_t inode() const { return main().inode; }
	int64_t finish_short_read(void *to, uint64_t size, uint64_t offset, int64_t came) override;

private:
	const Descriptor &main() const { return bypass_cache_ ? direct_ : cached_; }
	// Opens the same file with these additional flags. 0 or -errno.
	int reopen(int fd, int more, Descriptor &out);
	bool is_large(const struct stat &st) const;
	bool says_what_is_cached() const;
	// True if a read is to bypass the page cache.
	bool bypasses_cache(uint64_t offset, uint64_t size) const;
	// The bytes of it that can bypass the page cache.
	uint64_t whole_blocks_len(const void *memory, uint64_t size, uint64_t offset) const;
	uint64_t block() const { return limits_.offset ? limits_.offset : 4096; }
	// As pread() and pwrite() past the page cache, for unaligned memory or offsets. At most a few blocks.
	int64_t read_blocks(void *to, uint64_t size, uint64_t offset);
	int64_t write_blocks(const void *from, uint64_t size, uint64_t offset);
	int64_t read_by(bool past, void *to, uint64_t size, uint64_t offset);
	template <bool write, class Memory, class Call, class Blocks>
	int64_t transfer_all(bool past, Memory *memory, uint64_t size, uint64_t offset, Call &&call, Blocks &&blocks);

	System &system_;
	const int flags_;
	// Immutable after open().
	bool shared_ = false;        // main() shares the program's description
	Descriptor direct_, cached_; // past and through the page cache; one may be missing
	bool bypass_cache_ = false;  // bypass the page cache where possible
	DirectLimits limits_;
	std::atomic<bool> no_uring_{false};       // io_uring has failed where read() works
	std::atomic<bool> direct_refused_{false}; // large(), but direct I/O fails
};

// A user-space filesystem of the program.
class UserFile final : public File
{
public:
	UserFile(const void *handle, const CUfileFSOps_t &ops) : handle_(handle), ops_(ops) {}

	int64_t read(void *to, uint64_t size, uint64_t offset) override;
	int64_t write(const void *from, uint64_t size, uint64_t offset) override;
	bool readable() const override { return ops_.read; }
	bool writable() const override { return ops_.write; }

private:
	const void *const handle_;
	const CUfileFSOps_t ops_;
};

} // namespace cufile
