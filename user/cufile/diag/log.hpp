// SPDX-License-Identifier: MIT
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "cufile/platform/dependencies.hpp"
#include "cufile/platform/descriptor.hpp"

namespace cufile
{

// Lines in the format of cuFile's log. They go to standard error unless a file or directory is configured. They never
// go to the working directory by default, nor to a file that the program has opened in place of standard error.
//
// Logging does not block, except on a terminal that cannot be reopened: lines that do not fit into a pipe, terminal or file are counted, and the count is logged when
// there is room. If there is never room, close() reports the count on standard error. ERROR lines that do not fit go to
// standard error.
class Log
{
public:
	enum class Level { notice, error, warn, info, debug, trace };

	explicit Log(System &system) : system_(system) {}
	~Log() { close(); }
	Log(const Log &) = delete;
	Log &operator=(const Log &) = delete;

	// Level::error for an unknown name.
	static Level level_of(std::string_view name) { return level_named(name).value_or(Level::error); }
	static std::optional<Level> level_named(std::string_view name); // in any case
	static const char *name_of(Level level);
	static std::string error_name(int rc); // "ENOENT" of -ENOENT
	// path: a file. Otherwise dir: a directory for cufile.log. Otherwise standard error. A regular file that
	// reaches max_bytes is renamed to path.1, and a new one is created. Links, devices and pipes are never renamed.
	void open(Level level, const std::string &path, const std::string &dir, uint64_t max_bytes);
	void close();
	bool wants(Level level) const { return level <= level_; }
	void say(Level level, std::string_view message, const char *file = __builtin_FILE(),
		 int line = __builtin_LINE()) noexcept;

private:
	int open_file();
	void rotate();
	bool write(std::string_view line);
	void put(Level level, std::string_view line);
	void put_on_standard_error(std::string_view line);
	bool is_data(int fd);

	System &system_;
	Level level_ = Level::error; // immutable while the driver is open
	std::mutex lock_;            // protects all below
	std::string path_;
	uint64_t max_bytes_ = 0, bytes_ = 0;
	bool may_rename_ = false;
	uint64_t lost_ = 0; // lines
	int fd_ = 2;
	Descriptor file_; // of fd_, if that is not 2
};

} // namespace cufile
