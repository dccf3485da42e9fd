// SPDX-License-Identifier: MIT
//
// Settings from outside. A policy that cannot be read or parsed keeps the driver closed, and no path blocks.
#include <csignal>
#include <regex>

#include "conformance.hpp"

using namespace conformance;

namespace
{

class Policy : public Cufile
{
protected:
	~Policy() override
	{
		for (const std::string &name : set_)
			unsetenv(name.c_str());
	}
	void variable(const std::string &name, const std::string &value)
	{
		setenv(name.c_str(), value.c_str(), 1);
		set_.push_back(name);
	}
	// The results of each call that opens the driver, and the log of the first.
	struct Said {
		int open = 0, handle = 0, properties = 0;
		std::string text;
	};
	Said opens()
	{
		Said said;
		capture_stderr();
		said.open = code(lib().cuFileDriverOpen);
		said.text = testing::internal::GetCapturedStderr();
		while (lib().cuFileUseCount())
			lib().cuFileDriverClose_v2();
		capture_stderr();
		CUfileDrvProps_t props;
		said.properties = code(lib().cuFileDriverGetProperties, &props);
		CUfileHandle_t fh = nullptr;
		said.handle = add(open_file("f", "hello"), fh);
		while (lib().cuFileUseCount())
			lib().cuFileDriverClose_v2();
		testing::internal::GetCapturedStderr();
		return said;
	}
	// Expects every call to fail, with one log line that contains these words.
	void expect_refused(int number, const std::string &words)
	{
		const Said said = opens();
		EXPECT_EQ(said.open, number) << words;
		EXPECT_EQ(said.handle, number) << words;
		EXPECT_EQ(said.properties, number) << words;
		EXPECT_NE(said.text.find(words), std::string::npos) << words << ": " << said.text;
		EXPECT_EQ(said.text.find('\n'), said.text.size() - 1) << "one line: " << said.text;
		EXPECT_NE(said.text.find(" ERROR "), std::string::npos) << said.text;
	}
	std::string file() const { return path("cufile.json").string(); }

private:
	std::vector<std::string> set_;
};

// The same in a child that is killed if it blocks.
int in_child_that_must_not_wait(const std::function<int()> &what)
{
	return in_child([&] {
		signal(SIGALRM, SIG_DFL);
		alarm(10);
		return what();
	});
}

TEST_F(Policy, ThatCannotBeUnderstood)
{
	const struct {
		std::string text, words;
	} all[] = {
		{"{\n\t\"denylist\": { \"mounts\": [\"/data\"], },\n}", ":2:37: "},
		{"{\n\t# a comment\n}", ":2:2: "},
		{"{ \"logging\": { \"dir\": \"/caf\xe9\" } }", ":1:"},
		{"\xff\xfe{", ":1:1: "},
		{"", ":1:1: "},
		{"{ \"denylist\": { \"mounts\": [\"/da", ":1:32: "},
		{"[]", ":1:1: not an object"},
		{"{}\n{}", ":2:1: "},
		{"{}\n" + std::string(1, '\0') + "{ \"properties\": { \"allow_compat_mode\": false } }",
		 ":2:1: NUL byte"},
		{"{ \"fs\": { \"generic\": { \"allow_compat_mode\": false } } }",
		 ":1:24: fs/generic/allow_compat_mode: "},
		{"{ \"denylist\": { \"filesystems\": [\"ext4,xfs\"] } }", ":1:32: denylist/filesystems: "},
		{"{ \"properties\": {\n\t\"allow_compat_mode\": \"maybe\" } }",
		 ":2:23: properties/allow_compat_mode: invalid value \"maybe\"; expected true, false, 1 or 0"},
		{"{ \"properties\": { \"force_compat_mode\": null } }", ":1:40: "},
		{"{ \"properties\": { \"force_odirect_mode\": [] } }", ":1:41: "},
		{"{ \"properties\": { \"allow_system_memory\": 2 } }", ":1:42: "},
		{"{ \"properties\": { \"max_device_pinned_mem_size_kb\": -1 } }", ":1:52: "},
		{"{ \"properties\": { \"max_device_pinned_mem_size_kb\": \"1 GiB\" } }", ":1:52: "},
		{"{ \"properties\": { \"rdma_dynamic_routing_order\": \"SYSMEM\" } }", ":1:49: "},
		{"{ \"properties\": { \"rdma_dynamic_routing_order\": [\"SYSMEM\"] } }", ":1:49: "},
		{"{ \"properties\": { \"rdma_dev_addr_list\": \"10.0.0.1\" } }", ":1:41: "},
		{"{ \"fs\": { \"nfs\": { \"rdma_dev_addr_list\": 5 } } }", ":1:42: "},
		{"{ \"properties\": [\"allow_compat_mode\"] }", ":1:17: properties: "},
		{"{ \"properties\": { \"allow_compat_mode\": false, \"allow_compat_mode\": true } }",
		 ":1:47: properties/allow_compat_mode: given twice"},
		{"{ \"properties\": { \"allow_compat_mode\": false }, \"properties\": {} }",
		 ":1:49: properties: given twice"},
		{"{ \"properties\": { \"allow_compat_mode\": false, \"use_compat_mode\": true } }", "contradicts"},
		{"{ \"properties\": { \"allow_compat_mod\": false } }",
		 ":1:19: properties/allow_compat_mod: unknown key"},
		{"{ \"Properties\": { \"allow_compat_mode\": false } }", "expected properties/allow_compat_mode"},
		{"{ \"execution\": { \"allow_compat_mode\": false } }", "expected properties/allow_compat_mode"},
		{"{ \"denylist\": [\"/data\"] }", ":1:15: denylist: invalid value [\"/data\"]"},
		{"{ \"denylist\": \"/data\" }", ":1:15: denylist: "},
		{"{ \"denylist\": { \"mounts\": \"/data\" } }",
		 ":1:27: denylist/mounts: invalid value \"/data\"; expected a list"},
		{"{ \"denylist\": { \"mounts\": [\"/data\", 5] } }", ":1:27: "},
		{"{ \"denylist\": { \"mounts\": [\"data\"] } }", ":1:27: "},
		{"{ \"denylist\": { \"mounts\": [\"/a/../data\"] } }", ":1:27: "},
		{"{ \"denylist\": { \"filesystems\": [\"\"] } }", ":1:32: "},
		{"{ \"denylist\": { \"mount\": [\"/data\"] } }", ":1:17: denylist/mount: unknown key"},
		{"{ \"deny_list\": { \"mounts\": [\"/data\"] } }", ":1:3: deny_list: unknown key; expected denylist"},
		{"{ \"Denylist\": { \"mounts\": [\"/data\"] } }", ":1:3: Denylist: unknown key; expected denylist"},
		{"{ \"properties\": { \"denylist\": { \"mounts\": [] } } }", ":1:19: "},
		{"{ \"blacklist\": { \"drivers\": { \"nvme\": true } } }", ":1:29: "},
		{"{ \"a\": " + std::string(40, '[') + std::string(40, ']') + " }", "nested too deeply"},
		{"{ \"execution\": { \"max_io_threads\": 1e999 } }", ":1:36: number out of range"},
	};
	for (const auto &one : all) {
		json(one.text);
		expect_refused(5002, one.words[0] == ':' ? file() + one.words : one.words);
		json("{}");
		EXPECT_EQ(opens().open, 0) << "and is not remembered";
	}
}

TEST_F(Policy, ThatCannotBeRead)
{
	fs::create_symlink("/nowhere/cufile.json", path("link.json"));
	variable("CUFILE_ENV_PATH_JSON", path("link.json").string());
	expect_refused(5002, "link.json: cannot be read: ENOENT");
	variable("CUFILE_ENV_PATH_JSON", dir_.string());
	expect_refused(5002, dir_.string() + ": not a regular file");
	variable("CUFILE_ENV_PATH_JSON", "/dev/null");
	expect_refused(5002, "/dev/null: not a regular file");
	variable("CUFILE_ENV_PATH_JSON", file());
	json("{}" + std::string(1 << 20, ' '));
	expect_refused(5002, file() + ": longer than 1 MiB");
	json("{}" + std::string((1 << 20) - 2, ' '));
	EXPECT_EQ(opens().open, 0);
	if (getuid() != 0)
		GTEST_SKIP() << "root can become another user";
	json("{}");
	fs::permissions(file(), fs::perms::owner_read);
	EXPECT_EQ(in_child_that_must_not_wait([&] {
			  constexpr uid_t nobody = 65534;
			  const int log = open(path("said").c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
			  if (dup2(log, 2) != 2 || setresuid(nobody, nobody, nobody))
				  return 2;
			  return code(lib().cuFileDriverOpen) == 5002 ? 0 : 3;
		  }),
		  0);
	EXPECT_NE(content("said").find(file() + ": cannot be read: EACCES"), std::string::npos) << content("said");
}

TEST_F(Policy, ThatWouldNeverEnd)
{
	ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
	for (const std::string &name : {path("fifo").string(), std::string("/dev/zero"), std::string("/proc/kmsg")}) {
		variable("CUFILE_ENV_PATH_JSON", name);
		EXPECT_EQ(in_child_that_must_not_wait([&] { return code(lib().cuFileDriverOpen) != 5002; }), 0) << name;
	}
}

TEST_F(Policy, OfVariables)
{
	for (const char *name : {"CUFILE_ALLOW_COMPAT_MODE", "CUFILE_FORCE_COMPAT_MODE", "PEERDMA_REQUIRE_DIRECT"}) {
		variable(name, "maybe");
		expect_refused(5002, std::string(name) + ": invalid value \"maybe\"; expected true, false, 1 or 0");
		variable(name, "\x1b[2J");
		expect_refused(5002, std::string(name) + ": invalid value \"\\u001b[2J\"");
		for (const char *good : {"", "0", "FALSE", "1", "True", "no", "on"}) {
			variable(name, good);
			const Said said = opens();
			// without /dev/peerdma and a fallback the driver stays closed for another reason
			EXPECT_NE(said.open, 5002) << name << '=' << good;
			EXPECT_EQ(said.text.find("invalid"), std::string::npos) << said.text;
		}
		unsetenv(name);
	}
	variable("CUFILE_NVTX", "maybe");
	const Said said = opens();
	EXPECT_EQ(said.open, 0) << "only tunes";
	EXPECT_NE(said.text.find("CUFILE_NVTX: invalid value \"maybe\"; expected true, false, 1 or 0"),
		  std::string::npos);
}

// Settings that only tune fall back to their defaults; the log names the place.
TEST_F(Policy, ThatOnlyTunes)
{
	json("{ \"execution\": {\n\t\"max_io_threads\": 1000,\n\t\"parallel_io\": \"perhaps\" },\n"
	     "\"logging\": { \"level\": \"loud\" }, \"odd\": 1 }");
	const Said said = opens();
	EXPECT_EQ(said.open, 0);
	for (const char *words :
	     {":2:20: execution/max_io_threads: invalid value 1000; expected a whole number from 0 to 256",
	      ":3:17: execution/parallel_io: invalid value \"perhaps\"; expected true, false, 1 or 0",
	      ":4:23: logging/level: invalid value \"loud\"; expected NOTICE, ERROR, WARN, INFO, DEBUG or TRACE",
	      ":4:33: odd: unknown key"})
		EXPECT_NE(said.text.find(file() + words), std::string::npos) << words << ": " << said.text;
	EXPECT_EQ(said.text.find('\n'), said.text.size() - 1) << "one line: " << said.text;
}

TEST_F(Policy, AsPeopleWriteIt)
{
	json("{ \"logging\": { \"level\": \"info\" }, \"execution\": { \"max_io_threads\": \"7\", \"parallel_io\": 0 "
	     "},\n"
	     "\"properties\": { \"posix_pool_slab_size_kb\": 4, \"posix_pool_slab_count\": \"16\",\n"
	     "\"max_direct_io_size_kb\": 2048.0, \"force_odirect_mode\": \"TRUE\", \"allow_system_memory\": 1 } }");
	capture_stderr();
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(testing::internal::GetCapturedStderr().find("slab"), std::string::npos);
	char text[16];
	EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOGGING_LEVEL, text, 16), 0);
	EXPECT_STREQ(text, "INFO");
	size_t value = 0, size[3] = {}, count[3] = {};
	lib().cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &value);
	EXPECT_EQ(value, 7u);
	lib().cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, &value);
	EXPECT_EQ(value, 2048u);
	bool flag = true;
	lib().cuFileGetParameterBool(CUFILE_PARAM_EXECUTION_PARALLEL_IO, &flag);
	EXPECT_FALSE(flag);
	lib().cuFileGetParameterBool(CUFILE_PARAM_FORCE_ODIRECT_MODE, &flag);
	EXPECT_TRUE(flag);
	EXPECT_EQ(code(lib().cuFileGetParameterPosixPoolSlabArray, size, count, 3), 0);
	EXPECT_EQ(size[0], 4u);
	EXPECT_EQ(count[0], 16u);
	EXPECT_EQ(size[1], 0u);
}

// Until the driver is closed.
TEST_F(Policy, OfTheProgram)
{
	const size_t slab_size[] = {64}, slab_count[] = {7};
	EXPECT_EQ(code(lib().cuFileSetParameterSizeT, CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 9), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterBool, CUFILE_PARAM_FORCE_ODIRECT_MODE, true), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterString, CUFILE_PARAM_LOGGING_LEVEL, "warn"), 0);
	EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, slab_size, slab_count, 1), 0);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxPinnedMemSize, 4096), 0);
	EXPECT_EQ(code(lib().cuFileDriverSetPollMode, true, 64), 0);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxDirectIOSize, 128), 0);
	const auto are_set = [](bool set) {
		size_t value = 0, size[3] = {}, count[3] = {};
		bool flag = false;
		char text[16];
		CUfileDrvProps_t props = {};
		EXPECT_EQ(code(lib().cuFileGetParameterSizeT, CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &value), 0);
		EXPECT_EQ(value, set ? 9u : 4u);
		EXPECT_EQ(code(lib().cuFileGetParameterBool, CUFILE_PARAM_FORCE_ODIRECT_MODE, &flag), 0);
		EXPECT_EQ(flag, set);
		EXPECT_EQ(code(lib().cuFileGetParameterString, CUFILE_PARAM_LOGGING_LEVEL, text, 16), 0);
		EXPECT_EQ(std::string(text) == "WARN", set);
		EXPECT_EQ(code(lib().cuFileGetParameterPosixPoolSlabArray, size, count, 3), 0);
		EXPECT_EQ(size[0], set ? 64u : 4u);
		EXPECT_EQ(code(lib().cuFileDriverGetProperties, &props), 0);
		EXPECT_EQ(props.max_device_pinned_mem_size, set ? 4096u : 33554432u);
		EXPECT_EQ(props.nvfs.poll_thresh_size, set ? 64u : 4u);
		EXPECT_EQ(props.nvfs.max_direct_io_size, set ? 128u : 16384u);
		EXPECT_EQ(props.nvfs.dcontrolflags, set ? 3u : 2u);
	};
	capture_stderr();
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	are_set(true);
	lib().cuFileDriverClose_v2();
	are_set(true);
	lib().cuFileDriverClose_v2();
	are_set(false);
	EXPECT_EQ(code(lib().cuFileDriverOpen), 0);
	are_set(false);
	EXPECT_EQ(code(lib().cuFileDriverSetMaxPinnedMemSize, 4096), 0) << "while it is open";
	lib().cuFileDriverClose_v2();
	are_set(false);
	testing::internal::GetCapturedStderr();
}

// A log that is not read, or not fast enough, blocks no thread.
class LogPath : public Policy
{
protected:
	LogPath() { json("{ \"odd\": 1 }"); } // logged for each driver that is opened
	static int opens_and_closes() { return code(lib().cuFileDriverOpen) || code(lib().cuFileDriverClose_v2); }
};

TEST_F(LogPath, AFifoThatNobodyReads)
{
	ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
	variable("CUFILE_LOGFILE_PATH", path("fifo").string());
	EXPECT_EQ(in_child_that_must_not_wait([&] {
			  const int said = open(path("said").c_str(), O_RDWR | O_CREAT | O_APPEND, 0600);
			  return dup2(said, 2) != 2 || opens_and_closes();
		  }),
		  0);
	EXPECT_NE(content("said").find("fifo: cannot be opened: ENXIO; using standard error"), std::string::npos);
	EXPECT_NE(content("said").find("odd: unknown key"), std::string::npos);
}

TEST_F(LogPath, AFifoThatIsFull)
{
	ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
	variable("CUFILE_LOGFILE_PATH", path("fifo").string());
	EXPECT_EQ(in_child_that_must_not_wait([&] {
			  const int reader = open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
			  const int said = open(path("said").c_str(), O_WRONLY | O_CREAT, 0600);
			  if (dup2(said, 2) != 2)
				  return 4;
			  for (int i = 0; i < 1000; i++)
				  if (opens_and_closes())
					  return 2;
			  std::string text(1 << 20, '\0');
			  const ssize_t n = ::read(reader, text.data(), text.size());
			  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
			  return text.find("odd: unknown key") == std::string::npos ? 3 : 0;
		  }),
		  0);
	EXPECT_NE(content("said").find("fifo: 1 lines of this log were lost: no room\n"), std::string::npos);
}

TEST_F(LogPath, AFullPipeForStandardError)
{
	EXPECT_EQ(in_child_that_must_not_wait([&] {
			  int ends[2];
			  if (pipe(ends) || dup2(ends[1], 2) != 2)
				  return 2;
			  for (int i = 0; i < 1000; i++)
				  if (opens_and_closes())
					  return 3;
			  // The log gets as much as fits, and then the number of lost lines.
			  std::string text(1 << 20, '\0');
			  const ssize_t n = ::read(ends[0], text.data(), text.size());
			  if (n < 4096 || opens_and_closes())
				  return 4;
			  const ssize_t more = ::read(ends[0], text.data(), text.size());
			  text.resize(more > 0 ? static_cast<size_t>(more) : 0);
			  const std::regex lost(" NOTICE .* [0-9]+ lines of this log were lost: no room\n");
			  return std::regex_search(text, lost) ? 0 : 5;
		  }),
		  0);
}

// The line that explains why the driver does not open is neither lost with the file nor written into the program's
// data.
TEST_F(LogPath, AFileWithoutRoom)
{
	json("{\"properties\":[]}");
	variable("CUFILE_LOGFILE_PATH", "/dev/full");
	for (const int flags : {O_WRONLY, O_RDWR | O_APPEND, O_RDWR}) {
		const std::string name = "said" + std::to_string(flags);
		EXPECT_EQ(in_child_that_must_not_wait([&] {
				  const int said = open(path(name).c_str(), flags | O_CREAT, 0600);
				  return dup2(said, 2) != 2 ||
					 code(lib().cuFileDriverOpen) != CU_FILE_DRIVER_INVALID_PROPS;
			  }),
			  0);
		const std::regex both(" .* ERROR  .*cufile.json:1:15: .*\n"
				      " .* NOTICE .* /dev/full: 1 lines of this log were lost: no room\n");
		if (flags == O_RDWR)
			EXPECT_EQ(content(name), "");
		else
			EXPECT_TRUE(std::regex_match(content(name), both)) << content(name);
	}
}

// Lines below error level are only counted.
TEST_F(LogPath, LinesThatAFileHasNoRoomFor)
{
	variable("CUFILE_LOGFILE_PATH", "/dev/full");
	EXPECT_EQ(in_child_that_must_not_wait([&] {
			  const int said = open(path("said").c_str(), O_WRONLY | O_CREAT, 0600);
			  return dup2(said, 2) != 2 || opens_and_closes();
		  }),
		  0);
	const std::regex lost(" .* NOTICE .* /dev/full: [1-9][0-9]* lines of this log were lost: no room\n");
	EXPECT_TRUE(std::regex_match(content("said"), lost)) << content("said");
}

// Neither a symbolic link nor its target is renamed.
TEST_F(LogPath, ALinkIsNotRenamed)
{
	fs::create_symlink("/dev/null", path("link"));
	std::ofstream(path("long")) << std::string(2 << 20, 'x');
	fs::create_symlink(path("long"), path("link to a file"));
	variable("CUFILE_LOGFILE_MAX_SIZE_MB", "1");
	for (const char *name : {"link", "link to a file"}) {
		variable("CUFILE_LOGFILE_PATH", path(name).string());
		EXPECT_EQ(opens_and_closes(), 0);
		EXPECT_TRUE(fs::is_symlink(path(name))) << name;
		EXPECT_FALSE(fs::exists(path(std::string(name) + ".1"))) << name;
	}
	EXPECT_GT(fs::file_size(path("long")), size_t{2 << 20});
}

TEST_F(LogPath, AFullFileIsRenamed)
{
	std::ofstream(path("long")) << std::string(2 << 20, 'x');
	variable("CUFILE_LOGFILE_MAX_SIZE_MB", "1");
	variable("CUFILE_LOGFILE_PATH", path("long").string());
	EXPECT_EQ(opens_and_closes(), 0);
	EXPECT_EQ(fs::file_size(path("long.1")), size_t{2 << 20});
	EXPECT_NE(content("long").find("odd: unknown key"), std::string::npos);
}

TEST_F(LogPath, ATopologyGoesIntoARegularFileOnly)
{
	ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
	EXPECT_EQ(in_child_that_must_not_wait([&] {
			  const int reader = open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
			  const bool read = code(lib().cuFileExportPCIeTopology, path("fifo").c_str()) != 5022;
			  close(reader);
			  return read || code(lib().cuFileExportPCIeTopology, path("fifo").c_str()) != 5022 ||
				 code(lib().cuFileExportPCIeTopology, "/dev/null") != 5022;
		  }),
		  0);
}

} // namespace
