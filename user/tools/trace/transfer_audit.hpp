// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/syscalls.hpp"
#include "tools/cli/cli.hpp"

namespace cli
{

// A line of trace_pipe: thread, event, and the text of the event.
struct TraceLine {
	int tid;
	std::string_view event, text;
};
std::optional<TraceLine> parse_trace(std::string_view line);

using BytesByDevice = std::map<std::string, uint64_t>; // bytes of commands to devices, by "major:minor"

// The requests of one direction, file and provider: the bytes that PeerDMA claims, and the bytes of commands to
// devices.
struct TransferRecord {
	bool write = false;
	uint64_t provider = 0;
	uint64_t requests = 0, refused = 0, failed = 0;
	uint64_t direct = 0, near = 0, host = 0; // bytes, claimed by PeerDMA
	uint64_t unmatched = 0;                  // bytes of direct and near without a command of the same thread
	uint64_t async = 0;                      // bytes of direct in requests that were submitted asynchronously
	BytesByDevice devices;                   // commands of the same threads
};

// Reads a trace line by line and compares each request's claim with the commands that were issued to devices.
//
// Every command with PeerDMA's pages carries its priority hint, also on the backing devices of a stack. Commands that a
// thread issues between the begin and the end of its own request belong to that request. An asynchronous request is
// issued later by io_uring, and a mirror's writes by a kernel thread. Commands that carry the hint outside of a request
// of their thread therefore go into a pool, by direction and provider, and claims without commands are taken from it.
// Requests of other processes would add to the same pool. If there are any, only commands issued by threads of the
// watched processes count. Requests whose begin or end was not seen claim nothing.
class TransferAudit
{
public:
	explicit TransferAudit(std::set<int> watched) : watched_(std::move(watched)) {}

	void feed(std::string_view line);
	// Bytes were moved, every claim is proved, and no event was lost.
	bool proved() const;
	Report report(const std::function<std::string(const std::string &)> &name_of) const;

	const std::map<std::string, TransferRecord> &files() const { return files_; } // by "read dev ino provider"
	// Bytes claimed as moved by a device for which no command was seen, by file as in files().
	std::map<std::string, uint64_t> unmoved() const;

private:
	struct Request {
		std::string key;
		bool write, watched;
		uint64_t provider;
		BytesByDevice moved;
	};
	struct Pool {
		BytesByDevice own, others; // issued by a watched thread, or by any other
		bool foreign = false;      // other processes had asynchronous requests under way
	};
	using PoolKey = std::pair<bool, uint64_t>; // direction, hint

	bool is_watched(std::string_view text) const;
	void fork(const TraceLine &line);
	void begin(const TraceLine &line);
	void end(const TraceLine &line);
	void issue(const TraceLine &line);
	uint64_t unfinished() const;
	std::string verdict(const std::string &key, const TransferRecord &file) const;

	std::set<int> watched_;             // processes and threads
	std::map<int, Request> running_;    // by thread
	std::set<uint64_t> async_requests_; // numbers of asynchronous requests
	std::map<std::string, TransferRecord> files_;
	std::map<PoolKey, Pool> pools_;
	uint64_t lost_ = 0, begun_before_ = 0; // events lost by the kernel; requests whose begin was not seen
};

} // namespace cli
