// SPDX-License-Identifier: MIT
//
// The frames that a file compressed with zstd (RFC 8878) or lz4 (lz4_Frame_format.md) consists of: where each begins and ends, found
// without decompressing it. The bytes may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>

namespace view
{

// Why bytes are no frame.
struct BadFrame : std::runtime_error {
	using std::runtime_error::runtime_error;
};

enum class FrameKind : uint8_t { zstd, lz4, skippable };

// What the header of a frame says.
struct Frame {
	FrameKind kind = FrameKind::skippable;
	uint64_t header_bytes = 0;
	uint64_t skipped_bytes = 0;           // behind the header, of a skippable frame
	std::optional<uint64_t> content = {}; // decompressed bytes. A claim: the blocks may have others
	uint64_t window = 0;                  // bytes that a decompressor must keep; of lz4: of two blocks
	uint64_t block_bytes = 0;             // that a block has at most, decompressed
	bool independent = false;             // each block can be decompressed by itself (lz4)
	bool block_sums = false;              // a checksum follows each block (lz4)
	bool content_sum = false;             // a checksum follows the last block
};

inline constexpr size_t max_frame_header = 19; // bytes
inline constexpr size_t frame_magic = 4;       // the first of them

// Whether a frame may begin so. At least frame_magic bytes.
bool begins_frame(std::span<const std::byte> bytes);
// bytes: max_frame_header of them, or all up to the file's end. Throws BadFrame.
Frame parse_frame(std::span<const std::byte> bytes);

struct Block {
	uint64_t bytes = 0; // with header and checksum, as they stand in the file
	uint64_t most = 0;  // decompressed
	bool last = false;  // of its frame. lz4 has one that is empty
};

inline constexpr size_t max_block_header = 4; // bytes
// bytes: max_block_header of them, or all up to the file's end. Throws BadFrame.
Block parse_block(const Frame &frame, std::span<const std::byte> bytes);

// The table of zstd's seekable format, at the end of a file: the sizes of its frames.
struct SeekTable {
	uint64_t frames = 0;
	unsigned entry_bytes = 0;
	uint64_t at = 0; // of the first entry, in the file
};
inline constexpr size_t seek_footer = 9; // the last bytes of the file
// nullopt: it has no such table. footer: the last seek_footer bytes of a file of so many.
std::optional<SeekTable> parse_seek_footer(std::span<const std::byte> footer, uint64_t file_bytes);

} // namespace view
