// SPDX-License-Identifier: MIT
#include "viewd/control.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <new>
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

// Connections at a time, of each user who may change nothing, of all of them, and of those who may. More are closed.
constexpr int64_t most_of_a_user = 16, most_of_others = 256, most_of_changers = 64;
constexpr const char *not_permitted = "permission denied: only root may publish and withdraw views";
// What is taken before others have a turn.
constexpr int pieces_at_once = 64, connections_at_once = 64;

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
	if (!view.note.empty())
		out["note"] = view.note;
	if (view.state == Service::State::scanning)
		out["scanned"] =
			view.steps ? static_cast<double>(view.steps_done) / static_cast<double>(view.steps) : 0;
	if (view.summary) {
		out["device"] = view.device;
		if (!view.nqn.empty())
			out["nqn"] = view.nqn;
		out["codec"] = view.summary->codec.name();
		out["elements"] = view.summary->elements;
		out["files"] = view.summary->files;
		out["bytes"] = view.summary->bytes;
		out["reads"] = view.served.reads;
		out["bytes_read"] = view.served.bytes;
		out["failed_reads"] = view.served.failed;
		out["stale"] = view.served.stale;
		if (view.served.changed) {
			out["changed"] = view.served.changed;
			out["changed_files"] = view.served.changed_files;
		}
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

std::string refusal(const std::string &why)
{
	return json{{"error", why}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string too_large(bool may_change)
{
	if (may_change)
		return refusal(fmt::format("the request is too large; expected at most {} bytes", view::max_change));
	return refusal(fmt::format("{}; what others ask has at most {} bytes", not_permitted, view::max_question));
}

} // namespace

std::string answer(Service &service, std::string_view request, bool may_change)
{
	// Parsing takes a time that grows faster than the text.
	if (!may_change && request.size() > view::max_question)
		return too_large(may_change);
	try {
		const Request asked(request);
		const std::string op = asked.rest.is_object() ? text_at(asked.rest, "op") : "";
		if (op == "status")
			return status(service).dump(-1, ' ', false, json::error_handler_t::replace);
		if (op != "publish" && op != "withdraw" && op != "plan")
			return refusal("unknown request");
		if (!may_change)
			return refusal(not_permitted);
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

ControlSocket::ControlSocket(const std::string &path, std::chrono::milliseconds patience)
	: path_(path), patience_(patience)
{
	sockaddr_un address = {};
	address.sun_family = AF_UNIX;
	if (path.size() >= sizeof(address.sun_path))
		throw std::runtime_error(fmt::format("{}: too long for a socket", path));
	std::memcpy(address.sun_path, path.c_str(), path.size());
	fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const auto *const where = reinterpret_cast<const sockaddr *>(&address);
	// One that still answers is another service's; EAGAIN: it has many to answer.
	if (fd_ >= 0 && (::connect(fd_, where, sizeof(address)) == 0 || errno == EAGAIN)) {
		::close(fd_);
		throw std::runtime_error(fmt::format("{}: another service is running", path));
	}
	::unlink(path.c_str());
	if (fd_ < 0 || ::bind(fd_, where, sizeof(address)) < 0 || ::chmod(path.c_str(), 0666) < 0 ||
	    ::listen(fd_, 128) < 0) {
		const int error = errno;
		::close(fd_);
		throw std::runtime_error(fmt::format("{}: {}", path, std::strerror(error)));
	}
}

// Somebody who has connected: sends a request and closes that direction, then reads the answer.
struct ControlSocket::Connection {
	Connection(int of, uid_t who, bool may, std::chrono::milliseconds most_time)
		: fd(of), uid(who), may_change(may), most(may_change ? view::max_change : view::max_question),
		  patience(most_time)
	{
	}
	~Connection() { ::close(fd); }
	Connection(const Connection &) = delete;
	Connection &operator=(const Connection &) = delete;

	// Goes on as far as it can without waiting. Returns false if it is over.
	bool go_on(Service &service)
	{
		if (!is_answered && !receive())
			return false;
		if (has_ended && !is_answered) {
			const Clock::time_point began = Clock::now();
			said = is_too_large ? too_large(may_change) : answer(service, request, may_change);
			std::string().swap(request);
			is_answered = true;
			took = Clock::now() - began;
			until = Clock::now() + patience;
		}
		return !is_answered || send();
	}

	const int fd;
	const uid_t uid;
	const bool may_change;
	const size_t most; // bytes of a request
	const std::chrono::milliseconds patience;
	Clock::time_point until = Clock::now() + patience;
	bool is_answered = false;
	Clock::duration took = {}; // time of the answer; serve() resets it

private:
	bool receive()
	{
		std::array<char, 65536> some;
		for (int pieces = 0; !has_ended && pieces < pieces_at_once; pieces++) {
			const ssize_t n = ::recv(fd, some.data(), some.size(), 0);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0)
				return errno == EAGAIN;
			has_ended = n == 0;
			// The rest of what is too large is read all the same: the peer then reads the answer.
			is_too_large |= request.size() + static_cast<size_t>(n) > most;
			if (is_too_large)
				std::string().swap(request);
			else
				request.append(some.data(), static_cast<size_t>(n));
		}
		return true;
	}
	bool send()
	{
		while (sent < said.size()) {
			const ssize_t n = ::send(fd, said.data() + sent, said.size() - sent, MSG_NOSIGNAL);
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0)
				return errno == EAGAIN;
			sent += static_cast<size_t>(n);
		}
		return false;
	}

	std::string request, said;
	size_t sent = 0;
	bool is_too_large = false, has_ended = false;
};

ControlSocket::~ControlSocket() { close(); }

void ControlSocket::close()
{
	if (fd_ < 0)
		return;
	::unlink(path_.c_str());
	::close(std::exchange(fd_, -1));
}

// Returns false if one cannot be taken now.
bool ControlSocket::take_connections()
{
	for (int taken = 0; taken < connections_at_once; taken++) {
		const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return errno == EAGAIN;
		ucred peer = {};
		socklen_t len = sizeof(peer);
		const bool is_known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0;
		const bool may_change = peer.uid == 0 || peer.uid == ::geteuid();
		const auto is_alike = [&](const auto &other) { return other->may_change == may_change; };
		const auto is_of_user = [&](const auto &other) { return other->uid == peer.uid; };
		const auto alike = std::ranges::count_if(connections_, is_alike);
		const bool is_too_many =
			may_change ? alike >= most_of_changers :
				     alike >= most_of_others ||
					     std::ranges::count_if(connections_, is_of_user) >= most_of_a_user;
		std::unique_ptr<Connection> connection;
		try {
			connections_.reserve(connections_.size() + 1);
			if (is_known && !is_too_many)
				connection = std::make_unique<Connection>(fd, peer.uid, may_change, patience_);
		} catch (const std::bad_alloc &) {
			::close(fd);
			return false;
		}
		if (connection)
			connections_.push_back(std::move(connection));
		else
			::close(fd);
	}
	return true;
}

// Extends the deadline of each peer by the time that an answer, or serve()'s caller, took.
void ControlSocket::grant(Clock::duration time)
{
	for (const std::unique_ptr<Connection> &connection : connections_)
		connection->until += time;
}

void ControlSocket::serve(Service &service, int stop)
{
	std::array<pollfd, 2 + most_of_others + most_of_changers> all;
	grant(Clock::now() - left_);
	for (;;) {
		all[0] = {stop, POLLIN, 0};
		all[1] = {fd_, POLLIN, 0};
		Clock::time_point first = Clock::time_point::max();
		for (size_t i = 0; i < connections_.size(); i++) {
			const Connection &connection = *connections_[i];
			all[i + 2] = {connection.fd, static_cast<short>(connection.is_answered ? POLLOUT : POLLIN), 0};
			first = std::min(first, connection.until);
		}
		const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - Clock::now()).count();
		const int timeout = connections_.empty() ? -1 : static_cast<int>(std::max<int64_t>(left, 0));
		if (::poll(all.data(), connections_.size() + 2, timeout) < 0)
			continue;
		const Clock::time_point now = Clock::now();
		if (all[0].revents) {
			left_ = now;
			return;
		}
		Clock::duration took = {};
		for (size_t i = 0; i < connections_.size(); i++) {
			std::unique_ptr<Connection> &connection = connections_[i];
			bool goes_on = true;
			try {
				if (all[i + 2].revents)
					goes_on = connection->go_on(service);
			} catch (const std::exception &error) {
				// Memory is short: for this request only.
				std::fprintf(stderr, "peerdma-viewd: %s\n", error.what());
				goes_on = false;
			}
			took += std::exchange(connection->took, {});
			if (!goes_on || now >= connection->until)
				connection.reset();
		}
		std::erase(connections_, nullptr);
		grant(took);
		if (all[1].revents && !take_connections())
			// Without descriptors poll() would return at once again.
			::usleep(100'000);
	}
}

} // namespace viewd
