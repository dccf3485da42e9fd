// SPDX-License-Identifier: MIT
// I/O in stream order; the test decides when the stream gets to it.
#include "program.hpp"

namespace
{

class CufileStream : public ::testing::Test, protected Fakes
{
protected:
	CufileStream()
	{
		cuda.present = true;
		cuda.device.assign(4096, 'd');
		fd = system.program_fd(bytes, O_RDWR);
		fh = register_file(library, fd);
	}
	~CufileStream() override { close_all(library); }
	int ask(bool write = false)
	{
		return library.streams
			.submit(fh, cuda.device.data(), &size, &from, &to, &result, reinterpret_cast<CUstream>(this),
				write)
			.err;
	}
	void come_to_it()
	{
		run();
		cuda.in_stream.clear();
	}
	void run()
	{
		for (const auto &one : cuda.in_stream)
			one.call(one.arg);
	}

	const std::string bytes = some_bytes(10000);
	int fd;
	CUfileHandle_t fh;
	size_t size = 100;
	off_t from = 1000, to = 10;
	ssize_t result = 4711;
};

TEST_F(CufileStream, WithoutADriver)
{
	cuda.present = false;
	EXPECT_EQ(ask(), CU_FILE_ASYNC_NOT_SUPPORTED);
	EXPECT_EQ(ask(true), CU_FILE_ASYNC_NOT_SUPPORTED);
	EXPECT_EQ(result, 4711);
	EXPECT_TRUE(system.calls.empty());
}

// The stream's flags select which parameters are read at submission; the others are read when the stream gets there.
class CufileStreamFlags : public CufileStream, public ::testing::WithParamInterface<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(All, CufileStreamFlags, ::testing::Range(0u, 16u));

TEST_P(CufileStreamFlags, AreReadInTime)
{
	const unsigned flags = GetParam();
	const auto stream = reinterpret_cast<CUstream>(this);
	ASSERT_EQ(library.streams.register_stream(stream, flags).err, 0);
	size = 300;
	ASSERT_EQ(ask(), 0);
	// The flags at submission count, too.
	ASSERT_EQ(library.streams.deregister_stream(stream).err, 0);
	ASSERT_EQ(library.streams.register_stream(stream, flags ^ 15).err, 0);
	size = 100;
	from = 5000;
	to = 700;
	EXPECT_EQ(result, 4711) << "not before its time";
	EXPECT_TRUE(system.calls.empty());
	come_to_it();
	const size_t n = flags & CU_FILE_STREAM_FIXED_FILE_SIZE ? 300 : 100;
	const size_t at = flags & CU_FILE_STREAM_FIXED_FILE_OFFSET ? 1000 : 5000;
	const size_t there = flags & CU_FILE_STREAM_FIXED_BUF_OFFSET ? 10 : 700;
	EXPECT_EQ(result, static_cast<ssize_t>(n));
	EXPECT_EQ(cuda.device, std::string(there, 'd') + bytes.substr(at, n) + std::string(4096 - there - n, 'd'));
	EXPECT_EQ(size, 100u) << "what the program has is its own";
}

class CufileStreamUnknownFlags : public CufileStream, public ::testing::WithParamInterface<unsigned>
{
};
INSTANTIATE_TEST_SUITE_P(All, CufileStreamUnknownFlags, ::testing::Values(16u, 17u, 32u, 1u << 31, ~0u));

// The known ones among them keep their meaning.
TEST_P(CufileStreamUnknownFlags, MeanNothing)
{
	ASSERT_EQ(library.streams.register_stream(reinterpret_cast<CUstream>(this), GetParam()).err, CU_FILE_SUCCESS);
	ASSERT_EQ(ask(), 0);
	const bool fixed = GetParam() & CU_FILE_STREAM_FIXED_BUF_OFFSET;
	to = 700;
	come_to_it();
	EXPECT_EQ(result, 100);
	EXPECT_EQ(cuda.device.substr(fixed ? 10 : 700, 100), bytes.substr(1000, 100));
}

// A registration belongs to one stream: it does not apply to a later stream with the same address.
TEST_F(CufileStream, ANameThatIsUsedAgain)
{
	const auto stream = reinterpret_cast<CUstream>(this);
	const auto ask_then = [&](off_t then) {
		to = 10;
		EXPECT_EQ(ask(), 0);
		to = then;
		cuda.device.assign(4096, 'd');
		come_to_it();
		return cuda.device.find_first_not_of('d');
	};
	ASSERT_EQ(library.streams.register_stream(stream, 15).err, 0);
	EXPECT_EQ(ask_then(700), 10u);
	EXPECT_EQ(library.streams.register_stream(stream, 15).err, CU_FILE_INVALID_VALUE);
	cuda.generation++;
	EXPECT_EQ(ask_then(700), 700u) << "of another stream";
	EXPECT_EQ(library.streams.register_stream(stream, 15).err, 0) << "which is not registered";
	EXPECT_EQ(ask_then(700), 10u);
	EXPECT_EQ(library.streams.deregister_stream(stream).err, 0);
	EXPECT_EQ(library.streams.deregister_stream(stream).err, CU_FILE_INVALID_VALUE);
	const int asked = cuda.ids_asked;
	EXPECT_EQ(ask_then(700), 700u);
	EXPECT_EQ(cuda.ids_asked, asked) << "of what is not registered the driver need not be asked";
}

// The driver has no stream IDs, so a later stream with the same address looks the same.
TEST_F(CufileStream, StreamsWithoutIds)
{
	const auto stream = reinterpret_cast<CUstream>(this);
	cuda.stream_id_error = 500; // CUDA_ERROR_NOT_FOUND
	const CUfileError_t error = library.streams.register_stream(stream, 1);
	EXPECT_EQ(error.err, CU_FILE_CUDA_DRIVER_ERROR);
	EXPECT_EQ(error.cu_err, 500);
	EXPECT_EQ(library.streams.deregister_stream(stream).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.streams.register_stream(stream, 0).err, 0) << "nothing is promised";
	EXPECT_EQ(library.streams.register_stream(stream, 0).err, CU_FILE_INVALID_VALUE);
	ASSERT_EQ(ask(), 0);
	come_to_it();
	EXPECT_EQ(result, 100);
	EXPECT_EQ(library.streams.deregister_stream(stream).err, 0);
	// If querying the ID fails, the stream must not be treated as unregistered.
	cuda.stream_id_error = 0;
	ASSERT_EQ(library.streams.register_stream(stream, 1).err, 0);
	cuda.stream_id_error = 700;
	EXPECT_EQ(ask(), CU_FILE_CUDA_DRIVER_ERROR);
	cuda.stream_id_error = 0;
	cuda.present = false;
	EXPECT_EQ(library.streams.register_stream(nullptr, 1).err, CU_FILE_ASYNC_NOT_SUPPORTED);
	EXPECT_EQ(library.streams.register_stream(nullptr, 0).err, 0);
}

// Errors are reported in the result, as cuFile does.
struct Wrong {
	const char *name;
	size_t size;
	off_t from, to;
	bool write;
	int64_t system; // result of the system calls; 0: success
	ssize_t result;
};

class CufileStreamResult : public CufileStream, public ::testing::WithParamInterface<Wrong>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileStreamResult,
			 ::testing::Values(Wrong{"nothing", 0, 0, 0, false, 0, 0},
					   Wrong{"all", 4096, 0, 0, false, 0, 4096},
					   Wrong{"the_end_of_the_file", 4000, 9000, 0, false, 0, 1000},
					   Wrong{"behind_the_end", 100, 20000, 0, false, 0, 0},
					   Wrong{"a_write", 100, 0, 0, true, 0, 100},
					   Wrong{"beyond_the_buffer", 4097, 0, 0, false, 0, -5016},
					   Wrong{"beyond_it_by_an_offset", 100, 0, 4000, false, 0, -5016},
					   Wrong{"a_write_from_beyond", 4097, 0, 0, true, 0, -5016},
					   Wrong{"a_negative_place", 100, -1, 0, false, 0, -5022},
					   Wrong{"a_negative_offset", 100, 0, -1, false, 0, -5030},
					   Wrong{"a_size_that_is_none", size_t{1} << 63, 0, 0, false, 0, -5022},
					   Wrong{"an_error_of_the_disk", 100, 0, 0, false, -EIO, -1},
					   Wrong{"no_room", 100, 0, 0, true, -ENOSPC, -1}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileStreamResult, IsSaid)
{
	const Wrong &wrong = GetParam();
	ASSERT_EQ(library.register_buffer(cuda.device.data(), cuda.device.size(), 0).err, 0);
	size = wrong.size;
	from = wrong.from;
	to = wrong.to;
	if (wrong.system)
		system.errors.push_back(wrong.system);
	EXPECT_EQ(ask(wrong.write), 0) << "of the call itself nothing is wrong";
	come_to_it();
	EXPECT_EQ(result, wrong.result);
}

TEST_F(CufileStream, ArgumentsThatAreMissing)
{
	const CUstream stream = nullptr;
	void *const base = cuda.device.data();
	const auto error = [&](void *b, size_t *s, off_t *f, off_t *t, ssize_t *r) {
		return library.streams.submit(fh, b, s, f, t, r, stream, false).err;
	};
	EXPECT_EQ(error(nullptr, &size, &from, &to, &result), CU_FILE_INVALID_VALUE);
	EXPECT_EQ(error(base, nullptr, &from, &to, &result), CU_FILE_INVALID_VALUE);
	EXPECT_EQ(error(base, &size, nullptr, &to, &result), CU_FILE_INVALID_VALUE);
	EXPECT_EQ(error(base, &size, &from, nullptr, &result), CU_FILE_INVALID_VALUE);
	EXPECT_EQ(error(base, &size, &from, &to, nullptr), CU_FILE_INVALID_VALUE);
	EXPECT_EQ(error(base, &size, &from, &to, &result), CU_FILE_SUCCESS);
	come_to_it();
	EXPECT_EQ(result, 100);
}

TEST_F(CufileStream, ADriverThatTakesNone)
{
	cuda.launch_error = 400;
	const CUfileError_t error =
		library.streams.submit(fh, cuda.device.data(), &size, &from, &to, &result, nullptr, false);
	EXPECT_EQ(error.err, CU_FILE_CUDA_DRIVER_ERROR);
	EXPECT_EQ(error.cu_err, 400);
	EXPECT_EQ(result, 4711);
}

// A captured I/O runs on each launch with the values of then, until the graph is destroyed.
TEST_F(CufileStream, ManyTimes)
{
	cuda.capturing = true;
	ASSERT_EQ(ask(), 0);
	library.deregister_file(fh); // the captured I/O holds a reference of its own
	for (int i = 0; i < 4; i++) {
		from = i * 10;
		run();
		EXPECT_EQ(result, 100);
		EXPECT_EQ(cuda.device.substr(10, 100), bytes.substr(static_cast<size_t>(from), 100));
	}
	EXPECT_EQ(system.fds.size(), 2u);
	cuda.in_stream[0].gone(cuda.in_stream[0].arg);
	EXPECT_EQ(system.fds.size(), 1u) << "the file was its last";
}

TEST_F(CufileStream, ADriverThatWasClosedMeanwhile)
{
	ASSERT_EQ(ask(), 0);
	close_all(library);
	come_to_it();
	EXPECT_EQ(result, -5001);
	EXPECT_TRUE(system.calls.empty());
}

TEST_F(CufileStream, InItsOrder)
{
	size_t sizes[8];
	ssize_t results[8];
	for (unsigned i = 0; i < 8; i++) {
		sizes[i] = i + 1;
		ASSERT_EQ(library.streams
				  .submit(fh, cuda.device.data(), &sizes[i], &from, &to, &results[i], nullptr, false)
				  .err,
			  0);
	}
	come_to_it();
	ASSERT_EQ(system.calls.size(), 8u);
	for (unsigned i = 0; i < 8; i++) {
		EXPECT_EQ(results[i], static_cast<ssize_t>(i + 1));
		EXPECT_EQ(system.calls[i].size, i + 1u);
	}
}

// Longer than the staging buffer: moved in turns, with one copy by the stream each.
class CufileStreamTurns : public CufileStream
{
protected:
	CufileStreamTurns()
	{
		cuda.device.assign(8 * MiB, 'd');
		fd = system.program_fd(much, O_RDWR);
		library.deregister_file(fh);
		fh = register_file(library, fd);
	}
	static constexpr size_t MiB = 1 << 20;
	const std::string much = some_bytes(6 * MiB + 777);
};

TEST_F(CufileStreamTurns, AReadAndAWrite)
{
	size = 5 * MiB + 123;
	for (to = 0; to < 20; to += 7) {
		from = 1000 + to;
		cuda.device.assign(8 * MiB, 'd');
		ASSERT_EQ(ask(), 0);
		EXPECT_EQ(cuda.in_stream.size(), 5u) << "two turns";
		come_to_it();
		ASSERT_EQ(result, static_cast<ssize_t>(size));
		const auto at = static_cast<size_t>(to);
		EXPECT_TRUE(cuda.device == std::string(at, 'd') + much.substr(static_cast<size_t>(from), size) +
						   std::string(8 * MiB - at - size, 'd'));
	}
	cuda.device = some_bytes(9 * MiB).substr(MiB, 8 * MiB);
	from = 77;
	ASSERT_EQ(ask(true), 0);
	come_to_it();
	ASSERT_EQ(result, static_cast<ssize_t>(size));
	size = 5 * MiB + 123;
	const auto there = static_cast<size_t>(to);
	const std::string written = cuda.device.substr(there, size);
	cuda.device.assign(8 * MiB, 'd');
	ASSERT_EQ(ask(), 0);
	come_to_it();
	EXPECT_TRUE(cuda.device.substr(there, size) == written);
	EXPECT_EQ(cuda.pinned, 1) << "one staging buffer, however many I/Os there were";
}

TEST_F(CufileStreamTurns, TheEndOfTheFileAndAnError)
{
	size = 5 * MiB;
	from = 3 * MiB;
	ASSERT_EQ(ask(), 0);
	come_to_it();
	EXPECT_EQ(result, static_cast<ssize_t>(much.size() - 3 * MiB));
	EXPECT_EQ(cuda.device.find_last_not_of('d'), much.size() - 3 * MiB + 9);
	from = 0;
	system.errors = {0, -EIO};
	ASSERT_EQ(ask(), 0);
	come_to_it();
	EXPECT_EQ(result, -1) << "4 MiB came before it, and are not all that the file has";
}

// The driver refuses this copy; a copy kernel would write beyond the allocation.
TEST_F(CufileStreamTurns, BeyondTheAllocation)
{
	size = 5 * MiB;
	to = 4 * MiB;
	ASSERT_EQ(ask(), 0);
	cuda.calls_until_error = 0;
	come_to_it();
	EXPECT_EQ(result, -1);
	EXPECT_EQ(cuda.device.find_first_not_of('d'), std::string::npos);
}

TEST_F(CufileStreamTurns, MoreThanWasSaid)
{
	ASSERT_EQ(ask(), 0);
	size = 5 * MiB;
	come_to_it();
	EXPECT_EQ(result, -5022);
	EXPECT_EQ(cuda.device.find_first_not_of('d'), std::string::npos);
	EXPECT_TRUE(system.calls.empty());
}

// Two graphs run the same I/O at once: both fail, and no byte goes to a wrong place.
TEST_F(CufileStreamTurns, TwoAtATime)
{
	cuda.capturing = true;
	size = 5 * MiB;
	ASSERT_EQ(ask(), 0);
	const auto all = cuda.in_stream;
	const auto step = [&](size_t i) { all[i].call(all[i].arg); };
	step(0);
	step(1);
	step(0); // the second launch begins
	for (size_t i = 2; i < all.size(); i++)
		step(i);
	EXPECT_EQ(result, -1);
	result = 4711;
	for (size_t i = 1; i < all.size(); i++)
		step(i);
	EXPECT_EQ(result, -1);
	EXPECT_TRUE(cuda.device.substr(10, 4 * MiB) == much.substr(1000, 4 * MiB)) << "that was there before";
	EXPECT_EQ(cuda.device.find_first_not_of('d', 10 + 4 * MiB), std::string::npos);
	// Launched one after the other, both succeed.
	run();
	EXPECT_EQ(result, static_cast<ssize_t>(size));
	EXPECT_TRUE(cuda.device.substr(10, size) == much.substr(1000, size));
	all[0].gone(all[0].arg);
}

TEST_F(CufileStreamTurns, ADriverThatStopsHalfway)
{
	size = 5 * MiB;
	cuda.launches_until_error = 1;
	EXPECT_EQ(ask(), CU_FILE_CUDA_DRIVER_ERROR);
	come_to_it();
	EXPECT_EQ(result, 4711);
	EXPECT_EQ(cuda.device.find_first_not_of('d'), std::string::npos) << "what failed has moved something";
}

// The library then copies itself, and logs it once.
TEST_F(CufileStreamTurns, ADriverThatCannot)
{
	cuda.copy_kernel_error = 500; // CUDA_ERROR_NOT_FOUND
	size = 5 * MiB;
	for (int i = 0; i < 2; i++) {
		ASSERT_EQ(ask(), 0);
		EXPECT_EQ(cuda.in_stream.size(), 1u);
		come_to_it();
		EXPECT_EQ(result, static_cast<ssize_t>(size));
		EXPECT_TRUE(cuda.device.substr(10, size) == much.substr(1000, size));
	}
}

// One staging buffer for each stream with pending I/O, and no more than needed.
TEST_F(CufileStreamTurns, StagingBufferPool)
{
	const auto in = [&](uintptr_t stream) {
		return library.streams
			.submit(fh, cuda.device.data(), &size, &from, &to, &result, reinterpret_cast<CUstream>(stream),
				false)
			.err;
	};
	for (int i = 0; i < 4; i++)
		ASSERT_EQ(in(100), 0);
	EXPECT_EQ(cuda.pinned, 1);
	ASSERT_EQ(in(200), 0);
	EXPECT_EQ(cuda.pinned, 2);
	come_to_it();
	for (uintptr_t stream = 300; stream < 302; stream++)
		ASSERT_EQ(in(stream), 0);
	EXPECT_EQ(cuda.pinned, 2) << "those of before";
	come_to_it();
	cuda.no_pinned = true;
	for (uintptr_t stream = 400; stream < 402; stream++)
		ASSERT_EQ(in(stream), 0);
	EXPECT_EQ(in(500), CU_FILE_NOMEM_ERROR);
	come_to_it();
	// Buffers of another context are not shared, as that context may be destroyed at any time.
	cuda.here = &cuda.devices[1];
	cuda.no_pinned = true;
	EXPECT_EQ(in(600), CU_FILE_NOMEM_ERROR);
	cuda.here = nullptr;
	// Their context was destroyed, and the memory with it.
	for (const auto &[memory, id] : cuda.pinned_ids)
		std::free(memory);
	cuda.pinned_ids.clear();
	cuda.pinned = 0;
	cuda.no_pinned = false;
	ASSERT_EQ(in(100), 0);
	EXPECT_EQ(cuda.pinned, 1);
	come_to_it();
	EXPECT_EQ(result, 100);
	close_all(library);
	EXPECT_EQ(cuda.pinned, 0);
}

} // namespace
