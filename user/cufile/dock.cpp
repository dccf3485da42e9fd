// SPDX-License-Identifier: MIT
#include "dock.hpp"

#include "inside.hpp"
#include <new>

namespace cufile
{

// Its context may be destroyed, and all of it gone; then nothing of that context may be called.
bool Docks::is_there(const Dock &dock)
{
	Allocation now;
	return !seams_.cuda.allocation(dock.memory_, now) && now.id == dock.id_;
}

Dock *Docks::make(Context context)
{
	auto dock = std::make_unique<Dock>();
	docks_.reserve(docks_.size() + 1);
	void *memory = nullptr;
	if (seams_.cuda.alloc_pinned(Dock::head + dock_bytes + Dock::tail, &memory))
		return nullptr;
	dock->memory_ = static_cast<char *>(memory);
	dock->context_ = context;
	Allocation made;
	if (seams_.cuda.allocation(memory, made) || !made.id) {
		seams_.cuda.free_pinned(memory);
		return nullptr;
	}
	dock->id_ = made.id;
	new (memory) Order{nullptr, nullptr, 0};
	docks_.push_back(std::move(dock));
	return docks_.back().get();
}

// Of that context only: another one's memory goes with it, whoever uses it by then.
Dock *Docks::idle_in(Context context)
{
	for (size_t i = 0; i < docks_.size();) {
		Dock &dock = *docks_[i];
		if (dock.context_ != context || dock.ios_.load(std::memory_order_acquire)) {
			i++;
			continue;
		}
		if (is_there(dock))
			return &dock;
		docks_.erase(docks_.begin() + static_cast<ptrdiff_t>(i));
	}
	return nullptr;
}

Dock *Docks::take(Context context, uint64_t stream)
{
	const std::lock_guard guard(lock_);
	for (const auto &dock : docks_) {
		if (!stream || dock->stream_ != stream || !dock->ios_.load(std::memory_order_acquire))
			continue;
		dock->ios_++;
		return dock.get();
	}
	Dock *dock = idle_in(context);
	// Those whose context was destroyed with I/O under way: whoever has one never comes to its end.
	if (!dock && docks_.size() >= most_docks)
		for (auto &gone : docks_)
			if (!is_there(*gone))
				static_cast<void>(gone.release());
	std::erase(docks_, nullptr);
	if (!dock && docks_.size() < most_docks)
		dock = make(context);
	if (dock) {
		dock->stream_ = stream;
		dock->ios_ = 1;
	}
	return dock;
}

void Docks::trim()
{
	const std::lock_guard guard(lock_);
	std::erase_if(docks_, [this](const auto &dock) {
		if (dock->ios_.load(std::memory_order_acquire))
			return false;
		Inside inside(seams_.cuda);
		if (is_there(*dock) && !inside.enter(dock->context_))
			seams_.cuda.free_pinned(dock->memory_);
		return true;
	});
}

} // namespace cufile
