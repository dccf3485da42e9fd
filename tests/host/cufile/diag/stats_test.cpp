// SPDX-License-Identifier: MIT
// Statistics at each level, with a clock that advances by 1 us on each query.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "cufile/diag/stats.hpp"
#include "fake_dependencies.hpp"

using cufile::Stats;

namespace
{

class CufileStats : public ::testing::Test
{
protected:
	CufileStats() : all_(new CUfileStatsLevel3_t) { start(3); }
	void start(int level)
	{
		stats.set_level(level);
		stats.start();
	}
	const CUfileStatsLevel3_t &now()
	{
		stats.get(*all_);
		return *all_;
	}
	void io(uint64_t bytes, bool write = false, bool ok = true, int device = 0, bool direct = false,
		bool aligned = true)
	{
		stats.io({write, direct, aligned, device, bytes, 5000, ok}, &cuda);
	}

	FakeSystem system;
	FakeCuda cuda;
	Stats stats{system};

private:
	const std::unique_ptr<CUfileStatsLevel3_t> all_;
};

struct Bytes {
	uint64_t bytes;
	unsigned element;
};
class CufileHistogram : public CufileStats, public ::testing::WithParamInterface<Bytes>
{
};
INSTANTIATE_TEST_SUITE_P(Edges, CufileHistogram,
			 ::testing::Values(Bytes{0, 0}, Bytes{1, 0}, Bytes{1023, 0}, Bytes{1024, 1}, Bytes{2047, 1},
					   Bytes{2048, 2}, Bytes{4095, 2}, Bytes{4096, 3}, Bytes{8191, 3},
					   Bytes{8192, 4}, Bytes{65535, 6}, Bytes{65536, 7}, Bytes{(1 << 20) - 1, 10},
					   Bytes{1 << 20, 11}, Bytes{16 << 20, 15}, Bytes{uint64_t{1} << 39, 30},
					   Bytes{(uint64_t{1} << 40) - 1, 30}, Bytes{uint64_t{1} << 40, 31},
					   Bytes{uint64_t{1} << 41, 31}, Bytes{UINT64_MAX, 31}),
			 [](const auto &one) { return "Bytes" + std::to_string(one.param.bytes); });

TEST_P(CufileHistogram, HasItsElement)
{
	io(GetParam().bytes);
	io(GetParam().bytes, true);
	io(GetParam().bytes, true, false); // failed I/Os are not in the histogram
	for (unsigned i = 0; i < 32; i++) {
		EXPECT_EQ(now().detailed.read_size_kb_hist[i], i == GetParam().element) << i;
		EXPECT_EQ(now().detailed.write_size_kb_hist[i], i == GetParam().element) << i;
	}
}

class CufileStatsLevel : public CufileStats, public ::testing::WithParamInterface<int>
{
};
INSTANTIATE_TEST_SUITE_P(All, CufileStatsLevel, ::testing::Range(0, 4));

TEST_P(CufileStatsLevel, CountsAsMuch)
{
	const int level = GetParam();
	stats.stop();
	start(level);
	EXPECT_EQ(stats.level(), level);
	EXPECT_EQ(stats.on(), level > 0);
	io(5000);
	stats.count(&CUfileStatsLevel1_t::hdl_register_ops, true);
	stats.buffer(0, true, true, 100, &cuda);
	EXPECT_EQ(now().detailed.basic.read_ops.ok, level > 0);
	EXPECT_EQ(now().detailed.basic.hdl_register_ops.ok, level > 0);
	EXPECT_EQ(now().detailed.basic.buf_register_ops.ok, level > 0);
	EXPECT_EQ(now().detailed.read_size_kb_hist[3], level > 1);
	EXPECT_EQ(now().num_gpus, level > 2);
}

TEST_F(CufileStats, LevelsThatAreNone)
{
	for (const int level : {-1, 4, 100, INT32_MIN, INT32_MAX})
		EXPECT_FALSE(stats.set_level(level)) << level;
	EXPECT_EQ(stats.level(), 3);
	EXPECT_TRUE(stats.on());
}

// Each counter for success and failure, with all others unchanged.
using Counter = CUfileOpCounter_t CUfileStatsLevel1_t::*;
class CufileCounter : public CufileStats, public ::testing::WithParamInterface<Counter>
{
};
constexpr Counter counters[] = {
	&CUfileStatsLevel1_t::read_ops,          &CUfileStatsLevel1_t::write_ops,
	&CUfileStatsLevel1_t::hdl_register_ops,  &CUfileStatsLevel1_t::hdl_deregister_ops,
	&CUfileStatsLevel1_t::buf_register_ops,  &CUfileStatsLevel1_t::buf_deregister_ops,
	&CUfileStatsLevel1_t::batch_setup_ops,   &CUfileStatsLevel1_t::batch_cancel_ops,
	&CUfileStatsLevel1_t::batch_destroy_ops,
};
INSTANTIATE_TEST_SUITE_P(Each, CufileCounter, ::testing::ValuesIn(counters),
			 [](const auto &one) { return "Row" + std::to_string(one.index); });

TEST_P(CufileCounter, IsItsOwn)
{
	stats.count(GetParam(), true);
	stats.count(GetParam(), true, 5);
	stats.count(GetParam(), false);
	for (const Counter other : counters) {
		EXPECT_EQ((now().detailed.basic.*other).ok, other == GetParam() ? 6u : 0u);
		EXPECT_EQ((now().detailed.basic.*other).err, other == GetParam() ? 1u : 0u);
	}
	stats.stop();
	stats.count(GetParam(), true);
	EXPECT_EQ((now().detailed.basic.*GetParam()).ok, 6u) << "after the end";
	stats.reset();
	EXPECT_EQ((now().detailed.basic.*GetParam()).ok, 0u);
}

// Which of a GPU's counters count an I/O.
struct Kind {
	const char *name;
	bool write, ok, direct, aligned;
};
class CufileGpuStats : public CufileStats, public ::testing::WithParamInterface<Kind>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileGpuStats,
			 ::testing::Values(Kind{"a_read", false, true, false, true},
					   Kind{"a_direct_read", false, true, true, true},
					   Kind{"an_unaligned_read", false, true, false, false},
					   Kind{"a_failed_read", false, false, false, true},
					   Kind{"a_write", true, true, false, true},
					   Kind{"a_direct_write", true, true, true, true},
					   Kind{"an_unaligned_write", true, true, true, false},
					   Kind{"a_failed_write", true, false, true, true}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileGpuStats, IsCountedThere)
{
	const Kind &kind = GetParam();
	io(3000, kind.write, kind.ok, 5, kind.direct, kind.aligned);
	ASSERT_EQ(now().num_gpus, 1u);
	const CUfilePerGpuStats_t &gpu = now().per_gpu_stats[0];
	const bool read = !kind.write, write = kind.write;
	EXPECT_EQ(gpu.n_total_reads, read);
	EXPECT_EQ(gpu.n_total_writes, write);
	EXPECT_EQ(gpu.n_p2p_reads, read && kind.direct);
	EXPECT_EQ(gpu.n_p2p_writes, write && kind.direct);
	EXPECT_EQ(gpu.n_posix_reads, read && !kind.direct);
	EXPECT_EQ(gpu.n_posix_writes, write && !kind.direct);
	EXPECT_EQ(gpu.n_unaligned_reads, read && !kind.aligned);
	EXPECT_EQ(gpu.n_unaligned_writes, write && !kind.aligned);
	EXPECT_EQ(gpu.n_reads_err, read && !kind.ok);
	EXPECT_EQ(gpu.n_writes_err, write && !kind.ok);
	EXPECT_EQ(gpu.read_bytes, read && kind.ok ? 3000u : 0u);
	EXPECT_EQ(gpu.writes_bytes, write && kind.ok ? 3000u : 0u);
	EXPECT_EQ(gpu.read_duration_us, read ? 5u : 0u);
	EXPECT_EQ(gpu.write_duration_us, write ? 5u : 0u);
	EXPECT_EQ(now().detailed.basic.read_lat_sum_us, read && kind.ok ? 5u : 0u);
	EXPECT_EQ(now().detailed.basic.write_bytes, write && kind.ok ? 3000u : 0u);
	EXPECT_EQ(gpu.n_nvfs_reads + gpu.n_nvfs_writes + gpu.n_dr_reads + gpu.n_dr_writes, 0u)
		<< "there is no such way";
}

TEST_F(CufileStats, MoreDevicesThanThereIsRoomFor)
{
	for (int device = 0; device < 20; device++)
		io(100, false, true, device);
	io(100, false, true, -1); // host memory belongs to no device
	io(100, false, true, 3);
	EXPECT_EQ(now().num_gpus, 16u);
	EXPECT_EQ(now().per_gpu_stats[3].n_total_reads, 2u);
	EXPECT_EQ(now().per_gpu_stats[15].n_total_reads, 1u);
	EXPECT_EQ(now().detailed.basic.read_ops.ok, 22u) << "in the sum they are";
}

TEST_F(CufileStats, RatesAreOverTheTimeThatWasCounted)
{
	stats.stop();
	stats.reset();
	const uint64_t second = 1'000'000'000;
	stats.start();
	io(3'000'000);
	io(1'000'000);
	io(500, true);
	system.now += second;
	stats.stop();
	system.now += 100 * second; // statistics are stopped
	stats.start();
	system.now += second;
	stats.stop();
	const CUfileStatsLevel1_t &basic = now().detailed.basic;
	EXPECT_NEAR(static_cast<double>(basic.read_bw_bytes_per_sec), 2e6, 100);
	EXPECT_NEAR(static_cast<double>(basic.write_bw_bytes_per_sec), 250, 1);
	EXPECT_EQ(basic.read_lat_avg_us, 5u);
	EXPECT_EQ(basic.read_lat_sum_us, 10u);
	EXPECT_NEAR(static_cast<double>(now().per_gpu_stats[0].read_bw_bytes_per_sec), 2e6, 100);
	stats.reset();
	EXPECT_EQ(now().detailed.basic.read_bw_bytes_per_sec, 0u) << "of no time there is no rate";
}

TEST_F(CufileStats, RegisteredBytes)
{
	stats.buffer(0, true, true, 1000, &cuda);
	stats.buffer(0, true, true, 500, &cuda);
	stats.buffer(0, true, false, 9999, &cuda);
	stats.buffer(0, false, true, 1000, &cuda);
	const CUfilePerGpuStats_t &gpu = now().per_gpu_stats[0];
	EXPECT_EQ(gpu.reg_bytes, 500u);
	EXPECT_EQ(gpu.n_mmap, 3u);
	EXPECT_EQ(gpu.n_mmap_ok, 2u);
	EXPECT_EQ(gpu.n_mmap_err, 1u);
	EXPECT_EQ(gpu.n_mmap_free, 1u);
	stats.buffer(0, false, true, 1000, &cuda);
	EXPECT_EQ(now().per_gpu_stats[0].reg_bytes, 0u) << "registered before anybody counted";
}

TEST_F(CufileStats, OfBatches)
{
	stats.batch_submitted(10, 4, 1000, 200, 7000, true);
	stats.batch_submitted(2, 0, 30, 0, 1000, true);
	stats.batch_submitted(5, 5, 5, 5, 5, false);
	for (int i = 0; i < 12; i++)
		stats.batch_request_completed(i != 5, i < 4, 3000);
	const CUfileStatsLevel1_t &basic = now().detailed.basic;
	EXPECT_EQ(basic.batch_submit_ops.ok, 2u);
	EXPECT_EQ(basic.batch_submit_ops.err, 1u);
	EXPECT_EQ(basic.batch_total_submit_ops.ok, 12u);
	EXPECT_EQ(basic.batch_enqueued_ops.ok, 12u);
	EXPECT_EQ(basic.batch_p2p_submit_ops.ok, 4u);
	EXPECT_EQ(basic.batch_posix_enqueued_ops.ok, 8u);
	EXPECT_EQ(basic.batch_read_bytes, 1030u);
	EXPECT_EQ(basic.batch_write_bytes, 200u);
	EXPECT_EQ(basic.last_batch_read_bytes, 30u);
	EXPECT_EQ(basic.last_batch_write_bytes, 0u);
	EXPECT_EQ(basic.batch_submit_lat_sum_us, 8u);
	EXPECT_EQ(basic.batch_submit_lat_avg_us, 4u);
	EXPECT_EQ(basic.batch_complete_ops.ok, 11u);
	EXPECT_EQ(basic.batch_complete_ops.err, 1u);
	EXPECT_EQ(basic.batch_posix_processed_ops.ok, 7u);
	EXPECT_EQ(basic.batch_posix_processed_ops.err, 1u);
	EXPECT_EQ(basic.batch_completion_lat_avg_us, 36u / 11u);
}

// The structs of programs built for CUDA 13.0 and for 13.4: nothing is written beyond them, and each field is at that
// version's offset.
struct BuiltFor {
	bool longer;
	int level;
	size_t size, reads, histogram, gpus; // struct size and offsets; 0: not there
};
class CufileStatsBuiltFor : public CufileStats, public ::testing::WithParamInterface<BuiltFor>
{
};
INSTANTIATE_TEST_SUITE_P(All, CufileStatsBuiltFor,
			 ::testing::Values(BuiltFor{false, 1, 512, 0, 0, 0}, BuiltFor{false, 2, 1024, 0, 512, 0},
					   BuiltFor{false, 3, 5000, 0, 512, 1024}, BuiltFor{true, 1, 624, 512, 0, 0},
					   BuiltFor{true, 2, 1136, 512, 624, 0},
					   BuiltFor{true, 3, 5112, 512, 624, 1136}),
			 [](const auto &one) {
				 return (one.param.longer ? "Cuda13_4Level" : "Cuda13_0Level") +
					std::to_string(one.param.level);
			 });

TEST_P(CufileStatsBuiltFor, IsWrittenAsThat)
{
	const BuiltFor &program = GetParam();
	io(4096);
	io(4096);
	stats.vector(false, true);
	stats.vector(false, true);
	stats.vector(false, false);
	stats.vector(true, true);
	stats.set_longer(program.longer);
	std::vector<unsigned char> memory(8192, 0x5a);
	stats.write(program.level, memory.data());
	EXPECT_EQ(std::count(memory.begin() + static_cast<ptrdiff_t>(program.size), memory.end(), 0x5a),
		  static_cast<ptrdiff_t>(memory.size() - program.size));
	const auto word = [&](size_t at) {
		uint64_t value;
		std::memcpy(&value, &memory[at], sizeof(value));
		return value;
	};
	EXPECT_EQ(word(0), 2u) << "read_ops";
	EXPECT_EQ(word(96), 8192u) << "read_bytes";
	if (program.reads) {
		EXPECT_EQ(word(program.reads), 2u) << "readv_ops";
		EXPECT_EQ(word(program.reads + 8), 1u);
		EXPECT_EQ(word(program.reads + 16), 1u) << "writev_ops";
		for (size_t i = 4; i < 14; i++)
			EXPECT_EQ(word(program.reads + 8 * i), 0u) << i;
	}
	if (program.histogram) {
		EXPECT_EQ(word(program.histogram + 8 * 3), 2u) << "reads of 4 KiB";
	}
	if (program.gpus) {
		EXPECT_EQ(static_cast<uint32_t>(word(program.gpus)), 1u) << "GPUs";
		EXPECT_EQ(word(program.gpus + 8 + CUFILE_GPU_UUID_LEN), 8192u) << "what the first has read";
	}
	stats.reset();
	stats.write(program.level, memory.data());
	EXPECT_EQ(word(program.reads), 0u);
}

// The caller passes the struct's size.
TEST_P(CufileStatsBuiltFor, IsAskedForBySize)
{
	const BuiltFor &program = GetParam();
	io(4096);
	stats.vector(false, true);
	stats.set_longer(program.longer);
	std::vector<unsigned char> known(8192, 0x5a), asked(8192, 0x5a);
	stats.write(program.level, known.data());
	stats.set_longer(!program.longer);
	EXPECT_EQ(stats.write(program.level, asked.data(), program.size), 0);
	// Rates take the elapsed time into account and differ between calls; do not compare them.
	EXPECT_EQ(std::memcmp(known.data(), asked.data(), 96 + 16), 0);
	for (size_t i = program.reads; program.reads && i < program.reads + 112; i++)
		ASSERT_EQ(asked[i], known[i]) << i;
	EXPECT_EQ(std::count(asked.begin() + static_cast<ptrdiff_t>(program.size), asked.end(), 0x5a),
		  static_cast<ptrdiff_t>(asked.size() - program.size));
	std::fill(asked.begin(), asked.end(), 0x5a);
	for (const size_t size : {size_t{0}, program.size - 1, program.size + 1, program.size + 224, SIZE_MAX})
		EXPECT_EQ(stats.write(program.level, asked.data(), size), -EINVAL) << size;
	EXPECT_EQ(std::count(asked.begin(), asked.end(), 0x5a), static_cast<ptrdiff_t>(asked.size()));
}

} // namespace
