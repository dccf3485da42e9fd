// SPDX-License-Identifier: MIT
#include "cufile/path/job.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "cufile/path/bounce_pipeline.hpp"
#include "cufile/platform/backoff.hpp"
#include "cufile/platform/cuda_context.hpp"

namespace cufile
{

Job::Job() = default;
Job::~Job() = default;

void Job::set_pipeline(std::unique_ptr<BouncePipeline> pipeline) { pipeline_ = std::move(pipeline); }

size_t Job::end()
{
	std::lock_guard guard(lock_);
	return end_;
}

void Job::add(Request request, uint64_t piece_bytes)
{
	const size_t first = pieces_.size();
	uint64_t done = 0;
	while (done < request.size) {
		const uint64_t at = request.offset + done;
		// Whole blocks, but for the first piece and the last: past the page cache only those go.
		const uint64_t part = request.size <= piece_bytes ?
					      request.size :
					      std::min(request.size - done, piece_bytes - at % piece_bytes);
		pieces_.push_back({parts_.size(), request.address + done, part, at, 0, {}, 0, 0});
		done += part;
	}
	parts_.push_back({std::move(request), first, pieces_.size(), pieces_.size() - first});
	end_ = pieces_.size();
	left_ = static_cast<int>(end_);
}

Job::Piece *Job::take()
{
	std::lock_guard guard(lock_);
	return next_ < end_ ? &pieces_[next_++] : nullptr;
}

void Job::finish(Piece &piece, int64_t result)
{
	piece.result = result;
	bool last;
	{
		std::lock_guard guard(lock_);
		last = --parts_[piece.request].left == 0;
	}
	if (last)
		done(piece.request);
	if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1)
		left_.notify_all();
}

size_t Job::cancel()
{
	std::lock_guard guard(lock_);
	size_t index = 0;
	while (index < parts_.size() && parts_[index].first < next_)
		index++;
	if (index == parts_.size() || parts_[index].first >= end_)
		return parts_.size();
	left_.fetch_sub(static_cast<int>(end_ - parts_[index].first));
	end_ = parts_[index].first;
	left_.notify_all();
	return index;
}

int64_t Job::result(size_t index) const
{
	const Part &part = parts_[index];
	int64_t total = 0;
	for (size_t i = part.first; i < part.end; i++) {
		const Piece &piece = pieces_[i];
		if (piece.result < 0)
			return stopped(part.request.write, static_cast<uint64_t>(total), piece.result);
		total += piece.result;
		if (static_cast<uint64_t>(piece.result) < piece.size)
			break;
	}
	return total;
}

void Job::wait()
{
	int left;
	while ((left = left_.load(std::memory_order_acquire)) != 0)
		left_.wait(left, std::memory_order_acquire);
}

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
	// What cannot be said now, the I/O will say.
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
	// Parts of blocks: a read of them is bounced inside the device.
	if (request.size < skip + block_)
		return request.write ? PEERDMA_REASON_FILE_ALIGN : PEERDMA_REASON_NONE;
	return (request.location.offset + skip) % memory_align_ ? PEERDMA_REASON_BUF_ALIGN : PEERDMA_REASON_NONE;
}

// Of a write; a read's are bounced inside the device.
uint32_t DirectFile::partial_misalignment(const Request &request) const
{
	// In the middle, too, where one run of frames ends and another begins.
	const uint64_t run = request.location.size < request.size ? request.location.size : 0;
	if (request.write && block_ &&
	    (request.offset % block_ || request.size % block_ || (request.offset + run) % block_))
		return PEERDMA_REASON_FILE_ALIGN;
	return misalignment(request);
}

namespace
{

// One slab after the other, and nobody helps.
int64_t bounce_serially(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers)
{
	uint64_t done = 0;
	while (done < request.size) {
		Request part = request;
		part.address += done;
		part.offset += done;
		part.size = std::min(request.size - done, small_slab);
		const int64_t n = bounce_small(part, deps, bounce_buffers, NtReader::Share::none);
		if (n < 0)
			return stopped(request.write, done, n);
		done += static_cast<uint64_t>(n);
		if (static_cast<uint64_t>(n) < part.size)
			break;
	}
	return static_cast<int64_t>(done);
}

} // namespace

int64_t transfer_direct(PeerdmaClient &peerdma, const Request &request, const BufferLocation &location, uint64_t size,
			uint64_t offset, struct peerdma_io_result &result)
{
	struct peerdma_file *const file = request.direct_file->get();
	result = {};
	const int64_t n = request.write ? peerdma.write(file, location, size, offset, result) :
					  peerdma.read(file, location, size, offset, result);
	if (n < 0 || !result.error)
		return n;
	return stopped(request.write, static_cast<uint64_t>(n), -static_cast<int64_t>(result.error));
}

namespace
{

// In as many parts as the memory has runs. What fails in one fails in all.
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
		if (n < 0 && stopped(request.write, done, n) < 0)
			return n;
		const auto moved = static_cast<uint64_t>(std::max<int64_t>(n, 0));
		const uint32_t why = host_fallback_reason(result);
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

} // namespace

uint32_t host_fallback_reason(const struct peerdma_io_result &result)
{
	// What went directly before a route was lost counts as that; the rest is in result.host.
	if (result.route == PEERDMA_ROUTE_POSIX)
		return result.direct || result.near ? static_cast<uint32_t>(PEERDMA_REASON_NONE) : result.reason;
	// A part of a block for which the device had no room; the end of the file is then what is told.
	if (result.route == PEERDMA_ROUTE_HOST)
		return result.reason == PEERDMA_REASON_END_OF_FILE ? static_cast<uint32_t>(PEERDMA_REASON_FILE_ALIGN) :
								     result.reason;
	return PEERDMA_REASON_NONE;
}

int64_t run_request(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		    HostFallback &host_fallback)
{
	host_fallback = {};
	if (request.path == TransferPath::direct || request.path == TransferPath::peer_gpu) {
		int64_t n = -ENODEV;
		struct peerdma_io_result result = {};
		// Until it ends, and no longer: who deregisters memory afterwards may register it anew.
		const std::shared_ptr<RegisteredMemory> held = request.registration.lock();
		if (request.path == TransferPath::peer_gpu)
			n = request.peer_gpu->transfer(request, result);
		else if (held)
			n = transfer_runs(deps.peerdma, request, *held, result);
		else if (!request.location.registered)
			n = transfer_direct(deps.peerdma, request, request.location, request.size, request.offset,
					    result);
		// The program has deregistered it, or the kernel had to give it back. CUDA may have it all the same, if it is its.
		if (n == -ENODEV && (request.location.registered || request.path == TransferPath::peer_gpu)) {
			host_fallback.reason =
				result.reason ? result.reason : static_cast<uint32_t>(PEERDMA_REASON_REVOKED);
			if (request.strict)
				return failed(CU_FILE_IO_NOT_SUPPORTED);
			return request.in_stream || request.memory.kind == Memory::Kind::foreign ?
				       n :
				       bounce_serially(request, deps, bounce_buffers);
		}
		host_fallback = {host_fallback_reason(result), result.host};
		if (!request.strict || n < 0 || (!host_fallback.reason && !host_fallback.bytes))
			return n;
		// What the module says before need not be what it does: it is too late, but not for saying so.
		if (!host_fallback.reason)
			host_fallback.reason = PEERDMA_REASON_FILE_ALIGN;
		return failed(CU_FILE_IO_NOT_SUPPORTED);
	}
	const int64_t n = request.write ? request.file->write(request.address, request.size, request.offset) :
					  request.file->read(request.address, request.size, request.offset);
	// As cuFile has it: the number of CUDA's "invalid value", for a pointer that leads nowhere.
	return n == -EFAULT ? -CUDA_ERROR_INVALID_VALUE : n;
}

namespace
{

// One thread's part in a job that writes: while one piece is copied from the GPU, the one before is written.
class WritePipeline
{
public:
	WritePipeline(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers)
		: job_(job), deps_(deps), pool_(bounce_buffers), scope_(deps.cuda)
	{
	}
	~WritePipeline() { leave(); }
	WritePipeline(const WritePipeline &) = delete;
	WritePipeline &operator=(const WritePipeline &) = delete;

	void move(Job::Piece &piece)
	{
		if (const int rc = enter(job_.request(piece).memory.context)) {
			job_.finish(piece, rc == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : copy_failed);
			return;
		}
		while (count_ >= slabs())
			finish_oldest(false);
		const unsigned slab = (oldest_ + count_) % slabs();
		int rc = deps_.cuda.copy_to_host(slab_address(slab), piece.address, piece.size, buffer_->stream());
		if (!rc && wants_events())
			rc = deps_.cuda.record(buffer_->event(slab), buffer_->stream());
		if (rc) {
			job_.finish(piece, copy_failed);
			broken_ = true;
			return;
		}
		in_flight_[slab] = &piece;
		count_++;
	}

private:
	// With few pieces the end of the stream is waited for, once.
	bool wants_events() const { return job_.nr_pieces() > slabs(); }
	unsigned slabs() const { return buffer_->large() ? 2 : 1; }
	char *slab_address(unsigned slab) const { return buffer_->memory() + slab * small_slab; }

	int enter(Context context)
	{
		if (buffer_ && buffer_->context() == context && !broken_)
			return 0;
		leave();
		int rc = scope_.enter(context);
		if (rc)
			return rc;
		rc = pool_.acquire(context, job_.nr_pieces() > 1, buffer_);
		if (!rc)
			holder_.emplace();
		else
			scope_.leave();
		return rc;
	}

	void finish_oldest(bool waited)
	{
		Job::Piece &piece = *in_flight_[oldest_];
		const int rc = waited ? 0 : deps_.cuda.wait(buffer_->event(oldest_));
		int64_t result = copy_failed;
		if (rc)
			broken_ = true;
		else
			result = job_.request(piece).file->write(slab_address(oldest_), piece.size, piece.offset);
		oldest_ = (oldest_ + 1) % slabs();
		count_--;
		job_.finish(piece, result);
	}

	void leave()
	{
		if (!buffer_)
			return;
		if (count_ && !wants_events()) {
			const bool good = !deps_.cuda.wait_stream(buffer_->stream());
			broken_ = broken_ || !good;
			while (count_ && good)
				finish_oldest(true);
		}
		while (count_ && wants_events())
			finish_oldest(false);
		while (count_) {
			Job::Piece &piece = *in_flight_[oldest_];
			oldest_ = (oldest_ + 1) % slabs();
			count_--;
			job_.finish(piece, copy_failed);
		}
		pool_.release(std::move(buffer_), broken_);
		holder_.reset();
		scope_.leave();
		broken_ = false;
		oldest_ = 0;
	}

	Job &job_;
	const Dependencies deps_;
	BounceBufferPool &pool_;
	std::unique_ptr<BounceBuffer> buffer_;
	std::optional<BounceBufferPool::Holder> holder_; // as long as it has that
	ScopedCudaContext scope_;
	bool broken_ = false;
	Job::Piece *in_flight_[bounce_slabs]{};
	unsigned oldest_ = 0, count_ = 0;
};

} // namespace

void process_pieces(Job &job, const Dependencies &deps, BounceBufferPool &bounce_buffers)
{
	if (job.pipeline()) {
		job.pipeline()->process_pieces();
		return;
	}
	WritePipeline pipeline(job, deps, bounce_buffers);
	while (Job::Piece *piece = job.take()) {
		const Request &request = job.request(*piece);
		if (request.path == TransferPath::bounce) {
			pipeline.move(*piece);
			continue;
		}
		Request part = request;
		part.address = piece->address;
		part.location.offset += piece->offset - request.offset;
		part.size = piece->size;
		part.offset = piece->offset;
		job.finish(*piece, run_request(part, deps, bounce_buffers, piece->host_fallback));
	}
}

int64_t bounce_small(const Request &request, const Dependencies &deps, BounceBufferPool &bounce_buffers,
		     NtReader::Share share)
{
	Cuda &cuda = deps.cuda;
	ScopedCudaContext scope(cuda);
	if (scope.enter(request.memory.context))
		return copy_failed;
	std::unique_ptr<BounceBuffer> buffer;
	int64_t n = copy_failed;
	bool broken = false;
	const int rc = bounce_buffers.acquire(request.memory.context, false, buffer);
	if (rc) {
		n = rc == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : copy_failed;
	} else {
		const BounceBufferPool::Holder holding;
		char *const slab = buffer->memory();
		if (request.write) {
			broken = cuda.copy_to_host(slab, request.address, request.size, buffer->stream()) ||
				 cuda.wait_stream(buffer->stream());
			if (!broken)
				n = request.file->write(slab, request.size, request.offset);
		} else {
			n = buffer->nt_readers[0].read(*request.file, slab, request.size, request.offset, share);
			const Copy copy = {request.address, slab, static_cast<uint64_t>(n)};
			if (n > 0)
				broken = cuda.copy_to_device(&copy, 1, buffer->stream()) ||
					 cuda.wait_stream(buffer->stream());
			if (broken)
				n = copy_failed;
		}
		bounce_buffers.release(std::move(buffer), broken);
	}
	return n;
}

} // namespace cufile
