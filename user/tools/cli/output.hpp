// SPDX-License-Identifier: MIT
//
// The output of this command, and how it shows names. Names of files, processes and cgroups may contain any byte. Text
// for people shows them with C escapes, also in a pipe, because a terminal may follow. Programs use --json.
#pragma once

#include <string>
#include <string_view>

#include "tools/cli/cli.hpp"

namespace cli
{

// Escapes a name or a line for people: control characters and invalid UTF-8 as in C ("\n", "\033"), a backslash as two.
std::string escaped(std::string_view text);

// Checks a text of several lines whose names are already escaped: keeps letters, blanks and line ends only.
std::string printable(std::string_view text);

// One JSON object. In a string that is not valid UTF-8 the invalid bytes are replaced by U+FFFD. Its bytes follow as
// numbers, under its key and "_bytes".
std::string dump(const Json &json);

// Writes all of it to a descriptor, which need not block. Return: 0 or errno.
int write_all(int fd, std::string_view bytes);

// Writes all of text to standard output. Return: status, or exit_failed after an error.
int print(const std::string &text, int status);

// Writes one line to standard error.
void complain(std::string_view line);

// Opens /dev/null for standard streams that the caller has closed, so that files do not get their numbers. Output to
// them still fails.
void reserve_streams();

// Closes standard output: some filesystems report a lack of room only at close. Return: as print().
int close_output(int status);

// An output file, opened before the work that produces the output. Throws Failure. An existing file keeps its contents
// until write(). A new file is removed if the command fails.
class Output
{
public:
	explicit Output(const std::string &path);
	~Output();
	Output(const Output &) = delete;
	Output &operator=(const Output &) = delete;
	// Writes all of text and closes the file. Throws Failure.
	void write(std::string_view text);

private:
	const std::string path_;
	bool made_ = false; // created here and not written yet
	int fd_;
};

} // namespace cli
