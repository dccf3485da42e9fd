// SPDX-License-Identifier: MIT
#include "cufile/path/router.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>
#include <tuple>
#include <vector>

#include "cufile/path/bounce_pipelines.hpp"
#include "cufile/path/direct_file.hpp"
#include "cufile/path/probes.hpp"
#include "cufile/platform/backoff.hpp"
#include "cufile/platform/errors.hpp"
#include "cufile/platform/pci_topology.hpp"

namespace cufile
{
namespace
{

// What is known about an I/O before its path is chosen.
struct Candidate {
	bool forced;       // force_compat_mode
	bool denied;       // the file, by the denylist
	int fd;            // of the file; -1: a user-space filesystem
	int look_up_error; // of PeerdmaClient::look_up()
	uint64_t room;     // bytes to the buffer's end
	uint64_t size;
	Memory::Kind kind;
	bool refused;  // by the module
	bool peer_gpu; // a peer GPU is available
};

struct PathCheck {
	int score; // 0: impossible
	FallbackReason fallback;
};

bool is_cudas(Memory::Kind kind) { return kind == Memory::Kind::device || kind == Memory::Kind::managed; }

PathCheck check_direct(const Candidate &io)
{
	if (io.look_up_error)
		return {0, io.kind == Memory::Kind::host ? PEERDMA_CUFILE_WHY_HOST_MEMORY :
			   io.look_up_error == -ENOSYS   ? PEERDMA_CUFILE_WHY_NO_LIBRARY :
							   PEERDMA_CUFILE_WHY_NOT_A_BUFFER};
	if (io.forced)
		return {0, PEERDMA_CUFILE_WHY_FORCED};
	if (io.fd < 0)
		return {0, PEERDMA_CUFILE_WHY_USER_FILE};
	if (io.denied)
		return {0, PEERDMA_CUFILE_WHY_DENIED};
	if (io.size > io.room)
		return {0, PEERDMA_CUFILE_WHY_BUFFER_END};
	// libpeerdma would have the CPU copy through the device's uncached memory. CUDA's copies are faster; plain
	// direct I/O to such an address, which nothing checks, is not.
	if (io.refused)
		return {is_cudas(io.kind) ? 30 : 60, PEERDMA_CUFILE_WHY_REFUSED};
	return {100, PEERDMA_CUFILE_WHY_NONE};
}

// One copy, but no host memory.
PathCheck check_peer_gpu(const Candidate &io) { return {io.peer_gpu ? 45 : 0, PEERDMA_CUFILE_WHY_NONE}; }

// The CPU can store to host memory: pread() and pwrite() do.
PathCheck check_host(const Candidate &io) { return {io.kind == Memory::Kind::host ? 50 : 0, PEERDMA_CUFILE_WHY_NONE}; }

PathCheck check_bounce(const Candidate &io) { return {is_cudas(io.kind) ? 40 : 0, PEERDMA_CUFILE_WHY_NONE}; }

constexpr struct {
	TransferPath path;
	PathCheck (*check)(const Candidate &);
} paths[] = {{TransferPath::direct, check_direct},
	     {TransferPath::peer_gpu, check_peer_gpu},
	     {TransferPath::host, check_host},
	     {TransferPath::bounce, check_bounce}};

uint32_t route_of(const Request &request)
{
	return request.path == TransferPath::direct   ? PEERDMA_ROUTE_DIRECT :
	       request.path == TransferPath::peer_gpu ? PEERDMA_ROUTE_NEAR :
	       request.path == TransferPath::bounce   ? PEERDMA_ROUTE_HOST :
							PEERDMA_ROUTE_POSIX;
}

} // namespace

int64_t Router::prepare(Engine &engine, const std::shared_ptr<FileHandle> &handle, const void *base, size_t size,
			off_t file_off, off_t buf_off, bool write, Request &request)
{
	if (!base)
		return -EINVAL;
	if (file_off < 0 || buf_off < 0 || size > INT64_MAX || file_off > INT64_MAX - static_cast<int64_t>(size) ||
	    buf_off > INT64_MAX - static_cast<int64_t>(size))
		return failed(CU_FILE_INVALID_VALUE);
	// As cuFile: reads and writes fail differently.
	if (write && !handle->file->writable())
		return -EIO;
	if (!write && !handle->file->readable())
		return failed(CU_FILE_INVALID_FILE_OPEN_FLAG);
	if (write) {
		const int64_t rc = handle->file->check_write(static_cast<uint64_t>(file_off), size);
		if (rc < 0)
			return rc;
	}
	request.address = const_cast<char *>(static_cast<const char *>(base)) + buf_off;
	RegisteredBuffer known;
	std::shared_ptr<RegisteredMemory> registration;
	const RegisteredBuffer *buffer =
		registry_.find_memory(base, request.address, size, known, registration) ? &known : nullptr;
	const bool leaves = buffer && static_cast<uint64_t>(buf_off) + size > buffer->size;
	// Freed memory is not registered any more. Whether the kernel still has the same memory is checked below.
	if (buffer && (leaves || !registration || !registration->bytes_from(base)) &&
	    registry_.is_replaced(base, *buffer)) {
		buffer = nullptr;
		registration.reset();
	}
	if (buffer && leaves)
		return failed(CU_FILE_INVALID_MAPPING_RANGE);
	// Some of the range was mapped after it was registered, or registering it met a shortage. While a stream waits,
	// CUDA must not be called for that: cuMemFree() of another thread may hold the driver's lock until the stream
	// continues.
	if (registration && !registration->foreign() && size && !registration->covers(request.address, size)) {
		const int rc = request.in_stream || BounceBufferPool::stream_waits ?
				       -EBUSY :
				       registration->extend(deps_.cuda, deps_.system.now_ns(), request.address, size,
							    known.reason);
		known.over_quota = rc > 0;
		if (rc)
			registration.reset();
	}
	request.handle = handle;
	request.file = handle->file;
	request.write = write;
	request.size = size;
	request.offset = static_cast<uint64_t>(file_off);
	if (!size)
		return 1;
	return choose_path(engine, *handle, buffer, std::move(registration), base, request);
}

int64_t Router::choose_path(Engine &engine, FileHandle &handle, const RegisteredBuffer *buffer,
			    std::shared_ptr<RegisteredMemory> registration, const void *base, Request &request)
{
	// Freed memory is not registered any more, whatever is mapped at its address now.
	if (registration && !registration->is_valid(deps_.cuda, request.address, request.size)) {
		registration.reset();
		buffer = nullptr;
	}
	request.registration = registration;
	Candidate io = {engine.config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE),
			handle.denied,
			handle.file->fd(),
			buffer && !registration ? buffer->look_up_error : 0,
			0,
			request.size,
			Memory::Kind::host,
			false,
			false};
	if (registration)
		request.location = registration->location(request.address);
	else if (!io.look_up_error)
		io.look_up_error = deps_.peerdma.look_up(request.address, request.location);
	io.room = registration ? registration->bytes_from(request.address) : request.location.size;
	if (buffer)
		request.memory = buffer->memory;
	const bool foreign = registration && registration->foreign();
	if (foreign)
		request.memory.kind = Memory::Kind::foreign;
	// Ask again even for registered memory: it may have been freed and its context destroyed, which must not be
	// used then.
	if (!foreign && deps_.cuda.load()) {
		const int rc = deps_.cuda.look_up(base, request.memory);
		if (rc)
			return failed(CU_FILE_CUDA_DRIVER_ERROR);
		// Without a current context, CUDA reports managed memory as host memory; it is safe to pread() into.
		if (buffer && buffer->memory.kind == Memory::Kind::device && request.memory.kind != buffer->memory.kind)
			return copy_failed;
	}
	io.kind = request.memory.kind;
	// Nothing else prevents a direct I/O: ask the module.
	if (check_direct(io).score) {
		const int rc = open_direct_file(handle, request.location, request.direct_file);
		if (rc < 0)
			return rc;
		request.reason = request.direct_file->refused();
		if (!request.reason && is_cudas(io.kind))
			request.reason = request.direct_file->misalignment(request);
		io.refused = request.reason;
	}

	const PathCheck direct = check_direct(io);
	request.fallback = direct.fallback;
	if (request.fallback == PEERDMA_CUFILE_WHY_NOT_A_BUFFER && buffer) {
		request.reason = buffer->reason;
		if (buffer->over_quota)
			request.fallback = PEERDMA_CUFILE_WHY_PINNED_LIMIT;
	}
	const bool may_copy = request.fallback == PEERDMA_CUFILE_WHY_REFUSED ||
			      request.fallback == PEERDMA_CUFILE_WHY_NOT_A_BUFFER ||
			      request.fallback == PEERDMA_CUFILE_WHY_PINNED_LIMIT;
	if (may_copy && !request.in_stream && engine.config.peer_gpu_bounce && !engine.config.require_direct &&
	    !io.forced && !io.denied && io.fd >= 0 && io.kind == Memory::Kind::device && request.memory.device >= 0)
		io.peer_gpu = find_peer_gpu(engine, handle, request);
	int best = 0;
	for (const auto &path : paths) {
		const int score = path.check(io).score;
		if (score > best) {
			best = score;
			request.path = path.path;
		}
	}
	const bool only_direct =
		engine.config.require_direct || !engine.config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE);
	request.strict = only_direct;
	if (request.path == TransferPath::direct) {
		// Completion counts it by its result.
		request.fallback = PEERDMA_CUFILE_WHY_NONE;
		struct peerdma_cufile_route route = {};
		if (!only_direct || strict_allows_direct(request, route))
			return 0;
		if (!handle.has_logged(PEERDMA_CUFILE_WHY_REFUSED))
			accounting_.log_fallback(handle, PEERDMA_CUFILE_WHY_REFUSED, route.reason);
		return failed(CU_FILE_IO_NOT_SUPPORTED);
	}
	if (request.fallback == PEERDMA_CUFILE_WHY_HOST_MEMORY)
		return engine.config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY) ?
			       0 :
			       failed(CU_FILE_CUDA_MEMORY_TYPE_INVALID);
	if (!handle.has_logged(request.fallback))
		accounting_.log_fallback(handle, request.fallback, request.reason);
	if (!best)
		return failed(request.fallback == PEERDMA_CUFILE_WHY_BUFFER_END ? CU_FILE_INVALID_MAPPING_RANGE :
										  CU_FILE_IO_NOT_SUPPORTED);
	return only_direct && request.path != TransferPath::peer_gpu ? failed(CU_FILE_IO_NOT_SUPPORTED) : 0;
}

// Ranks by rules, distance to the file's device, NUMA node, and own device. The choice holds while the file is
// registered.
bool Router::find_peer_gpu(Engine &engine, FileHandle &handle, Request &request)
{
	const int device = request.memory.device;
	{
		std::unique_lock guard(handle.lock);
		auto known = handle.peer_gpus.find(device);
		if (known == handle.peer_gpus.end() || (known->second && known->second->is_lost())) {
			guard.unlock();
			bool transient = false;
			auto chosen = choose_peer_gpu(engine, handle, device, transient);
			if (!chosen && transient)
				return false;
			guard.lock();
			known = handle.peer_gpus.insert_or_assign(device, std::move(chosen)).first;
		}
		request.peer_gpu = known->second;
	}
	BufferLocation location;
	if (!request.peer_gpu || request.peer_gpu->location(location) < 0)
		return false;
	return open_direct_file(handle, location, request.direct_file) >= 0;
}

std::shared_ptr<PeerGpuBounce> Router::choose_peer_gpu(Engine &engine, FileHandle &handle, int device, bool &transient)
{
	int count = 0;
	if (deps_.cuda.device_count(count))
		return nullptr;
	uint32_t preferred = 0;
	if (deps_.peerdma.preferred(preferred) < 0)
		preferred = 0; // not a valid id
	const int node = numa_node(deps_.system, deps_.cuda, device);
	std::shared_ptr<PeerGpuBounce> best;
	int by = -1;
	std::tuple<bool, int, bool, bool> best_rank;
	for (int other = 0; other < count; other++) {
		if (!deps_.cuda.can_access_peer(other, device))
			continue;
		const auto peer_gpu = engine.peer_gpus.for_device(other);
		BufferLocation location;
		std::shared_ptr<DirectFile> file;
		int rc = peer_gpu->location(location);
		if (rc >= 0)
			rc = open_direct_file(handle, location, file);
		transient = transient || is_shortage(rc) || (rc >= 0 && file->is_transient());
		if (rc < 0 || file->refused())
			continue;
		const std::tuple rank{location.provider != preferred, file->distance(),
				      numa_node(deps_.system, deps_.cuda, other) != node, other != device};
		if (best && rank >= best_rank)
			continue;
		best = peer_gpu;
		best_rank = rank;
		by = other;
	}
	if (best)
		log_.say(Log::Level::info,
			 "I/O of GPU " + std::to_string(device) + " goes through GPU " + std::to_string(by));
	return best;
}

bool Router::strict_allows_direct(const Request &request, struct peerdma_cufile_route &out)
{
	struct peerdma_explanation explanation = {};
	const int rc = deps_.peerdma.explain(request.direct_file->get(), request.location.provider, explanation);
	out.route = explanation.route;
	out.reason = explanation.reason;
	if (rc < 0 || (explanation.route != PEERDMA_ROUTE_DIRECT && explanation.route != PEERDMA_ROUTE_DIRECT_EDGES))
		return false;
	const uint32_t misalignment = request.strict ? request.direct_file->strict_misalignment(request) :
						       request.direct_file->misalignment(request);
	if (!misalignment)
		return true;
	out.route = PEERDMA_ROUTE_HOST;
	out.reason = misalignment;
	return false;
}

int Router::open_direct_file(FileHandle &handle, const BufferLocation &location, std::shared_ptr<DirectFile> &out)
{
	std::lock_guard guard(handle.lock);
	auto &known = handle.direct_files[{location.provider, location.device}];
	if (!known) {
		if (!handle.file->is_valid()) {
			accounting_.log_lost_descriptor(handle);
			return -EBADF;
		}
		struct peerdma_file *file = nullptr;
		const int rc = deps_.peerdma.open_file(location.buffer, handle.file->fd(), &file);
		if (rc == -EBADF)
			accounting_.log_lost_descriptor(location);
		if (rc < 0)
			return rc;
		known = std::make_shared<DirectFile>(deps_.peerdma, file, location.provider, deps_.system.now_ns());
	} else if (known->refused()) {
		const uint64_t now = deps_.system.now_ns();
		if (known->is_stale(now))
			known = std::make_shared<DirectFile>(*known, location.provider, now);
	}
	out = known;
	return 0;
}

int64_t Router::transfer_or_bounce_if_revoked(Engine &engine, const Request &request, HostFallback &host_fallback)
{
	host_fallback = {};
	if (request.path == TransferPath::direct || request.path == TransferPath::peer_gpu) {
		int64_t n = -ENODEV;
		struct peerdma_io_result result = {};
		// Hold it only for this I/O: the program may deregister the memory and register it again afterwards.
		const std::shared_ptr<RegisteredMemory> held = request.registration.lock();
		if (request.path == TransferPath::peer_gpu)
			n = request.peer_gpu->transfer(request, result);
		else if (held)
			n = transfer_runs(deps_.peerdma, request, *held, result);
		else if (!request.location.registered)
			n = transfer_direct(deps_.peerdma, request, request.location, request.size, request.offset,
					    result);
		// The program has deregistered the memory, or the kernel has released it. CUDA memory may still be
		// valid.
		if (n == -ENODEV && (request.location.registered || request.path == TransferPath::peer_gpu)) {
			host_fallback.reason =
				result.reason ? result.reason : static_cast<uint32_t>(PEERDMA_REASON_REVOKED);
			if (request.strict)
				return failed(CU_FILE_IO_NOT_SUPPORTED);
			return request.in_stream || request.memory.kind == Memory::Kind::foreign ?
				       n :
				       host_bounce_.run_serially(engine, request);
		}
		host_fallback = {reason_if_all_by_host(result), result.host};
		if (!request.strict || n < 0 || (!host_fallback.reason && !host_fallback.bytes))
			return n;
		// The module's explanation and its I/O may differ. The bytes have moved, but strict mode must report
		// it.
		if (!host_fallback.reason)
			host_fallback.reason = PEERDMA_REASON_FILE_ALIGN;
		return failed(CU_FILE_IO_NOT_SUPPORTED);
	}
	const int64_t n = request.write ? request.file->write(request.address, request.size, request.offset) :
					  request.file->read(request.address, request.size, request.offset);
	// As cuFile: the number of CUDA_ERROR_INVALID_VALUE for a pointer to no memory.
	return n == -EFAULT ? -CUDA_ERROR_INVALID_VALUE : n;
}

void Router::run_pieces(Engine &engine, Job &job)
{
	process_pieces(job, deps_, engine.bounce_buffers, [&](Job::Piece &piece) {
		const Request &request = job.request(piece);
		Request part = request;
		part.address = piece.address;
		part.location.offset += piece.offset - request.offset;
		part.size = piece.size;
		part.offset = piece.offset;
		job.finish(piece, transfer_or_bounce_if_revoked(engine, part, piece.host_fallback));
	});
}

Workers::Task Router::job_task(Engine &engine, std::shared_ptr<Job> job)
{
	return [this, &engine, job = std::move(job)] {
		if (Workers::is_worker_thread())
			engine.bind_worker(job->request(0));
		run_pieces(engine, *job);
	};
}

int64_t Router::run(Engine &engine, Request &request)
{
	const bool timed = stats_.on();
	const uint64_t start = timed ? deps_.system.now_ns() : 0;
	HostFallback fallback;
	probe_begin(request);
	const int64_t n = request.path == TransferPath::bounce ?
				  host_bounce_.run(engine, request) :
				  transfer_or_bounce_if_revoked(engine, request, fallback);
	accounting_.complete(request, n, fallback, timed ? deps_.system.now_ns() - start : 0);
	return n;
}

int64_t Router::transfer(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off, bool write)
{
	const DriverState::Lease lease(state_);
	// A closed driver knows no file, so it is not opened here.
	const auto handle = lease ? registry_.find_file(fh) : nullptr;
	if (!handle)
		return failed(CU_FILE_HANDLE_NOT_REGISTERED);
	Request request;
	const int64_t rc = prepare(*lease, handle, base, size, file_off, buf_off, write, request);
	if (rc > 0)
		return 0;
	if (rc < 0) {
		stats_.count(write ? &CUfileStatsLevel1_t::write_ops : &CUfileStatsLevel1_t::read_ops, false);
		return rc;
	}
	return run(*lease, request);
}

int64_t Router::transfer_vector(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				unsigned flags, bool write)
{
	const int64_t rc = transfer_segments(fh, vector, n, file_off, flags, write);
	stats_.vector(write, rc >= 0);
	return rc;
}

int64_t Router::transfer_segments(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				  unsigned flags, bool write)
{
	const DriverState::Lease lease(state_);
	const auto handle = lease ? registry_.find_file(fh) : nullptr;
	if (!handle)
		return failed(CU_FILE_HANDLE_NOT_REGISTERED);
	// The limit of readv(2).
	if (flags || (n && !vector) || n > IOV_MAX || file_off < 0)
		return failed(CU_FILE_INVALID_VALUE);
	// All segments are checked before any is transferred.
	std::vector<Request> requests(n);
	off_t at = file_off;
	for (size_t i = 0; i < n; i++) {
		const int64_t rc = vector[i].len ? prepare(*lease, handle, vector[i].base, vector[i].len, at, 0, write,
							   requests[i]) :
						   1;
		if (rc < 0)
			return rc;
		at += static_cast<off_t>(vector[i].len);
	}
	int64_t total = 0;
	for (Request &request : requests) {
		if (!request.size)
			continue;
		const int64_t moved = run(*lease, request);
		if (moved < 0)
			return result_after_error(write, static_cast<uint64_t>(total), moved);
		total += moved;
		if (static_cast<uint64_t>(moved) < request.size)
			break;
	}
	return total;
}

int Router::explain(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off,
		    struct peerdma_cufile_route &out)
{
	const DriverState::Lease lease(state_);
	if (!lease)
		return -ENOTCONN;
	const auto handle = registry_.find_file(fh);
	if (!handle)
		return -EBADF;
	Request request;
	// Asks for a read, or for a write if the file is not readable.
	const int64_t rc = prepare(*lease, handle, base, size, file_off, buf_off, !handle->file->readable(), request);
	out.route = PEERDMA_ROUTE_NONE;
	out.why = request.fallback;
	out.reason = request.reason;
	if (rc == failed(CU_FILE_IO_NOT_SUPPORTED) && request.path != TransferPath::direct)
		return 0;
	if (rc < 0 && !request.direct_file)
		return -EINVAL;
	out.route = route_of(request);
	if (request.path == TransferPath::direct && !strict_allows_direct(request, out))
		out.why = PEERDMA_CUFILE_WHY_REFUSED;
	return 0;
}

} // namespace cufile
