// SPDX-License-Identifier: MIT
//
// The CUDA driver, loaded at run time: libcufile is built without CUDA and serves host memory without a driver.
// Functions are looked up by exported name, some of which carry a version.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "cufile/platform/copy_kernel.hpp"
#include "cufile/platform/loader.hpp"
#include "cufile/platform/real_dependencies.hpp"

namespace cufile
{
namespace
{

using Address = unsigned long long; // CUdeviceptr

// Numbers of the driver's ABI.
constexpr int success = 0, not_initialized = 3, deinitialized = 4, no_device = 100, invalid_value = 1,
	      out_of_memory = 2, invalid_context = 201, not_found = 500;
constexpr int attribute_context = 1, attribute_memory_type = 2, attribute_sync_memops = 6, attribute_buffer_id = 7,
	      attribute_is_managed = 8, attribute_ordinal = 9, attribute_range_start = 11, attribute_range_size = 12;
constexpr unsigned memory_type_device = 2;
constexpr unsigned host_alloc_portable = 1, stream_non_blocking = 1, event_disable_timing = 2;
constexpr unsigned user_object_no_sync = 1, graph_takes_reference = 1;
constexpr int capture_active = 1, capture_mode_relaxed = 2;
constexpr int max_devices = 64;
constexpr uintptr_t last_named_stream = 2; // default streams: nullptr, legacy, per thread

// CUmemcpyAttributes: the order in which the source is read, location hints, flags.
struct CopyAttributes {
	int order;
	int hints[4];
	unsigned flags;
};
constexpr int order_of_stream = 1;

struct Table {
	int (*init)(unsigned);
	int (*attributes)(unsigned, int *, void **, Address);
	int (*current)(Context *);
	int (*push)(Context);
	int (*pop)(Context *);
	int (*host_alloc)(void **, size_t, unsigned);
	int (*host_free)(void *);
	int (*stream_create)(Stream *, unsigned, int);
	int (*stream_priorities)(int *, int *);
	int (*stream_destroy)(Stream);
	int (*stream_wait)(Stream);
	int (*event_create)(Event *, unsigned);
	int (*event_destroy)(Event);
	int (*event_record)(Event, Stream);
	int (*event_wait)(Event);
	int (*copy_to_device)(Address, const void *, size_t, Stream);
	int (*copy_to_host)(void *, Address, size_t, Stream);
	int (*copy_any)(Address, Address, size_t, Stream);
	int (*alloc)(Address *, size_t);
	int (*free)(Address);
	int (*device_count)(int *);
	int (*device_get)(int *, int);
	int (*primary)(Context *, int);
	// An old driver may lack these.
	int (*launch_host)(Stream, void (*)(void *), void *);
	int (*capture)(Stream, int *, unsigned long long *, void **, const void ***, size_t *);
	int (*object_create)(void **, void *, void (*)(void *), unsigned, unsigned);
	int (*graph_retain)(void *, void *, unsigned, unsigned);
	int (*uuid)(void *, int);
	int (*current_device)(int *);
	int (*can_access)(int *, int, int);
	int (*exchange_mode)(int *);
	int (*pci_address)(char *, int, int);
	int (*set_attribute)(const void *, int, Address);
	int (*retain_mapped)(unsigned long long *, void *);
	int (*release_mapped)(unsigned long long);
	int (*stream_context)(Stream, Context *);
	int (*stream_id)(Stream, unsigned long long *);
	int (*load_library)(void **, const void *, void *, void **, unsigned, void *, void **, unsigned);
	int (*library_kernel)(void **, void *, const char *);
	int (*kernel_function)(void **, void *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void **,
		      void **);
	int (*copy_many)(Address *, Address *, size_t *, size_t, CopyAttributes *, size_t *, size_t, Stream);
};

Address number(const void *address) { return reinterpret_cast<Address>(address); }

// In the default capture mode, calls of any thread that wait, allocate or free are refused and invalidate the capture.
// This library's calls concern its own streams and memory, which are never captured.
class BesideCaptures
{
public:
	explicit BesideCaptures(const Table &table) : table_(table) { exchange(); }
	~BesideCaptures() { exchange(); }
	BesideCaptures(const BesideCaptures &) = delete;
	BesideCaptures &operator=(const BesideCaptures &) = delete;

private:
	void exchange()
	{
		if (table_.exchange_mode)
			table_.exchange_mode(&mode_);
	}

	const Table &table_;
	int mode_ = capture_mode_relaxed;
};

class RealCuda final : public Cuda
{
public:
	constexpr RealCuda() = default;

	bool load() override
	{
		return driver_.is_loaded() || driver_.load([this](auto get) { find(get); });
	}
	void retry_load() override
	{
		driver_.retry_load([this](auto get) { find(get); });
	}

	int look_up(const void *address, Memory &memory) override
	{
		memory = {};
		unsigned type = 0, managed = 0;
		int ordinal = -1;
		Context context = nullptr;
		int which[] = {attribute_memory_type, attribute_context, attribute_is_managed, attribute_ordinal};
		void *answers[] = {&type, &context, &managed, &ordinal};
		const int rc = table_.attributes(4, which, answers, number(address));
		// Before CUDA is initialized there is no device memory.
		if (rc == not_initialized || rc == deinitialized || rc == no_device || rc == invalid_value)
			return success;
		if (rc)
			return rc;
		if (!(managed & 0xff) && type != memory_type_device)
			return success;
		// Memory of a pool, and memory mapped in pieces, belongs to no context.
		if (!context && ordinal >= 0) {
			const int primary = primary_context(ordinal, context);
			if (primary)
				return primary;
		}
		if (!context && table_.current(&context))
			context = nullptr;
		// Managed memory of an unknown device: the CPU can reach it as well.
		if (!context)
			return success;
		memory = {managed & 0xff ? Memory::Kind::managed : Memory::Kind::device, context, ordinal};
		return success;
	}

	int allocation(const void *address, Allocation &out) override
	{
		out = {};
		unsigned long long id = 0;
		Address start = 0;
		size_t size = 0;
		int which[] = {attribute_buffer_id, attribute_range_start, attribute_range_size};
		void *answers[] = {&id, &start, &size};
		const int rc = table_.attributes(3, which, answers, number(address));
		if (rc == success)
			out = {start, size, id};
		return rc;
	}
	// Only such memory has an allocation handle.
	bool is_mapped(const void *address) override
	{
		const BesideCaptures beside(table_);
		unsigned long long handle = 0;
		if (!table_.retain_mapped || !table_.release_mapped ||
		    table_.retain_mapped(&handle, const_cast<void *>(address)))
			return false;
		table_.release_mapped(handle);
		return true;
	}
	int set_sync_memops(const void *address) override
	{
		const BesideCaptures beside(table_);
		const unsigned on = 1;
		return table_.set_attribute ? table_.set_attribute(&on, attribute_sync_memops, number(address)) :
					      not_found;
	}

	int enter(Context context, bool &entered) override
	{
		entered = false;
		Context now = nullptr;
		if (table_.current(&now) == success && now == context)
			return success;
		const int rc = table_.push(context);
		entered = rc == success;
		return rc;
	}
	void leave() override
	{
		Context old;
		table_.pop(&old);
	}
	int alloc_pinned(uint64_t size, void **out) override
	{
		const BesideCaptures beside(table_);
		return table_.host_alloc(out, size, host_alloc_portable);
	}
	void free_pinned(void *memory) override
	{
		const BesideCaptures beside(table_);
		table_.host_free(memory);
	}
	int alloc_device(uint64_t size, void **out) override
	{
		const BesideCaptures beside(table_);
		Address address = 0;
		const int rc = table_.alloc(&address, size);
		*out = reinterpret_cast<void *>(address);
		return rc;
	}
	void free_device(void *memory) override
	{
		const BesideCaptures beside(table_);
		table_.free(number(memory));
	}
	// Highest priority: the work is short, and the program waits for it. Non-blocking: it does not wait for default
	// streams.
	int create_stream(Stream *out) override
	{
		int least = 0, greatest = 0;
		table_.stream_priorities(&least, &greatest);
		return table_.stream_create(out, stream_non_blocking, greatest);
	}
	void destroy_stream(Stream stream) override { table_.stream_destroy(stream); }
	int create_event(Event *out) override { return table_.event_create(out, event_disable_timing); }
	void destroy_event(Event event) override { table_.event_destroy(event); }
	int record(Event event, Stream stream) override { return table_.event_record(event, stream); }
	int wait(Event event) override
	{
		const BesideCaptures beside(table_);
		return table_.event_wait(event);
	}
	int wait_stream(Stream stream) override
	{
		const BesideCaptures beside(table_);
		return table_.stream_wait(stream);
	}
	// One call for several copies: each call costs the driver as long as 100 KiB cost the bus.
	int copy_to_device(const Copy *copies, size_t n, Stream stream) override
	{
		constexpr size_t most = 64;
		int rc = success;
		while (n && !rc) {
			const size_t part = std::min(n, most);
			if (part > 1 && table_.copy_many) {
				Address to[most], from[most];
				size_t sizes[most], which = 0;
				for (size_t i = 0; i < part; i++) {
					to[i] = number(copies[i].device);
					from[i] = number(copies[i].host);
					sizes[i] = copies[i].size;
				}
				CopyAttributes attributes = {order_of_stream, {}, 0};
				// It is not documented whether a capture forbids this call.
				const BesideCaptures beside(table_);
				rc = table_.copy_many(to, from, sizes, part, &attributes, &which, 1, stream);
			} else {
				for (size_t i = 0; i < part && !rc; i++)
					rc = table_.copy_to_device(number(copies[i].device), copies[i].host,
								   copies[i].size, stream);
			}
			copies += part;
			n -= part;
		}
		return rc;
	}
	int copy_to_host(void *host, const void *device, uint64_t size, Stream stream) override
	{
		return table_.copy_to_host(host, number(device), size, stream);
	}
	// The driver finds the devices by the addresses.
	int copy_between_devices(void *to, const void *from, uint64_t size, Stream stream) override
	{
		return table_.copy_any(number(to), number(from), size, stream);
	}

	int stream_id(Stream stream, uint64_t &id) override
	{
		id = 0;
		const BesideCaptures beside(table_);
		Context context;
		bool entered;
		int rc = enter_stream(stream, context, entered);
		if (rc)
			return rc;
		unsigned long long number = 0;
		rc = table_.stream_id(stream, &number);
		if (entered)
			leave();
		id = number;
		return rc;
	}
	int query_stream(Stream stream, StreamInfo &out) override
	{
		out = {};
		// The default capture mode also forbids loading the kernel.
		const BesideCaptures beside(table_);
		if (!table_.load_library || !table_.library_kernel || !table_.kernel_function || !table_.launch)
			return not_found;
		const int loaded = load_copy_kernel();
		if (loaded)
			return loaded;
		unsigned long long id = 0;
		bool entered;
		int rc = enter_stream(stream, out.context, entered);
		if (rc)
			return rc;
		void *graph = nullptr;
		out.captured = capture_of(stream, graph);
		// Translates the kernel for this GPU now: a later failure would leave half of the I/O in the stream.
		void *function = nullptr;
		rc = table_.kernel_function(&function, copy_kernel_);
		// Captured work belongs to no stream yet.
		if (!rc && !out.captured)
			rc = table_.stream_id(stream, &id);
		if (entered)
			leave();
		out.id = id;
		return rc;
	}
	int launch_copy(const CopyDescriptor *order, Stream stream) override
	{
		const BesideCaptures beside(table_);
		void *function = nullptr, *arguments[] = {&order};
		const int rc = table_.kernel_function(&function, copy_kernel_);
		return rc ? rc :
			    table_.launch(function, copy_kernel_blocks, 1, 1, copy_kernel_threads, 1, 1, 0, stream,
					  arguments, nullptr);
	}

	int call_in_stream(Stream stream, void (*call)(void *), void (*gone)(void *), void *arg,
			   bool &captured) override
	{
		captured = false;
		if (!table_.launch_host)
			return not_found;
		void *graph = nullptr;
		const bool capturing = capture_of(stream, graph);
		const int rc = table_.launch_host(stream, call, arg);
		if (rc || !capturing)
			return rc;
		captured = true;
		if (!gone)
			return success;
		void *object = nullptr;
		// If it cannot be tied to the graph it is never freed, which is harmless.
		if (table_.object_create(&object, arg, gone, 1, user_object_no_sync) == success)
			table_.graph_retain(graph, object, 1, graph_takes_reference);
		return success;
	}

	int device_count(int &count) override
	{
		const int rc = table_.init(0);
		return rc ? rc : table_.device_count(&count);
	}
	int primary(int device, Context &out) override { return primary_context(device, out); }
	int current_device(int &device) override
	{
		return table_.current_device ? table_.current_device(&device) : not_found;
	}
	bool can_access_peer(int device, int other) override
	{
		int handles[2] = {}, can = device == other;
		if (can || !table_.can_access || table_.device_get(&handles[0], device) ||
		    table_.device_get(&handles[1], other))
			return can;
		return !table_.can_access(&can, handles[0], handles[1]) && can;
	}
	int uuid(int device, char (&out)[CUFILE_GPU_UUID_LEN]) override
	{
		int handle = 0;
		const int rc = table_.device_get(&handle, device);
		return rc ? rc : table_.uuid ? table_.uuid(out, handle) : not_found;
	}
	int pci_address(int device, std::string &out) override
	{
		int handle = 0;
		char text[32] = {};
		int rc = table_.device_get(&handle, device);
		if (!rc)
			rc = table_.pci_address ? table_.pci_address(text, sizeof(text), handle) : not_found;
		out = text;
		return rc;
	}

private:
	template <class Get> void find(Get &get)
	{
		get(table_.init, "cuInit");
		get(table_.attributes, "cuPointerGetAttributes");
		get(table_.current, "cuCtxGetCurrent");
		get(table_.push, "cuCtxPushCurrent_v2");
		get(table_.pop, "cuCtxPopCurrent_v2");
		get(table_.host_alloc, "cuMemHostAlloc");
		get(table_.host_free, "cuMemFreeHost");
		get(table_.stream_create, "cuStreamCreateWithPriority");
		get(table_.stream_priorities, "cuCtxGetStreamPriorityRange");
		get(table_.stream_destroy, "cuStreamDestroy_v2");
		get(table_.stream_wait, "cuStreamSynchronize");
		get(table_.event_create, "cuEventCreate");
		get(table_.event_destroy, "cuEventDestroy_v2");
		get(table_.event_record, "cuEventRecord");
		get(table_.event_wait, "cuEventSynchronize");
		get(table_.copy_to_device, "cuMemcpyHtoDAsync_v2");
		get(table_.copy_to_host, "cuMemcpyDtoHAsync_v2");
		get(table_.copy_any, "cuMemcpyAsync");
		get(table_.alloc, "cuMemAlloc_v2");
		get(table_.free, "cuMemFree_v2");
		get(table_.device_count, "cuDeviceGetCount");
		get(table_.device_get, "cuDeviceGet");
		get(table_.primary, "cuDevicePrimaryCtxRetain");
		get(table_.launch_host, "cuLaunchHostFunc", false);
		get(table_.capture, "cuStreamGetCaptureInfo_v2", false);
		get(table_.object_create, "cuUserObjectCreate", false);
		get(table_.graph_retain, "cuGraphRetainUserObject", false);
		get(table_.uuid, "cuDeviceGetUuid", false);
		get(table_.current_device, "cuCtxGetDevice", false);
		get(table_.can_access, "cuDeviceCanAccessPeer", false);
		get(table_.exchange_mode, "cuThreadExchangeStreamCaptureMode", false);
		get(table_.pci_address, "cuDeviceGetPCIBusId", false);
		get(table_.set_attribute, "cuPointerSetAttribute", false);
		get(table_.retain_mapped, "cuMemRetainAllocationHandle", false);
		get(table_.release_mapped, "cuMemRelease", false);
		get(table_.stream_context, "cuStreamGetCtx", false);
		get(table_.stream_id, "cuStreamGetId", false);
		get(table_.load_library, "cuLibraryLoadData", false);
		get(table_.library_kernel, "cuLibraryGetKernel", false);
		get(table_.kernel_function, "cuKernelGetFunction", false);
		get(table_.launch, "cuLaunchKernel", false);
		get(table_.copy_many, "cuMemcpyBatchAsync_v2", false);
	}

	// Enters the stream's context; for a default stream that is the calling thread's. Queries of the stream need
	// it.
	int enter_stream(Stream stream, Context &context, bool &entered)
	{
		context = nullptr;
		entered = false;
		if (!table_.stream_id || !table_.stream_context)
			return not_found;
		const auto name = reinterpret_cast<uintptr_t>(stream);
		const int rc =
			name > last_named_stream ? table_.stream_context(stream, &context) : table_.current(&context);
		if (rc || !context)
			return rc ? rc : invalid_context;
		return enter(context, entered);
	}

	bool capture_of(Stream stream, void *&graph)
	{
		if (!table_.capture || !table_.object_create || !table_.graph_retain)
			return false;
		int status = 0;
		unsigned long long id = 0;
		const void **needs = nullptr;
		size_t count = 0;
		// An error here comes from another stream's capture; the launch will report it again.
		return !table_.capture(stream, &status, &id, &graph, &needs, &count) && status == capture_active;
	}

	// Once for all contexts.
	int load_copy_kernel()
	{
		const std::lock_guard guard(lock_);
		if (copy_kernel_ || copy_kernel_error_)
			return copy_kernel_error_;
		void *library = nullptr;
		int rc = table_.load_library(&library, copy_kernel_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0);
		if (!rc)
			rc = table_.library_kernel(&copy_kernel_, library, copy_kernel_name);
		if (rc)
			copy_kernel_ = nullptr;
		// Running out of memory may pass.
		if (rc && rc != out_of_memory)
			copy_kernel_error_ = rc;
		return rc;
	}

	// Retained once for each device and kept. It is the context of the runtime API.
	int primary_context(int ordinal, Context &context)
	{
		if (ordinal < 0 || ordinal >= max_devices)
			return invalid_value;
		std::lock_guard guard(lock_);
		if (!primary_[ordinal]) {
			const BesideCaptures beside(table_);
			int device = 0;
			int rc = table_.device_get(&device, ordinal);
			if (!rc)
				rc = table_.primary(&primary_[ordinal], device);
			if (rc) {
				primary_[ordinal] = nullptr;
				return rc;
			}
		}
		context = primary_[ordinal];
		return success;
	}

	Loader driver_{"libcuda.so.1"};
	Table table_{};                  // immutable once driver_ is loaded
	std::mutex lock_;                // protects all below
	Context primary_[max_devices]{}; // nullptr until used
	void *copy_kernel_ = nullptr;    // immutable once it is set
	int copy_kernel_error_ = 0;      // permanent error, a CUresult
};

constinit RealCuda the_cuda;

} // namespace

Cuda &real_cuda() { return the_cuda; }

} // namespace cufile
