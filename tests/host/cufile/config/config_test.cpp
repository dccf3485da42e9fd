// SPDX-License-Identifier: MIT
#include <cstring>
#include <regex>

#include <gtest/gtest.h>

#include "cufile/config/config.hpp"
#include "cufile/diag/log.hpp"
#include "fake_dependencies.hpp"

using cufile::Config;
using cufile::Log;
using cufile::read_bool;
using cufile::read_json;
using cufile::Settings;

namespace
{

struct Read {
	Config config;
	std::vector<std::string> notices;
	std::string fault;
	bool good;

	explicit Read(const std::string &text)
	{
		cufile::Findings found;
		read_json(text, "j", config, found);
		notices = found.notices;
		fault = found.fault;
		good = fault.empty();
	}
};

TEST(CufileJson, WhatIsBuiltIn)
{
	const Config config;
	EXPECT_EQ(config.size(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH), 128u);
	EXPECT_EQ(config.size(CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM), 4u);
	EXPECT_EQ(config.size(CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB), 1024u);
	EXPECT_TRUE(config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE));
	EXPECT_TRUE(config.flag(CUFILE_PARAM_EXECUTION_PARALLEL_IO));
	EXPECT_FALSE(config.flag(CUFILE_PARAM_FORCE_COMPAT_MODE));
	EXPECT_EQ(config.slabs[cufile::posix_pool], (cufile::Slabs{{4, 1024, 16384}, {128, 64, 64}}));
	for (unsigned i = 0; i < cufile::nr_sizes; i++) {
		EXPECT_LE(cufile::size_range(i).min, config.sizes[i]) << i;
		EXPECT_GE(cufile::size_range(i).max, config.sizes[i]) << i;
	}
}

TEST(CufileJson, EveryKeyThatHasAMeaning)
{
	const Read it(R"({
		// as the original is written
		"logging": { "dir": "/var/log", "level": "TRACE", "max_file_size_mb": 5 },
		"profile": { "nvtx": true, "cufile_stats": 2 },
		"execution": { "max_io_queue_depth": 10, "max_io_threads": 11, "parallel_io": false,
			"min_io_threshold_size_kb": 12, "max_request_parallelism": 13 },
		"properties": { "max_direct_io_size_kb": 128, "max_device_cache_size_kb": 15, "per_buffer_cache_size_kb": 16,
			"max_device_pinned_mem_size_kb": 17, "io_batchsize": 18, "max_batch_io_timeout_msecs": 19,
			"poll_mode_max_size_kb": 20, "use_poll_mode": true, "allow_compat_mode": false,
			"force_compat_mode": true, "use_pci_p2pdma": true, "prefer_iouring": true, "force_odirect_mode": true,
			"allow_system_memory": false, "posix_pool_slab_size_kb": [1, 2], "posix_pool_slab_count": [3, 4],
			"rdma_dev_addr_list": ["10.0.0.1"], "rdma_dc_key": "0xffeeddcc",
			"gpu_bounce_buffer_slab_config": { "slab_size_kb": [5, 6], "slab_count": [7, 8] } },
		"fs": { "generic": { "posix_unaligned_writes": false }, "lustre": { "x": [] } },
		"sparse": {}, "block": { "nvme": { "use_pci_p2pdma": true } },
		"denylist": { "drivers": [] }, "blacklist": {},
		"miscellaneous": { "api_check_aggressive": true, "skip_topology_detection": true,
			"stream_memops_bypass": true, "enable_static_routing": false }
	})");
	EXPECT_TRUE(it.good);
	EXPECT_TRUE(it.notices.empty()) << it.notices.front();
	const uint64_t sizes[] = {2, 10, 11, 12, 13, 128, 15, 16, 17, 18, 20, 19};
	for (unsigned i = 0; i < cufile::nr_sizes; i++)
		EXPECT_EQ(it.config.sizes[i], sizes[i]) << i;
	const bool bools[] = {true, false, true, true, false, true, false, true, true, true, true, true};
	for (unsigned i = 0; i < cufile::nr_bools; i++)
		EXPECT_EQ(it.config.bools[i], bools[i]) << i;
	EXPECT_EQ(it.config.strings[CUFILE_PARAM_LOG_DIR], "/var/log");
	EXPECT_EQ(it.config.strings[CUFILE_PARAM_LOGGING_LEVEL], "TRACE");
	EXPECT_EQ(it.config.log_max_mb, 5u);
	EXPECT_EQ(it.config.slabs[cufile::posix_pool], (cufile::Slabs{{1, 2}, {3, 4}}));
	EXPECT_EQ(it.config.slabs[cufile::gpu_pool], (cufile::Slabs{{5, 6}, {7, 8}}));
}

// The original's cufile.json and the keys of later releases: it states the defaults and gives no notices.
TEST(CufileJson, TheOriginalsFile)
{
	const Read it(R"({
		// NOTE: a comment
		"logging": { "dir": "", "level": "ERROR", "max_file_size_mb": 32 },
		"profile": { "nvtx": false, "cufile_stats": 0, "io_batchsize": 128 },
		"execution": { "max_io_queue_depth": 128, "max_io_threads": 4, "parallel_io": true,
			"min_io_threshold_size_kb": 8192, "max_request_parallelism": 4 },
		"properties": { "max_direct_io_size_kb": 16384, "max_device_cache_size_kb": 131072,
			"per_buffer_cache_size_kb": 1024, "max_device_pinned_mem_size_kb": 33554432,
			"gpu_bounce_buffer_slab_config": { "slab_size_kb": [1024, 8192, 16384, 65536],
				"slab_count": [128, 8, 4, 2] },
			"posix_pool_slab_size_kb": [4, 1024, 16384], "posix_pool_slab_count": [128, 64, 64],
			"use_poll_mode": false, "poll_mode_max_size_kb": 4, "allow_compat_mode": true,
			"use_compat_mode": true, "force_compat_mode": false, "use_pci_p2pdma": false,
			"gds_rdma_write_support": true, "force_odirect_mode": false, "prefer_iouring": false,
			"vanilla_posix_io_mode": false, "gds_fallback_io": false, "allow_system_memory": true,
			"io_batchsize": 128, "io_priority": "default", "max_batch_io_size": 128,
			"max_batch_io_timeout_msecs": 5, "compat_odirect_unaligned_read_split": false,
			"compat_odirect_unaligned_read_split_min_size_kb": 128, "rdma_dev_addr_list": [],
			"rdma_peer_type": "peer_mem", "rdma_transport_type": "DC_V1", "rdma_dc_key": "0xffeeddcc",
			"rdma_access_mask": "0x1f", "rdma_load_balancing_policy": "RoundRobin", "rdma_topN_ranks": 1,
			"rdma_dynamic_routing": false,
			"rdma_dynamic_routing_order": [ "GPU_MEM_NVLINKS", "GPU_MEM", "SYS_MEM", "P2P" ],
			"allow_rdma_token_reset": false, "rdma_multipath_mode": 0, "max_backup_devices": 1, "io_retry_count": 3 },
		"sparse": { "min_p2pdma_threshold_kb": 8, "p2p_compat_enable": true },
		"fs": { "generic": { "posix_unaligned_writes": false },
			"lustre": { "posix_gds_min_kb": 0, "rdma_dev_addr_list": [], "mount_table": {}, "use_pci_p2pdma": false },
			"beegfs": { "posix_gds_min_kb": 0, "rdma_dev_addr_list": [], "mount_table": {} },
			"scatefs": { "posix_gds_min_kb": 0, "rdma_dev_addr_list": [], "mount_table": {} },
			"nfs": { "rdma_dev_addr_list": [], "mount_table": {}, "use_pci_p2pdma": false },
			"weka": { "rdma_write_support": false }, "virtiofs": { "use_pci_p2pdma": false },
			"gpfs": { "gds_write_support": false, "gds_async_support": true } },
		"block": { "nvme": { "use_pci_p2pdma": false }, "nvmeof": { "use_pci_p2pdma": false },
			"raid": { "use_pci_p2pdma": false }, "raid1": { "use_pci_p2pdma": false },
			"raid10": { "use_pci_p2pdma": false } },
		"denylist": { "drivers": [], "devices": [], "mounts": [], "filesystems": [] },
		"miscellaneous": { "api_check_aggressive": false, "skip_topology_detection": false,
			"stream_memops_bypass": false, "enable_static_routing": false,
			"static_routing_filepath": "/etc/topology.json", "rdma_token_reset_timeout_secs": 30 }
	})");
	EXPECT_TRUE(it.good);
	EXPECT_EQ(it.notices, std::vector<std::string>());
	EXPECT_EQ(it.config.idle, std::vector<std::string>());
	const Config built_in;
	for (unsigned i = 0; i < cufile::nr_sizes; i++)
		EXPECT_EQ(it.config.sizes[i], built_in.sizes[i]) << i;
	for (unsigned i = 0; i < cufile::nr_bools; i++)
		EXPECT_EQ(it.config.bools[i], built_in.bools[i]) << i;
	EXPECT_EQ(it.config.log_max_mb, built_in.log_max_mb);
	for (const auto pool : {cufile::posix_pool, cufile::gpu_pool})
		EXPECT_EQ(it.config.slabs[pool], built_in.slabs[pool]);
	EXPECT_FALSE(it.config.peer_gpu_bounce);
	EXPECT_TRUE(it.config.denylist.empty());
}

TEST(CufileJson, OtherNames)
{
	EXPECT_FALSE(Read(R"({"properties":{"use_compat_mode":false}})")
			     .config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE));
	EXPECT_EQ(Read(R"({"profile":{"io_batchsize":9}})").config.size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE), 9u);
	EXPECT_EQ(Read(R"({"properties":{"max_batch_io_size":9}})").config.size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE),
		  9u);
}

TEST(CufileJson, ValuesThatCannotBe)
{
	for (const char *text :
	     {R"({"execution":{"max_io_threads":"4 "}})", R"({"execution":{"max_io_threads":-4}})",
	      R"({"execution":{"max_io_threads":4.5}})", R"({"execution":{"max_io_threads":257}})",
	      R"({"execution":{"max_io_threads":18446744073709551616}})", R"({"execution":{"max_io_threads":null}})",
	      R"({"execution":{"max_io_threads":[4]}})", R"({"execution":{"max_io_threads":"0x4"}})",
	      R"({"execution":{"max_io_queue_depth":0}})", R"({"execution":{"parallel_io":2}})",
	      R"({"execution":{"parallel_io":"perhaps"}})", R"({"logging":{"level":3}})",
	      R"({"logging":{"max_file_size_mb":0}})", R"({"profile":{"cufile_stats":4}})",
	      R"({"properties":{"posix_pool_slab_size_kb":[]}})",
	      R"({"properties":{"posix_pool_slab_size_kb":[1,"x",3]}})",
	      R"({"properties":{"posix_pool_slab_size_kb":[1,2]}})",
	      R"({"properties":{"gpu_bounce_buffer_slab_config":{"slab_count":[1]}}})"}) {
		const Read it(text);
		EXPECT_TRUE(it.good) << text;
		ASSERT_EQ(it.notices.size(), 1u) << text;
		EXPECT_TRUE(std::regex_match(it.notices[0], std::regex("j:1:[0-9]+: .*; expected .*")))
			<< it.notices[0];
		const Config built_in;
		EXPECT_TRUE(std::equal(std::begin(it.config.sizes), std::end(it.config.sizes), built_in.sizes)) << text;
		EXPECT_TRUE(std::equal(std::begin(it.config.bools), std::end(it.config.bools), built_in.bools)) << text;
		EXPECT_EQ(it.config.slabs[cufile::posix_pool], built_in.slabs[cufile::posix_pool]) << text;
	}
}

TEST(CufileJson, AsPeopleWriteIt)
{
	for (const char *four : {"4", "4.0", "\"4\"", "4e0"})
		EXPECT_EQ(Read(std::string("{\"execution\":{\"max_request_parallelism\":2,\"max_io_threads\":") + four +
			       "}}")
				  .config.size(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS),
			  4u)
			<< four;
	for (const char *no : {"false", "0", "\"false\"", "\"FALSE\"", "\"0\"", "\"no\"", "\"Off\"", "0.0"})
		EXPECT_FALSE(Read(std::string("{\"properties\":{\"allow_compat_mode\":") + no + "}}")
				     .config.flag(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE))
			<< no;
	for (const char *level : {"info", "Info", "INFO"})
		EXPECT_EQ(Read(std::string("{\"logging\":{\"level\":\"") + level + "\"}}")
				  .config.strings[CUFILE_PARAM_LOGGING_LEVEL],
			  "INFO");
	// A single number applies to each entry of the other list.
	using cufile::Slabs;
	const auto slabs = [](const std::string &text) {
		const Read it("{\"properties\":{" + text + "}}");
		EXPECT_TRUE(it.notices.empty()) << it.notices.front();
		return it.config.slabs[cufile::posix_pool];
	};
	EXPECT_EQ(slabs(R"("posix_pool_slab_size_kb":4,"posix_pool_slab_count":8)"), (Slabs{{4}, {8}}));
	EXPECT_EQ(slabs(R"("posix_pool_slab_size_kb":[4,8],"posix_pool_slab_count":8)"), (Slabs{{4, 8}, {8, 8}}));
	EXPECT_EQ(slabs(R"("posix_pool_slab_size_kb":[4],"posix_pool_slab_count":"8")"), (Slabs{{4}, {8}}));
	EXPECT_EQ(slabs(R"("posix_pool_slab_size_kb":4)"), (Slabs{{4, 4, 4}, {128, 64, 64}}));
	EXPECT_EQ(slabs(R"("posix_pool_slab_count":7)"), (Slabs{{4, 1024, 16384}, {7, 7, 7}}));
}

// Line and column of a value, whatever precedes it.
TEST(CufileJson, Places)
{
	const std::pair<const char *, const char *> all[] = {
		{"{\"logging\":{\"level\":\"x\"}}", "j:1:21: logging/level: invalid value \"x\""},
		{"\xef\xbb\xbf{\"logging\":{\"level\":\"x\"}}", "j:1:24: "},
		{"{\"a\\\"\\\\\": [1, -2.5e3, \"}\", {\"b\": null}], \"logging\" : // {\n{ /* \"level\": \n */ "
		 "\"level\"\t:\r\n 7}}",
		 "j:4:2: logging/level: invalid value 7"},
		{"// a comment\r// another\n{\"logging\": {\"level\": [\n]}}",
		 "j:2:23: logging/level: invalid value []"},
		{"{\"logging\": {\"dir\": true, \"level\": \"INFO\"}, \"x\": [[[{}]]]}",
		 "j:1:21: logging/dir: invalid value true"},
		{"{\"\": {\"\": 1}}", "j:1:7: /: unknown key"},
		{"{\"\": {\"x\": 1}, \"a/b\": {\"/\": 2}}", "j:1:24: a/b//: unknown key"},
	};
	for (const auto &[text, words] : all) {
		const Read it(text);
		EXPECT_EQ(it.fault, "");
		EXPECT_TRUE(std::ranges::any_of(
			it.notices, [&words = words](const std::string &notice) { return notice.starts_with(words); }))
			<< words << ": " << (it.notices.empty() ? "nothing" : it.notices.back());
	}
	const std::string long_value(1000, 'x');
	EXPECT_LT(Read("{\"logging\":{\"level\":\"" + long_value + "\"}}").notices[0].size(), 250u) << "is cut";
	EXPECT_NE(Read("{\"logging\":{\"level\":\"\\u001b\xc3\xa9\"}}").notices[0].find(R"("\u001b\u00e9")"),
		  std::string::npos)
		<< "is nothing for a terminal";
	std::string many = "{\"odd\":0";
	for (int i = 0; i < 100; i++)
		many += ",\"odd" + std::to_string(i) + "\":0";
	EXPECT_EQ(Read(many + "}").notices.size(), 21u);
	EXPECT_EQ(Read(many + "}").notices.back(), "j: and 81 more");
}

// The first fault by position is reported, not the first by name.
TEST(CufileJson, FaultsLeaveAllAsItIs)
{
	const Read it(
		"{\"logging\":{\"level\":\"INFO\"},\"properties\":{\"force_compat_mode\":7,\"allow_compat_mode\":8},"
		"\"denylist\":{\"mounts\":[\"/a\"],\"drivers\":9}}");
	EXPECT_EQ(it.fault, "j:1:63: properties/force_compat_mode: invalid value 7; expected true, false, 1 or 0");
	EXPECT_TRUE(it.config.denylist.empty());
	EXPECT_EQ(it.config.strings[CUFILE_PARAM_LOGGING_LEVEL], "");
	EXPECT_TRUE(it.notices.empty());
}

TEST(CufileJson, KeysThatAreGivenTwice)
{
	EXPECT_EQ(Read("{\"execution\":{\"max_io_threads\":1,\"max_io_threads\":2}}").notices,
		  std::vector<std::string>{"j:1:34: execution/max_io_threads: given twice; the last one counts"});
	EXPECT_EQ(Read("{\"logging\":{},\"logging\":{}}").notices.size(), 1u);
	EXPECT_EQ(Read("{\"fs\":{\"x\":{\"y\":[{\"a\":1},{\"a\":1}]}},\"o\":[{\"a\":1},{\"a\":1}]}").notices,
		  std::vector<std::string>{"j:1:37: o: unknown key"});
	for (const char *text :
	     {R"({"denylist":{"mounts":["/a"]},"denylist":{}})", R"({"denylist":{"mounts":["/a"],"mounts":[]}})",
	      R"({"properties":{"allow_system_memory":false,"allow_system_memory":false}})",
	      R"({"fs":{"nfs":{"rdma_dev_addr_list":["10.0.0.1"],"rdma_dev_addr_list":[]}}})",
	      R"({"fs":{"nfs":{"rdma_dev_addr_list":["10.0.0.1"]},"nfs":{}}})", R"({"fs":{},"fs":{}})"})
		EXPECT_NE(Read(text).fault.find("given twice; expected once"), std::string::npos) << text;
	EXPECT_TRUE(Read(R"({"denylist":{"mounts":["/a"]},"blacklist":{"mounts":["/a"]}})").good);
	EXPECT_TRUE(Read(R"({"properties":{"allow_compat_mode":false,"use_compat_mode":false}})").good);
	EXPECT_EQ(Read(R"({"properties":{"allow_compat_mode":false,"use_compat_mode":true}})").fault,
		  "j:1:60: properties/use_compat_mode: contradicts properties/allow_compat_mode; expected the same "
		  "value");
}

// A name similar to a restriction is refused; keys that later releases may add are not.
TEST(CufileJson, NamesThatAreNearlyRight)
{
	for (const char *text :
	     {R"({"properties":{"allow_compat":false}})", R"({"properties":{"allowCompatMode":false}})",
	      R"({"properties":{"allow-compat-mode":false}})", R"({"properties":{"force_odirect":true}})",
	      R"({"allow_compat_mode":false})", R"({"blocklist":{}})", R"({"denylists":{}})", R"({"deny_list":[]})",
	      R"({"other":{"mounts":[]}})", R"({"properties":{"rdma_dynamic_routing_ordr":[]}})",
	      R"({"properties":{"max_device_pinned_mem_size":1}})"})
		EXPECT_NE(Read(text).fault.find(": unknown key; expected "), std::string::npos) << text;
	for (const char *text :
	     {R"({"properties":{"posix_io_mode":true,"gds_fallback_iomode":1,"rdma_multipath_mode":0}})",
	      R"({"miscellaneous":{"allow_something":false},"list":{}})"})
		EXPECT_EQ(Read(text).fault, "") << text;
}

// At any depth, in arrays, in sections without effect, and in ignored values.
TEST(CufileJson, RestrictionsInOtherPlaces)
{
	const std::pair<const char *, const char *> all[] = {
		{R"({"fs":{"allow_compat_mode":false}})", "j:1:8: fs/allow_compat_mode: "},
		{R"({"fs":{"generic":{"allow_compat_mode":false}}})", "j:1:19: fs/generic/allow_compat_mode: "},
		{R"({"fs":{"denylist":{"mounts":["/"]}}})", "j:1:8: fs/denylist: "},
		{R"({"block":{"force_compat_mode":true}})", "j:1:11: block/force_compat_mode: "},
		{R"({"sparse":{"denylist":{}}})", "j:1:12: sparse/denylist: "},
		{R"({"properties":{"io_retry_count":{"allow_compat_mode":false}}})",
		 "j:1:34: properties/io_retry_count/allow_compat_mode: "},
		{R"({"logging":{"level":{"allow_compat_mode":false}}})", "j:1:22: "},
		{R"({"x":[{"properties":{"allow_compat_mode":false}}]})", "j:1:22: x/0/properties/allow_compat_mode: "},
		{R"({"x":[7,[],[{}, {"deny":[]}]]})", "j:1:18: x/2/1/deny: "},
		{R"({"execution":[{"allow_compat_mode":false}]})", "j:1:16: execution/0/allow_compat_mode: "},
		{R"({"logging":{"allow_compat_mode":false},"logging":{}})", "j:1:13: logging/allow_compat_mode: "},
		{R"({"x":{"allow_compat_mode":false},"x":1})", "j:1:7: x/allow_compat_mode: "},
		{R"({"properties.allow_compat_mode":false})", "j:1:2: properties.allow_compat_mode: "},
		{R"({"properties/allow_compat_mode":false})", "j:1:2: properties/allow_compat_mode: "},
		{R"({"denylist.mounts":["/"]})", "j:1:2: denylist.mounts: "},
		{R"({"denylist/mounts":["/"]})", "j:1:2: denylist/mounts: "},
		{R"({"fs":{"mount_table":{"/a":{"rdma_dev_addrs":[]}}}})", "j:1:29: "},
		{R"({"fs":{"nfs":{"mount_table":{"allow_compat_mode":false}}}})", "j:1:30: "},
	};
	for (const auto &[text, words] : all) {
		const std::string fault = Read(text).fault;
		EXPECT_TRUE(fault.starts_with(words)) << text << ": " << fault;
		EXPECT_NE(fault.find(": unknown key; expected "), std::string::npos) << text << ": " << fault;
	}
	EXPECT_EQ(Read(R"({"properties/io_batchsize":7})").notices,
		  std::vector<std::string>{"j:1:2: properties/io_batchsize: unknown key"});
	const Read paths(R"({"fs":{"lustre":{"mount_table":{"/mnt/denied":{"rdma_dev_addr_list":["10.0.0.1"]}}}}})");
	EXPECT_EQ(paths.fault, "") << "the path of a mount is not a name";
	EXPECT_EQ(paths.config.idle, std::vector<std::string>{"fs/lustre/mount_table//mnt/denied/rdma_dev_addr_list"});
}

TEST(CufileJson, NamesThatSayWhatTheyRestrict)
{
	const std::pair<const char *, const char *> all[] = {
		{"allow_compatibility_mode", "properties/allow_compat_mode"},
		{"allow_compatability_mode", "properties/allow_compat_mode"},
		{"compat_mode", "properties/allow_compat_mode"},
		{"compat_mode_allowed", "properties/allow_compat_mode"},
		{"disable_compat_mode", "properties/allow_compat_mode"},
		{"require_direct", "the variable PEERDMA_REQUIRE_DIRECT, or properties/allow_compat_mode false"},
		{"use_odirect", "properties/force_odirect_mode"},
		{"allow_sysmem", "properties/allow_system_memory"},
		{"no_system_memory", "properties/allow_system_memory"},
		{"max_pinned_mem_size_kb", "properties/max_device_pinned_mem_size_kb"},
		{"deny", "denylist"},
		{"denied", "denylist"},
		{"blacklisted_mounts", "denylist"},
		{"exclude", "denylist"},
		{"rdma_dev_addr_whitelist", "properties/rdma_dev_addr_list"},
		{"rdma_dev_addrs", "properties/rdma_dev_addr_list"},
		{"rdma_dev_addr_lists", "properties/rdma_dev_addr_list"},
		{"RDMA_dev_addr_list", "properties/rdma_dev_addr_list"},
		{"rdma_dynamic_route", "properties/rdma_dynamic_routing"},
		{"rdma_routing", "properties/rdma_dynamic_routing"},
	};
	for (const auto &[name, expected] : all) {
		const std::string key = std::string("{\"") + name + "\":[]}";
		EXPECT_EQ(Read(key).fault, std::string("j:1:2: ") + name + ": unknown key; expected " + expected);
		for (const char *section : {"properties", "fs", "block", "profile"})
			EXPECT_EQ(Read(std::string("{\"") + section + "\":" + key + "}").fault,
				  "j:1:" + std::to_string(std::strlen(section) + 6) + ": " + section + '/' + name +
					  ": unknown key; expected " + expected);
	}
	EXPECT_EQ(Read(R"({"properties":{"rdma_whatever":1}})").notices,
		  std::vector<std::string>{"j:1:16: properties/rdma_whatever: unknown key"});
}

TEST(CufileJson, SectionsThatAreNoObjects)
{
	const std::pair<const char *, const char *> faults[] = {
		{R"({"fs":"x"})", "j:1:7: fs: invalid value \"x\"; expected an object"},
		{R"({"fs":null})", "j:1:7: fs: invalid value null; expected an object"},
		{R"({"fs":3})", "j:1:7: fs: invalid value 3; expected an object"},
		{R"({"fs":{"nfs":[]}})", "j:1:14: fs/nfs: invalid value []; expected an object"},
		{R"({"fs":{"weka":[{"rdma_dev_addr_list":"x"}]}})",
		 "j:1:15: fs/weka: invalid value [{\"rdma_dev_addr_list\":\"x\"}]; expected an object"},
		{R"({"fs":{"nfs":{"mount_table":[]}}})",
		 "j:1:29: fs/nfs/mount_table: invalid value []; expected an object"},
		{R"({"fs":{"nfs":{"x":[{"rdma_dev_addr_list":"x"}]}}})",
		 "j:1:42: fs/nfs/x/0/rdma_dev_addr_list: invalid value \"x\"; expected a list of addresses"},
		{R"({"properties":3})", "j:1:15: properties: invalid value 3; expected an object"},
	};
	for (const auto &[text, words] : faults)
		EXPECT_EQ(Read(text).fault, words);
	const std::pair<const char *, const char *> notices[] = {
		{R"({"profile":3})", "j:1:12: profile: invalid value 3; expected an object"},
		{R"({"execution":[]})", "j:1:14: execution: invalid value []; expected an object"},
		{R"({"block":null})", "j:1:10: block: invalid value null; expected an object"},
		{R"({"properties":{"gpu_bounce_buffer_slab_config":1}})",
		 "j:1:48: properties/gpu_bounce_buffer_slab_config: invalid value 1; expected an object"},
	};
	for (const auto &[text, words] : notices) {
		const Read it(text);
		EXPECT_EQ(it.fault, "");
		EXPECT_EQ(it.notices, std::vector<std::string>{words});
	}
}

// The parser treats a NUL as the end of the text.
TEST(CufileJson, WhatFollowsTheObject)
{
	const std::string nul(1, '\0'), policy = R"({"properties":{"allow_compat_mode":false}})";
	EXPECT_EQ(Read("{}\n" + nul + policy).fault, "j:2:1: NUL byte; expected text in UTF-8");
	EXPECT_EQ(Read("{} // so" + nul + "\n" + policy).fault, "j:1:9: NUL byte; expected text in UTF-8");
	EXPECT_EQ(Read("{}" + nul).fault, "j:1:3: NUL byte; expected text in UTF-8");
	for (const std::string &rest : {policy, std::string("x"), std::string("/* so"), std::string(1, '\x1a')})
		EXPECT_TRUE(Read("{}\n" + rest).fault.starts_with("j:2:")) << rest << ": " << Read("{}\n" + rest).fault;
}

// An entry that no file can match.
TEST(CufileJson, DenylistEntriesThatCannotBe)
{
	for (const char *key : {"filesystems", "drivers", "devices"})
		for (const char *entry :
		     {"ext4,xfs", "ext4 ", " ext4", "ext4\\n", "ext4 xfs", "nvme*", "nvme?n1", "nvme/"})
			EXPECT_TRUE(std::regex_match(
				Read(std::string(R"({"denylist":{")") + key + R"(":["ok",")" + entry + "\"]}}").fault,
				std::regex(
					"j:1:[0-9]+: denylist/[a-z]+: invalid value \".*\"; expected one name without "
					"blanks, commas, ;, [*] or [?], and no / at its end")))
				<< key << ' ' << entry;
	for (const char *entry :
	     {"/mnt/*", "/mnt/?", "/ ", "/a\\t", "//", "/a//", "/a,/b", "/a, /b", " /a", "/.", "/a/.."})
		EXPECT_TRUE(std::regex_match(
			Read(std::string(R"({"denylist":{"mounts":["/ok",")") + entry + "\"]}}").fault,
			std::regex("j:1:[0-9]+: denylist/mounts: invalid value \".*\"; expected one absolute path .*")))
			<< entry;
	EXPECT_TRUE(Read(R"({"denylist":{"mounts":["/","/a b","/a,b/","/.a"],"devices":["/dev/sda","0000:01:00.0"],)"
			 R"("filesystems":["fuse.sshfs"],"drivers":["nvme_rdma","dm-linear"]}})")
			    .good);
}

TEST(CufileJson, WhatIsNoObject)
{
	const std::string deep = std::string(100000, '[');
	for (const std::string &text :
	     {std::string(""), std::string("{"), std::string("[]"), std::string("7"), std::string("{} {}"),
	      std::string("{\"a\":}"), std::string("\xff\xfe"), deep, std::string("{\"a\":") + deep,
	      std::string("{\"logging\": {\"level\": \"\xc3\"}}")}) {
		const Read it(text);
		EXPECT_FALSE(it.good) << text.substr(0, 20);
		EXPECT_TRUE(it.config.strings[CUFILE_PARAM_LOGGING_LEVEL].empty());
	}
	std::string many = "{\"" + std::string(100000, 'a') + "\":{\"b\":0";
	for (int i = 0; i < 10000; i++)
		many += ",\"" + std::to_string(i) + "\":0";
	EXPECT_NE(Read(many + "}}").fault.find("too many keys, or too long ones"), std::string::npos);
	EXPECT_FALSE(Read("{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}").good) << "whole, and too deep";
	EXPECT_TRUE(Read("{}").good);
	EXPECT_TRUE(Read("/* so */ { // and so\n }").good);
}

TEST(CufileConfig, Bools)
{
	for (const char *yes : {"true", "1", "TRUE", "True", "yes", "on", "ON"})
		EXPECT_EQ(read_bool(yes), true) << yes;
	for (const char *no : {"false", "0", "FALSE", "False", "no", "off", "Off"})
		EXPECT_EQ(read_bool(no), false) << no;
	for (const char *none : {"", "y", "2", " true", "true ", "tru"})
		EXPECT_EQ(read_bool(none), std::nullopt) << none;
}

TEST(CufileConfig, WhichFile)
{
	FakeSystem system;
	cufile::Findings notices;
	EXPECT_EQ(Settings().merge(system, notices).strings[CUFILE_PARAM_LOGGING_LEVEL], "ERROR");
	EXPECT_TRUE(notices.fault.empty() && notices.notices.empty()) << "a machine without the file is as good as any";
	system.texts["/etc/cufile.json"] = R"({"logging":{"level":"INFO"}})";
	EXPECT_EQ(Settings().merge(system, notices).strings[CUFILE_PARAM_LOGGING_LEVEL], "INFO");
	system.texts["/mine"] = R"({"logging":{"level":"WARN"}})";
	system.variables["CUFILE_ENV_PATH_JSON"] = "/mine";
	EXPECT_EQ(Settings().merge(system, notices).strings[CUFILE_PARAM_LOGGING_LEVEL], "WARN");
	EXPECT_TRUE(notices.fault.empty() && notices.notices.empty());
	// A missing file is reported, and the machine's own is used: none of its restrictions is lost.
	system.variables["CUFILE_ENV_PATH_JSON"] = "$PWD/none";
	const std::string own = std::exchange(system.texts["/etc/cufile.json"], "");
	system.texts.erase("/etc/cufile.json");
	EXPECT_EQ(Settings().merge(system, notices).strings[CUFILE_PARAM_LOGGING_LEVEL], "ERROR");
	EXPECT_EQ(notices.notices, std::vector<std::string>{"CUFILE_ENV_PATH_JSON: no such file: \"$PWD/none\"; using "
							    "built-in values, there is no /etc/cufile.json"});
	notices = {};
	system.texts["/etc/cufile.json"] = own;
	EXPECT_EQ(Settings().merge(system, notices).strings[CUFILE_PARAM_LOGGING_LEVEL], "INFO");
	EXPECT_EQ(notices.fault, "");
	EXPECT_EQ(notices.notices, std::vector<std::string>{"CUFILE_ENV_PATH_JSON: no such file: \"$PWD/none\"; using "
							    "/etc/cufile.json"});
	system.read_errors["/etc/cufile.json"] = -EACCES;
	Settings().merge(system, notices);
	EXPECT_EQ(notices.fault, "/etc/cufile.json: cannot be read: EACCES");
	system.read_errors.clear();
	notices = {};
	system.links["/link"] = "/nowhere";
	system.variables["CUFILE_ENV_PATH_JSON"] = "/link";
	Settings().merge(system, notices);
	EXPECT_EQ(notices.fault, "/link: cannot be read: ENOENT");
	notices = {};
	system.variables["CUFILE_ENV_PATH_JSON"] = "";
	EXPECT_EQ(Settings().merge(system, notices).strings[CUFILE_PARAM_LOGGING_LEVEL], "INFO");
}

// Only a missing default path is silent.
TEST(CufileConfig, AFileThatCannotBeRead)
{
	const auto fault = [](FakeSystem &system) {
		cufile::Findings found;
		Settings().merge(system, found);
		return found.fault;
	};
	for (const auto &[rc, words] : std::map<int, std::string>{{-EACCES, "/etc/cufile.json: cannot be read: EACCES"},
								  {-EIO, "/etc/cufile.json: cannot be read: EIO"},
								  {-ELOOP, "/etc/cufile.json: cannot be read: ELOOP"},
								  {-EMFILE, "/etc/cufile.json: cannot be read: EMFILE"},
								  {-EFBIG, "/etc/cufile.json: cannot be read: EFBIG"},
								  {-EINVAL, "/etc/cufile.json: not a regular file"}}) {
		FakeSystem system;
		system.texts["/etc/cufile.json"] = "{}";
		system.read_errors["/etc/cufile.json"] = rc;
		EXPECT_EQ(fault(system), words);
		cufile::Findings found;
		Settings().merge(system, found);
		EXPECT_EQ(found.code, rc == -EMFILE ? CU_FILE_GETNEWFD_FAILED : CU_FILE_DRIVER_INVALID_PROPS);
	}
	FakeSystem system;
	EXPECT_EQ(fault(system), "");
	system.links["/etc/cufile.json"] = "/usr/local/gone/cufile.json";
	EXPECT_EQ(fault(system), "/etc/cufile.json: cannot be read: ENOENT") << "a link that leads nowhere";
	system.texts["/etc/cufile.json"] = "{}" + std::string(1 << 20, ' ');
	EXPECT_EQ(fault(system), "/etc/cufile.json: longer than 1 MiB");
	system.texts["/etc/cufile.json"] = "{,}";
	EXPECT_TRUE(fault(system).starts_with("/etc/cufile.json:1:2: ")) << fault(system);
}

TEST(CufileConfig, EachVariable)
{
	const std::pair<const char *, CUFileBoolConfigParameter_t> bools[] = {
		{"CUFILE_FORCE_COMPAT_MODE", CUFILE_PARAM_FORCE_COMPAT_MODE},
		{"CUFILE_ALLOW_COMPAT_MODE", CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE},
		{"CUFILE_USE_PCIP2PDMA", CUFILE_PARAM_USE_PCIP2PDMA},
		{"CUFILE_SKIP_TOPOLOGY_DETECTION", CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION},
		{"CUFILE_NVTX", CUFILE_PARAM_PROFILE_NVTX}};
	for (const auto &[name, param] : bools) {
		for (const bool value : {false, true}) {
			FakeSystem system;
			cufile::Findings notices;
			system.variables[name] = value ? "true" : "false";
			EXPECT_EQ(Settings().merge(system, notices).flag(param), value) << name;
			system.variables[name] = "";
			EXPECT_EQ(Settings().merge(system, notices).flag(param), Config().flag(param)) << name;
			EXPECT_EQ(notices.fault, "") << "as one that is not set";
			system.variables[name] = "perhaps";
			EXPECT_EQ(Settings().merge(system, notices).flag(param), Config().flag(param)) << name;
			const bool restricts = std::string(name).ends_with("_COMPAT_MODE");
			ASSERT_TRUE(restricts || !notices.notices.empty()) << name;
			EXPECT_EQ(restricts ? notices.fault : notices.notices.back(),
				  std::string(name) + ": invalid value \"perhaps\"; expected true, false, 1 or 0");
			notices = {};
			Settings settings;
			settings.bools[param] = !value;
			system.variables[name] = value ? "1" : "0";
			EXPECT_EQ(settings.merge(system, notices).flag(param), !value)
				<< "the program says so: " << name;
		}
	}
	FakeSystem system;
	cufile::Findings notices;
	system.variables = {
		{"CUFILE_LOGGING_LEVEL", "debug"}, {"CUFILE_LOGFILE_PATH", "/l"}, {"CUFILE_LOGFILE_MAX_SIZE_MB", "3"}};
	const Config config = Settings().merge(system, notices);
	EXPECT_EQ(config.strings[CUFILE_PARAM_LOGGING_LEVEL], "DEBUG");
	EXPECT_EQ(config.strings[CUFILE_PARAM_ENV_LOGFILE_PATH], "/l");
	EXPECT_EQ(config.log_max_mb, 3u);
	for (const char *bad : {"0", "-1", "3x", "99999999999999999999999"}) {
		system.variables["CUFILE_LOGFILE_MAX_SIZE_MB"] = bad;
		notices = {};
		EXPECT_EQ(Settings().merge(system, notices).log_max_mb, 32u) << bad;
		EXPECT_EQ(notices.notices, std::vector{std::string("CUFILE_LOGFILE_MAX_SIZE_MB: invalid value \"") +
						       bad + "\"; expected a whole number from 1 to 17592186044415"});
	}
}

// An invalid log level is reported in the log, and the next valid source is used.
TEST(CufileConfig, ALoggingLevelThatIsNone)
{
	const auto level = [](const char *file, const char *variable, const char *parameter, size_t said) {
		FakeSystem system;
		cufile::Findings found;
		Settings settings;
		if (file)
			system.texts["/etc/cufile.json"] = std::string(R"({"logging": {"level": ")") + file + "\"}}";
		if (variable)
			system.variables["CUFILE_LOGGING_LEVEL"] = variable;
		if (parameter)
			settings.strings[CUFILE_PARAM_LOGGING_LEVEL] = parameter;
		const Config config = settings.merge(system, found);
		EXPECT_EQ(found.notices.size(), said);
		for (const std::string &notice : found.notices)
			EXPECT_TRUE(std::regex_match(notice, std::regex(".*(level|LEVEL): invalid value \"(LOUD|WARN "
									"|3|wa rn)\"; expected NOTICE, .*")))
				<< notice;
		return config.strings[CUFILE_PARAM_LOGGING_LEVEL];
	};
	for (const char *bad : {"LOUD", "wa rn", "WARN ", "3"}) {
		EXPECT_EQ(level(bad, nullptr, nullptr, 1), "ERROR");
		EXPECT_EQ(level("INFO", bad, nullptr, 1), "INFO") << "the one that can be";
		EXPECT_EQ(level("INFO", "DEBUG", bad, 1), "DEBUG");
		EXPECT_EQ(level(bad, bad, bad, 3), "ERROR");
	}
	EXPECT_EQ(level("INFO", "DEBUG", "WARN", 0), "WARN");
	EXPECT_EQ(level("info", "Debug", "warn", 0), "WARN") << "in any case";
	EXPECT_EQ(level("info", "Debug", nullptr, 0), "DEBUG");
	EXPECT_EQ(level("info", nullptr, "", 0), "INFO") << "the empty one is none";
	EXPECT_EQ(level("", "", "", 0), "ERROR") << "nothing is said";
}

TEST(CufileConfig, WhoInsistsOnDirect)
{
	for (const auto &[text, value] : std::map<std::string, bool>{
		     {"1", true}, {"true", true}, {"yes", true}, {"0", false}, {"false", false}, {"", false}}) {
		FakeSystem system;
		cufile::Findings notices;
		system.variables["PEERDMA_REQUIRE_DIRECT"] = text;
		EXPECT_EQ(Settings().merge(system, notices).require_direct, value) << text;
		EXPECT_EQ(notices.fault, "");
	}
	FakeSystem system;
	cufile::Findings found;
	EXPECT_FALSE(Settings().merge(system, found).require_direct);
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "yes please";
	Settings().merge(system, found);
	EXPECT_EQ(found.fault, "PEERDMA_REQUIRE_DIRECT: invalid value \"yes please\"; expected true, false, 1 or 0");
}

TEST(CufileConfig, WhatTheStatisticsAreToLookLike)
{
	FakeSystem system;
	cufile::Findings notices;
	EXPECT_FALSE(Settings().merge(system, notices).longer_stats);
	system.variables["PEERDMA_CUFILE_STATS"] = "13.4";
	EXPECT_TRUE(Settings().merge(system, notices).longer_stats);
	system.variables["PEERDMA_CUFILE_STATS"] = "13.0";
	EXPECT_FALSE(Settings().merge(system, notices).longer_stats);
	EXPECT_TRUE(notices.notices.empty());
	system.variables["PEERDMA_CUFILE_STATS"] = "14";
	EXPECT_FALSE(Settings().merge(system, notices).longer_stats) << "the shorter ones fit into any";
	EXPECT_EQ(notices.notices,
		  std::vector<std::string>{"PEERDMA_CUFILE_STATS: invalid value \"14\"; expected 13.0 or 13.4"});
}

// Settings that this library does not implement.
TEST(CufileConfig, WhatHasNoEffectIsSaid)
{
	const auto said = [](const std::string &text) {
		FakeSystem system;
		system.texts["/etc/cufile.json"] = text;
		cufile::Findings found;
		Settings().merge(system, found);
		EXPECT_LE(found.notices.size(), 1u) << "all in one";
		return found.notices.empty() ? "" : found.notices.front();
	};
	// The original's file sets them to their defaults.
	EXPECT_EQ(said(R"({ "profile": { "nvtx": false }, "execution": { "min_io_threshold_size_kb": 8192 },
		"properties": { "max_direct_io_size_kb": 16384, "max_device_cache_size_kb": 131072,
			"per_buffer_cache_size_kb": 1024, "use_poll_mode": false, "poll_mode_max_size_kb": 4,
			"io_priority": "default", "vanilla_posix_io_mode": false, "gds_fallback_io": false,
			"compat_odirect_unaligned_read_split": false },
		"miscellaneous": { "enable_static_routing": false, "stream_memops_bypass": true } })"),
		  "");
	EXPECT_EQ(said(R"({ "profile": { "nvtx": true }, "execution": { "min_io_threshold_size_kb": 1 },
		"properties": { "max_direct_io_size_kb": 64, "max_device_cache_size_kb": 1, "per_buffer_cache_size_kb": 1,
			"max_batch_io_timeout_msecs": 1, "use_poll_mode": true, "poll_mode_max_size_kb": 5,
			"gpu_bounce_buffer_slab_config": { "slab_size_kb": [5], "slab_count": [7] } },
		"miscellaneous": { "api_check_aggressive": true, "skip_topology_detection": true } })"),
		  "without effect here: min_io_threshold_size_kb, max_direct_io_size_kb, max_device_cache_size_kb, "
		  "per_buffer_cache_size_kb, max_batch_io_timeout_msecs, use_poll_mode, nvtx, api_check_aggressive, "
		  "skip_topology_detection, gpu_bounce_buffer_slab_config");
	EXPECT_EQ(
		said(R"({"properties":{"rdma_dev_addr_list":["10.0.0.1"]},"fs":{"nfs":{"rdma_dev_addr_list":["10.0.0.2"]}}})"),
		"without effect here: fs/nfs/rdma_dev_addr_list, properties/rdma_dev_addr_list");
	EXPECT_EQ(said(R"({"properties":{"gds_fallback_io":"False","vanilla_posix_io_mode":0}})"), "");
	for (const char *key : {"vanilla_posix_io_mode", "gds_fallback_io", "compat_odirect_unaligned_read_split"})
		EXPECT_EQ(said(std::string("{\"properties\":{\"") + key + "\":true}}"),
			  std::string("without effect here: properties/") + key);
	EXPECT_EQ(said(R"({"properties":{"io_priority":"high"}})"), "without effect here: properties/io_priority");
	EXPECT_EQ(said(R"({"miscellaneous":{"enable_static_routing":true}})"),
		  "without effect here: miscellaneous/enable_static_routing");
	// The same for parameters that the program sets.
	FakeSystem system;
	cufile::Findings found;
	Settings settings;
	settings.bools[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = true;
	settings.merge(system, found);
	EXPECT_EQ(found.notices, (std::vector<std::string>{"without effect here: use_poll_mode"}));
}

TEST(CufileJson, Denylists)
{
	const Read it(R"({ "denylist": { "drivers": ["a"], "devices": ["/dev/b", "c"], "mounts": ["/d"],
		"filesystems": ["e"] }, "blacklist": { "mounts": ["/f"] } })");
	EXPECT_TRUE(it.notices.empty());
	const cufile::Denylist &list = it.config.denylist;
	using Names = std::vector<std::string>;
	EXPECT_EQ(list.drivers, Names{"a"});
	EXPECT_EQ(list.devices, (Names{"/dev/b", "c"}));
	EXPECT_EQ(list.mounts, (Names{"/f", "/d"}));
	EXPECT_EQ(list.filesystems, Names{"e"});
	for (const char *text : {R"({"denylist":{"mounts":"/d"}})", R"({"denylist":{"mounts":["/d", 5]}})",
				 R"({"blacklist":{"drivers":{}}})", R"({"denylist":{"countries":[]}})",
				 R"({"denylist":{"mounts":["d"]}})", R"({"denylist":{"mounts":[""]}})",
				 R"({"denylist":{"mounts":["/d/../e"]}})", R"({"denylist":{"mounts":["//d"]}})",
				 R"({"denylist":{"drivers":[""]}})", R"({"denylist":{"devices":["sda\u0000"]}})"}) {
		const Read other(text);
		EXPECT_TRUE(other.fault.starts_with("j:1:")) << text << other.fault;
		EXPECT_TRUE(other.config.denylist.empty()) << text;
	}
	EXPECT_TRUE(Read(R"({"denylist":{"mounts":["/","/d/","/d e/.f/..g"]}})").good);
}

// The log

TEST(CufileLog, ALineIsAsItIsKnown)
{
	FakeSystem system;
	Log log(system);
	log.open(Log::Level::trace, "", "", 1 << 20);
	log.say(Log::Level::error, "one\ntwo\x1b\x7f");
	const std::regex known(
		R"( \d\d-\d\d-\d{4} \d\d:\d\d:\d\d:\d\d\d \[pid=42 tid=\d+\] ERROR  [a-z_-]+:\d+ one two  \n)");
	EXPECT_TRUE(std::regex_match(system.to_stderr, known)) << system.to_stderr;
	for (const auto &[level, name] : {std::pair{Log::Level::notice, " NOTICE "},
					  {Log::Level::warn, " WARN   "},
					  {Log::Level::info, " INFO   "},
					  {Log::Level::debug, " DEBUG  "},
					  {Log::Level::trace, " TRACE  "}}) {
		system.to_stderr.clear();
		log.say(level, "x");
		EXPECT_NE(system.to_stderr.find(name), std::string::npos) << system.to_stderr;
	}
}

TEST(CufileLog, OnlyWhatIsWanted)
{
	constexpr Log::Level levels[] = {Log::Level::notice, Log::Level::error, Log::Level::warn,
					 Log::Level::info,   Log::Level::debug, Log::Level::trace};
	for (const Log::Level wanted : levels) {
		for (const Log::Level said : levels) {
			FakeSystem system;
			Log log(system);
			log.open(wanted, "", "", 1 << 20);
			log.say(said, "x");
			EXPECT_EQ(system.to_stderr.empty(), said > wanted);
		}
	}
	EXPECT_EQ(Log::level_of("TRACE"), Log::Level::trace);
	EXPECT_EQ(Log::level_of("notice"), Log::Level::notice);
	EXPECT_EQ(Log::level_of("nonsense"), Log::Level::error);
}

TEST(CufileLog, Where)
{
	FakeSystem system;
	{
		Log log(system);
		log.open(Log::Level::error, "", "/dir", 1 << 20);
		log.say(Log::Level::error, "x");
		EXPECT_EQ(system.log_paths, std::vector<std::string>{"/dir/cufile.log"});
		log.open(Log::Level::error, "/file", "/dir", 1 << 20);
		EXPECT_EQ(system.log_paths.back(), "/file");
		log.say(Log::Level::error, "y");
		EXPECT_TRUE(system.to_stderr.empty());
		system.no_log = true;
		log.open(Log::Level::error, "/other", "", 1 << 20);
		EXPECT_NE(system.to_stderr.find("cannot be opened"), std::string::npos);
		system.to_stderr.clear();
		log.say(Log::Level::error, "z");
		EXPECT_NE(system.to_stderr.find(" z\n"), std::string::npos) << "not lost";
	}
	EXPECT_TRUE(system.fds.empty()) << "a descriptor leaked";
}

// Descriptor 2 may be one of the program's data files.
TEST(CufileLog, NotOverAFileOfTheProgramsOwn)
{
	const struct {
		uint32_t mode;
		int flags;
		bool written;
	} all[] = {{S_IFREG, O_WRONLY, true},
		   {S_IFREG, O_WRONLY | O_APPEND, true},
		   {S_IFREG, O_RDWR | O_APPEND, true},
		   {S_IFREG, O_RDWR, false},
		   {S_IFREG, O_RDWR | O_DIRECT, false},
		   {S_IFBLK, O_RDWR, false},
		   {S_IFCHR, O_RDWR, true},
		   {S_IFIFO, O_RDWR, true},
		   {S_IFSOCK, O_RDWR, true}};
	for (const auto &one : all) {
		FakeSystem system;
		Log log(system);
		system.fds[2] = {std::make_shared<FakeSystem::File>(FakeSystem::File{"data", one.mode}), one.flags};
		log.open(Log::Level::error, "", "", 1 << 20);
		log.say(Log::Level::error, "x");
		EXPECT_EQ(!system.to_stderr.empty(), one.written) << one.mode << ' ' << one.flags;
		system.to_stderr.clear();
		system.no_log = true;
		log.open(Log::Level::error, "/other", "", 1 << 20);
		EXPECT_EQ(!system.to_stderr.empty(), one.written) << "in place of a log that cannot be opened";
		system.no_log = false;
		log.open(Log::Level::error, "/file", "", 1 << 20);
		log.say(Log::Level::error, "x");
		EXPECT_FALSE(system.to_log.empty()) << "a log of its own is written all the same";
		// A program that closes all descriptors, so that the log cannot be reopened.
		system.to_stderr.clear();
		std::erase_if(system.fds, [](const auto &entry) { return entry.first != 2; });
		system.no_log = true;
		log.say(Log::Level::error, "x");
		EXPECT_EQ(!system.to_stderr.empty(), one.written) << "in place of a log that was closed";
	}
}

TEST(CufileLog, AFileThatIsFullIsPutAside)
{
	FakeSystem system;
	Log log(system);
	log.open(Log::Level::error, "/file", "", 1000);
	for (int i = 0; i < 25; i++)
		log.say(Log::Level::error, "0123456789");
	EXPECT_GE(system.renamed.size(), 2u);
	EXPECT_LE(system.renamed.size(), 4u);
	EXPECT_EQ(system.renamed[0], std::pair(std::string("/file"), std::string("/file.1")));
}

// For a device, a pipe or a symbolic link, renaming would move something else.
TEST(CufileLog, WhatIsNoFileOfItsOwnIsNotPutAside)
{
	for (const uint32_t mode : {S_IFREG, S_IFCHR, S_IFIFO}) {
		FakeSystem system;
		system.log_mode = mode;
		if (mode == S_IFREG)
			system.links["/file"] = "/dev/null";
		Log log(system);
		log.open(Log::Level::error, "/file", "", 100);
		for (int i = 0; i < 25; i++)
			log.say(Log::Level::error, "0123456789");
		EXPECT_TRUE(system.renamed.empty()) << mode;
		EXPECT_EQ(std::ranges::count(system.to_log, '\n'), 25);
	}
}

TEST(CufileLog, AFileThatCannotBePutAsideGrowsOn)
{
	FakeSystem system;
	Log log(system);
	system.rename_error = -EACCES;
	log.open(Log::Level::error, "/file", "", 100);
	for (int i = 0; i < 25; i++)
		log.say(Log::Level::error, "0123456789");
	EXPECT_EQ(std::ranges::count(system.to_log, '\n'), 26);
	EXPECT_NE(system.to_log.find("/file: cannot be renamed to /file.1: EACCES\n"), std::string::npos)
		<< system.to_log;
}

TEST(CufileLog, NotOntoADisk)
{
	FakeSystem system;
	system.log_mode = S_IFBLK;
	{
		Log log(system);
		log.open(Log::Level::error, "/dev/sda", "", 1 << 20);
		log.say(Log::Level::error, "x");
	}
	EXPECT_EQ(system.to_log, "");
	EXPECT_NE(system.to_stderr.find("log file /dev/sda: cannot be opened: EINVAL; using standard error"),
		  std::string::npos);
	EXPECT_TRUE(system.fds.empty()) << "a descriptor leaked";
}

// A slow reader blocks no thread; the log reports the number of lost lines.
TEST(CufileLog, LinesThatFindNoRoom)
{
	FakeSystem system;
	Log log(system);
	log.open(Log::Level::error, "", "", 1 << 20);
	system.append_error = -EAGAIN;
	for (int i = 0; i < 7; i++)
		log.say(Log::Level::error, "lost");
	system.append_error = 0;
	log.say(Log::Level::error, "first");
	log.say(Log::Level::error, "second");
	EXPECT_TRUE(
		std::regex_match(system.to_stderr, std::regex(" .* NOTICE .* 7 lines of this log were lost: no room\n"
							      " .* first\n .* second\n")))
		<< system.to_stderr;
}

} // namespace
