// SPDX-License-Identifier: MIT
//
// An open view, and how its elements are read into host memory in their reduced form.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/descriptor.hpp"
#include "common/process.hpp"
#include "common/syscalls.hpp"
#include "lib/device.hpp"
#include "peerdma.h"
#include "view/codec.hpp"
#include "view/header.hpp"

namespace peerdma_impl
{

// Bytes of a file that are reduced at once. They stay in a core's cache between the copy out of the page cache and the
// packing, and so do the packed ones until they are stored.
inline constexpr size_t reduce_bytes = 128 << 10;
inline constexpr uint64_t populate_bytes = 2 << 20;

// Uninitialized memory for reducing, made when it is first needed.
class Scratch
{
public:
	std::byte *file() { return memory(); }
	std::byte *packed() { return memory() + reduce_bytes; }

private:
	std::byte *memory()
	{
		if (!memory_)
			memory_.reset(new std::byte[2 * reduce_bytes]);
		return memory_.get();
	}

	std::unique_ptr<std::byte[]> memory_;
};

// Who reads loaded elements next. What a core has just stored is in its cache, from which a device reads slowly.
enum class Reader { cpu, device };

class CheckedChunk; // checked_chunk.hpp
class DirectSlots;  // direct_slots.hpp

// Of a view's header, for PEERDMA_VIEW_OPEN_VERIFY.
struct Checks {
	std::vector<uint32_t> sums; // of each chunk
	std::vector<view::FileEntry> files;
};

struct CloseFile {
	void operator()(struct peerdma_file *file) const { peerdma_file_close(file); }
};

} // namespace peerdma_impl

// Immutable once open, except `direct` and `populated`.
struct peerdma_view {
	explicit peerdma_view(peerdma_impl::Syscalls &calls);
	~peerdma_view();
	peerdma_view(const peerdma_view &) = delete;
	peerdma_view &operator=(const peerdma_view &) = delete;

	// First check of each call, as check_handle().
	bool is_inherited() const { return process != peerdma_impl::this_process(); }

	// The bytes of the file that hold the reduced form of elements; not of one that is reduced here.
	struct Bytes {
		uint64_t offset, len;
		unsigned skip; // bits before the first element, 0 to 7
	};
	Bytes bytes_of(uint64_t first, uint64_t count) const;
	uint64_t packed_bytes(uint64_t count) const { return codec.reduced_bytes(count); }
	bool is_reduced_here() const { return where == PEERDMA_VIEW_WHERE_HOST; }
	// The CPU has to see what is read.
	bool is_checked() const { return checks != nullptr; }

	// Fills `to`: 0 or -errno; -ENODATA if the file ends before.
	int read_bytes(uint64_t offset, uint64_t len, std::byte *to) const;
	// Elements in reduced form at `to`, the first one after bytes_of().skip bits, or after none if they are reduced
	// here. Adds the bytes read from the file to `read` and `host` of the result. Returns 0 or -errno; -ERANGE and
	// -EBADMSG: result.misfit says where.
	int load(uint64_t first, uint64_t count, std::byte *to, peerdma_impl::Reader reader,
		 peerdma_impl::Scratch &scratch, peerdma_impl::CheckedChunk &chunk,
		 struct peerdma_view_result &result) const;

	peerdma_impl::Syscalls &sys;
	const uint64_t process = peerdma_impl::this_process();
	std::shared_ptr<peerdma_impl::Device> device;                       // nullptr: no direct reads
	std::unique_ptr<struct peerdma_file, peerdma_impl::CloseFile> file; // of that device
	peerdma_impl::Descriptor own;                                       // buffered
	uint32_t where = PEERDMA_VIEW_WHERE_NONE;
	bool has_codec = false; // of a plain file: the caller named one
	view::Codec codec;
	uint64_t elements = 0, data_offset = 0, files = 1;
	std::unique_ptr<const peerdma_impl::Checks> checks; // with PEERDMA_VIEW_OPEN_VERIFY
	std::byte *mapping = nullptr;                       // of the file, with PEERDMA_VIEW_OPEN_MAP
	uint64_t mapping_len = 0;
	// Parts of the mapping, of populate_bytes each, that were read once.
	std::unique_ptr<std::atomic<bool>[]> populated;

	std::mutex lock; // protects direct
	std::unique_ptr<peerdma_impl::DirectSlots> direct;

private:
	int populate(uint64_t offset, uint64_t len) const;
	int try_read(uint64_t offset, uint64_t len) const; // 0 or as read_bytes()
	uint64_t reduce_mapped(const std::byte *from, uint64_t count, std::byte *to) const;
	int reduce(uint64_t first, uint64_t count, std::byte *to, peerdma_impl::Reader reader,
		   peerdma_impl::Scratch &scratch, struct peerdma_view_result &result) const;
};

namespace peerdma_impl
{

// What open views of this process share with each other is freed with the last one.
void hold_shared();
void drop_shared();

} // namespace peerdma_impl
