// SPDX-License-Identifier: MIT
//
// A file compressed with zstd or lz4, as the bytes that it has decompressed.
//
// An index is made first: how many bytes there are, and the points at which decompression can begin, each frame and each independent
// block of lz4's frames. zstd's frames are not decompressed for it if they say how many bytes they have, or a table of the
// seekable format does. Whatever they say is a claim, to which what comes out is compared.
//
// A file of one large frame of zstd has one point. Sequential reads of it are as fast as others. A read before, or far ahead, of the
// last ones decompresses it from its begin on; restarts() counts these.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "view/decoder.hpp"
#include "view/decompressors.hpp"
#include "view/frames.hpp"
#include "view/source.hpp"

namespace view
{

class CompressedFile final : public Source
{
public:
	// `decompressors` outlives it. Throws SourceError, if it does not begin as a compressed file does too.
	CompressedFile(std::unique_ptr<Source> file, Decompressors &decompressors);
	~CompressedFile() override;

	const std::string &name() const override { return file_->name(); }
	uint64_t bytes() const override { return size_; }
	std::optional<Identity> known_identity() const override { return file_->known_identity(); }
	Identity identity() const override { return file_->identity(); }
	Identity server_identity() const override { return file_->server_identity(); }
	Identity opened() const override { return file_->opened(); }
	void read(uint64_t offset, std::span<std::byte> to) const override;
	void stop() override;

	bool index(uint64_t bytes) override;
	std::string save_index() const override;
	bool resume_index(const std::string &saved) override;
	uint64_t restarts() const override { return restarts_; }

	std::vector<Point> points() const;

private:
	struct Walk;

	uint64_t storage() const { return opened().device; }
	void begin_frame(Walk &walk);
	void pass_block(Walk &walk);
	bool measure(Walk &walk, uint64_t most);
	void stop_measuring(Walk &walk);
	std::unique_ptr<DecodedStream> begin_stream(const Point &from) const;
	void end_frame(Walk &walk, uint64_t content);
	std::optional<uint64_t> content_in_table(Walk &walk, uint64_t frame_bytes) const;
	std::span<const std::byte> bytes_at(Walk &walk, uint64_t at, size_t most) const;
	[[noreturn]] void damaged(uint64_t at, const std::string &why) const;

	// What decoders say of where they are.
	void passes(const Decoder &decoder) const;
	void add(const Point &point) const; // with the mutex held
	Point point_before(uint64_t offset) const;

	const std::unique_ptr<Source> file_;
	Decompressors &decompressors_;
	FrameKind kind_ = FrameKind::skippable; // that of the first frame that is not skippable
	uint64_t memory_ = 0;                   // of a decompressor
	uint64_t size_ = 0;                     // decompressed: of the frames that are indexed
	uint64_t indexed_ = 0;                  // bytes of the file
	std::unique_ptr<Walk> walk_;
	mutable std::mutex mutex_;             // protects points_ and spacing_
	mutable std::vector<Point> points_;    // in order
	mutable uint64_t spacing_ = 256 << 10; // the least between points, decompressed
	mutable std::atomic<uint64_t> restarts_ = 0, last_end_ = 0;
	std::atomic<bool> stopped_ = false;
};

// Throws SourceError.
std::unique_ptr<Source> open_compressed(const std::string &path, Decompressors &decompressors);

} // namespace view
