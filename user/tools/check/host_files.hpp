// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/syscalls.hpp"

namespace cli
{

// The files of the host that is checked: this one's, or those of another host that were recorded below a folder. A record is
// not trusted: its symbolic links are resolved inside of the folder, as chroot() would. Nothing is written.
class HostFiles final : public peerdma_impl::Syscalls
{
public:
	// @root: of the record; empty: this host.
	HostFiles(peerdma_impl::Syscalls &real, std::string root) : root_(std::move(root)), real_(real) {}

	// Files that exist and were not read, by path, with the reason in words.
	const std::map<std::string, std::string> &unread() const { return unread_; }

	int access(const std::string &path, int mode) override;
	int read_bounded(const std::string &path, uint64_t most, std::string &out) override;
	int read_link(const std::string &path, std::string &out) override;
	int list_dir(const std::string &path, std::vector<std::string> &out) override;

	int open(const char *, int) override { return -EOPNOTSUPP; }
	int close(int) override { return -EOPNOTSUPP; }
	int dup(int) override { return -EOPNOTSUPP; }
	int ioctl(int, unsigned long, void *) override { return -EOPNOTSUPP; }
	int mmap(int, uint64_t, uint64_t, void **) override { return -EOPNOTSUPP; }
	int munmap(void *, uint64_t) override { return -EOPNOTSUPP; }
	int open_queue(int, unsigned, bool, std::unique_ptr<peerdma_impl::Queue> &) override { return -EOPNOTSUPP; }
	int64_t pread(int, void *, uint64_t, uint64_t) override { return -EOPNOTSUPP; }
	int64_t pwrite(int, const void *, uint64_t, uint64_t) override { return -EOPNOTSUPP; }
	int fsync(int) override { return -EOPNOTSUPP; }
	int open_flags(int) override { return -EOPNOTSUPP; }
	int fstat(int, struct stat &) override { return -EOPNOTSUPP; }
	off_t seek(int, off_t) override { return -EOPNOTSUPP; }
	off_t position(int) override { return -EOPNOTSUPP; }
	int64_t size_of(int) override { return -EOPNOTSUPP; }
	void *function(const char *, const char *) override { return nullptr; }
	int write_file(const std::string &, std::string_view) override { return -EOPNOTSUPP; }

private:
	enum class Last { follow, keep };
	int locate(const std::string &path, Last last, std::string &out);
	int noted(const std::string &path, int rc);

	const std::string root_;
	peerdma_impl::Syscalls &real_;
	std::map<std::string, std::string> unread_;
};

} // namespace cli
