// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace peerdma_impl
{

// Wraps the body of every exported function. It stops exceptions (the only one is out of memory) and restores errno,
// which callers of -errno APIs do not expect to change.
template <class Body> auto boundary(Body &&body) noexcept -> decltype(body())
{
	const int saved = errno;
	decltype(body()) rc;
	try {
		rc = body();
	} catch (const std::bad_alloc &) {
		rc = -ENOMEM;
	} catch (...) {
		rc = -EIO;
	}
	errno = saved;
	return rc;
}

// min_size: the size of the struct in its first release. A caller's struct may not be shorter.
template <class T> int check_size(const T *user, size_t min_size)
{
	return !user || user->size < min_size ? -EINVAL : 0;
}

// Library to caller: fills in the members that the caller knows, and zeros those that only the caller knows.
template <class T> void copy_out(T *user, const T &full)
{
	const uint32_t size = user->size;
	std::memcpy(static_cast<void *>(user), &full, std::min<size_t>(size, sizeof(T)));
	if (size > sizeof(T))
		std::memset(reinterpret_cast<char *>(user) + sizeof(T), 0, size - sizeof(T));
	user->size = size;
}

// Caller to library: accepts a longer struct if the members unknown here are zero.
template <class T> int copy_in(T &full, const T *user, size_t min_size)
{
	int rc = check_size(user, min_size);
	if (rc)
		return rc;
	const char *bytes = reinterpret_cast<const char *>(user);
	for (size_t i = sizeof(T); i < user->size; i++)
		if (bytes[i])
			return -E2BIG;
	full = {};
	std::memcpy(static_cast<void *>(&full), user, std::min<size_t>(user->size, sizeof(T)));
	full.size = sizeof(T);
	return 0;
}

// Always NUL terminated. A truncated name is better than a failed call.
template <size_t N> void copy_text(char (&out)[N], const char *text, size_t len)
{
	std::memset(out, 0, N);
	std::memcpy(out, text, std::min(len, N - 1));
}

} // namespace peerdma_impl
