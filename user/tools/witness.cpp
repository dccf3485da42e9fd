// SPDX-License-Identifier: MIT
//
// Which way did the bytes of a process go? PeerDMA's own tracepoints say what it claims, the block layer's
// what devices were asked to move. Who reads a hole, or is served by a cache, claims what nobody moved.

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "witness.hpp"

namespace cli
{
namespace
{

constexpr const char *blind_spots[] = {
	"what a device did with a command after it was queued: QEMU's or a bus analyser's trace shows that",
	"bios that a thread of the kernel submits for the process, such as those of a stacked device's workers",
	"children that the process had before it was attached to",
	"whether the CPU copied bytes that a device moved as well",
};

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

uint64_t number(std::string_view text)
{
	uint64_t value = 0;
	std::from_chars(text.data(), text.data() + text.size(), value);
	return value;
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
	else if (parsed->event == "block_bio_queue")
		bio(*parsed);
}

void Witness::begin(const TraceLine &line)
{
	running_[line.tid] = {key_of(line.text), line.text.starts_with("write"), {}};
}

// "259,0 R 2048 + 8 [pdio]"
void Witness::bio(const TraceLine &line)
{
	const auto request = running_.find(line.tid);
	if (request == running_.end())
		return;
	const std::string text(line.text);
	unsigned major, minor, sectors;
	unsigned long long sector;
	char how[16];
	if (std::sscanf(text.c_str(), "%u,%u %15s %llu + %u", &major, &minor, how, &sector, &sectors) != 5)
		return;
	// M: the filesystem reads its own maps. F alone is a flush, without sectors.
	if (!std::strchr(how, request->second.write ? 'W' : 'R') || std::strchr(how, 'M'))
		return;
	const std::string dev = fmt::format("{}:{}", major, minor);
	if (is_leaf_(dev))
		request->second.moved[dev] += uint64_t{sectors} * 512;
}

void Witness::end(const TraceLine &line)
{
	const std::string key = key_of(line.text);
	Testimony &file = files_[key];
	const uint64_t done = number(word(line.text, "done")), direct = number(word(line.text, "direct"));
	const bool failed = word(line.text, "error") != "0";

	file.requests++;
	file.refused += failed && word(line.text, "reason") != "0";
	file.failed += failed && word(line.text, "reason") == "0";
	file.direct += direct;
	file.near += number(word(line.text, "near"));
	file.host += number(word(line.text, "host"));
	const auto request = running_.find(line.tid);
	if (request == running_.end() || request->second.key != key) {
		half_seen_ += done != 0;
		return;
	}
	uint64_t moved = 0;
	for (const auto &[dev, bytes] : request->second.moved) {
		file.leaves[dev] += bytes;
		moved += bytes;
	}
	file.unmoved += direct > moved ? direct - moved : 0;
	running_.erase(request);
}

bool Witness::proved() const
{
	bool any = false;
	for (const auto &[key, file] : files_) {
		any = any || file.direct || file.near || file.host;
		if (file.unmoved)
			return false;
	}
	return any && !lost_ && !half_seen_ && running_.empty();
}

Report Witness::report(const std::function<std::string(const std::string &)> &name_of) const
{
	Report report;
	report.status = proved() ? exit_ok : exit_failed;
	report.json = {{"ok", true},
		       {"proved", proved()},
		       {"files", Json::array()},
		       {"lost_events", lost_},
		       {"half_seen", half_seen_ + running_.size()},
		       {"cannot_see", blind_spots}};
	for (const auto &[key, file] : files_) {
		char how[8], dev[32], ino[32], provider[32];
		if (std::sscanf(key.c_str(), "%7s %31s %31s %31s", how, dev, ino, provider) != 4)
			continue;
		Json leaves = Json::array();
		report.text += fmt::format("{} of inode {} on {} with provider {}: {} requests", how, ino, name_of(dev),
					   provider, file.requests);
		if (file.refused || file.failed)
			report.text += fmt::format(", {} refused, {} failed", file.refused, file.failed);
		report.text += fmt::format("\n  claimed    direct {}, near {}, host {} bytes\n", file.direct, file.near,
					   file.host);
		for (const auto &[leaf, bytes] : file.leaves) {
			leaves.push_back({{"dev", leaf}, {"name", name_of(leaf)}, {"bytes", bytes}});
			report.text += fmt::format("  moved      {} bytes by {}\n", bytes, name_of(leaf));
		}
		if (file.unmoved)
			report.text += fmt::format("  UNMOVED    {} bytes were claimed direct and no device moved "
						   "them: a hole of the file, or a copy from a cache\n",
						   file.unmoved);
		report.json["files"].push_back({{"direction", how},
						{"dev", dev},
						{"inode", number(ino)},
						{"provider", number(provider)},
						{"requests", file.requests},
						{"refused", file.refused},
						{"failed", file.failed},
						{"direct", file.direct},
						{"near", file.near},
						{"host", file.host},
						{"unmoved", file.unmoved},
						{"leaves", leaves}});
	}
	if (files_.empty())
		report.text += "no request was seen\n";
	if (lost_)
		report.text += fmt::format("{} events were lost: the process was faster than this command\n", lost_);
	if (half_seen_ + running_.size())
		report.text += fmt::format("{} requests were seen in part only\n", half_seen_ + running_.size());
	report.text += proved() ? "proved: devices moved every byte that was claimed direct\n" : "not proved\n";
	report.text += "what this command cannot see:\n";
	for (const char *spot : blind_spots)
		report.text += fmt::format("  {}\n", spot);
	return report;
}

// A partition has no folder of that name, a whole disk an empty one.
bool stands_on_no_other(peerdma_impl::Env &env, const std::string &dev)
{
	std::vector<std::string> slaves;
	return env.list_dir("/sys/dev/block/" + dev + "/slaves", slaves) < 0 || slaves.empty();
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
				      file == "events/peerdma/enable" ? "Load the module first." : "",
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

std::string threads_of(peerdma_impl::Env &env, int pid)
{
	std::vector<std::string> threads;
	const int rc = env.list_dir(fmt::format("/proc/{}/task", pid), threads);
	if (rc < 0 || threads.empty())
		throw Failure{fmt::format("there is no process {}", pid), rc < 0 ? -rc : ESRCH, 0, "", {}};
	return fmt::format("{}", fmt::join(threads, " "));
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
	if (pid)
		return pid;
	char go;
	::close(gate[1]);
	if (::read(gate[0], &go, 1) != 1)
		::_exit(127);
	if (quiet)
		::dup2(2, 1);
	::execvp(argv[0], argv.data());
	std::fprintf(stderr, "peerdma: cannot run %s: %s\n", argv[0], std::strerror(errno));
	::_exit(127);
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

} // namespace

Report witness(const WitnessOptions &options)
{
	if (options.pid.has_value() != options.command.empty())
		throw Usage{"name a process, or a command after --"};
	auto &env = peerdma_impl::system_env();
	const std::string tracefs = find_tracefs(env);
	const std::string threads = options.pid ? threads_of(env, *options.pid) : "";

	const Signals signals;
	Instance instance(env, tracefs);
	instance.set("buffer_size_kb", "4096");
	instance.set("options/event-fork", "1");
	int gate[2] = {-1, -1};
	const int pid = options.pid ? *options.pid : start(options.command, options.json, gate);
	Fd wait_end(gate[0]), go_end(gate[1]);
	const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
	if (process.get() < 0)
		throw Failure{fmt::format("cannot watch process {}", pid), errno, 0, "", {}};
	instance.set("set_event_pid", options.pid ? threads : std::to_string(pid));
	instance.set("events/peerdma/enable", "1");
	instance.set("events/block/block_bio_queue/enable", "1");

	Witness seen([&](const std::string &dev) { return stands_on_no_other(env, dev); });
	int status = 0;
	{
		const Fd pipe(::open((instance.path() + "/trace_pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
		if (pipe.get() < 0)
			throw Failure{fmt::format("cannot read {}/trace_pipe", instance.path()), errno, 0, "", {}};
		if (go_end.get() >= 0 && ::write(go_end.get(), "g", 1) != 1)
			throw Failure{"cannot start the command", errno, 0, "", {}};
		listen(seen, pipe.get(), process.get());
	}
	Report report = seen.report([&](const std::string &dev) {
		std::string target;
		return env.read_link("/sys/dev/block/" + dev, target) < 0 ? dev : target.substr(target.rfind('/') + 1);
	});
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
