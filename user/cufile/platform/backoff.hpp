// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace cufile
{

// The error is a shortage of descriptors or memory, which may pass.
constexpr bool is_shortage(int64_t error) { return error == -EMFILE || error == -ENFILE || error == -ENOMEM; }

// Retry times after failures that may pass: 10 ms, doubled each time, up to 1 s.
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
