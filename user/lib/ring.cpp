// SPDX-License-Identifier: MIT
//
// Batches: requests wait here until the kernel has room for them. A waiting request can be cancelled, a submitted one
// cannot. Each request completes exactly once. Every wait also submits, so more requests than fit always make progress.
#include <chrono>
#include <deque>
#include <limits>
#include <list>
#include <vector>

#include "common/queue.hpp"
#include "common/short_count.hpp"
#include "lib/boundary.hpp"
#include "lib/device.hpp"
#include "lib/policy.hpp"

namespace peerdma_impl
{
namespace
{

using Clock = std::chrono::steady_clock;

constexpr unsigned max_depth = 4096;
constexpr uint64_t max_len = 0x7ffff000; // bytes; a result has 31 bits

struct Request {
	uint32_t kind, buf_id, file_id;
	uint64_t buf_off, len, file_off, tag; // of the rest of the request
	uint64_t done;                        // bytes that earlier commands moved

	bool is_write() const { return kind == PEERDMA_OP_WRITE; }
};

// One command: one request, or several successive ones on the same file and buffer.
struct Group {
	std::vector<Request> requests;
	std::vector<struct peerdma_uring_seg> segs; // used by the kernel until the command completes
};

// Completed requests that were not fetched. Space is reserved in advance: a completion that the kernel has delivered
// cannot be requested again.
class DoneQueue
{
public:
	explicit DoneQueue(size_t capacity)
		: done_(std::make_unique_for_overwrite<peerdma_done[]>(capacity)), capacity_(capacity)
	{
	}

	size_t size() const { return size_; }
	void push(const peerdma_done &one) { done_[(first_ + size_++) % capacity_] = one; }
	peerdma_done pop()
	{
		const peerdma_done one = done_[first_];
		first_ = (first_ + 1) % capacity_;
		size_--;
		return one;
	}

private:
	const std::unique_ptr<peerdma_done[]> done_;
	const size_t capacity_;
	size_t first_ = 0, size_ = 0;
};

bool can_merge(const Request &a, const Request &b)
{
	return a.kind == b.kind && a.buf_id == b.buf_id && a.file_id == b.file_id;
}

} // namespace
} // namespace peerdma_impl

using namespace peerdma_impl;

struct peerdma_ring {
	peerdma_ring(std::shared_ptr<Device> on, uint32_t with, unsigned at_a_time, unsigned most)
		: device(std::move(on)), flags(with), depth(at_a_time), capacity(most), finished(most)
	{
	}

	std::shared_ptr<Device> device;
	std::unique_ptr<Queue> queue;
	const uint32_t flags;
	const unsigned depth, capacity;

	std::mutex lock;             // protects all below
	std::deque<Request> pending; // not submitted
	std::list<Group> groups;     // submitted, in this order; list nodes do not move
	unsigned unsubmitted = 0;    // the last groups, which are in our half of the ring only
	DoneQueue finished;

	size_t outstanding() const
	{
		size_t n = pending.size();
		for (const Group &group : groups)
			n += group.requests.size();
		return n;
	}

	bool in_flight() const { return groups.size() > unsubmitted; }

	// Makes one command of the next requests, if the queue has room. The group is complete before it is pushed: if
	// memory runs out, nothing has changed.
	bool push()
	{
		std::list<Group> made(1);
		Group &group = made.front();
		const size_t most = flags & PEERDMA_RING_VECTORS ? PEERDMA_URING_SEGS : 1;
		for (size_t i = 0; i < pending.size() && i < most && can_merge(pending[0], pending[i]); i++)
			group.requests.push_back(pending[i]);
		const Request &r = group.requests.front();
		const bool write = r.is_write();
		Command command = {write ? PEERDMA_URING_WRITE : PEERDMA_URING_READ,
				   r.buf_id,
				   r.file_id,
				   static_cast<uint32_t>(r.len),
				   r.file_off,
				   r.buf_off,
				   reinterpret_cast<uintptr_t>(&group)};
		if (group.requests.size() > 1) {
			for (const Request &one : group.requests)
				group.segs.push_back({one.file_off, one.buf_off, static_cast<uint32_t>(one.len), 0});
			command.op = write ? PEERDMA_URING_WRITEV : PEERDMA_URING_READV;
			command.len = static_cast<uint32_t>(group.segs.size());
			command.first = reinterpret_cast<uintptr_t>(group.segs.data());
			command.second = 0;
		}
		if (!queue->push(command))
			return false;
		groups.splice(groups.end(), made);
		pending.erase(pending.begin(), pending.begin() + static_cast<ptrdiff_t>(group.requests.size()));
		unsubmitted++;
		return true;
	}

	// Submits as many commands as fit.
	int submit()
	{
		while (!pending.empty() && groups.size() < depth && push())
			;
		while (unsubmitted) {
			int rc = queue->submit();
			if (rc == -EINTR)
				continue;
			if (rc <= 0)
				return rc;
			unsubmitted -= std::min(unsubmitted, static_cast<unsigned>(rc));
		}
		return 0;
	}

	// A result is a byte count and does not tell whether the end of the file or an error ended the command. The
	// next command, for the rest, tells.
	bool goes_on(const Request &request, int64_t result)
	{
		if (result <= 0 || static_cast<uint64_t>(result) >= request.len)
			return false;
		const auto moved = static_cast<uint64_t>(result);
		if (!may_go_on(request.is_write(), request.file_off + moved))
			return false;
		Request rest = request;
		rest.buf_off += moved;
		rest.file_off += moved;
		rest.len -= moved;
		rest.done += moved;
		pending.push_front(rest);
		return true;
	}

	void finish(const Request &request, int64_t result)
	{
		if (!result && request.is_write())
			result = -EIO;
		try {
			if (goes_on(request, result))
				return;
		} catch (const std::bad_alloc &) {
			result = -ENOMEM;
		}
		finished.push({request.tag, result < 0 ? result_after_error(request.is_write(), request.done, result) :
							 static_cast<int64_t>(request.done) + result});
	}

	void finish(const Completion &completion)
	{
		for (auto group = groups.begin(); group != groups.end(); ++group) {
			if (reinterpret_cast<uintptr_t>(&*group) != completion.tag)
				continue;
			const bool whole = completion.res == static_cast<int32_t>(group->segs.size());
			for (size_t i = 0; i < group->requests.size(); i++) {
				const Request &r = group->requests[i];
				int64_t result = completion.res;
				if (!group->segs.empty() && result >= 0)
					result = whole ? static_cast<int64_t>(r.len) : group->segs[i].out_res;
				finish(r, result);
			}
			groups.erase(group);
			return;
		}
	}

	// Sleeps for a completion; 0: timeout.
	int sleep(int64_t timeout_ns)
	{
		Completion got[64];
		int rc = queue->wait(got, std::size(got), timeout_ns);
		for (int i = 0; i < rc; i++)
			finish(got[i]);
		return rc;
	}

	// Collects completions and submits what fits then.
	int poll()
	{
		int rc = 1;
		while (in_flight() && rc > 0)
			rc = sleep(0);
		if (rc < 0 && rc != -EINTR)
			return rc;
		return submit();
	}

	// Drops queued requests and waits for submitted ones. Returns 0, or the error after which the kernel may still
	// use the buffers.
	int drain()
	{
		pending.clear();
		for (; unsubmitted; unsubmitted--)
			groups.pop_back();
		while (!groups.empty()) {
			int rc = sleep(-1);
			if (rc < 0 && rc != -EINTR)
				return rc;
		}
		return 0;
	}
};

namespace
{

int check(const struct peerdma_ring &ring, const struct peerdma_op &op)
{
	if (!op.file || !op.buf || op.kind > PEERDMA_OP_WRITE || op.flags || !op.len || op.len > max_len)
		return -EINVAL;
	// A buffer's id is valid on its own open file only; on another it could name another buffer.
	return op.file->device == ring.device && op.buf->device == ring.device ? 0 : -ENOENT;
}

int queue_one(struct peerdma_ring &ring, const struct peerdma_op &op)
{
	int rc = check(ring, op);
	if (!rc)
		rc = permit(*op.file, op.buf->provider_id);
	if (!rc)
		rc = op.file->refused;
	if (rc)
		return rc;
	const Request request = {op.kind, op.buf->id, op.file->id, op.buf_off, op.len, op.file_off, op.tag, 0};
	if (ring.outstanding() + ring.finished.size() >= ring.capacity)
		return -EAGAIN;
	try {
		ring.pending.push_back(request);
	} catch (const std::bad_alloc &) {
		return -ENOMEM; // earlier ones have been added and are counted
	}
	return 0;
}

unsigned fetch(struct peerdma_ring &ring, struct peerdma_done *done, unsigned max)
{
	unsigned n = 0;
	for (; n < max && ring.finished.size(); n++)
		done[n] = ring.finished.pop();
	return n;
}

} // namespace

int peerdma_ring_create(struct peerdma_device *p, uint32_t depth, uint32_t capacity, uint32_t flags,
			struct peerdma_ring **out)
{
	return boundary([&] {
		int rc = check_handle(p);
		if (rc)
			return rc;
		if (!out || !depth || depth > max_depth || capacity < depth || capacity > INT32_MAX)
			return -EINVAL;
		if (flags & ~(PEERDMA_RING_ONE_THREAD | PEERDMA_RING_VECTORS))
			return -EOPNOTSUPP;
		struct peerdma_info info = {};
		rc = p->device->ioctl(PEERDMA_INFO, info);
		if (rc < 0)
			return rc;
		const uint64_t want = flags & PEERDMA_RING_VECTORS ? PEERDMA_FEATURE_URING | PEERDMA_FEATURE_URING_VEC :
								     PEERDMA_FEATURE_URING;
		if ((info.out_features & want) != want)
			return -EOPNOTSUPP;
		auto ring = std::make_unique<struct peerdma_ring>(p->device, flags, depth, capacity);
		rc = p->device->sys().open_queue(p->device->fd(), depth, flags & PEERDMA_RING_ONE_THREAD, ring->queue);
		// Checked after the call: a descriptor that is ours now was ours when the queue took it.
		if (rc >= 0 && !p->device->is_there())
			rc = -EBADF;
		if (rc < 0)
			return rc;
		*out = ring.release();
		return 0;
	});
}

void peerdma_ring_destroy(struct peerdma_ring *ring)
{
	boundary([&] {
		if (!ring)
			return 0;
		// A child has a copy of the lists and shares the queue. The parent waits for requests under way.
		if (ring->device->is_inherited()) {
			delete ring;
			return 0;
		}
		// The kernel may still access the requests under way and buffers that the caller frees next.
		if (ring->drain() < 0) {
			// Closing the queue cancels commands that have not begun. The kernel may still write segments:
			// leak them.
			ring->queue.reset();
			ring->device.reset();
			ring->groups.remove_if([](const Group &group) { return group.segs.empty(); });
		}
		if (ring->groups.empty())
			delete ring;
		return 0;
	});
}

int peerdma_ring_queue(struct peerdma_ring *ring, const struct peerdma_op *ops, uint32_t n)
{
	return boundary([&] {
		if (const int rc = check_handle(ring); rc < 0)
			return rc;
		if ((n && !ops) || n > INT32_MAX)
			return -EINVAL;
		std::lock_guard guard(ring->lock);
		for (uint32_t i = 0; i < n; i++) {
			int rc = queue_one(*ring, ops[i]);
			if (rc)
				return i ? static_cast<int>(i) : rc;
		}
		return static_cast<int>(n);
	});
}

int peerdma_ring_submit(struct peerdma_ring *ring)
{
	return boundary([&] {
		int rc = check_handle(ring);
		if (rc < 0)
			return rc;
		std::lock_guard guard(ring->lock);
		rc = ring->submit();
		return rc < 0 ? rc : static_cast<int>(ring->groups.size());
	});
}

int peerdma_ring_wait(struct peerdma_ring *ring, struct peerdma_done *done, uint32_t max, uint32_t min,
		      int32_t timeout_ms)
{
	return boundary([&] {
		if (const int rc = check_handle(ring); rc < 0)
			return rc;
		if (!done || !max || max > INT32_MAX || min > max)
			return -EINVAL;
		std::lock_guard guard(ring->lock);
		const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
		auto fetched = [&](int rc) {
			const unsigned n = fetch(*ring, done, max);
			return n || rc >= 0 ? static_cast<int>(n) : rc;
		};
		for (;;) {
			int rc = ring->submit();
			// Completions become visible only when they are collected.
			if (ring->finished.size() >= min)
				return fetched(ring->in_flight() ? ring->poll() : rc);
			if (ring->pending.empty() && ring->groups.empty())
				return fetched(0);
			// Nothing is in the kernel, and it accepts nothing: waiting would never end.
			if (!ring->in_flight())
				return fetched(rc < 0 ? rc : -EAGAIN);
			int64_t left = -1;
			if (timeout_ms >= 0)
				left = std::max<int64_t>(0, std::chrono::nanoseconds(end - Clock::now()).count());
			rc = ring->sleep(left);
			if (rc < 0 && rc != -EINTR)
				return rc;
			// A signal ends the wait like the timeout. Its handler has run, and the caller may want to
			// check what it changed.
			if (rc <= 0)
				return fetched(rc);
		}
	});
}

int peerdma_ring_cancel(struct peerdma_ring *ring, uint64_t tag)
{
	return boundary([&] {
		if (const int rc = check_handle(ring); rc < 0)
			return rc;
		std::lock_guard guard(ring->lock);
		auto at = std::find_if(ring->pending.begin(), ring->pending.end(),
				       [&](const Request &request) { return request.tag == tag; });
		if (at != ring->pending.end() && at->done)
			return -EALREADY;
		if (at != ring->pending.end()) {
			ring->finished.push({tag, -ECANCELED});
			ring->pending.erase(at);
			return 0;
		}
		for (const Group &group : ring->groups)
			for (const Request &request : group.requests)
				if (request.tag == tag)
					return -EALREADY;
		return -ENOENT;
	});
}
