// SPDX-License-Identifier: MIT
//
// Fills and compares ranges of files byte by byte, on the host and in the guest.
//
//   pattern fill    FILE OFF LEN SOURCE [SOURCE_OFF]
//   pattern compare FILE OFF LEN SOURCE [SOURCE_OFF]
//
// SOURCE is a file, "byte:N", or "pattern:SEED": 8-byte words that depend on the seed and on their offset, so that
// bytes at a wrong offset are detected. compare prints the first difference and exits with 1. Misuse and I/O errors
// exit with 2.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

namespace
{

constexpr size_t chunk = 1 << 20;

[[noreturn]] void fail(const std::string &what, int err = 0)
{
	std::fprintf(stderr, "pattern: %s%s%s\n", what.c_str(), err ? ": " : "", err ? std::strerror(err) : "");
	std::exit(2);
}

uint64_t number(const char *text)
{
	char *end = nullptr;
	errno = 0;
	const uint64_t n = std::strtoull(text, &end, 0);
	if (end == text || *end || errno || *text == '-')
		fail(std::string("not a number: ") + text);
	return n;
}

// splitmix64 of the word's index: words are unrelated at any distance.
uint64_t word(uint64_t seed, uint64_t index)
{
	uint64_t z = (seed * 0x2545f4914f6cdd1dull) ^ (index * 0x9e3779b97f4a7c15ull);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

class Fd
{
public:
	Fd(const char *path, int flags) : fd_(open(path, flags | O_CLOEXEC, 0644)), path_(path)
	{
		if (fd_ < 0)
			fail(path_, errno);
	}
	~Fd() { close(fd_); }
	Fd(const Fd &) = delete;
	Fd &operator=(const Fd &) = delete;

	void read(uint8_t *to, size_t len, uint64_t off) const
	{
		for (size_t done = 0; done < len;) {
			const ssize_t n = pread(fd_, to + done, len - done, static_cast<off_t>(off + done));
			if (n < 0)
				fail(path_, errno);
			if (n == 0)
				fail(path_ + ": ends at byte " + std::to_string(off + done));
			done += static_cast<size_t>(n);
		}
	}
	void write(const uint8_t *from, size_t len, uint64_t off) const
	{
		for (size_t done = 0; done < len;) {
			const ssize_t n = pwrite(fd_, from + done, len - done, static_cast<off_t>(off + done));
			if (n < 0)
				fail(path_, errno);
			done += static_cast<size_t>(n);
		}
	}

private:
	int fd_;
	std::string path_;
};

class Source
{
public:
	explicit Source(const char *spec)
	{
		const std::string_view s = spec;
		if (s.starts_with("byte:"))
			kind_ = Kind::byte, value_ = number(spec + 5);
		else if (s.starts_with("pattern:"))
			kind_ = Kind::pattern, value_ = number(spec + 8);
		else
			kind_ = Kind::file, file_ = new Fd(spec, O_RDONLY);
	}
	~Source() { delete file_; }
	Source(const Source &) = delete;
	Source &operator=(const Source &) = delete;

	void read(uint8_t *to, size_t len, uint64_t off) const
	{
		if (kind_ == Kind::file)
			file_->read(to, len, off);
		else if (kind_ == Kind::byte)
			std::memset(to, static_cast<int>(value_), len);
		else
			for (size_t i = 0; i < len;) {
				const uint64_t w = word(value_, (off + i) / 8);
				const size_t skip = (off + i) % 8, n = std::min(8 - skip, len - i);
				std::memcpy(to + i, reinterpret_cast<const uint8_t *>(&w) + skip, n);
				i += n;
			}
	}

private:
	enum class Kind { file, byte, pattern } kind_;
	uint64_t value_ = 0;
	Fd *file_ = nullptr;
};

} // namespace

int main(int argc, char **argv)
{
	if (argc < 6 || argc > 7)
		fail("usage: pattern fill|compare FILE OFF LEN file|byte:N|pattern:SEED [SOURCE_OFF]");
	const bool fill = std::string_view(argv[1]) == "fill";
	if (!fill && std::string_view(argv[1]) != "compare")
		fail("neither fill nor compare");
	const Fd file(argv[2], fill ? O_WRONLY | O_CREAT : O_RDONLY);
	const uint64_t off = number(argv[3]), len = number(argv[4]), source_off = argc > 6 ? number(argv[6]) : 0;
	const Source source(argv[5]);
	std::vector<uint8_t> want(chunk), got(chunk);

	for (uint64_t at = 0; at < len; at += chunk) {
		const size_t n = static_cast<size_t>(std::min<uint64_t>(chunk, len - at));
		source.read(want.data(), n, source_off + at);
		if (fill) {
			file.write(want.data(), n, off + at);
			continue;
		}
		file.read(got.data(), n, off + at);
		const auto [w, g] =
			std::mismatch(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(n), got.begin());
		if (w != want.begin() + static_cast<std::ptrdiff_t>(n)) {
			std::printf("differs at %llu: expected 0x%02x got 0x%02x\n",
				    static_cast<unsigned long long>(off + at) +
					    static_cast<unsigned long long>(w - want.begin()),
				    *w, *g);
			return 1;
		}
	}
	return 0;
}
