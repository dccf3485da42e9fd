// SPDX-License-Identifier: MIT
//
// The threads of one row and the route of its bytes. Each route does what a program would do:
//
//   direct  the drive reads or writes the provider's memory; requests that would be bounced are refused
//   bounce  O_DIRECT into host memory, and the CPU copies between it and the provider's memory
//   host    O_DIRECT into host memory only: the limit of the drive
//   naive   through the page cache, and the kernel copies between it and the provider's memory: the library's fallback
//
// A depth above 1 is that of a ring, of the library or of io_uring. Calls through the page cache have no depth.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <sys/resource.h>

#include "tools/bench/bench.hpp"

namespace cli
{
namespace
{

using Clock = std::chrono::steady_clock;

// State shared by all threads of a row.
struct RowContext {
	peerdma_impl::Syscalls &sys;
	const BenchFile &file;
	const BenchRow &row;
	const Device &device; // no handle for a host row
	const struct peerdma_provider_info *provider;
	const File &gpu_file;
};

// The requests of one thread. Each moves all of its bytes, or throws Failure.
class Engine
{
public:
	virtual ~Engine() = default;
	virtual void start(uint64_t slot, uint64_t offset) = 0;
	// Waits for a request to complete. Return: its slot.
	virtual uint64_t finish() = 0;

protected:
	explicit Engine(const RowContext &context) : context_(context) {}

	bool write() const { return context_.row.write; }
	uint64_t len() const { return context_.row.size; }
	void check_whole(int64_t result, uint32_t reason = 0) const
	{
		if (result == static_cast<int64_t>(len()))
			return;
		throw Failure{fmt::format("{}: {} {}", route_name(context_.row.route), write() ? "writing" : "reading",
					  context_.file.name),
			      result < 0 ? static_cast<int>(-result) : EIO,
			      reason,
			      "",
			      {}};
	}

	const RowContext context_;
};

// The provider of a row that is not a host row.
const struct peerdma_provider_info &provider_of(const RowContext &context)
{
	if (!context.provider)
		throw Failure{"no provider", ENODEV, 0, "", {}};
	return *context.provider;
}

// A buffer in the provider's memory with a range for each slot.
Buffer gpu_slots(const RowContext &context)
{
	return create_buffer(context.device, provider_of(context),
			     round_up(context.row.size * context.row.depth, 4096));
}

class DirectCall final : public Engine
{
public:
	explicit DirectCall(const RowContext &context) : Engine(context), buffer_(gpu_slots(context))
	{
		struct peerdma_buf_info info = {};
		info.size = sizeof(info);
		peerdma_buf_query(buffer_.get(), &info);
		buf_id_ = info.buf_id;
	}
	void start(uint64_t slot, uint64_t offset) override
	{
		struct peerdma_io io = {};
		io.size = sizeof(io);
		io.flags = PEERDMA_IO_NO_BOUNCE;
		io.fd = context_.file.plain.get();
		io.buf_id = buf_id_;
		io.file_off = offset;
		io.len = len();
		const int rc = context_.sys.ioctl(peerdma_fd(context_.device.get()),
						  write() ? PEERDMA_WRITE : PEERDMA_READ, &io);
		check_whole(rc < 0 ? rc : static_cast<int64_t>(io.out_done), io.out_reason);
		slot_ = slot;
	}
	uint64_t finish() override { return slot_; }

private:
	const Buffer buffer_;
	uint32_t buf_id_ = 0;
	uint64_t slot_ = 0;
};

class DirectRing final : public Engine
{
public:
	explicit DirectRing(const RowContext &context) : Engine(context), buffer_(gpu_slots(context))
	{
		const auto depth = static_cast<uint32_t>(context.row.depth);
		struct peerdma_ring *raw = nullptr;
		const int rc = peerdma_ring_create(context.device.get(), depth, depth, PEERDMA_RING_ONE_THREAD, &raw);
		if (rc < 0)
			throw Failure{"cannot create a ring", -rc, 0, "Without io_uring use --depth 1.", {}};
		ring_.reset(raw);
	}
	void start(uint64_t slot, uint64_t offset) override
	{
		struct peerdma_op op = {};
		op.kind = write() ? PEERDMA_OP_WRITE : PEERDMA_OP_READ;
		op.file = context_.gpu_file.get();
		op.buf = buffer_.get();
		op.buf_off = slot * len();
		op.len = len();
		op.file_off = offset;
		op.tag = slot;
		int rc = peerdma_ring_queue(ring_.get(), &op, 1);
		if (rc > 0)
			rc = peerdma_ring_submit(ring_.get());
		if (rc < 0)
			check_whole(rc);
	}
	uint64_t finish() override
	{
		struct peerdma_done done = {};
		const int rc = wait_for(ring_, &done, 1);
		check_whole(rc == 1 ? done.result : std::min(rc, -EIO));
		return done.tag;
	}

private:
	const Buffer buffer_;
	Ring ring_; // destroyed before the buffer
};

// Host memory with a range for each slot; for the bounce route also a buffer in the provider's memory.
class HostSlots
{
public:
	explicit HostSlots(const RowContext &context)
		: len_(context.row.size),
		  host_(static_cast<char *>(std::aligned_alloc(4096, round_up(len_ * context.row.depth, 4096))))
	{
		if (!host_)
			throw Failure{fmt::format("{}: no host memory for {} requests of {}",
						  route_name(context.row.route), context.row.depth, size_text(len_)),
				      ENOMEM,
				      0,
				      "Reduce --io-size, --depth or --threads.",
				      {}};
		std::memset(host_.get(), 0, len_ * context.row.depth);
		if (context.row.route != BenchRoute::bounce)
			return;
		buffer_ = gpu_slots(context);
		gpu_ = static_cast<char *>(map_buffer(buffer_));
	}
	char *at(uint64_t slot) const { return host_.get() + slot * len_; }
	void to_gpu(uint64_t slot) const
	{
		if (gpu_)
			std::memcpy(gpu_ + slot * len_, at(slot), len_);
	}
	void from_gpu(uint64_t slot) const
	{
		if (gpu_)
			std::memcpy(at(slot), gpu_ + slot * len_, len_);
	}

private:
	struct Free {
		void operator()(char *p) const { std::free(p); }
	};
	const uint64_t len_;
	const std::unique_ptr<char, Free> host_;
	Buffer buffer_;
	char *gpu_ = nullptr;
};

class HostCall final : public Engine
{
public:
	explicit HostCall(const RowContext &context) : Engine(context), slots_(context) {}
	void start(uint64_t slot, uint64_t offset) override
	{
		const Fd &fd = context_.file.direct;
		if (write())
			slots_.from_gpu(slot);
		check_whole(write() ? fd.write({slots_.at(slot), len()}, offset) :
				      fd.read({slots_.at(slot), len()}, offset));
		if (!write())
			slots_.to_gpu(slot);
		slot_ = slot;
	}
	uint64_t finish() override { return slot_; }

private:
	const HostSlots slots_;
	uint64_t slot_ = 0;
};

class HostRing final : public Engine
{
public:
	explicit HostRing(const RowContext &context) : Engine(context), slots_(context)
	{
		const int rc = ::io_uring_queue_init(static_cast<unsigned>(context.row.depth), &ring_, 0);
		if (rc < 0)
			throw Failure{"cannot create a ring", -rc, 0, "Without io_uring use --depth 1.", {}};
	}
	~HostRing() override
	{
		// The kernel may still access requests under way: wait for them.
		struct io_uring_cqe *cqe;
		for (int rc = 0; busy_ && (rc == 0 || rc == -EINTR);)
			if ((rc = ::io_uring_wait_cqe(&ring_, &cqe)) == 0)
				seen(cqe);
		::io_uring_queue_exit(&ring_);
	}
	HostRing(const HostRing &) = delete;
	HostRing &operator=(const HostRing &) = delete;
	void start(uint64_t slot, uint64_t offset) override
	{
		struct io_uring_sqe *const sqe = ::io_uring_get_sqe(&ring_);
		const auto n = static_cast<unsigned>(len());
		if (write()) {
			slots_.from_gpu(slot);
			::io_uring_prep_write(sqe, context_.file.direct.get(), slots_.at(slot), n, offset);
		} else {
			::io_uring_prep_read(sqe, context_.file.direct.get(), slots_.at(slot), n, offset);
		}
		sqe->user_data = slot;
		if (const int rc = ::io_uring_submit(&ring_); rc < 0)
			check_whole(rc);
		busy_++;
	}
	uint64_t finish() override
	{
		struct io_uring_cqe *cqe;
		int rc;
		while ((rc = ::io_uring_wait_cqe(&ring_, &cqe)) == -EINTR)
			;
		if (rc < 0)
			check_whole(rc);
		const uint64_t slot = cqe->user_data;
		const int result = cqe->res;
		seen(cqe);
		check_whole(result);
		if (!write())
			slots_.to_gpu(slot);
		return slot;
	}

private:
	void seen(struct io_uring_cqe *cqe)
	{
		::io_uring_cqe_seen(&ring_, cqe);
		busy_--;
	}

	const HostSlots slots_;
	struct io_uring ring_ = {};
	uint64_t busy_ = 0;
};

class PageCacheCall final : public Engine
{
public:
	explicit PageCacheCall(const RowContext &context)
		: Engine(context), buffer_(gpu_slots(context)), gpu_(static_cast<char *>(map_buffer(buffer_)))
	{
	}
	void start(uint64_t slot, uint64_t offset) override
	{
		const Fd &fd = context_.file.plain;
		check_whole(write() ? fd.write({gpu_, len()}, offset) : fd.read({gpu_, len()}, offset));
		slot_ = slot;
	}
	uint64_t finish() override { return slot_; }

private:
	const Buffer buffer_;
	char *const gpu_;
	uint64_t slot_ = 0;
};

std::unique_ptr<Engine> make_engine(const RowContext &context)
{
	const bool ring = context.row.depth > 1;
	switch (context.row.route) {
	case BenchRoute::direct:
		if (ring)
			return std::make_unique<DirectRing>(context);
		return std::make_unique<DirectCall>(context);
	case BenchRoute::bounce:
	case BenchRoute::host:
		if (ring)
			return std::make_unique<HostRing>(context);
		return std::make_unique<HostCall>(context);
	case BenchRoute::naive:
		return std::make_unique<PageCacheCall>(context);
	}
	return nullptr;
}

// The file offsets of a thread's requests: sequential and repeated in its own part of the file, or random anywhere.
class Offsets
{
public:
	Offsets(const BenchJob &job, uint64_t blocks, const BenchRow &row, uint64_t thread)
		: start_(job.start), size_(row.size), blocks_(blocks), first_(thread * blocks / row.threads),
		  count_(std::max<uint64_t>((thread + 1) * blocks / row.threads - first_, 1)), random_(job.random),
		  engine_(job.seed + thread)
	{
	}
	uint64_t next() { return start_ + (random_ ? engine_() % blocks_ : first_ + next_++ % count_) * size_; }

private:
	const uint64_t start_, size_, blocks_, first_, count_;
	const bool random_;
	uint64_t next_ = 0;
	std::mt19937_64 engine_;
};

// Communication between the threads of a row.
struct RowState {
	explicit RowState(const BenchRow &row)
		: ready(static_cast<ptrdiff_t>(row.threads)), ended(static_cast<ptrdiff_t>(row.threads))
	{
	}

	std::latch ready, ended;
	std::latch go{1};
	Clock::time_point end = {};           // written before go is set
	std::atomic<int64_t> left{INT64_MAX}; // requests that may still start
	std::atomic<uint64_t> ios{0};
	std::atomic<bool> stop{false};
	std::mutex lock;                // protects the two below
	std::optional<Failure> failure; // the first
	Latencies latencies;
};

void fail(RowState &state, Failure failure)
{
	state.stop = true;
	const std::lock_guard guard(state.lock);
	if (!state.failure)
		state.failure = std::move(failure);
}

// An exception that is not a Failure. It ends this row; the following rows still run.
Failure unexpected(const BenchRow &row, const std::exception &error)
{
	const auto *system = dynamic_cast<const std::system_error *>(&error);
	const int number = system                                       ? system->code().value() :
			   dynamic_cast<const std::bad_alloc *>(&error) ? ENOMEM :
									  EIO;
	return {fmt::format("{}: {}", route_name(row.route), error.what()), number, 0, "", {}};
}

void run_worker(RowState &state, Engine &engine, Offsets offsets, uint64_t depth)
{
	Latencies latencies;
	std::vector<Clock::time_point> begun(depth);
	uint64_t busy = 0;
	auto begin = [&](uint64_t slot) {
		if (state.stop || Clock::now() >= state.end || state.left.fetch_sub(1) <= 0)
			return;
		begun[slot] = Clock::now();
		engine.start(slot, offsets.next());
		busy++;
	};
	for (uint64_t slot = 0; slot < depth; slot++)
		begin(slot);
	while (busy) {
		const uint64_t slot = engine.finish();
		const auto took = Clock::now() - begun[slot];
		latencies.add(static_cast<uint64_t>(std::chrono::nanoseconds(took).count()));
		state.ios++;
		busy--;
		begin(slot);
	}
	const std::lock_guard guard(state.lock);
	state.latencies.add(latencies);
}

double seconds_of(const struct timeval &time)
{
	return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// A direct row needs whole blocks at offsets that the drive can address.
void check_direct(const RowContext &context, const BenchJob &job)
{
	const auto why = explain_route(context.gpu_file, context.file.name, provider_of(context));
	const uint64_t block = std::max<uint64_t>(why.dio_offset_align, 1);
	if (why.error || why.route != PEERDMA_ROUTE_DIRECT)
		throw Failure{fmt::format("direct: {} has no direct route", context.file.name),
			      why.error ? static_cast<int>(why.error) : EXDEV,
			      why_not_direct(why),
			      "",
			      {}};
	if (context.row.size % block || job.start % block)
		throw Failure{fmt::format("direct: {} moves whole blocks of {} bytes", context.file.name, block),
			      EINVAL,
			      PEERDMA_REASON_FILE_ALIGN,
			      "",
			      {}};
}

} // namespace

void run_row(peerdma_impl::Syscalls &sys, const BenchJob &job, const BenchFile &file,
	     const struct peerdma_provider_info *provider, BenchRow &row, const BenchProgress &progress)
{
	try {
		// A handle for each row: the kernel's counters of the handle are then those of the row.
		const Device device = provider ? open_device() : Device();
		File gpu_file;
		if (provider) {
			struct peerdma_file *raw = nullptr;
			if (const int rc = peerdma_file_from_fd(device.get(), file.plain.get(), &raw); rc < 0)
				throw Failure{fmt::format("cannot open {}", file.name), -rc, 0, "", {}};
			gpu_file.reset(raw);
		}
		const RowContext context = {sys, file, row, device, provider, gpu_file};
		if (row.route == BenchRoute::direct)
			check_direct(context, job);
		if ((row.route == BenchRoute::bounce || row.route == BenchRoute::host) && file.direct.get() < 0)
			throw Failure{fmt::format("{}: cannot open {} with O_DIRECT", route_name(row.route), file.name),
				      -file.direct.get(),
				      0,
				      "",
				      {}};
		const uint64_t blocks = file.size > job.start ? (file.size - job.start) / row.size : 0;
		if (!blocks)
			throw Failure{
				fmt::format("{} is shorter than one request of {}", file.name, size_text(row.size)),
				EINVAL,
				0,
				"",
				{}};
		// The row must not profit from pages that an earlier row left in the page cache.
		::posix_fadvise(file.plain.get(), 0, 0, POSIX_FADV_DONTNEED);

		RowState state(row);
		std::vector<std::unique_ptr<Engine>> engines;
		for (uint64_t i = 0; i < row.threads; i++)
			engines.push_back(make_engine(context));
		if (job.bytes)
			state.left = static_cast<int64_t>(std::max<uint64_t>(job.bytes / row.size, 1));
		std::vector<std::jthread> threads;
		// The thread that used an engine destroys it: the kernel requires that for a single issuer's ring.
		auto thread = [&](uint64_t i) {
			state.ready.count_down();
			state.go.wait();
			try {
				run_worker(state, *engines[i], Offsets(job, blocks, row, i), row.depth);
			} catch (const Failure &failure) {
				fail(state, failure);
			} catch (const std::exception &error) {
				fail(state, unexpected(row, error));
			}
			state.ended.count_down();
			engines[i].reset();
		};
		try {
			for (uint64_t i = 0; i < row.threads; i++)
				threads.emplace_back(thread, i);
		} catch (const std::exception &error) {
			// The threads already started wait for the others: release them.
			state.stop = true;
			state.go.count_down();
			threads.clear();
			Failure failure = unexpected(row, error);
			failure.what = fmt::format("cannot start {} threads", row.threads);
			throw failure;
		}
		state.ready.wait();
		struct rusage before = {}, after = {};
		::getrusage(RUSAGE_SELF, &before);
		const auto start = Clock::now();
		state.end =
			start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(job.runtime));
		state.go.count_down();
		auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
		while (progress && !state.ended.try_wait()) {
			std::this_thread::sleep_for(std::chrono::milliseconds(20));
			progress(elapsed(), state.ios);
		}
		state.ended.wait();
		// Bytes in the page cache only are not written yet.
		if (const int rc = row.write ? sys.fsync(file.plain.get()) : 0; rc < 0)
			fail(state, {fmt::format("cannot sync {}", file.name), -rc, 0, "", {}});
		row.seconds = elapsed();
		::getrusage(RUSAGE_SELF, &after);
		threads.clear();

		row.user = seconds_of(after.ru_utime) - seconds_of(before.ru_utime);
		row.system = seconds_of(after.ru_stime) - seconds_of(before.ru_stime);
		row.ios = state.latencies.count();
		row.latencies = state.latencies;
		row.failure = state.failure;
		row.counts = row.route == BenchRoute::direct ? Counts{row.bytes(), 0, 0} : Counts{0, 0, row.bytes()};
		if (const auto kernel = row.route == BenchRoute::direct ? kernel_counts(sys, device) : std::nullopt) {
			row.counts = *kernel;
			if (!row.failure && (kernel->near || kernel->host || kernel->direct != row.bytes()))
				row.failure = Failure{
					fmt::format("direct: the kernel counted {} bytes direct, {} near and {} host",
						    kernel->direct, kernel->near, kernel->host),
					EIO,
					0,
					"",
					{}};
		}
	} catch (const Failure &failure) {
		row.failure = failure;
	} catch (const std::exception &error) {
		row.failure = unexpected(row, error);
	}
}

} // namespace cli
