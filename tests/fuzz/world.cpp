// SPDX-License-Identifier: MIT
#include "world.hpp"

#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "../tools/raw.hpp"
#include "grammar.hpp"

namespace fuzz
{
namespace
{

constexpr uint64_t base_size = 1 << 20;
constexpr int never_open = 1023;
// Indexes in targets_.
constexpr size_t regular[] = {0, 1, 2, 3, 4, 7}, itself = 12, closed = 13;

int open_or_none(const std::string &path, int flags)
{
	const int fd = path.empty() ? -1 : ::open(path.c_str(), flags | O_CLOEXEC, 0600);
	return fd >= 0 ? fd : ::open("/dev/null", O_RDWR | O_CLOEXEC);
}

bool put(const std::string &path, const std::string &what)
{
	const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	const bool done = ::write(fd, what.data(), what.size()) == ssize_t(what.size());
	::close(fd);
	return done;
}

void fill(int fd)
{
	std::vector<char> data(base_size, 'f');
	if (::pwrite(fd, data.data(), data.size(), 0) != ssize_t(data.size()) || ::fsync(fd))
		raw::die("a scratch file");
}

} // namespace

World::World(const Setup &setup_, unsigned worker) : setup(setup_)
{
	const std::string name = "/fuzz." + std::to_string(worker);
	const std::string first = setup.ext4 + name, second = first + ".direct";
	const std::string xfs = setup.xfs.empty() ? "" : setup.xfs + name;
	targets_[0] = open_or_none(first, O_RDWR | O_CREAT);
	targets_[1] = open_or_none(first, O_RDONLY);
	targets_[2] = open_or_none(first, O_WRONLY);
	targets_[3] = open_or_none(first, O_RDWR | O_APPEND);
	targets_[4] = open_or_none(second, O_RDWR | O_CREAT | O_DIRECT);
	targets_[5] = open_or_none(setup.raw, O_RDWR | O_DIRECT);
	targets_[6] = open_or_none(setup.raw, O_RDONLY);
	targets_[7] = open_or_none(xfs, xfs.empty() ? O_RDWR : O_RDWR | O_CREAT);
	targets_[8] = open_or_none(setup.stacked, O_RDWR | O_DIRECT);
	targets_[9] = ::open(setup.ext4.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ends[2];
	if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		raw::die("pipe");
	targets_[10] = ends[0];
	targets_[11] = ::open("/dev/null", O_RDWR | O_CLOEXEC);
	targets_[itself] = -1;
	targets_[closed] = never_open;
	targets_[14] = ::memfd_create("fuzz", MFD_CLOEXEC);
	targets_[15] = ends[1];
	for (size_t t : {size_t(0), size_t(4), size_t(7)}) {
		struct stat st;
		if (!::fstat(targets_[t], &st) && S_ISREG(st.st_mode))
			fill(targets_[t]);
	}
	for (size_t t = 0; t < targets_.size(); t++)
		flags_[t] = ::fcntl(targets_[t], F_GETFL);
	for (auto &dev : devs)
		dev = -1;
	shared = static_cast<char *>(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

void World::open_dev(unsigned slot)
{
	const int fd = ::open("/dev/peerdma", O_RDWR | O_CLOEXEC);
	const int old = devs[slot].exchange(fd);
	if (old >= 0)
		::close(old);
}

void World::close_dev(unsigned slot)
{
	const int old = devs[slot].exchange(-1);
	if (old >= 0)
		::close(old);
}

void World::unbind() const { put("/sys/bus/pci/drivers/peerdma/unbind", setup.gpu); }
void World::bind() const { put("/sys/bus/pci/drivers/peerdma/bind", setup.gpu); }

void World::provide()
{
	auto query = raw::sized<peerdma_provider_query>();
	// Another worker may be unpublishing it now: then this program has no provider.
	if (raw::call(devs[0], PEERDMA_PROVIDER_QUERY, query)) {
		bind();
		auto req = raw::sized<peerdma_publish>();
		req.pci_domain = setup.domain;
		req.pci_bdf = setup.bdf;
		req.bar = 2;
		req.len = setup.provided;
		raw::call(devs[0], PEERDMA_PUBLISH, req);
		raw::call(devs[0], PEERDMA_PROVIDER_QUERY, query);
	}
	provider = query.out_provider_id;
}

void World::begin()
{
	for (Buffer &buffer : buffers)
		buffer.id = 0, buffer.offset = 0;
	for (auto &file : files)
		file = 0;
	mapped_ = written_ = modes_ = false;
}

void World::enter(const Program &program)
{
	for (size_t i = 0; i < program.ncalls; i++) {
		const Spec &spec = specs()[program.calls[i].spec];
		mapped_ |= spec.makes == Slot::map;
		written_ |= spec.writes;
		modes_ |= spec.action == Action::mode;
	}
	if (devs[0] < 0)
		open_dev(0);
	provide();
}

void World::end()
{
	if (mapped_)
		::munmap(at(0), slot_count[size_t(Slot::map)] * 2 * window);
	for (unsigned slot = 0; slot < devs.size(); slot++)
		close_dev(slot);
	if (modes_)
		for (size_t t : regular)
			::fcntl(targets_[t], F_SETFL, flags_[t]);
	for (size_t t : {size_t(0), size_t(4), size_t(7)}) {
		struct stat st;
		// fstat() is cheaper than a truncation that changes nothing.
		if (written_ && !::fstat(targets_[t], &st) && S_ISREG(st.st_mode) &&
		    uint64_t(st.st_size) != base_size && ::ftruncate(targets_[t], base_size))
			raw::die("a scratch file");
	}
}

int World::dev(const Value &value) const { return devs[(value.slot == Slot::dev ? value.number : 0) % devs.size()]; }

int World::target(const Value &value) const
{
	const size_t which = value.number % targets_.size();
	return which == itself ? devs[0].load() : targets_[which];
}

uint64_t World::number(const Value &value) const
{
	switch (value.slot) {
	case Slot::dev:
		return uint64_t(dev(value));
	case Slot::provider:
		return provider;
	case Slot::buffer:
		return buffers[value.number % buffers.size()].id;
	case Slot::file:
		return files[value.number % files.size()];
	case Slot::target:
		return uint64_t(target(value));
	case Slot::map:
		return reinterpret_cast<uint64_t>(at(unsigned(value.number)));
	default:
		return value.number;
	}
}

} // namespace fuzz
