// SPDX-License-Identifier: MIT
// Memory of CUDA's that is registered with the kernel, when it is, and what becomes of it.
#include "cufile_registered.hpp"

namespace
{

class CufileEnrolled : public ::testing::Test, protected Registered
{
protected:
	CufileEnrolled() : Registered(60 * frame)
	{
		peer.enroll_error = 0;
		cuda.present = true;
		cuda.device.assign(80 * frame, 'd');
		const auto at = reinterpret_cast<uintptr_t>(cuda.device.data());
		memory = cuda.device.data() + (frame - at % frame) + frame; // there is a frame before it, too
	}
	~CufileEnrolled() override { let_go(); }
	int64_t read(char *base, size_t size, off_t from = 0, off_t to = 0)
	{
		std::fill(base + to, base + to + size, 'x');
		return library.move(file(), base, size, from, to, false);
	}
	// It came, and directly or not.
	void comes(bool directly, char *base, size_t size, off_t from = 0, off_t to = 0)
	{
		peer.reads.clear();
		EXPECT_EQ(read(base, size, from, to), static_cast<int64_t>(size));
		EXPECT_EQ(bytes.compare(static_cast<size_t>(from), size, base + to, size), 0);
		EXPECT_EQ(peer.reads.size(), directly ? 1u : 0u);
		EXPECT_EQ(explain(base, size).route,
			  static_cast<uint32_t>(directly ? PEERDMA_ROUTE_DIRECT_EDGES : PEERDMA_ROUTE_HOST));
	}
};

TEST_F(CufileEnrolled, RegisteredMemoryGoesDirectly)
{
	EXPECT_EQ(enroll(memory, 16 * frame), 0);
	EXPECT_EQ(peer.enrolled, (std::map<char *, uint64_t>{{memory, 16 * frame}}));
	EXPECT_EQ(cuda.synced, 1) << "its own copies are not to overlap with the drive's";
	comes(true, memory, 5000, 300, 40);
	EXPECT_EQ(peer.reads, (std::vector<FakePeer::Io>{{40, 5000, 300}}));
	comes(true, memory, 16 * frame);
	EXPECT_EQ(read(memory, 1, 0, 16 * frame), cufile::failed(CU_FILE_INVALID_MAPPING_RANGE));
	std::fill(memory, memory + 4096, 'w');
	EXPECT_EQ(library.move(file(), memory, 4096, 8192, 0, true), 4096);
	EXPECT_EQ(peer.file.substr(8192, 4096), std::string(4096, 'w'));
	EXPECT_TRUE(system.calls.empty()) << "the system's own calls were not used";
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 3u);
	EXPECT_EQ(library.remove_buffer(memory).err, 0);
	EXPECT_EQ(peer.released, 1u);
	comes(false, memory, 5000);
}

// The kernel takes whole frames.
struct Range {
	size_t start, size; // of what the program registers
	size_t first, end;  // frames
};
class CufileEnrolledRange : public CufileEnrolled, public ::testing::WithParamInterface<Range>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileEnrolledRange,
			 ::testing::Values(Range{0, 1, 0, 1}, Range{0, frame, 0, 1}, Range{0, frame + 1, 0, 2},
					   Range{512, frame - 512, 0, 1}, Range{512, frame, 0, 2},
					   Range{frame - 1, 2, 0, 2}, Range{frame, 3 * frame, 1, 4},
					   Range{3 * frame - 256, 2 * frame + 512, 2, 6}));

TEST_P(CufileEnrolledRange, AreWholeFrames)
{
	const Range &range = GetParam();
	EXPECT_EQ(enroll(memory + range.start, range.size), 0);
	EXPECT_EQ(peer.enrolled,
		  (std::map<char *, uint64_t>{{memory + range.first * frame, (range.end - range.first) * frame}}));
	comes(true, memory + range.start, range.size);
	EXPECT_EQ(peer.reads, (std::vector<FakePeer::Io>{{range.start - range.first * frame, range.size, 0}}));
	EXPECT_EQ(memory[range.start + range.size], 'd');
	if (range.start) {
		EXPECT_EQ(memory[range.start - 1], 'd');
	}
}

// Frames lie across the ends of the allocation, of which only its own bytes are for anybody.
TEST_F(CufileEnrolled, AtTheEndsOfTheAllocation)
{
	char *const first = cuda.device.data(), *const last = first + cuda.device.size() - 5;
	EXPECT_EQ(enroll(last, 6), CU_FILE_CUDA_POINTER_RANGE_ERROR) << "beyond the allocation";
	EXPECT_TRUE(peer.enrolled.empty());
	EXPECT_EQ(library.remove_buffer(last).err, CU_FILE_MEMORY_NOT_REGISTERED);
	EXPECT_EQ(enroll(last, 5), 0);
	EXPECT_EQ(enroll(first, 5), 0);
	EXPECT_EQ(peer.enrolled.size(), 2u);
	comes(true, last, 5);
	comes(true, first, 5);
	comes(true, last + 1, 4);
	EXPECT_EQ(explain(last + 1, 5).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NOT_A_BUFFER));
}

TEST_F(CufileEnrolled, PointersIntoIt)
{
	EXPECT_EQ(enroll(memory + 2 * frame, 4 * frame), 0);
	comes(true, memory + 3 * frame + 100, 5000, 700);
	comes(true, memory + 3 * frame, 5000, 700, 2 * frame);
	comes(true, memory + 6 * frame - 100, 100);
	comes(false, memory + 6 * frame - 100, 101);
	comes(false, memory + 7 * frame, 100);
	comes(false, memory + 2 * frame - 1, 100);
}

TEST_F(CufileEnrolled, MemoryInsideOfOtherMemory)
{
	EXPECT_EQ(enroll(memory, 4 * frame), 0);
	EXPECT_EQ(enroll(memory + 100, 2 * frame), 0);
	EXPECT_EQ(peer.enrollments, 1) << "it is that of the other";
	EXPECT_EQ(library.remove_buffer(memory).err, 0);
	EXPECT_EQ(peer.released, 0u) << "the second one is still there";
	comes(true, memory + 100, 5000);
	EXPECT_EQ(library.remove_buffer(memory + 100).err, 0);
	EXPECT_EQ(peer.released, 1u);
}

// Each frame is registered once.
TEST_F(CufileEnrolled, MemoryBesideOtherMemory)
{
	EXPECT_EQ(enroll(memory, frame + 100), 0);
	EXPECT_EQ(enroll(memory + frame + 200, 2 * frame), 0);
	comes(true, memory, frame);
	comes(false, memory + frame + 200, 2 * frame);
	const auto route = explain(memory + frame + 200, 10);
	EXPECT_EQ(route.why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NOT_A_BUFFER));
	EXPECT_EQ(route.reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_BUSY));
}

TEST_F(CufileEnrolled, WhatTheKernelDoesNotTakeBouncesAndSaysWhy)
{
	EXPECT_EQ(library.set(CUFILE_PARAM_LOGGING_LEVEL, "WARN").err, 0);
	peer.enroll_error = -EOPNOTSUPP;
	peer.enroll_reason = PEERDMA_REASON_VENDOR_MODULE;
	EXPECT_EQ(enroll(memory, 4 * frame), 0);
	EXPECT_EQ(cuda.synced, 0) << "nothing has changed for the program";
	comes(false, memory, 3 * frame);
	comes(false, memory, 100);
	EXPECT_EQ(explain(memory, 100).why, static_cast<uint32_t>(PEERDMA_CUFILE_WHY_NOT_A_BUFFER));
	EXPECT_EQ(explain(memory, 100).reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_MODULE));
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NOT_A_BUFFER), 2u);
	EXPECT_EQ(std::count(system.to_stderr.begin(), system.to_stderr.end(), '\n'), 1) << system.to_stderr;
	EXPECT_NE(system.to_stderr.find("far away"), std::string::npos) << "the reason: " << system.to_stderr;
	EXPECT_EQ(library.remove_buffer(memory).err, 0);
	EXPECT_EQ(explain(memory, 100).reason, 0u) << "nobody has asked for it to be registered";
	EXPECT_EQ(peer.enrollments, 1) << "and no I/O does";
}

TEST_F(CufileEnrolled, WhoInsistsOnDirect)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	EXPECT_EQ(enroll(memory, 4 * frame), 0);
	EXPECT_EQ(read(memory, 4 * frame), static_cast<int64_t>(4 * frame));
	peer.error = -ENODEV;
	EXPECT_EQ(read(memory, 4 * frame), cufile::failed(CU_FILE_IO_NOT_SUPPORTED)) << "the kernel has lost it";
	peer.enroll_error = -EOPNOTSUPP;
	EXPECT_EQ(enroll(memory + 8 * frame, frame), 0);
	EXPECT_EQ(read(memory + 8 * frame, frame), cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_TRUE(system.calls.empty());
}

TEST_F(CufileEnrolled, WhatIsNotForIt)
{
	std::string host(2 * frame, 'h');
	EXPECT_EQ(enroll(host.data(), frame), 0) << "the host's";
	peer.buffer.assign(2 * frame, 'b');
	cuda.also = &peer.buffer;
	EXPECT_EQ(enroll(peer.buffer.data(), frame), 0) << "libpeerdma's own";
	cuda.kind = cufile::Memory::Kind::managed;
	EXPECT_EQ(enroll(memory, frame), 0) << "managed";
	cuda.kind = cufile::Memory::Kind::device;
	cuda.id = 0;
	EXPECT_EQ(enroll(memory + frame, frame), 0) << "mapped in pieces: the driver has no number for it";
	close_all(library);
	cuda.id = 1;
	EXPECT_EQ(library.set(CUFILE_PARAM_FORCE_COMPAT_MODE, true).err, 0);
	EXPECT_EQ(enroll(memory, frame), 0);
	EXPECT_EQ(peer.enrollments, 0);
	EXPECT_EQ(cuda.synced, 0);
}

TEST_F(CufileEnrolled, CopiesThatCannotBeMadeSynchronous)
{
	cuda.sync_error = 1;
	EXPECT_EQ(enroll(memory, frame), 0);
	EXPECT_EQ(peer.released, 1u) << "the kernel has it no more";
	comes(false, memory, frame);
}

// --- As a dma-buf

TEST_F(CufileEnrolled, WhatTheVendorsModuleDoesNotTakeIsImported)
{
	peer.enroll_error = -EOPNOTSUPP;
	peer.enroll_reason = PEERDMA_REASON_VENDOR_MODULE;
	peer.import_error = 0;
	EXPECT_EQ(enroll(memory + 512, 4 * frame), 0);
	EXPECT_EQ(peer.imports, (std::vector<std::string>{"0000:0A:00.0"}));
	comes(true, memory + 512, 4 * frame);
	EXPECT_EQ(peer.reads, (std::vector<FakePeer::Io>{{512, 4 * frame, 0}})) << "from the buffer's start";
	EXPECT_EQ(explain(memory + 512, 100).reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	EXPECT_EQ(library.remove_buffer(memory + 512).err, 0);
	EXPECT_EQ(peer.released, 1u);
}

TEST_F(CufileEnrolled, WhatWouldBeRefusedAgainIsNotTried)
{
	peer.import_error = 0;
	for (const int error : {-EBUSY, -EDQUOT, -ENOMEM, -ENODEV, -EACCES, -EINVAL, -ENOSYS}) {
		peer.enroll_error = error;
		EXPECT_EQ(enroll(memory, frame), 0);
		EXPECT_TRUE(peer.imports.empty()) << error;
		EXPECT_EQ(library.remove_buffer(memory).err, 0);
	}
}

TEST_F(CufileEnrolled, TheReasonIsThatOfTheWayThatGotFurther)
{
	peer.enroll_error = -EOPNOTSUPP;
	peer.enroll_reason = PEERDMA_REASON_VENDOR_MODULE;
	for (const auto &[second, said] : {std::pair{PEERDMA_REASON_IMPORT_UNKNOWN, PEERDMA_REASON_VENDOR_MODULE},
					   {PEERDMA_REASON_IMPORT_HANDLE, PEERDMA_REASON_VENDOR_MODULE},
					   {PEERDMA_REASON_NONE, PEERDMA_REASON_VENDOR_MODULE},
					   {PEERDMA_REASON_VENDOR_UNPUBLISHED, PEERDMA_REASON_VENDOR_UNPUBLISHED},
					   {PEERDMA_REASON_IMPORT_DEVICE, PEERDMA_REASON_IMPORT_DEVICE}}) {
		peer.import_reason = second;
		EXPECT_EQ(enroll(memory, frame), 0);
		EXPECT_EQ(explain(memory, 100).reason, static_cast<uint32_t>(said)) << second;
		EXPECT_EQ(library.remove_buffer(memory).err, 0);
	}
	comes(false, memory, frame);
}

// An H200 says 801 of what cuMemMap() has mapped: the program waits for its own copies.
TEST_F(CufileEnrolled, MemoryThatIsMappedInPieces)
{
	peer.enroll_error = -EOPNOTSUPP;
	peer.import_error = 0;
	cuda.sync_error = 801;
	constexpr size_t piece = 2 << 20;
	const auto at = reinterpret_cast<uintptr_t>(memory);
	char *const second = memory + ((at + piece) / piece * piece - at);
	cuda.second_piece = second;
	cuda.second_id = 7;
	EXPECT_EQ(enroll(memory, 60 * frame), 0);
	comes(true, memory, 60 * frame);
	// It is exchanged for another.
	cuda.second_id = 8;
	comes(false, memory, 60 * frame);
	comes(true, memory, 4096);
	comes(false, second, 4096);
	comes(true, second - 4096, 4096);
	comes(false, second - 4096, 4097);
}

// Freed without a word, and its address given out once more: the kernel has what was there before.
TEST_F(CufileEnrolled, OtherMemoryAtItsAddress)
{
	EXPECT_EQ(enroll(memory, 4 * frame), 0);
	comes(true, memory, 4 * frame);
	cuda.id = 2;
	comes(false, memory, 4 * frame);
	comes(false, memory + 100, frame);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NOT_A_BUFFER), 2u);
	EXPECT_EQ(enroll(memory + frame, frame), CU_FILE_SUCCESS) << "and what is registered inside of it is its own";
	comes(false, memory + frame, frame);
	EXPECT_EQ(peer.enrollments, 2);
}

TEST_F(CufileEnrolled, TheKernelLosesItUnderAnIo)
{
	EXPECT_EQ(enroll(memory, 60 * frame), 0);
	comes(true, memory, 50 * frame);
	peer.error = -ENODEV;
	EXPECT_EQ(read(memory, 50 * frame, 100), static_cast<int64_t>(50 * frame)) << "several slabs";
	EXPECT_EQ(bytes.compare(100, 50 * frame, memory, 50 * frame), 0);
	EXPECT_EQ(read(memory, 60 * frame, frame), static_cast<int64_t>(59 * frame)) << "the end of the file";
	std::fill(memory, memory + 20 * frame, 'w');
	EXPECT_EQ(library.move(file(), memory, 20 * frame, frame, 0, true), static_cast<int64_t>(20 * frame));
	EXPECT_EQ(system.bytes(fd).compare(frame, 20 * frame, std::string(20 * frame, 'w')), 0);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), 3u);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 1u);
}

TEST_F(CufileEnrolled, AndUnderABatch)
{
	for (const bool lost : {false, true}) {
		peer.error = 0;
		EXPECT_EQ(enroll(memory, 60 * frame), 0);
		CUfileBatchHandle_t batch = nullptr;
		ASSERT_EQ(library.set_up_batch(&batch, 3).err, 0);
		CUfileIOParams_t parts[3];
		for (unsigned i = 0; i < 3; i++)
			parts[i] = batch_io(file(), memory, 20 * frame, i * 20 * frame, i * 20 * frame);
		std::fill(memory, memory + 60 * frame, 'x');
		peer.error = lost ? -ENODEV : 0;
		ASSERT_EQ(library.submit(batch, 3, parts).err, 0);
		CUfileIOEvents_t events[3];
		unsigned n = 3;
		ASSERT_EQ(library.status(batch, 3, &n, events, nullptr).err, 0);
		EXPECT_EQ(n, 3u);
		EXPECT_EQ(bytes.compare(0, 60 * frame, memory, 60 * frame), 0);
		EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 3u);
		EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_REFUSED), lost ? 3u : 0u);
		library.destroy(batch);
		EXPECT_EQ(library.remove_buffer(memory).err, 0);
	}
}

// In the order of a stream it is looked at when the stream gets there.
TEST_F(CufileEnrolled, DeregisteredBeforeItsTime)
{
	EXPECT_EQ(enroll(memory, 4 * frame), 0);
	size_t size = 4 * frame;
	off_t zero = 0;
	ssize_t result = 0;
	ASSERT_EQ(library.move_in_stream(file(), memory, &size, &zero, &zero, &result, nullptr, false).err, 0);
	EXPECT_EQ(library.remove_buffer(memory).err, 0);
	EXPECT_EQ(peer.released, 1u) << "at once";
	for (const auto &io : cuda.in_stream)
		io.call(io.arg);
	EXPECT_EQ(result, static_cast<ssize_t>(size));
	EXPECT_EQ(bytes.compare(0, size, memory, size), 0);
	EXPECT_TRUE(peer.reads.empty());
}

TEST_F(CufileEnrolled, OtherErrorsAreTheIos)
{
	EXPECT_EQ(enroll(memory, frame), 0);
	peer.error = -EIO;
	EXPECT_EQ(read(memory, frame), -EIO);
	EXPECT_EQ(ios(PEERDMA_CUFILE_WHY_NONE), 1u);
}

TEST_F(CufileEnrolled, ClosingLetsGoOfIt)
{
	EXPECT_EQ(enroll(memory, frame), 0);
	EXPECT_EQ(enroll(memory + 2 * frame, frame), 0);
	close_all(library);
	EXPECT_EQ(peer.released, 2u);
	EXPECT_EQ(enroll(memory, frame), 0) << "and it can be registered again";
	EXPECT_EQ(peer.enrolled.size(), 1u);
}

TEST_F(CufileEnrolled, TheSameBaseTwice)
{
	EXPECT_EQ(enroll(memory, frame), 0);
	EXPECT_EQ(enroll(memory, frame), CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(enroll(memory, 2 * frame), CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(peer.enrolled.size(), 1u);
	comes(true, memory, frame);
}

} // namespace
