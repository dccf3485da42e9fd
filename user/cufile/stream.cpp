// SPDX-License-Identifier: MIT
//
// I/O in the order of a CUDA stream. The stream calls us when it gets there, on a thread that must not call CUDA, so a
// worker does the I/O while that thread waits; the stream goes on when it returns. What the pointers point to is read
// then, not before, but for what the program promised to be fixed.
#include <atomic>

#include "library.hpp"

namespace cufile
{

struct Library::StreamIo {
	Library &library;
	const std::shared_ptr<Handle> handle;
	void *const base;
	size_t *size_p;
	off_t *file_off_p, *buf_off_p;
	ssize_t *const result;
	const bool write;
	// In place of what the pointers point to.
	size_t fixed_size = 0;
	off_t fixed_file_off = 0, fixed_buf_off = 0;
	bool captured = false; // it may run again
	std::atomic<int> ended{0};

	void run();
	void fix(unsigned flags);
};

namespace
{

// As cuFile has it: a range beyond the buffer is another error than in cuFileRead(), a negative offset and what the
// system says are just -1.
ssize_t told(int64_t result)
{
	if (result >= 0)
		return result;
	if (result == failed(CU_FILE_INVALID_MAPPING_RANGE))
		return failed(CU_FILE_INVALID_MAPPING_SIZE);
	return result < -CUFILEOP_BASE_ERR && result != failed(CU_FILE_INVALID_VALUE) ? result : -1;
}

} // namespace

void Library::StreamIo::fix(unsigned flags)
{
	if (flags & CU_FILE_STREAM_FIXED_FILE_SIZE) {
		fixed_size = *size_p;
		size_p = &fixed_size;
	}
	if (flags & CU_FILE_STREAM_FIXED_FILE_OFFSET) {
		fixed_file_off = *file_off_p;
		file_off_p = &fixed_file_off;
	}
	if (flags & CU_FILE_STREAM_FIXED_BUF_OFFSET) {
		fixed_buf_off = *buf_off_p;
		buf_off_p = &fixed_buf_off;
	}
}

void Library::StreamIo::run()
{
	int64_t rc = failed(CU_FILE_DRIVER_NOT_INITIALIZED);
	try {
		const Use use(library);
		if (use)
			rc = library.move_held(*use, handle, base, *size_p, *file_off_p, *buf_off_p, write);
	} catch (...) {
		rc = failed(CU_FILE_NOMEM_ERROR);
	}
	*result = told(rc);
	ended.store(1, std::memory_order_release);
	ended.notify_one();
}

void Library::run_in_stream(void *arg)
{
	auto *const io = static_cast<StreamIo *>(arg);
	bool taken = false;
	CUfileOpError error = CU_FILE_DRIVER_NOT_INITIALIZED;
	io->ended = 0;
	if (!io->library.dead()) {
		try {
			const Use use(io->library);
			// The worker may be through, and the program may have freed the result, before add() returns.
			taken = use && use->workers.add([io] { io->run(); });
			if (use)
				error = CU_FILE_NOMEM_ERROR;
		} catch (...) {
			taken = false;
		}
	}
	if (taken)
		io->ended.wait(0, std::memory_order_acquire);
	else
		*io->result = failed(error);
	if (!io->captured)
		delete io;
}

CUfileError_t Library::move_in_stream(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				      ssize_t *result, CUstream stream, bool write)
{
	if (!base || !size || !file_off || !buf_off || !result)
		return error(CU_FILE_INVALID_VALUE);
	const Use use(*this);
	auto handle = use ? find(fh) : nullptr;
	if (!handle)
		return error(CU_FILE_HANDLE_NOT_REGISTERED);
	if (!has_cuda())
		return error(CU_FILE_ASYNC_NOT_SUPPORTED);
	unsigned flags = 0;
	{
		const std::shared_lock tables(table_lock_);
		const auto found = streams_.find(stream);
		if (found != streams_.end())
			flags = found->second;
	}
	std::unique_ptr<StreamIo> io(
		new StreamIo{*this, std::move(handle), base, size, file_off, buf_off, result, write});
	io->fix(flags);
	bool captured = false;
	const int rc = seams_.cuda.call_in_stream(
		stream, run_in_stream, [](void *arg) { delete static_cast<StreamIo *>(arg); }, io.get(), captured);
	if (rc)
		return error(CU_FILE_CUDA_DRIVER_ERROR, static_cast<CUresult>(rc));
	// Unless it is captured it is the stream's now, and may be gone.
	StreamIo *const given = io.release();
	if (captured)
		given->captured = true;
	return success();
}

} // namespace cufile
