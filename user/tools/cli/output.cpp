// SPDX-License-Identifier: MIT
#include "tools/cli/output.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <stdio_ext.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cli
{
namespace
{

unsigned char byte_of(char c) { return static_cast<unsigned char>(c); }

struct Letter {
	size_t len;        // bytes; 0: not valid UTF-8
	uint32_t code = 0; // code point
};

// RFC 3629: the shortest form, no surrogates, up to U+10FFFF.
Letter first_letter(std::string_view text)
{
	const unsigned char lead = byte_of(text.front());
	if (lead < 0x80)
		return {1, lead};
	const size_t len = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
	if (!len || text.size() < len)
		return {0};
	uint32_t code = lead & (0x7f >> len);
	for (size_t i = 1; i < len; i++) {
		if ((byte_of(text[i]) & 0xc0) != 0x80)
			return {0};
		code = code << 6 | (byte_of(text[i]) & 0x3f);
	}
	const bool is_shortest = len == 2 || (len == 3 && code >= 0x800) || (len == 4 && code >= 0x10000);
	if (!is_shortest || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
		return {0};
	return {len, code};
}

struct Range {
	uint32_t first, last;
};

// Unicode 15: general categories Cc, Cf, Zl and Zp, and Default_Ignorable_Code_Point. They move the cursor, end a line,
// change the writing direction of a terminal, or are invisible.
constexpr Range controls[] = {
	{0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},     {0x600, 0x605},
	{0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
	{0x115f, 0x1160},   {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
	{0x2060, 0x206f},   {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
	{0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3},
	{0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool is_control(uint32_t code)
{
	return std::any_of(std::begin(controls), std::end(controls),
			   [code](const Range &range) { return range.first <= code && code <= range.last; });
}

std::string escape_of(char c)
{
	constexpr std::string_view letters = "abtnvfr"; // escapes of the codes from 7 on
	if (c >= '\a' && c <= '\r')
		return {'\\', letters[static_cast<size_t>(c - '\a')]};
	return fmt::format("\\{:03o}", byte_of(c));
}

// as_it_is: other characters that are not escaped.
std::string escape(std::string_view text, std::string_view as_it_is, bool backslash)
{
	std::string out;
	while (!text.empty()) {
		const Letter letter = first_letter(text);
		const std::string_view bytes = text.substr(0, std::max<size_t>(letter.len, 1));
		text.remove_prefix(bytes.size());
		if (bytes == "\\" && backslash)
			out += "\\\\";
		else if (letter.len && (!is_control(letter.code) || as_it_is.find(bytes) != as_it_is.npos))
			out += bytes;
		else
			for (const char c : bytes)
				out += escape_of(c);
	}
	return out;
}

bool is_utf8(std::string_view text)
{
	while (!text.empty()) {
		const size_t len = first_letter(text).len;
		if (!len)
			return false;
		text.remove_prefix(len);
	}
	return true;
}

// Adds the bytes of each string that is not valid UTF-8, which JSON cannot hold.
void add_bytes(Json &json)
{
	std::vector<std::pair<std::string, Json>> beside;
	for (auto &[key, value] : json.items()) {
		if (value.is_structured())
			add_bytes(value);
		if (!json.is_object() || !value.is_string())
			continue;
		const auto &text = value.get_ref<const std::string &>();
		if (!is_utf8(text))
			beside.emplace_back(key + "_bytes", std::vector<unsigned char>(text.begin(), text.end()));
	}
	for (const auto &[key, bytes] : beside)
		json[key] = bytes;
}

int lost(int error)
{
	complain(fmt::format("cannot write to standard output: {} ({})", strerrordesc_np(error), errno_name(error)));
	return exit_failed;
}

} // namespace

std::string escaped(std::string_view text) { return escape(text, "", true); }

std::string printable(std::string_view text) { return escape(text, "\n\t", false); }

std::string dump(const Json &json)
{
	Json whole = json;
	add_bytes(whole);
	return whole.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int write_all(int fd, std::string_view bytes)
{
	while (!bytes.empty()) {
		const ssize_t n = ::write(fd, bytes.data(), bytes.size());
		if (n < 0 && errno == EAGAIN) {
			pollfd writable = {fd, POLLOUT, 0};
			::poll(&writable, 1, -1);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		bytes.remove_prefix(static_cast<size_t>(n));
	}
	return 0;
}

// Incomplete output is a failure: a full disk must not look like success to a script.
int print(const std::string &text, int status)
{
	errno = 0;
	if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
		const int error = errno ? errno : EIO;
		::__fpurge(stdout); // reported once
		return lost(error);
	}
	return status;
}

void complain(std::string_view line)
{
	const std::string text = "peerdma: " + escaped(line) + "\n";
	std::fwrite(text.data(), 1, text.size(), stderr); // an error here cannot be reported
}

void reserve_streams()
{
	// open() returns the lowest free number, which is fd. The opposite mode makes every use of the stream fail.
	for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
		if (::fcntl(fd, F_GETFD) < 0)
			static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

int close_output(int status) { return std::fclose(stdout) == 0 ? status : lost(errno); }

Output::Output(const std::string &path) : path_(path)
{
	// O_NONBLOCK: opening a FIFO without a reader fails. It is cleared afterwards, so that writes wait.
	constexpr int how = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	fd_ = ::open(path.c_str(), how);
	if (fd_ < 0 && errno == ENOENT) {
		fd_ = ::open(path.c_str(), how | O_CREAT | O_EXCL, 0666);
		made_ = fd_ >= 0;
	}
	if (fd_ < 0) {
		const int error = errno;
		char target[PATH_MAX];
		const ssize_t len = error == EEXIST ? ::readlink(path.c_str(), target, sizeof(target)) : -1;
		if (len >= 0)
			throw Failure{fmt::format("cannot write {}, a symbolic link to {}", path,
						  std::string_view(target, static_cast<size_t>(len))),
				      ENOENT,
				      0,
				      "",
				      {}};
		throw Failure{fmt::format("cannot write {}", path), error, 0, "", {}};
	}
	::fcntl(fd_, F_SETFL, 0);
}

Output::~Output()
{
	if (fd_ >= 0)
		::close(fd_);
	if (made_)
		::unlink(path_.c_str());
}

void Output::write(std::string_view text)
{
	struct stat st = {};
	int error = ::fstat(fd_, &st) < 0 || (S_ISREG(st.st_mode) && ::ftruncate(fd_, 0) < 0) ? errno : 0;
	if (!error)
		error = write_all(fd_, text);
	if (::close(std::exchange(fd_, -1)) < 0 && !error)
		error = errno;
	if (error)
		throw Failure{fmt::format("cannot write {}", path_), error, 0, "", {}};
	made_ = false;
}

} // namespace cli
