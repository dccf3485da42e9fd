// SPDX-License-Identifier: MIT
//
// A stream of random operations that two programs generate from the same seed. tests/guest/io/verify.cpp executes them.
// tests/tools/replay.cpp computes the expected results on the host. Each process has its own buffer and files, so every
// result is determined.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace verify
{

constexpr uint64_t kib = 1024, page = 4 * kib, block = 512;
constexpr uint64_t buf_len = 512 * kib, file_max = 1024 * kib;
constexpr uint64_t slot_buf = 64 * kib, slot_file = 128 * kib; // of one request in a batch
constexpr unsigned batch_max = 8;
static_assert(batch_max * slot_buf <= buf_len && batch_max * slot_file <= file_max);

// The files of a process. The last three are its own part of a block device, always file_max long.
enum File : unsigned { ext4, xfs, drive, stripe, mirror, files };
constexpr std::array<const char *, files> file_names = {"ext4", "xfs", "drive", "stripe", "mirror"};
constexpr bool regular(unsigned file) { return file < drive; }

enum class Kind : uint32_t {
	read, // by ioctl
	write,
	append,
	ring_read, // as io_uring commands, several at once
	ring_write,
	proxy_read, // pread(2) with O_DIRECT into the mmapped buffer
	proxy_write,
	cached_read, // pread(2) and pwrite(2) of host memory through the page cache
	cached_write,
	store, // by the CPU into the buffer
	truncate,
	punch,
	refuse, // a request beyond the buffer's end
	kinds
};
constexpr std::array<const char *, size_t(Kind::kinds)> kind_names = {
	"read",        "write",        "append",    "ring read", "ring write", "proxy read", "proxy write",
	"cached read", "cached write", "CPU store", "truncate",  "punch",      "refused"};

struct Op {
	Kind kind;
	unsigned file;
	uint64_t off, len, buf;
	uint64_t random; // for further random choices: bytes, which descriptor

	bool writes() const
	{
		return kind == Kind::write || kind == Kind::append || kind == Kind::ring_write ||
		       kind == Kind::proxy_write || kind == Kind::cached_write;
	}
	bool in_buffer() const { return kind <= Kind::proxy_write || kind == Kind::store; }
	/// The operation uses the module, or the module's pages.
	bool counts() const { return kind <= Kind::proxy_write; }
	bool direct_look() const { return random & 1; }
	bool by_id() const { return random & 2; }

	std::string text() const
	{
		return std::string(kind_names[size_t(kind)]) + " of " + std::to_string(len) + " bytes at " +
		       std::to_string(off) + " of " + file_names[file] + ", buffer " + std::to_string(buf);
	}
};

struct Range {
	uint64_t begin, end;
	uint64_t len() const { return end - begin; }
};

inline Range around(uint64_t at, uint64_t len, uint64_t unit, uint64_t limit)
{
	const uint64_t begin = at / unit * unit, end = (at + len + unit - 1) / unit * unit;
	return {begin < page ? 0 : begin - page, std::min(end + page, limit)};
}

/// The range of the buffer that is compared after an operation: the range to change, and a page on both sides.
inline Range seen_of_buffer(const Op &op) { return around(op.buf, op.len, 8, buf_len); }

/// The same for the file, whose size is now size.
inline Range seen_of_file(const Op &op, uint64_t size)
{
	Range range = around(op.off, op.len, page, size);
	range.begin = std::min(range.begin, range.end);
	return range;
}

/// Computed by words, for speed in an emulated guest. Detects wrong, missing and moved bytes.
inline uint64_t checksum(const volatile void *data, uint64_t len, uint64_t sum)
{
	const auto *words = static_cast<const volatile uint64_t *>(data);
	for (uint64_t i = 0; i < len / 8; i++)
		sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15ULL, sum ^= sum >> 32;
	uint64_t rest = 0;
	for (uint64_t i = len / 8 * 8; i < len; i++)
		rest = rest << 8 | static_cast<const volatile uint8_t *>(data)[i];
	return (sum ^ rest ^ len) * 0x9e3779b97f4a7c15ULL;
}

inline uint64_t mixed(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/// The bytes that an operation writes from host memory.
inline std::vector<uint8_t> bytes_of(const Op &op)
{
	std::vector<uint8_t> bytes(op.len + 8);
	for (uint64_t i = 0; i < op.len; i += 8) {
		const uint64_t word = mixed(op.random + i * 0x9e3779b97f4a7c15ULL);
		std::memcpy(&bytes[i], &word, 8);
	}
	bytes.resize(op.len);
	return bytes;
}

/// The operations in order. Tracks the file sizes, which limit the next operations.
class Stream
{
public:
	std::array<uint64_t, files> size;

	Stream(uint64_t seed, unsigned process, unsigned round, const std::array<uint64_t, files> &sizes)
		: size(sizes), state_(mixed(seed * 1000003 + process * 1009 + round + 1))
	{
	}

	/// The operations that may run concurrently: one, or a batch whose parts do not overlap.
	std::vector<Op> next()
	{
		const uint64_t dice = below(100);
		if (dice < 12)
			return batch();
		Op op = {dice < 34 ? Kind::read :
			 dice < 56 ? Kind::write :
			 dice < 60 ? Kind::append :
			 dice < 68 ? Kind::proxy_read :
			 dice < 76 ? Kind::proxy_write :
			 dice < 81 ? Kind::cached_read :
			 dice < 88 ? Kind::cached_write :
			 dice < 92 ? Kind::store :
			 dice < 95 ? Kind::truncate :
			 dice < 97 ? Kind::punch :
				     Kind::refuse,
			 static_cast<unsigned>(below(files)),
			 0,
			 0,
			 0,
			 0};
		choose(op);
		op.random = word();
		account(op);
		return {op};
	}

private:
	uint64_t state_;

	uint64_t word() { return mixed(state_ += 0x9e3779b97f4a7c15ULL); }
	uint64_t below(uint64_t n) { return word() % n; }

	uint64_t some_len(uint64_t most)
	{
		const uint64_t dice = below(16);
		const uint64_t len = dice < 2  ? 1 + below(16) :
				     dice < 8  ? 1 + below(2 * page) :
				     dice < 12 ? block * (1 + below(64)) :
				     dice < 15 ? page * (1 + below(16)) :
						 1 + below(256 * kib);
		return std::min(len, most);
	}

	/// A random offset in [0, end - len]: page aligned, block aligned or any.
	uint64_t some_place(uint64_t len, uint64_t end)
	{
		static constexpr uint64_t units[] = {page, block, 4, 1, 1};
		const uint64_t unit = units[below(5)];
		return below((end - len) / unit + 1) * unit;
	}

	void choose(Op &op)
	{
		switch (op.kind) {
		case Kind::append:
		case Kind::truncate:
		case Kind::punch:
			op.file = static_cast<unsigned>(below(drive));
			break;
		case Kind::proxy_read:
		case Kind::proxy_write:
			// For plain system calls the kernel accepts P2PDMA pages on these files only.
			op.file = static_cast<unsigned>(below(stripe));
			return choose_aligned(op);
		default:
			break;
		}
		op.len = some_len(256 * kib);
		op.off = some_place(op.len, file_max);
		op.buf = some_place(op.len, buf_len);
		// Prefer ranges around the end of a file, where the code takes other paths.
		if (regular(op.file) && below(4) == 0) {
			const uint64_t before = below(3 * page);
			op.off = size[op.file] > before ? size[op.file] - before : 0;
		}
		op.off = std::min(op.off, file_max - op.len);
		if (op.kind == Kind::append && size[op.file] + op.len > file_max)
			op.kind = Kind::truncate;
		if (op.kind == Kind::append)
			op.off = size[op.file];
		if (op.kind == Kind::refuse)
			op.buf = buf_len - op.len + 1 + below(page);
	}

	/// Plain O_DIRECT calls accept whole blocks only, and a read must end before the end of the file.
	void choose_aligned(Op &op)
	{
		const uint64_t unit = regular(op.file) ? page : block;
		const uint64_t end = op.kind == Kind::proxy_read ? size[op.file] / unit * unit : file_max;
		if (end < unit) {
			op.kind = Kind::proxy_write;
			return choose_aligned(op);
		}
		op.len = std::min(unit * (1 + below(below(4) ? 8 : 64)), end);
		op.off = below((end - op.len) / unit + 1) * unit;
		op.buf = below((buf_len - op.len) / block + 1) * block;
	}

	std::vector<Op> batch()
	{
		std::vector<Op> ops;
		const unsigned n = 2 + static_cast<unsigned>(below(batch_max - 1));
		for (unsigned i = 0; i < n; i++) {
			Op op = {below(2) ? Kind::ring_read : Kind::ring_write,
				 static_cast<unsigned>(below(files)),
				 0,
				 0,
				 0,
				 0};
			const uint64_t begin = i * slot_file;
			// An operation that extends a file must run alone on it.
			if (size[op.file] <= begin)
				op.file = drive;
			const uint64_t end = std::min(slot_file, size[op.file] - begin);
			op.len = some_len(std::min(end, slot_buf));
			op.off = begin + some_place(op.len, end);
			op.buf = i * slot_buf + some_place(op.len, slot_buf);
			op.random = word();
			ops.push_back(op);
		}
		return ops;
	}

	void account(const Op &op)
	{
		if (op.kind == Kind::truncate)
			size[op.file] = op.off;
		else if (op.writes())
			size[op.file] = std::max(size[op.file], op.off + op.len);
	}
};

// --- The guest's report to the host, in a range of the third drive: a header, results, extents

struct Result {
	int64_t ret; // bytes or -errno
	uint64_t sum;
};

/// The position of a file's bytes in a drive's image. Copies are the legs of a mirror.
struct Extent {
	uint32_t file, copy, disk, zeros;
	uint64_t off, len, at;
};

struct Told {
	uint64_t magic;
	uint32_t process, round;
	uint64_t results, extents;
	uint64_t bar[3]; // of the buffer, and of unused ranges before and after it
};

constexpr uint64_t told_magic = 0x5645524946590001ULL, told_at = 512 * kib * kib, told_len = kib * kib;
constexpr uint64_t guard_len = 64 * kib;

} // namespace verify
