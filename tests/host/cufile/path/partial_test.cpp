// SPDX-License-Identifier: MIT
// An I/O that fails after some bytes have moved, by each path: its result never looks like the end of the file.
#include "program.hpp"

namespace
{

constexpr size_t MiB = 1 << 20;

// The path depends on the memory.
struct By {
	const char *name;
	size_t size;
	enum Memory { host, cuda, peerdma } memory;
	int flags;
	bool user_file;
};

class CufilePartial : public ::testing::TestWithParam<By>, protected Fakes
{
protected:
	CufilePartial()
	{
		cuda.present = true;
		cuda.device.assign(8 * MiB, 'd');
		peerdma.buffer.assign(8 * MiB, 'b');
		peerdma.file = bytes;
		fd = system.program_fd(bytes, GetParam().flags);
		if (GetParam().user_file)
			add_user_file();
		else
			fh = register_file(library, fd);
	}
	~CufilePartial() override { close_all(library); }

	void add_user_file()
	{
		static const CUfileFSOps_t ops = {
			nullptr, nullptr, nullptr,
			[](const void *self, char *to, size_t size, loff_t offset,
			   const cufileRDMAInfo_t *) -> ssize_t {
				auto *const test = static_cast<CufilePartial *>(const_cast<void *>(self));
				return test->system.pread(test->fd, to, size, static_cast<uint64_t>(offset));
			},
			[](const void *self, const char *from, size_t size, loff_t offset,
			   const cufileRDMAInfo_t *) -> ssize_t {
				auto *const test = static_cast<CufilePartial *>(const_cast<void *>(self));
				return test->system.pwrite(test->fd, from, size, static_cast<uint64_t>(offset));
			}};
		CUfileDescr_t descr = {};
		descr.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
		descr.handle.handle = this;
		descr.fs_ops = &ops;
		ASSERT_EQ(library.register_file(&fh, &descr).err, 0);
	}
	char *memory()
	{
		return GetParam().memory == By::host ? host.data() :
		       GetParam().memory == By::cuda ? cuda.device.data() :
						       peerdma.buffer.data();
	}
	// The file fails from this offset on.
	void stop(uint64_t at, int error)
	{
		peerdma.stop_at = at;
		peerdma.stop_error = error;
		system.stop_at = at;
		system.stop_error = error;
	}
	int64_t one(bool write) { return library.router.transfer(fh, memory(), GetParam().size, 0, 0, write); }
	int64_t vector(bool write)
	{
		const size_t half = GetParam().size / 2;
		const CUfileIOVec_t places[] = {{memory(), half}, {memory() + half, GetParam().size - half}};
		return library.router.transfer_vector(fh, places, 2, 0, 0, write);
	}
	int64_t batch(bool write)
	{
		CUfileBatchHandle_t id;
		EXPECT_EQ(library.create_batch(&id, 1).err, 0);
		const CUfileIOParams_t io =
			batch_io(fh, memory(), GetParam().size, 0, 0, nullptr, write ? CUFILE_WRITE : CUFILE_READ);
		EXPECT_EQ(library.batches.submit(id, 1, &io).err, 0);
		unsigned n = 1;
		CUfileIOEvents_t event = {};
		EXPECT_EQ(library.batches.status(id, 1, &n, &event, nullptr).err, 0);
		library.batches.destroy(id);
		const auto result = static_cast<int64_t>(event.ret);
		EXPECT_EQ(event.status, result < 0 ? CUFILE_FAILED : CUFILE_COMPLETE);
		return result;
	}

	const std::string bytes = some_bytes(8 * MiB);
	std::string host = std::string(8 * MiB, 'h');
	CUfileHandle_t fh = nullptr;
	int fd = -1;
};

constexpr int plain = O_RDWR, past = O_RDWR | O_DIRECT;
INSTANTIATE_TEST_SUITE_P(By, CufilePartial,
			 ::testing::Values(By{"host", 5 * MiB, By::host, plain, false},
					   By{"host_past_the_page_cache", 5 * MiB, By::host, past, false},
					   By{"a_slab", MiB / 2, By::cuda, plain, false},
					   By{"slabs", 5 * MiB, By::cuda, plain, false},
					   By{"a_slab_past_the_page_cache", MiB / 2, By::cuda, past, false},
					   By{"a_ring", 5 * MiB, By::cuda, past, false},
					   By{"libpeerdma", 5 * MiB, By::peerdma, plain, false},
					   By{"a_users_file", 5 * MiB, By::host, plain, true},
					   By{"a_users_file_in_slabs", 5 * MiB, By::cuda, plain, true}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(CufilePartial, AReadThatFailsIsNoShortRead)
{
	const uint64_t size = GetParam().size;
	for (const uint64_t at : {uint64_t{4096}, size - 512})
		for (const int error : {EMFILE, ENOSPC}) {
			stop(at, error);
			EXPECT_EQ(one(false), -error) << at;
			EXPECT_EQ(vector(false), -error) << at;
			EXPECT_EQ(batch(false), -error) << at;
		}
	stop(UINT64_MAX, 0);
	EXPECT_EQ(one(false), static_cast<int64_t>(size));
	EXPECT_EQ(vector(false), static_cast<int64_t>(size));
	EXPECT_EQ(batch(false), static_cast<int64_t>(size));
}

// Except for lack of space: then it returns the bytes written, as write(2) does.
TEST_P(CufilePartial, AWriteThatFailsIsNoShortWrite)
{
	const uint64_t size = GetParam().size;
	for (const uint64_t at : {uint64_t{4096}, size - 512}) {
		for (const int error : {EIO, EMFILE}) {
			stop(at, error);
			EXPECT_EQ(one(true), -error) << at;
			EXPECT_EQ(vector(true), -error) << at;
			EXPECT_EQ(batch(true), -error) << at;
		}
		for (const int error : {ENOSPC, EFBIG}) {
			stop(at, error);
			EXPECT_EQ(one(true), static_cast<int64_t>(at));
			EXPECT_EQ(vector(true), static_cast<int64_t>(at));
			EXPECT_EQ(batch(true), static_cast<int64_t>(at));
			stop(0, error);
			EXPECT_EQ(one(true), -error);
			EXPECT_EQ(vector(true), -error);
			EXPECT_EQ(batch(true), -error);
		}
	}
	stop(UINT64_MAX, 0);
	EXPECT_EQ(one(true), static_cast<int64_t>(size));
}

TEST_P(CufilePartial, TheEndOfTheFileIsAShortRead)
{
	const size_t there = GetParam().size / 4 * 3 + 100;
	system.bytes(fd).resize(there);
	peerdma.file.resize(there);
	EXPECT_EQ(one(false), static_cast<int64_t>(there));
	EXPECT_EQ(vector(false), static_cast<int64_t>(there));
	EXPECT_EQ(batch(false), static_cast<int64_t>(there));
}

} // namespace
