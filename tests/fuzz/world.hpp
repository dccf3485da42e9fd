// SPDX-License-Identifier: MIT
// What the programs of one worker act on: open files of /dev/peerdma, the files and drives that bytes go to, what calls
// have made. It is new for a program, or for some that follow each other and go on with what is there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"

namespace fuzz
{

/// The same for all workers: what the script has prepared. A folder or drive that is "" is not there.
struct Setup {
	std::string ext4, xfs;    // folders, for files of ours
	std::string raw, stacked; // drives without anything on them
	std::string gpu;          // PCI address
	uint32_t domain = 0, bdf = 0;
	uint64_t provided = 16 << 20; // bytes published
	bool alone = false;           // nothing at once with anything: the same seed, the same answers
};

struct Buffer {
	std::atomic<uint32_t> id;
	std::atomic<uint64_t> offset; // for mmap
};

class World
{
public:
	World(const Setup &setup, unsigned worker);

	/// A new one is begun, lived in by each of its programs, and ended.
	void begin();
	void enter(const Program &program);
	void end();

	/// What a value is as a number.
	uint64_t number(const Value &value) const;
	/// The descriptor of a target; of a number, one of them too: only these are ever written to.
	int target(const Value &value) const;
	int dev(const Value &value) const;

	void open_dev(unsigned slot);
	void close_dev(unsigned slot);
	void unbind() const;
	void bind() const;
	/// Publish, if nobody has.
	void provide();

	/// Where mappings are: far from what the kernel or the C library chooses, so that what is unmapped is never theirs.
	static constexpr uint64_t window = 4 << 20;
	static void *at(unsigned slot) { return reinterpret_cast<void *>((1ULL << 40) + slot * 2 * window); }

	const Setup &setup;
	std::array<std::atomic<int>, 4> devs;
	std::array<Buffer, 8> buffers;
	std::array<std::atomic<uint32_t>, 8> files;
	std::atomic<uint32_t> provider = 0;
	char *shared; // a page that the threads of a program share

private:
	std::array<int, 16> targets_;
	std::array<int, 16> flags_{};
	bool mapped_ = false, written_ = false, modes_ = false; // what there is to undo
};

} // namespace fuzz
