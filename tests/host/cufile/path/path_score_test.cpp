// SPDX-License-Identifier: MIT
// The chosen path and the reason for not taking a better one, for each kind of memory, file and offset, under each
// setting.
#include "program.hpp"

namespace
{

enum class In { host, device, managed, buffer, device_buffer }; // device_buffer: known to both libpeerdma and CUDA

struct Case {
	const char *name;
	In memory;
	bool user_file, forced, refused, no_library;
	uint64_t at, size; // in memory of 64 KiB
	uint32_t route;    // PEERDMA_ROUTE_*
	enum peerdma_cufile_why why;
	bool strictly; // works with PEERDMA_REQUIRE_DIRECT, too
};

class CufilePathScore : public ::testing::TestWithParam<Case>, protected Fakes
{
protected:
	CufilePathScore()
	{
		const Case &one = GetParam();
		peerdma.buffer.assign(65536, 'b');
		peerdma.file.assign(100000, 'f');
		peerdma.present = !one.no_library;
		peerdma.refused = one.refused ? PEERDMA_REASON_QUEUE : 0;
		cuda.device.assign(65536, 'd');
		cuda.present = true;
		if (one.memory == In::managed)
			cuda.kind = cufile::Memory::Kind::managed;
		if (one.memory == In::device_buffer)
			cuda.also = &peerdma.buffer;
		if (one.forced)
			system.variables["CUFILE_FORCE_COMPAT_MODE"] = "true";
	}
	~CufilePathScore() override { close_all(library); }
	char *memory()
	{
		switch (GetParam().memory) {
		case In::host:
			return host.data();
		case In::device:
		case In::managed:
			return cuda.device.data();
		default:
			return peerdma.buffer.data();
		}
	}
	CUfileHandle_t add()
	{
		if (!GetParam().user_file)
			return register_file(library, system.program_fd(std::string(100000, 'f'), O_RDWR));
		ops.read = [](const void *, char *to, size_t size, off_t, const cufileRDMAInfo_t *) {
			std::memset(to, 'f', size);
			return static_cast<ssize_t>(size);
		};
		ops.write = [](const void *, const char *, size_t size, off_t, const cufileRDMAInfo_t *) {
			return static_cast<ssize_t>(size);
		};
		CUfileDescr_t descr = {};
		descr.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
		descr.fs_ops = &ops;
		CUfileHandle_t fh = nullptr;
		EXPECT_EQ(library.register_file(&fh, &descr).err, 0);
		return fh;
	}

	CUfileFSOps_t ops = {};
	std::string host = std::string(65536, 'h');
};

constexpr uint32_t direct = PEERDMA_ROUTE_DIRECT_EDGES, posix = PEERDMA_ROUTE_POSIX, bounce = PEERDMA_ROUTE_HOST;
INSTANTIATE_TEST_SUITE_P(
	Of, CufilePathScore,
	::testing::Values(
		// Host memory always uses the system's calls.
		Case{"host", In::host, 0, 0, 0, 0, 0, 4096, posix, PEERDMA_CUFILE_WHY_HOST_MEMORY, true},
		Case{"host_of_its_own_file", In::host, 1, 0, 0, 0, 0, 4096, posix, PEERDMA_CUFILE_WHY_HOST_MEMORY,
		     true},
		Case{"host_forced", In::host, 0, 1, 0, 0, 0, 4096, posix, PEERDMA_CUFILE_WHY_HOST_MEMORY, true},
		Case{"host_without_libpeerdma", In::host, 0, 0, 0, 1, 0, 4096, posix, PEERDMA_CUFILE_WHY_HOST_MEMORY,
		     true},
		// CUDA memory that libpeerdma does not know is bounced.
		Case{"device", In::device, 0, 0, 0, 0, 0, 4096, bounce, PEERDMA_CUFILE_WHY_NOT_A_BUFFER, false},
		Case{"device_odd", In::device, 0, 0, 0, 0, 3, 4097, bounce, PEERDMA_CUFILE_WHY_NOT_A_BUFFER, false},
		Case{"device_forced", In::device, 0, 1, 0, 0, 0, 4096, bounce, PEERDMA_CUFILE_WHY_NOT_A_BUFFER, false},
		Case{"device_of_its_own_file", In::device, 1, 0, 0, 0, 0, 4096, bounce, PEERDMA_CUFILE_WHY_NOT_A_BUFFER,
		     false},
		Case{"device_without_libpeerdma", In::device, 0, 0, 0, 1, 0, 4096, bounce,
		     PEERDMA_CUFILE_WHY_NO_LIBRARY, false},
		Case{"managed", In::managed, 0, 0, 0, 0, 0, 4096, bounce, PEERDMA_CUFILE_WHY_NOT_A_BUFFER, false},
		Case{"managed_without_libpeerdma", In::managed, 0, 0, 0, 1, 0, 4096, bounce,
		     PEERDMA_CUFILE_WHY_NO_LIBRARY, false},
		// Buffers that the CPU can access go directly, or by system calls.
		Case{"buffer", In::buffer, 0, 0, 0, 0, 0, 4096, direct, PEERDMA_CUFILE_WHY_NONE, true},
		Case{"buffer_to_its_end", In::buffer, 0, 0, 0, 0, 61440, 4096, direct, PEERDMA_CUFILE_WHY_NONE, true},
		Case{"buffer_across_its_end", In::buffer, 0, 0, 0, 0, 61444, 4096, posix, PEERDMA_CUFILE_WHY_BUFFER_END,
		     false},
		Case{"buffer_forced", In::buffer, 0, 1, 0, 0, 0, 4096, posix, PEERDMA_CUFILE_WHY_FORCED, false},
		Case{"buffer_of_its_own_file", In::buffer, 1, 0, 0, 0, 0, 4096, posix, PEERDMA_CUFILE_WHY_USER_FILE,
		     false},
		Case{"buffer_forced_of_its_own_file", In::buffer, 1, 1, 0, 0, 0, 4096, posix, PEERDMA_CUFILE_WHY_FORCED,
		     false},
		Case{"buffer_refused", In::buffer, 0, 0, 1, 0, 0, 4096, posix, PEERDMA_CUFILE_WHY_REFUSED, false},
		// CUDA memory too: I/O that cannot go directly is bounced, because CPU access would be slow.
		Case{"both", In::device_buffer, 0, 0, 0, 0, 0, 4096, direct, PEERDMA_CUFILE_WHY_NONE, true},
		Case{"both_odd_bytes", In::device_buffer, 0, 0, 0, 0, 4, 4097, direct, PEERDMA_CUFILE_WHY_NONE, true},
		Case{"both_odd_address", In::device_buffer, 0, 0, 0, 0, 2, 4096, bounce, PEERDMA_CUFILE_WHY_REFUSED,
		     false},
		Case{"both_across_the_end", In::device_buffer, 0, 0, 0, 0, 65532, 8, bounce,
		     PEERDMA_CUFILE_WHY_BUFFER_END, false},
		Case{"both_forced", In::device_buffer, 0, 1, 0, 0, 0, 4096, bounce, PEERDMA_CUFILE_WHY_FORCED, false},
		Case{"both_of_its_own_file", In::device_buffer, 1, 0, 0, 0, 0, 4096, bounce,
		     PEERDMA_CUFILE_WHY_USER_FILE, false},
		Case{"both_refused", In::device_buffer, 0, 0, 1, 0, 0, 4096, bounce, PEERDMA_CUFILE_WHY_REFUSED,
		     false}),
	[](const auto &one) { return std::string(one.param.name); });

TEST_P(CufilePathScore, IsSaidBefore)
{
	const Case &one = GetParam();
	peerdma_cufile_route route = {};
	ASSERT_EQ(library.router.explain(add(), memory() + one.at, one.size, 0, 0, route), 0);
	EXPECT_EQ(route.route, one.route);
	EXPECT_EQ(route.why, one.why);
	EXPECT_EQ(route.reason != 0, one.why == PEERDMA_CUFILE_WHY_REFUSED);
	EXPECT_TRUE(peerdma.reads.empty() && system.calls.empty()) << "nothing was moved for it";
}

// By an offset from a registered base and by the address itself: the result is the same.
TEST_P(CufilePathScore, IsDoneAndCounted)
{
	const Case &one = GetParam();
	const CUfileHandle_t fh = add();
	for (const bool registered : {false, true}) {
		if (registered) {
			ASSERT_EQ(library.register_buffer(memory(), 65536, 0).err, 0);
		}
		if (one.at + one.size > 65536)
			break; // not available
		peerdma_cufile_counts before = {}, after = {};
		library.router.accounting().counts(before);
		peerdma.reads.clear();
		EXPECT_EQ(library.router.transfer(fh, memory(), one.size, 0, static_cast<off_t>(one.at), false),
			  static_cast<int64_t>(one.size));
		EXPECT_EQ(std::string(memory() + one.at, one.size), std::string(one.size, 'f'));
		// libpeerdma moves a refused I/O, too, if the CPU can access the memory.
		const bool by_peer = one.route == direct || (one.refused && one.memory == In::buffer);
		EXPECT_EQ(peerdma.reads.size(), by_peer ? 1u : 0u);
		library.router.accounting().counts(after);
		for (unsigned why = 0; why < PEERDMA_CUFILE_NR_WHYS; why++) {
			EXPECT_EQ(after.ios[why] - before.ios[why], why == one.why) << why;
			EXPECT_EQ(after.bytes[why] - before.bytes[why], why == one.why ? one.size : 0u) << why;
		}
	}
}

TEST_P(CufilePathScore, WhoInsistsGetsItOrAnError)
{
	const Case &one = GetParam();
	system.variables["PEERDMA_REQUIRE_DIRECT"] = "1";
	const CUfileHandle_t fh = add();
	if (one.at + one.size > 65536)
		return;
	std::string before(memory() + one.at, one.size);
	// A write of a part of a block goes through the page cache.
	const bool written = one.strictly && (one.route != direct || one.size % 512 == 0);
	for (const bool write : {false, true})
		EXPECT_EQ(library.router.transfer(fh, memory() + one.at, one.size, 0, 0, write),
			  (write ? written : one.strictly) ? static_cast<int64_t>(one.size) : -5008)
			<< write;
	EXPECT_EQ(std::string(memory() + one.at, one.size) == before, !one.strictly);
	EXPECT_TRUE(one.strictly || system.calls.empty());
	peerdma_cufile_counts counts = {};
	library.router.accounting().counts(counts);
	EXPECT_EQ(counts.ios[one.why], unsigned{one.strictly} + written) << "what was not done is not counted";
}

} // namespace
