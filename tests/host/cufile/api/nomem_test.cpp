// SPDX-License-Identifier: MIT
// Each allocation fails once: I/O that has begun completes, other I/O is refused, and no byte moves afterwards.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>

#include <unistd.h>

#include "cufile/platform/real_dependencies.hpp"
#include "program.hpp"

namespace
{

// Allocations by all threads until one fails; negative: none fails.
std::atomic<long> fuse{-1};

void *allocate(size_t size) noexcept
{
	if (fuse >= 0 && fuse-- == 0)
		return nullptr;
	return std::malloc(size ? size : 1);
}

void *allocate_or_throw(size_t size)
{
	void *const memory = allocate(size);
	if (!memory)
		throw std::bad_alloc();
	return memory;
}

} // namespace

void *operator new(size_t size) { return allocate_or_throw(size); }
void *operator new[](size_t size) { return allocate_or_throw(size); }
void *operator new(size_t size, const std::nothrow_t &) noexcept { return allocate(size); }
void *operator new[](size_t size, const std::nothrow_t &) noexcept { return allocate(size); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t) noexcept { std::free(memory); }

namespace
{

namespace fs = std::filesystem;

// With the real system, because the fake one allocates memory itself.
class CufileNoMemory : public ::testing::TestWithParam<int>
{
protected:
	CufileNoMemory()
	{
		for (size_t i = 0; i < bytes.size(); i++)
			bytes[i] = static_cast<char>(i * 31 + i / 509);
		std::ofstream(path, std::ios::binary) << bytes;
		cuda.present = true;
		cuda.device.assign(bytes.size(), 'd');
		peerdma.present = false;
	}
	~CufileNoMemory() override { fs::remove(path); }
	// Starts with nothing open, so that every allocation happens on demand.
	template <class Body> void sweep(Body &&body)
	{
		bool all = false;
		for (long nth = 0; !all; nth++) {
			SCOPED_TRACE(nth);
			const int fd = open(path.c_str(), O_RDWR | GetParam() | O_CLOEXEC);
			if (fd < 0)
				GTEST_SKIP() << "no O_DIRECT here";
			cufile::Library library{{cufile::real_system(), cuda, peerdma}};
			const CUfileHandle_t fh = register_file(library, fd);
			body(library, fh, nth);
			all = unused;
			// No thread may still be writing.
			cuda.device.assign(cuda.device.size(), 'd');
			library.driver.close();
			close(fd);
			ASSERT_TRUE(cuda.device == untouched);
			ASSERT_EQ(cuda.pinned, 0);
			ASSERT_LT(nth, 2000);
		}
	}

	// Returns the bytes moved before the failure.
	int64_t move(cufile::Library &library, CUfileHandle_t fh, long nth, bool write)
	{
		fuse = nth;
		int64_t n;
		try {
			n = library.router.transfer(fh, cuda.device.data(), bytes.size(), 0, 0, write);
		} catch (const std::bad_alloc &) {
			n = -ENOMEM;
		}
		disarm();
		return n;
	}
	static size_t moved(int64_t n) { return static_cast<size_t>(std::max<int64_t>(n, 0)); }
	void disarm() { unused = fuse.exchange(-1) >= 0; }

	static constexpr size_t part = 600 * 1024;
	const std::string path = fs::temp_directory_path() / ("cufile-nomem-" + std::to_string(getpid()));
	std::string bytes = std::string(5 * part + 700, 0);
	const std::string untouched = std::string(bytes.size(), 'd');
	FakeCuda cuda;
	FakePeerdma peerdma;
	bool unused = false; // the last run had no failing allocation
};

TEST_P(CufileNoMemory, Reads)
{
	sweep([&](cufile::Library &library, CUfileHandle_t fh, long nth) {
		const int64_t n = move(library, fh, nth, false);
		ASSERT_TRUE(n == -ENOMEM || n > 0) << n;
		ASSERT_EQ(cuda.device.compare(0, moved(n), bytes, 0, moved(n)), 0);
	});
}

TEST_P(CufileNoMemory, Writes)
{
	sweep([&](cufile::Library &library, CUfileHandle_t fh, long nth) {
		const size_t first = 1 + static_cast<size_t>(nth);
		cuda.device.replace(0, bytes.size() - first, bytes, first)
			.replace(bytes.size() - first, first, bytes, 0, first);
		const int64_t n = move(library, fh, nth, true);
		ASSERT_TRUE(n == -ENOMEM || n > 0) << n;
		std::stringstream now;
		now << std::ifstream(path, std::ios::binary).rdbuf();
		ASSERT_EQ(now.str().compare(0, moved(n), cuda.device, 0, moved(n)), 0);
	});
}

TEST_P(CufileNoMemory, Batches)
{
	constexpr unsigned parts = 5;
	sweep([&](cufile::Library &library, CUfileHandle_t fh, long nth) {
		CUfileBatchHandle_t batch = nullptr;
		ASSERT_EQ(library.create_batch(&batch, parts).err, 0);
		CUfileIOParams_t ios[parts];
		for (unsigned i = 0; i < parts; i++)
			ios[i] = batch_io(fh, cuda.device.data(), part, static_cast<off_t>(i * part),
					  static_cast<off_t>(i * part), &ios[i], i == 3 ? CUFILE_WRITE : CUFILE_READ);
		cuda.device.replace(3 * part, part, bytes, 3 * part, part);
		fuse = nth;
		bool begun = false;
		try {
			begun = !library.batches.submit(batch, parts, ios).err;
		} catch (const std::bad_alloc &) {
			begun = false;
		}
		// Every event arrives, even if an allocation fails meanwhile.
		unsigned events = 0;
		const struct timespec deadline = {20, 0};
		while (begun && events < parts) {
			CUfileIOEvents_t some[parts];
			unsigned nr = parts - events;
			CUfileError_t rc = {CU_FILE_NOMEM_ERROR, CUDA_SUCCESS};
			try {
				rc = library.batches.status(batch, nr, &nr, some, nth % 2 ? &deadline : nullptr);
			} catch (const std::bad_alloc &) {
				continue;
			}
			ASSERT_EQ(rc.err, 0);
			ASSERT_GT(nr, 0u) << "an event is lost";
			for (unsigned i = 0; i < nr; i++) {
				const auto n = static_cast<int64_t>(some[i].ret);
				ASSERT_TRUE(n == static_cast<int64_t>(part) || n == -ENOMEM) << n;
				const auto at =
					static_cast<size_t>(static_cast<CUfileIOParams_t *>(some[i].cookie) - ios) *
					part;
				if (n > 0) {
					ASSERT_EQ(cuda.device.compare(at, part, bytes, at, part), 0);
				}
			}
			events += nr;
		}
		disarm();
		try {
			library.batches.destroy(batch);
		} catch (const std::bad_alloc &) {
			ADD_FAILURE() << "it cannot be destroyed";
		}
	});
}

INSTANTIATE_TEST_SUITE_P(Both, CufileNoMemory, ::testing::Values(0, O_DIRECT),
			 [](const auto &one) { return one.param ? "Direct" : "Cached"; });

} // namespace
