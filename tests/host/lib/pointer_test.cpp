// SPDX-License-Identifier: MIT
//
// Device memory by its address. The vendors' libraries are fakes: each has one allocation, or refuses.
#include <gtest/gtest.h>

#include <cstring>

#include "fake_syscalls.hpp"
#include "lib/pointer.hpp"
#include "peerdma.hpp"

namespace
{

using peerdma_impl::frames_around;
using peerdma_impl::Range;

constexpr uint64_t page = 4096, frame = 65536;
constexpr uint32_t drive = 0x300;

// --- The libraries

struct Fake {
	uint64_t start = 0, size = 0;  // of its allocation; 0: none
	int look_error = 0, error = 0; // of the query and of the export
	int fd = 500;
	uint64_t off = 0;            // of the allocation in the dma-buf
	uint32_t type = 0;           // the vendor's number for device memory, set before each test
	std::vector<uint64_t> asked; // exported ranges: address, length, flags
	void *context = nullptr;
	int push_error = 0;
	std::vector<void *> entered; // the current context at each export
	bool has(uint64_t at) const { return size && at >= start && at - start < size; }
};
Fake cuda, hsa, ze;
bool old_cuda; // rejects flags
char own_context, given_context, a_driver;
void *in_context;
int retained;

int cu_attributes(unsigned n, int *which, void **answers, unsigned long long at)
{
	for (unsigned i = 0; i < n && !cuda.look_error; i++)
		switch (which[i]) {
		case 2:
			*static_cast<unsigned *>(answers[i]) = cuda.has(at) ? cuda.type : 0;
			break;
		case 1:
			*static_cast<void **>(answers[i]) = cuda.context;
			break;
		case 9:
			*static_cast<int *>(answers[i]) = 3;
			break;
		case 11:
			*static_cast<unsigned long long *>(answers[i]) = cuda.start;
			break;
		case 12:
			*static_cast<size_t *>(answers[i]) = cuda.size;
			break;
		default:
			ADD_FAILURE() << "attribute " << which[i];
		}
	return cuda.look_error;
}

int cu_push(void *context)
{
	in_context = context;
	return cuda.push_error;
}

int cu_pop(void **old)
{
	*old = in_context;
	in_context = nullptr;
	return 0;
}

int cu_device(int *device, int ordinal)
{
	*device = ordinal + 10;
	return 0;
}

int cu_retain(void **context, int device)
{
	EXPECT_EQ(device, 13);
	retained++;
	*context = &own_context;
	return 0;
}

int cu_release(int device)
{
	EXPECT_EQ(device, 13);
	retained--;
	return 0;
}

int cu_handle(void *fd, unsigned long long at, size_t size, int type, unsigned long long flags)
{
	EXPECT_EQ(type, 1);
	cuda.asked.insert(cuda.asked.end(), {at, size, flags});
	cuda.entered.push_back(in_context);
	if (flags && old_cuda)
		return 801;
	*static_cast<int *>(fd) = cuda.fd;
	return cuda.error;
}

struct HsaInfo {
	uint32_t size;
	uint32_t type;
	void *at_device, *at_host;
	size_t bytes;
	void *user;
	uint64_t owner;
};

constexpr uint64_t a_cpu = 4711, a_gpu = 4712;
uint64_t hsa_owner;        // of its memory
uint32_t hsa_knows = 4096; // size of the struct that it fills in

int hsa_ask(uint64_t agent, int what, void *out)
{
	EXPECT_EQ(what, 17);
	*static_cast<uint32_t *>(out) = agent == a_gpu;
	return agent == a_cpu || agent == a_gpu ? 0 : 0x1001;
}

int hsa_look(const void *at, HsaInfo *info, void *(*alloc)(size_t), uint32_t *count, void **agents)
{
	EXPECT_GE(info->size, sizeof(*info));
	EXPECT_FALSE(alloc || count || agents);
	info->type = hsa.has(reinterpret_cast<uintptr_t>(at)) ? hsa.type : 0;
	info->at_device = reinterpret_cast<void *>(hsa.start);
	info->bytes = hsa.size;
	info->owner = hsa_owner;
	info->size = std::min(info->size, hsa_knows);
	return hsa.look_error;
}

int hsa_export(const void *at, size_t size, int *fd, uint64_t *off)
{
	hsa.asked.insert(hsa.asked.end(), {reinterpret_cast<uintptr_t>(at), size});
	*fd = hsa.fd;
	*off = hsa.off + reinterpret_cast<uintptr_t>(at) - hsa.start;
	return hsa.error;
}

struct ZeFd {
	uint32_t kind;
	const void *next;
	uint32_t flags;
	int fd;
};

struct ZeProperties {
	uint32_t kind;
	ZeFd *next;
	uint32_t type;
	uint64_t id, page_size;
};

int ze_look(void *context, const void *at, ZeProperties *out, void **)
{
	EXPECT_EQ(out->kind, 0x17u);
	const bool here =
		(context == &given_context || context == &own_context) && ze.has(reinterpret_cast<uintptr_t>(at));
	out->type = here ? ze.type : 0;
	if (!out->next)
		return ze.look_error;
	EXPECT_EQ(out->next->kind, 0x1au);
	EXPECT_EQ(out->next->flags, 2u);
	ze.asked.push_back(reinterpret_cast<uintptr_t>(at));
	out->next->fd = ze.fd;
	return ze.error;
}

int ze_range(void *, const void *, void **start, size_t *size)
{
	*start = reinterpret_cast<void *>(ze.start);
	*size = ze.size;
	return 0;
}

int ze_drivers(uint32_t *count, void **drivers)
{
	EXPECT_GE(*count, 2u);
	*count = 2;
	drivers[0] = nullptr;
	drivers[1] = &a_driver;
	return 0;
}

void *ze_default(void *driver) { return driver ? &own_context : nullptr; }

class Pointer : public ::testing::Test
{
protected:
	Pointer()
	{
		FakeSyscalls::current = &sys;
		sys.add_provider(0, 0x100, 2, 0, 64 << 20);
		EXPECT_EQ(peerdma_open(&device, 0), 0);
		cuda = hsa = ze = {};
		cuda.type = ze.type = 2;
		hsa.type = 1;
		hsa_owner = 0, hsa_knows = 4096;
		old_cuda = false;
		retained = 0;
		args.size = sizeof(args);
		args.pci_bdf = drive;
		sys.on_ioctl = [this](unsigned long request, void *arg) {
			if (request != PEERDMA_BUF_IMPORT)
				return 1;
			import = *static_cast<peerdma_buf_import *>(arg);
			imports++;
			open_then = closed.empty();
			return 1;
		};
	}
	~Pointer() override
	{
		peerdma_buf_destroy(buf);
		peerdma_close(device);
		FakeSyscalls::current = nullptr;
	}
	template <class Function> void add(const char *name, Function *function)
	{
		sys.functions[name] = reinterpret_cast<void *>(function);
	}
	void load_cuda()
	{
		add("libcuda.so.1 cuPointerGetAttributes", cu_attributes);
		add("libcuda.so.1 cuMemGetHandleForAddressRange", cu_handle);
		add("libcuda.so.1 cuCtxPushCurrent_v2", cu_push);
		add("libcuda.so.1 cuCtxPopCurrent_v2", cu_pop);
		add("libcuda.so.1 cuDeviceGet", cu_device);
		add("libcuda.so.1 cuDevicePrimaryCtxRetain", cu_retain);
		add("libcuda.so.1 cuDevicePrimaryCtxRelease_v2", cu_release);
	}
	void load_hsa()
	{
		add("libhsa-runtime64.so.1 hsa_amd_pointer_info", hsa_look);
		add("libhsa-runtime64.so.1 hsa_amd_portable_export_dmabuf", hsa_export);
		add("libhsa-runtime64.so.1 hsa_agent_get_info", hsa_ask);
	}
	void load_ze()
	{
		add("libze_loader.so.1 zeMemGetAllocProperties", ze_look);
		add("libze_loader.so.1 zeMemGetAddressRange", ze_range);
		add("libze_loader.so.1 zeDriverGet", ze_drivers);
		add("libze_loader.so.1 zeDriverGetDefaultContext", ze_default);
	}
	int from(uint64_t addr, uint64_t len)
	{
		peerdma_buf_destroy(buf);
		buf = nullptr;
		args.addr = addr;
		args.len = len;
		args.out_memory = args.out_reason = 99;
		return peerdma_buf_from_pointer(device, &args, &buf);
	}
	// Refused before any request to the module.
	void refused(int rc, uint32_t reason, uint32_t memory, int result = 0)
	{
		EXPECT_EQ(rc, reason == PEERDMA_REASON_VENDOR_ALIGN ? -EINVAL : -EOPNOTSUPP);
		EXPECT_STREQ(peerdma_reason_name(args.out_reason), peerdma_reason_name(reason));
		EXPECT_EQ(args.out_memory, memory);
		EXPECT_EQ(args.out_result, result);
		EXPECT_EQ(imports, 0);
		EXPECT_EQ(buf, nullptr);
	}
	void imported(int fd, uint64_t off, uint64_t len, uint64_t buf_off, uint32_t memory)
	{
		EXPECT_EQ(args.out_reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
		EXPECT_EQ(import.fd, fd);
		EXPECT_EQ(import.off, off);
		EXPECT_EQ(import.len, len);
		EXPECT_EQ(import.pci_bdf, drive);
		EXPECT_EQ(args.out_buf_off, buf_off);
		EXPECT_EQ(args.out_memory, memory);
		EXPECT_NE(buf, nullptr);
	}

	FakeSyscalls sys;
	struct peerdma_device *device = nullptr;
	struct peerdma_buf *buf = nullptr;
	struct peerdma_pointer_args args = {};
	peerdma_buf_import import = {};
	int imports = 0;
	std::vector<int> closed;
	bool open_then = false;
};

constexpr uint64_t at = 0x7f0000000000;

// --- Whole frames

struct Around {
	Range asked, allocation;
	bool good;
	Range out;
};

class Frames : public ::testing::TestWithParam<Around>
{
};
INSTANTIATE_TEST_SUITE_P(
	Of, Frames,
	::testing::Values(Around{{at, frame}, {at, frame}, true, {at, frame}},
			  Around{{at, 1}, {at, frame}, true, {at, frame}},
			  Around{{at + 70000, 1}, {at, 4 * frame}, true, {at + frame, frame}},
			  Around{{at + frame - 1, 2}, {at, 4 * frame}, true, {at, 2 * frame}},
			  // The allocation ends inside the last frame: the range starts earlier.
			  Around{{at + 2 * frame, page}, {at, 2 * frame + page}, true, {at + frame + page, frame}},
			  Around{{at + frame + page, frame}, {at, 2 * frame + page}, true, {at + page, 2 * frame}},
			  // The allocation begins inside the first frame, at a page or not.
			  Around{{at + 512, 100}, {at + 512, 2 * frame}, false, {}},
			  Around{{at + page, 100}, {at + 512, 2 * frame}, true, {at + page, frame}},
			  Around{{at + page, frame}, {at + page, frame}, true, {at + page, frame}},
			  // Frames start at the allocation's first page: buffers of adjacent ranges do not overlap.
			  Around{{at + page + frame, 100}, {at + page, 3 * frame}, true, {at + page + frame, frame}},
			  Around{{at + page + 100, frame}, {at + page, 3 * frame}, true, {at + page, 2 * frame}},
			  // The allocation is smaller than a frame, or ends in the middle of a page.
			  Around{{at, 512}, {at, frame - page}, false, {}},
			  Around{{at, frame}, {at, frame + 100}, true, {at, frame}},
			  Around{{at, frame + 100}, {at, frame + 100}, false, {}},
			  // A range larger than the allocation, and a range that overflows.
			  Around{{at, 2 * frame}, {at, frame}, false, {}},
			  Around{{at, 0 - at - 1}, {at, frame}, false, {}},
			  Around{{at, UINT64_MAX}, {at, frame}, false, {}}));

TEST_P(Frames, AroundARange)
{
	const Around &around = GetParam();
	Range out;
	ASSERT_EQ(frames_around(around.asked, around.allocation, page, out), around.good);
	if (!around.good)
		return;
	EXPECT_EQ(out.start, around.out.start);
	EXPECT_EQ(out.len, around.out.len);
}

// --- The owner of the memory

TEST_F(Pointer, NobodysWithoutALibrary)
{
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
	load_cuda();
	load_hsa();
	load_ze();
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
}

TEST_F(Pointer, EachVendorsIsFoundBesideTheOthers)
{
	load_cuda();
	load_hsa();
	load_ze();
	cuda.start = at, cuda.size = 8 * frame;
	hsa.start = at + 8 * frame, hsa.size = 8 * frame, hsa.fd = 600, hsa.off = 3 * frame;
	ze.start = at + 16 * frame, ze.size = 8 * frame, ze.fd = 700;
	sys.sizes[700] = 8 * frame;
	EXPECT_EQ(from(at + 100, frame), 0);
	imported(500, 0, 2 * frame, 100, PEERDMA_MEMORY_CUDA);
	EXPECT_EQ(from(at + 9 * frame, frame), 0);
	imported(600, 4 * frame, frame, 0, PEERDMA_MEMORY_HSA);
	EXPECT_EQ(hsa.asked, (std::vector<uint64_t>{at + 9 * frame, frame}));
	EXPECT_EQ(from(at + 18 * frame + 8, 5), 0);
	imported(700, 2 * frame, frame, 8, PEERDMA_MEMORY_LEVEL_ZERO);
	EXPECT_EQ(imports, 3);
}

TEST_F(Pointer, TheDescriptorIsClosedIfItIsOurs)
{
	load_cuda();
	load_ze();
	cuda.start = at, cuda.size = frame;
	ze.start = at + frame, ze.size = frame;
	sys.sizes[ze.fd] = frame;
	sys.fds[cuda.fd] = "dmabuf";
	EXPECT_EQ(from(at, frame), 0);
	EXPECT_FALSE(sys.fds.contains(cuda.fd)) << "CUDA's is";
	sys.fds[cuda.fd] = "dmabuf";
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_BUF_IMPORT ? -ENOMEM : 1; };
	EXPECT_EQ(from(at, frame), -ENOMEM);
	EXPECT_FALSE(sys.fds.contains(cuda.fd)) << "after a failure, too";
	sys.on_ioctl = nullptr;
	sys.fds[ze.fd] = "dmabuf";
	EXPECT_EQ(from(at + frame, frame), 0);
	EXPECT_TRUE(sys.fds.contains(ze.fd)) << "Level Zero's is its driver's";
	sys.fds.erase(ze.fd);
}

// --- CUDA

TEST_F(Pointer, CudaIsAskedForTheBusFirst)
{
	load_cuda();
	cuda.start = at, cuda.size = frame;
	EXPECT_EQ(from(at, frame), 0);
	EXPECT_EQ(cuda.asked, (std::vector<uint64_t>{at, frame, 1}));
	old_cuda = true;
	cuda.asked.clear();
	EXPECT_EQ(from(at, frame), 0);
	EXPECT_EQ(cuda.asked, (std::vector<uint64_t>{at, frame, 1, at, frame, 0}));
}

TEST_F(Pointer, CudaRefuses)
{
	load_cuda();
	cuda.start = at, cuda.size = frame;
	cuda.error = 1;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_CUDA, 1);
	cuda.error = 0, cuda.fd = -1;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_CUDA);
	refused(from(at, frame + 1), PEERDMA_REASON_VENDOR_ALIGN, PEERDMA_MEMORY_CUDA);
	sys.functions.erase("libcuda.so.1 cuMemGetHandleForAddressRange");
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_CUDA, 801);
	cuda.type = 1;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
	cuda.type = 2, cuda.look_error = 3;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
}

// An H200 returns CUDA_ERROR_INVALID_CONTEXT to a thread without a context.
TEST_F(Pointer, CudasContext)
{
	load_cuda();
	cuda.start = at, cuda.size = frame, cuda.context = &given_context;
	EXPECT_EQ(from(at, frame), 0);
	EXPECT_EQ(cuda.entered, (std::vector<void *>{&given_context}));
	cuda.context = nullptr;
	EXPECT_EQ(from(at, frame), 0) << "what is mapped in pieces has none";
	EXPECT_EQ(cuda.entered, (std::vector<void *>{&given_context, &own_context}));
	EXPECT_EQ(in_context, nullptr);
	EXPECT_EQ(retained, 0);
	cuda.push_error = 4;
	EXPECT_EQ(from(at, frame), 0) << "what the thread has may do";
	EXPECT_EQ(retained, 0);
	sys.functions.erase("libcuda.so.1 cuDevicePrimaryCtxRetain");
	EXPECT_EQ(from(at, frame), 0);
	in_context = nullptr;
}

TEST_F(Pointer, CudasSmallOnesShareFrames)
{
	load_cuda();
	cuda.start = at + frame + 512, cuda.size = frame;
	EXPECT_EQ(from(at + frame + 512, frame), 0);
	imported(500, 0, 2 * frame, 512, PEERDMA_MEMORY_CUDA);
	imports = 0;
	refused(from(at + frame + 512, frame + 1), PEERDMA_REASON_VENDOR_ALIGN, PEERDMA_MEMORY_CUDA);
	load_hsa();
	hsa.start = at + 8 * frame + 512, hsa.size = frame;
	refused(from(hsa.start, 10), PEERDMA_REASON_VENDOR_ALIGN, PEERDMA_MEMORY_HSA);
}

// --- HSA

TEST_F(Pointer, HsaRefuses)
{
	load_hsa();
	hsa.start = at, hsa.size = 2 * frame;
	hsa.error = 0x1016;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_HSA, 0x1016);
	hsa.error = 0;
	sys.functions.erase("libhsa-runtime64.so.1 hsa_amd_portable_export_dmabuf");
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_HSA, 0x1000);
	hsa.type = 2;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
	hsa.type = 1, hsa.look_error = 0x100b;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
}

// Memory of hipHostMalloc() and similar calls: the same allocator, but in host memory.
TEST_F(Pointer, HsaMemoryOfTheHost)
{
	load_hsa();
	hsa.start = at, hsa.size = 2 * frame;
	hsa_owner = a_cpu;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
	EXPECT_TRUE(hsa.asked.empty()) << "no dma-buf was made";
	for (const uint64_t owner : {a_gpu, uint64_t{0}, uint64_t{1}}) {
		hsa_owner = owner;
		EXPECT_EQ(from(at, frame), 0) << owner;
	}
	hsa_owner = a_cpu, hsa_knows = 40;
	EXPECT_EQ(from(at, frame), 0) << "an old runtime does not say";
	hsa_knows = 4096;
	sys.functions.erase("libhsa-runtime64.so.1 hsa_agent_get_info");
	EXPECT_EQ(from(at, frame), 0);
}

// --- Level Zero

TEST_F(Pointer, LevelZerosContext)
{
	load_ze();
	ze.start = at, ze.size = frame;
	sys.sizes[ze.fd] = frame;
	EXPECT_EQ(from(at, frame), 0) << "the driver's own";
	args.ze_context = &given_context;
	EXPECT_EQ(from(at, frame), 0) << "the caller's";
	imports = 0;
	args.ze_context = &a_driver;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
	args.ze_context = nullptr;
	sys.functions.erase("libze_loader.so.1 zeDriverGetDefaultContext");
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
	args.ze_context = &given_context;
	EXPECT_EQ(from(at, frame), 0) << "an old loader, and the caller's";
}

TEST_F(Pointer, LevelZeroRefuses)
{
	load_ze();
	ze.start = at, ze.size = frame;
	sys.sizes[ze.fd] = frame;
	ze.error = 0x78000003;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_LEVEL_ZERO, 0x78000003);
	ze.error = 0, ze.fd = -1;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_LEVEL_ZERO);
	ze.fd = 700, sys.sizes[700] = 2 << 20;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_MEMORY_LEVEL_ZERO);
	for (const uint32_t type : {1, 3}) {
		ze.type = type;
		refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
	}
	ze.type = 2, ze.look_error = 1;
	refused(from(at, frame), PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_MEMORY_UNKNOWN);
}

// --- The call

TEST_F(Pointer, WhatTheModuleSays)
{
	load_cuda();
	cuda.start = at, cuda.size = frame;
	sys.on_ioctl = [](unsigned long request, void *arg) {
		if (request != PEERDMA_BUF_IMPORT)
			return 1;
		static_cast<peerdma_buf_import *>(arg)->out_reason = PEERDMA_REASON_VENDOR_UNPUBLISHED;
		return -EOPNOTSUPP;
	};
	EXPECT_EQ(from(at, frame), -EOPNOTSUPP);
	EXPECT_EQ(args.out_reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_UNPUBLISHED));
	EXPECT_EQ(args.out_memory, static_cast<uint32_t>(PEERDMA_MEMORY_CUDA));
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_BUF_IMPORT ? -ENOTTY : 1; };
	EXPECT_EQ(from(at, frame), -EOPNOTSUPP);
	EXPECT_EQ(args.out_reason, static_cast<uint32_t>(PEERDMA_REASON_IMPORT_UNABLE));
	sys.on_ioctl = nullptr;
}

TEST_F(Pointer, ArgumentsThatCannotBe)
{
	EXPECT_EQ(from(at, 0), -EINVAL);
	args.flags = 1;
	EXPECT_EQ(from(at, frame), -EOPNOTSUPP);
	args.flags = 0, args.len = frame;
	EXPECT_EQ(peerdma_buf_from_pointer(nullptr, &args, &buf), -EINVAL);
	EXPECT_EQ(peerdma_buf_from_pointer(device, nullptr, &buf), -EINVAL);
	EXPECT_EQ(peerdma_buf_from_pointer(device, &args, nullptr), -EINVAL);
	args.size = sizeof(args) - 1;
	EXPECT_EQ(peerdma_buf_from_pointer(device, &args, &buf), -EINVAL);
	// A newer caller whose unknown members are zero.
	struct {
		struct peerdma_pointer_args args;
		uint64_t more;
	} newer = {args, 0};
	newer.args.size = sizeof(newer);
	newer.args.addr = at;
	EXPECT_EQ(peerdma_buf_from_pointer(device, &newer.args, &buf), -EOPNOTSUPP);
	EXPECT_EQ(newer.args.out_reason, static_cast<uint32_t>(PEERDMA_REASON_IMPORT_UNKNOWN));
	newer.more = 1;
	EXPECT_EQ(peerdma_buf_from_pointer(device, &newer.args, &buf), -E2BIG);
	EXPECT_EQ(buf, nullptr);
}

TEST_F(Pointer, InCpp)
{
	load_cuda();
	cuda.start = at, cuda.size = frame;
	auto opened = peerdma::Device::open();
	ASSERT_TRUE(opened);
	args.addr = at, args.len = frame;
	EXPECT_TRUE(opened->buffer_from_pointer(args));
	args.addr = at + frame;
	const auto none = opened->buffer_from_pointer(args);
	ASSERT_FALSE(none);
	EXPECT_EQ(none.error().reason(), static_cast<uint32_t>(PEERDMA_REASON_IMPORT_UNKNOWN));
}

} // namespace
