// SPDX-License-Identifier: MIT
// Generates programs: at random, and from earlier good ones.
#pragma once

#include <cstdint>
#include <vector>

#include "grammar.hpp"

namespace fuzz
{

/// The same stream for the same seed on every machine.
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

/// An operand of a comparison in the module, and the other operand.
struct Comparison {
	uint64_t had, wanted;
	bool operator==(const Comparison &) const = default;
};

class Mutator
{
public:
	static constexpr uint64_t most_gusts = 256; // per storm

	Mutator(uint64_t seed, unsigned threads) : random_(seed), threads_(threads) {}

	Program fresh();
	/// A mutation of one program of the corpus, perhaps with a part of another.
	Program child(const Program &parent, const Program &other);
	/// One call of a storm: an ioctl or command that mostly ends in its checks. what: its kind, 0 for any.
	Call gust(uint64_t what);
	/// Inserts a storm at a random place with a random seed.
	void add_storm(Program &program);
	/// Collects numbers that the module has compared.
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
	unsigned threads_; // maximum per program
	std::vector<Comparison> seen_;
};

} // namespace fuzz
