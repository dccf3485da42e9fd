// SPDX-License-Identifier: MIT
// The objects that the programs of one worker use: open files of /dev/peerdma, files and drives, and objects created by
// calls. A world is created for one program, or for several successive ones.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"

namespace fuzz
{

/// Prepared by the script, the same for all workers. An empty folder or drive is not available.
struct Setup {
	std::string ext4, xfs;    // folders for test files
	std::string raw, stacked; // drives without data
	std::string gpu;          // PCI address
	uint32_t domain = 0, bdf = 0;
	uint64_t provided = 16 << 20; // bytes published
	bool alone = false;           // nothing runs concurrently: the same seed gives the same results
};

struct Buffer {
	std::atomic<uint32_t> id;
	std::atomic<uint64_t> offset; // for mmap
};

class World
{
public:
	World(const Setup &setup, unsigned worker);

	/// Creates a world. Each program enters it; end() destroys it.
	void begin();
	void enter(const Program &program);
	void end();

	/// A value as a number.
	uint64_t number(const Value &value) const;
	/// The descriptor of a target. A number selects one of them too: no other descriptor is ever written to.
	int target(const Value &value) const;
	int dev(const Value &value) const;

	void open_dev(unsigned slot);
	void close_dev(unsigned slot);
	void unbind() const;
	void bind() const;
	/// Publishes if no provider exists.
	void provide();

	/// The address of mappings: far from those of the kernel and the C library, so that no unmapping hits theirs.
	static constexpr uint64_t window = 4 << 20;
	static void *at(unsigned slot) { return reinterpret_cast<void *>((1ULL << 40) + slot * 2 * window); }

	const Setup &setup;
	std::array<std::atomic<int>, 4> devs;
	std::array<Buffer, 8> buffers;
	std::array<std::atomic<uint32_t>, 8> files;
	std::atomic<uint32_t> provider = 0;
	char *shared; // a page shared by the threads of a program

private:
	std::array<int, 16> targets_;
	std::array<int, 16> flags_{};
	bool mapped_ = false, written_ = false, modes_ = false; // changes to undo
};

} // namespace fuzz
