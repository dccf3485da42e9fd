// SPDX-License-Identifier: MIT
// A program: calls whose arguments are numbers or what an earlier call made. Plain data, so that it can be copied to
// where the host finds it when the guest dies; and text, one call a line, that a person can read and change:
//
//	b0 = buf_alloc provider_id=p0 len=0x2000
//	read fd=t0 buf_id=b0 len=0x1000
//	1: destroy id=b0
//
// "1:" is the second of up to three threads that run at once. What is not named has the grammar's usual value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fuzz
{

/// What an argument may stand for. The letters are those of the text.
enum class Slot : uint8_t { number, dev, provider, buffer, file, target, map, ring };
inline constexpr char letters[] = "#dpbftmr";
inline constexpr std::array<unsigned, 8> slot_count = {0, 4, 1, 8, 8, 16, 8, 2};

struct Value {
	Slot slot = Slot::number;
	uint64_t number = 0; // or which of the slot's kind

	bool operator==(const Value &) const = default;
};

inline constexpr size_t max_args = 14, max_calls = 40, max_threads = 3;

struct Call {
	uint8_t spec = 0; // grammar.hpp
	uint8_t thread = 0;
	uint8_t out = 0; // which slot takes what it makes
	uint8_t nargs = 0;
	std::array<Value, max_args> args{};
};

struct Program {
	uint32_t ncalls = 0;
	std::array<Call, max_calls> calls{};

	void push(const Call &call)
	{
		if (ncalls < max_calls)
			calls[ncalls++] = call;
	}
	void remove(size_t at);
	unsigned threads() const;
	size_t bytes() const { return offsetof(Program, calls) + ncalls * sizeof(Call); }
};

std::string text_of(const Program &program);

/// why: what is wrong with the text, if it is no program.
std::optional<Program> parse(const std::string &text, std::string &why);

} // namespace fuzz
