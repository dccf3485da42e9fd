// SPDX-License-Identifier: MIT
//
// Errors that need more than a wrong argument. Documentation/cufile.md, "Errors", names the test of each.
#include <climits>
#include <stdexcept>

#include <sys/resource.h>

#include "conformance.hpp"

using namespace conformance;

namespace
{

// cuFileDriverOpen() waits until a close has finished; calls that would open the driver implicitly fail instead.
TEST_F(Gated, WhatWouldOpenADriverThatIsBeingClosed)
{
	const int fd = open_file("g", "x");
	const auto id = set_up(1);
	std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1)};
	ASSERT_NO_FATAL_FAILURE(begin(id, ios));
	std::thread closer([] { EXPECT_EQ(code(lib().cuFileDriverClose_v2), 0); });
	int error = 0;
	for (uintptr_t base = 4096; !error && base < 4096 + 10000; base++) {
		error = code(lib().cuFileBufRegister, reinterpret_cast<void *>(base), 1, 0);
		usleep(1000);
	}
	EXPECT_EQ(error, 5006);
	CUfileHandle_t fh;
	CUfileBatchHandle_t batch;
	EXPECT_EQ(add(fd, fh), 5006);
	EXPECT_EQ(code(lib().cuFileBatchIOSetUp, &batch, 4), 5006);
	std::atomic<int> opened{-1};
	std::thread opener([&] { opened = code(lib().cuFileDriverOpen); });
	usleep(20000);
	EXPECT_EQ(opened, -1) << "before it was closed";
	gate_.open = 1;
	closer.join();
	opener.join();
	EXPECT_EQ(opened, 0);
	EXPECT_EQ(lib().cuFileUseCount(), 1);
	EXPECT_EQ(add(fd, fh), 0);
}

ssize_t throwing_read(const void *, char *, size_t, off_t, const cufileRDMAInfo_t *)
{
	throw std::runtime_error("a bug of the program's");
}

// The exception leaks neither threads nor bounce buffers.
TEST_F(Batches, AFileSystemThatThrows)
{
	CUfileFSOps_t ops = {};
	ops.read = throwing_read;
	CUfileDescr_t d = descr(ops);
	const CUfileHandle_t good = fh_;
	ASSERT_EQ(code(lib().cuFileHandleRegister, &fh_, &d), 0);
	std::string host(100, 'x');
	EXPECT_EQ(read(fh_, host.data(), 100, 0), -5030);
	const auto id = set_up(4);
	for (int i = 0; i < 40; i++) {
		EXPECT_EQ(read(fh_, memory_.get(), 100, 0), -5030);
		EXPECT_EQ(read(fh_, memory_.get(), 4 << 20, 0), -5030) << "with helpers";
		std::vector<CUfileIOParams_t> ios = {io(10, 0, 0, 1), io(1 << 20, 0, 0, 2)};
		ASSERT_EQ(submit(id, ios), 0);
		for (const auto &[cookie, event] : fetch(id, 2)) {
			EXPECT_EQ(event.status, CUFILE_FAILED);
			EXPECT_EQ(static_cast<ssize_t>(event.ret), -5030);
		}
	}
	EXPECT_TRUE(memory_.untouched(0, 4 << 20));
	EXPECT_EQ(read(good, memory_.get(), 4 << 20, 0), 4 << 20);
	EXPECT_TRUE(memory_.bytes(0, 4 << 20) == bytes_);
}

// In a child, because the resource limits stay lowered.
TEST_F(Cufile, WithoutMemory)
{
	EXPECT_EQ(in_child([&] {
			  std::string text(64 << 20, 'x');
			  // Less than in use: no further allocation succeeds.
			  struct rlimit limit = {32 << 20, 32 << 20};
			  setrlimit(RLIMIT_AS, &limit);
			  int bad = code(lib().cuFileSetParameterString, CUFILE_PARAM_LOG_DIR, text.c_str()) != 5043;
			  limit.rlim_cur = 0;
			  char value[8];
			  bad |= code(lib().cuFileGetParameterString, CUFILE_PARAM_LOG_DIR, value, 8) != 0;
			  return bad;
		  }),
		  0);
}

TEST_F(Cufile, WithoutADescriptor)
{
	const int fd = open_file("f", "hello");
	EXPECT_EQ(in_child([&] {
			  struct rlimit limit = {};
			  getrlimit(RLIMIT_NOFILE, &limit);
			  const rlim_t before = limit.rlim_cur;
			  limit.rlim_cur = 3;
			  setrlimit(RLIMIT_NOFILE, &limit);
			  CUfileHandle_t fh;
			  int bad = add(fd, fh) != 5031;
			  limit.rlim_cur = before;
			  setrlimit(RLIMIT_NOFILE, &limit);
			  bad |= add(fd, fh) != 0;
			  char host[8];
			  bad |= read(fh, host, 5, 0) != 5;
			  lib().cuFileDriverClose_v2();
			  return bad;
		  }),
		  0);
}

// The memory may belong to another vendor's GPU, and without the module the library cannot tell.
TEST_F(Cufile, WhereTheModuleCannotBeAsked)
{
	EXPECT_EQ(in_child([&] {
			  if (!dlopen("libhsa-runtime64.so.1", RTLD_NOW))
				  return 2;
			  std::vector<char> host(4096);
			  const auto registers = [&](const char *node) {
				  setenv("PEERDMA_DEVICE", node, 1);
				  const int rc = lib().cuFileBufRegister(host.data(), host.size(), 0).err;
				  if (!rc)
					  lib().cuFileBufDeregister(host.data());
				  return rc;
			  };
			  int bad = registers("/nowhere") != 0; // no module: host memory
			  bad |= registers("/dev/null") != CU_FILE_GPU_MEMORY_PINNING_FAILED;
			  bad |= registers("/nowhere") != 0;
			  lib().cuFileDriverClose_v2();
			  return bad;
		  }),
		  0);
}

// An error of the driver's query, not the one that means host memory.
TEST_F(Cufile, ADriverThatCannotSayWhatMemoryIs)
{
	const CUfileHandle_t fh = handle("f", "hello");
	Device memory(4096);
	fake_fail("cuPointerGetAttributes", 0, 700);
	const CUfileError_t error = lib().cuFileBufRegister(memory.get(), 4096, 0);
	EXPECT_EQ(error.err, 5011);
	EXPECT_EQ(error.cu_err, 700);
	fake_fail("cuPointerGetAttributes", 0, 700);
	EXPECT_EQ(read(fh, memory.get(), 5, 0), -5011);
	EXPECT_EQ(read(fh, memory.get(), 5, 0), 5);
}

TEST_F(Cufile, MoreVectorsThanThereCanBe)
{
	const CUfileHandle_t fh = handle("f", "hello");
	char byte;
	const CUfileIOVec_t one = {&byte, 1};
	EXPECT_EQ(told(lib().cuFileReadv(fh, &one, SIZE_MAX, 0, 0)), -5022);
	EXPECT_EQ(told(lib().cuFileReadv(fh, &one, SIZE_MAX / sizeof(one), 0, 0)), -5022);
	EXPECT_EQ(told(lib().cuFileReadv(fh, &one, 1, 0, 0)), 1);
}

TEST_F(Cufile, AsManyVectorsAsReadvTakes)
{
	const CUfileHandle_t fh = handle("f", pattern(IOV_MAX));
	std::string host(IOV_MAX, '\0');
	std::vector<CUfileIOVec_t> all;
	for (char &byte : host)
		all.push_back({&byte, 1});
	EXPECT_EQ(told(lib().cuFileReadv(fh, all.data(), all.size(), 0, 0)), IOV_MAX);
	EXPECT_EQ(host, pattern(IOV_MAX));
	all.push_back(all.back());
	EXPECT_EQ(told(lib().cuFileReadv(fh, all.data(), all.size(), 0, 0)), -5022);
	EXPECT_EQ(told(lib().cuFileWritev(fh, all.data(), all.size(), 0, 0)), -5022);
}

// An inaccessible page follows the program's array of two entries: a count that is too large is refused without reading.
TEST_F(Cufile, ABatchThatIsSaidToBeLongerThanItMayBe)
{
	EXPECT_EQ(in_child([&] {
			  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
			  void *const pages =
				  mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			  if (pages == MAP_FAILED || mprotect(static_cast<char *>(pages) + page, page, PROT_NONE))
				  return 2;
			  auto *const ios = reinterpret_cast<CUfileIOParams_t *>(static_cast<char *>(pages) + page) - 2;
			  char host[64];
			  for (int i = 0; i < 2; i++) {
				  ios[i] = {};
				  ios[i].mode = CUFILE_BATCH;
				  ios[i].fh = i ? ios[0].fh : handle("f", "hello");
				  ios[i].u.batch = {host, 0, 32 * i, 5};
			  }
			  CUfileBatchHandle_t id;
			  int bad = code(lib().cuFileBatchIOSetUp, &id, 2) != 0;
			  bad |= code(lib().cuFileBatchIOSubmit, id, 3, ios, 0) != 5040;
			  bad |= code(lib().cuFileBatchIOSubmit, id, UINT_MAX, ios, 0) != 5040;
			  bad |= code(lib().cuFileBatchIOSubmit, id, 2, ios, 0) != 0;
			  lib().cuFileDriverClose_v2();
			  return bad;
		  }),
		  0);
}

// The largest values: no sum of them may wrap to a small one.
TEST_F(Cufile, PlacesThatWrapAround)
{
	const CUfileHandle_t fh = handle("f", pattern(10000));
	Device memory(8192);
	ASSERT_EQ(code(lib().cuFileBufRegister, memory.get(), 8192, 0), 0);
	constexpr off_t most = INT64_MAX;
	const struct {
		size_t size;
		off_t from, to;
	} all[] = {{SIZE_MAX, 0, 0},  {SIZE_MAX, 1, 1}, {size_t{1} << 63, 0, 0},    {1, most, 0},
		   {1, 0, most},      {2, most - 1, 0}, {4096, most - 4096 + 1, 0}, {4096, 0, most - 4096 + 1},
		   {4096, most, most}};
	for (const auto &io : all) {
		EXPECT_EQ(read(fh, memory.get(), io.size, io.from, io.to), -5022) << io.size << ' ' << io.from;
		EXPECT_EQ(write(fh, memory.get(), io.size, io.from, io.to), -5022) << io.size << ' ' << io.from;
	}
	EXPECT_EQ(read(fh, memory.get(), 4096, 0, most - 4096), -5017);
	EXPECT_TRUE(memory.untouched(0, 8192));
	EXPECT_EQ(fs::file_size(path("f")), 10000u);
}

} // namespace
