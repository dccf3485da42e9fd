// SPDX-License-Identifier: MIT
#include "view/view_conf.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "view/header.hpp"

namespace view
{

namespace
{

constexpr size_t max_name = 63, max_nqn = 223;

// What a message shows of a text. A precision of fmt counts characters, of which each may have many bytes.
std::string_view shown(std::string_view text) { return text.substr(0, 250); }

std::string_view trimmed(std::string_view text)
{
	constexpr const char *blanks = " \t\r";
	const size_t begin = text.find_first_not_of(blanks);
	return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// A line's key and value.
struct Line {
	std::string_view key, value;
};

void set(ViewConf &conf, const Line &line, bool &has_codec)
{
	if (line.key == "file") {
		if (!line.value.starts_with('/'))
			throw BadConf(fmt::format("file = {}: expected a path from / on", shown(line.value)));
		conf.files.emplace_back(line.value);
	} else if (line.key == "codec") {
		if (has_codec)
			throw BadConf("codec: set twice");
		set_codec(conf, line.value);
		has_codec = true;
	} else if (line.key == "host") {
		add_host(conf, line.value);
	} else if (line.key == "prefetch" || line.key == "compressed") {
		if (line.value != "yes" && line.value != "no")
			throw BadConf(fmt::format("{} = {}: expected yes or no", line.key, shown(line.value)));
		(line.key == "prefetch" ? conf.prefetch : conf.compressed) = line.value == "yes";
	} else {
		throw BadConf(fmt::format("{}: unknown key; expected file, codec, host, prefetch or compressed",
					  shown(line.key)));
	}
}

} // namespace

bool is_view_name(std::string_view name)
{
	return !name.empty() && name.size() <= max_name && is_alnum(name[0]) &&
	       std::ranges::all_of(name, [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

void set_codec(ViewConf &conf, std::string_view value)
{
	if (const auto element = element_of(value)) {
		conf.element = *element;
		conf.codec = is_integer(*element) ? std::nullopt : std::optional(Codec::unreduced(*element));
	} else if (const auto codec = Codec::parse(value)) {
		conf.element = codec->element;
		conf.codec = codec;
	} else {
		throw BadConf(fmt::format(
			"codec = {}: unknown; for example u32, u32:u16, u32:17, i64:18, f32:bf16, byte:none",
			shown(value)));
	}
}

void add_host(ViewConf &conf, std::string_view value)
{
	const bool plain =
		std::ranges::all_of(value, [](char c) { return is_alnum(c) || (c && std::strchr("-_.:", c)); });
	if (!value.starts_with("nqn.") || value.size() > max_nqn || !plain)
		throw BadConf(
			fmt::format("host = {}: expected an NQN, as in /etc/nvme/hostnqn of the host", shown(value)));
	conf.hosts.emplace_back(value);
}

std::string read_conf(const std::string &path)
{
	const auto fail = [&](const std::string &why) { throw BadConf(fmt::format("{}: {}", path, why)); };
	const auto fail_to_read = [&](int error) {
		throw UnreadConf(fmt::format("{}: {}", path, std::strerror(error)));
	};
	const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		fail_to_read(errno);
	struct stat st = {};
	int error = ::fstat(fd, &st) < 0 ? errno : 0;
	std::string text;
	// A byte more than allowed, to see that there are more.
	while (!error && S_ISREG(st.st_mode) && text.size() <= max_conf) {
		char some[16384];
		const ssize_t n = ::read(fd, some, sizeof(some));
		if (n < 0 && errno != EINTR)
			error = errno;
		if (n == 0)
			break;
		text.append(some, n > 0 ? static_cast<size_t>(n) : 0);
	}
	::close(fd);
	if (error)
		fail_to_read(error);
	if (!S_ISREG(st.st_mode))
		fail("not a regular file");
	if (text.size() > max_conf)
		fail(fmt::format("more than {} KiB", max_conf >> 10));
	return text;
}

ViewConf parse_conf(const std::string &where, const std::string &name, std::string_view text)
{
	ViewConf conf;
	if (!is_view_name(name))
		throw BadConf(fmt::format("{}: the name of a view has letters, digits, '-', '_' and '.', at most {}",
					  where, max_name));
	conf.name = name;
	bool has_codec = false;
	for (size_t number = 1; !text.empty(); number++) {
		const size_t end = std::min(text.find('\n'), text.size());
		const std::string_view line = trimmed(text.substr(0, end));
		text.remove_prefix(std::min(end + 1, text.size()));
		if (line.empty() || line[0] == '#')
			continue;
		try {
			const size_t equals = line.find('=');
			if (equals == std::string_view::npos || line.find('\0') != std::string_view::npos)
				throw BadConf("expected key = value");
			const Line pair = {trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1))};
			if (pair.value.empty())
				throw BadConf(fmt::format("{}: no value", shown(pair.key)));
			set(conf, pair, has_codec);
		} catch (const BadConf &bad) {
			throw BadConf(fmt::format("{}:{}: {}", where, number, bad.what()));
		}
	}
	if (conf.files.empty())
		throw BadConf(fmt::format("{}: no file", where));
	if (!has_codec)
		throw BadConf(fmt::format("{}: no codec", where));
	return conf;
}

std::string conf_text(const ViewConf &conf)
{
	std::string text;
	for (const std::string &file : conf.files)
		text += fmt::format("file = {}\n", file);
	text += fmt::format("codec = {}\n", conf.codec ? conf.codec->name() : element_name(conf.element));
	for (const std::string &host : conf.hosts)
		text += fmt::format("host = {}\n", host);
	if (!conf.prefetch)
		text += "prefetch = no\n";
	if (conf.compressed)
		text += "compressed = yes\n";
	return text;
}

std::vector<std::string> expand(const std::vector<std::string> &patterns)
{
	std::vector<std::string> files;
	for (const std::string &pattern : patterns) {
		glob_t found = {};
		const int rc = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
		const size_t before = files.size();
		for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
			files.emplace_back(found.gl_pathv[i]);
		::globfree(&found);
		if (rc != 0 && rc != GLOB_NOMATCH)
			throw BadConf(fmt::format("file = {}: {}", pattern,
						  rc == GLOB_NOSPACE ? "out of memory" : "a folder cannot be read"));
		if (files.size() == before)
			throw BadConf(fmt::format("file = {}: there is no such file", pattern));
		if (files.size() > max_files)
			throw BadConf(fmt::format("file = {}: more than {} files", pattern, max_files));
	}
	return files;
}

std::string pattern_of(const std::string &path)
{
	std::string pattern;
	for (const char c : path) {
		if (c && std::strchr("\\*?[", c))
			pattern += '\\';
		pattern += c;
	}
	return pattern;
}

} // namespace view
