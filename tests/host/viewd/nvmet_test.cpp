// SPDX-License-Identifier: MIT
//
// Exports, in a folder that stands for the target in configfs. What the kernel does with it: tests/guest/view/exported.sh.
#include "viewd/nvmet.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>

namespace
{

namespace fs = std::filesystem;

class NvmetTree : public testing::Test
{
protected:
	NvmetTree()
	{
		std::string name = "/tmp/nvmet-XXXXXX";
		root = ::mkdtemp(name.data());
		put("ports/1/addr_trtype", "rdma");
		put("ports/1/addr_traddr", "192.0.2.1");
		put("ports/1/addr_trsvcid", "4420");
		put("subsystems/q/attr_allow_any_host", "1");
		put("subsystems/q/namespaces/1/enable", "0");
		put("subsystems/q/namespaces/1/device_path", "");
		fs::create_directories(root / "subsystems/q/allowed_hosts");
		fs::create_directories(root / "hosts");
	}
	~NvmetTree() override { fs::remove_all(root); }

	void put(const std::string &name, const std::string &text)
	{
		fs::create_directories((root / name).parent_path());
		std::ofstream(root / name) << text;
	}
	std::string why_not() const
	{
		try {
			viewd::Nvmet(root, {{"rdma", "192.0.2.1", "4420"}}).add("q", "/dev/ublkb0", {"host"});
		} catch (const std::runtime_error &error) {
			return error.what();
		}
		return "";
	}

	fs::path root;
};

TEST_F(NvmetTree, APortThatCannotBeOpenedIsNamedByItsOption)
{
	EXPECT_EQ("--port rdma:192.0.2.1:4420 cannot be opened: No such file or directory", why_not());
}

TEST_F(NvmetTree, APortIsOpenedLast)
{
	fs::create_directories(root / "ports/1/subsystems");
	EXPECT_EQ("", why_not());
	EXPECT_EQ(root / "subsystems/q", fs::read_symlink(root / "ports/1/subsystems/q"));
	EXPECT_TRUE(fs::is_symlink(root / "subsystems/q/allowed_hosts/host"));
}

} // namespace
