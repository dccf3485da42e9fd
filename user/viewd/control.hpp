// SPDX-License-Identifier: MIT
//
// The service's socket, by which the command talks to it (view/protocol.hpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "viewd/service.hpp"

namespace viewd
{

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
	void serve_one(Service &service, int fd, int stop);

	const std::string path_;
	int fd_ = -1;
};

} // namespace viewd
