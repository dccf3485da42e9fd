// SPDX-License-Identifier: MIT
//
// Reads of views that the storage moves into the memory of a CUDA device itself. The driver is a fake whose memory consists of
// buffers of libpeerdma, as that of an emulated GPU does, and which does everything at once.
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fake_syscalls.hpp"
#include "peerdma.hpp"
#include "view_image.hpp"
#include "view_range.hpp"
#include "view_values.hpp"

namespace
{

using Address = unsigned long long;

// The only one. The functions stay valid: the library looks them up once in a process.
struct FakeCuda {
	struct peerdma_device *device = nullptr; // its own handle
	std::map<Address, peerdma_buf *> memory;
	int context = 0, live = 0, launches = 0, copies_from_host = 0;
	int waits_for_slots = 0;
	int alloc_error = 0, library_error = 0, libraries = 0; // CUresult; loaded and not unloaded

	static FakeCuda *current;
	static bool has_kernels; // of this process: the library keeps them

	FakeCuda() { current = this; }
	~FakeCuda() { current = nullptr; }
	FakeCuda(const FakeCuda &) = delete;
	FakeCuda &operator=(const FakeCuda &) = delete;

	peerdma_buf *alloc(Address *out, size_t size)
	{
		peerdma_buf *made = nullptr;
		void *at = nullptr;
		EXPECT_EQ(peerdma_buf_create(device, 1, (size + 4095) / 4096 * 4096, 0, &made, nullptr), 0);
		EXPECT_EQ(peerdma_buf_map(made, &at), 0);
		*out = reinterpret_cast<Address>(at);
		memory[*out] = made;
		return made;
	}
};
FakeCuda *FakeCuda::current;
bool FakeCuda::has_kernels;

size_t size_of(peerdma_buf *buf)
{
	auto info = peerdma::detail::sized<peerdma_buf_info>();
	EXPECT_EQ(peerdma_buf_query(buf, &info), 0);
	return info.len;
}

int attributes(unsigned count, int *which, void **answers, Address address)
{
	const auto &memory = FakeCuda::current ? FakeCuda::current->memory : std::map<Address, peerdma_buf *>();
	auto next = memory.upper_bound(address);
	const bool known =
		next != memory.begin() && address - std::prev(next)->first < size_of(std::prev(next)->second);
	for (unsigned i = 0; i < count; i++)
		switch (which[i]) {
		case 1: // context
			*static_cast<void **>(answers[i]) = known ? &FakeCuda::current->context : nullptr;
			break;
		case 2: // type
			*static_cast<unsigned *>(answers[i]) = known ? 2 : 0;
			break;
		case 8: // managed
			*static_cast<unsigned *>(answers[i]) = 0;
			break;
		case 9: // ordinal
			*static_cast<int *>(answers[i]) = known ? 0 : -2;
			break;
		case 11: // start
			*static_cast<Address *>(answers[i]) = known ? std::prev(next)->first : 0;
			break;
		case 12: // size
			*static_cast<size_t *>(answers[i]) = known ? size_of(std::prev(next)->second) : 0;
			break;
		}
	return 0;
}

int get_current(void **context)
{
	*context = &FakeCuda::current->context;
	return 0;
}
int push(void *) { return 0; }
int pop(void **) { return 0; }
int device_get(int *, int) { return 100; }
int primary(void **, int) { return 100; }
int host_alloc(void **out, size_t size, unsigned)
{
	*out = new char[size];
	return 0;
}
int host_free(void *memory)
{
	delete[] static_cast<char *>(memory);
	return 0;
}
int mem_alloc(Address *out, size_t size)
{
	if (FakeCuda::current->alloc_error)
		return FakeCuda::current->alloc_error;
	FakeCuda::current->alloc(out, size);
	return 0;
}
int mem_free(Address address)
{
	peerdma_buf_destroy(FakeCuda::current->memory.at(address));
	FakeCuda::current->memory.erase(address);
	return 0;
}
int make(void **out, unsigned)
{
	*out = &FakeCuda::current->live;
	FakeCuda::current->live++;
	return 0;
}
int unmake(void *)
{
	FakeCuda::current->live--;
	return 0;
}
int wait(void *) { return 0; }
int event_wait(void *)
{
	FakeCuda::current->waits_for_slots++;
	return 0;
}
int stream_wait_event(void *, void *, unsigned) { return 0; }
int event_record(void *, void *) { return 0; }
int copy_in(Address to, const void *from, size_t size, void *)
{
	FakeCuda::current->copies_from_host++;
	std::memcpy(reinterpret_cast<void *>(to), from, size);
	return 0;
}
int copy_within(Address to, Address from, size_t size, void *)
{
	std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), size);
	return 0;
}
int load_library(void **out, const void *code, void *, void **, unsigned, void *, void **, unsigned)
{
	*out = const_cast<void *>(code);
	FakeCuda::current->libraries++;
	return 0;
}
int unload_library(void *)
{
	FakeCuda::current->libraries--;
	return 0;
}
int library_kernel(void **out, void *library, const char *)
{
	*out = library;
	FakeCuda::has_kernels = !FakeCuda::current->library_error;
	return FakeCuda::current->library_error;
}
int kernel_function(void **out, void *kernel)
{
	*out = kernel;
	return 0;
}
int launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **parameters,
	   void **)
{
	const auto wide_number = [&](int i) { return *static_cast<const uint64_t *>(parameters[i]); };
	const auto number = [&](int i) { return *static_cast<const uint32_t *>(parameters[i]); };
	const auto *const from = reinterpret_cast<const unsigned char *>(wide_number(1));
	const uint64_t count = wide_number(2), bits = number(3), skip = number(4);
	FakeCuda::current->launches++;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t value = 0;
		for (uint64_t bit = 0; bit < bits; bit++) {
			const uint64_t at = skip + i * bits + bit;
			value |= uint64_t{from[at / 8] >> at % 8 & 1U} << bit;
		}
		const size_t width = number(6) ? 8 : 4;
		std::memcpy(reinterpret_cast<char *>(wide_number(0)) + i * width, &value, width);
	}
	return 0;
}

template <class Function> void *pointer(Function *function) { return reinterpret_cast<void *>(function); }

const std::map<std::string, void *> functions = {
	{"libcuda.so.1 cuPointerGetAttributes", pointer(attributes)},
	{"libcuda.so.1 cuCtxGetCurrent", pointer(get_current)},
	{"libcuda.so.1 cuCtxPushCurrent_v2", pointer(push)},
	{"libcuda.so.1 cuCtxPopCurrent_v2", pointer(pop)},
	{"libcuda.so.1 cuDeviceGet", pointer(device_get)},
	{"libcuda.so.1 cuDevicePrimaryCtxRetain", pointer(primary)},
	{"libcuda.so.1 cuMemHostAlloc", pointer(host_alloc)},
	{"libcuda.so.1 cuMemFreeHost", pointer(host_free)},
	{"libcuda.so.1 cuMemAlloc_v2", pointer(mem_alloc)},
	{"libcuda.so.1 cuMemFree_v2", pointer(mem_free)},
	{"libcuda.so.1 cuStreamCreate", pointer(make)},
	{"libcuda.so.1 cuStreamDestroy_v2", pointer(unmake)},
	{"libcuda.so.1 cuStreamQuery", pointer(wait)},
	{"libcuda.so.1 cuStreamSynchronize", pointer(wait)},
	{"libcuda.so.1 cuStreamWaitEvent", pointer(stream_wait_event)},
	{"libcuda.so.1 cuEventCreate", pointer(make)},
	{"libcuda.so.1 cuEventDestroy_v2", pointer(unmake)},
	{"libcuda.so.1 cuEventRecord", pointer(event_record)},
	{"libcuda.so.1 cuEventSynchronize", pointer(event_wait)},
	{"libcuda.so.1 cuMemcpyHtoDAsync_v2", pointer(copy_in)},
	{"libcuda.so.1 cuMemcpyDtoDAsync_v2", pointer(copy_within)},
	{"libcuda.so.1 cuLibraryLoadData", pointer(load_library)},
	{"libcuda.so.1 cuLibraryUnload", pointer(unload_library)},
	{"libcuda.so.1 cuLibraryGetKernel", pointer(library_kernel)},
	{"libcuda.so.1 cuKernelGetFunction", pointer(kernel_function)},
	{"libcuda.so.1 cuLaunchKernel", pointer(launch)},
};

// A view of 20000 elements of 17 bits.
class DirectView : public ::testing::Test
{
protected:
	static constexpr uint64_t elements = 20000;
	static constexpr unsigned bits = 17;

	DirectView()
	{
		sys.functions = functions;
		sys.add_provider(0, 0x0100, 2, 0, 1 << 30);
		EXPECT_EQ(peerdma_open(&cuda.device, 0), 0);
		Values values(elements);
		for (uint64_t i = 0; i < elements; i++)
			values[i] = value(i);
		content().bytes = image("u32:17", elements, packed(values, bits));
		content().bytes.resize((content().bytes.size() + 4095) / 4096 * 4096);
		content().mode = S_IFBLK | 0600;
	}
	~DirectView() override
	{
		peerdma_view_close(view);
		peerdma_close(device);
		while (!cuda.memory.empty())
			mem_free(cuda.memory.begin()->first);
		peerdma_close(cuda.device);
		EXPECT_EQ(cuda.live, 0) << "a stream or an event leaked";
		EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
		EXPECT_TRUE(sys.file_ids.empty()) << "a file leaked";
		EXPECT_TRUE(sys.buffers.empty()) << "a buffer leaked";
	}

	FakeSyscalls::Content &content() { return sys.contents["/v"]; }
	static uint32_t value(uint64_t i) { return static_cast<uint32_t>(i * 2654435761u >> 9) & 0x1ffff; }
	void open(uint32_t flags = 0, uint32_t view_flags = 0)
	{
		auto args = peerdma::detail::sized<peerdma_view_args>();
		args.flags = view_flags;
		ASSERT_EQ(peerdma_open(&device, flags), 0);
		ASSERT_EQ(peerdma_view_open(device, "/v", &args, &view), 0);
		cuda.alloc(&to, elements * 8);
	}
	int64_t read(uint64_t first, uint64_t count, uint32_t as = PEERDMA_VIEW_AS_FILE, uint32_t flags = 0)
	{
		auto what = range(reinterpret_cast<void *>(to), first, count, as);
		what.flags = flags;
		std::memset(what.to, 0x77, elements * 8);
		result = peerdma::detail::sized<peerdma_view_result>();
		return peerdma_view_read(view, &what, &result);
	}
	bool is_right(uint64_t first, uint64_t count) const
	{
		const auto *const got = reinterpret_cast<const uint32_t *>(to);
		for (uint64_t i = 0; i < count; i++)
			if (got[i] != value(first + i))
				return false;
		return got[count] == 0x77777777;
	}

	FakeSyscalls sys;
	FakeCuda cuda;
	struct peerdma_device *device = nullptr;
	struct peerdma_view *view = nullptr;
	Address to = 0;
	peerdma_view_result result = {};
};

} // namespace

// The first of these: kernels are loaded once in a process.
TEST_F(DirectView, KernelsThatCannotBeLoadedNowAreLoadedLater)
{
	if (FakeCuda::has_kernels)
		GTEST_SKIP() << "another test has loaded them";
	open();
	for (const auto &[failure, expected] :
	     {std::pair{304, -EIO}, {2, -ENOMEM}}) { // of the operating system; memory
		cuda.library_error = failure;
		EXPECT_EQ(read(0, 10), expected);
		EXPECT_EQ(cuda.libraries, 0);
	}
	cuda.library_error = 0;
	EXPECT_EQ(read(0, 10), 10);
	EXPECT_EQ(cuda.libraries, 1);
}

TEST_F(DirectView, TheStorageFillsMemoryOfTheDevice)
{
	open();
	for (const auto &[first, count] : std::vector<std::pair<uint64_t, uint64_t>>{
		     {0, elements}, {1, 1}, {3, 19000}, {8, 4096}, {12345, 7655}, {19999, 1}}) {
		ASSERT_EQ(read(first, count), static_cast<int64_t>(count));
		EXPECT_TRUE(is_right(first, count)) << first << ", " << count;
		EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT));
		EXPECT_EQ(result.direct, result.read);
		EXPECT_GE(result.read, count * bits / 8);
		EXPECT_EQ(result.read % 4096, 0u) << "whole blocks";
		EXPECT_EQ(result.host, 0u);
		EXPECT_EQ(result.by, static_cast<uint32_t>(PEERDMA_VIEW_BY_GPU));
	}
	EXPECT_EQ(cuda.copies_from_host, 0);
	// Packed.
	const int launches = cuda.launches;
	ASSERT_EQ(read(8, 800, PEERDMA_VIEW_AS_PACKED), 800);
	EXPECT_EQ(std::memcmp(reinterpret_cast<const char *>(to), &content().bytes[4096 + bits], 100 * bits), 0);
	EXPECT_EQ(reinterpret_cast<const char *>(to)[100 * bits], 0x77);
	EXPECT_EQ(cuda.launches, launches);
	EXPECT_EQ(result.moved, 100u * bits);
	EXPECT_EQ(sys.posix_fds.size(), 1u) << "only the header went through the page cache";
}

// More pieces than a read has slots, in the order of a stream.
TEST_F(DirectView, ALongReadUsesItsSlotsAgain)
{
	const Values values = random_values(6000000, 32);
	content().bytes = image("u32:none", values.size(), bytes_of(values, 4));
	content().bytes.resize((content().bytes.size() + 4095) / 4096 * 4096);
	open();
	int stream = 0;
	for (const uint64_t first : {0, 12345}) {
		Address destination = 0;
		cuda.alloc(&destination, values.size() * 4 + 64);
		auto what = range(reinterpret_cast<void *>(destination), first, values.size() - first);
		what.stream = &stream;
		std::memset(what.to, 0x77, values.size() * 4 + 64);
		cuda.waits_for_slots = 0;
		result = peerdma::detail::sized<peerdma_view_result>();
		ASSERT_EQ(peerdma_view_read(view, &what, &result), static_cast<int64_t>(what.count));
		EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT));
		const std::string expected = bytes_of(part_of(values, first, what.count), 4);
		EXPECT_EQ(std::memcmp(what.to, expected.data(), expected.size()), 0);
		EXPECT_EQ(static_cast<const char *>(what.to)[expected.size()], 0x77);
		EXPECT_GE(cuda.waits_for_slots, 4);
	}
}

TEST_F(DirectView, WithoutARouteItGoesThroughHostMemoryAndSaysWhy)
{
	content().refused_errno = EXDEV;
	content().refused_reason = PEERDMA_REASON_QUEUE;
	open();
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(read(5, 15000), 15000);
		EXPECT_TRUE(is_right(5, 15000));
		EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_QUEUE));
		EXPECT_EQ(result.direct, 0u);
	}
	EXPECT_GT(cuda.copies_from_host, 0);
}

TEST_F(DirectView, WithoutARouteAHandleThatRequiresOneIsRefused)
{
	content().refused_errno = EXDEV;
	content().refused_reason = PEERDMA_REASON_QUEUE;
	open(PEERDMA_OPEN_REQUIRE_DIRECT);
	EXPECT_EQ(read(5, 15000), -EXDEV);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_QUEUE));
	EXPECT_EQ(*reinterpret_cast<const char *>(to), 0x77);
}

TEST_F(DirectView, ARuleIsNoReasonToTakeHostMemory)
{
	sys.files["/etc/peerdma/rules"] = "deny file=/v\n";
	// Rules are read when a handle is opened.
	peerdma_close(cuda.device);
	ASSERT_EQ(peerdma_open(&cuda.device, 0), 0);
	open();
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(read(5, 15000), -EACCES);
		EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_RULE));
		EXPECT_EQ(*reinterpret_cast<const char *>(to), 0x77);
	}
	EXPECT_EQ(cuda.copies_from_host, 0);
}

TEST_F(DirectView, ARefusalThatMayPassIsAskedForAgain)
{
	content().refused_errno = EXDEV;
	content().refused_reason = PEERDMA_REASON_RDMA_ROUTE;
	open();
	ASSERT_EQ(read(5, 15000), 15000);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_RDMA_ROUTE));
	content().refused_errno = 0;
	content().refused_reason = 0;
	// Not by each read.
	ASSERT_EQ(read(5, 15000), 15000);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
	for (int i = 0; i < 100 && result.route == PEERDMA_ROUTE_HOST; i++) {
		usleep(50000);
		ASSERT_EQ(read(5, 15000), 15000);
		EXPECT_TRUE(is_right(5, 15000));
	}
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT));
	EXPECT_EQ(result.reason, 0u);
}

TEST_F(DirectView, WithoutMemoryItIsNoMatterOfRoutes)
{
	open(PEERDMA_OPEN_REQUIRE_DIRECT);
	cuda.alloc_error = 2;
	EXPECT_EQ(read(5, 15000), -ENOMEM);
	cuda.alloc_error = 0;
	EXPECT_EQ(read(5, 15000), 15000);
}

TEST_F(DirectView, WithChecksumsToVerifyItGoesThroughHostMemory)
{
	open(0, PEERDMA_VIEW_OPEN_VERIFY);
	ASSERT_EQ(read(5, 15000), 15000);
	EXPECT_TRUE(is_right(5, 15000));
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
	EXPECT_EQ(result.direct, 0u);
	EXPECT_GT(cuda.copies_from_host, 0);
	content().bytes[5000] ^= 1;
	EXPECT_EQ(read(5, 15000), -EBADMSG);
	EXPECT_EQ(result.done, 0u);
}

TEST_F(DirectView, ChecksumsCannotBeVerifiedWithAHandleThatRequiresARoute)
{
	open(PEERDMA_OPEN_REQUIRE_DIRECT, PEERDMA_VIEW_OPEN_VERIFY);
	EXPECT_EQ(read(5, 15000), -EXDEV);
	EXPECT_EQ(*reinterpret_cast<const char *>(to), 0x77);
}

TEST_F(DirectView, InPlaceItGoesThroughHostMemory)
{
	open();
	ASSERT_EQ(read(5, 15000, PEERDMA_VIEW_AS_FILE, PEERDMA_VIEW_READ_IN_PLACE), 15000);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_HOST));
}

TEST_F(DirectView, ABlockThatCannotBeReadBesideTheElements)
{
	open();
	ASSERT_EQ(read(100, 10), 10);
	// Only what is asked for.
	sys.on_ioctl = [](unsigned long request, void *arg) {
		const bool all = request == PEERDMA_READ && static_cast<peerdma_io *>(arg)->len == 4096;
		return all ? -EIO : 1;
	};
	EXPECT_EQ(read(100, 10), 10);
	EXPECT_TRUE(is_right(100, 10));
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_READ ? -EIO : 1; };
	EXPECT_EQ(read(100, 10), -EIO);
	EXPECT_EQ(result.done, 0u);
	// Once where it would be the same again: 4096 bytes in whole blocks, and where nothing else could come.
	const auto tries = [this](int error, uint64_t first, uint64_t count) {
		int nr = 0;
		sys.on_ioctl = [&](unsigned long request, void *) {
			nr += request == PEERDMA_READ;
			return request == PEERDMA_READ ? error : 1;
		};
		EXPECT_EQ(read(first, count, PEERDMA_VIEW_AS_PACKED), error);
		return nr;
	};
	EXPECT_EQ(tries(-EIO, 0, 4096 * 8 / bits * 8), 2);
	EXPECT_EQ(tries(-ENODEV, 8, 8), 1);
	sys.on_ioctl = nullptr;
	// The device has become smaller.
	content().bytes.resize(4096 + 200);
	EXPECT_EQ(read(0, 90), 90);
	EXPECT_EQ(read(0, 100), -ENODATA);
}
