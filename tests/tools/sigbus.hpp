// SPDX-License-Identifier: MIT
// Touching mapped memory that may be gone.
#pragma once

#include <csetjmp>
#include <csignal>

namespace sigbus
{

inline sigjmp_buf back;

/// From here on SIGBUS is an answer. For one thread at a time.
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
