// SPDX-License-Identifier: MIT
//
// libpeerdma-verbs on a device in memory: its calls, their order, and that a failure leaves nothing behind.
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peerdma_verbs.h"

#undef ibv_reg_mr

struct peerdma_buf {
	uint64_t len;
};

namespace
{

constexpr uint64_t page = 4096;

// The features of device and module, their calls, and the existing objects.
struct World {
	bool takes_on_demand = false;                  // IBV_ODP_SUPPORT
	int dmabuf = 0;                                // errno of ibv_reg_dmabuf_mr()
	int exports = 0, maps = 0, reg = 0, dereg = 0; // -errno of libpeerdma, errno of verbs
	uint32_t not_exported = PEERDMA_REASON_NONE;
	enum ibv_mtu mtu[2] = {IBV_MTU_1024, IBV_MTU_4096};
	int query = 0, query_port = 0;
	std::vector<std::string> asked;
	std::map<void *, uint64_t> mapped;
	int regions = 0;
} world;

int fds()
{
	int n = 0;
	for (int fd = 3; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

// mincore(2) fails for an unmapped address.
bool is_mapped(const void *addr)
{
	unsigned char vec;
	return !mincore(const_cast<void *>(addr), page, &vec);
}

struct ibv_mr *region(struct ibv_pd *pd, void *addr, size_t length)
{
	world.regions++;
	auto *mr = new struct ibv_mr;
	std::memset(mr, 0, sizeof(*mr));
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	return mr;
}

int query_device(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *attr,
		 size_t)
{
	attr->orig_attr.phys_port_cnt = 2;
	attr->odp_caps.general_caps = world.takes_on_demand ? IBV_ODP_SUPPORT : 0;
	return world.query;
}

int query_port_of(struct ibv_context *, uint8_t port, struct ibv_port_attr *attr, size_t)
{
	attr->active_mtu = world.mtu[port - 1];
	return world.query_port;
}

} // namespace

extern "C" {

int peerdma_buf_query(const struct peerdma_buf *buf, struct peerdma_buf_info *info)
{
	info->len = buf->len;
	return 0;
}

int peerdma_buf_export_dmabuf(struct peerdma_buf *, uint64_t off, uint64_t len, int *fd, uint32_t *reason)
{
	world.asked.push_back("export " + std::to_string(off) + " " + std::to_string(len));
	*reason = world.not_exported;
	if (world.exports)
		return world.exports;
	*fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

int peerdma_buf_map_on_demand(struct peerdma_buf *, uint64_t off, uint64_t len, void **addr)
{
	world.asked.push_back("map " + std::to_string(off) + " " + std::to_string(len));
	if (world.maps)
		return world.maps;
	*addr = mmap(nullptr, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	world.mapped[*addr] = len;
	return 0;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	EXPECT_GE(fcntl(fd, F_GETFD), 0);
	world.asked.push_back("dmabuf " + std::to_string(offset) + " " + std::to_string(length) + " at " +
			      std::to_string(iova) + " access " + std::to_string(access));
	// The kernel's command (UVERBS_METHOD_REG_DMABUF_MR) accepts no other flags.
	constexpr int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;
	errno = world.dmabuf ? world.dmabuf : access & ~known ? EINVAL : 0;
	return errno ? nullptr : region(pd, nullptr, length);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t, unsigned int access)
{
	world.asked.push_back("reg " + std::to_string(length) + " access " + std::to_string(access));
	errno = world.reg;
	return errno ? nullptr : region(pd, addr, length);
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, reinterpret_cast<uintptr_t>(addr), static_cast<unsigned>(access));
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	// The mapping must exist until the device has released it.
	EXPECT_TRUE(!mr->addr || is_mapped(mr->addr));
	if (world.dereg)
		return world.dereg;
	world.regions--;
	delete mr;
	return 0;
}

int ibv_query_device(struct ibv_context *, struct ibv_device_attr *) { return ENOSYS; }

#undef ibv_query_port
int ibv_query_port(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *) { return ENOSYS; }

} // extern "C"

namespace
{

class Verbs : public testing::Test
{
protected:
	Verbs()
	{
		world = {};
		std::memset(&context, 0, sizeof(context));
		context.sz = sizeof(context);
		context.query_device_ex = query_device;
		context.query_port = query_port_of;
		context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
		pd.context = &context.context;
	}
	~Verbs()
	{
		EXPECT_EQ(fds(), before);
		EXPECT_EQ(world.regions, 0);
		for (const auto &[addr, len] : world.mapped)
			EXPECT_FALSE(is_mapped(addr));
	}

	int reg(uint64_t off, uint64_t len, int access = IBV_ACCESS_LOCAL_WRITE)
	{
		info = {};
		info.size = sizeof(info);
		return peerdma_mr_reg(&pd, &buf, off, len, access, &info, &mr);
	}
	void way(enum peerdma_mr_way want, uint32_t align, uint32_t mtu)
	{
		EXPECT_EQ(info.way, static_cast<uint32_t>(want));
		EXPECT_EQ(info.reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
		EXPECT_EQ(info.align, align);
		EXPECT_EQ(info.path_mtu, mtu);
	}
	void refused(int rc, int error, uint32_t reason)
	{
		EXPECT_EQ(rc, error);
		EXPECT_EQ(info.way, static_cast<uint32_t>(PEERDMA_MR_NONE));
		EXPECT_EQ(info.reason, reason);
		EXPECT_EQ(mr, nullptr);
	}
	void soft_roce()
	{
		world.takes_on_demand = true;
		world.dmabuf = EOPNOTSUPP;
	}

	struct verbs_context context;
	struct ibv_pd pd = {};
	struct peerdma_buf buf = {1 << 20};
	struct peerdma_mr_info info = {};
	struct ibv_mr *mr = nullptr;
	const int before = fds();
};

using Asked = std::vector<std::string>;

TEST_F(Verbs, AChildLeavesItsParentsRegionsAlone)
{
	for (const bool on_demand : {false, true}) {
		if (on_demand)
			soft_roce();
		ASSERT_EQ(reg(0, page), 0);
		const pid_t child = fork();
		if (!child) {
			const bool refused = peerdma_mr_dereg(mr) == -ECHILD && world.regions == 1;
			_exit(refused && (!mr->addr || is_mapped(mr->addr)) ? 0 : 1);
		}
		int status = -1;
		ASSERT_EQ(waitpid(child, &status, 0), child);
		EXPECT_TRUE(WIFEXITED(status) && !WEXITSTATUS(status)) << status;
		EXPECT_EQ(peerdma_mr_dereg(mr), 0);
		mr = nullptr;
	}
}

TEST_F(Verbs, ADeviceThatImportsGetsADmabufOfWholePages)
{
	ASSERT_EQ(reg(5000, 4000), 0);
	EXPECT_EQ(world.asked, (Asked{"export 4096 8192", "dmabuf 904 4000 at 5000 access 1"}));
	way(PEERDMA_MR_DMABUF, 1, 0);
	EXPECT_EQ(info.addr, 5000u);
	EXPECT_EQ(fds(), before) << "the descriptor is closed";
	EXPECT_EQ(peerdma_mr_dereg(mr), 0);
}

TEST_F(Verbs, SoDoesOneThatTakesMemoryOnDemandAsWell)
{
	world.takes_on_demand = true;
	ASSERT_EQ(reg(0, page), 0);
	EXPECT_EQ(world.asked, (Asked{"export 0 4096", "dmabuf 0 4096 at 0 access 1"}));
	way(PEERDMA_MR_DMABUF, 1, 0);
	EXPECT_EQ(peerdma_mr_dereg(mr), 0);
}

TEST_F(Verbs, OneThatDoesNotGetsTheMappingOnDemand)
{
	soft_roce();
	ASSERT_EQ(reg(2 * page, 4097), 0);
	EXPECT_EQ(world.asked.back(), "reg 4097 access 65");
	way(PEERDMA_MR_ON_DEMAND, page, IBV_MTU_4096);
	EXPECT_EQ(info.addr, reinterpret_cast<uintptr_t>(world.mapped.begin()->first));
	EXPECT_EQ(peerdma_mr_dereg(mr), 0);
}

TEST_F(Verbs, ItsMappingStaysUntilTheDeviceHasLetGo)
{
	soft_roce();
	ASSERT_EQ(reg(0, page), 0);
	world.dereg = EBUSY;
	EXPECT_EQ(peerdma_mr_dereg(mr), -EBUSY);
	EXPECT_TRUE(is_mapped(reinterpret_cast<void *>(info.addr)));
	world.dereg = 0;
	EXPECT_EQ(peerdma_mr_dereg(mr), 0);
	EXPECT_FALSE(is_mapped(reinterpret_cast<void *>(info.addr)));
	EXPECT_EQ(peerdma_mr_dereg(nullptr), 0);
}

TEST_F(Verbs, WhatSoftRoceGetsWrongIsRefused)
{
	soft_roce();
	refused(reg(100, page), -EINVAL, PEERDMA_REASON_PAGE_ALIGN);
	world.mtu[1] = IBV_MTU_2048;
	refused(reg(0, page), -EOPNOTSUPP, PEERDMA_REASON_VERBS_MTU);
}

TEST_F(Verbs, NoWay)
{
	soft_roce();
	world.takes_on_demand = false;
	refused(reg(0, page), -EOPNOTSUPP, PEERDMA_REASON_VERBS_DEVICE);
	world.takes_on_demand = true;
	world.maps = -EOPNOTSUPP;
	refused(reg(0, page), -EOPNOTSUPP, PEERDMA_REASON_VERBS_KERNEL);
	EXPECT_EQ(world.asked.back(), "map 0 4096") << "nothing was registered";
}

TEST_F(Verbs, AModuleThatCannotExportLeavesTheMapping)
{
	soft_roce();
	world.exports = -EOPNOTSUPP;
	ASSERT_EQ(reg(0, page), 0);
	way(PEERDMA_MR_ON_DEMAND, page, IBV_MTU_4096);
	EXPECT_EQ(peerdma_mr_dereg(mr), 0);
}

TEST_F(Verbs, WhyTheModuleDoesNotExportIsSaid)
{
	soft_roce();
	world.exports = -EOPNOTSUPP;
	world.not_exported = PEERDMA_REASON_DMABUF;
	ASSERT_EQ(reg(0, page), 0);
	EXPECT_EQ(info.reason, uint32_t{PEERDMA_REASON_NONE}) << "there is another way";
	EXPECT_EQ(peerdma_mr_dereg(mr), 0);
	mr = nullptr;
	world.maps = -EOPNOTSUPP;
	refused(reg(0, page), -EOPNOTSUPP, PEERDMA_REASON_DMABUF);
	world.takes_on_demand = false;
	world.not_exported = PEERDMA_REASON_IMPORT_EXPORT;
	refused(reg(0, page), -EOPNOTSUPP, PEERDMA_REASON_IMPORT_EXPORT);
	world.exports = -ENODEV;
	world.not_exported = PEERDMA_REASON_REVOKED;
	refused(reg(0, page), -ENODEV, PEERDMA_REASON_REVOKED);
}

TEST_F(Verbs, AnErrorIsNoReasonToTryAnotherWay)
{
	soft_roce();
	world.dmabuf = EXDEV;
	refused(reg(0, page), -EXDEV, PEERDMA_REASON_DISTANCE);
	EXPECT_EQ(world.asked.size(), 2u);
	world.exports = -ENODEV;
	EXPECT_EQ(reg(0, page), -ENODEV);
	soft_roce();
	world.exports = 0;
	world.maps = -ENODEV;
	EXPECT_EQ(reg(0, page), -ENODEV);
	world.maps = 0;
	world.reg = ENOMEM;
	EXPECT_EQ(reg(0, page), -ENOMEM);
	world.query_port = EIO;
	EXPECT_EQ(reg(0, page), -EIO);
	world.query = ENOMEM;
	EXPECT_EQ(reg(0, page), -ENOMEM);
}

TEST_F(Verbs, WrongNumbers)
{
	refused(reg(0, 0), -EINVAL, PEERDMA_REASON_LEN_ZERO);
	refused(reg(buf.len, 1), -EINVAL, PEERDMA_REASON_BUF_RANGE);
	refused(reg(1, UINT64_MAX), -EINVAL, PEERDMA_REASON_BUF_RANGE);
	for (int flag : {IBV_ACCESS_ON_DEMAND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_HUGETLB})
		EXPECT_EQ(reg(0, page, flag), -EINVAL);
	EXPECT_TRUE(world.asked.empty());
	EXPECT_EQ(peerdma_mr_reg(nullptr, &buf, 0, page, 0, &info, &mr), -EINVAL);
	EXPECT_EQ(peerdma_mr_reg(&pd, nullptr, 0, page, 0, &info, &mr), -EINVAL);
	EXPECT_EQ(peerdma_mr_reg(&pd, &buf, 0, page, 0, nullptr, &mr), -EINVAL);
	EXPECT_EQ(peerdma_mr_reg(&pd, &buf, 0, page, 0, &info, nullptr), -EINVAL);
	info.size = 8;
	EXPECT_EQ(peerdma_mr_reg(&pd, &buf, 0, page, 0, &info, &mr), -EINVAL);
}

TEST_F(Verbs, WaysHaveNames)
{
	EXPECT_STREQ(peerdma_mr_way_name(PEERDMA_MR_NONE), "none");
	EXPECT_STREQ(peerdma_mr_way_name(PEERDMA_MR_DMABUF), "dma-buf");
	EXPECT_STREQ(peerdma_mr_way_name(PEERDMA_MR_ON_DEMAND), "on demand");
	EXPECT_STREQ(peerdma_mr_way_name(99), "unknown");
}

} // namespace
