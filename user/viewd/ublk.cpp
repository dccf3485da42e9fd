// SPDX-License-Identifier: MIT
#include "viewd/ublk.hpp"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

// Of Linux 6.5, which Debian 12's header does not have yet.
#ifndef UBLK_F_USER_COPY
#define UBLK_F_USER_COPY (1UL << 7)
#define UBLKSRV_IO_BUF_OFFSET 0x80000000
#define UBLK_TAG_OFF 25
#define UBLK_QID_OFF 41
#endif

namespace ublk
{

namespace
{

namespace fs = std::filesystem;

constexpr unsigned delete_async = 0x14; // UBLK_U_CMD_DEL_DEV_ASYNC, of Linux 6.9
constexpr unsigned sector = 512;
constexpr unsigned commands_at_once = 256; // of a loop: entries of its submission queue
// The kernel keeps the requests of a process that has died, and sends them again to the one that takes the device over.
constexpr uint64_t wanted_flags = UBLK_F_USER_COPY | UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE;

[[noreturn]] void fail(const std::string &what, int error)
{
	throw Error(fmt::format("{}: {}", what, std::strerror(error)), error);
}

// A command of the driver as an opcode of io_uring. Before Linux 6.4 it was the number alone.
constexpr unsigned control_op(unsigned command)
{
	const bool reads = command == UBLK_CMD_GET_DEV_INFO || command == UBLK_CMD_GET_PARAMS ||
			   command == UBLK_CMD_GET_QUEUE_AFFINITY || command == delete_async;
	return reads ? _IOR('u', command, ublksrv_ctrl_cmd) : _IOWR('u', command, ublksrv_ctrl_cmd);
}

constexpr unsigned io_op(unsigned command) { return _IOWR('u', command, ublksrv_io_cmd); }

} // namespace

// /dev/ublk-control, for one command after the other.
class Control
{
public:
	Control()
	{
		fd_ = ::open("/dev/ublk-control", O_RDWR | O_CLOEXEC);
		if (fd_ < 0)
			fail("/dev/ublk-control (is the module ublk_drv loaded?)", errno);
		const int rc = io_uring_queue_init(2, &ring_, IORING_SETUP_SQE128);
		if (rc < 0) {
			::close(fd_);
			fail("io_uring", -rc);
		}
	}
	~Control()
	{
		io_uring_queue_exit(&ring_);
		::close(fd_);
	}
	Control(const Control &) = delete;
	Control &operator=(const Control &) = delete;

	// Returns 0 or -errno.
	int send(unsigned command, int id, const void *buffer = nullptr, uint16_t len = 0, uint64_t data = 0)
	{
		io_uring_sqe *const sqe = fresh();
		if (!sqe)
			return -EAGAIN;
		sqe->opcode = IORING_OP_URING_CMD;
		sqe->fd = fd_;
		sqe->cmd_op = control_op(command);
		sqe->user_data = ++number_;
		ublksrv_ctrl_cmd sent = {};
		sent.dev_id = static_cast<uint32_t>(id);
		sent.queue_id = UINT16_MAX;
		sent.addr = reinterpret_cast<uint64_t>(buffer);
		sent.len = len;
		sent.data[0] = data;
		std::memcpy(sqe->cmd, &sent, sizeof(sent));
		int rc;
		// Without memory the kernel takes it later. It must not stay in the ring: its result would be taken for that of the next.
		while ((rc = io_uring_submit(&ring_)) == -EINTR || rc == -EAGAIN || rc == -ENOMEM)
			::usleep(1'000);
		return rc < 0 ? rc : wait();
	}

	void must(const char *what, unsigned command, int id, const void *buffer = nullptr, uint16_t len = 0,
		  uint64_t data = 0)
	{
		const int rc = send(command, id, buffer, len, data);
		if (rc < 0)
			fail(fmt::format("ublk device {}: {}", id, what), -rc);
	}

private:
	io_uring_sqe *fresh()
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
		// Requests that the kernel had no memory for are still in the ring.
		if (!sqe && io_uring_submit(&ring_) >= 0)
			sqe = io_uring_get_sqe(&ring_);
		if (sqe)
			std::memset(sqe, 0, 2 * sizeof(*sqe));
		return sqe;
	}

	// For the command that was sent last. Returns its result.
	int wait()
	{
		for (;;) {
			__kernel_timespec a_second = {1, 0};
			io_uring_cqe *cqe = nullptr;
			int rc = io_uring_wait_cqe_timeout(&ring_, &cqe, &a_second);
			if (rc == -ETIME)
				wake_worker();
			if (rc == -ETIME || rc == -EINTR)
				continue;
			if (rc < 0)
				return rc;
			rc = cqe->res;
			const bool is_answer = cqe->user_data == number_;
			io_uring_cqe_seen(&ring_, cqe);
			if (is_answer)
				return rc;
		}
	}

	// On a busy machine Linux 7.2 queued one or two of 1,000 commands for a worker of io_uring that had ended
	// (Documentation/upstream/README.md). An asynchronous request creates a worker, which executes all queued requests.
	void wake_worker()
	{
		if (io_uring_sqe *const sqe = fresh()) {
			sqe->opcode = IORING_OP_NOP;
			sqe->flags = IOSQE_ASYNC;
			sqe->user_data = no_command;
		}
		io_uring_submit(&ring_);
	}

	static constexpr uint64_t no_command = 0;
	int fd_ = -1;
	io_uring ring_ = {};
	uint64_t number_ = no_command; // of the command that was sent last
};

namespace
{

// The kernel removes a device once nobody has it open. Since Linux 6.9 it can be told so without waiting for that.
int delete_device(Control &control, int id)
{
	const int rc = control.send(delete_async, id);
	// 524 is the kernel's ENOTSUPP, which has no name here.
	return rc == -EOPNOTSUPP || rc == -524 ? control.send(UBLK_CMD_DEL_DEV, id) : rc;
}

// All 0 if there is no such device, or if it is a user's: the kernel tells of an unprivileged device to who names its node only (EINVAL).
// Throws Error.
ublksrv_ctrl_dev_info info_of(Control &control, int id)
{
	ublksrv_ctrl_dev_info info = {};
	const int rc = control.send(UBLK_CMD_GET_DEV_INFO, id, &info, sizeof(info));
	if (rc == -ENODEV || rc == -EINVAL)
		return {};
	if (rc < 0)
		fail(fmt::format("ublk device {}: GET_DEV_INFO", id), -rc);
	return info;
}

// Throws Error if a device that is there was not made as this.
void check_params(Control &control, int id, const Geometry &wanted)
{
	ublk_params params = {};
	params.len = sizeof(params);
	control.must("GET_PARAMS", UBLK_CMD_GET_PARAMS, id, &params, sizeof(params));
	if (!wanted.read_only && params.basic.attrs & UBLK_ATTR_READ_ONLY)
		throw Error(
			fmt::format("ublk device {}: it was made for reading only, which the NVMe target refuses", id),
			EROFS);
	if (params.basic.dev_sectors != wanted.bytes / sector)
		throw Error(fmt::format("ublk device {}: it has {} bytes, the view {}", id,
					params.basic.dev_sectors * sector, wanted.bytes),
			    EINVAL);
}

void close_descriptor(int &fd)
{
	if (fd >= 0)
		::close(std::exchange(fd, -1));
}

} // namespace

int Request::copy(uint32_t at, const std::byte *from, size_t len) const
{
	uint64_t to = UBLKSRV_IO_BUF_OFFSET + (static_cast<uint64_t>(queue_) << UBLK_QID_OFF) +
		      (static_cast<uint64_t>(tag_) << UBLK_TAG_OFF) + at;
	while (len) {
		const ssize_t n = ::pwrite(device_->char_fd_, from, len, static_cast<off_t>(to));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		from += n;
		len -= static_cast<size_t>(n);
		to += static_cast<uint64_t>(n);
	}
	return 0;
}

void Request::complete(int error) const { device_->answer(queue_, tag_, error ? error : static_cast<int>(bytes)); }

Loop::Loop()
{
	wake_ = ::eventfd(0, EFD_CLOEXEC);
	if (wake_ < 0)
		fail("eventfd", errno);
	const int rc = io_uring_queue_init(commands_at_once, &ring_, 0);
	if (rc < 0) {
		close_descriptor(wake_);
		fail("io_uring", -rc);
	}
	thread_ = std::thread([this] { run(); });
}

Loop::~Loop()
{
	post([this] { ending_ = true; });
	thread_.join();
	io_uring_queue_exit(&ring_);
	close_descriptor(wake_);
}

void Loop::post(std::function<void()> job)
{
	bool first;
	{
		const std::lock_guard lock(mutex_);
		first = jobs_.empty() && !answers_;
		jobs_.push_back(std::move(job));
	}
	if (first)
		wake();
}

void Loop::answer(Slot &slot, int result)
{
	bool first;
	{
		const std::lock_guard lock(mutex_);
		first = jobs_.empty() && !answers_;
		slot.result = result;
		slot.next = std::exchange(answers_, &slot);
	}
	if (first)
		wake();
}

void Loop::wake()
{
	const uint64_t one = 1;
	// Fails only if the counter overflows.
	(void)!::write(wake_, &one, sizeof(one));
}

io_uring_sqe *Loop::command()
{
	io_uring_sqe *sqe;
	// The kernel takes all of them at once, or, without memory, later.
	while (!(sqe = io_uring_get_sqe(&ring_)))
		io_uring_submit(&ring_);
	return sqe;
}

void Loop::arm()
{
	io_uring_sqe *const sqe = command();
	io_uring_prep_read(sqe, wake_, &woken_, sizeof(woken_), 0);
	io_uring_sqe_set_data(sqe, nullptr);
}

void Loop::run_jobs()
{
	std::vector<std::function<void()>> jobs;
	Slot *answered = nullptr;
	{
		const std::lock_guard lock(mutex_);
		jobs.swap(jobs_);
		answered = std::exchange(answers_, nullptr);
	}
	// A slot may be answered again once the kernel was told.
	while (answered) {
		Slot &slot = *std::exchange(answered, answered->next);
		slot.queue->device->send(slot, UBLK_IO_COMMIT_AND_FETCH_REQ, slot.result);
	}
	for (const std::function<void()> &job : jobs)
		job();
}

void Loop::run()
{
	arm();
	while (!ending_) {
		io_uring_submit_and_wait(&ring_, 1);
		unsigned head, seen = 0;
		io_uring_cqe *cqe;
		bool woken = false;
		io_uring_for_each_cqe(&ring_, head, cqe)
		{
			seen++;
			auto *const slot = static_cast<Slot *>(io_uring_cqe_get_data(cqe));
			if (slot)
				slot->queue->device->arrived(*slot, cqe->res);
			else
				woken = true;
		}
		io_uring_cq_advance(&ring_, seen);
		if (woken) {
			arm();
			run_jobs();
		}
	}
}

Device::Device(const Geometry &geometry, std::vector<Loop *> loops, Handler handler)
	: control_(std::make_unique<Control>()), geometry_(geometry), loops_(std::move(loops)),
	  handler_(std::move(handler))
{
	ublksrv_ctrl_dev_info info = {};
	info.nr_hw_queues = static_cast<uint16_t>(geometry_.queues);
	info.queue_depth = static_cast<uint16_t>(geometry_.depth);
	info.max_io_buf_bytes = geometry_.most;
	info.dev_id = UINT32_MAX;
	info.flags = wanted_flags;
	info.ublksrv_flags = geometry_.cookie;
	Control &control = *control_;
	if (const int rc = control.send(UBLK_CMD_ADD_DEV, -1, &info, sizeof(info)); rc < 0) {
		std::string limit;
		std::getline(std::ifstream("/sys/module/ublk_drv/parameters/ublks_max"), limit);
		throw Error(add_error(-rc, limit), -rc);
	}
	id_ = static_cast<int>(info.dev_id);
	geometry_.queues = info.nr_hw_queues;
	geometry_.depth = info.queue_depth;
	start(true, [&] {
		if ((info.flags & wanted_flags) != wanted_flags)
			throw Error("the kernel's ublk driver is too old: Linux 6.5 or newer is needed", EOPNOTSUPP);
		ublk_params params = {};
		params.len = sizeof(params);
		params.types = UBLK_PARAM_TYPE_BASIC;
		params.basic.attrs = geometry_.read_only ? UBLK_ATTR_READ_ONLY : 0;
		params.basic.logical_bs_shift = static_cast<uint8_t>(std::countr_zero(geometry_.block));
		params.basic.physical_bs_shift = 12;
		params.basic.io_min_shift = 12;
		params.basic.io_opt_shift = 20;
		params.basic.max_sectors = geometry_.most / sector;
		params.basic.dev_sectors = geometry_.bytes / sector;
		control.must("SET_PARAMS", UBLK_CMD_SET_PARAMS, id_, &params, sizeof(params));
		open_queues(id_);
		fetch_all();
		control.must("START_DEV", UBLK_CMD_START_DEV, id_, nullptr, 0, static_cast<uint64_t>(::getpid()));
	});
}

Device::Device(int id, const Geometry &geometry, std::vector<Loop *> loops, Handler handler)
	: control_(std::make_unique<Control>()), geometry_(geometry), loops_(std::move(loops)),
	  handler_(std::move(handler)), id_(id)
{
	Control &control = *control_;
	const ublksrv_ctrl_dev_info info = info_of(control, id_);
	if (info.ublksrv_flags != geometry_.cookie)
		fail(fmt::format("ublk device {}: another server has it", id_), ENODEV);
	check_params(control, id_, geometry_);
	// The process that had it may still be ending.
	int rc = -EBUSY;
	for (int tries = 0; rc == -EBUSY && tries < 300; tries++) {
		if (tries)
			::usleep(100'000);
		rc = control.send(UBLK_CMD_START_USER_RECOVERY, id_);
	}
	if (rc < 0)
		fail(fmt::format("ublk device {}: START_USER_RECOVERY", id_), -rc);
	// The process that had it may have had other threads.
	geometry_.queues = info.nr_hw_queues;
	geometry_.depth = info.queue_depth;
	start(false, [&] {
		open_queues(id_);
		fetch_all();
		control.must("END_USER_RECOVERY", UBLK_CMD_END_USER_RECOVERY, id_, nullptr, 0,
			     static_cast<uint64_t>(::getpid()));
	});
}

// A new device that cannot be started is removed. Another one keeps its number, for who asked for it to remove it.
template <class Start> void Device::start(bool is_new, Start &&start_device)
{
	try {
		start_device();
	} catch (...) {
		stop_and_close();
		if (is_new)
			delete_device(*control_, id_);
		throw;
	}
}

Device::~Device()
{
	stop_and_close();
	delete_device(*control_, id_);
}

void Device::open_queues(int id)
{
	const std::string path = fmt::format("/dev/ublkc{}", id);
	char_fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
	if (char_fd_ < 0)
		fail(path, errno);
	const size_t bytes = geometry_.depth * sizeof(ublksrv_io_desc);
	const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
	for (unsigned number = 0; number < geometry_.queues; number++) {
		auto queue = std::make_unique<Queue>();
		queue->device = this;
		queue->number = static_cast<uint16_t>(number);
		queue->loop = loops_[(static_cast<unsigned>(id) + number) % loops_.size()];
		void *const map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, char_fd_,
					 static_cast<off_t>(descriptors_offset(number, page)));
		if (map == MAP_FAILED)
			fail(path, errno);
		queue->requests = static_cast<const ublksrv_io_desc *>(map);
		queue->slots.resize(geometry_.depth);
		for (size_t tag = 0; tag < queue->slots.size(); tag++)
			queue->slots[tag] = {queue.get(), static_cast<uint16_t>(tag)};
		queues_.push_back(std::move(queue));
	}
}

void Device::fetch_all()
{
	for (const std::unique_ptr<Queue> &queue : queues_) {
		++running_;
		try {
			queue->loop->post([this, queue = queue.get()] {
				queue->live = queue->slots.size();
				for (Slot &slot : queue->slots)
					send(slot, UBLK_IO_FETCH_REQ, 0);
			});
		} catch (...) {
			--running_;
			throw;
		}
	}
}

// On the queue's loop's thread.
void Device::send(Slot &slot, unsigned command, int result)
{
	io_uring_sqe *const sqe = slot.queue->loop->command();
	std::memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = char_fd_;
	sqe->cmd_op = io_op(command);
	ublksrv_io_cmd sent = {};
	sent.q_id = slot.queue->number;
	sent.tag = slot.tag;
	sent.result = result;
	std::memcpy(sqe->cmd, &sent, sizeof(sent));
	io_uring_sqe_set_data(sqe, &slot);
}

// On the queue's loop's thread: the kernel has a request, or ends the command without one.
void Device::arrived(Slot &slot, int result)
{
	Queue &queue = *slot.queue;
	if (result != UBLK_IO_RES_OK) {
		// The last: the device may be gone then.
		if (!--queue.live)
			--running_;
		return;
	}
	const ublksrv_io_desc &request = queue.requests[slot.tag];
	switch (ublksrv_get_op(&request)) {
	case UBLK_IO_OP_READ:
		handler_(Request(*this, queue.number, slot.tag, request.start_sector * sector,
				 request.nr_sectors * sector));
		return;
	case UBLK_IO_OP_FLUSH:
		send(slot, UBLK_IO_COMMIT_AND_FETCH_REQ, 0);
		return;
	default:
		send(slot, UBLK_IO_COMMIT_AND_FETCH_REQ, -EROFS);
		return;
	}
}

void Device::answer(uint16_t queue, uint16_t tag, int result)
{
	Slot &slot = queues_[queue]->slots[tag];
	slot.queue->loop->answer(slot, result);
}

// The kernel may fail to stop the device for want of memory, and does not end commands that a loop sends afterwards. Each STOP_DEV ends
// those that it has.
void Device::stop_and_close()
{
	do {
		control_->send(UBLK_CMD_STOP_DEV, id_);
		for (int tries = 0; running_ && tries < 100; tries++)
			::usleep(1'000);
	} while (running_);
	for (const std::unique_ptr<Queue> &queue : queues_)
		::munmap(const_cast<ublksrv_io_desc *>(queue->requests), geometry_.depth * sizeof(ublksrv_io_desc));
	queues_.clear();
	close_descriptor(char_fd_);
}

std::map<uint64_t, int> devices(const fs::path &folder)
{
	std::map<uint64_t, int> found;
	std::error_code error;
	std::unique_ptr<Control> control;
	fs::directory_iterator at(folder, error);
	for (; !error && at != fs::directory_iterator(); at.increment(error)) {
		int id = -1;
		if (std::sscanf(at->path().filename().c_str(), "ublkc%d", &id) != 1)
			continue;
		if (!control)
			control = std::make_unique<Control>();
		const ublksrv_ctrl_dev_info info = info_of(*control, id);
		if (!info.ublksrv_flags)
			continue;
		if (info.state != UBLK_S_DEV_DEAD || !found.contains(info.ublksrv_flags))
			found[info.ublksrv_flags] = id;
	}
	// Without the driver there is no such folder.
	if (error && error != std::errc::no_such_file_or_directory)
		fail(folder, error.value());
	return found;
}

Left left_of(int id, uint64_t cookie)
{
	Control control;
	for (int tries = 0; tries < 300; tries++) {
		const ublksrv_ctrl_dev_info info = info_of(control, id);
		if (info.ublksrv_flags != cookie)
			return Left::nothing;
		if (info.state == UBLK_S_DEV_QUIESCED)
			return Left::held;
		if (info.state == UBLK_S_DEV_DEAD)
			return Left::unstarted;
		::usleep(100'000);
	}
	throw Error(fmt::format("ublk device {}: another process serves it", id), EBUSY);
}

void stop(int id, uint64_t cookie)
{
	Control control;
	if (info_of(control, id).ublksrv_flags != cookie)
		return;
	control.must("STOP_DEV", UBLK_CMD_STOP_DEV, id);
}

void remove(int id, uint64_t cookie)
{
	Control control;
	if (info_of(control, id).ublksrv_flags != cookie)
		return;
	if (const int rc = delete_device(control, id); rc < 0)
		fail(fmt::format("ublk device {}: DEL_DEV", id), -rc);
}

// The kernel rounds the room of each queue up to its pages, which have 64 KiB on some arm64 kernels.
uint64_t descriptors_offset(unsigned queue, uint64_t page)
{
	constexpr uint64_t room = UBLK_MAX_QUEUE_DEPTH * sizeof(ublksrv_io_desc);
	return UBLKSRV_CMD_BUF_OFFSET + queue * ((room + page - 1) / page * page);
}

// Before Linux 6.15 the limit is for root too, and its errno is that of a permission.
std::string add_error(int error, const std::string &limit)
{
	if (error == EACCES && !limit.empty())
		return fmt::format(
			"the kernel's ublk driver refuses another device, it allows {} (ublks_max): raise it by echo "
			"NUMBER "
			">/sys/module/ublk_drv/parameters/ublks_max, and from the next boot on by \"options ublk_drv "
			"ublks_max=NUMBER\" in /etc/modprobe.d",
			limit);
	return fmt::format("ublk: ADD_DEV: {}", std::strerror(error));
}

} // namespace ublk
