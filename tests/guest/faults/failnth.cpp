// SPDX-License-Identifier: MIT
//
// failnth FILE DEVICE DISK: every allocation and every user copy of each of our calls fails once, with
// /proc/thread-self/fail-nth; then all of them fail from some point on. FILE is on a filesystem and has 64 KiB, DEVICE
// is the provider's folder in sysfs, DISK the drive's. A call whose n-th attempt fails must return an errno that is
// documented for it, return no false result, change nothing else, and succeed when repeated. All resources must be back
// in the end. The test publishes the provider and unpublishes it.
#include <algorithm>
#include <dirent.h>
#include <fstream>
#include <functional>
#include <memory>
#include <sched.h>
#include <set>
#include <sys/syscall.h>

#include "../../tools/tap.hpp"
#include "../../tools/ways.hpp"

namespace
{

using ways::Way;

constexpr uint64_t kib = 1024;
const std::string debugfs = "/sys/kernel/debug/";
std::string device, disk, device_name;
uint32_t provider_id;

/// Returns false and sets errno if the kernel rejects the text.
bool tell(const std::string &path, const std::string &what)
{
	int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
	const bool good = fd >= 0 && ::write(fd, what.data(), what.size()) == ssize_t(what.size());
	const int err = errno;
	if (fd >= 0)
		::close(fd);
	errno = err;
	return good;
}

void put(const std::string &path, const std::string &what)
{
	if (!tell(path, what))
		raw::die(path);
}

std::string get(const std::string &path)
{
	std::string line;
	std::getline(std::ifstream(path) >> std::ws, line);
	return line;
}

// --- Fault injection

/// The fail-nth files of some threads.
class Threads
{
public:
	explicit Threads(const std::vector<std::string> &folders)
	{
		for (const auto &folder : folders) {
			const int fd = ::open((folder + "/fail-nth").c_str(), O_RDWR | O_CLOEXEC);
			if (fd >= 0)
				fds_.push_back(fd);
		}
	}
	~Threads()
	{
		for (int fd : fds_)
			::close(fd);
	}
	Threads(const Threads &) = delete;
	Threads &operator=(const Threads &) = delete;

	bool none() const { return fds_.empty(); }

	void arm(int nth)
	{
		const std::string text = std::to_string(nth);
		for (int fd : fds_)
			if (::pwrite(fd, text.data(), text.size(), 0) < 0)
				raw::die("fail-nth");
	}

	/// True if a thread has used up its fault; clears the others. Copies from and to user space count too,
	/// including those made here.
	bool used()
	{
		bool any = false;
		for (int fd : fds_) {
			char left[16] = {};
			any |= ::pread(fd, left, sizeof(left) - 1, 0) > 0 && !std::atoi(left);
			while (::pwrite(fd, "0", 1, 0) < 0 && errno == EFAULT)
				;
		}
		return any;
	}

private:
	std::vector<int> fds_;
};

const char *const faults[] = {"failslab", "fail_page_alloc", "fail_usercopy"};

/// Start and end address of a function in the kernel or our module; two zeros if it does not exist.
std::pair<unsigned long, unsigned long> place_of(const std::string &function)
{
	std::ifstream in("/proc/kallsyms");
	std::vector<unsigned long> all;
	unsigned long start = 0;
	for (std::string line; std::getline(in, line);) {
		all.push_back(std::strtoul(line.c_str(), nullptr, 16));
		if (line.ends_with(" " + function) || line.find(" " + function + ".") != std::string::npos ||
		    line.find(" " + function + "\t") != std::string::npos)
			start = all.back();
	}
	std::sort(all.begin(), all.end());
	const auto end = std::upper_bound(all.begin(), all.end(), start);
	if (!start || end == all.end())
		return {0, 0};
	return {start, *end};
}

/// Exempts allocations by this function. Returns false if it does not exist.
bool spare(const std::string &fault, const std::string &function)
{
	const auto [start, end] = place_of(function);
	put(debugfs + fault + "/reject-start", std::to_string(start));
	put(debugfs + fault + "/reject-end", std::to_string(end));
	return start;
}

/// Restricts faults to this function and its callees.
void only(const std::string &function)
{
	const auto [start, end] = place_of(function);
	if (!start)
		raw::die(function);
	for (const char *fault : faults) {
		put(debugfs + fault + "/require-start", std::to_string(start));
		put(debugfs + fault + "/require-end", std::to_string(end));
	}
}

void everything_again()
{
	for (const char *fault : faults) {
		put(debugfs + fault + "/require-start", "0");
		put(debugfs + fault + "/require-end", std::to_string(~0UL));
	}
}

/// The io_uring workers of this process.
std::vector<std::string> workers()
{
	std::vector<std::string> found;
	DIR *dir = ::opendir("/proc/self/task");
	while (const dirent *entry = ::readdir(dir)) {
		const std::string folder = std::string("/proc/self/task/") + entry->d_name;
		if (get(folder + "/comm").starts_with("iou-wrk"))
			found.push_back(folder);
	}
	::closedir(dir);
	return found;
}

// --- Calls

/**
 * One of our calls.
 * errnos: documented for it, and possible with the injected faults
 * prepare: before each attempt, without faults
 * run: the call itself; returns its errno or 0
 * judge: without faults, after run returned this errno; returns what is wrong, or "". Repeats the call and checks its
 * effect.
 * in_worker: faults are injected into the workers, not the caller
 */
struct Call {
	std::string name;
	std::set<int> errnos;
	std::function<void()> prepare;
	std::function<int()> run;
	std::function<std::string(int)> judge;
	bool in_worker = false;
};

void nothing() {}

/// Results of all attempts of one call.
struct Tally {
	int tries = 0, failed = 0, wrong = 0;
	std::set<int> errnos;

	/// used: the fault was triggered
	void add(const Call &call, int nth, int err, bool used)
	{
		std::string complaint = call.judge(err);
		if (err && !(used && call.errnos.count(err)))
			complaint = "errno " + std::to_string(err) + " is not documented; " + complaint;
		tries += used;
		failed += err != 0;
		if (err)
			errnos.insert(err);
		if (complaint.empty())
			return;
		if (wrong++ < 5)
			std::printf("# %s, %d: errno %d: %s\n", call.name.c_str(), nth, err, complaint.c_str());
	}

	std::string says() const
	{
		std::string list;
		for (int err : errnos)
			list += std::string(" ") + strerrorname_np(err);
		return std::to_string(tries) + " made to fail, " + std::to_string(failed) + " calls failed:" + list;
	}
};

constexpr int limit = 1500; // no call of ours allocates this often
constexpr int settled = 3;  // stop after this many attempts without a fault; the number varies a little

/// LAB_CALLS: run only calls whose names contain this.
bool chosen(const Call &call)
{
	const char *only = std::getenv("LAB_CALLS");
	return !only || call.name.find(only) != std::string::npos;
}

/// Each allocation and copy fails once; all others work.
void one_by_one(const Call &call)
{
	if (!chosen(call))
		return;
	Tally tally;
	int nth = 1, unused = 0;
	// Allocate now what is made once and kept.
	call.prepare();
	tally.add(call, 0, call.run(), false);
	for (; unused < settled && nth < limit; nth++) {
		call.prepare();
		Threads threads(call.in_worker ? workers() : std::vector<std::string>{"/proc/thread-self"});
		if (threads.none()) { // an idle worker has exited
			tally.add(call, 0, call.run(), false);
			continue;
		}
		threads.arm(nth);
		const int err = call.run();
		const bool used = threads.used();
		unused = used ? 0 : unused + 1;
		tally.add(call, nth, err, used);
	}
	tap::report(!tally.wrong && tally.tries && nth < limit, call.name + ": " + tally.says(),
		    tally.tries ? "" : "nothing was made to fail");
}

/// The first few allocations work and all later ones fail, including those of a second attempt.
void from_some_point_on(const Call &call, int step)
{
	if (!chosen(call))
		return;
	Tally tally;
	// Keep it open: while it is on, nothing can be opened.
	const int make_it_fail = ::open("/proc/self/make-it-fail", O_WRONLY | O_CLOEXEC);
	put(debugfs + "failslab/probability", "100");
	for (int bytes = 0; bytes < 64 * step; bytes += step) {
		call.prepare();
		put(debugfs + "failslab/space", std::to_string(bytes));
		if (::pwrite(make_it_fail, "1", 1, 0) != 1)
			raw::die("make-it-fail");
		const int err = call.run();
		if (::pwrite(make_it_fail, "0", 1, 0) != 1)
			raw::die("make-it-fail");
		tally.add(call, bytes, err, true);
	}
	put(debugfs + "failslab/probability", "0");
	::close(make_it_fail);
	tap::report(!tally.wrong && tally.failed && tally.failed < tally.tries,
		    call.name + ", no memory from some point on: " + tally.says());
}

/// Every allocation by this function fails, including those of a second attempt.
void none_for(const std::string &function, const Call &call)
{
	Tally tally;
	call.prepare();
	only(function);
	const int make_it_fail = ::open("/proc/self/make-it-fail", O_WRONLY | O_CLOEXEC);
	put(debugfs + "failslab/space", "0");
	put(debugfs + "failslab/probability", "100");
	if (::pwrite(make_it_fail, "1", 1, 0) != 1)
		raw::die("make-it-fail");
	const int err = call.run();
	if (::pwrite(make_it_fail, "0", 1, 0) != 1)
		raw::die("make-it-fail");
	put(debugfs + "failslab/probability", "0");
	::close(make_it_fail);
	everything_again();
	tally.add(call, 0, err, true);
	tap::report(!tally.wrong && err == ENOMEM, call.name + ", nothing for " + function + "(): " + tally.says());
}

// --- The table: calls of /dev/peerdma itself

/// A request that can be repeated at will.
template <typename T>
Call plain(const std::string &name, unsigned long cmd, int dev, const T &req, std::set<int> errnos)
{
	auto arg = std::make_shared<T>(req);
	return {name, std::move(errnos), [=] { *arg = req; }, [=] { return -raw::call(dev, cmd, *arg); },
		[=](int) {
			*arg = req;
			const int err = raw::call(dev, cmd, *arg);
			return err ? "undisturbed: errno " + std::to_string(-err) : std::string();
		}};
}

Call opening(const std::string &node)
{
	return {"open and close",
		{ENOMEM, EFAULT},
		nothing,
		[=] {
			const int fd = ::open(node.c_str(), O_RDWR | O_CLOEXEC);
			if (fd < 0)
				return errno;
			::close(fd);
			return 0;
		},
		[=](int) {
			::close(raw::open_file(node));
			return std::string();
		}};
}

/// Closes an open file with a mapped buffer and a registered file.
Call closing(int target)
{
	auto dev = std::make_shared<int>();
	auto full = std::make_shared<uint64_t>();
	return {"close of one that owns a buffer and a file",
		{},
		[=] {
			*dev = raw::open_device();
			*full = raw::provider(*dev).out_available;
			if (!raw::alloc(*dev, provider_id, 64 * kib).out_buf_id || !raw::add_file(*dev, target))
				raw::die("a buffer and a file");
		},
		[=] {
			// Makes a call that can fail first, so that a fault in this step can trigger too.
			auto info = raw::sized<peerdma_info>();
			raw::call(*dev, PEERDMA_INFO, info);
			return ::close(*dev) ? errno : 0;
		},
		[=](int) {
			const int now = raw::open_device();
			const bool back = raw::provider(now).out_available == *full;
			::close(now);
			return back ? std::string() : "not all of the buffer is back";
		}};
}

Call allocating(int dev)
{
	auto req = std::make_shared<peerdma_buf_alloc>();
	auto before = std::make_shared<uint64_t>();
	return {"PEERDMA_BUF_ALLOC",
		{ENOMEM, EFAULT},
		[=] {
			*before = raw::provider(dev).out_available;
			*req = raw::sized<peerdma_buf_alloc>();
			req->provider_id = provider_id;
			req->len = 4096;
		},
		[=] { return -raw::call(dev, PEERDMA_BUF_ALLOC, *req); },
		[=](int err) -> std::string {
			if (err && req->out_buf_id)
				return "an id with an error";
			if (!err && raw::destroy(dev, req->out_buf_id))
				return "an id of nobody";
			const uint32_t id = raw::alloc(dev, provider_id, 4096).out_buf_id;
			if (!id || raw::destroy(dev, id))
				return "undisturbed it fails";
			return raw::provider(dev).out_available == *before ? "" : "the pool is not as full as before";
		}};
}

/// The first buffer of a user: the module records the payer.
Call allocating_as_user(int dev)
{
	Call call = allocating(dev);
	auto become = [](uid_t uid) {
		if (::setreuid(uid, uid_t(-1)))
			raw::die("setreuid");
	};
	call.name += ", the first of a user";
	call.prepare = [=, prepare = call.prepare] {
		prepare();
		become(1000);
	};
	call.judge = [=, judge = call.judge](int err) {
		const std::string complaint = judge(err);
		become(0);
		return complaint;
	};
	return call;
}

/// Removes a buffer or a file: after EFAULT it may be gone.
Call removing(const std::string &name, unsigned long cmd, int dev, const std::function<uint32_t()> &make)
{
	auto req = std::make_shared<peerdma_destroy>();
	return {name,
		{EFAULT},
		[=] {
			*req = raw::sized<peerdma_destroy>();
			req->id = make();
		},
		[=] { return -raw::call(dev, cmd, *req); },
		[=](int err) -> std::string {
			const int then = raw::call(dev, cmd, *req);
			if (then != -ENOENT && (then || !err))
				return "a second time: errno " + std::to_string(-then);
			req->id = make();
			return raw::call(dev, cmd, *req) ? "undisturbed it fails" : "";
		}};
}

Call adding(int dev, int target)
{
	auto req = std::make_shared<peerdma_file_add>();
	auto remove = [dev](uint32_t id) {
		auto gone = raw::sized<peerdma_destroy>();
		gone.id = id;
		return raw::call(dev, PEERDMA_FILE_REMOVE, gone);
	};
	return {"PEERDMA_FILE_ADD",
		{ENOMEM, EFAULT},
		[=] {
			*req = raw::sized<peerdma_file_add>();
			req->fd = target;
		},
		[=] { return -raw::call(dev, PEERDMA_FILE_ADD, *req); },
		[=](int err) -> std::string {
			if (!err && remove(req->out_file_id))
				return "an id of nobody";
			const uint32_t id = raw::add_file(dev, target);
			return id && !remove(id) ? "" : "undisturbed it fails";
		}};
}

/// Creates a dma-buf, its descriptor and its reference to the buffer.
Call exporting(int dev)
{
	auto req = std::make_shared<peerdma_buf_export>();
	auto lowest = std::make_shared<int>(-1); // the lowest free descriptor
	auto spoil = [=](uint32_t id) {
		*req = raw::sized<peerdma_buf_export>();
		req->buf_id = id;
		req->len = 8192;
	};
	return {"PEERDMA_BUF_EXPORT",
		{ENOMEM, EFAULT},
		[=] { spoil(raw::alloc(dev, provider_id, 8192).out_buf_id); },
		[=] {
			*lowest = ::dup(dev);
			::close(*lowest);
			return -raw::call(dev, PEERDMA_BUF_EXPORT, *req);
		},
		[=](int err) -> std::string {
			const uint32_t id = req->buf_id;
			if (!err && ::close(req->out_fd))
				return "a descriptor of nobody";
			spoil(id);
			if (raw::call(dev, PEERDMA_BUF_EXPORT, *req) || ::close(req->out_fd))
				return "undisturbed it fails";
			if (raw::destroy(dev, id))
				return "the buffer is gone";
			return req->out_fd > *lowest ? "a descriptor is lost" : "";
		}};
}

/// The answer is data: it may say ENOMEM but no false reason.
Call explaining(int dev, int target)
{
	auto req = std::make_shared<peerdma_file_query>();
	auto spoil = [=] {
		*req = raw::sized<peerdma_file_query>();
		req->fd = target;
		req->provider_id = provider_id;
	};
	return {"PEERDMA_FILE_QUERY",
		{ENOMEM, EFAULT},
		spoil,
		[=] {
			const int err = raw::call(dev, PEERDMA_FILE_QUERY, *req);
			return err ? -err : int(req->out_errno);
		},
		[=](int) -> std::string {
			if (req->out_reason)
				return "reason " + std::to_string(req->out_reason);
			spoil();
			const int err = raw::call(dev, PEERDMA_FILE_QUERY, *req);
			return err || req->out_errno || req->out_map == PEERDMA_MAP_NONE ? "undisturbed: no route" : "";
		}};
}

/// Maps the buffer far from other mappings, so that it needs page tables; touches two places with the CPU; unmaps. The
/// kernel retries a page fault that fails for lack of memory.
Call mapping(int dev)
{
	auto got = std::make_shared<peerdma_buf_alloc>(raw::alloc(dev, provider_id, 256 * kib));
	auto touch = [=] {
		void *const far = reinterpret_cast<void *>(1ULL << 40);
		auto *at = static_cast<char *>(
			::mmap(far, got->len, PROT_READ | PROT_WRITE, MAP_SHARED, dev, off_t(got->out_mmap_offset)));
		if (at == MAP_FAILED)
			return errno;
		static_cast<volatile char *>(at)[0] = 1;
		static_cast<volatile char *>(at)[128 * kib] = 2;
		int err = 0;
		while (::munmap(at, got->len))
			err = errno;
		return err;
	};
	return {"mmap, faults, munmap", {ENOMEM}, nothing, touch, [=](int) {
			return touch() ? std::string("undisturbed it fails") : std::string();
		}};
}

Call reading(const std::string &path)
{
	auto read = [=] {
		char text[4096];
		const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return errno;
		const int err = ::read(fd, text, sizeof(text)) > 0 ? 0 : errno;
		::close(fd);
		return err;
	};
	return {"reading " + path.substr(0, path.find_last_of('/')), {ENOMEM, EFAULT}, nothing, read, [=](int) {
			return read() ? std::string("undisturbed it fails") : std::string();
		}};
}

// --- The table: moving bytes

/// fresh: no route is cached, so the stack below the file is examined again.
Call moving(ways::Witness &witness, Way way, const ways::Request &req, const std::string &how, bool fresh = false)
{
	auto answer = std::make_shared<ways::Answer>();
	const bool worker = way == Way::worker || way == Way::pieces_worker;
	std::set<int> errnos = {ENOMEM, EFAULT};
	if (fresh && way != Way::fd)
		errnos.insert(ECANCELED); // returned by io_uring if it cannot create a worker
	if (!worker && way != Way::fd && way != Way::id && way != Way::proxy)
		errnos.insert(EAGAIN); // returned by io_uring_enter() if it cannot allocate a command
	return {std::string(req.write ? "write" : "read") + " " + ways::name(way) + how,
		errnos,
		[=, &witness] {
			witness.begin(req);
			if (fresh)
				put(disk + "/queue/nomerges", "0"); // resets the merge guard, which drops the route
		},
		[=, &witness] {
			*answer = witness.mover.move(way, req);
			return answer->err;
		},
		[=, &witness](int) {
			std::string complaint = witness.judge(*answer);
			if (!answer->err && !answer->bytes())
				complaint += "neither moved nor failed";
			return complaint.empty() ? witness.again(way) : complaint;
		},
		worker};
}

constexpr uint64_t file_len = 64 * kib, buf_len = 96 * kib;
const ways::Request whole = {false, 4096, 8192, 16384}, odd = {false, 1001, 777 + 1024, 9000},
		    misplaced = {false, 4096, 8193, 9000};

std::vector<Call> moves(ways::Witness &witness, bool write)
{
	auto call = [&](Way way, ways::Request req, const char *how = "", bool fresh = false) {
		req.write = write;
		return moving(witness, way, req, how, fresh);
	};
	std::vector<Call> calls = {
		call(Way::fd, whole, ", no route yet", true),
		call(Way::fd, whole),
		call(Way::fd, odd, ", odd places"),
		call(Way::fd, misplaced, ", misplaced in the buffer"),
		call(Way::id, whole),
		call(Way::ring, whole),
		call(Way::ring_id, whole),
		call(Way::worker, whole),
		call(Way::worker, odd, ", odd places"),
		call(Way::pieces, whole),
		call(Way::pieces_worker, whole),
	};
	if (!raw::by_software()) // a plain system call cannot reach the pages there
		calls.push_back(call(Way::proxy, whole));
	return calls;
}

// --- The table: providers

bool is_bound() { return ::access((device + "/driver").c_str(), F_OK) == 0; }

void unbind()
{
	if (is_bound() && !tell(device + "/driver/unbind", device_name))
		raw::die("unbind");
}

void bind()
{
	if (!is_bound() && !tell("/sys/bus/pci/drivers/peerdma/bind", device_name))
		raw::die("bind");
}

/// Writes a name to a driver's file that is already open.
int tell_driver(int fd) { return ::pwrite(fd, device_name.data(), device_name.size(), 0) < 0 ? errno : 0; }

Call binding()
{
	const int fd = ::open("/sys/bus/pci/drivers/peerdma/bind", O_WRONLY | O_CLOEXEC);
	return {"bind",
		{ENOMEM, EFAULT},
		unbind,
		[=] { return tell_driver(fd); },
		[](int err) -> std::string {
			if (is_bound() != !err)
				return err ? "bound" : "not bound";
			bind();
			return "";
		}};
}

peerdma_publish to_publish()
{
	auto req = raw::sized<peerdma_publish>();
	unsigned bus, slot, function;
	if (std::sscanf(device_name.c_str(), "%x:%x:%x.%x", &req.pci_domain, &bus, &slot, &function) != 4)
		raw::die(device_name);
	req.pci_bdf = bus << 8 | slot << 3 | function;
	req.bar = 2;
	req.len = 2 << 20; // the minimum: all its pages are created and destroyed each time
	return req;
}

/// Allocates all published memory as one buffer and frees it.
std::string use_all(int dev)
{
	const auto provider = raw::provider(dev);
	const auto got = raw::alloc(dev, provider.out_provider_id, provider.out_len);
	if (!got.out_buf_id || raw::destroy(dev, got.out_buf_id))
		return "no buffer of all of it";
	if (get(device + "/p2pmem/available") != get(device + "/p2pmem/size"))
		return "the pool is not full";
	return "";
}

bool has_provider(int dev)
{
	auto query = raw::sized<peerdma_provider_query>();
	return !raw::call(dev, PEERDMA_PROVIDER_QUERY, query);
}

Call publishing(int dev)
{
	auto req = std::make_shared<peerdma_publish>();
	return {"PEERDMA_PUBLISH",
		{ENOMEM, EFAULT, EBUSY},
		[=] {
			unbind();
			bind();
			*req = to_publish();
		},
		[=] { return -raw::call(dev, PEERDMA_PUBLISH, *req); },
		[=](int err) -> std::string {
			if (err && req->out_provider_id)
				return "an id with an error";
			// After EFAULT the memory may still have been published.
			const bool there = has_provider(dev);
			if (err != EFAULT && there != !err)
				return there ? "published, with an error" : "not published, without one";
			*req = to_publish();
			const int again = -raw::call(dev, PEERDMA_PUBLISH, *req);
			if (again != (there ? EEXIST : 0))
				return "undisturbed: errno " + std::to_string(again);
			return use_all(dev);
		}};
}

Call unbinding(int dev)
{
	const int fd = ::open("/sys/bus/pci/drivers/peerdma/unbind", O_WRONLY | O_CLOEXEC);
	return {"unbind of a provider with a buffer",
		{ENOMEM, EFAULT},
		[=] {
			bind();
			auto req = to_publish();
			raw::call(dev, PEERDMA_PUBLISH, req);
			if (!raw::alloc(dev, raw::provider(dev).out_provider_id, 4096).out_buf_id)
				raw::die("a buffer");
		},
		[=] { return tell_driver(fd); },
		[=](int err) -> std::string {
			if (is_bound() != (err != 0))
				return err ? "gone, with an error" : "still there";
			unbind();
			return has_provider(dev) ? "the provider is still there" : "";
		}};
}

/// The first request of a provider and a disk, which allocates their counters.
Call reading_first(int dev, int target)
{
	auto req = std::make_shared<peerdma_io>();
	return {"the first read of a provider",
		{ENOMEM},
		[=] {
			unbind();
			bind();
			auto publish = to_publish();
			raw::call(dev, PEERDMA_PUBLISH, publish);
			*req = raw::io(target, raw::alloc(dev, publish.out_provider_id, 4096).out_buf_id, 0, 0, 4096);
		},
		[=] { return -raw::call(dev, PEERDMA_READ, *req); },
		[=](int err) -> std::string {
			if (req->out_done != (err ? 0 : 4096))
				return std::to_string(req->out_done) + " bytes";
			const int again = -raw::call(dev, PEERDMA_READ, *req);
			return again ? "undisturbed: errno " + std::to_string(again) : "";
		}};
}

// --- The run

bool unload() { return !::syscall(SYS_delete_module, "peerdma", O_NONBLOCK); }

int load()
{
	const int fd = ::open(std::getenv("LAB_MODULE"), O_RDONLY | O_CLOEXEC);
	const int err = ::syscall(SYS_finit_module, fd, "", 0) ? errno : 0;
	::close(fd);
	return err;
}

/// Allocations by this kernel function fail while the module loads. Nothing of the module may remain, and then it must
/// load.
void loading(const std::string &function)
{
	if (!unload())
		raw::die("unloading");
	only(function);
	Threads threads({"/proc/thread-self"});
	threads.arm(1);
	const int err = load();
	const bool used = threads.used();
	everything_again();
	const bool gone = ::access("/sys/module/peerdma", F_OK) && ::access((debugfs + "peerdma").c_str(), F_OK) &&
			  ::access("/sys/bus/pci/drivers/peerdma", F_OK);
	const int again = load();
	tap::report(used && (err == ENOMEM || err == EBUSY) && gone && !again,
		    "loading, nothing from " + function + "(): errno " + std::to_string(err),
		    std::string(used ? "" : "nothing was made to fail; ") + (gone ? "" : "something is left; ") +
			    "then: errno " + std::to_string(again));
}

void prepare_faults()
{
	for (const char *fault : faults) {
		put(debugfs + fault + "/verbose", "0");
		put(debugfs + fault + "/task-filter", "Y");
		put(debugfs + fault + "/times", "-1");
	}
	put(debugfs + "failslab/ignore-gfp-wait", "N");
	put(debugfs + "fail_page_alloc/ignore-gfp-wait", "N");
	put(debugfs + "fail_page_alloc/min-order", "0");
	// With a failure here DMA debugging would disable itself for all later tests.
	if (!spare("failslab", "add_dma_entry") || !spare("fail_page_alloc", "add_dma_entry"))
		std::printf("# the checks of the DMA API may be off from here on\n");
	// On one CPU, the allocations of a call are the same each time.
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (::sched_setaffinity(0, sizeof(one), &one))
		raw::die("one CPU");
}

void ioctls(int dev, int target)
{
	// With 63 ids in use, one of them by mapping(), the next id needs a new xarray node: one more allocation.
	std::vector<uint32_t> mine;
	for (int i = 0; i < 62; i++)
		mine.push_back(raw::alloc(dev, provider_id, 4096).out_buf_id);
	auto query = raw::sized<peerdma_provider_query>();
	const std::vector<Call> calls = {
		opening("/dev/peerdma"),
		closing(target),
		plain("PEERDMA_INFO", PEERDMA_INFO, dev, raw::sized<peerdma_info>(), {EFAULT}),
		plain("PEERDMA_PROVIDER_QUERY", PEERDMA_PROVIDER_QUERY, dev, query, {EFAULT}),
		allocating(dev),
		allocating_as_user(dev),
		removing("PEERDMA_DESTROY", PEERDMA_DESTROY, dev,
			 [=] { return raw::alloc(dev, provider_id, 4096).out_buf_id; }),
		adding(dev, target),
		removing("PEERDMA_FILE_REMOVE", PEERDMA_FILE_REMOVE, dev, [=] { return raw::add_file(dev, target); }),
		exporting(dev),
		explaining(dev, target),
		mapping(dev),
		reading("/proc/self/fdinfo/" + std::to_string(dev)),
		reading(debugfs + "peerdma/stats"),
	};
	for (const auto &call : calls)
		one_by_one(call);
	none_for("alloc_anon_inode", opening("/dev/peerdma" + std::to_string(provider_id)));
	from_some_point_on(allocating(dev), 256);
	none_for("__xa_alloc_cyclic", allocating(dev));
	none_for("__xa_insert", allocating_as_user(dev));
	from_some_point_on(adding(dev, target), 32);
	from_some_point_on(explaining(dev, target), 1024);
	bool lost = false;
	for (uint32_t id : mine)
		lost |= raw::destroy(dev, id) != 0;
	tap::report(!lost, "every other buffer is still there");
}

void all_moves(int dev, const std::string &path)
{
	ways::Witness witness(dev, provider_id, path, file_len, buf_len);
	for (const auto &call : moves(witness, false))
		one_by_one(call);
	for (const auto &req : {whole, odd, misplaced})
		from_some_point_on(moving(witness, Way::fd, req, ", length " + std::to_string(req.len), true), 1024);
	from_some_point_on(moving(witness, Way::pieces, whole, ""), 64);
	// The witness compares with the guest's view. Look once from outside to confirm that view.
	witness.begin(whole);
	witness.mover.move(Way::fd, whole);
	tap::report(tap::gpu_is(witness.mover.bar_off() + whole.buf_off, whole.len, "pattern:1", whole.file_off),
		    "what was read is what the host sees");
	for (const auto &call : moves(witness, true))
		one_by_one(call);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const std::string path = argv[1];
	device = argv[2];
	device_name = device.substr(device.find_last_of('/') + 1);
	disk = argv[3];
	prepare_faults();

	int dev = raw::open_device();
	provider_id = raw::provider(dev).out_provider_id;
	const int target = raw::open_file(path, O_RDONLY);
	const uint64_t full = raw::provider(dev).out_available;
	ioctls(dev, target);
	all_moves(dev, path);
	::close(dev);
	dev = raw::open_device();
	tap::report(raw::provider(dev).out_available == full &&
			    get(device + "/p2pmem/available") == get(device + "/p2pmem/size"),
		    "the pool is full");
	unbind();
	one_by_one(binding());
	// x86 assumes that allocations of page tables succeed.
	if (!spare("fail_page_alloc", "alloc_low_pages"))
		raw::die("alloc_low_pages");
	one_by_one(publishing(dev));
	none_for("__xa_alloc_cyclic", publishing(dev));
	one_by_one(unbinding(dev));
	only("peerdma_pair_get");
	one_by_one(reading_first(dev, target));
	everything_again();
	none_for("__xa_insert", reading_first(dev, target));
	unbind();
	::close(dev);
	// The RDMA module holds a reference to this one, and loading does not depend on the drive.
	if (std::getenv("FAR_nvme0"))
		return tap::end();
	for (const char *function : {"__alloc_workqueue", "kern_mount", "driver_register", "class_register",
				     "__register_chrdev", "__pci_register_driver", "misc_register"})
		loading(function);
	return tap::end();
}
