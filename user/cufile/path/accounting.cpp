// SPDX-License-Identifier: MIT
#include "cufile/path/accounting.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "cufile/path/probes.hpp"
#include "cufile/registry/file_handle.hpp"

namespace cufile
{

// Allocates nothing: I/O completion calls it.
void Accounting::log_fallback(FileHandle &handle, FallbackReason fallback, uint32_t reason) noexcept
{
	if (handle.logged.fetch_or(1u << fallback) & (1u << fallback))
		return;
	char text[512], file[40] = "";
	if (handle.fd >= 0)
		std::snprintf(file, sizeof(file), " (file descriptor %d)", handle.fd);
	std::snprintf(text, sizeof(text), "not direct: %s%s%s%s", peerdma_cufile_why_text(fallback), reason ? ": " : "",
		      reason ? deps_.peerdma.reason_text(reason) : "", file);
	log_.say(Log::Level::warn, text);
}

void Accounting::log_lost_descriptor(FileHandle &handle) noexcept
{
	if (handle.logged_lost.exchange(true))
		return;
	char text[256];
	std::snprintf(text, sizeof(text),
		      "the program has closed the library's descriptor of a file, for example by close_range(2): "
		      "register files after that (file descriptor %d)",
		      handle.fd);
	log_.say(Log::Level::error, text);
}

void Accounting::log_lost_descriptor(const BufferLocation &location) noexcept
{
	if (deps_.peerdma.is_valid(location) || logged_lost_device_.exchange(location.device) == location.device)
		return;
	log_.say(Log::Level::error,
		 "the program has closed the library's descriptor of /dev/peerdma, for example by close_range(2): "
		 "register memory after that");
}

void Accounting::complete(const Request &request, int64_t result, const HostFallback &host_fallback, uint64_t ns)
{
	const uint32_t reason = host_fallback.reason;
	const FallbackReason why = reason ? PEERDMA_CUFILE_WHY_REFUSED : request.fallback;
	probe_end(request, result, why, reason ? reason : request.reason);
	if (reason && !request.handle->has_logged(why))
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
		// Edges that the module moved through the host are not direct bytes of a direct I/O.
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

void Accounting::counts(struct peerdma_cufile_counts &out) const
{
	for (unsigned i = 0; i < PEERDMA_CUFILE_NR_WHYS; i++) {
		out.ios[i] = ios_[i].load(std::memory_order_relaxed);
		out.bytes[i] = bytes_[i].load(std::memory_order_relaxed);
	}
	out.near_ios = peer_gpu_ios_.load(std::memory_order_relaxed);
	out.near_bytes = peer_gpu_bytes_.load(std::memory_order_relaxed);
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
