// SPDX-License-Identifier: MIT
// A whole command line, one word per line of the input, on a machine in memory. The exit status must be one of three,
// and no descriptor may stay open. Excludes "witness", which starts programs, and commands that sleep or draw.
#include <algorithm>

#include "../../host/fake_syscalls.hpp"
#include "input.hpp"
#include "tools/cli/cli.hpp"

using input::must;

extern "C" int LLVMFuzzerInitialize(int *, char ***)
{
	input::silence();
	return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	std::vector<std::string> words = input::lines(data, size);
	if (words.size() > 16)
		return 0;
	for (const std::string &word : words)
		if (word.starts_with("witness") || word.starts_with("--svg") || word.find('\0') != std::string::npos ||
		    (words.front() == "stat" && word.find_first_of("0123456789") != std::string::npos))
			return 0;
	FakeSyscalls sys;
	sys.add_function("0000:01:00.0", 1 << 20, "peerdma");
	sys.add_function("0000:02:00.0", 1 << 16);
	sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
	sys.contents["/f"].bytes.assign(5000, 'x');
	words.insert(words.begin(), "peerdma");
	std::vector<char *> argv;
	for (std::string &word : words)
		argv.push_back(word.data());
	argv.push_back(nullptr);
	const int status = cli::run(static_cast<int>(words.size()), argv.data());
	must(status == cli::exit_ok || status == cli::exit_failed || status == cli::exit_usage,
	     "a status is 0, 1 or 2");
	must(sys.fds.empty(), "no descriptor is left open");
	must(sys.buffers.empty(), "no buffer is left");
	return 0;
}
