// SPDX-License-Identifier: MIT
//
// Which way did the bytes of a process go? PeerDMA's own tracepoints say what it claims, the block layer's what
// devices were asked to move. Who reads a hole, or is served by a cache, claims what nobody moved.

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "output.hpp"
#include "witness.hpp"

namespace cli
{
namespace
{

constexpr const char *blind_spots[] = {
	"what a device did with a command after it was issued: QEMU's or a bus analyser's trace shows that",
	"a hole of up to two blocks in a request that has partial blocks at its ends: those are moved whole",
	"which leaf of a mirror missed what another moved twice",
	"children that the process had before it was attached to",
	"whether the CPU copied bytes that a device moved as well",
	"what moved bytes of NFS: no disk of this machine does",
};

// Why nobody is known to have moved what was claimed to come straight: no ...
constexpr const char *unmoved_by_any = "device moved them: a hole of the file, or a copy from a cache";
constexpr const char *unseen = "disk of this machine did: they are NFS's, and this command cannot see what moved them";

// PeerDMA's priority hint is 512 and the provider's number modulo 512; the block layer keeps it in these bits.
constexpr uint64_t our_hint = 512;
constexpr const char *our_commands = "ioprio & 4096";

// The value of "key=" in an event's text; the kernel writes no spaces in them.
std::string_view word(std::string_view text, std::string_view key)
{
	for (size_t at = 0; (at = text.find(key, at)) != std::string_view::npos; at++) {
		const size_t value = at + key.size();
		if ((at == 0 || text[at - 1] == ' ') && value < text.size() && text[value] == '=')
			return text.substr(value + 1, text.find(' ', value) - value - 1);
	}
	return {};
}

// A file's device, where that is no disk: of what the module carries, NFS.
bool is_share(const std::string &dev) { return dev.starts_with("0:"); }

uint64_t number(std::string_view text)
{
	uint64_t value = 0;
	std::from_chars(text.data(), text.data() + text.size(), value);
	return value;
}

uint64_t sum_of(const Moved &moved)
{
	uint64_t sum = 0;
	for (const auto &[dev, bytes] : moved)
		sum += bytes;
	return sum;
}

std::string key_of(std::string_view text)
{
	return fmt::format("{} {} {} {}", text.substr(0, text.find(' ')), word(text, "dev"), word(text, "ino"),
			   word(text, "provider"));
}

} // namespace

// "            pdio-123     [001] .....    12.345678: peerdma_submit: read dev=..." The name is padded to
// 16 columns and never longer, and may hold anything: what follows it is the kernel's.
std::optional<TraceLine> parse_trace(std::string_view line)
{
	constexpr size_t name_width = 16;
	if (line.size() <= name_width || line[name_width] != '-')
		return std::nullopt;
	line.remove_prefix(name_width + 1);
	TraceLine out{};
	const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), out.tid);
	if (error != std::errc())
		return std::nullopt;
	line.remove_prefix(static_cast<size_t>(end - line.data()));
	const size_t time_end = line.find(": ");
	if (time_end == std::string_view::npos)
		return std::nullopt;
	line.remove_prefix(time_end + 2);
	const size_t event_end = line.find(": ");
	if (event_end == std::string_view::npos)
		return std::nullopt;
	out.event = line.substr(0, event_end);
	out.text = line.substr(event_end + 2);
	return out;
}

void Witness::hear(std::string_view line)
{
	// "CPU:0 [LOST 12 EVENTS]"
	if (const size_t at = line.find(" [LOST "); line.starts_with("CPU:") && at != std::string_view::npos) {
		lost_ += std::max<uint64_t>(number(line.substr(at + 7)), 1);
		return;
	}
	const auto parsed = parse_trace(line);
	if (!parsed)
		return;
	if (parsed->event == "peerdma_submit")
		begin(*parsed);
	else if (parsed->event == "peerdma_complete")
		end(*parsed);
	else if (parsed->event == "block_rq_issue")
		issue(*parsed);
	else if (parsed->event == "sched_process_fork")
		fork(*parsed);
}

// "comm=bash pid=12 child_comm=bash child_pid=13": a name may hold anything, a number behind it nothing else.
void Witness::fork(const TraceLine &line)
{
	const size_t at = line.text.rfind(" child_pid=");
	if (at != std::string_view::npos && watched_.count(line.tid))
		watched_.insert(static_cast<int>(number(line.text.substr(at + 11))));
}

bool Witness::is_watched(std::string_view text) const
{
	return watched_.count(static_cast<int>(number(word(text, "pid")))) != 0;
}

void Witness::begin(const TraceLine &line)
{
	const bool write = line.text.starts_with("write");
	const bool watched = is_watched(line.text);
	const uint64_t provider = number(word(line.text, "provider"));

	if (!watched)
		pools_[{write, our_hint | provider % our_hint}].foreign = true;
	if (word(line.text, "async") != "1")
		running_[line.tid] = {key_of(line.text), write, watched, provider, {}};
	else if (watched)
		flying_.insert(number(word(line.text, "number")));
}

// "259,0 R 4096 () 2048 + 8 be,513,4 [pdio]"
void Witness::issue(const TraceLine &line)
{
	unsigned major, minor, bytes, sectors, hint;
	unsigned long long sector;
	char how[16], priority[16];
	if (std::sscanf(std::string(line.text).c_str(), "%u,%u %15s %u () %llu + %u %15[^,],%u", &major, &minor, how,
			&bytes, &sector, &sectors, priority, &hint) != 8 ||
	    !(hint & our_hint))
		return;
	const bool write = std::strchr(how, 'W') != nullptr;
	const std::string dev = fmt::format("{}:{}", major, minor);
	const auto request = running_.find(line.tid);
	if (request != running_.end() && request->second.write == write &&
	    (our_hint | request->second.provider % our_hint) == hint) {
		request->second.moved[dev] += bytes;
		return;
	}
	Pool &pool = pools_[{write, hint}];
	(watched_.count(line.tid) ? pool.own : pool.others)[dev] += bytes;
}

void Witness::end(const TraceLine &line)
{
	const bool async = word(line.text, "async") == "1";
	const std::string key = key_of(line.text);
	auto request = async ? running_.end() : running_.find(line.tid);
	if (request != running_.end() && request->second.key != key)
		request = running_.end();
	Moved moved;
	// A refusal has no other beginning, and no number.
	bool begun = word(line.text, "done") == "0" && (!async || word(line.text, "reason") != "0");
	if (const uint64_t flight = number(word(line.text, "number")); async && flight)
		begun = flying_.erase(flight) != 0;
	if (request != running_.end()) {
		moved = std::move(request->second.moved);
		running_.erase(request);
		begun = true;
	}
	if (!is_watched(line.text))
		return;
	begun_before_ += !begun;
	// The latter had to wait after all, and begins again.
	if (!begun || (async && word(line.text, "error") == "-11"))
		return;
	Testimony &file = files_[key];
	const bool failed = word(line.text, "error") != "0";
	const uint64_t direct = number(word(line.text, "direct")), near = number(word(line.text, "near"));
	file.write = line.text.starts_with("write");
	file.provider = number(word(line.text, "provider"));
	file.requests++;
	file.refused += failed && word(line.text, "reason") != "0";
	file.failed += failed && word(line.text, "reason") == "0";
	file.direct += direct;
	file.near += near;
	file.host += number(word(line.text, "host"));
	if (async)
		file.async += direct;
	else
		file.owed += direct + near - std::min(direct + near, sum_of(moved));
	for (const auto &[dev, bytes] : moved)
		file.leaves[dev] += bytes;
}

// A thread's own requests are not paid for by what it issued outside of them. Which of several files that share a
// pool came short is not known: the last.
std::map<std::string, uint64_t> Witness::unmoved() const
{
	std::map<Way, std::pair<uint64_t, uint64_t>> left;
	std::map<std::string, uint64_t> unmoved;
	auto take = [](uint64_t &from, uint64_t &need) {
		const uint64_t taken = std::min(from, need);
		from -= taken;
		need -= taken;
	};
	for (const auto &[way, pool] : pools_)
		left[way] = {sum_of(pool.own), pool.foreign ? 0 : sum_of(pool.others)};
	for (const auto &[key, file] : files_) {
		auto &[own, others] = left[{file.write, our_hint | file.provider % our_hint}];
		uint64_t async = file.async, owed = file.owed;
		take(own, async);
		take(others, async);
		take(others, owed);
		if (async + owed)
			unmoved[key] = async + owed;
	}
	return unmoved;
}

uint64_t Witness::unfinished() const
{
	return flying_.size() + static_cast<uint64_t>(std::count_if(running_.begin(), running_.end(),
								    [](const auto &r) { return r.second.watched; }));
}

bool Witness::proved() const
{
	return std::any_of(files_.begin(), files_.end(),
			   [](const auto &entry) {
				   return entry.second.direct || entry.second.near || entry.second.host;
			   }) &&
	       unmoved().empty() && !lost_ && !begun_before_ && !unfinished();
}

std::string Witness::verdict(const std::string &key, const Testimony &file) const
{
	if (unmoved().count(key))
		return "unproved";
	if (file.host)
		return file.direct || file.near ? "partly host" : "host";
	if (file.near)
		return file.direct ? "direct, edges near" : "near";
	if (file.direct)
		return "direct";
	return file.refused ? "refused" : file.failed ? "failed" : "nothing";
}

Report Witness::report(const std::function<std::string(const std::string &)> &name_of) const
{
	const auto short_of = unmoved();
	Report report;
	report.status = proved() ? exit_ok : exit_failed;
	report.json = {{"ok", true},
		       {"proved", proved()},
		       {"files", Json::array()},
		       {"pools", Json::array()},
		       {"lost_events", lost_},
		       {"begun_before", begun_before_},
		       {"unfinished", unfinished()},
		       {"cannot_see", blind_spots}};
	auto moved_json = [&](const Moved &moved) {
		Json list = Json::array();
		for (const auto &[dev, bytes] : moved)
			list.push_back({{"dev", dev}, {"name", name_of(dev)}, {"bytes", bytes}});
		return list;
	};
	for (const auto &[key, file] : files_) {
		char how[8], dev[32], ino[32], provider[32];
		if (std::sscanf(key.c_str(), "%7s %31s %31s %31s", how, dev, ino, provider) != 4)
			continue;
		const uint64_t missing = short_of.count(key) ? short_of.at(key) : 0;
		report.text += fmt::format("{} of inode {} on {} with provider {}: {} requests", how, ino, name_of(dev),
					   provider, file.requests);
		if (file.refused || file.failed)
			report.text += fmt::format(", {} refused, {} failed", file.refused, file.failed);
		report.text += fmt::format("\n  verdict    {}\n  claimed    direct {}, near {}, host {} bytes\n",
					   verdict(key, file), file.direct, file.near, file.host);
		for (const auto &[leaf, bytes] : file.leaves)
			report.text += fmt::format("  moved      {} bytes by {}\n", bytes, name_of(leaf));
		if (missing)
			report.text += fmt::format("  UNMOVED    {} bytes were claimed to come straight and no {}\n",
						   missing, is_share(dev) ? unseen : unmoved_by_any);
		report.json["files"].push_back({{"direction", how},
						{"dev", dev},
						{"name", name_of(dev)},
						{"inode", number(ino)},
						{"provider", file.provider},
						{"verdict", verdict(key, file)},
						{"requests", file.requests},
						{"refused", file.refused},
						{"failed", file.failed},
						{"direct", file.direct},
						{"near", file.near},
						{"host", file.host},
						{"unmoved", missing},
						{"leaves", moved_json(file.leaves)}});
	}
	for (const auto &[way, pool] : pools_) {
		if (pool.own.empty() && pool.others.empty())
			continue;
		Moved all = pool.own;
		for (const auto &[dev, bytes] : pool.others)
			all[dev] += bytes;
		const char *how = way.first ? "write" : "read";
		report.json["pools"].push_back(
			{{"direction", how}, {"leaves", moved_json(all)}, {"of_others_too", pool.foreign}});
		for (const auto &[dev, bytes] : all)
			report.text += fmt::format("{} by {} for requests sent without waiting, or by the kernel's "
						   "threads: {} bytes{}\n",
						   how, name_of(dev), bytes,
						   pool.foreign ? ", perhaps for other processes" : "");
	}
	if (files_.empty())
		report.text += "no request was seen\n";
	if (lost_)
		report.text += fmt::format("{} events were lost: the process was faster than this command\n", lost_);
	if (begun_before_ + unfinished())
		report.text += fmt::format("{} requests had begun before, {} had not ended: not counted\n",
					   begun_before_, unfinished());
	report.text +=
		proved() ? "proved: devices moved every byte that was claimed to come straight\n" : "not proved\n";
	report.text += "what this command cannot see:\n";
	for (const char *spot : blind_spots)
		report.text += fmt::format("  {}\n", spot);
	return report;
}

namespace
{

volatile std::sig_atomic_t interrupted;
void interrupt(int) { interrupted = 1; }

// While it lives the usual signals end the listening, not the command: it has something to clear away.
class Signals
{
public:
	Signals()
	{
		struct sigaction action = {};
		action.sa_handler = interrupt;
		interrupted = 0;
		for (size_t i = 0; i < numbers.size(); i++)
			sigaction(numbers[i], &action, &old_[i]);
	}
	~Signals()
	{
		for (size_t i = 0; i < numbers.size(); i++)
			sigaction(numbers[i], &old_[i], nullptr);
	}
	Signals(const Signals &) = delete;
	Signals &operator=(const Signals &) = delete;

private:
	static constexpr std::array numbers = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	std::array<struct sigaction, 4> old_;
};

class Fd
{
public:
	explicit Fd(int fd) : fd_(fd) {}
	~Fd() { reset(); }
	Fd(const Fd &) = delete;
	Fd &operator=(const Fd &) = delete;
	int get() const { return fd_; }
	void reset()
	{
		if (fd_ >= 0)
			::close(fd_);
		fd_ = -1;
	}

private:
	int fd_;
};

// A buffer of its own in tracefs, so that nobody else's tracing is disturbed. Gone with this object.
class Instance
{
public:
	Instance(peerdma_impl::Env &env, const std::string &tracefs)
		: env_(env), path_(fmt::format("{}/instances/peerdma-{}", tracefs, ::getpid()))
	{
		if (::mkdir(path_.c_str(), 0700) < 0)
			throw Failure{fmt::format("cannot make {}", path_),
				      errno,
				      0,
				      errno == EACCES || errno == EPERM ? "Tracing is for root: run it as root." : "",
				      {}};
	}
	// tracefs refuses to remove what is still open: descriptors of it are closed before.
	~Instance() { ::rmdir(path_.c_str()); }
	Instance(const Instance &) = delete;
	Instance &operator=(const Instance &) = delete;

	void set(const std::string &file, const std::string &value)
	{
		if (const int rc = env_.write_file(path_ + "/" + file, value); rc < 0)
			throw Failure{fmt::format("cannot write '{}' to {}/{}", value, path_, file),
				      -rc,
				      0,
				      file.starts_with("events/peerdma") ? "Load the module first." : "",
				      {}};
	}
	const std::string &path() const { return path_; }

private:
	peerdma_impl::Env &env_;
	const std::string path_;
};

std::string find_tracefs(peerdma_impl::Env &env)
{
	int rc = 0;
	for (const char *path : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
		rc = env.access(std::string(path) + "/instances", W_OK);
		if (rc == 0)
			return path;
		if (rc == -EACCES || rc == -EPERM)
			break;
	}
	throw Failure{"cannot trace",
		      -rc,
		      0,
		      rc == -ENOENT ? "As root, mount it: mount -t tracefs none /sys/kernel/tracing." :
				      "Tracing is for root: run it as root.",
		      {}};
}

std::set<int> threads_of(peerdma_impl::Env &env, int pid)
{
	std::vector<std::string> threads;
	const int rc = env.list_dir(fmt::format("/proc/{}/task", pid), threads);
	if (rc < 0 || threads.empty())
		throw Failure{fmt::format("there is no process {}", pid), rc < 0 ? -rc : ESRCH, 0, "", {}};
	std::set<int> ids = {pid};
	for (const std::string &thread : threads)
		ids.insert(static_cast<int>(number(thread)));
	return ids;
}

// In the child: wait until it is watched, then become the command.
[[noreturn]] void become(char *const *argv, bool quiet, const int (&gate)[2])
{
	char go;
	::close(gate[1]);
	if (::read(gate[0], &go, 1) == 1) {
		if (quiet)
			::dup2(2, 1);
		::execvp(argv[0], argv);
		complain(fmt::format("cannot run {}: {}", argv[0], std::strerror(errno)));
	}
	::_exit(127);
}

// A child that waits until it is watched. With quiet its output goes to standard error: standard output
// is for one JSON object.
int start(const std::vector<std::string> &command, bool quiet, int (&gate)[2])
{
	std::vector<char *> argv;
	for (const std::string &text : command)
		argv.push_back(const_cast<char *>(text.c_str()));
	argv.push_back(nullptr);
	if (::pipe2(gate, O_CLOEXEC) < 0)
		throw Failure{"cannot make a pipe", errno, 0, "", {}};
	const int pid = ::fork();
	if (pid < 0)
		throw Failure{"cannot start a process", errno, 0, "", {}};
	if (!pid)
		become(argv.data(), quiet, gate);
	return pid;
}

// Until the process has ended, or somebody interrupts; then what is still in the buffer.
void listen(Witness &witness, int pipe, int process)
{
	std::string pending;
	auto drain = [&] {
		char chunk[65536];
		ssize_t n;
		while ((n = ::read(pipe, chunk, sizeof(chunk))) > 0) {
			pending.append(chunk, static_cast<size_t>(n));
			size_t from = 0;
			for (size_t end; (end = pending.find('\n', from)) != std::string::npos; from = end + 1)
				witness.hear(std::string_view(pending).substr(from, end - from));
			pending.erase(0, from);
		}
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			throw Failure{"cannot read the trace", errno, 0, "", {}};
	};
	bool over = false;
	while (!over && !interrupted) {
		struct pollfd wait[] = {{process, POLLIN, 0}, {pipe, POLLIN, 0}};
		::poll(wait, 2, 100);
		over = wait[0].revents != 0;
		drain();
	}
	drain();
}

// A disk by its name, a share by where it is mounted; both by their number, if nobody here knows them.
std::string name_of(peerdma_impl::Env &env, const std::string &dev)
{
	std::string target, mounts;
	if (env.read_link("/sys/dev/block/" + dev, target) >= 0)
		return target.substr(target.rfind('/') + 1);
	env.read_file("/proc/self/mountinfo", mounts);
	std::istringstream lines(mounts);
	for (std::string line; std::getline(lines, line);) {
		std::istringstream words(line);
		std::string number, parent, device, root, where;
		words >> number >> parent >> device >> root >> where;
		if (device == dev)
			return where;
	}
	return dev;
}

} // namespace

Report witness(const WitnessOptions &options)
{
	if (options.pid.has_value() != options.command.empty())
		throw Usage{"name a process, or a command after --"};
	auto &env = peerdma_impl::system_env();
	const std::string tracefs = find_tracefs(env);
	if (options.pid)
		threads_of(env, *options.pid);

	const Signals signals;
	Instance instance(env, tracefs);
	instance.set("buffer_size_kb", "4096");
	int gate[2] = {-1, -1};
	const int pid = options.pid ? *options.pid : start(options.command, options.json, gate);
	Fd wait_end(gate[0]), go_end(gate[1]);
	const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
	if (process.get() < 0)
		throw Failure{fmt::format("cannot watch process {}", pid), errno, 0, "", {}};
	instance.set("events/block/block_rq_issue/filter", our_commands);
	for (const char *event :
	     {"sched/sched_process_fork", "block/block_rq_issue", "peerdma/peerdma_complete", "peerdma/peerdma_submit"})
		instance.set(fmt::format("events/{}/enable", event), "1");

	// Threads that began before forks were recorded are listed, those after are recorded, some are both.
	Witness seen(options.pid ? threads_of(env, pid) : std::set<int>{pid});
	int status = 0;
	{
		const Fd pipe(::open((instance.path() + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
		if (pipe.get() < 0)
			throw Failure{fmt::format("cannot read {}/trace_pipe", instance.path()), errno, 0, "", {}};
		if (go_end.get() >= 0 && ::write(go_end.get(), "g", 1) != 1)
			throw Failure{"cannot start the command", errno, 0, "", {}};
		listen(seen, pipe.get(), process.get());
	}
	Report report = seen.report([&](const std::string &dev) { return name_of(env, dev); });
	report.json["pid"] = pid;
	report.json["interrupted"] = interrupted != 0;
	if (!options.pid && ::waitpid(pid, &status, interrupted ? WNOHANG : 0) == pid) {
		const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		report.json["command_status"] = code;
		if (code)
			report.text += fmt::format("the command ended with status {}\n", code);
	}
	return report;
}

} // namespace cli
