// SPDX-License-Identifier: MIT
#include "cufile/path/direct_file.hpp"

#include <algorithm>
#include <cerrno>

#include "cufile/platform/backoff.hpp"

namespace cufile
{

DirectFile::DirectFile(PeerdmaClient &peerdma, struct peerdma_file *file, uint32_t provider, uint64_t now_ns)
	: peerdma_(peerdma), file_(file, [&peerdma](struct peerdma_file *own) { peerdma.close_file(own); }),
	  queried_ns_(now_ns)
{
	query(provider);
}

DirectFile::DirectFile(const DirectFile &before, uint32_t provider, uint64_t now_ns)
	: peerdma_(before.peerdma_), file_(before.file_), queried_ns_(now_ns)
{
	query(provider);
}

bool DirectFile::is_stale(uint64_t now_ns) const { return is_transient() && now_ns - queried_ns_ >= Backoff::most; }

void DirectFile::query(uint32_t provider)
{
	struct peerdma_explanation explanation = {};
	// If the module cannot tell now, the I/O itself will.
	if (peerdma_.explain(file_.get(), provider, explanation) < 0)
		return;
	if (explanation.route == PEERDMA_ROUTE_POSIX || explanation.error == EXDEV ||
	    explanation.reason == PEERDMA_REASON_RULE)
		refused_ = explanation.reason;
	memory_align_ = explanation.dio_mem_align;
	block_ = explanation.dio_offset_align;
	distance_ = explanation.distance;
}

uint32_t DirectFile::misalignment(const Request &request) const
{
	if (!memory_align_ || !block_)
		return PEERDMA_REASON_NONE;
	const uint64_t skip = (block_ - request.offset % block_) % block_;
	// Only partial blocks: a read bounces them inside the device.
	if (request.size < skip + block_)
		return request.write ? PEERDMA_REASON_FILE_ALIGN : PEERDMA_REASON_NONE;
	return (request.location.offset + skip) % memory_align_ ? PEERDMA_REASON_BUF_ALIGN : PEERDMA_REASON_NONE;
}

// Only for writes; partial blocks of a read bounce inside the device.
uint32_t DirectFile::strict_misalignment(const Request &request) const
{
	// The middle too: a run of frames may end there.
	const uint64_t run = request.location.size < request.size ? request.location.size : 0;
	if (request.write && block_ &&
	    (request.offset % block_ || request.size % block_ || (request.offset + run) % block_))
		return PEERDMA_REASON_FILE_ALIGN;
	return misalignment(request);
}

int64_t transfer_direct(PeerdmaClient &peerdma, const Request &request, const BufferLocation &location, uint64_t size,
			uint64_t offset, struct peerdma_io_result &result)
{
	struct peerdma_file *const file = request.direct_file->get();
	result = {};
	result.size = sizeof(result);
	const int64_t n = request.write ? peerdma.write(file, location, size, offset, result) :
					  peerdma.read(file, location, size, offset, result);
	if (n < 0 || !result.error)
		return n;
	return result_after_error(request.write, static_cast<uint64_t>(n), -static_cast<int64_t>(result.error));
}

uint32_t reason_if_all_by_host(const struct peerdma_io_result &result)
{
	// If a route was lost midway, the direct part counts as direct and the rest is in result.host.
	if (result.route == PEERDMA_ROUTE_POSIX)
		return result.direct || result.near ? static_cast<uint32_t>(PEERDMA_REASON_NONE) : result.reason;
	// A partial block for which the device had no room. The kernel then reports end of file.
	if (result.route == PEERDMA_ROUTE_HOST)
		return result.reason == PEERDMA_REASON_END_OF_FILE ? static_cast<uint32_t>(PEERDMA_REASON_FILE_ALIGN) :
								     result.reason;
	return PEERDMA_REASON_NONE;
}

int64_t transfer_runs(PeerdmaClient &peerdma, const Request &request, const RegisteredMemory &memory,
		      struct peerdma_io_result &result)
{
	struct peerdma_io_result sum = {};
	bool all_by_host = true;
	uint64_t done = 0, part;
	do {
		const BufferLocation location = memory.location(request.address + done);
		part = std::min(request.size - done, location.size);
		if (!part)
			return -ENODEV;
		const int64_t n = transfer_direct(peerdma, request, location, part, request.offset + done, result);
		if (n < 0 && result_after_error(request.write, done, n) < 0)
			return n;
		const auto moved = static_cast<uint64_t>(std::max<int64_t>(n, 0));
		const uint32_t why = reason_if_all_by_host(result);
		all_by_host = all_by_host && (why || (done && !moved));
		if (why && !sum.reason) {
			sum.reason = why;
			sum.route = result.route;
		}
		sum.direct += result.direct;
		sum.host += result.host;
		done += moved;
		if (moved < part)
			break;
	} while (done < request.size);
	result.direct = sum.direct;
	result.host = sum.host;
	if (!all_by_host) {
		result.route = sum.host ? PEERDMA_ROUTE_DIRECT_EDGES : PEERDMA_ROUTE_DIRECT;
	} else if (sum.reason) {
		result.reason = sum.reason;
		result.route = sum.route;
	}
	return static_cast<int64_t>(done);
}

} // namespace cufile
