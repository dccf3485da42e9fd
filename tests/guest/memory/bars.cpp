// SPDX-License-Identifier: MIT
//
// bars registers BDF BAR FILE: a BAR that is not prefetchable must be published on request only, and only the bytes of
// a
//     request may change in it. The function is bound to the peerdma driver and is unpublished in the end.
// bars combined BDF BAR: memory that a process has mapped write-combined must not be published.
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../../tools/raw.hpp"
#include "../../tools/tap.hpp"

namespace
{

using tap::report;

constexpr uint64_t step = 2 << 20, span_len = 2 * step; // the published range, and the range that is compared

std::string bdf;
uint32_t bar;
int dev;

void tell_driver(const char *what)
{
	const int fd = ::open((std::string("/sys/bus/pci/drivers/peerdma/") + what).c_str(), O_WRONLY);
	if (fd < 0 || ::write(fd, bdf.data(), bdf.size()) != ssize_t(bdf.size()))
		raw::die(what);
	::close(fd);
}

/// Maps the beginning of the BAR through sysfs.
std::span<volatile uint64_t> map(const char *suffix)
{
	const std::string path = "/sys/bus/pci/devices/" + bdf + "/resource" + std::to_string(bar) + suffix;
	const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
	void *at = ::mmap(nullptr, span_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || at == MAP_FAILED)
		raw::die(path);
	::close(fd);
	return {static_cast<volatile uint64_t *>(at), span_len / sizeof(uint64_t)};
}

peerdma_publish request(uint32_t flags)
{
	unsigned domain, bus, device, function;
	if (std::sscanf(bdf.c_str(), "%x:%x:%x.%u", &domain, &bus, &device, &function) != 4)
		raw::die(bdf);
	auto req = raw::sized<peerdma_publish>();
	req.flags = flags;
	req.pci_domain = domain;
	req.pci_bdf = bus << 8 | device << 3 | function;
	req.bar = bar;
	req.len = span_len;
	return req;
}

void refused(const char *what, uint32_t flags, int want, uint32_t reason)
{
	auto req = request(flags);
	const int err = raw::call(dev, PEERDMA_PUBLISH, req);
	report(err == -want && req.out_reason == reason, what,
	       "errno " + std::to_string(-err) + ", reason " + std::to_string(req.out_reason));
}

uint32_t published(const char *what, uint32_t flags)
{
	auto req = request(flags);
	const int err = raw::call(dev, PEERDMA_PUBLISH, req);
	report(!err, what, "errno " + std::to_string(-err) + ", reason " + std::to_string(req.out_reason));
	return req.out_provider_id;
}

/// The errno for an unprivileged process with a descriptor that root opened.
int errno_as_user(uint32_t provider, uint32_t flags)
{
	const pid_t child = ::fork();
	if (!child) {
		if (::setgid(1000) || ::setuid(1000))
			::_exit(255);
		raw::alloc(dev, provider, 4096, flags);
		::_exit(errno);
	}
	int status = 0;
	::waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

uint64_t word(uint64_t i) { return i * 0x9e3779b97f4a7c15 | 1; }

/// Number of changed bytes in [from, to).
uint64_t changed(std::span<volatile uint64_t> words, uint64_t from, uint64_t to)
{
	uint64_t found = 0;
	for (uint64_t i = from / 8; i < to / 8; i++)
		found += words[i] != word(i);
	return found * 8;
}

void registers(const char *file_name)
{
	const auto words = map("");
	for (uint64_t i = 0; i < words.size(); i++)
		words[i] = word(i);

	refused("a BAR that is not prefetchable", 0, EINVAL, PEERDMA_REASON_NOT_PREFETCHABLE);
	refused("an unknown flag", PEERDMA_PUBLISH_NONPREFETCHABLE | 1, EOPNOTSUPP, 0);
	const uint32_t provider = published("it is published on demand", PEERDMA_PUBLISH_NONPREFETCHABLE);
	auto buffer = raw::alloc(dev, provider, step);
	report(errno == EINVAL && buffer.out_reason == PEERDMA_REASON_NOT_PREFETCHABLE && !buffer.out_buf_id,
	       "a buffer that would be zeroed is refused", std::to_string(errno));
	report(errno_as_user(provider, 0) == EINVAL, "to a user as well");
	report(errno_as_user(provider, PEERDMA_BUF_NO_ZERO) == EPERM, "one that is not zeroed is for root");
	buffer = raw::alloc(dev, provider, step, PEERDMA_BUF_NO_ZERO);
	report(!errno && buffer.out_buf_id, "root gets one", std::to_string(errno));
	report(!changed(words, 0, span_len), "and nothing of the BAR has changed");

	// Both ends are partial blocks.
	constexpr uint64_t from = 1000, place = 5096, len = 9000;
	const int file = ::open(file_name, O_RDONLY | O_CLOEXEC);
	auto io = raw::io(file, buffer.out_buf_id, from, place, len);
	const int err = raw::call(dev, PEERDMA_READ, io);
	report(!err && io.out_done == len && io.out_direct && io.out_host && !io.out_near,
	       "a read at odd places goes direct, its ends by host memory",
	       std::to_string(err) + ": " + std::to_string(io.out_direct) + " direct, " + std::to_string(io.out_near) +
		       " near, " + std::to_string(io.out_host) + " host");
	std::string want(len, '\0'), got(len, '\0');
	const auto bytes = reinterpret_cast<volatile char *>(words.data()) + buffer.out_bar_offset + place;
	std::copy(bytes, bytes + len, got.begin());
	report(::pread(file, want.data(), len, from) == ssize_t(len) && got == want, "its bytes are there");
	const uint64_t first = buffer.out_bar_offset + place;
	report(!changed(words, 0, first) && !changed(words, first + len, span_len), "and no others have changed");
	::close(file);

	raw::destroy(dev, buffer.out_buf_id);
	tell_driver("unbind");
	report(!changed(words, 0, first) && !changed(words, first + len, span_len), "nor by what came after");
}

void combined()
{
	const auto words = map("_wc");
	refused("a range that is mapped write-combined", 0, EBUSY, 0);
	::munmap(const_cast<uint64_t *>(words.data()), span_len);
	tell_driver("unbind");
	tell_driver("bind");
	published("without that mapping it is published", 0);
	tell_driver("unbind");
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 3 ? argv[1] : "";
	if (what != "combined" && (what != "registers" || argc != 5))
		return 2;
	bdf = argv[2];
	bar = uint32_t(std::atoi(argv[3]));
	dev = raw::open_device();
	if (what == "combined")
		combined();
	else
		registers(argv[4]);
	return 0;
}
