// SPDX-License-Identifier: MIT
//
// The cost of reading through the page cache into device memory without a library, in several ways: the limits of a
// library that does so, and its possible gain. Each way reads 1 MiB at a time.
//   staging FILE [SECONDS]    FILE is in the page cache and has 64 MiB or more
// Prints a line of JSON for each way and number of threads. "past": that many of every four 128 KiB go through a buffer
// that stays in the CPU cache, and from there by non-temporal stores. "spinning": one thread is helped by others that
// wait by spinning. "register": a piece of the page cache is pinned for the GPU, copied from and unpinned.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <immintrin.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu.hpp"

namespace
{

using Address = unsigned long long;

constexpr size_t mib = 1 << 20, cut = 128 * 1024;

void store_past_caches(char *to, const char *from, size_t size)
{
	for (size_t at = 0; at < size; at += sizeof(__m128i))
		_mm_stream_si128(reinterpret_cast<__m128i *>(to + at),
				 _mm_load_si128(reinterpret_cast<const __m128i *>(from + at)));
	_mm_sfence();
}

struct Copies : Cuda {
	int (*make_stream)(void **, unsigned) = find("cuStreamCreate");
	int (*in_async)(Address, const void *, size_t, void *) = find("cuMemcpyHtoDAsync_v2");
	int (*wait)(void *) = find("cuStreamSynchronize");
	int (*pin)(void *, size_t, unsigned) = find("cuMemHostRegister_v2");
	int (*unpin)(void *) = find("cuMemHostUnregister");
};

// Resources of a thread.
struct Lane {
	void *stream = nullptr;
	char *slab, *hot;
	Address device;

	explicit Lane(Copies &cuda)
	{
		void *memory = nullptr;
		must(!cuda.make_stream(&stream, 1) && !cuda.pinned(&memory, mib, 1), "a stream and pinned memory");
		slab = static_cast<char *>(memory);
		hot = static_cast<char *>(std::aligned_alloc(4096, cut));
		must(hot, "memory");
		std::memset(hot, 1, cut);
		device = reinterpret_cast<Address>(cuda.memory(mib));
	}
};

struct File {
	int fd;
	size_t size;
	void read(char *to, size_t n, off_t at) const
	{
		must(pread(fd, to, n, at) == static_cast<ssize_t>(n), "pread");
	}
};

void measure(const std::string &what, Copies &cuda, std::vector<Lane> &lanes, unsigned threads, size_t file_size,
	     double limit, const std::function<void(Lane &, off_t)> &io)
{
	std::atomic<uint64_t> ios{0};
	const auto [time, cpu] = run_threads(threads, limit, [&](unsigned t, const std::atomic<bool> &stop) {
		cuda.enter();
		for (size_t at = t * mib; !stop;
		     at = at + (threads + 1) * mib > file_size ? t * mib : at + threads * mib) {
			io(lanes[t], static_cast<off_t>(at));
			ios++;
		}
	});
	const double gb = static_cast<double>(ios * mib) / 1e9;
	std::printf("{\"what\": \"%s\", \"threads\": %u, \"us\": %.1f, \"gb_s\": %.2f, \"cpu_s_per_gb\": %.4f}\n",
		    what.c_str(), threads, time * 1e6 * threads / static_cast<double>(ios), gb / time, cpu / gb);
	std::fflush(stdout);
}

// I/Os of the first lane, shared with threads that wait by spinning.
class Helped
{
public:
	Helped(Copies &cuda, const File &file, std::vector<Lane> &lanes, unsigned threads, bool past)
		: cuda_(cuda), file_(file), lanes_(lanes), past_(past)
	{
		for (unsigned t = 1; t < threads; t++)
			threads_.emplace_back([this, t] {
				cuda_.enter();
				for (uint64_t seen = 0; !end_;) {
					const uint64_t now = round_;
					if (now != seen)
						part(lanes_[t]);
					seen = now;
				}
			});
	}
	~Helped()
	{
		end_ = true;
		for (auto &thread : threads_)
			thread.join();
	}
	void read(off_t at)
	{
		at_ = at;
		done_ = 0;
		next_ = 0;
		round_++;
		part(lanes_[0]);
		while (done_ < mib / cut)
			_mm_pause();
		must(!cuda_.wait(lanes_[0].stream), "a copy");
	}

private:
	void part(Lane &mine)
	{
		for (size_t i; (i = next_++) < mib / cut; done_++) {
			char *const to = lanes_[0].slab + i * cut;
			file_.read(past_ ? mine.hot : to, cut, at_ + static_cast<off_t>(i * cut));
			if (past_)
				store_past_caches(to, mine.hot, cut);
			must(!cuda_.in_async(lanes_[0].device + i * cut, to, cut, lanes_[0].stream), "a copy");
		}
	}

	Copies &cuda_;
	const File &file_;
	std::vector<Lane> &lanes_;
	const bool past_;
	std::atomic<uint64_t> round_{0};
	std::atomic<off_t> at_{0};
	std::atomic<size_t> next_{mib}, done_{0};
	std::atomic<bool> end_{false};
	std::vector<std::thread> threads_;
};

void pinned_page_cache(Copies &cuda, const File &file, Lane &lane, size_t size)
{
	constexpr unsigned portable = 1, read_only = 8;
	double pin = 0, unpin = 0;
	for (size_t i = 0; i < 8; i++) {
		const off_t at = static_cast<off_t>(i * size % (file.size - size + 1) / 4096 * 4096);
		void *const page = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, at);
		must(page != MAP_FAILED, "mmap");
		auto start = Clock::now();
		must(!cuda.pin(page, size, portable | read_only), "cuMemHostRegister");
		pin += seconds(start);
		must(!cuda.in_async(lane.device, page, mib, lane.stream) && !cuda.wait(lane.stream), "a copy");
		start = Clock::now();
		must(!cuda.unpin(page), "cuMemHostUnregister");
		unpin += seconds(start);
		munmap(page, size);
	}
	std::printf("{\"what\": \"register\", \"size\": %zu, \"pin_us\": %.1f, \"unpin_us\": %.1f}\n", size,
		    pin * 1e6 / 8, unpin * 1e6 / 8);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 2)
		die("staging FILE [SECONDS]");
	const double limit = argc > 2 ? std::atof(argv[2]) : .5;
	Copies cuda;
	File file = {open(argv[1], O_RDONLY | O_CLOEXEC), 0};
	struct stat st;
	must(file.fd >= 0 && !fstat(file.fd, &st), argv[1]);
	file.size = static_cast<size_t>(st.st_size);
	must(file.size >= 64 * mib, "the file is too short");
	std::vector<Lane> lanes;
	for (int i = 0; i < 16; i++)
		lanes.emplace_back(cuda);
	const auto copy = [&](Lane &lane) {
		must(!cuda.in_async(lane.device, lane.slab, mib, lane.stream) && !cuda.wait(lane.stream), "a copy");
	};
	for (const unsigned threads : {1U, 6U, 8U, 12U, 16U}) {
		measure("pread alone", cuda, lanes, threads, file.size, limit,
			[&](Lane &lane, off_t at) { file.read(lane.slab, mib, at); });
		measure("copy alone", cuda, lanes, threads, file.size, limit, [&](Lane &lane, off_t) { copy(lane); });
		for (const unsigned past : {0U, 2U, 4U})
			measure("past " + std::to_string(past), cuda, lanes, threads, file.size, limit,
				[&, past](Lane &lane, off_t at) {
					for (size_t i = 0; i < mib / cut; i++) {
						const bool by_it = past == 4 || (past && i % 2 == 0);
						char *const to = lane.slab + i * cut;
						file.read(by_it ? lane.hot : to, cut, at + static_cast<off_t>(i * cut));
						if (by_it)
							store_past_caches(to, lane.hot, cut);
					}
					copy(lane);
				});
	}
	for (const bool past : {false, true})
		for (const unsigned threads : {2U, 3U, 4U}) {
			Helped helped(cuda, file, lanes, threads, past);
			measure("spinning " + std::to_string(threads) + (past ? ", past the caches" : ""), cuda, lanes,
				1, file.size, limit, [&](Lane &, off_t at) { helped.read(at); });
		}
	for (const size_t size : {mib, 16 * mib, 64 * mib})
		pinned_page_cache(cuda, file, lanes[0], size);
	return 0;
}
