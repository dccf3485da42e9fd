// SPDX-License-Identifier: MIT
//
// Static probes (USDT) of the provider "libcufile", for perf, bpftrace and SystemTap. Each is a nop while not traced.
// Documentation/cufile.md has their arguments.
#pragma once

#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#else
// Without the header the library has no probes.
#define DTRACE_PROBE6(provider, name, a, b, c, d, e, f) static_cast<void>(0)
#endif

#include "cufile/path/request.hpp"
#include "cufile/registry/file_handle.hpp"

namespace cufile
{

inline void probe_begin([[maybe_unused]] const Request &io)
{
	DTRACE_PROBE6(libcufile, io_begin, io.handle->fd, static_cast<int>(io.write), io.address, io.size, io.offset,
		      static_cast<int>(io.path));
}

inline void probe_end([[maybe_unused]] const Request &io, [[maybe_unused]] int64_t result,
		      [[maybe_unused]] FallbackReason fallback, [[maybe_unused]] uint32_t reason)
{
	DTRACE_PROBE6(libcufile, io_end, io.handle->fd, static_cast<int>(io.write), io.address, result,
		      static_cast<int>(fallback), reason);
}

} // namespace cufile
