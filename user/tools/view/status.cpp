// SPDX-License-Identifier: MIT
//
// peerdma view ls and status: what the service says of its views.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/view/service.hpp"
#include "tools/view/view.hpp"

namespace cli
{
namespace
{

std::string state_text(const Json &view)
{
	const std::string state = text_of(view, "state");
	return state == "scanning" ? fmt::format("scanning {:.0f} %", 100 * fraction_of(view, "scanned")) : state;
}

std::string or_dash(const std::string &text) { return text.empty() ? "-" : escaped(text); }

std::string hosts_text(const Json &view)
{
	std::string text;
	if (const auto hosts = view.find("hosts"); hosts != view.end() && hosts->is_array())
		for (const Json &host : *hosts)
			if (host.is_string())
				text += (text.empty() ? "" : ", ") + host.get<std::string>();
	return text.empty() ? "none may connect" : escaped(text);
}

// A line, if there is something in it.
std::string line(const char *what, const std::string &text)
{
	return text.empty() ? "" : fmt::format("    {:<11}  {}\n", what, text);
}

// The place of the last fault; its text may not name it.
std::string place_text(const Json &view)
{
	const std::string file = text_of(view, "fault_file");
	return file.empty() ? "" : fmt::format("{}, element {}", escaped(file), number_of(view, "fault_element"));
}

// A line for each name that the service has sent, and how many there are besides.
std::string changed_lines(const Json &view)
{
	std::string lines;
	uint64_t more = number_of(view, "changed");
	if (const auto files = view.find("changed_files"); files != view.end() && files->is_array())
		for (const Json &file : *files)
			if (file.is_string()) {
				lines += line("changed", escaped(file.get<std::string>()));
				more -= more > 0;
			}
	return lines + line("changed", more ? fmt::format("{} more", more) : "");
}

// What publishes a view again, with its files as they are now.
std::string publish_again_text(const Json &view)
{
	return text_of(view, "origin") == "command" ?
		       "Withdraw the view, then publish it again: its hosts lose the device" :
		       "Publish it again by systemctl reload peerdma-viewd: its hosts lose the device";
}

std::string view_text(const Json &view)
{
	std::string text = fmt::format("{}: {}\n", escaped(text_of(view, "name")), state_text(view));
	text += line("error", escaped(text_of(view, "error")));
	text += line("defined by", escaped(text_of(view, "origin")));
	text += line("not followed", escaped(text_of(view, "conf_error")));
	if (text_of(view, "state") != "published")
		return text;
	text += line("device", escaped(text_of(view, "device")));
	text += line("nqn", escaped(text_of(view, "nqn")));
	text += line("hosts", text_of(view, "nqn").empty() ? "" : hosts_text(view));
	text += line("note", escaped(text_of(view, "note")));
	text += line("elements",
		     fmt::format("{} of {}, {} file{}, {}", number_of(view, "elements"),
				 escaped(text_of(view, "codec")), number_of(view, "files"),
				 number_of(view, "files") == 1 ? "" : "s", size_text(number_of(view, "bytes"))));
	text += line("reads",
		     fmt::format("{}, {}", number_of(view, "reads"), size_text(number_of(view, "bytes_read"))));
	if (const uint64_t ranges = number_of(view, "plan_ranges"))
		text += line("plan", fmt::format("{} of {} ranges passed", number_of(view, "plan_position"), ranges));
	text += line("failed", fmt::format("{}", number_of(view, "failed_reads")));
	text += line("last fault", escaped(text_of(view, "last_fault")));
	text += line("at", place_text(view));
	text += changed_lines(view);
	if (flag_of(view, "stale"))
		text += line("stale", "yes: a file has changed since it was scanned. " + publish_again_text(view));
	return text;
}

Json status_of(const ViewOptions &options) { return ask_service(options.socket, {{"op", "status"}}); }

// What concerns all views.
Json common_json(const Json &status)
{
	Json out = {{"ok", true}};
	for (const char *key : {"conf_dir", "conf_error", "cache"})
		if (status.contains(key))
			out[key] = status[key];
	return out;
}

} // namespace

Report view_ls(const ViewOptions &options)
{
	const Json status = status_of(options);
	Report report;
	report.json = common_json(status);
	report.json.erase("cache");
	report.json["views"] = views_of(status);
	std::vector<std::vector<std::string>> rows = {{"NAME", "STATE", "CODEC", "ELEMENTS", "DEVICE", "NQN", "FROM"}};
	for (const Json &view : views_of(status)) {
		const bool is_served = text_of(view, "state") == "published";
		rows.push_back({escaped(text_of(view, "name")), state_text(view), or_dash(text_of(view, "codec")),
				is_served ? std::to_string(number_of(view, "elements")) : "-",
				or_dash(text_of(view, "device")), or_dash(text_of(view, "nqn")),
				or_dash(text_of(view, "origin"))});
	}
	std::vector<size_t> widths(rows[0].size());
	for (const auto &row : rows)
		for (size_t i = 0; i < row.size(); i++)
			widths[i] = std::max(widths[i], row[i].size());
	for (const auto &row : rows) {
		for (size_t i = 0; i + 1 < row.size(); i++)
			report.text += fmt::format("{:<{}}  ", row[i], widths[i]);
		report.text += row.back() + "\n";
	}
	if (rows.size() == 1)
		report.text = "no view is published\n";
	if (const std::string error = text_of(status, "conf_error"); !error.empty())
		report.text += fmt::format("definitions are not followed: {}\n", escaped(error));
	return report;
}

Report view_status(const ViewOptions &options)
{
	const Json status = status_of(options);
	Report report;
	report.json = common_json(status);
	if (!options.name.empty()) {
		const Json view = find_view(status, options.name);
		if (view.is_null())
			throw Failure{fmt::format("there is no view '{}'", options.name),
				      ENOENT,
				      0,
				      "peerdma view ls lists the views.",
				      {}};
		report.json["view"] = view;
		report.text = view_text(view);
		return report;
	}
	report.json["views"] = views_of(status);
	for (const Json &view : views_of(status))
		report.text += view_text(view);
	if (report.text.empty())
		report.text = "no view is published\n";
	if (status.contains("cache")) {
		const Json &cache = status["cache"];
		report.text += fmt::format("cache: {} hits, {} misses, {} chunks prefetched, {} of them in vain\n",
					   number_of(cache, "hits"), number_of(cache, "misses"),
					   number_of(cache, "prefetched"), number_of(cache, "wasted"));
	}
	if (const std::string error = text_of(status, "conf_error"); !error.empty())
		report.text += fmt::format("definitions are not followed: {}\n", escaped(error));
	return report;
}

} // namespace cli
