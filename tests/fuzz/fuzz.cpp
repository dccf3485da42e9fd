// SPDX-License-Identifier: MIT
//
// fuzz run [OPTIONS]           random programs against the module, guided by coverage
// fuzz replay [OPTIONS] FILE.. programs from files, each REPEAT times
// fuzz decode IMAGE            prints the last programs in an image of the GPU's memory (on the host)
// fuzz grammar [FILE..]        checks that each ioctl of the module has a grammar, and that these files are programs
//                              (on the host)
//
// Options are NAME=VALUE: see struct Options. Prints TAP. Lines that begin with "#+" are programs worth keeping. An
// execution is one call of a program: one system call or one io_uring command.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../tools/raw.hpp"
#include "../tools/tap.hpp"
#include "recorder.hpp"
#include "team.hpp"

namespace
{

using namespace fuzz;
using Clock = std::chrono::steady_clock;

constexpr unsigned max_workers = 4;
constexpr std::chrono::seconds look_every(5); // between two checks of the invariants
constexpr size_t corpus_most = 4096;
// The number of successive programs in one world, watched by their results only: creating a world and reading KCOV cost
// more than the program itself. Must be below the number that a recorder keeps.
constexpr unsigned streak = 48;
static_assert(streak < Recorder::kept);
constexpr unsigned storms = 12; // per program: take about as long as all its other calls

struct Options {
	std::map<std::string, std::string> given;

	std::string text(const std::string &name) const { return given.count(name) ? given.at(name) : ""; }
	uint64_t number(const std::string &name, uint64_t usual) const
	{
		return text(name).empty() ? usual : std::stoull(text(name), nullptr, 0);
	}
};

/// Shared by the workers and the watcher.
struct Shared {
	Seen seen;
	struct Worker {
		std::atomic<uint64_t> executions, programs, kept;
		std::atomic<uint64_t> digest;
		std::atomic<unsigned> rounds; // completed rounds
		char wrong[8192];
	} workers[max_workers];
	std::atomic<unsigned> round; // the round that may run
	std::atomic<bool> over;
};

/// Allocated in memory shared with children.
Shared &make_shared()
{
	void *memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		raw::die("mmap");
	return *new (memory) Shared();
}

struct Corpus {
	std::vector<Program> programs;

	void read(const std::string &folder)
	{
		std::vector<std::filesystem::path> paths;
		for (const auto &entry : std::filesystem::directory_iterator(folder))
			if (entry.path().extension() == ".txt")
				paths.push_back(entry.path());
		std::sort(paths.begin(), paths.end());
		for (const auto &path : paths)
			for (const Program &program : load(path))
				programs.push_back(program);
	}

	/// Programs for one world, separated by empty lines.
	static std::vector<Program> load(const std::filesystem::path &path)
	{
		std::ifstream file(path);
		std::vector<Program> all;
		std::string text, why = "cannot be read";
		for (std::string line; std::getline(file, line) || !text.empty();) {
			text += line + "\n";
			if (file && !line.empty())
				continue;
			const auto program = parse(text, why);
			if (!program) {
				all.clear();
				break;
			}
			if (program->ncalls)
				all.push_back(*program);
			text.clear();
		}
		if (all.empty()) {
			std::fprintf(stderr, "%s: %s\n", path.c_str(), why.c_str());
			std::exit(1);
		}
		return all;
	}
};

class Worker
{
public:
	Worker(const Options &options, const Setup &setup, const std::string &bar, Shared &shared, unsigned which)
		: options_(options), shared_(shared), self_(shared.workers[which]), which_(which), team_(setup, which),
		  recorder_(bar, which),
		  mutator_(options.number("seed", 1) * 0x10001 + which, setup.alone ? 1 : max_threads),
		  guided_(Cover::possible() && !setup.alone), alone_(setup.alone)
	{
		if (!options.text("corpus").empty())
			committed_.read(options.text("corpus"));
		if (!options.text("more").empty())
			committed_.read(options.text("more"));
		if (setup.alone)
			std::erase_if(committed_.programs, [](const Program &p) { return p.threads() > 1; });
	}

	~Worker()
	{
		if (options_.number("costs", 0))
			std::fputs(team_.costs().c_str(), stdout);
	}

	/// Runs rounds until the end.
	void work()
	{
		const uint64_t most = options_.number("programs", ~0ULL);
		for (unsigned round = 1; !shared_.over; round++) {
			while (shared_.round < round && !shared_.over)
				::usleep(2000);
			round_end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(look_every);
			while (!shared_.over && self_.programs < most && Clock::now() < round_end_)
				one();
			team_.exit_rings();
			self_.rounds = round;
			if (self_.programs >= most)
				::usleep(2000);
		}
	}

private:
	Team::Outcome run(const Program &program, Look look)
	{
		recorder_.begin(program, false);
		return note(program, team_.run(program, guided_ ? look : Look::nothing));
	}

	Team::Outcome note(const Program &program, Team::Outcome outcome)
	{
		recorder_.done();
		self_.programs++;
		self_.executions = team_.executions();
		self_.digest = self_.digest * 31 + outcome.digest;
		if (!outcome.wrong.empty()) {
			std::snprintf(self_.wrong, sizeof(self_.wrong), "%s\n%s", outcome.wrong.c_str(),
				      text_of(program).c_str());
			// Keeps the recorded programs until Watch has read them and kills this process.
			for (;;)
				::pause();
		}
		return outcome;
	}

	void one()
	{
		Random &random = mutator_.random();
		if (next_committed_ < committed_.programs.size()) {
			keep_if_new(committed_.programs[next_committed_++], false);
		} else if (corpus_.empty() || random.one_in(12)) {
			keep_if_new(mutator_.fresh(), true);
		} else {
			const Program &parent = some_parent();
			if (guided_ && random.one_in(40))
				mutator_.learn(run(parent, Look::comparisons).comparisons);
			else
				keep_if_new(mutator_.child(parent, any()), true);
			if (!alone_)
				go_on();
		}
	}

	const Program &any() { return corpus_[mutator_.random().below(corpus_.size())]; }

	/// Prefers recent programs: new coverage is more likely near them.
	const Program &some_parent()
	{
		const size_t n = corpus_.size();
		return corpus_[std::max(mutator_.random().below(n), mutator_.random().below(n))];
	}

	/// Runs many programs in one world. A program with a new result runs again in a world of its own, with coverage
	/// and without its storms, which take too long for that.
	void go_on()
	{
		std::vector<std::pair<Program, std::vector<Signal>>> news;
		for (unsigned i = 0; i < streak && !shared_.over && Clock::now() < round_end_; i++) {
			const Program child = mutator_.child(some_parent(), any());
			Program program = child;
			for (unsigned n = 0; n < storms; n++)
				mutator_.add_storm(program);
			recorder_.begin(program, i > 0);
			const auto outcome = note(program, team_.go_on(program, Look::nothing));
			if (shared_.seen.has_news(outcome.signals))
				news.emplace_back(child, outcome.signals);
		}
		team_.leave_world();
		for (const auto &[program, signals] : news) {
			keep_if_new(program, true);
			shared_.seen.take(signals); // also results that depend on earlier programs: do not repeat them
		}
	}

	void keep_if_new(Program program, bool mine)
	{
		const auto fresh = shared_.seen.take(run(program, Look::places).signals);
		// A committed program is a parent even if it reaches nothing new.
		if ((fresh.empty() && mine) || corpus_.size() >= corpus_most)
			return;
		if (mine && program.threads() == 1)
			shorten(program, fresh);
		corpus_.push_back(program);
		self_.kept++;
		if (mine && options_.number("show", 0))
			show(program);
	}

	/// Removes calls that the new signals do not need.
	void shorten(Program &program, const std::vector<Signal> &fresh)
	{
		for (size_t i = program.ncalls; i-- > 0 && program.ncalls > 1;) {
			Program trial = program;
			trial.remove(i);
			const auto signals = run(trial, Look::places).signals;
			shared_.seen.take(signals);
			if (std::all_of(fresh.begin(), fresh.end(), [&](Signal s) {
				    return std::find(signals.begin(), signals.end(), s) != signals.end();
			    }))
				program = trial;
		}
	}

	void show(const Program &program)
	{
		std::istringstream lines(text_of(program));
		std::string text, line;
		while (std::getline(lines, line))
			text += "#+ " + std::to_string(which_) + " " + line + "\n";
		text += "#+ " + std::to_string(which_) + " .\n";
		// One write(), so that other output does not interleave.
		if (::write(1, text.data(), text.size()) < 0)
			std::exit(1);
	}

	const Options &options_;
	Shared &shared_;
	Shared::Worker &self_;
	unsigned which_;
	Team team_;
	Recorder recorder_;
	Mutator mutator_;
	const bool guided_, alone_;
	Clock::time_point round_end_;
	Corpus committed_;
	size_t next_committed_ = 0;
	std::vector<Program> corpus_;
};

uint64_t read_number(const std::string &path)
{
	std::ifstream file(path);
	uint64_t n = 0;
	file >> n;
	return n;
}

/// With no buffers left, checks that all of the provider's memory is free.
std::string lost_memory(const Setup &setup)
{
	const std::string pool = "/sys/bus/pci/devices/" + setup.gpu + "/p2pmem/";
	uint64_t size = 0, available = 0;
	for (int i = 0; i < 100; i++) { // an older kernel returns pages a little later
		size = read_number(pool + "size");
		available = read_number(pool + "available");
		if (size == available)
			return "";
		::usleep(100000);
	}
	return std::to_string(size - available) + " bytes of " + std::to_string(size) + " are lost";
}

/// A warning, an oops or a sanitizer report taints the kernel.
bool has_complained() { return read_number("/proc/sys/kernel/tainted") & (1 << 5 | 1 << 7 | 1 << 9); }

class Watch
{
public:
	Watch(const Options &options, const Setup &setup, const std::string &bar)
		: options_(options), setup_(setup),
		  jobs_(setup.alone ? 1 : unsigned(std::min<uint64_t>(options.number("jobs", 2), max_workers)))
	{
		for (unsigned i = 0; i < jobs_; i++) {
			const pid_t pid = ::fork();
			if (pid == 0) {
				catch_faults();
				Worker(options, setup, bar, shared_, i).work();
				std::fflush(stdout);
				std::_Exit(0);
			}
			pids_.push_back(pid);
		}
	}

	/// Watches the workers; returns the exit status.
	int watch()
	{
		const double seconds = double(options_.number("seconds", 60));
		const uint64_t programs = options_.number("programs", 0);
		const auto start = Clock::now();
		for (unsigned round = 1; failure_.empty(); round++) {
			shared_.round = round;
			wait_for(round);
			if (failure_.empty())
				failure_ = lost_memory(setup_);
			const double gone = std::chrono::duration<double>(Clock::now() - start).count();
			say(gone);
			if (programs ? done(programs) : gone >= seconds)
				break;
		}
		shared_.over = true;
		for (pid_t pid : pids_) {
			int status = 0;
			if (failure_.empty() && (::waitpid(pid, &status, 0) < 0 || status))
				failure_ = "a worker ended with status " + std::to_string(status);
			else
				::kill(pid, SIGKILL);
		}
		tap::report(failure_.empty(), "what no program may do did not happen", one_line(failure_));
		tap::report(sum(&Shared::Worker::executions) > 0, "something was executed");
		return tap::end();
	}

	uint64_t digest() const { return shared_.workers[0].digest; }

private:
	template <typename Member> uint64_t sum(Member member) const
	{
		uint64_t all = 0;
		for (unsigned i = 0; i < jobs_; i++)
			all += (shared_.workers[i].*member).load();
		return all;
	}

	bool done(uint64_t programs) const
	{
		for (unsigned i = 0; i < jobs_; i++)
			if (shared_.workers[i].programs < programs)
				return false;
		return true;
	}

	/// A worker without progress hangs in the kernel, or waits for a hanging task.
	void wait_for(unsigned round)
	{
		const double patience = double(options_.number("patience", 120));
		auto last = Clock::now();
		uint64_t before = 0;
		for (;;) {
			unsigned ended = 0;
			for (unsigned i = 0; i < jobs_; i++)
				ended += shared_.workers[i].rounds >= round;
			if (ended == jobs_)
				return;
			for (pid_t pid : pids_) {
				int status;
				if (::waitpid(pid, &status, WNOHANG) == pid) {
					failure_ = "a worker ended with status " + std::to_string(status);
					return;
				}
			}
			// Report at once: the programs recorded last are the cause.
			if (has_complained() && !complained_) {
				failure_ = "the kernel complains: see its log";
				return;
			}
			for (unsigned i = 0; i < jobs_; i++)
				if (shared_.workers[i].wrong[0]) {
					failure_ = shared_.workers[i].wrong;
					return;
				}
			const uint64_t programs = sum(&Shared::Worker::programs);
			if (programs != before)
				last = Clock::now();
			before = programs;
			if (std::chrono::duration<double>(Clock::now() - last).count() > patience) {
				failure_ = "a program does not end";
				return;
			}
			::usleep(10000);
		}
	}

	void say(double gone) const
	{
		const uint64_t executions = sum(&Shared::Worker::executions);
		std::printf(
			"# %.0f s: %lu executions, %.0f a second, %lu programs, %lu kept, %lu places, %lu results\n",
			gone, executions, double(executions) / gone, sum(&Shared::Worker::programs),
			sum(&Shared::Worker::kept), shared_.seen.nplaces, shared_.seen.nresults);
		if (options_.given.count("programs"))
			std::printf("# digest %lx\n", digest());
		std::fflush(stdout);
	}

	static std::string one_line(std::string text)
	{
		for (size_t at; (at = text.find('\n')) != std::string::npos;)
			text.replace(at, 1, "; ");
		return text;
	}

	const Options &options_;
	const Setup &setup_;
	const unsigned jobs_;
	Shared &shared_ = make_shared();
	const bool complained_ = has_complained(); // before the start
	std::vector<pid_t> pids_;
	std::string failure_;
};

/// Runs the programs of a file in one world repeatedly, with a digest of the results.
int replay(const Options &options, const Setup &setup, const std::string &bar, const std::vector<std::string> &files)
{
	catch_faults();
	Team team(setup, 0);
	Recorder recorder(bar, 0);
	const uint64_t repeat = options.number("repeat", 1);
	for (const std::string &file : files) {
		const std::vector<Program> programs = Corpus::load(file);
		const bool same = std::all_of(programs.begin(), programs.end(),
					      [](const Program &p) { return p.threads() == 1; });
		std::string wrong;
		uint64_t digest = 0;
		for (uint64_t i = 0; i < repeat && wrong.empty(); i++) {
			uint64_t before = digest;
			digest = 0;
			for (const Program &program : programs) {
				recorder.begin(program, &program != &programs.front());
				const auto outcome = team.go_on(program, Look::nothing);
				recorder.done();
				digest = digest * 31 + outcome.digest;
				if (!outcome.wrong.empty())
					wrong = outcome.wrong;
			}
			team.leave_world();
			if (i && same && digest != before)
				std::printf("# %s answered %lx before and %lx now\n", file.c_str(), before, digest);
		}
		std::printf("# digest %lx\n", digest);
		tap::report(wrong.empty(), std::filesystem::path(file).stem(), wrong);
	}
	team.exit_rings();
	if (options.number("costs", 0))
		std::fputs(team.costs().c_str(), stdout);
	const std::string lost = lost_memory(setup);
	tap::report(lost.empty(), "all memory is back in the pool", lost);
	return tap::end();
}

/// Interfaces of the module without a grammar: io_uring commands are not in the module's table.
std::string unknown_surface()
{
	std::string faults;
	const int dev = raw::open_device();
	io_uring ring;
	if (io_uring_queue_init(4, &ring, 0))
		raw::die("io_uring");
	for (uint32_t nr = 0; nr < 256; nr++) {
		const uint32_t cmd = _IO(PEERDMA_IOC_TYPE, nr);
		io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		io_uring_prep_nop(sqe);
		sqe->opcode = IORING_OP_URING_CMD;
		sqe->fd = dev;
		sqe->cmd_op = cmd;
		io_uring_cqe *cqe;
		if (io_uring_submit_and_wait(&ring, 1) < 0 || io_uring_peek_cqe(&ring, &cqe))
			raw::die("io_uring");
		if ((cqe->res == -ENOTTY) == knows_uring(cmd))
			faults += "io_uring command " + std::to_string(nr) + " ";
		io_uring_cqe_seen(&ring, cqe);
		const bool known = std::any_of(specs().begin(), specs().end(),
					       [&](const Spec &s) { return s.op && s.cmd == cmd; });
		uint32_t none[2] = {};
		if ((::ioctl(dev, cmd, none) == -1 && errno == ENOTTY) == known)
			faults += "ioctl " + std::to_string(nr) + " ";
	}
	io_uring_queue_exit(&ring);
	::close(dev);
	return faults;
}

/// Checks that each file is a program and that its text parses back to the same program. Returns the exit status.
int check_files(const std::vector<std::string> &files)
{
	for (const std::string &file : files) {
		for (const Program &program : Corpus::load(file)) {
			std::string why;
			const auto again = parse(text_of(program), why);
			if (again && text_of(*again) == text_of(program))
				continue;
			std::fprintf(stderr, "%s: its text is not the program again: %s\n", file.c_str(), why.c_str());
			return 1;
		}
	}
	return 0;
}

Setup setup_of(const Options &options)
{
	Setup setup;
	setup.ext4 = options.text("ext4");
	setup.xfs = options.text("xfs");
	setup.raw = options.text("raw");
	setup.stacked = options.text("stacked");
	setup.gpu = options.text("gpu");
	setup.alone = options.number("alone", 0);
	unsigned bus, slot, function;
	if (std::sscanf(setup.gpu.c_str(), "%x:%x:%x.%x", &setup.domain, &bus, &slot, &function) != 4) {
		std::fputs("gpu=0000:00:00.0 is missing\n", stderr);
		std::exit(2);
	}
	setup.bdf = bus << 8 | slot << 3 | function;
	return setup;
}

/// Runs only in the lab's guest, whose drives are discarded and whose root is read-only over 9p.
void only_in_the_lab()
{
	std::ifstream mounts("/proc/self/mounts");
	std::string device, where, type;
	bool is_lab = false;
	for (std::string line; std::getline(mounts, line);)
		is_lab |= std::istringstream(line) >> device >> where >> type && where == "/" && type == "9p";
	if (!is_lab || !std::getenv("LAB_KERNEL")) {
		std::fputs("this writes to drives and takes devices away: it runs in the lab's guest only\n", stderr);
		std::exit(2);
	}
}

} // namespace

int main(int argc, char **argv)
{
	const std::string verb = argc > 1 ? argv[1] : "";
	Options options;
	std::vector<std::string> files;
	for (int i = 2; i < argc; i++) {
		const char *equals = std::strchr(argv[i], '=');
		if (equals)
			options.given[std::string(argv[i], size_t(equals - argv[i]))] = equals + 1;
		else
			files.emplace_back(argv[i]);
	}
	const std::string faults = grammar_faults();
	std::fputs(faults.c_str(), stderr);
	if (!faults.empty())
		return 1;
	if (verb == "grammar")
		return check_files(files);
	if (verb == "decode" && files.size() == 1) {
		std::fputs(Recorder::decode(files[0]).c_str(), stdout);
		return 0;
	}
	if (verb != "run" && verb != "replay")
		return std::fputs("usage: fuzz run|replay|decode|grammar: fuzz.cpp\n", stderr), 2;

	only_in_the_lab();
	const Setup setup = setup_of(options);
	const std::string bar = "/sys/bus/pci/devices/" + setup.gpu + "/resource2";
	const std::string unknown = unknown_surface();
	tap::report(unknown.empty(), "the grammar has what the module takes, and no more", unknown);
	if (verb == "replay")
		return replay(options, setup, bar, files);
	std::printf("# %s, seed %lu\n", Cover::possible() ? "guided by KCOV" : "blind: no KCOV here",
		    options.number("seed", 1));
	std::fflush(stdout);
	return Watch(options, setup, bar).watch();
}
