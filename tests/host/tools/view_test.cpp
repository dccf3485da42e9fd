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
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../view/compress.hpp"
#include "../view/temporary_files.hpp"
#include "command.hpp"
#include "fake_service.hpp"
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
		std::string path() const override { return "/dev/fake" + std::to_string(number_); }
		std::string nqn() const override { return nqn_; }
		std::string note() const override { return "it is not read"; }
		const int number_;
		const std::string nqn_;
	};

public:
	bool remove_left(const std::string &, uint64_t) noexcept override { return false; }
	std::unique_ptr<viewd::BlockDevice> serve(viewd::ServedView &, const view::ViewConf &conf, uint64_t) override
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
		  "v: published as /dev/fake0, nqn.2026-11.org.example:v: 1010 elements of u32:17, 2.1 KiB\n"
		  "note: it is not read\n");
	const Outcome listed = ask({"ls"});
	EXPECT_EQ(listed.status, 0);
	EXPECT_EQ(listed.out, "NAME  STATE      CODEC   ELEMENTS  DEVICE      NQN                        FROM\n"
			      "v     published  u32:17  1010      /dev/fake0  nqn.2026-11.org.example:v  command\n");
	const Outcome shown = ask({"status", "v"});
	EXPECT_EQ(shown.status, 0);
	for (const std::string &part :
	     std::vector<std::string>{"v: published\n", "hosts        " + host + "\n", "reads        0, 0 bytes\n",
				      "elements     1010 of u32:17, 2 files, 2.1 KiB\n", "failed       0\n",
				      "note         it is not read\n"})
		EXPECT_TRUE(has(shown.out, part)) << part << shown.out;
	EXPECT_FALSE(has(shown.out, "    at ")) << "no fault, no place";
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

TEST_F(ViewCommand, ReportsInJson)
{
	begin();
	const std::string a = write("a", tokens(1000, 17)), b = write("b", tokens(10, 3));
	const json published = ask({"publish", "v", a, b, "--codec", "u32", "--wait", "--json"}).parsed();
	const json view = {{"name", "v"},
			   {"state", "published"},
			   {"origin", "command"},
			   {"hosts", json::array()},
			   {"device", "/dev/fake0"},
			   {"nqn", "nqn.2026-11.org.example:v"},
			   {"note", "it is not read"},
			   {"codec", "u32:17"},
			   {"elements", 1010},
			   {"files", 2},
			   {"bytes", 2147},
			   {"reads", 0},
			   {"bytes_read", 0},
			   {"failed_reads", 0},
			   {"stale", false}};
	EXPECT_EQ(published, (json{{"ok", true}, {"view", view}}));
	EXPECT_EQ(ask({"status", "--json"}).parsed(),
		  (json{{"ok", true},
			{"conf_dir", (folder / "views.d").string()},
			{"cache", {{"hits", 0}, {"misses", 0}, {"prefetched", 0}, {"wasted", 0}}},
			{"views", json::array({view})}}));
	EXPECT_EQ(ask({"withdraw", "v", "--json"}).parsed(), (json{{"ok", true}, {"name", "v"}}));
	EXPECT_EQ(ask({"publish", "v", a, "--json"}).parsed(), (json{{"ok", true}, {"view", {{"name", "v"}}}}));
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

TEST_F(ViewCommand, PublishesWhatCompressedFilesDecompressTo)
{
	begin();
	const auto values = tokens(5000, 17);
	const std::string a = write<std::byte>("a.zst", zstd_of(std::as_bytes(std::span(values))));
	const Outcome published = ask({"publish", "v", a, "--codec", "u32", "--compressed", "--wait"});
	EXPECT_EQ(published.status, 0) << published.err;
	EXPECT_TRUE(has(published.out, ": 5000 elements of u32:17, ")) << published.out;
}

TEST_F(ViewCommand, PublishesByADefinition)
{
	begin();
	const std::string a = write("a", tokens(1000, 17)), conf = (folder / "tokens.conf").string();
	std::ofstream(conf) << "file = " << a << "\ncodec = u32:u24\n";
	const Outcome published = ask({"publish", "--conf", conf, "--wait"});
	EXPECT_EQ(published.status, 0) << published.err;
	EXPECT_TRUE(published.out.starts_with("tokens: published as ")) << published.out;
	// Its name without .conf, and without that alone.
	const std::string other = (folder / "tokens.v2").string();
	fs::copy(conf, other);
	const Outcome second = ask({"publish", "--conf", other, "--wait"});
	EXPECT_TRUE(second.out.starts_with("tokens.v2: published as ")) << second.out << second.err;
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
		{"publish", "--conf", "/c", "--compressed"},
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
		{"read"},
		{"read", "a", "b"},
		{"read", "a", "--socket", "/s"},
		{"read", "a", "--first", "-1"},
		{"read", "a", "--first", "18446744073709551616"},
		{"read", "a", "--count", "0"},
		{"read", "a", "--count", "1K"},
		{"read", "a", "--codec", "u32"},
		{"read", "a", "--codec", "u32:33"},
		{"read", "a", "--json"},
		{"read", "a", "--json", "--output", "-"},
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
	const std::string expected =
		"expected publish, withdraw, plan, ls, status, info, read; see peerdma view --help\n";
	EXPECT_EQ(run_view({}).err, "peerdma: view: " + expected);
	EXPECT_EQ(run_view({"dance"}).err, "peerdma: view: unknown subcommand 'dance'; " + expected);
	EXPECT_EQ(run_view({"read", "a", "--codec", "u32"}).err,
		  "peerdma: --codec: 'u32': expected ELEMENT:REDUCED, for example u32:u16, u32:17, i64:18, f32:bf16\n");
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
		const FakeService service(socket, {text});
		const Outcome failed = ask({"status"});
		EXPECT_EQ(failed.status, 1) << text.substr(0, 100);
		EXPECT_TRUE(one_line(failed.err)) << failed.err;
	}
	// Members of other types are taken for none; names are shown in escapes.
	const FakeService service(
		socket,
		{R"({"views":[{"name":"\u001b[2J","state":7,"reads":-1,"hosts":"x","scanned":[]}],"cache":7})"});
	const Outcome odd = ask({"status"});
	EXPECT_EQ(odd.status, 0) << odd.err;
	EXPECT_TRUE(has(odd.out, "\\033[2J: \n")) << odd.out;
}

TEST_F(ViewCommand, NamesFilesThatHaveChanged)
{
	const FakeService service(socket, {R"({"views":[{"name":"v","state":"published","stale":true,"changed":20,
		"changed_files":["/a","/\u001b[2J",7]},{"name":"w","state":"published","changed":1,"changed_files":["/b"]}]})"});
	const std::string shown = ask({"status"}).out;
	EXPECT_TRUE(has(shown, "    changed      /a\n    changed      /\\033[2J\n    changed      18 more\n    stale"))
		<< shown;
	EXPECT_TRUE(shown.ends_with("    changed      /b\n")) << shown;
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

	const Outcome again = ask({"plan", "v", "--ranges", write("ranges", text("0 1\n5 7")), "--json"});
	EXPECT_EQ(again.status, 0) << again.err;
	EXPECT_EQ(again.parsed(), (json{{"ok", true}, {"name", "v"}, {"ranges", 2}}));
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
		FakeService service(socket, {"{}"});
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
	EXPECT_TRUE(has(said(a), a + ": not a view: it does not begin with a view's header\n")) << said(a);
	EXPECT_TRUE(
		has(said(write("empty", std::vector<char>())), ": not a view: it is shorter than a view's header\n"));
	fs::resize_file(path, fs::file_size(path) - 1);
	EXPECT_TRUE(has(said(path), "and its header says 4096 and 212500 of data")) << said(path);
	const std::string spoiled = image("spoiled", {a}, "u32:17");
	spoil(spoiled, 24);
	EXPECT_TRUE(has(said(spoiled), ": not a view: ")) << said(spoiled);
	EXPECT_TRUE(has(said(folder), "is neither a block device nor a regular file"));
	EXPECT_TRUE(has(said("/dev/zero"), "is neither a block device nor a regular file"));
	EXPECT_TRUE(has(said("/nowhere/x"), "cannot open /nowhere/x: No such file or directory (ENOENT)"));
	ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
	EXPECT_TRUE(has(said(folder / "fifo"), "is neither a block device nor a regular file"));
}

class ViewRead : public ViewImages
{
protected:
	static std::string contents(const std::string &path)
	{
		std::ifstream file(path, std::ios::binary);
		EXPECT_TRUE(file.is_open()) << path;
		return {std::istreambuf_iterator<char>(file), {}};
	}
	template <class Value> static std::string bytes_of(const std::vector<Value> &values)
	{
		return {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(Value)};
	}
	// Without its header.
	static std::string data_of(const std::string &image)
	{
		const std::string all = contents(image);
		const auto *const start = reinterpret_cast<const std::byte *>(all.data());
		return all.substr(view::parse_start({start, all.size()}).header_bytes);
	}
	// What is in a folder but these files.
	size_t others(const std::vector<std::string> &known) const
	{
		size_t count = 0;
		for (const fs::directory_entry &entry : fs::directory_iterator(folder))
			count += std::ranges::find(known, entry.path().filename().string()) == known.end();
		return count;
	}
	// Compares all elements, and some, of a view, to a file and to standard output, with what was published.
	void compare(const std::string &path, const std::vector<std::string> &options, const std::string &want,
		     size_t width)
	{
		const auto words = [&](std::vector<std::string> more) {
			std::vector<std::string> all = {"read", path};
			all.insert(all.end(), options.begin(), options.end());
			all.insert(all.end(), more.begin(), more.end());
			return all;
		};
		const std::string to = folder / "to";
		const Outcome whole = run_view(words({"--output", to}));
		EXPECT_EQ(whole.status, 0) << whole.err;
		EXPECT_TRUE(contents(to) == want) << path;
		const uint64_t elements = want.size() / width, beyond_a_piece = (4 << 20) / width + 9;
		ASSERT_GT(elements, beyond_a_piece);
		for (const auto &[first, count] : std::vector<std::pair<uint64_t, uint64_t>>{
			     {0, 1}, {3, 1}, {7, 18}, {5, beyond_a_piece}, {elements - 1, 1}, {elements - 11, 11}}) {
			const Outcome part =
				run_view(words({"--first", std::to_string(first), "--count", std::to_string(count)}));
			EXPECT_EQ(part.status, 0) << part.err;
			EXPECT_EQ(part.err, "");
			EXPECT_TRUE(part.out == want.substr(first * width, count * width))
				<< path << ": " << count << " from " << first << " on";
		}
		const Outcome rest = run_view(words({"--first", std::to_string(elements - 5)}));
		EXPECT_EQ(rest.out, want.substr((elements - 5) * width));
		const Outcome none = run_view(words({"--first", std::to_string(elements)}));
		EXPECT_EQ(none.status, 0);
		EXPECT_EQ(none.out, "");
	}
};

TEST_F(ViewRead, DeliversEachElementOfAView)
{
	const std::vector<uint32_t> values = tokens(1060003, 17);
	const std::vector<uint32_t> some(values.begin(), values.begin() + 700001),
		more(values.begin() + 700001, values.end());
	const std::string a = write("a", some), b = write("b", more);
	compare(image("17", {a, b}, "u32:17"), {}, bytes_of(values), 4);
	compare(image("byte", {a, b}, "byte:none"), {}, bytes_of(values), 1);
	const std::vector<uint64_t> wide(values.begin(), values.begin() + 530003);
	// The type of its elements may be named.
	compare(image("24", {write("c", wide)}, "i64:u24"), {"--codec", "i64:u32"}, bytes_of(wide), 8);
	std::vector<float> floats(values.size());
	for (size_t i = 0; i < values.size(); i++)
		floats[i] = static_cast<float>(values[i] % 256) / 2; // exact
	compare(image("bf16", {write("d", floats)}, "f32:bf16"), {}, bytes_of(floats), 4);
}

TEST_F(ViewRead, DeliversEachElementOfAPlainFile)
{
	const std::vector<uint32_t> values = tokens(1060003, 17);
	const std::string a = write("a", values);
	compare(a, {}, bytes_of(values), 1);
	compare(a, {"--codec", "u32:17"}, bytes_of(values), 4);
	const std::string empty = write("empty", std::vector<char>());
	EXPECT_EQ(run_view({"read", empty, "--codec", "u32:17"}).status, 0);
	EXPECT_EQ(run_view({"read", empty, "--output", folder / "to"}).status, 0);
	EXPECT_EQ(fs::file_size(folder / "to"), 0U);
}

TEST_F(ViewRead, LeavesElementsPacked)
{
	const std::string a = write("a", tokens(1003, 17)), path = image("image", {a}, "u32:17"), want = data_of(path);
	ASSERT_EQ(want.size(), (1003 * 17 + 7) / 8);
	for (const std::vector<std::string> &file :
	     std::vector<std::vector<std::string>>{{"read", path}, {"read", a, "--codec", "u32:17"}}) {
		const auto words = [&](std::vector<std::string> more) {
			more.insert(more.begin(), file.begin(), file.end());
			return more;
		};
		const Outcome whole = run_view(words({"--packed"}));
		EXPECT_EQ(whole.status, 0) << whole.err;
		EXPECT_TRUE(whole.out == want) << file[1];
		// Of 3 elements 51 bits are theirs; the other 5 of the last byte are 0.
		std::string three = want.substr(17, 7);
		three[6] = static_cast<char>(three[6] & 7);
		EXPECT_EQ(run_view(words({"--packed", "--first", "8", "--count", "3"})).out, three);
		const Outcome within = run_view(words({"--packed", "--first", "4"}));
		EXPECT_EQ(within.status, 1);
		EXPECT_EQ(within.err, "peerdma: " + file[1] +
					      ": --packed --first 4: with 17 bits each it does not begin with a byte: "
					      "Invalid argument (EINVAL). Give a multiple of 8.\n");
	}
	const std::string even = image("even", {a}, "u32:20");
	EXPECT_EQ(run_view({"read", even, "--packed", "--first", "2", "--count", "2"}).out, data_of(even).substr(5, 5));
	EXPECT_TRUE(has(run_view({"read", even, "--packed", "--first", "3"}).err, "Give a multiple of 2.\n"));
}

TEST_F(ViewRead, LeavesElementsPackedInPieces)
{
	const std::string a = write("a", tokens(1400003, 23)), path = image("image", {a}, "u32:24");
	const std::string want = data_of(path);
	ASSERT_GT(want.size(), size_t{4 << 20});
	EXPECT_TRUE(run_view({"read", path, "--packed"}).out == want);
	EXPECT_TRUE(run_view({"read", path, "--packed", "--first", "1"}).out == want.substr(3));
	EXPECT_TRUE(run_view({"read", a, "--codec", "u32:u24", "--packed"}).out == want);
}

TEST_F(ViewRead, ReportsWhatItDid)
{
	const std::string a = write("a", tokens(1000, 17)), path = image("image", {a}, "u32:17"), to = folder / "to";
	const Outcome text = run_view({"read", path, "--first", "100", "--count", "10", "--output", to});
	EXPECT_TRUE(text.out.starts_with(
		"file      " + path +
		": a view: u32 in 17 bits, 1000 elements, reduced by the storage, because it has a view's header\n"
		"elements  10 from 100 on\noutput    " +
		to + ": 40 bytes, 4 bytes each\nseconds   0."))
		<< text.out;
	const auto said = [&](std::vector<std::string> words) {
		words.insert(words.begin(), {"read"});
		words.insert(words.end(), {"--json", "--output", to});
		json out = run_view(words).parsed();
		EXPECT_GT(out["seconds"], 0);
		EXPECT_DOUBLE_EQ(out["rate"].get<double>(), out["bytes"].get<double>() / out["seconds"].get<double>());
		for (const char *key : {"seconds", "rate", "output"})
			out.erase(key);
		return out;
	};
	const json view = {{"ok", true},    {"device", path},    {"where", "storage"}, {"codec", "u32:17"},
			   {"bits", 17},    {"packed", true},    {"first", 8},         {"elements", 800},
			   {"bytes", 1700}, {"bytes_read", 1700}};
	EXPECT_EQ(said({path, "--packed", "--first", "8", "--count", "800"}), view);
	const json host = {{"ok", true},    {"device", a},       {"where", "host"}, {"codec", "u32:17"},
			   {"bits", 17},    {"packed", true},    {"first", 0},      {"elements", 1000},
			   {"bytes", 2125}, {"bytes_read", 4000}};
	EXPECT_EQ(said({a, "--packed", "--codec", "u32:17"}), host);
	const json none = {{"ok", true},    {"device", a},       {"where", "none"}, {"codec", "byte:none"},
			   {"bits", 8},     {"packed", false},   {"first", 0},      {"elements", 4000},
			   {"bytes", 4000}, {"bytes_read", 4000}};
	EXPECT_EQ(said({a}), none);
}

TEST_F(ViewRead, RefusesRangesBeyondTheEnd)
{
	const std::string path = image("image", {write("a", tokens(1000, 17))}, "u32:17"), to = folder / "to";
	const auto said = [&](std::vector<std::string> words) {
		words.insert(words.begin(), {"read", path, "--output", to});
		const Outcome refused = run_view(words);
		EXPECT_EQ(refused.status, 1);
		EXPECT_FALSE(fs::exists(to));
		return refused.err;
	};
	const std::string start = "peerdma: " + path, end = ": Invalid argument (EINVAL)\n";
	EXPECT_EQ(said({"--first", "1001"}), start + ": --first 1001: it has 1000 elements" + end);
	EXPECT_EQ(said({"--first", "18446744073709551615"}),
		  start + ": --first 18446744073709551615: it has 1000 elements" + end);
	EXPECT_EQ(said({"--count", "1001"}), start + ": --count 1001: from element 0 on it has 1000" + end);
	EXPECT_EQ(said({"--first", "1000", "--count", "1"}),
		  start + ": --count 1: from element 1000 on it has 0" + end);
	EXPECT_EQ(said({"--first", "8", "--count", "18446744073709551615"}),
		  start + ": --count 18446744073709551615: from element 8 on it has 992" + end);
}

TEST_F(ViewRead, NamesTheElementThatDoesNotFit)
{
	std::vector<uint32_t> values = tokens(1500000, 16);
	values[1200000] = 1 << 16;
	const std::string a = write("a", values), to = folder / "to";
	const std::string said = "peerdma: " + a +
				 ": element 1200000 does not fit into u32:u16: Numerical result out of "
				 "range (ERANGE)\n";
	const Outcome made = run_view({"read", a, "--codec", "u32:u16", "--output", to});
	EXPECT_EQ(made.status, 1);
	EXPECT_EQ(made.err, said);
	EXPECT_EQ(others({"a"}), 0U) << "nothing is left of it";
	std::ofstream(to) << "old";
	const Outcome replaced = run_view({"read", a, "--codec", "u32:u16", "--packed", "--output", to, "--json"});
	EXPECT_EQ(replaced.err, said);
	EXPECT_EQ(replaced.parsed()["element"], 1200000);
	EXPECT_EQ(contents(to), "old");
	EXPECT_EQ(others({"a", "to"}), 0U);
	// Of standard output the part before is there already.
	const Outcome printed = run_view({"read", a, "--codec", "u32:u16"});
	EXPECT_EQ(printed.status, 1);
	EXPECT_EQ(printed.err, said);
	EXPECT_TRUE(printed.out == bytes_of(values).substr(0, 4 << 20));
	EXPECT_TRUE(run_view({"read", a, "--codec", "u32:u16", "--first", "1200001"}).out ==
		    bytes_of(values).substr(1200001 * 4));
}

TEST_F(ViewRead, NamesElementsThatCannotBeRead)
{
	const std::vector<uint32_t> values = tokens(2200000, 17);
	const std::string path = image("image", {write("a", values)}, "u32:17"), fifo = folder / "fifo";
	ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
	const int from = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ASSERT_GE(from, 0);
	::fcntl(from, F_SETFL, 0);
	// A FIFO without a writer is at its end: this one waits for the command.
	const int writer = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
	// The file is cut after the first bytes have arrived: there 16384 elements of the second piece end, and 5 bytes.
	std::string got;
	std::thread reader([&] {
		std::vector<char> some(65536);
		for (ssize_t n; (n = ::read(from, some.data(), some.size())) > 0;) {
			if (got.empty())
				fs::resize_file(path, 4096 + (1048576 + 16384) / 8 * 17 + 5);
			got.append(some.data(), static_cast<size_t>(n));
		}
	});
	const Outcome cut = run_view({"read", path, "--output", fifo, "--json"});
	::close(writer);
	reader.join();
	::close(from);
	EXPECT_EQ(cut.status, 1);
	EXPECT_EQ(cut.err,
		  "peerdma: " + path +
			  ": cannot read elements 1064960 to 2097151: No data available (ENODATA). The file has "
			  "become shorter while it was read.\n");
	EXPECT_EQ(cut.parsed()["element"], 1064960);
	EXPECT_TRUE(got == bytes_of(values).substr(0, 4 << 20));
}

TEST_F(ViewRead, NamesElementsThatTheStorageDoesNotGive)
{
	const std::vector<uint32_t> values = tokens(1200000, 17);
	const std::string path = image("image", {write("a", values)}, "u32:17");
	FakeSyscalls sys;
	sys.contents["/view"].bytes = contents(path);
	sys.posix_limit = UINT64_MAX;
	sys.posix_error = -EIO;
	sys.posix_good = 1 + 64 + 2; // the header, the first piece, and two times 16384 elements of the second
	const Outcome failed = run_view({"read", "/view"});
	EXPECT_EQ(failed.status, 1);
	EXPECT_EQ(failed.err, "peerdma: /view: cannot read elements 1081344 to 1199999: Input/output error (EIO)\n");
	EXPECT_TRUE(failed.out == bytes_of(values).substr(0, 4 << 20));
	EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
}

TEST_F(ViewRead, SaysWhyItCannotOpen)
{
	const std::string a = write("a", tokens(1000, 17)), path = image("image", {a}, "u32:17"), to = folder / "to";
	const auto said = [&](const std::string &what, const std::vector<std::string> &more = {}) {
		std::vector<std::string> words = {"read", what, "--output", to};
		words.insert(words.end(), more.begin(), more.end());
		const Outcome failed = run_view(words);
		EXPECT_EQ(failed.status, 1) << what;
		EXPECT_TRUE(one_line(failed.err)) << failed.err;
		EXPECT_FALSE(fs::exists(to)) << what;
		return failed.err;
	};
	EXPECT_EQ(said("/nowhere/x"), "peerdma: cannot open /nowhere/x: No such file or directory (ENOENT)\n");
	EXPECT_EQ(said(folder), "peerdma: cannot open " + folder.string() + ": Is a directory (EISDIR)\n");
	EXPECT_TRUE(has(said("/dev/zero"), "cannot open /dev/zero: Illegal seek (ESPIPE)"));
	EXPECT_EQ(said(path, {"--codec", "i64:17"}),
		  "peerdma: cannot open " + path +
			  ": the view has elements of type u32, not i64: Wrong medium type (EMEDIUMTYPE)\n");
	EXPECT_TRUE(has(said(write("odd", std::vector<char>(7)), {"--codec", "u32:17"}),
			"the file does not consist of whole elements of 4 bytes: Invalid argument (EINVAL)"));
	const std::string spoiled = image("spoiled", {a}, "u32:17");
	spoil(spoiled, 24);
	EXPECT_TRUE(has(said(spoiled), "cannot open " + spoiled + ": the header ")) << said(spoiled);
	EXPECT_TRUE(has(said(spoiled), "(EBADMSG)")) << said(spoiled);
	fs::resize_file(path, fs::file_size(path) - 1);
	EXPECT_TRUE(has(said(path), "the device is smaller than header and data: Bad message (EBADMSG)")) << said(path);
}

TEST_F(ViewRead, ReplacesFilesAsCopyingDoes)
{
	const std::vector<uint32_t> values = tokens(1000, 17);
	const std::string a = write("a", values), want = bytes_of(values), to = folder / "to", link = folder / "link";
	const auto read_to = [&](const std::string &where) { return run_view({"read", a, "--output", where}); };
	const mode_t mask = ::umask(027);
	EXPECT_EQ(read_to(to).status, 0);
	::umask(mask);
	const auto mode = [&] { return fs::status(to).permissions(); };
	EXPECT_EQ(mode(), fs::perms{0640});
	::chmod(to.c_str(), 0604);
	std::ofstream(to) << std::string(10000, 'x');
	fs::create_symlink("to", link);
	EXPECT_EQ(read_to(link).status, 0);
	EXPECT_EQ(mode(), fs::perms{0604});
	EXPECT_TRUE(fs::is_symlink(link));
	EXPECT_EQ(contents(to), want);
	fs::remove(to);
	EXPECT_EQ(read_to(link).err, "peerdma: " + link +
					     " is a dangling symbolic link: No such file or directory (ENOENT). Create "
					     "its target, or remove it.\n");
	EXPECT_EQ(read_to(a).err, "peerdma: " + a + " is the file that is read: Invalid argument (EINVAL)\n");
	EXPECT_EQ(contents(a), want);
	EXPECT_EQ(read_to(folder).err, "peerdma: cannot write " + folder.string() + ": Is a directory (EISDIR)\n");
	EXPECT_EQ(read_to(folder / "none/to").status, 1);
	EXPECT_EQ(read_to(a + "/to").status, 1);
	const std::string fifo = folder / "fifo";
	ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
	EXPECT_EQ(read_to(fifo).err, "peerdma: cannot write " + fifo + ": No such device or address (ENXIO)\n");
	// A number that no driver has.
	const std::string disk = folder / "disk";
	if (::mknod(disk.c_str(), S_IFBLK | 0600, makedev(59, 0)) == 0) {
		EXPECT_EQ(read_to(disk).err,
			  "peerdma: " + disk +
				  " is a block device: Invalid argument (EINVAL). peerdma view read does "
				  "not write to disks.\n");
	}
	EXPECT_EQ(others({"a", "link", "fifo", "disk"}), 0U);
}

TEST_F(ViewRead, SaysThatTheOutputIsFull)
{
	const std::string a = write("a", tokens(1000, 17));
	EXPECT_EQ(run_view({"read", a, "--output", "/dev/full"}).err,
		  "peerdma: cannot write to /dev/full: No space left on device (ENOSPC)\n");
	const Outcome said = run_view({"read", a, "--output", "/dev/full", "--json"});
	EXPECT_EQ(said.status, 1);
	EXPECT_EQ(said.parsed()["error"]["errno"], "ENOSPC");
	EXPECT_EQ(run_view({"read", a, "--output", "/dev/null"}).status, 0);
}

// The command with standard output as it is told, which the capture of run() would replace.
class Stdout
{
public:
	explicit Stdout(int fd) : old_(::dup(STDOUT_FILENO)) { ::dup2(fd, STDOUT_FILENO); }
	~Stdout()
	{
		::dup2(old_, STDOUT_FILENO);
		::close(old_);
	}
	Stdout(const Stdout &) = delete;
	Stdout &operator=(const Stdout &) = delete;

private:
	const int old_;
};

TEST_F(ViewRead, WritesNoElementsToATerminal)
{
	cli::ViewOptions options;
	options.device = write("a", tokens(1000, 17));
	int far = -1, near = -1;
	char name[64];
	ASSERT_EQ(::openpty(&far, &near, name, nullptr, nullptr), 0);
	const auto refused = [&] {
		const Stdout terminal(near);
		try {
			cli::view_read(options);
		} catch (const cli::Usage &usage) {
			return usage.what;
		}
		return std::string();
	};
	EXPECT_EQ(refused(), "standard output is a terminal; expected --output FILE, or a pipe");
	options.output = name;
	EXPECT_EQ(refused(), std::string(name) + " is a terminal; expected --output FILE, or a pipe");
	::fcntl(far, F_SETFL, O_NONBLOCK);
	char byte;
	EXPECT_EQ(::read(far, &byte, 1), -1) << "nothing was written";
	::close(far);
	::close(near);
}

TEST_F(ViewRead, WaitsForAPipeThatDoesNot)
{
	const std::vector<uint32_t> values = tokens(300000, 17);
	cli::ViewOptions options;
	options.device = write("a", values);
	int ends[2];
	ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
	::fcntl(ends[1], F_SETFL, O_NONBLOCK);
	std::string got;
	std::thread reader([&] {
		::usleep(20000); // the pipe is full by then
		std::vector<char> some(65536);
		for (ssize_t n; (n = ::read(ends[0], some.data(), some.size())) > 0;)
			got.append(some.data(), static_cast<size_t>(n));
	});
	{
		const Stdout pipe(ends[1]);
		EXPECT_NO_THROW(cli::view_read(options));
	}
	::close(ends[1]);
	reader.join();
	::close(ends[0]);
	EXPECT_TRUE(got == bytes_of(values));
}

} // namespace
