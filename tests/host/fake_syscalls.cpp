// SPDX-License-Identifier: MIT
#include "fake_syscalls.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <poll.h>

#include "common/pci.hpp"

namespace peerdma_impl
{

Syscalls &system_calls() { return FakeSyscalls::current ? *FakeSyscalls::current : kernel_syscalls(); }

} // namespace peerdma_impl

using peerdma_impl::PciAddress;

namespace
{

const std::string devices = "/sys/bus/pci/devices/", drivers = "/sys/bus/pci/drivers/", node = "/dev/peerdma";

} // namespace

FakeSyscalls *FakeSyscalls::current;

FakeSyscalls::FakeSyscalls()
{
	current = this;
	files[drivers + "peerdma/bind"] = files[drivers + "peerdma/unbind"] = "";
}

FakeSyscalls::~FakeSyscalls() { current = nullptr; }

void FakeSyscalls::add_function(const std::string &pci, uint64_t bar2, const std::string &driver)
{
	constexpr uint64_t base = 0x3800000000;
	files[devices + pci + "/driver_override"] = "(null)\n";
	files[devices + pci + "/resource"] =
		fmt::format("{:#018x} {:#018x} {:#018x}\n", 0xfebd1000u, 0xfebd1fffu, 0x40200u) +
		"0x0000000000000000 0x0000000000000000 0x0000000000000000\n" +
		fmt::format("{:#018x} {:#018x} {:#018x}\n", base, base + bar2 - 1, 0x14220cu) +
		"0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
	if (!driver.empty()) {
		links[devices + pci + "/driver"] = "../../../bus/pci/drivers/" + driver;
		files[drivers + driver + "/bind"] = files[drivers + driver + "/unbind"] = "";
	}
}

std::string FakeSyscalls::driver_of(const std::string &pci) const
{
	auto link = links.find(devices + pci + "/driver");
	return link == links.end() ? "" : link->second.substr(link->second.rfind('/') + 1);
}

std::string FakeSyscalls::override_of(const std::string &pci) const
{
	return files.at(devices + pci + "/driver_override");
}

uint32_t FakeSyscalls::add_provider(uint32_t domain, uint32_t bdf, uint32_t bar, uint64_t bar_offset, uint64_t len)
{
	providers[next_provider_] = {domain, bdf, bar, bar_offset, len};
	return next_provider_++;
}

int FakeSyscalls::open(const char *path, int open_flags)
{
	const std::string self = "/proc/self/fd/";
	if (std::string(path).starts_with(self)) {
		// Like the kernel: /proc/self/fd holds links, and O_TMPFILE needs a directory.
		if (reopen_error || open_flags & O_NOFOLLOW)
			return reopen_error ? reopen_error : -ELOOP;
		if (open_flags & O_DIRECTORY)
			return -ENOTDIR;
		fds[next_fd_] = fds.at(std::stoi(path + self.size()));
		flags[next_fd_] = open_flags;
		return next_fd_++;
	}
	if (const auto one = provider_nodes.find(path); one != provider_nodes.end()) {
		if (one->second)
			return one->second;
		opened_node = path;
		path = node.c_str();
	} else if (path == node) {
		if (node_error)
			return node_error;
		opened_node = node;
	} else {
		auto content = contents.find(path);
		if (content == contents.end())
			return -ENOENT;
		if (content->second.open_error)
			return content->second.open_error;
	}
	fds[next_fd_] = path;
	flags[next_fd_] = open_flags;
	return next_fd_++;
}

int FakeSyscalls::close(int fd)
{
	positions_.erase(fd);
	return fds.erase(fd) ? 0 : -EBADF;
}

void FakeSyscalls::reuse(int fd, const std::string &path)
{
	close(fd);
	fds[fd] = path;
	flags[fd] = O_RDWR;
}

int FakeSyscalls::dup(int fd)
{
	auto it = fds.find(fd);
	if (it == fds.end())
		return -EBADF;
	position(fd);
	positions_[next_fd_] = positions_[fd];
	fds[next_fd_] = it->second;
	return next_fd_++;
}

int FakeSyscalls::mmap(int fd, uint64_t offset, uint64_t len, void **out)
{
	auto it = fds.find(fd);
	auto buffer = buffers.find(static_cast<uint32_t>(offset >> 39));
	if (it == fds.end())
		return -EBADF;
	if (mmap_error)
		return mmap_error;
	if (it->second != node) {
		*out = contents.at(it->second).bytes.data();
		mappings[*out] = len;
		return 0;
	}
	const uint64_t at = offset % (1ULL << 39);
	if (buffer == buffers.end() || at % 4096 || at > buffer->second.len || len > buffer->second.len - at)
		return -EINVAL;
	*out = buffer->second.bytes.data() + at;
	mappings[*out] = len;
	return 0;
}

int FakeSyscalls::map_file(int fd, uint64_t len, void **out)
{
	const auto it = fds.find(fd);
	if (it == fds.end() || mmap_error)
		return mmap_error ? mmap_error : -EBADF;
	*out = contents.at(it->second).bytes.data();
	mappings[*out] = len;
	return 0;
}

int FakeSyscalls::populate(void *, uint64_t) { return populate_error; }

int FakeSyscalls::store(void *to, const void *from, uint64_t len)
{
	if (!store_error)
		std::memcpy(to, from, len);
	return store_error;
}

int FakeSyscalls::munmap(void *addr, uint64_t len)
{
	auto it = mappings.find(addr);
	if (it == mappings.end() || it->second != len)
		return -EINVAL;
	mappings.erase(it);
	return 0;
}

namespace
{

class FakeQueue final : public peerdma_impl::Queue
{
public:
	FakeQueue(FakeSyscalls &sys, unsigned depth) : sys_(sys), depth_(depth) { sys_.queues++; }
	~FakeQueue() override { sys_.queues--; }

	bool push(const peerdma_impl::Command &command) override
	{
		if (pushed_.size() == depth_)
			return false;
		pushed_.push_back(command);
		return true;
	}

	int submit() override
	{
		if (sys_.submit_error)
			return sys_.submit_error;
		unsigned n = 0;
		for (; n < sys_.submit_most && !pushed_.empty(); n++) {
			sys_.under_way.push_back(pushed_.front());
			sys_.commands.push_back(pushed_.front().op);
			pushed_.pop_front();
		}
		return static_cast<int>(n);
	}

	// Returns one at a time, so that a wait for several must call again.
	int wait(peerdma_impl::Completion *out, unsigned, int64_t timeout_ns) override
	{
		if (sys_.wait_error)
			return sys_.wait_error;
		const bool none = sys_.hold || sys_.under_way.size() <= sys_.held;
		if (none && sys_.sleeps) {
			sys_.sleeps--;
			return ::poll(nullptr, 0, 1000) < 0 ? -errno : -EDEADLK;
		}
		if (none) {
			EXPECT_GE(timeout_ns, 0) << "this wait would be for ever";
			return timeout_ns < 0 ? -EDEADLK : 0;
		}
		*out = sys_.complete();
		return 1;
	}

private:
	FakeSyscalls &sys_;
	const unsigned depth_;
	std::deque<peerdma_impl::Command> pushed_;
};

} // namespace

int FakeSyscalls::open_queue(int, unsigned depth, bool, std::unique_ptr<peerdma_impl::Queue> &out)
{
	if (queue_error)
		return queue_error;
	out = std::make_unique<FakeQueue>(*this, depth);
	return 0;
}

int32_t FakeSyscalls::piece(const peerdma_impl::Command &command, uint64_t file_off, uint64_t buf_off, uint32_t len)
{
	peerdma_io one = {};
	one.flags = PEERDMA_IO_FILE_ID;
	one.fd = static_cast<int>(command.file_id);
	one.buf_id = command.buf_id;
	one.file_off = file_off + astray;
	one.buf_off = buf_off;
	one.len = len;
	int rc = io(one, command.op == PEERDMA_URING_WRITE || command.op == PEERDMA_URING_WRITEV);
	return rc ? rc : static_cast<int32_t>(one.out_done);
}

peerdma_impl::Completion FakeSyscalls::complete()
{
	const auto command = under_way.front();
	under_way.pop_front();
	if (command.op == PEERDMA_URING_READ || command.op == PEERDMA_URING_WRITE)
		return {command.tag, piece(command, command.first, command.second, command.len)};
	auto *segs = reinterpret_cast<peerdma_uring_seg *>(command.first);
	std::vector<int32_t> results;
	int32_t whole = 0;
	for (uint32_t i = 0; i < command.len; i++) {
		results.push_back(piece(command, segs[i].file_off, segs[i].buf_off, segs[i].len));
		whole += results.back() == static_cast<int32_t>(segs[i].len);
	}
	for (uint32_t i = 0; i < command.len && whole < static_cast<int32_t>(command.len); i++)
		segs[i].out_res = results[i];
	return {command.tag, whole};
}

int64_t FakeSyscalls::pread(int fd, void *to, uint64_t len, uint64_t offset)
{
	posix_fds.push_back(fd);
	if (posix_error && posix_good)
		posix_good--;
	else if (posix_error)
		return std::exchange(posix_error, 0);
	const std::string &bytes = contents.at(fds.at(fd)).bytes;
	if (offset >= bytes.size())
		return 0;
	len = std::min({len, posix_limit, bytes.size() - offset});
	std::memcpy(to, &bytes[offset], len);
	return static_cast<int64_t>(len);
}

int64_t FakeSyscalls::pwrite(int fd, const void *from, uint64_t len, uint64_t offset)
{
	posix_fds.push_back(fd);
	if (posix_error && posix_good)
		posix_good--;
	else if (posix_error)
		return std::exchange(posix_error, 0);
	len = std::min(len, posix_limit);
	std::string &bytes = contents.at(fds.at(fd)).bytes;
	bytes.resize(std::max<uint64_t>(bytes.size(), offset + len));
	std::memcpy(&bytes[offset], from, len);
	return static_cast<int64_t>(len);
}

int FakeSyscalls::fsync(int fd) { return fds.count(fd) ? 0 : -EBADF; }

int FakeSyscalls::open_flags(int fd) { return flags[fd]; }

int FakeSyscalls::fstat(int fd, struct stat &st)
{
	const int rc = identity(fd, st);
	const auto it = fds.find(fd);
	if (rc < 0 || it->second == node)
		return rc;
	const Content &content = contents.at(it->second);
	st.st_size = S_ISREG(content.mode) ? static_cast<off_t>(content.size.value_or(content.bytes.size())) : 0;
	return content.stat_error;
}

int FakeSyscalls::identity(int fd, struct stat &st)
{
	const auto it = fds.find(fd);
	if (it == fds.end())
		return -EBADF;
	st.st_ino = std::hash<std::string>()(it->second);
	st.st_mode = S_IFCHR;
	if (it->second == node)
		return 0;
	const Content &content = contents.at(it->second);
	st.st_mode = content.mode;
	return content.identity_error;
}

off_t FakeSyscalls::seek(int fd, off_t to)
{
	const off_t at = position(fd);
	return at < 0 ? at : *positions_[fd] = to;
}

off_t FakeSyscalls::position(int fd)
{
	if (!fds.count(fd))
		return -EBADF;
	auto &at = positions_[fd];
	if (!at)
		at = std::make_shared<off_t>(0);
	return *at;
}

int FakeSyscalls::io(peerdma_io &io, bool write)
{
	ios.push_back(io);
	io.out_done = io.out_direct = io.out_near = io.out_host = 0;
	io.out_reason = 0;
	const bool by_id = io.flags & PEERDMA_IO_FILE_ID;
	auto buffer = buffers.find(io.buf_id);
	if (by_id ? !file_ids.count(static_cast<uint32_t>(io.fd)) : !fds.count(io.fd))
		return by_id ? -ENOENT : -EBADF;
	if (buffer == buffers.end())
		return -ENOENT;
	Content &content = contents.at(by_id ? file_ids.at(static_cast<uint32_t>(io.fd)) : fds.at(io.fd));
	auto refuse = [&](int rc, uint32_t reason) {
		io.out_reason = reason;
		return rc;
	};
	if (io_error && ios.size() > io_good)
		return io_error;
	if (content.refused_errno)
		return refuse(-static_cast<int>(content.refused_errno), content.refused_reason);
	if (!io.len)
		return refuse(-EINVAL, PEERDMA_REASON_LEN_ZERO);
	if (io.buf_off > buffer->second.len || io.len > buffer->second.len - io.buf_off)
		return refuse(-EINVAL, PEERDMA_REASON_BUF_RANGE);
	uint64_t n = std::min<uint64_t>(io.len, io_limit);
	if (write) {
		content.bytes.resize(std::max<uint64_t>(content.bytes.size(), io.file_off + n));
		content.bytes.replace(io.file_off, n, buffer->second.bytes, io.buf_off, n);
	} else {
		if (io.file_off >= content.bytes.size())
			return refuse(0, PEERDMA_REASON_END_OF_FILE);
		n = std::min<uint64_t>(n, content.bytes.size() - io.file_off);
		buffer->second.bytes.replace(io.buf_off, n, content.bytes, io.file_off, n);
	}
	const uint64_t first = (io.file_off + block - 1) / block * block, last = (io.file_off + n) / block * block;
	io.out_done = n;
	// If no drive can address the whole blocks, everything passes through host memory.
	const bool misplaced = last > first && (io.buf_off + first - io.file_off) % mem_align;
	io.out_direct = last > first && !misplaced ? last - first : 0;
	(write || misplaced ? io.out_host : io.out_near) = n - io.out_direct;
	if (io.out_direct != n)
		io.out_reason = misplaced ? PEERDMA_REASON_BUF_ALIGN : PEERDMA_REASON_FILE_ALIGN;
	if (!write && n < io.len && io.file_off + n == content.bytes.size())
		io.out_reason = PEERDMA_REASON_END_OF_FILE;
	return 0;
}

int FakeSyscalls::ioctl(int fd, unsigned long request, void *arg)
{
	auto it = fds.find(fd);
	if (it == fds.end())
		return -EBADF;
	if (request == BLKGETSIZE64) {
		*static_cast<uint64_t *>(arg) = contents.at(it->second).bytes.size();
		return 0;
	}
	if (it->second != node)
		return -ENOTTY;
	if (on_ioctl)
		if (int rc = on_ioctl(request, arg); rc <= 0)
			return rc;
	return perform(request, arg);
}

template <class Request> int FakeSyscalls::add_buffer(Request &req, uint32_t provider, uint64_t offset)
{
	req.out_buf_id = next_buffer_;
	req.out_mmap_offset = can_map ? uint64_t{next_buffer_} << 39 : 0;
	buffers[next_buffer_++] = {provider, offset, req.len, std::string(req.len, '\0')};
	return 0;
}

int FakeSyscalls::perform(unsigned long request, void *arg)
{
	switch (request) {
	case PEERDMA_INFO: {
		auto &info = *static_cast<peerdma_info *>(arg);
		info.out_abi = abi;
		info.out_features = features;
		info.out_page_size = 4096;
		info.out_publish_align = 4096;
		info.out_nproviders = static_cast<uint32_t>(providers.size());
		return 0;
	}
	case PEERDMA_PROVIDER_QUERY: {
		auto &query = *static_cast<peerdma_provider_query *>(arg);
		auto found = providers.lower_bound(query.provider_id);
		if (found == providers.end())
			return -ENOENT;
		query.out_provider_id = found->first;
		query.out_pci_domain = found->second.domain;
		query.out_pci_bdf = found->second.bdf;
		query.out_bar = found->second.bar;
		query.out_numa_node = -1;
		query.out_bar_offset = found->second.bar_offset;
		query.out_len = found->second.len;
		query.out_available = found->second.len - found->second.used;
		query.out_pci_vendor = 0x1af4;
		query.out_pci_device = 0x1110;
		return 0;
	}
	case PEERDMA_PUBLISH: {
		auto &publish = *static_cast<peerdma_publish *>(arg);
		publish_flags = publish.flags;
		if (publish_error) {
			publish.out_reason = publish_reason;
			return publish_error;
		}
		if (driver_of(PciAddress{publish.pci_domain, publish.pci_bdf}.str()) != "peerdma") {
			publish.out_reason = PEERDMA_REASON_NOT_BOUND;
			return -EINVAL;
		}
		for (const auto &[id, provider] : providers)
			if (provider.domain == publish.pci_domain && provider.bdf == publish.pci_bdf)
				return -EEXIST;
		publish.out_provider_id = add_provider(publish.pci_domain, publish.pci_bdf, publish.bar,
						       publish.bar_offset, publish.len ? publish.len : 1 << 20);
		return 0;
	}
	case PEERDMA_BUF_ALLOC: {
		auto &alloc = *static_cast<peerdma_buf_alloc *>(arg);
		auto found = providers.find(alloc.provider_id);
		if (found == providers.end())
			return -ENOENT;
		if (!alloc.len || alloc.len % 4096) {
			alloc.out_reason = alloc.len ? PEERDMA_REASON_PAGE_ALIGN : PEERDMA_REASON_LEN_ZERO;
			return -EINVAL;
		}
		if (alloc.len > found->second.len - found->second.used)
			return -ENOMEM;
		alloc.out_bar_offset = found->second.bar_offset + found->second.used;
		found->second.used += alloc.len;
		return add_buffer(alloc, alloc.provider_id, alloc.out_bar_offset);
	}
	case PEERDMA_BUF_REGISTER: {
		auto &req = *static_cast<peerdma_buf_register *>(arg);
		if (req.pci_vendor != 0x10de) {
			req.out_reason = PEERDMA_REASON_VENDOR_MODULE;
			return -EOPNOTSUPP;
		}
		if ((req.addr | req.len) % 65536) {
			req.out_reason = PEERDMA_REASON_VENDOR_ALIGN;
			return -EINVAL;
		}
		req.out_provider_id = providers.begin()->first;
		return add_buffer(req, req.out_provider_id, 0);
	}
	case PEERDMA_BUF_IMPORT: {
		auto &req = *static_cast<peerdma_buf_import *>(arg);
		if (req.fd < 0)
			return -EBADF;
		if (req.off % 4096 || req.len % 65536) {
			req.out_reason = PEERDMA_REASON_VENDOR_ALIGN;
			return -EINVAL;
		}
		req.out_provider_id = providers.begin()->first;
		return add_buffer(req, req.out_provider_id, 0);
	}
	case PEERDMA_DESTROY:
		return buffers.erase(static_cast<peerdma_destroy *>(arg)->id) ? 0 : -ENOENT;
	case PEERDMA_BUF_EXPORT: {
		auto &req = *static_cast<peerdma_buf_export *>(arg);
		req.out_fd = -1;
		auto found = buffers.find(req.buf_id);
		if (found == buffers.end())
			return -ENOENT;
		if (req.off > found->second.len || req.len > found->second.len - req.off) {
			req.out_reason = PEERDMA_REASON_BUF_RANGE;
			return -EINVAL;
		}
		req.out_fd = next_fd_++;
		fds[req.out_fd] = fmt::format("dmabuf:{}:{}:{}", req.buf_id, req.off, req.len);
		return 0;
	}
	case PEERDMA_FILE_QUERY: {
		auto &query = *static_cast<peerdma_file_query *>(arg);
		if (!fds.count(query.fd))
			return -EBADF;
		if (!providers.count(query.provider_id))
			return -ENOENT;
		const Content &content = contents.at(fds[query.fd]);
		query.out_errno = content.refused_errno;
		query.out_reason = content.refused_reason;
		query.out_map = content.refused_errno ? uint32_t{PEERDMA_MAP_NONE} : content.map;
		query.out_distance = content.refused_errno ? -1 : 4;
		query.out_dio_mem_align = mem_align;
		query.out_dio_offset_align = block;
		query.out_leaf_bdf = 0x0300 + 0x100 * query.leaf;
		query.out_leaf_major = content.leaves && !content.share ? 259 : 0;
		query.out_nr_leaves = content.leaves;
		query.out_leaf_reason = content.refused_reason;
		query.out_leaf_map = query.out_map;
		query.out_leaf_distance = query.out_distance;
		fmt::format_to_n(query.out_leaf_name, sizeof(query.out_leaf_name) - 1, "nvme{}n1", query.leaf);
		std::strcpy(query.out_fs_name, "ext4");
		return 0;
	}
	case PEERDMA_FILE_ADD: {
		auto &add = *static_cast<peerdma_file_add *>(arg);
		if (!fds.count(add.fd))
			return -EBADF;
		const uint32_t mode = contents.at(fds[add.fd]).mode;
		if (!S_ISREG(mode) && !S_ISBLK(mode)) {
			add.out_reason = PEERDMA_REASON_FILE_TYPE;
			return S_ISDIR(mode) ? -EISDIR : -ESPIPE;
		}
		add.out_file_id = next_file_++;
		file_ids[add.out_file_id] = fds[add.fd];
		return 0;
	}
	case PEERDMA_FILE_REMOVE:
		return file_ids.erase(static_cast<peerdma_destroy *>(arg)->id) ? 0 : -ENOENT;
	case PEERDMA_READ:
	case PEERDMA_WRITE:
		return io(*static_cast<peerdma_io *>(arg), request == PEERDMA_WRITE);
	}
	return -ENOTTY;
}

int FakeSyscalls::access(const std::string &path, int) { return files.count(path) || links.count(path) ? 0 : -ENOENT; }

int FakeSyscalls::read_bounded(const std::string &path, uint64_t most, std::string &out)
{
	out.clear();
	auto it = files.find(path);
	if (it == files.end())
		return -ENOENT;
	if (it->second.size() > most)
		return -EFBIG;
	out = it->second;
	return 0;
}

int FakeSyscalls::write_file(const std::string &path, std::string_view value)
{
	if (auto error = write_errors.find(path); error != write_errors.end())
		return error->second;
	if (!files.count(path))
		return -ENOENT;
	writes.emplace_back(path, value);
	const std::string text(value);
	if (path.ends_with("/driver_override")) {
		files[path] = text == "\n" ? "(null)\n" : text;
	} else if (path.ends_with("/bind") && path.starts_with(drivers)) {
		const std::string driver = path.substr(drivers.size(), path.size() - drivers.size() - 5);
		const std::string override = files[devices + text + "/driver_override"];
		// Like driver_match_device(): with an override only that driver matches; peerdma has no IDs of its own.
		if (override != "(null)\n" ? override != driver + "\n" : driver == "peerdma")
			return -ENODEV;
		if (!driver_of(text).empty())
			return -EBUSY;
		links[devices + text + "/driver"] = drivers + driver;
	} else if (path.ends_with("/unbind") && path.starts_with(drivers)) {
		const std::string driver = path.substr(drivers.size(), path.size() - drivers.size() - 7);
		if (driver_of(text) != driver)
			return -ENODEV;
		links.erase(devices + text + "/driver");
		const auto address = PciAddress::parse(text);
		std::erase_if(providers, [&](const auto &entry) {
			return address && entry.second.domain == address->domain && entry.second.bdf == address->bdf;
		});
	}
	return 0;
}

int FakeSyscalls::read_link(const std::string &path, std::string &out)
{
	const std::string self = "/proc/self/fd/";
	if (path.starts_with(self) && can_see_fds) {
		out = fds.at(std::stoi(path.substr(self.size())));
		return 0;
	}
	auto it = links.find(path);
	if (it == links.end())
		return -ENOENT;
	out = it->second;
	return 0;
}

int FakeSyscalls::list_dir(const std::string &path, std::vector<std::string> &out)
{
	std::set<std::string> names;
	for (const auto &[name, text] : files)
		if (name.starts_with(path + "/"))
			names.insert(name.substr(path.size() + 1, name.find('/', path.size() + 1) - path.size() - 1));
	out.assign(names.begin(), names.end());
	return names.empty() ? -ENOENT : 0;
}

int64_t FakeSyscalls::size_of(int fd)
{
	const auto size = sizes.find(fd);
	return size == sizes.end() ? -ESPIPE : size->second;
}

void *FakeSyscalls::function(const char *library, const char *name)
{
	const auto found = functions.find(std::string(library) + " " + name);
	return found == functions.end() ? nullptr : found->second;
}
