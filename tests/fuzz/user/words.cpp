// SPDX-License-Identifier: MIT
// Words of a command line: PCI addresses, sizes, gpu: targets. An accepted word must be accepted again with the same
// result.
#include <algorithm>

#include "input.hpp"
#include "tools/cli/cli.hpp"

using input::must;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const std::string text(reinterpret_cast<const char *>(data), size);
	if (const auto address = cli::PciAddress::parse(text)) {
		must(address->bdf <= 0xffff, "a bus, device and function have 16 bits");
		must(cli::PciAddress::parse(address->str()) == address, "an address that is printed is read again");
		// An address in the kernel's form must be printed unchanged.
		if (text.size() == 12 && text[4] == ':' && text[7] == ':' && text[10] == '.' &&
		    text.find_first_not_of("0123456789abcdef:.") == std::string::npos)
			must(address->str() == text, "an address is the one that was read");
	}
	if (const auto bytes = cli::parse_bytes(text)) {
		must(!text.empty() && std::isxdigit(static_cast<unsigned char>(text[0])),
		     "a number begins with a digit");
		must(cli::parse_bytes(std::to_string(*bytes)) == bytes, "a number that is printed is read again");
		cli::size_text(*bytes);
	}
	if (const auto target = cli::parse_gpu(text)) {
		must(text.starts_with("gpu:"), "a target begins with gpu:");
		must(target->provider.find('+') == std::string::npos, "what is behind + is no provider");
	}
	return 0;
}
