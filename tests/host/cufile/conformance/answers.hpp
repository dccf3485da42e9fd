// SPDX-License-Identifier: MIT
//
// Records the results that cufile_conformance gets from libcufile.so.0. cufile_ways.py runs the same tests with other
// settings and compares these records. Environment:
//   CONFORMANCE_ANSWERS  output file; one line for each result: test, tab, result
//   CONFORMANCE_JSON     content of cufile.json unless the test writes one
//   CONFORMANCE_MEMORY   "registered": device memory is registered when it is allocated; "host": use host memory
//   CONFORMANCE_FILES    "own": use files of a userspace file system
//   CONFORMANCE_CALL     Read and Write use "vector", "batch" or "stream" calls
// Included by conformance.hpp, which declares what this file uses.
#pragma once

namespace conformance
{

inline std::string way(const char *what)
{
	const char *value = std::getenv((std::string("CONFORMANCE_") + what).c_str());
	return value ? value : "";
}

// Preserves errno.
inline void answered(const std::string &text)
{
	static std::mutex lock;
	static std::ofstream file(way("ANSWERS"), std::ios::app);
	const int error = errno;
	const auto *test = ::testing::UnitTest::GetInstance()->current_test_info();
	const std::lock_guard guard(lock);
	file << test->test_suite_name() << '.' << test->name() << '\t' << text << std::endl;
	errno = error;
}

template <class... Values> std::string words(const std::string &first, const Values &...others)
{
	return (first + ... + (' ' + std::to_string(others)));
}

// The library's own calls, not recorded. The calls of lib() are.
inline Library &own_calls()
{
	static Library the_calls{false};
	return the_calls;
}

// Read and Write through other calls. How those report errors: Documentation/cufile.md, "The same error by each call".

inline ssize_t error(int number)
{
	errno = number;
	return -1;
}

struct OneIo {
	bool write;
	CUfileHandle_t fh;
	void *base;
	size_t size;
	off_t from, to; // in the file, in memory
};

inline ssize_t by_itself(const OneIo &io)
{
	Library &own = own_calls();
	return io.write ? own.cuFileWrite(io.fh, io.base, io.size, io.from, io.to) :
			  own.cuFileRead(io.fh, io.base, io.size, io.from, io.to);
}

// The other call failed without an error number. Read must fail too; returns its error.
inline ssize_t error_by_itself(const OneIo &io, int other)
{
	const ssize_t n = by_itself(io);
	return n < 0 ? n : error(other);
}

inline ssize_t by_vector(const OneIo &io)
{
	Library &own = own_calls();
	if (io.to < 0) // a vector has no offset in memory
		return by_itself(io);
	const CUfileIOVec_t one = {io.base ? static_cast<char *>(io.base) + io.to : nullptr, io.size};
	return io.write ? own.cuFileWritev(io.fh, &one, 1, io.from, 0) : own.cuFileReadv(io.fh, &one, 1, io.from, 0);
}

inline ssize_t by_batch(const OneIo &io)
{
	Library &own = own_calls();
	CUfileBatchHandle_t id = nullptr;
	if (const int wrong = code(own.cuFileBatchIOSetUp, &id, 1))
		return error(wrong);
	CUfileIOParams_t one = {};
	one.mode = CUFILE_BATCH;
	one.u.batch = {io.base, io.from, io.to, io.size};
	one.fh = io.fh;
	one.opcode = io.write ? CUFILE_WRITE : CUFILE_READ;
	CUfileIOEvents_t event = {};
	unsigned n = 1;
	int wrong = code(own.cuFileBatchIOSubmit, id, 1, &one, 0u);
	const bool refused = wrong == CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
	if (!wrong)
		wrong = code(own.cuFileBatchIOGetStatus, id, 1, &n, &event, nullptr);
	own.cuFileBatchIODestroy(id);
	if (refused)
		return error_by_itself(io, wrong);
	const auto result = static_cast<ssize_t>(event.ret);
	if (wrong || event.status != (result < 0 ? CUFILE_FAILED : CUFILE_COMPLETE))
		return error(wrong ? wrong : event.status);
	return result < 0 ? error(static_cast<int>(-result)) : result;
}

inline ssize_t by_stream(const OneIo &io)
{
	Library &own = own_calls();
	OneIo read = io;
	ssize_t result = 4711;
	using Current = int (*)(void **);
	static const auto current = reinterpret_cast<Current>(dlsym(lib().cuda, "cuCtxGetCurrent"));
	void *context = nullptr;
	if (current(&context) || !context) // a default stream needs a context
		return by_itself(io);
	const int wrong = code(io.write ? own.cuFileWriteAsync : own.cuFileReadAsync, io.fh, io.base, &read.size,
			       &read.from, &read.to, &result, nullptr);
	if (wrong)
		return error(wrong == CU_FILE_INVALID_VALUE && !io.base ? EINVAL : wrong);
	fake_sync(nullptr);
	if (result == -1)
		return error_by_itself(io, CU_FILE_IO_ERROR);
	const bool other = result == -CU_FILE_INVALID_MAPPING_SIZE || (result == -CU_FILE_INTERNAL_ERROR && io.to < 0);
	return other ? error_by_itself(io, CU_FILE_IO_ERROR) : result < 0 ? error(static_cast<int>(-result)) : result;
}

inline ssize_t by_the_call(const OneIo &io)
{
	static const std::string call = way("CALL");
	const ssize_t n = call == "vector" ? by_vector(io) :
			  call == "batch"  ? by_batch(io) :
			  call == "stream" ? by_stream(io) :
					     by_itself(io);
	answered(words(io.write ? "Write" : "Read", io.size, io.from, io.to, told(n)));
	return n;
}

template <bool write>
ssize_t vector_answer(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t nr, off_t at, unsigned flags)
{
	const ssize_t n = (write ? own_calls().cuFileWritev : own_calls().cuFileReadv)(fh, vector, nr, at, flags);
	answered(words(write ? "Writev" : "Readv", nr, at, told(n)));
	return n;
}

// A host function queued after the I/O records its result.
struct InStream {
	std::string what;
	const ssize_t *result;
};

template <bool write>
CUfileError_t stream_answer(CUfileHandle_t fh, void *base, size_t *size, off_t *from, off_t *to, ssize_t *result,
			    CUstream stream)
{
	const CUfileError_t e = (write ? own_calls().cuFileWriteAsync :
					 own_calls().cuFileReadAsync)(fh, base, size, from, to, result, stream);
	const std::string what = write ? "WriteAsync" : "ReadAsync";
	answered(words(what, static_cast<int>(e.err), e.cu_err));
	using Launch = int (*)(void *, void (*)(void *), void *);
	static const auto launch = reinterpret_cast<Launch>(dlsym(lib().cuda, "cuLaunchHostFunc"));
	// Never freed: each launch of the graph runs it.
	if (!e.err)
		launch(
			stream,
			[](void *arg) {
				const auto *one = static_cast<InStream *>(arg);
				answered(words(one->what + " *bytes_done", *one->result));
			},
			new InStream{what, result});
	return e;
}

inline CUfileError_t submit_answer(CUfileBatchHandle_t id, unsigned nr, CUfileIOParams_t *ios, unsigned flags)
{
	const CUfileError_t e = own_calls().cuFileBatchIOSubmit(id, nr, ios, flags);
	answered(words("BatchIOSubmit", nr, static_cast<int>(e.err)));
	return e;
}

// The number of polls depends on timing, so record only events and errors.
inline CUfileError_t status_answer(CUfileBatchHandle_t id, unsigned min, unsigned *nr, CUfileIOEvents_t *events,
				   struct timespec *timeout)
{
	const CUfileError_t e = own_calls().cuFileBatchIOGetStatus(id, min, nr, events, timeout);
	if (e.err)
		answered(words("BatchIOGetStatus", static_cast<int>(e.err)));
	for (unsigned i = 0; !e.err && i < *nr; i++)
		answered(words("event", static_cast<int>(events[i].status), static_cast<ssize_t>(events[i].ret)));
	return e;
}

// Registers device memory when it is allocated. Once the test registers the memory itself, the test owns the
// registration.
class RegisteredBefore
{
public:
	void add(const void *base, size_t size)
	{
		const std::lock_guard guard(lock_);
		bases_.insert(base);
		own_calls().cuFileBufRegister(base, size, 0);
	}
	void drop(const void *base)
	{
		const std::lock_guard guard(lock_);
		if (bases_.erase(base))
			own_calls().cuFileBufDeregister(base);
	}

private:
	std::mutex lock_; // protects bases_
	std::set<const void *> bases_;
};

inline RegisteredBefore &registered_before()
{
	static RegisteredBefore the_bases;
	return the_bases;
}

inline CUfileError_t register_anew(const void *base, size_t size, int flags)
{
	registered_before().drop(base);
	return own_calls().cuFileBufRegister(base, size, flags);
}

// The counters of all I/Os of the test, from peerdma_cufile_count() and statistics. Not used by tests of those.
class Counters
{
public:
	void begin()
	{
		ios_ = bytes_ = direct_ = 0;
		add(false);
		const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
		statistics_ = !name.starts_with("Stats");
		if (statistics_) {
			lib().cuFileSetStatsLevel(1);
			lib().cuFileStatsReset();
			lib().cuFileStatsStart();
		}
	}
	void tell()
	{
		add(true);
		answered(words("counted", ios_, bytes_));
		answered(words("direct", direct_));
		CUfileStatsLevel1_t s = {};
		if (!statistics_ || lib().cuFileGetStatsL1(&s).err)
			return;
		answered(words("statistics", s.read_ops.ok, s.write_ops.ok, s.read_bytes, s.write_bytes));
		answered(words("statistics of errors", s.read_ops.err, s.write_ops.err));
	}

private:
	void add(bool now)
	{
		peerdma_cufile_counts counts = {};
		counts.size = sizeof(counts);
		lib().peerdma_cufile_count(&counts);
		for (unsigned i = 0; i < PEERDMA_CUFILE_NR_WHYS; i++) {
			ios_ += now ? counts.ios[i] : -counts.ios[i];
			bytes_ += now ? counts.bytes[i] : -counts.bytes[i];
		}
		const uint64_t direct = counts.bytes[PEERDMA_CUFILE_WHY_NONE];
		direct_ += now ? direct : -direct;
	}
	uint64_t ios_ = 0, bytes_ = 0, direct_ = 0;
	bool statistics_ = false;
};

inline void Library::tell_answers()
{
	cuFileRead = [](CUfileHandle_t fh, void *base, size_t size, off_t from, off_t to) {
		return by_the_call({false, fh, base, size, from, to});
	};
	cuFileWrite = [](CUfileHandle_t fh, const void *base, size_t size, off_t from, off_t to) {
		return by_the_call({true, fh, const_cast<void *>(base), size, from, to});
	};
	cuFileBufRegister = register_anew;
	cuFileReadv = vector_answer<false>;
	cuFileWritev = vector_answer<true>;
	cuFileReadAsync = stream_answer<false>;
	cuFileWriteAsync = stream_answer<true>;
	cuFileBatchIOSubmit = submit_answer;
	cuFileBatchIOGetStatus = status_answer;
}

// A userspace file system that contains this one file.
inline ssize_t own_read(const void *handle, char *to, size_t size, off_t from, const cufileRDMAInfo_t *)
{
	return pread(static_cast<int>(reinterpret_cast<intptr_t>(handle)), to, size, from);
}
inline ssize_t own_write(const void *handle, const char *from, size_t size, off_t to, const cufileRDMAInfo_t *)
{
	return pwrite(static_cast<int>(reinterpret_cast<intptr_t>(handle)), from, size, to);
}

} // namespace conformance
