// SPDX-License-Identifier: MIT
#include "viewd/control.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

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

using Clock = std::chrono::steady_clock;

// That root, and others, may take for a request and for its answer.
constexpr std::chrono::milliseconds long_patience(10'000), short_patience(1'000);

// A request but for its ranges, which are not kept as JSON: that takes ten times as much memory.
struct Request {
	json rest;
	std::vector<std::pair<uint64_t, uint64_t>> ranges;
	bool has_ranges = false, are_ranges_valid = true;

	explicit Request(std::string_view text)
	{
		bool within = false;
		const auto each = [&](int depth, json::parse_event_t event, json &value) {
			if (event == json::parse_event_t::key && depth == 1) {
				within = value == "ranges";
				has_ranges |= within;
			}
			if (!within || depth < 2 || event == json::parse_event_t::array_start ||
			    event == json::parse_event_t::object_start || event == json::parse_event_t::key)
				return true;
			if (depth > 2)
				return true; // a number of a range
			if (value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
			    value[1].is_number_unsigned())
				ranges.emplace_back(value[0], value[1]);
			else
				are_ranges_valid = false;
			return false;
		};
		rest = json::parse(text, each, false);
		are_ranges_valid &= has_ranges && rest.is_object() && rest["ranges"].is_array();
	}
};

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
	if (view.summary) {
		out["device"] = view.device;
		if (!view.nqn.empty())
			out["nqn"] = view.nqn;
		if (!view.note.empty())
			out["note"] = view.note;
		out["codec"] = view.summary->codec.name();
		out["elements"] = view.summary->elements;
		out["files"] = view.summary->files;
		out["bytes"] = view.summary->bytes;
		out["reads"] = view.served.reads;
		out["bytes_read"] = view.served.bytes;
		out["failed_reads"] = view.served.failed;
		out["stale"] = view.served.stale;
		if (!view.served.fault.text.empty()) {
			out["last_fault"] = view.served.fault.text;
			out["fault_file"] = view.served.fault.file;
			out["fault_element"] = view.served.fault.element;
		}
		if (view.conf.compressed)
			out["restarts"] = view.served.restarts;
		if (view.served.plan_length) {
			out["plan_ranges"] = view.served.plan_length;
			out["plan_position"] = view.served.plan_position;
		}
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

// Waits until the peer is ready for `events`; false if it takes too long, or if `stop` can be read.
bool ready(int fd, short events, int stop, Clock::time_point until)
{
	pollfd both[] = {{fd, events, 0}, {stop, POLLIN, 0}};
	const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
	return left > 0 && ::poll(both, 2, static_cast<int>(left)) > 0 && !both[1].revents;
}

std::string refusal(const std::string &why)
{
	return json{{"error", why}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

} // namespace

std::string answer(Service &service, std::string_view request, bool may_change)
{
	try {
		const Request asked(request);
		const std::string op = asked.rest.is_object() ? text_at(asked.rest, "op") : "";
		if (op == "status")
			return status(service).dump(-1, ' ', false, json::error_handler_t::replace);
		if (op != "publish" && op != "withdraw" && op != "plan")
			return refusal("unknown request");
		if (!may_change)
			return refusal("permission denied: only root may publish and withdraw views");
		const std::string name = text_at(asked.rest, "name");
		if (op == "publish")
			service.publish(view::parse_conf(name, name, text_at(asked.rest, "conf")));
		else if (op == "withdraw")
			service.withdraw(name);
		else if (asked.are_ranges_valid)
			service.plan(name, asked.ranges);
		else
			return refusal("plan: expected ranges: [[FIRST, COUNT], ...]");
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
		if (fd < 0) {
			// Without descriptors poll() would return at once again.
			::usleep(100'000);
			continue;
		}
		try {
			serve_one(service, fd, stop);
		} catch (const std::exception &error) {
			// Memory is short: for this request only.
			std::fprintf(stderr, "peerdma-viewd: %s\n", error.what());
		}
		::close(fd);
	}
}

void ControlSocket::serve_one(Service &service, int fd, int stop)
{
	ucred peer = {};
	socklen_t len = sizeof(peer);
	if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return;
	const bool may_change = peer.uid == 0 || peer.uid == ::geteuid();
	const size_t most = may_change ? view::max_change : view::max_request;
	// Requests are answered one after the other, so those of others must not hold up root's for long.
	const auto patience = may_change ? long_patience : short_patience;
	const Clock::time_point until = Clock::now() + patience;
	std::string request;
	bool is_too_large = false;
	for (;;) {
		std::array<char, 65536> some;
		if (!ready(fd, POLLIN, stop, until))
			return;
		const ssize_t n = ::recv(fd, some.data(), some.size(), 0);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return;
		if (n == 0)
			break;
		// The rest of what is too large is read all the same: the peer then reads the answer.
		is_too_large |= n > 0 && request.size() + static_cast<size_t>(n) > most;
		if (is_too_large)
			std::string().swap(request);
		else
			request.append(some.data(), n > 0 ? static_cast<size_t>(n) : 0);
	}
	const std::string said =
		is_too_large ? refusal(fmt::format("the request is too large; expected at most {} bytes", most)) :
			       answer(service, request, may_change);
	const Clock::time_point read_until = Clock::now() + patience;
	for (size_t at = 0; at < said.size();) {
		// First: what was done is answered even if the service is to reload or to end.
		const ssize_t n = ::send(fd, said.data() + at, said.size() - at, MSG_NOSIGNAL);
		const bool must_wait = n < 0 && errno == EAGAIN;
		if ((n < 0 && errno != EINTR && !must_wait) || (must_wait && !ready(fd, POLLOUT, stop, read_until)))
			return;
		at += n > 0 ? static_cast<size_t>(n) : 0;
	}
}

} // namespace viewd
