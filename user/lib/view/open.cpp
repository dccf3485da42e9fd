// SPDX-License-Identifier: MIT
//
// Opens views: the header is read and checked here. The device that holds it is not trusted.
#include <algorithm>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <linux/fs.h>

#include "lib/boundary.hpp"
#include "lib/view/direct_slots.hpp"
#include "lib/view/view.hpp"
#include "view/header.hpp"

namespace peerdma_impl
{
namespace
{

// Why a view cannot be opened: an errno, and words where the errno does not say it.
struct Refusal {
	int error;
	std::string why = {};
};

int size_of(const peerdma_view &view, uint64_t &size)
{
	struct stat st = {};
	const int rc = view.sys.fstat(view.own.fd, st);
	if (rc < 0)
		return rc;
	if (S_ISBLK(st.st_mode))
		return view.sys.ioctl(view.own.fd, BLKGETSIZE64, &size);
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
	size = static_cast<uint64_t>(st.st_size);
	return 0;
}

std::vector<std::byte> bytes_at_start(const peerdma_view &view, uint64_t size)
{
	std::vector<std::byte> bytes(size);
	const int rc = view.read_bytes(0, size, bytes.data());
	if (rc < 0)
		throw Refusal{rc};
	return bytes;
}

void check_size_of(uint64_t header_bytes, uint64_t data_bytes, uint64_t device)
{
	if (header_bytes > device || data_bytes > device - header_bytes)
		throw Refusal{-EBADMSG, "the header is invalid: the device is smaller than header and data"};
}

void read_header(peerdma_view &view, std::vector<std::byte> bytes, uint64_t size, bool verify)
{
	try {
		const view::HeaderStart start = view::parse_start(bytes);
		check_size_of(start.header_bytes, start.data_bytes, size);
		if (start.header_bytes > view::max_client_header)
			throw Refusal{-EFBIG, "the header is too large"};
		if (start.header_bytes > bytes.size())
			bytes = bytes_at_start(view, start.header_bytes);
		view::Header header = view::parse(bytes);
		// The device may have answered the second time with another header.
		check_size_of(header.bytes(), header.data_bytes(), size);
		view.where = PEERDMA_VIEW_WHERE_STORAGE;
		view.codec = header.codec;
		view.elements = header.elements;
		view.data_offset = header.bytes();
		view.files = header.files.size();
		if (verify)
			view.checks =
				std::make_unique<const Checks>(Checks{std::move(header.sums), std::move(header.files)});
	} catch (const view::BadHeader &bad) {
		throw Refusal{-EBADMSG, bad.what()};
	}
}

// wanted: the codec that the caller names.
void describe_contents(peerdma_view &view, const std::optional<view::Codec> &wanted, bool verify)
{
	uint64_t size = 0;
	int rc = size_of(view, size);
	if (rc < 0)
		throw Refusal{rc};
	std::vector<std::byte> start = bytes_at_start(view, std::min(size, view::header_unit));
	if (view::begins_as_view(start)) {
		read_header(view, std::move(start), size, verify);
		if (wanted && wanted->element != view.codec.element)
			throw Refusal{-EMEDIUMTYPE, std::string("the view has elements of type ") +
							    view::element_name(view.codec.element) + ", not " +
							    view::element_name(wanted->element)};
		return;
	}
	if (verify)
		throw Refusal{-EOPNOTSUPP, "a plain file has no checksums to verify"};
	view.has_codec = wanted.has_value();
	view.codec = wanted.value_or(view::Codec::unreduced(view::Element::byte));
	const size_t element = view.codec.element_bytes();
	if (size % element)
		throw Refusal{-EINVAL,
			      "the file does not consist of whole elements of " + std::to_string(element) + " bytes"};
	view.elements = size / element;
	view.where = view.codec.reduction == view::Reduction::none ? PEERDMA_VIEW_WHERE_NONE : PEERDMA_VIEW_WHERE_HOST;
}

void open_file(peerdma_view &view, struct peerdma_device *p, const char *path)
{
	// O_NONBLOCK: as peerdma_file_open().
	view.own.fd = view.sys.open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (view.own.fd < 0)
		throw Refusal{view.own.fd};
	int rc = view.own.identify_or_close(view.sys, true);
	if (rc < 0)
		throw Refusal{rc};
	if (!p)
		return;
	view.device = p->device;
	struct peerdma_file *file = nullptr;
	rc = peerdma_file_from_fd(p, view.own.fd, &file);
	if (rc < 0)
		throw Refusal{rc};
	view.file.reset(file);
}

void map_file(peerdma_view &view)
{
	const uint64_t len = view.elements * view.codec.element_bytes();
	void *at = nullptr;
	if (!view.is_reduced_here() || !len)
		return;
	const int rc = view.sys.map_file(view.own.fd, len, &at);
	if (rc < 0)
		throw Refusal{rc};
	view.mapping = static_cast<std::byte *>(at);
	view.mapping_len = len;
	view.populated = std::make_unique<std::atomic<bool>[]>((len - 1) / populate_bytes + 1);
}

std::string text_of(const peerdma_view &view)
{
	const std::string type = view::element_name(view.codec.element);
	const std::string in = " in " + std::to_string(view.codec.bits) + (view.codec.bits == 1 ? " bit, " : " bits, ");
	const std::string count = std::to_string(view.elements) + (view.elements == 1 ? " element, " : " elements, ");
	switch (view.where) {
	case PEERDMA_VIEW_WHERE_STORAGE:
		return "a view: " + type + in + count +
		       (view.codec.reduction == view::Reduction::none ? "served by the storage as they are" :
									"reduced by the storage") +
		       ", because it has a view's header";
	case PEERDMA_VIEW_WHERE_HOST:
		return "a plain file: " + type + in + count + "reduced by this host's CPU, because a codec was given";
	default:
		return "a plain file: " + type + ", " + count +
		       (view.has_codec ? "not reduced, because the codec does not reduce" :
					 "not reduced, because no codec was given");
	}
}

int open_view(struct peerdma_device *p, const char *path, const struct peerdma_view_args &args,
	      struct peerdma_view **out, std::string &why)
{
	try {
		std::optional<view::Codec> codec;
		if (args.codec) {
			codec = view::Codec::parse(args.codec);
			if (!codec)
				throw Refusal{-EINVAL, "there is no such codec"};
		}
		auto view = std::make_unique<struct peerdma_view>(system_calls());
		open_file(*view, p, path);
		describe_contents(*view, codec, args.flags & PEERDMA_VIEW_OPEN_VERIFY);
		if (args.flags & PEERDMA_VIEW_OPEN_MAP)
			map_file(*view);
		*out = view.release();
		return 0;
	} catch (const Refusal &refusal) {
		why = refusal.why;
		return refusal.error;
	}
}

} // namespace
} // namespace peerdma_impl

using namespace peerdma_impl;

peerdma_view::peerdma_view(Syscalls &calls) : sys(calls) { hold_shared(); }

// In a child after fork(2) the CUDA driver must not be called: what is shared belongs to the parent. `direct` is not even
// looked at, because a thread of the parent may have been changing it.
peerdma_view::~peerdma_view()
{
	if (is_inherited())
		static_cast<void>(direct.release());
	direct.reset();
	if (mapping)
		sys.munmap(mapping, mapping_len);
	file.reset();
	own.close(sys);
	if (!is_inherited())
		drop_shared();
}

int peerdma_view_open(struct peerdma_device *p, const char *path, struct peerdma_view_args *args,
		      struct peerdma_view **out)
{
	return boundary([&] {
		struct peerdma_view_args full = {};
		if (args) {
			if (const int rc = copy_in(full, args, sizeof(full)))
				return rc;
			// That of a call before says nothing about this one.
			copy_text(full.out_why, "", 0);
			copy_out(args, full);
		}
		if (p)
			if (const int rc = check_handle(p))
				return rc;
		if (!path || !out)
			return -EINVAL;
		if (full.flags & ~(PEERDMA_VIEW_OPEN_MAP | PEERDMA_VIEW_OPEN_VERIFY))
			return -EOPNOTSUPP;
		std::string why;
		const int rc = open_view(p, path, full, out, why);
		copy_text(full.out_why, why.data(), why.size());
		if (args)
			copy_out(args, full);
		return rc;
	});
}

int peerdma_view_info(const struct peerdma_view *view, struct peerdma_view_description *info)
{
	return boundary([&] {
		if (!view)
			return -EINVAL;
		if (view->is_inherited())
			return -ECHILD;
		if (const int rc = check_size(info, sizeof(*info)))
			return rc;
		struct peerdma_view_description full = {};
		full.where = view->where;
		full.element = static_cast<uint32_t>(view->codec.element);
		full.bits = view->codec.bits;
		full.elements = view->elements;
		full.data_offset = view->data_offset;
		full.data_bytes = view->elements * (view->is_reduced_here() ? view->codec.element_bytes() : 0);
		if (!view->is_reduced_here())
			full.data_bytes = view->packed_bytes(view->elements);
		full.files = view->files;
		full.element_bytes = static_cast<uint32_t>(view->codec.element_bytes());
		const std::string name = view->codec.name(), text = text_of(*view);
		copy_text(full.codec, name.data(), name.size());
		copy_text(full.text, text.data(), text.size());
		copy_out(info, full);
		return 0;
	});
}

void peerdma_view_close(struct peerdma_view *view)
{
	boundary([&] {
		delete view;
		return 0;
	});
}
