// SPDX-License-Identifier: MIT
// Parameters: valid values, when they can be set, and precedence of their sources.
#include <climits>
#include <set>
#include <sstream>

#include "program.hpp"

namespace
{

class CufileParameters : public ::testing::Test, protected Fakes
{
protected:
	~CufileParameters() override { close_all(library); }
	void json(const std::string &text)
	{
		system.variables["CUFILE_ENV_PATH_JSON"] = "/my.json";
		system.texts["/my.json"] = text;
	}
	// The value in a driver that is opened now.
	size_t opened(CUFileSizeTConfigParameter_t param)
	{
		size_t value = 0;
		EXPECT_EQ(library.driver.open().err, 0);
		EXPECT_EQ(library.driver.get(param, &value).err, 0);
		close_all(library);
		return value;
	}
	bool opened(CUFileBoolConfigParameter_t param)
	{
		bool value = false;
		EXPECT_EQ(library.driver.open().err, 0);
		EXPECT_EQ(library.driver.get(param, &value).err, 0);
		close_all(library);
		return value;
	}

	// A setting without effect is logged once per opened driver, and nothing else is.
	void expect_said(std::string key, bool idle)
	{
		while (key.ends_with(':') || key.ends_with('"'))
			key.pop_back();
		const std::string notice = " without effect here: " + key.substr(key.find_last_of("/\"") + 1) + "\n";
		std::istringstream lines(system.to_stderr);
		bool said = false;
		for (std::string line; std::getline(lines, line); said = true)
			EXPECT_TRUE((line + '\n').ends_with(notice)) << line;
		EXPECT_EQ(said, idle) << key;
	}
};

// --- Sizes
struct Size {
	CUFileSizeTConfigParameter_t param;
	const char *key;
	uint64_t least, most, built_in;
};

class CufileSizeParameter : public CufileParameters, public ::testing::WithParamInterface<Size>
{
protected:
	std::string with(const std::string &value) const
	{
		const std::string key = GetParam().key;
		const size_t slash = key.find('/');
		return "{\"" + key.substr(0, slash) + "\": {\"" + key.substr(slash + 1) + "\": " + value + "}}";
	}
};
constexpr uint64_t kib32 = UINT32_MAX;
INSTANTIATE_TEST_SUITE_P(
	All, CufileSizeParameter,
	::testing::Values(Size{CUFILE_PARAM_PROFILE_STATS, "profile/cufile_stats", 0, 3, 0},
			  Size{CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, "execution/max_io_queue_depth", 1, 4096, 128},
			  Size{CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, "execution/max_io_threads", 0, 256, 4},
			  Size{CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB, "execution/min_io_threshold_size_kb", 0,
			       1 << 30, 8192},
			  Size{CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM, "execution/max_request_parallelism", 0,
			       256, 4},
			  Size{CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, "properties/max_direct_io_size_kb", 64,
			       1 << 20, 16384},
			  Size{CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, "properties/max_device_cache_size_kb",
			       0, kib32, 131072},
			  Size{CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB, "properties/per_buffer_cache_size_kb",
			       0, kib32, 1024},
			  Size{CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB,
			       "properties/max_device_pinned_mem_size_kb", 0, kib32, 33554432},
			  Size{CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, "properties/io_batchsize", 1, 4096, 128},
			  Size{CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, "properties/poll_mode_max_size_kb", 0, 1 << 20, 4},
			  Size{CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS, "properties/max_batch_io_timeout_msecs", 1,
			       1 << 20, 5}),
	[](const auto &one) { return "Number" + std::to_string(one.param.param); });

TEST_P(CufileSizeParameter, HasARange)
{
	const Size &size = GetParam();
	size_t value = 4711;
	EXPECT_EQ(library.driver.get(size.param, &value).err, 0);
	EXPECT_EQ(value, size.built_in);
	for (const uint64_t good : {size.least, size.most, size.built_in, size.least + 1, size.most - 1}) {
		EXPECT_EQ(library.driver.set(size.param, good).err, 0) << good;
		EXPECT_EQ(library.driver.get(size.param, &value).err, 0);
		EXPECT_EQ(value, good);
		EXPECT_EQ(opened(size.param), good);
		EXPECT_EQ(library.driver.get(size.param, &value).err, 0);
		EXPECT_EQ(value, size.built_in) << "until the driver is closed";
		EXPECT_EQ(opened(size.param), size.built_in);
	}
	EXPECT_EQ(library.driver.set(size.param, size.most - 1).err, 0);
	for (const uint64_t bad : {size.least - 1, size.most + 1, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 33}) {
		if (bad + 1 == 0 && size.least == 0 && bad == size.least - 1)
			continue; // the same as UINT64_MAX
		EXPECT_EQ(library.driver.set(size.param, bad).err, CU_FILE_INVALID_VALUE) << bad;
	}
	EXPECT_EQ(library.driver.get(size.param, &value).err, 0);
	EXPECT_EQ(value, size.most - 1) << "as it was";
}

TEST_P(CufileSizeParameter, IsFixedWhileTheDriverIsOpen)
{
	const Size &size = GetParam();
	ASSERT_EQ(library.driver.open().err, 0);
	EXPECT_EQ(library.driver.set(size.param, size.most).err, CU_FILE_DRIVER_ALREADY_OPEN);
	EXPECT_EQ(library.driver.set(size.param, size.most + 1).err, CU_FILE_INVALID_VALUE)
		<< "what cannot be cannot be";
	size_t value = 0;
	EXPECT_EQ(library.driver.get(size.param, &value).err, 0);
	EXPECT_EQ(value, size.built_in);
	EXPECT_EQ(library.driver.get(size.param, nullptr).err, CU_FILE_INVALID_VALUE);
}

TEST_P(CufileSizeParameter, OfTheFileUnlessTheProgramSaysAnother)
{
	const Size &size = GetParam();
	json(with(std::to_string(size.most)));
	EXPECT_EQ(opened(size.param), size.most);
	const std::set<int> idle = {
		CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB, CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB,
		CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB,
		CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS};
	expect_said(size.key, idle.contains(size.param));
	size_t value = 0;
	EXPECT_EQ(library.driver.get(size.param, &value).err, 0);
	EXPECT_EQ(value, size.built_in) << "a driver that is closed has no file";
	ASSERT_EQ(library.driver.set(size.param, size.least).err, 0);
	EXPECT_EQ(opened(size.param), size.least);
}

// An invalid limit must not be dropped: the driver stays closed.
TEST_P(CufileSizeParameter, OddValuesInTheFileAreNamedAndLeftOut)
{
	const Size &size = GetParam();
	const bool restricts = size.param == CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB;
	for (const std::string &odd :
	     {std::to_string(size.most + 1), std::string("-1"), std::string("1.5"), std::string("\"4k\""),
	      std::string("true"), std::string("null"), std::string("[1]"), std::string("{}"), std::string("1e-2"),
	      std::string("18446744073709551616")}) {
		system.to_stderr.clear();
		json(with(odd));
		if (restricts)
			EXPECT_EQ(library.driver.open().err, CU_FILE_DRIVER_INVALID_PROPS) << odd;
		else
			EXPECT_EQ(opened(size.param), size.built_in) << odd;
		EXPECT_NE(system.to_stderr.find("/my.json:1:"), std::string::npos) << odd << ": " << system.to_stderr;
		EXPECT_NE(system.to_stderr.find(size.key + std::string(": invalid value ")), std::string::npos) << odd;
	}
}

// --- Flags
struct Flag {
	CUFileBoolConfigParameter_t param;
	const char *key, *variable; // nullptr: none
	bool built_in;
};

class CufileFlagParameter : public CufileParameters, public ::testing::WithParamInterface<Flag>
{
};
INSTANTIATE_TEST_SUITE_P(
	All, CufileFlagParameter,
	::testing::Values(
		Flag{CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, "{\"properties\":{\"use_poll_mode\":", nullptr, false},
		Flag{CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE,
		     "{\"properties\":{\"allow_compat_mode\":", "CUFILE_ALLOW_COMPAT_MODE", true},
		Flag{CUFILE_PARAM_FORCE_COMPAT_MODE,
		     "{\"properties\":{\"force_compat_mode\":", "CUFILE_FORCE_COMPAT_MODE", false},
		Flag{CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE,
		     "{\"miscellaneous\":{\"api_check_aggressive\":", nullptr, false},
		Flag{CUFILE_PARAM_EXECUTION_PARALLEL_IO, "{\"execution\":{\"parallel_io\":", nullptr, true},
		Flag{CUFILE_PARAM_PROFILE_NVTX, "{\"profile\":{\"nvtx\":", "CUFILE_NVTX", false},
		Flag{CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY, "{\"properties\":{\"allow_system_memory\":", nullptr,
		     true},
		Flag{CUFILE_PARAM_USE_PCIP2PDMA, "{\"properties\":{\"use_pci_p2pdma\":", "CUFILE_USE_PCIP2PDMA", false},
		Flag{CUFILE_PARAM_PREFER_IO_URING, "{\"properties\":{\"prefer_iouring\":", nullptr, false},
		Flag{CUFILE_PARAM_FORCE_ODIRECT_MODE, "{\"properties\":{\"force_odirect_mode\":", nullptr, false},
		Flag{CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION,
		     "{\"miscellaneous\":{\"skip_topology_detection\":", "CUFILE_SKIP_TOPOLOGY_DETECTION", false},
		Flag{CUFILE_PARAM_STREAM_MEMOPS_BYPASS, "{\"miscellaneous\":{\"stream_memops_bypass\":", nullptr,
		     false}),
	[](const auto &one) { return "Number" + std::to_string(one.param.param); });

TEST_F(CufileParameters, AProvidersNodeIsEnoughToOpenWithoutAFallback)
{
	const auto opens = [&] {
		EXPECT_EQ(library.driver.set(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, false).err, 0);
		const bool good = library.driver.open().err == 0;
		close_all(library);
		return good;
	};
	EXPECT_FALSE(opens()) << "there is no node";
	system.node = true;
	EXPECT_TRUE(opens());
	system.node_path = "/dev/peerdma3";
	EXPECT_FALSE(opens()) << "it is not seen";
	system.links["/dev/peerdma3"] = "";
	EXPECT_TRUE(opens());
	for (const int error : {EACCES, EPERM, EMFILE, EIO}) {
		system.node_error = -error;
		EXPECT_EQ(opens(), error == EACCES || error == EPERM) << error << ": as peerdma_open()";
	}
	system.to_stderr.clear();
	system.variables["PEERDMA_DEVICE"] = "";
	EXPECT_FALSE(opens()) << "which counts as not set";
	EXPECT_TRUE(system.to_stderr.ends_with("allow_compat_mode is false, and /dev/peerdma cannot be used: "
					       "Input/output error\n"))
		<< system.to_stderr;
	system.variables["PEERDMA_DEVICE"] = "/dev/peerdma4";
	EXPECT_FALSE(opens()) << "another one is named";
	EXPECT_TRUE(system.to_stderr.ends_with("and /dev/peerdma4, which PEERDMA_DEVICE names, cannot be used: "
					       "No such file or directory\n"))
		<< system.to_stderr;
	system.variables["PEERDMA_DEVICE"] = "/dev/peerdma3";
	system.links.clear();
	EXPECT_TRUE(opens()) << "it is named";
	for (const int error : {ENOTTY, EPROTONOSUPPORT}) {
		system.module_answers = -error;
		EXPECT_FALSE(opens()) << error << ": it is no module's, or another's";
	}
}

TEST_P(CufileFlagParameter, TheProgramBeforeTheVariableBeforeTheFile)
{
	const Flag &flag = GetParam();
	const auto text = [](bool yes) { return yes ? "true" : "false"; };
	system.node = true; // otherwise it opens only with a fallback
	bool value = !flag.built_in;
	EXPECT_EQ(library.driver.get(flag.param, &value).err, 0);
	EXPECT_EQ(value, flag.built_in);
	EXPECT_EQ(opened(flag.param), flag.built_in);
	json(flag.key + std::string(text(!flag.built_in)) + "}}");
	EXPECT_EQ(opened(flag.param), !flag.built_in) << "the file";
	if (flag.variable) {
		system.variables[flag.variable] = text(flag.built_in);
		EXPECT_EQ(opened(flag.param), flag.built_in) << "the variable before the file";
	}
	const bool otherwise = opened(flag.param);
	for (const bool said : {!flag.built_in, flag.built_in}) {
		ASSERT_EQ(library.driver.set(flag.param, said).err, 0);
		EXPECT_EQ(opened(flag.param), said) << "the program before both";
		EXPECT_EQ(opened(flag.param), otherwise) << "until the driver is closed";
	}
	const std::set<int> idle = {CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE,
				    CUFILE_PARAM_PROFILE_NVTX, CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION};
	expect_said(flag.key, idle.contains(flag.param));
	EXPECT_EQ(library.driver.get(flag.param, nullptr).err, CU_FILE_INVALID_VALUE);
	ASSERT_EQ(library.driver.open().err, 0);
	EXPECT_EQ(library.driver.set(flag.param, true).err, CU_FILE_DRIVER_ALREADY_OPEN);
}

// An invalid value of a restriction keeps the driver closed instead.
TEST_P(CufileFlagParameter, OddValuesAreNamedAndLeftOut)
{
	const Flag &flag = GetParam();
	const std::set<int> restricting = {CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, CUFILE_PARAM_FORCE_COMPAT_MODE,
					   CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY,
					   CUFILE_PARAM_FORCE_ODIRECT_MODE};
	const auto expect_named = [&](const std::string &name, const std::string &odd) {
		system.to_stderr.clear();
		if (restricting.contains(flag.param))
			EXPECT_EQ(library.driver.open().err, CU_FILE_DRIVER_INVALID_PROPS) << odd;
		else
			EXPECT_EQ(opened(flag.param), flag.built_in) << odd;
		EXPECT_NE(system.to_stderr.find(name), std::string::npos) << odd << ": " << system.to_stderr;
		EXPECT_NE(system.to_stderr.find("; expected true, false, 1 or 0"), std::string::npos) << odd;
	};
	for (const char *odd : {"2", "-1", "\"perhaps\"", "\"\"", "null", "[]", "2.5"}) {
		json(flag.key + std::string(odd) + "}}");
		expect_named("/my.json:1:", odd);
	}
	if (!flag.variable)
		return;
	json("{}");
	for (const char *odd : {"y", "2", "truefalse", " true"}) {
		system.variables[flag.variable] = odd;
		expect_named(flag.variable + std::string(": invalid value \"") + odd + '"', odd);
	}
}

// --- Strings
class CufileTextParameter : public CufileParameters, public ::testing::WithParamInterface<CUFileStringConfigParameter_t>
{
};
INSTANTIATE_TEST_SUITE_P(All, CufileTextParameter,
			 ::testing::Values(CUFILE_PARAM_LOGGING_LEVEL, CUFILE_PARAM_ENV_LOGFILE_PATH,
					   CUFILE_PARAM_LOG_DIR));

TEST_P(CufileTextParameter, NeedsRoomForItsEnd)
{
	std::vector<char> room(64, 'x');
	const bool has_empty = GetParam() != CUFILE_PARAM_ENV_LOGFILE_PATH;
	EXPECT_EQ(library.driver.get(GetParam(), room.data(), 64).err, has_empty ? 0 : CU_FILE_INVALID_VALUE)
		<< "not set";
	EXPECT_EQ(room[0], has_empty ? '\0' : 'x');
	EXPECT_EQ(room[1], 'x');
	for (const size_t length : {1u, 2u, 7u, 63u, 200u}) {
		const std::string text(length, 'a');
		ASSERT_EQ(library.driver.set(GetParam(), text.c_str()).err, 0);
		for (const int less : {INT_MIN, -1, 0, 1, static_cast<int>(length)}) {
			std::vector<char> little(static_cast<size_t>(std::max(less, 1)), 'x');
			EXPECT_EQ(library.driver.get(GetParam(), little.data(), less).err, CU_FILE_INVALID_VALUE)
				<< length << ' ' << less;
			EXPECT_EQ(std::count(little.begin(), little.end(), 'x'), static_cast<long>(little.size()));
		}
		std::vector<char> enough(length + 1, 'x');
		EXPECT_EQ(library.driver.get(GetParam(), enough.data(), static_cast<int>(length) + 1).err, 0);
		EXPECT_EQ(std::string(enough.data()), text);
	}
	EXPECT_EQ(library.driver.get(GetParam(), nullptr, 64).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.driver.set(GetParam(), nullptr).err, CU_FILE_INVALID_VALUE);
}

// --- Slabs
struct Slab {
	const char *name;
	std::vector<size_t> sizes, counts;
	int len;
	bool good;
};

class CufileSlabs : public CufileParameters, public ::testing::WithParamInterface<Slab>
{
};
INSTANTIATE_TEST_SUITE_P(
	Of, CufileSlabs,
	::testing::Values(
		Slab{"one", {4}, {1}, 1, true}, Slab{"none_of_a_size", {4}, {0}, 1, true},
		Slab{"three", {4, 8, 16}, {1, 2, 3}, 3, true}, Slab{"the_first_alone", {4, 0}, {1, 2}, 1, true},
		Slab{"sixteen", std::vector<size_t>(16, 4), std::vector<size_t>(16, 1), 16, true},
		Slab{"the_largest", {UINT32_MAX}, {UINT32_MAX}, 1, true},
		Slab{"seventeen", std::vector<size_t>(17, 4), std::vector<size_t>(17, 1), 17, false},
		Slab{"of_no_size", {0}, {1}, 1, false}, Slab{"the_second_of_no_size", {4, 0}, {1, 2}, 2, false},
		Slab{"too_large", {size_t{1} << 32}, {1}, 1, false}, Slab{"too_many", {4}, {size_t{1} << 32}, 1, false},
		Slab{"no_length", {4}, {1}, 0, false}, Slab{"a_negative_length", {4}, {1}, -1, false},
		Slab{"the_most_negative", {4}, {1}, INT_MIN, false}),
	[](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileSlabs, AreTakenOrNot)
{
	const Slab &slab = GetParam();
	for (const cufile::Pool pool : {cufile::posix_pool, cufile::gpu_pool}) {
		std::vector<size_t> sizes(20, 4711), counts(20, 4711);
		EXPECT_EQ(library.driver.set_slabs(pool, slab.sizes.data(), slab.counts.data(), slab.len).err,
			  slab.good ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
		const size_t n = slab.good ? static_cast<size_t>(slab.len) : pool == cufile::posix_pool ? 3 : 4;
		EXPECT_EQ(library.driver.get_slabs(pool, sizes.data(), counts.data(), static_cast<int>(n) - 1).err,
			  CU_FILE_INVALID_VALUE);
		EXPECT_EQ(sizes[0], 4711u) << "nothing is written where there is no room for all";
		ASSERT_EQ(library.driver.get_slabs(pool, sizes.data(), counts.data(), 20).err, 0);
		EXPECT_EQ(std::count(sizes.begin(), sizes.end(), 0u), 20 - static_cast<long>(n));
		if (slab.good) {
			EXPECT_TRUE(std::equal(sizes.begin(), sizes.begin() + slab.len, slab.sizes.begin()));
			EXPECT_TRUE(std::equal(counts.begin(), counts.begin() + slab.len, slab.counts.begin()));
		}
		EXPECT_EQ(library.driver.set_slabs(pool, nullptr, slab.counts.data(), 1).err, CU_FILE_INVALID_VALUE);
		EXPECT_EQ(library.driver.set_slabs(pool, slab.sizes.data(), nullptr, 1).err, CU_FILE_INVALID_VALUE);
	}
}

// --- Parameters with calls of their own
TEST_F(CufileParameters, LimitsMayBeSetBeforeAndMeanwhile)
{
	const auto all = [&] {
		EXPECT_EQ(library.driver.set_max_direct(65).err, CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
		EXPECT_EQ(library.driver.set_max_direct(0).err, CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
		EXPECT_EQ(library.driver.set_max_direct((1 << 20) + 64).err, CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
		EXPECT_EQ(library.driver.set_max_direct(128).err, 0);
		EXPECT_EQ(library.driver.set_max_cache(size_t{1} << 32).err, CU_FILE_INVALID_VALUE);
		EXPECT_EQ(library.driver.set_max_cache(77).err, 0);
		EXPECT_EQ(library.driver.set_max_pinned(size_t{1} << 32).err, CU_FILE_INVALID_VALUE);
		EXPECT_EQ(library.driver.set_max_pinned(78).err, 0);
		EXPECT_EQ(library.driver.set_poll_mode(true, (1 << 20) + 1).err, CU_FILE_INVALID_VALUE);
		EXPECT_EQ(library.driver.set_poll_mode(true, 9).err, 0);
	};
	const auto are = [&] {
		CUfileDrvProps_t props;
		ASSERT_EQ(library.driver.properties(&props).err, 0);
		EXPECT_EQ(props.nvfs.max_direct_io_size, 128u);
		EXPECT_EQ(props.max_device_cache_size, 77u);
		EXPECT_EQ(props.max_device_pinned_mem_size, 78u);
		EXPECT_EQ(props.nvfs.poll_thresh_size, 9u);
		EXPECT_EQ(props.nvfs.dcontrolflags, 3u);
	};
	all();
	ASSERT_EQ(library.driver.open().err, 0);
	are();
	EXPECT_EQ(library.driver.set_max_direct(192).err, 0);
	all();
	are();
}

} // namespace
