// SPDX-License-Identifier: MIT
// peerdma view, with the service's own code behind a socket, with a socket that answers nonsense, and with images.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../view/temporary_files.hpp"
#include "command.hpp"
#include "fake_syscalls.hpp"
#include "tools/view/service.hpp"
#include "tools/view/view.hpp"
#include "view/chunk.hpp"
#include "view/scan.hpp"
#include "viewd/control.hpp"
#include "viewd/plan.hpp"
#include "viewd/service.hpp"

namespace
{

namespace fs = std::filesystem;
using nlohmann::json;

Outcome run_view(std::vector<std::string> words)
{
	words.insert(words.begin(), "view");
	return run(std::move(words));
}

// Block devices that nobody reads.
class NoDevices final : public viewd::BlockDevices
{
	struct Device final : viewd::BlockDevice {
		Device(int number, std::string nqn) : number_(number), nqn_(std::move(nqn)) {}
		int number() const override { return number_; }
		std::string path() const override { return "/dev/fake" + std::to_string(number_); }
		std::string nqn() const override { return nqn_; }
		const int number_;
		const std::string nqn_;
	};

public:
	void remove_left(const std::string &, int) noexcept override {}
	std::unique_ptr<viewd::BlockDevice> serve(viewd::ServedView &, const view::ViewConf &conf, int) override
	{
		return std::make_unique<Device>(next_++, "nqn.2026-11.org.example:" + conf.name);
	}

private:
	std::atomic<int> next_ = 0;
};

class ViewCommand : public ::testing::Test, protected TemporaryFiles
{
protected:
	void begin()
	{
		service_.emplace(viewd::Service::Options{folder / "state", folder / "views.d", 8 << 20, 8 << 20, 2},
				 devices_);
		control_.emplace(socket);
		stop_ = ::eventfd(0, EFD_CLOEXEC);
		thread_ = std::thread([this] { control_->serve(*service_, stop_); });
	}
	~ViewCommand() override
	{
		if (!thread_.joinable())
			return;
		const uint64_t one = 1;
		EXPECT_EQ(::write(stop_, &one, sizeof(one)), ssize_t{sizeof(one)});
		thread_.join();
		::close(stop_);
	}
	// With the socket, if the command takes one.
	Outcome ask(std::vector<std::string> words)
	{
		words.insert(words.begin() + 1, {"--socket", socket});
		return run_view(words);
	}

	const std::string socket = folder / "socket";
	NoDevices devices_;
	std::optional<viewd::Service> service_;
	std::optional<viewd::ControlSocket> control_;
	int stop_ = -1;
	std::thread thread_;
};

TEST_F(ViewCommand, PublishesAndWithdraws)
{
	begin();
	const std::string a = write("a", tokens(1000, 17)), b = write("b", tokens(10, 3));
	const std::string host = "nqn.2014-08.org.nvmexpress:uuid:1-2";
	const Outcome published =
		ask({"publish", "v", a, b, "--codec", "u32", "--host", host, "--no-prefetch", "--wait"});
	EXPECT_EQ(published.status, 0) << published.err;
	EXPECT_EQ(published.out,
		  "v: published as /dev/fake0, nqn.2026-11.org.example:v: 1010 elements of u32:17, 2.1 KiB\n");
	const Outcome listed = ask({"ls"});
	EXPECT_EQ(listed.status, 0);
	EXPECT_EQ(listed.out, "NAME  STATE      CODEC   ELEMENTS  DEVICE      NQN                        FROM\n"
			      "v     published  u32:17  1010      /dev/fake0  nqn.2026-11.org.example:v  command\n");
	const Outcome shown = ask({"status", "v"});
	EXPECT_EQ(shown.status, 0);
	for (const std::string &part :
	     std::vector<std::string>{"v: published\n", "hosts        " + host + "\n", "reads        0, 0 bytes\n",
				      "elements     1010 of u32:17, 2 files, 2.1 KiB\n", "failed       0\n"})
		EXPECT_TRUE(has(shown.out, part)) << part << shown.out;
	EXPECT_TRUE(has(ask({"status"}).out, "cache: 0 hits")) << "of all views";
	const json view = ask({"status", "v", "--json"}).parsed();
	EXPECT_EQ(view["ok"], true);
	EXPECT_EQ(view["view"]["codec"], "u32:17");
	EXPECT_EQ(view["view"]["origin"], "command");
	EXPECT_EQ(ask({"ls", "--json"}).parsed()["views"].size(), 1U);
	EXPECT_EQ(service_->status().at(0).conf.prefetch, false);

	const Outcome again = ask({"publish", "v", a});
	EXPECT_EQ(again.status, 1);
	EXPECT_EQ(again.err, "peerdma: v: there is such a view already; withdraw it first\n");
	const Outcome withdrawn = ask({"withdraw", "v"});
	EXPECT_EQ(withdrawn.status, 0);
	EXPECT_EQ(withdrawn.out, "v: withdrawn\n");
	EXPECT_EQ(ask({"ls"}).out, "no view is published\n");
	EXPECT_EQ(ask({"withdraw", "v", "--json"}).parsed()["error"]["message"], "v: there is no such view");
	EXPECT_EQ(ask({"status", "v"}).status, 1);
}

TEST_F(ViewCommand, TakesNamesOfFilesAsTheyAre)
{
	begin();
	const fs::path before = fs::current_path();
	write("a", tokens(10, 3));
	write("*", tokens(20, 3));
	fs::current_path(folder);
	EXPECT_TRUE(has(ask({"publish", "v", "*", "--codec", "u32", "--wait"}).out, ": 20 elements of u32:3,"));
	fs::current_path(before);
	for (const std::string name : {"b\n", " ", "b "}) {
		const Outcome refused = ask({"publish", "w", write(name, tokens(1, 3))});
		EXPECT_EQ(refused.status, 1);
		EXPECT_TRUE(has(refused.err, "its name has a line break, or a blank at its end")) << refused.err;
	}
	const Outcome bytes = ask({"publish", "w", write("\xff", tokens(1, 3))});
	EXPECT_EQ(bytes.status, 1);
	EXPECT_TRUE(has(bytes.err, "not UTF-8")) << bytes.err;
	EXPECT_EQ(ask({"ls", "--json"}).parsed()["views"].size(), 1U);
}

TEST_F(ViewCommand, WaitsForAFailureToo)
{
	begin();
	const std::string a = write("a", tokens(1000, 17));
	const Outcome failed = ask({"publish", "narrow", a, "--codec", "u32:u16", "--wait", "--json"});
	EXPECT_EQ(failed.status, 1);
	const json said = failed.parsed();
	EXPECT_EQ(said["ok"], false);
	EXPECT_TRUE(has(said["error"]["message"], "narrow: not published: " + a + ": element ")) << failed.out;
	EXPECT_TRUE(has(said["error"]["message"], "which does not fit into u32:u16")) << failed.out;
	EXPECT_EQ(said["view"]["state"], "failed");
	EXPECT_TRUE(has(ask({"status", "narrow"}).out, "error        " + a + ": element "));
	EXPECT_TRUE(has(ask({"ls"}).out, "narrow  failed  -      -         -       -    command"));
}

TEST_F(ViewCommand, PublishesByADefinition)
{
	begin();
	const std::string a = write("a", tokens(1000, 17)), conf = (folder / "tokens.conf").string();
	std::ofstream(conf) << "file = " << a << "\ncodec = u32:u24\n";
	const Outcome published = ask({"publish", "--conf", conf, "--wait"});
	EXPECT_EQ(published.status, 0) << published.err;
	EXPECT_TRUE(published.out.starts_with("tokens: published as ")) << published.out;
	std::ofstream(conf) << "file = " << a << "\ncodec = u32:u25\n";
	EXPECT_TRUE(has(ask({"publish", "--conf", conf}).err, conf + ":2: codec = u32:u25: unknown"));
	EXPECT_EQ(ask({"publish", "--conf", folder}).status, 1);
	EXPECT_EQ(ask({"publish", "--conf", "/nowhere/x.conf"}).err,
		  "peerdma: /nowhere/x.conf: No such file or directory\n");
}

TEST_F(ViewCommand, ShowsWhatIsDefinedAndWhyNot)
{
	const std::string a = write("a", tokens(1000, 17));
	fs::create_directory(folder / "views.d");
	std::ofstream(folder / "views.d/good.conf") << "file = " << a << "\ncodec = u32\n";
	const std::string bad = (folder / "views.d/bad.conf").string();
	std::ofstream(bad) << "file = a\n";
	begin();
	while (ask({"status", "good", "--json"}).parsed()["view"]["state"] == "scanning")
		::usleep(1000);
	const std::string list = ask({"ls"}).out;
	EXPECT_TRUE(has(list, (folder / "views.d/good.conf\n").string())) << list;
	EXPECT_TRUE(has(list, "bad   failed ")) << list;
	EXPECT_TRUE(
		has(ask({"status", "bad"}).out, "error        " + bad + ":1: file = a: expected a path from / on\n"));
	const Outcome refused = ask({"publish", "bad", a});
	EXPECT_EQ(refused.status, 1);
	EXPECT_EQ(refused.err, "peerdma: bad: defined by " + bad + "; change that file and reload peerdma-viewd\n");
}

TEST_F(ViewCommand, RefusesWrongWords)
{
	const std::vector<std::vector<std::string>> cases = {
		{},
		{"dance"},
		{"publish"},
		{"publish", "v"},
		{"publish", "v", "/a", "--codec", "u32:40"},
		{"publish", "v", "/a", "--host", "me"},
		{"publish", "../v", "/a"},
		{"publish", "v", "/a", "--conf", "/c"},
		{"publish", "--conf", "/c", "--host", "nqn.x"},
		{"publish", "--conf", "/c", "--codec", "u32"},
		{"publish", "--conf", "/c", "--no-prefetch"},
		{"publish", "v", "/a", "--what"},
		{"withdraw"},
		{"withdraw", "a", "b"},
		{"ls", "v"},
		{"status", "a", "b"},
		{"plan"},
		{"plan", "v"},
		{"plan", "--ranges", "/r"},
		{"plan", "v", "--ranges"},
		{"plan", "v", "w", "--ranges", "/r"},
		{"info"},
		{"info", "a", "b"},
		{"info", "a", "--socket", "/s"},
	};
	for (const std::vector<std::string> &words : cases) {
		const Outcome refused = run_view(words);
		std::string line;
		for (const std::string &word : words)
			line += " " + word;
		EXPECT_EQ(refused.status, 2) << line;
		EXPECT_TRUE(one_line(refused.err)) << line << ": " << refused.err;
		EXPECT_EQ(refused.out, "") << line;
	}
}

TEST_F(ViewCommand, SaysThatThereIsNoService)
{
	for (const std::vector<std::string> &words :
	     std::vector<std::vector<std::string>>{{"ls"}, {"status"}, {"withdraw", "v"}, {"publish", "v", "/a"}}) {
		const Outcome absent = ask(words);
		EXPECT_EQ(absent.status, 1);
		EXPECT_EQ(absent.err,
			  "peerdma: cannot connect to peerdma-viewd by " + socket +
				  ": No such file or directory (ENOENT). Start it on the storage node: systemctl start "
				  "peerdma-viewd.\n");
	}
	EXPECT_TRUE(has(run_view({"ls", "--socket", "/" + std::string(200, 'x')}).err, "(ENAMETOOLONG)"));
}

// A service that answers one request with these bytes.
class Nonsense
{
public:
	Nonsense(const std::string &path, std::string text)
	{
		sockaddr_un address = {};
		address.sun_family = AF_UNIX;
		std::memcpy(address.sun_path, path.data(), path.size());
		fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
		EXPECT_EQ(::listen(fd_, 1), 0);
		thread_ = std::thread([this, path, text = std::move(text)] {
			const int one = ::accept(fd_, nullptr, nullptr);
			char some[4096];
			for (ssize_t n; (n = ::recv(one, some, sizeof(some), 0)) > 0;)
				request_.append(some, static_cast<size_t>(n));
			::send(one, text.data(), text.size(), MSG_NOSIGNAL);
			::close(one);
		});
	}
	~Nonsense()
	{
		if (thread_.joinable())
			thread_.join();
		::close(fd_);
	}
	// After it has answered.
	std::string request()
	{
		thread_.join();
		return request_;
	}
	Nonsense(const Nonsense &) = delete;
	Nonsense &operator=(const Nonsense &) = delete;

private:
	int fd_;
	std::string request_;
	std::thread thread_; // begins last
};

TEST_F(ViewCommand, TakesNoNonsenseForAnAnswer)
{
	const std::vector<std::string> answers = {"",
						  "{",
						  "[]",
						  "null",
						  "7",
						  "\xff\xfe",
						  "{}",
						  R"({"views":7})",
						  R"({"views":{}})",
						  R"({"views":[7]})",
						  R"({"views":[{}]})",
						  R"({"views":[{"name":7}]})",
						  R"({"error":{"a":1}})",
						  std::string(100000, '[')};
	for (const std::string &text : answers) {
		const Nonsense service(socket, text);
		const Outcome failed = ask({"status"});
		EXPECT_EQ(failed.status, 1) << text.substr(0, 100);
		EXPECT_TRUE(one_line(failed.err)) << failed.err;
		fs::remove(socket);
	}
	// Members of other types are taken for none; names are shown in escapes.
	const Nonsense service(
		socket, R"({"views":[{"name":"\u001b[2J","state":7,"reads":-1,"hosts":"x","scanned":[]}],"cache":7})");
	const Outcome odd = ask({"status"});
	EXPECT_EQ(odd.status, 0) << odd.err;
	EXPECT_TRUE(has(odd.out, "\\033[2J: \n")) << odd.out;
}

// The plan of a view in the service's status; 0: none.
uint64_t planned(const Outcome &status) { return status.parsed()["view"].value("plan_ranges", uint64_t{0}); }

std::vector<char> text(const std::string &all) { return {all.begin(), all.end()}; }

TEST_F(ViewCommand, HandsOverPlans)
{
	begin();
	ask({"publish", "v", write("a", tokens(1000, 17)), "--codec", "u32", "--wait"});
	const auto plan = [&](const std::string &list) {
		return ask({"plan", "v", "--ranges", write("ranges", text(list))});
	};
	const Outcome lines = plan("\n# an epoch\n0 10\n\n  500\t100 \r\n990 10");
	EXPECT_EQ(lines.status, 0) << lines.err;
	EXPECT_EQ(lines.out, "v: a plan of 3 ranges\n");
	EXPECT_EQ(planned(ask({"status", "v", "--json"})), 3U);
	EXPECT_TRUE(has(ask({"status", "v"}).out, "    plan         0 of 3 ranges passed\n"));
	EXPECT_EQ(plan(" \n\t[\n[7,\n 1 ] ]\r\n ").out, "v: a plan of 1 range\n");
	EXPECT_EQ(planned(ask({"status", "v", "--json"})), 1U);
	EXPECT_EQ(plan("[ ]").out, "v: its plan is ended\n");
	EXPECT_EQ(planned(ask({"status", "v", "--json"})), 0U);
	EXPECT_FALSE(has(ask({"status", "v"}).out, "    plan "));

	EXPECT_EQ(plan("0 1\n5 7").status, 0);
	const Outcome beyond = plan("0 1\n999 2\n");
	EXPECT_EQ(beyond.status, 1);
	EXPECT_EQ(beyond.err, "peerdma: v: range 1 of the plan: 2 elements from 999 on; the view has 1000\n");
	EXPECT_EQ(planned(ask({"status", "v", "--json"})), 2U) << "the plan before is kept";
	const Outcome other = ask({"plan", "w", "--ranges", write("ranges", text("0 1"))});
	EXPECT_EQ(other.err, "peerdma: w: there is no such view\n");
	EXPECT_EQ(ask({"plan", "\xff", "--ranges", folder / "ranges"}).status, 1);
}

TEST_F(ViewCommand, SendsPlansAsTheyAre)
{
	const json want = {
		{"op", "plan"}, {"name", "v\"\\"}, {"ranges", {{0, 1}, {UINT64_MAX, 2}, {3, UINT64_MAX}, {0, 1}}}};
	for (const std::string &list :
	     {std::string("0 1\n18446744073709551615 2\n3 18446744073709551615\n0 1\n"),
	      std::string("[[0,1],[18446744073709551615,2],[3,18446744073709551615],[0,1]]")}) {
		Nonsense service(socket, "{}");
		// From standard input.
		const std::string path = write("ranges", text(list));
		const int old = ::dup(STDIN_FILENO), from = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
		::dup2(from, STDIN_FILENO);
		::close(from);
		const Outcome sent = ask({"plan", "v\"\\", "--ranges", "-"});
		::dup2(old, STDIN_FILENO);
		::close(old);
		EXPECT_EQ(sent.status, 0) << sent.err;
		EXPECT_EQ(json::parse(service.request()), want);
		fs::remove(socket);
	}
}

TEST_F(ViewCommand, SendsNoMoreRangesThanTheServiceTakes)
{
	static_assert(cli::max_planned_ranges == viewd::Plan::max_ranges);
	std::string many;
	for (size_t i = 0; i < viewd::Plan::max_ranges; i++)
		many += "0 1\n";
	const Outcome longer = ask({"plan", "v", "--ranges", write("many", text(many + "0 1\n")), "--json"});
	EXPECT_EQ(longer.status, 1);
	EXPECT_EQ(longer.err,
		  "peerdma: " + (folder / "many").string() + ":1048577: too many ranges; expected at most 1048576\n");
	EXPECT_EQ(longer.parsed()["line"], 1048577);
}

TEST_F(ViewCommand, RefusesBadRangesBeforeItAsks)
{
	const std::string path = folder / "ranges";
	// There is no service: what is sent fails in another way.
	const auto said = [&](const std::string &list) {
		const Outcome refused = ask({"plan", "v", "--ranges", write("ranges", text(list))});
		EXPECT_EQ(refused.status, 1) << list;
		EXPECT_TRUE(one_line(refused.err)) << refused.err;
		const std::string start = "peerdma: " + path + ":";
		return refused.err.starts_with(start) ? refused.err.substr(start.size()) : refused.err;
	};
	const std::vector<std::pair<std::string, std::string>> cases = {
		{"", "1: there is no range; a list of [] ends the plan\n"},
		{"\n# nothing\n", "3: there is no range; a list of [] ends the plan\n"},
		{"0 1\nx 2\n3 4\n", "2: 'x 2': expected FIRST COUNT, two whole numbers\n"},
		{"0 1\n\n5\r\n", "3: '5': expected FIRST COUNT, two whole numbers\n"},
		{"0 1\n1 2 3\n", "2: '1 2 3': expected FIRST COUNT, two whole numbers\n"},
		{"-1 5", "1: '-1 5': expected FIRST COUNT, two whole numbers\n"},
		{"1 5.0", "1: '1 5.0': expected FIRST COUNT, two whole numbers\n"},
		{"0x10 5", "1: '0x10 5': expected FIRST COUNT, two whole numbers\n"},
		{"007 5", "1: '007 5': expected FIRST COUNT, two whole numbers\n"},
		{"1,5", "1: '1,5': expected FIRST COUNT, two whole numbers\n"},
		{"5 0", "1: '5 0': COUNT is 0\n"},
		{"0 1\n18446744073709551616 1", "2: '18446744073709551616': the number is too large\n"},
		{"0 1\n\xff\x1b[2J", "2: '\\377\\033[2J': expected FIRST COUNT, two whole numbers\n"},
		{std::string(50, '1') + " 1", "1: '" + std::string(40, '1') + "': the number is too large\n"},
		{std::string(50, 'x'), "1: '" + std::string(40, 'x') + "': expected FIRST COUNT, two whole numbers\n"},
		{std::string("0 1\n1\0002", 7), "2: '1\\0002': expected FIRST COUNT, two whole numbers\n"},
		{"[", "1: the list ends here; expected '[' of [[FIRST, COUNT], ...]\n"},
		{"[[0,1]\n,[2,3\n", "3: the list ends here; expected ']' of [[FIRST, COUNT], ...]\n"},
		{"[[0,1],\n]", "2: ']': expected '[' of [[FIRST, COUNT], ...]\n"},
		{"[\n[0,1]\n[2,3]]", "3: '[2,3]]': expected ']' of [[FIRST, COUNT], ...]\n"},
		{"[[0,1,2]]", "1: ',2]]': expected ']' of [[FIRST, COUNT], ...]\n"},
		{"[[0]]", "1: ']]': expected ',' of [[FIRST, COUNT], ...]\n"},
		{"[[0,\"1\"]]", "1: '\"1\"]]': expected a whole number of [[FIRST, COUNT], ...]\n"},
		{"[[0,1.0]]", "1: '.0]]': expected ']' of [[FIRST, COUNT], ...]\n"},
		{"[[-1,1]]", "1: '-1,1]]': expected a whole number of [[FIRST, COUNT], ...]\n"},
		{"[[01,1]]", "1: '01,1]]': expected a whole number of [[FIRST, COUNT], ...]\n"},
		{"[0,1]", "1: '0,1]': expected '[' of [[FIRST, COUNT], ...]\n"},
		{"[[0,\n0]]", "2: '0 0': COUNT is 0\n"},
		{"[[0,1]]\n[[0,1]]", "2: '[[0,1]]': expected the end after the list\n"},
		{"{\"ranges\":[[0,1]]}", "1: '{\"ranges\":[[0,1]]}': expected FIRST COUNT, two whole numbers\n"},
		{std::string(100000, '['),
		 "1: '" + std::string(40, '[') + "': expected a whole number of [[FIRST, COUNT], ...]\n"},
	};
	for (const auto &[list, want] : cases)
		EXPECT_EQ(said(list), want) << list.substr(0, 100);
	EXPECT_EQ(ask({"plan", "v", "--ranges", "/nowhere/x"}).err,
		  "peerdma: cannot read /nowhere/x: No such file or directory (ENOENT)\n");
	EXPECT_EQ(ask({"plan", "v", "--ranges", folder}).err,
		  "peerdma: cannot read " + folder.string() + ": Is a directory (EISDIR)\n");
	EXPECT_EQ(
		ask({"plan", "v", "--ranges", "/dev/zero"}).err,
		"peerdma: /dev/zero: too large for a list of ranges; expected at most 134217728 bytes: File too large "
		"(EFBIG)\n");
	const Outcome absent = ask({"plan", "v", "--ranges", write("ranges", text("0 1"))});
	EXPECT_TRUE(has(absent.err, "cannot connect to peerdma-viewd by ")) << absent.err;
}

class ViewImages : public ::testing::Test, protected TemporaryFiles
{
protected:
	// The device of a view of these files, as the service makes it.
	std::string image(const std::string &name, const std::vector<std::string> &paths, const std::string &codec)
	{
		const view::Codec wanted = *view::Codec::parse(codec);
		const view::Sequence files = sequence(wanted.element, paths);
		view::Scan scan(files, wanted);
		while (!scan.advance(1 << 20)) {}
		const view::Header header = scan.header();
		const view::Reducer reducer(wanted, files);
		view::Reducer::Buffers buffers;
		std::vector<std::byte> bytes = view::serialize(header);
		for (uint64_t chunk = 0; chunk < header.sums.size(); chunk++) {
			std::vector<std::byte> some(reducer.chunk_bytes(chunk));
			reducer.reduce_chunk(chunk, some.data(), buffers);
			bytes.insert(bytes.end(), some.begin(), some.end());
		}
		return write(name, bytes);
	}
	static void spoil(const std::string &path, uint64_t at)
	{
		std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
		file.seekg(static_cast<std::streamoff>(at));
		const char byte = static_cast<char>(file.get() ^ 1);
		file.seekp(static_cast<std::streamoff>(at));
		file.put(byte);
	}
};

using ViewInfo = ViewImages;

TEST_F(ViewInfo, PrintsTheHeader)
{
	const std::string a = write("a", tokens(700000, 17)), b = write("b", tokens(1, 17));
	const std::string path = image("image", {a, b}, "u32:17");
	const Outcome shown = run_view({"info", path});
	EXPECT_EQ(shown.status, 0) << shown.err;
	EXPECT_EQ(shown.out, path + ": 700001 elements of u32:17, 17 bits each\n" +
				     "data: 1.4 MiB from byte 4096 on, 2 chunks with a CRC32C\n  " + a +
				     ": elements 0 to 699999\n  " + b + ": elements 700000 to 700000\n");
	const Outcome verified = run_view({"info", path, "--verify", "--json"});
	EXPECT_EQ(verified.status, 0) << verified.err;
	const json info = verified.parsed();
	EXPECT_EQ(info["ok"], true);
	EXPECT_EQ(info["verified"], true);
	EXPECT_EQ(info["bits"], 17);
	EXPECT_EQ(info["chunks"], 2);
	EXPECT_EQ(info["files"][1], (json{{"name", b}, {"first", 700000}, {"elements", 1}}));
}

TEST_F(ViewInfo, NamesTheFirstBadChunk)
{
	const std::string a = write("a", tokens(400000, 17)), b = write("b", tokens(1200000, 17));
	const std::string path = image("image", {a, b}, "u32:17");
	EXPECT_EQ(run_view({"info", path, "--verify"}).status, 0);
	spoil(path, 4096 + (2 << 20) + 5);
	spoil(path, 4096 + (3 << 20) + 5);
	EXPECT_EQ(run_view({"info", path}).status, 0) << "the header is right";
	const Outcome bad = run_view({"info", path, "--verify", "--json"});
	EXPECT_EQ(bad.status, 1);
	// Chunk 2 begins in bit 16777216, of element 986895.
	EXPECT_TRUE(has(bad.err, path + ": chunk 2 (bytes 2101248 to 3149823; elements 986895 to 1480342, from " + b +
					 ", element 586895 on) has the CRC32C "))
		<< bad.err;
	EXPECT_EQ(bad.parsed()["bad_chunk"], 2);
	EXPECT_EQ(bad.parsed()["bad_offset"], 2101248);
}

TEST_F(ViewInfo, SaysWhyThereIsNoView)
{
	const std::string a = write("a", tokens(100000, 17)), path = image("image", {a}, "u32:17");
	const auto said = [](const std::string &where) {
		const Outcome failed = run_view({"info", where, "--verify"});
		EXPECT_EQ(failed.status, 1) << where;
		EXPECT_EQ(failed.out, "");
		return failed.err;
	};
	EXPECT_TRUE(has(said(a), a + ": no view: ")) << said(a);
	EXPECT_TRUE(has(said(write("empty", std::vector<char>())), ": no view: it ends inside of the header"));
	fs::resize_file(path, fs::file_size(path) - 1);
	EXPECT_TRUE(has(said(path), "and its header says 4096 and 212500 of data")) << said(path);
	const std::string spoiled = image("spoiled", {a}, "u32:17");
	spoil(spoiled, 24);
	EXPECT_TRUE(has(said(spoiled), ": no view: ")) << said(spoiled);
	EXPECT_TRUE(has(said(folder), "is neither a block device nor a regular file"));
	EXPECT_TRUE(has(said("/dev/zero"), "is neither a block device nor a regular file"));
	EXPECT_TRUE(has(said("/nowhere/x"), "cannot open /nowhere/x: No such file or directory (ENOENT)"));
	ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
	EXPECT_TRUE(has(said(folder / "fifo"), "is neither a block device nor a regular file"));
}

} // namespace
