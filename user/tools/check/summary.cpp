// SPDX-License-Identifier: MIT
//
// What peerdma check prints without --verbose: whether direct I/O works on this host, and what is bad, on one screen.

#include "tools/check/check.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/cli/output.hpp"

namespace cli
{
namespace
{

constexpr size_t columns = 100, screen = 24;
constexpr size_t words_at = 16;    // where a finding's words begin in its line
constexpr size_t least_found = 40; // columns that what is the case may use, however long its remedy is

// Items that stand in the way of direct I/O if they are bad, the deepest cause first.
constexpr std::array blockers = {"kernel", "config", "driver", "bar",     "disks",  "filesystem", "stack", "multipath",
				 "rdma",   "route",  "bridge", "signing", "module", "headers",    "node",  "providers"};
// Of these the ones that one command on this host changes.
constexpr std::array passing = {"signing", "module", "headers", "node", "providers"};

template <size_t N> bool is_in(const std::array<const char *, N> &ids, const std::string &id)
{
	return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// The beginning of a text that has no room: up to the end of a clause or of a word.
std::string shortened(const std::string &text, size_t room)
{
	static const std::string rest = " ...";
	if (text.size() <= room)
		return text;
	const size_t most = room > rest.size() ? room - rest.size() : 0;
	size_t end = 0;
	for (const char *clause : {"; ", ": ", ". ", ", ", " ("})
		if (const size_t at = text.rfind(clause, most); at != text.npos)
			end = std::max(end, at);
	if (end < most * 2 / 3)
		if (const size_t at = text.rfind(' ', most); at != text.npos)
			end = at;
	// A long name: not in the middle of a character.
	if (end < most / 2)
		for (end = most; end && (text[end] & 0xC0) == 0x80;)
			end--;
	return text.substr(0, end) + rest;
}

// What a finding says, without the name that it is of.
std::string said(const Finding &finding)
{
	const std::string prefix = finding.about + ": ";
	const std::string &text = finding.gist.empty() ? finding.found : finding.gist;
	return !finding.about.empty() && text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

std::string with_name(const Finding &finding)
{
	return finding.about.empty() ? said(finding) : finding.about + ": " + said(finding);
}

// Findings that say the same of several disks or devices.
struct Group {
	const Finding *first;
	size_t more = 0;
};

std::vector<Group> groups_of(const std::vector<Finding> &findings, State state)
{
	std::vector<Group> groups;
	for (const Finding &finding : findings) {
		if (finding.state != state)
			continue;
		const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group &group) {
			return group.first->id == finding.id && said(*group.first) == said(finding);
		});
		if (same == groups.end())
			groups.push_back({&finding});
		else
			same->more++;
	}
	return groups;
}

std::string line_of_group(const Group &group)
{
	const Finding &finding = *group.first;
	std::string found = said(finding);
	if (!finding.about.empty())
		found = fmt::format("{}{}: {}", finding.about, group.more ? fmt::format(" +{}", group.more) : "",
				    found);
	found = escaped(found);
	const std::string arrow = " -> ";
	std::string remedy = escaped(finding.change);
	const size_t room = columns - words_at - arrow.size();
	if (found.size() + remedy.size() > room && !finding.brief.empty())
		remedy = escaped(finding.brief);
	if (found.size() + remedy.size() > room)
		remedy = shortened(remedy, room - std::min(found.size(), least_found));
	if (found.size() + remedy.size() > room)
		found = shortened(found, room - remedy.size());
	return fmt::format("{:<5}{:<11}{}{}{}\n", state_name(finding.state), finding.id, found, arrow, remedy);
}

// "WHAT: ID ID ...", in lines; empty without ids.
std::string list_of(const std::string &what, const std::vector<std::string> &ids)
{
	std::string text, line = what + ":";
	for (const std::string &id : ids) {
		if (line.size() + 1 + id.size() > columns) {
			text += line + "\n";
			line.assign(what.size() + 1, ' ');
		}
		line += " " + id;
	}
	return ids.empty() ? "" : text + line + "\n";
}

// The items of which some finding, or with `all` each one, is in this state.
std::vector<std::string> ids_of(const std::vector<Finding> &findings, State state, bool all)
{
	std::vector<std::string> ids, others;
	for (const Finding &finding : findings) {
		auto &to = finding.state == state ? ids : others;
		if (std::find(to.begin(), to.end(), finding.id) == to.end())
			to.push_back(finding.id);
	}
	if (all)
		std::erase_if(ids, [&](const std::string &id) {
			return std::find(others.begin(), others.end(), id) != others.end();
		});
	return ids;
}

const Finding *find(const std::vector<Finding> &findings, const std::string &id, State state,
		    const std::string &about = "")
{
	for (const Finding &finding : findings)
		if (finding.id == id && finding.state == state && (about.empty() || finding.about == about))
			return &finding;
	return nullptr;
}

// What keeps bytes from going directly; nullptr if nothing does.
const Finding *blocker_of(const std::vector<Finding> &findings, const Situation &situation)
{
	for (const char *id : blockers) {
		if (const Finding *bad = find(findings, id, State::bad))
			return bad;
		if (std::string(id) == "driver" && !situation.blocked.empty())
			if (const Finding *driver = find(findings, id, State::warn, situation.blocked))
				return driver;
		// By software: the CPU copies.
		if (std::string(id) == "route" && !find(findings, id, State::good))
			if (const Finding *software = find(findings, id, State::warn))
				return software;
	}
	return nullptr;
}

std::string ready(const std::vector<Finding> &findings, const std::string &but)
{
	std::vector<std::string> unknown;
	for (const std::string &id : ids_of(findings, State::unknown, false))
		if (is_in(blockers, id))
			unknown.push_back(id);
	if (!but.empty())
		return "ready for direct I/O, but for " + but;
	return unknown.empty() ?
		       "ready for direct I/O" :
		       fmt::format("ready for direct I/O, as far as is known; not known: {}", fmt::join(unknown, ", "));
}

} // namespace

std::string headline_of(const std::vector<Finding> &findings, const Situation &situation)
{
	if (situation.no_device)
		return "cannot work here: no GPU, and no other device whose memory could be published";
	const Finding *blocker = blocker_of(findings, situation);
	std::string text;
	if (!blocker) {
		// What costs partial blocks only, or an option.
		const auto others = groups_of(findings, State::bad);
		text = ready(findings,
			     others.empty() ? "" : others.front().first->id + ": " + with_name(*others.front().first));
	} else if ((blocker->id == "route" || blocker->id == "bridge") && find(findings, "route", State::good)) {
		const Finding *route = find(findings, "route", State::bad);
		text = ready(findings, with_name(route ? *route : *blocker));
	} else if (situation.bounces) {
		text = "works, bounced: " + with_name(*blocker);
	} else {
		text = fmt::format("cannot work here{}: {}", is_in(passing, blocker->id) ? " yet" : "",
				   with_name(*blocker));
	}
	return shortened(escaped(text), columns);
}

std::string summary_of(const std::vector<Finding> &findings, const Situation &situation)
{
	std::string text = headline_of(findings, situation) + "\n";
	if (situation.no_device) {
		for (const Group &group : groups_of(findings, State::bad))
			if (group.first->id == "bar")
				text += line_of_group(group);
		return text + "Without one nothing else matters. All that was looked at: peerdma check --verbose\n";
	}
	std::vector<Group> groups = groups_of(findings, State::bad);
	for (const Group &group : groups_of(findings, State::warn))
		groups.push_back(group);
	const std::string rest = list_of("not known", ids_of(findings, State::unknown, false)) +
				 list_of("good", ids_of(findings, State::good, true)) +
				 "Why it matters, each change in full, and how to undo it: peerdma check --verbose\n";
	const size_t most = screen - 1 - static_cast<size_t>(std::count(rest.begin(), rest.end(), '\n'));
	const size_t shown = groups.size() <= most ? groups.size() : most - 1;
	for (size_t i = 0; i < shown; i++)
		text += line_of_group(groups[i]);
	if (shown < groups.size())
		text += fmt::format("     {} more that are bad or warn\n", groups.size() - shown);
	return text + rest;
}

} // namespace cli
