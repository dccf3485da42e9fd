// SPDX-License-Identifier: MIT
// The module's code that a thread has executed: KCOV, if the kernel has it, of this thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "mutate.hpp"

namespace fuzz
{

/// A hash of two successive code addresses, or of a call and its result (is_result).
using Signal = uint32_t;
inline constexpr Signal is_result = 1U << 31;

Signal result_signal(uint64_t what);

/// The signals that all workers have seen.
struct Seen {
	static constexpr size_t size = 1 << 18;
	uint8_t places[size], results[size];
	uint64_t nplaces, nresults;

	/// Adds the signals and returns the new ones.
	std::vector<Signal> take(const std::vector<Signal> &signals);
	/// Whether one of the signals is new.
	bool has_news(const std::vector<Signal> &signals);

private:
	uint8_t &byte(Signal signal) { return signal & is_result ? results[signal & ~is_result] : places[signal]; }
};

/// The data requested from KCOV for a run; nothing has no cost.
enum class Look { nothing, places, comparisons };

class Cover
{
public:
	Cover();
	~Cover();
	Cover(const Cover &) = delete;
	Cover &operator=(const Cover &) = delete;

	static bool possible();
	/// Starts recording for this thread.
	void begin(Look look);
	void end();
	/// The addresses of the last run, with repetitions.
	void places(std::vector<Signal> &signals) const;
	std::vector<Comparison> comparisons() const;

private:
	int fd_ = -1;
	uint64_t *area_ = nullptr;
	Look look_ = Look::nothing;
};

} // namespace fuzz
