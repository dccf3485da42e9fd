// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

// The ring descriptors of this process.
inline std::vector<int> ring_descriptors()
{
	std::vector<int> found;
	for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
		std::error_code error;
		if (std::filesystem::read_symlink(entry, error).string().find("io_uring") != std::string::npos)
			found.push_back(std::stoi(entry.path().filename()));
	}
	return found;
}
