// SPDX-License-Identifier: MIT
//
// Reports the kernel's counters by process and by disk. The owner of an open /dev/peerdma can read them in its fdinfo;
// root can read all of them in debugfs.

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/stat/stat.hpp"

namespace cli
{
namespace
{

std::optional<uint64_t> number(std::string_view text)
{
	uint64_t value;
	auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
	if (error != std::errc() || end != text.data() + text.size())
		return std::nullopt;
	return value;
}

// Splits a text at separators; omits empty parts.
std::vector<std::string_view> split(std::string_view text, char separator)
{
	std::vector<std::string_view> parts;
	while (!text.empty()) {
		const size_t end = text.find(separator);
		if (end != 0)
			parts.push_back(text.substr(0, end));
		text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
	}
	return parts;
}

// Counters of bytes have no unit in debugfs, but have one in fdinfo.
std::string counter_name(std::string_view key)
{
	if (key == "direct" || key == "near" || key == "host")
		return std::string(key) + "-bytes";
	return std::string(key);
}

Json json_of(const Counters &counters)
{
	Json out = Json::object(), refused = Json::object();
	for (const char *key : {"reads", "writes", "direct-bytes", "near-bytes", "host-bytes", "errors", "refused"}) {
		std::string name = key;
		std::replace(name.begin(), name.end(), '-', '_');
		out[name] = counter_value(counters, key);
	}
	for (const auto &[key, value] : counters)
		if (const auto reason = key.starts_with("refused-") ? number(key.substr(8)) : std::nullopt)
			refused[peerdma_reason_name(static_cast<uint32_t>(*reason))] = value;
	out["refused_by_reason"] = refused;
	return out;
}

std::string row(const std::string &name, const Counters &counters)
{
	std::string text = fmt::format(
		"{:<28}{:>9}{:>9}{:>12}{:>12}{:>12}{:>8}{:>8}\n", name, counter_value(counters, "reads"),
		counter_value(counters, "writes"), size_text(counter_value(counters, "direct-bytes")),
		size_text(counter_value(counters, "near-bytes")), size_text(counter_value(counters, "host-bytes")),
		counter_value(counters, "refused"), counter_value(counters, "errors"));
	for (const auto &[key, value] : counters)
		if (const auto reason = key.starts_with("refused-") ? number(key.substr(8)) : std::nullopt)
			text += fmt::format("  {} refused: {}\n", value,
					    peerdma_reason_text(static_cast<uint32_t>(*reason)));
	return text;
}

} // namespace

uint64_t counter_value(const Counters &counters, std::string_view key)
{
	const auto found = counters.find(key);
	return found == counters.end() ? 0 : found->second;
}

Counters parse_fdinfo(std::string_view text)
{
	Counters counters;
	for (std::string_view line : split(text, '\n')) {
		const size_t colon = line.find(':');
		if (!line.starts_with("peerdma-") || colon == std::string_view::npos)
			continue;
		std::string_view value = line.substr(colon + 1);
		value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
		if (const auto n = number(value))
			counters.emplace(line.substr(8, colon - 8), *n);
	}
	return counters;
}

std::vector<StatsLine> parse_stats(std::string_view text)
{
	std::vector<StatsLine> lines;
	for (std::string_view line : split(text, '\n')) {
		const auto words = split(line, ' ');
		if (words.empty())
			continue;
		StatsLine out;
		out.kind = words.front();
		for (size_t i = 1; i < words.size(); i++) {
			const size_t equals = words[i].find('=');
			if (equals == std::string_view::npos)
				continue;
			const std::string_view key = words[i].substr(0, equals), value = words[i].substr(equals + 1);
			out.words.emplace(key, value);
			if (const auto n = number(value); n && key != "id" && key != "pid" && key != "provider")
				out.counters.emplace(counter_name(key), *n);
		}
		lines.push_back(std::move(out));
	}
	return lines;
}

OpenFiles open_files(peerdma_impl::Syscalls &sys)
{
	OpenFiles all;
	std::vector<std::string> names, fds;
	sys.list_dir("/proc", names);
	for (const std::string &name : names) {
		const auto pid = number(name);
		if (!pid)
			continue;
		const std::string process = "/proc/" + name;
		if (const int rc = sys.list_dir(process + "/fdinfo", fds); rc < 0) {
			all.unseen += rc == -EACCES || rc == -EPERM;
			continue;
		}
		for (const std::string &fd : fds) {
			std::string target, text;
			// Matches any path: a node of a container, or a deleted one, may have another. Sockets, pipes
			// and the like have no path.
			if (sys.read_link(process + "/fd/" + fd, target) < 0 || !target.starts_with('/') ||
			    sys.read_file(process + "/fdinfo/" + fd, text) < 0)
				continue;
			Counters counters = parse_fdinfo(text);
			const uint64_t id = counter_value(counters, "file");
			if (!id)
				continue;
			auto file = std::find_if(all.files.begin(), all.files.end(),
						 [&](const OpenFile &f) { return f.id == id; });
			if (file == all.files.end()) {
				std::string comm;
				sys.read_file(process + "/comm", comm);
				if (comm.ends_with('\n'))
					comm.pop_back();
				all.files.push_back({id, {}, comm, std::move(counters)});
				file = all.files.end() - 1;
			}
			const int n = static_cast<int>(*pid);
			if (file->pids.empty() || file->pids.back() != n)
				file->pids.push_back(n);
		}
	}
	// list_dir() sorts names as text. Sort the files by age and the pids by number.
	for (OpenFile &file : all.files)
		std::sort(file.pids.begin(), file.pids.end());
	std::sort(all.files.begin(), all.files.end(), [](const OpenFile &a, const OpenFile &b) { return a.id < b.id; });
	return all;
}

Report stat()
{
	auto &sys = peerdma_impl::system_calls();
	const OpenFiles all = open_files(sys);
	std::string text;
	const int rc = sys.read_file(std::string(stats_path), text);

	Report report;
	report.json = {{"ok", true}, {"files", Json::array()}, {"unseen_processes", all.unseen}, {"total", nullptr}};
	report.text = fmt::format("{:<28}{:>9}{:>9}{:>12}{:>12}{:>12}{:>8}{:>8}\n", "", "reads", "writes", "direct",
				  "near", "host", "refused", "errors");
	for (const OpenFile &file : all.files) {
		Json entry = {{"file", file.id},
			      {"pids", file.pids},
			      {"comm", file.comm},
			      {"buffers", counter_value(file.counters, "buffers")},
			      {"buffer_bytes", counter_value(file.counters, "buffer-bytes")}};
		entry.update(json_of(file.counters));
		report.json["files"].push_back(entry);
		report.text += row(fmt::format("{} {}", file.pids.front(), escaped(file.comm)), file.counters);
	}
	if (all.files.empty())
		report.text += "no readable process has a device node of PeerDMA open\n";
	if (rc < 0) {
		report.text += fmt::format("no counters by disk: {} ({}); they need root, debugfs and the module\n",
					   stats_path, errno_name(-rc));
	} else {
		report.json["providers"] = report.json["disks"] = report.json["users"] = Json::array();
		for (const StatsLine &line : parse_stats(text)) {
			auto word = [&](std::string_view key) {
				const auto found = line.words.find(key);
				return found == line.words.end() ? std::string("?") : found->second;
			};
			Json entry = json_of(line.counters);
			if (line.kind == "total") {
				report.json["total"] = entry;
				report.text += row("since the module was loaded", line.counters);
			} else if (line.kind == "provider") {
				Json names = {{"id", number(word("id")).value_or(0)}, {"pci", word("pci")}};
				names.update(entry);
				report.json["providers"].push_back(names);
				report.text += row("provider " + word("pci"), line.counters);
			} else if (line.kind == "user") {
				const uint64_t bytes = counter_value(line.counters, "buffer-bytes");
				report.json["users"].push_back(
					{{"uid", number(word("uid")).value_or(0)}, {"buffer_bytes", bytes}});
				report.text +=
					fmt::format("user {} has {} in buffers\n", word("uid"), size_text(bytes));
			} else if (line.kind == "disk") {
				Json names = {{"provider", number(word("provider")).value_or(0)},
					      {"dev", word("dev")},
					      {"name", word("name")},
					      {"leaves", Json::array()}};
				const std::string devices = line.words.count("leaves") ? word("leaves") : "";
				for (std::string_view device : split(devices, ','))
					names["leaves"].push_back(device);
				names.update(entry);
				report.json["disks"].push_back(names);
				report.text += row(fmt::format("disk {}, provider {}", word("name"), word("provider")),
						   line.counters);
				if (!devices.empty() && devices != word("name"))
					report.text += fmt::format("  by way of {}\n", devices);
			}
		}
	}
	if (all.unseen)
		report.text += fmt::format("{} processes of other users were not readable\n", all.unseen);
	return report;
}

} // namespace cli
