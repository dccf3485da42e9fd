// SPDX-License-Identifier: MIT
//
// nocuda file FILE SIZE | block DEVICE AT DISK_AT: a cuFile program on the real module, on a machine without a CUDA
// driver. Its memory is a buffer of libpeerdma's in the published BAR. FILE is SIZE bytes of pattern 1 on the drive's
// ext4. On a block device the test overwrites 8 MiB from AT; byte 0 of the device is byte DISK_AT of the drive.
#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include <dlfcn.h>

#include "cufile.hpp"

namespace
{

constexpr size_t memory_size = 4 * MiB;

struct Place {
	const char *path;
	size_t at, size;                                                      // the range that the test may use
	std::function<bool(size_t, size_t, const std::string &, size_t)> has; // compares that range on the drive
};

// A read and a write, by both kinds of descriptor, in registered and unregistered memory.
void both_ways(const Place &place, char *memory)
{
	for (const int flags : {O_DIRECT, 0}) {
		const int fd = open_file(place.path, O_RDWR | flags);
		const CUfileHandle_t fh = add_file(fd);
		for (const bool registered : {false, true}) {
			const std::string kind =
				std::string(flags ? ", O_DIRECT" : "") + (registered ? ", registered" : "");
			if (registered)
				must(!cuFileBufRegister(memory, memory_size, 0).err, "cuFileBufRegister");
			const auto at = static_cast<off_t>(place.at + 64 * KiB);
			fill(memory, memory_size, "pattern:9");
			since();
			ssize_t n = cuFileWrite(fh, memory, MiB, at, 512 * KiB);
			went_direct("a write" + kind, 1, MiB);
			report(n == MiB && place.has(64 * KiB, MiB, "pattern:9", 512 * KiB) &&
				       place.has(60 * KiB, 4 * KiB, "pattern:1", 60 * KiB) &&
				       place.has(MiB + 64 * KiB, 4 * KiB, "pattern:1", MiB + 64 * KiB),
			       "what is on the drive, and around it", std::to_string(n) + " " + std::to_string(errno));
			fill(memory, memory_size, "byte:170");
			since();
			n = cuFileRead(fh, memory, MiB + 1001, at - 1001, 8 * KiB - 1001);
			went_direct("a read of odd bytes" + kind, 1, MiB + 1001);
			report(n == MiB + 1001 && memory_is(memory + 8 * KiB, MiB, "pattern:9", 512 * KiB) &&
				       memory_is(memory + 8 * KiB - 1001, 1001, "pattern:1", 64 * KiB - 1001) &&
				       memory_is(memory, 8 * KiB - 1001, "byte:170") &&
				       memory_is(memory + 8 * KiB + MiB, 4 * KiB, "byte:170"),
			       "what came, and what is around it", std::to_string(n) + " " + std::to_string(errno));
			fill(memory, MiB, "pattern:1", 64 * KiB);
			must(cuFileWrite(fh, memory, MiB, at, 0) == MiB, "writing back");
			if (registered)
				must(!cuFileBufDeregister(memory).err, "cuFileBufDeregister");
		}
		cuFileHandleDeregister(fh);
		close(fd);
	}
}

void batch(const Place &place, char *memory)
{
	constexpr unsigned count = 16;
	constexpr size_t size = 128 * KiB;
	const CUfileHandle_t fh = add_file(open_file(place.path, O_RDWR));
	CUfileBatchHandle_t id = nullptr;
	must(!cuFileBatchIOSetUp(&id, count).err, "cuFileBatchIOSetUp");
	std::vector<CUfileIOParams_t> ios(count);
	for (unsigned i = 0; i < count; i++) {
		ios[i].mode = CUFILE_BATCH;
		ios[i].fh = fh;
		ios[i].opcode = CUFILE_READ;
		ios[i].cookie = &ios[i];
		ios[i].u.batch = {memory, static_cast<off_t>(place.at + i * size), static_cast<off_t>(i * size), size};
	}
	fill(memory, memory_size, "byte:170");
	since();
	must(!cuFileBatchIOSubmit(id, count, ios.data(), 0).err, "cuFileBatchIOSubmit");
	std::set<void *> seen;
	bool good = true;
	while (good && seen.size() < count) {
		CUfileIOEvents_t events[count];
		unsigned n = count;
		good = !cuFileBatchIOGetStatus(id, 0, &n, events, nullptr).err;
		for (unsigned i = 0; good && i < n; i++)
			good = events[i].status == CUFILE_COMPLETE && events[i].ret == size &&
			       seen.insert(events[i].cookie).second;
	}
	report(good && memory_is(memory, count * size, "pattern:1") &&
		       memory_is(memory + count * size, MiB, "byte:170"),
	       "a batch of 16 reads, each told once");
	went_direct("its reads", count, count * size);
	cuFileBatchIODestroy(id);
	cuFileHandleDeregister(fh);
}

// CUDA memory is not available, and host memory works as before.
void without(const Place &place, char *memory)
{
	const CUfileHandle_t fh = add_file(open_file(place.path, O_RDWR));
	size_t size = 4 * KiB, kb = 0;
	off_t zero = 0;
	ssize_t got = 4711;
	fill(memory, MiB, "byte:170");
	report(cuFileReadAsync(fh, memory, &size, &zero, &zero, &got, nullptr).err == CU_FILE_ASYNC_NOT_SUPPORTED &&
		       cuFileWriteAsync(fh, memory, &size, &zero, &zero, &got, nullptr).err ==
			       CU_FILE_ASYNC_NOT_SUPPORTED &&
		       got == 4711 && memory_is(memory, MiB, "byte:170"),
	       "no streams, and nothing is moved");
	report(cuFileGetBARSizeInKB(0, &kb).err == CU_FILE_DEVICE_NOT_FOUND, "no GPU whose BAR had a size");
	std::vector<char> host(300 * KiB), other(300 * KiB);
	must(pread(open_file(place.path, O_RDONLY), other.data(), other.size(), 1001) == 300 * KiB, "pread");
	since();
	report(cuFileRead(fh, host.data(), host.size(), 1001, 0) == 300 * KiB && host == other,
	       "a read into memory of the host's");
	went_otherwise("it", PEERDMA_CUFILE_WHY_HOST_MEMORY, 1, host.size());
	cuFileHandleDeregister(fh);
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 1 ? argv[1] : "";
	must((what == "file" && argc == 4) || (what == "block" && argc == 5),
	     "usage: nocuda file FILE SIZE | block DEVICE AT DISK_AT");
	must(!dlopen("libcuda.so.1", RTLD_NOW), "there is a CUDA driver");
	report(!cuFileDriverOpen().err && cuFileUseCount() == 1, "the driver opens");
	const OwnBuffer buffer(memory_size);
	char *const memory = buffer.get();
	Place place = {argv[2], 0, 8 * MiB, {}};
	if (what == "file") {
		const int fd = open_file(argv[2], O_RDONLY);
		place.size = std::stoull(argv[3]);
		place.has = [fd](size_t at, size_t size, const std::string &source, size_t from) {
			return drive_has(fd, at, size, source, from);
		};
	} else {
		place.at = std::stoull(argv[3]);
		const uint64_t disk = std::stoull(argv[4]) + place.at;
		place.has = [disk](size_t at, size_t size, const std::string &source, size_t from) {
			return host::run("host compare disk0 " + std::to_string(disk + at) + " " +
					 std::to_string(size) + " " + source + " " + std::to_string(from));
		};
		const CUfileHandle_t fh = add_file(open_file(argv[2], O_RDWR | O_DIRECT));
		for (size_t at = 0; at < place.size; at += memory_size) {
			fill(memory, memory_size, "pattern:1", at);
			must(cuFileWrite(fh, memory, memory_size, static_cast<off_t>(place.at + at), 0) == memory_size,
			     "filling it");
		}
		cuFileHandleDeregister(fh);
	}
	report(place.has(0, place.size, "pattern:1", 0), "all of " + what + ", as it was");
	both_ways(place, memory);
	batch(place, memory);
	if (what == "file")
		without(place, memory);
	report(place.has(0, place.size, "pattern:1", 0), "all of " + what + ", put back");
	must(!cuFileDriverClose_v2().err, "the end");
	return tap::end();
}
