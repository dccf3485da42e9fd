// SPDX-License-Identifier: MIT
#include "runner.hpp"

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>

#include "../tools/raw.hpp"
#include "mutate.hpp"

namespace fuzz
{
namespace
{

constexpr size_t page = 4096;
constexpr unsigned ring_entries = 64, ring_room = 48;
constexpr int patience = 60;        // seconds for a command
constexpr uint64_t time_every = 17; // reading the time costs as much as some calls; 48 commands complete together
constexpr uint64_t most_io = 256 << 10, most_file = 4 << 20;

thread_local sigjmp_buf fault;
thread_local volatile bool may_fault;

void faulted(int signal)
{
	if (may_fault)
		siglongjmp(fault, 1);
	std::signal(signal, SIG_DFL);
	std::raise(signal);
}

int64_t result_of(int64_t ret) { return ret < 0 ? -errno : ret; }

/// Errors that the header documents for an ioctl, and those of filesystems.
bool is_documented(int64_t err)
{
	constexpr int known[] = {0,      E2BIG,  EBADF,  EBUSY,  EEXIST,  EFAULT, EINVAL,     EINTR, EIO,
				 EISDIR, ENODEV, ENOENT, ENOMEM, ENOSPC,  ENOTTY, EOPNOTSUPP, EPERM, ESPIPE,
				 EXDEV,  EFBIG,  EDQUOT, EROFS,  ENODATA, EILSEQ, EMFILE};
	return std::find(std::begin(known), std::end(known), int(-err)) != std::end(known);
}

} // namespace

double now()
{
	timespec t;
	::clock_gettime(CLOCK_MONOTONIC, &t);
	return double(t.tv_sec) + double(t.tv_nsec) / 1e9;
}

void catch_faults()
{
	struct sigaction action = {};
	action.sa_handler = faulted;
	action.sa_flags = SA_NODEFER;
	::sigaction(SIGBUS, &action, nullptr);
	::sigaction(SIGSEGV, &action, nullptr);
	// Raised by a write beyond RLIMIT_FSIZE, and by a pipe without a reader.
	std::signal(SIGXFSZ, SIG_IGN);
	std::signal(SIGPIPE, SIG_IGN);
}

Runner::Runner(World &world) : costs(specs().size() + 2), world_(world), segs_(16)
{
	const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || ::ftruncate(fd, page))
		raw::die("memfd");
	void *all = ::mmap(nullptr, 5 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *alias = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (all == MAP_FAILED || alias == MAP_FAILED)
		raw::die("mmap");
	memory_ = static_cast<char *>(all);
	read_only_ = static_cast<char *>(alias);
	if (::mprotect(memory_, 2 * page, PROT_READ | PROT_WRITE) ||
	    ::mmap(memory_ + 3 * page, page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		raw::die("mmap");
	::close(fd);
}

Runner::~Runner()
{
	exit_rings();
	::munmap(memory_, 5 * page);
	::munmap(read_only_, page);
}

/// The address for a struct of this size, mostly ordinary memory.
char *Runner::place(uint64_t at, size_t size) const
{
	size = std::min(size, 2 * page);
	switch (at) {
	case 1: // ends at the end of a mapping
		return memory_ + 2 * page - size;
	case 2: // extends beyond a mapping
		return memory_ + 2 * page - size / 2;
	case 3:
		return memory_ + 3 * page;
	case 4:
		return nullptr;
	case 5: // in a buffer of the program
		return static_cast<char *>(World::at(0));
	case 6: // shared with other threads
		return world_.shared;
	case 7:
		return memory_ + 1;
	case 8: // not canonical
		return reinterpret_cast<char *>(1ULL << 63);
	case 9: // a kernel address
		return reinterpret_cast<char *>(0xffffffff81000000);
	default:
		return memory_;
	}
}

/// A copy that may access unmapped memory.
bool Runner::copy(void *to, const void *from, size_t size)
{
	may_fault = true;
	const bool done = !sigsetjmp(fault, 0);
	if (done)
		std::memcpy(to, from, size);
	may_fault = false;
	return done;
}

void Runner::result(unsigned spec, int64_t res, unsigned detail)
{
	const uint64_t what = uint64_t(spec) << 48 | uint64_t(detail) << 32 | uint32_t(std::min<int64_t>(res, 1));
	signals.push_back(result_signal(what));
	// The completion order is not determined: use a sum.
	digest += (what + 1) * 0x9e3779b97f4a7c15;
}

void Runner::check_io(const Spec &spec, const peerdma_io &io, int64_t res)
{
	if (!res && (io.out_done > io.len || io.out_direct + io.out_near + io.out_host != io.out_done))
		wrong = spec.name + ": its counts do not add up";
}

int64_t Runner::ioctl(const Spec &spec, const Call &call)
{
	alignas(8) char arg[2 * page];
	const size_t size = std::min<uint64_t>(uint32_t(world_.number(call.args[2])), sizeof(arg));
	uint64_t at = call.args[1].number % 16;
	// The call returns a descriptor that must be closed: do not put the struct where other threads write.
	if (spec.cmd == PEERDMA_BUF_EXPORT && (at == 5 || at == 6))
		at = 0;
	std::memset(arg, 0, sizeof(arg));
	size_t next = 2;
	for (const Field &field : spec.fields) {
		if (field.kind == Kind::out) {
			std::memset(arg + field.off, 0xa5, field.len);
			continue;
		}
		uint64_t value = world_.number(call.args[next++]);
		if (field.kind == Kind::domain)
			value ^= world_.setup.domain;
		else if (field.kind == Kind::bdf)
			value ^= world_.setup.bdf;
		else if (field.kind == Kind::bar)
			value ^= 2;
		std::memcpy(arg + field.off, &value, field.len);
	}
	if (at == 10 && size > size_known(spec))
		arg[size - 1] = 1; // a part that the module does not know
	char *user = place(at, size);
	if (at == 3)
		std::memcpy(read_only_, arg, std::min(size, page));
	else if (at != 4 && at < 8)
		copy(user, arg, std::max<size_t>(size, 4));
	else
		std::memcpy(memory_, arg, sizeof(arg));
	const int64_t res = result_of(::ioctl(world_.dev(call.args[0]), spec.cmd, user));
	if (!is_documented(res))
		wrong = spec.name + ": an errno that the header does not name: " + std::to_string(res);
	unsigned reason = 0;
	if (at == 0 || at == 1 || at == 7 || at >= 10) {
		std::memcpy(arg, user, std::min(size, size_known(spec)));
		for (const Field &field : spec.fields)
			if (field.name == "out_reason" && size >= field.off + field.len)
				std::memcpy(&reason, arg + field.off, sizeof(reason));
		peerdma_io io;
		std::memcpy(&io, arg, sizeof(io));
		if ((spec.cmd == PEERDMA_READ || spec.cmd == PEERDMA_WRITE) && size >= sizeof(io))
			check_io(spec, io, res);
	}
	if (!res && spec.makes == Slot::buffer) {
		peerdma_buf_alloc made{};
		copy(&made, user, std::min(size, sizeof(made)));
		Buffer &buffer = world_.buffers[call.out % world_.buffers.size()];
		auto old = raw::sized<peerdma_destroy>();
		old.id = buffer.id.exchange(made.out_buf_id);
		buffer.offset = made.out_mmap_offset;
		// Destroys the object that is replaced, which would use up memory.
		if (old.id)
			raw::call(world_.dev(call.args[0]), PEERDMA_DESTROY, old);
	} else if (!res && spec.makes == Slot::file) {
		uint32_t id = 0;
		copy(&id, user + spec.out_at, sizeof(id));
		auto old = raw::sized<peerdma_destroy>();
		old.id = world_.files[call.out % world_.files.size()].exchange(id);
		if (old.id)
			raw::call(world_.dev(call.args[0]), PEERDMA_FILE_REMOVE, old);
	} else if (!res && spec.cmd == PEERDMA_BUF_EXPORT) {
		peerdma_buf_export made;
		std::memcpy(&made, user, sizeof(made));
		keep_dmabuf(made.out_fd);
	}
	result(call.spec, res, reason & 0xff);
	return res;
}

/// Keeps the dma-buf for some time, and with it the open file.
void Runner::keep_dmabuf(int fd)
{
	if (dmabufs_[0] >= 0)
		::close(dmabufs_[0]);
	dmabufs_ = {dmabufs_[1], fd};
}

void Runner::close_dmabufs()
{
	keep_dmabuf(-1);
	keep_dmabuf(-1);
}

int64_t Runner::ioctl_raw(const Call &call)
{
	const uint32_t size = uint32_t(call.args[3].number);
	if (uint32_t(call.args[1].number) == PEERDMA_BUF_EXPORT) // its descriptor would never be closed
		return -ENOTTY;
	std::memcpy(memory_, &size, sizeof(size));
	return result_of(
		::ioctl(world_.dev(call.args[0]), uint32_t(call.args[1].number), place(call.args[2].number % 16, 8)));
}

Runner::Ring *Runner::ring(const Value &value)
{
	Ring &ring = rings_[value.number % rings_.size()];
	if (!ring.open) {
		const unsigned flags = &ring == &rings_[1] ? IORING_SETUP_IOPOLL : 0;
		if (io_uring_queue_init(ring_entries, &ring.ring, flags))
			return nullptr;
		ring.open = true;
		ring.pending = 0;
	}
	if (ring.pending >= ring_room)
		reap(ring, ring.pending);
	return &ring;
}

/// A completion. The tag contains the spec and the maximum of its result.
void Runner::came(uint64_t tag, int res)
{
	const Spec &spec = specs()[tag >> 32];
	if (res > 0 && uint32_t(res) > uint32_t(tag))
		wrong = spec.name + ": more than was asked for: " + std::to_string(res);
	if (res <= -512)
		wrong = spec.name + ": an errno of the kernel's own: " + std::to_string(res);
	result(unsigned(tag >> 32), res);
}

void Runner::reap(Ring &ring, unsigned n)
{
	const double end = now() + patience;
	io_uring_submit(&ring.ring);
	for (n = std::min(n, ring.pending); n;) {
		io_uring_cqe *cqe = nullptr;
		__kernel_timespec tick = {1, 0};
		// A ring with IOPOLL supports no timeout.
		const int err = &ring == &rings_[1] ? io_uring_peek_cqe(&ring.ring, &cqe) :
						      io_uring_wait_cqe_timeout(&ring.ring, &cqe, &tick);
		if (err || !cqe) {
			if (now() > end) {
				wrong = "a command never ended";
				return;
			}
			::sched_yield();
			continue;
		}
		came(cqe->user_data, cqe->res);
		io_uring_cqe_seen(&ring.ring, cqe);
		ring.pending--;
		n--;
	}
}

int64_t Runner::uring(const Spec &spec, const Call &call)
{
	Ring *ring = this->ring(call.args[1]);
	io_uring_sqe *sqe = ring ? io_uring_get_sqe(&ring->ring) : nullptr;
	if (!sqe)
		return 0;
	io_uring_prep_nop(sqe); // zeroes the whole SQE
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = world_.dev(call.args[0]);
	uint64_t most = 0;
	uint64_t bits = 0;
	if (spec.action == Action::uring_raw) {
		sqe->cmd_op = uint32_t(call.args[2].number);
	} else {
		auto arg = [&](size_t i) { return world_.number(call.args[i]); };
		bits = arg(2);
		sqe->cmd_op = spec.cmd;
		sqe->addr = arg(3) << 32 | uint32_t(arg(4));
		sqe->file_index = uint32_t(arg(5));
		if (spec.action == Action::uring_io) {
			const peerdma_uring_io io = {arg(6), arg(7)};
			sqe->len = uint32_t(arg(8));
			std::memcpy(sqe->cmd, &io, sizeof(io));
		} else {
			auto &own = segs_[next_segs_++ % segs_.size()];
			for (size_t i = 0; i < own.size(); i++)
				own[i] = {arg(6) + i * arg(10), arg(7) + i * arg(10), uint32_t(arg(8)), 0};
			const uint64_t at = arg(11) % 16;
			const size_t size = std::min<size_t>(arg(9), own.size()) * sizeof(own[0]);
			char *user = at ? place(at, size) : reinterpret_cast<char *>(own.data());
			if (at && at != 3 && at != 4 && at < 8)
				copy(user, own.data(), size);
			const peerdma_uring_vec vec = {reinterpret_cast<uint64_t>(user), arg(12)};
			sqe->len = uint32_t(arg(9));
			std::memcpy(sqe->cmd, &vec, sizeof(vec));
		}
		most = sqe->len;
		sqe->flags = (bits & 1 ? IOSQE_ASYNC : 0) | (bits & 2 ? IOSQE_IO_LINK : 0);
	}
	sqe->user_data = uint64_t(call.spec) << 32 | most;
	ring->pending++;
	if (world_.setup.alone)
		reap(*ring, ring->pending);
	else if (!(bits & 4)) // otherwise submitted with the next one
		io_uring_submit(&ring->ring);
	return 0;
}

void Runner::exit_rings()
{
	for (Ring &ring : rings_) {
		if (ring.open)
			io_uring_queue_exit(&ring.ring);
		ring.open = false;
		ring.pending = 0;
	}
}

int64_t Runner::map(const Call &call)
{
	const Value &which = call.args[1];
	const uint64_t bits = world_.number(call.args[5]), len = world_.number(call.args[3]);
	uint64_t offset = which.slot == Slot::buffer ?
				  world_.buffers[which.number % world_.buffers.size()].offset.load() :
				  which.number << 39;
	offset += world_.number(call.args[2]) & ~(page - 1);
	if (!len || len > World::window)
		return -EINVAL;
	void *got = ::mmap(World::at(call.out), len, int(world_.number(call.args[4]) & 7),
			   MAP_FIXED | (bits & 8 ? MAP_PRIVATE : MAP_SHARED) | (bits & 4 ? MAP_POPULATE : 0),
			   world_.dev(call.args[0]), off_t(offset));
	return got == MAP_FAILED ? -errno : 0;
}

int64_t Runner::remap(const Call &call)
{
	const uint64_t len = world_.number(call.args[1]);
	void *from = World::at(unsigned(call.args[0].number % slot_count[size_t(Slot::map)]));
	void *to = World::at(call.out);
	if (!len || len > World::window || from == to)
		return -EINVAL;
	return ::mremap(from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED ? -errno : 0;
}

int64_t Runner::touch(const Call &call)
{
	auto *base =
		static_cast<volatile char *>(World::at(unsigned(call.args[0].number % slot_count[size_t(Slot::map)])));
	volatile char *at = base + world_.number(call.args[1]) % World::window;
	may_fault = true;
	const bool there = !sigsetjmp(fault, 0);
	if (there && call.args[2].number & 1)
		*at = 1;
	else if (there)
		(void)*at;
	may_fault = false;
	return there ? 0 : -EFAULT;
}

/// A child that inherits everything, accesses the mappings and exits.
int64_t Runner::fork(const Call &call)
{
	const pid_t child = ::fork();
	if (child == 0) {
		Call one = usual_call(0);
		one.args[0] = call.args[1];
		one.args[1] = one.args[2] = Value{Slot::number, 1};
		touch(one);
		::close(world_.dev(call.args[0]));
		::_exit(0);
	}
	int status = 0;
	if (child > 0)
		::waitpid(child, &status, 0);
	return child < 0 ? -errno : status;
}

int64_t Runner::change_file(const Spec &spec, const Call &call)
{
	const int fd = world_.target(call.args[0]);
	auto arg = [&](size_t i) { return world_.number(call.args[i]); };
	static const char zeros[most_io] = {};
	constexpr int modes[] = {0,
				 FALLOC_FL_KEEP_SIZE,
				 FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 FALLOC_FL_ZERO_RANGE,
				 FALLOC_FL_COLLAPSE_RANGE,
				 FALLOC_FL_INSERT_RANGE};
	switch (spec.action) {
	case Action::truncate:
		return result_of(::ftruncate(fd, off_t(arg(1) % most_file)));
	case Action::fallocate:
		return result_of(::fallocate(fd, modes[arg(3) % std::size(modes)], off_t(arg(1) % most_file),
					     off_t(arg(2) % most_file)));
	case Action::store:
		return result_of(::pwrite(fd, zeros, arg(2) % most_io, off_t(arg(1) % most_file)));
	case Action::sync:
		return result_of(::fdatasync(fd));
	default:
		return result_of(::fcntl(fd, F_SETFL, (arg(1) & 1 ? O_APPEND : 0) | (arg(1) & 2 ? O_DIRECT : 0)));
	}
}

int64_t Runner::look(const std::string &path)
{
	static thread_local char text[64 << 10];
	const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	const int64_t res = result_of(::read(fd, text, sizeof(text)));
	::close(fd);
	return std::min<int64_t>(res, 1);
}

/// Many calls generated from its seed, with as many commands at once as the ring has room for. They make most of the
/// executions: a program's other calls wait for drives and for each other, and these mostly end in their checks.
int64_t Runner::storm(const Call &call)
{
	Mutator mutator(world_.number(call.args[2]), 1);
	const uint64_t nr = world_.number(call.args[3]) % Mutator::most_gusts;
	for (uint64_t i = 0; i < nr; i++) {
		Call gust = mutator.gust(call.args[1].number);
		gust.args[0] = call.args[0];
		const Spec &spec = specs()[gust.spec];
		const bool timed = i % time_every == 0;
		const double began = timed ? now() : 0;
		if (spec.action == Action::ioctl) {
			ioctl(spec, gust);
		} else {
			gust.args[2].number |= 4; // submitted with the next one
			uring(spec, gust);
		}
		if (timed)
			costs[gust.spec].add(began);
	}
	executions += nr;
	return 0;
}

int64_t Runner::execute(const Spec &spec, const Call &call)
{
	auto arg = [&](size_t i) { return world_.number(call.args[i]); };
	auto window = [&](size_t i) {
		return static_cast<char *>(World::at(unsigned(call.args[i].number % slot_count[size_t(Slot::map)])));
	};
	switch (spec.action) {
	case Action::ioctl_raw:
		return ioctl_raw(call);
	case Action::uring_io:
	case Action::uring_vec:
	case Action::uring_raw:
		return uring(spec, call);
	case Action::reap:
		if (Ring &ring = rings_[call.args[0].number % rings_.size()]; ring.open)
			reap(ring, unsigned(arg(1)));
		return 0;
	case Action::ring_exit:
		if (Ring &ring = rings_[call.args[0].number % rings_.size()]; ring.open) {
			io_uring_queue_exit(&ring.ring);
			ring.open = false;
		}
		return 0;
	case Action::open:
		world_.open_dev(call.out);
		return 0;
	case Action::close:
		world_.close_dev(unsigned(call.args[0].number % world_.devs.size()));
		return 0;
	case Action::mmap:
		return map(call);
	case Action::munmap:
		return result_of(::munmap(window(0) + arg(1) % World::window / page * page, arg(2) % World::window));
	case Action::mremap:
		return remap(call);
	case Action::drop:
		return result_of(::madvise(window(0) + arg(1) % World::window / page * page, arg(2) % World::window,
					   MADV_DONTNEED));
	case Action::touch:
		return touch(call);
	case Action::fork:
		return fork(call);
	case Action::pread:
		return result_of(
			::pread(world_.target(call.args[0]), window(1), arg(3) % most_io, off_t(arg(2) % most_file)));
	case Action::pwrite:
		return result_of(
			::pwrite(world_.target(call.args[0]), window(1), arg(3) % most_io, off_t(arg(2) % most_file)));
	case Action::fdinfo:
		return look("/proc/self/fdinfo/" + std::to_string(world_.dev(call.args[0])));
	case Action::debugfs:
		return look("/sys/kernel/debug/peerdma/stats");
	case Action::storm:
		return storm(call);
	case Action::unbind:
		world_.unbind();
		return 0;
	case Action::bind:
		world_.bind();
		return 0;
	default:
		return change_file(spec, call);
	}
}

void Runner::run(const Program &program, unsigned thread)
{
	signals.clear();
	digest = 0;
	for (size_t i = 0; i < program.ncalls; i++) {
		const Call &call = program.calls[i];
		if (call.thread != thread)
			continue;
		const Spec &spec = specs()[call.spec];
		const bool timed = executions++ % time_every == 0;
		const double began = timed ? now() : 0;
		if (spec.action == Action::ioctl)
			ioctl(spec, call);
		else
			result(call.spec, execute(spec, call));
		if (timed)
			costs[call.spec].add(began);
	}
	for (Ring &ring : rings_)
		if (ring.open && ring.pending)
			reap(ring, ring.pending);
	close_dmabufs();
}

} // namespace fuzz
