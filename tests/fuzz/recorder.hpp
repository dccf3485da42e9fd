// SPDX-License-Identifier: MIT
// The last programs of each worker, recorded at the end of the GPU's memory, which the host can read after the guest
// has died.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program.hpp"

namespace fuzz
{

struct Record {
	uint64_t magic, number; // of the program, from 1
	uint64_t running;       // it has not returned
	uint64_t goes_on;       // it ran in the world of the previous program
	Program program;
};

class Recorder
{
public:
	static constexpr unsigned kept = 64;
	static constexpr size_t room = 4 << 20; // for all workers

	/// path: the BAR in sysfs; "" records nothing.
	Recorder(const std::string &path, unsigned worker);
	void begin(const Program &program, bool goes_on);
	void done();

	/// Returns the text of the programs in an image of the GPU's memory, the latest last.
	static std::string decode(const std::string &image);

private:
	Record *records_ = nullptr;
	uint64_t number_ = 0;
};

} // namespace fuzz
