// SPDX-License-Identifier: MIT
//
// Requests that end before their last byte. A short count of a read means the end of the file. A short count of a write
// means, as in POSIX, that there is no room for the rest. Any other error is the result, even if bytes were moved
// before it.
#pragma once

#include <cerrno>
#include <cstdint>

#include <sys/resource.h>

namespace peerdma_impl
{

inline bool is_no_room(int64_t error) { return error == -ENOSPC || error == -EDQUOT || error == -EFBIG; }

// The result of a request that an error ended after some bytes.
inline int64_t result_after_error(bool write, uint64_t done, int64_t error)
{
	return write && done && is_no_room(error) ? static_cast<int64_t>(done) : error;
}

// Whether to request the rest. A write that has reached RLIMIT_FSIZE ends there: another write(2) would raise SIGXFSZ,
// which must not happen before the caller's next request.
inline bool may_go_on(bool write, uint64_t file_off)
{
	rlimit limit = {};
	return !write || ::getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != file_off;
}

} // namespace peerdma_impl
