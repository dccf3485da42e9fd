// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <unistd.h>

#include "tools/copy/copy.hpp"

namespace cli
{

std::vector<Range> data_ranges(int fd, uint64_t size)
{
	std::vector<Range> ranges;
	for (uint64_t at = 0; at < size;) {
		const off_t begin = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
		if (begin < 0 && errno == ENXIO)
			break; // a hole until the end of the file
		const off_t end = begin < 0 ? -1 : ::lseek(fd, begin, SEEK_HOLE);
		if (end <= begin)
			return {{0, size}}; // the filesystem or device does not report holes
		at = std::min(static_cast<uint64_t>(end), size);
		ranges.push_back({static_cast<uint64_t>(begin), at});
	}
	return ranges;
}

FileCopier::FileCopier(peerdma_impl::Syscalls &sys, const Device &device, const Side &from, const Side &to,
		       Buffer buffer, uint64_t piece, uint32_t pieces, std::function<void(uint64_t)> progress)
	: sys_(sys), device_(device), from_(from), to_(to), buffer_(std::move(buffer)), piece_(piece), pieces_(pieces),
	  progress_(std::move(progress))
{
	struct peerdma_ring *raw = nullptr;
	// Rings are optional: a container may forbid them.
	if (from.block && to.block &&
	    peerdma_ring_create(device.get(), pieces, pieces, PEERDMA_RING_ONE_THREAD, &raw) == 0)
		ring_.reset(raw);
}

void FileCopier::add_done(uint64_t len)
{
	done_ += len;
	if (progress_)
		progress_(done_);
}

void FileCopier::transfer(bool write, uint64_t buf_off, uint64_t offset, uint64_t len)
{
	const Side &side = write ? to_ : from_;
	struct peerdma_io_result result = {};
	result.size = sizeof(result);
	const int64_t n = (write ? peerdma_write_result : peerdma_read_result)(side.file.get(), buffer_.get(), buf_off,
									       len, offset, &result);
	if (n < 0 || result.error)
		throw Failure{fmt::format("{} {} failed {} bytes from its start", write ? "writing" : "reading",
					  side.name, offset),
			      n < 0 ? static_cast<int>(-n) : static_cast<int>(result.error),
			      result.reason,
			      "",
			      {}};
	if (static_cast<uint64_t>(n) != len)
		throw Failure{fmt::format("{} changed while it was copied", side.name),
			      EIO,
			      0,
			      "Copy it again while no program writes to it.",
			      {}};
	counts_ = counts_ + Counts{result.direct, result.near, result.host};
	BounceCounts &bounced = write ? written_ : read_;
	bounced.near += result.near;
	bounced.host += result.host;
	if (result.near || result.host)
		bounced.reason = result.reason;
}

// Each slot of the buffer has one request at a time. A slot is read, written, then reused. If a request of the ring
// moves only a part, a call requests the rest and reports the reason.
void FileCopier::copy_by_ring(Range range)
{
	struct Piece {
		uint64_t offset, len;
		bool writing;
	};
	std::vector<Piece> pieces(pieces_);
	uint64_t next = range.begin;
	uint32_t busy = 0;
	auto send = [&](uint64_t index) {
		const Piece &piece = pieces[index];
		struct peerdma_op op = {};
		op.kind = piece.writing ? PEERDMA_OP_WRITE : PEERDMA_OP_READ;
		op.file = (piece.writing ? to_ : from_).file.get();
		op.buf = buffer_.get();
		op.buf_off = index * piece_;
		op.len = piece.len;
		op.file_off = piece.offset;
		op.tag = index;
		const int rc = peerdma_ring_queue(ring_.get(), &op, 1);
		if (rc < 0)
			throw Failure{fmt::format("cannot queue a request for {}", (piece.writing ? to_ : from_).name),
				      -rc,
				      0,
				      "",
				      {}};
	};
	auto take_next = [&](uint64_t index) {
		if (next == range.end)
			return;
		pieces[index] = {next, std::min(piece_, range.end - next), false};
		next += pieces[index].len;
		send(index);
		busy++;
	};
	const auto before = kernel_counts(sys_, device_);
	const uint64_t bytes_by_calls = counts_.all();
	Counts moved; // by the ring; each byte counts twice
	for (uint64_t index = 0; index < pieces_; index++)
		take_next(index);
	while (busy) {
		std::array<struct peerdma_done, 16> done;
		const int n = wait_for(ring_, done.data(), static_cast<uint32_t>(done.size()));
		if (n < 0)
			throw Failure{fmt::format("cannot wait for {}", to_.name), -n, 0, "", {}};
		for (int i = 0; i < n; i++) {
			const auto &one = done[static_cast<size_t>(i)];
			Piece &piece = pieces[one.tag];
			if (one.result != static_cast<int64_t>(piece.len))
				transfer(piece.writing, one.tag * piece_, piece.offset, piece.len);
			else
				completed(piece.writing, piece.len, moved);
			if (!piece.writing) {
				piece.writing = true;
				send(one.tag);
				continue;
			}
			busy--;
			add_done(piece.len);
			take_next(one.tag);
		}
	}
	// If the kernel's counters are not available or include other calls: whole blocks of a ring went direct, or the
	// ring failed.
	const auto after = kernel_counts(sys_, device_);
	const bool said = before && after && counts_.all() == bytes_by_calls;
	counts_ = counts_ + (said ? *after - *before : moved);
}

void FileCopier::completed(bool write, uint64_t len, Counts &moved)
{
	if (!(write ? to_ : from_).software) {
		moved.direct += len;
		return;
	}
	BounceCounts &bounced = write ? written_ : read_;
	moved.host += len;
	bounced.host += len;
	bounced.reason = PEERDMA_REASON_RDMA_SOFTWARE;
}

void FileCopier::copy(Range range)
{
	const uint64_t block = std::max({from_.block, to_.block, uint64_t{1}}), end = range.end;
	if (ring_) {
		// Data begins at a block of the source. If the block used here is larger, copies the bytes before the
		// data in that block too, unless they have been copied already.
		range.begin = std::max(range.begin / block * block, copied_to_);
		const uint64_t first = (range.begin + block - 1) / block * block;
		copy_by_calls({range.begin, std::min(first, end)});
		const Range whole = {first, std::max(first, end / block * block)};
		if (whole.end > whole.begin)
			copy_by_ring(whole);
		range.begin = whole.end;
	}
	copy_by_calls(range);
	copied_to_ = end;
}

void FileCopier::copy_by_calls(Range range)
{
	while (range.begin < range.end) {
		const uint64_t len = std::min(piece_, range.end - range.begin);
		transfer(false, 0, range.begin, len);
		transfer(true, 0, range.begin, len);
		add_done(len);
		range.begin += len;
	}
}

} // namespace cli
