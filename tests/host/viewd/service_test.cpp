// SPDX-License-Identifier: MIT
// The service, with block devices in memory: publishing, refusing, withdrawing, beginning anew; and its answers to requests.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../allocations.hpp"
#include "../view/compress.hpp"
#include "../view/temporary_files.hpp"
#include "view/protocol.hpp"
#include "viewd/control.hpp"
#include "viewd/service.hpp"

namespace
{

// Reads of this file wait until it answers again.
class SilentFile
{
public:
	void begin(const std::string &path)
	{
		struct stat st = {};
		::stat(path.c_str(), &st);
		inode_ = st.st_ino;
	}
	void end()
	{
		inode_ = 0;
		inode_.notify_all();
	}
	void wait(int fd)
	{
		struct stat st = {};
		if (const uint64_t silent = inode_; silent && !::fstat(fd, &st) && st.st_ino == silent) {
			waiting_++;
			inode_.wait(silent);
			waiting_--;
		}
	}
	bool is_read() const { return waiting_; }

private:
	std::atomic<uint64_t> inode_ = 0;
	std::atomic<int> waiting_ = 0;
} silent_file;

} // namespace

extern "C" {
ssize_t __real_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at)
{
	silent_file.wait(fd);
	return __real_pread(fd, to, len, at);
}
}

namespace
{

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using nlohmann::json;
using viewd::ServedView;
using viewd::Service;
using Strings = std::vector<std::string>;

// The error of a read of the first bytes of the data.
int read_of(ServedView &view)
{
	struct Read final : viewd::ViewRead {
		explicit Read(std::promise<int> &to) : to_(to) {}
		int copy(uint32_t, const std::byte *, size_t) override { return 0; }
		void done(int error) override { to_.set_value(error); }
		std::promise<int> &to_;
	};
	std::promise<int> ended;
	view.read(4096, 512, std::make_shared<Read>(ended));
	return ended.get_future().get();
}

class FakeDevices final : public viewd::BlockDevices
{
	struct Device final : viewd::BlockDevice {
		Device(FakeDevices &of, int number) : of_(of), number_(number) {}
		~Device() override
		{
			const std::lock_guard lock(of_.mutex);
			if (of_.before_removal)
				of_.before_removal();
			of_.views.erase(number_);
			of_.cookies.erase(number_);
		}
		std::string path() const override { return "/dev/fake" + std::to_string(number_); }
		std::string note() const override { return of_.note; }
		bool opens_port() const override
		{
			const std::lock_guard lock(of_.mutex);
			return of_.is_exported && !of_.opened;
		}
		void open() override
		{
			const std::lock_guard lock(of_.mutex);
			if (of_.has_no_address)
				throw std::runtime_error("no address");
			of_.opened++;
		}
		FakeDevices &of_;
		const int number_;
	};

public:
	std::unique_ptr<viewd::BlockDevice> serve(ServedView &view, const viewd::ViewConf &conf,
						  uint64_t cookie) override
	{
		if (conf.name == "late")
			is_late.wait(true);
		const std::lock_guard lock(mutex);
		if (before_serving)
			before_serving();
		if (refuse)
			throw std::runtime_error("no devices");
		const auto found = left.find(cookie);
		const int number = found != left.end() ? found->second : next++;
		taken_over.push_back(found != left.end() ? number : -1);
		left.erase(cookie);
		cookies[number] = cookie;
		views[number] = &view;
		return std::make_unique<Device>(*this, number);
	}

	bool remove_left(const std::string &name, uint64_t cookie) override
	{
		const std::lock_guard lock(mutex);
		removals_tried++;
		if (refuse_removal)
			throw std::runtime_error("no descriptors");
		const auto found = left.find(cookie);
		if (found == left.end())
			return false;
		removed.push_back(name + " " + std::to_string(found->second));
		left.erase(found);
		return true;
	}

	void close() noexcept override
	{
		const std::lock_guard lock(mutex);
		at_close = views.size();
		for (const auto &[number, view] : views)
			failed_at_close |= reads_at_close && read_of(*view) != 0;
	}

	std::mutex mutex;
	std::map<int, ServedView *> views;
	std::map<int, uint64_t> cookies;
	std::map<uint64_t, int> left; // by a service that was killed
	std::vector<int> taken_over;  // of each that was served, or -1
	std::vector<std::string> removed;
	std::function<void()> before_serving, before_removal;
	std::string note;
	int next = 5, removals_tried = 0;
	size_t opened = 0;                 // devices to which hosts may connect; those that are gone too
	std::atomic<bool> is_late = false; // the device of a view of this name
	bool is_exported = false;
	size_t at_close = 0; // devices that were there
	bool reads_at_close = false, failed_at_close = false, has_no_address = false;
	bool refuse = false, refuse_removal = false;
};

class ViewService : public ::testing::Test, protected TemporaryFiles
{
protected:
	// What the folder has, without what is of no view.
	Strings kept() const
	{
		Strings names;
		for (const fs::path &path : fs::directory_iterator(folder / "state"))
			if (path.filename() != ".remainder")
				names.push_back(path.filename());
		return names;
	}

	void begin()
	{
		service.emplace(Service::Options{.folder = folder / "state",
						 .conf_dir = folder / "views.d",
						 .memory = 8 << 20,
						 .patience = patience,
						 .last_patience = patience,
						 .start_patience = start_patience,
						 .max_header = max_header},
				devices);
	}

	template <class Condition> static bool comes(Condition &&condition)
	{
		for (int tries = 0; tries < 6000 && !condition(); tries++)
			std::this_thread::sleep_for(10ms);
		return condition();
	}

	// Writes a definition.
	std::string define(const std::string &name, const std::string &text)
	{
		fs::create_directory(folder / "views.d");
		std::ofstream(folder / "views.d" / name) << text;
		return folder / "views.d" / name;
	}
	void undefine(const std::string &name) { fs::remove_all(folder / "views.d" / name); }
	json view_of(const std::string &name)
	{
		const json status = ask({{"op", "status"}});
		for (const json &view : status["views"])
			if (view["name"] == name)
				return view;
		return {};
	}

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
	std::chrono::milliseconds patience = 60s, start_patience = 60s;
	uint64_t max_header = view::max_client_header;
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
	EXPECT_EQ(kept(), Strings());
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}})["error"], "v: there is no such view");
}

// A read of a view's device, the end of which is awaited.
class FirstRead final : public viewd::ViewRead
{
public:
	int copy(uint32_t, const std::byte *, size_t) override { return 0; }
	void done(int error) override { error_.set_value(error); }
	std::future<int> error() { return error_.get_future(); }

private:
	std::promise<int> error_;
};

class SilentStorage : public ViewService
{
protected:
	SilentStorage() { patience = 100ms; }
	~SilentStorage() override { silent_file.end(); }

	std::future<int> read(const std::string &device)
	{
		const auto read = std::make_shared<FirstRead>();
		std::future<int> error = read->error();
		const std::lock_guard lock(devices.mutex);
		ServedView &view = *devices.views.at(std::stoi(device.substr(sizeof("/dev/fake") - 1)));
		view.read(0, static_cast<uint32_t>(view.device_bytes()), read);
		return error;
	}
};

TEST_F(SilentStorage, HoldsUpNoCommand)
{
	begin();
	const std::string a = write("a", tokens(1000, 17)), b = write("b", tokens(1000, 17));
	publish("v", "file = " + a + "\ncodec = u32");
	publish("w", "file = " + b + "\ncodec = u32");
	const json v = settled("v"), w = settled("w");
	silent_file.begin(a);
	std::future<int> waits = read(v["device"]);
	ASSERT_TRUE(comes([] { return silent_file.is_read(); }));
	EXPECT_EQ(read(w["device"]).get(), 0) << "another view goes on";
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
	EXPECT_EQ(waits.get(), -ENODEV);
	EXPECT_EQ(devices.views.size(), 1u) << "its device is gone";
	EXPECT_EQ(view_of("v")["state"], "ending");
	const std::string why = "withdrawn, but not ended yet: a read of its files has not been answered";
	EXPECT_EQ(view_of("v")["error"], why);
	EXPECT_EQ(view_of("v")["origin"], "command");
	EXPECT_EQ(publish("v", "file = " + a + "\ncodec = u32")["error"], "v: " + why);
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}})["error"], "v: " + why);

	// A definition of the name waits for it.
	const std::string path = define("v.conf", "file = " + a + "\ncodec = u32:u24\n");
	service->reload();
	define("v.conf", "nonsense");
	service->reload();
	EXPECT_EQ(view_of("v")["state"], "ending");
	EXPECT_EQ(view_of("v")["error"], why + "; then it is published as it is defined now");
	EXPECT_EQ(view_of("v")["origin"], path);
	EXPECT_TRUE(view_of("v")["conf_error"].get<std::string>().starts_with(path + ":1: "));
	EXPECT_NE(ask({{"op", "withdraw"}, {"name", "v"}})["error"].get<std::string>().find("defined by " + path),
		  std::string::npos);
	silent_file.end();
	EXPECT_TRUE(comes([&] { return view_of("v")["state"] == "published"; })) << view_of("v");
	EXPECT_EQ(view_of("v")["codec"], "u32:u24");
}

TEST_F(SilentStorage, HoldsUpNoScanButItsOwn)
{
	begin();
	const std::string a = write("a", tokens(1000, 17)), b = write("b", tokens(1000, 17));
	silent_file.begin(a);
	publish("v", "file = " + a + "\ncodec = u32");
	ASSERT_TRUE(comes([] { return silent_file.is_read(); }));
	publish("w", "file = " + b + "\ncodec = u32");
	EXPECT_EQ(settled("w")["state"], "published");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
	EXPECT_EQ(view_of("v")["state"], "ending");
	service->reload();
	EXPECT_EQ(view_of("v")["state"], "ending") << "it is not taken for one that was left";
	silent_file.end();
	EXPECT_TRUE(comes([&] { return view_of("v").is_null(); }));
	for (const fs::path &path : fs::directory_iterator(folder / "state"))
		EXPECT_NE(path.stem(), "v") << "all of it is gone";
}

TEST_F(SilentStorage, HoldsUpNoEnd)
{
	begin();
	const std::string a = write("a", tokens(1000, 17)), b = write("b", tokens(1000, 17));
	publish("v", "file = " + a + "\ncodec = u32");
	publish("w", "file = " + b + "\ncodec = u32");
	const json v = settled("v");
	settled("w");
	silent_file.begin(a);
	std::future<int> waits = read(v["device"]);
	ASSERT_TRUE(comes([] { return silent_file.is_read(); }));
	testing::internal::CaptureStderr();
	EXPECT_EQ(service->stop(), 1u);
	EXPECT_EQ(testing::internal::GetCapturedStderr(),
		  "peerdma-viewd: v: its storage does not answer; ending without it\n");
	EXPECT_EQ(waits.get(), -ENODEV);
	EXPECT_TRUE(devices.views.empty());
	silent_file.end();
}

class ExportedViews : public ViewService
{
protected:
	ExportedViews()
	{
		devices.is_exported = true;
		begin();
		const std::string path = write("a", tokens(1000, 17));
		for (const char *name : {"early", "late"}) {
			publish(name, "file = " + path + "\ncodec = u32");
			settled(name);
		}
	}
	~ExportedViews() override { come(); }

	// Begins a service of the same views, of which one is late.
	void begin_again()
	{
		service.reset();
		devices.opened = 0;
		devices.is_late = true;
		begin();
	}
	void come()
	{
		devices.is_late = false;
		devices.is_late.notify_all();
	}
	size_t opened()
	{
		const std::lock_guard lock(devices.mutex);
		return devices.opened;
	}
	bool is_early_served()
	{
		const std::lock_guard lock(devices.mutex);
		return !devices.views.empty();
	}
};

// A host that reconnects to a port that the first view has opened gives up if its own view is not there.
TEST_F(ExportedViews, OfTheStartAreOpenedWhenAllAreReady)
{
	begin_again();
	ASSERT_TRUE(comes([&] { return is_early_served(); }));
	std::this_thread::sleep_for(100ms);
	EXPECT_EQ(opened(), 0u);
	EXPECT_EQ(view_of("early")["state"], "scanning");
	come();
	EXPECT_EQ(settled("early")["state"], "published");
	EXPECT_EQ(settled("late")["state"], "published");
	EXPECT_EQ(opened(), 2u);
}

TEST_F(ExportedViews, WaitForAnotherNoLongerThanThat)
{
	start_patience = 100ms;
	begin_again();
	EXPECT_EQ(settled("early")["state"], "published");
	EXPECT_EQ(opened(), 1u);
}

TEST_F(ExportedViews, DoNotWaitForOneThatHasFailed)
{
	start_patience = 1h;
	service.reset();
	fs::remove(folder / "a");
	write("b", tokens(1000, 17));
	devices.opened = 0;
	begin();
	publish("new", "file = " + (folder / "b").string() + "\ncodec = u32");
	EXPECT_EQ(settled("new")["state"], "published");
	EXPECT_EQ(settled("late")["state"], "failed");
}

TEST_F(ExportedViews, EndWhileTheyWait)
{
	start_patience = 1h;
	begin_again();
	ASSERT_TRUE(comes([&] { return is_early_served(); }));
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "early"}}), json::object());
	EXPECT_TRUE(view_of("early").is_null());
	EXPECT_EQ(opened(), 0u) << "hosts of the other one would find a port without their view";
}

TEST_F(ExportedViews, OfAnOpenPortDoNotWait)
{
	start_patience = 1h;
	begin_again();
	{
		const std::lock_guard lock(devices.mutex);
		devices.is_exported = false;
	}
	publish("new", "file = " + (folder / "a").string() + "\ncodec = u32");
	EXPECT_EQ(settled("new")["state"], "published");
}

TEST_F(ExportedViews, LoseAllHostsBeforeTheFirstIsRemoved)
{
	devices.reads_at_close = true;
	service->stop();
	EXPECT_EQ(devices.at_close, 2u);
	EXPECT_FALSE(devices.failed_at_close) << "a host whose read fails does not wait for the next service";
}

TEST_F(ExportedViews, AreOpenedOnceThereIsAnAddress)
{
	devices.has_no_address = true;
	publish("new", "file = " + (folder / "a").string() + "\ncodec = u32");
	EXPECT_EQ(settled("new")["state"], "published");
	EXPECT_EQ(view_of("new")["note"], "no address; tried again every 2 s");
	{
		const std::lock_guard lock(devices.mutex);
		devices.has_no_address = false;
	}
	EXPECT_TRUE(comes([&] { return !view_of("new").contains("note"); })) << view_of("new");
	EXPECT_EQ(opened(), 3u);
}

TEST_F(ViewService, KeepsANumberOverAReload)
{
	const std::string path = write("a", tokens(1000, 17));
	define("v.conf", "file = " + path + "\ncodec = u32");
	begin();
	settled("v");
	const uint64_t cookie = devices.cookies.begin()->second;
	fs::rename(path, folder / "aside");
	service.reset();
	begin();
	EXPECT_EQ(settled("v")["state"], "failed");
	fs::rename(folder / "aside", path);
	service->reload();
	EXPECT_EQ(settled("v")["state"], "published");
	EXPECT_EQ(devices.cookies.begin()->second, cookie);
	undefine("v.conf");
	service->reload();
	EXPECT_EQ(kept(), Strings());
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
	EXPECT_EQ(kept(), Strings());
	EXPECT_TRUE(ask({{"op", "status"}}, false).contains("views")) << "anybody may look";
}

TEST_F(ViewService, BeginsAnew)
{
	const std::string path = write("a", tokens(100000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	service.reset();
	EXPECT_TRUE(devices.views.empty());
	const fs::file_time_type saved = fs::last_write_time(folder / "state/v.scan");
	begin();
	const json view = settled("v");
	EXPECT_EQ(view["state"], "published");
	EXPECT_EQ(fs::last_write_time(folder / "state/v.scan"), saved) << "it has nothing to add";
	EXPECT_EQ(devices.taken_over, (std::vector<int>{-1, -1})) << "it has removed its devices";
	EXPECT_FALSE(view.contains("note"));
	// A file that changed meanwhile is scanned again.
	service.reset();
	write("a", tokens(100000, 18));
	begin();
	EXPECT_EQ(settled("v")["codec"], "u32:18");
}

// What the folder has when the service is killed, and the devices that the kernel has then.
class KilledViewService : public ViewService
{
protected:
	void kill()
	{
		const std::map<int, uint64_t> had = devices.cookies;
		fs::remove_all(folder / "killed");
		fs::copy(folder / "state", folder / "killed");
		service.reset();
		left_.clear();
		for (const auto &[number, cookie] : had)
			left_[cookie] = number;
	}
	void begin_after_kill()
	{
		service.reset();
		fs::remove_all(folder / "state");
		fs::copy(folder / "killed", folder / "state",
			 fs::copy_options::recursive | fs::copy_options::copy_symlinks);
		devices.left = left_;
		devices.taken_over.clear();
		devices.removed.clear();
		begin();
	}
	using Numbers = std::vector<int>;

private:
	std::map<uint64_t, int> left_;
};

TEST_F(KilledViewService, TakesOverDevices)
{
	const std::string path = write("a", tokens(100000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	kill();
	begin_after_kill();
	EXPECT_EQ(settled("v")["device"], "/dev/fake5");
	EXPECT_EQ(devices.taken_over, Numbers{5});
	EXPECT_EQ(devices.removed, Strings());

	devices.note = "fresh device: the one before could not be recovered: gone";
	begin_after_kill();
	EXPECT_EQ(settled("v")["note"], devices.note);
	devices.note = "";

	// Another file: who has read the header of before must not read on.
	write("a", tokens(100000, 18));
	begin_after_kill();
	const json view = settled("v");
	EXPECT_EQ(view["codec"], "u32:18");
	EXPECT_EQ(view["note"], "fresh device: the files are not those that the one before had");
	EXPECT_EQ(devices.taken_over, Numbers{-1});
	EXPECT_EQ(devices.removed, Strings{"v 5"});

	// Withdrawn before it was taken over, or after: nothing waits for ever.
	begin_after_kill();
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
	EXPECT_TRUE(!devices.removed.empty() || devices.taken_over == Numbers{5});

	// Its definition is damaged.
	std::ofstream(folder / "killed/v.conf") << "nonsense\n";
	begin_after_kill();
	EXPECT_EQ(view_of("v")["state"], "failed");
	EXPECT_EQ(devices.removed, Strings{"v 5"});
	std::ofstream(folder / "killed/v.conf") << "file = " << path << "\ncodec = u32\n";

	// No file: what waits for the device must not wait for ever.
	fs::remove(path);
	begin_after_kill();
	EXPECT_EQ(settled("v")["state"], "failed");
	EXPECT_EQ(devices.removed, Strings{"v 5"});
}

// A full disk, for one.
TEST_F(KilledViewService, TakesOverDevicesIfItsFolderTakesNoScan)
{
	const std::string path = write("a", tokens(100000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	kill();
	fs::create_directories(folder / "killed/v.scan.new/x");
	begin_after_kill();
	EXPECT_EQ(settled("v")["state"], "published");
	EXPECT_EQ(devices.taken_over, Numbers{5});
	EXPECT_EQ(devices.removed, Strings());
}

TEST_F(KilledViewService, AScanThatCannotBeSavedIsServedAndSavedOnceItCan)
{
	const std::string path = write("a", tokens(100000, 17));
	fs::create_directories(folder / "state/v.scan.new/x");
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	const json view = settled("v");
	EXPECT_EQ(view["state"], "published");
	EXPECT_EQ(view["note"], "not saved: a service that is killed now has to scan again, and makes a fresh device");
	EXPECT_FALSE(fs::exists(folder / "state/v.scan"));

	fs::remove_all(folder / "state/v.scan.new");
	for (int tries = 0; tries < 1000 && view_of("v").contains("note"); tries++)
		std::this_thread::sleep_for(10ms);
	EXPECT_FALSE(view_of("v").contains("note"));
	kill();
	begin_after_kill();
	EXPECT_EQ(settled("v")["state"], "published");
	EXPECT_EQ(devices.taken_over, Numbers{5});
}

TEST_F(ViewService, WithdrawsAViewWhoseScanCannotBeSaved)
{
	const std::string path = write("a", tokens(100000, 17));
	fs::create_directories(folder / "state/v.scan.new/x");
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
}

// An error of the disk, no descriptors. What it defines is not known, so its device waits.
TEST_F(KilledViewService, HoldsTheDeviceOfADefinitionThatCannotBeRead)
{
	const std::string path = write("a", tokens(100000, 17));
	const std::string definition = define("d.conf", "file = " + path + "\ncodec = u32\n");
	begin();
	publish("p", "file = " + path + "\ncodec = u32");
	settled("d");
	settled("p");
	kill();
	for (const std::string &each : {definition, std::string(folder / "killed/p.conf")}) {
		fs::remove(each);
		fs::create_symlink(each, each);
	}
	begin_after_kill();
	EXPECT_EQ(view_of("d")["state"], "failed");
	EXPECT_EQ(view_of("p")["state"], "failed");
	EXPECT_EQ(devices.removed, Strings());
	undefine("d.conf");
	define("d.conf", "file = " + path + "\ncodec = u32\n");
	service->reload();
	EXPECT_EQ(settled("d")["state"], "published");
	EXPECT_EQ(devices.removed, Strings());
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "p"}}), json::object());
	EXPECT_EQ(devices.removed.size(), 1U);
}

// A device whose number was another's before. The number alone does not say whose it is.
TEST_F(KilledViewService, DoesNotTakeOverTheDeviceOfAnotherView)
{
	const std::string a = write("a", tokens(100000, 17)), b = write("b", tokens(100000, 17));
	begin();
	publish("first", "file = " + a + "\ncodec = u32");
	settled("first");
	const std::string record = folder / "state/first.device";
	fs::copy(record, folder / "record");
	ask({{"op", "withdraw"}, {"name", "first"}});
	devices.next = 5;
	publish("second", "file = " + b + "\ncodec = u32");
	settled("second");
	kill();
	// As if the one that withdrew it had been killed before it removed the record.
	fs::copy(folder / "record", folder / "killed/first.device");
	std::ofstream(folder / "killed/first.conf") << "file = " << a << "\ncodec = u32\n";
	begin_after_kill();
	EXPECT_EQ(settled("second")["device"], "/dev/fake5");
	EXPECT_EQ(settled("first")["device"], "/dev/fake6");
}

// Its reads would wait for ever.
TEST_F(KilledViewService, RemovesTheDeviceOfAViewWithoutAThread)
{
	const std::string text = "file = " + write("a", tokens(1000, 17)) + "\ncodec = u32";
	define("v.conf", text);
	begin();
	settled("v");
	kill();
	// The device is kept while nobody knows what the definition says.
	fs::remove(folder / "views.d/v.conf");
	fs::create_symlink("v.conf", folder / "views.d/v.conf");
	begin_after_kill();
	ASSERT_EQ(devices.removed, Strings());
	fs::remove(folder / "views.d/v.conf");
	define("v.conf", text);
	pthread_attr_t before, attributes;
	ASSERT_EQ(pthread_getattr_default_np(&before), 0);
	ASSERT_EQ(pthread_attr_init(&attributes), 0);
	ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 62), 0); // more than a process can have
	ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
	service->reload();
	pthread_setattr_default_np(&before);
	pthread_attr_destroy(&before);
	pthread_attr_destroy(&attributes);
	EXPECT_TRUE(view_of("v").value("error", "").starts_with("no thread for it")) << view_of("v");
	EXPECT_EQ(devices.removed, Strings{"v 5"});
}

// By the remainder hosts tell what they knew from what is there now.
TEST_F(KilledViewService, DevicesInTurnHaveCookiesOfDifferentRemainders)
{
	const std::string path = write("a", tokens(1000, 17));
	std::optional<uint64_t> last;
	for (const bool is_new : {false, false, true, false}) {
		if (is_new) {
			kill();
			begin_after_kill();
		} else if (!last) {
			begin();
		}
		publish("v", "file = " + path + "\ncodec = u32");
		settled("v");
		ASSERT_EQ(devices.cookies.size(), 1u);
		const uint64_t cookie = devices.cookies.begin()->second, remainder = cookie % 1024;
		EXPECT_GE(cookie, 1024u);
		EXPECT_EQ(remainder, last ? (*last + 1) % 1024 : remainder);
		last = remainder;
		service->withdraw("v");
	}
}

// A host that waits while the machine boots finds the device as it was, and finds another one if the contents are others.
TEST_F(KilledViewService, ADeviceHasTheCookieOfOneBeforeWithTheSameHeader)
{
	const std::string path = write("a", tokens(100000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	const auto cookie = [&] { return devices.cookies.empty() ? 0 : devices.cookies.begin()->second; };
	const uint64_t first = cookie();
	service.reset();
	begin();
	EXPECT_EQ(settled("v")["state"], "published");
	EXPECT_EQ(cookie(), first) << "stopped in order";
	kill();
	begin_after_kill();
	settled("v");
	EXPECT_EQ(cookie(), first) << "killed";
	EXPECT_EQ(devices.taken_over, Numbers{6});
	kill();
	// Only its times are others, as only the number of its drive may be after a boot: it is scanned again.
	write("a", tokens(100000, 17));
	begin_after_kill();
	EXPECT_EQ(settled("v")["state"], "published");
	EXPECT_EQ(devices.removed, Strings{"v 6"});
	EXPECT_EQ(devices.taken_over, Numbers{-1});
	EXPECT_EQ(cookie(), first) << "killed, and scanned again";
	service.reset();
	write("a", tokens(100001, 17));
	begin();
	EXPECT_EQ(settled("v")["state"], "published");
	const uint64_t second = cookie();
	EXPECT_NE(second, first) << "other contents";
	ask({{"op", "withdraw"}, {"name", "v"}});
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	EXPECT_NE(cookie(), second) << "published again by command";
}

// Killed while a device is made: what is left is found all the same.
TEST_F(KilledViewService, KnowsADeviceBeforeItIsMade)
{
	const std::string path = write("a", tokens(1000, 17));
	std::string record;
	devices.before_serving = [&] { std::getline(std::ifstream(folder / "state/v.device"), record); };
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	EXPECT_EQ(record.substr(0, record.find(' ')), std::to_string(devices.cookies[5]));
}

TEST_F(KilledViewService, KeepsTheScanOfADefinitionWithAMistake)
{
	const std::string path = write("a", tokens(100000, 17));
	define("v.conf", "file = " + path + "\ncodec = u32");
	begin();
	settled("v");
	kill();
	define("v.conf", "file = " + path + "\ncodek = u32");
	begin_after_kill();
	EXPECT_EQ(view_of("v")["state"], "failed");
	EXPECT_EQ(devices.removed, Strings{"v 5"}) << "what waits for its device must not wait for ever";
	EXPECT_TRUE(fs::exists(folder / "state/v.scan"));
	undefine("v.conf");
	begin_after_kill();
	EXPECT_FALSE(fs::exists(folder / "state/v.scan"));
}

// A compressed file that has changed is indexed again, which may take hours.
TEST_F(KilledViewService, RemovesTheDeviceOfAChangedCompressedFileBeforeItIndexesIt)
{
	const Bytes frame = zstd_of(bytes_of(tokens(100000, 17)));
	const std::string path = write("a", frame);
	begin();
	publish("v", "file = " + path + "\ncodec = u32\ncompressed = yes");
	ASSERT_EQ(settled("v")["state"], "published");
	kill();
	write("a", joined({frame, bytes_of(std::vector<uint32_t>{1, 2, 3})}));
	// It has failed before the service has read them, and is not tried twice.
	for (int i = 0; i < 1000; i++)
		define(std::to_string(i) + ".conf", "nonsense");
	begin_after_kill();
	const json view = settled("v");
	EXPECT_EQ(view["state"], "failed") << "it cannot be indexed";
	EXPECT_EQ(view["note"], "fresh device: the files are not those that the one before had") << view;
	EXPECT_EQ(devices.removed, Strings{"v 5"});
}

// What reads the device that was left fails, though nobody can tell yet what the file is.
TEST_F(KilledViewService, AWithdrawnViewKeepsNoDeviceWhoseStorageDoesNotAnswer)
{
	const std::string path = write("a", zstd_of(bytes_of(tokens(100000, 17))));
	begin();
	publish("v", "file = " + path + "\ncodec = u32\ncompressed = yes");
	ASSERT_EQ(settled("v")["state"], "published");
	kill();
	patience = 100ms;
	silent_file.begin(path);
	begin_after_kill();
	for (int tries = 0; tries < 6000 && !silent_file.is_read(); tries++)
		std::this_thread::sleep_for(10ms);
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
	EXPECT_EQ(devices.removed, Strings{"v 5"});
	EXPECT_EQ(view_of("v")["state"], "ending");
	silent_file.end();
	for (int tries = 0; tries < 6000 && !view_of("v").is_null(); tries++)
		std::this_thread::sleep_for(10ms);
	EXPECT_TRUE(view_of("v").is_null());
	EXPECT_EQ(devices.taken_over, Numbers{}) << "its thread takes over nothing any more";
	EXPECT_EQ(kept(), Strings());
}

// A command for which there is no memory changes nothing. From the removal of the device on it needs none.
TEST_F(ViewService, WithdrawsWithoutMemory)
{
	const std::string path = write("a", tokens(1000, 17));
	begin();
	devices.before_removal = [] { allocations_left = -1; };
	int failures = 0;
	for (bool has_failed = true; has_failed;) {
		if (view_of("v").is_null())
			publish("v", "file = " + path + "\ncodec = u32");
		ASSERT_EQ(settled("v")["state"], "published");
		allocations_left = failures;
		try {
			service->withdraw("v");
			has_failed = false;
		} catch (const std::exception &) {
			failures++;
		}
		allocations_left = -1;
		ASSERT_EQ(view_of("v").is_null(), !has_failed) << failures;
	}
	EXPECT_GT(failures, 2);
	EXPECT_TRUE(devices.views.empty());
}

TEST_F(ViewService, StopsWithoutMemory)
{
	const std::string path = write("a", tokens(1000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	publish("w", "file = " + path + "\ncodec = u32");
	for (int left = 0; left < 12; left++) {
		ASSERT_EQ(settled("v")["state"], "published");
		ASSERT_EQ(settled("w")["state"], "published");
		allocations_left = left;
		service->stop();
		allocations_left = -1;
		EXPECT_TRUE(devices.views.empty()) << left;
		begin();
	}
}

TEST_F(ViewService, TakesPlans)
{
	const std::string path = write("a", tokens(1000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	EXPECT_EQ(settled("v")["plan_ranges"], json());
	const auto plan = [&](const char *ranges, bool may_change = true) {
		const std::string request = std::string(R"({"op": "plan", "name": "v", "ranges": )") + ranges + "}";
		const json said = json::parse(viewd::answer(*service, request, may_change));
		return said.contains("error") ? said["error"].get<std::string>() : "";
	};
	EXPECT_EQ(plan("[[0, 1], [999, 1], [5, 300]]"), "");
	EXPECT_EQ(settled("v")["plan_ranges"], 3);
	EXPECT_EQ(settled("v")["plan_position"], 0);
	EXPECT_EQ(plan("[[0, 1], [999, 2]]"), "v: range 1 of the plan: 2 elements from 999 on; the view has 1000");
	EXPECT_EQ(plan("[[0, 0]]"), "v: range 0 of the plan: 0 elements from 0 on; the view has 1000");
	EXPECT_EQ(plan("[[1000, 18446744073709551615]]"),
		  "v: range 0 of the plan: 18446744073709551615 elements from 1000 on; the view has 1000");
	for (const char *nonsense : {"7", "[7]", "[[0]]", "[[0, 1, 2]]", "[[0, -1]]", "[[0, 1.5]]", "[[0, 1], {}]",
				     "{}", "[{\"ranges\": [[0, 1]]}]", "[[[0, 1]]]", "null", "\"x\"", "[[0, \"1\"]]"})
		EXPECT_EQ(plan(nonsense), "plan: expected ranges: [[FIRST, COUNT], ...]") << nonsense;
	EXPECT_EQ(plan("[[0, 1], [0"), "unknown request");
	EXPECT_EQ(plan("[[0, 1]]", false), "permission denied: only root may publish and withdraw views");
	EXPECT_EQ(settled("v")["plan_ranges"], 3) << "it has the one of before";
	EXPECT_EQ(plan("[]"), "");
	EXPECT_EQ(settled("v")["plan_ranges"], json());
	// Not parsed: that takes minutes.
	std::string objects = "[{}";
	while (objects.size() < 1 << 20)
		objects += ",{}";
	EXPECT_EQ(
		plan((objects + "]").c_str(), false),
		"permission denied: only root may publish and withdraw views; what others ask has at most 4096 bytes");
	std::string many = "[";
	for (size_t i = 0; i < 10000; i++)
		many += "[7,1],";
	EXPECT_EQ(plan((many + "[7,1]]").c_str()), "");
	EXPECT_EQ(settled("v")["plan_ranges"], 10001);
	service->plan("v", std::vector<std::pair<uint64_t, uint64_t>>(viewd::Plan::max_ranges, {7, 1}));
	EXPECT_EQ(settled("v")["plan_ranges"], viewd::Plan::max_ranges);
	EXPECT_THROW(
		service->plan("v", std::vector<std::pair<uint64_t, uint64_t>>(viewd::Plan::max_ranges + 1, {7, 1})),
		viewd::Refused);
	EXPECT_EQ(ask({{"op", "plan"}, {"name", "w"}, {"ranges", json::array()}})["error"], "w: there is no such view");
	EXPECT_EQ(ask({{"op", "plan"}, {"name", "v"}})["error"], "plan: expected ranges: [[FIRST, COUNT], ...]");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
	publish("failed", "file = /nowhere/x\ncodec = u32");
	settled("failed");
	EXPECT_EQ(ask({{"op", "plan"}, {"name", "failed"}, {"ranges", json::array()}})["error"],
		  "failed: the view is not published yet");
}

int connected(const std::string &path)
{
	sockaddr_un address = {};
	address.sun_family = AF_UNIX;
	path.copy(address.sun_path, sizeof(address.sun_path) - 1);
	const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
	EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
	return fd;
}

void send_part(int fd, const std::string &text)
{
	EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Of a request that is sent. "": it was closed.
std::string answer_to(int fd)
{
	::shutdown(fd, SHUT_WR);
	std::string said;
	char some[4096];
	for (ssize_t n; (n = ::recv(fd, some, sizeof(some), 0)) > 0;)
		said.append(some, static_cast<size_t>(n));
	return said;
}
std::string answer_to(int fd, const std::string &rest)
{
	send_part(fd, rest);
	return answer_to(fd);
}

constexpr const char *withdraw_v = R"({"op":"withdraw","name":"v"})";

// Its socket, by a client that sends what it likes.
TEST_F(ViewService, RefusesRequestsThatAreTooLargeWithWords)
{
	begin();
	const std::string path = folder / "socket";
	viewd::ControlSocket socket(path);
	const int stop = ::eventfd(0, EFD_CLOEXEC);
	std::thread server([&] { socket.serve(*service, stop); });
	const auto ask_for = [&](size_t bytes) {
		const int fd = connected(path);
		std::string request = R"({"op":"status"})";
		request.resize(bytes, ' ');
		for (size_t at = 0; at < request.size();) {
			const ssize_t n = ::send(fd, request.data() + at, request.size() - at, MSG_NOSIGNAL);
			if (n <= 0) {
				ADD_FAILURE() << "it closes before all is sent";
				break;
			}
			at += static_cast<size_t>(n);
		}
		const std::string said = answer_to(fd);
		::close(fd);
		return json::parse(said, nullptr, false);
	};
	EXPECT_TRUE(ask_for(1000).contains("views"));
	EXPECT_EQ(ask_for(view::max_change + 100000)["error"],
		  "the request is too large; expected at most 50331648 bytes");
	EXPECT_TRUE(ask_for(2000000).contains("views"));
	const uint64_t one = 1;
	EXPECT_EQ(::write(stop, &one, sizeof(one)), 8);
	server.join();
	::close(stop);
}

// Those who connect and say nothing hold up nobody.
TEST_F(ViewService, AnswersWhoAsksBeforeWhoIsSilent)
{
	begin();
	const std::string path = folder / "socket";
	viewd::ControlSocket socket(path, 2s);
	const int stop = ::eventfd(0, EFD_CLOEXEC);
	std::thread server([&] { socket.serve(*service, stop); });
	std::vector<int> silent;
	for (int i = 0; i < 20; i++)
		silent.push_back(connected(path));
	const auto began = std::chrono::steady_clock::now();
	const int fd = connected(path);
	EXPECT_EQ(answer_to(fd, withdraw_v), R"({"error":"v: there is no such view"})");
	EXPECT_LT(std::chrono::steady_clock::now() - began, 2s);
	// They are closed in the end.
	char byte;
	for (const int other : silent) {
		EXPECT_EQ(::recv(other, &byte, 1, 0), 0);
		::close(other);
	}
	::close(fd);
	::eventfd_write(stop, 1);
	server.join();
	::close(stop);
}

// The time of a command is not that of those who are sending another one.
TEST_F(SilentStorage, TakesWhatIsSentWhileACommandTakesLong)
{
	patience = 3s;
	begin();
	const std::string path = folder / "socket", a = write("a", tokens(1000, 17));
	publish("v", "file = " + a + "\ncodec = u32");
	const json v = settled("v");
	silent_file.begin(a);
	std::future<int> waits = read(v["device"]);
	ASSERT_TRUE(comes([] { return silent_file.is_read(); }));
	viewd::ControlSocket socket(path, 2s);
	const int stop = ::eventfd(0, EFD_CLOEXEC);
	std::thread server([&] { socket.serve(*service, stop); });
	const int sender = connected(path), other = connected(path);
	send_part(sender, R"({"op":)");
	EXPECT_EQ(answer_to(other, withdraw_v), "{}");
	EXPECT_EQ(view_of("v")["state"], "ending");
	EXPECT_TRUE(json::parse(answer_to(sender, R"("status"})"), nullptr, false).contains("views"));
	::close(sender);
	::close(other);
	::eventfd_write(stop, 1);
	server.join();
	::close(stop);
	waits.wait();
}

TEST_F(ViewService, AnswersWhatItHasDoneThoughItIsToReload)
{
	begin();
	const std::string path = folder / "socket";
	publish("v", "file = " + write("a", tokens(1000, 17)) + "\ncodec = u32");
	settled("v");
	viewd::ControlSocket socket(path);
	const int stop = ::eventfd(0, EFD_CLOEXEC);
	devices.before_removal = [stop] { ::eventfd_write(stop, 1); };
	std::thread server([&] { socket.serve(*service, stop); });
	const int fd = connected(path);
	EXPECT_EQ(answer_to(fd, withdraw_v), "{}");
	server.join();
	::close(fd);
	::close(stop);
}

TEST_F(ViewService, PublishesCompressedFiles)
{
	const std::vector<uint32_t> values = tokens(100000, 17);
	const std::string path = write("a.zst", zstd_of(bytes_of(values))), plain = write("a", values);
	begin();
	publish("v", "file = " + path + "\ncodec = u32\ncompressed = yes");
	const json view = settled("v");
	EXPECT_EQ(view["codec"], "u32:17");
	EXPECT_EQ(view["elements"], 100000);
	EXPECT_EQ(view["restarts"], 0);
	publish("bytes", "file = " + path + "\ncodec = byte");
	EXPECT_EQ(settled("bytes")["elements"], fs::file_size(path)) << "as it is, if nothing is said";
	publish("plain", "file = " + plain + "\ncodec = u32\ncompressed = yes");
	EXPECT_EQ(settled("plain")["error"], plain + ": not compressed with zstd or lz4");
	service.reset();
	begin();
	EXPECT_EQ(settled("v")["codec"], "u32:17");
	EXPECT_TRUE(fs::exists(folder / "state/v.index-0"));
	for (const char *name : {"v", "bytes", "plain"})
		EXPECT_EQ(ask({{"op", "withdraw"}, {"name", name}}), json::object());
	EXPECT_EQ(kept(), Strings());
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

// As a file server has that the file was written through.
TEST_F(ViewService, PublishesAFileOnceItsLeaseIsGivenBack)
{
	const auto before = std::signal(SIGIO, SIG_IGN);
	const std::string path = write("a", tokens(1000, 17));
	const int holder = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
	if (::fcntl(holder, F_SETLEASE, F_WRLCK) < 0)
		GTEST_SKIP() << "this file system has no leases";
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	std::this_thread::sleep_for(300ms);
	EXPECT_EQ(view_of("v")["state"], "scanning") << view_of("v")["error"];
	EXPECT_EQ(::fcntl(holder, F_SETLEASE, F_UNLCK), 0);
	EXPECT_EQ(settled("v")["state"], "published");
	::close(holder);
	std::signal(SIGIO, before);
}

TEST_F(ViewService, WithdrawnWhileItScansItLeavesNothing)
{
	begin();
	const std::string path = write("a", tokens(3000000, 17));
	publish("v", "file = " + path + "\ncodec = u32");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "v"}}), json::object());
	EXPECT_EQ(kept(), Strings());
}

TEST_F(ViewService, PublishesWhatIsDefined)
{
	const std::string path = write("a", tokens(1000, 17));
	const std::string first = define("first.conf", "file = " + path + "\ncodec = u32\n");
	define(".hidden.conf", "nonsense");
	define("first.conf~", "nonsense");
	begin();
	EXPECT_EQ(settled("first")["state"], "published");
	EXPECT_EQ(settled("first")["origin"], first);
	EXPECT_EQ(ask({{"op", "status"}})["views"].size(), 1U);
	EXPECT_FALSE(fs::exists(folder / "state/first.conf")) << "its definition is that of the directory";
	EXPECT_TRUE(service->conf_errors().empty());

	const std::string second = define("second.conf", "file = " + path + "\ncodec = u32:u24\n");
	service->reload();
	EXPECT_EQ(settled("second")["codec"], "u32:u24");
	EXPECT_EQ(settled("first")["device"], "/dev/fake5") << "it is as it was";

	define("second.conf", "file = " + path + "\ncodec = u32:20\n");
	undefine("first.conf");
	service->reload();
	EXPECT_EQ(settled("second")["codec"], "u32:20");
	EXPECT_TRUE(view_of("first").is_null());
	EXPECT_FALSE(fs::exists(folder / "state/first.scan"));

	fs::remove_all(folder / "views.d");
	service->reload();
	EXPECT_TRUE(ask({{"op", "status"}})["views"].empty()) << "no directory is an empty one";
	EXPECT_TRUE(devices.views.empty());
	EXPECT_EQ(kept(), Strings());
}

TEST_F(ViewService, ABadDefinitionStopsNoOther)
{
	const std::string path = write("a", tokens(1000, 17)), good = "file = " + path + "\ncodec = u32\n";
	define("good.conf", good);
	const std::string bad = define("bad.conf", "file = /a\n\xff\xfe\x01nonsense\n");
	const std::string huge = define("huge.conf", std::string(1 << 20, 'x'));
	const std::string name = define("bad name.conf", good);
	fs::create_directory(folder / "views.d/folder.conf");
	fs::create_symlink("loop.conf", folder / "views.d/loop.conf");
	fs::create_symlink("/nowhere/x", folder / "views.d/dangling.conf");
	begin();
	EXPECT_EQ(settled("good")["state"], "published");
	EXPECT_EQ(view_of("bad")["state"], "failed");
	EXPECT_EQ(view_of("bad")["error"], bad + ":2: expected key = value");
	EXPECT_EQ(view_of("bad")["origin"], bad);
	EXPECT_EQ(view_of("huge")["error"], huge + ": more than 256 KiB");
	EXPECT_EQ(view_of("bad name")["error"],
		  name + ": the name of a view has letters, digits, '-', '_' and '.', at most 63");
	const std::string at = (folder / "views.d/").string();
	EXPECT_EQ(view_of("folder")["error"], at + "folder.conf: not a regular file");
	EXPECT_EQ(view_of("loop")["error"], at + "loop.conf: Too many levels of symbolic links");
	EXPECT_EQ(view_of("dangling")["error"], at + "dangling.conf: No such file or directory");
	EXPECT_EQ(service->conf_errors().size(), 6U);

	// What is published stays as it is until its definition is valid again.
	const std::string typo = define("good.conf", "file = " + path + "\ncodek = u32\n");
	service->reload();
	EXPECT_EQ(view_of("good")["state"], "published");
	EXPECT_EQ(view_of("good")["conf_error"],
		  typo + ":2: codek: unknown key; expected file, codec, host, prefetch or compressed");
	EXPECT_EQ(view_of("good")["device"], "/dev/fake5");
	define("good.conf", good);
	define("bad.conf", good);
	service->reload();
	EXPECT_FALSE(view_of("good").contains("conf_error"));
	EXPECT_EQ(view_of("good")["device"], "/dev/fake5");
	EXPECT_EQ(settled("bad")["state"], "published");
}

TEST_F(ViewService, ANameIsPublishedByCommandOrDefined)
{
	const std::string path = write("a", tokens(1000, 17)), good = "file = " + path + "\ncodec = u32\n";
	const std::string mine = define("mine.conf", good), bad = define("bad.conf", "?");
	begin();
	EXPECT_EQ(settled("mine")["state"], "published");
	EXPECT_EQ(publish("mine", good)["error"],
		  "mine: defined by " + mine + "; change that file and reload peerdma-viewd");
	EXPECT_EQ(publish("bad", good)["error"],
		  "bad: defined by " + bad + "; change that file and reload peerdma-viewd");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "mine"}})["error"],
		  "mine: defined by " + mine + "; remove that file and reload peerdma-viewd");
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "bad"}})["error"],
		  "bad: defined by " + bad + "; remove that file and reload peerdma-viewd");
	EXPECT_EQ(publish("theirs", good), json::object());
	EXPECT_EQ(settled("theirs")["origin"], "command");
	const std::string theirs = define("theirs.conf", "file = " + path + "\ncodec = u32:u24\n");
	for (int i = 0; i < 2; i++) {
		service->reload();
		EXPECT_EQ(view_of("theirs")["codec"], "u32:17") << "it is as it was";
		EXPECT_EQ(view_of("theirs")["conf_error"],
			  theirs + ": theirs was published by command; withdraw it, then reload peerdma-viewd");
	}
	EXPECT_EQ(ask({{"op", "withdraw"}, {"name", "theirs"}}), json::object());
	service->reload();
	EXPECT_EQ(settled("theirs")["codec"], "u32:u24");
	EXPECT_EQ(settled("theirs")["origin"], theirs);
}

TEST_F(ViewService, ReloadTriesAgainWhatHasFailedOrIsStale)
{
	const std::string path = (folder / "a").string();
	define("v.conf", "file = " + path + "\ncodec = u32\n");
	begin();
	EXPECT_EQ(settled("v")["error"], "file = " + path + ": there is no such file");
	write("a", tokens(1000, 17));
	service->reload();
	EXPECT_EQ(settled("v")["codec"], "u32:17");

	write("a", tokens(1001, 18));
	EXPECT_EQ(read_of(*devices.views.begin()->second), -ENODATA);
	EXPECT_EQ(view_of("v")["stale"], true);
	EXPECT_EQ(view_of("v")["changed"], 1);
	EXPECT_EQ(view_of("v")["changed_files"], json::array({path}));
	service->reload();
	EXPECT_EQ(settled("v")["codec"], "u32:18");
	EXPECT_EQ(view_of("v")["stale"], false);
	EXPECT_FALSE(view_of("v").contains("changed") || view_of("v").contains("changed_files"));

	write("a", tokens(1002, 19)); // and nobody reads it
	service->reload();
	EXPECT_EQ(settled("v")["codec"], "u32:19");
}

TEST_F(ViewService, ReloadTriesAgainWhatWasPublishedByCommandAndHasFailed)
{
	const std::string path = write("a", tokens(1000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	fs::rename(path, folder / "aside");
	service.reset();
	begin();
	EXPECT_EQ(settled("v")["state"], "failed");
	const auto scanned = fs::last_write_time(folder / "state/v.scan");
	service->reload();
	EXPECT_EQ(settled("v")["state"], "failed");
	fs::rename(folder / "aside", path);
	service->reload();
	EXPECT_EQ(settled("v")["state"], "published");
	EXPECT_EQ(view_of("v")["origin"], "command");
	EXPECT_TRUE(fs::exists(folder / "state/v.scan"));
	EXPECT_GE(fs::last_write_time(folder / "state/v.scan"), scanned);
	service.reset();
	begin();
	EXPECT_EQ(settled("v")["state"], "published") << "the next service knows it still";
}

TEST_F(ViewService, ScansFilesOnceThoughTheirDefinitionChanges)
{
	const std::string path = write("a", tokens(1000, 17)), what = "file = " + path + "\ncodec = u32\n";
	define("v.conf", what);
	begin();
	settled("v");
	const fs::path found = folder / "state/v.scan";
	const auto written = [&] { return fs::last_write_time(found); };
	const auto long_ago = written() - 1h;
	fs::last_write_time(found, long_ago);
	define("v.conf", what + "host = nqn.x\n");
	service->reload();
	EXPECT_EQ(settled("v")["state"], "published");
	EXPECT_EQ(written(), long_ago);
	define("v.conf", "file = " + path + "\ncodec = u32:u24\n");
	service->reload();
	EXPECT_EQ(settled("v")["codec"], "u32:u24");
	EXPECT_NE(written(), long_ago) << "with another codec it is another scan";
}

TEST_F(ViewService, RefusesAHeaderThatNoClientReads)
{
	max_header = 4096;
	begin();
	publish("v", "file = " + write("a", std::vector<uint32_t>(1 << 20, 1)) + "\ncodec = u32:u16");
	EXPECT_EQ(settled("v")["state"], "published");
	std::string files;
	for (int i = 0; i < 100; i++)
		files += "file = " + write(std::string(40, 'x') + std::to_string(i), tokens(10, 17)) + "\n";
	publish("w", files + "codec = u32");
	EXPECT_EQ(settled("w")["error"],
		  "the names of its files and the sums of its data take 12 KiB, of which a client reads at most 4: "
		  "publish fewer files, or a part of them, in one view");
}

// The file system of its folder may have become read-only.
TEST_F(ViewService, ADefinitionChangesThoughItsFolderCannot)
{
	const std::string path = write("a", tokens(1000, 17));
	define("v.conf", "file = " + path + "\ncodec = u32\nhost = nqn.a\n");
	begin();
	settled("v");
	fs::create_directory(folder / "state/v.conf"); // which unlink() refuses to remove
	define("v.conf", "file = " + path + "\ncodec = u32\nhost = nqn.b\n");
	service->reload();
	EXPECT_EQ(settled("v")["hosts"], json::array({"nqn.b"}));
	EXPECT_TRUE(service->conf_errors().empty());
}

TEST_F(ViewService, ADirectoryThatCannotBeReadChangesNothing)
{
	const std::string path = write("a", tokens(1000, 17));
	define("v.conf", "file = " + path + "\ncodec = u32\n");
	begin();
	EXPECT_EQ(settled("v")["state"], "published");
	fs::remove_all(folder / "views.d");
	std::ofstream(folder / "views.d") << "no directory";
	service->reload();
	EXPECT_EQ(view_of("v")["state"], "published");
	EXPECT_EQ(ask({{"op", "status"}})["conf_error"], (folder / "views.d").string() + ": Not a directory");
	fs::remove(folder / "views.d");
	service->reload();
	EXPECT_TRUE(view_of("v").is_null());
	EXPECT_FALSE(ask({{"op", "status"}}).contains("conf_error"));
}

// They may be defined still, so their devices are for a later reload() to take over, or to remove.
TEST_F(KilledViewService, KeepsDevicesWhileTheDirectoryCannotBeRead)
{
	const std::string path = write("a", tokens(100000, 17));
	define("v.conf", "file = " + path + "\ncodec = u32\n");
	begin();
	EXPECT_EQ(settled("v")["device"], "/dev/fake5");
	define("w.conf", "file = " + path + "\ncodec = u32\n");
	service->reload();
	EXPECT_EQ(settled("w")["device"], "/dev/fake6");
	kill();
	undefine("w.conf");
	fs::rename(folder / "views.d", folder / "aside");
	std::ofstream(folder / "views.d") << "no directory";
	begin_after_kill();
	service->reload();
	EXPECT_EQ(service->conf_error(),
		  (folder / "views.d").string() +
			  ": Not a directory; views that a service before has published: 2; "
			  "reads of devices that it has left wait until peerdma-viewd is reloaded");
	EXPECT_EQ(devices.removed, Strings());
	for (const char *name : {"v.scan", "v.device", "w.scan", "w.device"})
		EXPECT_TRUE(fs::exists(folder / "state" / name)) << name;
	fs::remove(folder / "views.d");
	fs::rename(folder / "aside", folder / "views.d");
	service->reload();
	EXPECT_EQ(settled("v")["device"], "/dev/fake5");
	EXPECT_EQ(devices.taken_over, Numbers{5});
	EXPECT_EQ(devices.removed, Strings{"w 6"});
	EXPECT_FALSE(fs::exists(folder / "state/w.scan"));
}

TEST_F(KilledViewService, DiscardsDevicesOfNoView)
{
	const std::string path = write("a", tokens(1000, 17));
	define("v.conf", "file = " + path + "\ncodec = u32\n");
	begin();
	EXPECT_EQ(settled("v")["device"], "/dev/fake5");
	kill();
	// Nobody defines it any more, so what waits for its device has to fail.
	undefine("v.conf");
	begin_after_kill();
	EXPECT_EQ(devices.removed, Strings{"v 5"});
	EXPECT_EQ(kept(), Strings());

	// Nor may a device that clients know go on with other contents: its size, and what they have cached, are of the old ones.
	publish("v", "file = " + path + "\ncodec = u32");
	EXPECT_EQ(settled("v")["device"], "/dev/fake6");
	kill();
	write("a", tokens(5000, 17));
	begin_after_kill();
	EXPECT_EQ(settled("v")["device"], "/dev/fake7");
	EXPECT_EQ(devices.removed, Strings{"v 6"});

	// A view that fails is no reason to let its clients wait.
	kill();
	fs::remove(path);
	begin_after_kill();
	EXPECT_EQ(settled("v")["state"], "failed");
	EXPECT_EQ(devices.removed, Strings{"v 7"});
}

// For want of descriptors, say. It is known until it is gone.
TEST_F(KilledViewService, ADeviceThatCannotBeRemovedIsRemovedLater)
{
	const std::string path = write("a", tokens(100000, 17));
	begin();
	publish("v", "file = " + path + "\ncodec = u32");
	settled("v");
	kill();
	write("a", tokens(100000, 18));
	devices.refuse_removal = true;
	begin_after_kill();
	EXPECT_EQ(settled("v")["error"], "no descriptors");
	EXPECT_TRUE(fs::exists(folder / "state/v.device"));
	devices.refuse_removal = false;
	service.reset();
	begin();
	EXPECT_EQ(settled("v")["codec"], "u32:18");
	EXPECT_EQ(devices.removed, Strings{"v 5"});
}

// Each attempt may take half a minute, and systemd waits for the service meanwhile.
TEST_F(ViewService, TriesOnceToRemoveWhatIsLeftOfAView)
{
	fs::create_directory(folder / "state");
	for (const char *name : {"v.scan", "v.index-0", "v.index-1"})
		std::ofstream(folder / "state" / name) << "x";
	std::ofstream(folder / "state/v.device") << "7 1\n";
	devices.refuse_removal = true;
	begin();
	EXPECT_EQ(devices.removals_tried, 1);
	EXPECT_TRUE(fs::exists(folder / "state/v.device")) << "the next service tries again";
}

TEST_F(ViewService, ADamagedViewStopsNoOther)
{
	const std::string path = write("a", tokens(1000, 17));
	fs::create_directories(folder / "state/unreadable.device");
	for (const char *name : {"unreadable.conf", "unremovable.conf"})
		std::ofstream(folder / "state" / name) << "nonsense";
	std::ofstream(folder / "state/unremovable.device") << "7 1\n";
	define("good.conf", "file = " + path + "\ncodec = u32\n");
	devices.refuse_removal = true;
	ASSERT_NO_THROW(begin());
	EXPECT_EQ(settled("good")["state"], "published");
	EXPECT_EQ(view_of("unreadable")["state"], "failed");
	EXPECT_EQ(view_of("unremovable")["state"], "failed");
}

// To the two of them each view would be there twice, and each would remove what the other has made.
TEST_F(ViewService, SharesItsFolderWithNoOther)
{
	begin();
	try {
		Service({folder / "state", folder / "views.d", 8 << 20, 64 << 20, 2}, devices);
		FAIL() << "there are two";
	} catch (const std::runtime_error &error) {
		EXPECT_EQ(error.what(), (folder / "state").string() +
						": another service uses it (fuser -v shows which); stop that "
						"one, or give --folder another directory");
	}
	service.reset();
	begin();
	EXPECT_EQ(fs::status(folder / "state").permissions(), fs::perms::owner_all) << "another user could lock it";
}

TEST_F(ViewService, LeavesNoFileOfAViewThatIsGone)
{
	fs::create_directory(folder / "state");
	for (const char *name : {"v.scan", "v.index-3", "v.index-10", "v.scan.new", "v.device"})
		std::ofstream(folder / "state" / name) << "x";
	begin();
	EXPECT_EQ(kept(), Strings());
}

// What cannot be read is not taken for nothing.
TEST_F(ViewService, AStateThatCannotBeReadFailsItsViewOnly)
{
	const std::string path = write("a", tokens(1000, 17));
	define("v.conf", "file = " + path + "\ncodec = u32");
	define("w.conf", "file = " + path + "\ncodec = u32");
	fs::create_directories(folder / "state/v.scan");
	begin();
	EXPECT_EQ(settled("v")["error"], (folder / "state/v.scan").string() + ": Is a directory");
	EXPECT_EQ(settled("w")["state"], "published");
}

TEST_F(ViewService, ManyViewsTakeTurns)
{
	const std::string path = write("a", tokens(1000, 17));
	for (int i = 0; i < 300; i++)
		define("v" + std::to_string(i) + ".conf", "file = " + path + "\ncodec = u32\n");
	begin();
	const auto count = [&](viewd::Service::State state) {
		return std::ranges::count(service->status(), state, &Service::ViewStatus::state);
	};
	const auto end = std::chrono::steady_clock::now() + 120s;
	while (count(Service::State::scanning) && std::chrono::steady_clock::now() < end)
		std::this_thread::sleep_for(20ms);
	EXPECT_EQ(count(Service::State::published), 300);
}

} // namespace
