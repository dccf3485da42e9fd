// SPDX-License-Identifier: MIT
//
// The service's socket, by which the command talks to it. A connection carries one request and its answer, both JSON:
//
//   {"op": "publish", "name": NAME, "conf": TEXT}, {"op": "withdraw", "name": NAME}, {"op": "status"}
//   {"error": TEXT}, {}, {"views": [...], "cache": {...}}
//
// Anybody may ask for the status; root and the service's own user may publish and withdraw.
#pragma once

#include <string>
#include <string_view>

#include "viewd/service.hpp"

namespace viewd
{

inline constexpr const char *default_socket = "/run/peerdma/viewd.sock";

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
