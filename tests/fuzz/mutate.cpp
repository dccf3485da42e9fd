// SPDX-License-Identifier: MIT
#include "mutate.hpp"

#include <algorithm>

namespace fuzz
{
namespace
{

constexpr size_t remembered = 512;

// Values near block, page, request and type limits.
constexpr uint64_t edges[] = {
	0,
	1,
	2,
	3,
	4,
	7,
	8,
	255,
	256,
	257,
	511,
	512,
	513,
	1024,
	4092,
	4095,
	4096,
	4097,
	8192,
	65536,
	131072,
	262144,
	524288,
	1048576,
	1048577,
	2097152,
	4194304,
	0x7ffff000,
	0x7fffffff,
	0x80000000,
	0xffffffff,
	0x100000000,
	1ULL << 39,
	0x7ffffffffffff000,
	0x7fffffffffffffff,
	0x8000000000000000,
	~4095ULL,
	~0ULL,
};

} // namespace

uint64_t Mutator::number()
{
	switch (random_.below(8)) {
	case 0:
		return random_.next() >> random_.below(64);
	case 1:
		return edges[random_.below(std::size(edges))] + random_.below(9) - 4;
	case 2:
		if (!seen_.empty())
			return seen_[random_.below(seen_.size())].wanted;
		[[fallthrough]];
	default:
		return edges[random_.below(std::size(edges))];
	}
}

Value Mutator::value(const Spec &spec, const Arg &arg)
{
	auto slot = [&](Slot kind, unsigned among) { return Value{kind, random_.below(among)}; };
	auto number_of = [](uint64_t n) { return Value{Slot::number, n}; };
	switch (arg.kind) {
	case Kind::dev:
		return slot(Slot::dev, random_.one_in(6) ? 4 : 1);
	case Kind::at:
		return number_of(random_.one_in(12) ? random_.below(16) : 0);
	case Kind::size:
		if (!random_.one_in(12))
			return arg.usual;
		return random_.one_in(2) ? number_of(size_least(spec) + random_.below(size_known(spec) + 16)) :
					   number_of(number());
	case Kind::flags:
		return number_of(random_.one_in(20) ? number() : random_.next() & random_.next() & flags_known(spec));
	case Kind::zero:
		return number_of(random_.one_in(40) ? number() : 0);
	case Kind::provider:
		return random_.one_in(20) ? number_of(number()) : slot(Slot::provider, 1);
	case Kind::buffer:
	case Kind::id_of_buffer:
		return random_.one_in(30) ? number_of(number()) : slot(Slot::buffer, random_.one_in(4) ? 8 : 2);
	case Kind::id_of_file:
		return random_.one_in(30) ? number_of(number()) : slot(Slot::file, random_.one_in(4) ? 8 : 2);
	case Kind::fd_or_file:
		if (random_.one_in(3))
			return slot(Slot::file, 2);
		[[fallthrough]];
	case Kind::fd:
		return random_.one_in(40) ? number_of(number()) : slot(Slot::target, random_.one_in(3) ? 16 : 8);
	case Kind::domain:
		return number_of(random_.one_in(20) ? number() : 0);
	case Kind::bdf: // 0 is the GPU's own address
		return number_of(random_.one_in(4) ? random_.below(0x800) : 0);
	case Kind::bar: // 0 is the BAR with memory
		return number_of(random_.one_in(8) ? number() : 0);
	case Kind::pages:
		if (random_.one_in(12))
			return number_of(number());
		return number_of((random_.one_in(50) ? random_.below(4096) : 1 + random_.below(8)) * 4096);
	case Kind::len:
		if (random_.one_in(10))
			return number_of(number());
		return number_of(random_.one_in(3) ? 1 + random_.below(70000) : (1 + random_.below(32)) * 512);
	case Kind::off:
		if (random_.one_in(12))
			return number_of(number());
		return number_of(random_.one_in(4) ? random_.below(140000) : random_.below(64) * 512);
	case Kind::index:
		return number_of(random_.one_in(8) ? number() : random_.below(4));
	case Kind::map:
		return slot(Slot::map, random_.one_in(4) ? 8 : 2);
	case Kind::ring:
		return slot(Slot::ring, 2);
	case Kind::count:
		return number_of(random_.one_in(12) ? number() : 1 + random_.below(random_.one_in(6) ? 256 : 8));
	case Kind::sqe:
	case Kind::bits:
		return number_of(random_.one_in(2) ? arg.usual.number : random_.below(16));
	default:
		return number_of(random_.one_in(2) ? 0xbc00 + random_.below(128) : number());
	}
}

Call Mutator::call(unsigned thread)
{
	static const unsigned all = [] {
		unsigned sum = 0;
		for (const Spec &spec : specs())
			sum += spec.weight;
		return sum;
	}();
	for (;;) {
		uint64_t at = random_.below(all);
		size_t which = 0;
		while (at >= specs()[which].weight)
			at -= specs()[which++].weight;
		const Spec &spec = specs()[which];
		// Slow calls: they destroy and recreate a provider's pages, or create a process.
		const bool slow =
			spec.action == Action::unbind || spec.action == Action::bind || spec.action == Action::fork;
		if (slow && !random_.one_in(30))
			continue;
		Call call = usual_call(which, uint8_t(thread));
		for (size_t i = 0; i < call.nargs; i++)
			if (!random_.one_in(3))
				call.args[i] = value(spec, spec.args[i]);
		if (spec.makes != Slot::number)
			call.out = uint8_t(random_.below(random_.one_in(4) ? slot_count[size_t(spec.makes)] : 2));
		return call;
	}
}

Program Mutator::fresh()
{
	Program program;
	const unsigned threads = random_.one_in(3) ? std::min(2 + unsigned(random_.below(2)), threads_) : 1;
	// Most calls need a buffer.
	if (!random_.one_in(10))
		program.push(usual_call(size_t(std::find_if(specs().begin(), specs().end(),
							    [](const Spec &s) { return s.makes == Slot::buffer; }) -
					       specs().begin())));
	for (uint64_t n = 4 + random_.below(20); n; n--)
		program.push(call(unsigned(random_.below(threads))));
	return program;
}

void Mutator::change(Call &call)
{
	const Spec &spec = specs()[call.spec];
	if (!call.nargs)
		return;
	const size_t at = random_.below(call.nargs);
	Value &value = call.args[at];
	// Replaces a value that the module compared by the other operand.
	if (value.slot == Slot::number && random_.one_in(2)) {
		const auto hit = std::find_if(seen_.begin(), seen_.end(),
					      [&](const Comparison &c) { return c.had == value.number; });
		if (hit != seen_.end()) {
			value.number = hit->wanted;
			return;
		}
	}
	if (value.slot == Slot::number && random_.one_in(4))
		value.number ^= 1ULL << random_.below(64);
	else if (value.slot == Slot::number && random_.one_in(4))
		value.number += random_.below(17) - 8;
	else
		value = this->value(spec, spec.args[at]);
	if (spec.makes != Slot::number && random_.one_in(8))
		call.out = uint8_t(random_.below(slot_count[size_t(spec.makes)]));
}

void Mutator::insert(Program &program, size_t at, const Call &call)
{
	if (program.ncalls == max_calls)
		return;
	std::copy_backward(program.calls.begin() + at, program.calls.begin() + program.ncalls,
			   program.calls.begin() + program.ncalls + 1);
	program.ncalls++;
	program.calls[at] = call;
}

Call Mutator::gust(uint64_t what)
{
	static const std::vector<size_t> kinds = [] {
		std::vector<size_t> some;
		for (size_t i = 0; i < specs().size(); i++)
			some.insert(some.end(), specs()[i].gusts, i);
		return some;
	}();
	const size_t which = kinds[what ? (what - 1) % kinds.size() : random_.below(kinds.size())];
	const Spec &spec = specs()[which];
	Call call = usual_call(which);
	const bool moves = spec.name.find("read") != std::string::npos || spec.writes;
	for (size_t i = 0; i < call.nargs; i++) {
		if (random_.one_in(2))
			call.args[i] = value(spec, spec.args[i]);
		if (spec.args[i].kind == Kind::count && !random_.one_in(16))
			call.args[i].number %= 8;
		if (spec.args[i].kind == Kind::pages && !random_.one_in(16))
			call.args[i] = spec.args[i].usual;
		// Moving bytes is slow: move few, and mostly with a buffer id that does not exist.
		if (moves && spec.args[i].kind == Kind::len && call.args[i].number < 1 << 20)
			call.args[i].number %= 4096;
		if (spec.args[i].kind == Kind::sqe && !random_.one_in(8)) // otherwise an io_uring worker executes it
			call.args[i].number &= ~1ULL;
		if (moves && spec.args[i].kind == Kind::buffer && !random_.one_in(48))
			call.args[i] = Value{Slot::number, random_.below(4)};
	}
	if (moves && random_.one_in(2))
		call.args[random_.below(call.nargs)] = Value{Slot::number, number()};
	call.out = uint8_t(random_.below(2));
	return call;
}

void Mutator::add_storm(Program &program)
{
	static const size_t storm = size_t(
		std::find_if(specs().begin(), specs().end(), [](const Spec &s) { return s.action == Action::storm; }) -
		specs().begin());
	Call call = usual_call(storm, uint8_t(random_.below(program.threads())));
	if (random_.one_in(2))
		call.args[1].number = random_.next() & 0xff;
	call.args[2].number = random_.next() >> 32;
	call.args[3].number = 32 + random_.below(Mutator::most_gusts - 32);
	insert(program, random_.below(program.ncalls + 1), call);
}

void Mutator::change_once(Program &program, const Program &other)
{
	const size_t at = random_.below(program.ncalls);
	switch (random_.below(10)) {
	case 0:
		if (program.ncalls > 1)
			program.remove(at);
		return;
	case 1: // takes the end of another program
		program.ncalls = uint32_t(at);
		for (size_t i = random_.below(other.ncalls); i < other.ncalls; i++)
			program.push(other.calls[i]);
		if (!program.ncalls)
			program.push(call(0));
		return;
	case 2:
		program.push(program.calls[at]);
		return;
	case 3:
		std::swap(program.calls[at], program.calls[random_.below(program.ncalls)]);
		return;
	case 4:
		program.calls[at].thread = uint8_t(random_.below(random_.one_in(2) ? threads_ : program.threads()));
		return;
	case 5:
	case 6:
		insert(program, at, call(unsigned(random_.below(program.threads()))));
		return;
	default:
		change(program.calls[at]);
	}
}

Program Mutator::child(const Program &parent, const Program &other)
{
	Program program = parent;
	for (uint64_t n = 1 + random_.below(4); n; n--)
		change_once(program, other);
	return program;
}

void Mutator::learn(const std::vector<Comparison> &seen)
{
	for (const Comparison &one : seen) {
		if (std::find(seen_.begin(), seen_.end(), one) != seen_.end())
			continue;
		if (seen_.size() < remembered)
			seen_.push_back(one);
		else
			seen_[random_.below(remembered)] = one;
	}
}

} // namespace fuzz
