// SPDX-License-Identifier: MIT
//
// What a view is made of: a file of /etc/peerdma/views.d, or of `peerdma view publish`. Lines "key = value", and comments that begin
// with #:
//
//   file = /data/tokens-*.bin   a file, or a pattern (glob(7)), the files of which are taken in the order of their
//                               names. More lines may follow
//   codec = u32:17              view/codec.hpp; u32 or i64 alone: the fewest bits; f32 or byte alone: as they are
//   host = nqn.2014-08...       a host that may connect. Without this line nobody may. More lines may follow
//   prefetch = no               default: yes. Reads that follow each other are not recognized; a plan is followed all the same
//   compressed = yes            default: no. The files are compressed with zstd or lz4, and the view is of the decompressed
//                               bytes. Without this line it is of the bytes as they are, compressed or not
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "view/codec.hpp"

namespace view
{

// What is wrong with a definition: "NAME:LINE: what".
struct BadConf : std::runtime_error {
	using std::runtime_error::runtime_error;
};

// A definition that cannot be read.
struct UnreadConf : BadConf {
	using BadConf::BadConf;
};

struct ViewConf {
	std::string name =
		{}; // of the view: letters, digits, '-', '_' and '.', at most 63, the first a letter or digit
	std::vector<std::string> files = {};
	Element element = Element::byte;
	std::optional<Codec> codec = {}; // nullopt: the fewest bits
	std::vector<std::string> hosts = {};
	bool prefetch = true;
	bool compressed = false;
	bool operator==(const ViewConf &) const = default;
};

inline constexpr size_t max_conf = 256 << 10; // bytes of a definition

bool is_view_name(std::string_view name);

// As the keys of a definition. Throw BadConf, without a place.
void set_codec(ViewConf &conf, std::string_view value);
void add_host(ViewConf &conf, std::string_view value);

// The text of a file with a definition. Throws BadConf, or UnreadConf: "PATH: why". Never waits: other than regular files are refused.
std::string read_conf(const std::string &path);

// Throws BadConf. `where` stands before messages.
ViewConf parse_conf(const std::string &where, const std::string &name, std::string_view text);
std::string conf_text(const ViewConf &conf);

// The files of patterns, in order. Throws BadConf if a pattern has none.
std::vector<std::string> expand(const std::vector<std::string> &patterns);
// The opposite: the pattern that matches this file alone.
std::string pattern_of(const std::string &path);

} // namespace view
