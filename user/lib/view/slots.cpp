// SPDX-License-Identifier: MIT
#include "lib/view/slots.hpp"

#include <cstddef>
#include <map>
#include <utility>

#include "common/process.hpp"

namespace peerdma_impl
{
namespace
{

constexpr unsigned host_alloc_portable = 1, stream_non_blocking = 1, event_disable_timing = 2;

// What the views of this process share.
struct Shared {
	std::mutex lock; // protects all below
	unsigned views = 0;
	const CudaDriver *driver = nullptr;
	std::map<CudaContext, std::unique_ptr<HostSlots>> pools;
};

Shared &shared()
{
	static constinit PerProcess<Shared> all;
	return all.get();
}

} // namespace

void hold_shared()
{
	Shared &all = shared();
	const std::lock_guard guard(all.lock);
	all.views++;
}

void drop_shared()
{
	Shared &all = shared();
	std::map<CudaContext, std::unique_ptr<HostSlots>> pools;
	const CudaDriver *driver = nullptr;
	{
		const std::lock_guard guard(all.lock);
		if (--all.views)
			return;
		pools.swap(all.pools);
		driver = all.driver;
	}
	// Without the lock: this waits for streams of the program, and other threads may open views meanwhile.
	for (auto &[context, pool] : pools)
		destroy_pool(*driver, context, std::move(pool));
}

SlotPool &host_slots_of(const CudaDriver &driver, const CudaContext &context)
{
	Shared &all = shared();
	const std::lock_guard guard(all.lock);
	all.driver = &driver;
	std::unique_ptr<HostSlots> &pool = all.pools[context];
	if (!pool)
		pool = std::make_unique<HostSlots>(driver);
	return *pool;
}

int HostSlots::make_memory(Slot &slot)
{
	void *pinned = nullptr;
	int rc = driver_.host_alloc(&pinned, slot_bytes, host_alloc_portable);
	slot.pinned = static_cast<std::byte *>(pinned);
	if (!rc)
		rc = driver_.alloc(&slot.allocation, slot_bytes + widen_slack);
	slot.device = slot.allocation;
	return CudaDriver::error(rc);
}

void HostSlots::unmake_memory(Slot &slot)
{
	if (slot.allocation)
		driver_.free(slot.allocation);
	if (slot.pinned)
		driver_.host_free(slot.pinned);
}

void destroy_pool(const CudaDriver &driver, const CudaContext &context, std::unique_ptr<SlotPool> pool)
{
	// Another context may have the address of one that was destroyed.
	if (!driver.is_alive(context)) {
		pool->forget();
		return;
	}
	const InContext inside(driver, context);
	if (inside.error())
		pool->forget();
	pool.reset(); // in the context
}

void SlotPool::clear()
{
	for (const auto &slot : all_)
		unmake(*slot);
	all_.clear();
	free_.clear();
}

void SlotPool::forget()
{
	const std::lock_guard guard(lock_);
	for (const auto &slot : all_)
		if (slot->owns_buf)
			peerdma_buf_destroy(slot->buf);
	all_.clear();
	free_.clear();
}

int SlotPool::make(Slot &slot)
{
	int failed = make_memory(slot);
	if (!failed) {
		int rc = driver_.stream_create(&slot.stream, stream_non_blocking);
		for (CuEvent *const event : {&slot.ordered, &slot.filled, &slot.done})
			if (!rc)
				rc = driver_.event_create(event, event_disable_timing);
		failed = CudaDriver::error(rc);
	}
	if (failed)
		unmake(slot);
	return failed;
}

void SlotPool::unmake(Slot &slot)
{
	if (slot.stream)
		driver_.stream_wait(slot.stream);
	for (const CuEvent event : {slot.ordered, slot.filled, slot.done})
		if (event)
			driver_.event_destroy(event);
	if (slot.stream)
		driver_.stream_destroy(slot.stream);
	unmake_memory(slot);
}

Slot *SlotPool::take_idle()
{
	for (size_t i = free_.size(); i--;) {
		Slot *const slot = free_[i];
		if (driver_.stream_query(slot->stream))
			continue;
		free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
		return slot;
	}
	return nullptr;
}

int SlotPool::add()
{
	free_.reserve(most_);
	all_.reserve(most_);
	auto slot = std::make_unique<Slot>();
	if (const int rc = make(*slot); rc < 0)
		return rc;
	free_.push_back(all_.emplace_back(std::move(slot)).get());
	return 0;
}

int SlotPool::take(bool wait, Slot *&out)
{
	std::unique_lock guard(lock_);
	out = take_idle();
	if (!out && all_.size() < most_) {
		const int rc = add();
		// If no other can be made, those that there are will do.
		if (rc && all_.empty())
			return rc;
		out = rc ? nullptr : take_idle();
	}
	if (out || !wait)
		return 0;
	returned_.wait(guard, [&] { return !free_.empty(); });
	out = take_idle();
	if (out)
		return 0;
	// The streams of the programs' reads hold all of them back. The read that was first will probably be done first.
	out = free_.front();
	free_.erase(free_.begin());
	guard.unlock();
	const int rc = CudaDriver::error(driver_.stream_wait(out->stream));
	if (rc)
		give(std::exchange(out, nullptr));
	return rc;
}

void SlotPool::give(Slot *slot)
{
	{
		const std::lock_guard guard(lock_);
		free_.push_back(slot);
	}
	returned_.notify_one();
}

int SlotsOfRead::next(Slot *&slot, bool &first)
{
	first = false;
	if (!all_ && slots_.size() < slots_of_read) {
		slots_.reserve(slots_of_read);
		if (const int rc = pool_.take(slots_.empty(), slot); rc < 0)
			return rc;
		if (slot) {
			slots_.push_back(slot);
			first = true;
			return 0;
		}
		all_ = true;
	}
	slot = slots_[turn_++ % slots_.size()];
	return 0;
}

} // namespace peerdma_impl
