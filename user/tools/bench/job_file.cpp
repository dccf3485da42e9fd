// SPDX-License-Identifier: MIT
//
// Job files with the keys of gdsio, so that a file written for another driver can be measured with this one. A key or
// value that this command cannot honor is refused or noted, never ignored silently.

#include "tools/bench/job_file.hpp"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

namespace cli
{
namespace
{

constexpr uint64_t most_threads = 1024, most_depth = 1024, most_size = 1 << 30;
constexpr double most_runtime = 86400;

std::string_view trimmed(std::string_view text)
{
	const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
	return first == text.npos ? std::string_view() : text.substr(first, last - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char by)
{
	std::vector<std::string_view> words;
	for (size_t at = 0; at <= text.size();) {
		const size_t end = std::min(text.find(by, at), text.size());
		words.push_back(trimmed(text.substr(at, end - at)));
		at = end + 1;
	}
	return words;
}

[[noreturn]] void refuse(std::string_view value, std::string_view want)
{
	throw Usage{fmt::format("'{}': expected {}", value, want)};
}

uint64_t number(std::string_view value, uint64_t least, uint64_t most)
{
	const auto n = parse_integer(value);
	if (!n || *n < least || *n > most)
		refuse(value, fmt::format("a whole number from {} to {}", least, most));
	return *n;
}

uint64_t bytes(std::string_view value, uint64_t least, uint64_t most)
{
	const auto n = parse_bytes(value);
	if (!n || *n < least || *n > most)
		refuse(value, fmt::format("a number of bytes from {} to {} (such as 65536, 64K or 2M)", least, most));
	return *n;
}

std::vector<uint64_t> numbers(std::string_view value, uint64_t most)
{
	std::vector<uint64_t> list;
	for (const std::string_view word : split(value, ','))
		list.push_back(number(word, 1, most));
	return list;
}

// "4K,64K", or "1M:4M:1M": first, last and step.
std::vector<uint64_t> sizes(std::string_view value)
{
	std::vector<uint64_t> list;
	for (const std::string_view word : split(value, ',')) {
		const auto parts = split(word, ':');
		if (parts.size() != 1 && parts.size() != 3)
			refuse(word, "one size, or first:last:step");
		const uint64_t first = bytes(parts.front(), 512, most_size),
			       last = parts.size() == 3 ? bytes(parts[1], first, most_size) : first,
			       step = parts.size() == 3 ? bytes(parts[2], 512, most_size) : 512;
		for (uint64_t size = first; size <= last; size += step) {
			if (size % 512)
				refuse(word, "a multiple of 512 bytes");
			if (list.size() == 64)
				refuse(value, "at most 64 sizes");
			list.push_back(size);
		}
	}
	return list;
}

std::vector<BenchRoute> routes(std::string_view value)
{
	std::vector<BenchRoute> list;
	for (const std::string_view word : split(value, ',')) {
		std::optional<BenchRoute> found;
		for (const BenchRoute route :
		     {BenchRoute::direct, BenchRoute::bounce, BenchRoute::host, BenchRoute::naive})
			if (word == route_name(route))
				found = route;
		if (!found)
			refuse(word, "direct, bounce, host or naive");
		if (std::find(list.begin(), list.end(), *found) == list.end())
			list.push_back(*found);
	}
	return list;
}

// gdsio's numbers of transfer types. 3, 5 and 7 are its asynchronous transfers in CUDA streams.
std::vector<BenchRoute> transfers(std::string_view value)
{
	std::vector<BenchRoute> list;
	for (const std::string_view word : split(value, ',')) {
		if (word == "0" || word == "6")
			list.push_back(BenchRoute::direct);
		else if (word == "1")
			list.push_back(BenchRoute::host);
		else if (word == "2")
			list.push_back(BenchRoute::bounce);
		else if (word == "4")
			list.push_back(BenchRoute::naive);
		else
			refuse(word, "a supported transfer type (0 or 6: direct, 1: host, 2: bounce, 4: naive)");
	}
	return list;
}

bool flag(std::string_view value)
{
	if (value != "0" && value != "1")
		refuse(value, "0 or 1");
	return value == "1";
}

using Setter = std::function<void(BenchJob &, std::string_view)>;

// A feature of gdsio that is missing here: refuses 1. instead: the alternative, or the reason.
Setter only_off(std::string instead)
{
	return [instead = std::move(instead)](BenchJob &, std::string_view value) {
		if (flag(value))
			throw Usage{"expected 0: " + instead};
	};
}

// A setting that affects gdsio's measurement but not ours: accepts 1 with a note.
Setter not_heeded(const char *key, std::string because)
{
	return [key, because = std::move(because)](BenchJob &job, std::string_view value) {
		if (flag(value))
			job.notes.push_back(fmt::format("{} is ignored: {}", key, because));
	};
}

const std::map<std::string_view, Setter> &keys()
{
	static const std::map<std::string_view, Setter> all = [] {
		auto target = [](BenchJob &job, std::string_view value) { job.target = value; };
		auto size = [](BenchJob &job, std::string_view value) { job.sizes = sizes(value); };
		auto threads = [](BenchJob &job, std::string_view value) {
			job.threads = numbers(value, most_threads);
		};
		auto depth = [](BenchJob &job, std::string_view value) { job.depths = numbers(value, most_depth); };
		auto file_size = [](BenchJob &job, std::string_view value) {
			job.file_size = bytes(value, 512, INT64_MAX);
		};
		return std::map<std::string_view, Setter>{
			{"name", [](BenchJob &job, std::string_view value) { job.name = value; }},
			{"filename", target},
			{"directory", target},
			{"provider", [](BenchJob &job, std::string_view value) { job.provider = value; }},
			{"gpu_dev_id",
			 [](BenchJob &job, std::string_view value) {
				 job.gpu_index = static_cast<int>(number(value, 0, 1023));
			 }},
			{"xfer_type", [](BenchJob &job, std::string_view value) { job.routes = transfers(value); }},
			{"route", [](BenchJob &job, std::string_view value) { job.routes = routes(value); }},
			{"rw",
			 [](BenchJob &job, std::string_view value) {
				 const std::string_view kind = value.starts_with("rand") ? value.substr(4) : value;
				 if (kind != "read" && kind != "write")
					 refuse(value, "read, write, randread or randwrite");
				 job.random = kind != value;
				 job.write = kind == "write";
			 }},
			{"bs", size},
			{"io_size", size},
			{"iosize", size},
			{"num_threads", threads},
			{"threads", threads},
			{"depth", depth},
			{"iodepth", depth},
			{"batch_size", depth},
			{"size", file_size},
			{"file_size", file_size},
			{"start_offset",
			 [](BenchJob &job, std::string_view value) { job.start = bytes(value, 0, INT64_MAX); }},
			{"runtime",
			 [](BenchJob &job, std::string_view value) {
				 const auto seconds = parse_real(value);
				 if (!seconds || *seconds <= 0 || *seconds > most_runtime)
					 refuse(value,
						fmt::format("a number of seconds, above 0 and up to {}", most_runtime));
				 job.runtime = *seconds;
			 }},
			{"bytes",
			 [](BenchJob &job, std::string_view value) { job.bytes = bytes(value, 512, INT64_MAX); }},
			{"random_seed",
			 [](BenchJob &job, std::string_view value) { job.seed = number(value, 0, UINT64_MAX); }},
			{"overwrite", [](BenchJob &job, std::string_view value) { job.overwrite = flag(value); }},
			{"numa_node",
			 [](BenchJob &job, std::string_view value) {
				 number(value, 0, 1023);
				 job.notes.push_back("numa_node is ignored: threads run where the kernel puts them");
			 }},
			{"do_verify",
			 only_off("bench only measures; peerdma selftest, verify and cp --verify compare each byte")},
			{"fill_random", only_off("writes store the contents of the memory, initially zeros")},
			{"refill_buffer", only_off("writes store the contents of the memory, initially zeros")},
			{"skip_bufregister",
			 not_heeded("skip_bufregister", "each row allocates its buffers before it is timed")},
			{"enable_nvlinks", not_heeded("enable_nvlinks", "no row copies between GPUs")},
			{"unaligned_random",
			 only_off("direct rows move whole blocks; peerdma selftest tests other offsets")},
		};
	}();
	return all;
}

} // namespace

const char *route_name(BenchRoute route)
{
	switch (route) {
	case BenchRoute::direct:
		return "direct";
	case BenchRoute::bounce:
		return "bounce";
	case BenchRoute::host:
		return "host";
	case BenchRoute::naive:
		return "naive";
	}
	return "";
}

void set_job(BenchJob &job, std::string_view key, std::string_view value)
{
	const auto setter = keys().find(key);
	if (setter == keys().end()) {
		std::string names;
		for (const auto &[name, unused] : keys())
			names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
		throw Usage{fmt::format("unknown key '{}'; expected one of {}", key, names)};
	}
	try {
		if (value.empty())
			throw Usage{"missing value"};
		setter->second(job, value);
	} catch (const Usage &usage) {
		throw Usage{fmt::format("{}: {}", key, usage.what)};
	}
}

std::vector<BenchJob> parse_jobs(const std::string &name, std::string_view text)
{
	BenchJob global;
	std::vector<BenchJob> jobs;
	BenchJob *section = nullptr;
	unsigned number = 0;
	for (std::string_view line : split(text, '\n')) {
		number++;
		auto wrong = [&](std::string_view what) {
			return Usage{fmt::format("{}, line {}: {}", name, number, what)};
		};
		if (line.empty() || line.front() == '#' || line.front() == ';')
			continue;
		if (line.front() == '[') {
			const std::string title(trimmed(line.substr(1, line.find(']') - 1)));
			if (line.back() != ']' || title.empty())
				throw wrong(fmt::format("'{}': expected [global] or [JOB]", line));
			if (title == "global") {
				if (!jobs.empty())
					throw wrong("[global] must come before the jobs");
				section = &global;
				continue;
			}
			jobs.push_back(global);
			section = &jobs.back();
			section->name = title;
			continue;
		}
		const size_t equals = line.find('=');
		if (equals == line.npos)
			throw wrong(fmt::format("'{}': expected [section] or key=value", line));
		if (!section)
			throw wrong("setting before the first [section]");
		try {
			set_job(*section, trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)));
		} catch (const Usage &usage) {
			throw wrong(usage.what);
		}
	}
	if (jobs.empty())
		throw Usage{fmt::format("{}: no job; expected a section other than [global]", name)};
	for (const BenchJob &job : jobs)
		if (job.target.empty())
			throw Usage{fmt::format("{}: [{}]: expected filename or directory", name, job.name)};
	return jobs;
}

} // namespace cli
