// SPDX-License-Identifier: MIT
//
// A dock is pinned host memory where the bytes of a stream's I/O lie until the stream itself carries them on. A copy that we
// made, by another stream, could wait for ever: who frees memory holds the driver's lock until this stream has come to
// its end, and every call that copies wants that lock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "seams.hpp"

namespace cufile
{

// What goes through it at a time, and how many there are at most: one for each stream that has I/O under way, and for each I/O
// of a graph.
inline constexpr uint64_t dock_bytes = 4 << 20;
inline constexpr size_t most_docks = 128;

class Dock
{
public:
	// What the stream finds when it gets there.
	Order &order() const { return *reinterpret_cast<Order *>(memory_); }
	// Where bytes for an address lie, so that both are at the same place within 16 bytes.
	char *at(const char *address) const { return memory_ + head + reinterpret_cast<uintptr_t>(address) % 16; }

	// What one I/O puts into the stream is not to be mixed with another's.
	std::mutex filing;

private:
	friend class Docks;
	static constexpr uint64_t head = 4096, tail = 4096; // whole pages

	char *memory_ = nullptr;
	Context context_ = nullptr; // that it was made in, and goes with
	uint64_t id_ = 0;           // of the allocation
	uint64_t stream_ = 0;       // who has it, or had it last
	std::atomic<unsigned> ios_{0};
};

class Docks
{
public:
	explicit Docks(const Seams &seams) : seams_(seams) {}
	Docks(const Docks &) = delete;
	Docks &operator=(const Docks &) = delete;

	// That of a stream, for one I/O more; 0: of nobody else. In its context. nullptr: there is no memory.
	Dock *take(Context context, uint64_t stream);
	// Calls nothing of CUDA.
	static void give(Dock &dock) { dock.ios_.fetch_sub(1, std::memory_order_release); }
	// Gives back the memory of those that nobody has.
	void trim();

private:
	// With lock_.
	bool is_there(const Dock &dock);
	Dock *idle_in(Context context);
	Dock *make(Context context);

	const Seams seams_;
	std::mutex lock_; // protects docks_ and whose they are
	std::vector<std::unique_ptr<Dock>> docks_;
};

} // namespace cufile
