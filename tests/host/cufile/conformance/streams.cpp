// SPDX-License-Identifier: MIT
//
// Streams without a handle of their own: the default stream by both its names, and the per-thread default stream.
#include <cuda.h>

#include "conformance.hpp"

using namespace conformance;

namespace
{

struct Named {
	const char *name;
	CUstream stream;
};

class NamedStreams : public Streams, public ::testing::WithParamInterface<Named>
{
protected:
	~NamedStreams() override { fake_sync(on_); }
	CUstream const on_ = GetParam().stream;
};
INSTANTIATE_TEST_SUITE_P(, NamedStreams,
			 ::testing::Values(Named{"Default", nullptr}, Named{"Legacy", CU_STREAM_LEGACY},
					   Named{"PerThread", CU_STREAM_PER_THREAD}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(NamedStreams, InTheirOrder)
{
	Hold hold(on_);
	ssize_t first = -4711, put = -4711;
	size_t most = 900000;
	off_t zero = 0, behind = 1 << 20;
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, memory_.get(), &most, &zero, &zero, &first, on_), 0);
	EXPECT_EQ(code(lib().cuFileWriteAsync, fh_, memory_.get(), &most, &behind, &zero, &put, on_), 0);
	EXPECT_EQ(read_async(on_), 0);
	size_ = 50;
	file_ = 7;
	at_ = 9;
	EXPECT_TRUE(memory_.untouched(0, 1 << 20)) << "nothing happens before its time";
	EXPECT_EQ(result_, 4711);
	hold.go = true;
	fake_sync(on_);
	EXPECT_EQ(first, 900000);
	EXPECT_EQ(put, 900000);
	EXPECT_EQ(result_, 50);
	EXPECT_EQ(memory_.bytes(9, 50), bytes_.substr(7, 50));
	EXPECT_TRUE(memory_.bytes(59, 899941) == bytes_.substr(59, 899941));
	EXPECT_TRUE(content("f") == bytes_ + bytes_.substr(0, 900000)) << "what was read before";
}

TEST_P(NamedStreams, WhatIsWrong)
{
	ASSERT_EQ(code(lib().cuFileBufRegister, memory_.get(), 4096, 0), 0);
	size_ = 5000;
	EXPECT_EQ(result_of_read(on_), -5016);
	size_ = 10;
	file_ = -1;
	EXPECT_EQ(result_of_read(on_), -5022);
	EXPECT_EQ(code(lib().cuFileStreamDeregister, on_), 5022) << "it was never registered";
	EXPECT_EQ(code(lib().cuFileStreamRegister, on_, 16), 0);
	EXPECT_EQ(code(lib().cuFileStreamRegister, on_, 0), 5022) << "it is registered already";
	EXPECT_EQ(code(lib().cuFileStreamDeregister, on_), 0);
}

// Tests whether arguments are read at submission: each I/O runs later, after the variables have changed.
class Registered : public Streams
{
protected:
	bool is_fixed(CUstream on)
	{
		size_ = 1000;
		result_ = 4711;
		Hold hold(on);
		EXPECT_EQ(read_async(on), 0);
		size_ = 50;
		hold.go = true;
		fake_sync(on);
		EXPECT_TRUE(result_ == 1000 || result_ == 50) << result_;
		return result_ == 1000;
	}
	static int promise(CUstream on) { return code(lib().cuFileStreamRegister, on, 7); }
	static int take_back(CUstream on) { return code(lib().cuFileStreamDeregister, on); }
};

TEST_F(Registered, OneByItself)
{
	CUstream const all[] = {nullptr, CU_STREAM_PER_THREAD, static_cast<CUstream>(stream_)};
	for (CUstream one : all) {
		ASSERT_EQ(promise(one), 0);
		for (CUstream other : all)
			EXPECT_EQ(is_fixed(other), other == one) << one << ' ' << other;
		ASSERT_EQ(take_back(one), 0);
		EXPECT_FALSE(is_fixed(one));
	}
}

// A registration of the default stream holds for both its names.
TEST_F(Registered, TheDefaultStreamHasTwoNames)
{
	for (CUstream name : {CUstream{nullptr}, CU_STREAM_LEGACY}) {
		CUstream const other = name ? nullptr : CU_STREAM_LEGACY;
		ASSERT_EQ(promise(name), 0);
		EXPECT_TRUE(is_fixed(name));
		EXPECT_TRUE(is_fixed(other));
		ASSERT_EQ(take_back(other), 0);
		EXPECT_FALSE(is_fixed(name));
	}
}

// A registration of one thread's default stream does not apply to another thread's stream of the same name.
TEST_F(Registered, EachThreadHasAStreamOfItsOwn)
{
	ASSERT_EQ(promise(CU_STREAM_PER_THREAD), 0);
	std::thread([&] {
		fake_set_current(0);
		EXPECT_FALSE(is_fixed(CU_STREAM_PER_THREAD)) << "another one's";
		EXPECT_EQ(take_back(CU_STREAM_PER_THREAD), 5022) << "which it cannot take back either";
		EXPECT_EQ(promise(CU_STREAM_PER_THREAD), 0);
		EXPECT_TRUE(is_fixed(CU_STREAM_PER_THREAD));
		EXPECT_EQ(take_back(CU_STREAM_PER_THREAD), 0);
		EXPECT_FALSE(is_fixed(CU_STREAM_PER_THREAD));
	}).join();
	EXPECT_TRUE(is_fixed(CU_STREAM_PER_THREAD)) << "what another one takes back is its own";
}

// A stream that was destroyed without being deregistered. The next stream has its address but not its flags.
TEST_F(Registered, WhatIsPromisedGoesWithTheStream)
{
	for (const bool other_context : {false, true}) {
		CUcontext own = nullptr, before = nullptr;
		cuCtxGetCurrent(&before);
		CUstream first = nullptr, second = nullptr;
		ASSERT_EQ(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), 0);
		ASSERT_EQ(promise(first), 0);
		EXPECT_TRUE(is_fixed(first));
		cuStreamDestroy(first);
		if (other_context) {
			ASSERT_EQ(cuCtxCreate(&own, 0, 0), 0);
		}
		ASSERT_EQ(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), 0);
		ASSERT_EQ(second, first) << "otherwise this shows nothing";
		if (!other_context) {
			EXPECT_FALSE(is_fixed(second));
		}
		EXPECT_EQ(promise(second), 0) << "it is no second time";
		EXPECT_EQ(promise(second), 5022);
		if (!other_context) {
			EXPECT_TRUE(is_fixed(second));
		}
		EXPECT_EQ(take_back(second), 0);
		cuStreamDestroy(second);
		EXPECT_EQ(take_back(second), 5022) << "and is not followed where there is no stream";
		if (own)
			cuCtxDestroy(own);
		cuCtxSetCurrent(before);
	}
}

// Registering does not open the driver, which may be opened later; closing it ends the registrations.
TEST_F(Registered, WhileTheDriverIsClosed)
{
	lib().cuFileDriverClose_v2();
	ASSERT_EQ(lib().cuFileUseCount(), 0);
	CUstream const on = static_cast<CUstream>(stream_);
	for (CUstream one : {on, CUstream{nullptr}}) {
		EXPECT_EQ(take_back(one), 5022);
		ASSERT_EQ(promise(one), 0);
		EXPECT_EQ(lib().cuFileUseCount(), 0);
		EXPECT_EQ(promise(one), 5022);
		EXPECT_EQ(take_back(one), 0);
		EXPECT_EQ(take_back(one), 5022);
		EXPECT_EQ(lib().cuFileUseCount(), 0);
		ASSERT_EQ(promise(one), 0);
	}
	fh_ = handle("g", bytes_);
	EXPECT_TRUE(is_fixed(on));
	lib().cuFileDriverClose_v2();
	fh_ = handle("h", bytes_);
	EXPECT_FALSE(is_fixed(on));
	EXPECT_EQ(promise(on), 0);
}

// A thread without a context has no default stream to register.
TEST_F(Registered, OfNoContext)
{
	fake_set_current(-1);
	EXPECT_EQ(code(lib().cuFileStreamRegister, nullptr, 0), 0);
	EXPECT_EQ(code(lib().cuFileStreamDeregister, nullptr), 0);
	const CUfileError_t error = lib().cuFileStreamRegister(nullptr, 7);
	EXPECT_EQ(error.err, 5011);
	EXPECT_EQ(error.cu_err, 201) << "CUDA_ERROR_INVALID_CONTEXT";
	EXPECT_EQ(promise(static_cast<CUstream>(stream_)), 0) << "a stream has a context of its own";
	EXPECT_TRUE(is_fixed(static_cast<CUstream>(stream_)));
	fake_set_current(0);
}

TEST_F(Cufile, EachThreadsStreamAtOnce)
{
	const std::string bytes = pattern(1 << 20);
	const CUfileHandle_t fh = handle("f", bytes);
	std::vector<std::thread> threads;
	std::atomic<int> good{0};
	for (unsigned t = 0; t < 6; t++)
		threads.emplace_back([&, t] {
			fake_set_current(0);
			Device memory(8 * 30000);
			size_t size = 30000;
			off_t from[8], to[8];
			ssize_t got[8] = {};
			for (unsigned i = 0; i < 8; i++) {
				from[i] = t * 1000 + i * 100;
				to[i] = i * 30000;
				good += !lib().cuFileReadAsync(fh, memory.get(), &size, &from[i], &to[i], &got[i],
							       CU_STREAM_PER_THREAD)
						 .err;
			}
			fake_sync(CU_STREAM_PER_THREAD);
			for (unsigned i = 0; i < 8; i++)
				good += got[i] == 30000 &&
					memory.bytes(i * 30000, 30000) == bytes.substr(t * 1000 + i * 100, 30000);
		});
	for (auto &thread : threads)
		thread.join();
	EXPECT_EQ(good, 6 * 8 * 2);
}

TEST_F(Streams, OfAFileSystemOfTheProgramsOwn)
{
	Shelf shelf{pattern(9 << 20, 4)};
	CUfileFSOps_t ops = {};
	ops.read = shelf_read;
	ops.write = shelf_write;
	CUfileDescr_t d = descr(ops, &shelf);
	ASSERT_EQ(code(lib().cuFileHandleRegister, &fh_, &d), 0);
	Device memory(9 << 20);
	CUstream const on = static_cast<CUstream>(stream_);
	// More than the stream moves at a time.
	size_t size = 9 << 20, little = 1000;
	off_t zero = 0, behind = 9 << 20;
	ssize_t got = -4711, put = -4711;
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, memory.get(), &size, &zero, &zero, &got, on), 0);
	EXPECT_EQ(code(lib().cuFileWriteAsync, fh_, memory.get(), &little, &behind, &zero, &put, on), 0);
	fake_sync(stream_);
	EXPECT_EQ(got, 9 << 20);
	EXPECT_EQ(put, 1000);
	EXPECT_TRUE(shelf.bytes == pattern(9 << 20, 4) + pattern(1000, 4));
	EXPECT_TRUE(memory.bytes(0, size) == shelf.bytes.substr(0, size));
	shelf.fail = -EROFS;
	EXPECT_EQ(code(lib().cuFileReadAsync, fh_, memory.get(), &little, &zero, &zero, &got, on), 0);
	EXPECT_EQ(code(lib().cuFileWriteAsync, fh_, memory.get(), &little, &zero, &zero, &put, on), 0);
	fake_sync(stream_);
	EXPECT_EQ(got, -1);
	EXPECT_EQ(put, -1);
	lib().cuFileDriverClose_v2();
}

} // namespace
