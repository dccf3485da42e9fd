// SPDX-License-Identifier: MIT
//
// revoke GPU ROUNDS few|all|EVENT[:STATE]...: each event that can happen to a buffer, its provider, its owner or its
// drive, in each state of a buffer (owner.hpp). Documentation/lifetime.md says what must hold afterwards. few: each
// event in two states; all: in every state. Each round starts an owner (owner.cpp) and ends it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <poll.h>
#include <set>
#include <sstream>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "../../tools/descriptor.hpp"
#include "../../tools/guest.hpp"
#include "../../tools/raw.hpp"
#include "../../tools/tap.hpp"
#include "owner.hpp"

namespace
{

using guest::put, guest::within;
using host::throttle;
using namespace owner;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds, std::chrono::seconds;
namespace fs = std::filesystem;

const char *const path = "/mnt/revoke/file";
const char *const cgroup = "/sys/fs/cgroup/revoke";
std::string gpu; // PCI address

bool is_variant(const char *name)
{
	const char *variant = std::getenv("LAB_VARIANT");
	return variant && !std::strcmp(variant, name);
}

/// Time limit for anything that is not blocked.
seconds patience() { return seconds(is_variant("debug") ? 60 : 20); }

std::string get(const std::string &file)
{
	std::ifstream in(file);
	std::string word;
	in >> word;
	return word;
}

// --- The drive, and a filesystem on a device-mapper device over it

/// The network drive, or nullptr: fabric_lifetime.sh and card_lifetime.sh.
const char *far_disk() { return std::getenv("FAR_nvme0"); }

std::string disk()
{
	if (far_disk())
		return fs::path(far_disk()).filename();
	for (const auto &entry : fs::directory_iterator("/sys/class/block"))
		if (get(entry.path() / "device/serial") == "nvme0" && get(entry.path() / "hidden") == "0")
			return entry.path().filename();
	return "";
}

/// With lazy timestamps, so that a write in place reaches the drive without waiting for the journal.
bool filesystem_up()
{
	return within(patience(), [] { return !disk().empty() && fs::exists("/dev/" + disk()); }) &&
	       host::run("dmsetup create held --table \"0 $(blockdev --getsz /dev/" + disk() + ") linear /dev/" +
			 disk() +
			 " 0\" && mkdir -p /mnt/revoke && mount -o noatime,lazytime /dev/mapper/held /mnt/revoke") &&
	       (fs::exists(path) || (host::run("pattern fill " + std::string(path) + " 0 " + std::to_string(file_len) +
					       " pattern:1 && sync " + path)));
}

bool filesystem_down() { return host::run("umount /mnt/revoke; dmsetup remove held"); }

bool read_a_page()
{
	const int fd = ::open(("/dev/" + disk()).c_str(), O_RDONLY | O_DIRECT);
	void *memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const bool good = ::pread(fd, memory, page, 0) == ssize_t(page);
	::munmap(memory, page);
	::close(fd);
	return good;
}

/// The one request that passes must be ours. Lets the journal write first, and retries if another request came between.
bool hold_drive()
{
	for (int i = 0; i < 5; i++) {
		const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
		::syncfs(fd);
		::close(fd);
		throttle(1); // one request passes, then one byte a second
		std::atomic<bool> passed{false}, good{false};
		std::thread reading([&] {
			good = read_a_page();
			passed = true;
		});
		const bool soon = within(seconds(5), [&] { return passed.load(); });
		if (!soon)
			throttle(0);
		reading.join();
		if (soon)
			return good;
	}
	return false;
}

bool hold(Hold who)
{
	switch (who) {
	case Hold::drive:
		return hold_drive();
	case Hold::dm:
		return host::run("dmsetup suspend --nolockfs held");
	default:
		return true;
	}
}

void release(Hold who)
{
	if (who == Hold::drive)
		throttle(0);
	else if (who == Hold::dm)
		host::run("dmsetup resume held");
}

/// Number of reads, or of reads and writes, that the drive has in flight.
int in_drive(bool writes)
{
	std::ifstream in("/sys/block/" + disk() + "/inflight");
	int n[2] = {};
	in >> n[0] >> n[1];
	return n[0] + (writes ? n[1] : 0);
}

/// Number of tasks blocked in the kernel: of this process and of the module's own workers.
int waiting(pid_t pid)
{
	int n = 0;
	auto look = [&n](const fs::path &stat, bool any) {
		std::ifstream in(stat);
		std::string line;
		std::getline(in, line);
		const auto name = line.rfind(')');
		n += name != std::string::npos && line.substr(name + 1, 2) == " D" &&
		     (any || line.find("peerdma") < name);
	};
	std::error_code gone;
	for (const auto &task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone))
		look(task.path() / "stat", true);
	for (const auto &process : fs::directory_iterator("/proc", gone))
		if (std::isdigit(process.path().filename().native()[0]))
			look(process.path() / "stat", false);
	return n;
}

/// Kernel stacks of its tasks, for the reader of a failure.
std::string whereabouts(pid_t pid)
{
	std::string text;
	std::error_code gone;
	for (const auto &task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
		std::ifstream in(task.path() / "stack");
		text += " [";
		std::string line;
		for (int i = 0; i < 12 && std::getline(in, line); i++)
			text += (i ? " " : "") + line.substr(line.find(' ') + 1, line.find('+') - line.find(' ') - 1);
		text += "]";
	}
	return text;
}

// --- The module and the provider

std::string device() { return "/sys/bus/pci/devices/" + gpu; }

/// With a network drive, the RDMA module holds a reference to this one.
std::string unused() { return far_disk() ? "1" : "0"; }

bool unloaded(const char *name) { return !::syscall(SYS_delete_module, name, O_NONBLOCK); }

bool module_gone() { return (!far_disk() || unloaded("peerdma_rdma")) && unloaded("peerdma"); }

bool loaded(const fs::path &file, const char *parameters)
{
	const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
	const bool good = !::syscall(SYS_finit_module, fd, parameters, 0) || errno == EEXIST;
	::close(fd);
	return good;
}

bool module_here()
{
	const fs::path file = std::getenv("LAB_MODULE");
	return loaded(file, "") &&
	       (!far_disk() ||
		loaded(file.parent_path() / "peerdma_rdma.ko", raw::by_software() ? "allow_software=1" : "")) &&
	       within(patience(), [] { return fs::exists("/dev/peerdma"); });
}

bool found()
{
	const int dev = raw::open_device();
	auto query = raw::sized<peerdma_provider_query>();
	const bool is = !raw::call(dev, PEERDMA_PROVIDER_QUERY, query);
	::close(dev);
	return is;
}

/// The device may appear before a driver can bind to it.
bool published() { return !guest::bind_and_publish(gpu, 64 << 20); }

/// The GPU is present, whatever the event was.
bool plugged_in()
{
	if (fs::exists(device()))
		return true;
	put("/sys/bus/pci/rescan", "1");
	if (fs::exists(device()))
		return true;
	guest::plug_in();
	return within(2 * patience(), [] { return fs::exists(device()); });
}

bool provider_up() { return module_here() && (found() || (plugged_in() && within(patience(), published))); }

bool pool_is_full() { return get(device() + "/p2pmem/available") == get(device() + "/p2pmem/size"); }

// --- The owner

class Owner
{
public:
	explicit Owner(const State &state)
	{
		int pair[2];
		if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair))
			raw::die("socketpair");
		socket_ = pair[0];
		::fcntl(socket_, F_SETFD, FD_CLOEXEC);
		const std::string name(state.name), number = std::to_string(pair[1]);
		pid_ = ::fork();
		if (!pid_) {
			::execlp("owner", "owner", name.c_str(), path, number.c_str(), nullptr);
			::_exit(127);
		}
		::close(pair[1]);
	}
	~Owner()
	{
		::kill(pid_, SIGKILL);
		is_gone(patience());
		::close(socket_);
	}
	Owner(const Owner &) = delete;
	Owner &operator=(const Owner &) = delete;

	pid_t pid() const { return pid_; }
	int socket() const { return socket_; }
	void kill() const { ::kill(pid_, SIGKILL); }
	/// Another process answers for it from now on.
	void becomes(pid_t pid) { pid_ = pid; }

	void tell(char order) const { (void)!::send(socket_, &order, 1, MSG_NOSIGNAL); }

	/// Returns "" on a timeout.
	std::string hear(Clock::duration limit = patience()) const
	{
		pollfd ready = {socket_, POLLIN, 0};
		char said[256];
		if (::poll(&ready, 1, int(std::chrono::duration_cast<milliseconds>(limit).count())) != 1)
			return "";
		const ssize_t len = ::recv(socket_, said, sizeof(said), 0);
		return len > 0 ? std::string(said, size_t(len)) : "";
	}

	std::string ask(char order) const
	{
		tell(order);
		return hear();
	}

	bool is_gone(Clock::duration limit)
	{
		gone_ = gone_ || within(limit, [this] { return ::waitpid(pid_, nullptr, WNOHANG) != 0; });
		return gone_;
	}

private:
	pid_t pid_;
	int socket_;
	bool gone_ = false;
};

// --- A round: one event in one state

/// What an event removes.
enum class Takes { provider, drive, owner, parent, ring, nothing };

struct Round;

struct Event {
	const char *name;
	Takes takes;
	/// Runs while requests are held back, and may block until they are released.
	std::function<void(Round &)> run;
};

struct Round {
	const Event &event;
	const State &state;
	Owner process;
	uint64_t at = 0; // offset of the buffer in the BAR
	uint32_t id = 0;
	uint64_t written = 0; // pieces written before their drive was removed: a bit for each
	std::string wrong;
	std::atomic<bool> over{false};

	Round(const Event &what, const State &when) : event(what), state(when), process(when) {}

	void want(bool good, const std::string &what)
	{
		if (!good)
			wrong += (wrong.empty() ? "" : "; ") + what;
	}
	void same(const std::string &what, const std::string &wanted, const std::string &got)
	{
		want(wanted == got, what + ": '" + got + "' instead of '" + wanted + "'");
	}
	int under_way() const { return state.reads + state.writes; }
	bool held() const { return state.hold != Hold::none; }
};

/// Where the CPU copies, successful requests report this reason too.
const std::string well = raw::by_software() ? "0/" + std::to_string(PEERDMA_REASON_RDMA_SOFTWARE) : "0/0";
const std::string all_is_well = "read " + well + " write " + well + " command 0 mmap 0 alloc 0 other " + well;
const std::string buffer_is_gone = "read -2/0 write -2/0 command -2 mmap -22 alloc 0 other " + well;
constexpr auto drive_is_gone = "read -18/32 write -18/32 command -18 mmap 0 alloc 0 other -18/32";
constexpr auto memory_is_gone = "read -19/48 write -19/48 command -19 mmap -19 alloc -2 other -19/48";

bool has_begun(Round &round)
{
	std::istringstream words(round.process.hear());
	std::string ready;
	words >> ready >> round.at >> round.id;
	if (ready != "ready")
		return false;
	if (!hold(round.state.hold))
		return false;
	if (round.process.ask('g') != "going")
		return false;
	switch (round.state.hold) {
	case Hold::drive:
		return within(patience(), [&] {
			return in_drive(false) >= round.state.reads && in_drive(true) >= round.under_way();
		});
	case Hold::dm:
		return within(patience(), [&] { return waiting(round.process.pid()) >= round.under_way() / 2; });
	default:
		break;
	}
	if (round.state.name == "busy")
		std::this_thread::sleep_for(milliseconds(30));
	return true;
}

/// Checks what must hold while requests cannot complete.
void while_held(Round &round)
{
	switch (round.event.takes) {
	case Takes::provider:
		round.want(within(4 * patience(), [] { return !found(); }), "the provider stays");
		// The provider is not found any more a little before its buffers refuse requests.
		std::this_thread::sleep_for(milliseconds(50));
		round.same("new requests, held", memory_is_gone, round.process.ask('n'));
		// An unbinding that does not wait takes its time on a busy machine.
		round.want(!within(milliseconds(300), [&] { return round.over.load(); }),
			   "it was over before the requests were");
		break;
	case Takes::owner:
		std::this_thread::sleep_for(milliseconds(100));
		round.want(!pool_is_full(), "memory went back to the pool while a drive might write to it");
		break;
	case Takes::ring:
		round.want(within(patience(), [&] { return round.over.load(); }), "closing the ring waits");
		round.process.tell('d');
		round.same("destroying, held", "", round.process.hear(milliseconds(100)));
		break;
	default:
		std::this_thread::sleep_for(milliseconds(50));
	}
}

/// "whole 3 nodev 0 other 1 read 3 written 1 errors -5": read and written have a bit for each piece that was whole
struct Results {
	int whole = -1, nodev = -1, other = -1;
	uint64_t read = 0, written = 0;
	std::set<int> errors;

	explicit Results(const std::string &said)
	{
		std::istringstream words(said);
		std::string key;
		words >> key >> whole >> key >> nodev >> key >> other >> key >> read >> key >> written >> key;
		for (int err; words >> err;)
			errors.insert(err);
		if (key != "errors")
			whole = -1;
	}
};

Results requests_ended(Round &round, bool may_fail)
{
	const std::string said = round.process.ask('r');
	const Results got(said);
	const bool busy = round.state.name == "busy";
	const bool revoked = round.event.takes == Takes::provider;
	bool good = got.whole >= 0;
	if (may_fail)
		good = good && (busy || got.whole + got.nodev + got.other == round.under_way() + round.state.unsent);
	else if (busy)
		good = got.whole > 0 && !got.other && (revoked || !got.nodev);
	else
		good = got.whole == round.under_way() + (revoked ? 0 : round.state.unsent) &&
		       got.nodev == (revoked ? round.state.unsent : 0) && !got.other;
	round.want(good, "what became of the requests: '" + said + "'");
	return got;
}

/// n pieces that were read, from `first` on, must be in the GPU's memory.
void read_is_right(Round &round, uint64_t first, uint64_t n)
{
	const std::string answer =
		n ? host::ask("compare gpu0 " + std::to_string(round.at + first * piece) + " " +
			      std::to_string(n * piece) + " pattern:1 " + std::to_string(first * piece)) :
		    "ok";
	round.want(answer.rfind("ok", 0) == 0, "bytes that were read: " + answer);
}

/// n pieces that were written, from `first` on, must be in the file.
void written_is_right(Round &round, uint64_t first, uint64_t n)
{
	const int fd = ::open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	const uint64_t len = n * piece;
	void *memory = ::mmap(nullptr, len + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *bytes = static_cast<const char *>(memory);
	round.want(::pread(fd, memory, len, off_t(written_to + first * piece)) == ssize_t(len) &&
			   std::all_of(bytes, bytes + len, [](char byte) { return byte == written_byte; }),
		   "bytes that were written");
	::munmap(memory, len + page);
	::close(fd);
}

/// Bytes reported as moved must be in place.
void bytes_are_right(Round &round)
{
	read_is_right(round, 0, uint64_t(round.state.reads));
	written_is_right(round, 0, uint64_t(round.state.writes));
}

/// Checks each piece whose bit is set.
void pieces_are_right(Round &round, uint64_t bits, void (*are_right)(Round &, uint64_t first, uint64_t n))
{
	for (uint64_t i = 0; bits >> i; i++)
		if (bits >> i & 1)
			are_right(round, i, 1);
}

/// The errors must be the storage's, or the route's because the drive is gone. Written pieces are compared once it is
/// back.
void drive_went(Round &round)
{
	const Results got = requests_ended(round, true);
	const std::set<int> known = {-EIO, -EXDEV, -EROFS};
	for (int err : got.errors)
		round.want(known.contains(err), "a request without its drive: " + std::to_string(err));
	pieces_are_right(round, got.read, read_is_right);
	round.written = got.written;
}

void buffer_lives(Round &round)
{
	round.same("new requests", all_is_well, round.process.ask('n'));
	round.same("the mapping", round.state.mapped ? "alive" : "none", round.process.ask('p'));
}

/// The ring was destroyed with all that was in flight. If that was held back, a destroy of the buffer is already
/// waiting.
void after_teardown(Round &round)
{
	if (round.held())
		round.same("destroying", "0", round.process.hear(4 * patience()));
	if (round.state.name == "sync" || round.state.name == "busy")
		requests_ended(round, false);
	bytes_are_right(round);
	if (round.held()) {
		round.same("new requests", buffer_is_gone, round.process.ask('n'));
		round.same("the mapping", "sigbus", round.process.ask('p'));
	} else {
		buffer_lives(round);
		round.same("destroying", "0", round.process.ask('d'));
	}
}

void afterwards(Round &round)
{
	if (round.state.name != "busy")
		round.want(within(patience(), [] { return !in_drive(true); }), "the drive is not done");
	switch (round.event.takes) {
	case Takes::provider:
		requests_ended(round, false);
		bytes_are_right(round);
		round.same("new requests", memory_is_gone, round.process.ask('n'));
		round.same("the mapping", round.state.mapped ? "sigbus" : "none", round.process.ask('p'));
		round.same("destroying", "0", round.process.ask('d'));
		break;
	case Takes::drive:
		drive_went(round);
		round.same("the mapping", round.state.mapped ? "alive" : "none", round.process.ask('p'));
		round.same("new requests", drive_is_gone, round.process.ask('n'));
		round.same("destroying", "0", round.process.ask('d'));
		break;
	case Takes::nothing:
		requests_ended(round, false);
		bytes_are_right(round);
		buffer_lives(round);
		break;
	case Takes::parent:
		bytes_are_right(round);
		buffer_lives(round);
		break;
	case Takes::ring:
		after_teardown(round);
		break;
	case Takes::owner:
		break;
	}
}

/// Nothing of the round is left.
void cleared_up(Round &round)
{
	round.process.kill();
	round.want(round.process.is_gone(patience()), "the owner does not end");
	round.want(within(patience(), [] { return get("/sys/module/peerdma/refcnt") == unused(); }),
		   "the module is still used");
	if (round.event.takes == Takes::drive) {
		round.want(filesystem_down() && put("/sys/bus/pci/rescan", "1") && filesystem_up(),
			   "the drive does not come back");
		pieces_are_right(round, round.written, written_is_right);
	}
	if (round.event.takes == Takes::provider)
		round.want(module_gone(), "the module does not unload");
	else
		round.want(within(patience(), pool_is_full), "the pool is not full");
}

std::string run(const Event &event, const State &state)
{
	if (!provider_up())
		return "no provider";
	Round round(event, state);
	if (!has_begun(round)) {
		const std::string where = whereabouts(round.process.pid());
		const int reads = in_drive(false), all = in_drive(true);
		release(state.hold);
		return "the state is not reached: the drive has " + std::to_string(reads) + " reads and " +
		       std::to_string(all - reads) + " writes, its owner is at" + where;
	}
	std::thread doing([&] {
		event.run(round);
		round.over = true;
	});
	if (round.held()) {
		while_held(round);
		release(state.hold);
	}
	if (!within(4 * patience(), [&] { return round.over.load(); })) {
		tap::report(false, std::string(event.name) + " while " + std::string(state.name) + " does not end" +
					   (round.wrong.empty() ? "" : "; " + round.wrong));
		::_exit(1);
	}
	doing.join();
	afterwards(round);
	cleared_up(round);
	return round.wrong;
}

// --- The events

void device_del(Round &round)
{
	guest::unplug();
	round.want(within(4 * patience(), [] { return !fs::exists(device()); }), "the device stays");
}

void exec(Round &round) { round.same("exec", "executed", round.process.ask('e')); }

void end(Round &round, bool kill)
{
	if (kill)
		round.process.kill();
	else
		round.process.tell('x');
	round.want(round.process.is_gone(4 * patience()), "it does not end");
}

/// A child shares the buffer and continues with it when the parent is killed.
void fork_and_kill(Round &round)
{
	pid_t child = 0;
	std::sscanf(round.process.ask('f').c_str(), "pid %d", &child);
	const pid_t parent = round.process.pid();
	::kill(parent, SIGKILL);
	round.want(within(4 * patience(), [&] { return ::waitpid(parent, nullptr, WNOHANG) != 0; }),
		   "the parent does not end");
	round.process.becomes(child);
}

/// Only a message in flight holds the open file when its owner is killed.
void pass_on(Round &round)
{
	round.process.tell('s');
	round.want(within(patience(),
			  [&] {
				  char byte;
				  return ::recv(round.process.socket(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
			  }),
		   "no message came");
	end(round, true);
	const int dev = descriptor::receive(round.process.socket()), file = ::open(path, O_RDONLY | O_CLOEXEC);
	auto req = raw::io(file, round.id, 0, 0, piece);
	const int err = raw::call(dev, PEERDMA_READ, req);
	round.want(!err && raw::straight(req) == piece, "a read by who got the descriptor: " + std::to_string(err));
	bytes_are_right(round);
	::close(file);
	::close(dev);
}

void teardown(Round &round) { round.same("closing the ring", "torn down", round.process.ask('t')); }

void unload(Round &round)
{
	const bool gone = unloaded("peerdma");
	round.want(!gone && errno == EWOULDBLOCK, "unloading a module that is used");
}

/// For a while, memory in this cgroup is available only by reclaim.
void squeeze(Round &round)
{
	fs::create_directory(cgroup);
	put("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	put(std::string(cgroup) + "/memory.max", "24M");
	put(std::string(cgroup) + "/cgroup.procs", std::to_string(round.process.pid()));
	const pid_t hog = ::fork();
	if (!hog) {
		put(std::string(cgroup) + "/cgroup.procs", std::to_string(::getpid()));
		constexpr size_t all = 40 << 20, step = 1 << 20;
		char *memory = static_cast<char *>(
			::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
		for (size_t at = 0; at < all; at += step) {
			std::memset(memory + at, 1, step);
			::madvise(memory + at, step, MADV_FREE); // reclaim can take it without swap
		}
		::_exit(0);
	}
	put("/proc/sys/vm/drop_caches", "3");
	int status = -1;
	::waitpid(hog, &status, 0);
	round.want(!status, "the hog was killed");
}

const std::vector<Event> events = {
	{"unbind", Takes::provider, [](Round &) { put(device() + "/driver/unbind", gpu); }},
	{"remove", Takes::provider, [](Round &) { put(device() + "/remove", "1"); }},
	{"unpublish", Takes::provider,
	 [](Round &) { (void)!std::system(("peerdma unpublish " + gpu + " >/dev/null").c_str()); }},
	{"device_del", Takes::provider, device_del},
	{"drive", Takes::drive, [](Round &) { put("/sys/block/" + disk() + "/device/device/remove", "1"); }},
	{"rmmod", Takes::nothing, unload},
	{"kill", Takes::owner, [](Round &round) { end(round, true); }},
	{"exit", Takes::owner, [](Round &round) { end(round, false); }},
	{"exec", Takes::owner, exec},
	{"pass", Takes::owner, pass_on},
	{"fork", Takes::parent, fork_and_kill},
	{"teardown", Takes::ring, teardown},
	{"squeeze", Takes::nothing, squeeze},
};

// --- The selection

struct Choice {
	const Event *event;
	const State *state;
	int rounds;
	std::string wrong;
};

/// few: each event in two states, and each state about equally often. No hotplug removal, unless it is named, under
/// lockdep, where the kernel's own locks trigger a report, which disables lockdep; nor on a realtime kernel, whose pciehp
/// does not answer the slot's button (7.2, without any module of ours).
std::vector<Choice> choose(int argc, char **argv, int rounds)
{
	std::vector<Choice> chosen;
	const auto named = [&](std::string_view name) { return std::find(argv + 3, argv + argc, name) != argv + argc; };
	for (size_t e = 0; e < events.size(); e++) {
		const bool slow = !std::strcmp(events[e].name, "device_del");
		const bool unnamed = !slow || !(is_variant("debug") || is_variant("rt"));
		for (size_t s = 0; s < states.size(); s++) {
			const size_t turn = (s + states.size() - 3 * e % states.size()) % states.size();
			const std::string pair = events[e].name + std::string(":") + std::string(states[s].name);
			if (named(events[e].name) || named(pair) || (unnamed && named("all")) ||
			    (unnamed && named("few") && (!turn || (turn == 3 && !slow))))
				chosen.push_back(
					{&events[e], &states[s], slow ? std::max(1, rounds / 10) : rounds, ""});
		}
	}
	return chosen;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	gpu = argv[1];
	const int rounds = std::atoi(argv[2]);
	auto chosen = choose(argc, argv, rounds);
	::prctl(PR_SET_CHILD_SUBREAPER, 1);
	std::signal(SIGPIPE, SIG_IGN);
	if (!filesystem_up())
		return 1;
	for (int round = 1; round <= rounds; round++) {
		for (auto &choice : chosen) {
			if (round > choice.rounds)
				continue;
			const auto start = Clock::now();
			const std::string wrong = run(*choice.event, *choice.state);
			const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - start).count();
			if (rounds == 1 || !wrong.empty())
				std::printf("# round %d: %s while %s, %ld ms%s%s\n", round, choice.event->name,
					    std::string(choice.state->name).c_str(), long(took),
					    wrong.empty() ? "" : ": ", wrong.c_str());
			std::fflush(stdout);
			if (choice.wrong.empty())
				choice.wrong = wrong;
		}
		std::printf("# round %d of %d\n", round, rounds);
		std::fflush(stdout);
	}
	for (const auto &choice : chosen)
		tap::report(choice.wrong.empty(),
			    std::string(choice.event->name) + " while " + std::string(choice.state->name) + ", " +
				    std::to_string(choice.rounds) + (choice.rounds == 1 ? " time" : " times"),
			    choice.wrong);
	filesystem_down();
	return tap::end();
}
