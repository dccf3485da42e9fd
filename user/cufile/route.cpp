// SPDX-License-Identifier: MIT
//
// Which way an I/O goes. Each way says how well it suits, and why not better; the best one is taken, and why it was not
// the direct one is kept, counted and said.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <tuple>

#include "library.hpp"
#include "probes.hpp"

namespace cufile
{
namespace
{

// What is known of an I/O before it is decided.
struct Candidate {
	bool forced;   // force_compat_mode
	bool denied;   // the file, by the denylist
	int fd;        // of the file, -1 if it is none of the system's
	int peer;      // what Peer::look_up() said
	uint64_t room; // bytes to the end of libpeerdma's buffer
	uint64_t size;
	Memory::Kind kind;
	bool refused; // by the module, which looked at the file
	bool relayed; // there is a relay
};

struct Verdict {
	int score; // 0: it cannot
	enum peerdma_cufile_why why;
};

bool is_cudas(Memory::Kind kind) { return kind == Memory::Kind::device || kind == Memory::Kind::managed; }

Verdict score_direct(const Candidate &io)
{
	if (io.peer)
		return {0, io.kind == Memory::Kind::host ? PEERDMA_CUFILE_WHY_HOST_MEMORY :
			   io.peer == -ENOSYS            ? PEERDMA_CUFILE_WHY_NO_LIBRARY :
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
Verdict score_relay(const Candidate &io) { return {io.relayed ? 45 : 0, PEERDMA_CUFILE_WHY_NONE}; }

// The CPU can store there: the system's own read and write do.
Verdict score_host(const Candidate &io) { return {io.kind == Memory::Kind::host ? 50 : 0, PEERDMA_CUFILE_WHY_NONE}; }

Verdict score_bounce(const Candidate &io) { return {is_cudas(io.kind) ? 40 : 0, PEERDMA_CUFILE_WHY_NONE}; }

constexpr struct {
	Way way;
	Verdict (*score)(const Candidate &);
} ways[] = {
	{Way::direct, score_direct}, {Way::relay, score_relay}, {Way::host, score_host}, {Way::bounce, score_bounce}};

uint32_t route_of(const Request &request)
{
	return request.way == Way::direct ? PEERDMA_ROUTE_DIRECT :
	       request.way == Way::relay  ? PEERDMA_ROUTE_NEAR :
	       request.way == Way::bounce ? PEERDMA_ROUTE_HOST :
					    PEERDMA_ROUTE_POSIX;
}

} // namespace

int64_t Library::choose_way(Engine &engine, Handle &handle, const Buffer *buffer, std::shared_ptr<Enrolled> enrolled,
			    const void *base, Request &request)
{
	// What was freed is registered no more, whatever is at its address now.
	if (enrolled && !enrolled->is_there(seams_.cuda, request.address, request.size)) {
		enrolled.reset();
		buffer = nullptr;
	}
	request.enrolled = enrolled;
	Candidate io = {engine.config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE),
			handle.denied,
			handle.file->fd(),
			buffer && !enrolled ? buffer->peer : 0,
			0,
			request.size,
			Memory::Kind::host,
			false,
			false};
	if (enrolled)
		request.place = enrolled->place(request.address);
	else if (!io.peer)
		io.peer = seams_.peer.look_up(request.address, request.place);
	io.room = enrolled ? enrolled->room(request.address) : request.place.size;
	if (buffer)
		request.memory = buffer->memory;
	const bool foreign = enrolled && enrolled->foreign();
	if (foreign)
		request.memory.kind = Memory::Kind::foreign;
	// Of registered memory anew: it may have been freed, and its context destroyed, which nothing may be asked of then.
	if (!foreign && has_cuda()) {
		const int rc = seams_.cuda.look_up(base, request.memory);
		if (rc)
			return failed(CU_FILE_CUDA_DRIVER_ERROR);
		// Managed memory of no context is the host's for who is in none, and can be read into as such.
		if (buffer && buffer->memory.kind == Memory::Kind::device && request.memory.kind != buffer->memory.kind)
			return copy_failed;
	}
	io.kind = request.memory.kind;
	// Nothing else stands in the way: what does the module say?
	if (score_direct(io).score) {
		const int rc = peer_file(handle, request.place, request.peer_file);
		if (rc < 0)
			return rc;
		request.reason = request.peer_file->refused();
		if (!request.reason && is_cudas(io.kind))
			request.reason = request.peer_file->misplaced(request);
		io.refused = request.reason;
	}

	const Verdict direct = score_direct(io);
	request.why = direct.why;
	if (request.why == PEERDMA_CUFILE_WHY_NOT_A_BUFFER && buffer) {
		request.reason = buffer->reason;
		if (buffer->beyond)
			request.why = PEERDMA_CUFILE_WHY_PINNED_LIMIT;
	}
	const bool may_copy = request.why == PEERDMA_CUFILE_WHY_REFUSED ||
			      request.why == PEERDMA_CUFILE_WHY_NOT_A_BUFFER ||
			      request.why == PEERDMA_CUFILE_WHY_PINNED_LIMIT;
	if (may_copy && !request.in_stream && engine.config.near_gpu && !engine.config.require_direct && !io.forced &&
	    !io.denied && io.fd >= 0 && io.kind == Memory::Kind::device && request.memory.device >= 0)
		io.relayed = find_relay(engine, handle, request);
	int best = 0;
	for (const auto &way : ways) {
		const int score = way.score(io).score;
		if (score > best) {
			best = score;
			request.way = way.way;
		}
	}
	const bool only_direct =
		engine.config.require_direct || !engine.config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE);
	request.strict = only_direct;
	if (request.way == Way::direct) {
		// What came of it is what counts.
		request.why = PEERDMA_CUFILE_WHY_NONE;
		struct peerdma_cufile_route route = {};
		if (!only_direct || may_go_directly(request, route))
			return 0;
		tell(handle, PEERDMA_CUFILE_WHY_REFUSED, route.reason);
		return failed(CU_FILE_IO_NOT_SUPPORTED);
	}
	if (request.why == PEERDMA_CUFILE_WHY_HOST_MEMORY)
		return engine.config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY) ?
			       0 :
			       failed(CU_FILE_CUDA_MEMORY_TYPE_INVALID);
	tell(handle, request.why, request.reason);
	if (!best)
		return failed(request.why == PEERDMA_CUFILE_WHY_BUFFER_END ? CU_FILE_INVALID_MAPPING_RANGE :
									     CU_FILE_IO_NOT_SUPPORTED);
	return only_direct && request.way != Way::relay ? failed(CU_FILE_IO_NOT_SUPPORTED) : 0;
}

// By rules, by distance to the file's device, by NUMA node, and the GPU's own first. What is found once stays, as long as
// the file is registered.
bool Library::find_relay(Engine &engine, Handle &handle, Request &request)
{
	const int device = request.memory.device;
	{
		std::unique_lock guard(handle.lock);
		auto known = handle.relays.find(device);
		if (known == handle.relays.end() || (known->second && known->second->is_gone())) {
			guard.unlock();
			bool for_now = false;
			auto chosen = choose_relay(engine, handle, device, for_now);
			if (!chosen && for_now)
				return false;
			guard.lock();
			known = handle.relays.insert_or_assign(device, std::move(chosen)).first;
		}
		request.relay = known->second;
	}
	Place place;
	if (!request.relay || request.relay->place(place) < 0)
		return false;
	return peer_file(handle, place, request.peer_file) >= 0;
}

std::shared_ptr<Relay> Library::choose_relay(Engine &engine, Handle &handle, int device, bool &for_now)
{
	int count = 0;
	if (seams_.cuda.device_count(count))
		return nullptr;
	uint32_t preferred = 0;
	if (seams_.peer.preferred(preferred) < 0)
		preferred = 0; // which is no provider's
	const int node = numa_node(seams_.system, seams_.cuda, device);
	std::shared_ptr<Relay> best;
	int by = -1;
	std::tuple<bool, int, bool, bool> best_rank;
	for (int other = 0; other < count; other++) {
		if (!seams_.cuda.can_reach(other, device))
			continue;
		const auto relay = engine.relays.on(other);
		Place place;
		std::shared_ptr<PeerFile> file;
		int rc = relay->place(place);
		if (rc >= 0)
			rc = peer_file(handle, place, file);
		for_now = for_now || is_shortage(rc) || (rc >= 0 && file->may_pass());
		if (rc < 0 || file->refused())
			continue;
		const std::tuple rank{place.provider != preferred, file->distance(),
				      numa_node(seams_.system, seams_.cuda, other) != node, other != device};
		if (best && rank >= best_rank)
			continue;
		best = relay;
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
	const int rc = seams_.peer.explain(request.peer_file->get(), request.place.provider, explanation);
	out.route = explanation.route;
	out.reason = explanation.reason;
	if (rc < 0 || (explanation.route != PEERDMA_ROUTE_DIRECT && explanation.route != PEERDMA_ROUTE_DIRECT_EDGES))
		return false;
	const uint32_t misplaced =
		request.strict ? request.peer_file->misplaced_in_part(request) : request.peer_file->misplaced(request);
	if (!misplaced)
		return true;
	out.route = PEERDMA_ROUTE_HOST;
	out.reason = misplaced;
	return false;
}

int Library::peer_file(Handle &handle, const Place &place, std::shared_ptr<PeerFile> &out)
{
	std::lock_guard guard(handle.lock);
	auto &known = handle.peers[{place.provider, place.device}];
	if (!known) {
		if (!handle.file->is_there()) {
			tell_lost(handle);
			return -EBADF;
		}
		struct peerdma_file *file = nullptr;
		const int rc = seams_.peer.open_file(place.buffer, handle.file->fd(), &file);
		if (rc == -EBADF)
			tell_lost(place);
		if (rc < 0)
			return rc;
		known = std::make_shared<PeerFile>(seams_.peer, file, place.provider, seams_.system.now_ns());
	} else if (known->refused()) {
		const uint64_t now = seams_.system.now_ns();
		if (known->is_stale(now))
			known = std::make_shared<PeerFile>(*known, place.provider, now);
	}
	out = known;
	return 0;
}

// Also at the end of an I/O, which is told whether there is memory for this or not.
void Library::tell(Handle &handle, enum peerdma_cufile_why why, uint32_t reason) noexcept
{
	if (handle.told.load(std::memory_order_relaxed) & (1u << why))
		return;
	if (handle.told.fetch_or(1u << why) & (1u << why))
		return;
	char text[512], file[40] = "";
	if (handle.fd >= 0)
		std::snprintf(file, sizeof(file), " (file descriptor %d)", handle.fd);
	std::snprintf(text, sizeof(text), "not direct: %s%s%s%s", peerdma_cufile_why_text(why), reason ? ": " : "",
		      reason ? seams_.peer.reason_text(reason) : "", file);
	log_.say(Log::Level::warn, text);
}

// The program has closed what it had not opened.
void Library::tell_lost(Handle &handle) noexcept
{
	if (handle.told_lost.exchange(true))
		return;
	char text[256];
	std::snprintf(text, sizeof(text),
		      "the library's descriptor of a file was closed by the program, by close_range(2) for instance: "
		      "register "
		      "files after closing (file descriptor %d)",
		      handle.fd);
	log_.say(Log::Level::error, text);
}

void Library::tell_lost(const Place &place) noexcept
{
	if (seams_.peer.is_there(place) || told_lost_device_.exchange(place.device) == place.device)
		return;
	log_.say(Log::Level::error,
		 "the library's descriptor of /dev/peerdma was closed by the program, by close_range(2) "
		 "for instance: register memory after closing");
}

void Library::count(const Request &request, int64_t result, const ByHost &by_host, uint64_t ns)
{
	const uint32_t reason = by_host.reason;
	const auto why = reason ? PEERDMA_CUFILE_WHY_REFUSED : request.why;
	probe_end(request, result, why, reason ? reason : request.reason);
	if (reason)
		tell(*request.handle, why, reason);
	if (result == -EBADF && !request.file->is_there())
		tell_lost(*request.handle);
	else if (result == -EBADF)
		tell_lost(request.place);
	if (request.way == Way::relay && !reason) {
		near_ios_.fetch_add(1, std::memory_order_relaxed);
		near_bytes_.fetch_add(static_cast<uint64_t>(std::max<int64_t>(result, 0)), std::memory_order_relaxed);
	}
	ios_[why].fetch_add(1, std::memory_order_relaxed);
	if (result > 0) {
		const auto moved = static_cast<uint64_t>(result);
		// Edges that the module took through the host are no direct bytes of a direct I/O.
		const uint64_t edges = why ? 0 : std::min(by_host.bytes, moved);
		bytes_[why].fetch_add(moved - edges, std::memory_order_relaxed);
		bytes_[PEERDMA_CUFILE_WHY_REFUSED].fetch_add(edges, std::memory_order_relaxed);
	}
	if (!stats_.on())
		return;
	const bool aligned = !((request.offset | request.size | reinterpret_cast<uintptr_t>(request.address)) % 4096);
	stats_.io({request.write, !why, aligned, request.memory.device,
		   static_cast<uint64_t>(std::max<int64_t>(result, 0)), ns, result >= 0},
		  request.memory.device >= 0 ? &seams_.cuda : nullptr);
}

void Library::counts(struct peerdma_cufile_counts &out) const
{
	for (unsigned i = 0; i < PEERDMA_CUFILE_NR_WHYS; i++) {
		out.ios[i] = ios_[i].load(std::memory_order_relaxed);
		out.bytes[i] = bytes_[i].load(std::memory_order_relaxed);
	}
	out.near_ios = near_ios_.load(std::memory_order_relaxed);
	out.near_bytes = near_bytes_.load(std::memory_order_relaxed);
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
	out.why = request.why;
	out.reason = request.reason;
	if (rc == failed(CU_FILE_IO_NOT_SUPPORTED) && request.way != Way::direct)
		return 0;
	if (rc < 0 && !request.peer_file)
		return -EINVAL;
	out.route = route_of(request);
	if (request.way == Way::direct && !may_go_directly(request, out))
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
