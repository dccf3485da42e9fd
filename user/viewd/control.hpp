// SPDX-License-Identifier: MIT
//
// The service's socket, by which the command talks to it (view/protocol.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "viewd/service.hpp"

namespace viewd
{

// The answer to a request.
std::string answer(Service &service, std::string_view request, bool may_change);

// Requests are answered one after the other, as they are there: who takes long to send one holds up nobody.
class ControlSocket
{
public:
	// patience: how long a peer may take for a request, and for its answer. Throws std::runtime_error.
	explicit ControlSocket(const std::string &path, std::chrono::milliseconds patience = std::chrono::seconds(10));
	~ControlSocket();
	ControlSocket(const ControlSocket &) = delete;
	ControlSocket &operator=(const ControlSocket &) = delete;

	// From now on there is none; nobody can connect to it.
	void close();
	// Answers requests until `stop`, a descriptor, can be read.
	void serve(Service &service, int stop);

private:
	using Clock = std::chrono::steady_clock;
	struct Connection;

	bool take_connections();
	void grant(Clock::duration time);

	const std::string path_;
	const std::chrono::milliseconds patience_;
	int fd_ = -1;
	std::vector<std::unique_ptr<Connection>> connections_;
	Clock::time_point left_ = {}; // when serve() returned
};

} // namespace viewd
