// SPDX-License-Identifier: MIT
// I/O of a GPU that the drive cannot reach, through another GPU that it can: when, through which one, and that the
// bytes are right.
#include <thread>

#include "cufile/platform/errors.hpp"
#include "program.hpp"

namespace
{

constexpr size_t MiB = 1 << 20;
constexpr uint32_t first = 9, own_provider = 7;

class CufilePeerGpuBounce : public ::testing::Test, protected Fakes
{
protected:
	CufilePeerGpuBounce()
	{
		peerdma.file = bytes;
		peerdma.buffer.assign(8 * MiB, 'b');
		peerdma.refused_by[own_provider] = PEERDMA_REASON_DISTANCE;
		peerdma.pin_error = 0;
		cuda.present = true;
		cuda.also = &peerdma.buffer;
		cuda.nr_devices = 2;
		route(R"("rdma_dynamic_routing": true)");
		fd = system.program_fd(bytes, O_RDWR);
	}
	~CufilePeerGpuBounce() override
	{
		close_all(library);
		EXPECT_TRUE(peerdma.pinned.empty()) << "bounce memory stays registered";
		EXPECT_TRUE(cuda.allocated.empty()) << "bounce memory leaked";
		EXPECT_EQ(peerdma.open_files, 0) << "a file of libpeerdma's leaked";
	}
	void route(const std::string &keys) { system.texts["/etc/cufile.json"] = "{\"properties\": {" + keys + "}}"; }
	CUfileHandle_t file()
	{
		if (!fh)
			fh = register_file(library, fd);
		return fh;
	}
	int64_t read(size_t size, off_t from = 0, off_t to = 0)
	{
		peerdma.buffer.assign(peerdma.buffer.size(), 'x');
		return library.router.transfer(file(), peerdma.buffer.data(), size, from, to, false);
	}
	// The bytes arrived, and nothing around them changed.
	bool came(size_t size, size_t from = 0, size_t to = 0)
	{
		const std::string &all = peerdma.buffer;
		return !bytes.compare(from, size, all, to, size) && all.find_first_not_of('x') >= to &&
		       all.find_first_not_of('x', to + size) == std::string::npos;
	}
	uint32_t way()
	{
		peerdma_cufile_route route = {};
		EXPECT_EQ(library.router.explain(file(), peerdma.buffer.data(), 4096, 0, 0, route), 0);
		return route.route;
	}
	uint64_t near()
	{
		peerdma_cufile_counts counts = {};
		library.router.accounting().counts(counts);
		return counts.near_bytes;
	}
	// The GPU with the bounce memory, after some I/O.
	int peer_gpu()
	{
		std::vector<int> used;
		for (const auto &[memory, device] : cuda.allocated)
			if (memory->find_first_not_of('r') != std::string::npos)
				used.push_back(device);
		return used.size() == 1 ? used[0] : -1;
	}

	const std::string bytes = some_bytes(7 * MiB + 1234);
	CUfileHandle_t fh = nullptr;
	int fd = -1;
};

TEST_F(CufilePeerGpuBounce, ReadsOfEachSizeAndPlace)
{
	const struct {
		size_t size, from, to;
	} cases[] = {{4096, 0, 0},
		     {512, 512, 4096},
		     {1, 3, 5},
		     {2 * MiB, 0, 0},
		     {2 * MiB, 4096, 0},
		     {2 * MiB - 1, 1, 7},
		     {5 * MiB, MiB, 12345},
		     {7 * MiB, 1001, 1},
		     {65536, 2 * MiB - 4096, 0},
		     {2 * MiB + 1, 2 * MiB - 1, 0}};
	uint64_t total = 0;
	for (const auto &io : cases) {
		EXPECT_EQ(read(io.size, static_cast<off_t>(io.from), static_cast<off_t>(io.to)),
			  static_cast<int64_t>(io.size));
		EXPECT_TRUE(came(io.size, io.from, io.to)) << io.size << " at " << io.from << " to " << io.to;
		total += io.size;
	}
	EXPECT_EQ(near(), total);
	EXPECT_EQ(way(), static_cast<uint32_t>(PEERDMA_ROUTE_NEAR));
	EXPECT_EQ(cuda.pinned, 0) << "host memory was taken";
	for (const auto &read : peerdma.reads)
		EXPECT_EQ(read.buf_off % 512, read.offset % 512) << "the drive cannot put it there";
}

// cudaDeviceReset() frees the peer GPU's memory. A later allocation at that address is neither used nor freed.
TEST_F(CufilePeerGpuBounce, OneWhoseMemoryIsGone)
{
	EXPECT_EQ(read(4096), 4096);
	EXPECT_TRUE(came(4096));
	const auto others = std::exchange(cuda.allocated, {});
	ASSERT_FALSE(others.empty());
	std::vector<std::string> before;
	for (const auto &[memory, device] : others)
		before.push_back(*memory);
	EXPECT_EQ(read(4096, 8192), 4096);
	EXPECT_TRUE(came(4096, 8192));
	EXPECT_EQ(near(), 8192u) << "by a new one";
	EXPECT_EQ(cuda.allocated.size(), others.size());
	for (size_t i = 0; i < others.size(); i++)
		EXPECT_TRUE(*others[i].first == before[i]) << "it was written to";
}

TEST_F(CufilePeerGpuBounce, TheProgramClosesTheDevice)
{
	EXPECT_EQ(read(4096), 4096);
	peerdma.close_device();
	EXPECT_EQ(read(4096, 8192), 4096);
	EXPECT_TRUE(came(4096, 8192));
	EXPECT_EQ(near(), 8192u) << "by a new one";
}

TEST_F(CufilePeerGpuBounce, TheEndOfTheFile)
{
	const size_t rest = bytes.size() - 5 * MiB;
	EXPECT_EQ(read(3 * MiB, 5 * MiB), static_cast<int64_t>(rest));
	EXPECT_TRUE(came(rest, 5 * MiB));
	EXPECT_EQ(read(4096, static_cast<off_t>(bytes.size())), 0);
	EXPECT_TRUE(came(0));
}

TEST_F(CufilePeerGpuBounce, WritesOfEachSizeAndPlace)
{
	const struct {
		size_t size, at, from;
	} cases[] = {{4096, 0, 0}, {5 * MiB, 4096, 512}, {2 * MiB, 2 * MiB, 0}, {3 * MiB + 512, 2 * MiB - 512, 0}};
	for (const auto &io : cases) {
		peerdma.buffer = some_bytes(8 * MiB);
		std::string want = peerdma.file;
		want.replace(io.at, io.size, peerdma.buffer, io.from, io.size);
		EXPECT_EQ(library.router.transfer(file(), peerdma.buffer.data(), io.size, static_cast<off_t>(io.at),
						  static_cast<off_t>(io.from), true),
			  static_cast<int64_t>(io.size));
		EXPECT_TRUE(peerdma.file == want) << io.size << " at " << io.at;
	}
}

TEST_F(CufilePeerGpuBounce, MoreAtATimeThanThereIsRoomFor)
{
	constexpr size_t size = 256 * 1024;
	std::vector<std::thread> threads;
	std::atomic<unsigned> good{0};
	file();
	for (size_t i = 0; i < 24; i++)
		threads.emplace_back([&, i] {
			for (size_t j = 0; j < 8; j++)
				good += library.router.transfer(fh, peerdma.buffer.data(), size,
								static_cast<off_t>(i * size),
								static_cast<off_t>(i * size), false) == size;
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 24u * 8);
	EXPECT_EQ(bytes.compare(0, 24 * size, peerdma.buffer, 0, 24 * size), 0);
}

TEST_F(CufilePeerGpuBounce, Batches)
{
	CUfileBatchHandle_t batch = nullptr;
	ASSERT_EQ(library.create_batch(&batch, 4).err, 0);
	peerdma.buffer.assign(peerdma.buffer.size(), 'x');
	CUfileIOParams_t ios[4];
	CUfileIOEvents_t events[4];
	for (int i = 0; i < 4; i++)
		ios[i] = batch_io(file(), peerdma.buffer.data(), MiB, i * static_cast<off_t>(MiB),
				  i * static_cast<off_t>(MiB));
	ASSERT_EQ(library.batches.submit(batch, 4, ios).err, 0);
	unsigned nr = 4;
	ASSERT_EQ(library.batches.status(batch, 4, &nr, events, nullptr).err, 0);
	EXPECT_TRUE(came(4 * MiB));
	EXPECT_EQ(near(), 4 * MiB);
	library.batches.destroy(batch);
}

TEST_F(CufilePeerGpuBounce, OnlyWhereItIsAskedFor)
{
	const struct {
		const char *keys;
		bool near;
	} cases[] = {{R"("rdma_dynamic_routing": true)", true},
		     {R"("rdma_dynamic_routing": false)", false},
		     {R"("io_batchsize": 64)", false},
		     {R"("rdma_dynamic_routing": true, "rdma_dynamic_routing_order": ["GPU_MEM", "SYS_MEM"])", true},
		     {R"("rdma_dynamic_routing": true, "rdma_dynamic_routing_order": ["SYS_MEM", "GPU_MEM"])", false},
		     {R"("rdma_dynamic_routing": true, "rdma_dynamic_routing_order": ["P2P"])", false},
		     {R"("rdma_dynamic_routing": true, "rdma_dynamic_routing_order": "GPU_MEM")", true},
		     {R"("rdma_dynamic_routing": true, "rdma_dynamic_routing_order": "sys_mem")", false}};
	for (const auto &one : cases) {
		close_all(library);
		fh = nullptr;
		route(one.keys);
		const uint64_t before = near();
		EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
		EXPECT_TRUE(came(MiB)) << one.keys;
		EXPECT_EQ(near() - before, one.near ? MiB : 0) << one.keys;
		EXPECT_EQ(way(), static_cast<uint32_t>(one.near ? PEERDMA_ROUTE_NEAR : PEERDMA_ROUTE_HOST)) << one.keys;
	}
}

TEST_F(CufilePeerGpuBounce, ByRulesThenDistanceThenItsOwnDevice)
{
	peerdma.one_each = true; // provider 9 is the first device's, 10 the second's
	const struct {
		int distances[2];
		uint32_t prefers;
		int peer_gpu;
	} cases[] = {{{4, 8}, 0, 0}, {{8, 4}, 0, 1}, {{4, 4}, 0, 0}, {{4, 8}, first + 1, 1}, {{8, 4}, 99, 1}};
	for (const auto &one : cases) {
		close_all(library);
		fh = nullptr;
		peerdma.next_provider = first;
		peerdma.distances = {{first, one.distances[0]}, {first + 1, one.distances[1]}};
		peerdma.prefers = one.prefers;
		EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
		EXPECT_EQ(peer_gpu(), one.peer_gpu)
			<< one.distances[0] << ' ' << one.distances[1] << ' ' << one.prefers;
	}
	// Of two equally distant GPUs, neither of them its own: the one of its NUMA node.
	cuda.nr_devices = 3;
	cuda.apiece = true;
	peerdma.prefers = 0;
	peerdma.refused_by[first] = PEERDMA_REASON_DISTANCE;
	peerdma.distances = {{first + 1, 4}, {first + 2, 4}};
	for (int same : {1, 2}) {
		close_all(library);
		fh = nullptr;
		peerdma.next_provider = first;
		for (int device = 0; device < 3; device++)
			system.texts[std::string("/sys/bus/pci/devices/0000:0") + static_cast<char>('a' + device) +
				     ":00.0/numa_node"] = device == 0 || device == same ? "1\n" : "0\n";
		EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
		EXPECT_EQ(peer_gpu(), same) << "on the node of the memory's device";
	}
}

TEST_F(CufilePeerGpuBounce, WhereNoneIsPossible)
{
	const auto bounces = [&](const char *why) {
		EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB)) << why;
		EXPECT_TRUE(came(MiB)) << why;
		EXPECT_EQ(near(), 0u) << why;
		EXPECT_EQ(way(), static_cast<uint32_t>(PEERDMA_ROUTE_HOST)) << why;
		close_all(library);
		fh = nullptr;
	};
	peerdma.refused_by[first] = PEERDMA_REASON_DISTANCE;
	bounces("the drive reaches no GPU");
	peerdma.refused_by[first] = PEERDMA_REASON_RULE;
	bounces("a rule denies it");
	peerdma.refused_by.erase(first);
	peerdma.pin_error = -ENOMEM;
	bounces("the kernel does not take the memory");
	peerdma.pin_error = 0;
	cuda.alloc_error = CUDA_ERROR_OUT_OF_MEMORY;
	bounces("the GPU has no memory");
	cuda.alloc_error = 0;
	cuda.primary_error = CUDA_ERROR_UNKNOWN;
	bounces("it has no context");
	cuda.primary_error = 0;
	system.variables["CUFILE_FORCE_COMPAT_MODE"] = "true";
	bounces("nothing is to go directly");
	system.variables.clear();
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_EQ(near(), MiB) << "and without all that it is";
}

// After a shortage the file can get a peer GPU later.
TEST_F(CufilePeerGpuBounce, AShortageIsNotRemembered)
{
	const auto bounces = [&](uint64_t before) {
		EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
		EXPECT_TRUE(came(MiB));
		EXPECT_EQ(near(), before);
	};
	cuda.alloc_error = CUDA_ERROR_OUT_OF_MEMORY;
	bounces(0);
	cuda.alloc_error = 0;
	bounces(0); // not yet
	system.now += 10'000'000;
	peerdma.pin_error = -EMFILE;
	bounces(0);
	EXPECT_TRUE(cuda.allocated.empty()) << "what was made of it is kept";
	peerdma.pin_error = 0;
	system.now += 20'000'000;
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_TRUE(came(MiB));
	EXPECT_EQ(near(), MiB);
}

// If the driver cannot identify the second allocation, that one is freed as well.
TEST_F(CufilePeerGpuBounce, TheSecondThatCannotBeMade)
{
	peerdma.pin_error = -EMFILE;
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	ASSERT_TRUE(cuda.allocated.empty());
	system.now += 20'000'000;
	cuda.no_ids_of_allocated = true;
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_EQ(near(), 0u);
	EXPECT_TRUE(cuda.allocated.empty());
}

TEST_F(CufilePeerGpuBounce, ARefusalThatMayPassIsNotRemembered)
{
	peerdma.refused_by[first] = PEERDMA_REASON_MAPPING;
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_EQ(near(), 0u);
	peerdma.refused_by.erase(first);
	system.now += 2'000'000'000;
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_TRUE(came(MiB));
	EXPECT_EQ(near(), MiB);
}

TEST_F(CufilePeerGpuBounce, NotByAGpuThatDoesNotReachTheOther)
{
	cuda.apart = true;
	peerdma.one_each = true;
	peerdma.refused_by[first] = PEERDMA_REASON_DISTANCE; // of the memory's own provider
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_EQ(near(), 0u);
}

TEST_F(CufilePeerGpuBounce, WhoWantsAllToGoDirectlyGetsAnError)
{
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	EXPECT_EQ(read(MiB), cufile::failed(CU_FILE_IO_NOT_SUPPORTED));
	EXPECT_EQ(near(), 0u);
}

TEST_F(CufilePeerGpuBounce, TheKernelTakesItBack)
{
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_EQ(near(), MiB);
	peerdma.lost.insert(first);
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	EXPECT_TRUE(came(MiB));
	EXPECT_EQ(near(), MiB) << "by way of the host";
}

TEST_F(CufilePeerGpuBounce, TheGpusCopyFails)
{
	EXPECT_EQ(read(MiB), static_cast<int64_t>(MiB));
	for (const int after : {0, 1, 2, 3}) {
		cuda.calls_until_error = after;
		EXPECT_EQ(read(5 * MiB), -EIO) << after;
		cuda.calls_until_error = -1;
	}
	EXPECT_EQ(read(5 * MiB), static_cast<int64_t>(5 * MiB));
	EXPECT_TRUE(came(5 * MiB));
}

} // namespace
