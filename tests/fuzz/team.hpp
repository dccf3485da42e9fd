// SPDX-License-Identifier: MIT
// The threads of one worker: they run a program's parts at once.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runner.hpp"

namespace fuzz
{

class Team
{
public:
	explicit Team(const Setup &setup, unsigned worker);
	~Team();
	Team(const Team &) = delete;
	Team &operator=(const Team &) = delete;

	struct Outcome {
		std::vector<Signal> signals;
		std::vector<Comparison> comparisons;
		uint64_t digest = 0; // of a program of one thread: of its results
		std::string wrong;
	};
	/// In a world of its own.
	Outcome run(const Program &program, Look look) { return go(program, look, true); }
	/// In the world that the program before it has left, until one is run in its own or the world is left.
	Outcome go_on(const Program &program, Look look) { return go(program, look, false); }
	void leave_world();
	void exit_rings();
	uint64_t executions() const;
	std::string costs() const; // what the calls of each kind took

private:
	struct Member {
		std::unique_ptr<Runner> runner;
		std::thread thread;
		std::atomic<const Program *> job = nullptr;
	};
	Outcome go(const Program &program, Look look, bool own_world);
	void serve(unsigned which);

	World world_;
	bool in_world_ = false;
	Look look_ = Look::nothing;
	std::array<Member, max_threads> members_;
	std::atomic<unsigned> ready_ = 0;
	std::atomic<bool> over_ = false;
};

} // namespace fuzz
