// SPDX-License-Identifier: MIT
//
// sharing [--json]: the cost of a request's reference on a buffer when many cores take it at once, on this machine.
// Compares two primitives of kernel/base/ref.h in user space: one atomic counter for all threads, and a per-thread
// counter with a shared flag that all threads read. Each thread has its own core.
//
// For 1, 2, 4 ... threads, up to the cores of this process: pairs of get and put per second, of all threads together,
// and the ratio to the ideal, the rate of one thread times their number.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sched.h>
#include <thread>
#include <vector>

namespace
{

constexpr size_t line = 64;
constexpr int rounds = 5; // the median is reported
constexpr std::chrono::milliseconds span{200};

struct Count {
	alignas(line) std::atomic<long> shared{1};
	alignas(line) std::atomic<bool> spread{true}; // read by all threads, written by none
	struct alignas(line) Own {
		std::atomic<long> n{0};
	};
	std::unique_ptr<Own[]> own;
	explicit Count(unsigned threads) : own(new Own[threads]) {}

	/// refcount_inc_not_zero() and refcount_dec_and_test().
	void one_atomic(unsigned)
	{
		long now = shared.load(std::memory_order_relaxed);
		while (now && !shared.compare_exchange_weak(now, now + 1, std::memory_order_relaxed))
			;
		shared.fetch_sub(1, std::memory_order_release);
	}

	/// percpu_ref_tryget_live() and percpu_ref_put(): an add without a lock prefix, on a line that no other core
	/// writes.
	void own_word(unsigned thread)
	{
		auto &n = own[thread].n;
		for (const long step : {1, -1})
			if (spread.load(std::memory_order_acquire))
				n.store(n.load(std::memory_order_relaxed) + step, std::memory_order_relaxed);
	}
};

std::vector<int> cores()
{
	cpu_set_t set;
	std::vector<int> all;
	if (!::sched_getaffinity(0, sizeof(set), &set))
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &set))
				all.push_back(cpu);
	return all;
}

/// Pairs per second of all threads together.
double rate(unsigned threads, void (Count::*pair)(unsigned), const std::vector<int> &on)
{
	Count count(threads);
	std::atomic<unsigned> ready{0};
	std::atomic<bool> go{false}, stop{false};
	std::atomic<unsigned long> pairs{0};
	std::vector<std::thread> all;
	for (unsigned i = 0; i < threads; i++)
		all.emplace_back([&, i] {
			cpu_set_t one;
			CPU_ZERO(&one);
			CPU_SET(on[i], &one);
			::sched_setaffinity(0, sizeof(one), &one);
			ready++;
			while (!go)
				;
			unsigned long n = 0;
			for (; !stop.load(std::memory_order_relaxed); n += 64)
				for (int k = 0; k < 64; k++)
					(count.*pair)(i);
			pairs += n;
		});
	while (ready < threads)
		;
	const auto begin = std::chrono::steady_clock::now();
	go = true;
	std::this_thread::sleep_for(span);
	stop = true;
	const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
	for (auto &thread : all)
		thread.join();
	return double(pairs) / took.count();
}

struct Rates {
	double low, median, high;
};

Rates rates(unsigned threads, void (Count::*pair)(unsigned), const std::vector<int> &on)
{
	std::vector<double> all;
	for (int i = 0; i < rounds; i++)
		all.push_back(rate(threads, pair, on));
	std::sort(all.begin(), all.end());
	return {all.front(), all[rounds / 2], all.back()};
}

} // namespace

int main(int argc, char **argv)
{
	const bool json = argc == 2 && !std::strcmp(argv[1], "--json");
	if (argc > 2 || (argc == 2 && !json)) {
		std::fprintf(stderr, "usage: sharing [--json]\n");
		return 2;
	}
	const auto on = cores();
	const struct {
		const char *name;
		void (Count::*pair)(unsigned);
	} ways[] = {{"one_atomic", &Count::one_atomic}, {"per_cpu", &Count::own_word}};
	if (!json)
		std::printf("%-12s %8s %14s %14s %14s %8s\n", "count", "threads", "median/s", "lowest/s", "highest/s",
			    "linear");
	for (const auto &way : ways) {
		double single = 0;
		for (unsigned threads = 1; threads <= on.size(); threads *= 2) {
			const Rates r = rates(threads, way.pair, on);
			single = threads == 1 ? r.median : single;
			std::printf(json ? "{\"count\": \"%s\", \"threads\": %u, \"median\": %.0f, \"lowest\": %.0f, "
					   "\"highest\": %.0f, \"of_linear\": %.3f}\n" :
					   "%-12s %8u %14.0f %14.0f %14.0f %8.3f\n",
				    way.name, threads, r.median, r.low, r.high, r.median / (single * threads));
		}
	}
	return 0;
}
