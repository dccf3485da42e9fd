// SPDX-License-Identifier: MIT
// A program: calls whose arguments are numbers or objects created by earlier calls. It is plain data, so that it can be
// copied to memory that survives the guest. Its text, one call per line, can be read and edited:
//
//	b0 = buf_alloc provider_id=p0 len=0x2000
//	read fd=t0 buf_id=b0 len=0x1000
//	1: destroy id=b0
//
// "1:" is the second of up to three concurrent threads. Arguments that are not named have the grammar's default.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fuzz
{

/// The kind of an argument's value. The letters are those of the text.
enum class Slot : uint8_t { number, dev, provider, buffer, file, target, map, ring };
inline constexpr char letters[] = "#dpbftmr";
inline constexpr std::array<unsigned, 8> slot_count = {0, 4, 1, 8, 8, 16, 8, 2};

struct Value {
	Slot slot = Slot::number;
	uint64_t number = 0; // or the index among the slot's kind

	bool operator==(const Value &) const = default;
};

inline constexpr size_t max_args = 14, max_calls = 40, max_threads = 3;

struct Call {
	uint8_t spec = 0; // grammar.hpp
	uint8_t thread = 0;
	uint8_t out = 0; // the slot that receives the created object
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

/// why: the fault of the text if it is not a program.
std::optional<Program> parse(const std::string &text, std::string &why);

} // namespace fuzz
