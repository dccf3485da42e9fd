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

// A line of trace_pipe: who, what, and the event's own text.
struct TraceLine {
	int tid;
	std::string_view event, text;
};
std::optional<TraceLine> parse_trace(std::string_view line);

using BytesByDevice = std::map<std::string, uint64_t>; // bytes that devices were asked to move, by "major:minor"

// The requests of one direction, file and provider: what PeerDMA claimed for them, and what devices were asked to move.
struct TransferRecord {
	bool write = false;
	uint64_t provider = 0;
	uint64_t requests = 0, refused = 0, failed = 0;
	uint64_t direct = 0, near = 0, host = 0; // bytes, as PeerDMA says
	uint64_t unmatched = 0;                  // of direct and near, bytes that no command of the same thread moved
	uint64_t async = 0;                      // of direct, bytes of requests that were sent without waiting
	BytesByDevice devices;                   // by commands of the same threads
};

// Reads a trace, line by line, and compares each request's claim with the commands that devices were given.
//
// Every command that carries PeerDMA's pages bears its priority hint, on the backing device of a stack too. What a thread
// issues between the begin and the end of a request of its own was for that request. A request that is sent
// without waiting is issued whenever io_uring gets to it, and a mirror's writes by a thread of the kernel: what
// bears the hint and was in no request of its thread is pooled, by direction and provider, and what requests are
// owed is taken from there. Somebody else's requests would put into the same pool; so it then counts only as far
// as a thread of the watched processes issued it. Requests that were not seen from begin to end claim nothing.
class TransferAudit
{
public:
	explicit TransferAudit(std::set<int> watched) : watched_(std::move(watched)) {}

	void feed(std::string_view line);
	// Bytes were moved, every claim is proved, and nothing was missed.
	bool proved() const;
	Report report(const std::function<std::string(const std::string &)> &name_of) const;

	const std::map<std::string, TransferRecord> &files() const { return files_; } // by "read dev ino provider"
	// Bytes claimed to have come from a device that no device was asked to move, by file as in files().
	std::map<std::string, uint64_t> unmoved() const;

private:
	struct Request {
		std::string key;
		bool write, watched;
		uint64_t provider;
		BytesByDevice moved;
	};
	struct Pool {
		BytesByDevice own, others; // issued by a watched thread, or by any
		bool foreign = false;      // others had such requests under way
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
	std::set<uint64_t> async_requests_; // numbers of requests sent without waiting
	std::map<std::string, TransferRecord> files_;
	std::map<PoolKey, Pool> pools_;
	uint64_t lost_ = 0, begun_before_ = 0; // events the kernel had no room for; requests without a beginning
};

} // namespace cli
