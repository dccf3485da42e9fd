// SPDX-License-Identifier: MIT
//
// Device memory that is registered with the kernel, by frames of 64 KiB. The kernel registers a frame once, but
// registrations of programs may be smaller and begin anywhere. So registrations share FrameRuns, ranges of frames that
// are registered with the kernel. A new registration registers the missing frames, one run for each gap, and keeps all
// runs that it uses. A run is released with its last user.
//
// Locking: no lock is held across a call of CUDA or the kernel. A thread claims the range that it registers. Threads
// that register memory in the same frames wait for the claim, and for the release of runs in it; I/O never does.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cufile/platform/condition.hpp"
#include "cufile/platform/dependencies.hpp"
#include "cufile/registry/pin_quota.hpp"

namespace cufile
{

constexpr uint64_t frame_bytes = 65536;

// Bytes of one allocation, with the CUDA driver's id of it.
struct Piece {
	uint64_t start, end, id;
};
using Pieces = std::vector<Piece>;

class FrameTable;

// One registration with the kernel.
class FrameRun
{
public:
	FrameRun(FrameTable &frames, int device) : frame_table_(frames), device_(device) {}
	~FrameRun();
	FrameRun(const FrameRun &) = delete;
	FrameRun &operator=(const FrameRun &) = delete;

	// False if max_device_pinned_mem_size_kb has no room for it.
	bool charge(uint64_t bytes);

	// Immutable once the run is in use.
	uint64_t start = 0, end = 0;
	BufferLocation first; // location of start; no buffer: not registered

private:
	FrameTable &frame_table_;
	const int device_;
	uint64_t charged_ = 0;
};

// True if one file of libpeerdma serves both: the same provider and open /dev/peerdma.
bool share_a_file(const FrameRun &one, const FrameRun &other);

// A part of a run.
struct RunPart {
	uint64_t start, end;
	std::shared_ptr<FrameRun> run;
};

class FrameTable
{
public:
	// quota counts the registered bytes; nullptr: no limit.
	explicit FrameTable(PeerdmaClient &peerdma, PinQuota *quota = nullptr) : peerdma_(peerdma), pin_quota_(quota) {}
	FrameTable(const FrameTable &) = delete;
	FrameTable &operator=(const FrameTable &) = delete;

	// Registers one kind of memory.
	class Source
	{
	public:
		// Registers the start of a missing range. Sets start and end of the run to whole frames around it. 0,
		// -errno, or 1: charge() refused.
		virtual int pin(uint64_t start, uint64_t end, FrameRun &run, uint32_t &reason) = 0;
		// True if a part of a run still is the current memory. known: the pieces of the run's users.
		virtual bool is_same(const RunPart &part, const std::vector<std::shared_ptr<const Pieces>> &known) = 0;

	protected:
		~Source() = default;
	};

	// Returns the runs that cover a range, in order, without gaps, and of one provider. Results as Source::pin().
	// slack: how far frames may reach beyond the range. pieces: the registered memory; the runs stay valid for it
	// while the caller keeps it, so drop it just before the runs.
	int pin_range(uint64_t start, uint64_t end, uint64_t slack, int device, Source &source,
		      const std::shared_ptr<const Pieces> &pieces, std::vector<RunPart> &out, uint32_t &reason);

	PeerdmaClient &peerdma() { return peerdma_; }

private:
	friend class FrameRun;
	class Claim;
	struct Entry {
		uint64_t end;
		std::weak_ptr<FrameRun> run; // expired: it is being released
		const FrameRun *which;
	};

	struct Found {
		RunPart part;
		std::vector<std::shared_ptr<const Pieces>> users;
	};

	bool collect(uint64_t start, uint64_t end, std::vector<Found> &found);
	bool is_claimed(uint64_t start, uint64_t end) const;
	void add(const std::shared_ptr<FrameRun> &run);
	// Call with lock_ held. Lookups find no run in the range afterwards.
	void remove_range(uint64_t start, uint64_t end);
	void remove(const FrameRun &run);
	void add_users(const std::vector<RunPart> &parts, const std::shared_ptr<const Pieces> &pieces);

	PeerdmaClient &peerdma_;
	PinQuota *const pin_quota_;
	std::mutex lock_; // protects all below
	Condition changed_;
	uint64_t changes_ = 0;
	std::vector<std::pair<uint64_t, uint64_t>> claims_;
	std::map<uint64_t, Entry> entries_; // by start; they do not overlap
	std::map<const FrameRun *, std::vector<std::weak_ptr<const Pieces>>> users_;
};

} // namespace cufile
