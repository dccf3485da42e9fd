// SPDX-License-Identifier: MIT
//
// Which device memory the kernel has registered, by frames of 64 KiB. The kernel registers a frame once; registrations of
// programs are smaller than that, and begin and end anywhere. So what is registered with the kernel is a FrameRun, a range
// of frames that registrations share: a new registration takes the frames that are missing, as one run for each gap, and
// keeps the runs that it uses until it ends. A run is released with its last user.
//
// Locking: no lock is held across a call of CUDA's or of the kernel's. A thread claims the range that it registers. Only
// threads that register memory in the same frames wait for the claim, and for the release of a run that lies there; I/O
// never does.
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

// Bytes of one allocation, by the number that the CUDA driver has for it.
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

	// False: max_device_pinned_mem_size_kb has no room for it.
	bool charge(uint64_t bytes);

	// Immutable once the run is in use.
	uint64_t start = 0, end = 0;
	BufferLocation first; // of start; no buffer: it was not registered

private:
	FrameTable &frame_table_;
	const int device_;
	uint64_t charged_ = 0;
};

// One file of libpeerdma's serves one provider, by one open /dev/peerdma.
bool share_a_file(const FrameRun &one, const FrameRun &other);

// A range of a run.
struct RunPart {
	uint64_t start, end;
	std::shared_ptr<FrameRun> run;
};

class FrameTable
{
public:
	// pinned counts what is registered; nullptr: it is not counted.
	explicit FrameTable(PeerdmaClient &peerdma, PinQuota *quota = nullptr) : peerdma_(peerdma), pin_quota_(quota) {}
	FrameTable(const FrameTable &) = delete;
	FrameTable &operator=(const FrameTable &) = delete;

	// How memory of a kind is registered.
	class Source
	{
	public:
		// Registers what is missing; start and end of the run are whole frames around it. 0, -errno, or 1: charge() refused.
		virtual int pin(uint64_t start, uint64_t end, FrameRun &run, uint32_t &reason) = 0;
		// Whether a part of a run is still the memory that is there. known: the pieces of the run's users.
		virtual bool is_same(const RunPart &part, const std::vector<std::shared_ptr<const Pieces>> &known) = 0;

	protected:
		~Source() = default;
	};

	// The runs that hold a range, in order and without gaps, all of them of one provider. As Source::pin(). slack: how far
	// beyond the range frames may reach. pieces: what is registered; as long as they are kept the runs are those of that
	// memory, so they are dropped just before the runs.
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
	// With lock_: no run is found in that range any more.
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
