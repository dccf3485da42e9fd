// SPDX-License-Identifier: MIT
#include "viewd/ublk_devices.hpp"

#include <algorithm>
#include <utility>

namespace viewd
{

namespace
{

class Read final : public ViewRead
{
public:
	explicit Read(ublk::Request request) : request_(request) {}
	int copy(uint32_t at, const std::byte *from, size_t len) override { return request_.copy(at, from, len); }
	void done(int error) override { request_.complete(error); }

private:
	const ublk::Request request_;
};

class UblkDevice final : public BlockDevice
{
public:
	UblkDevice(std::unique_ptr<ublk::Device> device, Nvmet *nvmet, std::string nqn,
		   const std::vector<std::string> &hosts)
		: device_(std::move(device)), nvmet_(nvmet), nqn_(std::move(nqn))
	{
		if (!nvmet_)
			return;
		try {
			nvmet_->add(nqn_, path(), hosts);
		} catch (...) {
			nvmet_->remove(nqn_);
			throw;
		}
	}
	// The target has the device open.
	~UblkDevice() override
	{
		if (nvmet_)
			nvmet_->remove(nqn_);
	}
	int number() const override { return device_->id(); }
	std::string path() const override { return device_->path(); }
	std::string nqn() const override { return nvmet_ ? nqn_ : ""; }

private:
	const std::unique_ptr<ublk::Device> device_;
	Nvmet *const nvmet_;
	const std::string nqn_;
};

} // namespace

UblkDevices::UblkDevices(unsigned loops, Nvmet *nvmet, std::string prefix) : nvmet_(nvmet), prefix_(std::move(prefix))
{
	for (unsigned i = 0; i < loops; i++)
		loops_.push_back(std::make_unique<ublk::Loop>());
}

std::unique_ptr<BlockDevice> UblkDevices::serve(ServedView &view, const ViewConf &conf, int left)
{
	ublk::Geometry geometry;
	geometry.bytes = view.device_bytes();
	geometry.block = 512;
	geometry.queues = static_cast<unsigned>(std::min<size_t>(loops_.size(), 4));
	// The kernel's NVMe target opens it for writing too (drivers/nvme/target/io-cmd-bdev.c).
	geometry.read_only = !nvmet_;
	std::vector<ublk::Loop *> loops;
	for (const std::unique_ptr<ublk::Loop> &loop : loops_)
		loops.push_back(loop.get());
	const auto handler = [&view](const ublk::Request &request) {
		view.read(request.offset, request.bytes, std::make_shared<Read>(request));
	};
	std::unique_ptr<ublk::Device> device;
	if (left >= 0) {
		try {
			device = std::make_unique<ublk::Device>(left, geometry, loops, handler);
		} catch (const ublk::Error &) {
			// The kernel has not kept it: the machine was started anew, or it was removed.
		}
	}
	if (!device)
		device = std::make_unique<ublk::Device>(geometry, loops, handler);
	return std::make_unique<UblkDevice>(std::move(device), nvmet_, prefix_ + conf.name, conf.hosts);
}

void UblkDevices::discard(const std::string &name, int left)
{
	try {
		const bool is_left = ublk::is_left(left);
		// The target waits for requests that the device holds back, and has it open.
		if (is_left)
			ublk::stop(left);
		if (nvmet_)
			nvmet_->remove(prefix_ + name);
		if (is_left)
			ublk::remove(left);
	} catch (const ublk::Error &) {
		// Without the driver there is no device.
	}
}

} // namespace viewd
