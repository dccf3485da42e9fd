// SPDX-License-Identifier: MIT
//
// The interfaces to the operating system, the CUDA driver and libpeerdma. Tests replace them, so all decisions are
// tested without a GPU or the module, and with faults that a real machine does not produce on demand.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

#include "cufile.h"
#include "peerdma.h"

namespace cufile
{

// Alignment that direct I/O of a file needs; 0 if it has no direct I/O.
struct DirectLimits {
	uint32_t memory = 0; // alignment of the address
	uint32_t offset = 0; // alignment of offset and length
};

// Many concurrent reads of files into one range of memory. For one thread at a time.
class Ring
{
public:
	struct Completion {
		uint64_t tag;
		int64_t result; // bytes, or -errno
	};

	// Waits for the reads in flight: afterwards nothing is written to the memory.
	virtual ~Ring() = default;
	// Queues a read, which completes exactly once. False: no room until another read completes; if none is in
	// flight, no room ever.
	virtual bool read(int fd, void *to, uint64_t size, uint64_t offset, uint64_t tag) = 0;
	// Submits queued reads and returns completions. wait: for at least one, if any read is in flight.
	virtual size_t reap(Completion *out, size_t most, bool wait) = 0;
	// Registers the file of many coming reads in place of the previous one; -1: none.
	virtual void register_file(int fd) = 0;
};

using Cpus = std::bitset<4096>;

// All return -errno.
class System
{
public:
	virtual int open(const char *path, int flags) = 0;
	virtual int close(int fd) = 0;
	// Never 0, 1 or 2: a program that closed its standard streams must not find a library file in their place.
	virtual int dup(int fd) = 0;
	// Flags of fcntl(F_GETFL).
	virtual int open_flags(int fd) = 0;
	virtual int fstat(int fd, struct stat &st) = 0;
	// Device, inode and type only; the kernel's does not ask a server (common/descriptor.hpp).
	virtual int identity(int fd, struct stat &st) { return fstat(fd, st); }
	// Position of the open file description; I/O at an offset does not change it.
	virtual off_t seek(int fd, off_t to) = 0;
	virtual off_t position(int fd) = 0;
	// Marks the open file description for its lifetime. True if it was marked before.
	virtual bool mark(int fd) = 0;
	// memcpy(), or -EFAULT if an address is not mapped.
	virtual int64_t copy(void *to, const void *from, uint64_t size) = 0;
	virtual int direct_limits(int fd, DirectLimits &limits) = 0;
	// 0: the module's, of this library's ABI. -ENOTTY: another file. -EPROTONOSUPPORT: another ABI.
	virtual int ask_module(int fd) = 0;
	// Pages of the range that are in the page cache.
	virtual int64_t pages_cached(int fd, uint64_t offset, uint64_t size) = 0;
	virtual int64_t pread(int fd, void *to, uint64_t size, uint64_t offset) = 0;
	virtual int64_t pwrite(int fd, const void *from, uint64_t size, uint64_t offset) = 0;
	// depth: reads in flight. They all go into this memory.
	virtual int make_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<Ring> &out) = 0;
	// A regular file of at most 16 MiB, otherwise -EINVAL or -EFBIG. Never blocks on a FIFO.
	virtual int read_file(const std::string &path, std::string &out) = 0;
	// Creates or replaces a regular file atomically. -EINVAL: not a regular file.
	virtual int write_file(const std::string &path, std::string_view text) = 0;
	virtual int read_link(const std::string &path, std::string &out) = 0;
	// Names in a directory, without . and ..
	virtual int list(const std::string &path, std::vector<std::string> &names) = 0;
	// Opens for appending; creates the file. -ENXIO: a FIFO without a reader.
	virtual int open_log(const std::string &path) = 0;
	// Writes all of it. -EAGAIN: a pipe or terminal has no room. Blocks only on a terminal that cannot be reopened.
	virtual int append(int fd, std::string_view text) = 0;
	virtual int rename(const std::string &from, const std::string &to) = 0;
	virtual std::optional<std::string> variable(const char *name) = 0;
	// CPUs of the calling thread.
	virtual int cpus(Cpus &out) = 0;
	virtual int set_affinity(const Cpus &cpus) = 0;
	// Prefers this node for new memory of the calling thread; -1 undoes it. -EBUSY: the program has set a policy.
	virtual int prefer_node(int node) = 0;
	virtual uint64_t now_ns() = 0; // monotonic
	virtual int pid() = 0;

protected:
	// Not virtual, and never called through the base: the real objects live for ever, without a destructor at exit.
	~System() = default;
};

using Context = void *; // CUcontext
using Stream = void *;  // CUstream
using Event = void *;   // CUevent

// The CUDA driver's view of an address.
struct Memory {
	// foreign: of a GPU unknown to the CUDA driver; only the kernel module reaches it.
	enum class Kind { host, device, managed, foreign };
	Kind kind = Kind::host;
	Context context = nullptr; // nullptr only for host and foreign memory
	int device = -1;
};

// One allocation of the CUDA driver.
struct Allocation {
	uint64_t start = 0, size = 0;
	uint64_t id = 0; // never reused; 0: no allocation
};

// From host memory to a device.
struct Copy {
	char *device;
	const char *host;
	uint64_t size;
};

// The copy that a stream performs when it reaches the kernel. In pinned memory.
struct CopyDescriptor {
	char *to;
	const char *from;
	uint64_t size;
};

// Context of a stream, and its capture state.
struct StreamInfo {
	Context context = nullptr;
	uint64_t id = 0; // never reused, unlike the handle
	bool captured = false;
};

// All return a CUresult.
class Cuda
{
public:
	// Loads the driver. False: not available, and nothing else may be called.
	virtual bool load() = 0;
	// After a failed load(): finds a driver that the program has loaded since.
	virtual void retry_load() {}
	// An address unknown to the driver is host memory.
	virtual int look_up(const void *address, Memory &memory) = 0;
	// The allocation that contains an address.
	virtual int allocation(const void *address, Allocation &out) = 0;
	// True if cuMemMap() has mapped it: parts of such a range may be mapped later or replaced.
	virtual bool is_mapped(const void *address) = 0;
	// Makes synchronous copies to and from this allocation complete before they return.
	virtual int set_sync_memops(const void *address) = 0;
	// Enters the context. entered: leave() must undo it; false on an error.
	virtual int enter(Context context, bool &entered) = 0;
	virtual void leave() = 0;
	// In the calling thread's context.
	virtual int alloc_pinned(uint64_t size, void **out) = 0;
	virtual void free_pinned(void *memory) = 0;
	// In the calling thread's context.
	virtual int alloc_device(uint64_t size, void **out) = 0;
	virtual void free_device(void *memory) = 0;
	virtual int create_stream(Stream *out) = 0;
	virtual void destroy_stream(Stream stream) = 0;
	virtual int create_event(Event *out) = 0;
	virtual void destroy_event(Event event) = 0;
	virtual int record(Event event, Stream stream) = 0;
	virtual int wait(Event event) = 0;
	virtual int wait_stream(Stream stream) = 0;
	virtual int copy_to_device(const Copy *copies, size_t n, Stream stream) = 0;
	virtual int copy_to_host(void *host, const void *device, uint64_t size, Stream stream) = 0;
	// Between device memory of any two devices.
	virtual int copy_between_devices(void *to, const void *from, uint64_t size, Stream stream) = 0;
	// Call before launch_copy(). An error: the driver cannot launch the kernel.
	virtual int query_stream(Stream stream, StreamInfo &out) = 0;
	// Enqueues a copy; the descriptor is read when the stream reaches it. Call in the stream's context. Addresses
	// of its device, pinned or managed memory.
	virtual int launch_copy(const CopyDescriptor *order, Stream stream) = 0;
	// Runs call(arg) once when the stream reaches it, on a thread that may not call the driver. If the stream is
	// being captured, it runs with each launch of the graph, and gone(arg), if not nullptr, is called when it will
	// not run again. Without a capture gone is not called.
	virtual int call_in_stream(Stream stream, void (*call)(void *), void (*gone)(void *), void *arg,
				   bool &captured) = 0;
	virtual int device_count(int &count) = 0;
	// The context of the runtime API on a device: created if needed, and kept.
	virtual int primary(int device, Context &out) = 0;
	// Of the calling thread's context.
	virtual int current_device(int &device) = 0;
	// True if copies between the devices bypass host memory.
	virtual bool can_access_peer(int device, int other) = 0;
	virtual int uuid(int device, char (&out)[CUFILE_GPU_UUID_LEN]) = 0;
	// "0000:01:00.0"
	virtual int pci_address(int device, std::string &out) = 0;
	// Unique number of the stream that a handle means now; for a default stream, of the calling thread's context.
	// An error: the driver is older than CUDA 12, or the thread has no context.
	virtual int stream_id(Stream stream, uint64_t &id) = 0;

protected:
	~Cuda() = default;
};

// An address within a buffer of libpeerdma.
struct BufferLocation {
	struct peerdma_buf *buffer = nullptr;
	uint64_t offset = 0;
	uint64_t size = 0; // bytes to the buffer's end
	uint32_t provider = 0;
	// The open /dev/peerdma that created it: the program's descriptor, or a number below -1 for the library's,
	// never reused.
	int device = -1;
	bool registered = false; // owned by a RegisteredMemory
};

class PeerdmaClient
{
public:
	// As Cuda::retry_load().
	virtual void retry_load() {}
	// 0 or -errno. -ENOSYS: no libpeerdma. -ENOENT: the address is in no buffer of this process.
	virtual int look_up(const void *address, BufferLocation &location) = 0;
	// Registers CUDA memory with the kernel: whole frames of 64 KiB. 0 or -errno; reason: enum peerdma_reason,
	// written on failure too.
	virtual int pin(const void *address, uint64_t size, BufferLocation &location, uint32_t &reason) = 0;
	// The same through a dma-buf of the driver: frames around the range. gpu: its PCI address, "0000:01:00.0", for
	// which the nearest drive is chosen. Returns the location of the address.
	virtual int import_cuda(const void *address, uint64_t size, const std::string &gpu, BufferLocation &location,
				uint32_t &reason) = 0;
	// The same for other vendors' memory, with the drive nearest to any GPU. -ENOENT: no vendor's library knows the
	// address.
	virtual int import_foreign(const void *address, uint64_t size, BufferLocation &location, uint32_t &reason) = 0;
	virtual void release(struct peerdma_buf *buffer) = 0;
	// False if the program has closed the descriptor of the library's /dev/peerdma that created it.
	virtual bool is_valid(const BufferLocation & /*place*/) { return true; }
	virtual int open_file(struct peerdma_buf *buffer, int fd, struct peerdma_file **out) = 0;
	virtual void close_file(struct peerdma_file *file) = 0;
	virtual int explain(struct peerdma_file *file, uint32_t provider, struct peerdma_explanation &out) = 0;
	// The caller sets result.size.
	virtual int64_t read(struct peerdma_file *file, const BufferLocation &location, uint64_t size, uint64_t offset,
			     struct peerdma_io_result &result) = 0;
	virtual int64_t write(struct peerdma_file *file, const BufferLocation &location, uint64_t size, uint64_t offset,
			      struct peerdma_io_result &result) = 0;
	virtual const char *reason_text(uint32_t reason) = 0;
	// The provider that rules prefer, or the only one. 0 or -errno.
	virtual int preferred(uint32_t &provider) = 0;

protected:
	~PeerdmaClient() = default;
};

struct Dependencies {
	System &system;
	Cuda &cuda;
	PeerdmaClient &peerdma;
};

} // namespace cufile
