// SPDX-License-Identifier: MIT
// Access to mapped memory that may be revoked.
#pragma once

#include <csetjmp>
#include <csignal>

namespace sigbus
{

inline sigjmp_buf back;

/// From here on SIGBUS is a result instead of a crash. One thread at a time.
inline void expect()
{
	std::signal(SIGBUS, [](int) { siglongjmp(back, 1); });
}

inline bool given_at(const volatile char *at)
{
	if (sigsetjmp(back, 1))
		return true;
	(void)*at;
	return false;
}

} // namespace sigbus
