// SPDX-License-Identifier: MIT
#include "view/source.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <fmt/format.h>

#include "view/links.hpp"

namespace view
{

namespace
{

[[noreturn]] void fail(const std::string &name, const char *what, int error)
{
	throw SourceError(fmt::format("{}: {}: {}", name, what, std::strerror(error)), error);
}

constexpr uint64_t max_bytes = 1ULL << 60; // of all files of a view

// What the kernel fetches for one request to do so, unless a drive is set to less.
constexpr uint64_t fetched_at_once = 128 << 10;

// File systems that tell what this machine knows without asking anybody (AT_STATX_DONT_SYNC). Others may wait: 9p and SMB for their
// server, GFS2 and OCFS2 for a lock of the cluster, overlayfs for what lies below. Not in <linux/magic.h>: Ceph, ZFS, bcachefs, NTFS.
constexpr auto telling = std::to_array<int64_t>(
	{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, EXFAT_SUPER_MAGIC, MSDOS_SUPER_MAGIC,
	 UDF_SUPER_MAGIC, ISOFS_SUPER_MAGIC, SQUASHFS_MAGIC, EROFS_SUPER_MAGIC_V1, TMPFS_MAGIC, RAMFS_MAGIC,
	 NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, 0x00c36400, 0x2fc12fc1, 0xca451a4e, 0x7366746e});

int64_t nanoseconds(const statx_timestamp &time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

Identity identity_of(const struct statx &st)
{
	return {::makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_ino, st.stx_size, nanoseconds(st.stx_mtime),
		nanoseconds(st.stx_ctime)};
}

class PlainFile final : public Source
{
public:
	explicit PlainFile(const std::string &path) : name_(path)
	{
		fd_ = open_by_links(path);
		if (fd_ == -EPERM)
			throw SourceError(
				fmt::format(
					"{}: a symbolic link in the path is owned by neither root nor the file's owner",
					name_),
				EPERM);
		if (fd_ == -EINVAL)
			throw SourceError(fmt::format("{}: not a regular file", name_), EINVAL);
		if (fd_ == -EAGAIN)
			throw SourceError(fmt::format("{}: another program or file server has a lease on it", name_),
					  EAGAIN);
		if (fd_ < 0)
			fail(name_, "cannot be opened", -fd_);
		struct statx st;
		if (::statx(fd_, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) < 0) {
			const int error = errno;
			::close(fd_);
			fail(name_, "cannot be opened", error);
		}
		opened_ = identity_of(st);
		struct statfs fs = {};
		tells_ = !::fstatfs(fd_, &fs) && std::ranges::find(telling, int64_t{fs.f_type}) != telling.end();
	}
	~PlainFile() override { ::close(fd_); }

	const std::string &name() const override { return name_; }
	uint64_t bytes() const override { return opened_.size; }
	Identity opened() const override { return opened_; }
	std::optional<Identity> known_identity() const override
	{
		return tells_ ? std::optional(examine(AT_STATX_DONT_SYNC)) : std::nullopt;
	}
	Identity identity() const override { return examine(AT_STATX_SYNC_AS_STAT); }
	Identity server_identity() const override { return examine(AT_STATX_FORCE_SYNC); }

	void read(uint64_t offset, std::span<std::byte> to) const override
	{
		while (!to.empty()) {
			const ssize_t n = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0)
				fail(name_, fmt::format("cannot be read at byte {}", offset).c_str(), errno);
			if (n == 0)
				throw SourceError(
					fmt::format("{}: ends at byte {}; it had {}", name_, offset, opened_.size),
					ENODATA);
			to = to.subspan(static_cast<size_t>(n));
			offset += static_cast<uint64_t>(n);
		}
	}

	// The kernel's own readahead takes threads that read a file in several places for one that reads at random.
	void will_read(uint64_t offset, uint64_t bytes) const override
	{
		if (!bytes || is_cached(offset + bytes - 1))
			return;
		for (const uint64_t end = offset + bytes; offset < end; offset += fetched_at_once)
			::posix_fadvise(fd_, static_cast<off_t>(offset),
					static_cast<off_t>(std::min(fetched_at_once, end - offset)),
					POSIX_FADV_WILLNEED);
	}

private:
	Identity examine(int how) const
	{
		struct statx st;
		if (::statx(fd_, "", AT_EMPTY_PATH | how, STATX_BASIC_STATS, &st) < 0)
			fail(name_, "cannot be examined", errno);
		return identity_of(st);
	}

	bool is_cached(uint64_t at) const
	{
		std::byte byte = {};
		const iovec to = {&byte, 1};
		return ::preadv2(fd_, &to, 1, static_cast<off_t>(at), RWF_NOWAIT) == 1;
	}

	const std::string name_;
	int fd_ = -1;
	Identity opened_;
	bool tells_ = false; // its file system tells what this machine knows
};

} // namespace

std::unique_ptr<Source> open_plain(const std::string &path) { return std::make_unique<PlainFile>(path); }

// The first element of each file, and the end of the last.
static std::vector<uint64_t> starts_of(size_t element_bytes, const std::vector<std::unique_ptr<Source>> &files)
{
	std::vector<uint64_t> starts = {0};
	uint64_t left = max_bytes;
	for (const std::unique_ptr<Source> &file : files) {
		if (file->bytes() > left)
			throw SourceError(
				fmt::format("{}: with it the files have more than {} bytes", file->name(), max_bytes),
				EFBIG);
		left -= file->bytes();
		if (file->bytes() % element_bytes)
			throw SourceError(fmt::format("{}: its {} bytes are not a multiple of the {} of an element",
						      file->name(), file->bytes(), element_bytes),
					  EINVAL);
		starts.push_back(starts.back() + file->bytes() / element_bytes);
	}
	return starts;
}

Sequence::Sequence(Element element, std::vector<std::unique_ptr<Source>> &&files)
	: element_(element), element_bytes_(Codec::unreduced(element).element_bytes()),
	  starts_(starts_of(element_bytes_, files)), files_(std::move(files))
{
}

uint64_t Sequence::storage() const
{
	uint64_t one = 0;
	for (const std::unique_ptr<Source> &file : files_) {
		const uint64_t device = file->opened().device;
		if (one && device != one)
			return 0;
		one = device;
	}
	return one;
}

Sequence::Place Sequence::place(uint64_t element) const
{
	const auto after = std::ranges::upper_bound(starts_, element); // of empty files the last starts there
	const auto file = static_cast<size_t>(after - starts_.begin()) - 1;
	return {file, element - starts_[file]};
}

void Sequence::read(uint64_t first, std::span<std::byte> to) const
{
	while (!to.empty()) {
		const Place at = place(first);
		const uint64_t here = std::min<uint64_t>(to.size() / element_bytes_, elements_of(at.file) - at.element);
		files_[at.file]->read(at.element * element_bytes_, to.first(here * element_bytes_));
		to = to.subspan(here * element_bytes_);
		first += here;
	}
}

void Sequence::will_read(uint64_t first, uint64_t count) const
{
	while (count) {
		const Place at = place(first);
		const uint64_t here = std::min(count, elements_of(at.file) - at.element);
		files_[at.file]->will_read(at.element * element_bytes_, here * element_bytes_);
		first += here;
		count -= here;
	}
}

} // namespace view
