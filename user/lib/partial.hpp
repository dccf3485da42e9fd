// SPDX-License-Identifier: MIT
//
// Requests that end before their last byte. A read's short count means the end of the file and nothing else. A write's
// means what it means in POSIX: there is no room for the rest. Any other error is the result, whatever moved before it.
#pragma once

#include <cerrno>
#include <cstdint>

#include <sys/resource.h>

namespace peerdma_impl
{

inline bool is_no_room(int64_t error) { return error == -ENOSPC || error == -EDQUOT || error == -EFBIG; }

// The result of a request that an error ended after some bytes.
inline int64_t after_error(bool write, uint64_t done, int64_t error)
{
	return write && done && is_no_room(error) ? static_cast<int64_t>(done) : error;
}

// Whether the rest of a request is to be asked for. A write that came to the process's own limit ends there: the next one
// gets SIGXFSZ, which this one must not.
inline bool may_go_on(bool write, uint64_t file_off)
{
	rlimit limit = {};
	return !write || ::getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur != file_off;
}

} // namespace peerdma_impl
