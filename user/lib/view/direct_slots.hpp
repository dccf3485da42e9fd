// SPDX-License-Identifier: MIT
//
// Memory of a CUDA device that the storage of a view fills itself: registered or imported as a buffer, once for each slot.
// The elements are widened from there.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>

#include "lib/view/slots.hpp"
#include "lib/view/view.hpp"

namespace peerdma_impl
{

inline constexpr unsigned most_direct_slots = 16; // of one view in one context
// Reads begin and end with such blocks, so that none is bounced.
inline constexpr uint64_t direct_block = 4096;
inline constexpr uint64_t gpu_frame = 65536; // buffers consist of these

class DirectPool;

class DirectSlots
{
public:
	explicit DirectSlots(struct peerdma_view &view);
	~DirectSlots(); // enters the contexts
	DirectSlots(const DirectSlots &) = delete;
	DirectSlots &operator=(const DirectSlots &) = delete;

	// The slots of a context, which the caller is in, or nullptr: then the storage cannot reach its memory, for this enum
	// peerdma_reason. Returns 0, -EACCES if a rule denies it, or another -errno if there is no memory for slots now.
	int pool_of(const CudaDriver &driver, const CudaContext &context, SlotPool *&out, uint32_t &reason);

private:
	struct PerContext {
		bool may_pass() const; // the refusal
		int error() const;     // as pool_of() returns it

		std::unique_ptr<DirectPool> pool; // nullptr: refused
		uint32_t reason = PEERDMA_REASON_NONE;
		std::chrono::steady_clock::time_point asked;
	};

	struct peerdma_view &view_;
	std::mutex lock_; // protects all below
	const CudaDriver *driver_ = nullptr;
	std::map<CudaContext, PerContext> contexts_;
};

} // namespace peerdma_impl
