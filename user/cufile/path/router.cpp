// SPDX-License-Identifier: MIT
//
// Which way an I/O goes. Each way says how well it suits, and why not better; the best one is taken, and why it was not
// the direct one is kept, counted and said.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <tuple>

#include "cufile/api/library.hpp"
#include "cufile/diag/probes.hpp"

namespace cufile
{
namespace
{

// What is known of an I/O before it is decided.
struct Candidate {
	bool forced;       // force_compat_mode
	bool denied;       // the file, by the denylist
	int fd;            // of the file, -1 if it is none of the system's
	int look_up_error; // what PeerdmaClient::look_up() said
	uint64_t room;     // bytes to the end of libpeerdma's buffer
	uint64_t size;
	Memory::Kind kind;
	bool refused;  // by the module, which looked at the file
	bool peer_gpu; // there is a peer_gpu
};

struct Verdict {
	int score; // 0: it cannot
	FallbackReason fallback;
};

bool is_cudas(Memory::Kind kind) { return kind == Memory::Kind::device || kind == Memory::Kind::managed; }

Verdict score_direct(const Candidate &io)
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
	// Then libpeerdma has the CPU copy, through the device's uncached memory: CUDA's copies are better, plain direct
	// I/O to such an address, which nobody checks, is not.
	if (io.refused)
		return {is_cudas(io.kind) ? 30 : 60, PEERDMA_CUFILE_WHY_REFUSED};
	return {100, PEERDMA_CUFILE_WHY_NONE};
}

// No host memory, but a copy.
Verdict score_peer_gpu(const Candidate &io) { return {io.peer_gpu ? 45 : 0, PEERDMA_CUFILE_WHY_NONE}; }

// The CPU can store there: the system's own read and write do.
Verdict score_host(const Candidate &io) { return {io.kind == Memory::Kind::host ? 50 : 0, PEERDMA_CUFILE_WHY_NONE}; }

Verdict score_bounce(const Candidate &io) { return {is_cudas(io.kind) ? 40 : 0, PEERDMA_CUFILE_WHY_NONE}; }

constexpr struct {
	TransferPath path;
	Verdict (*score)(const Candidate &);
} paths[] = {{TransferPath::direct, score_direct},
	     {TransferPath::peer_gpu, score_peer_gpu},
	     {TransferPath::host, score_host},
	     {TransferPath::bounce, score_bounce}};

uint32_t route_of(const Request &request)
{
	return request.path == TransferPath::direct   ? PEERDMA_ROUTE_DIRECT :
	       request.path == TransferPath::peer_gpu ? PEERDMA_ROUTE_NEAR :
	       request.path == TransferPath::bounce   ? PEERDMA_ROUTE_HOST :
							PEERDMA_ROUTE_POSIX;
}

} // namespace

int64_t Library::choose_path(Engine &engine, FileHandle &handle, const RegisteredBuffer *buffer,
			     std::shared_ptr<RegisteredMemory> registration, const void *base, Request &request)
{
	// What was freed is registered no more, whatever is at its address now.
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
	// Of registered memory anew: it may have been freed, and its context destroyed, which nothing may be asked of then.
	if (!foreign && has_cuda()) {
		const int rc = deps_.cuda.look_up(base, request.memory);
		if (rc)
			return failed(CU_FILE_CUDA_DRIVER_ERROR);
		// Managed memory of no context is the host's for who is in none, and can be read into as such.
		if (buffer && buffer->memory.kind == Memory::Kind::device && request.memory.kind != buffer->memory.kind)
			return copy_failed;
	}
	io.kind = request.memory.kind;
	// Nothing else stands in the way: what does the module say?
	if (score_direct(io).score) {
		const int rc = open_direct_file(handle, request.location, request.direct_file);
		if (rc < 0)
			return rc;
		request.reason = request.direct_file->refused();
		if (!request.reason && is_cudas(io.kind))
			request.reason = request.direct_file->misalignment(request);
		io.refused = request.reason;
	}

	const Verdict direct = score_direct(io);
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
		const int score = path.score(io).score;
		if (score > best) {
			best = score;
			request.path = path.path;
		}
	}
	const bool only_direct =
		engine.config.require_direct || !engine.config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE);
	request.strict = only_direct;
	if (request.path == TransferPath::direct) {
		// What came of it is what counts.
		request.fallback = PEERDMA_CUFILE_WHY_NONE;
		struct peerdma_cufile_route route = {};
		if (!only_direct || may_go_directly(request, route))
			return 0;
		log_fallback(handle, PEERDMA_CUFILE_WHY_REFUSED, route.reason);
		return failed(CU_FILE_IO_NOT_SUPPORTED);
	}
	if (request.fallback == PEERDMA_CUFILE_WHY_HOST_MEMORY)
		return engine.config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY) ?
			       0 :
			       failed(CU_FILE_CUDA_MEMORY_TYPE_INVALID);
	log_fallback(handle, request.fallback, request.reason);
	if (!best)
		return failed(request.fallback == PEERDMA_CUFILE_WHY_BUFFER_END ? CU_FILE_INVALID_MAPPING_RANGE :
										  CU_FILE_IO_NOT_SUPPORTED);
	return only_direct && request.path != TransferPath::peer_gpu ? failed(CU_FILE_IO_NOT_SUPPORTED) : 0;
}

// By rules, by distance to the file's device, by NUMA node, and the GPU's own first. What is found once stays, as long as
// the file is registered.
bool Library::find_peer_gpu(Engine &engine, FileHandle &handle, Request &request)
{
	const int device = request.memory.device;
	{
		std::unique_lock guard(handle.lock);
		auto known = handle.peer_gpus.find(device);
		if (known == handle.peer_gpus.end() || (known->second && known->second->is_lost())) {
			guard.unlock();
			bool for_now = false;
			auto chosen = choose_peer_gpu(engine, handle, device, for_now);
			if (!chosen && for_now)
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

std::shared_ptr<PeerGpuBounce> Library::choose_peer_gpu(Engine &engine, FileHandle &handle, int device, bool &for_now)
{
	int count = 0;
	if (deps_.cuda.device_count(count))
		return nullptr;
	uint32_t preferred = 0;
	if (deps_.peerdma.preferred(preferred) < 0)
		preferred = 0; // which is no provider's
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
		for_now = for_now || is_shortage(rc) || (rc >= 0 && file->is_transient());
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
			 "bytes for GPU " + std::to_string(device) + " go by way of GPU " + std::to_string(by));
	return best;
}

// Else out has the other way, and the reason. The module is asked anew.
bool Library::may_go_directly(const Request &request, struct peerdma_cufile_route &out)
{
	struct peerdma_explanation explanation = {};
	const int rc = deps_.peerdma.explain(request.direct_file->get(), request.location.provider, explanation);
	out.route = explanation.route;
	out.reason = explanation.reason;
	if (rc < 0 || (explanation.route != PEERDMA_ROUTE_DIRECT && explanation.route != PEERDMA_ROUTE_DIRECT_EDGES))
		return false;
	const uint32_t misalignment = request.strict ? request.direct_file->partial_misalignment(request) :
						       request.direct_file->misalignment(request);
	if (!misalignment)
		return true;
	out.route = PEERDMA_ROUTE_HOST;
	out.reason = misalignment;
	return false;
}

int Library::open_direct_file(FileHandle &handle, const BufferLocation &location, std::shared_ptr<DirectFile> &out)
{
	std::lock_guard guard(handle.lock);
	auto &known = handle.direct_files[{location.provider, location.device}];
	if (!known) {
		if (!handle.file->is_valid()) {
			log_lost_descriptor(handle);
			return -EBADF;
		}
		struct peerdma_file *file = nullptr;
		const int rc = deps_.peerdma.open_file(location.buffer, handle.file->fd(), &file);
		if (rc == -EBADF)
			log_lost_descriptor(location);
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

// Also at the end of an I/O, which is told whether there is memory for this or not.
void Library::log_fallback(FileHandle &handle, FallbackReason fallback, uint32_t reason) noexcept
{
	if (handle.logged.load(std::memory_order_relaxed) & (1u << fallback))
		return;
	if (handle.logged.fetch_or(1u << fallback) & (1u << fallback))
		return;
	char text[512], file[40] = "";
	if (handle.fd >= 0)
		std::snprintf(file, sizeof(file), " (file descriptor %d)", handle.fd);
	std::snprintf(text, sizeof(text), "not direct: %s%s%s%s", peerdma_cufile_why_text(fallback), reason ? ": " : "",
		      reason ? deps_.peerdma.reason_text(reason) : "", file);
	log_.say(Log::Level::warn, text);
}

// The program has closed what it had not opened.
void Library::log_lost_descriptor(FileHandle &handle) noexcept
{
	if (handle.logged_lost.exchange(true))
		return;
	char text[256];
	std::snprintf(text, sizeof(text),
		      "the library's descriptor of a file was closed by the program, by close_range(2) for instance: "
		      "register "
		      "files after closing (file descriptor %d)",
		      handle.fd);
	log_.say(Log::Level::error, text);
}

void Library::log_lost_descriptor(const BufferLocation &location) noexcept
{
	if (deps_.peerdma.is_valid(location) || logged_lost_device_.exchange(location.device) == location.device)
		return;
	log_.say(Log::Level::error,
		 "the library's descriptor of /dev/peerdma was closed by the program, by close_range(2) "
		 "for instance: register memory after closing");
}

void Library::count(const Request &request, int64_t result, const HostFallback &host_fallback, uint64_t ns)
{
	const uint32_t reason = host_fallback.reason;
	const auto why = reason ? PEERDMA_CUFILE_WHY_REFUSED : request.fallback;
	probe_end(request, result, why, reason ? reason : request.reason);
	if (reason)
		log_fallback(*request.handle, why, reason);
	if (result == -EBADF && !request.file->is_valid())
		log_lost_descriptor(*request.handle);
	else if (result == -EBADF)
		log_lost_descriptor(request.location);
	if (request.path == TransferPath::peer_gpu && !reason) {
		peer_gpu_ios_.fetch_add(1, std::memory_order_relaxed);
		peer_gpu_bytes_.fetch_add(static_cast<uint64_t>(std::max<int64_t>(result, 0)),
					  std::memory_order_relaxed);
	}
	ios_[why].fetch_add(1, std::memory_order_relaxed);
	if (result > 0) {
		const auto moved = static_cast<uint64_t>(result);
		// Edges that the module took through the host are no direct bytes of a direct I/O.
		const uint64_t edges = why ? 0 : std::min(host_fallback.bytes, moved);
		bytes_[why].fetch_add(moved - edges, std::memory_order_relaxed);
		bytes_[PEERDMA_CUFILE_WHY_REFUSED].fetch_add(edges, std::memory_order_relaxed);
	}
	if (!stats_.on())
		return;
	const bool aligned = !((request.offset | request.size | reinterpret_cast<uintptr_t>(request.address)) % 4096);
	stats_.io({request.write, !why, aligned, request.memory.device,
		   static_cast<uint64_t>(std::max<int64_t>(result, 0)), ns, result >= 0},
		  request.memory.device >= 0 ? &deps_.cuda : nullptr);
}

void Library::counts(struct peerdma_cufile_counts &out) const
{
	for (unsigned i = 0; i < PEERDMA_CUFILE_NR_WHYS; i++) {
		out.ios[i] = ios_[i].load(std::memory_order_relaxed);
		out.bytes[i] = bytes_[i].load(std::memory_order_relaxed);
	}
	out.near_ios = peer_gpu_ios_.load(std::memory_order_relaxed);
	out.near_bytes = peer_gpu_bytes_.load(std::memory_order_relaxed);
}

int Library::explain(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off,
		     struct peerdma_cufile_route &out)
{
	const Use use(*this);
	if (!use)
		return -ENOTCONN;
	const auto handle = find(fh);
	if (!handle)
		return -EBADF;
	Request request;
	// As for reading, or for writing where only that can be.
	const int64_t rc = prepare(*use, handle, base, size, file_off, buf_off, !handle->file->readable(), request);
	out.route = PEERDMA_ROUTE_NONE;
	out.why = request.fallback;
	out.reason = request.reason;
	if (rc == failed(CU_FILE_IO_NOT_SUPPORTED) && request.path != TransferPath::direct)
		return 0;
	if (rc < 0 && !request.direct_file)
		return -EINVAL;
	out.route = route_of(request);
	if (request.path == TransferPath::direct && !may_go_directly(request, out))
		out.why = PEERDMA_CUFILE_WHY_REFUSED;
	return 0;
}

} // namespace cufile

const char *peerdma_cufile_why_text(uint32_t why)
{
	switch (why) {
	case PEERDMA_CUFILE_WHY_NONE:
		return "nothing stands in the way";
	case PEERDMA_CUFILE_WHY_HOST_MEMORY:
		return "the memory is the host's";
	case PEERDMA_CUFILE_WHY_NO_LIBRARY:
		return "libpeerdma.so.0 could not be loaded";
	case PEERDMA_CUFILE_WHY_NOT_A_BUFFER:
		return "the device memory is in no buffer of libpeerdma's";
	case PEERDMA_CUFILE_WHY_BUFFER_END:
		return "the range goes beyond the buffer of libpeerdma's";
	case PEERDMA_CUFILE_WHY_USER_FILE:
		return "the file is one of a program's own making";
	case PEERDMA_CUFILE_WHY_FORCED:
		return "force_compat_mode is set";
	case PEERDMA_CUFILE_WHY_REFUSED:
		return "the kernel module refuses the file, or this place of it";
	case PEERDMA_CUFILE_WHY_DENIED:
		return "the file's mount, filesystem, device or driver is denied by cufile.json";
	case PEERDMA_CUFILE_WHY_PINNED_LIMIT:
		return "max_device_pinned_mem_size_kb has no room for this memory";
	}
	return "unknown";
}
