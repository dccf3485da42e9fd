// SPDX-License-Identifier: MIT
#include "view/frames.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace view
{

namespace
{

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t zstd_magic = 0xfd2fb528, lz4_magic = 0x184d2204, lz4_legacy_magic = 0x184c2102;
constexpr uint32_t skippable_magic = 0x184d2a50, skippable_mask = 0xfffffff0;
constexpr uint32_t seekable_magic = 0x8f92eab1;
constexpr uint64_t max_zstd_block = 128 << 10;

// The bytes of a header, one field after the other.
class Fields
{
public:
	explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}
	uint64_t next(size_t width)
	{
		if (bytes_.size() - at_ < width)
			throw BadFrame("it is cut off");
		uint64_t value = 0;
		std::memcpy(&value, bytes_.data() + at_, width);
		at_ += width;
		return value;
	}
	size_t at() const { return at_; }

private:
	const std::span<const std::byte> bytes_;
	size_t at_ = 0;
};

void check(bool right, const char *what)
{
	if (!right)
		throw BadFrame(what);
}

Frame parse_zstd(Fields fields)
{
	Frame frame;
	frame.kind = FrameKind::zstd;
	const uint64_t flags = fields.next(1);
	check(!(flags & 8), "its header has a reserved bit");
	const bool single = flags & 32;
	frame.content_sum = flags & 4;
	if (!single) {
		const uint64_t descriptor = fields.next(1), base = 1ULL << (10 + (descriptor >> 3));
		frame.window = base + base / 8 * (descriptor & 7);
	}
	constexpr size_t id_widths[] = {0, 1, 2, 4};
	check(!fields.next(id_widths[flags & 3]), "it needs a dictionary");
	const size_t content_widths[] = {single ? 1u : 0u, 2, 4, 8}, width = content_widths[flags >> 6];
	if (width)
		frame.content = fields.next(width) + (width == 2 ? 256 : 0);
	if (single)
		frame.window = *frame.content;
	frame.block_bytes = std::min(frame.window, max_zstd_block);
	frame.header_bytes = fields.at();
	return frame;
}

Frame parse_lz4(Fields fields)
{
	Frame frame;
	frame.kind = FrameKind::lz4;
	const uint64_t flags = fields.next(1), sizes = fields.next(1), code = sizes >> 4;
	check(flags >> 6 == 1 && !(flags & 2), "a version of lz4's format that is not known");
	check(!(sizes & 0x8f) && code >= 4, "its size of blocks is invalid");
	check(!(flags & 1), "it needs a dictionary");
	frame.independent = flags & 32;
	frame.block_sums = flags & 16;
	frame.content_sum = flags & 4;
	frame.block_bytes = 1ULL << (8 + 2 * code);
	frame.window = 2 * frame.block_bytes;
	if (flags & 8)
		frame.content = fields.next(8);
	fields.next(1); // the header's checksum, which lz4 checks
	frame.header_bytes = fields.at();
	return frame;
}

Block zstd_block(const Frame &frame, Fields fields)
{
	const uint64_t header = fields.next(3), size = header >> 3;
	Block block;
	block.last = header & 1;
	check(size <= frame.block_bytes, "a block is too large");
	switch (header >> 1 & 3) {
	case 0: // as it is
		block.bytes = block.most = size;
		break;
	case 1: // one byte, so many times
		block.bytes = 1;
		block.most = size;
		break;
	case 2:
		block.bytes = size;
		block.most = frame.block_bytes;
		break;
	default:
		throw BadFrame("a block is of a kind that is not known");
	}
	block.bytes += 3 + (block.last && frame.content_sum ? 4 : 0);
	return block;
}

Block lz4_block(const Frame &frame, Fields fields)
{
	const uint64_t header = fields.next(4), size = header & 0x7fffffff;
	if (!header)
		return {4 + (frame.content_sum ? 4u : 0u), 0, true};
	check(size <= frame.block_bytes, "a block is too large");
	return {4 + size + (frame.block_sums ? 4u : 0u), frame.block_bytes, false};
}

} // namespace

bool begins_frame(std::span<const std::byte> bytes)
{
	const auto magic = static_cast<uint32_t>(Fields(bytes).next(frame_magic));
	return magic == zstd_magic || magic == lz4_magic || magic == lz4_legacy_magic ||
	       (magic & skippable_mask) == skippable_magic;
}

Frame parse_frame(std::span<const std::byte> bytes)
{
	Fields fields(bytes);
	const auto magic = static_cast<uint32_t>(fields.next(frame_magic));
	if (magic == zstd_magic)
		return parse_zstd(fields);
	if (magic == lz4_magic)
		return parse_lz4(fields);
	check(magic != lz4_legacy_magic, "it has lz4's legacy format, which has no frames; compress it anew");
	check((magic & skippable_mask) == skippable_magic, "no frame of zstd or lz4 begins there");
	Frame frame;
	frame.skipped_bytes = fields.next(4);
	frame.header_bytes = fields.at();
	return frame;
}

Block parse_block(const Frame &frame, std::span<const std::byte> bytes)
{
	return frame.kind == FrameKind::zstd ? zstd_block(frame, Fields(bytes)) : lz4_block(frame, Fields(bytes));
}

std::optional<SeekTable> parse_seek_footer(std::span<const std::byte> footer, uint64_t file_bytes)
{
	Fields fields(footer);
	const uint64_t frames = fields.next(4), descriptor = fields.next(1);
	if (fields.next(4) != seekable_magic || descriptor & 0x7c)
		return std::nullopt;
	const unsigned entry_bytes = descriptor & 0x80 ? 12 : 8;
	if (frames * entry_bytes + seek_footer > file_bytes)
		return std::nullopt;
	return SeekTable{frames, entry_bytes, file_bytes - seek_footer - frames * entry_bytes};
}

} // namespace view
