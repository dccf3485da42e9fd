// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cufile/path/job.hpp"
#include "cufile/platform/condition.hpp"

namespace cufile
{

// The requests of a batch and how they ended. Each is reported exactly once, however little memory there is: what has begun
// needs none to end.
//
// A cancelled batch has nothing to wait for: a fetch with a minimum returns no events, one without a minimum (a poll)
// returns what has ended. KvikIO's basic_io and NVIDIA's sample 021 fetch with a minimum; KvikIO expects no events. The
// original returns none to a poll either, but Mooncake's GdsTransport::getTransferStatus() then never ends a transfer.
// The next submit drops what was not fetched, and has the whole capacity: a program that uses its cookies again could not
// tell the old events from the new ones.
class Batch
{
public:
	explicit Batch(unsigned capacity) : capacity_(capacity) { events_.reserve(capacity); }

	unsigned capacity() const { return capacity_; }
	// So many more, which these jobs hold, or an error. After a cancel what has begun ends first: the new ones may go to the same
	// places.
	CUfileOpError begin(unsigned nr, const std::vector<std::weak_ptr<Job>> &jobs);
	// Of those.
	void finish(const CUfileIOEvents_t &event);
	// Cancels what has not begun: jobs, each with the index from which its requests are. The caller makes their events.
	std::vector<std::pair<std::shared_ptr<Job>, size_t>> cancel();
	// Up to nr events, and how many, after at least min of them or the deadline (of a clock that is not set; negative: none).
	// A min above what is left means all that is left: how many that is changes while the caller decides on a min.
	// CU_FILE_INVALID_VALUE: min is above nr. A caller that waits for all without a deadline helps with each job first.
	CUfileOpError fetch(unsigned min, unsigned &nr, int64_t timeout_ns, const std::function<void(Job &)> &help,
			    CUfileIOEvents_t *out);
	// Until nothing is under way.
	void drain();

private:
	std::vector<std::shared_ptr<Job>> jobs(); // with lock_

	const unsigned capacity_;
	std::mutex lock_; // protects all below
	Condition ended_;
	size_t wanted_ = SIZE_MAX; // by the caller that waits for the fewest events
	unsigned under_way_ = 0;   // begun and not ended
	bool cancelled_ = false;   // and nothing was begun since
	std::vector<CUfileIOEvents_t> events_;
	std::vector<std::weak_ptr<Job>> jobs_;
};

} // namespace cufile
