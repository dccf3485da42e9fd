// SPDX-License-Identifier: MIT
// Unmodified third-party code that uses cuFile, and a main() for it: the headers of kvikio, and nixl's gds_utils.
// third_party.sh compiles it once for each (-DKVIKIO, -DNIXL).
#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef KVIKIO
#include <cufile/driver.hpp>
#include <cufile/file_handle.hpp>
#else
#include "gds_utils.h"
#endif

namespace
{

int failed;

void check(bool ok, const std::string &what)
{
	std::printf("%s - %s\n", ok ? "ok" : "not ok", what.c_str());
	failed += !ok;
}

std::vector<char> noise(size_t size)
{
	static std::mt19937_64 random{1};
	std::vector<char> bytes(size);
	for (char &byte : bytes)
		byte = static_cast<char>(random());
	return bytes;
}

std::vector<char> file_bytes(const std::string &path, size_t size, off_t offset)
{
	std::vector<char> bytes(size);
	const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	const ssize_t got = pread(fd, bytes.data(), size, offset);
	close(fd);
	bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
	return bytes;
}

class Memory
{
	void *base = nullptr;
	size_t size;

public:
	explicit Memory(size_t size) : size(size)
	{
		if (cudaMalloc(&base, size) != cudaSuccess)
			throw std::runtime_error("cudaMalloc");
	}
	~Memory() { cudaFree(base); }
	Memory(const Memory &) = delete;
	Memory &operator=(const Memory &) = delete;
	char *at(size_t offset = 0) const { return static_cast<char *>(base) + offset; }
	void put(const std::vector<char> &bytes, size_t offset = 0) const
	{
		cudaMemcpy(at(offset), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
	}
	std::vector<char> get(size_t length, size_t offset = 0) const
	{
		std::vector<char> bytes(length);
		cudaMemcpy(bytes.data(), at(offset), length, cudaMemcpyDeviceToHost);
		return bytes;
	}
	void clear() const
	{
		cudaMemset(base, 0, size);
		cudaDeviceSynchronize();
	}
};

#ifdef KVIKIO
template <typename F> std::string refusal(F f)
{
	try {
		f();
	} catch (const std::exception &error) {
		const std::string text = error.what();
		const size_t at = text.rfind(": ");
		return at == std::string::npos ? text : text.substr(at + 2);
	}
	return "";
}

void run(const std::string &path)
{
	cufile::DriverInitializer driver;
	cufile::DriverProperties properties;
	std::printf("properties: nvfs %u.%u, compat %d, poll %d %zu, cache %zu, per buffer %zu, pinned %zu\n",
		    properties.get_nvfs_major_version(), properties.get_nvfs_minor_version(),
		    properties.get_nvfs_allow_compat_mode(), properties.get_nvfs_poll_mode(),
		    properties.get_nvfs_poll_thresh_size(), properties.get_max_device_cache_size(),
		    properties.get_per_buffer_cache_size(), properties.get_max_pinned_memory_size());
	std::printf("set poll mode: '%s', threshold: '%s', cache: '%s', pinned: '%s'\n",
		    refusal([&] { properties.set_nvfs_poll_mode(false); }).c_str(),
		    refusal([&] { properties.set_nvfs_poll_thresh_size(4); }).c_str(),
		    refusal([&] { properties.set_max_device_cache_size(131072); }).c_str(),
		    refusal([&] { properties.set_max_pinned_memory_size(33554432); }).c_str());
	const size_t size = 32 << 20;
	const Memory memory(size);
	const std::vector<char> data = noise(size);
	for (const bool registered : {false, true}) {
		const std::string kind = registered ? "registered, " : "not registered, ";
		if (registered)
			cufile::memory_register(memory.at(12345));
		for (const unsigned threads : {1, 4, 16}) {
			cufile::default_thread_pool::reset(threads);
			for (const size_t length : {size, size_t{(4 << 20) + 4097}, size_t{1000}, size_t{3}}) {
				const std::string name = kind + std::to_string(threads) + " threads, " +
							 std::to_string(length) + " bytes";
				unlink(path.c_str());
				memory.put(data);
				{
					cufile::FileHandle file(path, "w+");
					check(file.pwrite(memory.at(), length).get() == length, name + ", pwrite");
				}
				const std::vector<char> wanted(data.begin(), data.begin() + static_cast<long>(length));
				check(file_bytes(path, size, 0) == wanted, name + ", the file");
				memory.clear();
				const cufile::FileHandle unused;
				cufile::FileHandle file(path);
				check(file.pread(memory.at(), length).get() == length, name + ", pread");
				check(memory.get(length) == wanted, name + ", the memory");
			}
		}
		cufile::FileHandle first(path, "w+");
		cufile::FileHandle file(std::move(first));
		memory.put(data);
		check(file.write(memory.at(), 100001, 777, 4099) == 100001, kind + "write at odd places");
		memory.clear();
		check(file.read(memory.at(), 100001, 777, 513) == 100001, kind + "read at odd places");
		const std::vector<char> wanted(data.begin() + 4099, data.begin() + 4099 + 100001);
		check(memory.get(100001, 513) == wanted && file_bytes(path, 100001, 777) == wanted,
		      kind + "their bytes");
		check(file.read(memory.at(), 1 << 20, 100000, 0) == 778, kind + "read across the end of the file");
		check(file.read(memory.at(), 4096, 1 << 20, 0) == 0, kind + "read behind it");
		if (registered) {
			std::printf("registered again: '%s'\n",
				    refusal([&] { cufile::memory_register(memory.at()); }).c_str());
			cufile::memory_deregister(memory.at(777));
			std::printf("deregistered again: '%s'\n",
				    refusal([&] { cufile::memory_deregister(memory.at()); }).c_str());
		}
	}
	std::printf("no file: '%s'\n", refusal([] { const cufile::FileHandle none(-1); }).c_str());
	cufile::FileHandle reader(path);
	std::printf("write to a file opened for reading: '%s'\n",
		    refusal([&] { reader.write(memory.at(), 4096, 0, 0); }).c_str());
}
#else
// gds_utils.cpp leaves part of a descriptor uninitialized: fill the stack with nonzero bytes.
__attribute__((noinline)) void dirty_stack()
{
	volatile char bytes[4096];
	for (volatile char &byte : bytes)
		byte = '\x5a';
}

void run(const std::string &path)
{
	gdsUtil util;
	check(util.openGdsDriver() == NIXL_SUCCESS, "openGdsDriver");
	const size_t size = 8 << 20;
	const Memory memory(size);
	const std::vector<char> data = noise(size);
	memory.put(data);
	const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	gdsFileHandle handle;
	check(util.registerFileHandle(fd, size, "", handle) == NIXL_SUCCESS, "registerFileHandle");
	check(util.registerBufHandle(memory.at(), size, 0) == NIXL_SUCCESS, "registerBufHandle");
	check(cuFileWrite(handle.cu_fhandle, memory.at(), size, 0, 0) == static_cast<ssize_t>(size), "write");
	check(file_bytes(path, size + 1, 0) == data, "the file");
	memory.clear();
	check(cuFileRead(handle.cu_fhandle, memory.at(), size, 0, 0) == static_cast<ssize_t>(size), "read");
	check(memory.get(size) == data, "the memory");
	check(util.deregisterBufHandle(memory.at()) == NIXL_SUCCESS, "deregisterBufHandle");
	check(util.deregisterBufHandle(memory.at()) != NIXL_SUCCESS, "deregisterBufHandle again is refused");
	util.deregisterFileHandle(handle);
	dirty_stack();
	check(util.registerFileHandle(fd, size, "", handle) == NIXL_SUCCESS,
	      "registerFileHandle with bytes behind its descriptor");
	memory.clear();
	check(cuFileRead(handle.cu_fhandle, memory.at(), size, 0, 0) == static_cast<ssize_t>(size), "read");
	check(memory.get(size) == data, "the memory");
	util.deregisterFileHandle(handle);
	close(fd);
	util.closeGdsDriver();
}
#endif

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	std::setvbuf(stdout, nullptr, _IOLBF, 0);
	try {
		run(argv[1]);
	} catch (const std::exception &error) {
		std::printf("not ok - %s\n", error.what());
		failed++;
	}
	std::printf("%d failed\n", failed);
	return failed != 0;
}
