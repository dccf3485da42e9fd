// SPDX-License-Identifier: MIT
// Placement of threads and memory on machines with several NUMA nodes.
#include "program.hpp"

namespace
{

class CufileNumaAffinity : public ::testing::Test, protected Fakes
{
protected:
	CufileNumaAffinity()
	{
		cuda.present = true;
		cuda.system = &system;
		cuda.device.assign(bytes.size(), 'd');
		fd = system.program_fd(bytes, O_RDWR);
		system.texts[folder + "local_cpulist"] = "4-7,12,90-91\n";
		system.texts[folder + "numa_node"] = "1\n";
	}
	// Uses all paths with threads or memory of the library.
	void move()
	{
		const CUfileHandle_t fh = register_file(library, fd);
		const auto n = static_cast<int64_t>(bytes.size());
		EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), bytes.size(), 0, 0, false), n);
		EXPECT_TRUE(cuda.device == bytes);
		EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), 4096, 0, 0, false), 4096);
		CUfileBatchHandle_t batch = nullptr;
		ASSERT_EQ(library.create_batch(&batch, 1).err, 0);
		const CUfileIOParams_t io = batch_io(fh, cuda.device.data(), bytes.size(), 0);
		ASSERT_EQ(library.batches.submit(batch, 1, &io).err, 0);
		CUfileIOEvents_t event;
		unsigned nr = 1;
		const struct timespec soon = {30, 0};
		ASSERT_EQ(library.batches.status(batch, 1, &nr, &event, &soon).err, 0);
		EXPECT_EQ(event.ret, bytes.size());
		library.batches.destroy(batch);
		library.driver.close();
	}

	const std::string folder = "/sys/bus/pci/devices/0000:0a:00.0/";
	const std::string bytes = std::string(16 << 20, 'f');
	int fd;
};

TEST_F(CufileNumaAffinity, NextToTheDevice)
{
	move();
	EXPECT_GT(system.stays.size(), 0u);
	for (const auto &[thread, cpus] : system.stays) {
		EXPECT_EQ(cpus, cufile::Cpus(0x10f0)) << "those that it may use";
		EXPECT_NE(thread, std::this_thread::get_id()) << "the program's threads are where it wants them";
	}
	EXPECT_GT(cuda.pinned_on.size(), 0u);
	for (const int node : cuda.pinned_on)
		EXPECT_EQ(node, 1);
	EXPECT_EQ(system.preferred, -1) << "the program's own memory is not";
}

TEST_F(CufileNumaAffinity, NothingIsKnown)
{
	system.texts.clear();
	move();
	EXPECT_TRUE(system.stays.empty());
	EXPECT_EQ(cuda.pinned_on, std::vector<int>(cuda.pinned_on.size(), -1));
}

TEST_F(CufileNumaAffinity, NoNodes)
{
	system.texts[folder + "local_cpulist"] = "0-15\n";
	system.texts[folder + "numa_node"] = "-1\n";
	move();
	EXPECT_TRUE(system.stays.empty());
	EXPECT_EQ(cuda.pinned_on, std::vector<int>(cuda.pinned_on.size(), -1));
}

// A stream I/O whose driver lacks the copy kernel runs on a helper thread, which is bound to CPUs near the device. The
// threads that the helper starts begin on all CPUs that the program may use.
TEST_F(CufileNumaAffinity, WhatAHelperMakesIsWhereTheProgramMayRun)
{
	cuda.copy_kernel_error = 500;
	system.real_cpus = true;
	cufile::Cpus all;
	ASSERT_EQ(system.cpus(all), 0);
	if (all.count() < 2)
		GTEST_SKIP() << "one CPU";
	size_t one = 0;
	while (!all[one])
		one++;
	system.began_on.clear();
	system.texts[folder + "local_cpulist"] = std::to_string(one) + "\n";
	const CUfileHandle_t fh = register_file(library, fd);
	size_t size = bytes.size();
	off_t zero = 0;
	ssize_t result = 0;
	ASSERT_EQ(library.streams.submit(fh, cuda.device.data(), &size, &zero, &zero, &result, nullptr, false).err, 0);
	for (const auto &io : cuda.in_stream)
		io.call(io.arg);
	EXPECT_EQ(result, static_cast<ssize_t>(size));
	library.driver.close();
	EXPECT_GT(system.stays.size(), 1u) << "one helper alone shows nothing";
	for (const auto &[thread, cpus] : system.began_on)
		EXPECT_EQ(cpus, all);
	for (const auto &[thread, cpus] : system.stays)
		EXPECT_EQ(cpus, cufile::Cpus().set(one));
}

TEST_F(CufileNumaAffinity, TheProgramHasSaidWhereItWantsToBe)
{
	system.allowed = 0xf;
	system.prefer_error = -EBUSY;
	move();
	EXPECT_TRUE(system.stays.empty());
	EXPECT_EQ(cuda.pinned_on, std::vector<int>(cuda.pinned_on.size(), -1));
}

} // namespace
