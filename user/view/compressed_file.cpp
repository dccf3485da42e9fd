// SPDX-License-Identifier: MIT
#include "view/compressed_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace view
{

namespace
{

using json = nlohmann::json;

constexpr int saved_version = 1;
constexpr size_t read_at_once = 64 << 10;
constexpr uint64_t in_order = 1 << 20; // so near to the end of the last read
constexpr size_t max_points = 1 << 18; // 6 MiB. Beyond that every other one is dropped
constexpr uint64_t max_bytes = 1ULL << 60;
constexpr uint64_t max_spacing = 1ULL << 40;

json json_of(const Source &file)
{
	const Identity id = file.opened();
	return {file.name(), id.device, id.inode, id.size, id.mtime, id.ctime};
}

} // namespace

// Where the index is; between two calls of index() it may be within a frame.
struct CompressedFile::Walk {
	// Of the current frame:
	bool in_frame = false;
	Frame frame;
	uint64_t at = 0;          // the next block, in the file
	uint64_t most = 0;        // decompressed bytes that the blocks before have
	bool has_no_size = false; // nothing says how many it has: it is decompressed
	uint64_t reserved = 0;    // bytes of memory for that
	std::unique_ptr<DecodedStream> measured;
	// Of the file:
	std::optional<SeekTable> table;
	uint64_t entry = 0; // of the table
	std::vector<std::byte> buffer;
	uint64_t buffer_at = 0;
};

CompressedFile::CompressedFile(std::unique_ptr<Source> file, Decompressors &decompressors)
	: file_(std::move(file)), decompressors_(decompressors), walk_(std::make_unique<Walk>())
{
	std::array<std::byte, frame_magic> magic = {};
	const bool has_magic = file_->bytes() >= magic.size();
	if (has_magic)
		file_->read(0, magic);
	if (!has_magic || !begins_frame(magic))
		throw SourceError(fmt::format("{}: not compressed with zstd or lz4", name()), EINVAL);
	if (file_->bytes() >= seek_footer) {
		std::array<std::byte, seek_footer> footer = {};
		file_->read(file_->bytes() - footer.size(), footer);
		walk_->table = parse_seek_footer(footer, file_->bytes());
	}
	decompressors_.join(storage());
}

CompressedFile::~CompressedFile()
{
	if (walk_)
		stop_measuring(*walk_);
	decompressors_.forget(this);
	decompressors_.leave(storage());
}

void CompressedFile::damaged(uint64_t at, const std::string &why) const
{
	throw SourceError(fmt::format("{}: damaged at byte {}: {}", name(), at, why), EBADMSG);
}

// As many of the bytes of the file from there on as there are, at most `most`.
std::span<const std::byte> CompressedFile::bytes_at(Walk &walk, uint64_t at, size_t most) const
{
	const uint64_t end = std::min(at + most, file_->bytes());
	if (at >= end)
		return {};
	if (at < walk.buffer_at || end > walk.buffer_at + walk.buffer.size()) {
		walk.buffer.resize(std::min<uint64_t>(read_at_once, file_->bytes() - at));
		walk.buffer_at = at;
		file_->read(at, walk.buffer);
	}
	return std::span(walk.buffer).subspan(at - walk.buffer_at, end - at);
}

bool CompressedFile::index(uint64_t bytes)
{
	while (walk_) {
		Walk &walk = *walk_;
		if (!walk.in_frame && indexed_ == file_->bytes()) {
			walk_.reset();
			break;
		}
		if (!bytes)
			return false;
		const uint64_t at = walk.at, size = walk.measured ? walk.measured->position() : 0;
		if (!walk.in_frame)
			begin_frame(walk);
		else if (walk.has_no_size) {
			if (!measure(walk, bytes))
				return false;
		} else
			pass_block(walk);
		const uint64_t done = walk.measured ? walk.measured->position() - size : walk.at - at;
		bytes -= std::min(bytes, std::max<uint64_t>(done, 1));
	}
	return true;
}

void CompressedFile::begin_frame(Walk &walk)
{
	try {
		walk.frame = parse_frame(bytes_at(walk, indexed_, max_frame_header));
	} catch (const BadFrame &bad) {
		damaged(indexed_, bad.what());
	}
	const Frame &frame = walk.frame;
	walk.at = indexed_ + frame.header_bytes;
	walk.most = 0;
	if (frame.kind == FrameKind::skippable) {
		if (frame.skipped_bytes > file_->bytes() - walk.at)
			damaged(indexed_, "it ends within a frame");
		indexed_ = walk.at += frame.skipped_bytes;
		return;
	}
	if (kind_ == FrameKind::skippable)
		kind_ = frame.kind;
	if (kind_ != frame.kind)
		damaged(indexed_, "frames of zstd and of lz4 in one file");
	// Not in one step: a window may be 2^64 - 1.
	if (frame.window > decompressors_.most() || Decoder::memory_of(frame) > decompressors_.most())
		throw SourceError(fmt::format("{}: the frame at byte {} needs {} MiB of memory to be decompressed; one "
					      "may take {}, half "
					      "of peerdma-viewd --decompress-memory",
					      name(), indexed_, (frame.window >> 20) + 2, decompressors_.most() >> 20),
				  EFBIG);
	memory_ = std::max(memory_, Decoder::memory_of(frame));
	walk.in_frame = true;
	const std::lock_guard lock(mutex_);
	add({indexed_, size_, indexed_});
}

void CompressedFile::pass_block(Walk &walk)
{
	Block block;
	try {
		block = parse_block(walk.frame, bytes_at(walk, walk.at, max_block_header));
	} catch (const BadFrame &bad) {
		damaged(walk.at, bad.what());
	}
	if (block.bytes > file_->bytes() - walk.at)
		damaged(walk.at, "it ends within a frame");
	walk.at += block.bytes;
	walk.most += block.most;
	if (!block.last)
		return;
	const std::optional<uint64_t> in_table = content_in_table(walk, walk.at - indexed_);
	const std::optional<uint64_t> content = walk.frame.content ? walk.frame.content : in_table;
	if (!content) {
		walk.has_no_size = true;
		return;
	}
	if (*content > walk.most)
		damaged(indexed_, fmt::format("its frame is said to have {} bytes, its blocks have {} at most",
					      *content, walk.most));
	end_frame(walk, *content);
}

// The table is left alone from the first frame on that it does not describe.
std::optional<uint64_t> CompressedFile::content_in_table(Walk &walk, uint64_t frame_bytes) const
{
	if (!walk.table || walk.entry == walk.table->frames) {
		walk.table.reset();
		return std::nullopt;
	}
	std::array<uint32_t, 2> sizes = {};
	std::array<std::byte, sizeof(sizes)> entry = {};
	file_->read(walk.table->at + walk.entry * walk.table->entry_bytes, entry);
	std::memcpy(sizes.data(), entry.data(), sizeof(sizes));
	walk.entry++;
	if (sizes[0] == frame_bytes && sizes[1] <= walk.most)
		return sizes[1];
	walk.table.reset();
	return std::nullopt;
}

// Returns whether there was memory for it.
bool CompressedFile::measure(Walk &walk, uint64_t most)
{
	if (!walk.reserved && !decompressors_.reserve(storage(), memory_))
		return false;
	walk.reserved = memory_;
	if (!walk.measured)
		walk.measured = begin_stream({indexed_, size_, indexed_});
	if (walk.measured->pass(most, walk.at))
		end_frame(walk, walk.measured->position() - size_);
	return true;
}

std::unique_ptr<DecodedStream> CompressedFile::begin_stream(const Point &from) const
{
	return std::make_unique<DecodedStream>(
		Decoder::begin(kind_, *file_, from, decompressors_.most()),
		[this](const Decoder &decoder) { passes(decoder); }, stopped_);
}

void CompressedFile::end_frame(Walk &walk, uint64_t content)
{
	if (content > max_bytes - size_)
		damaged(indexed_, "its frames have too many bytes");
	size_ += content;
	indexed_ = walk.at;
	walk.in_frame = walk.has_no_size = false;
	stop_measuring(walk);
}

void CompressedFile::stop_measuring(Walk &walk)
{
	walk.measured.reset();
	if (walk.reserved)
		decompressors_.release(storage(), std::exchange(walk.reserved, 0));
}

void CompressedFile::passes(const Decoder &decoder) const
{
	const Point point = {decoder.at(), decoder.position(), decoder.frame()};
	const std::lock_guard lock(mutex_);
	const auto after = std::ranges::upper_bound(points_, point.at, {}, &Point::at);
	const bool fits = (after == points_.begin() || std::prev(after)->first <= point.first) &&
			  (after == points_.end() || after->first >= point.first) &&
			  (after == points_.begin() || std::prev(after)->at != point.at ||
			   std::prev(after)->first == point.first);
	if (!fits)
		throw SourceError(
			fmt::format("{}: the frames before byte {} do not have as many bytes as they are said to have",
				    name(), point.at),
			EBADMSG);
	if (point.at < file_->bytes())
		add(point);
}

// Keeps the points in order, and so few that they are spacing_ apart. One may always be left out.
void CompressedFile::add(const Point &point) const
{
	const auto after = std::ranges::upper_bound(points_, point.first, {}, &Point::first);
	if (after != points_.begin() && point.first - std::prev(after)->first < spacing_)
		return;
	if (after != points_.end() && after->first - point.first < spacing_)
		return;
	points_.insert(after, point);
	if (points_.size() < max_points || spacing_ >= max_spacing)
		return;
	size_t kept = 0;
	for (size_t i = 0; i < points_.size(); i += 2)
		points_[kept++] = points_[i];
	points_.resize(kept);
	spacing_ *= 2;
}

// There is one at 0.
Point CompressedFile::point_before(uint64_t offset) const
{
	const std::lock_guard lock(mutex_);
	return *std::prev(std::ranges::upper_bound(points_, offset, {}, &Point::first));
}

std::vector<Point> CompressedFile::points() const
{
	const std::lock_guard lock(mutex_);
	return points_;
}

void CompressedFile::read(uint64_t offset, std::span<std::byte> to) const
{
	if (to.empty())
		return;
	if (offset > size_ || to.size() > size_ - offset)
		throw SourceError(fmt::format("{}: ends at byte {}, decompressed", name(), size_), ENODATA);
	const Point from = point_before(offset);
	const auto begin = [&] {
		if (offset > from.first)
			restarts_++;
		return begin_stream(from);
	};
	const auto use = [&](DecodedStream &stream) {
		stream.read(offset, to);
		// Checksums stand behind the last byte, and a claim may be less than there is.
		if (offset + to.size() == size_)
			stream.finish(size_);
	};
	const uint64_t before = last_end_.exchange(offset + to.size());
	const bool follows = offset + in_order >= before && offset <= before + in_order;
	decompressors_.with({this, storage(), offset, offset + to.size(), from.first, memory_, follows, stopped_},
			    begin, use);
}

void CompressedFile::stop()
{
	stopped_ = true;
	decompressors_.wake();
}

std::string CompressedFile::save_index() const
{
	const std::lock_guard lock(mutex_);
	const auto *points = reinterpret_cast<const uint8_t *>(points_.data());
	const json saved = {
		{"version", saved_version},
		{"file", json_of(*file_)},
		{"kind", static_cast<unsigned>(kind_)},
		{"memory", memory_},
		{"size", size_},
		{"indexed", indexed_},
		{"entry", walk_ && walk_->table ? json(walk_->entry) : json()},
		{"spacing", spacing_},
		{"points", json::binary({points, points + points_.size() * sizeof(Point)})},
	};
	std::string bytes;
	json::to_cbor(saved, bytes);
	return bytes;
}

bool CompressedFile::resume_index(const std::string &saved)
{
	const json found = json::from_cbor(saved, true, false);
	const auto is = [&](const char *key, const json &value) { return found.contains(key) && found[key] == value; };
	if (!found.is_object() || !is("version", saved_version) || !is("file", json_of(*file_)))
		return false;
	const auto number = [&](const char *key, uint64_t most) {
		return found.contains(key) && found[key].is_number_unsigned() && found[key] <= most;
	};
	if (!number("kind", static_cast<unsigned>(FrameKind::skippable)) || !number("memory", decompressors_.most()) ||
	    !number("size", max_bytes) || !number("indexed", file_->bytes()) || !found.contains("entry") ||
	    !number("spacing", max_spacing) || !found.contains("points") || !found["points"].is_binary())
		return false;
	const std::vector<uint8_t> &bytes = found["points"].get_binary();
	const auto indexed = found["indexed"].get<uint64_t>(), size = found["size"].get<uint64_t>();
	if (bytes.size() % sizeof(Point) || bytes.size() / sizeof(Point) > max_points)
		return false;
	std::vector<Point> points(bytes.size() / sizeof(Point));
	if (!points.empty())
		std::memcpy(points.data(), bytes.data(), bytes.size());
	// A frame that was not done is indexed anew, and with it its points.
	std::erase_if(points, [&](const Point &point) { return point.at >= indexed; });
	for (size_t i = 0; i < points.size(); i++) {
		const Point before = i ? points[i - 1] : Point{};
		if (points[i].at < before.at || points[i].first < before.first || points[i].first > size ||
		    points[i].frame > points[i].at || (!i && points[i].first))
			return false;
	}
	if (size && (points.empty() || found["kind"] == static_cast<unsigned>(FrameKind::skippable)))
		return false;

	if (walk_->table && found["entry"].is_number_unsigned() && found["entry"] <= walk_->table->frames)
		walk_->entry = found["entry"].get<uint64_t>();
	else
		walk_->table.reset();
	walk_->at = indexed;
	kind_ = static_cast<FrameKind>(found["kind"].get<unsigned>());
	memory_ = found["memory"].get<uint64_t>();
	size_ = size;
	indexed_ = indexed;
	const std::lock_guard lock(mutex_);
	spacing_ = std::max<uint64_t>(found["spacing"].get<uint64_t>(), 1);
	points_ = std::move(points);
	return true;
}

std::unique_ptr<Source> open_compressed(const std::string &path, Decompressors &decompressors)
{
	return std::make_unique<CompressedFile>(open_plain(path), decompressors);
}

} // namespace view
