// SPDX-License-Identifier: MIT
//
// Reads the kernel's own files, above all sysfs.

#include "tools/system/sysfs.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "common/pci.hpp"

namespace cli
{
namespace
{

// include/linux/ioport.h; the resource file prints them and sysfs-bus-pci documents that it does.
constexpr uint64_t resource_mem = 0x200, resource_prefetch = 0x2000, resource_mem_64 = 0x100000;

} // namespace

std::string first_line(const std::string &text) { return text.substr(0, text.find('\n')); }

std::string line_of(peerdma_impl::Syscalls &sys, const std::string &path)
{
	std::string text;
	return sys.read_file(path, text) < 0 ? "" : first_line(text);
}

std::string base(const std::string &path) { return path.substr(path.rfind('/') + 1); }

std::string link_name(peerdma_impl::Syscalls &sys, const std::string &path)
{
	std::string target;
	return sys.read_link(path, target) < 0 ? "" : base(target);
}

std::vector<std::string> addresses_in(const std::string &path)
{
	std::vector<std::string> found;
	for (size_t from = 0; from < path.size();) {
		const size_t end = std::min(path.find('/', from), path.size());
		const std::string part = path.substr(from, end - from);
		if (const auto address = peerdma_impl::PciAddress::parse(part); address && address->str() == part)
			found.push_back(part);
		from = end + 1;
	}
	return found;
}

std::vector<std::string> pci_path(peerdma_impl::Syscalls &sys, const std::string &pci)
{
	std::string target;
	return sys.read_link(pci_devices + pci, target) < 0 ? std::vector<std::string>() : addresses_in(target);
}

bool Bar::wide() const
{
	return (flags & (resource_prefetch | resource_mem_64)) == (resource_prefetch | resource_mem_64);
}

std::vector<Bar> bars_of(peerdma_impl::Syscalls &sys, const std::string &pci)
{
	std::vector<Bar> bars;
	std::string text;
	sys.read_file(pci_devices + pci + "/resource", text);
	std::istringstream lines(text);
	std::string line;
	// One line for each BAR: first byte, last byte, flags. The lines after the six BARs are the ROM and a bridge's
	// windows.
	for (int number = 0; number < 6 && std::getline(lines, line); number++) {
		unsigned long long start, last, flags;
		if (std::sscanf(line.c_str(), "%llx %llx %llx", &start, &last, &flags) == 3 && last > start &&
		    flags & resource_mem)
			bars.push_back({number, start, last - start + 1, flags});
	}
	return bars;
}

} // namespace cli
