// SPDX-License-Identifier: MIT
// A file that is said to be compressed with zstd or lz4, with any bytes: it has so many decompressed bytes, the same by whatever reads and
// with an index that was saved meanwhile; or it is refused. The first byte chooses the reads, so that the rest is a file as it is stored.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "input.hpp"
#include "view/compressed_file.hpp"

using input::must;

namespace
{

class MemoryFile final : public view::Source
{
public:
	explicit MemoryFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
	const std::string &name() const override { return name_; }
	uint64_t bytes() const override { return bytes_.size(); }
	std::optional<view::Identity> known_identity() const override { return identity(); }
	view::Identity identity() const override { return {1, 2, bytes_.size(), 3, 4}; }
	view::Identity opened() const override { return identity(); }
	void read(uint64_t offset, std::span<std::byte> to) const override
	{
		must(offset <= bytes_.size() && to.size() <= bytes_.size() - offset, "reads are within the file");
		std::copy_n(bytes_.begin() + static_cast<long>(offset), to.size(), to.begin());
	}

private:
	const std::string name_ = "file";
	const std::span<const std::byte> bytes_;
};

constexpr uint64_t memory = 8 << 20, most = 1 << 20;

// Its bytes, at most `most` of them; nullopt: it is refused.
std::optional<std::vector<std::byte>> contents(std::span<const std::byte> stored, size_t step, bool is_interrupted)
{
	view::Decompressors decompressors(memory, std::chrono::milliseconds(0));
	try {
		auto file = std::make_unique<view::CompressedFile>(std::make_unique<MemoryFile>(stored), decompressors);
		for (int steps = 0; !file->index(is_interrupted ? 4096 : most); steps++) {
			if (steps > 64)
				return std::nullopt; // too much for a fuzzer
			if (!is_interrupted || steps % 8)
				continue;
			const std::string saved = file->save_index();
			file = std::make_unique<view::CompressedFile>(std::make_unique<MemoryFile>(stored),
								      decompressors);
			must(file->resume_index(saved), "an index that was saved is of use");
		}
		must(!file->bytes() || !file->points().empty(), "there is a point");
		std::vector<std::byte> all(std::min<uint64_t>(file->bytes(), most));
		for (size_t at = 0; at < all.size(); at += step)
			file->read(at, std::span(all).subspan(at, std::min(step, all.size() - at)));
		must(decompressors.used_bytes() <= memory, "memory is bounded");
		return all;
	} catch (const view::SourceError &error) {
		must(*error.what(), "a refusal says why");
		return std::nullopt;
	}
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	const auto stored = std::as_bytes(std::span(data, size)).subspan(1);
	const auto whole = contents(stored, most, false);
	const auto parts = contents(stored, 1 + data[0] * 37, data[0] & 1);
	if (whole && parts)
		must(*whole == *parts, "the same bytes by other reads");
	return 0;
}
