// SPDX-License-Identifier: MIT
//
// The folder in which the service keeps, for each view, what it needs to go on after it was killed. A file is replaced as a whole,
// and what was written or removed stays so if the machine stops.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace viewd
{

// Why a request to the service is refused.
struct Refused : std::runtime_error {
	using std::runtime_error::runtime_error;
};

class StateFolder
{
public:
	// Creates the folder if there is none. Throws std::runtime_error.
	explicit StateFolder(std::filesystem::path path);

	std::filesystem::path file(const std::string &name, const std::string &kind) const
	{
		return path_ / (name + kind);
	}
	std::vector<std::filesystem::path> files() const; // throws std::filesystem::filesystem_error

	std::string read(const std::string &name, const std::string &kind) const; // "" if there is none
	void write(const std::string &name, const std::string &kind, const std::string &text) const; // throws Refused
	// Returns whether there was one. Throws Refused.
	bool remove(const std::string &name, const std::string &kind) const;

private:
	int sync() const; // returns 0 or an errno

	const std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path &path); // "" if there is none

} // namespace viewd
