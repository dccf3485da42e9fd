// SPDX-License-Identifier: MIT
// What revoke.cpp and the process that it does things to, owner.cpp, have to agree on.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace owner
{

constexpr uint64_t page = 4096, buf_len = 1 << 20;
/// Reads: n times so many bytes from the file's start to the buffer's. Writes: from the buffer's second half, which
/// holds this byte, to the file's second MiB.
constexpr uint64_t piece = 16384, written_from = buf_len / 2, written_to = 1 << 20, file_len = 2 << 20;
constexpr char written_byte = 0x5a;

/// Who keeps requests from ending: the drive, or device-mapper above it.
enum class Hold { none, drive, dm };

/// What a buffer is doing when something happens to it.
struct State {
	std::string_view name;
	Hold hold;
	int reads, writes, unsent; // under way; asked for, and to begin only when those have ended
	bool mapped;
};

constexpr std::array<State, 8> states = {{
	{"allocated", Hold::none, 0, 0, 0, false},
	{"mapped", Hold::none, 0, 0, 0, true},
	{"idle", Hold::none, 0, 0, 0, true},  // and was used: route, registered file and ring are known
	{"sync", Hold::drive, 2, 1, 0, true}, // system calls, each in a thread
	{"queued", Hold::dm, 4, 0, 2, true},  // commands of a ring that wait for a worker, and for each other
	// Commands of a ring that the drive has got, and nothing else: a write would wait in a worker, inside the buffer's
	// usage reference, so that an unbind that does not wait for commands would wait all the same.
	{"block", Hold::drive, 6, 0, 0, true},
	{"completing", Hold::none, 8, 0, 0, true}, // the drive has done them, the ring's task has not looked
	{"busy", Hold::none, 0, 0, 0, true},       // reads, writes, commands and CPU, as fast as they come
}};

} // namespace owner
