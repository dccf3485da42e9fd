// SPDX-License-Identifier: MIT
//
// Device memory of a vendor for the self-test. Building needs no vendor header: the declarations follow the vendors'
// documentation.

#include "tools/selftest/device_memory.hpp"

#include <cerrno>
#include <initializer_list>

#include <dlfcn.h>
#include <fmt/format.h>

#include "tools/cli/cli.hpp"

namespace cli
{
namespace
{

// A vendor library, by the first of its names that loads, newest first.
class Library
{
public:
	Library(peerdma_impl::Syscalls &sys, std::initializer_list<const char *> names, const char *probe,
		const char *advice)
		: sys_(sys)
	{
		std::string said;
		for (const char *name : names) {
			if (!sys.function(name, probe) && !::dlopen(name, RTLD_NOW | RTLD_GLOBAL)) {
				const char *why = ::dlerror();
				said = why ? why : name;
				continue;
			}
			name_ = name;
			return;
		}
		throw Failure{fmt::format("cannot load {} ({})", *names.begin(), said), 0, 0, advice, {}};
	}

	const char *name() const { return name_; }

	template <typename Function> void get(Function &function, const char *name) const
	{
		function = reinterpret_cast<Function>(sys_.function(name_, name));
		if (!function)
			throw Failure{fmt::format("{} has no {}()", name_, name), 0, 0, "", {}};
	}

	template <typename Function, typename... Args> void call(const char *name, Args... args) const
	{
		Function *function;
		get(function, name);
		must(function(args...), name);
	}

	void must(int rc, const char *call) const
	{
		if (rc)
			throw Failure{fmt::format("{} of {} failed: {:#x}", call, name_, rc), 0, 0, "", {}};
	}

private:
	peerdma_impl::Syscalls &sys_;
	const char *name_ = "";
};

// --- CUDA: the driver API

class Cuda final : public DeviceMemory
{
public:
	Cuda(peerdma_impl::Syscalls &sys, uint64_t len)
		: library_(sys, {"libcuda.so.1"}, "cuInit", "Install NVIDIA's driver, which contains the library.")
	{
		library_.get(release_, "cuDevicePrimaryCtxRelease_v2");
		library_.get(free_, "cuMemFree_v2");
		library_.get(to_device_, "cuMemcpyHtoD_v2");
		library_.get(from_device_, "cuMemcpyDtoH_v2");
		library_.get(wait_, "cuCtxSynchronize");
		library_.call<int(unsigned)>("cuInit", 0u);
		library_.call<int(int *, int)>("cuDeviceGet", &device_, 0);
		void *context = nullptr;
		library_.call<int(void **, int)>("cuDevicePrimaryCtxRetain", &context, device_);
		retained_ = true;
		try {
			unsigned long long at = 0;
			library_.call<int(void *)>("cuCtxSetCurrent", context);
			library_.call<int(unsigned long long *, size_t)>("cuMemAlloc_v2", &at, len);
			address_ = at;
		} catch (...) {
			close();
			throw;
		}
	}
	~Cuda() override { close(); }

	const char *library() const override { return library_.name(); }
	void put(const std::string &bytes) override
	{
		library_.must(to_device_(address_, bytes.data(), bytes.size()), "cuMemcpyHtoD_v2");
		library_.must(wait_(), "cuCtxSynchronize"); // the copy may return before its bytes have arrived
	}
	void get(std::string &bytes) override
	{
		library_.must(from_device_(bytes.data(), address_, bytes.size()), "cuMemcpyDtoH_v2");
	}

private:
	void close()
	{
		if (address_)
			free_(address_);
		if (retained_)
			release_(device_);
	}

	const Library library_;
	int (*release_)(int) = nullptr;
	int (*free_)(unsigned long long) = nullptr;
	int (*to_device_)(unsigned long long, const void *, size_t) = nullptr;
	int (*from_device_)(void *, unsigned long long, size_t) = nullptr;
	int (*wait_)() = nullptr;
	int device_ = 0;
	bool retained_ = false;
};

// --- HIP

class Hip final : public DeviceMemory
{
public:
	Hip(peerdma_impl::Syscalls &sys, uint64_t len)
		: library_(sys, {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}, "hipMalloc",
			   "Install ROCm's runtime, which contains the library.")
	{
		library_.get(free_, "hipFree");
		library_.get(copy_, "hipMemcpy");
		library_.get(wait_, "hipDeviceSynchronize");
		void *memory = nullptr;
		library_.call<int(void **, size_t)>("hipMalloc", &memory, len);
		address_ = reinterpret_cast<uintptr_t>(memory);
	}
	~Hip() override { free_(memory()); }

	const char *library() const override { return library_.name(); }
	void put(const std::string &bytes) override
	{
		library_.must(copy_(memory(), bytes.data(), bytes.size(), to_device), "hipMemcpy");
		library_.must(wait_(), "hipDeviceSynchronize");
	}
	void get(std::string &bytes) override
	{
		library_.must(copy_(bytes.data(), memory(), bytes.size(), to_host), "hipMemcpy");
	}

private:
	static constexpr int to_device = 1, to_host = 2; // hipMemcpyKind

	void *memory() const { return reinterpret_cast<void *>(static_cast<uintptr_t>(address_)); }

	const Library library_;
	int (*free_)(void *) = nullptr;
	int (*copy_)(void *, const void *, size_t, int) = nullptr;
	int (*wait_)() = nullptr;
};

// --- Level Zero

class LevelZero final : public DeviceMemory
{
public:
	LevelZero(peerdma_impl::Syscalls &sys, uint64_t len)
		: library_(sys, {"libze_loader.so.1"}, "zeInit", "Install Level Zero's loader and Intel's driver.")
	{
		library_.get(free_, "zeMemFree");
		library_.get(end_list_, "zeCommandListDestroy");
		library_.get(end_context_, "zeContextDestroy");
		library_.get(copy_, "zeCommandListAppendMemoryCopy");
		uint32_t one = 1;
		void *driver = nullptr, *device = nullptr, *memory = nullptr;
		library_.call<int(uint32_t)>("zeInit", 0u);
		library_.call<int(uint32_t *, void **)>("zeDriverGet", &one, &driver);
		one = 1;
		library_.call<int(void *, uint32_t *, void **)>("zeDeviceGet", driver, &one, &device);
		if (!driver || !device)
			throw Failure{fmt::format("{}: no device", library_.name()), ENODEV, 0, "", {}};
		const Description plain = {context_description, nullptr, 0};
		library_.call<int(void *, const Description *, void **)>("zeContextCreate", driver, &plain, &context_);
		try {
			const Queue queue = {queue_description, nullptr, 0, 0, 0, synchronous, 0};
			library_.call<int(void *, void *, const Queue *, void **)>("zeCommandListCreateImmediate",
										   context_, device, &queue, &list_);
			// Only memory allocated for export can be exported as a dma-buf.
			const Description wanted = {export_description, nullptr, dma_buf};
			const Memory how = {memory_description, &wanted, 0, 0};
			library_.call<int(void *, const Memory *, size_t, size_t, void *, void **)>(
				"zeMemAllocDevice", context_, &how, len, frame, device, &memory);
			address_ = reinterpret_cast<uintptr_t>(memory);
		} catch (...) {
			close();
			throw;
		}
	}
	~LevelZero() override { close(); }

	void *ze_context() const override { return context_; }
	const char *library() const override { return library_.name(); }
	void put(const std::string &bytes) override { copy(memory(), bytes.data(), bytes.size()); }
	void get(std::string &bytes) override { copy(bytes.data(), memory(), bytes.size()); }

private:
	// ze_structure_type_t, ze_external_memory_type_flags_t, ze_command_queue_mode_t
	static constexpr uint32_t context_description = 0xd, queue_description = 0xe, memory_description = 0x15,
				  export_description = 0x18, dma_buf = 2, synchronous = 1;
	static constexpr size_t frame = 65536;

	struct Description {
		uint32_t kind;
		const void *next;
		uint32_t flags;
	};
	struct Memory {
		uint32_t kind;
		const void *next;
		uint32_t flags, ordinal;
	};
	struct Queue {
		uint32_t kind;
		const void *next;
		uint32_t ordinal, index, flags, mode, priority;
	};

	void *memory() const { return reinterpret_cast<void *>(static_cast<uintptr_t>(address_)); }
	// The command list is synchronous: an appended copy has completed.
	void copy(void *to, const void *from, size_t len)
	{
		library_.must(copy_(list_, to, from, len, nullptr, 0, nullptr), "zeCommandListAppendMemoryCopy");
	}
	void close()
	{
		if (address_)
			free_(context_, memory());
		if (list_)
			end_list_(list_);
		if (context_)
			end_context_(context_);
	}

	const Library library_;
	int (*free_)(void *, void *) = nullptr;
	int (*end_list_)(void *) = nullptr;
	int (*end_context_)(void *) = nullptr;
	int (*copy_)(void *, void *, const void *, size_t, void *, uint32_t, void **) = nullptr;
	void *context_ = nullptr, *list_ = nullptr;
};

} // namespace

std::unique_ptr<DeviceMemory> allocate_memory(peerdma_impl::Syscalls &sys, const std::string &vendor, uint64_t len)
{
	if (vendor == "cuda")
		return std::make_unique<Cuda>(sys, len);
	if (vendor == "hip")
		return std::make_unique<Hip>(sys, len);
	if (vendor == "ze")
		return std::make_unique<LevelZero>(sys, len);
	throw Usage{fmt::format("'{}': expected provider, cuda, hip or ze", vendor)};
}

} // namespace cli
