// SPDX-License-Identifier: MIT
//
// The header of a view: what a client needs to know of it, on the device itself, before the reduced elements. All integers are
// little endian. Offsets are bytes from the start of the header.
//
//   0    "PDMAVIEW"
//   8    u32 version: 1
//   12   u32 CRC32C of the whole header, with this field 0
//   16   u64 header_bytes: a multiple of 4096. The data begins there
//   24   u8 element, u8 reduction, u8 bits (codec.hpp), u8 0, u32 0
//   32   u64 elements
//   40   u64 data_bytes: reduced_bytes(elements)
//   48   u64 files: the number of entries of the table
//   56   u64 table: the offset of the table. For each file u64 elements, u32 offset of its name in the names, u32 name bytes
//   64   u64 names: the offset of the names, u64 names_bytes
//   80   u64 sums: the offset, a multiple of 8, of the CRC32C, u32, of each MiB of the data, the last of which may be shorter
//   88   0 up to 128
//
// The tables follow in this order, and zeros to the header's end. The device ends behind the data, at a multiple of its blocks;
// what lies between is zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "view/codec.hpp"
#include "view/crc32c.hpp"

namespace view
{

inline constexpr uint64_t header_unit = 4096;            // of which header_bytes is a multiple
inline constexpr uint64_t max_header = 1ULL << 30;       // bytes. The sums of 200 TiB
inline constexpr uint64_t max_client_header = 256 << 20; // that a client reads. The sums of 64 TiB
inline constexpr uint64_t max_files = 1 << 20;           // of a view: a client keeps an entry of each in memory
inline constexpr uint64_t sum_bytes = 1 << 20; // of a chunk, of which each has a sum; the last one may be shorter

constexpr uint64_t chunks_of(uint64_t data_bytes) { return data_bytes / sum_bytes + (data_bytes % sum_bytes != 0); }

// Of a header of so many files.
uint64_t header_bytes(uint64_t files, uint64_t names_bytes, uint64_t data_bytes);

struct FileEntry {
	std::string name;
	uint64_t elements = 0;
	bool operator==(const FileEntry &) const = default;
};

struct Header {
	Codec codec;
	uint64_t elements = 0;
	std::vector<FileEntry> files; // in order. Their elements follow each other without gaps
	std::vector<uint32_t> sums;   // one for each MiB of the data

	uint64_t data_bytes() const { return codec.reduced_bytes(elements); }
	uint64_t bytes() const; // of the header
	bool operator==(const Header &) const = default;
};

// Why bytes are no header.
struct BadHeader : std::runtime_error {
	using std::runtime_error::runtime_error;
};

// The first header_unit bytes say how many the whole header has.
struct HeaderStart {
	uint64_t header_bytes = 0, data_bytes = 0;
};

// Whether bytes are meant to be a header. All of it, or its first ones.
bool begins_as_view(std::span<const std::byte> bytes);

// Throws BadHeader. The bytes may be anything: each number is checked before it is used, the CRC first of all.
HeaderStart parse_start(std::span<const std::byte> bytes); // at least header_unit
Header parse(std::span<const std::byte> bytes);            // header_bytes

// The header's bytes, header.bytes() of them.
std::vector<std::byte> serialize(const Header &header);

} // namespace view
