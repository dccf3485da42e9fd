// SPDX-License-Identifier: MIT
#include "team.hpp"

#include <sched.h>

#include <utility>

namespace fuzz
{

Team::Team(const Setup &setup, unsigned worker) : world_(setup, worker)
{
	for (Member &member : members_)
		member.runner = std::make_unique<Runner>(world_);
	for (unsigned i = 1; i < max_threads; i++)
		members_[i].thread = std::thread(&Team::serve, this, i);
}

Team::~Team()
{
	over_ = true;
	for (Member &member : members_) {
		static const Program nothing;
		member.job = &nothing;
		member.job.notify_one();
		if (member.thread.joinable())
			member.thread.join();
	}
}

void Team::serve(unsigned which)
{
	Member &self = members_[which];
	for (;;) {
		self.job.wait(nullptr);
		if (over_)
			return;
		const Program &program = *self.job.load();
		self.runner->cover.begin(look_);
		// All threads start together, so that they race.
		for (ready_--; ready_;)
			::sched_yield();
		self.runner->run(program, which);
		self.runner->cover.end();
		self.job = nullptr;
		self.job.notify_one();
	}
}

std::string Team::costs() const
{
	std::string text;
	for (size_t i = 0; i < specs().size() + 2; i++) {
		Cost sum;
		for (const Member &member : members_) {
			sum.times += member.runner->costs[i].times;
			sum.seconds += member.runner->costs[i].seconds;
		}
		if (!sum.times)
			continue;
		const std::string name = i < specs().size()  ? specs()[i].name :
					 i == specs().size() ? "(begin)" :
							       "(end)";
		char line[128];
		std::snprintf(line, sizeof(line), "# %-16s %8lu times %9.0f us\n", name.c_str(), sum.times,
			      sum.seconds / double(sum.times) * 1e6);
		text += line;
	}
	return text;
}

void Team::leave_world()
{
	if (!in_world_)
		return;
	const double before = now();
	world_.end();
	members_[0].runner->costs[specs().size() + 1].add(before);
	in_world_ = false;
}

Team::Outcome Team::go(const Program &program, Look look, bool own_world)
{
	if (own_world)
		leave_world();
	const unsigned threads = program.threads();
	Outcome outcome;
	Runner &first = *members_[0].runner;
	const double before = now();
	if (!in_world_)
		world_.begin();
	in_world_ = true;
	world_.enter(program);
	first.costs[specs().size()].add(before);
	ready_ = threads;
	look_ = look;
	for (unsigned i = 1; i < threads; i++) {
		members_[i].job = &program;
		members_[i].job.notify_one();
	}
	first.cover.begin(look);
	for (ready_--; ready_;)
		::sched_yield();
	first.run(program, 0);
	for (unsigned i = 1; i < threads; i++)
		members_[i].job.wait(&program);
	if (own_world)
		leave_world(); // checked too
	first.cover.end();

	for (unsigned i = 0; i < threads; i++) {
		Runner &runner = *members_[i].runner;
		outcome.signals.insert(outcome.signals.end(), runner.signals.begin(), runner.signals.end());
		runner.cover.places(outcome.signals);
		if (!runner.wrong.empty())
			outcome.wrong = std::exchange(runner.wrong, "");
	}
	outcome.digest = first.digest;
	outcome.comparisons = first.cover.comparisons();
	return outcome;
}

void Team::exit_rings()
{
	for (Member &member : members_)
		member.runner->exit_rings();
}

uint64_t Team::executions() const
{
	uint64_t sum = 0;
	for (const Member &member : members_)
		sum += member.runner->executions;
	return sum;
}

} // namespace fuzz
