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

// The requests of a batch and their events. Each is reported exactly once, also when memory is short: completion
// allocates nothing.
//
// After a cancel, fetch() with a minimum returns no events, as KvikIO expects. fetch() without a minimum (a poll)
// returns completed events. The original returns none to a poll either, but Mooncake's
// GdsTransport::getTransferStatus() then never ends a transfer. The next submit drops events that were not fetched and
// has the full capacity, because a program that reuses its cookies could not tell old events from new ones.
class Batch
{
public:
	explicit Batch(unsigned capacity) : capacity_(capacity) { events_.reserve(capacity); }

	unsigned capacity() const { return capacity_; }
	// Adds nr requests, held by these jobs, or returns an error. After a cancel it first waits for requests in
	// flight: the new ones may use the same memory.
	CUfileOpError begin(unsigned nr, const std::vector<std::weak_ptr<Job>> &jobs);
	// Completes one request.
	void complete_request(const CUfileIOEvents_t &event);
	// Cancels requests that have not begun. Returns their jobs with the index of the first canceled request. The
	// caller creates their events.
	std::vector<std::pair<std::shared_ptr<Job>, size_t>> cancel();
	// Returns up to nr events, after at least min of them or the timeout (monotonic; negative: none). A min above
	// the number of pending requests waits for all of them, because that number changes concurrently.
	// CU_FILE_INVALID_VALUE: min is above nr. A caller that waits for all without a timeout helps with each job
	// first.
	CUfileOpError fetch(unsigned min, unsigned &nr, int64_t timeout_ns, const std::function<void(Job &)> &help,
			    CUfileIOEvents_t *out);
	// Returns when no request is in flight.
	void drain();

private:
	std::vector<std::shared_ptr<Job>> jobs(); // call with lock_ held

	const unsigned capacity_;
	std::mutex lock_; // protects all below
	Condition ended_;
	size_t wanted_ = SIZE_MAX; // the lowest count that a caller waits for
	unsigned under_way_ = 0;   // requests in flight
	bool cancelled_ = false;   // since the last submit
	std::vector<CUfileIOEvents_t> events_;
	std::vector<std::weak_ptr<Job>> jobs_;
};

} // namespace cufile
