// SPDX-License-Identifier: MIT

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/trace/transfer_audit.hpp"

namespace cli
{
namespace
{

constexpr const char *not_seen[] = {
	"what a device did with a command after it was issued: use QEMU's trace or a bus analyzer",
	"a hole of up to two blocks in a request with partial blocks at its ends, which are moved as whole blocks",
	"which device of a mirror missed bytes that another device moved twice",
	"children of the process that existed before it was attached to",
	"whether the CPU also copied bytes that a device moved",
	"which device moved bytes of NFS: it is not a disk of this machine",
};

// The end of the message about unmoved bytes, after "no ".
constexpr const char *unmoved_by_any = "device moved them: a hole of the file, or a copy from a cache";
constexpr const char *unseen =
	"disk of this machine moved them: they belong to NFS, and this command cannot see the device";

// The block layer keeps PeerDMA's priority hint in these bits: 512 + provider id modulo 512.
constexpr uint64_t peerdma_hint = 512;

// The value of "key=" in an event's text; the kernel writes no spaces into it.
std::string_view word(std::string_view text, std::string_view key)
{
	for (size_t at = 0; (at = text.find(key, at)) != std::string_view::npos; at++) {
		const size_t value = at + key.size();
		if ((at == 0 || text[at - 1] == ' ') && value < text.size() && text[value] == '=')
			return text.substr(value + 1, text.find(' ', value) - value - 1);
	}
	return {};
}

// The device of a filesystem that is not on a disk. Of those the module supports, NFS.
bool is_share(const std::string &dev) { return dev.starts_with("0:"); }

uint64_t number(std::string_view text)
{
	uint64_t value = 0;
	std::from_chars(text.data(), text.data() + text.size(), value);
	return value;
}

uint64_t sum_of(const BytesByDevice &moved)
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

// "            pdio-123     [001] .....    12.345678: peerdma_submit: read dev=..." The name is padded to 16 columns,
// never longer, and may contain anything. The text after it comes from the kernel.
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

void TransferAudit::feed(std::string_view line)
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

// "comm=bash pid=12 child_comm=bash child_pid=13": a name may contain anything, so the numbers are searched from the
// end.
void TransferAudit::fork(const TraceLine &line)
{
	const size_t at = line.text.rfind(" child_pid=");
	if (at != std::string_view::npos && watched_.count(line.tid))
		watched_.insert(static_cast<int>(number(line.text.substr(at + 11))));
}

bool TransferAudit::is_watched(std::string_view text) const
{
	return watched_.count(static_cast<int>(number(word(text, "pid")))) != 0;
}

void TransferAudit::begin(const TraceLine &line)
{
	const bool write = line.text.starts_with("write");
	const bool watched = is_watched(line.text);
	const uint64_t provider = number(word(line.text, "provider"));

	if (!watched)
		pools_[{write, peerdma_hint | provider % peerdma_hint}].foreign = true;
	if (word(line.text, "async") != "1")
		running_[line.tid] = {key_of(line.text), write, watched, provider, {}};
	else if (watched)
		async_requests_.insert(number(word(line.text, "number")));
}

// "259,0 R 4096 () 2048 + 8 be,513,4 [pdio]"
void TransferAudit::issue(const TraceLine &line)
{
	unsigned major, minor, bytes, sectors, hint;
	unsigned long long sector;
	char how[16], priority[16];
	if (std::sscanf(std::string(line.text).c_str(), "%u,%u %15s %u () %llu + %u %15[^,],%u", &major, &minor, how,
			&bytes, &sector, &sectors, priority, &hint) != 8 ||
	    !(hint & peerdma_hint))
		return;
	const bool write = std::strchr(how, 'W') != nullptr;
	const std::string dev = fmt::format("{}:{}", major, minor);
	const auto request = running_.find(line.tid);
	if (request != running_.end() && request->second.write == write &&
	    (peerdma_hint | request->second.provider % peerdma_hint) == hint) {
		request->second.moved[dev] += bytes;
		return;
	}
	Pool &pool = pools_[{write, hint}];
	(watched_.count(line.tid) ? pool.own : pool.others)[dev] += bytes;
}

void TransferAudit::end(const TraceLine &line)
{
	const bool async = word(line.text, "async") == "1";
	const std::string key = key_of(line.text);
	auto request = async ? running_.end() : running_.find(line.tid);
	if (request != running_.end() && request->second.key != key)
		request = running_.end();
	BytesByDevice moved;
	// A refused request has only this event: no begin event and no number. It counts as begun.
	bool begun = word(line.text, "done") == "0" && (!async || word(line.text, "reason") != "0");
	if (const uint64_t flight = number(word(line.text, "number")); async && flight)
		begun = async_requests_.erase(flight) != 0;
	if (request != running_.end()) {
		moved = std::move(request->second.moved);
		running_.erase(request);
		begun = true;
	}
	if (!is_watched(line.text))
		return;
	begun_before_ += !begun;
	// -EAGAIN: the asynchronous request has to wait after all and begins again.
	if (!begun || (async && word(line.text, "error") == "-11"))
		return;
	TransferRecord &file = files_[key];
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
		file.unmatched += direct + near - std::min(direct + near, sum_of(moved));
	for (const auto &[dev, bytes] : moved)
		file.devices[dev] += bytes;
}

// Commands that a thread issued outside of its requests do not count for them. If a pool that several files share is
// too small, the last file is reported.
std::map<std::string, uint64_t> TransferAudit::unmoved() const
{
	std::map<PoolKey, std::pair<uint64_t, uint64_t>> left;
	std::map<std::string, uint64_t> unmoved;
	auto take = [](uint64_t &from, uint64_t &need) {
		const uint64_t taken = std::min(from, need);
		from -= taken;
		need -= taken;
	};
	for (const auto &[way, pool] : pools_)
		left[way] = {sum_of(pool.own), pool.foreign ? 0 : sum_of(pool.others)};
	for (const auto &[key, file] : files_) {
		auto &[own, others] = left[{file.write, peerdma_hint | file.provider % peerdma_hint}];
		uint64_t async = file.async, unmatched = file.unmatched;
		take(own, async);
		take(others, async);
		take(others, unmatched);
		if (async + unmatched)
			unmoved[key] = async + unmatched;
	}
	return unmoved;
}

uint64_t TransferAudit::unfinished() const
{
	return async_requests_.size() +
	       static_cast<uint64_t>(
		       std::count_if(running_.begin(), running_.end(), [](const auto &r) { return r.second.watched; }));
}

bool TransferAudit::proved() const
{
	return std::any_of(files_.begin(), files_.end(),
			   [](const auto &entry) {
				   return entry.second.direct || entry.second.near || entry.second.host;
			   }) &&
	       unmoved().empty() && !lost_ && !begun_before_ && !unfinished();
}

std::string TransferAudit::verdict(const std::string &key, const TransferRecord &file) const
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

Report TransferAudit::report(const std::function<std::string(const std::string &)> &name_of) const
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
		       {"cannot_see", not_seen}};
	auto moved_json = [&](const BytesByDevice &moved) {
		Json list = Json::array();
		for (const auto &[dev, bytes] : moved)
			list.push_back({{"dev", dev}, {"name", name_of(dev)}, {"bytes", bytes}});
		return list;
	};
	// A mount point may contain any byte.
	auto name_text = [&](const std::string &dev) { return escaped(name_of(dev)); };
	for (const auto &[key, file] : files_) {
		char how[8], dev[32], ino[32], provider[32];
		if (std::sscanf(key.c_str(), "%7s %31s %31s %31s", how, dev, ino, provider) != 4)
			continue;
		const uint64_t missing = short_of.count(key) ? short_of.at(key) : 0;
		report.text += fmt::format("{} of inode {} on {} with provider {}: {} requests", how, ino,
					   name_text(dev), provider, file.requests);
		if (file.refused || file.failed)
			report.text += fmt::format(", {} refused, {} failed", file.refused, file.failed);
		report.text += fmt::format("\n  verdict    {}\n  claimed    direct {}, near {}, host {} bytes\n",
					   verdict(key, file), file.direct, file.near, file.host);
		for (const auto &[device, bytes] : file.devices)
			report.text += fmt::format("  moved      {} bytes by {}\n", bytes, name_text(device));
		if (missing)
			report.text += fmt::format("  UNMOVED    {} bytes were claimed as direct, but no {}\n", missing,
						   is_share(dev) ? unseen : unmoved_by_any);
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
						{"leaves", moved_json(file.devices)}});
	}
	for (const auto &[way, pool] : pools_) {
		if (pool.own.empty() && pool.others.empty())
			continue;
		BytesByDevice all = pool.own;
		for (const auto &[dev, bytes] : pool.others)
			all[dev] += bytes;
		const char *how = way.first ? "write" : "read";
		report.json["pools"].push_back(
			{{"direction", how}, {"leaves", moved_json(all)}, {"of_others_too", pool.foreign}});
		for (const auto &[dev, bytes] : all)
			report.text += fmt::format(
				"{} by {} for asynchronous requests, or by kernel threads: {} bytes{}\n", how,
				name_text(dev), bytes, pool.foreign ? ", perhaps for other processes" : "");
	}
	if (files_.empty())
		report.text += "no request was seen\n";
	if (lost_)
		report.text += fmt::format("{} events were lost: the process was faster than this command\n", lost_);
	if (begun_before_ + unfinished())
		report.text += fmt::format("{} requests had begun before, {} had not ended: not counted\n",
					   begun_before_, unfinished());
	report.text += proved() ? "proved: devices moved every byte that was claimed as direct\n" : "not proved\n";
	report.text += "what this command cannot see:\n";
	for (const char *spot : not_seen)
		report.text += fmt::format("  {}\n", spot);
	return report;
}

} // namespace cli
