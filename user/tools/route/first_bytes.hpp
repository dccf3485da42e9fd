// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

namespace cli
{

// Reads the first bytes of a file that may not answer: a drive whose server is gone keeps a read waiting until it is back.
// 0; -ETIMEDOUT after `limit`; or another negative errno, -ENODATA for a shorter file.
int first_bytes(const std::string &path, std::span<std::byte> out, std::chrono::milliseconds limit);

} // namespace cli
