// SPDX-License-Identifier: MIT
#include "view/header.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace view
{

namespace
{

static_assert(std::endian::native == std::endian::little, "the header is read and written as it is in memory");

constexpr char magic[8] = {'P', 'D', 'M', 'A', 'V', 'I', 'E', 'W'};
constexpr uint32_t version = 1;
constexpr size_t crc_offset = 12, start_bytes = 128;

struct Start {
	char magic[8];
	uint32_t version, crc;
	uint64_t header_bytes;
	uint8_t element, reduction, bits, zero;
	uint32_t zeros;
	uint64_t elements, data_bytes, files, table, names, names_bytes, sums;
	uint8_t rest[40];
};
static_assert(sizeof(Start) == start_bytes && offsetof(Start, crc) == crc_offset);

struct TableEntry {
	uint64_t elements;
	uint32_t name, name_bytes;
};
static_assert(sizeof(TableEntry) == 16);

// The offsets of the parts, which follow from their sizes.
struct Parts {
	uint64_t table, names, sums, end, header_bytes;
};

constexpr uint64_t up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// The caller has bounded the arguments so that nothing overflows.
Parts parts_of(uint64_t files, uint64_t names_bytes, uint64_t sums)
{
	Parts parts = {};
	parts.table = start_bytes;
	parts.names = parts.table + files * sizeof(TableEntry);
	parts.sums = up(parts.names + names_bytes, 8);
	parts.end = parts.sums + sums * sizeof(uint32_t);
	parts.header_bytes = up(parts.end, header_unit);
	return parts;
}

uint64_t names_bytes_of(const Header &header)
{
	uint64_t bytes = 0;
	for (const FileEntry &file : header.files)
		bytes += file.name.size();
	return bytes;
}

Start start_at(std::span<const std::byte> bytes)
{
	if (bytes.size() < header_unit)
		throw BadHeader(fmt::format("too short for a header: {} bytes", bytes.size()));
	Start start;
	std::memcpy(&start, bytes.data(), sizeof(start));
	if (!begins_as_view(bytes))
		throw BadHeader("not a view");
	if (start.version != version)
		throw BadHeader(
			fmt::format("version {} of the header; this program reads version {}", start.version, version));
	if (start.header_bytes % header_unit || start.header_bytes < header_unit || start.header_bytes > max_header)
		throw BadHeader(fmt::format("the header's size is invalid: {} bytes", start.header_bytes));
	return start;
}

void check(bool right, const char *what)
{
	if (!right)
		throw BadHeader(fmt::format("the header is invalid: {}", what));
}

// The CRC of a header, the field of which counts as 0.
uint32_t crc_of(std::span<const std::byte> bytes)
{
	constexpr std::byte field[sizeof(uint32_t)] = {};
	uint32_t crc = crc32c(bytes.first(crc_offset));
	crc = crc32c(field, crc);
	return crc32c(bytes.subspan(crc_offset + sizeof(field)), crc);
}

} // namespace

bool begins_as_view(std::span<const std::byte> bytes)
{
	return bytes.size() >= sizeof(magic) && std::memcmp(bytes.data(), magic, sizeof(magic)) == 0;
}

uint64_t header_bytes(uint64_t files, uint64_t names_bytes, uint64_t data_bytes)
{
	return parts_of(files, names_bytes, chunks_of(data_bytes)).header_bytes;
}

uint64_t Header::bytes() const { return parts_of(files.size(), names_bytes_of(*this), sums.size()).header_bytes; }

HeaderStart parse_start(std::span<const std::byte> bytes)
{
	const Start start = start_at(bytes);
	return {start.header_bytes, start.data_bytes};
}

Header parse(std::span<const std::byte> bytes)
{
	const Start start = start_at(bytes);
	check(bytes.size() >= start.header_bytes, "it is cut off");
	bytes = bytes.first(start.header_bytes);
	check(crc_of(bytes) == start.crc, "its checksum is wrong");

	check(!start.zero && !start.zeros && std::ranges::all_of(start.rest, [](uint8_t byte) { return byte == 0; }),
	      "what is reserved is not 0");

	Header header;
	header.codec = {static_cast<Element>(start.element), static_cast<Reduction>(start.reduction), start.bits};
	check(header.codec.valid(), "its codec is unknown");
	header.elements = start.elements;
	// Bounds the data to 2^60 bytes, so that no sum of sizes overflows.
	check(start.elements <= (1ULL << 60) / header.codec.element_bytes(), "too many elements");
	check(start.data_bytes == header.data_bytes(), "its elements do not take the data's bytes");

	const uint64_t sums = chunks_of(start.data_bytes);
	check(start.files <= max_files, "too many files");
	check(start.files <= bytes.size() && start.names_bytes <= bytes.size() && sums <= bytes.size(),
	      "its tables are too long");
	const Parts parts = parts_of(start.files, start.names_bytes, sums);
	check(start.table == parts.table && start.names == parts.names && start.sums == parts.sums &&
		      start.header_bytes == parts.header_bytes,
	      "its tables are not where they belong");

	uint64_t elements = 0, name_at = 0;
	for (uint64_t i = 0; i < start.files; i++) {
		TableEntry entry;
		std::memcpy(&entry, bytes.data() + parts.table + i * sizeof(entry), sizeof(entry));
		check(entry.elements <= start.elements - elements, "its files have more elements than it has");
		check(entry.name == name_at && entry.name_bytes <= start.names_bytes - name_at,
		      "a file's name is outside of the names");
		const auto *name = reinterpret_cast<const char *>(bytes.data() + parts.names + entry.name);
		header.files.push_back({{name, entry.name_bytes}, entry.elements});
		elements += entry.elements;
		name_at += entry.name_bytes;
	}
	check(elements == start.elements && name_at == start.names_bytes, "its files do not add up");
	header.sums.resize(sums);
	if (sums)
		std::memcpy(header.sums.data(), bytes.data() + parts.sums, sums * sizeof(uint32_t));
	return header;
}

std::vector<std::byte> serialize(const Header &header)
{
	const uint64_t names_bytes = names_bytes_of(header);
	const Parts parts = parts_of(header.files.size(), names_bytes, header.sums.size());
	std::vector<std::byte> bytes(parts.header_bytes);

	Start start = {};
	std::memcpy(start.magic, magic, sizeof(magic));
	start.version = version;
	start.header_bytes = parts.header_bytes;
	start.element = static_cast<uint8_t>(header.codec.element);
	start.reduction = static_cast<uint8_t>(header.codec.reduction);
	start.bits = static_cast<uint8_t>(header.codec.bits);
	start.elements = header.elements;
	start.data_bytes = header.data_bytes();
	start.files = header.files.size();
	start.table = parts.table;
	start.names = parts.names;
	start.names_bytes = names_bytes;
	start.sums = parts.sums;
	std::memcpy(bytes.data(), &start, sizeof(start));

	uint64_t name_at = 0;
	std::byte *entry_at = bytes.data() + parts.table;
	for (const FileEntry &file : header.files) {
		const TableEntry entry = {file.elements, static_cast<uint32_t>(name_at),
					  static_cast<uint32_t>(file.name.size())};
		std::memcpy(entry_at, &entry, sizeof(entry));
		std::memcpy(bytes.data() + parts.names + name_at, file.name.data(), file.name.size());
		entry_at += sizeof(entry);
		name_at += file.name.size();
	}
	if (!header.sums.empty())
		std::memcpy(bytes.data() + parts.sums, header.sums.data(), header.sums.size() * sizeof(uint32_t));
	const uint32_t crc = crc_of(bytes);
	std::memcpy(bytes.data() + crc_offset, &crc, sizeof(crc));
	return bytes;
}

} // namespace view
