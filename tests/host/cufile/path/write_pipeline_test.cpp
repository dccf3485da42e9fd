// SPDX-License-Identifier: MIT
// Writes of device memory through slabs of each size: every byte is written, nothing else in the file changes, and the
// result ends at an error.
#include "pipeline.hpp"

namespace
{

class World : protected Pipeline
{
protected:
	World() : Pipeline(some_bytes(room)) {}
	CUfileHandle_t file(bool little, int flags, size_t threads = 4)
	{
		configure(threads, little);
		fd = system.program_fd(std::string(room, 'f'), O_RDWR | flags);
		return register_file(library, fd);
	}
	const std::string &content() { return system.fds.at(fd).file->bytes; }

	const std::string bytes = cuda.device;
	int fd = -1;
};

constexpr Shape shapes[] = {{1, 0, 0},       {mib, 0, 0},           {mib + 1, 3, 512},   {2 * mib, 512, 4096},
			    {5 * mib, 7, 0}, {8 * mib, 0, mib / 2}, {room, 0, room / 2}, {3 * mib + 5, 1, room - 100}};

class CufileWritePipeline : public World, public ::testing::TestWithParam<std::tuple<Shape, int, size_t, bool>>
{
};
INSTANTIATE_TEST_SUITE_P(Each, CufileWritePipeline,
			 ::testing::Combine(::testing::ValuesIn(shapes), ::testing::Values(0, O_DIRECT),
					    ::testing::Values(0, 4), ::testing::Bool()),
			 [](const auto &one) { return "Row" + std::to_string(one.index); });

TEST_P(CufileWritePipeline, TakesAll)
{
	const auto &[shape, flags, threads, little] = GetParam();
	const CUfileHandle_t fh = file(little, flags, threads);
	ASSERT_EQ(library.router.transfer(fh, cuda.device.data(), shape.size, static_cast<off_t>(shape.to),
					  static_cast<off_t>(shape.from), true),
		  static_cast<int64_t>(shape.size));
	EXPECT_LE(system.threads.size(), flags ? 2u : 1u) << "more only wait";
	std::string want(std::max(room, shape.to + shape.size), 'f');
	want.replace(shape.to, shape.size, bytes, shape.from, shape.size);
	EXPECT_TRUE(content() == want);
	EXPECT_TRUE(cuda.device == bytes);
}

// One thread, so that the failing call is deterministic.
class CufileWritePipelineError : public World, public ::testing::TestWithParam<std::tuple<size_t, bool>>
{
};
INSTANTIATE_TEST_SUITE_P(AtCall, CufileWritePipelineError,
			 ::testing::Combine(::testing::Range(size_t{0}, size_t{8}), ::testing::Bool()));

TEST_P(CufileWritePipelineError, EndsWhatIsTold)
{
	const auto &[call, little] = GetParam();
	const CUfileHandle_t fh = file(little, O_DIRECT, 0);
	const size_t size = 8 * mib;
	system.errors.assign(call + 1, 0);
	system.errors.back() = -ENOSPC;
	const int64_t n = library.router.transfer(fh, cuda.device.data(), size, 0, 0, true);
	const size_t before = std::min(call * mib, size);
	ASSERT_EQ(n, before ? static_cast<int64_t>(before) : -ENOSPC);
	EXPECT_TRUE(!content().compare(0, before, bytes, 0, before));
	system.errors.clear();
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), size, 0, 0, true), static_cast<int64_t>(size))
		<< "and goes on";
	EXPECT_TRUE(!content().compare(0, size, bytes, 0, size));
	EXPECT_TRUE(!content().compare(size, mib, std::string(mib, 'f')));
}

} // namespace
