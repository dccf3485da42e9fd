// SPDX-License-Identifier: MIT
//
// One cuFileRead() on one path, for scripts/hops.py, which records the library functions that it enters.
//   program direct|bounce out|back FILE
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda.h>
#include <fcntl.h>
#include <unistd.h>

#include "cufile.h"
#include "peerdma.h"

extern "C" {
void __gcov_reset(void);
void __gcov_dump(void);
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
}

namespace
{

constexpr size_t size = 64 * 1024;

[[noreturn]] void fail(const char *what)
{
	std::fprintf(stderr, "%s failed\n", what);
	_exit(1);
}

bool dump_at_call = false;

void called()
{
	if (dump_at_call)
		__gcov_dump(); // a second dump does nothing
}

decltype(&peerdma_read_result) real_read;
decltype(&cuMemcpyHtoDAsync) real_copy;

int64_t read_seen(struct peerdma_file *file, struct peerdma_buf *buf, uint64_t buf_off, uint64_t len, uint64_t offset,
		  struct peerdma_io_result *result)
{
	called();
	return real_read(file, buf, buf_off, len, offset, result);
}

CUresult copy_seen(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	called();
	return real_copy(to, from, bytes, stream);
}

} // namespace

// The library looks up libpeerdma and the CUDA driver through it.
void *__wrap_dlsym(void *library, const char *name)
{
	void *const found = __real_dlsym(library, name);
	if (std::strcmp(name, "peerdma_read_result") == 0) {
		real_read = reinterpret_cast<decltype(real_read)>(found);
		return reinterpret_cast<void *>(read_seen);
	}
	if (std::strcmp(name, "cuMemcpyHtoDAsync_v2") == 0) {
		real_copy = reinterpret_cast<decltype(real_copy)>(found);
		return reinterpret_cast<void *>(copy_seen);
	}
	return found;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		fail("usage: program direct|bounce out|back FILE");
	if (std::strcmp(argv[1], "direct") == 0)
		setenv("HOPS_DIRECT", "1", 1); // libpeerdma.cpp then registers the memory
	const int fd = open(argv[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
	const std::vector<char> bytes(size, 'x');
	if (fd < 0 || write(fd, bytes.data(), size) != static_cast<ssize_t>(size))
		fail("writing the file");
	CUdevice device = 0;
	CUcontext context = nullptr;
	CUdeviceptr memory = 0;
	if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
	    cuCtxSetCurrent(context) || cuMemAlloc(&memory, size))
		fail("CUDA");
	void *const base = reinterpret_cast<void *>(memory);
	CUfileDescr_t descr = {};
	descr.type = CU_FILE_HANDLE_TYPE_OPAQUE_FD;
	descr.handle.fd = fd;
	CUfileHandle_t file = nullptr;
	if (cuFileHandleRegister(&file, &descr).err || cuFileBufRegister(base, size, 0).err)
		fail("registering");
	// The first read sets up what later reads use: libpeerdma's file and the bounce buffer.
	if (cuFileRead(file, base, size, 0, 0) != static_cast<ssize_t>(size))
		fail("the first read");
	dump_at_call = std::strcmp(argv[2], "out") == 0;
	__gcov_reset();
	if (cuFileRead(file, base, size, 0, 0) != static_cast<ssize_t>(size))
		fail("the read");
	__gcov_dump();
	_exit(0);
}
