// SPDX-License-Identifier: MIT
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/syscalls.hpp"
#include "tools/cli/cli.hpp"

namespace cli
{

using DeviceNumber = std::pair<uint32_t, uint32_t>;     // major, minor
using BytesByDevice = std::map<DeviceNumber, uint64_t>; // of commands to devices

// The requests that are reported together.
struct TransferKey {
	bool write = false;
	DeviceNumber dev; // the file's
	uint64_t ino = 0;
	uint64_t provider = 0;

	auto operator<=>(const TransferKey &) const = default;
};

// What PeerDMA's events say about a request.
struct TracedRequest {
	TransferKey key;
	int pid = 0;
	bool async = false;
	uint64_t number = 0; // of an asynchronous request; 0 if it was refused
};
struct TracedResult {
	uint64_t done = 0, direct = 0, near = 0, host = 0; // bytes
	uint64_t reason = 0;
	int error = 0; // -errno
};

// A command that the block layer issued.
struct TracedCommand {
	DeviceNumber dev;
	bool write = false;
	uint64_t bytes = 0;
	unsigned hint = 0; // of its priority
};

// The requests of one key: the bytes that PeerDMA claims, and the bytes of commands to devices.
struct TransferRecord {
	uint64_t requests = 0, refused = 0, failed = 0;
	uint64_t direct = 0, near = 0, host = 0; // bytes, claimed by PeerDMA
	uint64_t unmatched = 0;                  // bytes of direct and near without a command of the same thread
	uint64_t async = 0;                      // bytes of direct in requests that were submitted asynchronously
	BytesByDevice devices;                   // commands of the same threads
};

// Is told a trace event by event and compares each request's claim with the commands that were issued to devices.
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

	// tid: the thread in whose context the event happened.
	void on_fork(int tid, int child);
	void on_submit(int tid, const TracedRequest &request);
	void on_issue(int tid, const TracedCommand &command);
	void on_complete(int tid, const TracedRequest &request, const TracedResult &result);
	void on_lost(uint64_t events) { lost_ += events; }

	// Bytes were moved, every claim is proved, and no event was lost.
	bool proved() const;
	// name_of: of "major:minor".
	Report report(const std::function<std::string(const std::string &)> &name_of) const;

	const std::map<TransferKey, TransferRecord> &files() const { return files_; }
	// Bytes claimed as moved by a device for which no command was seen.
	std::map<TransferKey, uint64_t> unmoved() const;

private:
	struct Request {
		TransferKey key;
		bool watched;
		BytesByDevice moved;
	};
	struct Pool {
		BytesByDevice own, others; // issued by a watched thread, or by any other
		bool foreign = false;      // other processes had asynchronous requests under way
	};
	using PoolKey = std::pair<bool, unsigned>; // write, hint
	static PoolKey pool_of(const TransferKey &key);

	uint64_t unfinished() const;
	std::string verdict(const TransferKey &key, const TransferRecord &file) const;

	std::set<int> watched_;             // processes and threads
	std::map<int, Request> running_;    // by thread
	std::set<uint64_t> async_requests_; // numbers of asynchronous requests
	std::map<TransferKey, TransferRecord> files_;
	std::map<PoolKey, Pool> pools_;
	uint64_t lost_ = 0, begun_before_ = 0; // events lost by the kernel; requests whose begin was not seen
};

} // namespace cli
