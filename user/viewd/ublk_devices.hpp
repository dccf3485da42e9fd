// SPDX-License-Identifier: MIT
//
// Views as block devices of the kernel's ublk driver, exported by its NVMe target.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
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
	// Finds the devices that services before have left. exports: each device is exported, with the prefix and the view's name as its
	// NQN; if not, an export that was left is removed. nvmet outlives this.
	UblkDevices(unsigned loops, Nvmet &nvmet, bool exports, std::string prefix);
	std::unique_ptr<BlockDevice> serve(ServedView &view, const ViewConf &conf, uint64_t cookie) override;
	bool remove_left(const std::string &name, uint64_t cookie) override;
	void close() noexcept override;

private:
	int find_left(uint64_t cookie);
	void forget_left(uint64_t cookie);
	void discard(const std::string &name, int number, uint64_t cookie, ublk::Left what);

	Nvmet &nvmet_;
	const bool exports_;
	const std::string prefix_;
	std::vector<std::unique_ptr<ublk::Loop>> loops_;
	std::mutex mutex_; // protects left_
	std::map<uint64_t, int>
		left_; // devices that were there before, by their cookies, until they are taken over or removed
};

} // namespace viewd
