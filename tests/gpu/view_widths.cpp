// SPDX-License-Identifier: MIT
//
// Do libpeerdma's kernels widen right on a real GPU? Each width of integers to 4 and to 8 bytes, bf16, and what is not widened,
// out of a view's image and of a plain file that is packed on the way; from odd elements, in place and not, in a stream and not.
// Each element is compared, and each byte around them. The CUDA driver and libpeerdma are loaded at run time.
//   view_widths LIBPEERDMA FOLDER [SEED]
// TAP; a line for each codec.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "view.hpp"
#include "view_image.hpp"
#include "view_values.hpp"

namespace
{

// More than two pieces of a read through host memory (8 MiB packed) for the wide ones, and no multiple of anything.
constexpr uint64_t elements = 5'000'003;
constexpr size_t around = 4096;
constexpr char guard = 0x5a;

struct Driver : StreamCuda {
	void *stream = nullptr;

	Driver() { must(!make_stream(&stream, 1), "cuStreamCreate"); }
};

// What is read, and what it has to be.
struct Case {
	std::string codec;
	uint32_t as;
	size_t width;   // bytes of a delivered element
	size_t in_file; // bytes of an element of the plain file
	unsigned left;  // bits that a value is shifted by
	unsigned bits;  // of a reduced element
};

class Test
{
public:
	Test(const char *library, std::string folder, unsigned seed)
		: peerdma_(library), folder_(std::move(folder)), random_(seed),
		  memory_(gpu_.memory(elements * 8 + 2 * around)), seed_(seed)
	{
	}

	// value_bits: of the values
	void run(const Case &one, unsigned value_bits)
	{
		const Values values = random_values(elements, value_bits, seed_);
		Values in_file = values;
		for (uint64_t &value : in_file)
			value <<= one.left;
		const std::string expected = bytes_of(in_file, one.width), reduced = packed(values, one.bits);
		write("image", image(one.codec, elements, reduced));
		write("plain", bytes_of(in_file, one.in_file));
		std::string wrong;
		for (const char *const name : {"image", "plain"}) {
			struct peerdma_view *view = nullptr;
			struct peerdma_view_args args = {};
			args.size = sizeof(args);
			args.codec = one.codec.c_str();
			if (const int rc = peerdma_.open(nullptr, (folder_ + "/" + name).c_str(), &args, &view);
			    rc < 0) {
				errno = -rc;
				die(one.codec + ": " + args.out_why);
			}
			for (int part = 0; part < 12 && wrong.empty(); part++)
				wrong = read(*view, one, name, part, expected);
			peerdma_.close(view);
		}
		std::printf("%s %d - %s to %zu bytes%s%s\n", wrong.empty() ? "ok" : "not ok", ++nr_, one.codec.c_str(),
			    one.width, wrong.empty() ? "" : ": ", wrong.c_str());
		std::fflush(stdout);
		failed_ = failed_ || !wrong.empty();
	}

	int end() const
	{
		std::printf("1..%d\n", nr_);
		return failed_;
	}

private:
	void write(const char *name, const std::string &bytes) const
	{
		std::ofstream out(folder_ + "/" + name, std::ios::binary | std::ios::trunc);
		out << bytes;
		out.close();
		must(!out.fail(), folder_ + "/" + name);
	}

	// part: bit 0 in place, bit 1 in a stream; 0 to 3 all of it, 4 to 7 many elements, 8 to 11 few.
	std::string read(struct peerdma_view &view, const Case &one, const char *name, int part,
			 const std::string &expected)
	{
		const uint64_t first = part < 4 ? 0 : 1 + random_() % 1000;
		const uint64_t count = part < 4 ? elements : 1 + random_() % (part < 8 ? elements - 1000 : 5000);
		struct peerdma_view_read_args what = {};
		struct peerdma_view_result result = {};
		what.size = sizeof(what);
		result.size = sizeof(result);
		what.first = first;
		what.count = count;
		what.as = one.as;
		what.flags = part & 1 ? static_cast<uint32_t>(PEERDMA_VIEW_READ_IN_PLACE) : 0;
		what.stream = part & 2 ? gpu_.stream : nullptr;
		what.to = memory_ + around;
		must(!gpu_.fill(reinterpret_cast<unsigned long long>(memory_), guard, elements * 8 + 2 * around) &&
			     !gpu_.settle(),
		     "cuMemsetD8");
		const int64_t n = peerdma_.read(&view, &what, &result);
		must(!gpu_.wait(gpu_.stream) && !gpu_.settle(), "cuStreamSynchronize");
		const std::string where = std::string(name) + ", " + std::to_string(count) + " from " +
					  std::to_string(first) + (part & 1 ? ", in place" : "") +
					  (part & 2 ? ", in a stream" : "") + ": ";
		if (n != static_cast<int64_t>(count))
			return where + "returned " + std::to_string(n);
		const size_t size = count * one.width;
		const std::string got = gpu_.bytes(memory_, size + 2 * around);
		for (size_t i = 0; i < got.size(); i++) {
			const bool inside = i >= around && i < around + size;
			if (got[i] != (inside ? expected[first * one.width + i - around] : guard))
				return where + "byte " +
				       std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(around));
		}
		return "";
	}

	Driver gpu_;
	Peerdma peerdma_;
	const std::string folder_;
	std::mt19937_64 random_;
	char *const memory_;
	const unsigned seed_;
	int nr_ = 0;
	bool failed_ = false;
};

} // namespace

int main(int argc, char **argv)
{
	if (argc < 3)
		die("view_widths LIBPEERDMA FOLDER [SEED]");
	std::filesystem::create_directories(argv[2]);
	Test test(argv[1], argv[2], argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 1);
	for (unsigned bits = 1; bits <= 32; bits++) {
		const std::string name = std::to_string(bits);
		test.run({bits == 32 ? "u32:none" : "u32:" + name, PEERDMA_VIEW_AS_U32, 4, 4, 0, bits}, bits);
		test.run({"i64:" + name, PEERDMA_VIEW_AS_I64, 8, 8, 0, bits}, bits);
	}
	test.run({"i64:none", PEERDMA_VIEW_AS_FILE, 8, 8, 0, 64}, 64);
	test.run({"f32:bf16", PEERDMA_VIEW_AS_FILE, 4, 4, 16, 16}, 14); // no NaN, which may change
	return test.end();
}
