// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <linux/fs.h>

#include "lib/boundary.hpp"
#include "lib/device.hpp"

namespace
{

using namespace peerdma_impl;

// Registers the file. A file whose bytes the module never moves gets no id, but can be opened.
int add_file(struct peerdma_file &file)
{
	struct peerdma_file_add add = {};
	add.fd = file.own.fd;
	const int rc = file.device->ioctl(PEERDMA_FILE_ADD, add);
	if (rc == -EISDIR || rc == -ESPIPE) {
		file.refused = rc;
		file.reason = add.out_reason;
		return 0;
	}
	if (rc < 0)
		return rc == -ENOTTY ? -EOPNOTSUPP : rc;
	file.id = add.out_file_id;
	// Another thread may have closed the descriptor meanwhile.
	return file.own.is_there(file.device->sys()) ? 0 : -EBADF;
}

// open: returns a descriptor or -errno. own: no other descriptor shares its open file description.
template <class Open>
int make_file(const std::shared_ptr<Device> &device, bool own, Open &&open, struct peerdma_file **out)
{
	// Allocated before the descriptor: if memory ran out afterwards, there would be one to close.
	auto file = std::make_unique<struct peerdma_file>(device);
	const int fd = open(device->sys());
	if (fd < 0)
		return fd;
	file->own.fd = fd;
	int rc = file->own.identify_or_close(device->sys(), own);
	if (rc == 0)
		rc = add_file(*file);
	if (rc < 0)
		return rc;
	*out = file.release();
	return 0;
}

int dup_file(const std::shared_ptr<Device> &device, int fd, struct peerdma_file **out)
{
	return make_file(
		device, false, [&](Syscalls &sys) { return sys.dup(fd); }, out);
}

} // namespace

peerdma_file::~peerdma_file()
{
	if (id && !device->is_inherited()) {
		struct peerdma_destroy request = {};
		request.id = id;
		device->ioctl(PEERDMA_FILE_REMOVE, request);
	}
	cached.close(device->sys());
	own.close(device->sys());
}

int peerdma_file_open(struct peerdma_device *p, const char *path, int open_flags, struct peerdma_file **out)
{
	return boundary([&] {
		if (const int rc = check_handle(p); rc < 0)
			return rc;
		// O_TMPFILE contains O_DIRECTORY; both it and O_CREAT would need a mode.
		if (!path || !out || (open_flags & O_CREAT) || (open_flags & O_TMPFILE) == O_TMPFILE)
			return -EINVAL;
		// O_NONBLOCK: opening a FIFO without a writer must end in -ESPIPE instead of waiting for ever. The flag
		// does not affect files that can be read directly.
		const int flags = open_flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
		return make_file(
			p->device, true, [&](Syscalls &sys) { return sys.open(path, flags); }, out);
	});
}

int peerdma_file_from_fd(struct peerdma_device *p, int fd, struct peerdma_file **out)
{
	return boundary([&] {
		const int rc = check_handle(p);
		if (rc || !out)
			return rc ? rc : -EINVAL;
		return dup_file(p->device, fd, out);
	});
}

int peerdma_file_for_buf(struct peerdma_buf *buf, int fd, struct peerdma_file **out)
{
	return boundary([&] {
		const int rc = check_handle(buf);
		if (rc || !out)
			return rc ? rc : -EINVAL;
		return dup_file(buf->device, fd, out);
	});
}

void peerdma_file_close(struct peerdma_file *file)
{
	boundary([&] {
		delete file;
		return 0;
	});
}

int peerdma_file_size(struct peerdma_file *file, uint64_t *bytes)
{
	return boundary([&] {
		int rc = check_handle(file);
		if (rc || !bytes)
			return rc ? rc : -EINVAL;
		struct stat st = {};
		Syscalls &sys = file->device->sys();
		rc = sys.fstat(file->own.fd, st);
		if (rc < 0)
			return rc;
		if (!file->own.is_there(sys))
			return -EBADF;
		uint64_t size = 0;
		if (S_ISREG(st.st_mode)) {
			size = static_cast<uint64_t>(st.st_size);
		} else if (S_ISBLK(st.st_mode)) {
			rc = sys.ioctl(file->own.fd, BLKGETSIZE64, &size);
			if (rc < 0)
				return rc;
		} else {
			return S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
		}
		*bytes = size;
		return 0;
	});
}
