// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <linux/fs.h>

#include "boundary.hpp"
#include "device.hpp"

namespace
{

// Takes the descriptor: it is closed if the handle cannot be made.
int make_file(const std::shared_ptr<peerdma_impl::Device> &device, int fd, struct peerdma_file **out)
{
	try {
		*out = new peerdma_file{device, fd};
	} catch (...) {
		device->env().close(fd);
		throw;
	}
	return 0;
}

int dup_file(const std::shared_ptr<peerdma_impl::Device> &device, int fd, struct peerdma_file **out)
{
	int own = device->env().dup(fd);
	return own < 0 ? own : make_file(device, own, out);
}

} // namespace

using namespace peerdma_impl;

int peerdma_file_open(struct peerdma_device *p, const char *path, int open_flags, struct peerdma_file **out)
{
	return boundary([&] {
		if (const int rc = check_handle(p); rc < 0)
			return rc;
		// O_TMPFILE contains O_DIRECTORY; both it and O_CREAT would need a mode.
		if (!path || !out || (open_flags & O_CREAT) || (open_flags & O_TMPFILE) == O_TMPFILE)
			return -EINVAL;
		// O_NONBLOCK: a FIFO nobody writes to must end in -ESPIPE, not in waiting for ever. On what
		// can be read directly it has no meaning.
		int fd = p->device->env().open(path, open_flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		return fd < 0 ? fd : make_file(p->device, fd, out);
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
		if (!file)
			return 0;
		if (file->id && !file->device->is_inherited()) {
			struct peerdma_destroy request = {};
			request.id = file->id;
			file->device->ioctl(PEERDMA_FILE_REMOVE, request);
		}
		if (file->cached >= 0)
			file->device->env().close(file->cached);
		file->device->env().close(file->fd);
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
		rc = file->device->env().fstat(file->fd, &st);
		if (rc < 0)
			return rc;
		uint64_t size = 0;
		if (S_ISREG(st.st_mode)) {
			size = static_cast<uint64_t>(st.st_size);
		} else if (S_ISBLK(st.st_mode)) {
			rc = file->device->env().ioctl(file->fd, BLKGETSIZE64, &size);
			if (rc < 0)
				return rc;
		} else {
			return S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
		}
		*bytes = size;
		return 0;
	});
}
