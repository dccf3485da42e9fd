// SPDX-License-Identifier: MIT
#include "lib/view/direct_slots.hpp"

#include <cerrno>

namespace peerdma_impl
{

namespace
{

constexpr uint32_t nvidia = 0x10de;
// A refusal that may pass is asked for again after this time, as libcufile does.
constexpr std::chrono::seconds ask_again(1);
constexpr uint64_t direct_bytes = slot_bytes + gpu_frame; // with the blocks at both ends, and the slack of the kernels

void *address(CuAddress number) { return reinterpret_cast<void *>(static_cast<uintptr_t>(number)); }

} // namespace

class DirectPool final : public SlotPool
{
public:
	DirectPool(const CudaDriver &driver, struct peerdma_view &view)
		: SlotPool(driver, most_direct_slots), view_(view)
	{
	}
	~DirectPool() override { clear(); }

	// Makes a slot, to see whether that is possible.
	// Returns 0 or -errno.
	int try_out(uint32_t &reason)
	{
		Slot *slot = nullptr;
		const int rc = take(true, slot);
		if (!rc)
			give(slot);
		reason = rc ? reason_ : static_cast<uint32_t>(PEERDMA_REASON_NONE);
		return rc;
	}

private:
	int make_memory(Slot &slot) override;
	void unmake_memory(Slot &slot) override;
	int make_buffer(Slot &slot);
	int import(Slot &slot);
	bool find_drive(uint32_t &domain, uint32_t &bdf) const;

	struct peerdma_view &view_;
	uint32_t reason_ = PEERDMA_REASON_NONE; // of the last failure; with the pool's lock held
};

int DirectPool::make_memory(Slot &slot)
{
	// The address has to be a multiple of a frame.
	if (const int rc = driver_.alloc(&slot.allocation, direct_bytes + gpu_frame); rc)
		return CudaDriver::error(rc);
	slot.device = (slot.allocation + gpu_frame - 1) / gpu_frame * gpu_frame;
	return make_buffer(slot);
}

void DirectPool::unmake_memory(Slot &slot)
{
	slot.own_file.reset();
	if (slot.owns_buf)
		peerdma_buf_destroy(slot.buf);
	if (slot.allocation)
		driver_.free(slot.allocation);
}

// Any backing device of the file.
bool DirectPool::find_drive(uint32_t &domain, uint32_t &bdf) const
{
	struct peerdma_device handle = {view_.device};
	uint32_t id = 0;
	struct peerdma_explanation why = {};
	why.size = sizeof(why);
	if (peerdma_provider_list(&handle, &id, 1) < 1 || peerdma_explain(view_.file.get(), id, &why) || !why.nr_leaves)
		return false;
	domain = why.leaf_domain;
	bdf = why.leaf_bdf;
	return true;
}

int DirectPool::import(Slot &slot)
{
	struct peerdma_device handle = {view_.device};
	struct peerdma_pointer_args args = {};
	args.size = sizeof(args);
	args.addr = slot.device;
	args.len = direct_bytes;
	if (!find_drive(args.pci_domain, args.pci_bdf)) {
		reason_ = PEERDMA_REASON_IMPORT_DEVICE;
		return -EOPNOTSUPP;
	}
	const int rc = peerdma_buf_from_pointer(&handle, &args, &slot.buf);
	reason_ = args.out_reason;
	if (rc < 0)
		return rc;
	slot.buf_off = args.out_buf_off;
	slot.owns_buf = true;
	return 0;
}

// The memory is a buffer of this process already (an emulated GPU's), or NVIDIA's driver pins it, or exports a dma-buf.
int DirectPool::make_buffer(Slot &slot)
{
	struct peerdma_device handle = {view_.device};
	slot.file = view_.file.get();
	if (!peerdma_buf_at(address(slot.device), &slot.buf, &slot.buf_off)) {
		if (slot.buf->device != view_.device) {
			struct peerdma_file *file = nullptr;
			const int rc = peerdma_file_for_buf(slot.buf, view_.own.fd, &file);
			if (rc < 0)
				return rc;
			slot.own_file.reset(slot.file = file);
		}
	} else {
		const int rc = peerdma_buf_from_gpu(&handle, nvidia, slot.device, direct_bytes, 0, &slot.buf, &reason_);
		slot.owns_buf = !rc;
		// Another way is no way around a rule or a limit.
		if (rc == -EACCES || rc == -EDQUOT || rc == -ENOMEM)
			return rc;
		if (rc < 0)
			if (const int imported = import(slot); imported < 0)
				return imported;
	}
	struct peerdma_explanation why = {};
	why.size = sizeof(why);
	const int rc = peerdma_explain(slot.file, slot.buf->provider_id, &why);
	reason_ = rc < 0 ? static_cast<uint32_t>(PEERDMA_REASON_NONE) : why.reason;
	if (rc < 0)
		return rc;
	// With software RDMA the module fills the memory too, and counts the bytes as through the host.
	return why.route == PEERDMA_ROUTE_DIRECT || why.map == PEERDMA_MAP_SOFTWARE ? 0 : -EXDEV;
}

DirectSlots::DirectSlots(struct peerdma_view &view) : view_(view) {}

DirectSlots::~DirectSlots()
{
	for (auto &[context, per] : contexts_)
		if (per.pool)
			destroy_pool(*driver_, context, std::move(per.pool));
}

bool DirectSlots::PerContext::may_pass() const
{
	switch (reason) {
	case PEERDMA_REASON_MAPPING:
	case PEERDMA_REASON_RDMA_ROUTE:
	case PEERDMA_REASON_USER_LIMIT:
	case PEERDMA_REASON_CGROUP_LIMIT:
	case PEERDMA_REASON_VENDOR_BUSY:
		return !pool;
	default:
		return false;
	}
}

int DirectSlots::PerContext::error() const { return reason == PEERDMA_REASON_RULE ? -EACCES : 0; }

int DirectSlots::pool_of(const CudaDriver &driver, const CudaContext &context, SlotPool *&out, uint32_t &reason)
{
	const std::lock_guard guard(lock_);
	driver_ = &driver;
	const auto now = std::chrono::steady_clock::now();
	if (const auto known = contexts_.find(context); known != contexts_.end()) {
		PerContext &per = known->second;
		if (!per.may_pass() || now - per.asked < ask_again) {
			reason = per.reason;
			out = per.pool.get();
			return per.error();
		}
		contexts_.erase(known);
	}
	PerContext per;
	per.asked = now;
	auto pool = std::make_unique<DirectPool>(driver, view_);
	const int rc = pool->try_out(per.reason);
	reason = per.reason;
	if (!rc)
		per.pool = std::move(pool);
	else if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EAGAIN)
		return rc; // the next read tries again
	const PerContext &kept = contexts_.emplace(context, std::move(per)).first->second;
	out = kept.pool.get();
	return kept.error();
}

} // namespace peerdma_impl
