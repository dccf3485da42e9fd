// SPDX-License-Identifier: MIT
//
// Memory and a stream for one piece of a read on its way into a CUDA device: the CPU fills pinned host memory, the device
// copies it to memory of its own and widens it from there. Threads that read at the same time have slots of their own, so
// that one reads the file while others copy and widen.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/condition.hpp"
#include "lib/view/cuda.hpp"
#include "lib/view/view.hpp"

namespace peerdma_impl
{

inline constexpr uint64_t slot_bytes = 4 << 20;
inline constexpr unsigned most_slots = 32; // in one context
// A read has so many slots at most: one that is filled, one that is copied and widened.
inline constexpr unsigned slots_of_read = 2;

struct Slot {
	std::byte *pinned = nullptr; // nullptr: the storage fills `device` itself
	CuAddress device = 0;        // slot_bytes and more, in the allocation
	CuAddress allocation = 0;
	CuStream stream = nullptr;
	CuEvent ordered = nullptr; // where the program's stream was when the read began
	CuEvent filled = nullptr;  // the memory that is filled first may be filled again, by the same read
	CuEvent done = nullptr;    // all of the read that used the slot
	Scratch scratch;
	// Without pinned memory: the buffer that `device` is in.
	struct peerdma_buf *buf = nullptr;
	uint64_t buf_off = 0; // of `device`
	bool owns_buf = false;
	std::unique_ptr<struct peerdma_file, CloseFile> own_file; // if the buffer is of another peerdma_open()
	struct peerdma_file *file = nullptr;
};

// Slots of one kind in one context. Called in it.
class SlotPool
{
public:
	SlotPool(const CudaDriver &driver, unsigned most) : driver_(driver), most_(most) {}
	virtual ~SlotPool() = default; // of a derived class: has called clear() or forget()
	SlotPool(const SlotPool &) = delete;
	SlotPool &operator=(const SlotPool &) = delete;

	// A slot of its own for the caller, with nothing left to do in its stream. wait: if there can be no more slots, waits
	// until a thread returns one, and for its stream. Returns 0 or -errno; without `wait` also 0 and nullptr.
	int take(bool wait, Slot *&out);
	void give(Slot *slot);
	// The context is gone, and with it everything in it.
	void forget();

protected:
	// Frees the slots, after waiting for their streams.
	void clear();
	// The memory of a slot. Returns 0 or -errno; then unmake_memory() is called.
	virtual int make_memory(Slot &slot) = 0;
	virtual void unmake_memory(Slot &slot) = 0;

	const CudaDriver &driver_;

private:
	// The slot that an earlier read has finished with, its stream too; nullptr: there is none.
	Slot *take_idle();
	// Adds one to free_. Returns 0 or -errno.
	int add();
	int make(Slot &slot);
	void unmake(Slot &slot);

	const unsigned most_;
	std::mutex lock_; // protects all below
	Condition returned_;
	std::vector<std::unique_ptr<Slot>> all_;
	// In the order of their return. Of those that are idle the last one is taken first: its memory may be in a cache.
	std::vector<Slot *> free_;
};

// Frees a pool of this context, which may have been destroyed.
void destroy_pool(const CudaDriver &driver, const CudaContext &context, std::unique_ptr<SlotPool> pool);

// With pinned host memory. Shared by all views.
class HostSlots final : public SlotPool
{
public:
	explicit HostSlots(const CudaDriver &driver) : SlotPool(driver, most_slots) {}
	~HostSlots() override { clear(); }

private:
	int make_memory(Slot &slot) override;
	void unmake_memory(Slot &slot) override;
};

// The host slots of a context, made by the first call.
SlotPool &host_slots_of(const CudaDriver &driver, const CudaContext &context);

// Slots of one read, returned when it ends.
class SlotsOfRead
{
public:
	explicit SlotsOfRead(SlotPool &pool) : pool_(pool) {}
	~SlotsOfRead()
	{
		for (Slot *const slot : slots_)
			pool_.give(slot);
	}
	SlotsOfRead(const SlotsOfRead &) = delete;
	SlotsOfRead &operator=(const SlotsOfRead &) = delete;

	// The slot of the read's next piece. first: it has not been used by this read before.
	int next(Slot *&slot, bool &first);
	const std::vector<Slot *> &used() const { return slots_; }

private:
	SlotPool &pool_;
	std::vector<Slot *> slots_;
	size_t turn_ = 0;
	bool all_ = false; // there are no more for this read
};

} // namespace peerdma_impl
