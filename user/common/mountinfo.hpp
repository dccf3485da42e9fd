// SPDX-License-Identifier: MIT
//
// Parses /proc/self/mountinfo, see proc_pid_mountinfo(5). libmount does that too, but loads four more libraries and
// makes each start of the command 50 % slower.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace peerdma_impl
{

struct Mount {
	std::string id, device; // device: "major:minor"
	std::string point, filesystem, source;
	std::string options; // of the mount, a comma, options of the filesystem
};

// The kernel writes blanks and backslashes as "\040".
inline std::string unescape_octal(std::string_view text)
{
	std::string out;
	for (size_t i = 0; i < text.size(); i++) {
		unsigned code = 0;
		const char *const digits = text.data() + i + 1;
		if (text[i] == '\\' && text.size() - i > 3 &&
		    std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
			out += static_cast<char>(code);
			i += 3;
		} else {
			out += text[i];
		}
	}
	return out;
}

// In the kernel's order: the last of several mounts at one point is the visible one. Missing fields are empty.
inline std::vector<Mount> parse_mountinfo(std::string_view text)
{
	std::vector<Mount> mounts;
	auto take = [](std::string_view &from, char end) {
		const std::string_view part = from.substr(0, from.find(end));
		from.remove_prefix(std::min(part.size() + 1, from.size()));
		return part;
	};
	while (!text.empty()) {
		// ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [OPTIONAL...] - FILESYSTEM SOURCE OPTIONS
		std::string_view line = take(text, '\n');
		Mount mount;
		mount.id = take(line, ' ');
		take(line, ' ');
		mount.device = take(line, ' ');
		take(line, ' ');
		mount.point = unescape_octal(take(line, ' '));
		mount.options = take(line, ' ');
		while (!line.empty() && take(line, ' ') != "-")
			;
		mount.filesystem = unescape_octal(take(line, ' '));
		mount.source = unescape_octal(take(line, ' '));
		mount.options += "," + std::string(take(line, ' '));
		mounts.push_back(std::move(mount));
	}
	return mounts;
}

} // namespace peerdma_impl
