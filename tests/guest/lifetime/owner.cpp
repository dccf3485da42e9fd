// SPDX-License-Identifier: MIT
//
// owner STATE FILE SOCKET: allocates a buffer and brings it into a state of owner.hpp. Then obeys and answers the
// messages that revoke.cpp sends over the socket.
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <liburing.h>
#include <memory>
#include <set>
#include <sstream>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "../../tools/command.hpp"
#include "../../tools/descriptor.hpp"
#include "../../tools/sigbus.hpp"
#include "owner.hpp"

namespace
{

using namespace owner;
using Clock = std::chrono::steady_clock;

int dev, file, control;
uint32_t provider_id, file_id;
peerdma_buf_alloc buf, idle_buf; // the buffer under test, and a second one
char *map;
const State *state;

void say(const std::string &what)
{
	if (::send(control, what.data(), what.size(), 0) < 0)
		::_exit(1);
}

// --- Results of the requests

struct Tally {
	int whole = 0, nodev = 0, other = 0, last = 0;
	uint64_t moved[2] = {}; // reads, writes: a bit for each piece reported as whole
	std::set<int> errors;   // of the other pieces

	void add(int res, bool write, uint64_t at)
	{
		if (res == int(piece)) {
			whole++;
			moved[write] |= 1ULL << at / piece;
		} else {
			fail(res);
		}
	}

	void fail(int err)
	{
		if (err == -ENODEV) {
			nodev++;
		} else {
			other++;
			last = err;
			errors.insert(err);
		}
	}

	void add(const Tally &part)
	{
		whole += part.whole;
		nodev += part.nodev;
		other += part.other;
		last = part.other ? part.last : last;
		moved[0] |= part.moved[0];
		moved[1] |= part.moved[1];
		errors.insert(part.errors.begin(), part.errors.end());
	}

	std::string str() const
	{
		std::ostringstream out;
		out << "whole " << whole << " nodev " << nodev << " other " << other << " read " << moved[0]
		    << " written " << moved[1] << " errors";
		for (int err : errors)
			out << " " << err;
		return out.str();
	}
};

// --- System calls, each in its own thread

struct Call {
	bool write;
	uint64_t at; // start of these requests in the file and the buffer
	std::atomic<bool> done{false};
	int res = 0;

	Call(bool is_write, uint64_t where) : write(is_write), at(where) {}
};
std::deque<Call> calls;

int one_call(bool write, uint64_t at)
{
	auto req = write ? raw::io(file, buf.out_buf_id, written_to + at, written_from + at, piece) :
			   raw::io(file, buf.out_buf_id, at, at, piece);
	const int err = raw::call(dev, write ? PEERDMA_WRITE : PEERDMA_READ, req);
	return err ? err : int(req.out_done);
}

void start_calls()
{
	for (int i = 0; i < state->reads; i++)
		calls.emplace_back(false, uint64_t(i) * piece);
	for (int i = 0; i < state->writes; i++)
		calls.emplace_back(true, uint64_t(i) * piece);
	for (auto &call : calls)
		std::thread([&call] {
			call.res = one_call(call.write, call.at);
			call.done = true;
		}).detach();
}

// --- Commands of a ring

class Ring
{
public:
	explicit Ring(unsigned flags = 0)
	{
		if (io_uring_queue_init(32, &ring_, flags))
			raw::die("io_uring");
	}
	~Ring() { io_uring_queue_exit(&ring_); }
	Ring(const Ring &) = delete;
	Ring &operator=(const Ring &) = delete;

	io_uring_sqe *command(bool write, uint64_t at)
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
		raw::command(sqe, dev, write ? PEERDMA_URING_WRITE : PEERDMA_URING_READ, buf.out_buf_id, file_id, piece,
			     write ? peerdma_uring_io{written_to + at, written_from + at} : peerdma_uring_io{at, at});
		sqe->user_data = at << 1 | write;
		pending_++;
		return sqe;
	}

	void submit()
	{
		if (io_uring_submit(&ring_) < 0)
			raw::die("io_uring_submit");
	}

	/// Reaps all pending completions within this time.
	bool reap(Tally &tally, Clock::duration patience)
	{
		for (const auto end = Clock::now() + patience; pending_;) {
			const auto left =
				std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
			__kernel_timespec time = {left / 1000, left % 1000 * 1000000};
			io_uring_cqe *cqe = nullptr;
			const int err = left > 0 ? io_uring_wait_cqe_timeout(&ring_, &cqe, &time) : -ETIME;
			if (err == -EINTR)
				continue;
			if (err)
				return false;
			tally.add(cqe->res, cqe->user_data & 1, cqe->user_data >> 1);
			io_uring_cqe_seen(&ring_, cqe);
			pending_--;
		}
		return true;
	}

private:
	io_uring ring_{};
	int pending_ = 0;
};
std::unique_ptr<Ring> ring;

void start_commands()
{
	// Every second command goes to a worker, which then blocks; the others are queued in device-mapper.
	const bool to_worker = state->hold == Hold::dm;
	for (int i = 0; i < state->reads; i++)
		ring->command(false, uint64_t(i) * piece)->flags |= to_worker && i % 2 ? IOSQE_ASYNC : 0;
	for (int i = 0; i < state->writes; i++)
		ring->command(true, uint64_t(i) * piece);
	for (int i = 0; i < state->unsent; i++)
		ring->command(false, uint64_t(state->reads + i) * piece)->flags |= IOSQE_IO_DRAIN;
	ring->submit();
}

/// Reads and writes that the kernel has counted as completed on this open file.
uint64_t ended()
{
	std::ifstream in("/proc/self/fdinfo/" + std::to_string(dev));
	uint64_t sum = 0, n;
	for (std::string key; in >> key;)
		if ((key == "peerdma-reads:" || key == "peerdma-writes:") && in >> n)
			sum += n;
	return sum;
}

/// True if the drive has completed requests that the ring has not reaped.
bool is_completing(uint64_t before)
{
	for (int i = 0; i < 500 && ended() < before + uint64_t(state->reads); i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(10));
	return ended() >= before + uint64_t(state->reads);
}

// --- As fast as possible

std::atomic<bool> stop;
std::array<Tally, 4> tallies;
std::vector<std::thread> busy;

void start_busy()
{
	busy.emplace_back([] {
		while (!stop)
			tallies[0].add(one_call(false, 0), false, 0);
	});
	busy.emplace_back([] {
		while (!stop)
			tallies[1].add(one_call(true, 0), true, 0);
	});
	busy.emplace_back([] {
		while (!stop) {
			Ring mine;
			for (int i = 0; i < 8; i++)
				mine.command(false, uint64_t(i) * piece);
			mine.submit();
			if (!mine.reap(tallies[2], std::chrono::seconds(20)))
				return tallies[2].fail(-ETIME);
		}
	});
	busy.emplace_back([] {
		const int zero = ::open("/dev/zero", O_RDONLY);
		// Lets the kernel fault the page in, so that a failure raises no signal.
		while (!stop)
			if (::read(zero, map + buf_len - page, 8) != 8 && errno != EFAULT)
				tallies[3].fail(-errno);
		::close(zero);
	});
}

std::string results()
{
	Tally tally;
	bool in_time = true;
	stop = true;
	for (auto &thread : busy)
		thread.join();
	busy.clear();
	for (const auto &part : tallies)
		tally.add(part);
	for (auto &call : calls) {
		for (int i = 0; i < 2000 && !call.done; i++)
			std::this_thread::sleep_for(std::chrono::milliseconds(10));
		in_time = in_time && call.done;
		tally.add(call.res, call.write, call.at);
	}
	if (ring)
		in_time = ring->reap(tally, std::chrono::seconds(20)) && in_time;
	return in_time ? tally.str() : "some have not ended, " + tally.str();
}

// --- What still works

std::string proxies()
{
	if (!map)
		return "none";
	const int gone =
		sigbus::given_at(map) + sigbus::given_at(map + written_from) + sigbus::given_at(map + buf_len - 1);
	return gone == 3 ? "sigbus" : gone ? "mixed" : "alive";
}

/// Makes a request of each kind; returns the results.
std::string requests()
{
	std::string said;
	auto other = raw::io(file, idle_buf.out_buf_id, 0, 0, page);
	int err = raw::call(dev, PEERDMA_READ, other);
	const std::string of_other = " other " + std::to_string(err) + "/" + std::to_string(other.out_reason);
	for (bool write : {false, true}) {
		auto req = write ? raw::io(file, buf.out_buf_id, written_to, written_from, piece) :
				   raw::io(file, buf.out_buf_id, 0, 0, piece);
		err = raw::call(dev, write ? PEERDMA_WRITE : PEERDMA_READ, req);
		said += (write ? " write " : "read ") + std::to_string(err) + "/" + std::to_string(req.out_reason);
	}
	Ring fresh;
	Tally tally;
	fresh.command(false, 0);
	fresh.submit();
	const bool in_time = fresh.reap(tally, std::chrono::seconds(20));
	said += !in_time    ? " command hangs" :
		tally.whole ? " command 0" :
			      " command " + std::to_string(tally.nodev ? -ENODEV : tally.last);
	void *more = ::mmap(nullptr, page, PROT_READ, MAP_SHARED, dev, off_t(buf.out_mmap_offset));
	said += " mmap " + std::to_string(more == MAP_FAILED ? -errno : 0);
	if (more != MAP_FAILED)
		::munmap(more, page);
	auto another = raw::alloc(dev, provider_id, page);
	said += " alloc " + std::to_string(another.out_buf_id ? 0 : -errno);
	if (another.out_buf_id)
		raw::destroy(dev, another.out_buf_id);
	return said + of_other;
}

// --- Orders that change this process

void become_another_program()
{
	::fcntl(control, F_SETFD, 0);
	::execl("/proc/self/exe", "owner", std::to_string(control).c_str(), nullptr);
	raw::die("exec");
}

/// A child takes over and reports its pid.
void leave_it_to_a_child()
{
	if (::fork()) {
		for (;;)
			::pause();
	}
	say("pid " + std::to_string(::getpid()));
}

void start()
{
	const uint64_t before = ended();
	if (state->name == "sync")
		start_calls();
	else if (state->name == "busy")
		start_busy();
	else if (ring)
		start_commands();
	say(state->name == "completing" && !is_completing(before) ? "not completing" : "going");
}

void obey(char order)
{
	switch (order) {
	case 'g':
		return start();
	case 'r':
		return say(results());
	case 'n':
		return say(requests());
	case 'p':
		return say(proxies());
	case 'd':
		return say(std::to_string(raw::destroy(dev, buf.out_buf_id)));
	case 's':
		descriptor::send(control, dev);
		return;
	case 't':
		ring.reset();
		return say("torn down");
	case 'f':
		return leave_it_to_a_child();
	case 'e':
		return become_another_program();
	default:
		::_exit(0); // leaves everything in flight
	}
}

void prepare()
{
	dev = raw::open_device();
	provider_id = raw::provider(dev).out_provider_id;
	buf = raw::alloc(dev, provider_id, buf_len);
	idle_buf = raw::alloc(dev, provider_id, page);
	file_id = raw::add_file(dev, file);
	if (!buf.out_buf_id || !idle_buf.out_buf_id || !file_id)
		raw::die("buffer and file");
	if (!state->mapped)
		return;
	map = raw::map(dev, buf);
	std::memset(map + written_from, written_byte, buf_len - written_from);
	if (state->name == "mapped")
		return;
	// Caches the route for the commands that follow.
	if (one_call(false, written_from - piece) != int(piece))
		raw::die("first read");
	if (state->name != "sync" && state->name != "busy")
		ring = std::make_unique<Ring>(
			state->name == "completing" ? IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN : 0);
}

void serve()
{
	char order;
	while (::recv(control, &order, 1, 0) == 1)
		obey(order);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc == 2) { // after exec
		control = std::atoi(argv[1]);
		say("executed");
		serve();
		return 0;
	}
	if (argc != 4)
		return 2;
	for (const auto &one : states)
		if (one.name == argv[1])
			state = &one;
	control = std::atoi(argv[3]);
	::fcntl(control, F_SETFD, FD_CLOEXEC);
	sigbus::expect();
	file = raw::open_file(argv[2]);
	prepare();
	say("ready " + std::to_string(buf.out_bar_offset) + " " + std::to_string(buf.out_buf_id));
	serve();
	return 0;
}
