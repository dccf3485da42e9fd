// SPDX-License-Identifier: MIT
//
// view_read NAME DEVICE THREADS AT_ONCE [BEFORE]: reads all elements of a view as u32 into CUDA device memory. PLAIN_ELEMENTS=N in the
// environment: the device is no view, but has N u32 as they are. Each thread takes the next AT_ONCE elements when it has none. All
// threads but one begin with fewer, so that they do not all end, and ask again, at once.
// Tells the host "begin NAME BAR_OFFSET BYTES" before the first read, for which that fills the memory and 64 KiB around it, and "end"
// after the last. Or runs BEFORE, where %AT and %LEN are the place of all that. Prints what was read, as JSON.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>

#include "bar_offset.hpp"
#include "host.hpp"
#include "peerdma.h"

namespace
{

void must(bool good, const char *what)
{
	if (good)
		return;
	std::printf("{\"error\": {\"message\": \"%s\"}}\n", what);
	std::exit(1);
}

struct Total {
	uint64_t done = 0, read = 0, moved = 0, direct = 0, host = 0;
	uint32_t by = PEERDMA_VIEW_BY_NONE, route = PEERDMA_ROUTE_NONE; // of the last read
	int error = 0;
};

class Reader
{
public:
	Reader(peerdma_view *view, uint64_t elements, char *memory, uint64_t at_once)
		: view_(view), elements_(elements), at_once_(at_once), memory_(memory)
	{
	}

	Total run(unsigned threads, CUcontext context)
	{
		std::vector<std::thread> all;
		for (unsigned i = 0; i < threads; i++)
			all.emplace_back([this, context, first = at_once_ * (i + 1) / threads] {
				must(!cuCtxSetCurrent(context), "no context");
				for (bool more = read_next(std::max<uint64_t>(first, 1)); more;)
					more = read_next(at_once_);
			});
		for (std::thread &thread : all)
			thread.join();
		return total_;
	}

private:
	bool read_next(uint64_t count)
	{
		const uint64_t first = next_.fetch_add(count);
		if (first >= elements_)
			return false;
		struct peerdma_view_read_args range = {};
		range.size = sizeof(range);
		range.first = first;
		range.count = std::min(count, elements_ - first);
		range.as = PEERDMA_VIEW_AS_U32;
		range.to = memory_ + first * sizeof(uint32_t);
		struct peerdma_view_result result = {};
		result.size = sizeof(result);
		const int64_t n = peerdma_view_read(view_, &range, &result);
		const std::scoped_lock lock(mutex_);
		if (n != static_cast<int64_t>(range.count))
			total_.error = n < 0 ? static_cast<int>(-n) : EIO;
		total_.done += result.done;
		total_.read += result.read;
		total_.moved += result.moved;
		total_.direct += result.direct;
		total_.host += result.host;
		total_.by = result.by;
		total_.route = result.route;
		return !total_.error;
	}

	peerdma_view *const view_;
	const uint64_t elements_, at_once_;
	char *const memory_;
	std::atomic<uint64_t> next_ = 0;
	std::mutex mutex_; // protects total_
	Total total_;
};

constexpr uint64_t around = 65536; // bytes on both sides of the elements

} // namespace

int main(int argc, char **argv)
{
	if (argc < 5 || argc > 6) {
		std::fprintf(stderr, "usage: view_read NAME DEVICE THREADS AT_ONCE [BEFORE]\n");
		return 2;
	}
	CUcontext context = nullptr;
	must(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context), "no CUDA device");
	struct peerdma_device *device = nullptr;
	must(!peerdma_open(&device, 0), "no /dev/peerdma");
	struct peerdma_view_args how = {};
	how.size = sizeof(how);
	const char *const plain = std::getenv("PLAIN_ELEMENTS");
	if (plain)
		how.codec = "u32:none";
	struct peerdma_view *view = nullptr;
	const int opened = peerdma_view_open(device, argv[2], &how, &view);
	must(!opened, how.out_why[0] ? how.out_why : std::strerror(-opened));
	struct peerdma_view_description info = {};
	info.size = sizeof(info);
	must(!peerdma_view_info(view, &info) && info.elements, "no description");
	const uint64_t count = plain ? std::strtoull(plain, nullptr, 0) : info.elements;
	must(count <= info.elements, "the device has fewer elements");
	CUdeviceptr memory = 0;
	const uint64_t bytes = count * sizeof(uint32_t);
	must(!cuMemAlloc(&memory, bytes + 2 * around), "no memory");
	char *const elements = reinterpret_cast<char *>(memory) + around;
	const auto in_bar = bar_offset(elements);
	must(in_bar.has_value(), "no buffer there");
	const uint64_t place = *in_bar;

	Reader reader(view, count, elements, std::strtoull(argv[4], nullptr, 0));
	std::string before =
		std::string("host begin ") + argv[1] + " " + std::to_string(place) + " " + std::to_string(bytes);
	if (argc > 5)
		before = host::filled_in(argv[5], place - around, bytes + 2 * around);
	must(host::run(before), before.c_str());
	const auto start = std::chrono::steady_clock::now();
	const Total total = reader.run(static_cast<unsigned>(std::atoi(argv[3])), context);
	const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
	must(argc > 5 || host::run("host end"), "the host does not end");
	must(!total.error, std::strerror(total.error));
	static constexpr const char *by[] = {"nothing", "cpu", "gpu"};
	static constexpr const char *where[] = {"nowhere", "storage", "host"};
	std::printf("{\"elements\": %" PRIu64
		    ", \"seconds\": %.6f, \"codec\": \"%s\", \"reduced_by\": \"%s\", \"widened_by\": \"%s\", "
		    "\"route\": \"%s\", \"bytes_read\": %" PRIu64 ", \"bytes_moved\": %" PRIu64
		    ", \"bytes_direct\": %" PRIu64 ", \"bytes_host\": %" PRIu64 ", \"bar_offset\": %" PRIu64 "}\n",
		    total.done, seconds.count(), info.codec, where[std::min(info.where, 2u)],
		    by[std::min(total.by, 2u)], peerdma_route_name(total.route), total.read, total.moved, total.direct,
		    total.host, place);
	peerdma_view_close(view);
	cuMemFree(memory);
	peerdma_close(device);
	return 0;
}
