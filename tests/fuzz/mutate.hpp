// SPDX-License-Identifier: MIT
// Where programs come from: chance, and what has been good before.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar.hpp"

namespace fuzz
{

/// The same stream for the same seed, on every machine.
class Random
{
public:
	explicit Random(uint64_t seed) : state_(seed) {}
	uint64_t next()
	{
		uint64_t z = (state_ += 0x9e3779b97f4a7c15);
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
		z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
		return z ^ (z >> 31);
	}
	uint64_t below(uint64_t n) { return n ? next() % n : 0; }
	bool one_in(uint64_t n) { return below(n) == 0; }

private:
	uint64_t state_;
};

/// One operand of a comparison in the module, and what it was compared with.
struct Comparison {
	uint64_t had, wanted;
	bool operator==(const Comparison &) const = default;
};

class Mutator
{
public:
	static constexpr uint64_t most_gusts = 256; // of a storm

	Mutator(uint64_t seed, unsigned threads) : random_(seed), threads_(threads) {}

	Program fresh();
	/// A child of one program of the corpus, perhaps with a part of another.
	Program child(const Program &parent, const Program &other);
	/// One call of a storm: an ioctl or a command that mostly ends where it is checked; what: of one kind, 0 of any.
	Call gust(uint64_t what);
	/// Puts a storm, at a place and with a seed of chance, into a program.
	void add_storm(Program &program);
	/// Numbers that the module has compared something with.
	void learn(const std::vector<Comparison> &seen);
	Random &random() { return random_; }

private:
	Call call(unsigned thread);
	Value value(const Spec &spec, const Arg &arg);
	uint64_t number();
	void change(Call &call);
	void change_once(Program &program, const Program &other);
	void insert(Program &program, size_t at, const Call &call);

	Random random_;
	unsigned threads_; // of a program, at most
	std::vector<Comparison> seen_;
};

} // namespace fuzz
