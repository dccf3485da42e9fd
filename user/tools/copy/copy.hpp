// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/syscalls.hpp"
#include "tools/cli/cli.hpp"
#include "tools/stat/io_counts.hpp"
#include "tools/system/fd.hpp"

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
	Source(peerdma_impl::Syscalls &sys, const Device &device, const std::string &path);

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

// The ranges of a file that have data; holes between them need no copy.
std::vector<Range> data_ranges(int fd, uint64_t size);

// Bytes that were bounced in one direction, and why.
struct BounceCounts {
	uint64_t near = 0, host = 0;
	uint32_t reason = 0; // enum peerdma_reason, of the last
};

// Moves bytes of one file to the same place in another by way of a buffer, a piece after the other: whole blocks by a
// ring that has all pieces of the buffer under way at once, the rest, and all of it where a side has no direct route,
// by calls, which say which way the bytes went. Both files, and the buffer, are of the same device.
class FileCopier
{
public:
	struct Side {
		const File &file;
		std::string name;
		uint64_t block;        // bytes, of which whole ones go by a ring; 0: none do
		bool software = false; // what goes by a ring, the CPU copies
	};
	FileCopier(peerdma_impl::Syscalls &sys, const Device &device, const Side &from, const Side &to, Buffer buffer,
		   uint64_t piece, uint32_t pieces, std::function<void(uint64_t)> progress);

	// Throws Failure. Bytes arrive in no order. Each range lies behind those before.
	void copy(Range range);

	uint64_t done() const { return done_; }          // bytes that arrived
	const Counts &counts() const { return counts_; } // each byte twice: read, and written
	const BounceCounts &read() const { return read_; }
	const BounceCounts &written() const { return written_; }
	bool by_ring() const { return ring_ != nullptr; }

private:
	void copy_by_ring(Range range);
	void copy_by_calls(Range range);
	void completed(bool write, uint64_t len, Counts &moved);
	void transfer(bool write, uint64_t buf_off, uint64_t offset, uint64_t len);
	void add_done(uint64_t len);

	peerdma_impl::Syscalls &sys_;
	const Device &device_;
	const Side from_, to_;
	const Buffer buffer_;
	const uint64_t piece_;
	const uint32_t pieces_;
	const std::function<void(uint64_t)> progress_;
	Ring ring_;                         // destroyed before the buffer that its requests move
	uint64_t done_ = 0, copied_to_ = 0; // all bytes; the end of the last range
	Counts counts_;
	BounceCounts read_, written_;
};

// A file that replaces another in one step: an anonymous file of the same directory, which publish() gives the name. Until
// then the old file is unchanged, and nothing is left behind, except after SIGKILL: on filesystems without O_TMPFILE (NFS)
// .peerdma-XXXXXX, on others, between linkat() and rename(), .peerdma-PID-N.
class AtomicFile
{
public:
	// Throws Failure. path: of the file to be.
	AtomicFile(peerdma_impl::Syscalls &sys, const std::string &path);
	~AtomicFile();
	AtomicFile(const AtomicFile &) = delete;
	AtomicFile &operator=(const AtomicFile &) = delete;
	int fd() const { return fd_.get(); }
	const Fd &plain() const { return fd_; }
	// Puts it onto the storage, and in the place of what had its name. Throws Failure.
	void publish(mode_t mode);

private:
	void link_temporary();

	peerdma_impl::Syscalls &sys_;
	const std::string path_, dir_;
	std::string name_; // its own for now; empty: it has none
	Fd fd_;
};

// Throws Failure where the first len bytes of two files differ, as read(2) says after the page cache has let go of them.
void compare_files(const Fd &one, const std::string &one_name, const Fd &other, const std::string &other_name,
		   uint64_t len);

Report copy_to_file(const CopyOptions &options);

} // namespace cli
