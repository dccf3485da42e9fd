// SPDX-License-Identifier: MIT
//
// Publishing takes a device from its driver. After any failure the machine must be in its previous state.

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "fake_syscalls.hpp"
#include "peerdma.hpp"

namespace
{

const std::string pci = "0000:01:00.0";
const std::string device_dir = "/sys/bus/pci/devices/" + pci + "/", drivers_dir = "/sys/bus/pci/drivers/";

class Publish : public ::testing::Test
{
protected:
	void SetUp() override { ASSERT_EQ(peerdma_open(&device, 0), 0); }
	void TearDown() override { peerdma_close(device); }

	int publish(uint32_t flags = 0)
	{
		args.flags = flags;
		args.pci_bdf = 0x0100;
		return peerdma_provider_publish(device, &args);
	}
	int unpublish() { return peerdma_provider_unpublish(0, 0x0100, 0); }

	void expect_untouched(const std::string &driver, const std::string &override = "(null)\n")
	{
		EXPECT_EQ(sys.driver_of(pci), driver);
		EXPECT_EQ(sys.override_of(pci), override);
	}

	FakeSyscalls sys;
	struct peerdma_device *device = nullptr;
	peerdma_publish_args args = [] {
		auto a = peerdma::detail::sized<peerdma_publish_args>();
		a.bar = PEERDMA_BAR_AUTO;
		return a;
	}();
};

} // namespace

TEST_F(Publish, AFreeDevice)
{
	sys.add_function(pci, 1 << 20);
	ASSERT_EQ(publish(), 0);
	EXPECT_EQ(sys.driver_of(pci), "peerdma");
	EXPECT_EQ(sys.override_of(pci), "peerdma\n");
	EXPECT_EQ(args.out_provider_id, 1u);
	EXPECT_EQ(args.out_bar, 2);
	EXPECT_STREQ(args.out_driver, "");
	EXPECT_STREQ(args.out_where, "");
	EXPECT_EQ(args.out_reason, 0u);
}

TEST_F(Publish, ARangeOfABar)
{
	sys.add_function(pci, 1 << 20);
	args.bar = 2;
	args.bar_offset = 65536;
	args.len = 131072;
	ASSERT_EQ(publish(), 0);
	EXPECT_EQ(sys.providers[1].bar_offset, 65536u);
	EXPECT_EQ(sys.providers[1].len, 131072u);
}

TEST_F(Publish, TheLargestBarIsChosen)
{
	sys.add_function(pci, 1 << 20);
	sys.files[device_dir + "resource"] =
		"0x1000000000 0x100fffffff 0x14220c\n" // 256 MiB
		"0x0 0x0 0x0\n"
		"0x2000000000 0x23ffffffff 0x14220c\n" // 16 GiB
		"0x0 0x0 0x0\n"
		"0x40000000 0x13fffffff 0x40200\n" // larger than BAR 0, but 32-bit registers
		"0x0 0x0 0x0\n"
		"0x0 0xfffffffffff 0x14220c\n"; // the expansion ROM is not a BAR
	ASSERT_EQ(publish(), 0);
	EXPECT_EQ(args.out_bar, 2);
}

TEST_F(Publish, ADeviceWithoutSuchABar)
{
	sys.add_function(pci, 1 << 20);
	sys.files[device_dir + "resource"] = "0xfebd1000 0xfebd1fff 0x40200\n0xc000 0xc0ff 0x40101\n";
	EXPECT_EQ(publish(), -EINVAL);
	EXPECT_EQ(args.out_reason, static_cast<uint32_t>(PEERDMA_REASON_BAR_RANGE));
	EXPECT_STREQ(args.out_where, pci.c_str());
	args.bar = 1; // I/O ports
	EXPECT_EQ(publish(), -EINVAL);
	EXPECT_TRUE(sys.writes.empty());
}

TEST_F(Publish, WrongRangesAreRefusedBeforeTheDeviceIsTouched)
{
	sys.add_function(pci, 1 << 20, "vendor");
	const struct {
		int32_t bar;
		uint64_t offset, len;
		uint32_t reason;
	} cases[] = {
		{1, 0, 0, PEERDMA_REASON_BAR_RANGE},          {6, 0, 0, PEERDMA_REASON_BAR_RANGE},
		{-2, 0, 0, PEERDMA_REASON_BAR_RANGE},         {INT32_MAX, 0, 0, PEERDMA_REASON_BAR_RANGE},
		{2, 1 << 20, 0, PEERDMA_REASON_BAR_RANGE},    {2, 0, (1 << 20) + 4096, PEERDMA_REASON_BAR_RANGE},
		{2, 4096, 1 << 20, PEERDMA_REASON_BAR_RANGE}, {2, 4096, UINT64_MAX - 4095, PEERDMA_REASON_BAR_RANGE},
		{2, 100, 0, PEERDMA_REASON_RANGE_ALIGN},      {2, 0, 100, PEERDMA_REASON_RANGE_ALIGN},
	};
	for (const auto &c : cases) {
		args.bar = c.bar;
		args.bar_offset = c.offset;
		args.len = c.len;
		EXPECT_EQ(publish(PEERDMA_PUBLISH_FORCE), -EINVAL);
		EXPECT_EQ(args.out_reason, c.reason) << c.bar << ' ' << c.offset << ' ' << c.len;
	}
	EXPECT_TRUE(sys.writes.empty());
	expect_untouched("vendor");
}

TEST_F(Publish, ABarThatIsNotPrefetchableIsPublishedOnDemand)
{
	sys.add_function(pci, 1 << 20, "vendor");
	sys.files[device_dir + "resource"] = "0xe0000000 0xe3ffffff 0x40200\n";
	args.bar = 0;
	EXPECT_EQ(publish(PEERDMA_PUBLISH_FORCE), -EINVAL);
	EXPECT_EQ(args.out_reason, static_cast<uint32_t>(PEERDMA_REASON_NOT_PREFETCHABLE));
	EXPECT_TRUE(sys.writes.empty());
	expect_untouched("vendor");
	ASSERT_EQ(publish(PEERDMA_PUBLISH_FORCE | PEERDMA_PUBLISH_NONPREFETCHABLE), 0);
	EXPECT_EQ(sys.publish_flags, PEERDMA_PUBLISH_NONPREFETCHABLE);
}

TEST_F(Publish, ADeviceThatIsNotThere)
{
	EXPECT_EQ(publish(), -ENODEV);
	EXPECT_STREQ(args.out_where, pci.c_str());
	EXPECT_EQ(unpublish(), -ENODEV);
}

// The node that was opened. It is neither the first one tried nor the one that the environment names now.
TEST_F(Publish, ANodeThatFailsIsNamed)
{
	sys.add_function(pci, 1 << 20);
	const struct {
		int error; // of opening /dev/peerdma
		const char *at_open, *later, *node;
	} cases[] = {
		{0, "", "/dev/peerdma4", "/dev/peerdma"},
		{-EACCES, "", "", "/dev/peerdma3"},
		{-ENOENT, "", "/dev/peerdma4", "/dev/peerdma3"},
		{0, "/dev/peerdma4", "", "/dev/peerdma4"},
	};
	sys.provider_nodes = {{"/dev/peerdma3", 0}, {"/dev/peerdma4", 0}};
	sys.files["/dev/peerdma3"] = sys.files["/dev/peerdma4"] = "";
	for (const auto &c : cases) {
		peerdma_close(device);
		device = nullptr;
		sys.node_error = c.error;
		::setenv("PEERDMA_DEVICE", c.at_open, 1);
		const int opened = peerdma_open(&device, 0);
		::setenv("PEERDMA_DEVICE", c.later, 1);
		sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_INFO ? -EIO : 1; };
		const int published = publish();
		sys.on_ioctl = nullptr;
		::unsetenv("PEERDMA_DEVICE");
		ASSERT_EQ(opened, 0);
		EXPECT_EQ(published, -EIO);
		EXPECT_STREQ(args.out_where, c.node);
		EXPECT_TRUE(sys.writes.empty());
	}
}

TEST_F(Publish, ADeviceInUseIsNotStolen)
{
	sys.add_function(pci, 1 << 20, "nvme");
	EXPECT_EQ(publish(), -EBUSY);
	EXPECT_STREQ(args.out_driver, "nvme");
	EXPECT_STREQ(args.out_where, pci.c_str());
	EXPECT_TRUE(sys.writes.empty());
	expect_untouched("nvme");
}

TEST_F(Publish, ForceTakesIt)
{
	sys.add_function(pci, 1 << 20, "vendor");
	ASSERT_EQ(publish(PEERDMA_PUBLISH_FORCE), 0);
	EXPECT_EQ(sys.driver_of(pci), "peerdma");
	EXPECT_STREQ(args.out_driver, "vendor");
}

TEST_F(Publish, UnknownFlagsAreRefused)
{
	sys.add_function(pci, 1 << 20);
	EXPECT_EQ(publish(4), -EOPNOTSUPP);
	EXPECT_EQ(peerdma_provider_unpublish(0, 0x0100, 1), -EOPNOTSUPP);
	EXPECT_TRUE(sys.writes.empty());
}

namespace
{

struct FailedWrite {
	const char *name;
	std::string file;
	int error;
};
class PublishFailedWrite : public Publish, public ::testing::WithParamInterface<FailedWrite>
{
};
INSTANTIATE_TEST_SUITE_P(Of, PublishFailedWrite,
			 ::testing::Values(FailedWrite{"the_override", device_dir + "driver_override", -EACCES},
					   FailedWrite{"the_unbind", drivers_dir + "vendor/unbind", -EPERM},
					   FailedWrite{"the_bind", drivers_dir + "peerdma/bind", -ENOMEM}),
			 [](const auto &one) { return std::string(one.param.name); });

} // namespace

TEST_P(PublishFailedWrite, IsUndone)
{
	const auto &[name, file, error] = GetParam();
	sys.add_function(pci, 1 << 20, "vendor");
	sys.write_errors[file] = error;
	EXPECT_EQ(publish(PEERDMA_PUBLISH_FORCE), error);
	EXPECT_EQ(args.out_where, file);
	expect_untouched("vendor");
}

TEST_F(Publish, AFailedBindOfAFreeDeviceIsUndone)
{
	sys.add_function(pci, 1 << 20);
	sys.write_errors[drivers_dir + "peerdma/bind"] = -EBUSY;
	EXPECT_EQ(publish(), -EBUSY);
	// Must not be reported as a device that another driver uses.
	EXPECT_EQ(args.out_where, drivers_dir + "peerdma/bind");
	expect_untouched("");
}

TEST_F(Publish, AFailedIoctlIsUndone)
{
	for (const char *driver : {"", "vendor"}) {
		sys.add_function(pci, 1 << 20, driver);
		sys.publish_error = -EINVAL;
		sys.publish_reason = PEERDMA_REASON_BAR_RANGE;
		EXPECT_EQ(publish(PEERDMA_PUBLISH_FORCE), -EINVAL);
		EXPECT_EQ(args.out_reason, static_cast<uint32_t>(PEERDMA_REASON_BAR_RANGE));
		expect_untouched(driver);
	}
}

TEST_F(Publish, AnOverrideOfSomebodyComesBack)
{
	sys.add_function(pci, 1 << 20, "vfio-pci");
	sys.files[device_dir + "driver_override"] = "vfio-pci\n";
	sys.publish_error = -ENOMEM;
	EXPECT_EQ(publish(PEERDMA_PUBLISH_FORCE), -ENOMEM);
	expect_untouched("vfio-pci", "vfio-pci\n");
}

TEST_F(Publish, TwiceSaysSoAndChangesNothing)
{
	sys.add_function(pci, 1 << 20);
	ASSERT_EQ(publish(), 0);
	const size_t writes = sys.writes.size();
	EXPECT_EQ(publish(), -EEXIST);
	EXPECT_EQ(args.out_provider_id, 1u);
	EXPECT_EQ(sys.writes.size(), writes);
	EXPECT_EQ(sys.driver_of(pci), "peerdma");
	EXPECT_EQ(sys.providers.size(), 1u);
}

TEST_F(Publish, ADeviceThatIsBoundButNotPublished)
{
	// The device was bound by hand before. It stays bound if publishing fails.
	sys.add_function(pci, 1 << 20, "peerdma");
	sys.files[device_dir + "driver_override"] = "peerdma\n";
	sys.publish_error = -ENOMEM;
	EXPECT_EQ(publish(), -ENOMEM);
	expect_untouched("peerdma", "peerdma\n");
	sys.publish_error = 0;
	EXPECT_EQ(publish(), 0);
	EXPECT_TRUE(sys.writes.empty());
}

TEST_F(Publish, UnpublishGivesTheDeviceBack)
{
	sys.add_function(pci, 1 << 20);
	ASSERT_EQ(publish(), 0);
	EXPECT_EQ(unpublish(), 0);
	expect_untouched("");
	EXPECT_TRUE(sys.providers.empty());
	EXPECT_EQ(unpublish(), -EALREADY);
	EXPECT_EQ(publish(), 0);
}

TEST_F(Publish, UnpublishLeavesOthersAlone)
{
	sys.add_function(pci, 1 << 20, "vendor");
	sys.files[device_dir + "driver_override"] = "vendor\n";
	EXPECT_EQ(unpublish(), -EBUSY);
	sys.links.clear();
	EXPECT_EQ(unpublish(), -EALREADY);
	EXPECT_TRUE(sys.writes.empty());
}

TEST_F(Publish, UnpublishClearsAnOverrideThatWasLeft)
{
	sys.add_function(pci, 1 << 20);
	sys.files[device_dir + "driver_override"] = "peerdma\n";
	EXPECT_EQ(unpublish(), -EALREADY);
	expect_untouched("");
}

TEST_F(Publish, UnpublishWithoutRights)
{
	sys.add_function(pci, 1 << 20);
	ASSERT_EQ(publish(), 0);
	sys.write_errors[drivers_dir + "peerdma/unbind"] = -EACCES;
	EXPECT_EQ(unpublish(), -EACCES);
	EXPECT_EQ(sys.override_of(pci), "peerdma\n");
}

TEST_F(Publish, LongNamesAreCutShort)
{
	const std::string name(100, 'd');
	sys.add_function(pci, 1 << 20, name);
	EXPECT_EQ(publish(), -EBUSY);
	EXPECT_EQ(args.out_driver, name.substr(0, sizeof(args.out_driver) - 1));
}
