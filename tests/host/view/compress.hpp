// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

#include <lz4frame.h>
#include <zstd.h>

using Bytes = std::vector<std::byte>;

template <class Value> Bytes bytes_of(const std::vector<Value> &values)
{
	const auto bytes = std::as_bytes(std::span(values));
	return {bytes.begin(), bytes.end()};
}

inline Bytes joined(std::initializer_list<Bytes> parts)
{
	Bytes all;
	for (const Bytes &part : parts)
		all.insert(all.end(), part.begin(), part.end());
	return all;
}

struct ZstdOptions {
	bool says_size = true, has_sum = false;
	int level = 1, window_log = 0; // 0: that of the level
};

/// One frame.
inline Bytes zstd_of(std::span<const std::byte> from, const ZstdOptions &options = {})
{
	ZSTD_CCtx *const context = ZSTD_createCCtx();
	ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, options.level);
	ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, options.has_sum);
	ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, options.says_size);
	ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, options.window_log);
	Bytes to(ZSTD_compressBound(from.size()) + 64);
	ZSTD_inBuffer in = {from.data(), from.size(), 0};
	ZSTD_outBuffer out = {to.data(), to.size(), 0};
	// In two steps it does not know the size.
	if (!options.says_size)
		ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue);
	const size_t rc = ZSTD_compressStream2(context, &out, &in, ZSTD_e_end);
	ZSTD_freeCCtx(context);
	if (rc != 0)
		throw std::runtime_error("zstd");
	to.resize(out.pos);
	return to;
}

struct Lz4Options {
	bool says_size = false, independent = true, block_sums = false, content_sum = false;
	LZ4F_blockSizeID_t block = LZ4F_max64KB;
};

/// One frame.
inline Bytes lz4_of(std::span<const std::byte> from, const Lz4Options &options = {})
{
	LZ4F_preferences_t preferences = LZ4F_INIT_PREFERENCES;
	preferences.frameInfo.blockSizeID = options.block;
	preferences.frameInfo.blockMode = options.independent ? LZ4F_blockIndependent : LZ4F_blockLinked;
	preferences.frameInfo.contentSize = options.says_size ? from.size() : 0;
	preferences.frameInfo.blockChecksumFlag = options.block_sums ? LZ4F_blockChecksumEnabled : LZ4F_noBlockChecksum;
	preferences.frameInfo.contentChecksumFlag =
		options.content_sum ? LZ4F_contentChecksumEnabled : LZ4F_noContentChecksum;
	Bytes to(LZ4F_compressFrameBound(from.size(), &preferences));
	const size_t rc = LZ4F_compressFrame(to.data(), to.size(), from.data(), from.size(), &preferences);
	if (LZ4F_isError(rc))
		throw std::runtime_error("lz4");
	to.resize(rc);
	return to;
}

/// A frame that decompressors skip.
inline Bytes skippable(size_t bytes)
{
	Bytes frame(8 + bytes, std::byte{0x77});
	const uint32_t head[] = {0x184d2a5e, static_cast<uint32_t>(bytes)};
	std::memcpy(frame.data(), head, sizeof(head));
	return frame;
}
