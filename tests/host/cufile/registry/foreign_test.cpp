// SPDX-License-Identifier: MIT
// Memory of GPUs unknown to CUDA: registered memory goes directly or through libpeerdma, never as host memory.
#include "cufile/platform/errors.hpp"
#include "registered.hpp"

namespace
{

class CufileForeign : public ::testing::TestWithParam<bool>, protected Registered
{
protected:
	CufileForeign() : Registered(16 * frame)
	{
		cuda.present = GetParam();
		cuda.device.assign(4096, 'd');
		peerdma.foreign.assign(16 * frame, 'f');
		memory = peerdma.foreign.data();
	}
	~CufileForeign() override
	{
		let_go();
		EXPECT_EQ(cuda.synced, 0) << "CUDA was told of it";
	}
	int64_t read(char *base, size_t size, off_t from = 0, off_t to = 0)
	{
		return library.router.transfer(file(), base, size, from, to, false);
	}
	void comes(char *base, size_t size, off_t from = 0, off_t to = 0)
	{
		std::fill(base + to, base + to + size, 'x');
		peerdma.reads.clear();
		EXPECT_EQ(read(base, size, from, to), static_cast<int64_t>(size));
		EXPECT_EQ(bytes.compare(static_cast<size_t>(from), size, base + to, size), 0);
		EXPECT_FALSE(peerdma.reads.empty()) << "by libpeerdma";
		EXPECT_TRUE(system.calls.empty()) << "the system's own calls were used";
	}
	void refused(int64_t error, int64_t result)
	{
		EXPECT_EQ(result, cufile::failed(static_cast<CUfileOpError>(error)));
		EXPECT_TRUE(system.calls.empty()) << "the system's own calls were used";
		EXPECT_TRUE(peerdma.reads.empty());
	}
};
INSTANTIATE_TEST_SUITE_P(Cuda, CufileForeign, ::testing::Bool(),
			 [](const auto &one) { return std::string(one.param ? "IsThere" : "IsNot"); });

TEST_P(CufileForeign, RegisteredMemoryGoesDirectly)
{
	ASSERT_EQ(register_memory(memory + frame + 100, 4 * frame), 0);
	EXPECT_EQ(peerdma.pinned, (std::map<char *, uint64_t>{{memory + frame, 5 * frame}}));
	comes(memory + frame + 100, 4 * frame);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{100, 4 * frame, 0}}));
	comes(memory + frame + 100, 5000, 300, 40);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{140, 5000, 300}}));
	comes(memory + 2 * frame, 5000, 700);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{frame, 5000, 700}})) << "a pointer into it";
	EXPECT_EQ(explain(memory + frame + 100, 100).route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT_EDGES));
	std::fill(memory + frame + 100, memory + frame + 4196, 'w');
	EXPECT_EQ(library.router.transfer(file(), memory + frame + 100, 4096, 8192, 0, true), 4096);
	EXPECT_EQ(peerdma.file.substr(8192, 4096), std::string(4096, 'w'));
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 4u);
	EXPECT_EQ(library.deregister_buffer(memory + frame + 100).err, 0);
	EXPECT_EQ(peerdma.released, 1u);
}

TEST_P(CufileForeign, WhoInsistsOnDirect)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	comes(memory, 4 * frame);
	peerdma.reads.clear();
	peerdma.refused = PEERDMA_REASON_DISTANCE;
	refused(CU_FILE_IO_NOT_SUPPORTED,
		library.router.transfer(register_file(library, system.program_fd(bytes, O_RDWR)), memory, frame, 0, 0,
					false));
}

// libpeerdma's copy by the CPU is the only path left.
TEST_P(CufileForeign, AFileThatTheModuleRefuses)
{
	peerdma.refused = PEERDMA_REASON_DISTANCE;
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	comes(memory, 4 * frame);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 1u);
	EXPECT_EQ(explain(memory, frame).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_REFUSED));
}

TEST_P(CufileForeign, APlaceThatNoDriveCanAddress)
{
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	comes(memory, 4096, 0, 1);
}

TEST_P(CufileForeign, WhatOnlyTheHostCouldDo)
{
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	CUfileFSOps_t ops = {};
	ops.read = [](const void *, char *, size_t, off_t, const cufileRDMAInfo_t *) -> ssize_t { return 5; };
	CUfileDescr_t descr = descr_of(0, CU_FILE_HANDLE_TYPE_USERSPACE_FS);
	descr.fs_ops = &ops;
	CUfileHandle_t own = nullptr;
	ASSERT_EQ(library.register_file(&own, &descr).err, 0);
	refused(CU_FILE_IO_NOT_SUPPORTED, library.router.transfer(own, memory, 5, 0, 0, false));
	char text[8] = {};
	EXPECT_EQ(library.router.transfer(own, text, 5, 0, 0, false), 5) << "the host's memory all the same";
	refused(CU_FILE_INVALID_MAPPING_RANGE, read(memory + 3 * frame, frame + 1));
	refused(CU_FILE_INVALID_MAPPING_RANGE, read(memory, 4 * frame + 1));
	EXPECT_EQ(memory[0], 'f');
}

TEST_P(CufileForeign, Batches)
{
	ASSERT_EQ(register_memory(memory, 6 * frame), 0);
	read_by_batch(2 * frame);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 3u);
	EXPECT_TRUE(system.calls.empty());
}

TEST_P(CufileForeign, InAStream)
{
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	StreamRead io = {.size = 4096, .from = 8192, .to = frame};
	EXPECT_EQ(submit(memory, io), GetParam() ? 0 : CU_FILE_ASYNC_NOT_SUPPORTED);
	run_stream();
	if (GetParam()) {
		EXPECT_EQ(io.result, 4096);
		EXPECT_EQ(bytes.compare(8192, 4096, memory + frame, 4096), 0);
		EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{frame, 4096, 8192}}));
	}
}

TEST_P(CufileForeign, WhatCannotBeReachedIsRefused)
{
	for (const auto &[error, reason, said] :
	     {std::tuple{-EOPNOTSUPP, PEERDMA_REASON_VENDOR_UNPUBLISHED, CU_FILE_GPU_MEMORY_PINNING_FAILED},
	      {-EOPNOTSUPP, PEERDMA_REASON_IMPORT_HANDLE, CU_FILE_GPU_MEMORY_PINNING_FAILED},
	      {-EOPNOTSUPP, PEERDMA_REASON_IMPORT_DEVICE, CU_FILE_GPU_MEMORY_PINNING_FAILED},
	      {-EINVAL, PEERDMA_REASON_VENDOR_ALIGN, CU_FILE_GPU_MEMORY_PINNING_FAILED},
	      {-EACCES, PEERDMA_REASON_RULE, CU_FILE_GPU_MEMORY_PINNING_FAILED},
	      {-EIO, PEERDMA_REASON_NONE, CU_FILE_GPU_MEMORY_PINNING_FAILED},
	      {-ENOMEM, PEERDMA_REASON_NONE, CU_FILE_NOMEM_ERROR}}) {
		peerdma.foreign_error = error;
		peerdma.foreign_reason = reason;
		system.to_stderr.clear();
		EXPECT_EQ(register_memory(memory, frame), said) << error;
		EXPECT_EQ(std::count(system.to_stderr.begin(), system.to_stderr.end(), '\n'), 1) << system.to_stderr;
		EXPECT_EQ(system.to_stderr.find("far away") != std::string::npos, reason != PEERDMA_REASON_NONE)
			<< system.to_stderr;
		EXPECT_EQ(library.deregister_buffer(memory).err, CU_FILE_MEMORY_NOT_REGISTERED);
	}
	peerdma.foreign_error = 0;
	EXPECT_EQ(register_memory(memory, frame), 0);
	EXPECT_EQ(register_memory(memory + 2 * frame, 15 * frame), CU_FILE_GPU_MEMORY_PINNING_FAILED)
		<< "beyond the allocation";
}

TEST_P(CufileForeign, TwiceAndInsideAndBeside)
{
	ASSERT_EQ(register_memory(memory, frame + 100), 0);
	EXPECT_EQ(register_memory(memory, frame + 100), CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(register_memory(memory, 8 * frame), CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(register_memory(memory + 50, frame), 0) << "inside";
	EXPECT_EQ(peerdma.pinned.size(), 1u);
	EXPECT_EQ(register_memory(memory + frame + 200, frame), 0) << "in a frame of the other's";
	EXPECT_EQ(peerdma.pinned.size(), 2u);
	comes(memory + frame + 200, frame - 200);
	EXPECT_EQ(library.deregister_buffer(memory + frame + 200).err, 0);
	EXPECT_EQ(peerdma.released, 1u);
	peerdma.released = 0;
	EXPECT_EQ(register_memory(memory + 2 * frame, frame), 0);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(peerdma.released, 0u) << "the second one has it";
	comes(memory + 50, 4096);
	EXPECT_EQ(library.deregister_buffer(memory + 50).err, 0);
	EXPECT_EQ(peerdma.released, 1u);
}

TEST_P(CufileForeign, NoMoreThanThereMayBe)
{
	ASSERT_EQ(library.driver.set(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, 3 * frame / 1024).err, 0);
	EXPECT_EQ(register_memory(memory, 2 * frame), 0);
	EXPECT_EQ(register_memory(memory + 2 * frame, 2 * frame), CU_FILE_GPU_MEMORY_PINNING_FAILED);
	EXPECT_NE(system.to_stderr.find("max_device_pinned_mem_size_kb"), std::string::npos) << system.to_stderr;
	EXPECT_EQ(peerdma.released, 1u) << "the kernel has it no more";
	EXPECT_EQ(register_memory(memory + 2 * frame, frame), 0);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(register_memory(memory + 3 * frame, 2 * frame), 0);
}

TEST_P(CufileForeign, WhatIsNotForIt)
{
	std::string host(2 * frame, 'h');
	EXPECT_EQ(register_memory(host.data(), frame), 0);
	EXPECT_EQ(read(host.data(), 5), 5);
	EXPECT_EQ(system.calls.size(), 1u) << "the host's, as before";
	EXPECT_EQ(peerdma.foreign_imports, 1);
	EXPECT_EQ(read(host.data() + 1, 5), 5);
	EXPECT_EQ(peerdma.foreign_imports, 1) << "no I/O asks";
	peerdma.buffer.assign(2 * frame, 'b');
	EXPECT_EQ(register_memory(peerdma.buffer.data(), frame), 0) << "libpeerdma's own";
	EXPECT_EQ(register_memory(cuda.device.data(), 4096), 0) << "CUDA's, or the host's";
	EXPECT_EQ(peerdma.foreign_imports, GetParam() ? 1 : 2);
	EXPECT_TRUE(system.to_stderr.empty()) << system.to_stderr;
}

TEST_P(CufileForeign, WithoutLibpeerdmaNobodyAsks)
{
	peerdma.present = false;
	EXPECT_EQ(register_memory(memory, frame), 0) << "as before: nobody knows whose it is";
	EXPECT_EQ(peerdma.foreign_imports, 0);
}

TEST_P(CufileForeign, ForcedIsAsBefore)
{
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_FORCE_COMPAT_MODE, true).err, 0);
	EXPECT_EQ(register_memory(memory, frame), 0);
	EXPECT_EQ(peerdma.foreign_imports, 0);
	EXPECT_EQ(read(memory, 5), 5);
	EXPECT_EQ(system.calls.size(), 1u) << "the CPU's copy";
}

TEST_P(CufileForeign, TheKernelLosesIt)
{
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	comes(memory, frame);
	peerdma.error = -ENODEV;
	EXPECT_EQ(read(memory, 4 * frame), -ENODEV) << "nobody else reaches it";
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 1u);
	EXPECT_TRUE(system.calls.empty());
	peerdma.error = -EIO;
	EXPECT_EQ(read(memory, 4 * frame), -EIO);
}

TEST_P(CufileForeign, StatisticsKnowNoGpu)
{
	ASSERT_EQ(library.stats.set_level(3), true);
	ASSERT_TRUE(library.stats.start());
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	comes(memory, frame);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	CUfileStatsLevel3_t stats;
	library.stats.get(stats);
	EXPECT_EQ(stats.num_gpus, 0u);
	EXPECT_EQ(stats.detailed.basic.read_bytes, frame);
	EXPECT_EQ(stats.detailed.basic.buf_register_ops.ok, 1u);
}

TEST_P(CufileForeign, ClosingLetsGoOfIt)
{
	ASSERT_EQ(register_memory(memory, frame), 0);
	ASSERT_EQ(register_memory(memory + 2 * frame, frame), 0);
	close_all(library);
	EXPECT_EQ(peerdma.released, 2u);
}

TEST_P(CufileForeign, TensorsSideBySide)
{
	constexpr size_t tensor = 2 * frame + 512;
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	for (const size_t i : {0, 2, 1, 5, 4, 3})
		ASSERT_EQ(register_memory(memory + i * tensor, tensor), 0);
	for (size_t i = 0; i < 6; i++) {
		const auto from = static_cast<off_t>(i * 4096);
		EXPECT_EQ(read(memory + i * tensor, tensor, from), static_cast<int64_t>(tensor));
		EXPECT_EQ(bytes.compare(i * 4096, tensor, memory + i * tensor, tensor), 0);
	}
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 6u);
	EXPECT_EQ(memory[6 * tensor], 'f');
	for (const size_t i : {1, 0, 3, 4, 5})
		EXPECT_EQ(library.deregister_buffer(memory + i * tensor).err, 0);
	EXPECT_FALSE(peerdma.pinned.empty());
	EXPECT_EQ(read(memory + 2 * tensor, tensor), static_cast<int64_t>(tensor));
	EXPECT_EQ(library.deregister_buffer(memory + 2 * tensor).err, 0);
	EXPECT_TRUE(peerdma.pinned.empty());
}

// The memory was freed without deregistration and CUDA has its address now: it is registered anew as CUDA's.
TEST_P(CufileForeign, MemoryOfCudasAtItsAddress)
{
	if (!GetParam())
		return;
	peerdma.pin_error = 0;
	ASSERT_EQ(register_memory(memory, 4 * frame), 0);
	cuda.also = &peerdma.foreign;
	cuda.also_id = 0;
	EXPECT_EQ(register_memory(memory + frame, frame), 0);
	EXPECT_EQ(peerdma.pinned.size(), 1u) << "it is not the other's place that it has";
	EXPECT_EQ(explain(memory + frame, 100).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NOT_A_BUFFER));
}

} // namespace
