// SPDX-License-Identifier: MIT
//
// What this command writes, and how names look in it. Names of files, processes and cgroups may hold any byte: what is
// for people has them in C's escapes, wherever it goes, as behind a pipe there may be a terminal. Programs ask for --json.
#pragma once

#include <string>
#include <string_view>

#include "tools/cli/cli.hpp"

namespace cli
{

// A name, or one line, for people: what moves a cursor, or is no UTF-8, as C writes it ("\n", "\033"), a backslash as two.
std::string escaped(std::string_view text);

// A text of several lines, whose names are escaped already: nothing in it but letters, blanks and ends of lines.
std::string printable(std::string_view text);

// One JSON object. A string that is no UTF-8 has U+FFFD for what is not; its bytes are beside it, as numbers, under its
// key and "_bytes".
std::string dump(const Json &json);

// All of it to standard output. Return: status, or exit_failed if it did not get there.
int print(const std::string &text, int status);

// One line to standard error.
void complain(std::string_view line);

// Standard streams that the caller has closed stay closed for what is written, and their numbers are not given to files.
void reserve_streams();

// Closes standard output: some filesystems say only then that there is no room. Return: as print().
int close_output(int status);

// A file to be written by name, opened before there is anything to write. Throws Failure. What was there stays until
// then; where nothing was, nothing is left of what fails.
class Output
{
public:
	explicit Output(const std::string &path);
	~Output();
	Output(const Output &) = delete;
	Output &operator=(const Output &) = delete;
	// All of it, and closes the file. Throws Failure.
	void write(std::string_view text);

private:
	const std::string path_;
	bool made_ = false; // by this, and not written yet
	int fd_;
};

} // namespace cli
