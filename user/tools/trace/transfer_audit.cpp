// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cerrno>

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
constexpr unsigned peerdma_hint = 512;

// The device of a filesystem that is not on a disk. Of those the module supports, NFS.
bool is_share(const DeviceNumber &dev) { return dev.first == 0; }

std::string text_of(const DeviceNumber &dev) { return fmt::format("{}:{}", dev.first, dev.second); }

uint64_t sum_of(const BytesByDevice &moved)
{
	uint64_t sum = 0;
	for (const auto &[dev, bytes] : moved)
		sum += bytes;
	return sum;
}

} // namespace

TransferAudit::PoolKey TransferAudit::pool_of(const TransferKey &key)
{
	return {key.write, peerdma_hint | static_cast<unsigned>(key.provider % peerdma_hint)};
}

void TransferAudit::on_fork(int tid, int child)
{
	if (watched_.count(tid))
		watched_.insert(child);
}

void TransferAudit::on_submit(int tid, const TracedRequest &request)
{
	const bool watched = watched_.count(request.pid) != 0;
	if (!watched)
		pools_[pool_of(request.key)].foreign = true;
	if (!request.async)
		running_[tid] = {request.key, watched, {}};
	else if (watched)
		async_requests_.insert(request.number);
}

void TransferAudit::on_issue(int tid, const TracedCommand &command)
{
	if (!(command.hint & peerdma_hint))
		return;
	const PoolKey way(command.write, command.hint);
	const auto request = running_.find(tid);
	if (request != running_.end() && pool_of(request->second.key) == way) {
		request->second.moved[command.dev] += command.bytes;
		return;
	}
	Pool &pool = pools_[way];
	(watched_.count(tid) ? pool.own : pool.others)[command.dev] += command.bytes;
}

void TransferAudit::on_complete(int tid, const TracedRequest &request, const TracedResult &result)
{
	auto running = request.async ? running_.end() : running_.find(tid);
	if (running != running_.end() && running->second.key != request.key)
		running = running_.end();
	BytesByDevice moved;
	// A refused request has only this event: no begin event and no number. It counts as begun.
	bool begun = !result.done && (!request.async || result.reason);
	if (request.async && request.number)
		begun = async_requests_.erase(request.number) != 0;
	if (running != running_.end()) {
		moved = std::move(running->second.moved);
		running_.erase(running);
		begun = true;
	}
	if (!watched_.count(request.pid))
		return;
	begun_before_ += !begun;
	// -EAGAIN: the asynchronous request has to wait after all and begins again.
	if (!begun || (request.async && result.error == -EAGAIN))
		return;
	TransferRecord &file = files_[request.key];
	file.requests++;
	file.refused += result.error && result.reason;
	file.failed += result.error && !result.reason;
	file.direct += result.direct;
	file.near += result.near;
	file.host += result.host;
	const uint64_t claimed = result.direct + result.near;
	if (request.async)
		file.async += result.direct;
	else
		file.unmatched += claimed - std::min(claimed, sum_of(moved));
	for (const auto &[dev, bytes] : moved)
		file.devices[dev] += bytes;
}

// Commands that a thread issued outside of its requests do not count for them. If a pool that several files share is
// too small, the last file is reported.
std::map<TransferKey, uint64_t> TransferAudit::unmoved() const
{
	std::map<PoolKey, std::pair<uint64_t, uint64_t>> left;
	std::map<TransferKey, uint64_t> unmoved;
	auto take = [](uint64_t &from, uint64_t &need) {
		const uint64_t taken = std::min(from, need);
		from -= taken;
		need -= taken;
	};
	for (const auto &[way, pool] : pools_)
		left[way] = {sum_of(pool.own), pool.foreign ? 0 : sum_of(pool.others)};
	for (const auto &[key, file] : files_) {
		auto &[own, others] = left[pool_of(key)];
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

std::string TransferAudit::verdict(const TransferKey &key, const TransferRecord &file) const
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
			list.push_back({{"dev", text_of(dev)}, {"name", name_of(text_of(dev))}, {"bytes", bytes}});
		return list;
	};
	// A mount point may contain any byte.
	auto name_text = [&](const DeviceNumber &dev) { return escaped(name_of(text_of(dev))); };
	for (const auto &[key, file] : files_) {
		const char *how = key.write ? "write" : "read";
		const uint64_t missing = short_of.count(key) ? short_of.at(key) : 0;
		report.text += fmt::format("{} of inode {} on {} with provider {}: {} requests", how, key.ino,
					   name_text(key.dev), key.provider, file.requests);
		if (file.refused || file.failed)
			report.text += fmt::format(", {} refused, {} failed", file.refused, file.failed);
		report.text += fmt::format("\n  verdict    {}\n  claimed    direct {}, near {}, host {} bytes\n",
					   verdict(key, file), file.direct, file.near, file.host);
		for (const auto &[device, bytes] : file.devices)
			report.text += fmt::format("  moved      {} bytes by {}\n", bytes, name_text(device));
		if (missing)
			report.text += fmt::format("  UNMOVED    {} bytes were claimed as direct, but no {}\n", missing,
						   is_share(key.dev) ? unseen : unmoved_by_any);
		report.json["files"].push_back({{"direction", how},
						{"dev", text_of(key.dev)},
						{"name", name_of(text_of(key.dev))},
						{"inode", key.ino},
						{"provider", key.provider},
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
