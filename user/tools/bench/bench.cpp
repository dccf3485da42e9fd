// SPDX-License-Identifier: MIT
//
// Measures throughput and CPU time of each route between a file and a provider's memory. The rows run one after the
// other on the same file.

#include "tools/bench/bench.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/selftest/selftest.hpp"
#include "tools/system/anonymous_file.hpp"
#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

constexpr std::array<std::pair<const char *, double>, 4> percentiles = {
	{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}}};

int fill(peerdma_impl::Syscalls &sys, const Fd &fd, uint64_t size)
{
	constexpr uint64_t step = 1 << 20;
	for (uint64_t at = 0; at < size; at += step) {
		const int64_t n = fd.write(pattern(1, at, std::min(step, size - at)), at);
		if (n < 0)
			return static_cast<int>(n);
	}
	return sys.fsync(fd.get());
}

// Return: bytes, or -errno.
int64_t length_of(peerdma_impl::Syscalls &sys, int fd, const struct stat &st)
{
	uint64_t bytes = static_cast<uint64_t>(st.st_size);
	if (S_ISBLK(st.st_mode))
		if (const int rc = sys.ioctl(fd, BLKGETSIZE64, &bytes); rc < 0)
			return rc;
	return static_cast<int64_t>(bytes);
}

std::string rw_name(const BenchRow &row)
{
	return fmt::format("{}{}", row.random ? "rand" : "", row.write ? "write" : "read");
}

std::string microseconds(uint64_t ns) { return fmt::format("{:.1f}", static_cast<double>(ns) / 1000); }

Json row_json(const BenchRow &row)
{
	Json latency = Json::object();
	for (const auto &[name, percent] : percentiles)
		latency[name] = static_cast<double>(row.latencies.percentile(percent)) / 1000;
	latency["max"] = static_cast<double>(row.latencies.max()) / 1000;
	Json json = {{"job", row.job},
		     {"route", route_name(row.route)},
		     {"rw", rw_name(row)},
		     {"size", row.size},
		     {"threads", row.threads},
		     {"depth", row.depth},
		     {"ios", row.ios},
		     {"bytes", row.bytes()},
		     {"seconds", row.seconds},
		     {"mib_per_second", row.mib_per_second()},
		     {"iops", row.per_second(row.ios)},
		     {"latency_us", latency},
		     {"cpu_user_seconds", row.user},
		     {"cpu_system_seconds", row.system},
		     {"cpu_seconds_per_gb", row.cpu_per_gb()},
		     {"bytes_direct", row.counts.direct},
		     {"bytes_near", row.counts.near},
		     {"bytes_host", row.counts.host},
		     {"error", nullptr}};
	if (row.failure)
		json["error"] = row.failure->json()["error"];
	return json;
}

std::string table(const std::vector<BenchRow> &rows)
{
	constexpr const char *line = "{:<10} {:<7} {:<9} {:>8} {:>7} {:>5} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} "
				     "{:>9}\n";
	std::string text = fmt::format(line, "JOB", "ROUTE", "RW", "SIZE", "THREADS", "DEPTH", "MiB/s", "IOPS",
				       "p50 us", "p90", "p99", "p99.9", "max", "CPU s/GB");
	for (const BenchRow &row : rows) {
		if (row.failure) {
			text += fmt::format("{:<10} {:<7} {:<9} {:>8} {:>7} {:>5} failed: {}\n", escaped(row.job),
					    route_name(row.route), rw_name(row), size_text(row.size), row.threads,
					    row.depth, escaped(row.failure->line()));
			continue;
		}
		auto at = [&](size_t i) { return microseconds(row.latencies.percentile(percentiles[i].second)); };
		text += fmt::format(line, escaped(row.job), route_name(row.route), rw_name(row), size_text(row.size),
				    row.threads, row.depth, fmt::format("{:.1f}", row.mib_per_second()),
				    fmt::format("{:.0f}", row.per_second(row.ios)), at(0), at(1), at(2), at(3),
				    microseconds(row.latencies.max()), fmt::format("{:.3f}", row.cpu_per_gb()));
	}
	return text;
}

// The rows of a job in the order of the table: the routes of one kind of request are adjacent.
std::vector<BenchRow> rows_of(const BenchJob &job)
{
	std::vector<BenchRow> rows;
	for (const uint64_t size : job.sizes)
		for (const uint64_t threads : job.threads)
			for (const uint64_t depth : job.depths)
				for (const BenchRoute route : job.routes) {
					// Calls through the page cache have no queue depth: one row is enough.
					if (route == BenchRoute::naive && depth != job.depths.front())
						continue;
					BenchRow row;
					row.job = job.name;
					row.write = job.write;
					row.random = job.random;
					row.route = route;
					row.size = size;
					row.threads = threads;
					row.depth = route == BenchRoute::naive ? 1 : depth;
					rows.push_back(std::move(row));
				}
	return rows;
}

struct peerdma_provider_info provider_of(const Device &device, const BenchJob &job)
{
	if (job.gpu_index < 0 || !job.provider.empty())
		return find_provider(device, job.provider);
	std::vector<uint32_t> ids(static_cast<size_t>(job.gpu_index) + 1);
	const int count = peerdma_provider_list(device.get(), ids.data(), ids.size());
	if (count <= job.gpu_index)
		throw Failure{fmt::format("no provider {} (gpu_dev_id counts from 0)", job.gpu_index),
			      ENOENT,
			      0,
			      "List them with peerdma providers.",
			      {}};
	return find_provider(device, std::to_string(ids.back()));
}

// Keys of a job file have underscores where options have dashes.
std::string option_of(std::string what)
{
	std::replace(what.begin(), what.begin() + static_cast<ptrdiff_t>(std::min(what.find(':'), what.size())), '_',
		     '-');
	return what;
}

std::vector<BenchJob> jobs_of(peerdma_impl::Syscalls &sys, const BenchOptions &options)
{
	if (!options.jobs.empty()) {
		if (!options.target.empty() || !options.settings.empty())
			throw Usage{"--jobs: only --svg and --json may be given with it"};
		std::string text;
		const int rc = sys.read_bounded(options.jobs, peerdma_impl::written_limit, text);
		if (const char *why = peerdma_impl::refusal(rc))
			throw Failure{fmt::format("cannot read {}: {}", options.jobs, why), 0, 0, "", {}};
		if (rc < 0)
			throw Failure{fmt::format("cannot read {}", options.jobs), -rc, 0, "", {}};
		return parse_jobs(options.jobs, text);
	}
	if (options.target.empty())
		throw Usage{"bench: expected a file, a directory or --jobs"};
	BenchJob job;
	for (const auto &[key, value] : options.settings) {
		try {
			// In a job file, lists may contain blanks.
			if (value.find_first_of(" \t\r\n") != value.npos)
				throw Usage{fmt::format("{}: '{}' contains a blank", key, value)};
			set_job(job, key, value);
		} catch (const Usage &usage) {
			throw Usage{"--" + option_of(usage.what)};
		}
	}
	job.target = options.target;
	return {job};
}

} // namespace

BenchFile open_bench_file(peerdma_impl::Syscalls &sys, const BenchJob &job)
{
	auto opened = [&](int fd) {
		if (fd < 0)
			throw Failure{fmt::format("cannot open {}", job.target), -fd, 0, "", {}};
		return Fd(sys, fd);
	};
	// Opens the same file again through /proc: its name may have been removed.
	auto past_the_cache = [&](const Fd &fd, int flags) {
		const std::string self = fmt::format("/proc/self/fd/{}", fd.get());
		return Fd(sys, sys.open(self.c_str(), flags | O_DIRECT | O_CLOEXEC));
	};
	// O_NONBLOCK: do not wait for the other end of a FIFO.
	const int common = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	struct stat st = {};
	{
		const Fd look = opened(sys.open(job.target.c_str(), O_RDONLY | common));
		if (const int rc = sys.fstat(look.get(), st); rc < 0)
			throw Failure{fmt::format("cannot stat {}", job.target), -rc, 0, "", {}};
	}
	if (S_ISDIR(st.st_mode)) {
		Fd fd = opened(open_anonymous(sys, job.target));
		if (const int rc = fill(sys, fd, job.file_size); rc < 0)
			throw Failure{
				fmt::format("cannot create a file of {} in {}", size_text(job.file_size), job.target),
				-rc,
				0,
				"",
				{}};
		Fd direct = past_the_cache(fd, O_RDWR);
		return {"a file made in " + job.target, true, job.file_size, std::move(fd), std::move(direct)};
	}
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		throw Failure{fmt::format("{} is neither a file, a block device nor a directory", job.target),
			      EINVAL,
			      0,
			      "",
			      {}};
	if (job.write && !job.overwrite)
		throw Usage{fmt::format("{} would be overwritten; name a directory, in which a file is created, or "
					"give --overwrite (overwrite=1 in a job file)",
					job.target)};
	// O_EXCL: refuses a block device that is mounted.
	const int how = job.write ? O_RDWR | (S_ISBLK(st.st_mode) ? O_EXCL : 0) : O_RDONLY;
	Fd fd = opened(sys.open(job.target.c_str(), how | common));
	const int64_t size = length_of(sys, fd.get(), st);
	if (size < 0)
		throw Failure{fmt::format("cannot get the size of {}", job.target), static_cast<int>(-size), 0, "", {}};
	Fd direct = past_the_cache(fd, how & ~O_EXCL);
	return {job.target, false, static_cast<uint64_t>(size), std::move(fd), std::move(direct)};
}

std::string emulated_by(peerdma_impl::Syscalls &sys, const std::string &disk)
{
	std::string cpu;
	sys.read_file("/proc/cpuinfo", cpu);
	if (cpu.find("QEMU TCG") != cpu.npos || cpu.find("QEMU Virtual CPU") != cpu.npos)
		return "this machine's CPU is QEMU's emulator: its figures say nothing about the speed of hardware";
	const std::string model = disk.empty() ? "" : line_of(sys, block_devices + disk + "/device/model");
	if (model.starts_with("QEMU"))
		return fmt::format("{} is a drive that QEMU emulates: its figures say nothing about the speed of "
				   "hardware",
				   disk);
	return "";
}

Report bench(const BenchOptions &options)
{
	auto &sys = peerdma_impl::system_calls();
	const std::vector<BenchJob> jobs = jobs_of(sys, options);
	std::optional<Output> svg;
	if (!options.svg.empty())
		svg.emplace(options.svg); // fails before the measurement, not after it
	Report report;
	std::vector<std::string> notes;
	auto note = [&](const std::string &text) {
		if (!text.empty() && std::find(notes.begin(), notes.end(), text) == notes.end())
			notes.push_back(text);
	};
	report.json = {{"ok", true}, {"jobs", Json::array()}, {"rows", Json::array()}};
	std::vector<BenchRow> rows;
	std::string emulator;
	Progress progress;
	for (const BenchJob &job : jobs) {
		std::for_each(job.notes.begin(), job.notes.end(), note);
		const bool needs_gpu = job.routes != std::vector<BenchRoute>{BenchRoute::host};
		const Device device = needs_gpu ? open_device() : Device();
		struct peerdma_provider_info provider = {};
		if (needs_gpu)
			provider = provider_of(device, job);
		progress.say("opening " + job.target);
		const BenchFile file = open_bench_file(sys, job);
		Json about = {{"name", job.name},       {"file", file.name},
			      {"made", file.made},      {"file_size", file.size},
			      {"runtime", job.runtime}, {"provider", needs_gpu ? provider_json(provider) : Json()}};
		report.text += fmt::format("{:<10}{}, {}\n", "file", escaped(file.name), size_text(file.size));
		if (needs_gpu) {
			struct peerdma_file *raw = nullptr;
			if (const int rc = peerdma_file_from_fd(device.get(), file.plain.get(), &raw); rc < 0)
				throw Failure{fmt::format("cannot open {}", file.name), -rc, 0, "", {}};
			const File asked(raw);
			const auto why = explain_route(asked, file.name, provider);
			emulator = emulated_by(sys, why.leaf_major ? why.leaf_name : "");
			about["filesystem"] = why.fs_name;
			about["leaf"] = backing_json(why);
			about["reason"] = peerdma_reason_name(why.reason);
			about["map"] = peerdma_map_name(why.map);
			report.text +=
				fmt::format("{:<10}{}\n{:<10}{}  provider {}, {}\n", "backing", backing_text(why),
					    "provider", pci_text(provider.pci_domain, provider.pci_bdf), provider.id,
					    peerdma_map_name(why.map));
		} else {
			emulator = emulated_by(sys, "");
		}
		note(emulator);
		report.json["jobs"].push_back(about);
		const auto planned = rows_of(job);
		for (size_t i = 0; i < planned.size(); i++) {
			BenchRow row = planned[i];
			const BenchProgress said = [&](double seconds, uint64_t ios) {
				if (progress.due())
					progress.say(fmt::format("{} of {}: {} {}, {} threads, depth {}: {:.1f} s, {}",
								 i + 1, planned.size(), route_name(row.route),
								 size_text(row.size), row.threads, row.depth, seconds,
								 rate_text(ios * row.size, seconds)));
			};
			run_row(sys, job, file, row.route == BenchRoute::host ? nullptr : &provider, row,
				progress.shown() ? said : BenchProgress());
			if (row.failure)
				report.status = exit_failed;
			if (row.route == BenchRoute::naive && job.depths != std::vector<uint64_t>{1})
				note("naive rows have depth 1: calls through the page cache wait");
			report.json["rows"].push_back(row_json(row));
			rows.push_back(std::move(row));
		}
	}
	report.json["ok"] = report.status == exit_ok;
	report.json["emulated"] = !emulator.empty();
	report.json["notes"] = notes;
	report.text += table(rows);
	for (const std::string &text : notes)
		report.text += fmt::format("{:<10}{}\n", "note", text);
	if (svg)
		svg->write(plot(rows, emulator));
	return report;
}

} // namespace cli
