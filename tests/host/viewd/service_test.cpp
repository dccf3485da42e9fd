// SPDX-License-Identifier: MIT
// The service, with block devices in memory: publishing, refusing, withdrawing, beginning anew; and its answers to requests.
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../view/temporary_files.hpp"
#include "viewd/control.hpp"
#include "viewd/service.hpp"

namespace
{

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using viewd::ServedView;
using viewd::Service;

class FakeDevices final : public viewd::BlockDevices
{
	struct Device final : viewd::BlockDevice {
		Device(FakeDevices &of, int number) : of_(of), number_(number) {}
		~Device() override
		{
			const std::lock_guard lock(of_.mutex);
			of_.views.erase(number_);
		}
		int number() const override { return number_; }
		std::string path() const override { return "/dev/fake" + std::to_string(number_); }
		FakeDevices &of_;
		const int number_;
	};

public:
	std::unique_ptr<viewd::BlockDevice> serve(ServedView &view, const viewd::ViewConf &, int left) override
	{
		const std::lock_guard lock(mutex);
		if (refuse)
			throw std::runtime_error("no devices");
		asked_for.push_back(left);
		const int number = left >= 0 ? left : next++;
		views[number] = &view;
		return std::make_unique<Device>(*this, number);
	}

	std::mutex mutex;
	std::map<int, ServedView *> views;
	std::vector<int> asked_for;
	int next = 5;
	bool refuse = false;
};

class ViewService : public ::testing::Test, protected TemporaryFiles
{
protected:
	void begin() { service.emplace(Service::Options{folder / "state", 8 << 20, 2}, devices); }

	json ask(const json &request, bool may_change = true)
	{
		return json::parse(viewd::answer(*service, request.dump(), may_change));
	}
	json publish(const std::string &name, const std::string &conf)
	{
		return ask({{"op", "publish"}, {"name", name}, {"conf", conf}});
	}

	// Of a view, once it is not being scanned.
	json settled(const std::string &name)
	{
		const auto end = std::chrono::steady_clock::now() + 60s;
		for (; std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms)) {
			const json status = ask({{"op", "status"}});
			for (const json &view : status["views"])
				if (view["name"] == name && view["state"] != "scanning")
					return view;
		}
		return {};
	}

	FakeDevices devices;
	std::optional<Service> service;
};

TEST_F(ViewService, PublishesAndWithdraws)
{
	begin();
	const std::string path = write("a", tokens(1000, 17));
	EXPECT_EQ(publish("v", "file = " + path + "\ncodec = u32"), json::object());
	const json view = settled("v");
	EXPECT_EQ(view["state"], "published");
	EXPECT_EQ(view["codec"], "u32:17");
	EXPECT_EQ(view["elements"], 1000);
	EXPECT_EQ(view["device"], "/dev/fake5");
	EXPECT_EQ(publish("v", "file = " + path + "\ncodec = u32")["error"],
		  "v: there is such a view already; withdraw it first");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
	EXPECT_EQ(ask({{"op", "status"}})["views"], json::array());
	EXPECT_TRUE(devices.views.empty());
	EXPECT_TRUE(fs::is_empty(folder / "state"));
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}})["error"], "v: there is no such view");
}

TEST_F(ViewService, KeepsWhatFailedWithItsReason)
{
	begin();
	const std::string path = write("a", tokens(1000, 17));
	publish("narrow", "file = " + path + "\ncodec = u32:u16");
	const json narrow = settled("narrow");
	EXPECT_EQ(narrow["state"], "failed");
	EXPECT_NE(narrow["error"].get<std::string>().find("which does not fit into u32:u16"), std::string::npos);
	publish("absent", "file = /nowhere/x\ncodec = u32");
	EXPECT_EQ(settled("absent")["error"], "file = /nowhere/x: there is no such file");
	devices.refuse = true;
	publish("no-device", "file = " + path + "\ncodec = u32");
	EXPECT_EQ(settled("no-device")["error"], "no devices");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "no-device"}}), json::object());
}

TEST_F(ViewService, RefusesNonsense)
{
	begin();
	EXPECT_EQ(publish("v", "file = x")["error"], "v:1: file = x: expected a path from / on");
	EXPECT_EQ(publish("../v", "file = /x\ncodec = u32")["error"],
		  "../v: the name of a view has letters, digits, '-', '_' and '.', at most 63");
	EXPECT_EQ(ask({{"op", "publish"}, {"name", "v"}, {"conf", ""}}, false)["error"],
		  "permission denied: only root may publish and withdraw views");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}, false)["error"],
		  "permission denied: only root may publish and withdraw views");
	EXPECT_EQ(ask({{"op", "dance"}})["error"], "unknown request");
	for (const std::string text :
	     {"", "{", "[]", "7", "{\"op\":7}", "{\"op\":\"publish\",\"name\":[],\"conf\":{}}", "\xff\xfe"})
		EXPECT_TRUE(json::parse(viewd::answer(*service, text, true)).contains("error")) << text;
	EXPECT_TRUE(fs::is_empty(folder / "state"));
	EXPECT_TRUE(ask({{"op", "status"}}, false).contains("views")) << "anybody may look";
}

TEST_F(ViewService, BeginsAnewWithTheSameDevices)
{
	const std::string path = write("a", tokens(100000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	service.reset();
	EXPECT_TRUE(devices.views.empty());
	begin();
	const json view = settled("v");
	EXPECT_EQ(view["state"], "published");
	EXPECT_EQ(view["device"], "/dev/fake5");
	EXPECT_EQ(devices.asked_for, (std::vector<int>{-1, 5}));
	// A file that changed meanwhile is scanned again.
	service.reset();
	write("a", tokens(100000, 18));
	begin();
	EXPECT_EQ(settled("v")["codec"], "u32:18");
}

TEST_F(ViewService, BeginsInSpiteOfNonsenseInItsFolder)
{
	const std::string path = write("a", tokens(1000, 17));
	fs::create_directory(folder / "state");
	std::ofstream(folder / "state/good.conf") << "file = " << path << "\ncodec = u32\n";
	std::ofstream(folder / "state/bad.conf") << "\xff\xfe" << std::string(100000, 'x');
	std::ofstream(folder / "state/good.scan") << "no scan";
	std::ofstream(folder / "state/good.device") << "99999999999999999999";
	fs::create_directory(folder / "state/folder.conf");
	begin();
	EXPECT_EQ(settled("good")["state"], "published");
	EXPECT_EQ(settled("bad")["state"], "failed");
	EXPECT_EQ(settled("folder")["state"], "failed");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "bad"}}), json::object());
}

TEST_F(ViewService, EndsWhileItScans)
{
	const std::string path = write("a", tokens(4000000, 17));
	for (int i = 0; i < 3; i++) {
		begin();
		if (i == 0)
			publish("v", "file = " + path + "\ncodec = u32");
		service.reset();
	}
	begin();
	EXPECT_EQ(settled("v")["state"], "published");
}

} // namespace
