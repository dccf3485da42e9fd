// SPDX-License-Identifier: MIT
#include "tools/view/service.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "view/protocol.hpp"

namespace cli
{
namespace
{

constexpr time_t patience = 120;            // seconds. A view is withdrawn once its reads have ended
constexpr size_t max_answer = 256ULL << 20; // bytes

class Connection
{
public:
	explicit Connection(const std::string &path) : path_(path)
	{
		sockaddr_un address = {};
		address.sun_family = AF_UNIX;
		if (path.size() >= sizeof(address.sun_path))
			throw Failure{fmt::format("cannot connect to {}", path), ENAMETOOLONG, 0, "", {}};
		std::memcpy(address.sun_path, path.c_str(), path.size());
		fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		const timeval limit = {patience, 0};
		if (fd_ < 0 || ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
		    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0 ||
		    ::connect(fd_, reinterpret_cast<const sockaddr *>(&address), sizeof(address)) < 0) {
			const int error = errno;
			close();
			const bool is_absent = error == ENOENT || error == ECONNREFUSED;
			throw Failure{fmt::format("cannot connect to peerdma-viewd by {}", path),
				      error,
				      0,
				      is_absent ? "Start it on the storage node: systemctl start peerdma-viewd." : "",
				      {}};
		}
	}
	~Connection() { close(); }
	Connection(const Connection &) = delete;
	Connection &operator=(const Connection &) = delete;

	void send(std::string_view text) const
	{
		while (!text.empty()) {
			const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
			if (n < 0 && errno != EINTR)
				lost(errno);
			text.remove_prefix(n > 0 ? static_cast<size_t>(n) : 0);
		}
		::shutdown(fd_, SHUT_WR);
	}

	std::string receive() const
	{
		std::string text;
		for (;;) {
			char some[65536];
			const ssize_t n = ::recv(fd_, some, sizeof(some), 0);
			if (n == 0)
				return text;
			if (n < 0 && errno != EINTR)
				lost(errno);
			text.append(some, n > 0 ? static_cast<size_t>(n) : 0);
			if (text.size() > max_answer)
				lost(EMSGSIZE);
		}
	}

private:
	[[noreturn]] void lost(int error) const
	{
		// The time limit of a socket ends with EAGAIN.
		throw Failure{fmt::format("peerdma-viewd does not answer by {}", path_),
			      error == EAGAIN ? ETIMEDOUT : error,
			      0,
			      "",
			      {}};
	}
	void close()
	{
		if (fd_ >= 0)
			::close(fd_);
		fd_ = -1;
	}

	const std::string path_;
	int fd_ = -1;
};

// Of a member, or null.
const Json &member(const Json &from, const char *key)
{
	static const Json none;
	const auto found = from.is_object() ? from.find(key) : from.end();
	return found == from.end() ? none : *found;
}

Failure no_answer(const std::string &socket)
{
	return {fmt::format("{}: what answers there is not peerdma-viewd, or of another version", socket),
		0,
		0,
		"",
		{}};
}

std::string text_of_request(const Json &request)
{
	try {
		return request.dump();
	} catch (const Json::exception &) {
		throw Failure{"the request to peerdma-viewd is not UTF-8",
			      EILSEQ,
			      0,
			      fmt::format("Define the view by a file of {}, which may have any bytes.",
					  view::default_conf_dir),
			      {}};
	}
}

Json answer_to(const std::string &text, const std::string &socket)
{
	const Connection service(socket);
	service.send(text);
	const Json answer = Json::parse(service.receive(), nullptr, false);
	if (!answer.is_object())
		throw no_answer(socket);
	if (const Json &error = member(answer, "error"); !error.is_null())
		throw Failure{error.is_string() ? error.get<std::string>() : error.dump(), 0, 0, "", {}};
	return answer;
}

} // namespace

Json ask_service(const std::string &socket, const Json &request)
{
	const std::string text = text_of_request(request);
	if (text.size() > view::max_request)
		throw Failure{"the request to peerdma-viewd is too large",
			      E2BIG,
			      0,
			      fmt::format("Define the view by a file of {}, with a pattern for its files.",
					  view::default_conf_dir),
			      {}};
	return answer_to(text, socket);
}

void send_plan(const std::string &socket, const std::string &name, const std::vector<PlannedRange> &ranges)
{
	// With room for any name that a command line can have.
	static_assert(max_planned_ranges * sizeof("[18446744073709551615,18446744073709551615]") + (1 << 20) <
		      view::max_change);
	std::string text = text_of_request({{"op", "plan"}, {"name", name}});
	text.back() = ',';
	text += "\"ranges\":[";
	for (const PlannedRange &range : ranges)
		fmt::format_to(std::back_inserter(text), "{}[{},{}]", &range == ranges.data() ? "" : ",", range.first,
			       range.count);
	text += "]}";
	answer_to(text, socket);
}

std::string text_of(const Json &from, const char *key)
{
	const Json &value = member(from, key);
	return value.is_string() ? value.get<std::string>() : "";
}

uint64_t number_of(const Json &from, const char *key)
{
	const Json &value = member(from, key);
	return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
}

double fraction_of(const Json &from, const char *key)
{
	const Json &value = member(from, key);
	return value.is_number() ? value.get<double>() : 0;
}

bool flag_of(const Json &from, const char *key)
{
	const Json &value = member(from, key);
	return value.is_boolean() && value.get<bool>();
}

std::vector<Json> views_of(const Json &status)
{
	const Json &views = member(status, "views");
	if (!views.is_array() ||
	    !std::ranges::all_of(views, [](const Json &one) { return !text_of(one, "name").empty(); }))
		throw Failure{"the answer of peerdma-viewd has no list of views", EPROTO, 0, "", {}};
	return views;
}

Json find_view(const Json &status, const std::string &name)
{
	for (const Json &one : views_of(status))
		if (text_of(one, "name") == name)
			return one;
	return {};
}

} // namespace cli
