// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

namespace cli
{

// Reads the first bytes, 4096 at most, of a drive that may not answer: one whose server is gone keeps a read waiting until it
// is back. 0; -ETIMEDOUT after `limit`; or another negative errno, -ENODATA for a shorter file.
int first_bytes(const std::string &path, std::span<std::byte> out, std::chrono::milliseconds limit);

} // namespace cli
