// SPDX-License-Identifier: MIT
// The definition of a view. An accepted one is written in a form that is read as the same; a fault names where it is.
#include <string>

#include "input.hpp"
#include "view/view_conf.hpp"

using input::must;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const std::string text(reinterpret_cast<const char *>(data), size);
	try {
		const view::ViewConf conf = view::parse_conf("v.conf", "v", text);
		must(!conf.files.empty() && (!conf.codec || conf.codec->valid()), "it has files and a codec");
		must(view::parse_conf("v.conf", "v", view::conf_text(conf)) == conf, "written as it was read");
	} catch (const view::BadConf &bad) {
		const std::string said = bad.what();
		must(said.starts_with("v.conf:"), "a fault has a place");
		must(said.size() < 400, "and is short");
	}
	return 0;
}
