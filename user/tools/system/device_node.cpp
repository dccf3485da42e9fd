// SPDX-License-Identifier: MIT
#include "tools/system/device_node.hpp"

#include "common/node.hpp"

namespace cli
{

std::string device_node(peerdma_impl::Syscalls &sys)
{
	const std::string named = peerdma_impl::named_node();
	std::string opened;
	const int fd = peerdma_impl::open_node(
		sys, named, [&](auto &names) { sys.list_dir("/dev", names); }, opened);
	if (fd < 0)
		return peerdma_impl::first_node(named);
	sys.close(fd);
	return opened;
}

} // namespace cli
