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
	/// Is there one that nobody has seen?
	bool has_news(const std::vector<Signal> &signals);

private:
	uint8_t &byte(Signal signal) { return signal & is_result ? results[signal & ~is_result] : places[signal]; }
};

/// What is asked of the kernel about a run: nothing costs nothing.
enum class Look { nothing, places, comparisons };

class Cover
{
public:
	Cover();
	~Cover();
	Cover(const Cover &) = delete;
	Cover &operator=(const Cover &) = delete;

	static bool possible();
	/// This thread's.
	void begin(Look look);
	void end();
	/// Of the last run; with repetitions.
	void places(std::vector<Signal> &signals) const;
	std::vector<Comparison> comparisons() const;

private:
	int fd_ = -1;
	uint64_t *area_ = nullptr;
	Look look_ = Look::nothing;
};

} // namespace fuzz
