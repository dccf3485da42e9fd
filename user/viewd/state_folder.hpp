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
	// Creates the folder if there is none, makes it its owner's alone, locks it, and removes what a write that was interrupted has
	// left. Throws std::runtime_error, also if another process has locked it.
	explicit StateFolder(std::filesystem::path path);
	~StateFolder();
	// Another process may lock it from now on.
	void unlock() const;
	StateFolder(const StateFolder &) = delete;
	StateFolder &operator=(const StateFolder &) = delete;

	std::filesystem::path file(const std::string &name, const std::string &kind) const
	{
		return path_ / (name + kind);
	}
	std::vector<std::filesystem::path> files() const; // throws std::filesystem::filesystem_error

	// "" if there is none. Throws Refused.
	std::string read(const std::string &name, const std::string &kind) const;
	void write(const std::string &name, const std::string &kind, const std::string &text) const; // throws Refused
	// Returns whether there was one. Throws Refused.
	bool remove(const std::string &name, const std::string &kind) const;
	// Removes the files of a view whose kind begins with one of these.
	void remove_all(const std::string &name, const std::vector<std::string> &kinds) const; // throws Refused

private:
	int sync() const; // returns 0 or an errno

	const std::filesystem::path path_;
	int lock_ = -1; // the folder, under flock(2): one service at a time has it
};

} // namespace viewd
