// SPDX-License-Identifier: MIT
//
// One I/O by each call and each path: the same result, bytes and counters. The deviations of single calls are in
// said_by() and in the table "The same error by each call" of Documentation/cufile.md.
#include <functional>

#include "program.hpp"

namespace
{

constexpr size_t MiB = 1 << 20, memory_bytes = 8 * MiB, file_bytes = 6 * MiB + 777;
constexpr uint32_t own_provider = 7;

// Static: generating it takes longer than the tests.
const std::string &file_before()
{
	static const std::string bytes = some_bytes(file_bytes);
	return bytes;
}
const std::string &memory_before()
{
	static const std::string bytes = some_bytes(memory_bytes + 7).substr(7);
	return bytes;
}

enum class Call { sync, vector, batch, stream };
constexpr Call calls[] = {Call::sync, Call::vector, Call::batch, Call::stream};
// copied: bounced; in a stream, with a driver that lacks the copy kernel.
enum class Route { host, bounced, copied, direct, peer_gpu };
constexpr Route routes[] = {Route::host, Route::bounced, Route::copied, Route::direct, Route::peer_gpu};

const char *name_of(Call call)
{
	constexpr const char *names[] = {"sync", "vector", "batch", "stream"};
	return names[static_cast<size_t>(call)];
}
const char *name_of(Route route)
{
	constexpr const char *names[] = {"host", "bounced", "copied", "direct", "peer_gpu"};
	return names[static_cast<size_t>(route)];
}

struct Io {
	const char *name;
	bool write;
	size_t size;
	off_t from, to;     // in the file, in memory
	int64_t result;     // of cuFileRead() or cuFileWrite(): bytes or a negative error
	size_t registered;  // registered length; 0: not registered
	int flags = O_RDWR; // open flags of the file
	int64_t fault = 0;  // error of the file system or the drive
	bool no_base = false, no_file = false;
};

constexpr Io all_ios[] = {
	{"Read", false, 100, 1000, 10, 100, 0},
	{"ReadOfRegisteredMemory", false, 4096, 512, 4096, 4096, memory_bytes},
	{"LongRead", false, 5 * MiB + 123, 1000, 7, 5 * MiB + 123, 0},
	{"ReadToTheEnd", false, 4096, file_bytes - 1000, 0, 1000, 0},
	{"LongReadToTheEnd", false, 6 * MiB, 3 * MiB, 0, 3 * MiB + 777, 0},
	{"ReadBehindTheEnd", false, 4096, file_bytes + 5000, 0, 0, 0},
	{"ReadOfNothing", false, 0, 0, 0, 0, 0},
	{"Write", true, 100, 1000, 10, 100, 0},
	{"LongWrite", true, 5 * MiB + 123, 1000, 7, 5 * MiB + 123, memory_bytes},
	{"WriteBehindTheEnd", true, 4096, file_bytes + 4096, 0, 4096, 0},
	{"WriteOfNothing", true, 0, 0, 0, 0, 0},
	{"NegativePlaceInTheFile", false, 100, -1, 0, -5022, 0},
	{"NegativePlaceInMemory", false, 100, 0, -1, -5022, 0},
	{"NegativePlaceOfAWrite", true, 100, -4096, 0, -5022, memory_bytes},
	{"SizeThatWrapsAround", false, size_t{1} << 63, 0, 0, -5022, 0},
	{"PlaceThatWrapsAround", false, 4096, INT64_MAX - 100, 0, -5022, 0},
	{"BeyondTheRegisteredLength", false, 4097, 0, 0, -5017, 4096},
	{"BeyondTheRegisteredLengthByAnOffset", false, 100, 0, 4000, -5017, 4096},
	{"WriteFromBeyondTheRegisteredLength", true, 4097, 0, 0, -5017, 4096},
	{"NoMemory", false, 100, 0, 0, -EINVAL, 0, O_RDWR, 0, true},
	{"NoFile", false, 100, 0, 0, -5027, 0, O_RDWR, 0, false, true},
	{"ReadOfWhatIsOnlyWritten", false, 100, 0, 0, -5019, 0, O_WRONLY},
	{"WriteOfWhatIsOnlyRead", true, 100, 0, 0, -EIO, 0, O_RDONLY},
	{"ReadThatFails", false, 100, 0, 0, -ENOLINK, 0, O_RDWR, -ENOLINK},
	{"WriteThatFails", true, 100, 0, 0, -ENOSPC, 0, O_RDWR, -ENOSPC},
};

// An error returned by the call itself rather than as the I/O's result.
constexpr int64_t refusal(CUfileOpError error) { return -100000 - error; }

// The result by this call where cuFileRead() and cuFileWrite() return io.result.
int64_t said_by(Call call, const Io &io)
{
	if (call == Call::batch) {
		const bool when_submitted = io.result < 0 && !io.fault;
		return when_submitted ? refusal(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR) : io.result;
	}
	if (call != Call::stream || io.result >= 0)
		return io.result;
	if (io.no_base)
		return refusal(CU_FILE_INVALID_VALUE);
	if (io.no_file)
		return refusal(CU_FILE_HANDLE_NOT_REGISTERED);
	if (io.to < 0)
		return -CU_FILE_INTERNAL_ERROR;
	if (io.result == -CU_FILE_INVALID_MAPPING_RANGE)
		return -CU_FILE_INVALID_MAPPING_SIZE;
	return io.result < -CUFILEOP_BASE_ERR ? io.result : -1;
}

// What the I/O left behind.
struct Seen {
	int64_t result = 0;
	std::string_view memory, file; // of the World
	uint64_t ios = 0, bytes = 0;   // sum over all reasons
	uint64_t good = 0, failed = 0; // reads and writes, from the statistics
	uint64_t good_vectors = 0, failed_vectors = 0;
	uint64_t read_bytes = 0, write_bytes = 0;
};

class World : public Fakes
{
public:
	World(Route route, const Io &io) : io_(io), route_(route)
	{
		cuda.present = true;
		peerdma.file = bytes;
		std::string &memory = memory_of();
		memory = memory_before();
		if (route == Route::direct || route == Route::peer_gpu)
			cuda.also = &peerdma.buffer;
		if (route == Route::copied)
			cuda.copy_kernel_error = 500; // CUDA_ERROR_NOT_FOUND
		if (route == Route::peer_gpu) {
			peerdma.refused_by[own_provider] = PEERDMA_REASON_DISTANCE;
			peerdma.pin_error = 0;
			cuda.nr_devices = 2;
			system.texts["/etc/cufile.json"] = R"({"properties": {"rdma_dynamic_routing": true}})";
		}
		fd_ = system.program_fd(bytes, io.flags);
		fh_ = register_file(library, fd_);
		if (io.registered) {
			EXPECT_EQ(library.register_buffer(memory.data(), io.registered, 0).err, 0);
		}
		library.stats.set_level(1);
		library.stats.start();
	}
	~World() { close_all(library); }
	World(const World &) = delete;
	World &operator=(const World &) = delete;

	Seen see(Call call)
	{
		if (io_.fault) {
			peerdma.error = io_.fault;
			system.errors.assign(8, io_.fault);
		}
		Seen seen;
		seen.result = call == Call::sync ?
				      library.router.transfer(fh(), base(), io_.size, io_.from, io_.to, io_.write) :
			      call == Call::vector ? by_vector() :
			      call == Call::batch  ? by_batch() :
						     by_stream(io_.size);
		tell(seen);
		return seen;
	}
	int64_t by_stream(size_t size_then)
	{
		size_t size = io_.size;
		off_t from = io_.from, to = io_.to;
		ssize_t result = 4711;
		const CUfileError_t error = library.streams.submit(fh(), base(), &size, &from, &to, &result,
								   reinterpret_cast<CUstream>(this), io_.write);
		if (error.err)
			return refusal(error.err);
		size = size_then;
		entries = cuda.in_stream.size();
		for (const auto &one : cuda.in_stream)
			one.call(one.arg);
		cuda.in_stream.clear();
		return result;
	}
	void tell(Seen &seen)
	{
		seen.memory = memory_of();
		// Take the one that was written: a part of a block is bounced, and a stream copies instead of using a
		// peer GPU.
		seen.file = peerdma.file != bytes ? peerdma.file : system.bytes(fd_);
		peerdma_cufile_counts counts = {};
		library.router.accounting().counts(counts);
		for (unsigned i = 0; i < PEERDMA_CUFILE_NR_WHYS; i++) {
			seen.ios += counts.ios[i];
			seen.bytes += counts.bytes[i];
		}
		CUfileStatsLevel1_t stats = {};
		library.stats.write(1, &stats);
		seen.good = stats.read_ops.ok + stats.write_ops.ok;
		seen.failed = stats.read_ops.err + stats.write_ops.err;
		seen.read_bytes = stats.read_bytes;
		seen.write_bytes = stats.write_bytes;
	}

private:
	std::string &memory_of()
	{
		return route_ == Route::host                               ? host_ :
		       route_ == Route::bounced || route_ == Route::copied ? cuda.device :
									     peerdma.buffer;
	}
	CUfileHandle_t fh() const { return io_.no_file ? nullptr : fh_; }
	// A vector has no offset in memory.
	void *base(bool at = false) { return io_.no_base ? nullptr : memory_of().data() + (at ? io_.to : 0); }

	int64_t by_vector()
	{
		const CUfileIOVec_t one = {base(true), io_.size};
		return library.router.transfer_vector(fh(), &one, 1, io_.from, 0, io_.write);
	}
	int64_t by_batch()
	{
		CUfileBatchHandle_t id = nullptr;
		EXPECT_EQ(library.create_batch(&id, 1).err, 0);
		const CUfileIOParams_t io = batch_io(fh(), base(), io_.size, io_.from, io_.to, this,
						     io_.write ? CUFILE_WRITE : CUFILE_READ);
		const CUfileError_t error = library.batches.submit(id, 1, &io);
		CUfileIOEvents_t event = {};
		unsigned n = 1;
		if (!error.err) {
			EXPECT_EQ(library.batches.status(id, 1, &n, &event, nullptr).err, 0);
			EXPECT_EQ(n, 1u);
			EXPECT_EQ(event.cookie, this);
			EXPECT_EQ(event.status, static_cast<int64_t>(event.ret) < 0 ? CUFILE_FAILED : CUFILE_COMPLETE);
		}
		library.batches.destroy(id);
		return error.err ? refusal(error.err) : static_cast<int64_t>(event.ret);
	}

public:
	const std::string &bytes = file_before();
	size_t entries = 0; // entries that the last I/O added to the stream

private:
	const Io io_;
	const Route route_;
	std::string host_;
	int fd_ = -1;
	CUfileHandle_t fh_ = nullptr;
};

class CufileMeaning : public ::testing::TestWithParam<Io>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileMeaning, ::testing::ValuesIn(all_ios),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileMeaning, IsTheSameByEachCallAndWay)
{
	const Io &io = GetParam();
	const bool moves = io.result > 0;
	std::string memory = memory_before(), file = file_before();
	if (moves && io.write) {
		file.resize(std::max(file.size(), static_cast<size_t>(io.from) + io.size));
		file.replace(static_cast<size_t>(io.from), io.size, memory, static_cast<size_t>(io.to), io.size);
	} else if (moves) {
		memory.replace(static_cast<size_t>(io.to), static_cast<size_t>(io.result), file,
			       static_cast<size_t>(io.from), static_cast<size_t>(io.result));
	}
	for (const Call call : calls) {
		// a vector has no offset in memory
		if (call == Call::vector && (io.to < 0 || (io.to && io.result == -CU_FILE_INVALID_MAPPING_RANGE)))
			continue;
		for (const Route route : routes) {
			SCOPED_TRACE(std::string(name_of(call)) + ", " + name_of(route));
			World world(route, io);
			const Seen seen = world.see(call);
			EXPECT_EQ(seen.result, said_by(call, io));
			EXPECT_TRUE(seen.memory == memory);
			EXPECT_TRUE(seen.file == file);
			// An I/O that has begun is counted, however it ends; one that is invalid from the beginning is
			// not.
			const bool begun = io.size && (io.result >= 0 || io.fault);
			EXPECT_EQ(seen.ios, begun);
			EXPECT_EQ(seen.bytes, moves ? static_cast<uint64_t>(io.result) : 0u);
			EXPECT_EQ(seen.good, begun && io.result >= 0);
			EXPECT_EQ(seen.read_bytes, moves && !io.write ? static_cast<uint64_t>(io.result) : 0u);
			EXPECT_EQ(seen.write_bytes, moves && io.write ? static_cast<uint64_t>(io.result) : 0u);
			// Batches and vectors count their refusals separately. A refusal by the stream call is not
			// counted.
			if (call == Call::sync || call == Call::stream) {
				const bool refused = io.no_file || (io.no_base && call == Call::stream);
				EXPECT_EQ(seen.failed, io.result < 0 && !refused);
			}
		}
	}
}

// The size that a stream reads when it gets to the I/O must not exceed the size at submission, by each path and any
// amount.
struct Growth {
	const char *name;
	size_t before, then;
	ssize_t result;
};

class CufileMeaningOfGrowth : public ::testing::TestWithParam<Growth>
{
};
INSTANTIATE_TEST_SUITE_P(Of, CufileMeaningOfGrowth,
			 ::testing::Values(Growth{"One", 100, 101, -CU_FILE_INVALID_VALUE},
					   Growth{"WithinADock", 100, 2 * MiB, -CU_FILE_INVALID_VALUE},
					   Growth{"BeyondADock", 100, 5 * MiB, -CU_FILE_INVALID_VALUE},
					   Growth{"ToWhatWrapsAround", 100, SIZE_MAX, -CU_FILE_INVALID_VALUE},
					   Growth{"None", 5 * MiB, 5 * MiB, 5 * MiB}, Growth{"Less", 5 * MiB, 100, 100},
					   Growth{"ToNothing", 5 * MiB, 0, 0},
					   Growth{"FromWhatCannotBe", SIZE_MAX, 100, 100}),
			 [](const auto &one) { return std::string(one.param.name); });

TEST_P(CufileMeaningOfGrowth, IsTheSameByEachWay)
{
	const Growth &growth = GetParam();
	for (const Route route : routes) {
		SCOPED_TRACE(name_of(route));
		const Io io = {"", false, growth.before, 1000, 10, growth.result, 0};
		World world(route, io);
		EXPECT_EQ(world.by_stream(growth.then), growth.result);
		Seen seen;
		world.tell(seen);
		std::string memory = memory_before();
		if (growth.result > 0)
			memory.replace(10, growth.then, world.bytes, 1000, growth.then);
		EXPECT_TRUE(seen.memory == memory);
		EXPECT_EQ(seen.ios, growth.result > 0);
		EXPECT_EQ(seen.failed, growth.result < 0) << "and is counted";
	}
}

// As hipFile's tests expect: they read the result before the stream gets there.
TEST(CufileMeaningOfNothing, IsSaidAtOnce)
{
	for (const Route route : routes)
		for (const bool write : {false, true}) {
			SCOPED_TRACE(name_of(route));
			World world(route, {"", write, 0, 0, 0, 0, 0});
			EXPECT_EQ(world.by_stream(0), 0);
			EXPECT_EQ(world.entries, 0u);
		}
}

} // namespace
