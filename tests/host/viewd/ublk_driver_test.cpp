// SPDX-License-Identifier: MIT
//
// Devices of a driver of this test's own, which stands for the kernel's ublk driver: it takes what is written to /dev/ublk-control and
// /dev/ublkcN from the rings of io_uring (user/Makefile: view_wraps). It fails where the kernel seldom does.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <liburing.h>
#include <linux/ublk_cmd.h>

#include "../view/temporary_files.hpp"
#include "viewd/ublk.hpp"

extern "C" {
int __real_open(const char *path, int flags, ...);
int __real_io_uring_submit(io_uring *ring);
int __real_io_uring_submit_and_wait(io_uring *ring, unsigned count);
int __wrap_open(const char *path, int flags, ...);
int __wrap_io_uring_submit(io_uring *ring);
int __wrap_io_uring_submit_and_wait(io_uring *ring, unsigned count);
}

namespace
{

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr unsigned delete_async = 0x14;
constexpr uint64_t user_copy = 1 << 7; // UBLK_F_USER_COPY
constexpr uint64_t cookie = 77;
constexpr unsigned depth = 4;

struct Driver {
	struct Command {
		io_uring *ring;
		uint64_t data;
	};
	struct Device {
		uint64_t cookie = 0;
		int state = UBLK_S_DEV_DEAD;
		ublk_params params = {};
		std::vector<Command> fetches = {};
	};

	// Returns a descriptor or -errno.
	int open(std::string_view path)
	{
		const std::lock_guard lock(mutex);
		if (open_error)
			return -open_error;
		const bool is_control = path == "/dev/ublk-control";
		if (!is_control && char_error)
			return -char_error;
		const int fd = ::memfd_create("ublk", MFD_CLOEXEC);
		if (fd < 0 || ::ftruncate(fd, 1 << 20) < 0)
			return -errno;
		if (!is_control)
			ids[fd] = std::stoi(std::string(path.substr(std::string_view("/dev/ublkc").size())));
		return fd;
	}

	// Takes what a ring has. Returns how many commands, or -errno.
	int submit(io_uring *ring)
	{
		std::unique_lock lock(mutex);
		const bool is_control = ring->flags & IORING_SETUP_SQE128;
		if (is_control && refuses_first && (is_refused = !is_refused))
			return -refusal;
		int count = 0;
		for (; ring->sq.sqe_head != ring->sq.sqe_tail; count++) {
			const unsigned at = ring->sq.sqe_head++ & *ring->sq.kring_mask;
			const io_uring_sqe &sqe = ring->sq.sqes[at << is_control];
			if (sqe.opcode == IORING_OP_READ) {
				armed[ring] = {sqe.fd, sqe.user_data};
				continue;
			}
			if (sqe.opcode == IORING_OP_NOP) {
				for (const auto &[command, result] : std::exchange(forgotten, {}))
					push(command, result);
				push({ring, sqe.user_data}, 0);
				continue;
			}
			const unsigned number = sqe.cmd_op & 0xff;
			if (!is_control) {
				devices[ids[sqe.fd]].fetches.push_back({ring, sqe.user_data});
				continue;
			}
			ublksrv_ctrl_cmd command;
			std::memcpy(&command, sqe.cmd, sizeof(command));
			const int result = control(lock, number, command);
			if (number == forgets)
				forgotten.push_back({{ring, sqe.user_data}, result});
			else
				push({ring, sqe.user_data}, result);
		}
		io_uring_smp_store_release(ring->sq.khead, ring->sq.sqe_head);
		return count;
	}

	// What came meanwhile, for a loop. Returns whether there is something.
	bool arrived(io_uring *ring)
	{
		const std::lock_guard lock(mutex);
		if (*ring->cq.khead != *ring->cq.ktail)
			return true;
		const auto found = armed.find(ring);
		if (found == armed.end() || (holds_until_stopped && !was_stopped))
			return false;
		const auto [fd, data] = found->second;
		pollfd woken = {fd, POLLIN, 0};
		uint64_t value;
		if (::poll(&woken, 1, 0) <= 0 || ::read(fd, &value, sizeof(value)) != sizeof(value))
			return false;
		armed.erase(found);
		push({ring, data}, sizeof(value));
		return true;
	}

	void abort(Device &device)
	{
		for (const Command &fetch : std::exchange(device.fetches, {}))
			push(fetch, UBLK_IO_RES_ABORT);
	}
	// Ends a wait that the code under test should not have come to.
	void abort_all()
	{
		const std::lock_guard lock(mutex);
		for (auto &[id, device] : devices)
			abort(device);
	}

	std::mutex mutex; // protects all of it
	std::map<int, Device> devices;
	int next = 3;
	int open_error = 0, char_error = 0;
	std::map<unsigned, std::vector<int>> failures; // by command: what it returns first
	std::function<void(unsigned)> before;          // each command
	std::vector<unsigned> said;                    // commands that were not refused
	bool refuses_first = false;                    // io_uring takes a command to the driver the second time only
	int refusal = EAGAIN;                          // the first time
	bool holds_until_stopped = false;              // loops hear nothing before STOP_DEV
	unsigned forgets = 0;                          // a command that is answered after a request that is none
	uint64_t unknown_flags = 0;                    // which a new device does not get

private:
	static void push(const Command &command, int result)
	{
		io_uring_cq &queue = command.ring->cq;
		const unsigned tail = *queue.ktail;
		io_uring_cqe &entry = queue.cqes[tail & *queue.kring_mask];
		entry.user_data = command.data;
		entry.res = result;
		entry.flags = 0;
		io_uring_smp_store_release(queue.ktail, tail + 1);
	}

	int control(std::unique_lock<std::mutex> &lock, unsigned number, const ublksrv_ctrl_cmd &command)
	{
		if (before)
			before(number);
		said.push_back(number);
		was_stopped |= number == UBLK_CMD_STOP_DEV;
		if (std::vector<int> &left = failures[number]; !left.empty()) {
			const int result = left.front();
			left.erase(left.begin());
			return result;
		}
		auto *const info = reinterpret_cast<ublksrv_ctrl_dev_info *>(command.addr);
		auto *const params = reinterpret_cast<ublk_params *>(command.addr);
		if (number == UBLK_CMD_ADD_DEV) {
			info->dev_id = static_cast<uint32_t>(next++);
			info->flags &= ~unknown_flags;
			devices[static_cast<int>(info->dev_id)].cookie = info->ublksrv_flags;
			return 0;
		}
		const auto found = devices.find(static_cast<int>(command.dev_id));
		if (found == devices.end())
			return -ENODEV;
		Device &device = found->second;
		switch (number) {
		case UBLK_CMD_GET_DEV_INFO:
			*info = {};
			info->dev_id = command.dev_id;
			info->state = static_cast<uint16_t>(device.state);
			info->ublksrv_pid = -1;
			info->nr_hw_queues = 1;
			info->queue_depth = depth;
			info->ublksrv_flags = device.cookie;
			return 0;
		case UBLK_CMD_SET_PARAMS:
			device.params = *params;
			return 0;
		case UBLK_CMD_GET_PARAMS:
			*params = device.params;
			return 0;
		case UBLK_CMD_START_USER_RECOVERY:
			return device.state == UBLK_S_DEV_QUIESCED ? 0 : -EBUSY;
		case UBLK_CMD_START_DEV:
		case UBLK_CMD_END_USER_RECOVERY:
			while (device.fetches.size() < depth) {
				lock.unlock();
				::usleep(500);
				lock.lock();
			}
			device.state = UBLK_S_DEV_LIVE;
			return 0;
		case UBLK_CMD_STOP_DEV:
			device.state = UBLK_S_DEV_DEAD;
			abort(device);
			return 0;
		case UBLK_CMD_DEL_DEV:
		case delete_async:
			devices.erase(found);
			return 0;
		default:
			return -EINVAL;
		}
	}

	std::map<io_uring *, std::pair<int, uint64_t>> armed; // reads of a loop's eventfd
	std::map<int, int> ids;                               // of devices, by their descriptors
	std::vector<std::pair<Command, int>> forgotten;       // and their results
	bool was_stopped = false, is_refused = false;
};

// Of the test that runs, if it has one: all rings are its own then.
std::atomic<Driver *> driver_now = nullptr;

} // namespace

extern "C" {

int __wrap_open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	const unsigned mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, unsigned) : 0;
	va_end(rest);
	Driver *const driver = driver_now;
	if (!driver || !std::string_view(path).starts_with("/dev/ublk"))
		return __real_open(path, flags, mode);
	const int fd = driver->open(path);
	if (fd >= 0)
		return fd;
	errno = -fd;
	return -1;
}

int __wrap_io_uring_submit(io_uring *ring)
{
	Driver *const driver = driver_now;
	return driver ? driver->submit(ring) : __real_io_uring_submit(ring);
}

int __wrap_io_uring_submit_and_wait(io_uring *ring, unsigned count)
{
	Driver *const driver = driver_now;
	if (!driver)
		return __real_io_uring_submit_and_wait(ring, count);
	const int rc = driver->submit(ring);
	while (rc >= 0 && !driver->arrived(ring))
		::usleep(500);
	return rc;
}
}

namespace
{

class UblkDriver : public testing::Test, protected TemporaryFiles
{
protected:
	UblkDriver() { driver_now = &driver; }
	void SetUp() override
	{
		io_uring ring;
		const int error = io_uring_queue_init(1, &ring, 0);
		if (error == -ENOSYS || error == -EPERM)
			GTEST_SKIP() << "no io_uring here: qemu-user, or a container";
		ASSERT_EQ(error, 0);
		io_uring_queue_exit(&ring);
	}
	~UblkDriver() override { driver_now = nullptr; }

	static ublk::Geometry geometry()
	{
		ublk::Geometry geometry;
		geometry.bytes = 1 << 20;
		geometry.depth = depth;
		geometry.cookie = cookie;
		return geometry;
	}
	static std::unique_ptr<ublk::Device> make(ublk::Loop &loop)
	{
		return std::make_unique<ublk::Device>(geometry(), std::vector<ublk::Loop *>{&loop},
						      [](ublk::Request) {});
	}
	static std::unique_ptr<ublk::Device> take_over(int id, const ublk::Geometry &geometry, ublk::Loop &loop)
	{
		return std::make_unique<ublk::Device>(id, geometry, std::vector<ublk::Loop *>{&loop},
						      [](ublk::Request) {});
	}
	// A device that a service before has left.
	Driver::Device &leave(int id, uint64_t its_cookie)
	{
		Driver::Device &device = driver.devices[id];
		device.cookie = its_cookie;
		device.state = UBLK_S_DEV_QUIESCED;
		device.params.basic.attrs = UBLK_ATTR_READ_ONLY;
		device.params.basic.dev_sectors = geometry().bytes / 512;
		return device;
	}
	// Whether it returns by itself.
	template <class Work> bool returns(Work &&work)
	{
		const std::future<void> ended = std::async(std::launch::async, work);
		const bool in_time = ended.wait_for(10s) == std::future_status::ready;
		while (ended.wait_for(10ms) != std::future_status::ready)
			driver.abort_all();
		return in_time;
	}

	Driver driver;
};

TEST_F(UblkDriver, MakesAndRemovesDevices)
{
	ublk::Loop loop;
	std::unique_ptr<ublk::Device> device = make(loop);
	EXPECT_EQ(device->path(), "/dev/ublkb3");
	EXPECT_EQ(driver.devices.at(3).state, UBLK_S_DEV_LIVE);
	EXPECT_TRUE(returns([&] { device.reset(); }));
	EXPECT_TRUE(driver.devices.empty());
}

// As Linux 7.2 does with one that came when io_uring's worker was ending.
TEST_F(UblkDriver, HasACommandExecutedThatNoWorkerTakes)
{
	driver.forgets = UBLK_CMD_STOP_DEV;
	ublk::Loop loop;
	std::unique_ptr<ublk::Device> device = make(loop);
	EXPECT_TRUE(returns([&] { device.reset(); }));
	EXPECT_TRUE(driver.devices.empty());
	EXPECT_EQ(driver.said.back(), delete_async);
}

TEST_F(UblkDriver, ATakeoverThatFailsHalfWayLeavesTheDeviceStopped)
{
	leave(3, cookie);
	driver.char_error = ENOENT;
	ublk::Loop loop;
	EXPECT_TRUE(returns([&] { EXPECT_THROW(take_over(3, geometry(), loop), ublk::Error); }));
	ASSERT_TRUE(driver.devices.contains(3));
	EXPECT_EQ(driver.devices.at(3).state, UBLK_S_DEV_DEAD);
}

TEST_F(UblkDriver, WaitsForAProcessThatIsEnding)
{
	leave(3, cookie).state = UBLK_S_DEV_LIVE;
	int asked = 0;
	driver.before = [&](unsigned command) {
		if (command == UBLK_CMD_GET_DEV_INFO && ++asked == 4)
			driver.devices[3].state = UBLK_S_DEV_QUIESCED;
	};
	EXPECT_EQ(ublk::left_of(3, cookie), ublk::Left::held);
	EXPECT_EQ(asked, 4);
}

// Another server may have been given the number meanwhile.
TEST_F(UblkDriver, LeavesTheDeviceOfAnotherServerAlone)
{
	leave(3, cookie + 1);
	EXPECT_EQ(ublk::left_of(3, cookie), ublk::Left::nothing);
	ublk::Loop loop;
	EXPECT_THROW(take_over(3, geometry(), loop), ublk::Error);
	ublk::stop(3, cookie);
	ublk::remove(3, cookie);
	ASSERT_TRUE(driver.devices.contains(3));
	EXPECT_EQ(driver.devices.at(3).state, UBLK_S_DEV_QUIESCED);
	EXPECT_EQ(ublk::left_of(4, cookie), ublk::Left::nothing);
}

// READ_ONLY stays with a device, and the NVMe target opens it for writing.
TEST_F(UblkDriver, TakesOverNoDeviceOfAnotherKind)
{
	const auto why_not = [&](bool read_only, uint64_t bytes) {
		ublk::Geometry wanted = geometry();
		wanted.read_only = read_only;
		wanted.bytes = bytes;
		ublk::Loop loop;
		try {
			take_over(3, wanted, loop);
		} catch (const ublk::Error &error) {
			return std::string(error.what());
		}
		return std::string();
	};
	leave(3, cookie);
	EXPECT_EQ(why_not(false, 1 << 20),
		  "ublk device 3: it was made for reading only, which the NVMe target refuses");
	EXPECT_EQ(why_not(true, 1 << 21), "ublk device 3: it has 1048576 bytes, the view 2097152");
	EXPECT_EQ(driver.devices.at(3).state, UBLK_S_DEV_QUIESCED);
	EXPECT_EQ(why_not(true, 1 << 20), "");
	leave(3, cookie).params.basic.attrs = 0;
	EXPECT_EQ(why_not(true, 1 << 20), "") << "writes fail in any case";
}

// A device that is not found would be made a second time, and the first would wait for ever.
TEST_F(UblkDriver, FindsDevicesOrSaysWhyNot)
{
	EXPECT_TRUE(ublk::devices(folder / "none").empty());
	fs::create_directory(folder / "class");
	for (const char *name : {"ublkc3", "ublkc4", "ublkc5", "ublkc6"})
		std::ofstream(folder / "class" / name) << "";
	leave(3, cookie);
	leave(4, 0);
	leave(5, cookie).state = UBLK_S_DEV_DEAD;
	EXPECT_EQ(ublk::devices(folder / "class"), (std::map<uint64_t, int>{{cookie, 3}})) << "6 is gone meanwhile";
	driver.failures[UBLK_CMD_GET_DEV_INFO] = {-ENOMEM};
	EXPECT_THROW(ublk::devices(folder / "class"), ublk::Error);
	EXPECT_THROW(ublk::devices(folder / "class/ublkc3"), ublk::Error);
}

// The kernel tells of it to who names its node, even root.
TEST_F(UblkDriver, AUsersDeviceIsNoneOfOurs)
{
	fs::create_directory(folder / "class");
	std::ofstream(folder / "class/ublkc4") << "";
	leave(4, cookie);
	driver.failures[UBLK_CMD_GET_DEV_INFO] = {-EINVAL};
	EXPECT_TRUE(ublk::devices(folder / "class").empty());
}

// The driver of Linux 6.4 has no such flag, and makes the device without it.
TEST_F(UblkDriver, RefusesADriverWithoutUserCopy)
{
	driver.unknown_flags = user_copy;
	driver.failures[delete_async] = {-EOPNOTSUPP}; // of Linux 6.9
	ublk::Loop loop;
	std::string why;
	EXPECT_TRUE(returns([&] {
		try {
			make(loop);
		} catch (const ublk::Error &error) {
			why = error.what();
		}
	}));
	EXPECT_EQ(why, "the kernel's ublk driver is too old: Linux 6.5 or newer is needed");
	EXPECT_EQ(std::ranges::count(driver.said, unsigned{UBLK_CMD_START_DEV}), 0);
	EXPECT_EQ(driver.said.back(), unsigned{UBLK_CMD_DEL_DEV});
	EXPECT_TRUE(driver.devices.empty());
}

class UblkDriverRefuses : public UblkDriver, public testing::WithParamInterface<int>
{
};

INSTANTIATE_TEST_SUITE_P(Errors, UblkDriverRefuses, testing::Values(EAGAIN, ENOMEM));

TEST_P(UblkDriverRefuses, SendsAgainWhatIoUringHadNoMemoryFor)
{
	driver.refuses_first = true;
	driver.refusal = GetParam();
	ublk::Loop loop;
	std::unique_ptr<ublk::Device> device = make(loop);
	EXPECT_EQ(driver.devices.at(3).state, UBLK_S_DEV_LIVE);
	EXPECT_TRUE(returns([&] { device.reset(); }));
	EXPECT_EQ(driver.said, (std::vector<unsigned>{UBLK_CMD_ADD_DEV, UBLK_CMD_SET_PARAMS, UBLK_CMD_START_DEV,
						      UBLK_CMD_STOP_DEV, delete_async}));
	EXPECT_TRUE(driver.devices.empty());
}

TEST_F(UblkDriver, EndsWithoutDescriptors)
{
	ublk::Loop loop;
	std::unique_ptr<ublk::Device> device = make(loop);
	driver.open_error = EMFILE;
	EXPECT_TRUE(returns([&] { device.reset(); }));
	EXPECT_TRUE(driver.devices.empty());
}

TEST_F(UblkDriver, StopsAgainIfTheKernelDidNot)
{
	ublk::Loop loop;
	std::unique_ptr<ublk::Device> device = make(loop);
	driver.failures[UBLK_CMD_STOP_DEV] = {-ENOMEM};
	EXPECT_TRUE(returns([&] { device.reset(); }));
	EXPECT_TRUE(driver.devices.empty());
}

// What a loop has not sent yet is not ended by the first STOP_DEV.
TEST_F(UblkDriver, StopsAgainIfTheLoopWasLate)
{
	driver.failures[UBLK_CMD_START_DEV] = {-EINTR};
	driver.holds_until_stopped = true;
	ublk::Loop loop;
	EXPECT_TRUE(returns([&] { EXPECT_THROW(make(loop), ublk::Error); }));
	EXPECT_TRUE(driver.devices.empty());
}

} // namespace
