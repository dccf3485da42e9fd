// SPDX-License-Identifier: MIT
// The input of peerdma witness from the kernel's trace. Process names in it may contain anything.
#include <algorithm>

#include "input.hpp"
#include "tools/trace/transfer_audit.hpp"

using input::must;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cli::TransferAudit witness({1, 2, 3});
	for (const std::string &line : input::lines(data, size)) {
		if (const auto parsed = cli::parse_trace(line))
			must(parsed->event.size() + parsed->text.size() < line.size(), "parts of a line are in it");
		witness.feed(line);
	}
	const auto report = witness.report([](const std::string &dev) { return dev; });
	must(report.status == cli::exit_ok || !witness.proved(), "what is proved is reported as such");
	report.json.dump(2, ' ', false, cli::Json::error_handler_t::replace);
	return 0;
}
