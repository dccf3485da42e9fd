// SPDX-License-Identifier: MIT
#include "relay.hpp"

#include <algorithm>
#include <cerrno>

#include "inside.hpp"
#include "job.hpp"

namespace cufile
{

Relay::~Relay() { unmake(); }

void Relay::unmake()
{
	Inside inside(seams_.cuda);
	// A context that is gone or was reset has taken all of it along.
	if (!context_ || (memory_ && !is_there()) || inside.enter(context_))
		return;
	for (Slab &slab : slabs_) {
		if (slab.stream) {
			seams_.cuda.wait_stream(slab.stream);
			seams_.cuda.destroy_stream(slab.stream);
		}
		slab.stream = nullptr;
	}
	enrolled_.reset();
	if (memory_)
		seams_.cuda.free_device(memory_);
	memory_ = nullptr;
	id_ = 0;
}

int Relay::make()
{
	Context context = nullptr;
	Inside inside(seams_.cuda);
	int failed = seams_.cuda.primary(device_, context);
	if (!failed)
		failed = inside.enter(context);
	if (failed)
		return failed == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ENODEV;
	context_ = context;
	const int rc = fill();
	return rc ? rc : find_place();
}

// What it needs of CUDA, in its context.
int Relay::fill()
{
	void *memory = nullptr;
	if (seams_.cuda.alloc_device(relay_bytes, &memory))
		return -ENOMEM;
	memory_ = static_cast<char *>(memory);
	Allocation made;
	if (seams_.cuda.allocation(memory_, made) || !made.id)
		return -EIO;
	id_ = made.id;
	uint64_t at = 0;
	for (Slab &slab : slabs_) {
		slab.at = at;
		at += relay_slack + relay_slab;
		const int failed = seams_.cuda.create_stream(&slab.stream);
		if (failed) {
			slab.stream = nullptr;
			return failed == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
		}
	}
	return 0;
}

int Relay::find_place()
{
	if (!seams_.peer.look_up(memory_, place_))
		return 0;
	uint32_t reason;
	const int rc = Enrolled::make(frames_, seams_.cuda, memory_, relay_bytes, enrolled_, reason);
	if (!rc)
		place_ = enrolled_->place(memory_);
	return rc;
}

bool Relay::is_there() const
{
	Allocation now;
	return !id_ || (!seams_.cuda.allocation(memory_, now) && now.id == id_);
}

bool Relay::is_gone()
{
	const std::lock_guard guard(lock_);
	return !made_ && (!is_there() || !seams_.peer.is_there(place_));
}

int Relay::place(Place &out)
{
	const std::lock_guard guard(lock_);
	if (made_ > 0 || (is_shortage(made_) && backoff_.is_due(seams_.system.now_ns()))) {
		made_ = make();
		if (made_ < 0)
			unmake();
		if (is_shortage(made_))
			backoff_.failed(seams_.system.now_ns());
	}
	out = place_;
	return made_;
}

class Relay::Hold
{
public:
	explicit Hold(Relay &relay) : relay_(relay)
	{
		std::unique_lock guard(relay_.lock_);
		while (!(count_ = take()))
			relay_.given_.wait(guard);
	}
	~Hold()
	{
		{
			const std::lock_guard guard(relay_.lock_);
			for (unsigned i = 0; i < count_; i++)
				slabs_[i]->taken = false;
		}
		relay_.given_.notify_all();
	}
	Hold(const Hold &) = delete;
	Hold &operator=(const Hold &) = delete;

	unsigned count() const { return count_; }
	const Slab &slab(size_t part) const { return *slabs_[part % count_]; }

private:
	// With the relay's lock.
	unsigned take()
	{
		unsigned taken = 0;
		for (Slab &slab : relay_.slabs_) {
			if (taken < relay_slabs_each && !slab.taken) {
				slab.taken = true;
				slabs_[taken++] = &slab;
			}
		}
		return taken;
	}

	Relay &relay_;
	unsigned count_ = 0;
	Slab *slabs_[relay_slabs_each]{};
};

// One request on its way, cut at multiples of a slab in the file. The drive and the GPUs are busy at the same time.
class Relay::Trip
{
public:
	Trip(Relay &relay, const Request &request, const Hold &hold)
		: relay_(relay), request_(request), hold_(hold),
		  first_(std::min(request.size, relay_slab - request.offset % relay_slab)),
		  parts_(1 + (request.size - first_ + relay_slab - 1) / relay_slab)
	{
	}

	int64_t move(struct peerdma_io_result &result)
	{
		const int64_t n = request_.write ? write() : read();
		bool good = true;
		for (size_t part = 0; part < std::min<size_t>(parts_, hold_.count()); part++)
			good = !cuda().wait_stream(hold_.slab(part).stream) && good;
		result = result_;
		return good ? n : copy_failed;
	}

private:
	Cuda &cuda() const { return relay_.seams_.cuda; }
	// Of the request's bytes.
	uint64_t start(size_t part) const { return part ? first_ + (part - 1) * relay_slab : 0; }
	uint64_t size(size_t part) const { return part ? std::min(request_.size - start(part), relay_slab) : first_; }
	uint64_t offset(size_t part) const { return request_.offset + start(part); }
	char *far(size_t part) const { return request_.address + start(part); }
	uint64_t at(size_t part) const { return hold_.slab(part).at + offset(part) % relay_slack; }
	char *near(size_t part) const { return relay_.memory_ + at(part); }

	int64_t read()
	{
		for (size_t part = 0; part < parts_; part++) {
			if (part >= hold_.count() && cuda().wait_stream(hold_.slab(part).stream))
				return copy_failed;
			const int64_t n = go(part);
			if (n < 0)
				return n;
			if (n && cuda().copy_across(far(part), near(part), static_cast<uint64_t>(n),
						    hold_.slab(part).stream))
				return copy_failed;
			if (static_cast<uint64_t>(n) < size(part))
				return static_cast<int64_t>(start(part)) + n;
		}
		return static_cast<int64_t>(request_.size);
	}

	int64_t write()
	{
		size_t fetched = 0;
		for (size_t part = 0; part < parts_; part++) {
			while (fetched < std::min<size_t>(parts_, part + hold_.count())) {
				if (cuda().copy_across(near(fetched), far(fetched), size(fetched),
						       hold_.slab(fetched).stream))
					return copy_failed;
				fetched++;
			}
			if (cuda().wait_stream(hold_.slab(part).stream))
				return copy_failed;
			const int64_t n = go(part);
			if (n < 0)
				return stopped(true, start(part), n);
			if (static_cast<uint64_t>(n) < size(part))
				return static_cast<int64_t>(start(part)) + n;
		}
		return static_cast<int64_t>(request_.size);
	}

	// Between the file and the slab.
	int64_t go(size_t part)
	{
		Place place = relay_.place_;
		place.offset += at(part);
		place.size = size(part);
		struct peerdma_io_result result;
		const int64_t n = move_directly(relay_.seams_.peer, request_, place, size(part), offset(part), result);
		if (!part || n < 0 || why_by_host(result))
			result_ = result;
		return n;
	}

	Relay &relay_;
	const Request &request_;
	const Hold &hold_;
	const uint64_t first_;
	const size_t parts_;
	struct peerdma_io_result result_ = {};
};

int64_t Relay::move(const Request &request, struct peerdma_io_result &result)
{
	Inside inside(seams_.cuda);
	if (is_gone())
		return -ENODEV;
	if (inside.enter(context_))
		return copy_failed;
	const Hold hold(*this);
	return Trip(*this, request, hold).move(result);
}

std::shared_ptr<Relay> Relays::on(int device)
{
	const std::lock_guard guard(lock_);
	const auto at = static_cast<size_t>(device);
	if (relays_.size() <= at)
		relays_.resize(at + 1);
	if (!relays_[at] || relays_[at]->is_gone())
		relays_[at] = std::make_shared<Relay>(seams_, device);
	return relays_[at];
}

} // namespace cufile
