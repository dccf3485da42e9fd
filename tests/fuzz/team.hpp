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
	Outcome run(const Program &program, bool comparing = false);
	void exit_rings();
	uint64_t executions() const;
	std::string costs() const; // what the calls of each kind took

private:
	struct Member {
		std::unique_ptr<Runner> runner;
		std::thread thread;
		std::atomic<const Program *> job = nullptr;
	};
	void serve(unsigned which);

	World world_;
	std::array<Member, max_threads> members_;
	std::atomic<unsigned> ready_ = 0;
	std::atomic<bool> over_ = false;
};

} // namespace fuzz
