// SPDX-License-Identifier: MIT
// What programs register: files, memory and batches.
#include <climits>

#include "cufile/platform/errors.hpp"
#include "program.hpp"

namespace
{

class CufileRegistry : public ::testing::Test, protected Fakes
{
protected:
	~CufileRegistry() override { close_all(library); }
};

// --- Files
struct Candidate {
	const char *name;
	int type;
	uint32_t mode; // S_IF...
	int flags;
	int error;
};

class CufileRegistryFile : public CufileRegistry, public ::testing::WithParamInterface<Candidate>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileRegistryFile,
			 ::testing::Values(Candidate{"a_file", 1, S_IFREG, O_RDWR, 0},
					   Candidate{"to_read", 1, S_IFREG, O_RDONLY, 0},
					   Candidate{"to_write", 1, S_IFREG, O_WRONLY, 0},
					   Candidate{"past_the_page_cache", 1, S_IFREG, O_RDWR | O_DIRECT, 0},
					   Candidate{"synchronous", 1, S_IFREG, O_RDWR | O_SYNC, 0},
					   Candidate{"a_disk", 1, S_IFBLK, O_RDWR, 0},
					   Candidate{"a_disk_past_the_page_cache", 1, S_IFBLK, O_RDWR | O_DIRECT, 0},
					   Candidate{"a_folder", 1, S_IFDIR, O_RDONLY, 5018},
					   Candidate{"a_character_device", 1, S_IFCHR, O_RDWR, 5018},
					   Candidate{"a_pipe", 1, S_IFIFO, O_RDWR, 5018},
					   Candidate{"a_socket", 1, S_IFSOCK, O_RDWR, 5018},
					   Candidate{"appending", 1, S_IFREG, O_WRONLY | O_APPEND, 5019},
					   Candidate{"appending_to_a_disk", 1, S_IFBLK, O_RDWR | O_APPEND, 5019},
					   Candidate{"a_path_alone", 1, S_IFREG, O_PATH, 5019},
					   Candidate{"of_windows", 2, S_IFREG, O_RDWR, 5008},
					   Candidate{"of_user_space_without_functions", 3, S_IFREG, O_RDWR, 5008},
					   Candidate{"of_no_type", 0, S_IFREG, O_RDWR, 5008}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileRegistryFile, IsRegisteredOrNot)
{
	const Candidate &one = GetParam();
	const int fd = system.program_fd("hello", one.flags, one.mode);
	const CUfileDescr_t descr = descr_of(fd, one.type);
	const auto nothing = reinterpret_cast<CUfileHandle_t>(4711);
	CUfileHandle_t fh = nothing;
	EXPECT_EQ(library.register_file(&fh, &descr).err, one.error);
	EXPECT_EQ(fh != nothing, !one.error) << "only what is registered has a handle";
	EXPECT_EQ(library.register_file(&fh, &descr).err, one.error ? one.error : CU_FILE_HANDLE_ALREADY_REGISTERED);
	close_all(library);
	EXPECT_EQ(system.fds.size(), 1u) << "a descriptor is left";
}

TEST_F(CufileRegistry, ANumberIsNeverGivenTwice)
{
	const int fd = system.program_fd("hello", O_RDWR);
	std::set<CUfileHandle_t> seen;
	for (int i = 0; i < 50; i++) {
		const CUfileHandle_t fh = register_file(library, fd);
		EXPECT_TRUE(seen.insert(fh).second);
		EXPECT_GT(reinterpret_cast<uintptr_t>(fh), 5050u) << "nobody takes it for an error";
		if (i % 10 == 9)
			close_all(library);
		else
			library.deregister_file(fh);
		CUfileBatchHandle_t batch;
		ASSERT_EQ(library.create_batch(&batch, 1).err, 0);
		EXPECT_TRUE(seen.insert(batch).second) << "of batches neither";
		library.batches.destroy(batch);
	}
}

TEST_F(CufileRegistry, ADescriptorOfAnotherFileNow)
{
	const int fd = system.program_fd("first", O_RDWR);
	const CUfileHandle_t first = register_file(library, fd);
	system.fds[fd].file = std::make_shared<FakeSystem::File>(FakeSystem::File{"other", S_IFREG, 4711});
	const CUfileHandle_t second = register_file(library, fd);
	char text[8] = {};
	EXPECT_EQ(library.router.transfer(first, text, 8, 0, 0, false), 5);
	EXPECT_STREQ(text, "first");
	EXPECT_EQ(library.router.transfer(second, text, 8, 0, 0, false), 5);
	EXPECT_STREQ(text, "other");
	// The number now belongs to the second registration; ending the first one does not end it.
	library.deregister_file(first);
	const CUfileDescr_t descr = descr_of(fd);
	CUfileHandle_t third;
	EXPECT_EQ(library.register_file(&third, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
	library.deregister_file(second);
	EXPECT_EQ(library.register_file(&third, &descr).err, 0);
}

// The same file, closed and reopened: the same number but another description.
TEST_F(CufileRegistry, AFileThatIsOpenedAnewIsANewRegistration)
{
	const int fd = system.program_fd("first", O_RDWR);
	const CUfileHandle_t first = register_file(library, fd);
	const CUfileDescr_t descr = descr_of(fd);
	CUfileHandle_t second = nullptr, third = nullptr;
	EXPECT_EQ(library.register_file(&third, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
	for (int i = 1; i <= 3; i++) {
		system.fds[fd].description = 9000 + i;
		EXPECT_EQ(library.register_file(&second, &descr).err, 0);
		EXPECT_EQ(library.register_file(&third, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
	}
	char text[8] = {};
	EXPECT_EQ(library.router.transfer(first, text, 8, 0, 0, false), 5);
	library.deregister_file(first);
	EXPECT_EQ(library.register_file(&third, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
	library.deregister_file(second);
	EXPECT_EQ(library.register_file(&third, &descr).err, 0);
}

// The new description is marked before the shortage, so the second attempt finds the mark.
TEST_F(CufileRegistry, AFileThatIsOpenedAnewIsRegisteredAfterAShortage)
{
	const int fd = system.program_fd("first", O_RDWR);
	const CUfileHandle_t first = register_file(library, fd);
	const CUfileDescr_t descr = descr_of(fd);
	CUfileHandle_t second = nullptr, third = nullptr;
	system.fds[fd].description = 9001;
	system.fds_left = 0;
	EXPECT_EQ(library.register_file(&second, &descr).err, CU_FILE_GETNEWFD_FAILED);
	system.fds_left = INT_MAX;
	EXPECT_EQ(library.register_file(&second, &descr).err, 0);
	EXPECT_EQ(library.register_file(&third, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
	library.deregister_file(first);
	EXPECT_EQ(library.register_file(&third, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
}

// Closing it again would release the program's fcntl(F_SETLK) locks on it.
TEST_F(CufileRegistry, WhatIsRefusedIsNotOpened)
{
	const int fd = system.program_fd("first", O_RDWR);
	register_file(library, fd);
	const CUfileDescr_t descr = descr_of(fd);
	CUfileHandle_t fh;
	system.opened.clear();
	EXPECT_EQ(library.register_file(&fh, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
	EXPECT_TRUE(system.opened.empty());
	const CUfileDescr_t pipe = descr_of(system.program_fd("", O_RDWR, S_IFIFO));
	EXPECT_EQ(library.register_file(&fh, &pipe).err, CU_FILE_INVALID_FILE_TYPE);
	EXPECT_TRUE(system.opened.empty());
	EXPECT_FALSE(system.mark(pipe.handle.fd)) << "the owner of a pipe gets signals";
}

// Each path that uses the library's descriptor, and the one on which libpeerdma opens the file through it.
TEST_F(CufileRegistry, ALostDescriptorIsAnErrorByEachWay)
{
	constexpr size_t size = 3 << 20;
	cuda.present = true;
	cuda.device.assign(size, 'd');
	peerdma.buffer.assign(size, 'b');
	peerdma.file = some_bytes(size);
	std::string host(size, 'h');
	for (const int flags : {O_RDWR, O_RDWR | O_DIRECT}) {
		const int fd = system.program_fd(some_bytes(size), flags);
		const CUfileHandle_t fh = register_file(library, fd);
		const auto other = std::make_shared<FakeSystem::File>(
			FakeSystem::File{std::string(size, 'o'), S_IFREG | 0644, 4711});
		// All descriptors of the library.
		for (auto &[number, one] : system.fds)
			if (number > fd)
				one = {other, flags, 9000};
		for (char *const memory : {cuda.device.data(), host.data(), peerdma.buffer.data()}) {
			for (const size_t n : {size_t{4096}, size}) {
				EXPECT_EQ(library.router.transfer(fh, memory, n, 0, 0, false), -EBADF);
				EXPECT_EQ(library.router.transfer(fh, memory, n, 0, 0, true), -EBADF);
			}
		}
		EXPECT_EQ(peerdma.opened.size(), 0u);
		EXPECT_EQ(other->bytes.find_first_not_of('o'), std::string::npos) << "written into another file";
		EXPECT_EQ(cuda.device.find_first_not_of('d'), std::string::npos) << "read from another file";
		EXPECT_EQ(host.find_first_not_of('h'), std::string::npos);
		const size_t at = system.to_stderr.find("the program has closed");
		EXPECT_NE(at, std::string::npos) << "which is said";
		EXPECT_EQ(system.to_stderr.find("the program has closed", at + 1), std::string::npos) << "once";
		system.to_stderr.clear();
		const size_t before = system.fds.size();
		library.deregister_file(fh);
		EXPECT_EQ(system.fds.size(), before) << "they are not the library's to close";
	}
}

// Returns the cause rather than EIO, and retries later.
TEST_F(CufileRegistry, AFileThatLibpeerdmaCannotOpenNow)
{
	peerdma.buffer.assign(4096, 'b');
	peerdma.file = "hello";
	const CUfileHandle_t fh = register_file(library, system.program_fd("hello", O_RDWR));
	peerdma.open_error = -EMFILE;
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 5, 0, 0, false), -EMFILE);
	peerdma.open_error = 0;
	EXPECT_EQ(library.router.transfer(fh, peerdma.buffer.data(), 5, 0, 0, false), 5);
}

TEST_F(CufileRegistry, ADescriptorThatCannotBeHad)
{
	const CUfileDescr_t descr = descr_of(system.program_fd("hello", O_RDWR));
	CUfileHandle_t fh;
	system.no_fds = true;
	EXPECT_EQ(library.register_file(&fh, &descr).err, CU_FILE_GETNEWFD_FAILED);
	system.no_fds = false;
	EXPECT_EQ(library.register_file(&fh, &descr).err, 0);
	EXPECT_EQ(library.register_file(nullptr, &descr).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.register_file(&fh, nullptr).err, CU_FILE_INVALID_VALUE);
	const CUfileDescr_t none = descr_of(4711);
	EXPECT_EQ(library.register_file(&fh, &none).err, CU_FILE_INVALID_VALUE);
}

// The handle would never go directly again or, worse, go directly in spite of the denylist.
TEST_F(CufileRegistry, ADenylistThatCannotBeEvaluatedNow)
{
	system.texts["/etc/cufile.json"] = R"({"denylist": {"drivers": ["x"], "mounts": ["/x"]}})";
	peerdma.buffer.assign(4096, 'b');
	peerdma.file = "hello";
	const int fd = system.program_fd("hello", O_RDWR);
	const CUfileDescr_t descr = descr_of(fd);
	system.texts["/proc/self/fdinfo/" + std::to_string(fd + 1)] = "mnt_id:\t31\n";
	CUfileHandle_t fh;
	system.read_errors["/proc/self/mountinfo"] = -EMFILE;
	EXPECT_EQ(library.register_file(&fh, &descr).err, CU_FILE_GETNEWFD_FAILED);
	system.read_errors.clear();
	EXPECT_EQ(library.register_file(&fh, &descr).err, 0);
}

TEST_F(CufileRegistry, AFileThatCannotGoPastThePageCacheIsNamed)
{
	system.texts["/etc/cufile.json"] =
		R"({"properties": {"force_odirect_mode": true}, "logging": {"level": "WARN"}})";
	const int past = system.program_fd("hello", O_RDWR);
	register_file(library, past);
	EXPECT_EQ(system.to_stderr.find("force_odirect_mode"), std::string::npos) << system.to_stderr;
	system.no_direct = true;
	const int fd = system.program_fd("hello", O_RDWR);
	register_file(library, fd);
	EXPECT_NE(system.to_stderr.find("WARN"), std::string::npos) << system.to_stderr;
	EXPECT_NE(system.to_stderr.find("force_odirect_mode: file descriptor " + std::to_string(fd) +
					" cannot be opened with O_DIRECT"),
		  std::string::npos)
		<< system.to_stderr;
}

// Both threads have found that the description is not registered yet.
TEST_F(CufileRegistry, ADescriptorThatTwoThreadsRegister)
{
	const CUfileDescr_t descr = descr_of(system.program_fd("hello", O_RDWR));
	CUfileHandle_t first = nullptr, second = nullptr;
	ASSERT_EQ(library.driver.open().err, 0);
	system.on_open = [&] { EXPECT_EQ(library.register_file(&second, &descr).err, 0); };
	EXPECT_EQ(library.register_file(&first, &descr).err, CU_FILE_HANDLE_ALREADY_REGISTERED);
	EXPECT_EQ(first, nullptr);
	EXPECT_NE(second, nullptr);
}

// Without /proc there is only the program's own description, whose flags the program may change.
TEST_F(CufileRegistry, WhatWouldBeAppendedIsNotWritten)
{
	system.no_proc = true;
	const int fd = system.program_fd("hello", O_RDWR);
	const CUfileHandle_t fh = register_file(library, fd);
	char text[] = "HELLO";
	EXPECT_EQ(library.router.transfer(fh, text, 2, 0, 0, true), 2);
	system.set_flags(fd, O_RDWR | O_APPEND);
	EXPECT_EQ(library.router.transfer(fh, text, 5, 0, 0, true), cufile::failed(CU_FILE_INVALID_FILE_OPEN_FLAG));
	EXPECT_EQ(system.bytes(fd), "HEllo");
	EXPECT_EQ(library.router.transfer(fh, text, 5, 0, 0, false), 5) << "reading is the same";
	system.set_flags(fd, O_RDWR);
	EXPECT_EQ(library.router.transfer(fh, text, 5, 0, 0, true), 5);
}

// --- Memory
struct Range {
	const char *name;
	uint64_t registered, size;
	off_t to;
	int64_t result; // of a read of a longer file
};

class CufileRegistryMemory : public CufileRegistry, public ::testing::WithParamInterface<Range>
{
};
INSTANTIATE_TEST_SUITE_P(
	Of, CufileRegistryMemory,
	::testing::Values(Range{"all", 1000, 1000, 0, 1000}, Range{"a_part", 1000, 10, 500, 10},
			  Range{"the_last_byte", 1000, 1, 999, 1}, Range{"nothing_at_the_end", 1000, 0, 1000, 0},
			  Range{"one_more", 1000, 1001, 0, -5017}, Range{"one_behind", 1000, 1, 1000, -5017},
			  Range{"across_the_end", 1000, 2, 999, -5017}, Range{"nothing_behind", 1000, 0, 1001, -5017},
			  Range{"far_behind", 1000, 1, INT64_MAX - 1, -5017},
			  Range{"a_sum_that_is_none", 1000, 2, INT64_MAX, -5022},
			  Range{"before_it", 1000, 1, -1, -5022},
			  Range{"the_first_negative", 1000, 1, INT64_MIN, -5022}, Range{"of_one_byte", 1, 1, 0, 1},
			  Range{"more_than_one_byte", 1, 2, 0, -5017}),
	[](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileRegistryMemory, HasAnEnd)
{
	const Range &one = GetParam();
	std::string memory(5000, 'm');
	const CUfileHandle_t fh = register_file(library, system.program_fd(std::string(4000, 'f'), O_RDWR));
	ASSERT_EQ(library.register_buffer(memory.data(), one.registered, 0).err, 0);
	EXPECT_EQ(library.router.transfer(fh, memory.data(), one.size, 0, one.to, false), one.result);
	const size_t n = one.result > 0 ? static_cast<size_t>(one.result) : 0;
	EXPECT_EQ(static_cast<size_t>(std::count(memory.begin(), memory.end(), 'f')), n);
	EXPECT_EQ(library.router.transfer(fh, memory.data(), one.size, 0, one.to, true), one.result)
		<< "a write likewise";
}

TEST_F(CufileRegistry, ABaseIsRegisteredOnce)
{
	char memory[100] = {};
	EXPECT_EQ(library.register_buffer(memory, 100, 0).err, 0);
	EXPECT_EQ(library.register_buffer(memory, 100, 0).err, CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(library.register_buffer(memory, 50, 0).err, CU_FILE_MEMORY_ALREADY_REGISTERED);
	EXPECT_EQ(library.register_buffer(memory + 1, 99, 0).err, 0) << "another base, in the same memory";
	EXPECT_EQ(library.deregister_buffer(memory + 2).err, CU_FILE_MEMORY_NOT_REGISTERED);
	EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	EXPECT_EQ(library.deregister_buffer(memory).err, CU_FILE_MEMORY_NOT_REGISTERED);
	EXPECT_EQ(library.deregister_buffer(memory + 1).err, 0);
	EXPECT_EQ(library.deregister_buffer(nullptr).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.register_buffer(nullptr, 1, 0).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.register_buffer(memory, 0, 0).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.register_buffer(memory, SIZE_MAX, 0).err, CU_FILE_INVALID_VALUE);
	for (const int flags : {0, CU_FILE_RDMA_REGISTER, CU_FILE_RDMA_RELAXED_ORDERING, 3, INT_MIN}) {
		EXPECT_EQ(library.register_buffer(memory, 100, flags).err, 0) << flags;
		EXPECT_EQ(library.deregister_buffer(memory).err, 0);
	}
}

// The memory may have been freed since, and the address may belong to another context or to the host.
TEST_F(CufileRegistry, RegisteredMemoryIsLookedUpAgain)
{
	cuda.present = true;
	cuda.device.assign(100, 'd');
	const CUfileHandle_t fh = register_file(library, system.program_fd("hello", O_RDWR));
	ASSERT_EQ(library.register_buffer(cuda.device.data(), 100, 0).err, 0);
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), 5, 0, 0, false), 5);
	cuda.device[0] = 'd';
	cuda.kind = cufile::Memory::Kind::host;
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), 5, 0, 0, false), -EIO)
		<< "it is no device's any more";
	EXPECT_EQ(cuda.device[0], 'd');
	cuda.kind = cufile::Memory::Kind::managed;
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), 5, 0, 0, false), -EIO);
	cuda.kind = cufile::Memory::Kind::device;
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), 5, 0, 0, false), 5);
	cuda.look_up_error = 700;
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), 5, 0, 0, false), -5011);
	EXPECT_EQ(library.router.transfer(fh, cuda.device.data() + 1, 4, 0, 0, false), -5011);
	EXPECT_EQ(library.register_buffer(cuda.device.data() + 1, 4, 0).err, CU_FILE_CUDA_DRIVER_ERROR);
	EXPECT_EQ(library.register_buffer(cuda.device.data() + 1, 4, 0).cu_err, 700);
	cuda.look_up_error = 0;
}

TEST_F(CufileRegistry, ClosingForgetsAll)
{
	char memory[100] = {};
	const int fd = system.program_fd("hello", O_RDWR);
	const CUfileHandle_t fh = register_file(library, fd);
	CUfileBatchHandle_t batch;
	ASSERT_EQ(library.register_buffer(memory, 100, 0).err, 0);
	ASSERT_EQ(library.create_batch(&batch, 4).err, 0);
	ASSERT_EQ(library.driver.open().err, 0);
	ASSERT_EQ(library.driver.close().err, 0);
	EXPECT_EQ(library.router.transfer(fh, memory, 5, 0, 0, false), 5) << "it is open for somebody else";
	ASSERT_EQ(library.driver.close().err, 0);
	EXPECT_EQ(library.router.transfer(fh, memory, 5, 0, 0, false), -5027);
	ASSERT_EQ(library.driver.open().err, 0);
	EXPECT_EQ(library.router.transfer(fh, memory, 5, 0, 0, false), -5027);
	EXPECT_EQ(library.deregister_buffer(memory).err, CU_FILE_MEMORY_NOT_REGISTERED);
	unsigned n = 0;
	EXPECT_EQ(library.batches.status(batch, 0, &n, nullptr, nullptr).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.batches.cancel(batch).err, CU_FILE_INVALID_VALUE);
	EXPECT_EQ(library.router.transfer(register_file(library, fd), memory, 5, 0, 0, false), 5);
}

} // namespace
