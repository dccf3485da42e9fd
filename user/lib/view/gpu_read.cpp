// SPDX-License-Identifier: MIT
//
// A read is cut into pieces. Each takes a slot, which the storage or the CPU fills, and whose stream delivers the elements:
// a copy into the device's memory, then a kernel that widens them into the destination. While a stream delivers one piece,
// the next one is read into the other slot.
#include "lib/view/gpu_read.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "lib/view/checked_chunk.hpp"
#include "lib/view/direct_slots.hpp"
#include "lib/view/slots.hpp"
#include "view/layout.hpp"

namespace peerdma_impl
{
namespace
{

// A short read is cut too, so that its parts overlap, but not into pieces shorter than this.
constexpr uint64_t least_piece = 512 << 10, pieces_of_short_read = 4;
// Fewer elements are not widened in place: what the kernels read behind them must be in the destination too.
constexpr uint64_t least_in_place = 4096;
constexpr uint64_t in_place_align = 16;

class GpuRead
{
public:
	GpuRead(struct peerdma_view &view, const CudaDriver &driver, SlotPool &pool, bool direct,
		const struct peerdma_view_read_args &args, const Form &form, struct peerdma_view_result &result)
		: view_(view), driver_(driver), slots_(pool), direct_(direct), args_(args), form_(form),
		  result_(result), stream_(static_cast<CuStream>(args.stream)),
		  to_(reinterpret_cast<uintptr_t>(args.to))
	{
	}

	int run()
	{
		int rc = 0;
		try {
			rc = read_pieces();
		} catch (const std::bad_alloc &) {
			rc = -ENOMEM; // pieces may be under way
		}
		const int ended = end();
		// Without knowing what the device did, nothing counts as delivered.
		result_.done = ended ? 0 : result_.done;
		return rc ? rc : ended;
	}

private:
	// Of which `left` elements remain.
	uint64_t piece_elements(uint64_t left) const
	{
		const uint64_t all = view::packed_bytes(args_.count, form_.bits);
		const uint64_t most = std::clamp(all / pieces_of_short_read, least_piece, slot_bytes);
		// Nothing overlaps the delivery of the last piece, so what the storage fills itself ends with short ones. On an H200
		// that made reads through host memory by 16 threads 4 % slower: the driver has more calls.
		const uint64_t half = view::packed_bytes(left, form_.bits) / 2;
		const uint64_t bytes = direct_ ? std::clamp(half, least_piece, most) : most;
		// Whole groups, and room for the byte that the first and the last element begin and end in.
		return std::min(left, (bytes - 1) / form_.bits * view::group_elements);
	}

	int read_pieces()
	{
		int rc = 0;
		for (uint64_t done = 0, count; done < args_.count && !rc; done += count) {
			count = piece_elements(args_.count - done);
			rc = read_piece(args_.first + done, count, form_.bytes(done));
			result_.done += rc ? 0 : count;
		}
		return rc;
	}

	int read_piece(uint64_t first, uint64_t count, uint64_t offset)
	{
		Slot *slot = nullptr;
		bool is_new = false;
		int rc = slots_.next(slot, is_new);
		if (!rc && !is_new)
			rc = CudaDriver::error(driver_.event_wait(slot->filled));
		if (!rc && is_new && stream_)
			rc = CudaDriver::error(order_after_program(*slot));
		if (rc)
			return rc;
		const peerdma_view::Bytes bytes = view_.is_reduced_here() ?
							  peerdma_view::Bytes{0, view_.packed_bytes(count), 0} :
							  view_.bytes_of(first, count);
		rc = direct_ ? deliver_direct(*slot, bytes, count, to_ + offset) :
			       deliver_bounced(*slot, first, count, bytes, to_ + offset);
		result_.moved += rc ? 0 : bytes.len;
		return rc;
	}

	int order_after_program(const Slot &slot)
	{
		const int rc = driver_.event_record(slot.ordered, stream_);
		return rc ? rc : driver_.stream_wait_event(slot.stream, slot.ordered, 0);
	}

	// The storage fills the slot's memory on the device.
	int deliver_direct(Slot &slot, const peerdma_view::Bytes &bytes, uint64_t count, CuAddress to)
	{
		const uint64_t from = bytes.offset / direct_block * direct_block, before = bytes.offset - from;
		const uint64_t whole = (before + bytes.len + direct_block - 1) / direct_block * direct_block;
		uint64_t lead = before;
		// What lies around the bytes may not be readable, or not exist.
		int rc = fill_direct(slot, from, whole, before + bytes.len);
		const bool has_other_bytes = whole != bytes.len;
		if (rc && has_other_bytes && rc != -EACCES && rc != -ENODEV && rc != -EBADF) {
			lead = 0;
			rc = fill_direct(slot, bytes.offset, bytes.len, bytes.len);
		}
		if (rc)
			return rc;
		const CuAddress packed = slot.device + lead;
		rc = form_.as_is ? CudaDriver::error(driver_.copy_in_device(to, packed, bytes.len, slot.stream)) :
				   widen(slot, to, slot.device, lead * 8 + bytes.skip, count, false);
		return rc ? rc : CudaDriver::error(driver_.event_record(slot.filled, slot.stream));
	}

	// needed: of `len` bytes, those that must come.
	int fill_direct(Slot &slot, uint64_t offset, uint64_t len, uint64_t needed)
	{
		struct peerdma_io_result io = {};
		io.size = sizeof(io);
		const int64_t n = peerdma_read_result(slot.file, slot.buf, slot.buf_off, len, offset, &io);
		result_.reason = io.reason == PEERDMA_REASON_END_OF_FILE && n >= static_cast<int64_t>(needed) ?
					 result_.reason :
					 io.reason;
		if (n < 0)
			return static_cast<int>(n);
		if (static_cast<uint64_t>(n) < needed)
			return -ENODATA;
		result_.read += io.done;
		result_.direct += io.direct + io.near;
		result_.host += io.host;
		return 0;
	}

	// The CPU fills pinned memory, and the device copies it.
	int deliver_bounced(Slot &slot, uint64_t first, uint64_t count, const peerdma_view::Bytes &bytes, CuAddress to)
	{
		const int loaded = view_.load(first, count, slot.pinned, Reader::device, slot.scratch, chunk_, result_);
		if (loaded < 0)
			return loaded;
		const bool in_place = args_.flags & PEERDMA_VIEW_READ_IN_PLACE && count >= least_in_place &&
				      form_.bits < form_.width * 8;
		const CuAddress room = to + count * form_.width - bytes.len - widen_slack;
		const CuAddress packed = form_.as_is ? to :
					 in_place    ? room / in_place_align * in_place_align :
						       slot.device;
		int rc = driver_.copy_to_device(packed, slot.pinned, bytes.len, slot.stream);
		if (!rc)
			rc = driver_.event_record(slot.filled, slot.stream);
		if (rc || form_.as_is)
			return CudaDriver::error(rc);
		return in_place ? widen_in_place(slot, to, packed, bytes.skip, count) :
				  widen(slot, to, packed, bytes.skip, count, false);
	}

	// skip: bits from `packed`, a multiple of 4, to the first element.
	int widen(const Slot &slot, CuAddress to, CuAddress packed, uint64_t skip, uint64_t count, bool last)
	{
		const WidenArguments arguments = {
			to,         packed + skip / 32 * 4, count, form_.bits, static_cast<uint32_t>(skip % 32),
			form_.left, form_.width == 8};
		result_.by = PEERDMA_VIEW_BY_GPU;
		return driver_.widen(arguments, last, slot.stream);
	}

	// The packed elements are at the end of the destination. Each launch writes no further than to the first word that a
	// later one reads. Where that would be too few elements, peerdma_widen_last reads all of its own before it writes.
	int widen_in_place(const Slot &slot, CuAddress to, CuAddress packed, unsigned skip, uint64_t count)
	{
		constexpr uint64_t last = widen_last_elements;
		for (uint64_t begin = 0; begin < count;) {
			const auto read_from = [&](uint64_t element) {
				return packed + (skip + element * form_.bits) / 32 * 4;
			};
			const uint64_t safe =
				(read_from(begin) - to) / form_.width / view::group_elements * view::group_elements;
			const bool by_last = safe < begin + last || count - begin <= last;
			uint64_t end = by_last ? begin + last : safe;
			// What remains must be far enough from what is written.
			if (by_last && end < count && to + end * form_.width > read_from(end))
				end = begin + last / 2;
			end = std::min(end, count);
			const int rc = widen(slot, to + begin * form_.width, packed, skip + begin * form_.bits,
					     end - begin, by_last);
			if (rc)
				return rc;
			begin = end;
		}
		return 0;
	}

	// The program, or its stream, goes on when all slots have delivered; after an error too, as pieces may be under way.
	int end()
	{
		int rc = 0;
		for (const Slot *const slot : slots_.used()) {
			const int ordered = stream_ ? order_program_after(*slot) : 0;
			const int waited = !stream_ || ordered ? driver_.stream_wait(slot->stream) : 0;
			rc = rc ? rc : ordered ? ordered : waited;
		}
		return CudaDriver::error(rc);
	}

	int order_program_after(const Slot &slot)
	{
		const int rc = driver_.event_record(slot.done, slot.stream);
		return rc ? rc : driver_.stream_wait_event(stream_, slot.done, 0);
	}

	struct peerdma_view &view_;
	const CudaDriver &driver_;
	SlotsOfRead slots_;
	CheckedChunk chunk_;
	const bool direct_;
	const struct peerdma_view_read_args &args_;
	const Form form_;
	struct peerdma_view_result &result_;
	const CuStream stream_;
	const CuAddress to_;
};

// The slots that the storage fills itself, or nullptr and result.reason. Returns as DirectSlots::pool_of().
int direct_slots(struct peerdma_view &view, const CudaDriver &driver, const CudaContext &context,
		 const struct peerdma_view_read_args &args, SlotPool *&out, struct peerdma_view_result &result)
{
	out = nullptr;
	if (!view.device || view.is_reduced_here() || view.is_checked() || args.flags & PEERDMA_VIEW_READ_IN_PLACE)
		return 0;
	{
		const std::lock_guard guard(view.lock);
		if (!view.direct)
			view.direct = std::make_unique<DirectSlots>(view);
	}
	return view.direct->pool_of(driver, context, out, result.reason);
}

} // namespace

int read_to_gpu(struct peerdma_view &view, const CudaDriver &driver, const CudaContext &context,
		const struct peerdma_view_read_args &args, const Form &form, struct peerdma_view_result &result)
{
	const auto stream = static_cast<CuStream>(args.stream);
	// Before the context changes: they are the thread's own.
	if (driver.is_default_of_another(stream, context))
		return -EINVAL;
	const InContext inside(driver, context);
	int rc = inside.error();
	if (!rc && stream)
		rc = driver.check_stream(stream, context);
	if (!rc && !form.as_is)
		rc = driver.load_kernels();
	if (rc)
		return rc;
	SlotPool *direct = nullptr;
	rc = direct_slots(view, driver, context, args, direct, result);
	if (rc == -EACCES)
		return rc;
	if (!direct && view.device && view.device->direct_only())
		return rc ? rc : -EXDEV;
	SlotPool &pool = direct ? *direct : host_slots_of(driver, context);
	rc = GpuRead(view, driver, pool, direct, args, form, result).run();
	result.route = !result.read                               ? PEERDMA_ROUTE_NONE :
		       !direct || (result.host && !result.direct) ? PEERDMA_ROUTE_HOST :
		       result.host                                ? PEERDMA_ROUTE_DIRECT_EDGES :
								    PEERDMA_ROUTE_DIRECT;
	return rc;
}

} // namespace peerdma_impl
