// SPDX-License-Identifier: MIT
//
// stress [--seconds N] [--unbind BDF]: concurrent threads allocate, read, write, compare and destroy, each in its own
// range of a file, so that pages change owners as fast as possible. With --unbind the provider is repeatedly unbound
// under them and published again. Then -ENODEV, -ENOENT and -ENOMEM are valid results; any other error is a failure.
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "raw.hpp"

namespace
{

constexpr uint64_t part = 1 << 20; // bytes of the file for each thread
constexpr int threads = 4;
std::atomic<bool> stop;
std::atomic<uint64_t> requests, bytes, vanished;
std::atomic<int> failures;

void fail(const std::string &what, int err)
{
	if (!failures++)
		std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(-err));
	stop = true;
}

bool tolerable(int err, bool unbinding)
{
	if (!unbinding)
		return false;
	vanished++;
	return err == -ENODEV || err == -ENOENT || err == -ENOMEM;
}

/// The first provider's id, 0 if no provider exists now.
uint32_t any_provider(int dev)
{
	auto query = raw::sized<peerdma_provider_query>();
	return raw::call(dev, PEERDMA_PROVIDER_QUERY, query) ? 0 : query.out_provider_id;
}

/// Copies a random range of this thread's part of the file to another offset in it, through a buffer.
int one_round(int dev, int fd, int self, std::mt19937_64 &random)
{
	auto req = raw::sized<peerdma_buf_alloc>();
	req.provider_id = any_provider(dev);
	req.len = (random() % 16 + 1) * 4096;
	int err = raw::call(dev, PEERDMA_BUF_ALLOC, req);
	if (err)
		return err;
	const uint64_t half = part / 2, start = self * part;
	const uint64_t off = random() % ((half - req.len) / 4096) * 4096;
	auto io = raw::io(fd, req.out_buf_id, start + off, 0, req.len);
	err = raw::call(dev, PEERDMA_READ, io);
	if (!err && io.out_done != req.len)
		err = -EIO;
	if (!err) {
		auto back = raw::io(fd, req.out_buf_id, start + half + off, 0, req.len);
		err = raw::call(dev, PEERDMA_WRITE, back);
		requests += 2;
		bytes += 2 * req.len;
	}
	int destroyed = raw::destroy(dev, req.out_buf_id);
	return err ? err : destroyed;
}

void worker(int fd, int self, bool unbinding)
{
	std::mt19937_64 random(self);
	int dev = raw::open_device();
	while (!stop) {
		int err = one_round(dev, fd, self, random);
		if (err && !tolerable(err, unbinding))
			return fail("request", err);
		// Closing destroys the remaining buffers.
		if (requests % 64 == 0) {
			::close(dev);
			dev = raw::open_device();
		}
	}
	::close(dev);
}

/// Queries objects that may be going away at this moment.
void asker()
{
	int dev = raw::open_device();
	while (!stop) {
		auto info = raw::sized<peerdma_info>();
		if (int err = raw::call(dev, PEERDMA_INFO, info))
			fail("info", err);
		any_provider(dev);
	}
	::close(dev);
}

void put(const std::string &path, const std::string &what) { std::ofstream(path) << what; }

void unbinder(const std::string &bdf)
{
	const std::string device = "/sys/bus/pci/devices/" + bdf;
	unsigned domain, bus, slot, function;
	std::sscanf(bdf.c_str(), "%x:%x:%x.%x", &domain, &bus, &slot, &function);
	int dev = raw::open_device();
	while (!stop) {
		std::this_thread::sleep_for(std::chrono::milliseconds(50));
		put(device + "/driver/unbind", bdf);
		put("/sys/bus/pci/drivers/peerdma/bind", bdf);
		auto publish = raw::sized<peerdma_publish>();
		publish.pci_domain = domain;
		publish.pci_bdf = bus << 8 | slot << 3 | function;
		publish.bar = 2;
		if (int err = raw::call(dev, PEERDMA_PUBLISH, publish))
			return fail("publish", err);
	}
}

/// Word w of the file contains w; the second half of a part contains copies of words of the first.
bool intact(int fd, int self)
{
	std::vector<uint64_t> data(part / 8);
	if (::pread(fd, data.data(), part, self * part) != ssize_t(part))
		return false;
	const uint64_t first = self * part / 8, half = part / 16;
	for (uint64_t w = 0; w < half; w++)
		if (data[w] != first + w || (data[half + w] != first + half + w && data[half + w] != first + w))
			return false;
	return true;
}

} // namespace

int main(int argc, char **argv)
{
	int seconds = 5;
	std::string unbind;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!std::strcmp(argv[i], "--seconds"))
			seconds = std::atoi(argv[i + 1]);
		else if (!std::strcmp(argv[i], "--unbind"))
			unbind = argv[i + 1];
	}
	const char *path = "/mnt/disk/stress";
	int fd = ::open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		raw::die(path);
	std::vector<uint64_t> words(threads * part / 8);
	for (uint64_t w = 0; w < words.size(); w++)
		words[w] = w;
	if (::write(fd, words.data(), threads * part) != ssize_t(threads * part) || ::fsync(fd))
		raw::die(path);

	std::vector<std::thread> running;
	for (int i = 0; i < threads; i++)
		running.emplace_back(worker, fd, i, !unbind.empty());
	if (!unbind.empty()) {
		running.emplace_back(unbinder, unbind);
		running.emplace_back(asker);
	}
	for (int i = 0; i < seconds * 20 && !stop; i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(50));
	stop = true;
	for (auto &thread : running)
		thread.join();
	for (int i = 0; i < threads; i++)
		if (!intact(fd, i))
			fail("bytes of thread " + std::to_string(i) + " are wrong", -EIO);
	std::printf("%lu requests, %lu bytes, %lu met a vanished provider\n", requests.load(), bytes.load(),
		    vanished.load());
	return failures || !requests;
}
