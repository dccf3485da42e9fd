// SPDX-License-Identifier: MIT
//
// All that libcufile asks of the world, so that what it decides is tested without a GPU, without the
// module and with faults that a real machine does not offer on demand: the operating system, the CUDA
// driver and libpeerdma.
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

// What direct I/O of a file wants; 0 where it has none.
struct DirectLimits {
	uint32_t memory = 0; // the address is a multiple of it
	uint32_t offset = 0; // so are offset and length
};

// Reads of files, many at a time, all into one piece of memory. Of one thread at a time.
class Ring
{
public:
	struct Completion {
		uint64_t tag;
		int64_t result; // bytes, or -errno
	};

	// Waits for the reads in flight: afterwards nothing is written to the memory any more.
	virtual ~Ring() = default;
	// Queues a read; each that is queued completes once. False: there is no room until another one completes. If none is in
	// flight there will never be any.
	virtual bool read(int fd, void *to, uint64_t size, uint64_t offset, uint64_t tag) = 0;
	// Submits what is queued, and returns completions. wait: at least one, if any read is in flight.
	virtual size_t reap(Completion *out, size_t most, bool wait) = 0;
	// Registers the file that many reads are to come from, in place of the one before; -1: none.
	virtual void register_file(int fd) = 0;
};

using Cpus = std::bitset<4096>;

// All return -errno.
class System
{
public:
	virtual int open(const char *path, int flags) = 0;
	virtual int close(int fd) = 0;
	// Never 0, 1 or 2: a program that closed its standard streams must not find ours in their place.
	virtual int dup(int fd) = 0;
	// The flags that it is open with, of fcntl(F_GETFL).
	virtual int open_flags(int fd) = 0;
	virtual int fstat(int fd, struct stat &st) = 0;
	// The position of an open file description, which no I/O at an offset changes.
	virtual off_t seek(int fd, off_t to) = 0;
	virtual off_t position(int fd) = 0;
	// Marks an open file description, for as long as it is there. Returns true if it was marked before.
	virtual bool mark(int fd) = 0;
	// memcpy(), or -EFAULT where one of the addresses leads nowhere.
	virtual int64_t copy(void *to, const void *from, uint64_t size) = 0;
	virtual int direct_limits(int fd, DirectLimits &limits) = 0;
	// 0: a descriptor of the module's, of this library's ABI. -ENOTTY: of something else. -EPROTONOSUPPORT: of another ABI.
	virtual int ask_module(int fd) = 0;
	// Of this range, in the page cache.
	virtual int64_t pages_cached(int fd, uint64_t offset, uint64_t size) = 0;
	virtual int64_t pread(int fd, void *to, uint64_t size, uint64_t offset) = 0;
	virtual int64_t pwrite(int fd, const void *from, uint64_t size, uint64_t offset) = 0;
	// For so many reads at a time, into this memory.
	virtual int make_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<Ring> &out) = 0;
	// A regular file of at most 16 MiB; -EINVAL: it is not a regular file. Never waits, as a FIFO would.
	virtual int read_file(const std::string &path, std::string &out) = 0;
	// Replaces a regular file, or makes one: all of it or nothing. -EINVAL: it is not a regular file.
	virtual int write_file(const std::string &path, std::string_view text) = 0;
	virtual int read_link(const std::string &path, std::string &out) = 0;
	// The names in a folder, without . and ..
	virtual int list(const std::string &path, std::vector<std::string> &names) = 0;
	// Opened for appending, made if it is not there. -ENXIO: a FIFO without a reader.
	virtual int open_log(const std::string &path) = 0;
	// All of it: -EAGAIN, a pipe or a terminal has no room. Does not wait, but for a terminal that cannot be opened again.
	virtual int append(int fd, std::string_view text) = 0;
	virtual int rename(const std::string &from, const std::string &to) = 0;
	virtual std::optional<std::string> variable(const char *name) = 0;
	// Where the calling thread may run.
	virtual int cpus(Cpus &out) = 0;
	virtual int set_affinity(const Cpus &cpus) = 0;
	// New memory of the calling thread's comes from this node if it can; -1: as before. -EBUSY: the program has said where
	// from.
	virtual int prefer_node(int node) = 0;
	virtual uint64_t now_ns() = 0; // of a clock that is not set
	virtual int pid() = 0;

protected:
	// Never called through the base, and not virtual: the real ones live for ever, without a destructor at exit.
	~System() = default;
};

using Context = void *; // CUcontext
using Stream = void *;  // CUstream
using Event = void *;   // CUevent

// What the CUDA driver knows of an address.
struct Memory {
	// foreign: a GPU's that the CUDA driver has nothing to do with; only the kernel module reaches it.
	enum class Kind { host, device, managed, foreign };
	Kind kind = Kind::host;
	Context context = nullptr; // never nullptr but for host and foreign memory
	int device = -1;
};

// What was allocated at once.
struct Allocation {
	uint64_t start = 0, size = 0;
	uint64_t id = 0; // never given twice; 0: the driver knows of none
};

// From host memory to a device.
struct Copy {
	char *device;
	const char *host;
	uint64_t size;
};

// What a stream copies when it gets there; in pinned memory.
struct CopyDescriptor {
	char *to;
	const char *from;
	uint64_t size;
};

// The context that a stream is in, and whether it is being captured.
struct StreamInfo {
	Context context = nullptr;
	uint64_t id = 0; // never given twice, whatever name the stream has
	bool captured = false;
};

// Return a CUresult.
class Cuda
{
public:
	// Finds the driver. False: there is none, and nothing else may be called.
	virtual bool load() = 0;
	// Where there was none, there is one if the program has loaded it since.
	virtual void retry_load() {}
	// An address that the driver does not know is host memory.
	virtual int look_up(const void *address, Memory &memory) = 0;
	// Which one an address is in.
	virtual int allocation(const void *address, Allocation &out) = 0;
	// Whether cuMemMap() has mapped it: of such a range some may be mapped later, or anew.
	virtual bool is_mapped(const void *address) = 0;
	// Copies to and from that one are over when the calls return that are to wait for them.
	virtual int set_sync_memops(const void *address) = 0;
	// Makes the context the calling thread's; entered says whether leave() has to undo it, which it has not on an error.
	virtual int enter(Context context, bool &entered) = 0;
	virtual void leave() = 0;
	// Of the calling thread's context.
	virtual int alloc_pinned(uint64_t size, void **out) = 0;
	virtual void free_pinned(void *memory) = 0;
	// Of the calling thread's context, too.
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
	// From device memory to device memory, of whichever devices.
	virtual int copy_between_devices(void *to, const void *from, uint64_t size, Stream stream) = 0;
	// Before launch_copy(). An error: the driver cannot launch the kernel.
	virtual int query_stream(Stream stream, StreamInfo &out) = 0;
	// Enqueues a copy of what the descriptor then says. In the stream's context. Addresses of its device, of pinned and of managed memory.
	virtual int launch_copy(const CopyDescriptor *order, Stream stream) = 0;
	// Runs call(arg) when the stream gets there, once, on a thread that may not call the driver. If the stream is being
	// captured, it runs each time that the graph does; gone(arg), if there is one, is called when it never will
	// again. Without a capture, gone is not called.
	virtual int call_in_stream(Stream stream, void (*call)(void *), void (*gone)(void *), void *arg,
				   bool &captured) = 0;
	virtual int device_count(int &count) = 0;
	// The context that the runtime API has on a device: made if it is not there, and kept.
	virtual int primary(int device, Context &out) = 0;
	// Of the calling thread's context.
	virtual int current_device(int &device) = 0;
	// Whether their own copies go from one to the other without the host.
	virtual bool can_access_peer(int device, int other) = 0;
	virtual int uuid(int device, char (&out)[CUFILE_GPU_UUID_LEN]) = 0;
	// "0000:01:00.0"
	virtual int pci_address(int device, std::string &out) = 0;
	// Which stream a name means now; never given twice. Of a default stream that of the calling thread's context. An error:
	// the driver is older than CUDA 12, or the thread is in no context.
	virtual int stream_id(Stream stream, uint64_t &id) = 0;

protected:
	~Cuda() = default;
};

// Where an address is in a buffer of libpeerdma's.
struct BufferLocation {
	struct peerdma_buf *buffer = nullptr;
	uint64_t offset = 0;
	uint64_t size = 0; // bytes from there to the buffer's end
	uint32_t provider = 0;
	// Which open /dev/peerdma it was made by. The program's: its descriptor. The library's: a number below -1, which
	// never comes again.
	int device = -1;
	bool registered = false; // it lives as long as a RegisteredMemory does
};

class PeerdmaClient
{
public:
	// As Cuda::retry_load().
	virtual void retry_load() {}
	// 0 or -errno: -ENOSYS there is no libpeerdma, -ENOENT the address is in no buffer of this process.
	virtual int look_up(const void *address, BufferLocation &location) = 0;
	// Registers memory of the CUDA driver's with the kernel: whole frames of 64 KiB. 0 or -errno; reason: enum
	// peerdma_reason, written on failure too.
	virtual int pin(const void *address, uint64_t size, BufferLocation &location, uint32_t &reason) = 0;
	// The same as a dma-buf, which the driver gives of it: frames around the range. gpu: the PCI address, "0000:01:00.0",
	// for which the nearest drive is taken. The location is that of the address.
	virtual int import_cuda(const void *address, uint64_t size, const std::string &gpu, BufferLocation &location,
				uint32_t &reason) = 0;
	// The same for memory of other vendors', with whichever drive is nearest to a GPU. -ENOENT: no vendor's library knows it.
	virtual int import_foreign(const void *address, uint64_t size, BufferLocation &location, uint32_t &reason) = 0;
	virtual void release(struct peerdma_buf *buffer) = 0;
	// False: it was made by the library's /dev/peerdma, whose descriptor the program has closed.
	virtual bool is_valid(const BufferLocation & /*place*/) { return true; }
	virtual int open_file(struct peerdma_buf *buffer, int fd, struct peerdma_file **out) = 0;
	virtual void close_file(struct peerdma_file *file) = 0;
	virtual int explain(struct peerdma_file *file, uint32_t provider, struct peerdma_explanation &out) = 0;
	// With the size of the result set.
	virtual int64_t read(struct peerdma_file *file, const BufferLocation &location, uint64_t size, uint64_t offset,
			     struct peerdma_io_result &result) = 0;
	virtual int64_t write(struct peerdma_file *file, const BufferLocation &location, uint64_t size, uint64_t offset,
			      struct peerdma_io_result &result) = 0;
	virtual const char *reason_text(uint32_t reason) = 0;
	// The provider that the rules prefer, or that is the only one. 0 or -errno.
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
