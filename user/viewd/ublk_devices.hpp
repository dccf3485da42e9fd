// SPDX-License-Identifier: MIT
//
// Views as block devices of the kernel's ublk driver, exported by its NVMe target.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "viewd/nvmet.hpp"
#include "viewd/service.hpp"
#include "viewd/ublk.hpp"

namespace viewd
{

class UblkDevices final : public BlockDevices
{
public:
	// Exports each device by `nvmet`, which outlives this, with the prefix and the view's name as its NQN. nullptr: exports none.
	UblkDevices(unsigned loops, Nvmet *nvmet, std::string prefix);
	std::unique_ptr<BlockDevice> serve(ServedView &view, const ViewConf &conf, int left) override;
	void remove_left(const std::string &name, int number) noexcept override;

private:
	Nvmet *const nvmet_;
	const std::string prefix_;
	std::vector<std::unique_ptr<ublk::Loop>> loops_;
};

} // namespace viewd
