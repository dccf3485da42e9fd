// SPDX-License-Identifier: MIT
//
// Non-primary contexts, several contexts of one device, and several devices. Each I/O runs in the context that owns its
// memory, on whatever thread. The stand-in counts calls in another context.
#include <cuda.h>

#include "conformance.hpp"

using namespace conformance;

namespace
{

// Memory of its own context or of a device's primary one.
class Owned
{
public:
	Owned(int device, bool own, size_t n) : size(n), own_(own)
	{
		CUcontext before = nullptr;
		cuCtxGetCurrent(&before);
		EXPECT_EQ(own ? cuCtxCreate(&context, 0, device) : cuDevicePrimaryCtxRetain(&context, device), 0);
		cuCtxSetCurrent(context);
		CUdeviceptr at = 0;
		EXPECT_EQ(cuMemAlloc(&at, size), 0);
		EXPECT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
		memory = reinterpret_cast<char *>(at);
		fill();
		cuCtxSetCurrent(before);
	}
	~Owned()
	{
		if (!context)
			return;
		cuCtxPushCurrent(context);
		cuStreamDestroy(stream);
		cuMemFree(reinterpret_cast<CUdeviceptr>(memory));
		CUcontext same;
		cuCtxPopCurrent(&same);
		end();
	}
	Owned(const Owned &) = delete;
	Owned &operator=(const Owned &) = delete;

	// Destroys the context with everything in it.
	void end()
	{
		if (own_ && context)
			cuCtxDestroy(context);
		context = nullptr;
	}
	void fill() const { std::memset(fake_peek(memory), 0x77, size); }
	std::string bytes(size_t at, size_t n) const { return std::string(fake_peek(memory) + at, n); }

	const size_t size;
	char *memory = nullptr;
	CUcontext context = nullptr;
	CUstream stream = nullptr;

private:
	const bool own_;
};

constexpr size_t size = 3 << 20;

struct Where {
	int device;
	bool own;    // its own context, otherwise the primary one
	int current; // the device whose primary context is current to the calling thread; -1: none
};

class Contexts : public Cufile, public ::testing::WithParamInterface<Where>
{
protected:
	Contexts() : bytes_(pattern(size)), there_(GetParam().device, GetParam().own, size)
	{
		fh_ = handle("f", bytes_);
		fake_set_current(GetParam().current);
		cuCtxGetCurrent(&before_);
	}
	~Contexts() override
	{
		CUcontext after = nullptr;
		cuCtxGetCurrent(&after);
		EXPECT_EQ(after, before_) << "the thread's context is another one";
		lib().cuFileDriverClose_v2();
	}

	const std::string bytes_;
	Owned there_;
	CUfileHandle_t fh_;
	CUcontext before_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(, Contexts,
			 ::testing::Values(Where{0, true, 0}, Where{0, true, -1}, Where{0, true, 1}, Where{1, true, 0},
					   Where{1, true, 1}, Where{1, false, 0}, Where{1, false, 1},
					   Where{1, false, -1}),
			 [](const auto &one) {
				 const Where &where = one.param;
				 return std::string(where.own ? "Own" : "Primary") + std::to_string(where.device) +
					"From" + (where.current < 0 ? "None" : std::to_string(where.current));
			 });

TEST_P(Contexts, ReadsAndWrites)
{
	for (const bool registered : {false, true}) {
		if (registered) {
			ASSERT_EQ(code(lib().cuFileBufRegister, there_.memory, size, 0), 0);
		}
		for (const size_t n : {size_t{100}, size_t{70000}, size - 100}) {
			there_.fill();
			EXPECT_EQ(read(fh_, there_.memory, n, 5, 50), static_cast<ssize_t>(n));
			EXPECT_TRUE(there_.bytes(50, n) == bytes_.substr(5, n)) << n;
			EXPECT_EQ(there_.bytes(0, 50), std::string(50, 0x77));
			EXPECT_EQ(write(fh_, there_.memory, n, static_cast<off_t>(size), 50), static_cast<ssize_t>(n));
			EXPECT_TRUE(content("f").substr(size, n) == bytes_.substr(5, n)) << n;
		}
	}
}

TEST_P(Contexts, Batches)
{
	constexpr unsigned count = 24;
	constexpr size_t part = size / count;
	CUfileBatchHandle_t id = nullptr;
	ASSERT_EQ(code(lib().cuFileBatchIOSetUp, &id, count), 0);
	for (const auto opcode : {CUFILE_READ, CUFILE_WRITE}) {
		std::vector<CUfileIOParams_t> ios(count);
		for (unsigned i = 0; i < count; i++) {
			ios[i].mode = CUFILE_BATCH;
			ios[i].fh = fh_;
			ios[i].opcode = opcode;
			ios[i].u.batch = {there_.memory, static_cast<off_t>(i * part + (opcode ? size : 0)),
					  static_cast<off_t>(i * part), part};
		}
		ASSERT_EQ(code(lib().cuFileBatchIOSubmit, id, count, ios.data(), 0), 0);
		CUfileIOEvents_t events[count];
		unsigned n = count;
		ASSERT_EQ(code(lib().cuFileBatchIOGetStatus, id, count, &n, events, nullptr), 0);
		ASSERT_EQ(n, count);
		for (const auto &event : events)
			EXPECT_TRUE(event.status == CUFILE_COMPLETE && event.ret == part);
	}
	EXPECT_TRUE(there_.bytes(0, count * part) == bytes_.substr(0, count * part));
	EXPECT_TRUE(content("f").substr(size) == bytes_.substr(0, count * part));
	lib().cuFileBatchIODestroy(id);
}

TEST_P(Contexts, Streams)
{
	size_t n = 2000000;
	off_t from = 9, to = 100, behind = size;
	ssize_t got = -2, put = -2;
	EXPECT_EQ(lib().cuFileReadAsync(fh_, there_.memory, &n, &from, &to, &got, there_.stream).err, 0);
	EXPECT_EQ(lib().cuFileWriteAsync(fh_, there_.memory, &n, &behind, &to, &put, there_.stream).err, 0);
	fake_sync(there_.stream);
	EXPECT_EQ(got, 2000000);
	EXPECT_EQ(put, 2000000);
	EXPECT_TRUE(there_.bytes(100, n) == bytes_.substr(9, n));
	EXPECT_TRUE(content("f").substr(size) == bytes_.substr(9, n));
}

// Two contexts of one device and the primary contexts of both devices: in one batch, in one vector, and from separate
// threads.
TEST_F(Cufile, ManyContextsAtOnce)
{
	const std::string bytes = pattern(size);
	const CUfileHandle_t fh = handle("f", bytes);
	Owned all[] = {{0, true, size}, {0, true, size}, {0, false, size}, {1, true, size}, {1, false, size}};
	constexpr unsigned count = 60;
	std::vector<CUfileIOParams_t> ios(count);
	for (unsigned i = 0; i < count; i++) {
		ios[i].mode = CUFILE_BATCH;
		ios[i].fh = fh;
		ios[i].u.batch = {all[i % 5].memory, static_cast<off_t>(i * 1000), static_cast<off_t>(i / 5 * 60000),
				  50000 + i};
	}
	CUfileBatchHandle_t id = nullptr;
	ASSERT_EQ(code(lib().cuFileBatchIOSetUp, &id, count), 0);
	ASSERT_EQ(code(lib().cuFileBatchIOSubmit, id, count, ios.data(), 0), 0);
	CUfileIOEvents_t events[count];
	unsigned n = count;
	ASSERT_EQ(code(lib().cuFileBatchIOGetStatus, id, count, &n, events, nullptr), 0);
	for (unsigned i = 0; i < count; i++)
		EXPECT_TRUE(all[i % 5].bytes(i / 5 * 60000, 50000 + i) == bytes.substr(i * 1000, 50000 + i)) << i;
	lib().cuFileBatchIODestroy(id);

	const CUfileIOVec_t vector[] = {{all[0].memory, 500000}, {all[1].memory, 500001}, {all[3].memory, 70000}};
	EXPECT_EQ(told(lib().cuFileReadv(fh, vector, 3, 11, 0)), 1070001);
	EXPECT_TRUE(all[0].bytes(0, 500000) + all[1].bytes(0, 500001) + all[3].bytes(0, 70000) ==
		    bytes.substr(11, 1070001));

	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (const Owned &one : all)
		threads.emplace_back([&] {
			for (int i = 0; i < 4; i++) {
				one.fill();
				good += read(fh, one.memory, size - 7, 7) == static_cast<ssize_t>(size - 7) &&
					one.bytes(0, size - 7) == bytes.substr(7);
			}
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 20);
	lib().cuFileDriverClose_v2();
}

// The context's memory and the library's streams in it go too. I/O to memory registered there fails; everything else
// continues, even with a minimal pool.
TEST_F(Cufile, AContextThatIsDestroyed)
{
	const size_t one[] = {4}, many_sizes[] = {4, 1024, 16384}, many[] = {128, 64, 64};
	const std::string bytes = pattern(size);
	for (const bool little : {true, false}) {
		EXPECT_EQ(code(lib().cuFileSetParameterPosixPoolSlabArray, little ? one : many_sizes,
			       little ? one : many, little ? 1 : 3),
			  0);
		const CUfileHandle_t fh = handle("f", bytes);
		Device primary(size);
		for (int round = 0; round < 3; round++) {
			Owned gone(0, true, size);
			ASSERT_EQ(code(lib().cuFileBufRegister, gone.memory, size, 0), 0);
			EXPECT_EQ(read(fh, gone.memory, size, 0), static_cast<ssize_t>(size));
			gone.end();
			EXPECT_EQ(read(fh, gone.memory, 4096, 0), -EIO);
			EXPECT_EQ(read(fh, gone.memory, size, 0), -EIO);
			EXPECT_EQ(code(lib().cuFileBufDeregister, gone.memory), 0);
			primary.fill(0x77);
			EXPECT_EQ(read(fh, primary.get(), size, 0), static_cast<ssize_t>(size));
			EXPECT_TRUE(primary.bytes(0, size) == bytes);
			EXPECT_EQ(read(fh, primary.get(), 4096, 0), 4096);
		}
		lib().cuFileDriverClose_v2();
	}
}

// The driver reuses the address of a destroyed context. The library's resources in the old one are gone.
TEST_F(Cufile, AContextWhereTheLastOneWas)
{
	const std::string bytes = pattern(size);
	const CUfileHandle_t fh = handle("f", bytes);
	CUcontext last = nullptr;
	for (int round = 0; round < 4; round++) {
		Owned one(round % 2, true, size);
		if (last) {
			ASSERT_EQ(one.context, last) << "otherwise this shows nothing";
		}
		last = one.context;
		// Through a small buffer, large buffers and a staging buffer.
		for (const size_t n : {size_t{4096}, size}) {
			one.fill();
			EXPECT_EQ(read(fh, one.memory, n, 0), static_cast<ssize_t>(n));
			EXPECT_TRUE(one.bytes(0, n) == bytes.substr(0, n)) << round;
		}
		size_t n = 2000000;
		off_t from = 9, to = 100;
		ssize_t got = -2;
		EXPECT_EQ(lib().cuFileReadAsync(fh, one.memory, &n, &from, &to, &got, one.stream).err, 0);
		fake_sync(one.stream);
		EXPECT_EQ(got, 2000000);
		EXPECT_TRUE(one.bytes(100, n) == bytes.substr(9, n)) << round;
		one.end();
	}
	lib().cuFileDriverClose_v2();
}

} // namespace
