// SPDX-License-Identifier: MIT
//
// A relay is memory of a GPU that the file's device reaches, for bytes of a GPU that it does not: they go directly between
// the file and the relay, and by the GPUs' own copy between the relay and their place. No host memory is in between.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backoff.hpp"
#include "condition.hpp"
#include "enrolled.hpp"

namespace cufile
{

struct Request;

inline constexpr uint64_t relay_slab = 2 << 20;
// In front of a slab, so that what begins within a block of the file lies as it does there. A multiple of any block.
inline constexpr uint64_t relay_slack = 64 << 10;
inline constexpr unsigned relay_slabs = 8, relay_slabs_each = 2; // of a relay; what one I/O has at most
inline constexpr uint64_t relay_bytes = relay_slabs * (relay_slack + relay_slab);

class Relay
{
public:
	Relay(const Seams &seams, int device) : seams_(seams), device_(device) {}
	~Relay();
	Relay(const Relay &) = delete;
	Relay &operator=(const Relay &) = delete;

	// Where the kernel has it. It is made when it is first wanted: 0, or why there is none, -errno. After a shortage of
	// memory or descriptors it is tried again.
	int place(Place &out);
	// Its memory went with the context, which the program has reset: the address may be another allocation's by now. Or the
	// program has closed the descriptor by which the kernel has it.
	bool is_gone();
	// Moves all of a request. Waits while all slabs are taken. -ENODEV: the kernel has it no more, and nothing was moved.
	// result: of what went between the file and here, that of the part that says most.
	int64_t move(const Request &request, struct peerdma_io_result &result);

private:
	struct Slab {
		uint64_t at = 0; // in the memory
		Stream stream = nullptr;
		bool taken = false;
	};
	// What one I/O has of it.
	class Hold;
	class Trip;

	// With lock_.
	int make();
	void unmake();
	int fill();
	int find_place();
	bool is_there() const;

	const Seams seams_;
	const int device_;
	std::mutex lock_; // protects made_ and who has which slab; what make() makes is immutable after
	Condition given_;
	int made_ = 1; // 1: nobody has asked; 0, or -errno
	Backoff backoff_;
	Context context_ = nullptr;
	char *memory_ = nullptr;
	uint64_t id_ = 0; // of the allocation
	Place place_;     // of its first byte
	Frames frames_{seams_.peer};
	std::shared_ptr<Enrolled> enrolled_;
	Slab slabs_[relay_slabs];
};

// One for each device, until it is gone.
class Relays
{
public:
	explicit Relays(const Seams &seams) : seams_(seams) {}
	std::shared_ptr<Relay> on(int device);

private:
	const Seams seams_;
	std::mutex lock_; // protects relays_
	std::vector<std::shared_ptr<Relay>> relays_;
};

} // namespace cufile
