// SPDX-License-Identifier: MIT
// Shared by revoke.cpp and owner.cpp, the process under test.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace owner
{

constexpr uint64_t page = 4096, buf_len = 1 << 20;
/// Reads: n pieces from the file's start to the buffer's. Writes: from the second half of the buffer, which holds this
/// byte, to the second MiB of the file.
constexpr uint64_t piece = 16384, written_from = buf_len / 2, written_to = 1 << 20, file_len = 2 << 20;
constexpr char written_byte = 0x5a;

/// The layer that keeps requests from completing: the drive, or device-mapper above it.
enum class Hold { none, drive, dm };

/// The activity on a buffer when an event happens to it.
struct State {
	std::string_view name;
	Hold hold;
	int reads, writes, unsent; // in flight; submitted, but starting only when those have ended
	bool mapped;
};

constexpr std::array<State, 8> states = {{
	{"allocated", Hold::none, 0, 0, 0, false},
	{"mapped", Hold::none, 0, 0, 0, true},
	{"idle", Hold::none, 0, 0, 0, true},  // used before: route, registered file and ring exist
	{"sync", Hold::drive, 2, 1, 0, true}, // system calls, each in its own thread
	{"queued", Hold::dm, 4, 0, 2, true},  // commands of a ring that wait for a worker, and for each other
	// Commands of a ring that have reached the drive, and nothing else: a write would block in a worker inside the
	// buffer's usage reference, so that an unbind that fails to wait for commands would wait nevertheless.
	{"block", Hold::drive, 6, 0, 0, true},
	{"completing", Hold::none, 8, 0, 0, true}, // completed by the drive, not yet reaped by the ring's task
	{"busy", Hold::none, 0, 0, 0, true},       // reads, writes, commands and CPU accesses at full speed
}};

} // namespace owner
