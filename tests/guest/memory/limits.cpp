// SPDX-License-Identifier: MIT
//
// limits FILE DEVICE CGROUPS DISK: charging of a provider's memory, and its limits. FILE holds 1 MiB of pattern:1 on an
// ext4 whose only free space is reserved for root. DEVICE is the provider's folder in sysfs, which the test unbinds and
// publishes again. CGROUPS is a cgroup2 folder whose children have the memory controller, and dmem if the kernel has
// it.
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <grp.h>
#include <memory>
#include <sched.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "../../tools/tap.hpp"
#include "../../tools/ways.hpp"

namespace
{

using host::throttle, tap::report;

constexpr uint64_t unit = 128 * 1024, page = 4096;
constexpr uid_t alice = 1000, bob = 1001;
const char *file_path;
std::string device, disk;

// --- Kernel settings

bool put(const std::string &path, const std::string &what)
{
	int fd = ::open(path.c_str(), O_WRONLY);
	bool good = fd >= 0 && ::write(fd, what.data(), what.size()) == ssize_t(what.size());
	::close(fd);
	return good;
}

std::string get(const std::string &path)
{
	std::ifstream in(path);
	return {std::istreambuf_iterator<char>(in), {}};
}

void limit_users(uint64_t bytes)
{
	if (!put("/sys/module/peerdma/parameters/user_max", std::to_string(bytes)))
		raw::die("user_max");
}

/// Bytes of a user, as the module reports them.
uint64_t bytes_of(uid_t uid)
{
	std::istringstream in(get("/sys/kernel/debug/peerdma/stats"));
	const std::string wanted = "user uid=" + std::to_string(uid) + " buffer-bytes=";
	for (std::string line; std::getline(in, line);)
		if (line.starts_with(wanted))
			return std::stoull(line.substr(wanted.size()));
	return 0;
}

/// A kernel that keeps idle pages at count 1 frees them with a delay.
bool soon(const std::function<bool()> &good)
{
	for (int i = 0; i < 300; i++) {
		if (good())
			return true;
		::usleep(10000);
	}
	return false;
}

bool pays_nothing(uid_t uid)
{
	return soon([=] { return !bytes_of(uid); });
}

// --- A user's process

struct Order {
	enum { alloc, destroy, read, look, unshare, become, memlock, nofile, files, forget, odd_reads } what;
	uint64_t len = 0, file_off = 0, buf_off = 0;
	uint32_t id = 0, flags = 0;
};

struct Answer {
	int err;
	uint32_t reason, id;
	uint64_t value;
};

/// Has its own open file and carries out orders.
class Process
{
public:
	/// in: a cgroup's folder. root: keep all privileges.
	explicit Process(uid_t uid, const std::string &in = "", bool root = false)
	{
		int orders[2], answers[2];
		if (::pipe2(orders, O_CLOEXEC) || ::pipe2(answers, O_CLOEXEC))
			raw::die("pipe");
		pid_ = ::fork();
		if (!pid_) {
			::prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (!in.empty() && !put(in + "/cgroup.procs", "0"))
				raw::die(in);
			dev_ = raw::open_device();
			provider_ = raw::provider(dev_).out_provider_id;
			file_ = raw::open_file(file_path, O_RDONLY);
			if (!root &&
			    (::setgroups(0, nullptr) || ::setresgid(uid, uid, uid) || ::setresuid(uid, uid, uid)))
				raw::die("setresuid");
			::close(orders[1]);
			::close(answers[0]);
			obey(orders[0], answers[1]);
			::_exit(0);
		}
		::close(orders[0]);
		::close(answers[1]);
		to_ = orders[1];
		from_ = answers[0];
	}
	~Process() { end(); }
	Process(const Process &) = delete;
	Process &operator=(const Process &) = delete;

	void tell(const Order &order) const
	{
		if (::write(to_, &order, sizeof(order)) != sizeof(order))
			raw::die("order");
	}
	Answer hear() const
	{
		Answer answer;
		if (::read(from_, &answer, sizeof(answer)) != sizeof(answer))
			raw::die("answer");
		return answer;
	}
	Answer ask(const Order &order) const
	{
		tell(order);
		return hear();
	}
	Answer alloc(uint64_t len, uint32_t flags = 0) const
	{
		return ask({.what = Order::alloc, .len = len, .flags = flags});
	}
	Answer destroy(uint32_t id) const { return ask({.what = Order::destroy, .id = id}); }
	Answer read(uint32_t id, uint64_t len, uint64_t file_off, uint64_t buf_off) const
	{
		return ask({.what = Order::read, .len = len, .file_off = file_off, .buf_off = buf_off, .id = id});
	}
	/// Counts the bytes of the buffer that are not 0; fill: then fills the buffer.
	Answer look(uint32_t id, uint64_t len, uint8_t fill = 0) const
	{
		return ask({.what = Order::look, .len = len, .id = id, .flags = fill});
	}
	pid_t pid() const { return pid_; }
	/// Killed: the kernel closes its files.
	void end()
	{
		if (!pid_)
			return;
		::kill(pid_, SIGKILL);
		::waitpid(pid_, nullptr, 0);
		::close(to_);
		::close(from_);
		pid_ = 0;
	}

private:
	pid_t pid_;
	int to_ = -1, from_ = -1, dev_ = -1, file_ = -1;
	uint32_t provider_ = 0;
	std::vector<uint64_t> offsets_; // by buffer id, for mmap

	Answer carry_out(const Order &order)
	{
		switch (order.what) {
		case Order::alloc: {
			const auto req = raw::alloc(dev_, provider_, order.len, order.flags);
			const int err = -errno;
			if (!err) {
				offsets_.resize(std::max<size_t>(offsets_.size(), req.out_buf_id + 1));
				offsets_[req.out_buf_id] = req.out_mmap_offset;
			}
			return {err, req.out_reason, req.out_buf_id, req.out_bar_offset};
		}
		case Order::destroy:
			return {raw::destroy(dev_, order.id), 0, 0, 0};
		case Order::read: {
			auto req = raw::io(file_, order.id, order.file_off, order.buf_off, order.len);
			int err = raw::call(dev_, PEERDMA_READ, req);
			if (raw::by_software() && req.out_reason == PEERDMA_REASON_RDMA_SOFTWARE)
				return {err, 0, 0, 0}; // copied by the CPU here, not by the module
			return {err, req.out_reason, 0, req.out_host};
		}
		case Order::look: {
			auto *at = static_cast<volatile uint64_t *>(::mmap(nullptr, order.len, PROT_READ | PROT_WRITE,
									   MAP_SHARED, dev_,
									   off_t(offsets_.at(order.id))));
			if (at == MAP_FAILED)
				return {-errno, 0, 0, 0};
			Answer answer{0, 0, 0, 0};
			for (size_t i = 0; i < order.len / 8; i++) {
				answer.value += at[i] != 0;
				if (order.flags)
					at[i] = order.flags * 0x0101010101010101ULL;
			}
			::munmap(const_cast<uint64_t *>(at), order.len);
			return answer;
		}
		case Order::unshare: // its ids are mapped from outside
			return {::unshare(CLONE_NEWUSER) ? -errno : 0, 0, 0, 0};
		case Order::become:
			return {::setresuid(order.id, order.id, order.id) ? -errno : 0, 0, 0, 0};
		case Order::files:
			for (uint64_t i = 0; i < order.len; i++)
				if (!raw::add_file(dev_, file_))
					return {-errno, 0, 0, i};
			return {0, 0, 0, order.len};
		case Order::odd_reads: // each in a thread that is not joined
			for (uint64_t i = 0; i < order.len; i++)
				std::thread([this, order, i] {
					auto req = raw::io(file_, order.id, i * page + 1, 4, 1000);
					raw::call(dev_, PEERDMA_READ, req);
				}).detach();
			return {0, 0, 0, 0};
		case Order::forget: // the first ids
			for (uint32_t id = 1; id <= order.len; id++) {
				auto req = raw::sized<peerdma_destroy>();
				req.id = id;
				if (const int err = raw::call(dev_, PEERDMA_FILE_REMOVE, req))
					return {err, 0, 0, id};
			}
			return {0, 0, 0, order.len};
		case Order::memlock:
		case Order::nofile: {
			const rlimit limit{order.len, order.len};
			const auto which = order.what == Order::memlock ? RLIMIT_MEMLOCK : RLIMIT_NOFILE;
			return {::setrlimit(which, &limit) ? -errno : 0, 0, 0, 0};
		}
		}
		return {-ENOSYS, 0, 0, 0};
	}

	void obey(int orders, int answers)
	{
		for (Order order; ::read(orders, &order, sizeof(order)) == sizeof(order);) {
			Answer answer = carry_out(order);
			if (::write(answers, &answer, sizeof(answer)) != sizeof(answer))
				::_exit(1);
		}
	}
};

std::string said(const Answer &answer)
{
	return "errno " + std::to_string(-answer.err) + ", reason " + std::to_string(answer.reason) + ", " +
	       std::to_string(answer.value);
}

void refused(const char *what, const Answer &answer, uint32_t reason)
{
	report(answer.err == -EDQUOT && answer.reason == reason && !answer.id, what, said(answer));
}

void works(const char *what, const Answer &answer) { report(!answer.err && !answer.reason, what, said(answer)); }

// --- One limit, for users and for cgroups alike

/// first and second share a limit of 4 units; other has its own. Leaves no buffers.
void one_limit(const std::string &kind, uint32_t reason, const Process &first, const Process &second,
	       const Process &other)
{
	const Answer all = first.alloc(4 * unit);
	works((kind + ": a buffer of the whole limit").c_str(), all);
	refused((kind + ": a page more is refused").c_str(), first.alloc(page), reason);
	refused((kind + ": also to another process").c_str(), second.alloc(page), reason);
	const Answer next = other.alloc(4 * unit);
	works((kind + ": a neighbour has a limit of its own").c_str(), next);
	const Answer read = first.read(all.id, 1000, 1, 4);
	report(!read.err && read.value == 1000, kind + ": at it a partial block is read by way of host memory",
	       said(read));
	other.destroy(next.id);
	first.destroy(all.id);
	const Answer some = first.alloc(unit), near = first.read(some.id, 1000, 1, 4);
	report(!near.err && !near.value, kind + ": below it by way of a page of the provider", said(near));
	first.destroy(some.id);
	Answer again{};
	report(soon([&] { return !(again = second.alloc(4 * unit)).err; }), kind + ": what was destroyed is free again",
	       said(again));
	second.destroy(again.id);
	refused((kind + ": more than the limit at once").c_str(), first.alloc(5 * unit), reason);
}

int in_drive()
{
	int n = 0;
	std::istringstream(get("/sys/block/" + disk + "/inflight")) >> n;
	return n;
}

/// Each unaligned read of a block takes a page of the provider until the drive completes it.
void stalled()
{
	constexpr int n = 8;
	limit_users(4 * unit);
	Process user(alice);
	const Answer all = user.alloc(4 * unit), first = user.read(all.id, page, 0, 0);
	throttle(1);
	user.ask({.what = Order::odd_reads, .len = n, .id = all.id});
	const bool waiting = soon([] { return in_drive() >= n - 1; }); // QEMU passes the first at once
	const uint64_t used =
		std::stoull(get(device + "/p2pmem/size")) - std::stoull(get(device + "/p2pmem/available"));
	throttle(0);
	report(!all.err && !first.err && waiting && used == 4 * unit,
	       "user: reads under way take no page beyond the limit", std::to_string(used) + said(all));
	report(!user.destroy(all.id).err && pays_nothing(alice), "user: nor do they owe one afterwards");
	limit_users(0);
}

/// Two processes allocate as much as they can: together exactly the limit, each time.
void race(const std::string &kind, const Process &first, const Process &second)
{
	bool exact = true, honest = true;
	std::string seen;
	for (int round = 0; round < 10; round++) {
		// An odd number, so that both compete for the last unit.
		std::vector<uint32_t> mine{first.alloc(unit / 4).id}, theirs;
		bool more[2] = {true, true};
		while ((more[0] || more[1]) && mine.size() + theirs.size() < 32) {
			if (more[0])
				first.tell({.what = Order::alloc, .len = unit / 4});
			if (more[1])
				second.tell({.what = Order::alloc, .len = unit / 4});
			for (int who = 0; who < 2; who++) {
				if (!more[who])
					continue;
				const Answer answer = (who ? second : first).hear();
				if (!answer.err)
					(who ? theirs : mine).push_back(answer.id);
				else
					more[who] = false;
				honest = honest && (!answer.err || answer.err == -EDQUOT);
			}
		}
		exact = exact && mine.size() + theirs.size() == 16;
		seen += " " + std::to_string(mine.size()) + "+" + std::to_string(theirs.size());
		for (uint32_t id : mine)
			first.destroy(id);
		for (uint32_t id : theirs)
			second.destroy(id);
		::usleep(20000); // for pages that are freed with a delay
	}
	report(exact && honest, kind + ": two at once have the limit between them, 10 times", seen);
}

// --- Users

void by_user()
{
	limit_users(4 * unit);
	Process first(alice), second(alice), other(bob), root(0, "", true);
	one_limit("user", PEERDMA_REASON_USER_LIMIT, first, second, other);
	report(pays_nothing(alice) && pays_nothing(bob), "user: nothing is owed when all is destroyed");
	race("user", first, second);

	const Answer large = root.alloc(8 * unit);
	works("user: who may exceed limits of resources has none", large);
	report(bytes_of(0) >= 8 * unit, "user: but is counted");
	root.destroy(large.id);

	const Answer kept = first.alloc(4 * unit);
	limit_users(unit);
	refused("user: a limit that was lowered holds at once", second.alloc(page), PEERDMA_REASON_USER_LIMIT);
	report(bytes_of(alice) == 4 * unit && !first.look(kept.id, page).err, "user: and takes nothing away");
	limit_users(0);
	const Answer free = second.alloc(unit);
	works("user: without a limit there is none", free);
	report(bytes_of(alice) == 5 * unit, "user: both processes are one user");
	first.end();
	report(soon([] { return bytes_of(alice) == unit; }), "user: what a killed process had is no longer counted");
}

/// A user's ids in a user namespace are not separate users.
void by_namespace()
{
	limit_users(unit);
	Process outside(alice);
	const Answer all = outside.alloc(unit);
	Process inside(alice);
	if (inside.ask({.what = Order::unshare}).err)
		raw::die("unshare");
	refused("user namespace: its maker pays for it", inside.alloc(page), PEERDMA_REASON_USER_LIMIT);
	// As newuidmap(1) would, with a subordinate id of alice.
	if (!put("/proc/" + std::to_string(inside.pid()) + "/uid_map", "0 100000 1") ||
	    inside.ask({.what = Order::become, .id = 0}).err)
		raw::die("uid_map");
	refused("user namespace: also by another id that was given to it", inside.alloc(page),
		PEERDMA_REASON_USER_LIMIT);
	report(inside.alloc(page, PEERDMA_BUF_NO_ZERO).err == -EPERM,
	       "user namespace: all rights in it are none outside");
	// If root maps a container to an id of its own, that id pays, not root.
	constexpr uid_t container = 200000;
	Process theirs(0, "", true);
	if (theirs.ask({.what = Order::unshare}).err ||
	    !put("/proc/" + std::to_string(theirs.pid()) + "/uid_map", "0 " + std::to_string(container) + " 1") ||
	    theirs.ask({.what = Order::become, .id = 0}).err)
		raw::die("root's uid_map");
	report(!theirs.alloc(unit).err && bytes_of(container) == unit, "root's user namespace: its own id pays");
	refused("root's user namespace: and has its limit", theirs.alloc(page), PEERDMA_REASON_USER_LIMIT);
	outside.destroy(all.id);
	limit_users(0);
}

// --- Cgroups

uint64_t dmem_of(const std::string &cgroup, const std::string &region)
{
	std::istringstream in(get(cgroup + "/dmem.current"));
	for (std::string name, value; in >> name >> value;)
		if (name == region)
			return std::stoull(value);
	return 0;
}

unsigned regions(const std::string &cgroups, const std::string &region)
{
	std::istringstream in(get(cgroups + "/dmem.capacity"));
	unsigned n = 0;
	for (std::string name, value; in >> name >> value;)
		n += name == region;
	return n;
}

bool republish(const std::string &bdf)
{
	return host::run("timeout 20 peerdma unpublish " + bdf) && host::run("peerdma publish " + bdf);
}

/// A registered file stays open without a descriptor, so the descriptor limit applies to registered files too.
void registered_files()
{
	Process user(alice);
	user.ask({.what = Order::nofile, .len = 100});
	Answer got = user.ask({.what = Order::files, .len = 101});
	report(got.err == -EMFILE && got.value == 100, "registered files: as many as RLIMIT_NOFILE has room for",
	       said(got));
	std::string info;
	for (const auto &entry : std::filesystem::directory_iterator("/proc/" + std::to_string(user.pid()) + "/fdinfo"))
		info += get(entry.path());
	report(info.find("peerdma-files:\t100\n") != info.npos, "registered files: fdinfo counts them", info);
	got = user.ask({.what = Order::forget, .len = 10});
	report(!got.err, "registered files: some are removed", said(got));
	got = user.ask({.what = Order::files, .len = 11});
	report(got.err == -EMFILE && got.value == 10, "registered files: and there is room for as many", said(got));
}

/// Registered files are the simplest way for a user to keep kernel memory allocated.
void kernel_memory(const std::string &cgroups)
{
	const std::string one = cgroups + "/one";
	const auto now = [&] { return std::stoull(get(one + "/memory.current")); };
	::mkdir(one.c_str(), 0755);
	{
		Process user(alice, one);
		user.ask({.what = Order::files, .len = 100});
		const uint64_t before = now();
		const Answer made = user.ask({.what = Order::files, .len = 10000});
		const uint64_t after = now();
		report(!made.err && after > before + 10000 * 64, "kernel memory: the cgroup pays for what stays",
		       std::to_string(before) + " " + std::to_string(after));
	}
	report(!::rmdir(one.c_str()), "kernel memory: the cgroup is left empty");
}

void by_cgroup(const std::string &cgroups, const std::string &bdf)
{
	const std::string region = "peerdma/" + bdf, one = cgroups + "/one", two = cgroups + "/two";
	report(regions(cgroups, region) == 1, "cgroup: the provider is a region, by its PCI address",
	       get(cgroups + "/dmem.capacity"));
	::mkdir(one.c_str(), 0755);
	::mkdir(two.c_str(), 0755);
	const std::string limit = " " + std::to_string(4 * unit);
	if (!put(one + "/dmem.max", region + limit) || !put(two + "/dmem.max", region + limit))
		raw::die("dmem.max");
	{
		// As root too: a cgroup's limit covers all its processes.
		Process first(0, one, true), second(alice, one), other(alice, two);
		one_limit("cgroup", PEERDMA_REASON_CGROUP_LIMIT, first, second, other);
		race("cgroup", first, second);
		first.alloc(unit);
		second.alloc(2 * unit);
		report(dmem_of(one, region) == 3 * unit && bytes_of(alice) == 2 * unit,
		       "cgroup: it counts what it has");
		second.end();
		report(soon([&] { return dmem_of(one, region) == unit && !bytes_of(alice); }),
		       "cgroup: what a killed process had is no longer counted");
	}
	report(soon([&] { return !dmem_of(one, region); }), "cgroup: nor what another had");

	// Unbinding takes the memory, and its charge, from an owner that lives on.
	Process owner(alice, one);
	const Answer held = owner.alloc(2 * unit);
	report(!held.err && republish(bdf), "unbind and publish again while a cgroup pays");
	report(pays_nothing(alice), "what was revoked is counted for no user");
	report(soon([&] { return !dmem_of(one, region) && regions(cgroups, region) == 1; }),
	       "nor for a cgroup, and the region is there once");
	owner.end();

	// A cgroup is removed while memory is still charged to it.
	Process mover(alice, two);
	const Answer kept = mover.alloc(unit);
	put(cgroups + "/cgroup.procs", std::to_string(mover.pid()));
	report(!kept.err && !::rmdir(two.c_str()), "a cgroup can be removed while its memory is in use");
	report(!mover.destroy(kept.id).err && pays_nothing(alice), "and the memory be given back afterwards");
	mover.end();
	::rmdir(one.c_str());
}

// --- Unbinding, with a charge to the user only

void unbind(const std::string &bdf)
{
	Process owner(alice);
	const Answer held = owner.alloc(2 * unit);
	report(!held.err && bytes_of(alice) == 2 * unit && republish(bdf), "unbind while a user pays");
	report(pays_nothing(alice), "what was revoked is no longer counted");
	owner.destroy(held.id);
	report(pays_nothing(alice), "nor when its owner destroys what is left of it");
}

// --- Bytes of other users

/// Allocates at the place of a freed buffer, whose pages may be freed with a delay.
Answer alloc_at(const Process &process, uint64_t place, uint64_t len, uint32_t flags = 0)
{
	Answer answer{};
	soon([&] {
		answer = process.alloc(len, flags);
		if (answer.err || answer.value == place)
			return true;
		process.destroy(answer.id);
		return false;
	});
	return answer;
}

void zeroed()
{
	constexpr uint64_t len = 2 * unit;
	auto writer = std::make_unique<Process>(alice);
	Process reader(bob), root(0, "", true);
	Answer mine = writer->alloc(len);
	report(!mine.err && !writer->look(mine.id, len, 0xa5).value, "a new buffer is all 0");
	writer->destroy(mine.id);
	Answer theirs = alloc_at(reader, mine.value, len);
	report(theirs.value == mine.value && !reader.look(theirs.id, len).value,
	       "what one user left in a buffer another does not see", said(theirs));
	reader.destroy(theirs.id);

	mine = writer->alloc(len);
	writer->look(mine.id, len, 0x5a);
	writer.reset();
	theirs = alloc_at(reader, mine.value, len);
	report(theirs.value == mine.value && !reader.look(theirs.id, len, 0xc3).value, "nor what a killed process left",
	       said(theirs));

	Answer asked = reader.alloc(len, PEERDMA_BUF_NO_ZERO);
	report(asked.err == -EPERM && !asked.id, "memory that is not zeroed is not for a user", said(asked));
	reader.destroy(theirs.id);
	asked = alloc_at(root, theirs.value, len, PEERDMA_BUF_NO_ZERO);
	report(!asked.err && asked.value == theirs.value && root.look(asked.id, len).value == len / 8,
	       "but for root, who finds what was there", said(asked));
	root.destroy(asked.id);
}

// --- Host memory

std::string pinned(pid_t pid)
{
	std::istringstream in(get("/proc/" + std::to_string(pid) + "/status"));
	for (std::string line; std::getline(in, line);)
		if (line.starts_with("VmPin:"))
			return line.substr(line.find_first_not_of(" \t", 6));
	return "";
}

/// At a buffer offset that no drive can address, so all bytes go through host memory.
void memlock()
{
	Process user(alice), root(0, "", true);
	const Answer buf = user.alloc(unit), roots = root.alloc(unit);
	Answer got = user.read(buf.id, 100000, 0, 1);
	report(!got.err && got.value == 100000, "host memory: bytes pass through it", said(got));
	user.ask({.what = Order::memlock, .len = unit});
	got = user.read(buf.id, 100000, 0, 1);
	report(!got.err, "host memory: as long as RLIMIT_MEMLOCK has room", said(got));
	user.ask({.what = Order::memlock, .len = page});
	got = user.read(buf.id, 100000, 0, 1);
	report(!got.err && got.value == 100000, "host memory: with little room in small steps", said(got));
	user.ask({.what = Order::memlock, .len = 0});
	got = user.read(buf.id, 100000, 0, 1);
	report(got.err == -EDQUOT && got.reason == PEERDMA_REASON_MEMLOCK, "host memory: not beyond RLIMIT_MEMLOCK",
	       said(got));
	got = user.read(buf.id, 65536, 0, 0);
	report(!got.err && !got.value, "host memory: what needs none goes on", said(got));
	report(pinned(user.pid()) == "0 kB", "host memory: none stays counted", pinned(user.pid()));
	root.ask({.what = Order::memlock, .len = 0});
	got = root.read(roots.id, 100000, 0, 1);
	report(!got.err && got.value == 100000, "host memory: who may lock memory is not limited", said(got));
	report(pinned(root.pid()) == "0 kB", "host memory: and none stays counted there", pinned(root.pid()));
}

// --- A filesystem's space reserved for root

/// A command of two pieces. The second needs a block, so it cannot proceed without blocking while the first is in
/// flight. A worker of the module carries it out, and must not use its own privileges.
int write_two_pieces(const std::string &path)
{
	if (::setgroups(0, nullptr) || ::setresgid(alice, alice, alice) || ::setresuid(alice, alice, alice))
		raw::die("setresuid");
	const int dev = raw::open_device();
	ways::Mover mover(dev, raw::provider(dev).out_provider_id, path, 2 * page);
	// Caches the route, and that the file has no privileges for a write to remove.
	if (mover.move(ways::Way::fd, {true, 0, 0, page}).err)
		raw::die("the first block");
	const ways::Answer answer = mover.move(ways::Way::pieces, {true, 0, 0, 2 * page});
	return answer.err == ENOSPC && answer.failed == 1 && answer.bytes() == page ? 0 : 1 + answer.err;
}

/// The same by root, whose ring acts for alice: with IORING_SETUP_SQPOLL its thread has her rights, otherwise the command.
int write_for_alice(const std::string &path, unsigned flags)
{
	const int dev = raw::open_device();
	ways::Mover mover(dev, raw::provider(dev).out_provider_id, path, 2 * page);
	if (mover.move(ways::Way::fd, {true, 0, 0, page}).err)
		raw::die("the first block");
	io_uring ring;
	io_uring_cqe *cqe = nullptr;
	peerdma_uring_seg segs[] = {{0, 0, page, 0}, {page, page, page, 0}};
	if (::seteuid(alice) || io_uring_queue_init(4, &ring, flags))
		raw::die("a ring of alice's");
	const int personality = flags & IORING_SETUP_SQPOLL ? 0 : io_uring_register_personality(&ring);
	if (personality < 0 || ::seteuid(0))
		raw::die("personality");
	io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	raw::command(sqe, dev, PEERDMA_URING_WRITEV, mover.buf(), raw::add_file(dev, mover.fd()), 2,
		     {reinterpret_cast<uintptr_t>(segs), 0});
	sqe->personality = uint16_t(personality);
	if (io_uring_submit(&ring) != 1 || io_uring_wait_cqe(&ring, &cqe))
		raw::die("a command");
	io_uring_queue_exit(&ring);
	return segs[0].out_res == int(page) && segs[1].out_res == -ENOSPC ? 0 : 1;
}

void kept_for_root()
{
	const std::string path = std::string(file_path) + ".kept";
	const std::vector<char> block(page, 1);
	const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ::write(fd, block.data(), page) != ssize_t(page) || ::ftruncate(fd, 16 * page) ||
	    ::fchown(fd, alice, alice) || ::fsync(fd) || ::chmod("/dev/peerdma", 0666))
		raw::die(path);
	auto keeps_rights_of = [](const std::string &whose, const std::function<int()> &write) {
		const pid_t child = ::fork();
		if (!child)
			::_exit(write());
		int status = 0;
		::waitpid(child, &status, 0);
		report(!status,
		       "a piece that a worker does has the rights of " + whose + ": no block that is kept for root",
		       "status " + std::to_string(status));
	};
	keeps_rights_of("who asked", [&] { return write_two_pieces(path); });
	keeps_rights_of("the command's personality", [&] { return write_for_alice(path, 0); });
	keeps_rights_of("the ring's thread", [&] { return write_for_alice(path, IORING_SETUP_SQPOLL); });
	::chmod("/dev/peerdma", 0660);
	::close(fd);
	::unlink(path.c_str());
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 5) {
		std::fprintf(stderr, "usage: limits FILE DEVICE CGROUPS DISK\n");
		return 2;
	}
	file_path = argv[1];
	device = argv[2];
	disk = argv[4];
	const std::string bdf = device.substr(device.rfind('/') + 1);
	const rlimit many{20000, 20000}; // for the files that kernel_memory() registers
	::setrlimit(RLIMIT_NOFILE, &many);
	by_user();
	stalled();
	by_namespace();
	zeroed();
	memlock();
	kept_for_root();
	unbind(bdf);
	registered_files();
	kernel_memory(argv[3]);
	if (get(std::string(argv[3]) + "/cgroup.controllers").find("dmem") != std::string::npos)
		by_cgroup(argv[3], bdf);
	else
		tap::skip("cgroup", "a kernel without the controller dmem");
	report(pays_nothing(alice) && pays_nothing(bob), "in the end nobody pays for anything");
	return tap::end();
}
