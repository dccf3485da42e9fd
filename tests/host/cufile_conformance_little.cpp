// SPDX-License-Identifier: MIT
//
// As little of everything as can be configured: one lane for all, one thread, one request a batch. Slower, but nothing
// hangs, and each I/O is done and told once.
#include "cufile_conformance.hpp"

using namespace conformance;

namespace
{

struct Little {
	const char *name;
	std::vector<std::pair<CUFileSizeTConfigParameter_t, size_t>> sizes;
	bool pool; // of one slab of 4 KiB
};

class Scarcity : public Cufile, public ::testing::WithParamInterface<Little>
{
protected:
	Scarcity()
	{
		const Little &little = GetParam();
		for (const auto &[param, value] : little.sizes) {
			size_t old = 0;
			EXPECT_EQ(code(lib().cuFileGetParameterSizeT, param, &old), 0);
			EXPECT_EQ(code(lib().cuFileSetParameterSizeT, param, value), 0);
			old_.emplace_back(param, old);
		}
		const size_t one[] = {4}, count[] = {1};
		if (little.pool) {
			EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, one, count, 1), 0);
		}
		const std::string name = has_direct() ? "direct" : "cached";
		cached_ = handle("f", bytes_);
		direct_ = handle(name, bytes_, name == "direct" ? O_RDWR | O_DIRECT : O_RDWR);
		size_t most = 0;
		lib().cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &most);
		batch_ = static_cast<unsigned>(std::min<size_t>(most, 24));
	}
	~Scarcity() override
	{
		lib().cuFileDriverClose_v2();
		const size_t sizes[] = {4, 1024, 16384}, counts[] = {128, 64, 64};
		EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, sizes, counts, 3), 0);
		for (const auto &[param, value] : old_)
			EXPECT_EQ(code(lib().cuFileSetParameterSizeT, param, value), 0);
	}

	// Each of the batch once, however many fit into a submit.
	bool batch(Device &memory, unsigned count, size_t size, unsigned seed)
	{
		CUfileBatchHandle_t id = nullptr;
		if (code(lib().cuFileBatchIOSetUp, &id, batch_))
			return false;
		std::vector<unsigned> told(count);
		bool good = true;
		for (unsigned done = 0; good && done < count;) {
			const unsigned some = std::min(batch_, count - done);
			std::vector<CUfileIOParams_t> ios(some);
			for (unsigned i = 0; i < some; i++) {
				const unsigned which = done + i;
				ios[i].mode = CUFILE_BATCH;
				ios[i].fh = which % 2 ? direct_ : cached_;
				ios[i].cookie = reinterpret_cast<void *>(uintptr_t{which});
				ios[i].u.batch = {memory.get(), static_cast<off_t>(which * 4096 + seed * 8192),
						  static_cast<off_t>(which * size), size};
			}
			good = !code(lib().cuFileBatchIOSubmit, id, some, ios.data(), 0);
			for (unsigned seen = 0; good && seen < some;) {
				CUfileIOEvents_t events[24];
				unsigned n = some - seen;
				// By turns: for all of them, for one, and for none.
				const unsigned least = seed % 3 == 0 ? n : seed % 3 == 1 ? 1 : 0;
				good = !code(lib().cuFileBatchIOGetStatus, id, least, &n, events, nullptr);
				for (unsigned i = 0; good && i < n; i++) {
					told[reinterpret_cast<uintptr_t>(events[i].cookie)]++;
					good = events[i].status == CUFILE_COMPLETE && events[i].ret == size;
				}
				seen += n;
			}
			done += some;
		}
		lib().cuFileBatchIODestroy(id);
		for (unsigned i = 0; i < count; i++)
			good = good && told[i] == 1 &&
			       memory.bytes(i * size, size) == bytes_.substr(i * 4096 + seed * 8192, size);
		return good;
	}
	// In the order of a stream of its own.
	bool stream(Device &memory, int device, unsigned seed)
	{
		void *const on = fake_stream(device);
		constexpr unsigned count = 8;
		constexpr size_t part = 100000;
		size_t size = part;
		off_t from[count], to[count];
		ssize_t got[count];
		bool good = true;
		for (unsigned i = 0; i < count; i++) {
			from[i] = i * 5000 + seed;
			to[i] = static_cast<off_t>(i * part);
			got[i] = -4711;
			good = good && !lib().cuFileReadAsync(i % 2 ? direct_ : cached_, memory.get(), &size, &from[i],
							      &to[i], &got[i], static_cast<CUstream>(on))
						.err;
		}
		fake_sync(on);
		fake_stream_destroy(on);
		for (unsigned i = 0; i < count; i++)
			good = good && got[i] == static_cast<ssize_t>(part) &&
			       memory.bytes(i * part, part) == bytes_.substr(i * 5000 + seed, part);
		return good;
	}
	bool call(Device &memory, unsigned seed)
	{
		const size_t size = 2500000;
		memory.fill(0x77);
		return read(seed % 2 ? direct_ : cached_, memory.get(), size, seed * 512) ==
			       static_cast<ssize_t>(size) &&
		       memory.bytes(0, size) == bytes_.substr(seed * 512, size);
	}

	const std::string bytes_ = pattern(3 << 20);
	std::vector<std::pair<CUFileSizeTConfigParameter_t, size_t>> old_;
	CUfileHandle_t cached_, direct_;
	unsigned batch_;
};

const std::vector<std::pair<CUFileSizeTConfigParameter_t, size_t>> least_of_all = {
	{CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 1},
	{CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 0},
	{CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM, 0},
	{CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, 64},
	{CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, 0},
	{CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB, 0},
	{CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, 0},
	{CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 1},
	{CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS, 1},
};
INSTANTIATE_TEST_SUITE_P(Of, Scarcity,
			 ::testing::Values(Little{"memory", {}, true},
					   Little{"threads", {{CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 0}}, false},
					   Little{"one_thread", {{CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 1}}, true},
					   Little{"depth", {{CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH, 1}}, false},
					   Little{"a_batch", {{CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 1}}, true},
					   Little{"everything", least_of_all, true}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(Scarcity, EightThreadsOfAllKinds)
{
	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (unsigned t = 0; t < 8; t++)
		threads.emplace_back([&, t] {
			const int device = t % 2;
			Device memory(2500000, device);
			for (unsigned round = 0; round < 2; round++) {
				good += batch(memory, 12, 70000, t + round);
				good += stream(memory, device, t);
				good += call(memory, t);
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 8 * 2 * 3);
}

TEST_P(Scarcity, NoMoreThanOneLaneOfAPoolOfOneSlab)
{
	Device memory(2500000);
	EXPECT_TRUE(call(memory, 0));
	EXPECT_TRUE(call(memory, 1));
	EXPECT_TRUE(batch(memory, 24, 70000, 0));
	if (GetParam().pool) {
		EXPECT_EQ(fake_live(), 6) << "a stream, four events, one allocation";
	}
}

} // namespace
