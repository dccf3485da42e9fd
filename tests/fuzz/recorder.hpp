// SPDX-License-Identifier: MIT
// The last programs of each worker, where they outlive the guest: at the end of the GPU's memory, which the host sees.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"

namespace fuzz
{

struct Record {
	uint64_t magic, number; // of the program, from 1
	uint64_t running;       // it did not come back
	uint64_t goes_on;       // in the world of the one before
	Program program;
};

class Recorder
{
public:
	static constexpr unsigned kept = 64;
	static constexpr size_t room = 4 << 20; // of all workers

	/// path: the BAR as sysfs shows it; "" records nothing.
	Recorder(const std::string &path, unsigned worker);
	void begin(const Program &program, bool goes_on);
	void done();

	/// Of an image of the GPU's memory: the text of what is there, the last one last.
	static std::string decode(const std::string &image);

private:
	Record *records_ = nullptr;
	uint64_t number_ = 0;
};

} // namespace fuzz
