// SPDX-License-Identifier: MIT
//
// Block devices that this process serves, for reading only, by the kernel's ublk driver (Linux 6.5 or newer with CONFIG_BLK_DEV_UBLK; root).
//
// The kernel hands a device's requests to the threads that fetch them (Loop). Any thread may answer one: it copies the data into
// the request's pages and tells the request's loop. If this process dies, the kernel holds back the requests that it had and those
// that follow, until another process takes the device over (recover) or removes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <liburing.h>
#include <linux/ublk_cmd.h>

namespace ublk
{

// Why a device cannot be made or removed.
struct Error : std::runtime_error {
	Error(const std::string &what, int code) : std::runtime_error(what), error(code) {}
	int error; // errno
};

class Control;
class Device;

// A read of a device, which must be answered once.
class Request
{
public:
	Request(Device &device, uint16_t queue, uint16_t tag, uint64_t at, uint32_t len)
		: offset(at), bytes(len), device_(&device), queue_(queue), tag_(tag)
	{
	}
	const uint64_t offset; // of the device
	const uint32_t bytes;

	// Copies data of the request, from byte `at` of it on. Returns 0 or -errno.
	int copy(uint32_t at, const std::byte *from, size_t len) const;
	// error: 0: all bytes were copied. -ENODATA becomes a medium error of the device, others an I/O error.
	void complete(int error) const;

private:
	Device *device_;
	uint16_t queue_, tag_;
};

struct Queue;

// A request that the kernel has, or that waits for its answer.
struct Slot {
	Queue *queue = nullptr;
	uint16_t tag = 0;
	// Of a request that was answered, until the loop tells the kernel; protected by the loop's mutex:
	int result = 0;
	Slot *next = nullptr;
};

// A thread that fetches requests of any number of queues.
class Loop
{
public:
	Loop();
	// All devices that use it must be gone.
	~Loop();
	Loop(const Loop &) = delete;
	Loop &operator=(const Loop &) = delete;

	// Runs it on the loop's thread, soon.
	void post(std::function<void()> job);

private:
	friend class Device;
	void answer(Slot &slot, int result);
	void wake();
	void run();
	void arm();
	void run_jobs();
	io_uring_sqe *command(); // to be filled

	io_uring ring_;
	int wake_ = -1;
	uint64_t woken_ = 0;
	std::atomic<bool> ending_ = false;
	std::mutex mutex_; // protects jobs_ and answers_
	std::vector<std::function<void()>> jobs_;
	// The first of a list: to answer a request takes no memory.
	Slot *answers_ = nullptr;
	std::thread thread_;
};

struct Geometry {
	uint64_t bytes = 0; // a multiple of block
	unsigned block = 4096;
	unsigned queues = 1, depth = 32; // at most; the kernel has no more queues than CPUs
	unsigned most = 1 << 20;         // bytes of one request
	// Whether the kernel refuses to open it for writing. Writes fail in any case.
	bool read_only = true;
	// Stays with the device as long as there is one, whichever process serves it: devices() returns it.
	uint64_t cookie = 0;
};

struct Queue {
	Device *device = nullptr;
	uint16_t number = 0;
	Loop *loop = nullptr;
	const ublksrv_io_desc *requests = nullptr; // by tag; the kernel writes them
	std::vector<Slot> slots;
	size_t live = 0; // slots, of the loop's thread
};

class Device
{
public:
	using Handler = std::function<void(Request)>; // called on a loop's thread

	// Makes /dev/ublkbN and serves it. Throws Error.
	Device(const Geometry &geometry, std::vector<Loop *> loops, Handler handler);
	// Takes over device `id`, which a process that has died has left with the geometry's cookie. Throws Error; the device is still
	// there then, held or stopped.
	Device(int id, const Geometry &geometry, std::vector<Loop *> loops, Handler handler);
	// Fails the requests that were not answered, and removes the device.
	~Device();
	Device(const Device &) = delete;
	Device &operator=(const Device &) = delete;

	int id() const { return id_; }
	std::string path() const { return "/dev/ublkb" + std::to_string(id_); }

private:
	friend class Loop;
	friend class Request;
	void open_queues(int id);
	void fetch_all();
	void send(Slot &slot, unsigned command, int result);
	void arrived(Slot &slot, int result);
	void answer(uint16_t queue, uint16_t tag, int result);
	void stop_and_close();
	template <class Start> void start(bool is_new, Start &&start_device);

	const std::unique_ptr<Control> control_; // kept, so that the end needs no descriptor and no memory
	Geometry geometry_;                      // immutable once the device is there
	const std::vector<Loop *> loops_;
	const Handler handler_;
	std::vector<std::unique_ptr<Queue>> queues_;
	int id_ = -1, char_fd_ = -1;
	std::atomic<size_t> running_ = 0; // queues with live slots
};

// The devices of this machine by their cookies, without those that have none. Of two with the same cookie, one of which is being
// removed, it is the other. folder: where the kernel lists them. Throws Error.
std::map<uint64_t, int> devices(const std::filesystem::path &folder = "/sys/class/ublk-char");

// What a process that has ended has left of a device.
enum class Left {
	nothing,   // there is no such device, or another one has its number
	unstarted, // nobody can have read it: it was being made or removed
	held,      // its requests are held back
};
// Waits until the kernel has noticed that the process has ended. Throws Error, also if it has not within half a minute.
Left left_of(int id, uint64_t cookie);
// Fails the requests of a device that no process serves, if it is still the one with this cookie. Throws Error.
void stop(int id, uint64_t cookie);
// Removes a device that is stopped, once nobody has it open, if it is still the one with this cookie. Throws Error.
void remove(int id, uint64_t cookie);

// Where the descriptors of a queue's requests are in /dev/ublkcN. page: the kernel's page size.
uint64_t descriptors_offset(unsigned queue, uint64_t page);

// What an error of adding a device means, for people. limit: the module's parameter ublks_max, empty if it cannot be read.
std::string add_error(int error, const std::string &limit);

} // namespace ublk
