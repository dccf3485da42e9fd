// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "tools/cli/output.hpp"

namespace cli
{

// A progress line on a terminal, overwritten in place; nothing if there is no terminal.
class Progress
{
public:
	Progress() : shown_(::isatty(STDERR_FILENO)) {}
	~Progress()
	{
		if (said_)
			std::fputs("\r\033[K", stderr);
	}
	Progress(const Progress &) = delete;
	Progress &operator=(const Progress &) = delete;

	bool shown() const { return shown_; }
	bool due() const { return shown_ && Clock::now() >= next_; }
	void say(const std::string &text)
	{
		if (!shown_)
			return;
		next_ = Clock::now() + std::chrono::milliseconds(200);
		said_ = true;
		std::fprintf(stderr, "\r%s\033[K", escaped(text).c_str());
		std::fflush(stderr);
	}

private:
	using Clock = std::chrono::steady_clock;
	const bool shown_;
	bool said_ = false;
	Clock::time_point next_ = {};
};

} // namespace cli
