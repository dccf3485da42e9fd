// SPDX-License-Identifier: MIT
//
// Exports, in a folder that stands for the target in configfs. What the kernel does with it: tests/guest/view/exported.sh.
#include "viewd/nvmet.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace
{

namespace fs = std::filesystem;

constexpr auto tried_again = std::chrono::milliseconds(20);

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
		make_subsystem("q");
		make_namespace("q", "1");
		fs::create_directories(root / "hosts");
	}
	~NvmetTree() override { fs::remove_all(root); }

	void put(const std::string &name, const std::string &text)
	{
		fs::create_directories((root / name).parent_path());
		std::ofstream(root / name) << text;
	}
	std::string get(const std::string &name) const
	{
		std::string text;
		std::ifstream(root / name) >> text;
		return text;
	}
	// As the kernel fills new folders.
	void make_subsystem(const std::string &nqn)
	{
		put("subsystems/" + nqn + "/attr_allow_any_host", "1");
		put("subsystems/" + nqn + "/attr_serial", "random");
		fs::create_directories(root / "subsystems" / nqn / "allowed_hosts");
	}
	void make_namespace(const std::string &nqn, const std::string &number)
	{
		const std::string space = "subsystems/" + nqn + "/namespaces/" + number;
		put(space + "/enable", "0");
		put(space + "/device_path", "");
		put(space + "/device_uuid", "00000000-0000-4000-8000-000000000000");
	}
	std::string why_not(const std::vector<std::string> &hosts = {"host"}) const
	{
		try {
			viewd::Nvmet nvmet(root, {{"rdma", "192.0.2.1", "4420"}});
			nvmet.add("q", device_serial, 7, "/dev/ublkb0", hosts);
			nvmet.open("q");
		} catch (const std::runtime_error &error) {
			return error.what();
		}
		return "";
	}

	static constexpr const char *device_serial = "00000123456789abcdef";
	fs::path root;
};

TEST_F(NvmetTree, APortThatCannotBeOpenedIsNamedByItsOption)
{
	EXPECT_EQ("--port rdma:192.0.2.1:4420 cannot be opened: No such file or directory", why_not());
}

TEST_F(NvmetTree, APortIsOpenedLast)
{
	fs::create_directories(root / "ports/1/subsystems");
	viewd::Nvmet(root, {{"rdma", "192.0.2.1", "4420"}}).add("q", device_serial, 7, "/dev/ublkb0", {"host"});
	EXPECT_FALSE(fs::is_symlink(root / "ports/1/subsystems/q"));
	EXPECT_EQ("", why_not());
	EXPECT_EQ(root / "subsystems/q", fs::read_symlink(root / "ports/1/subsystems/q"));
	EXPECT_TRUE(fs::is_symlink(root / "subsystems/q/allowed_hosts/host"));
	EXPECT_EQ(get("subsystems/q/attr_serial"), device_serial);
}

// Hosts that connect again send their reads to the number of the device before.
TEST_F(NvmetTree, ANamespaceHasItsNumber)
{
	fs::create_directories(root / "ports/1/subsystems");
	put("subsystems/q/attr_serial", device_serial);
	EXPECT_EQ("", why_not());
	EXPECT_FALSE(fs::exists(root / "subsystems/q/namespaces/7")) << "there is one that a service before has left";
	fs::remove_all(root / "subsystems/q/namespaces/1");
	make_namespace("q", "7");
	EXPECT_EQ("", why_not());
	EXPECT_EQ(get("subsystems/q/namespaces/7/device_path"), "/dev/ublkb0");
	viewd::Nvmet(root, {}).remove("q");
	EXPECT_EQ(get("subsystems/q/namespaces/7/enable"), "0");
}

// A host that waits for a machine that boots removes a namespace with another UUID, and must not keep one of other contents: a view with
// other contents has another serial.
TEST_F(NvmetTree, ANamespaceHasTheSameUuidAfterABoot)
{
	const auto uuid = [&](const std::string &nqn, const std::string &its_serial) {
		fs::remove_all(root / "subsystems" / nqn);
		make_subsystem(nqn);
		make_namespace(nqn, "7");
		viewd::Nvmet(root, {}).add(nqn, its_serial, 7, "/dev/ublkb0", {});
		return get("subsystems/" + nqn + "/namespaces/7/device_uuid");
	};
	const std::string first = uuid("q", device_serial);
	EXPECT_EQ(first.size(), 36U) << first;
	EXPECT_EQ(first.substr(8), "-0000-8012-8345-006789abcdef") << "a UUID of version 8";
	EXPECT_EQ(uuid("q", device_serial), first);
	for (const char *other : {"00000123456789abcdee", "00001123456789abcdef", "00000133456789abcdef"})
		EXPECT_NE(uuid("q", other), first) << other;
	EXPECT_NE(uuid("r", device_serial).substr(0, 8), first.substr(0, 8)) << "of another machine, or prefix";
}

TEST_F(NvmetTree, ClosesAllAndStaysClosed)
{
	fs::create_directories(root / "ports/1/subsystems");
	viewd::Nvmet nvmet(root, {{"rdma", "192.0.2.1", "4420"}});
	nvmet.add("q", device_serial, 7, "/dev/ublkb0", {"host"});
	EXPECT_TRUE(nvmet.has_closed_port());
	nvmet.open("q");
	EXPECT_FALSE(nvmet.has_closed_port());
	nvmet.close_all();
	EXPECT_TRUE(nvmet.has_closed_port());
	nvmet.open("q");
	EXPECT_TRUE(nvmet.has_closed_port());
}

TEST_F(NvmetTree, APortThatCanBeOpenedAtLastGetsAllThatWereToBeOpen)
{
	put("ports/2/addr_trtype", "rdma");
	put("ports/2/addr_traddr", "192.0.2.2");
	put("ports/2/addr_trsvcid", "4420");
	fs::create_directories(root / "ports/2/subsystems");
	make_subsystem("r");
	make_namespace("r", "1");
	viewd::Nvmet nvmet(root, {{"rdma", "192.0.2.1", "4420"}, {"rdma", "192.0.2.2", "4420"}}, tried_again);
	const auto is_open = [&](const char *port, const char *nqn) {
		return fs::is_symlink(root / "ports" / port / "subsystems" / nqn);
	};
	for (const char *nqn : {"q", "r"}) {
		nvmet.add(nqn, device_serial, 7, "/dev/ublkb0", {"host"});
		EXPECT_THROW(nvmet.open(nqn), std::runtime_error);
		EXPECT_TRUE(is_open("2", nqn)) << "the other port's fault is not this one's";
	}
	fs::create_directories(root / "ports/1/subsystems");
	std::this_thread::sleep_for(tried_again);
	nvmet.open("q");
	EXPECT_TRUE(is_open("1", "q"));
	EXPECT_TRUE(is_open("1", "r")) << "its hosts would find the port without it";
	nvmet.remove("r");
	nvmet.open("q");
	EXPECT_FALSE(is_open("1", "r"));
}

TEST_F(NvmetTree, OpensTheOthersWithoutASubsystemThatIsGone)
{
	make_subsystem("p");
	make_namespace("p", "1");
	viewd::Nvmet nvmet(root, {{"rdma", "192.0.2.1", "4420"}}, tried_again);
	for (const char *nqn : {"p", "q"}) {
		nvmet.add(nqn, device_serial, 7, "/dev/ublkb0", {"host"});
		EXPECT_THROW(nvmet.open(nqn), std::runtime_error);
	}
	fs::remove_all(root / "subsystems/p");
	fs::create_directories(root / "ports/1/subsystems");
	std::this_thread::sleep_for(tried_again);
	nvmet.open("q");
	EXPECT_THROW(nvmet.open("p"), std::runtime_error) << "no host can connect to it";
	EXPECT_FALSE(fs::is_symlink(root / "ports/1/subsystems/p")) << "configfs refuses it";
	EXPECT_TRUE(fs::is_symlink(root / "ports/1/subsystems/q"));
}

TEST_F(NvmetTree, ClosesWhatAServiceBeforeHasOpened)
{
	fs::create_directories(root / "ports/1/subsystems");
	ASSERT_EQ(why_not(), "");
	ASSERT_TRUE(fs::is_symlink(root / "ports/1/subsystems/q"));
	viewd::Nvmet nvmet(root, {{"rdma", "192.0.2.1", "4420"}});
	nvmet.add("q", device_serial, 7, "/dev/ublkb0", {"host"});
	nvmet.close_all();
	EXPECT_FALSE(fs::is_symlink(root / "ports/1/subsystems/q"));
}

TEST_F(NvmetTree, RemovesAtItsEndTheHostsThatItHasMade)
{
	fs::create_directories(root / "ports/1/subsystems");
	fs::create_directories(root / "hosts/before");
	EXPECT_EQ("", why_not({"before", "host", "used"}));
	EXPECT_TRUE(fs::exists(root / "hosts/before")) << "an administrator's, with its keys";
	EXPECT_FALSE(fs::exists(root / "hosts/host"));
	{
		viewd::Nvmet nvmet(root, {});
		nvmet.add("q", device_serial, 7, "/dev/ublkb0", {"host", "used"});
		// As the kernel does, a folder that something is in stays.
		fs::create_directory(root / "hosts/used/x");
		EXPECT_TRUE(fs::exists(root / "hosts/host"));
	}
	EXPECT_FALSE(fs::exists(root / "hosts/host"));
	EXPECT_TRUE(fs::exists(root / "hosts/used"));
	EXPECT_TRUE(fs::exists(root / "ports/1")) << "it was there before";
}

// One that cannot be removed: as a folder with something in it, here.
TEST_F(NvmetTree, DoesNotOpenAPortToHostsThatMayNoLongerConnect)
{
	fs::create_directories(root / "ports/1/subsystems");
	fs::create_directories(root / "subsystems/q/allowed_hosts/before/x");
	EXPECT_EQ((root / "subsystems/q").string() + ": hosts that may no longer connect cannot be removed", why_not());
	EXPECT_FALSE(fs::exists(fs::symlink_status(root / "ports/1/subsystems/q")));
}

// Of a view whose hosts may be fewer than before.
TEST_F(NvmetTree, HostsThatCannotBeListedAreNotTakenForNone)
{
	fs::create_directories(root / "ports/1/subsystems");
	const fs::path hosts = root / "subsystems/q/allowed_hosts";
	fs::remove(hosts);
	std::ofstream(hosts) << "";
	EXPECT_EQ(hosts.string() + ": Not a directory", why_not({}));
	EXPECT_FALSE(fs::exists(fs::symlink_status(root / "ports/1/subsystems/q")));
}

// The prefix, or the host's name of which it is made, was another before.
TEST_F(NvmetTree, RemovesExportsOfASerialByOtherNames)
{
	fs::create_directories(root / "ports/1/subsystems");
	for (const auto &[nqn, serial] : {std::pair{"before:v", "1"}, std::pair{"now:v", "1"},
					  std::pair{"before:w", "2"}, std::pair{"backup-v", "3"}}) {
		put(std::string("subsystems/") + nqn + "/attr_serial", serial);
		put(std::string("subsystems/") + nqn + "/namespaces/1/device_path", "/dev/ublkb0");
		put(std::string("subsystems/") + nqn + "/namespaces/1/enable", "1");
		fs::create_symlink(root / "subsystems" / nqn, root / "ports/1/subsystems" / nqn);
	}
	const auto is_open = [&](const std::string &nqn) { return fs::is_symlink(root / "ports/1/subsystems" / nqn); };
	viewd::Nvmet nvmet(root, {});
	nvmet.remove_others("1", "now:v");
	EXPECT_FALSE(is_open("before:v"));
	EXPECT_TRUE(is_open("now:v"));
	EXPECT_TRUE(is_open("before:w")) << "of another device";
	EXPECT_TRUE(is_open("backup-v"))
		<< "an administrator's, of the same device and with the view's name at its end";
	nvmet.remove_others("1", "");
	EXPECT_FALSE(is_open("now:v"));
}

// A service that was killed has left reads, and then its definition lost a host.
TEST_F(NvmetTree, ClosesWhatLetsMoreConnect)
{
	fs::create_directories(root / "ports/1/subsystems");
	put("subsystems/q/attr_serial", "1");
	fs::create_directories(root / "hosts/b");
	const fs::path port = root / "ports/1/subsystems/q";
	const auto open = [&] {
		fs::remove(port);
		fs::create_symlink(root / "subsystems/q", port);
	};
	fs::create_symlink(root / "hosts/b", root / "subsystems/q/allowed_hosts/b");
	viewd::Nvmet nvmet(root, {{"rdma", "192.0.2.1", "4420"}});
	for (const auto &[what, serial, nqn, hosts, is_open] :
	     {std::tuple{"as it was", "1", "q", std::vector<std::string>{"a", "b"}, true},
	      std::tuple{"another's", "2", "q", std::vector<std::string>{}, true},
	      std::tuple{"fewer hosts", "1", "q", std::vector<std::string>{"a"}, false},
	      std::tuple{"another name", "1", "r", std::vector<std::string>{"a", "b"}, false},
	      std::tuple{"no longer exported", "1", "", std::vector<std::string>{"a", "b"}, false}}) {
		open();
		nvmet.close_if_more(serial, nqn, hosts);
		EXPECT_EQ(fs::is_symlink(port), is_open) << what;
		EXPECT_TRUE(fs::exists(root / "subsystems/q/namespaces/1/enable")) << what;
	}
}

TEST_F(NvmetTree, WhatCannotBeListedIsSaidBeforeAnythingIsServed)
{
	fs::remove_all(root / "subsystems");
	put("subsystems", "");
	EXPECT_THROW(viewd::Nvmet(root, {}), std::runtime_error);
}

} // namespace
