// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "cli.hpp"
#include "counts.hpp"
#include "env.hpp"
#include "fd.hpp"

namespace cli
{

// Bytes of a file.
struct Range {
	uint64_t begin, end;
};

// A file that is read by the library, and again by read(2): one open file, whatever becomes of its name.
class Source
{
public:
	// Throws Failure: it cannot be opened, has no size, or its bytes do not end where its size says. Those of proc and
	// sysfs do not, as they are made when they are read.
	Source(peerdma_impl::Env &env, const Device &device, const std::string &path);

	const File &file() const { return file_; }
	const Fd &plain() const { return fd_; }
	uint64_t size() const { return size_; } // bytes, when it was opened
	// Throws Failure where it has another size now.
	void check_unchanged() const;

private:
	void check_end() const;

	const std::string path_;
	const Fd fd_;
	const File file_;
	const uint64_t size_;
};

// Where a file has data; what is between is zeros that nobody has to move.
std::vector<Range> data_of(int fd, uint64_t size);

// What was bounced in one direction, and why.
struct Bounced {
	uint64_t near = 0, host = 0;
	uint32_t reason = 0; // enum peerdma_reason, of the last
};

// Moves bytes of one file to the same place in another by way of a buffer, a piece after the other: whole blocks by a
// ring that has all pieces of the buffer under way at once, the rest, and all of it where a side has no direct route,
// by calls, which say which way the bytes went. Both files, and the buffer, are of the same device.
class Pump
{
public:
	struct Side {
		const File &file;
		std::string name;
		uint64_t block;        // bytes, of which whole ones go by a ring; 0: none do
		bool software = false; // what goes by a ring, the CPU copies
	};
	Pump(peerdma_impl::Env &env, const Device &device, const Side &from, const Side &to, Buffer buffer,
	     uint64_t piece, uint32_t pieces, std::function<void(uint64_t)> progress);

	// Throws Failure. Bytes arrive in no order. Each range lies behind those before.
	void move(Range range);

	uint64_t done() const { return done_; }          // bytes that arrived
	const Counts &counts() const { return counts_; } // each byte twice: read, and written
	const Bounced &read() const { return read_; }
	const Bounced &written() const { return written_; }
	bool by_ring() const { return ring_ != nullptr; }

private:
	void ring(Range range);
	void by_calls(Range range);
	void completed(bool write, uint64_t len, Counts &moved);
	void call(bool write, uint64_t buf_off, uint64_t offset, uint64_t len);
	void arrived(uint64_t len);

	peerdma_impl::Env &env_;
	const Device &device_;
	const Side from_, to_;
	const Buffer buffer_;
	const uint64_t piece_;
	const uint32_t pieces_;
	const std::function<void(uint64_t)> progress_;
	Ring ring_;                        // destroyed before the buffer that its requests move
	uint64_t done_ = 0, moved_to_ = 0; // all bytes; the end of the last range
	Counts counts_;
	Bounced read_, written_;
};

// What will be a file: beside it, without a name until it is whole. Until publish() what had the name before is as it
// was, and nothing is left however this ends, but for SIGKILL: on filesystems without nameless files (NFS) that leaves
// .peerdma-XXXXXX, on others, between the two calls that put it in another's place, .peerdma-PID-N.
class Draft
{
public:
	// Throws Failure. path: of the file to be.
	Draft(peerdma_impl::Env &env, const std::string &path);
	~Draft();
	Draft(const Draft &) = delete;
	Draft &operator=(const Draft &) = delete;
	int fd() const { return fd_.get(); }
	const Fd &plain() const { return fd_; }
	// Puts it onto the storage, and in the place of what had its name. Throws Failure.
	void publish(mode_t mode);

private:
	void name_it();

	peerdma_impl::Env &env_;
	const std::string path_, dir_;
	std::string name_; // its own for now; empty: it has none
	Fd fd_;
};

// Throws Failure where the first len bytes of two files differ, as read(2) says after the page cache has let go of them.
void compare_files(const Fd &one, const std::string &one_name, const Fd &other, const std::string &other_name,
		   uint64_t len);

Report copy_to_file(const CopyOptions &options);

} // namespace cli
