// SPDX-License-Identifier: MIT
#include "descriptor.hpp"

#include <atomic>

namespace cufile
{
namespace
{

// Twice the same only after as many: what is at a small position by chance must not look like ours.
off_t next_position()
{
	static std::atomic<uint32_t> count{0};
	constexpr uint32_t odd = 0x9e3779b1, bits = 30;
	return static_cast<off_t>((++count * odd) & ((1u << bits) - 1));
}

} // namespace

void Descriptor::identify(System &system, bool own)
{
	struct stat st = {};
	if (system.fstat(fd, st) == 0) {
		device = st.st_dev;
		inode = st.st_ino;
	}
	// lseek() of a block device waits for its buffered reads.
	const off_t wanted = next_position();
	if (own && !S_ISBLK(st.st_mode) && system.seek(fd, wanted) == wanted)
		position = wanted;
}

bool Descriptor::is_there(System &system) const
{
	if (position >= 0)
		return system.position(fd) == position;
	struct stat st = {};
	return system.fstat(fd, st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void Descriptor::close(System &system)
{
	if (fd >= 0 && is_there(system))
		system.close(fd);
	fd = -1;
}

} // namespace cufile
