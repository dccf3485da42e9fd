// SPDX-License-Identifier: MIT
//
// The service's socket, by which the command talks to it. A connection carries one request and its answer, both JSON:
//
//   {"op": "publish", "name": NAME, "conf": TEXT}, {"op": "withdraw", "name": NAME}, {"op": "status"},
//   {"op": "plan", "name": NAME, "ranges": [[FIRST, COUNT], ...]}
//   {"error": TEXT}, {}, {"views": [...], "cache": {...}}
//
// A plan is the ranges of elements that will be read, in this order; FIRST counts from 0. The service reads them ahead, within the share of
// the memory that a stream has, as the reads go on. The next plan of the view replaces it, [] or the view's withdrawal ends it. It
// has at most 1,048,576 ranges, and takes 16 bytes for each.
//
// Anybody may ask for the status; root and the service's own user may publish, withdraw and plan. A request has at most 1 MiB, a plan of theirs
// 48 MiB, and all of it must be there within 10 s.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "viewd/service.hpp"

namespace viewd
{

inline constexpr const char *default_socket = "/run/peerdma/viewd.sock";

// The most bytes of a request; of one of a peer that may change something.
inline constexpr size_t max_request = 1 << 20, max_change = 48 << 20;

// The answer to a request.
std::string answer(Service &service, std::string_view request, bool may_change);

class ControlSocket
{
public:
	// Throws std::runtime_error.
	explicit ControlSocket(const std::string &path);
	~ControlSocket();
	ControlSocket(const ControlSocket &) = delete;
	ControlSocket &operator=(const ControlSocket &) = delete;

	// Answers requests until `stop`, a descriptor, can be read.
	void serve(Service &service, int stop);

private:
	void serve_one(Service &service, int fd);

	const std::string path_;
	int fd_ = -1;
};

} // namespace viewd
