// SPDX-License-Identifier: MIT
// Non-temporal copies and when reads use them: all bytes arrive, and nothing around them changes.
#include <cstring>
#include <thread>
#include <vector>

#include "common/nt_copy.hpp"
#include "cufile/path/nt_copy.hpp"
#include "program.hpp"

using cufile::NtReader;

namespace
{

TEST(CufileStores, WhatIsThereAndNoMore)
{
	const std::string bytes = some_bytes(5000);
	for (size_t to = 0; to < 70; to++) {
		for (const size_t from : {0, 1, 8, 63}) {
			for (const size_t size : {0, 1, 15, 16, 63, 64, 65, 127, 128, 129, 4099}) {
				std::string all(4300, 'd'), want = all;
				want.replace(64 + to, size, bytes, from, size);
				peerdma_impl::nt_copy(all.data() + 64 + to, bytes.data() + from, size);
				ASSERT_TRUE(all == want) << to << ' ' << from << ' ' << size;
			}
		}
	}
}

// Records where reads put their bytes.
class Told final : public cufile::File
{
public:
	explicit Told(std::string b) : bytes(std::move(b)) {}
	int64_t read(void *to, uint64_t size, uint64_t offset) override
	{
		places.push_back(static_cast<const char *>(to));
		if (places.size() == fails_at)
			return -EIO;
		return offset < bytes.size() ? static_cast<int64_t>(bytes.copy(static_cast<char *>(to), size, offset)) :
					       0;
	}
	int64_t write(const void *, uint64_t, uint64_t) override { return -EBADF; }
	bool readable() const override { return true; }
	bool writable() const override { return false; }
	bool copied() const override { return by_core; }

	const std::string bytes;
	bool by_core = true;
	size_t fails_at = 0;
	std::vector<const char *> places;
};

constexpr size_t kib = 1024, cut = 128 * kib;

struct Asked {
	NtReader::Share share;
	size_t size, offset;
	size_t calls, straight; // number of reads, and of those that go to their destination
};
class CufileNtReader : public ::testing::TestWithParam<Asked>
{
};
INSTANTIATE_TEST_SUITE_P(
	Each, CufileNtReader,
	::testing::Values(
		Asked{NtReader::Share::none, 8 * cut, 0, 1, 1}, Asked{NtReader::Share::half, 8 * cut, 0, 8, 4},
		Asked{NtReader::Share::all, 8 * cut, 0, 8, 0}, Asked{NtReader::Share::half, cut, 0, 1, 0},
		Asked{NtReader::Share::half, 2 * cut + 1, 77, 3, 1}, Asked{NtReader::Share::all, 32 * kib, 3, 1, 0},
		Asked{NtReader::Share::all, 32 * kib - 1, 3, 1, 1},
		Asked{NtReader::Share::all, 8 * cut, 9 * cut + 5, 1, 0},  // the end of the file
		Asked{NtReader::Share::half, 8 * cut, 8 * cut + 5, 2, 1}, // within the part for the destination
		Asked{NtReader::Share::all, cut, 10 * cut, 1, 0}, Asked{NtReader::Share::half, cut, 1 << 30, 1, 0}),
	[](const auto &one) { return "Row" + std::to_string(one.index); });

TEST_P(CufileNtReader, ReadsWhatIsThere)
{
	const Asked &asked = GetParam();
	Told file(some_bytes(10 * cut - 100));
	std::string all(9 * cut, 'd'), want = all;
	char *const to = all.data() + 13;
	const size_t there = std::min(asked.size, file.bytes.size() - std::min(asked.offset, file.bytes.size()));
	if (there)
		want.replace(13, there, file.bytes, asked.offset, there);
	NtReader nt_reader;
	EXPECT_EQ(nt_reader.read(file, to, asked.size, asked.offset, asked.share), static_cast<int64_t>(there));
	EXPECT_TRUE(all == want);
	EXPECT_EQ(file.places.size(), asked.calls);
	size_t straight = 0;
	for (const char *location : file.places)
		straight += location >= to && location < to + asked.size;
	EXPECT_EQ(straight, asked.straight);
}

TEST(CufileNtReaderOf, WhatNoCoreCopiesGoesStraight)
{
	Told file(some_bytes(4 * cut));
	file.by_core = false;
	std::string all(4 * cut, 'd');
	NtReader nt_reader;
	EXPECT_EQ(nt_reader.read(file, all.data(), all.size(), 0, NtReader::Share::all), static_cast<int64_t>(4 * cut));
	EXPECT_EQ(file.places, std::vector<const char *>{all.data()});
}

TEST(CufileNtReaderOf, AnErrorIsTold)
{
	for (size_t at = 1; at <= 5; at++) {
		Told file(some_bytes(4 * cut));
		file.fails_at = at;
		std::string all(4 * cut, 'd'), want = all;
		const size_t before = std::min((at - 1) * cut, all.size());
		want.replace(0, before, file.bytes, 0, before);
		NtReader nt_reader;
		EXPECT_EQ(nt_reader.read(file, all.data(), all.size(), 0, NtReader::Share::half),
			  at <= 4 ? -EIO : static_cast<int64_t>(all.size()));
		// The content of the failed piece is undefined.
		all.resize(before);
		want.resize(before);
		EXPECT_TRUE(all == want) << at;
	}
}

// --- Which reads use it, by the number of concurrent reads. The other reads block in a userspace file system.
struct Gate {
	std::atomic<unsigned> inside{0};
	std::atomic<bool> open{false};
};

ssize_t wait_in(const void *gate, char *to, size_t size, loff_t, const cufileRDMAInfo_t *)
{
	auto &g = *const_cast<Gate *>(static_cast<const Gate *>(gate));
	g.inside++;
	g.open.wait(false);
	std::memset(to, 'g', size);
	return static_cast<ssize_t>(size);
}

struct Crowd {
	unsigned others;
	size_t size;
	bool direct;      // O_DIRECT
	size_t cores;     // available to the program
	size_t elsewhere; // reads into other memory than the GPU copies from
};
class CufileCrowd : public ::testing::TestWithParam<Crowd>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileCrowd,
			 ::testing::Values(Crowd{0, 1024 * kib, false, 16, 0}, Crowd{5, 1024 * kib, false, 16, 0},
					   Crowd{6, 1024 * kib, false, 16, 8}, // with a helper thread
					   Crowd{7, 1024 * kib, false, 16, 8}, // likewise
					   Crowd{8, 1024 * kib, false, 16, 4}, // no helper for this many reads
					   Crowd{8, 1024 * kib, false, 64, 4}, // whatever the number of cores
					   Crowd{7, 1024 * kib, false, 15, 4}, Crowd{7, 1024 * kib, false, 0, 4},
					   Crowd{11, 1024 * kib, false, 16, 8}, Crowd{7, 256 * kib, false, 16, 1},
					   Crowd{7, 64 * kib, false, 16, 1}, Crowd{7, 31 * kib, false, 16, 0},
					   Crowd{7, 1025 * kib, false, 16, 0}, Crowd{7, 4096 * kib, false, 16, 0},
					   Crowd{7, 9000 * kib, false, 16, 0}, Crowd{0, 4096 * kib, false, 16, 16},
					   Crowd{0, 9000 * kib, false, 16, 0}, Crowd{7, 1024 * kib, true, 16, 0}),
			 [](const auto &one) { return "Row" + std::to_string(one.index); });

TEST_P(CufileCrowd, BringsAllBytes)
{
	const Crowd &crowd = GetParam();
	FakeSystem system;
	FakeCuda cuda;
	FakePeerdma peerdma;
	cuda.present = true;
	constexpr size_t mine = 9 << 20, theirs = 4096;
	cuda.device.assign(mine + 16 * theirs, 'd');
	system.allowed = 0;
	for (size_t core = 0; core < crowd.cores; core++)
		system.allowed.set(core);
	const std::string bytes = some_bytes(mine);
	{
		cufile::Library library{{system, cuda, peerdma}};
		const CUfileHandle_t fh =
			register_file(library, system.program_fd(bytes, O_RDWR | (crowd.direct ? O_DIRECT : 0)));
		Gate gate;
		CUfileFSOps_t ops = {};
		ops.read = wait_in;
		CUfileDescr_t descr = descr_of(0, CU_FILE_HANDLE_TYPE_USERSPACE_FS);
		descr.handle.handle = &gate;
		descr.fs_ops = &ops;
		CUfileHandle_t waiting = nullptr;
		ASSERT_EQ(library.register_file(&waiting, &descr).err, 0);
		std::vector<std::thread> others;
		for (unsigned i = 0; i < crowd.others; i++)
			others.emplace_back([&, i] {
				EXPECT_EQ(library.router.transfer(waiting, cuda.device.data() + mine + i * theirs,
								  theirs, 0, 0, false),
					  static_cast<int64_t>(theirs));
			});
		while (gate.inside < crowd.others)
			std::this_thread::yield();
		system.calls.clear();
		EXPECT_EQ(library.router.transfer(fh, cuda.device.data(), crowd.size, 0, 0, false),
			  static_cast<int64_t>(crowd.size));
		size_t elsewhere = 0;
		for (const auto &call : system.calls)
			elsewhere += !cuda.is_pinned(call.memory);
		EXPECT_EQ(elsewhere, crowd.elsewhere);
		gate.open = true;
		gate.open.notify_all();
		for (auto &other : others)
			other.join();
		close_all(library);
	}
	EXPECT_TRUE(!cuda.device.compare(0, crowd.size, bytes, 0, crowd.size));
	const std::string untouched(mine - crowd.size, 'd');
	EXPECT_TRUE(!cuda.device.compare(crowd.size, untouched.size(), untouched)) << "behind it";
	EXPECT_EQ(cuda.pinned, 0) << "pinned memory leaked";
}

} // namespace
