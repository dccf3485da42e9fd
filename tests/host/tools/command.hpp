// SPDX-License-Identifier: MIT
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tools/cli/cli.hpp"

/// What the peerdma command printed, and its exit status.
struct Outcome {
	int status;
	std::string out, err;

	nlohmann::json parsed() const { return nlohmann::json::parse(out); }
};

/// Runs the peerdma command with these words after its name.
inline Outcome run(std::vector<std::string> words)
{
	words.insert(words.begin(), "peerdma");
	std::vector<char *> argv;
	for (std::string &word : words)
		argv.push_back(word.data());
	argv.push_back(nullptr);
	::testing::internal::CaptureStdout();
	::testing::internal::CaptureStderr();
	const int status = cli::run(static_cast<int>(words.size()), argv.data());
	std::fflush(stdout);
	return {status, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

inline bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

/// One line, as every error has.
inline bool one_line(const std::string &text)
{
	return text.starts_with("peerdma: ") && text.find('\n') == text.size() - 1;
}
