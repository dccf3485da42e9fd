// SPDX-License-Identifier: MIT
#ifndef _PEERDMA_HPP
#define _PEERDMA_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "peerdma.h"

// libpeerdma for C++20: owners and results over the C API. The reference is peerdma.h. Rings and peerdma_readv() are
// not wrapped: use get() to obtain the handles that they need.
//
// Header only, so that the library's ABI contains no C++. After fork(2), destructors that run in the child do not
// affect the parent's objects, and calls on the parent's handles return ECHILD (peerdma.h). Nothing here throws except
// std::bad_alloc and std::bad_variant_access (value() of a Result without a value).
namespace peerdma
{

/**
 * class Error - a positive errno and, if the library knows it, a reason
 * Since 0.1. Source: enum peerdma_reason.
 */
class Error
{
public:
	explicit Error(int code, std::uint32_t reason = PEERDMA_REASON_NONE) noexcept : code_(code), reason_(reason) {}

	int code() const noexcept { return code_; }
	peerdma_reason reason() const noexcept { return static_cast<peerdma_reason>(reason_); }
	std::string_view reason_name() const noexcept { return peerdma_reason_name(reason_); }
	std::string_view advice() const noexcept { return peerdma_reason_advice(reason_); }
	std::string message() const
	{
		return reason_ ? std::string(peerdma_reason_text(reason_)) : std::string(std::strerror(code_));
	}

private:
	int code_;
	std::uint32_t reason_;
};

/**
 * class Result - a value or an Error, like std::expected of C++23
 * Since 0.1.
 */
template <class T> class [[nodiscard]] Result
{
public:
	Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
	Result(Error error) : state_(std::in_place_index<1>, error) {}

	bool has_value() const noexcept { return state_.index() == 0; }
	explicit operator bool() const noexcept { return has_value(); }
	T &value() & { return std::get<0>(state_); }
	const T &value() const & { return std::get<0>(state_); }
	T &&value() && { return std::get<0>(std::move(state_)); }
	T &operator*() & { return value(); }
	const T &operator*() const & { return value(); }
	T &&operator*() && { return std::move(*this).value(); }
	T *operator->() { return &value(); }
	const T *operator->() const { return &value(); }
	const Error &error() const { return std::get<1>(state_); }

private:
	std::variant<T, Error> state_;
};

template <> class [[nodiscard]] Result<void>
{
public:
	Result() = default;
	Result(Error error) : error_(error) {}

	bool has_value() const noexcept { return !error_; }
	explicit operator bool() const noexcept { return has_value(); }
	const Error &error() const { return error_.value(); }

private:
	std::optional<Error> error_;
};

using ProviderInfo = peerdma_provider_info;
using DeviceInfo = peerdma_device_info;
using BufferInfo = peerdma_buf_info;
using Explanation = peerdma_explanation;
using IoResult = peerdma_io_result;
using ViewInfo = peerdma_view_description;
using ViewRange = peerdma_view_read_args;
using ViewResult = peerdma_view_result;

namespace detail
{

// Sets the size member that every struct of the C API begins with.
template <class T> T sized() noexcept
{
	T value = {};
	value.size = sizeof(T);
	return value;
}

struct CloseDevice {
	void operator()(struct peerdma_device *p) const noexcept { peerdma_close(p); }
};
struct CloseFile {
	void operator()(peerdma_file *p) const noexcept { peerdma_file_close(p); }
};
struct DestroyBuffer {
	void operator()(peerdma_buf *p) const noexcept { peerdma_buf_destroy(p); }
};
struct CloseView {
	void operator()(peerdma_view *p) const noexcept { peerdma_view_close(p); }
};

} // namespace detail

/**
 * class Buffer - owns a buffer in the memory of a provider
 * Since 0.1. Source: peerdma_buf_create().
 */
class Buffer
{
public:
	explicit Buffer(peerdma_buf *owned) noexcept : handle_(owned) {}

	peerdma_buf *get() const noexcept { return handle_.get(); }
	BufferInfo info() const noexcept
	{
		auto info = detail::sized<BufferInfo>();
		peerdma_buf_query(handle_.get(), &info);
		return info;
	}
	/** bytes */
	std::uint64_t size() const noexcept { return info().len; }
	/** The buffer's bytes at its proxy address, valid as long as the buffer is owned: peerdma_buf_map(). */
	Result<std::span<std::byte>> map() const
	{
		void *addr = nullptr;
		int rc = peerdma_buf_map(handle_.get(), &addr);
		if (rc < 0)
			return Error(-rc);
		return std::span(static_cast<std::byte *>(addr), static_cast<std::size_t>(size()));
	}
	/** A range of it, whole pages, as a dma-buf. The caller closes the descriptor: peerdma_buf_export_dmabuf(). */
	Result<int> export_dmabuf(std::uint64_t off, std::uint64_t len) const
	{
		int fd = -1;
		std::uint32_t reason = PEERDMA_REASON_NONE;
		int rc = peerdma_buf_export_dmabuf(handle_.get(), off, len, &fd, &reason);
		if (rc < 0)
			return Error(-rc, reason);
		return fd;
	}

private:
	std::unique_ptr<peerdma_buf, detail::DestroyBuffer> handle_;
};

/**
 * class File - owns a file that reads and writes buffers
 * Since 0.1. Source: peerdma_file_open().
 */
class File
{
public:
	explicit File(peerdma_file *owned) noexcept : handle_(owned) {}

	peerdma_file *get() const noexcept { return handle_.get(); }

	/** bytes */
	Result<std::uint64_t> size() const
	{
		std::uint64_t bytes = 0;
		int rc = peerdma_file_size(handle_.get(), &bytes);
		if (rc < 0)
			return Error(-rc);
		return bytes;
	}

	Result<Explanation> explain(std::uint32_t provider_id) const
	{
		auto why = detail::sized<Explanation>();
		int rc = peerdma_explain(handle_.get(), provider_id, &why);
		if (rc < 0)
			return Error(-rc);
		return why;
	}

	/** Offsets and len in bytes, of any value; partial blocks are bounced: peerdma_read(). */
	Result<IoResult> read(const Buffer &buffer, std::uint64_t buf_off, std::uint64_t len,
			      std::uint64_t file_off) const
	{
		auto result = detail::sized<IoResult>();
		return answer(peerdma_read_result(handle_.get(), buffer.get(), buf_off, len, file_off, &result),
			      result);
	}

	Result<IoResult> write(const Buffer &buffer, std::uint64_t buf_off, std::uint64_t len,
			       std::uint64_t file_off) const
	{
		auto result = detail::sized<IoResult>();
		return answer(peerdma_write_result(handle_.get(), buffer.get(), buf_off, len, file_off, &result),
			      result);
	}

private:
	static Result<IoResult> answer(std::int64_t rc, const IoResult &result)
	{
		if (rc < 0)
			return Error(static_cast<int>(-rc), result.reason);
		return result;
	}

	std::unique_ptr<peerdma_file, detail::CloseFile> handle_;
};

/**
 * struct PublishOptions - arguments of Device::publish()
 * @bar: BAR number, or PEERDMA_BAR_AUTO      @offset: bytes from the BAR's start
 * @len: bytes, 0 means to the end of the BAR      @force: take the device from its driver
 * @non_prefetchable: accept a BAR that may hold registers: PEERDMA_PUBLISH_NONPREFETCHABLE
 * Since 0.1. Source: struct peerdma_publish_args.
 */
struct PublishOptions {
	int bar = PEERDMA_BAR_AUTO;
	std::uint64_t offset = 0;
	std::uint64_t len = 0;
	bool force = false;
	bool non_prefetchable = false;
};

/**
 * class Device - owns an open /dev/peerdma
 * Since 0.1. Source: peerdma_open().
 */
class Device
{
public:
	/** flags: PEERDMA_OPEN_* */
	static Result<Device> open(std::uint32_t flags = 0)
	{
		struct peerdma_device *p = nullptr;
		int rc = peerdma_open(&p, flags);
		if (rc < 0)
			return Error(-rc);
		return Device(p);
	}

	struct peerdma_device *get() const noexcept { return handle_.get(); }

	Result<DeviceInfo> info() const
	{
		auto info = detail::sized<DeviceInfo>();
		int rc = peerdma_query(handle_.get(), &info);
		if (rc < 0)
			return Error(-rc);
		return info;
	}

	/** Fills ids with the ids of the first providers. Returns the number of providers, which may be larger. */
	Result<std::size_t> provider_ids(std::span<std::uint32_t> ids) const
	{
		int rc = peerdma_provider_list(handle_.get(), ids.data(), ids.size());
		if (rc < 0)
			return Error(-rc);
		return static_cast<std::size_t>(rc);
	}

	Result<std::vector<ProviderInfo>> providers() const
	{
		std::vector<std::uint32_t> ids;
		// The number may grow between two calls: repeat until all ids fit.
		for (;;) {
			auto count = provider_ids(ids);
			if (!count)
				return count.error();
			const bool fitted = *count <= ids.size();
			ids.resize(*count);
			if (fitted)
				break;
		}
		std::vector<ProviderInfo> all;
		for (std::uint32_t id : ids)
			if (auto info = provider(id))
				all.push_back(*info);
			else if (info.error().code() != ENOENT) // removed meanwhile
				return info.error();
		return all;
	}

	Result<ProviderInfo> provider(std::uint32_t provider_id) const
	{
		auto info = detail::sized<ProviderInfo>();
		int rc = peerdma_provider_get(handle_.get(), provider_id, &info);
		if (rc < 0)
			return Error(-rc);
		return info;
	}

	/** name: an id, a PCI address, or empty for the only provider. */
	Result<ProviderInfo> find(std::string_view name) const
	{
		auto info = detail::sized<ProviderInfo>();
		int rc = peerdma_provider_find(handle_.get(), std::string(name).c_str(), &info);
		if (rc < 0)
			return Error(-rc);
		return info;
	}

	/** Result: the new provider's id. */
	Result<std::uint32_t> publish(std::uint32_t pci_domain, std::uint32_t pci_bdf,
				      const PublishOptions &options = {}) const
	{
		auto args = detail::sized<peerdma_publish_args>();
		args.flags = (options.force ? PEERDMA_PUBLISH_FORCE : 0) |
			     (options.non_prefetchable ? PEERDMA_PUBLISH_NONPREFETCHABLE : 0);
		args.pci_domain = pci_domain;
		args.pci_bdf = pci_bdf;
		args.bar = options.bar;
		args.bar_offset = options.offset;
		args.len = options.len;
		int rc = peerdma_provider_publish(handle_.get(), &args);
		if (rc < 0)
			return Error(-rc, args.out_reason);
		return args.out_provider_id;
	}

	static Result<void> unpublish(std::uint32_t pci_domain, std::uint32_t pci_bdf)
	{
		int rc = peerdma_provider_unpublish(pci_domain, pci_bdf, 0);
		if (rc < 0)
			return Error(-rc);
		return {};
	}

	/** len in bytes, a multiple of the page size; flags of peerdma_buf_create(). */
	Result<Buffer> create_buffer(std::uint32_t provider_id, std::uint64_t len, std::uint32_t flags = 0) const
	{
		peerdma_buf *buf = nullptr;
		std::uint32_t reason = PEERDMA_REASON_NONE;
		int rc = peerdma_buf_create(handle_.get(), provider_id, len, flags, &buf, &reason);
		if (rc < 0)
			return Error(-rc, reason);
		return Buffer(buf);
	}

	/** Memory that a GPU's own driver has allocated: peerdma_buf_from_gpu(). */
	Result<Buffer> buffer_from_gpu(std::uint32_t pci_vendor, std::uint64_t addr, std::uint64_t len) const
	{
		peerdma_buf *buf = nullptr;
		std::uint32_t reason = PEERDMA_REASON_NONE;
		int rc = peerdma_buf_from_gpu(handle_.get(), pci_vendor, addr, len, 0, &buf, &reason);
		if (rc < 0)
			return Error(-rc, reason);
		return Buffer(buf);
	}

	/** A range of a dma-buf that another driver has exported: peerdma_buf_from_dmabuf(). */
	Result<Buffer> buffer_from_dmabuf(int fd, std::uint64_t off, std::uint64_t len, std::uint32_t pci_domain,
					  std::uint32_t pci_bdf) const
	{
		peerdma_buf *buf = nullptr;
		std::uint32_t reason = PEERDMA_REASON_NONE;
		int rc = peerdma_buf_from_dmabuf(handle_.get(), fd, off, len, pci_domain, pci_bdf, 0, &buf, &reason);
		if (rc < 0)
			return Error(-rc, reason);
		return Buffer(buf);
	}

	/**
	 * Device memory by its address: peerdma_buf_from_pointer(). Sets args.size. args.out_* are filled in, after a
	 * failure too.
	 */
	Result<Buffer> buffer_from_pointer(peerdma_pointer_args &args) const
	{
		peerdma_buf *buf = nullptr;
		args.size = sizeof(args);
		int rc = peerdma_buf_from_pointer(handle_.get(), &args, &buf);
		if (rc < 0)
			return Error(-rc, args.out_reason);
		return Buffer(buf);
	}

	/** open_flags of open(2). */
	Result<File> open_file(const std::string &path, int open_flags) const
	{
		peerdma_file *file = nullptr;
		int rc = peerdma_file_open(handle_.get(), path.c_str(), open_flags, &file);
		if (rc < 0)
			return Error(-rc);
		return File(file);
	}

	/** The caller keeps fd. */
	Result<File> file_from_fd(int fd) const
	{
		peerdma_file *file = nullptr;
		int rc = peerdma_file_from_fd(handle_.get(), fd, &file);
		if (rc < 0)
			return Error(-rc);
		return File(file);
	}

private:
	explicit Device(struct peerdma_device *owned) noexcept : handle_(owned) {}

	std::unique_ptr<struct peerdma_device, detail::CloseDevice> handle_;
};

/**
 * class View - owns a view, or a plain file as typed elements
 * Since 0.2. Source: peerdma_view_open().
 */
class View
{
public:
	explicit View(peerdma_view *owned) noexcept : handle_(owned) {}

	/**
	 * device: for direct reads; nullptr: every byte goes through host memory. codec: for a plain file ("u32:17"), or
	 * empty. flags: PEERDMA_VIEW_OPEN_*. why: set to the cause in words after a failure that has one.
	 */
	static Result<View> open(const Device *device, const std::string &path, const std::string &codec = {},
				 std::uint32_t flags = 0, std::string *why = nullptr)
	{
		auto args = detail::sized<peerdma_view_args>();
		args.flags = flags;
		args.codec = codec.empty() ? nullptr : codec.c_str();
		peerdma_view *view = nullptr;
		int rc = peerdma_view_open(device ? device->get() : nullptr, path.c_str(), &args, &view);
		if (rc < 0 && why)
			*why = args.out_why;
		if (rc < 0)
			return Error(-rc);
		return View(view);
	}

	peerdma_view *get() const noexcept { return handle_.get(); }
	ViewInfo info() const noexcept
	{
		auto info = detail::sized<ViewInfo>();
		peerdma_view_info(handle_.get(), &info);
		return info;
	}

	/** Sets range.size. result: filled in, after a failure too. Returns the elements delivered: peerdma_view_read(). */
	Result<std::uint64_t> read(ViewRange range, ViewResult &result) const
	{
		range.size = sizeof(range);
		result.size = sizeof(result);
		std::int64_t rc = peerdma_view_read(handle_.get(), &range, &result);
		if (rc < 0)
			return Error(static_cast<int>(-rc), result.reason);
		return static_cast<std::uint64_t>(rc);
	}

private:
	std::unique_ptr<peerdma_view, detail::CloseView> handle_;
};

} // namespace peerdma

#endif // _PEERDMA_HPP
