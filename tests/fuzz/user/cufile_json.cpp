// SPDX-License-Identifier: MIT
// cufile.json: any input gives a configuration with valid values.
#include "cufile/config/config.hpp"
#include "input.hpp"

using input::must;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const std::string text(reinterpret_cast<const char *>(data), size);
	cufile::Config config;
	const cufile::Config built_in;
	cufile::Findings found;
	cufile::read_json(text, "cufile.json", config, found);
	const bool good = found.fault.empty();
	must(good || found.fault.starts_with("cufile.json:"), "a fault has a place");
	must(good || config.denylist.empty(), "what has a fault denies nothing by half");
	for (unsigned i = 0; i < cufile::nr_sizes; i++) {
		const cufile::Range range = cufile::size_range(i);
		must(config.sizes[i] >= range.min && config.sizes[i] <= range.max, "a number is in its range");
		must(good || config.sizes[i] == built_in.sizes[i], "what has a fault changes nothing");
	}
	for (const cufile::Slabs &slabs : config.slabs) {
		must(slabs.size_kb.size() == slabs.count.size(), "as many sizes as counts");
		must(!slabs.count.empty() && slabs.count.size() <= cufile::max_slabs, "a few kinds of slabs");
	}
	must(config.log_max_mb << 20 >> 20 == config.log_max_mb && config.log_max_mb, "a log has room");
	return 0;
}
