// SPDX-License-Identifier: MIT
//
// Tests of the stand-in CUDA driver itself (tests/softgpu): rules that CUDA documents for these calls, and that a
// library could break unnoticed if the stand-in were more lenient.
#include <sys/resource.h>

#include "conformance.hpp"
#include "cuda.h"

using namespace conformance;

namespace
{

CUdeviceptr number(const void *at) { return reinterpret_cast<CUdeviceptr>(at); }

// Looks the symbol up by name, of any version, as other programs do.
template <class Function> Function *symbol(const char *name)
{
	return reinterpret_cast<Function *>(dlsym(lib().cuda, name));
}

class Driver : public ::testing::Test
{
protected:
	Driver() { fake_set_current(0); }
	~Driver() override
	{
		EXPECT_EQ(fake_live(), 0) << "a stream or an event is left";
		EXPECT_EQ(fake_wrongs(), 0);
	}
	static CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING)
	{
		CUstream made = nullptr;
		EXPECT_EQ(cuStreamCreate(&made, flags), 0);
		return made;
	}
};

// Runs in a child because the stand-in counts the calls as errors.
int counted_as_wrong(const std::function<bool()> &what)
{
	return in_child([&] { return !what() || !fake_wrongs(); });
}

TEST_F(Driver, HostFunctionsOfAllStreamsRunOnOneThread)
{
	struct Seen {
		std::mutex lock;
		std::map<std::thread::id, int> threads;
		int at_once = 0, most = 0;
	} seen;
	std::vector<CUstream> all;
	for (int i = 0; i < 8; i++)
		all.push_back(stream());
	for (int round = 0; round < 5; round++)
		for (CUstream one : all)
			ASSERT_EQ(cuLaunchHostFunc(
					  one,
					  [](void *arg) {
						  auto &in = *static_cast<Seen *>(arg);
						  {
							  const std::lock_guard guard(in.lock);
							  in.threads[std::this_thread::get_id()]++;
							  in.most = std::max(in.most, ++in.at_once);
						  }
						  usleep(1000);
						  const std::lock_guard guard(in.lock);
						  in.at_once--;
					  },
					  &seen),
				  0);
	for (CUstream one : all) {
		EXPECT_EQ(cuStreamSynchronize(one), 0);
		EXPECT_EQ(cuStreamDestroy(one), 0);
	}
	EXPECT_EQ(seen.threads.size(), 1U);
	EXPECT_EQ(seen.most, 1);
}

// Regression: with AddressSanitizer the previous stand-in read freed memory here.
TEST_F(Driver, StreamsThatAreDestroyedWhileOtherThreadsWaitForAll)
{
	std::atomic<bool> stop{false};
	std::vector<std::thread> waiters;
	for (int i = 0; i < 3; i++)
		waiters.emplace_back([&] {
			fake_set_current(0);
			while (!stop)
				EXPECT_EQ(cuCtxSynchronize(), 0);
		});
	for (int i = 0; i < 100; i++) {
		CUstream some[4];
		for (CUstream &one : some) {
			one = stream();
			ASSERT_EQ(cuLaunchHostFunc(
					  one, [](void *) { usleep(100); }, nullptr),
				  0);
		}
		for (CUstream one : some)
			ASSERT_EQ(cuStreamDestroy(one), 0);
	}
	stop = true;
	for (std::thread &waiter : waiters)
		waiter.join();
	EXPECT_EQ(cuCtxSynchronize(), 0);
}

TEST_F(Driver, AStreamThatIsDestroyedDoesItsWorkAndNobodyWaits)
{
	std::atomic<int> state{0};
	CUstream one = stream();
	ASSERT_EQ(cuLaunchHostFunc(
			  one,
			  [](void *arg) {
				  auto &at = *static_cast<std::atomic<int> *>(arg);
				  while (at < 1)
					  usleep(100);
				  at = 2;
			  },
			  &state),
		  0);
	EXPECT_EQ(cuStreamDestroy(one), 0);
	state = 1;
	EXPECT_EQ(cuCtxSynchronize(), 0);
	EXPECT_EQ(state, 2);
}

#ifndef __SANITIZE_THREAD__ // ThreadSanitizer needs more memory than the limit leaves
TEST_F(Driver, NoExceptionLeavesACall)
{
	EXPECT_EQ(in_child([]() -> int {
			  fake_set_current(0);
			  CUstream made = nullptr;
			  if (cuStreamCreate(&made, 0)) // allocates what the driver needs once
				  return 2;
			  const struct rlimit none = {1 << 20, 1 << 20};
			  setrlimit(RLIMIT_AS, &none); // no thread can get a stack
			  int refused = 0;
			  for (int i = 0; i < 20000 && !refused; i++)
				  refused = cuStreamCreate(&made, 0);
			  return refused != CUDA_ERROR_OUT_OF_MEMORY;
		  }),
		  0);
}
#endif

TEST_F(Driver, ADestroyedHandleIsRefusedAndItsAddressIsUsedAgain)
{
	const CUstream first = stream(), other = stream();
	unsigned long long was = 0, is = 0;
	ASSERT_EQ(cuStreamGetId(first, &was), 0);
	ASSERT_EQ(cuStreamDestroy(first), 0);
	EXPECT_EQ(counted_as_wrong([&] { return cuStreamQuery(first) == CUDA_ERROR_INVALID_HANDLE; }), 0);
	EXPECT_EQ(counted_as_wrong([&] { return cuStreamDestroy(first) == CUDA_ERROR_INVALID_HANDLE; }), 0);
	const CUstream second = stream();
	EXPECT_EQ(second, first);
	ASSERT_EQ(cuStreamGetId(second, &is), 0);
	EXPECT_NE(was, is);
	EXPECT_EQ(cuStreamDestroy(second), 0);
	EXPECT_EQ(cuStreamDestroy(other), 0);
}

TEST_F(Driver, ADestroyedContextIsOfNoUseToOtherThreadsAndItsAddressIsUsedAgain)
{
	CUcontext first = nullptr;
	ASSERT_EQ(cuCtxCreate(&first, 0, 0), 0);
	unsigned long long was = 0, is = 0;
	ASSERT_EQ(cuCtxGetId(first, &was), 0);
	std::atomic<int> at{0};
	std::thread other([&] {
		EXPECT_EQ(cuCtxSetCurrent(first), 0);
		at = 1;
		while (at < 2)
			usleep(100);
		CUstream made = nullptr;
		CUcontext now = nullptr;
		EXPECT_EQ(cuStreamCreate(&made, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		EXPECT_EQ(cuCtxGetCurrent(&now), 0);
		EXPECT_EQ(now, first);
	});
	while (at < 1)
		usleep(100);
	EXPECT_EQ(cuCtxDestroy(first), 0);
	at = 2;
	other.join();
	CUcontext second = nullptr;
	ASSERT_EQ(cuCtxCreate(&second, 0, 1), 0);
	EXPECT_EQ(second, first);
	ASSERT_EQ(cuCtxGetId(second, &is), 0);
	EXPECT_NE(was, is);
	EXPECT_EQ(cuCtxDestroy(second), 0);
	fake_set_current(0);
}

// Each device has its own default stream, and a context waits only for its own streams.
TEST_F(Driver, AContextWaitsForItsOwnStreamsOnly)
{
	std::atomic<bool> go{false};
	CUstream held = stream();
	CUevent passed = nullptr;
	ASSERT_EQ(cuEventCreate(&passed, 0), 0);
	Device elsewhere(4096, 1), here(4096);
	std::vector<char> host(4096, 'h');
	ASSERT_EQ(cuStreamWaitEvent(held, passed, 0), 0) << "of an event that nothing recorded it waits for nothing";
	ASSERT_EQ(cuLaunchHostFunc(
			  held,
			  [](void *arg) {
				  while (!*static_cast<std::atomic<bool> *>(arg))
					  usleep(100);
			  },
			  &go),
		  0);
	fake_set_current(1);
	EXPECT_EQ(cuCtxSynchronize(), 0);
	EXPECT_EQ(cuMemcpyHtoD(number(elsewhere.get()), host.data(), host.size()), 0);
	fake_set_current(0);
	go = true;
	EXPECT_EQ(cuCtxSynchronize(), 0);
	EXPECT_EQ(cuEventDestroy(passed), 0);
	EXPECT_EQ(cuStreamDestroy(held), 0);
}

// Recorded twice: a wait that was queued before the second recording refers to the first.
TEST_F(Driver, AnEventThatIsRecordedAgain)
{
	std::atomic<int> order{0}, seen{-1};
	struct Gate {
		std::atomic<bool> first{false}, second{false};
	} gate;
	const auto wait_for = [](void *arg) {
		while (!*static_cast<std::atomic<bool> *>(arg))
			usleep(100);
	};
	CUstream one = stream(), two = stream();
	CUevent event = nullptr;
	ASSERT_EQ(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
	ASSERT_EQ(cuLaunchHostFunc(one, wait_for, &gate.first), 0);
	ASSERT_EQ(cuEventRecord(event, one), 0);
	ASSERT_EQ(cuStreamWaitEvent(two, event, 0), 0);
	gate.first = true;
	ASSERT_EQ(cuStreamSynchronize(one), 0);
	ASSERT_EQ(cuLaunchHostFunc(one, wait_for, &gate.second), 0);
	ASSERT_EQ(cuEventRecord(event, one), 0);
	EXPECT_EQ(cuStreamSynchronize(two), 0) << "it waits for the first";
	EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	gate.second = true;
	EXPECT_EQ(cuEventSynchronize(event), 0);
	float milliseconds = 0;
	EXPECT_EQ(cuEventElapsedTime(&milliseconds, event, event), CUDA_ERROR_INVALID_HANDLE) << "made without a time";
	EXPECT_EQ(cuEventDestroy(event), 0);
	EXPECT_EQ(cuStreamDestroy(one), 0);
	EXPECT_EQ(cuStreamDestroy(two), 0);
}

TEST_F(Driver, AStreamOfEachThreadsOwn)
{
	unsigned long long mine = 0, again = 0, others = 0, legacy = 0;
	ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &mine), 0);
	ASSERT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &again), 0);
	ASSERT_EQ(cuStreamGetId(nullptr, &legacy), 0);
	std::thread([&] {
		fake_set_current(0);
		EXPECT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &others), 0);
	}).join();
	EXPECT_EQ(mine, again);
	EXPECT_NE(mine, others);
	EXPECT_NE(mine, legacy);
	fake_set_current(1);
	EXPECT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &others), 0);
	EXPECT_NE(mine, others) << "and of each context's";
	fake_set_current(-1);
	EXPECT_EQ(cuStreamGetId(CU_STREAM_PER_THREAD, &others), CUDA_ERROR_INVALID_CONTEXT);
	fake_set_current(0);
}

// Each copy's direction follows from its addresses; copies of a batch are unordered.
TEST_F(Driver, ABatchOfCopiesInAnyDirection)
{
	const size_t n = 4096;
	Device a(n), b(n), c(n);
	const std::string bytes = pattern(n), other = pattern(n, 2), third = pattern(n, 3);
	std::string in = bytes, out(n, '\0'), from_host = third, to_host(n, '\0');
	b.put(other);
	const CUstream one = stream();
	CUdeviceptr to[] = {number(a.get()), number(out.data()), number(c.get()), number(to_host.data())};
	CUdeviceptr from[] = {number(in.data()), number(b.get()), number(b.get()), number(from_host.data())};
	size_t sizes[] = {n, n, n, n}, which[] = {0, 2};
	CUmemcpyAttributes attributes[2] = {};
	attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
	attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
	ASSERT_EQ(cuMemcpyBatchAsync(to, from, sizes, 4, attributes, which, 2, one), 0);
	ASSERT_EQ(cuStreamSynchronize(one), 0);
	EXPECT_EQ(a.bytes(0, n), bytes);
	EXPECT_EQ(out, other);
	EXPECT_EQ(c.bytes(0, n), other);
	EXPECT_EQ(to_host, third);

	const auto call = [&](size_t count, const size_t *first, size_t nr, CUstream in_stream) {
		size_t firsts[2] = {first[0], first[1]};
		return cuMemcpyBatchAsync(to, from, sizes, count, attributes, firsts, nr, in_stream);
	};
	const size_t good[] = {0, 2}, late[] = {1, 2}, twice[] = {0, 0}, beyond[] = {0, 4};
	EXPECT_EQ(call(4, good, 2, nullptr), CUDA_ERROR_INVALID_VALUE) << "never in a default stream";
	EXPECT_EQ(call(4, late, 2, one), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(call(4, twice, 2, one), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(call(4, beyond, 2, one), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(call(0, good, 1, one), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(call(1, good, 2, one), CUDA_ERROR_INVALID_VALUE) << "more attributes than copies";
	// If one copy is invalid, none is done.
	a.fill(0x77);
	sizes[3] = n;
	to[3] = number(a.get()) + n - 1;
	EXPECT_EQ(call(4, good, 2, one), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(cuStreamSynchronize(one), 0);
	EXPECT_TRUE(a.untouched(0, n));
	// Host sources are read during the call.
	to[0] = number(a.get());
	attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
	Hold hold(one);
	EXPECT_EQ(call(1, good, 1, one), 0);
	in.assign(n, 'x');
	hold.go = true;
	EXPECT_EQ(cuStreamSynchronize(one), 0);
	EXPECT_EQ(a.bytes(0, n), bytes);
	EXPECT_EQ(cuStreamDestroy(one), 0);
}

// Without a stream, a copy between device memories and a fill are asynchronous, unless the memory has SYNC_MEMOPS set.
TEST_F(Driver, ACopyBetweenDevicesIsNotWaitedFor)
{
	const size_t n = 1 << 20;
	Device a(n), b(n);
	a.fill('a');
	CUstream held = stream(0); // the default stream waits for it
	for (const unsigned sync : {0U, 1U}) {
		b.fill('b');
		ASSERT_EQ(cuPointerSetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, number(b.get())), 0);
		Hold hold(held);
		std::thread later([&] {
			usleep(50000);
			hold.go = true;
		});
		EXPECT_EQ(cuMemcpyDtoD(number(b.get()), number(a.get()), n), 0);
		EXPECT_EQ(hold.go, static_cast<bool>(sync));
		later.join();
		EXPECT_EQ(cuCtxSynchronize(), 0);
		EXPECT_EQ(b.bytes(0, n), std::string(n, 'a'));
	}
	EXPECT_EQ(cuStreamDestroy(held), 0);
}

TEST_F(Driver, AStreamWaitsForAValueInMemory)
{
	Device memory(4096);
	memory.fill(0);
	CUstream waits = stream(), writes = stream();
	ASSERT_EQ(cuStreamWaitValue32(waits, number(memory.get()), 7, CU_STREAM_WAIT_VALUE_EQ), 0);
	ASSERT_EQ(cuStreamWaitValue64(waits, number(memory.get()) + 8, 3, CU_STREAM_WAIT_VALUE_GEQ), 0);
	EXPECT_EQ(cuStreamWaitValue32(waits, number(memory.get()) + 1, 7, 0), CUDA_ERROR_INVALID_VALUE);
	// It does not block the thread of host functions.
	ASSERT_EQ(cuLaunchHostFunc(
			  writes, [](void *) { usleep(1000); }, nullptr),
		  0);
	ASSERT_EQ(cuStreamSynchronize(writes), 0);
	EXPECT_EQ(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
	ASSERT_EQ(cuStreamWriteValue32(writes, number(memory.get()), 7, 0), 0);
	ASSERT_EQ(cuStreamWriteValue64(writes, number(memory.get()) + 8, 4, 0), 0);
	EXPECT_EQ(cuStreamSynchronize(waits), 0);
	EXPECT_EQ(cuStreamDestroy(waits), 0);
	EXPECT_EQ(cuStreamDestroy(writes), 0);
}

TEST_F(Driver, WhatACaptureForbidsSpoilsIt)
{
	CUstream one = stream(), two = stream();
	CUevent event = nullptr;
	CUgraph graph = nullptr;
	ASSERT_EQ(cuEventCreate(&event, 0), 0);
	EXPECT_EQ(cuStreamEndCapture(one, &graph), CUDA_ERROR_ILLEGAL_STATE) << "of none";
	EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ASSERT_EQ(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	EXPECT_EQ(cuStreamQuery(one), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	EXPECT_EQ(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	// A host function is part of the graph and runs on each launch; a stream that waits for the capture joins it.
	std::atomic<int> runs{0};
	const auto count = [](void *arg) { ++*static_cast<std::atomic<int> *>(arg); };
	ASSERT_EQ(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
	ASSERT_EQ(cuLaunchHostFunc(one, count, &runs), 0);
	ASSERT_EQ(cuEventRecord(event, one), 0);
	EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
	ASSERT_EQ(cuStreamWaitEvent(two, event, 0), 0);
	ASSERT_EQ(cuLaunchHostFunc(two, count, &runs), 0);
	std::thread([&] {
		fake_set_current(0);
		EXPECT_EQ(cuStreamEndCapture(one, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	}).join();
	ASSERT_EQ(cuStreamEndCapture(one, &graph), 0);
	EXPECT_EQ(cuCtxSynchronize(), 0);
	EXPECT_EQ(runs, 0);
	CUgraphExec exec = nullptr;
	ASSERT_EQ(cuGraphInstantiate(&exec, graph, 0), 0);
	for (CUstream in : {one, two})
		EXPECT_EQ(cuGraphLaunch(exec, in), 0);
	EXPECT_EQ(cuCtxSynchronize(), 0);
	EXPECT_EQ(runs, 4);
	EXPECT_EQ(cuGraphExecDestroy(exec), 0);
	EXPECT_EQ(cuGraphDestroy(graph), 0);
	EXPECT_EQ(cuEventDestroy(event), 0);
	EXPECT_EQ(cuStreamDestroy(one), 0);
	EXPECT_EQ(cuStreamDestroy(two), 0);
}

// The destructor runs on a thread of the driver after the last reference is released, and must not call CUDA.
TEST_F(Driver, AnObjectOfAGraph)
{
	struct Told {
		std::thread::id thread;
		std::atomic<bool> gone{false};
	} told;
	const auto destroy = [](void *arg) {
		static_cast<Told *>(arg)->thread = std::this_thread::get_id();
		static_cast<Told *>(arg)->gone = true;
	};
	CUuserObject object = nullptr;
	EXPECT_EQ(cuUserObjectCreate(&object, &told, destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ASSERT_EQ(cuUserObjectCreate(&object, &told, destroy, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC), 0);
	CUstream one = stream();
	CUgraph graph = nullptr;
	ASSERT_EQ(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
	ASSERT_EQ(cuStreamEndCapture(one, &graph), 0);
	ASSERT_EQ(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), 0);
	EXPECT_EQ(cuGraphDestroy(graph), 0);
	usleep(10000);
	EXPECT_FALSE(told.gone) << "one reference is left";
	EXPECT_EQ(cuUserObjectRelease(object, 2), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(cuUserObjectRelease(object, 1), 0);
	for (int i = 0; i < 1000 && !told.gone; i++)
		usleep(1000);
	EXPECT_TRUE(told.gone);
	EXPECT_NE(told.thread, std::this_thread::get_id());
	EXPECT_EQ(cuStreamDestroy(one), 0);
}

TEST_F(Driver, PinnedMemoryAndItsFlags)
{
	void *memory = nullptr;
	unsigned flags = 0;
	EXPECT_EQ(cuMemHostAlloc(&memory, 4096, 64), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(cuMemHostAlloc(&memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
	ASSERT_EQ(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED), 0);
	EXPECT_EQ(cuMemHostGetFlags(&flags, memory), 0);
	EXPECT_EQ(flags, static_cast<unsigned>(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED));
	EXPECT_EQ(cuMemHostRegister(memory, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	EXPECT_EQ(cuMemFree(number(memory)), CUDA_ERROR_INVALID_VALUE) << "it is not a device's";
	EXPECT_EQ(cuMemFreeHost(memory), 0);
	EXPECT_EQ(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
	alignas(4096) static char own[4096];
	EXPECT_EQ(cuMemHostRegister(own, 4096, 64), CUDA_ERROR_INVALID_VALUE);
	ASSERT_EQ(cuMemHostRegister(own, 4096, 0), 0);
	EXPECT_EQ(cuMemFreeHost(own), CUDA_ERROR_INVALID_VALUE) << "it was not the driver's";
	EXPECT_EQ(cuMemHostUnregister(own), 0);
}

TEST_F(Driver, AHandleOfWhatIsMapped)
{
	const size_t n = 2 << 20;
	CUmemAllocationProp prop = {}, told = {};
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
	CUmemGenericAllocationHandle made = 0, again = 0;
	CUdeviceptr at = 0;
	ASSERT_EQ(cuMemCreate(&made, n, &prop, 0), 0);
	ASSERT_EQ(cuMemAddressReserve(&at, n, 0, 0, 0), 0);
	ASSERT_EQ(cuMemMap(at, n, 0, made, 0), 0);
	ASSERT_EQ(cuMemRelease(made), 0);
	ASSERT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void *>(at + 4096)), 0);
	EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&told, again), 0);
	EXPECT_EQ(told.location.id, 1);
	EXPECT_EQ(cuMemFree(at), CUDA_ERROR_INVALID_VALUE) << "it is unmapped, not freed";
	EXPECT_EQ(cuMemUnmap(at, n), 0);
	EXPECT_EQ(cuMemMap(at, n, 0, again, 0), 0) << "the memory is there";
	EXPECT_EQ(cuMemRelease(again), 0);
	EXPECT_EQ(cuMemUnmap(at, n), 0);
	EXPECT_EQ(cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(cuMemAddressFree(at, n), 0);
}

// The tests rely on this; a real driver does not allow it.
TEST_F(Driver, AChildHasThreadsOfItsOwn)
{
	Device memory(4096);
	const auto works = [&] {
		char one = 'c';
		std::atomic<bool> called{false};
		const auto call = [](void *arg) { *static_cast<std::atomic<bool> *>(arg) = true; };
		return !cuMemcpyHtoD(number(memory.get()), &one, 1) && *fake_peek(memory.get()) == 'c' &&
		       !cuLaunchHostFunc(CU_STREAM_PER_THREAD, call, &called) &&
		       !cuStreamSynchronize(CU_STREAM_PER_THREAD) && called;
	};
	EXPECT_TRUE(works());
	EXPECT_EQ(in_child([&] {
			  alarm(20);
			  return !works();
		  }),
		  0);
}

// A reset releases everything at once, even if another holder has the context retained.
TEST_F(Driver, AResetOfTheDevice)
{
	EXPECT_EQ(in_child([] {
			  fake_set_current(1);
			  CUstream one = nullptr;
			  CUdeviceptr memory = 0;
			  CUdeviceptr base = 0;
			  int bad = cuStreamCreate(&one, 0) || cuMemAlloc(&memory, 4096) || fake_live() != 1;
			  bad |= symbol<CUresult(CUdevice)>("cuDevicePrimaryCtxReset_v2")(1) << 1;
			  bad |= (fake_live() != 0) << 2;
			  bad |= (cuMemGetAddressRange(&base, nullptr, memory) != CUDA_ERROR_NOT_FOUND) << 3;
			  bad |= (cuStreamQuery(one) != CUDA_ERROR_INVALID_HANDLE) << 4;
			  bad |= (cuStreamCreate(&one, 0) != 0) << 5;
			  return bad;
		  }),
		  0);
}

TEST_F(Driver, WhatNeedsNoInitialization)
{
	int version = 0, count = 0;
	const char *name = nullptr;
	void *function = nullptr;
	fake_initialized(0);
	EXPECT_EQ(cuDriverGetVersion(&version), 0);
	EXPECT_GE(version, 13000);
	EXPECT_EQ(cuDriverGetVersion(nullptr), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(cuGetErrorName(CUDA_ERROR_NOT_READY, &name), 0);
	EXPECT_EQ(cuGetProcAddress("cuInit", &function, 12000, 0, nullptr), 0);
	EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	EXPECT_EQ(cuInit(0), 0);
	EXPECT_EQ(cuDeviceGetCount(&count), 0);
}

TEST_F(Driver, ADeviceThatIsNotThere)
{
	int value = 0;
	size_t bytes = 0;
	char text[32];
	CUuuid uuid;
	CUcontext context = nullptr;
	for (const int none : {-1, 2, 1 << 20}) {
		EXPECT_EQ(cuDeviceGet(&value, none), CUDA_ERROR_INVALID_DEVICE);
		EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, none), CUDA_ERROR_INVALID_DEVICE);
		EXPECT_EQ(cuDeviceTotalMem(&bytes, none), CUDA_ERROR_INVALID_DEVICE);
		EXPECT_EQ(cuDeviceGetPCIBusId(text, sizeof(text), none), CUDA_ERROR_INVALID_DEVICE);
		EXPECT_EQ(cuDeviceGetUuid(&uuid, none), CUDA_ERROR_INVALID_DEVICE);
		EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, none), CUDA_ERROR_INVALID_DEVICE);
		EXPECT_EQ(cuCtxCreate(&context, 0, none), CUDA_ERROR_INVALID_DEVICE);
	}
}

// According to the CUDA version that the caller asks for.
TEST_F(Driver, EachVersionOfACall)
{
	const auto same = [](const char *call, int release, const char *name) {
		void *found = nullptr;
		int status = -1;
		EXPECT_EQ(cuGetProcAddress(call, &found, release, 0, &status), 0) << call << " of " << release;
		EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
		EXPECT_TRUE(found);
		EXPECT_EQ(found, dlsym(lib().cuda, name)) << call << " of " << release;
	};
	same("cuCtxCreate", 12000, "cuCtxCreate_v3");
	same("cuCtxCreate", 11000, "cuCtxCreate_v2");
	same("cuCtxCreate", 13000, "cuCtxCreate_v4");
	same("cuMemcpyBatchAsync", 12080, "cuMemcpyBatchAsync");
	same("cuMemcpyBatchAsync", 13000, "cuMemcpyBatchAsync_v2");
	same("cuStreamGetCaptureInfo", 13000, "cuStreamGetCaptureInfo_v3");
	same("cuCtxGetDevice", 13000, "cuCtxGetDevice_v2");
	same("cuCtxSynchronize", 12080, "cuCtxSynchronize");
	same("cuMemAlloc", 13000, "cuMemAlloc_v2");
	same("cuStreamGetDevice", 13000, "cuStreamGetDevice");
	same("cuMemRetainAllocationHandle", 13000, "cuMemRetainAllocationHandle");
	void *found = nullptr;
	int status = -1;
	EXPECT_EQ(cuGetProcAddress("cuMemcpyBatchAsync", &found, 12000, 0, &status), CUDA_ERROR_NOT_FOUND);
	EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	EXPECT_EQ(cuGetProcAddress("cuNothing", &found, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
	EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	// The variant of programs whose stream 0 is the per-thread default stream.
	EXPECT_EQ(cuGetProcAddress("cuStreamSynchronize", &found, 13000, 2, &status), 0);
	EXPECT_EQ(found, dlsym(lib().cuda, "cuStreamSynchronize_ptsz"));

	CUcontext context = nullptr;
	CUdevice device = -1;
	const auto create = symbol<CUresult(CUcontext *, void *, unsigned, CUdevice)>("cuCtxCreate_v4");
	ASSERT_TRUE(create);
	ASSERT_EQ(create(&context, nullptr, 0, 1), 0);
	EXPECT_EQ(symbol<CUresult(CUdevice *, CUcontext)>("cuCtxGetDevice_v2")(&device, context), 0);
	EXPECT_EQ(device, 1);
	EXPECT_EQ(symbol<CUresult(CUcontext)>("cuCtxSynchronize_v2")(context), 0);
	EXPECT_EQ(cuCtxDestroy(context), 0);
	fake_set_current(0);
}

} // namespace
