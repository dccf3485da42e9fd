// SPDX-License-Identifier: MIT
#include "view/decoder.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string_view>

#include <fmt/format.h>
#include <lz4frame.h>
#include <zstd.h>
#include <zstd_errors.h>

namespace view
{

namespace
{

constexpr size_t read_at_once = 128 << 10;

class ZstdDecoder final : public Decoder
{
public:
	ZstdDecoder(const Source &file, const Point &from, uint64_t most)
		: Decoder(file, from), context_(ZSTD_createDStream(), ZSTD_freeDStream)
	{
		if (!context_)
			throw std::bad_alloc();
		const ZSTD_bounds bounds = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
		const int log = std::bit_width(most - 1);
		check(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax,
					     std::clamp(log, bounds.lowerBound, bounds.upperBound)));
	}

	size_t step(std::span<std::byte> to) override
	{
		size_t done = 0;
		// The last bytes may come out after all bytes of the file went in.
		while (done < to.size() && !is_at_end()) {
			const std::span<const std::byte> from = input(1);
			if (between_)
				frame_ = at();
			ZSTD_inBuffer in = {from.data(), from.size(), 0};
			ZSTD_outBuffer out = {to.data() + done, to.size() - done, 0};
			const size_t rc = check(ZSTD_decompressStream(context_.get(), &out, &in));
			use(in.pos);
			done += out.pos;
			position_ += out.pos;
			between_ = rc == 0;
			if (between_)
				break;
			if (from.empty() && !out.pos)
				damaged("it ends within a frame");
		}
		return done;
	}

private:
	size_t check(size_t rc) const
	{
		if (!ZSTD_isError(rc))
			return rc;
		if (ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation)
			throw std::bad_alloc();
		damaged(ZSTD_getErrorName(rc));
	}

	const std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> context_;
};

// Knows where blocks begin, which lz4's interface does not tell: it is given one after the other.
class Lz4Decoder final : public Decoder
{
public:
	Lz4Decoder(const Source &file, const Point &from) : Decoder(file, from)
	{
		LZ4F_dctx *context = nullptr;
		check(LZ4F_createDecompressionContext(&context, LZ4F_VERSION));
		context_.reset(context);
		if (from.at != from.frame)
			begin_within_frame();
	}

	size_t step(std::span<std::byte> to) override
	{
		size_t done = 0;
		while (done < to.size() && !is_at_end()) {
			if (between_)
				begin_frame();
			else
				done += decompress(to.subspan(done));
			if (is_point())
				break;
		}
		return done;
	}

private:
	void begin_frame()
	{
		frame_ = at();
		parsed_ = parse(input(max_frame_header));
		if (parsed_.kind == FrameKind::skippable) {
			skip(parsed_.header_bytes + parsed_.skipped_bytes);
			return;
		}
		if (parsed_.kind != FrameKind::lz4)
			damaged("a frame of zstd among those of lz4");
		feed(input(parsed_.header_bytes).first(parsed_.header_bytes));
		use(parsed_.header_bytes);
		between_ = false;
		cut_content_sum_ = 0;
	}

	// A header like that of the frame, but without what is true of all its blocks only.
	void begin_within_frame()
	{
		std::vector<std::byte> header(
			std::min<uint64_t>(max_frame_header, file_.bytes() - std::min(frame_, file_.bytes())));
		file_.read(frame_, header);
		parsed_ = parse(header);
		if (parsed_.kind != FrameKind::lz4 || !parsed_.independent)
			damaged("the index of its frames is wrong");
		LZ4F_preferences_t preferences = LZ4F_INIT_PREFERENCES;
		preferences.frameInfo.blockMode = LZ4F_blockIndependent;
		preferences.frameInfo.blockSizeID =
			static_cast<LZ4F_blockSizeID_t>((std::countr_zero(parsed_.block_bytes) - 8) / 2);
		preferences.frameInfo.blockChecksumFlag =
			parsed_.block_sums ? LZ4F_blockChecksumEnabled : LZ4F_noBlockChecksum;
		LZ4F_cctx *writer = nullptr;
		check(LZ4F_createCompressionContext(&writer, LZ4F_VERSION));
		std::byte own[max_frame_header];
		const size_t own_bytes = LZ4F_compressBegin(writer, own, sizeof(own), &preferences);
		LZ4F_freeCompressionContext(writer);
		check(own_bytes);
		feed({own, own_bytes});
		cut_content_sum_ = parsed_.content_sum ? 4 : 0;
		between_ = false;
		block_begins_ = true;
	}

	size_t decompress(std::span<std::byte> to)
	{
		if (!in_block_) {
			const Block block = parse_block_here();
			in_block_ = true;
			last_ = block.last;
			left_ = block.bytes - (last_ ? cut_content_sum_ : 0);
			block_begins_ = false;
		}
		const std::span<const std::byte> from = input(1);
		if (from.empty() && left_)
			damaged("it ends within a frame");
		size_t in = std::min<uint64_t>(from.size(), left_), out = to.size();
		const size_t rc = check(LZ4F_decompress(context_.get(), to.data(), &out, from.data(), &in, nullptr));
		use(in);
		left_ -= in;
		position_ += out;
		// A block has come out as a whole if there was room for more.
		if (left_ || out == to.size())
			return out;
		in_block_ = false;
		if (!last_) {
			block_begins_ = parsed_.independent;
			return out;
		}
		if (rc)
			damaged("a frame does not end where it should");
		skip(cut_content_sum_);
		between_ = true;
		return out;
	}

	void feed(std::span<const std::byte> header)
	{
		size_t in = header.size(), out = 0;
		check(LZ4F_decompress(context_.get(), nullptr, &out, header.data(), &in, nullptr));
		if (in != header.size())
			damaged("its header is invalid");
	}

	Frame parse(std::span<const std::byte> bytes) const
	{
		try {
			return parse_frame(bytes);
		} catch (const BadFrame &bad) {
			damaged(bad.what());
		}
	}
	Block parse_block_here()
	{
		try {
			return parse_block(parsed_, input(max_block_header));
		} catch (const BadFrame &bad) {
			damaged(bad.what());
		}
	}

	size_t check(size_t rc) const
	{
		if (!LZ4F_isError(rc))
			return rc;
		const std::string_view name = LZ4F_getErrorName(rc);
		if (name == "ERROR_allocation_failed")
			throw std::bad_alloc();
		damaged(std::string(name));
	}

	std::unique_ptr<LZ4F_dctx, decltype(&LZ4F_freeDecompressionContext)> context_ = {nullptr,
											 LZ4F_freeDecompressionContext};
	Frame parsed_;
	// Of the current block:
	bool in_block_ = false, last_ = false;
	uint64_t left_ = 0;            // bytes that did not go in yet
	uint64_t cut_content_sum_ = 0; // bytes of a checksum that is of blocks before the point too
};

} // namespace

uint64_t Decoder::memory_of(const Frame &frame)
{
	// The contexts, the buffers of input and output, and what zstd and lz4 add to the window.
	constexpr uint64_t fixed = 1 << 20;
	return frame.window + fixed;
}

std::unique_ptr<Decoder> Decoder::begin(FrameKind kind, const Source &file, const Point &from, uint64_t most)
{
	if (kind == FrameKind::lz4)
		return std::make_unique<Lz4Decoder>(file, from);
	return std::make_unique<ZstdDecoder>(file, from, most);
}

std::span<const std::byte> Decoder::input(size_t least)
{
	if (filled_ - used_ < least && at_ < file_.bytes()) {
		buffer_.resize(read_at_once);
		std::memmove(buffer_.data(), buffer_.data() + used_, filled_ - used_);
		filled_ -= used_;
		used_ = 0;
		const uint64_t more = std::min<uint64_t>(buffer_.size() - filled_, file_.bytes() - at_);
		file_.read(at_, std::span(buffer_).subspan(filled_, more));
		at_ += more;
		filled_ += more;
	}
	return std::span(buffer_).subspan(used_, filled_ - used_);
}

void Decoder::skip(uint64_t bytes)
{
	if (bytes > file_.bytes() - at())
		damaged("it ends within a frame");
	const uint64_t here = std::min<uint64_t>(bytes, filled_ - used_);
	used_ += here;
	at_ += bytes - here;
}

void Decoder::damaged(const std::string &why) const
{
	throw SourceError(fmt::format("{}: damaged at byte {}: {}", file_.name(), at(), why), EBADMSG);
}

} // namespace view
