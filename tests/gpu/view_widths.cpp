// SPDX-License-Identifier: MIT
//
// Do libpeerdma's kernels widen right on a real GPU? Integers of each width, bf16, and what is not widened, in each form that they can be
// delivered in, out of a view's image and of a plain file that is packed on the way; from odd elements, in place and not, in a stream and
// not. Each element is compared, and each byte around them. Of a stream, earlier work writes what the elements replace, and later work
// copies them. The CUDA driver and libpeerdma are loaded at run time.
//   view_widths LIBPEERDMA FOLDER [SEED]
// TAP; a line for each codec and form.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include "view.hpp"
#include "view_image.hpp"
#include "view_values.hpp"

namespace
{

// More than two pieces of a read through host memory (8 MiB packed) for the wide ones, and no multiple of anything.
constexpr uint64_t elements = 5'000'003;
constexpr size_t most = elements * 8; // bytes of them
constexpr size_t around = 4096;
constexpr char guard = 0x5a;

struct Driver : StreamCuda {
	void *stream = nullptr;

	Driver() { must(!make_stream(&stream, 1), "cuStreamCreate"); }
};

// What is read.
struct Case {
	std::string codec;
	size_t in_file; // bytes of an element of the plain file
	unsigned left;  // bits that a value is shifted by
	unsigned bits;  // of a reduced element
};

// How it is delivered, and what that has to be.
struct Form {
	const char *name;
	uint32_t as;
	unsigned bits; // of a delivered element
	std::string expected;

	bool is_packed() const { return as == PEERDMA_VIEW_AS_PACKED; }
};

class Test
{
public:
	Test(const char *library, std::string folder, unsigned seed)
		: peerdma_(library), folder_(std::move(folder)), random_(seed), memory_(gpu_.memory(most + 2 * around)),
		  copy_(gpu_.memory(most + 2 * around)), seed_(seed)
	{
	}

	// value_bits: of the values. forms: beside the packed one
	void run(const Case &one, unsigned value_bits, std::vector<Form> forms)
	{
		const Values values = random_values(elements, value_bits, seed_);
		Values in_file = values;
		for (uint64_t &value : in_file)
			value <<= one.left;
		for (Form &form : forms)
			form.expected = bytes_of(in_file, form.bits / 8);
		forms.push_back({"packed", PEERDMA_VIEW_AS_PACKED, one.bits, packed(values, one.bits)});
		write("image", image(one.codec, elements, forms.back().expected));
		write("plain", bytes_of(in_file, one.in_file));
		for (const Form &form : forms) {
			std::string wrong = read_file(one, "image", form);
			if (wrong.empty())
				wrong = read_file(one, "plain", form);
			std::printf("%s %d - %s, %s%s%s\n", wrong.empty() ? "ok" : "not ok", ++nr_, one.codec.c_str(),
				    form.name, wrong.empty() ? "" : ": ", wrong.c_str());
			std::fflush(stdout);
			failed_ = failed_ || !wrong.empty();
		}
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

	// Returns what is wrong.
	std::string read_file(const Case &one, const char *name, const Form &form)
	{
		struct peerdma_view *view = nullptr;
		struct peerdma_view_args args = {};
		args.size = sizeof(args);
		args.codec = one.codec.c_str();
		if (const int rc = peerdma_.open(nullptr, (folder_ + "/" + name).c_str(), &args, &view); rc < 0) {
			errno = -rc;
			die(one.codec + ": " + args.out_why);
		}
		std::string wrong;
		for (int part = 0; part < 12 && wrong.empty(); part++)
			wrong = read(*view, form, name, part);
		peerdma_.close(view);
		return wrong;
	}

	// part: bit 0 in place, bit 1 in a stream; 0 to 3 all of it, 4 to 7 many elements, 8 to 11 few.
	std::string read(struct peerdma_view &view, const Form &form, const char *name, int part)
	{
		uint64_t first = part < 4 ? 0 : 1 + random_() % 1000;
		if (form.is_packed())
			first = first / 8 * 8; // begins with a byte
		const uint64_t count = part < 4 ? elements : 1 + random_() % (part < 8 ? elements - 1000 : 5000);
		const bool in_stream = part & 2;
		struct peerdma_view_read_args what = {};
		struct peerdma_view_result result = {};
		what.size = sizeof(what);
		result.size = sizeof(result);
		what.first = first;
		what.count = count;
		what.as = form.as;
		what.flags = part & 1 ? static_cast<uint32_t>(PEERDMA_VIEW_READ_IN_PLACE) : 0;
		what.stream = in_stream ? gpu_.stream : nullptr;
		what.to = memory_ + around;
		must(!gpu_.fill(number(memory_), in_stream ? ~guard : guard, most + 2 * around) && !gpu_.settle(),
		     "cuMemsetD8");
		if (in_stream)
			must(!gpu_.call_later(
				     gpu_.stream, [](void *) { usleep(2000); }, nullptr) &&
				     !gpu_.fill_later(number(memory_), guard, most + 2 * around, gpu_.stream),
			     "cuMemsetD8Async");
		const int64_t n = peerdma_.read(&view, &what, &result);
		const size_t whole = count * form.bits / 8, size = (count * form.bits + 7) / 8;
		if (in_stream)
			must(!gpu_.copy_later(number(copy_), number(memory_), size + 2 * around, gpu_.stream),
			     "cuMemcpyDtoDAsync");
		must(!gpu_.wait(gpu_.stream) && !gpu_.settle(), "cuStreamSynchronize");
		const std::string where = std::string(name) + ", " + std::to_string(count) + " from " +
					  std::to_string(first) + (part & 1 ? ", in place" : "") +
					  (in_stream ? ", in a stream" : "") + ": ";
		if (n != static_cast<int64_t>(count))
			return where + "returned " + std::to_string(n);
		const std::string got = gpu_.bytes(in_stream ? copy_ : memory_, size + 2 * around);
		const char *const expected = form.expected.data() + first * form.bits / 8;
		for (size_t i = 0; i < got.size(); i++) {
			const bool inside = i >= around && i < around + size;
			// The unused bits of the last byte are not specified.
			const int bits = i == around + whole && inside ? (1 << count * form.bits % 8) - 1 : 0xff;
			if ((got[i] ^ (inside ? expected[i - around] : guard)) & bits)
				return where + "byte " +
				       std::to_string(static_cast<int64_t>(i) - static_cast<int64_t>(around));
		}
		return "";
	}

	static unsigned long long number(char *at) { return reinterpret_cast<unsigned long long>(at); }

	Driver gpu_;
	Peerdma peerdma_;
	const std::string folder_;
	std::mt19937_64 random_;
	char *const memory_, *const copy_; // copy_: of memory_, made by a stream
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
		std::vector<Form> forms = {{"to u32", PEERDMA_VIEW_AS_U32, 32, ""},
					   {"to i64", PEERDMA_VIEW_AS_I64, 64, ""}};
		if (bits < 32)
			forms.push_back({"to i32", PEERDMA_VIEW_AS_I32, 32, ""});
		test.run({bits == 32 ? "u32:none" : "u32:" + name, 4, 0, bits}, bits, forms);
		test.run({"i64:" + name, 8, 0, bits}, bits, forms);
	}
	test.run({"i64:none", 8, 0, 64}, 64, {{"as it is", PEERDMA_VIEW_AS_FILE, 64, ""}});
	// No NaN, which may change.
	test.run({"f32:bf16", 4, 16, 16}, 14, {{"to f32", PEERDMA_VIEW_AS_FILE, 32, ""}});
	return test.end();
}
