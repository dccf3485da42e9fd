// SPDX-License-Identifier: MIT
// Reads through the pipeline, with lengths around each boundary and by each way to fill it: every byte arrives, and
// nothing around it changes.
#include "pipeline.hpp"

namespace
{

const std::string &content()
{
	static const std::string all = random_bytes(room);
	return all;
}

class World : protected Pipeline
{
protected:
	World() : Pipeline(std::string(room, 'd')) {}
	// Exactly these bytes of the file, and nothing else.
	void expect(size_t at, size_t n, size_t from)
	{
		const std::string untouched(room, 'd');
		EXPECT_TRUE(!cuda.device.compare(0, at, untouched, 0, at)) << "before it";
		EXPECT_TRUE(!cuda.device.compare(at, n, content(), from, n)) << "what came";
		EXPECT_TRUE(!cuda.device.compare(at + n, room, untouched, at + n, room)) << "behind it";
	}
};

constexpr Shape shapes[] = {
	{mib, 0, 0},
	{mib + 1, 0, 0},
	{mib, 511, 3},
	{2 * mib - 1, 4096, 4096},
	{8 * mib, 1, 1},
	{3 * mib, room - 2 * mib, 7}, // beyond the end
	{5 * mib, room - 1, 0},
};

class CufileReadPipeline : public World, public ::testing::TestWithParam<std::tuple<Shape, int, size_t, bool>>
{
};
INSTANTIATE_TEST_SUITE_P(Each, CufileReadPipeline,
			 ::testing::Combine(::testing::ValuesIn(shapes), ::testing::Values(O_RDWR, O_RDWR | O_DIRECT),
					    ::testing::Values(0, 4), ::testing::Bool()),
			 [](const auto &one) { return "Row" + std::to_string(one.index); });

TEST_P(CufileReadPipeline, BringsAll)
{
	const auto &[shape, flags, threads, little] = GetParam();
	configure(threads, little);
	const CUfileHandle_t fh = register_file(library, system.program_fd(content(), flags));
	const size_t n = std::min(shape.size, room - shape.from);
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), shape.size, static_cast<off_t>(shape.from),
					  static_cast<off_t>(shape.to), false),
		  static_cast<int64_t>(n));
	expect(shape.to, n, shape.from);
	EXPECT_EQ(system.rings.wrong, 0u);
}

// As a batch that is cut independently of its requests: the same result, whichever threads take part.
TEST_P(CufileReadPipeline, BringsAllInABatch)
{
	const auto &[shape, flags, threads, little] = GetParam();
	configure(threads, little);
	const CUfileHandle_t fh = register_file(library, system.program_fd(content(), flags));
	const size_t n = std::min(shape.size, room - shape.from), first = n / 3;
	CUfileBatchHandle_t batch = nullptr;
	ASSERT_EQ(library.create_batch(&batch, 2).err, 0);
	const CUfileIOParams_t ios[] = {
		batch_io(fh, cuda.device.data(), first, static_cast<off_t>(shape.from), static_cast<off_t>(shape.to)),
		batch_io(fh, cuda.device.data(), shape.size - first, static_cast<off_t>(shape.from + first),
			 static_cast<off_t>(shape.to + first))};
	ASSERT_EQ(library.batches.submit(batch, 2, ios).err, 0);
	CUfileIOEvents_t events[2];
	unsigned nr = 2;
	ASSERT_EQ(library.batches.status(batch, 2, &nr, events, nullptr).err, 0);
	EXPECT_EQ(events[0].ret + events[1].ret, n);
	expect(shape.to, n, shape.from);
	EXPECT_EQ(system.rings.wrong, 0u);
}

// A failing piece determines the result, whatever precedes it.
class CufileReadPipelineError : public World, public ::testing::TestWithParam<size_t>
{
};
INSTANTIATE_TEST_SUITE_P(AtPiece, CufileReadPipelineError, ::testing::Range(size_t{0}, size_t{9}));

TEST_P(CufileReadPipelineError, IsTold)
{
	const size_t piece = GetParam(), size = 4 * mib; // eight pieces of 512 KiB, by one thread
	configure(0, false);
	const CUfileHandle_t fh = register_file(library, system.program_fd(content(), O_RDWR));
	system.errors.assign(piece + 1, 0);
	system.errors.back() = -EIO;
	const int64_t n = library.router.transfer(fh, cuda.device.data(), size, 0, 0, false);
	EXPECT_EQ(n, piece < 8 ? -EIO : static_cast<int64_t>(size));
	system.errors.clear();
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), size, 0, 0, false), static_cast<int64_t>(size))
		<< "and all goes on";
	expect(0, size, 0);
}

} // namespace
