// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <sys/types.h>

#include "cufile/registry/file.hpp"

namespace cufile
{

class DirectFile;
class PeerGpuBounce;

// A registered file.
struct FileHandle {
	FileHandle(std::shared_ptr<File> f, int descriptor, dev_t on, ino_t number)
		: file(std::move(f)), fd(descriptor), dev(on), ino(number)
	{
	}

	// This reason (peerdma_cufile_why) is in the log.
	bool has_logged(unsigned why) const { return logged.load(std::memory_order_relaxed) & (1u << why); }

	const std::shared_ptr<File> file;
	const int fd; // the program's; -1: a user-space filesystem
	const dev_t dev;
	const ino_t ino;
	std::mutex lock; // protects direct_files and peer_gpus
	// By provider and open device: a file of one cannot access buffers of another. A file keeps the device open, so
	// its number is not reused.
	std::map<std::pair<uint32_t, int>, std::shared_ptr<DirectFile>> direct_files;
	// By device: the peer GPU through which its bytes go if they cannot be direct; nullptr: no suitable GPU.
	std::map<int, std::shared_ptr<PeerGpuBounce>> peer_gpus;
	std::atomic<uint32_t> logged{0}; // bits of peerdma_cufile_why
	std::atomic<bool> logged_lost{false};
	bool denied = false; // by the denylist; immutable after registration
};

} // namespace cufile
