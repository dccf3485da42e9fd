// SPDX-License-Identifier: MIT
#include "cufile/registry/registered_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <string>

namespace cufile
{
namespace
{

// Granularity of cuMemMap() (580 driver, H200).
constexpr uint64_t granularity = uint64_t{2} << 20;
constexpr int not_supported = 801; // CUresult
// An edge frame, which a neighbor may keep longer, is a run of its own if the rest has at least this length. A shorter
// range may stay registered for its neighbor: cheaper than one more I/O for each request.
constexpr uint64_t long_run = uint64_t{8} << 20;

uint64_t number(const void *address) { return reinterpret_cast<uintptr_t>(address); }
const void *pointer(uint64_t address) { return reinterpret_cast<const void *>(address); }
uint64_t frame_of(uint64_t address) { return address / frame_bytes * frame_bytes; }
uint64_t frame_end(uint64_t address) { return frame_of(address + frame_bytes - 1); }

bool is_same(Cuda &cuda, const Piece &piece)
{
	Allocation now;
	return !cuda.allocation(pointer(piece.start), now) && now.id == piece.id;
}

// CUDA memory of one allocation.
class CudaSource final : public FrameTable::Source
{
public:
	CudaSource(Cuda &cuda, PeerdmaClient &peerdma, const Allocation &all, uint64_t start, uint64_t end,
		   const Pieces &pieces)
		: cuda_(cuda), peerdma_(peerdma), all_(all), start_(start), end_(end), pieces_(pieces)
	{
	}

	// Pins whole frames.
	int pin(uint64_t start, uint64_t end, FrameRun &run, uint32_t &reason) override
	{
		run.start = start;
		run.end = edge(start, end);
		const uint64_t size = run.end - run.start;
		if (!run.charge(size))
			return 1;
		int rc = peerdma_.pin(pointer(run.start), size, run.first, reason);
		if (rc == -EOPNOTSUPP)
			rc = import_run(run, reason);
		return rc;
	}

	// True if the allocation is the same. A frame that spans several allocations is the same while one of them
	// exists.
	bool is_same(const RunPart &part, const std::vector<std::shared_ptr<const Pieces>> &known) override
	{
		return std::all_of(pieces_.begin(), pieces_.end(), [&](const Piece &own) {
			const uint64_t from = std::max(frame_of(own.start), part.start);
			const uint64_t to = std::min(frame_end(own.end), part.end);
			return from >= to || is_known(own, from, to, known);
		});
	}

private:
	// End of the first run of a range. Nothing large is registered beyond the ends of an allocation.
	uint64_t edge(uint64_t start, uint64_t end) const
	{
		const bool head = start < start_ && start_ > all_.start;
		const bool tail = end > end_ && end_ < all_.start + all_.size;
		// A run border inside a file block would make that block bounce.
		if (end - start < long_run || start_ % 4096)
			return end;
		return head ? start + frame_bytes : tail ? end - frame_bytes : end;
	}

	bool is_known(const Piece &own, uint64_t from, uint64_t to,
		      const std::vector<std::shared_ptr<const Pieces>> &known) const
	{
		for (const auto &pieces : known)
			for (const Piece &one : *pieces)
				if (one.id == own.id)
					return true;
		for (const auto &pieces : known)
			for (const Piece &one : *pieces)
				if (frame_of(one.start) <= from && frame_end(one.end) >= to &&
				    cufile::is_same(cuda_, one))
					return true;
		return false;
	}

	// If both ways fail, reports the reason of the one that got further.
	int import_run(FrameRun &run, uint32_t &reason)
	{
		const uint64_t start = std::max(run.start, all_.start), end = std::min(run.end, all_.start + all_.size);
		Memory memory;
		std::string gpu;
		if (cuda_.look_up(pointer(start), memory) || cuda_.pci_address(memory.device, gpu))
			return -EOPNOTSUPP;
		uint32_t why = PEERDMA_REASON_NONE;
		const int rc = peerdma_.import_cuda(pointer(start), end - start, gpu, run.first, why);
		if (rc < 0) {
			if (why && why != PEERDMA_REASON_IMPORT_UNKNOWN && why != PEERDMA_REASON_IMPORT_HANDLE)
				reason = why;
			return rc;
		}
		reason = PEERDMA_REASON_NONE;
		run.start = start - run.first.offset;
		run.end = start + run.first.size;
		run.first.offset = 0;
		return 0;
	}

	Cuda &cuda_;
	PeerdmaClient &peerdma_;
	const Allocation &all_;
	const uint64_t start_, end_; // the range that the program registers
	const Pieces &pieces_;
};

// Its GPU is unknown, so all of it counts for one quota. The frames are those of the allocation, wherever it begins.
class ForeignSource final : public FrameTable::Source
{
public:
	explicit ForeignSource(PeerdmaClient &peerdma) : peerdma_(peerdma) {}

	int pin(uint64_t start, uint64_t end, FrameRun &run, uint32_t &reason) override
	{
		const int rc = peerdma_.import_foreign(pointer(start), end - start, run.first, reason);
		if (rc < 0)
			return rc;
		run.start = start - run.first.offset;
		run.end = start + run.first.size;
		run.first.offset = 0;
		return run.charge(run.end - run.start) ? 0 : 1;
	}
	// The dma-buf keeps the memory. Runs of CUDA memory have pieces.
	bool is_same(const RunPart &, const std::vector<std::shared_ptr<const Pieces>> &known) override
	{
		return std::all_of(known.begin(), known.end(), [](const auto &pieces) { return pieces->empty(); });
	}

private:
	PeerdmaClient &peerdma_;
};

// The pieces of a range of an allocation. False if some of it is not mapped.
bool find_pieces(Cuda &cuda, uint64_t start, uint64_t end, Pieces &pieces)
{
	for (uint64_t at = start, next; at < end; at = next) {
		next = std::min(end, (at / granularity + 1) * granularity);
		Allocation now;
		if (cuda.allocation(pointer(at), now) || !now.id)
			return false;
		if (pieces.empty() || pieces.back().id != now.id)
			pieces.push_back({at, next, now.id});
		else
			pieces.back().end = next;
	}
	return true;
}

} // namespace

int RegisteredMemory::create(FrameTable &frames, Cuda &cuda, const void *base, uint64_t size,
			     std::shared_ptr<RegisteredMemory> &out, uint32_t &reason, int device)
{
	auto memory = std::make_shared<RegisteredMemory>(frames, device, false);
	memory->registered_ = {number(base), number(base) + size};
	const int rc = memory->add(cuda, number(base), size, reason);
	Allocation all;
	if (is_shortage(rc) && !cuda.allocation(base, all))
		memory->short_id_ = all.id;
	if (!rc || memory->short_id_)
		out = std::move(memory);
	return rc;
}

int RegisteredMemory::import_foreign(FrameTable &frames, const void *base, uint64_t size,
				     std::shared_ptr<RegisteredMemory> &out, uint32_t &reason)
{
	auto memory = std::make_shared<RegisteredMemory>(frames, -1, true);
	ForeignSource source(frames.peerdma());
	auto pieces = std::make_shared<Pieces>();
	std::vector<RunPart> parts;
	const int rc =
		frames.pin_range(number(base), number(base) + size, frame_bytes, -1, source, pieces, parts, reason);
	if (rc)
		return rc;
	memory->add_extent(std::move(parts), std::move(pieces));
	out = std::move(memory);
	return 0;
}

int RegisteredMemory::add(Cuda &cuda, uint64_t start, uint64_t size, uint32_t &reason)
{
	reason = PEERDMA_REASON_NONE;
	Allocation all;
	if (cuda.allocation(pointer(start), all) || !all.id || start < all.start)
		return -EINVAL;
	const uint64_t before = start - all.start;
	if (before >= all.size)
		return -EINVAL;
	if (size > all.size - before) {
		if (!cuda.is_mapped(pointer(start)))
			return -EINVAL;
		size = all.size - before;
	}
	const uint64_t end = start + size, first = frame_of(start), last = frame_end(end);
	auto pieces = std::make_shared<Pieces>();
	if (!find_pieces(cuda, std::max(first, all.start), std::min(last, all.start + all.size), *pieces))
		return -EINVAL;
	CudaSource source(cuda, frame_table_.peerdma(), all, start, end, *pieces);
	std::vector<RunPart> parts;
	const int rc = frame_table_.pin_range(first, last, 0, device_, source, pieces, parts, reason);
	if (rc)
		return rc;
	// Synchronizes the driver's copies with the drive's from now on. The driver does not do so for memory mapped in
	// pieces: there the program waits for its copies. If the memory was freed meanwhile, the kernel or the program
	// has other memory now.
	const int synchronous = cuda.set_sync_memops(pointer(start));
	if (synchronous && (synchronous != not_supported || !cuda.is_mapped(pointer(start))))
		return -EOPNOTSUPP;
	if (!std::all_of(pieces->begin(), pieces->end(), [&](const Piece &one) { return is_same(cuda, one); }))
		return -ENODEV;
	const auto known = extent();
	if (!known->parts.empty() && !parts.empty() && !share_a_file(*known->parts.front().run, *parts.front().run))
		return -EXDEV;
	for (RunPart &part : parts) {
		part.start = std::max(part.start, all.start);
		part.end = std::min(part.end, all.start + all.size);
	}
	add_extent(std::move(parts), std::move(pieces));
	return 0;
}

// Only adds: I/O to existing parts may be in flight.
void RegisteredMemory::add_extent(std::vector<RunPart> parts, std::shared_ptr<const Pieces> pieces)
{
	const auto next = std::make_shared<Extent>(*extent());
	for (RunPart &part : parts) {
		const auto at = std::lower_bound(next->parts.begin(), next->parts.end(), part,
						 [](const auto &a, const auto &b) { return a.end <= b.start; });
		if (at == next->parts.end() || at->start >= part.end)
			next->parts.insert(at, std::move(part));
	}
	next->pieces.push_back(std::move(pieces));
	std::shared_ptr<const Extent> other = next;
	const std::lock_guard guard(lock_);
	extent_.swap(other);
}

int RegisteredMemory::extend(Cuda &cuda, uint64_t now_ns, const void *address, uint64_t size, uint32_t &reason)
{
	const std::lock_guard guard(extending_);
	int rc = 0;
	for (uint64_t at = number(address), end = at + size; at < end && !rc;) {
		const uint64_t there = bytes_from(pointer(at));
		if (there) {
			at += there;
			continue;
		}
		Allocation all;
		if (cuda.allocation(pointer(at), all) || !all.id ||
		    (all.id != short_id_ && !cuda.is_mapped(pointer(at))))
			return -EINVAL;
		if (all.id == refused_id_) {
			reason = refused_reason_;
			return refused_;
		}
		if (!backoff_.is_due(now_ns))
			return -EAGAIN;
		// The gap around the address without known parts: each I/O asks about every piece that it touches.
		uint64_t from = std::max(all.start, registered_.first), to = registered_.second;
		for (const RunPart &part : extent()->parts) {
			if (part.end <= at)
				from = std::max(from, part.end);
			else
				to = std::min(to, part.start);
		}
		rc = add(cuda, from, to - from, reason);
		if (is_shortage(rc))
			backoff_.failed(now_ns);
		if (rc > 0 || is_shortage(rc))
			return rc;
		backoff_.worked();
		if (rc) {
			refused_id_ = all.id;
			refused_ = rc;
			refused_reason_ = reason;
		} else if (!bytes_from(pointer(at))) {
			return -EINVAL;
		}
	}
	return rc;
}

std::shared_ptr<const RegisteredMemory::Extent> RegisteredMemory::extent() const
{
	const std::lock_guard guard(lock_);
	return extent_;
}

uint64_t RegisteredMemory::bytes_from(const void *address) const
{
	const auto now = extent();
	uint64_t at = number(address);
	for (const RunPart &part : now->parts)
		if (at >= part.start && at < part.end)
			at = part.end;
	return at - number(address);
}

bool RegisteredMemory::is_valid(Cuda &cuda) const
{
	const auto now = extent();
	for (const auto &pieces : now->pieces)
		for (const Piece &one : *pieces)
			if (!is_same(cuda, one))
				return false;
	return true;
}

bool RegisteredMemory::is_valid(Cuda &cuda, const void *address, uint64_t size) const
{
	const uint64_t start = number(address), end = start + size;
	const auto now = extent();
	for (const auto &pieces : now->pieces)
		for (const Piece &one : *pieces)
			if (one.start < end && start < one.end && !is_same(cuda, one))
				return false;
	return true;
}

BufferLocation RegisteredMemory::location(const void *address) const
{
	const uint64_t at = number(address);
	const auto now = extent();
	for (const RunPart &part : now->parts)
		if (at >= part.start && at < part.end) {
			BufferLocation location = part.run->first;
			location.registered = true;
			location.offset += at - part.run->start;
			location.size = part.end - at;
			return location;
		}
	return {};
}

} // namespace cufile
