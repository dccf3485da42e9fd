// SPDX-License-Identifier: MIT
//
// libpeerdma, loaded at run time: libcufile works without it, and uses the one that the program or its memory provider
// has loaded.
#include <cerrno>

#include "cufile/platform/loader.hpp"
#include "cufile/platform/pci_topology.hpp"
#include "cufile/platform/real_dependencies.hpp"
#include "cufile/platform/shared_device.hpp"

namespace cufile
{
namespace
{

struct Table {
	decltype(&peerdma_buf_at) buf_at;
	decltype(&peerdma_buf_query) buf_query;
	decltype(&peerdma_file_for_buf) file_for_buf;
	decltype(&peerdma_file_close) file_close;
	decltype(&peerdma_explain) explain;
	decltype(&peerdma_read_result) read_result;
	decltype(&peerdma_write_result) write_result;
	decltype(&peerdma_reason_text) reason_text;
	// An old library may lack these.
	decltype(&peerdma_open) open;
	decltype(&peerdma_close) close;
	decltype(&peerdma_fd) fd;
	decltype(&peerdma_buf_from_gpu) buf_from_gpu;
	decltype(&peerdma_buf_from_pointer) buf_from_pointer;
	decltype(&peerdma_buf_destroy) buf_destroy;
	decltype(&peerdma_provider_find) provider_find;
};

constexpr uint32_t nvidia = 0x10de; // PCI vendor id of CUDA memory

class RealPeerdma final : public PeerdmaClient
{
public:
	constexpr RealPeerdma() = default;

	void retry_load() override
	{
		library_.retry_load([this](auto get) { find(get); });
	}
	int look_up(const void *address, BufferLocation &location) override
	{
		if (!load())
			return -ENOSYS;
		location = {};
		const int rc = table_.buf_at(address, &location.buffer, &location.offset);
		if (rc < 0)
			return rc;
		return describe(location);
	}
	int pin(const void *address, uint64_t size, BufferLocation &location, uint32_t &reason) override
	{
		reason = PEERDMA_REASON_NONE;
		if (!load() || !table_.buf_from_gpu || !table_.buf_destroy || !table_.open || !table_.close)
			return -ENOSYS;
		struct peerdma_device *device = nullptr;
		int number = -1;
		int rc = acquire_device(device, number);
		if (rc < 0)
			return rc;
		struct peerdma_buf *made = nullptr;
		rc = table_.buf_from_gpu(device, nvidia, reinterpret_cast<uintptr_t>(address), size, 0, &made, &reason);
		return rc < 0 ? drop(rc) : describe(made, 0, number, location);
	}
	int import_cuda(const void *address, uint64_t size, const std::string &gpu, BufferLocation &location,
			uint32_t &reason) override
	{
		reason = PEERDMA_REASON_NONE;
		if (!can_import())
			return -EOPNOTSUPP;
		struct peerdma_pointer_args args = args_of(address, size);
		if (!nearest_drive(real_system(), gpu, args.pci_domain, args.pci_bdf)) {
			reason = PEERDMA_REASON_IMPORT_DEVICE;
			return -EOPNOTSUPP;
		}
		struct peerdma_device *device = nullptr;
		int number = -1;
		int rc = acquire_device(device, number);
		if (rc < 0)
			return rc;
		struct peerdma_buf *made = nullptr;
		rc = table_.buf_from_pointer(device, &args, &made);
		reason = args.out_reason;
		return rc < 0 ? drop(rc) : describe(made, args.out_buf_off, number, location);
	}
	int import_foreign(const void *address, uint64_t size, BufferLocation &location, uint32_t &reason) override
	{
		reason = PEERDMA_REASON_NONE;
		struct peerdma_device *device = nullptr;
		int number = -1;
		if (!can_import() || !has_foreign_runtime())
			return -ENOENT;
		int rc = acquire_device(device, number);
		if (rc < 0)
			return is_absence(rc) ? -ENOENT : rc;
		struct peerdma_pointer_args args = args_of(address, size);
		struct peerdma_buf *made = nullptr;
		// Most memory belongs to no vendor, so ask the vendors' libraries first, with a drive that does not
		// exist.
		args.pci_domain = UINT32_MAX;
		rc = table_.buf_from_pointer(device, &args, &made);
		if (args.out_reason == PEERDMA_REASON_IMPORT_DEVICE &&
		    nearest_drive(real_system(), "", args.pci_domain, args.pci_bdf))
			rc = table_.buf_from_pointer(device, &args, &made);
		if (args.out_reason == PEERDMA_REASON_IMPORT_UNKNOWN)
			return drop(-ENOENT);
		reason = args.out_reason;
		return rc < 0 ? drop(rc) : describe(made, args.out_buf_off, number, location);
	}
	void release(struct peerdma_buf *buffer) override
	{
		table_.buf_destroy(buffer);
		release_device();
	}
	bool is_valid(const BufferLocation &location) override
	{
		return location.device >= -1 || shared_.is_valid(calls(), location.device);
	}
	int open_file(struct peerdma_buf *buffer, int fd, struct peerdma_file **out) override
	{
		return table_.file_for_buf(buffer, fd, out);
	}
	void close_file(struct peerdma_file *file) override { table_.file_close(file); }
	int explain(struct peerdma_file *file, uint32_t provider, struct peerdma_explanation &out) override
	{
		out.size = sizeof(out);
		return table_.explain(file, provider, &out);
	}
	int64_t read(struct peerdma_file *file, const BufferLocation &location, uint64_t size, uint64_t offset,
		     struct peerdma_io_result &result) override
	{
		return table_.read_result(file, location.buffer, location.offset, size, offset, &result);
	}
	int64_t write(struct peerdma_file *file, const BufferLocation &location, uint64_t size, uint64_t offset,
		      struct peerdma_io_result &result) override
	{
		return table_.write_result(file, location.buffer, location.offset, size, offset, &result);
	}
	const char *reason_text(uint32_t reason) override { return load() ? table_.reason_text(reason) : ""; }
	int preferred(uint32_t &provider) override
	{
		if (!load() || !table_.provider_find || !table_.open || !table_.close)
			return -ENOSYS;
		struct peerdma_device *device = nullptr;
		int number = -1;
		int rc = acquire_device(device, number);
		if (rc < 0)
			return rc;
		struct peerdma_provider_info info = {};
		info.size = sizeof(info);
		rc = table_.provider_find(device, nullptr, &info);
		release_device();
		provider = info.id;
		return rc;
	}

private:
	bool can_import()
	{
		return load() && table_.buf_from_pointer && table_.buf_destroy && table_.open && table_.close;
	}
	// True if a library other than CUDA's that libpeerdma asks is loaded; otherwise no memory can be another
	// vendor's.
	bool has_foreign_runtime()
	{
		const auto none = [](auto) {};
		hsa_.retry_load(none);
		level_zero_.retry_load(none);
		return hsa_.load(none) || level_zero_.load(none);
	}
	// There is no device node, or it is not accessible: then memory is registered as host memory.
	static bool is_absence(int rc)
	{
		return rc == -ENOENT || rc == -ENXIO || rc == -ENODEV || rc == -EACCES || rc == -EPERM;
	}
	static struct peerdma_pointer_args args_of(const void *address, uint64_t size)
	{
		struct peerdma_pointer_args args = {};
		args.size = sizeof(args);
		args.addr = reinterpret_cast<uintptr_t>(address);
		args.len = size;
		return args;
	}
	int drop(int rc)
	{
		release_device();
		return rc;
	}
	// For a buffer of the acquired device.
	int describe(struct peerdma_buf *made, uint64_t offset, int number, BufferLocation &location)
	{
		location = {};
		location.buffer = made;
		location.offset = offset;
		const int rc = describe(location);
		location.device = number;
		return rc;
	}

	// Fills in all but the buffer and the offset.
	int describe(BufferLocation &location)
	{
		struct peerdma_buf_info info = {};
		info.size = sizeof(info);
		const int rc = table_.buf_query(location.buffer, &info);
		location.size = info.len - location.offset;
		location.provider = info.provider_id;
		location.device = info.device_fd;
		return rc;
	}

	SharedDevice::Calls calls() const { return {table_.open, table_.close, table_.fd}; }
	int acquire_device(struct peerdma_device *&out, int &number) { return shared_.acquire(calls(), out, number); }
	void release_device() { shared_.release(calls()); }

	bool load()
	{
		return library_.load([this](auto get) { find(get); });
	}

	template <class Get> void find(Get &get)
	{
		get(table_.buf_at, "peerdma_buf_at");
		get(table_.buf_query, "peerdma_buf_query");
		get(table_.file_for_buf, "peerdma_file_for_buf");
		get(table_.file_close, "peerdma_file_close");
		get(table_.explain, "peerdma_explain");
		get(table_.read_result, "peerdma_read_result");
		get(table_.write_result, "peerdma_write_result");
		get(table_.reason_text, "peerdma_reason_text");
		get(table_.open, "peerdma_open", false);
		get(table_.close, "peerdma_close", false);
		get(table_.fd, "peerdma_fd", false);
		get(table_.buf_from_gpu, "peerdma_buf_from_gpu", false);
		get(table_.buf_from_pointer, "peerdma_buf_from_pointer", false);
		get(table_.buf_destroy, "peerdma_buf_destroy", false);
		get(table_.provider_find, "peerdma_provider_find", false);
	}

	Loader library_{"libpeerdma.so.0"};
	// The same names as in user/lib/pointer.cpp.
	Loader hsa_{"libhsa-runtime64.so.1", true}, level_zero_{"libze_loader.so.1", true};
	Table table_{}; // immutable once library_ is loaded
	SharedDevice shared_;
};

constinit RealPeerdma the_peerdma;

} // namespace

PeerdmaClient &real_peerdma() { return the_peerdma; }

} // namespace cufile
