// SPDX-License-Identifier: MIT
//
// peerdma witness: which route did the bytes of a process take? PeerDMA's tracepoints report its claims, those of the
// block layer report the commands to devices.

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/mountinfo.hpp"
#include "tools/cli/output.hpp"
#include "tools/system/fd.hpp"
#include "tools/trace/trace_reader.hpp"

namespace cli
{
namespace
{

volatile std::sig_atomic_t interrupted;
void interrupt(int) { interrupted = 1; }

// While it exists, the usual signals end the listening instead of the command, which must clean up.
class StopSignals
{
public:
	StopSignals()
	{
		struct sigaction action = {};
		action.sa_handler = interrupt;
		interrupted = 0;
		for (size_t i = 0; i < numbers.size(); i++)
			sigaction(numbers[i], &action, &old_[i]);
	}
	~StopSignals()
	{
		for (size_t i = 0; i < numbers.size(); i++)
			sigaction(numbers[i], &old_[i], nullptr);
	}
	StopSignals(const StopSignals &) = delete;
	StopSignals &operator=(const StopSignals &) = delete;

private:
	static constexpr std::array numbers = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	std::array<struct sigaction, 4> old_;
};

std::string find_tracefs(peerdma_impl::Syscalls &sys)
{
	int rc = 0;
	for (const char *path : {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}) {
		rc = sys.access(std::string(path) + "/instances", W_OK);
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

std::set<int> threads_of(peerdma_impl::Syscalls &sys, int pid)
{
	std::vector<std::string> threads;
	const int rc = sys.list_dir(fmt::format("/proc/{}/task", pid), threads);
	if (rc < 0 || threads.empty())
		throw Failure{fmt::format("there is no process {}", pid), rc < 0 ? -rc : ESRCH, 0, "", {}};
	std::set<int> ids = {pid};
	for (const std::string &thread : threads)
		ids.insert(static_cast<int>(std::atoi(thread.c_str())));
	return ids;
}

// In the child: waits until it is watched, then executes the command.
[[noreturn]] void exec_when_released(char *const *argv, bool quiet, const int (&gate)[2])
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

// Starts a child that waits until it is watched. With quiet its output goes to standard error: standard output contains
// only the JSON object.
int fork_command(const std::vector<std::string> &command, bool quiet, int (&gate)[2])
{
	std::vector<char *> argv;
	for (const std::string &text : command)
		argv.push_back(const_cast<char *>(text.c_str()));
	argv.push_back(nullptr);
	if (::pipe2(gate, O_CLOEXEC) < 0)
		throw Failure{"cannot create a pipe", errno, 0, "", {}};
	const int pid = ::fork();
	if (pid < 0)
		throw Failure{"cannot start a process", errno, 0, "", {}};
	if (!pid)
		exec_when_released(argv.data(), quiet, gate);
	return pid;
}

// Reads until the process has ended or a signal arrives, then the rest.
void read_trace(TraceReader &trace, TransferAudit &audit, int process)
{
	constexpr int pause_ms = 20; // the kernel's buffer has to have room for the events of this time
	bool over = false;
	while (!over && !interrupted) {
		struct pollfd end = {process, POLLIN, 0};
		::poll(&end, 1, trace.read(audit) ? 0 : pause_ms);
		over = end.revents != 0;
	}
	trace.finish(audit);
}

// The name of a disk, or the mount point of a share; the number if neither is known.
std::string name_of(peerdma_impl::Syscalls &sys, const std::string &dev)
{
	std::string target, mounts;
	if (sys.read_link("/sys/dev/block/" + dev, target) >= 0)
		return target.substr(target.rfind('/') + 1);
	sys.read_file("/proc/self/mountinfo", mounts);
	for (const peerdma_impl::Mount &mount : peerdma_impl::parse_mountinfo(mounts))
		if (mount.device == dev)
			return mount.point;
	return dev;
}

} // namespace

Report witness(const WitnessOptions &options)
{
	if (options.pid.has_value() != options.command.empty())
		throw Usage{"witness: expected a process id, or a command after --"};
	auto &sys = peerdma_impl::system_calls();
	const std::string tracefs = find_tracefs(sys);
	if (options.pid)
		threads_of(sys, *options.pid);

	const StopSignals signals;
	TraceReader trace(sys, tracefs, fmt::format("peerdma-{}", ::getpid()));
	int gate[2] = {-1, -1};
	const int pid = options.pid ? *options.pid : fork_command(options.command, options.json, gate);
	const Fd wait_end(sys, gate[0]), go_end(sys, gate[1]);
	const Fd process(sys, static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
	if (process.get() < 0)
		throw Failure{fmt::format("cannot watch process {}", pid), errno, 0, "", {}};
	trace.start();

	// Older threads are listed, threads created after the start of recording are in the trace; some are in both.
	TransferAudit audit(options.pid ? threads_of(sys, pid) : std::set<int>{pid});
	if (go_end.get() >= 0 && ::write(go_end.get(), "g", 1) != 1)
		throw Failure{"cannot start the command", errno, 0, "", {}};
	read_trace(trace, audit, process.get());
	int status = 0;
	Report report = audit.report([&](const std::string &dev) { return name_of(sys, dev); });
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
