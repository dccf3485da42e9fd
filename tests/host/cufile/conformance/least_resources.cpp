// SPDX-License-Identifier: MIT
//
// The smallest configurable resources: one buffer for everything, one thread, one request a batch. Slower, but nothing
// hangs, and each I/O is done and reported once.
#include "conformance.hpp"

using namespace conformance;

namespace
{

struct Little {
	const char *name;
	std::vector<std::pair<CUFileSizeTConfigParameter_t, size_t>> sizes;
	bool pool; // one slab of 4 KiB
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

	// Each entry of the batch is reported once, however many fit into a submit.
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
				// In turn: wait for all, for one and for none.
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
	// In the order of its own stream.
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

// A userspace file system that stores its bytes in another file, which it reads and writes through cuFile.
struct Above {
	CUfileHandle_t below = nullptr;
	bool by_batch = false;
	std::atomic<int> inside{0}, wanted{0}; // calls block until `wanted` of them are inside
};

ssize_t batch_read(CUfileHandle_t fh, char *to, size_t size, off_t from)
{
	CUfileBatchHandle_t id;
	if (code(lib().cuFileBatchIOSetUp, &id, 1))
		return -EINVAL;
	CUfileIOParams_t io = {};
	io.mode = CUFILE_BATCH;
	io.fh = fh;
	io.u.batch = {to, from, 0, size};
	CUfileIOEvents_t event = {};
	// A thread that waits with a deadline does not help.
	struct timespec long_enough = {100, 0};
	unsigned n = 1;
	const bool good = !code(lib().cuFileBatchIOSubmit, id, 1, &io, 0) &&
			  !code(lib().cuFileBatchIOGetStatus, id, 1, &n, &event, &long_enough) && n == 1;
	lib().cuFileBatchIODestroy(id);
	return good ? static_cast<ssize_t>(event.ret) : -EIO;
}

Above &enter(const void *handle)
{
	auto &above = *static_cast<Above *>(const_cast<void *>(handle));
	above.inside++;
	while (above.inside < above.wanted)
		usleep(1000);
	return above;
}

ssize_t above_read(const void *handle, char *to, size_t size, off_t from, const cufileRDMAInfo_t *)
{
	const Above &above = enter(handle);
	Device own(size);
	const ssize_t n = above.by_batch ? batch_read(above.below, own.get(), size, from) :
					   told(lib().cuFileRead(above.below, own.get(), size, from, 0));
	if (n > 0)
		own.bytes(0, static_cast<size_t>(n)).copy(to, static_cast<size_t>(n));
	return n;
}

ssize_t above_write(const void *handle, const char *from, size_t size, off_t to, const cufileRDMAInfo_t *)
{
	const Above &above = enter(handle);
	Device own(size);
	own.put(std::string(from, size));
	return told(lib().cuFileWrite(above.below, own.get(), size, to, 0));
}

class Nested : public Cufile
{
protected:
	static CUfileHandle_t on(Above &above, CUfileHandle_t below)
	{
		above.below = below;
		CUfileFSOps_t ops = {};
		ops.read = above_read;
		ops.write = above_write;
		CUfileDescr_t d = descr(ops, &above);
		CUfileHandle_t fh = nullptr;
		return code(lib().cuFileHandleRegister, &fh, &d) ? nullptr : fh;
	}
	// Returns the failed checks as bits. Stacks three file systems.
	int moves(bool by_batch)
	{
		const CUfileHandle_t file = handle("below", bytes_);
		Above first, second, third;
		first.by_batch = second.by_batch = third.by_batch = by_batch;
		const CUfileHandle_t fh = on(third, on(second, on(first, file)));
		Device memory(size_);
		const auto size = static_cast<ssize_t>(size_);
		int bad = read(fh, memory.get(), 100, 7) != 100 || memory.bytes(0, 100) != bytes_.substr(7, 100);
		bad |= (read(fh, memory.get(), size_, 0) != size || memory.bytes(0, size_) != bytes_) << 1;
		memory.fill(0x77);
		bad |= (batch_read(fh, memory.get(), size_, 0) != size || memory.bytes(0, size_) != bytes_) << 2;
		const std::string other = pattern(size_, 2);
		memory.put(other);
		bad |= (write(fh, memory.get(), 100, 5, 5) != 100) << 3;
		bad |= (content("below").substr(5, 100) != other.substr(5, 100)) << 3;
		bad |= (write(fh, memory.get(), size_, 0) != size || content("below") != other) << 4;
		// Buffers beyond the pool are released: what is left is a stream, four events and an allocation.
		bad |= (fake_live() != 6) << 5;
		lib().cuFileDriverClose_v2();
		return bad;
	}

	const size_t size_ = 3 << 20;
	const std::string bytes_ = pattern(size_);
};

TEST_F(Nested, OneSlabIsEnough)
{
	for (const bool by_batch : {false, true})
		EXPECT_EQ(in_child([&] {
				  alarm(100);
				  const size_t sizes[] = {4}, counts[] = {1};
				  return code(lib().cuFileSetParameterPosixPoolSlabArray, sizes, counts, 1) ||
					 moves(by_batch);
			  }),
			  0)
			<< by_batch;
}

// As many threads as there are small bounce buffers are inside before the first continues.
TEST_F(Nested, FromMoreThreadsThanThereAreLanes)
{
	EXPECT_EQ(in_child([&] {
			  alarm(100);
			  Above above;
			  above.wanted = 32;
			  const CUfileHandle_t fh = on(above, handle("below", bytes_));
			  std::atomic<int> good{0};
			  std::vector<std::thread> threads;
			  for (int i = 0; i < 40; i++)
				  threads.emplace_back([&, i] {
					  Device memory(5000);
					  const off_t from = i * 1000;
					  good += read(fh, memory.get(), 5000, from) == 5000 &&
						  memory.bytes(0, 5000) == bytes_.substr(i * 1000, 5000);
				  });
			  for (auto &thread : threads)
				  thread.join();
			  lib().cuFileDriverClose_v2();
			  return good != 40;
		  }),
		  0);
}

} // namespace
