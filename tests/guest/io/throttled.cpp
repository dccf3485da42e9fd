// SPDX-License-Identifier: MIT
//
// throttled DRIVE CGROUPS: a process moves bytes between DRIVE and a buffer by each way, in a cgroup whose io.max
// limits DRIVE. The cgroup's io.stat must count all bytes, and none may exceed the limit. CGROUPS is a cgroup2 folder
// whose children have the io controller. DRIVE takes 64 KiB at a time. Each request must reach DRIVE with the process's
// I/O priority.
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "../../tools/tap.hpp"
#include "../../tools/trace.hpp"
#include "../../tools/ways.hpp"

namespace
{

using tap::report;
using Clock = std::chrono::steady_clock;

constexpr uint64_t block = 4096, at_once = 64 << 10, len = 1 << 20;
constexpr uint64_t start = 600 << 20; // the filesystem has nothing there
constexpr uint64_t bytes_per_second = len / 2;
constexpr auto shortest = std::chrono::milliseconds(1500); // of 2 s
int drive;                                                 // opened without O_DIRECT

class Cgroup
{
public:
	explicit Cgroup(const std::string &cgroups) : cgroups_(cgroups), own_(cgroups + "/throttled")
	{
		struct stat stat;
		if (::fstat(drive, &stat) || ::mkdir(own_.c_str(), 0755))
			raw::die(own_);
		number_ = std::to_string(major(stat.st_rdev)) + ":" + std::to_string(minor(stat.st_rdev));
		throttles_ = !::access((own_ + "/io.max").c_str(), F_OK);
		const std::string rate = std::to_string(bytes_per_second);
		// io.max would create the cgroup's entry for the drive and allocate memory under the queue's blkcg_mutex, which lockdep may
		// report (Linux 7.2, blkg_conf_prep()). This read creates the entry first.
		char bytes[block];
		enter();
		if (::posix_fadvise(drive, start, block, POSIX_FADV_DONTNEED) ||
		    ::pread(drive, bytes, block, start) != block)
			raw::die("the drive");
		leave();
		if (throttles_)
			raw::put(own_ + "/io.max", number_ + " rbps=" + rate + " wbps=" + rate);
	}
	~Cgroup() { ::rmdir(own_.c_str()); }
	Cgroup(const Cgroup &) = delete;
	Cgroup &operator=(const Cgroup &) = delete;

	std::string queue() const { return "/sys/dev/block/" + number_ + "/queue"; }
	bool throttles() const { return throttles_; }
	void enter() const { raw::put(own_ + "/cgroup.procs", "0"); }
	void leave() const { raw::put(cgroups_ + "/cgroup.procs", "0"); }

	/// Bytes that the cgroup has read from the drive, or written to it.
	uint64_t moved(bool write) const
	{
		const std::string key = write ? "wbytes=" : "rbytes=";
		std::ifstream in(own_ + "/io.stat");
		for (std::string line; std::getline(in, line);) {
			std::istringstream words(line);
			std::string word;
			words >> word;
			while (word == number_ && words >> line)
				if (line.starts_with(key))
					return std::stoull(line.substr(key.size()));
		}
		return 0;
	}

private:
	const std::string cgroups_, own_;
	std::string number_;
	bool throttles_;
};

/// Fills the drive with these bytes, and the page cache from `cached` on; the cache is not written back.
void prepare(const char *bytes, uint64_t cached)
{
	if (::pwrite(drive, bytes, len, start) != ssize_t(len) || ::fsync(drive) ||
	    ::posix_fadvise(drive, start, len, POSIX_FADV_DONTNEED) ||
	    ::pwrite(drive, bytes + cached, len - cached, off_t(start + cached)) != ssize_t(len - cached))
		raw::die("the drive");
}

/// Why pieces of a command are deferred: the page cache has their bytes, or the drive's queue is full.
enum class PutOff { none, cached, crowded };

struct Case {
	ways::Way way;
	bool write;
	PutOff why = PutOff::none;
	uint64_t odd = 0; // bytes left out at both ends

	uint64_t piece() const { return way == ways::Way::pieces ? ways::Mover::piece : at_once; }
	std::string name() const
	{
		static const char *const reasons[] = {"", ", pieces put off", ", of a drive that takes 4 at a time"};
		return std::string(write ? "a write, " : "a read, ") + ways::name(way) + reasons[int(why)] +
		       (odd ? ", with partial blocks" : "");
	}
};

struct Done {
	ways::Answer answer;
	int put_off;
	uint64_t counted; // in io.stat
	Clock::duration took;
};

Done run(ways::Mover &mover, const Cgroup &cgroup, const Case &c)
{
	Done done{};
	const uint64_t before = cgroup.moved(c.write);
	done.put_off = trace::put_off(trace::completed_during([&] {
		cgroup.enter();
		const auto began = Clock::now();
		done.answer = mover.move(c.way, {c.write, start + c.odd, c.odd, len - 2 * c.odd});
		done.took = Clock::now() - began;
		cgroup.leave();
	}));
	done.counted = cgroup.moved(c.write) - before;
	return done;
}

bool put_off_as_meant(const Case &c, const Cgroup &cgroup, int put_off)
{
	switch (c.why) {
	case PutOff::none:
		return !put_off;
	case PutOff::cached:
		return put_off == int(len / c.piece()) - 1;
	default: // a limit may keep the queue from filling up
		return put_off || cgroup.throttles();
	}
}

void move(ways::Mover &mover, const Cgroup &cgroup, const Case &c)
{
	static unsigned when;
	alignas(block) static char want[len], other[len];
	ways::fill(want, ++when, 0, len);
	ways::fill(other, ++when, 0, len);
	prepare(c.write ? other : want, c.why == PutOff::cached ? c.piece() : len);
	std::memcpy(mover.proxy(), c.write ? want : other, len);
	const Done done = run(mover, cgroup, c);
	if (!c.write)
		std::memcpy(other, mover.proxy(), len);
	else if (::pread(mover.fd(), other, len, start) != ssize_t(len))
		raw::die("the drive");

	const uint64_t asked = len - 2 * c.odd;
	report(!done.answer.err && done.answer.bytes() == asked && !std::memcmp(other + c.odd, want + c.odd, asked) &&
		       put_off_as_meant(c, cgroup, done.put_off),
	       c.name() + ": every byte",
	       "errno " + std::to_string(done.answer.err) + ", " + std::to_string(done.answer.bytes()) +
		       " bytes, put off " + std::to_string(done.put_off));
	// Whole blocks. The block layer counts a piece when the queue is full and again when it is resubmitted.
	const uint64_t twice = c.why == PutOff::crowded ? uint64_t(done.put_off) * c.piece() : 0;
	report(done.counted == len + twice, c.name() + ": in its cgroup's io.stat", std::to_string(done.counted));
	const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(done.took).count();
	if (cgroup.throttles())
		report(done.took >= shortest, c.name() + ": not faster than its io.max", std::to_string(ms) + " ms");
	else
		tap::skip(c.name() + ": not faster than its io.max", "a kernel without CONFIG_BLK_DEV_THROTTLING");
}

void crowded(ways::Mover &mover, const Cgroup &cgroup, bool write)
{
	const std::string room = cgroup.queue() + "/nr_requests";
	std::string before;
	std::ifstream(room) >> before;
	raw::put(room, "4");
	move(mover, cgroup, {ways::Way::pieces, write, PutOff::crowded});
	raw::put(room, before);
}

// --- Priorities

// <linux/ioprio.h> does not compile as C++.
constexpr int who_process = 1, best_effort = 2 << 13;

/// The priority, such as "be,7", in a block_rq_issue line of a read with PeerDMA's hint, or "".
std::string priority_of(const std::string &line)
{
	std::istringstream in(line.substr(line.find("block_rq_issue: ")));
	std::string word, rwbs, priority;
	in >> word >> word >> rwbs;
	for (unsigned before_priority = 6; before_priority--;)
		in >> priority;
	const size_t hint = priority.find(',') + 1, level = priority.find(',', hint) + 1;
	if (rwbs[0] != 'R' || !level || std::atoi(priority.c_str() + hint) < 512)
		return "";
	return priority.substr(0, hint) + priority.substr(level);
}

/// Counts PeerDMA's requests to DRIVE during run, by priority.
std::map<std::string, int> sent_during(const std::function<void()> &run)
{
	std::map<std::string, int> sent;
	for (const auto &line : trace::during("block", "block_rq_issue", run))
		if (const std::string priority = priority_of(line); !priority.empty())
			sent[priority]++;
	return sent;
}

/// A command of several pieces; workers of the module carry out all but the first. level: of best effort; -1: not set.
void priority(ways::Mover &mover, int level, const std::string &want)
{
	alignas(block) static char bytes[len];
	const int pieces = int(len / ways::Mover::piece);
	ways::fill(bytes, 1, 0, len);
	prepare(bytes, ways::Mover::piece);
	if (::syscall(SYS_ioprio_set, who_process, 0, level < 0 ? 0 : best_effort | level))
		raw::die("ioprio_set");
	ways::Answer answer;
	int put_off = 0;
	const auto sent = sent_during([&] {
		put_off = trace::put_off(trace::completed_during([&] {
			answer = mover.move(ways::Way::pieces, {false, start, 0, len});
		}));
	});
	std::string said = "put off " + std::to_string(put_off);
	for (const auto &[name, n] : sent)
		said += ", " + std::to_string(n) + " of " + name;
	report(answer.bytes() == len && put_off == pieces - 1 && sent == std::map<std::string, int>{{want, pieces}},
	       "pieces put off: all are sent with the submitter's priority, " + want, said);
}

} // namespace

int main(int argc, char **argv)
{
	using ways::Way;
	if (argc != 3)
		return 2;
	drive = raw::open_file(argv[1]);
	const int dev = raw::open_device();
	const Cgroup cgroup(argv[2]);
	ways::Mover mover(dev, raw::provider(dev).out_provider_id, argv[1], len);
	for (const bool write : {false, true}) {
		for (const Way way : {Way::fd, Way::id, Way::ring_id, Way::worker, Way::pieces, Way::pieces_worker})
			move(mover, cgroup, {way, write});
		for (const Way way : {Way::ring_id, Way::pieces})
			move(mover, cgroup, {way, write, PutOff::cached});
		crowded(mover, cgroup, write);
	}
	for (const Way way : {Way::fd, Way::ring_id})
		move(mover, cgroup, {way, false, PutOff::none, 100});
	priority(mover, 7, "be,7");
	priority(mover, 1, "be,1");
	priority(mover, -1, "be,4");
	return tap::end();
}
