// SPDX-License-Identifier: MIT
// The /dev/peerdma shared by registrations, and a program that closes its descriptor.
#include <set>

#include <gtest/gtest.h>

#include "cufile/platform/shared_device.hpp"

namespace
{

// libpeerdma's part: devices are numbered in the order in which they are opened.
int opened, open_error;
std::set<uintptr_t> open_now, lost;

uintptr_t number_of(const struct peerdma_device *p) { return reinterpret_cast<uintptr_t>(p); }
int open_device(struct peerdma_device **out, uint32_t)
{
	if (open_error)
		return open_error;
	open_now.insert(static_cast<uintptr_t>(++opened));
	*out = reinterpret_cast<struct peerdma_device *>(static_cast<uintptr_t>(opened));
	return 0;
}
void close_device(struct peerdma_device *p) { open_now.erase(number_of(p)); }
int fd_of(const struct peerdma_device *p) { return lost.contains(number_of(p)) ? -EBADF : 5; }

class CufileSharedDevice : public ::testing::Test
{
protected:
	CufileSharedDevice()
	{
		opened = open_error = 0;
		open_now.clear();
		lost.clear();
	}
	// Returns the device's number; 0: none.
	uintptr_t hold()
	{
		struct peerdma_device *device = nullptr;
		rc = held.acquire(calls, device, number);
		return rc < 0 ? 0 : number_of(device);
	}

	cufile::SharedDevice::Calls calls = {open_device, close_device, fd_of};
	cufile::SharedDevice held;
	int rc = 0, number = 0;
};

TEST_F(CufileSharedDevice, OneForAllAsLongAsThereIsOne)
{
	EXPECT_EQ(hold(), 1u);
	const int first = number;
	EXPECT_LT(first, -1);
	EXPECT_EQ(hold(), 1u);
	EXPECT_EQ(number, first);
	held.release(calls);
	EXPECT_TRUE(held.is_valid(calls, first));
	EXPECT_EQ(open_now.size(), 1u);
	held.release(calls);
	EXPECT_TRUE(open_now.empty());
	EXPECT_FALSE(held.is_valid(calls, first));
	EXPECT_EQ(hold(), 2u);
	EXPECT_NE(number, first) << "a number came again";
	held.release(calls);
}

TEST_F(CufileSharedDevice, AnotherOneOnceItsDescriptorIsClosed)
{
	EXPECT_EQ(hold(), 1u);
	const int first = number;
	lost = {1};
	EXPECT_FALSE(held.is_valid(calls, first));
	open_error = -EMFILE;
	EXPECT_EQ(hold(), 0u);
	EXPECT_EQ(rc, -EMFILE);
	open_error = 0;
	EXPECT_EQ(hold(), 2u);
	EXPECT_NE(number, first);
	EXPECT_FALSE(held.is_valid(calls, first));
	EXPECT_TRUE(held.is_valid(calls, number));
	EXPECT_EQ(open_now, std::set<uintptr_t>{2}) << "buffers keep the old one by themselves";
	held.release(calls);
	EXPECT_EQ(open_now.size(), 1u);
	held.release(calls);
	EXPECT_TRUE(open_now.empty());
}

TEST_F(CufileSharedDevice, WithALibraryThatCannotSay)
{
	calls.fd = nullptr;
	EXPECT_EQ(hold(), 1u);
	EXPECT_EQ(hold(), 1u);
	EXPECT_TRUE(held.is_valid(calls, number));
	held.release(calls);
	held.release(calls);
}

} // namespace
