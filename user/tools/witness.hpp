// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli.hpp"
#include "env.hpp"

namespace cli
{

// A line of trace_pipe: who, what, and the event's own text.
struct TraceLine {
	int tid;
	std::string_view event, text;
};
std::optional<TraceLine> parse_trace(std::string_view line);

// What one file's requests claimed, and what devices moved for them.
struct Testimony {
	uint64_t requests = 0, refused = 0, failed = 0;
	uint64_t direct = 0, near = 0, host = 0; // bytes, as PeerDMA says
	uint64_t unmoved = 0;                    // of direct, bytes that no device moved
	std::map<std::string, uint64_t> leaves;  // bytes that devices were asked to move, by "major:minor"
};

// Listens to a trace, line by line, and compares. A bio is counted for a request if the same thread
// submitted it between the request's begin and its end, in the same direction, for data and not for the
// filesystem's own use, to a device that stands on no other.
class Witness
{
public:
	using IsLeaf = std::function<bool(const std::string &dev)>;
	explicit Witness(IsLeaf is_leaf) : is_leaf_(std::move(is_leaf)) {}

	void hear(std::string_view line);
	bool proved() const;
	Report report(const std::function<std::string(const std::string &)> &name_of) const;

	const std::map<std::string, Testimony> &files() const { return files_; } // by "read dev ino provider"

private:
	struct Request {
		std::string key;
		bool write;
		std::map<std::string, uint64_t> moved;
	};
	void begin(const TraceLine &line);
	void end(const TraceLine &line);
	void bio(const TraceLine &line);

	IsLeaf is_leaf_;
	std::map<int, Request> running_; // by thread
	std::map<std::string, Testimony> files_;
	uint64_t lost_ = 0, half_seen_ = 0; // events the kernel had no room for; requests without a beginning
};

bool stands_on_no_other(peerdma_impl::Env &env, const std::string &dev);

} // namespace cli
