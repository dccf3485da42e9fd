// SPDX-License-Identifier: MIT
// A view's header, as a device may have it, with a right checksum. One that is accepted must be written as it was read.
#include <algorithm>
#include <cstring>
#include <vector>

#include "input.hpp"
#include "view/header.hpp"

using input::must;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	// As long as it says, for the parts behind the first unit; zeros where the input ends.
	constexpr uint64_t most = 64 << 10;
	uint64_t header_bytes = 0;
	if (size >= 24)
		std::memcpy(&header_bytes, data + 16, 8);
	const uint64_t claimed = header_bytes <= most ? header_bytes : 0;
	std::vector<std::byte> bytes((std::max<uint64_t>(size, claimed) + view::header_unit) / view::header_unit *
				     view::header_unit);
	if (size)
		std::memcpy(bytes.data(), data, size);
	constexpr size_t crc_at = 12;
	std::memset(bytes.data() + crc_at, 0, 4);
	const uint32_t crc = view::crc32c(std::span(bytes).first(std::min<uint64_t>(header_bytes, bytes.size())));
	std::memcpy(bytes.data() + crc_at, &crc, 4);
	try {
		const view::Header header = view::parse(bytes);
		must(header.codec.valid(), "a valid codec");
		must(view::parse(view::serialize(header)) == header, "written as it was read");
	} catch (const view::BadHeader &bad) {
		must(*bad.what(), "a refusal says why");
	}
	return 0;
}
