// SPDX-License-Identifier: MIT
// CUDA memory registered with the kernel: when it is registered, and what becomes of the registration.
#include "cufile/platform/errors.hpp"
#include "registered.hpp"

namespace
{

class CufileRegisteredMemory : public ::testing::Test, protected Registered
{
protected:
	CufileRegisteredMemory() : Registered(60 * frame)
	{
		peerdma.pin_error = 0;
		cuda.present = true;
		cuda.device.assign(80 * frame, 'd');
		const auto at = reinterpret_cast<uintptr_t>(cuda.device.data());
		memory = cuda.device.data() + (frame - at % frame) + frame; // preceded by another frame
	}
	~CufileRegisteredMemory() override
	{
		let_go();
		EXPECT_EQ(peerdma.outside, 0u) << "I/O of memory that the kernel did not have";
	}
	int64_t read(char *base, size_t size, off_t from = 0, off_t to = 0)
	{
		std::fill(base + to, base + to + size, 'x');
		return library.router.transfer(file(), base, size, from, to, false);
	}
	// The bytes arrive, directly or not.
	void comes(bool directly, char *base, size_t size, off_t from = 0, off_t to = 0)
	{
		peerdma.reads.clear();
		EXPECT_EQ(read(base, size, from, to), static_cast<int64_t>(size));
		EXPECT_EQ(bytes.compare(static_cast<size_t>(from), size, base + to, size), 0);
		EXPECT_EQ(!peerdma.reads.empty(), directly);
		EXPECT_EQ(explain(base, size).route,
			  static_cast<uint32_t>(directly ? PEERDMA_ROUTE_DIRECT_EDGES : PEERDMA_ROUTE_HOST));
	}
};

TEST_F(CufileRegisteredMemory, RegisteredMemoryGoesDirectly)
{
	EXPECT_EQ(register_memory(memory, 16 * frame), 0);
	EXPECT_EQ(peerdma.pinned, (std::map<char *, uint64_t>{{memory, 16 * frame}}));
	EXPECT_EQ(cuda.synced, 1) << "its own copies are not to overlap with the drive's";
	comes(true, memory, 5000, 300, 40);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{40, 5000, 300}}));
	comes(true, memory, 16 * frame);
	EXPECT_EQ(read(memory, 1, 0, 16 * frame), cufile::failed(CU_FILE_INVALID_MAPPING_RANGE));
	std::fill(memory, memory + 4096, 'w');
	EXPECT_EQ(library.router.transfer(file(), memory, 4096, 8192, 0, true), 4096);
	EXPECT_EQ(peerdma.file.substr(8192, 4096), std::string(4096, 'w'));
	EXPECT_TRUE(system.calls.empty()) << "the system's own calls were not used";
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 3u);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(peerdma.released, 1u);
	comes(false, memory, 5000);
}

// The kernel registers whole frames.
struct Range {
	size_t start, size; // registered by the program
	size_t first, end;  // frames
};
class CufileRegisteredMemoryRange : public CufileRegisteredMemory, public ::testing::WithParamInterface<Range>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileRegisteredMemoryRange,
			 ::testing::Values(Range{0, 1, 0, 1}, Range{0, frame, 0, 1}, Range{0, frame + 1, 0, 2},
					   Range{512, frame - 512, 0, 1}, Range{512, frame, 0, 2},
					   Range{frame - 1, 2, 0, 2}, Range{frame, 3 * frame, 1, 4},
					   Range{3 * frame - 256, 2 * frame + 512, 2, 6}));

TEST_P(CufileRegisteredMemoryRange, AreWholeFrames)
{
	const Range &range = GetParam();
	EXPECT_EQ(register_memory(memory + range.start, range.size), 0);
	EXPECT_EQ(peerdma.pinned,
		  (std::map<char *, uint64_t>{{memory + range.first * frame, (range.end - range.first) * frame}}));
	comes(true, memory + range.start, range.size);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{range.start - range.first * frame, range.size, 0}}));
	EXPECT_EQ(memory[range.start + range.size], 'd');
	if (range.start) {
		EXPECT_EQ(memory[range.start - 1], 'd');
	}
}

// Frames cross the ends of the allocation, but only its own bytes may be accessed.
TEST_F(CufileRegisteredMemory, AtTheEndsOfTheAllocation)
{
	char *const first = cuda.device.data(), *const last = first + cuda.device.size() - 5;
	EXPECT_EQ(register_memory(last, 6), CU_FILE_CUDA_POINTER_RANGE_ERROR) << "beyond the allocation";
	EXPECT_TRUE(peerdma.pinned.empty());
	EXPECT_EQ(library.deregister_buffer(last).err, CU_FILE_MEMORY_NOT_REGISTERED);
	EXPECT_EQ(register_memory(last, 5), 0);
	EXPECT_EQ(register_memory(first, 5), 0);
	EXPECT_EQ(peerdma.pinned.size(), 2u);
	comes(true, last, 5);
	comes(true, first, 5);
	comes(true, last + 1, 4);
	EXPECT_EQ(explain(last + 1, 5).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NOT_A_BUFFER));
}

TEST_F(CufileRegisteredMemory, PointersIntoIt)
{
	EXPECT_EQ(register_memory(memory + 2 * frame, 4 * frame), 0);
	comes(true, memory + 3 * frame + 100, 5000, 700);
	comes(true, memory + 3 * frame, 5000, 700, 2 * frame);
	comes(true, memory + 6 * frame - 100, 100);
	comes(false, memory + 6 * frame - 100, 101);
	comes(false, memory + 7 * frame, 100);
	comes(false, memory + 2 * frame - 1, 100);
}

TEST_F(CufileRegisteredMemory, MemoryInsideOfOtherMemory)
{
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	EXPECT_EQ(register_memory(memory + 100, 2 * frame), 0);
	EXPECT_EQ(peerdma.pins, 1) << "it is that of the other";
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(peerdma.released, 0u) << "the second one is still there";
	comes(true, memory + 100, 5000);
	EXPECT_EQ(library.deregister_buffer(memory + 100).err, 0);
	EXPECT_EQ(peerdma.released, 1u);
}

// Each frame is registered once and shared.
TEST_F(CufileRegisteredMemory, MemoryBesideOtherMemory)
{
	EXPECT_EQ(register_memory(memory, frame + 100), 0);
	EXPECT_EQ(register_memory(memory + frame + 200, 2 * frame), 0);
	EXPECT_EQ(peerdma.pinned, (std::map<char *, uint64_t>{{memory, 2 * frame}, {memory + 2 * frame, 2 * frame}}));
	comes(true, memory, frame);
	comes(true, memory + frame + 200, 2 * frame);
	EXPECT_EQ(peerdma.reads,
		  (std::vector<FakePeerdma::Io>{{frame + 200, frame - 200, 0}, {0, frame + 200, frame - 200}}));
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(peerdma.released, 0u) << "the second one needs its last frame";
	comes(true, memory + frame + 200, 2 * frame);
	EXPECT_EQ(library.deregister_buffer(memory + frame + 200).err, 0);
	EXPECT_EQ(peerdma.released, 2u);
}

TEST_F(CufileRegisteredMemory, AFrameThatAnotherProgramHasBounces)
{
	peerdma.pinned[memory + frame] = frame;
	EXPECT_EQ(register_memory(memory, 3 * frame), 0);
	comes(false, memory, 3 * frame);
	EXPECT_EQ(explain(memory, 10).reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_BUSY));
	EXPECT_EQ(register_memory(memory + 3 * frame, frame), 0);
	comes(true, memory + 3 * frame, frame);
	peerdma.pinned.erase(memory + frame);
}

TEST_F(CufileRegisteredMemory, WhatTheKernelDoesNotTakeBouncesAndSaysWhy)
{
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_LOGGING_LEVEL, "WARN").err, 0);
	peerdma.pin_error = -EOPNOTSUPP;
	peerdma.pin_reason = PEERDMA_REASON_VENDOR_MODULE;
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	EXPECT_EQ(cuda.synced, 0) << "nothing has changed for the program";
	comes(false, memory, 3 * frame);
	comes(false, memory, 100);
	EXPECT_EQ(explain(memory, 100).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NOT_A_BUFFER));
	EXPECT_EQ(explain(memory, 100).reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_MODULE));
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NOT_A_BUFFER), 2u);
	EXPECT_EQ(std::count(system.to_stderr.begin(), system.to_stderr.end(), '\n'), 1) << system.to_stderr;
	EXPECT_NE(system.to_stderr.find("far away"), std::string::npos) << "the reason: " << system.to_stderr;
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(explain(memory, 100).reason, 0u) << "nobody has asked for it to be registered";
	EXPECT_EQ(peerdma.pins, 1) << "and no I/O does";
}

TEST_F(CufileRegisteredMemory, AShortageIsNotRemembered)
{
	for (const int error : {-EMFILE, -ENFILE, -ENOMEM}) {
		peerdma.pin_error = error;
		EXPECT_EQ(register_memory(memory, 4 * frame), 0);
		comes(false, memory, 4 * frame);
		const int before = peerdma.pins;
		comes(false, memory, 4 * frame);
		EXPECT_EQ(peerdma.pins, before) << "each I/O asks";
		peerdma.pin_error = 0;
		system.now += cufile::Backoff::most;
		comes(true, memory + 100, frame);
		comes(true, memory, 4 * frame);
		EXPECT_EQ(peerdma.pinned, (std::map<char *, uint64_t>{{memory, 4 * frame}}));
		EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	}
}

TEST_F(CufileRegisteredMemory, OtherMemoryIsNotRegisteredAfterAShortage)
{
	peerdma.pin_error = -EMFILE;
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	peerdma.pin_error = 0;
	cuda.id = 2;
	comes(false, memory, 4 * frame);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
}

TEST_F(CufileRegisteredMemory, WhoInsistsOnDirect)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	EXPECT_EQ(read(memory, 4 * frame), static_cast<int64_t>(4 * frame));
	peerdma.error = -ENODEV;
	EXPECT_EQ(read(memory, 4 * frame), cufile::failed(CU_FILE_IO_NOT_SUPPORTED)) << "the kernel has lost it";
	peerdma.pin_error = -EOPNOTSUPP;
	EXPECT_EQ(register_memory(memory + 8 * frame, frame), 0);
	EXPECT_EQ(read(memory + 8 * frame, frame), cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_TRUE(system.calls.empty());
}

TEST_F(CufileRegisteredMemory, WhatIsNotForIt)
{
	std::string host(2 * frame, 'h');
	EXPECT_EQ(register_memory(host.data(), frame), 0) << "the host's";
	peerdma.buffer.assign(2 * frame, 'b');
	cuda.also = &peerdma.buffer;
	EXPECT_EQ(register_memory(peerdma.buffer.data(), frame), 0) << "libpeerdma's own";
	cuda.kind = cufile::Memory::Kind::managed;
	EXPECT_EQ(register_memory(memory, frame), 0) << "managed";
	cuda.kind = cufile::Memory::Kind::device;
	cuda.id = 0;
	EXPECT_EQ(register_memory(memory + frame, frame), 0) << "mapped in pieces: the driver has no number for it";
	close_all(library);
	cuda.id = 1;
	EXPECT_EQ(library.driver.set(CUFILE_PARAM_FORCE_COMPAT_MODE, true).err, 0);
	EXPECT_EQ(register_memory(memory, frame), 0);
	EXPECT_EQ(peerdma.pins, 0);
	EXPECT_EQ(cuda.synced, 0);
}

TEST_F(CufileRegisteredMemory, CopiesThatCannotBeMadeSynchronous)
{
	cuda.sync_error = 1;
	EXPECT_EQ(register_memory(memory, frame), 0);
	EXPECT_EQ(peerdma.released, 1u) << "the kernel has it no more";
	comes(false, memory, frame);
}

// --- As a dma-buf

TEST_F(CufileRegisteredMemory, WhatTheVendorsModuleDoesNotTakeIsImported)
{
	peerdma.pin_error = -EOPNOTSUPP;
	peerdma.pin_reason = PEERDMA_REASON_VENDOR_MODULE;
	peerdma.import_error = 0;
	EXPECT_EQ(register_memory(memory + 512, 4 * frame), 0);
	EXPECT_EQ(peerdma.imports, (std::vector<std::string>{"0000:0A:00.0"}));
	comes(true, memory + 512, 4 * frame);
	EXPECT_EQ(peerdma.reads, (std::vector<FakePeerdma::Io>{{512, 4 * frame, 0}})) << "from the buffer's start";
	EXPECT_EQ(explain(memory + 512, 100).reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	EXPECT_EQ(library.deregister_buffer(memory + 512).err, 0);
	EXPECT_EQ(peerdma.released, 1u);
}

TEST_F(CufileRegisteredMemory, WhatWouldBeRefusedAgainIsNotTried)
{
	peerdma.import_error = 0;
	for (const int error : {-EBUSY, -EDQUOT, -ENOMEM, -ENODEV, -EACCES, -EINVAL, -ENOSYS}) {
		peerdma.pin_error = error;
		EXPECT_EQ(register_memory(memory, frame), 0);
		EXPECT_TRUE(peerdma.imports.empty()) << error;
		EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	}
}

TEST_F(CufileRegisteredMemory, TheReasonIsThatOfTheWayThatGotFurther)
{
	peerdma.pin_error = -EOPNOTSUPP;
	peerdma.pin_reason = PEERDMA_REASON_VENDOR_MODULE;
	for (const auto &[second, said] : {std::pair{PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_REASON_VENDOR_MODULE},
					   {PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_REASON_VENDOR_MODULE},
					   {PEERDMA_REASON_NONE, PEERDMA_REASON_VENDOR_MODULE},
					   {PEERDMA_REASON_VENDOR_UNPUBLISHED, PEERDMA_REASON_VENDOR_UNPUBLISHED},
					   {PEERDMA_REASON_IMPORT_DEVICE, PEERDMA_REASON_IMPORT_DEVICE}}) {
		peerdma.import_reason = second;
		EXPECT_EQ(register_memory(memory, frame), 0);
		EXPECT_EQ(explain(memory, 100).reason, static_cast<uint32_t>(said)) << second;
		EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	}
	comes(false, memory, frame);
}

// An H200 returns 801 for memory mapped by cuMemMap(): the program orders its own copies.
TEST_F(CufileRegisteredMemory, MemoryThatIsMappedInPieces)
{
	peerdma.pin_error = -EOPNOTSUPP;
	peerdma.import_error = 0;
	cuda.sync_error = 801;
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	// Not mapped by cuMemMap(): the program has not promised to order its copies.
	comes(false, memory, 60 * frame);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	cuda.mapped = true;
	constexpr size_t piece = 2 << 20;
	const auto at = reinterpret_cast<uintptr_t>(memory);
	char *const second = memory + ((at + piece) / piece * piece - at);
	cuda.second_piece = second;
	cuda.second_id = 7;
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	comes(true, memory, 60 * frame);
	// The second mapping is replaced.
	cuda.second_id = 8;
	comes(false, memory, 60 * frame);
	comes(true, memory, 4096);
	comes(false, second, 4096);
	comes(true, second - 4096, 4096);
	comes(false, second - 4096, 4097);
}

// Freed without deregistration and reallocated at the same address: the kernel still has the previous memory.
TEST_F(CufileRegisteredMemory, OtherMemoryAtItsAddress)
{
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	comes(true, memory, 4 * frame);
	cuda.id = 2;
	comes(false, memory, 4 * frame);
	comes(false, memory + 100, frame);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NOT_A_BUFFER), 2u);
	EXPECT_EQ(register_memory(memory + frame, frame), CU_FILE_SUCCESS)
		<< "and what is registered inside of it is its own";
	comes(true, memory + frame, frame);
	EXPECT_EQ(peerdma.pins, 2);
	EXPECT_EQ(peerdma.released, 1u) << "what was there before is nobody's";
	comes(false, memory, 4 * frame);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0) << "the program may say so yet";
	comes(true, memory + frame, frame);
}

// And registered at the same address: longer, shorter, with a kernel that accepts or refuses it.
TEST_F(CufileRegisteredMemory, OtherMemoryAtItsAddressIsRegistered)
{
	uint64_t id = 1;
	for (const size_t frames : {4, 8, 2, 3}) {
		for (const int error : {0, -EOPNOTSUPP}) {
			cuda.id = id++;
			peerdma.pin_error = error;
			EXPECT_EQ(read(memory, 9 * frame), static_cast<int64_t>(9 * frame))
				<< "nobody has registered that";
			EXPECT_EQ(register_memory(memory, frames * frame), 0);
			EXPECT_EQ(register_memory(memory, frames * frame), CU_FILE_MEMORY_ALREADY_REGISTERED);
			comes(!error, memory, frames * frame);
			EXPECT_EQ(peerdma.pinned.size(), error ? 0u : 1u);
			EXPECT_EQ(read(memory, frames * frame + 1), cufile::failed(CU_FILE_INVALID_MAPPING_RANGE));
		}
	}
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(library.deregister_buffer(memory).err, CU_FILE_MEMORY_NOT_REGISTERED);
}

// Freed memory no longer counts against max_device_pinned_mem_size_kb.
TEST_F(CufileRegisteredMemory, OtherMemoryAtItsAddressHasItsRoom)
{
	EXPECT_EQ(library.driver.set_max_pinned(4 * frame / 1024).err, 0);
	for (cuda.id = 1; cuda.id < 5; cuda.id++) {
		EXPECT_EQ(register_memory(memory, 4 * frame), 0);
		comes(true, memory, 4 * frame);
	}
}

// Reserved and registered as a whole, mapped in part; the rest is mapped later.
class CufileMappedLater : public CufileRegisteredMemory
{
protected:
	CufileMappedLater()
	{
		peerdma.pin_error = -EOPNOTSUPP;
		peerdma.import_error = 0;
		cuda.sync_error = 801;
		cuda.mapped = true;
		constexpr size_t piece = 2 << 20;
		const auto at = reinterpret_cast<uintptr_t>(memory);
		second = memory + ((at + piece) / piece * piece - at);
		cuda.mapped_to = static_cast<size_t>(second - cuda.device.data());
		cuda.second_piece = second;
		cuda.second_id = 7;
	}
	char *second;
};

TEST_F(CufileMappedLater, GoesDirectlyOnceItIs)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	comes(true, second - frame, frame);
	EXPECT_EQ(peerdma.pinned.size(), 1u);
	cuda.mapped_to = SIZE_MAX;
	comes(true, memory, 60 * frame);
	EXPECT_EQ(peerdma.pinned.size(), 2u);
	EXPECT_EQ(peerdma.reads.size(), 2u);
	comes(true, second, frame);
	comes(true, second - frame, 2 * frame);
	EXPECT_EQ(peerdma.imports.size(), 2u);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(peerdma.released, 2u);
}

// A file of libpeerdma belongs to one device, so memory registered later bounces.
TEST_F(CufileMappedLater, AfterTheProgramHasClosedTheDevice)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	comes(true, second - frame, frame);
	peerdma.close_device();
	cuda.mapped_to = SIZE_MAX;
	comes(false, memory, 60 * frame);
	EXPECT_EQ(read(second - frame, frame), -EBADF);
}

TEST_F(CufileMappedLater, ByAPointerIntoIt)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	cuda.mapped_to = SIZE_MAX;
	comes(true, second + frame, frame);
	comes(false, memory + 60 * frame - 100, 101);
	comes(true, memory + frame, 58 * frame);
	EXPECT_EQ(peerdma.imports.size(), 2u) << "all that was mapped since comes at once";
}

// Each I/O queries the driver for all its pieces, so that none is registered twice.
TEST_F(CufileMappedLater, NothingIsRegisteredTwice)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	comes(true, memory, frame);
	const auto asked = [&] {
		const int before = cuda.allocations_asked;
		comes(true, memory, frame);
		return cuda.allocations_asked - before;
	};
	const int before = asked();
	cuda.mapped_to = SIZE_MAX;
	comes(true, memory, 60 * frame);
	EXPECT_EQ(asked(), before);
}

// cuMemFree() in another thread may hold the driver's lock until the stream continues.
TEST_F(CufileMappedLater, NotWhileAStreamWaits)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	StreamRead io = {.size = 60 * frame};
	ASSERT_EQ(submit(memory, io), 0);
	cuda.mapped_to = SIZE_MAX;
	const size_t before = peerdma.imports.size();
	run_stream();
	EXPECT_EQ(peerdma.imports.size(), before);
	EXPECT_EQ(io.result, static_cast<ssize_t>(io.size)) << "it bounces";
	EXPECT_EQ(bytes.compare(0, io.size, memory, io.size), 0);
	comes(true, memory, 60 * frame);
}

TEST_F(CufileMappedLater, OrBouncesIfTheKernelDoesNotTakeIt)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	cuda.mapped_to = SIZE_MAX;
	peerdma.import_error = -EOPNOTSUPP;
	peerdma.import_reason = PEERDMA_REASON_VENDOR_UNPUBLISHED;
	for (int i = 0; i < 3; i++)
		comes(false, memory, 60 * frame);
	EXPECT_EQ(peerdma.imports.size(), 2u) << "each I/O asks";
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NOT_A_BUFFER), 3u);
	const auto route = explain(memory, 60 * frame);
	EXPECT_EQ(route.reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_UNPUBLISHED));
	comes(true, memory, frame);
}

TEST_F(CufileMappedLater, AShortageIsNotRemembered)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	cuda.mapped_to = SIZE_MAX;
	peerdma.import_error = -EMFILE;
	comes(false, memory, 60 * frame);
	peerdma.import_error = 0;
	system.now += cufile::Backoff::most;
	comes(true, memory, 60 * frame);
}

TEST_F(CufileMappedLater, ByManyThreads)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	file();
	cuda.mapped_to = SIZE_MAX;
	std::vector<std::thread> all;
	std::atomic<int> bad{0};
	for (int i = 0; i < 8; i++)
		all.emplace_back(
			[&] { bad += library.router.transfer(fh, memory, 60 * frame, 0, 0, false) != 60 * frame; });
	for (auto &thread : all)
		thread.join();
	EXPECT_EQ(bad, 0);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 8u);
	EXPECT_EQ(peerdma.imports.size(), 2u);
}

TEST_F(CufileMappedLater, NothingOfItWasThere)
{
	cuda.mapped_to = 0;
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	cuda.mapped_to = SIZE_MAX;
	comes(false, memory, 60 * frame);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	comes(true, memory, 60 * frame);
}

TEST_F(CufileMappedLater, WhatIsAllocatedAtOnceIsNot)
{
	cuda.mapped = false;
	EXPECT_EQ(register_memory(memory, 60 * frame), CU_FILE_CUDA_POINTER_RANGE_ERROR);
}

// Small allocations share a frame.
class CufileSmall : public CufileRegisteredMemory
{
protected:
	CufileSmall()
	{
		for (size_t i = 0; i < 3; i++)
			make(i, 11 + i);
	}
	char *at(size_t i) { return memory + i * 20000; }
	void make(size_t i, uint64_t id) { cuda.side_by_side[at(i)] = {20000, id}; }
	// Frees it.
	void free(size_t i) { make(i, 0); }
};

TEST_F(CufileSmall, AllocationsOfOneFrameShareIt)
{
	for (size_t i = 0; i < 3; i++)
		EXPECT_EQ(register_memory(at(i), 20000), 0);
	EXPECT_EQ(peerdma.pinned, (std::map<char *, uint64_t>{{memory, frame}}));
	for (size_t i = 0; i < 3; i++)
		comes(true, at(i), 20000);
	EXPECT_EQ(library.deregister_buffer(at(0)).err, 0);
	EXPECT_EQ(library.deregister_buffer(at(2)).err, 0);
	comes(true, at(1), 20000);
	EXPECT_EQ(register_memory(at(2), 20000), 0);
	comes(true, at(2), 20000);
	EXPECT_EQ(peerdma.pins, 1);
}

// The frame stays registered as long as one of its allocations lives.
TEST_F(CufileSmall, AsLongAsOneOfThemIsThere)
{
	EXPECT_EQ(register_memory(at(0), 20000), 0);
	EXPECT_EQ(register_memory(at(1), 20000), 0);
	make(0, 21);
	EXPECT_EQ(register_memory(at(2), 20000), 0);
	EXPECT_EQ(register_memory(at(0), 20000), 0);
	for (size_t i = 0; i < 3; i++)
		comes(true, at(i), 20000);
	EXPECT_EQ(peerdma.pins, 1);
}

TEST_F(CufileSmall, WhereNoneIsTheFrameIsAnother)
{
	EXPECT_EQ(register_memory(at(0), 20000), 0);
	EXPECT_EQ(register_memory(at(1), 20000), 0);
	for (size_t i = 0; i < 3; i++)
		make(i, 21 + i);
	EXPECT_EQ(register_memory(at(2), 20000), 0);
	EXPECT_EQ(peerdma.pins, 2);
	comes(true, at(2), 20000);
	comes(false, at(1), 20000);
	EXPECT_EQ(register_memory(at(1), 20000), 0);
	comes(true, at(1), 20000);
	EXPECT_EQ(peerdma.pins, 2);
}

// --- Tensors next to each other in one allocation

class CufileTensors : public CufileRegisteredMemory
{
protected:
	CufileTensors()
	{
		cuda.device.assign(32 * MiB, 'd');
		const auto at = reinterpret_cast<uintptr_t>(cuda.device.data());
		memory = cuda.device.data() + (frame - at % frame) + frame + 512;
	}
	static constexpr size_t MiB = 1 << 20, tensor = MiB + 512;
	uint64_t taken()
	{
		uint64_t all = 0;
		for (const auto &[start, size] : peerdma.pinned)
			all += size;
		return all;
	}
};

TEST_F(CufileTensors, AllGoDirectly)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	for (size_t i = 0; i < 6; i++)
		EXPECT_EQ(register_memory(memory + i * tensor, tensor), 0);
	EXPECT_EQ(taken(), 97 * frame) << "no more than what they lie in";
	for (size_t i = 0; i < 6; i++) {
		std::fill(memory, memory + 7 * tensor, 'n');
		comes(true, memory + i * tensor, tensor, static_cast<off_t>(i * 4096));
		EXPECT_EQ(memory[(i + 1) * tensor], 'n') << "beyond it";
		EXPECT_EQ((memory + i * tensor)[-1], i ? 'n' : 'd') << "before it";
	}
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 6u) << "one each, in however many parts";
	peerdma_cufile_counts counts = {};
	library.router.accounting().counts(counts);
	EXPECT_EQ(counts.bytes[PEERDMA_CUFILE_WHY_NONE], 6 * tensor);
	std::fill(memory, memory + 6 * tensor, 'w');
	for (size_t i = 0; i < 6; i++)
		EXPECT_EQ(library.router.transfer(file(), memory + i * tensor, tensor, static_cast<off_t>(i * tensor),
						  0, true),
			  static_cast<int64_t>(tensor));
	EXPECT_EQ(peerdma.file.compare(0, 6 * tensor, std::string(6 * tensor, 'w')), 0);
	for (const size_t i : {3, 0, 5, 1, 4, 2})
		EXPECT_EQ(library.deregister_buffer(memory + i * tensor).err, 0);
	EXPECT_TRUE(peerdma.pinned.empty());
}

TEST_F(CufileTensors, WhatANeighborNeedsStaysAndNoMoreIfItIsLong)
{
	char *const whole = memory + 4096 - 512; // the border of a block
	EXPECT_EQ(register_memory(whole, 16 * MiB + 512), 0);
	EXPECT_EQ(peerdma.pinned.size(), 3u) << "its edges are runs of their own";
	EXPECT_EQ(register_memory(whole + 16 * MiB + 512, MiB), 0);
	EXPECT_EQ(taken(), 273 * frame);
	comes(true, whole + 12 * MiB, 60 * frame);
	EXPECT_EQ(library.deregister_buffer(whole).err, 0);
	EXPECT_EQ(taken(), 17 * frame);
	comes(true, whole + 16 * MiB + 512, MiB);
	EXPECT_EQ(library.deregister_buffer(whole + 16 * MiB + 512).err, 0);
	EXPECT_EQ(register_memory(memory, 16 * MiB + 512), 0);
	EXPECT_EQ(peerdma.pinned.size(), 1u) << "a border would lie inside of a block";
}

TEST_F(CufileTensors, AreCountedOnce)
{
	EXPECT_EQ(library.driver.set_max_pinned(34 * frame / 1024).err, 0);
	EXPECT_EQ(register_memory(memory, tensor), 0);
	EXPECT_EQ(register_memory(memory + tensor, tensor), 0) << "17 frames, and 16 more";
	EXPECT_EQ(register_memory(memory + 2 * tensor, tensor), 0);
	comes(true, memory, tensor);
	comes(true, memory + tensor, tensor);
	comes(false, memory + 2 * tensor, tensor);
	EXPECT_EQ(explain(memory + 2 * tensor, 100).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_PINNED_LIMIT));
	EXPECT_EQ(register_memory(memory + 2 * tensor - frame, frame), 0) << "that was taken with others";
	comes(true, memory + 2 * tensor - frame, frame);
}

TEST_F(CufileTensors, OneThatHoldsOthers)
{
	for (const size_t i : {1, 3})
		EXPECT_EQ(register_memory(memory + i * tensor, tensor), 0);
	EXPECT_EQ(register_memory(memory, 5 * tensor), 0) << "their gaps";
	EXPECT_EQ(peerdma.pinned.size(), 5u);
	comes(true, memory, 60 * frame);
	for (const size_t i : {1, 3})
		EXPECT_EQ(library.deregister_buffer(memory + i * tensor).err, 0);
	EXPECT_EQ(peerdma.released, 0u);
	comes(true, memory, 60 * frame, 0, 20 * frame);
	comes(true, memory + 2 * tensor, tensor);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_TRUE(peerdma.pinned.empty());
}

// A pointer that is not a base: into a long registration, past a short one nested in it.
TEST_F(CufileTensors, APointerPastANestedOne)
{
	EXPECT_EQ(register_memory(memory + frame, frame), 0);
	EXPECT_EQ(register_memory(memory, 20 * frame), 0);
	comes(true, memory + 5 * frame, frame);
	comes(true, memory + frame + 4096, frame);
}

// Registrations end within a block of the file: a read of it is bounced in the device, a write through the host.
TEST_F(CufileTensors, BordersWithinABlock)
{
	EXPECT_EQ(register_memory(memory, tensor), 0);
	EXPECT_EQ(register_memory(memory + tensor, tensor), 0);
	comes(true, memory + tensor + 4, tensor - 4);
	std::fill(memory, memory + 2 * tensor, 'w');
	EXPECT_EQ(library.router.transfer(file(), memory + tensor + 4, MiB, 0, 0, true), static_cast<int64_t>(MiB));
	ASSERT_EQ(peerdma.writes.size(), 2u);
	EXPECT_EQ(peerdma.writes[0].size + peerdma.writes[1].size, MiB);
	EXPECT_EQ(peerdma.file.compare(0, MiB, std::string(MiB, 'w')), 0);
	close_all(library);
	fh = nullptr;
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	EXPECT_EQ(register_memory(memory, tensor), 0);
	EXPECT_EQ(register_memory(memory + tensor, tensor), 0);
	EXPECT_EQ(library.router.transfer(file(), memory + tensor + 4, MiB, 0, 0, true),
		  cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_EQ(peerdma.writes.size(), 2u) << "before anything is moved";
	EXPECT_EQ(library.router.transfer(file(), memory + tensor, MiB, 0, 0, true), static_cast<int64_t>(MiB));
	EXPECT_EQ(library.router.transfer(file(), memory + tensor + 4, 512, 0, 0, true), 512) << "in one run";
}

// A result less than the size means the end of the file and nothing else.
TEST_F(CufileTensors, AnErrorInTheSecondRun)
{
	for (size_t i = 0; i < 2; i++)
		EXPECT_EQ(register_memory(memory + i * tensor, tensor), 0);
	peerdma.later_error = -EIO;
	peerdma.reads_until_error = 1;
	EXPECT_EQ(read(memory + tensor, tensor), -EIO);
	EXPECT_EQ(read(memory + tensor, tensor, 60 * frame - 100), 100) << "the end of the file in the first";
	peerdma.later_error = -ENODEV;
	peerdma.reads_until_error = 1;
	comes(true, memory + tensor, tensor - 4096);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 1u) << "all of it once more, by way of the host";
}

// Like write(2): the next call returns the error.
TEST_F(CufileTensors, NoRoomForTheSecondRun)
{
	for (size_t i = 0; i < 2; i++)
		EXPECT_EQ(register_memory(memory + i * tensor, tensor), 0);
	const auto write = [&] { return library.router.transfer(file(), memory + tensor, tensor, 0, 0, true); };
	ASSERT_EQ(write(), static_cast<int64_t>(tensor));
	ASSERT_EQ(peerdma.writes.size(), 2u);
	const uint64_t first = peerdma.writes[0].size;
	peerdma.stop_at = first;
	for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
		peerdma.stop_error = error;
		EXPECT_EQ(write(), static_cast<int64_t>(first));
	}
	peerdma.stop_error = EIO;
	EXPECT_EQ(write(), -EIO);
	peerdma.stop_error = ENOSPC;
	peerdma.stop_at = 0;
	EXPECT_EQ(write(), -ENOSPC);
}

// Registering queries the driver for neighboring registrations, not for all.
TEST_F(CufileTensors, RegisteringDoesNotAskOfWhatIsFar)
{
	const auto asked = [&](size_t at) {
		const int before = cuda.allocations_asked;
		EXPECT_EQ(register_memory(memory + at, 4096), 0);
		return cuda.allocations_asked - before;
	};
	EXPECT_EQ(register_memory(memory, 20 * MiB), 0); // so long that all the others may reach it
	const int few = asked(19 * MiB);
	for (size_t i = 0; i < 64; i++)
		EXPECT_EQ(register_memory(memory + i * 2 * frame, 4096), i ? 0 : CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(asked(19 * MiB + 8 * frame), few);
}

TEST_F(CufileTensors, InABatch)
{
	CUfileIOParams_t ios[6];
	CUfileIOEvents_t events[6];
	unsigned n = 6;
	for (unsigned i = 0; i < 6; i++) {
		EXPECT_EQ(register_memory(memory + i * tensor, tensor), 0);
		ios[i] = batch_io(file(), memory + i * tensor, tensor, i * 4096);
	}
	CUfileBatchHandle_t batch = nullptr;
	ASSERT_EQ(library.create_batch(&batch, 6).err, 0);
	ASSERT_EQ(library.batches.submit(batch, 6, ios).err, 0);
	ASSERT_EQ(library.batches.status(batch, 6, &n, events, nullptr).err, 0);
	EXPECT_EQ(n, 6u);
	for (unsigned i = 0; i < 6; i++) {
		EXPECT_EQ(events[i].ret, tensor);
		EXPECT_EQ(bytes.compare(i * 4096, tensor, memory + i * tensor, tensor), 0);
	}
	EXPECT_EQ(this->ios(PEERDMA_CUFILE_WHY_NONE), 6u);
	library.batches.destroy(batch);
}

TEST_F(CufileTensors, InAStream)
{
	for (size_t i = 0; i < 3; i++)
		EXPECT_EQ(register_memory(memory + i * tensor, tensor), 0);
	StreamRead io = {.size = tensor};
	ASSERT_EQ(submit(memory + tensor, io), 0);
	run_stream();
	EXPECT_EQ(io.result, static_cast<ssize_t>(tensor));
	EXPECT_EQ(bytes.compare(0, tensor, memory + tensor, tensor), 0);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 1u);
}

// Registered, read and deregistered by many threads, in any order.
TEST_F(CufileTensors, HundredsByManyThreads)
{
	constexpr unsigned threads = 8, each = 50, rounds = 6;
	struct Tensor {
		char *start;
		size_t size;
	};
	std::vector<Tensor> all;
	uint64_t random = 1;
	const auto next = [](uint64_t &state) {
		return (state = state * 6364136223846793005 + 1442695040888963407) >> 33;
	};
	char *at = memory;
	for (unsigned i = 0; i < threads * each; i++) {
		const size_t size = 4 * (1 + next(random) % (i % 10 ? 3000 : 60000));
		all.push_back({at, size});
		at += size;
	}
	ASSERT_LT(at, cuda.device.data() + cuda.device.size());
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	file();
	std::atomic<unsigned> bad{0};
	const auto work = [&](unsigned self) {
		uint64_t state = self + 1;
		std::vector<unsigned> order;
		for (unsigned i = 0; i < each; i++)
			order.push_back(i * threads + self); // the neighbors belong to other threads
		for (unsigned round = 0; round < rounds; round++) {
			for (const bool in : {true, false}) {
				for (unsigned i = each; i-- > 1;)
					std::swap(order[i], order[next(state) % (i + 1)]);
				for (const unsigned i : order) {
					const auto [start, size] = all[i];
					const auto from =
						static_cast<off_t>(next(state) % (bytes.size() - size) / 4 * 4);
					bad += in && library.register_buffer(start, size, 0).err;
					bad += library.router.transfer(fh, start, size, from, 0, false) !=
						       static_cast<int64_t>(size) ||
					       bytes.compare(static_cast<size_t>(from), size, start, size);
					bad += !in && library.deregister_buffer(start).err;
				}
			}
		}
	};
	std::vector<std::thread> workers;
	for (unsigned i = 0; i < threads; i++)
		workers.emplace_back(work, i);
	for (auto &worker : workers)
		worker.join();
	EXPECT_EQ(bad, 0u);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), threads * each * rounds * 2);
	EXPECT_TRUE(peerdma.pinned.empty());
	for (size_t i = 1; i < all.size(); i++)
		ASSERT_EQ(all[i].start, all[i - 1].start + all[i - 1].size);
}

TEST_F(CufileRegisteredMemory, TheKernelLosesItUnderAnIo)
{
	EXPECT_EQ(register_memory(memory, 60 * frame), 0);
	comes(true, memory, 50 * frame);
	peerdma.error = -ENODEV;
	EXPECT_EQ(read(memory, 50 * frame, 100), static_cast<int64_t>(50 * frame)) << "several slabs";
	EXPECT_EQ(bytes.compare(100, 50 * frame, memory, 50 * frame), 0);
	EXPECT_EQ(read(memory, 60 * frame, frame), static_cast<int64_t>(59 * frame)) << "the end of the file";
	std::fill(memory, memory + 20 * frame, 'w');
	EXPECT_EQ(library.router.transfer(file(), memory, 20 * frame, frame, 0, true),
		  static_cast<int64_t>(20 * frame));
	EXPECT_EQ(system.bytes(fd).compare(frame, 20 * frame, std::string(20 * frame, 'w')), 0);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 3u);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 1u);
}

TEST_F(CufileRegisteredMemory, AndUnderABatch)
{
	for (const bool lost : {false, true}) {
		peerdma.error = 0;
		EXPECT_EQ(register_memory(memory, 60 * frame), 0);
		std::fill(memory, memory + 60 * frame, 'x');
		peerdma.error = lost ? -ENODEV : 0;
		read_by_batch(20 * frame);
		EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 3u);
		EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), lost ? 3u : 0u);
		EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	}
}

// In stream order, the registration is looked up when the stream gets there.
TEST_F(CufileRegisteredMemory, DeregisteredBeforeItsTime)
{
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	StreamRead io = {.size = 4 * frame};
	ASSERT_EQ(submit(memory, io), 0);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(peerdma.released, 1u) << "at once";
	run_stream();
	EXPECT_EQ(io.result, static_cast<ssize_t>(io.size));
	EXPECT_EQ(bytes.compare(0, io.size, memory, io.size), 0);
	EXPECT_TRUE(peerdma.reads.empty());
}

// As a daemon does. Earlier registrations belong to the closed descriptor.
TEST_F(CufileRegisteredMemory, TheProgramClosesTheDevice)
{
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	EXPECT_EQ(register_memory(memory + 20 * frame, 4 * frame), 0);
	comes(true, memory, 4 * frame);
	peerdma.close_device();
	peerdma.reads.clear();
	for (char *const old : {memory, memory + 20 * frame})
		for (int i = 0; i < 2; i++)
			EXPECT_EQ(read(old, 5000), -EBADF);
	const std::string said = "register memory after that\n";
	const size_t at = system.to_stderr.find(said);
	EXPECT_NE(at, std::string::npos) << system.to_stderr;
	EXPECT_EQ(system.to_stderr.find(said, at + 1), std::string::npos) << "twice";
	// Shares frames with a lost registration.
	char *const later = memory + frame + 100;
	EXPECT_EQ(register_memory(later, 4 * frame), 0);
	comes(true, later, 4 * frame);
	EXPECT_EQ(read(memory, 5000), -EBADF);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(register_memory(memory, 4 * frame), 0);
	comes(true, memory, 4 * frame);
	comes(true, later, 4 * frame);
}

TEST_F(CufileRegisteredMemory, OtherErrorsAreTheIos)
{
	EXPECT_EQ(register_memory(memory, frame), 0);
	peerdma.error = -EIO;
	EXPECT_EQ(read(memory, frame), -EIO);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 1u);
}

TEST_F(CufileRegisteredMemory, ClosingLetsGoOfIt)
{
	EXPECT_EQ(register_memory(memory, frame), 0);
	EXPECT_EQ(register_memory(memory + 2 * frame, frame), 0);
	close_all(library);
	EXPECT_EQ(peerdma.released, 2u);
	EXPECT_EQ(register_memory(memory, frame), 0) << "and it can be registered again";
	EXPECT_EQ(peerdma.pinned.size(), 1u);
}

TEST_F(CufileRegisteredMemory, TheSameBaseTwice)
{
	EXPECT_EQ(register_memory(memory, frame), 0);
	EXPECT_EQ(register_memory(memory, frame), CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(register_memory(memory, 2 * frame), CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(peerdma.pinned.size(), 1u);
	comes(true, memory, frame);
}

} // namespace
