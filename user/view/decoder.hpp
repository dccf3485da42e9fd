// SPDX-License-Identifier: MIT
//
// Decompresses a file of zstd's or lz4's frames, from a point on to its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "view/frames.hpp"
#include "view/source.hpp"

namespace view
{

// Where decompression can begin: a frame, or an independent block within one.
struct Point {
	uint64_t at = 0;    // in the file
	uint64_t first = 0; // decompressed
	uint64_t frame = 0; // in the file: the frame's begin
	bool operator==(const Point &) const = default;
};

class Decoder
{
public:
	virtual ~Decoder() = default;
	Decoder(const Decoder &) = delete;
	Decoder &operator=(const Decoder &) = delete;

	// The memory that one takes for a frame, about.
	static uint64_t memory_of(const Frame &frame);
	// most: bytes of memory. `file` outlives it. Throws SourceError, and std::bad_alloc.
	static std::unique_ptr<Decoder> begin(FrameKind kind, const Source &file, const Point &from, uint64_t most);

	// Writes what comes next: fewer bytes than `to` has only at a point, or where a frame or the file ends. Throws SourceError, with
	// EBADMSG if the file is damaged, and std::bad_alloc; the decoder cannot be used any more then.
	virtual size_t step(std::span<std::byte> to) = 0;

	const Source &file() const { return file_; }
	// Of the next step.
	uint64_t at() const { return at_ - (filled_ - used_); }
	uint64_t position() const { return position_; }
	bool is_between_frames() const { return between_; }
	bool is_point() const { return between_ || block_begins_; }
	uint64_t frame() const { return between_ ? at() : frame_; }
	bool is_at_end() const { return between_ && at() == file_.bytes(); }

protected:
	Decoder(const Source &file, const Point &from)
		: file_(file), at_(from.at), position_(from.first), frame_(from.frame)
	{
	}
	// The next bytes of the file, at least `least`, or all that there are.
	std::span<const std::byte> input(size_t least);
	void use(size_t bytes) { used_ += bytes; }
	// Goes on behind so many bytes.
	void skip(uint64_t bytes);
	[[noreturn]] void damaged(const std::string &why) const;

	const Source &file_;
	uint64_t at_; // behind what was read
	uint64_t position_;
	uint64_t frame_;
	bool between_ = true, block_begins_ = false;

private:
	std::vector<std::byte> buffer_;
	size_t used_ = 0, filled_ = 0; // of buffer_
};

} // namespace view
