// SPDX-License-Identifier: MIT
#include "viewd/control.hpp"

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "view/protocol.hpp"

namespace viewd
{

namespace
{

using json = nlohmann::ordered_json;

constexpr int patience = 5000; // milliseconds that a client may take

json json_of(const Service::ViewStatus &view)
{
	json out = {{"name", view.conf.name},
		    {"state", state_name(view.state)},
		    {"origin", view.origin.empty() ? "command" : view.origin},
		    {"hosts", view.conf.hosts}};
	if (!view.error.empty())
		out["error"] = view.error;
	if (!view.conf_error.empty())
		out["conf_error"] = view.conf_error;
	if (view.state == Service::State::scanning)
		out["scanned"] =
			view.steps ? static_cast<double>(view.steps_done) / static_cast<double>(view.steps) : 0;
	if (view.header) {
		out["device"] = view.device;
		if (!view.nqn.empty())
			out["nqn"] = view.nqn;
		out["codec"] = view.header->codec.name();
		out["elements"] = view.header->elements;
		out["files"] = view.header->files.size();
		out["bytes"] = view.header->data_bytes();
		out["reads"] = view.served.reads;
		out["bytes_read"] = view.served.bytes;
		out["failed_reads"] = view.served.failed;
		out["stale"] = view.served.stale;
		if (!view.served.fault.empty())
			out["last_fault"] = view.served.fault;
	}
	return out;
}

json status(const Service &service)
{
	json views = json::array();
	for (const Service::ViewStatus &view : service.status())
		views.push_back(json_of(view));
	const ChunkCache::Counts counts = service.cache_counts();
	json out = {{"views", views},
		    {"cache",
		     {{"hits", counts.hits},
		      {"misses", counts.misses},
		      {"prefetched", counts.prefetched},
		      {"wasted", counts.wasted}}},
		    {"conf_dir", service.conf_dir().empty() ? json() : json(service.conf_dir())}};
	if (const std::string error = service.conf_error(); !error.empty())
		out["conf_error"] = error;
	return out;
}

std::string text_at(const json &from, const char *key)
{
	return from.contains(key) && from[key].is_string() ? from[key].get<std::string>() : "";
}

// Waits until the peer is ready for `events`; false if it takes too long.
bool ready(int fd, short events)
{
	pollfd one = {fd, events, 0};
	return ::poll(&one, 1, patience) > 0;
}

} // namespace

std::string answer(Service &service, std::string_view request, bool may_change)
{
	const auto refusal = [](const std::string &why) {
		return json{{"error", why}}.dump(-1, ' ', false, json::error_handler_t::replace);
	};
	const json asked = json::parse(request, nullptr, false);
	const std::string op = asked.is_object() ? text_at(asked, "op") : "";
	try {
		if (op == "status")
			return status(service).dump(-1, ' ', false, json::error_handler_t::replace);
		if (op != "publish" && op != "withdraw")
			return refusal("unknown request");
		if (!may_change)
			return refusal("permission denied: only root may publish and withdraw views");
		const std::string name = text_at(asked, "name");
		if (op == "publish")
			service.publish(view::parse_conf(name, name, text_at(asked, "conf")));
		else
			service.withdraw(name);
		return "{}";
	} catch (const std::exception &error) {
		return refusal(error.what());
	}
}

ControlSocket::ControlSocket(const std::string &path) : path_(path)
{
	sockaddr_un address = {};
	address.sun_family = AF_UNIX;
	if (path.size() >= sizeof(address.sun_path))
		throw std::runtime_error(fmt::format("{}: too long for a socket", path));
	std::memcpy(address.sun_path, path.c_str(), path.size());
	fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const auto *const where = reinterpret_cast<const sockaddr *>(&address);
	// One that still answers is another service's.
	if (fd_ >= 0 && ::connect(fd_, where, sizeof(address)) == 0) {
		::close(fd_);
		throw std::runtime_error(fmt::format("{}: another service is running", path));
	}
	::unlink(path.c_str());
	if (fd_ < 0 || ::bind(fd_, where, sizeof(address)) < 0 || ::chmod(path.c_str(), 0666) < 0 ||
	    ::listen(fd_, 16) < 0) {
		const int error = errno;
		::close(fd_);
		throw std::runtime_error(fmt::format("{}: {}", path, std::strerror(error)));
	}
}

ControlSocket::~ControlSocket()
{
	::unlink(path_.c_str());
	::close(fd_);
}

void ControlSocket::serve(Service &service, int stop)
{
	for (;;) {
		pollfd both[] = {{stop, POLLIN, 0}, {fd_, POLLIN, 0}};
		if (::poll(both, 2, -1) < 0)
			continue;
		if (both[0].revents)
			return;
		const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			continue;
		serve_one(service, fd);
		::close(fd);
	}
}

void ControlSocket::serve_one(Service &service, int fd)
{
	ucred peer = {};
	socklen_t len = sizeof(peer);
	if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return;
	std::string request;
	for (;;) {
		char some[4096];
		if (!ready(fd, POLLIN))
			return;
		const ssize_t n = ::recv(fd, some, sizeof(some), 0);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return;
		if (n == 0)
			break;
		request.append(some, n > 0 ? static_cast<size_t>(n) : 0);
		if (request.size() > view::max_request)
			return;
	}
	const std::string said = answer(service, request, peer.uid == 0 || peer.uid == ::geteuid());
	for (size_t at = 0; at < said.size() && ready(fd, POLLOUT);) {
		const ssize_t n = ::send(fd, said.data() + at, said.size() - at, MSG_NOSIGNAL);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return;
		at += n > 0 ? static_cast<size_t>(n) : 0;
	}
}

} // namespace viewd
