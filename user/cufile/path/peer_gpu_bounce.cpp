// SPDX-License-Identifier: MIT
#include "cufile/path/peer_gpu_bounce.hpp"

#include <algorithm>
#include <cerrno>

#include "cufile/path/direct_file.hpp"
#include "cufile/path/request.hpp"
#include "cufile/platform/cuda_context.hpp"
#include "cufile/platform/errors.hpp"

namespace cufile
{

PeerGpuBounce::~PeerGpuBounce() { destroy(); }

void PeerGpuBounce::destroy()
{
	ScopedCudaContext scope(deps_.cuda);
	// Destroying or resetting the context has freed all of it.
	if (!context_ || (memory_ && !is_valid()) || scope.enter(context_))
		return;
	for (Slab &slab : slabs_) {
		if (slab.stream) {
			deps_.cuda.wait_stream(slab.stream);
			deps_.cuda.destroy_stream(slab.stream);
		}
		slab.stream = nullptr;
	}
	registration_.reset();
	if (memory_)
		deps_.cuda.free_device(memory_);
	memory_ = nullptr;
	id_ = 0;
}

int PeerGpuBounce::create()
{
	Context context = nullptr;
	ScopedCudaContext scope(deps_.cuda);
	int error = deps_.cuda.primary(device_, context);
	if (!error)
		error = scope.enter(context);
	if (error)
		return error == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ENODEV;
	context_ = context;
	const int rc = allocate();
	return rc ? rc : register_memory();
}

// Allocates memory and streams in the entered context.
int PeerGpuBounce::allocate()
{
	void *memory = nullptr;
	if (deps_.cuda.alloc_device(peer_buffer_bytes, &memory))
		return -ENOMEM;
	memory_ = static_cast<char *>(memory);
	Allocation made;
	if (deps_.cuda.allocation(memory_, made) || !made.id)
		return -EIO;
	id_ = made.id;
	uint64_t at = 0;
	for (Slab &slab : slabs_) {
		slab.at = at;
		at += peer_slab_slack + peer_slab_bytes;
		const int error = deps_.cuda.create_stream(&slab.stream);
		if (error) {
			slab.stream = nullptr;
			return error == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
		}
	}
	return 0;
}

int PeerGpuBounce::register_memory()
{
	if (!deps_.peerdma.look_up(memory_, location_))
		return 0;
	uint32_t reason;
	const int rc =
		RegisteredMemory::create(frame_table_, deps_.cuda, memory_, peer_buffer_bytes, registration_, reason);
	if (!rc)
		location_ = registration_->location(memory_);
	return rc;
}

bool PeerGpuBounce::is_valid() const
{
	Allocation now;
	return !id_ || (!deps_.cuda.allocation(memory_, now) && now.id == id_);
}

bool PeerGpuBounce::is_lost()
{
	const std::lock_guard guard(lock_);
	return !state_ && (!is_valid() || !deps_.peerdma.is_valid(location_));
}

int PeerGpuBounce::location(BufferLocation &out)
{
	const std::lock_guard guard(lock_);
	if (state_ > 0 || (is_shortage(state_) && backoff_.is_due(deps_.system.now_ns()))) {
		state_ = create();
		if (state_ < 0)
			destroy();
		if (is_shortage(state_))
			backoff_.failed(deps_.system.now_ns());
	}
	out = location_;
	return state_;
}

class PeerGpuBounce::SlabLease
{
public:
	explicit SlabLease(PeerGpuBounce &peer_gpu) : bounce_(peer_gpu)
	{
		std::unique_lock guard(bounce_.lock_);
		while (!(count_ = acquire()))
			bounce_.released_.wait(guard);
	}
	~SlabLease()
	{
		{
			const std::lock_guard guard(bounce_.lock_);
			for (unsigned i = 0; i < count_; i++)
				slabs_[i]->in_use = false;
		}
		bounce_.released_.notify_all();
	}
	SlabLease(const SlabLease &) = delete;
	SlabLease &operator=(const SlabLease &) = delete;

	unsigned count() const { return count_; }
	const Slab &slab(size_t part) const { return *slabs_[part % count_]; }

private:
	// Call with bounce_.lock_ held.
	unsigned acquire()
	{
		unsigned n = 0;
		for (Slab &slab : bounce_.slabs_) {
			if (n < peer_slabs_per_io && !slab.in_use) {
				slab.in_use = true;
				slabs_[n++] = &slab;
			}
		}
		return n;
	}

	PeerGpuBounce &bounce_;
	unsigned count_ = 0;
	Slab *slabs_[peer_slabs_per_io]{};
};

// One request, cut at multiples of a slab in the file, so that the drive and the GPUs overlap.
class PeerGpuBounce::Transfer
{
public:
	Transfer(PeerGpuBounce &peer_gpu, const Request &request, const SlabLease &lease)
		: bounce_(peer_gpu), request_(request), lease_(lease),
		  first_(std::min(request.size, peer_slab_bytes - request.offset % peer_slab_bytes)),
		  parts_(1 + (request.size - first_ + peer_slab_bytes - 1) / peer_slab_bytes)
	{
	}

	int64_t transfer(struct peerdma_io_result &result)
	{
		const int64_t n = request_.write ? write() : read();
		bool good = true;
		for (size_t part = 0; part < std::min<size_t>(parts_, lease_.count()); part++)
			good = !cuda().wait_stream(lease_.slab(part).stream) && good;
		result = result_;
		return good ? n : copy_failed;
	}

private:
	Cuda &cuda() const { return bounce_.deps_.cuda; }
	// Offset within the request.
	uint64_t start(size_t part) const { return part ? first_ + (part - 1) * peer_slab_bytes : 0; }
	uint64_t size(size_t part) const
	{
		return part ? std::min(request_.size - start(part), peer_slab_bytes) : first_;
	}
	uint64_t offset(size_t part) const { return request_.offset + start(part); }
	char *memory_address(size_t part) const { return request_.address + start(part); }
	uint64_t at(size_t part) const { return lease_.slab(part).at + offset(part) % peer_slab_slack; }
	char *slab_address(size_t part) const { return bounce_.memory_ + at(part); }

	int64_t read()
	{
		for (size_t part = 0; part < parts_; part++) {
			if (part >= lease_.count() && cuda().wait_stream(lease_.slab(part).stream))
				return copy_failed;
			const int64_t n = transfer_part(part);
			if (n < 0)
				return n;
			if (n && cuda().copy_between_devices(memory_address(part), slab_address(part),
							     static_cast<uint64_t>(n), lease_.slab(part).stream))
				return copy_failed;
			if (static_cast<uint64_t>(n) < size(part))
				return static_cast<int64_t>(start(part)) + n;
		}
		return static_cast<int64_t>(request_.size);
	}

	int64_t write()
	{
		size_t fetched = 0;
		for (size_t part = 0; part < parts_; part++) {
			while (fetched < std::min<size_t>(parts_, part + lease_.count())) {
				if (cuda().copy_between_devices(slab_address(fetched), memory_address(fetched),
								size(fetched), lease_.slab(fetched).stream))
					return copy_failed;
				fetched++;
			}
			if (cuda().wait_stream(lease_.slab(part).stream))
				return copy_failed;
			const int64_t n = transfer_part(part);
			if (n < 0)
				return result_after_error(true, start(part), n);
			if (static_cast<uint64_t>(n) < size(part))
				return static_cast<int64_t>(start(part)) + n;
		}
		return static_cast<int64_t>(request_.size);
	}

	// Between the file and the slab.
	int64_t transfer_part(size_t part)
	{
		BufferLocation location = bounce_.location_;
		location.offset += at(part);
		location.size = size(part);
		struct peerdma_io_result result;
		const int64_t n =
			transfer_direct(bounce_.deps_.peerdma, request_, location, size(part), offset(part), result);
		if (!part || n < 0 || reason_if_all_by_host(result))
			result_ = result;
		return n;
	}

	PeerGpuBounce &bounce_;
	const Request &request_;
	const SlabLease &lease_;
	const uint64_t first_;
	const size_t parts_;
	struct peerdma_io_result result_ = {};
};

int64_t PeerGpuBounce::transfer(const Request &request, struct peerdma_io_result &result)
{
	ScopedCudaContext scope(deps_.cuda);
	if (is_lost())
		return -ENODEV;
	if (scope.enter(context_))
		return copy_failed;
	const SlabLease lease(*this);
	return Transfer(*this, request, lease).transfer(result);
}

std::shared_ptr<PeerGpuBounce> PeerGpuBounces::for_device(int device)
{
	const std::lock_guard guard(lock_);
	const auto at = static_cast<size_t>(device);
	if (peer_gpus_.size() <= at)
		peer_gpus_.resize(at + 1);
	if (!peer_gpus_[at] || peer_gpus_[at]->is_lost())
		peer_gpus_[at] = std::make_shared<PeerGpuBounce>(deps_, device);
	return peer_gpus_[at];
}

} // namespace cufile
