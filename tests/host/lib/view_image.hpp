// SPDX-License-Identifier: MIT
//
// The device of a view in tests: a header, and the packed elements behind it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "view/header.hpp"

inline std::string image(const std::string &codec, uint64_t elements, const std::string &data,
			 std::vector<view::FileEntry> files = {})
{
	view::Header header;
	header.codec = *view::Codec::parse(codec);
	header.elements = elements;
	header.files = files.empty() ? std::vector<view::FileEntry>{{"tokens.bin", elements}} : std::move(files);
	const auto bytes = std::as_bytes(std::span(data));
	for (size_t at = 0; at < data.size(); at += view::sum_bytes)
		header.sums.push_back(
			view::crc32c(bytes.subspan(at, std::min<size_t>(view::sum_bytes, data.size() - at))));
	const std::vector<std::byte> start = view::serialize(header);
	return std::string(reinterpret_cast<const char *>(start.data()), start.size()) + data;
}
