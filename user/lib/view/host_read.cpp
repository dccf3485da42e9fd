// SPDX-License-Identifier: MIT
#include "lib/view/host_read.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lib/policy.hpp"
#include "lib/view/checked_chunk.hpp"
#include "view/layout.hpp"

namespace peerdma_impl
{
namespace
{

// Elements that are widened at once: both forms fit into a core's cache.
constexpr uint64_t host_piece = 16384;
static_assert(host_piece % view::group_elements == 0);

// Elements of a view, one piece after the other.
class Pieces
{
public:
	Pieces(struct peerdma_view &view, const struct peerdma_view_read_args &args, const Form &form,
	       struct peerdma_view_result &result)
		: view_(view), args_(args), form_(form), result_(result)
	{
	}

	// Delivers elements [done, done + count) of the read, at most host_piece, at `to`.
	int deliver(uint64_t done, uint64_t count, std::byte *to)
	{
		const uint64_t first = args_.first + done;
		if (form_.as_is)
			return load(first, count, to);
		result_.by = PEERDMA_VIEW_BY_CPU;
		packed_.resize(view::packed_bytes(host_piece + view::group_elements, form_.bits));
		const uint64_t lead = view_.is_reduced_here() ? 0 : first % view::group_elements;
		if (const int rc = load(first - lead, lead + count, packed_.data()); rc < 0)
			return rc;
		const std::byte *from = packed_.data();
		uint64_t widened = 0;
		// The first elements, of a group that begins before them.
		if (lead) {
			std::byte group[view::group_elements * sizeof(uint64_t)];
			widened = std::min(count, view::group_elements - lead);
			view::restore(form_.codec(), from, lead + widened, group);
			std::memcpy(to, group + lead * form_.width, widened * form_.width);
			from += form_.bits;
		}
		view::restore(form_.codec(), from, count - widened, to + widened * form_.width);
		return 0;
	}

private:
	int load(uint64_t first, uint64_t count, std::byte *to)
	{
		const int rc = view_.load(first, count, to, Reader::cpu, scratch_, chunk_, result_);
		result_.moved += rc                      ? 0 :
				 view_.is_reduced_here() ? view_.packed_bytes(count) :
							   view_.bytes_of(first, count).len;
		return rc;
	}

	struct peerdma_view &view_;
	const struct peerdma_view_read_args &args_;
	const Form form_;
	struct peerdma_view_result &result_;
	Scratch scratch_;
	CheckedChunk chunk_;
	std::vector<std::byte> packed_;
};

// By the CPU, into the buffer's proxy address.
int store_to_buffer(struct peerdma_view &view, const struct peerdma_view_read_args &args, const Form &form,
		    struct peerdma_view_result &result)
{
	void *address = nullptr;
	int rc = map_buffer(*args.buf, address);
	if (rc < 0)
		return rc;
	result.route = PEERDMA_ROUTE_POSIX;
	Pieces pieces(view, args, form, result);
	std::vector<std::byte> piece(form.bytes(std::min(host_piece, args.count)));
	for (uint64_t done = 0; done < args.count && !rc; done += host_piece) {
		const uint64_t count = std::min(host_piece, args.count - done);
		rc = pieces.deliver(done, count, piece.data());
		if (rc)
			break;
		std::byte *const to = static_cast<std::byte *>(address) + args.buf_off + form.bytes(done);
		rc = view.sys.store(to, piece.data(), form.bytes(count));
		if (rc == -EFAULT) {
			result.reason = PEERDMA_REASON_REVOKED;
			rc = -ENODEV;
		}
		result.done += rc ? 0 : count;
	}
	return rc;
}

int read_directly(struct peerdma_view &view, const struct peerdma_view_read_args &args,
		  struct peerdma_view_result &result)
{
	const peerdma_view::Bytes bytes = view.bytes_of(args.first, args.count);
	struct peerdma_io_result io = {};
	io.size = sizeof(io);
	const int64_t n = peerdma_read_result(view.file.get(), args.buf, args.buf_off, bytes.len, bytes.offset, &io);
	result.route = io.route;
	result.read = result.moved = io.done;
	result.direct = io.direct + io.near;
	result.host = io.host;
	result.reason = io.reason;
	if (n < 0 || static_cast<uint64_t>(n) == bytes.len) {
		result.done = n < 0 ? io.done * 8 / view.codec.bits : args.count;
		return static_cast<int>(std::min<int64_t>(n, 0));
	}
	result.done = io.done * 8 / view.codec.bits;
	return -ENODATA;
}

} // namespace

int read_to_host(struct peerdma_view &view, const struct peerdma_view_read_args &args, const Form &form,
		 struct peerdma_view_result &result)
{
	result.route = PEERDMA_ROUTE_POSIX;
	Pieces pieces(view, args, form, result);
	// What is not widened is read at once.
	const uint64_t most = form.as_is ? args.count : host_piece;
	for (uint64_t done = 0; done < args.count; done += most) {
		const uint64_t count = std::min(most, args.count - done);
		std::byte *const to = static_cast<std::byte *>(args.to) + form.bytes(done);
		if (const int rc = pieces.deliver(done, count, to); rc < 0)
			return rc;
		result.done += count;
	}
	return 0;
}

int read_to_buffer(struct peerdma_view &view, const struct peerdma_view_read_args &args, const Form &form,
		   struct peerdma_view_result &result)
{
	const uint64_t len = form.bytes(args.count);
	if (args.buf_off > args.buf->len || len > args.buf->len - args.buf_off) {
		result.reason = PEERDMA_REASON_BUF_RANGE;
		return -EINVAL;
	}
	// The CPU must not put bytes there in spite of a rule either.
	if (const int rc = permit(*view.file, args.buf->provider_id); rc < 0) {
		result.reason = rc == -EACCES ? PEERDMA_REASON_RULE : PEERDMA_REASON_NONE;
		return rc;
	}
	if (form.as_is && !view.is_reduced_here() && !view.is_checked())
		return read_directly(view, args, result);
	if (view.device->direct_only())
		return -EXDEV;
	return store_to_buffer(view, args, form, result);
}

} // namespace peerdma_impl
