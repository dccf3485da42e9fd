// SPDX-License-Identifier: MIT
// The threads of one worker, which run the parts of a program concurrently.
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
		uint64_t digest = 0; // of the results of a program with one thread
		std::string wrong;
	};
	/// Runs it in a world of its own.
	Outcome run(const Program &program, Look look) { return go(program, look, true); }
	/// Runs it in the world of the previous program, until run() or leave_world().
	Outcome go_on(const Program &program, Look look) { return go(program, look, false); }
	void leave_world();
	void exit_rings();
	uint64_t executions() const;
	std::string costs() const; // time of each kind of call

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
