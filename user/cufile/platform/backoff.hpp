// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace cufile
{

// There are too many descriptors, or too little memory, now.
constexpr bool is_shortage(int64_t error) { return error == -EMFILE || error == -ENFILE || error == -ENOMEM; }

// When to try again what has failed, because a failure may pass: after 10 ms, and after twice as long each time, up to 1 s.
class Backoff
{
public:
	bool is_due(uint64_t now_ns) const { return now_ns >= next_.load(std::memory_order_relaxed); }
	void failed(uint64_t now_ns)
	{
		const uint64_t wait = std::clamp(2 * wait_.load(std::memory_order_relaxed), first, most);
		wait_.store(wait, std::memory_order_relaxed);
		next_.store(now_ns + wait, std::memory_order_relaxed);
	}
	void worked() { wait_.store(0, std::memory_order_relaxed); }

	static constexpr uint64_t first = 10'000'000, most = 1'000'000'000; // ns

private:
	std::atomic<uint64_t> wait_{0}, next_{0};
};

} // namespace cufile
