// SPDX-License-Identifier: MIT
// Shared by the guests' cuFile programs. The counters of libcufile and of the kernel tell the route of the bytes; the
// host, which sees the BAR and the drive, tells where they are.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "../../tools/bar_offset.hpp"
#include "../../tools/raw.hpp"
#include "../../tools/tap.hpp"
#include "peerdma_cufile.h"

constexpr size_t KiB = 1 << 10, MiB = 1 << 20;
using tap::report;

inline void must(bool good, const std::string &what)
{
	if (good)
		return;
	std::printf("Bail out! %s\n", what.c_str());
	std::exit(1);
}

// --- The route
struct Counts {
	std::array<uint64_t, PEERDMA_CUFILE_NR_WHYS> ios{}, bytes{};
	uint64_t near_ios = 0, near_bytes = 0;   // through another GPU
	uint64_t direct = 0, near = 0, host = 0; // from the kernel

	static Counts now()
	{
		Counts all;
		struct peerdma_cufile_counts counts = {};
		counts.size = sizeof(counts);
		must(!peerdma_cufile_count(&counts), "peerdma_cufile_count");
		std::copy(std::begin(counts.ios), std::end(counts.ios), all.ios.begin());
		std::copy(std::begin(counts.bytes), std::end(counts.bytes), all.bytes.begin());
		all.near_ios = counts.near_ios;
		all.near_bytes = counts.near_bytes;
		// The kernel counts for each open /dev/peerdma of this process.
		for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
			std::error_code gone;
			if (std::filesystem::read_symlink(entry, gone) != "/dev/peerdma")
				continue;
			std::ifstream info("/proc/self/fdinfo/" + entry.path().filename().string());
			for (std::string key, value; info >> key && std::getline(info, value);)
				for (const auto &[name, sum] : {std::pair{"peerdma-direct-bytes:", &all.direct},
								{"peerdma-near-bytes:", &all.near},
								{"peerdma-host-bytes:", &all.host}})
					if (key == name)
						*sum += std::stoull(value);
		}
		return all;
	}

	std::string text() const
	{
		std::string all = "direct " + std::to_string(direct) + " near " + std::to_string(near) + " host " +
				  std::to_string(host);
		for (unsigned i = 0; i < ios.size(); i++)
			if (ios[i])
				all += ", " + std::to_string(ios[i]) + " of " + std::to_string(bytes[i]) +
				       " bytes: " + peerdma_cufile_why_text(i);
		if (near_ios)
			all += "; by way of another GPU " + std::to_string(near_ios) + " of " +
			       std::to_string(near_bytes);
		return all;
	}

	friend Counts operator-(Counts a, const Counts &b)
	{
		for (unsigned i = 0; i < a.ios.size(); i++) {
			a.ios[i] -= b.ios[i];
			a.bytes[i] -= b.bytes[i];
		}
		a.near_ios -= b.near_ios;
		a.near_bytes -= b.near_bytes;
		a.direct -= b.direct;
		a.near -= b.near;
		a.host -= b.host;
		return a;
	}
};

// Returns the counts since the previous call.
inline Counts since()
{
	static Counts before;
	const Counts now = Counts::now(), more = now - before;
	before = now;
	return more;
}

// Expects this many I/Os and bytes, all direct; partial blocks may have been bounced inside the device. With soft-RoCE
// the kernel module moves the bytes too, and counts them as through the host.
inline void went_direct(const std::string &what, uint64_t ios, uint64_t bytes)
{
	const Counts got = since();
	const bool software = raw::by_software();
	const size_t why = software ? PEERDMA_CUFILE_WHY_REFUSED : PEERDMA_CUFILE_WHY_NONE;
	bool good = got.ios[why] == ios && got.bytes[why] == bytes;
	for (size_t i = 0; i < got.ios.size(); i++)
		good = good && (i == why || !got.ios[i]);
	if (software)
		good = good && got.host == bytes && !got.direct && !got.near;
	else
		good = good && !got.host && got.direct + got.near == bytes && got.direct;
	report(good, what + (software ? ": by the module, and counted" : ": direct, nothing by way of the host"),
	       got.text());
}

// Expects this many I/Os and bytes, none of them direct, for this reason.
inline void went_otherwise(const std::string &what, enum peerdma_cufile_why why, uint64_t ios, uint64_t bytes)
{
	const Counts got = since();
	report(got.ios[why] == ios && got.bytes[why] == bytes && !got.ios[PEERDMA_CUFILE_WHY_NONE] && !got.direct,
	       what + ": counted, with the reason", got.text());
}

// --- The place
inline uint64_t place_of(const void *memory)
{
	const auto offset = bar_offset(memory);
	must(offset.has_value(), "no buffer there");
	return *offset;
}

inline bool memory_is(const void *memory, size_t size, const std::string &source, uint64_t source_off = 0)
{
	return tap::gpu_is(place_of(memory), size, source, source_off);
}

inline void fill(const void *memory, size_t size, const std::string &source, uint64_t source_off = 0)
{
	must(host::run("host fill gpu0 " + std::to_string(place_of(memory)) + " " + std::to_string(size) + " " +
		       source + " " + std::to_string(source_off)),
	     "host fill");
}

// Compares the file's bytes on the drive, as the host sees the drive: FAR_IMAGE, or disk0.
inline bool drive_has(int fd, uint64_t offset, uint64_t size, const std::string &source, uint64_t source_off = 0)
{
	const char *const far = std::getenv("FAR_IMAGE");
	const std::string image = far ? far : "disk0";
	constexpr unsigned most = 64;
	std::vector<char> room(sizeof(struct fiemap) + most * sizeof(struct fiemap_extent));
	auto *const map = reinterpret_cast<struct fiemap *>(room.data());
	map->fm_start = offset;
	map->fm_length = size;
	map->fm_flags = FIEMAP_FLAG_SYNC;
	map->fm_extent_count = most;
	must(!ioctl(fd, FS_IOC_FIEMAP, map), "FIEMAP");
	uint64_t at = offset;
	for (unsigned i = 0; i < map->fm_mapped_extents && at < offset + size; i++) {
		const struct fiemap_extent &extent = map->fm_extents[i];
		if (extent.fe_logical > at || extent.fe_flags & (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_UNWRITTEN))
			break;
		const uint64_t skip = at - extent.fe_logical,
			       part = std::min<uint64_t>(extent.fe_length - skip, offset + size - at);
		if (!host::run("host compare " + image + " " + std::to_string(extent.fe_physical + skip) + " " +
			       std::to_string(part) + " " + source + " " + std::to_string(source_off + at - offset)))
			return false;
		at += part;
	}
	return at == offset + size;
}

// A buffer of the program's own, with another open /dev/peerdma than libcufile's.
struct OwnBuffer {
	struct peerdma_device *device = nullptr;
	struct peerdma_buf *buffer = nullptr;
	void *memory = nullptr;

	explicit OwnBuffer(size_t size)
	{
		struct peerdma_provider_info provider = {};
		provider.size = sizeof(provider);
		must(!peerdma_open(&device, 0) && !peerdma_provider_find(device, nullptr, &provider) &&
			     !peerdma_buf_create(device, provider.id, size, 0, &buffer, nullptr) &&
			     !peerdma_buf_map(buffer, &memory),
		     "a buffer");
	}
	~OwnBuffer()
	{
		peerdma_buf_destroy(buffer);
		peerdma_close(device);
	}
	OwnBuffer(const OwnBuffer &) = delete;
	OwnBuffer &operator=(const OwnBuffer &) = delete;
	char *get() const { return static_cast<char *>(memory); }
};

inline int open_file(const char *path, int flags)
{
	const int fd = ::open(path, flags | O_CLOEXEC);
	must(fd >= 0, path);
	return fd;
}

inline CUfileHandle_t add_file(int fd)
{
	CUfileDescr_t descr = {};
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = fd;
	CUfileHandle_t fh = nullptr;
	const int error = cuFileHandleRegister(&fh, &descr).err;
	must(!error, "cuFileHandleRegister: " + std::to_string(error));
	return fh;
}
