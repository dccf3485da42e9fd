// SPDX-License-Identifier: MIT
#include "viewd/ublk_devices.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>

#include <fmt/format.h>

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

// Of the NVMe subsystem that exports a view's device. Of 20 characters: the kernel fills shorter ones up with spaces.
std::string serial_of(uint64_t cookie) { return fmt::format("{:020x}", cookie); }

class UblkDevice final : public BlockDevice
{
public:
	// nvmet: nullptr: it is not exported
	UblkDevice(std::unique_ptr<ublk::Device> device, std::string note, Nvmet *nvmet, std::string nqn,
		   uint64_t cookie, const std::vector<std::string> &hosts)
		: device_(std::move(device)), note_(std::move(note)), nvmet_(nvmet), nqn_(std::move(nqn))
	{
		if (!nvmet_)
			return;
		try {
			nvmet_->add(nqn_, serial_of(cookie), 1 + cookie % BlockDevices::cookie_period, path(), hosts);
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
	void open() override
	{
		if (nvmet_)
			nvmet_->open(nqn_);
	}
	bool opens_port() const override { return nvmet_ && nvmet_->has_closed_port(); }
	std::string path() const override { return device_->path(); }
	std::string nqn() const override { return nvmet_ ? nqn_ : ""; }
	std::string note() const override { return note_; }

private:
	const std::unique_ptr<ublk::Device> device_;
	const std::string note_;
	Nvmet *const nvmet_;
	const std::string nqn_;
};

} // namespace

UblkDevices::UblkDevices(unsigned loops, Nvmet &nvmet, bool exports, std::string prefix)
	: nvmet_(nvmet), exports_(exports), prefix_(std::move(prefix)), left_(ublk::devices())
{
	for (unsigned i = 0; i < loops; i++)
		loops_.push_back(std::make_unique<ublk::Loop>());
}

std::unique_ptr<BlockDevice> UblkDevices::serve(ServedView &view, const ViewConf &conf, uint64_t cookie)
{
	ublk::Geometry geometry;
	geometry.bytes = view.device_bytes();
	geometry.cookie = cookie;
	geometry.block = 512;
	geometry.queues = static_cast<unsigned>(std::min<size_t>(loops_.size(), 4));
	// The kernel's NVMe target opens it for writing too (drivers/nvme/target/io-cmd-bdev.c).
	geometry.read_only = !exports_;
	std::vector<ublk::Loop *> loops;
	for (const std::unique_ptr<ublk::Loop> &loop : loops_)
		loops.push_back(loop.get());
	const auto handler = [&view](const ublk::Request &request) {
		std::shared_ptr<Read> read;
		try {
			read = std::make_shared<Read>(request);
		} catch (const std::bad_alloc &) {
			request.complete(-ENOMEM);
			return;
		}
		view.read(request.offset, request.bytes, std::move(read));
	};
	const std::string nqn = prefix_ + conf.name;
	const std::string serial = serial_of(cookie);
	std::unique_ptr<ublk::Device> device;
	std::string note;
	const int left = find_left(cookie);
	const ublk::Left what = left >= 0 ? ublk::left_of(left, cookie) : ublk::Left::nothing;
	if (what == ublk::Left::held) {
		nvmet_.close_if_more(serial, exports_ ? nqn : "", conf.hosts);
		try {
			device = std::make_unique<ublk::Device>(left, geometry, loops, handler);
		} catch (const ublk::Error &error) {
			note = fmt::format("fresh device: the one before could not be recovered: {}", error.what());
		}
	}
	// Also if there is none: the target may have another device of that path open.
	if (!device)
		discard(conf.name, left, cookie, what);
	forget_left(cookie);
	if (!device)
		device = std::make_unique<ublk::Device>(geometry, loops, handler);
	nvmet_.remove_others(serial, exports_ ? nqn : "");
	return std::make_unique<UblkDevice>(std::move(device), std::move(note), exports_ ? &nvmet_ : nullptr, nqn,
					    cookie, conf.hosts);
}

bool UblkDevices::remove_left(const std::string &name, uint64_t cookie)
{
	const int left = find_left(cookie);
	if (left < 0)
		return false;
	const ublk::Left what = ublk::left_of(left, cookie);
	discard(name, left, cookie, what);
	forget_left(cookie);
	return what == ublk::Left::held;
}

// Those too that a service before has exported, and that this one has not taken over.
void UblkDevices::close() noexcept
{
	nvmet_.close_all();
	try {
		const std::lock_guard lock(mutex_);
		for (const auto &[cookie, number] : left_)
			nvmet_.close_if_more(serial_of(cookie), "", {});
	} catch (const std::exception &) {
		// What is not closed fails its reads.
	}
}

// Returns -1 if there is none.
int UblkDevices::find_left(uint64_t cookie)
{
	const std::lock_guard lock(mutex_);
	const auto found = left_.find(cookie);
	return found == left_.end() ? -1 : found->second;
}

void UblkDevices::forget_left(uint64_t cookie)
{
	const std::lock_guard lock(mutex_);
	left_.erase(cookie);
}

// Removes a view's exports and the device that was left.
void UblkDevices::discard(const std::string &name, int number, uint64_t cookie, ublk::Left what)
{
	const bool is_there = what != ublk::Left::nothing;
	// First: the target waits for requests that the device holds back, and has it open.
	if (is_there)
		ublk::stop(number, cookie);
	nvmet_.remove(prefix_ + name);
	nvmet_.remove_others(serial_of(cookie), "");
	if (is_there)
		ublk::remove(number, cookie);
}

} // namespace viewd
