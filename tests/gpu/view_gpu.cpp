// SPDX-License-Identifier: MIT
//
// How fast libpeerdma reads int32 elements of files in the page cache into a real GPU: plain, from 16- and 17-bit images of a
// view, and packed to 16 bits by the CPU on the way. Every element is compared afterwards. The CUDA driver and libpeerdma are
// loaded at run time; neither a toolkit nor the kernel module is needed.
//   view_gpu LIBPEERDMA FOLDER [MIB] [SECONDS] [REPEATS] [MIB_PER_CALL] [stream]
// MIB (4096): of the int32 file, which is made in FOLDER, with its images, unless it is there. SECONDS (2): of each row.
// REPEATS (3): of all rows. MIB_PER_CALL (32): int32 bytes that one call delivers. stream: each thread has a stream and
// waits for it after each call, instead of calls that wait.
// Prints a line of JSON for each row. gb_s counts each element as 4 bytes, bus_gb_s what crossed to the GPU.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "view.hpp"
#include "view/crc32c.hpp"
#include "view/layout.hpp"

namespace
{

constexpr uint64_t mib = 1 << 20;

// A value of 16 bits, in no simple pattern.
uint32_t value_at(uint64_t element)
{
	return static_cast<uint32_t>((element * 0x9e3779b97f4a7c15 ^ element >> 7) >> 40) & 0xffff;
}

// A file that has its name when all of it is written.
class Output
{
public:
	explicit Output(const std::string &path) : path_(path)
	{
		fd_ = open((path + ".new").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		must(fd_ >= 0, path);
	}
	~Output()
	{
		close(fd_);
		must(!rename((path_ + ".new").c_str(), path_.c_str()), path_);
	}
	Output(const Output &) = delete;
	Output &operator=(const Output &) = delete;
	void put(const void *bytes, size_t size, uint64_t at) const
	{
		const auto *from = static_cast<const char *>(bytes);
		while (size) {
			const ssize_t n = pwrite(fd_, from, size, static_cast<off_t>(at));
			must(n > 0, path_);
			from += n;
			at += static_cast<uint64_t>(n);
			size -= static_cast<size_t>(n);
		}
	}

private:
	const std::string path_;
	int fd_;
};

bool has_size(const std::string &path, uint64_t size)
{
	struct stat st;
	return !stat(path.c_str(), &st) && static_cast<uint64_t>(st.st_size) == size;
}

std::string make_plain(const std::string &folder, uint64_t elements)
{
	const std::string path = folder + "/view_gpu.i32";
	if (has_size(path, elements * 4))
		return path;
	const Output out(path);
	std::vector<uint32_t> values(mib);
	for (uint64_t first = 0; first < elements; first += values.size()) {
		const uint64_t count = std::min<uint64_t>(values.size(), elements - first);
		for (uint64_t i = 0; i < count; i++)
			values[i] = value_at(first + i);
		out.put(values.data(), count * 4, first * 4);
	}
	return path;
}

// The image of a view: user/view/header.hpp describes it.
std::string make_image(const std::string &folder, uint64_t elements, unsigned bits)
{
	const std::string path = folder + "/view_gpu." + std::to_string(bits), name = "view_gpu.i32";
	const uint64_t data = view::packed_bytes(elements, bits), chunks = (data + mib - 1) / mib;
	const uint64_t names = 128 + 16, sums = (names + name.size() + 7) / 8 * 8;
	std::vector<std::byte> header((sums + chunks * 4 + 4095) / 4096 * 4096);
	if (has_size(path, header.size() + data))
		return path;
	const Output out(path);
	const auto put = [&](uint64_t at, auto value) { std::memcpy(&header[at], &value, sizeof(value)); };
	std::vector<std::byte> packed(mib + 64);
	uint64_t element = 0, word = 0;
	unsigned held = 0;
	for (uint64_t chunk = 0; chunk < chunks; chunk++) {
		const uint64_t size = std::min(mib, data - chunk * mib);
		for (uint64_t at = 0; at < size; at++) {
			// The bits of 32 elements of 17 bits do not fit into whole words: by bytes.
			while (held < 8 && element < elements) {
				word |= static_cast<uint64_t>(value_at(element++)) << held;
				held += bits;
			}
			packed[at] = static_cast<std::byte>(word);
			word >>= 8;
			held -= std::min(held, 8U);
		}
		out.put(packed.data(), size, header.size() + chunk * mib);
		put(sums + chunk * 4, view::crc32c_portable(std::span(packed).first(size)));
	}
	std::memcpy(header.data(), "PDMAVIEW", 8);
	put(8, uint32_t{1});
	put(16, uint64_t{header.size()});
	put(24, uint8_t{1}); // u32
	put(25, uint8_t{1}); // to bits
	put(26, static_cast<uint8_t>(bits));
	const uint64_t numbers[] = {elements, data, 1, 128, names, name.size(), sums};
	std::memcpy(&header[32], numbers, sizeof(numbers));
	put(128, elements);
	put(136, uint32_t{0});
	put(140, static_cast<uint32_t>(name.size()));
	std::memcpy(&header[names], name.data(), name.size());
	put(12, view::crc32c_portable(header));
	out.put(header.data(), header.size(), 0);
	return path;
}

struct Gpu : StreamCuda {
	int (*name)(char *, int, int) = find("cuDeviceGetName");

	std::string device_name() const
	{
		char text[128] = {};
		must(!name(text, sizeof(text), 0), "cuDeviceGetName");
		return text;
	}
};

struct Way {
	const char *what;
	std::string path;
	const char *codec;
	uint32_t flags;
};

class Bench
{
public:
	Bench(const char *library, uint64_t elements, uint64_t per_call, double limit, bool streams)
		: peerdma_(library), elements_(elements), per_call_(per_call), limit_(limit), streams_(streams),
		  memory_(gpu_.memory(elements * 4)), device_(gpu_.device_name())
	{
	}

	void measure(const Way &way, unsigned threads, int repeat)
	{
		struct peerdma_view *view = nullptr;
		struct peerdma_view_args args = {};
		args.size = sizeof(args);
		args.flags = way.flags;
		args.codec = way.codec;
		if (const int rc = peerdma_.open(nullptr, way.path.c_str(), &args, &view); rc < 0) {
			errno = -rc;
			die(way.path + ": " + args.out_why);
		}
		must(!gpu_.fill(reinterpret_cast<unsigned long long>(memory_), 0xff, elements_ * 4) && !gpu_.settle(),
		     "cuMemsetD8");
		std::vector<void *> streams(threads);
		for (void *&stream : streams)
			must(!streams_ || !gpu_.make_stream(&stream, 1), "cuStreamCreate");
		// Not counted: the slots are made.
		run(*view, threads, streams, 0);
		const Counts counts = run(*view, threads, streams, limit_);
		peerdma_.close(view);
		check(way.what);
		const double gb = static_cast<double>(counts.elements) * 4 / 1e9;
		std::printf("{\"what\": \"%s\", \"threads\": %u, \"repeat\": %d, \"gb_s\": %.2f, \"bus_gb_s\": %.2f, "
			    "\"cpu_s_per_gb\": %.4f, \"elements\": %llu, \"by\": %u, \"route\": %u, "
			    "\"mib_per_call\": %llu, \"stream\": %s, \"checked\": true, \"device\": \"%s\"}\n",
			    way.what, threads, repeat, gb / counts.time,
			    static_cast<double>(counts.moved) / 1e9 / counts.time, counts.cpu / gb,
			    static_cast<unsigned long long>(counts.elements), counts.by, counts.route,
			    static_cast<unsigned long long>(per_call_ * 4 / mib), streams_ ? "true" : "false",
			    device_.c_str());
		std::fflush(stdout);
	}

private:
	struct Counts {
		uint64_t elements, moved;
		double time, cpu;
		uint32_t by, route;
	};

	// Reads all of the file at least once.
	Counts run(struct peerdma_view &view, unsigned threads, const std::vector<void *> &streams, double limit)
	{
		const uint64_t calls = (elements_ + per_call_ - 1) / per_call_;
		std::atomic<uint64_t> next{0}, elements{0}, moved{0};
		std::atomic<uint32_t> by{0}, route{0};
		const auto [time, cpu] = run_threads(threads, limit, [&](unsigned t, const std::atomic<bool> &stop) {
			gpu_.enter();
			for (uint64_t call = next++; call < calls || !stop; call = next++) {
				struct peerdma_view_result result = {};
				struct peerdma_view_read_args args = {};
				result.size = sizeof(result);
				args.size = sizeof(args);
				args.first = call % calls * per_call_;
				args.count = std::min(per_call_, elements_ - args.first);
				args.as = PEERDMA_VIEW_AS_U32;
				args.to = memory_ + args.first * 4;
				args.stream = streams[t];
				const int64_t n = peerdma_.read(&view, &args, &result);
				errno = static_cast<int>(-std::min<int64_t>(n, 0));
				must(n == static_cast<int64_t>(args.count), "peerdma_view_read " + std::to_string(n) +
										    ", element " +
										    std::to_string(result.misfit));
				must(!args.stream || !gpu_.wait(args.stream), "cuStreamSynchronize");
				elements += args.count;
				moved += result.moved;
				by = result.by;
				route = result.route;
			}
		});
		return {elements, moved, time, cpu, by, route};
	}

	void check(const char *what)
	{
		std::vector<uint32_t> got(std::min<uint64_t>(16 * mib, elements_));
		for (uint64_t first = 0; first < elements_; first += got.size()) {
			const uint64_t count = std::min<uint64_t>(got.size(), elements_ - first);
			must(!gpu_.out(got.data(), reinterpret_cast<unsigned long long>(memory_) + first * 4,
				       count * 4),
			     "cuMemcpyDtoH");
			for (uint64_t i = 0; i < count; i++)
				if (got[i] != value_at(first + i)) {
					std::fprintf(stderr, "%s: element %llu is %u, expected %u\n", what,
						     static_cast<unsigned long long>(first + i), got[i],
						     value_at(first + i));
					std::exit(1);
				}
		}
	}

	Gpu gpu_;
	Peerdma peerdma_;
	const uint64_t elements_, per_call_;
	const double limit_;
	const bool streams_;
	char *const memory_;
	const std::string device_;
};

} // namespace

int main(int argc, char **argv)
{
	if (argc < 3)
		die("view_gpu LIBPEERDMA FOLDER [MIB] [SECONDS] [REPEATS] [MIB_PER_CALL] [stream]");
	const auto number = [&](int at, double otherwise) { return argc > at ? std::atof(argv[at]) : otherwise; };
	const uint64_t elements = static_cast<uint64_t>(number(3, 4096)) * mib / 4;
	const double limit = number(4, 2);
	const int repeats = static_cast<int>(number(5, 3));
	const uint64_t per_call = static_cast<uint64_t>(number(6, 32)) * mib / 4;
	must(elements && per_call, "the sizes must not be 0");
	const std::string folder = argv[2], plain = make_plain(folder, elements);
	const std::string image = make_image(folder, elements, 16);
	const Way ways[] = {{"plain", plain, "u32:none", 0},
			    {"view 16 bits", image, "u32:none", 0},
			    {"view 16 bits, verified", image, "u32:none", PEERDMA_VIEW_OPEN_VERIFY},
			    {"view 17 bits", make_image(folder, elements, 17), "u32:none", 0},
			    {"packed on the fly", plain, "u32:16", 0},
			    {"packed on the fly, mapped", plain, "u32:16", PEERDMA_VIEW_OPEN_MAP}};
	Bench bench(argv[1], elements, per_call, limit, argc > 7 && std::string(argv[7]) == "stream");
	for (int repeat = 1; repeat <= repeats; repeat++)
		for (const unsigned threads : {1U, 2U, 4U, 8U, 16U})
			for (const Way &way : ways)
				bench.measure(way, threads, repeat);
	return 0;
}
