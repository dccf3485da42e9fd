// SPDX-License-Identifier: MIT
// ids FILE: many buffers and files by number, of one open file of /dev/peerdma. FILE holds 1 MiB of pattern:1, on ext4.
#include <atomic>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "../../tools/raw.hpp"
#include "../../tools/tap.hpp"

namespace
{

constexpr unsigned MANY = 40; // more than the module finds without a tree walk
constexpr uint64_t STEP = 4096;

int dev;

int remove_file(uint32_t id)
{
	auto req = raw::sized<peerdma_destroy>();
	req.id = id;
	return raw::call(dev, PEERDMA_FILE_REMOVE, req);
}

/// Reads one step of the registered file. Returns the errno; *out gets the result.
int read_by_id(uint32_t file_id, uint32_t buf_id, uint64_t file_off, peerdma_io *out = nullptr)
{
	auto req = raw::io(int(file_id), buf_id, file_off, 0, STEP);
	req.flags = PEERDMA_IO_FILE_ID;
	int err = raw::call(dev, PEERDMA_READ, req);
	if (out)
		*out = req;
	return err ? err : raw::straight(req) == STEP ? 0 : -EIO;
}

/// Number i reads step i; every third number is destroyed first.
void many_buffers(int fd, uint32_t provider)
{
	uint32_t file = raw::add_file(dev, fd);
	std::vector<peerdma_buf_alloc> buffers;
	for (unsigned i = 0; i < MANY; i++)
		buffers.push_back(raw::alloc(dev, provider, STEP));
	bool gone = true, good = true;
	for (unsigned i = 0; i < MANY; i += 3)
		gone = gone && !raw::destroy(dev, buffers[i].out_buf_id) &&
		       read_by_id(file, buffers[i].out_buf_id, 0) == -ENOENT;
	tap::report(gone, "a third of 40 buffers is gone, by number");
	std::string wanted;
	for (unsigned i = 0; i < MANY; i++) {
		if (i % 3 == 0)
			continue;
		good = good && !read_by_id(file, buffers[i].out_buf_id, i * STEP);
		wanted += (wanted.empty() ? "" : " && ") +
			  tap::compare(buffers[i].out_bar_offset, STEP, "pattern:1", i * STEP);
	}
	tap::report(good && host::run(wanted), "each of the others has its own bytes");
	for (unsigned i = 0; i < MANY; i++)
		if (i % 3)
			raw::destroy(dev, buffers[i].out_buf_id);
	remove_file(file);
}

void many_files(int fd, uint32_t buf)
{
	std::vector<uint32_t> files;
	for (unsigned i = 0; i < MANY; i++)
		files.push_back(raw::add_file(dev, fd));
	bool good = true;
	for (uint32_t id : files)
		good = good && id && !read_by_id(id, buf, 0);
	tap::report(good, "40 files, by number");
	for (unsigned i = 0; i < MANY; i += 2)
		good = good && !remove_file(files[i]);
	for (unsigned i = 0; i < MANY; i++)
		good = good && read_by_id(files[i], buf, 0) == (i % 2 ? 0 : -ENOENT);
	tap::report(good, "half of them is gone");
	for (unsigned i = 1; i < MANY; i += 2)
		remove_file(files[i]);
}

/// A request handed to a worker by number must not find a different object under that number.
void numbers_rest(int fd, uint32_t provider)
{
	uint32_t buf = raw::alloc(dev, provider, STEP).out_buf_id;
	raw::destroy(dev, buf);
	uint32_t next = raw::alloc(dev, provider, STEP).out_buf_id;
	tap::report(buf && next && next != buf, "a buffer's number is not given again at once");
	raw::destroy(dev, next);
	uint32_t file = raw::add_file(dev, fd);
	remove_file(file);
	next = raw::add_file(dev, fd);
	tap::report(file && next && next != file, "nor is a file's");
	remove_file(next);
	auto req = raw::sized<peerdma_file_add>();
	req.fd = fd;
	req.__reserved = 1;
	tap::report(raw::call(dev, PEERDMA_FILE_ADD, req) == -EINVAL && !req.out_file_id,
		    "a reserved member that is not 0 is refused");
}

/// Numbers are added and removed under readers: each is found or not, and never names another object.
void race(int fd, uint32_t buf)
{
	std::atomic<uint32_t> now{raw::add_file(dev, fd)};
	std::atomic<bool> stop{false}, bad{false};
	std::atomic<unsigned> found{0};
	auto reader = [&] {
		while (!stop) {
			int err = read_by_id(now, buf, 0);
			if (err && err != -ENOENT)
				bad = true;
			found += !err;
		}
	};
	std::thread first(reader), second(reader);
	for (int i = 0; i < 300; i++) {
		uint32_t next = raw::add_file(dev, fd), last = now.exchange(next);
		if (!next || remove_file(last))
			bad = true;
	}
	while (!found && !bad)
		::usleep(1000);
	stop = true;
	first.join();
	second.join();
	tap::report(!bad && !remove_file(now), "numbers come and go under readers");
}

/// What registration found out about a file is checked again for each request.
void journalled(const std::string &path, int fd, uint32_t buf)
{
	uint32_t id = raw::add_file(dev, fd);
	peerdma_io req;
	bool good = !read_by_id(id, buf, 0) && host::run("chattr +j " + path);
	int err = read_by_id(id, buf, 0, &req);
	tap::report(good && err == -EXDEV && req.out_reason == PEERDMA_REASON_NO_DIO && !req.out_done,
		    "a file whose data goes to the journal from now on is refused",
		    std::to_string(err) + ", reason " + std::to_string(req.out_reason));
	tap::report(host::run("chattr -j " + path) && !read_by_id(id, buf, 0), "and is direct again when it does not");
	remove_file(id);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2) {
		std::fprintf(stderr, "usage: ids FILE\n");
		return 2;
	}
	dev = raw::open_device();
	uint32_t provider = raw::provider(dev).out_provider_id;
	uint32_t buf = raw::alloc(dev, provider, STEP).out_buf_id;
	int fd = ::open(argv[1], O_RDONLY | O_DIRECT);
	if (!buf || fd < 0)
		raw::die(argv[1]);
	many_buffers(fd, provider);
	many_files(fd, buf);
	numbers_rest(fd, provider);
	race(fd, buf);
	struct statfs where;
	if (!::fstatfs(fd, &where) && where.f_type == EXT4_SUPER_MAGIC)
		journalled(argv[1], fd, buf);
	return tap::end();
}
