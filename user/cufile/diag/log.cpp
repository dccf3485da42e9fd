// SPDX-License-Identifier: MIT
#include "cufile/diag/log.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cufile/platform/text.hpp"

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
	// One line each, without terminal control characters from paths.
	for (const char c : message)
		line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? ' ' : c;
	return line + '\n';
}

} // namespace

std::optional<Log::Level> Log::level_named(std::string_view name)
{
	for (int i = 0; i < 6; i++)
		if (same_letters(name, names[i]))
			return static_cast<Level>(i);
	return std::nullopt;
}

const char *Log::name_of(Level level) { return names[static_cast<int>(level)]; }

std::string Log::error_name(int rc)
{
	const char *const name = ::strerrorname_np(-rc);
	return name ? name : "error " + std::to_string(-rc);
}

void Log::open(Level level, const std::string &path, const std::string &dir, uint64_t max_bytes)
{
	int rc;
	{
		std::lock_guard guard(lock_);
		level_ = level;
		max_bytes_ = max_bytes;
		path_ = !path.empty() ? path : dir.empty() ? "" : dir + "/cufile.log";
		rc = open_file();
	}
	if (rc < 0)
		say(Level::error,
		    "log file " + path_ + ": cannot be opened: " + error_name(rc) + "; using standard error");
}

int Log::open_file()
{
	if (fd_ != 2)
		file_.close(system_);
	fd_ = 2;
	bytes_ = 0;
	may_rename_ = false;
	if (path_.empty())
		return 0;
	const int fd = system_.open_log(path_);
	if (fd < 0)
		return fd;
	struct stat st = {};
	const int rc = system_.fstat(fd, st);
	// Appending to a block device would overwrite its first blocks.
	if (rc < 0 || S_ISBLK(st.st_mode)) {
		system_.close(fd);
		return rc < 0 ? rc : -EINVAL;
	}
	file_.fd = fd;
	if (const int error = file_.identify_or_close(system_, false); error < 0)
		return error;
	fd_ = fd;
	std::string target;
	if (S_ISREG(st.st_mode)) {
		bytes_ = static_cast<uint64_t>(st.st_size);
		may_rename_ = system_.read_link(path_, target) < 0;
	}
	return 0;
}

// If the file cannot be renamed it keeps growing.
void Log::rotate()
{
	const std::string aside = path_ + ".1";
	const int rc = system_.rename(path_, aside);
	if (rc == 0) {
		open_file();
		return;
	}
	may_rename_ = false;
	put(Level::error, line_of(Level::error, path_ + ": cannot be renamed to " + aside + ": " + error_name(rc),
				  __FILE__, __LINE__, system_.pid()));
}

bool Log::write(std::string_view line)
{
	bytes_ += line.size();
	return system_.append(fd_, line) >= 0;
}

// A shell opens redirected standard error write-only. Appending overwrites nothing.
bool Log::is_data(int fd)
{
	const int flags = system_.open_flags(fd);
	struct stat st = {};
	return flags >= 0 && (flags & O_ACCMODE) == O_RDWR && !(flags & O_APPEND) && system_.fstat(fd, st) == 0 &&
	       (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode));
}

// Writes the count of lost lines first, or nothing at all.
void Log::put(Level level, std::string_view line)
{
	if (lost_ && write(line_of(Level::notice, std::to_string(lost_) + " lines of this log were lost: no room",
				   __FILE__, __LINE__, system_.pid())))
		lost_ = 0;
	if (!lost_ && write(line))
		return;
	lost_++;
	if (level == Level::error)
		put_on_standard_error(line);
}

// Instead of the file.
void Log::put_on_standard_error(std::string_view line)
{
	if (fd_ != 2 && !is_data(2))
		system_.append(2, line);
}

void Log::close()
{
	std::lock_guard guard(lock_);
	// Standard error stays open: the next line reports the loss.
	if (fd_ != 2 && lost_) {
		try {
			put_on_standard_error(
				line_of(Level::notice,
					path_ + ": " + std::to_string(lost_) + " lines of this log were lost: no room",
					__FILE__, __LINE__, system_.pid()));
		} catch (...) {
			// As in say().
		}
		lost_ = 0;
	}
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
		// The program may have closed the log and opened another file by its number.
		if (fd_ != 2 && !file_.is_there(system_))
			open_file();
		if (may_rename_ && bytes_ && bytes_ + line.size() > max_bytes_)
			rotate();
		// Checked for each line and after the other checks, which may fall back on standard error: the program
		// may open a data file there at any time.
		if (fd_ == 2 && is_data(fd_))
			return;
		put(level, line);
	} catch (...) {
		// A failure to log must not fail the caller.
	}
}

} // namespace cufile
