// SPDX-License-Identifier: MIT
// What a thread ran of the module's code: KCOV, where the kernel has it, of this thread alone.
#pragma once

#include <cstdint>
#include <vector>

#include "mutate.hpp"

namespace fuzz
{

/// A hash of two places that followed each other, or of a call and what came of it (is_result).
using Signal = uint32_t;
inline constexpr Signal is_result = 1U << 31;

Signal result_signal(uint64_t what);

/// What all workers have seen.
struct Seen {
	static constexpr size_t size = 1 << 18;
	uint8_t places[size], results[size];
	uint64_t nplaces, nresults;

	/// Those of them that nobody had seen before.
	std::vector<Signal> take(const std::vector<Signal> &signals);
};

class Cover
{
public:
	Cover();
	~Cover();
	Cover(const Cover &) = delete;
	Cover &operator=(const Cover &) = delete;

	static bool possible();
	/// This thread's; comparing: of what is compared, instead of where it went.
	void begin(bool comparing = false);
	void end();
	/// Of the last run; with repetitions.
	void places(std::vector<Signal> &signals) const;
	std::vector<Comparison> comparisons() const;

private:
	int fd_ = -1;
	uint64_t *area_ = nullptr;
	bool comparing_ = false;
};

} // namespace fuzz
