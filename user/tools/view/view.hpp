// SPDX-License-Identifier: MIT
//
// peerdma view: publishes views of files by peerdma-viewd, looks at them and reads them. info and read need no service.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/cli/cli.hpp"
#include "view/protocol.hpp"

namespace cli
{

struct ViewOptions {
	std::string socket = view::default_socket;
	std::string name = {}; // status: empty: all views
	// publish:
	std::vector<std::string> files = {}, hosts = {};
	std::string codec = "byte";
	std::string conf = {}; // a file with the definition, instead of the others
	bool prefetch = true, compressed = false, wait = false;
	// plan:
	std::string ranges = {}; // a file; "-": standard input
	// info and read:
	std::string device = {}; // or an image
	// info:
	bool verify = false;
	// read, also of a plain file:
	uint64_t first = 0;
	std::optional<uint64_t> count = {}; // empty: to the last one
	std::string file_codec = {};        // empty: none
	std::string output = "-";           // "-": standard output
	bool packed = false, json = false;
};

Report view_publish(const ViewOptions &options);
Report view_withdraw(const ViewOptions &options);
Report view_plan(const ViewOptions &options);
Report view_ls(const ViewOptions &options);
Report view_status(const ViewOptions &options);
Report view_info(const ViewOptions &options);
Report view_read(const ViewOptions &options);

} // namespace cli
