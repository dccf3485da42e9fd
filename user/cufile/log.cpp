// SPDX-License-Identifier: MIT
#include "log.hpp"

#include <cstdio>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cufile
{
namespace
{

constexpr const char *names[] = {"NOTICE", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"};

// "/a/b/route.cpp" to "route".
std::string_view module_of(const char *file)
{
	std::string_view name = file;
	name.remove_prefix(name.rfind('/') + 1); // npos + 1 is 0
	return name.substr(0, name.find('.'));
}

std::string line_of(Log::Level level, std::string_view message, const char *file, int number, int pid)
{
	struct timespec now;
	struct tm day;
	::clock_gettime(CLOCK_REALTIME, &now);
	::localtime_r(&now.tv_sec, &day);
	char head[128];
	const int n =
		std::snprintf(head, sizeof(head), " %02d-%02d-%04d %02d:%02d:%02d:%03ld [pid=%d tid=%ld] %-6s ",
			      day.tm_mday, day.tm_mon + 1, day.tm_year + 1900, day.tm_hour, day.tm_min, day.tm_sec,
			      now.tv_nsec / 1'000'000, pid, ::syscall(SYS_gettid), names[static_cast<int>(level)]);
	std::string line(head, static_cast<size_t>(n));
	line += "peerdma-";
	line += module_of(file);
	line += ':' + std::to_string(number) + ' ';
	// One line each, whatever is in a path.
	for (const char c : message)
		line += c == '\n' ? ' ' : c;
	return line + '\n';
}

} // namespace

std::optional<Log::Level> Log::level_named(std::string_view name)
{
	for (int i = 0; i < 6; i++)
		if (name == names[i])
			return static_cast<Level>(i);
	return std::nullopt;
}

void Log::open(Level level, const std::string &path, const std::string &dir, uint64_t max_bytes)
{
	{
		std::lock_guard guard(lock_);
		level_ = level;
		max_bytes_ = max_bytes;
		path_ = !path.empty() ? path : dir.empty() ? "" : dir + "/cufile.log";
		open_file();
		if (path_.empty() || fd_ != 2)
			return;
	}
	say(Level::error, "the log cannot be opened, standard error is used: " + path_);
}

void Log::open_file()
{
	if (fd_ != 2)
		file_.close(system_);
	fd_ = 2;
	bytes_ = 0;
	if (path_.empty())
		return;
	const int fd = system_.open_log(path_);
	if (fd < 0)
		return;
	fd_ = file_.fd = fd;
	file_.identify(system_, false);
	struct stat st = {};
	if (system_.fstat(fd, st) == 0)
		bytes_ = static_cast<uint64_t>(st.st_size);
}

// What a shell sends standard error to it opens for writing alone. And what is appended is written over nothing.
bool Log::is_data(int fd)
{
	const int flags = system_.open_flags(fd);
	struct stat st = {};
	return flags >= 0 && (flags & O_ACCMODE) == O_RDWR && !(flags & O_APPEND) && system_.fstat(fd, st) == 0 &&
	       (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
}

void Log::close()
{
	std::lock_guard guard(lock_);
	path_.clear();
	open_file();
}

void Log::say(Level level, std::string_view message, const char *file, int number) noexcept
{
	if (!wants(level))
		return;
	try {
		const std::string line = line_of(level, message, file, number, system_.pid());
		std::lock_guard guard(lock_);
		// Each time: the program may do so at any time.
		if (fd_ == 2 && is_data(fd_))
			return;
		// The program may have closed the log, and have another file by its number.
		if (fd_ != 2 && !file_.is_there(system_))
			open_file();
		if (fd_ != 2 && bytes_ && bytes_ + line.size() > max_bytes_) {
			system_.rename(path_, path_ + ".1");
			open_file();
		}
		bytes_ += line.size();
		system_.append(fd_, line);
	} catch (...) {
		// A log that cannot be written is no reason to fail what is logged.
	}
}

} // namespace cufile
