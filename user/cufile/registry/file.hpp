// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cerrno>
#include <memory>

#include "cufile/platform/dependencies.hpp"
#include "cufile/platform/descriptor.hpp"

namespace cufile
{

// The result of an I/O that met an error after `done` bytes. An error never becomes a short count: that would look like
// the end of the file. As in write(2), a write returns what there was room for.
constexpr int64_t stopped(bool write, uint64_t done, int64_t error)
{
	const bool full = error == -ENOSPC || error == -EDQUOT || error == -EFBIG;
	return write && full && done ? static_cast<int64_t>(done) : error;
}

// What bytes come from and go to. Both calls move all that is asked for, or return -errno. A short count of a read is the
// end of the file, of a write the end of the room for it.
class File
{
public:
	virtual ~File() = default;
	virtual int64_t read(void *to, uint64_t size, uint64_t offset) = 0;
	virtual int64_t write(const void *from, uint64_t size, uint64_t offset) = 0;
	virtual bool readable() const = 0;
	virtual bool writable() const = 0;
	// Why this range cannot be written, although the file is writable(): 0, -errno or a negative CUfileOpError. Asked before
	// anything is moved.
	virtual int64_t check_write(uint64_t /*offset*/, uint64_t /*size*/) const { return 0; }
	// fd() is still this file's: the program may close any number, and open another file by it.
	virtual bool is_valid() const { return true; }
	// Of the operating system; -1 if it is none of its files.
	virtual int fd() const { return -1; }
	// Whether several writes at once are faster than one. Not in the page cache, where they wait for each other.
	virtual bool parallel_writes() const { return false; }
	// Whether every read is a copy out of the page cache by the calling thread.
	virtual bool copied() const { return false; }
	// How io_uring may read a range past the page cache: by this descriptor, where memory, offset and size are multiples of
	// these. fd -1: read() has to, or should.
	struct UringTarget {
		int fd = -1;
		uint64_t memory = 1, offset = 1;
		bool cached = false; // it is for read_cached()
	};
	virtual UringTarget uring_target(uint64_t /*offset*/, uint64_t /*size*/) const { return {}; }
	// What uring_target() has found to be in the page cache, or for it.
	virtual int64_t read_cached(void *to, uint64_t size, uint64_t offset) { return read(to, size, offset); }
	// Completes a read of which io_uring has returned `came` bytes, or -errno.
	virtual int64_t resume_read(void *to, uint64_t size, uint64_t offset, int64_t /*came*/)
	{
		return read(to, size, offset);
	}
};

// A regular file or a block device. It is opened once more, so that the program may close its descriptor, set flags of it
// (O_APPEND, O_DIRECT) and have its locks end with it. What cannot be opened again has the program's open file
// description, whose flags are then as the program sets them. Which way is the program's choice: through the page cache,
// or past it if the descriptor was opened with O_DIRECT. What is not aligned then goes through the page cache all the
// same; where no descriptor for that can be had, reads take whole blocks into memory of their own, and writes are refused.
// And of a file that the page cache could not keep anyway, long reads of what is not in there go past it.
class SystemFile final : public File
{
public:
	// odirect: past the page cache even if the program did not ask for it, where the file can.
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
	bool parallel_writes() const override { return past_; }
	bool copied() const override { return !direct_; }
	UringTarget uring_target(uint64_t offset, uint64_t size) const override;
	int64_t read_cached(void *to, uint64_t size, uint64_t offset) override;
	// The page cache could not keep it.
	bool large() const { return !past_ && direct_; }
	// All that can goes past the page cache.
	bool past() const { return past_; }
	dev_t device() const { return main().device; }
	ino_t inode() const { return main().inode; }
	int64_t resume_read(void *to, uint64_t size, uint64_t offset, int64_t came) override;

private:
	const Descriptor &main() const { return past_ ? direct_ : cached_; }
	// The same file once more, with these flags: 0 or -errno.
	int reopen(int fd, int more, Descriptor &out);
	bool is_large(const struct stat &st) const;
	bool says_what_is_cached() const;
	// Whether a read is to go past the page cache.
	bool is_past(uint64_t offset, uint64_t size) const;
	// How much of it can.
	uint64_t aligned(const void *memory, uint64_t size, uint64_t offset) const;
	uint64_t block() const { return limits_.offset ? limits_.offset : 4096; }
	// As pread() and pwrite(), past the page cache, of what is not aligned. At most a few blocks.
	int64_t read_blocks(void *to, uint64_t size, uint64_t offset);
	int64_t write_blocks(const void *from, uint64_t size, uint64_t offset);
	int64_t read_by(bool past, void *to, uint64_t size, uint64_t offset);
	template <bool write, class Memory, class Call, class Blocks>
	int64_t move(bool past, Memory *memory, uint64_t size, uint64_t offset, Call &&call, Blocks &&blocks);

	System &system_;
	const int flags_;
	// Immutable once open() is through.
	bool shared_ = false;        // main() has the program's description
	Descriptor direct_, cached_; // past the page cache and through it; one of them may be missing
	bool past_ = false;          // all goes past the page cache that can
	DirectLimits limits_;
	std::atomic<bool> no_uring_{false};       // read() can what others cannot
	std::atomic<bool> direct_refused_{false}; // large(), and this file cannot
};

// A file system of the program's own.
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
