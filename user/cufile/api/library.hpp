// SPDX-License-Identifier: MIT
//
// The state behind the cuFile calls. A driver that is open is an Engine; everything else outlives it. Locks are
// taken in the order in which they are declared here.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <pthread.h>

#include "cufile/async/batch.hpp"
#include "cufile/async/staging_buffer.hpp"
#include "cufile/config/config.hpp"
#include "cufile/diag/log.hpp"
#include "cufile/diag/stats.hpp"
#include "cufile/path/job.hpp"
#include "cufile/path/workers.hpp"

namespace cufile
{

// A registered file.
struct FileHandle {
	FileHandle(std::shared_ptr<File> f, int descriptor, dev_t on, ino_t number)
		: file(std::move(f)), fd(descriptor), dev(on), ino(number)
	{
	}

	const std::shared_ptr<File> file;
	const int fd; // the program's, -1 if it is a file of its own making
	const dev_t dev;
	const ino_t ino;
	std::mutex lock; // protects direct_files and peer_gpus
	// By provider, and by the open device: a file of one does not serve the buffers of another. It keeps the device
	// open, so nobody else's gets that number.
	std::map<std::pair<uint32_t, int>, std::shared_ptr<DirectFile>> direct_files;
	// By device, what its bytes go by where they cannot go directly; nullptr: there is none. With lock.
	std::map<int, std::shared_ptr<PeerGpuBounce>> peer_gpus;
	std::atomic<uint32_t> logged{0}; // bits of peerdma_cufile_why that the log has
	std::atomic<bool> logged_lost{false};
	bool denied = false; // by the denylist; immutable once it is registered
};

// Registered memory.
struct RegisteredBuffer {
	uint64_t size;
	Memory memory;
	int look_up_error; // what PeerdmaClient::look_up() said: 0, it is in a buffer of libpeerdma's
	std::shared_ptr<RegisteredMemory> registration;
	uint32_t reason; // enum peerdma_reason: why the kernel did not register it
	bool over_quota; // max_device_pinned_mem_size_kb
	uint64_t id;     // the CUDA driver's number of the allocation that it begins in; 0: there was none
};

class Library
{
public:
	explicit Library(const Dependencies &deps)
		: deps_(deps), log_(deps.system), stats_(deps.system), staging_buffers_(deps)
	{
	}
	~Library();
	Library(const Library &) = delete;
	Library &operator=(const Library &) = delete;

	// The driver.
	CUfileError_t open();
	CUfileError_t close();
	long use_count() const { return count_.load(); }
	// A thread in one of our calls. Once it has begun, the thread may have any of our locks.
	class Visit;
	// In the child of fork(): nothing works any more if the driver was open, or if another thread was in a call: it is not
	// there to give back what it has locked. And so it stays in children of that child.
	void forked()
	{
		if (busy_ || inside_)
			dead_ = true;
	}
	bool dead() const { return dead_.load(std::memory_order_relaxed); }
	CUfileError_t properties(CUfileDrvProps_t *props);
	CUfileError_t set_poll_mode(bool poll, size_t threshold_kb);
	CUfileError_t set_max_direct(size_t kb);
	CUfileError_t set_max_cache(size_t kb);
	CUfileError_t set_max_pinned(size_t kb);
	CUfileError_t bar_size(int gpu, size_t *kb);
	CUfileError_t set_p2p_flags(unsigned target, unsigned mask);
	CUfileError_t get_p2p_flags(unsigned target, unsigned *mask);
	CUfileError_t export_topology(const char *path);

	// Parameters.
	CUfileError_t get(CUFileSizeTConfigParameter_t param, size_t *value);
	CUfileError_t get(CUFileBoolConfigParameter_t param, bool *value);
	CUfileError_t get(CUFileStringConfigParameter_t param, char *text, int len);
	CUfileError_t get_slabs(Pool pool, size_t *sizes, size_t *counts, int len);
	CUfileError_t set(CUFileSizeTConfigParameter_t param, size_t value);
	CUfileError_t set(CUFileBoolConfigParameter_t param, bool value);
	CUfileError_t set(CUFileStringConfigParameter_t param, const char *text);
	CUfileError_t set_slabs(Pool pool, const size_t *sizes, const size_t *counts, int len);

	// Files and memory.
	CUfileError_t register_file(CUfileHandle_t *fh, const CUfileDescr_t *descr);
	void deregister_file(CUfileHandle_t fh);
	CUfileError_t register_buffer(const void *base, size_t size, int flags);
	CUfileError_t deregister_buffer(const void *base);

	// A count, or a negative error: an errno or a CUfileOpError.
	int64_t transfer(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off, bool write);
	int64_t transfer_vector(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				unsigned flags, bool write);

	// Batches.
	CUfileError_t create_batch(CUfileBatchHandle_t *out, unsigned nr);
	CUfileError_t submit(CUfileBatchHandle_t id, unsigned nr, const CUfileIOParams_t *ios);
	CUfileError_t status(CUfileBatchHandle_t id, unsigned min, unsigned *nr, CUfileIOEvents_t *events,
			     const struct timespec *timeout);
	CUfileError_t cancel(CUfileBatchHandle_t id);
	void destroy(CUfileBatchHandle_t id);

	// In the order of a stream.
	CUfileError_t submit_to_stream(CUfileHandle_t fh, void *base, size_t *size, off_t *file_off, off_t *buf_off,
				       ssize_t *result, CUstream stream, bool write);
	CUfileError_t register_stream(CUstream stream, unsigned flags);
	CUfileError_t deregister_stream(CUstream stream);

	// What goes which way.
	int explain(CUfileHandle_t fh, const void *base, size_t size, off_t file_off, off_t buf_off,
		    struct peerdma_cufile_route &out);
	void counts(struct peerdma_cufile_counts &out) const;
	void count(const Request &request, int64_t result, const HostFallback &host_fallback, uint64_t ns);

	Stats &stats() { return stats_; }
	Log &log() { return log_; }
	System &system() { return deps_.system; }

private:
	struct Engine {
		Engine(Config c, const Dependencies &deps);
		// Next to its memory, if the thread is ours. Where files of the program's own are read its code runs, which may
		// make threads.
		void bind_worker(const Request &request)
		{
			const bool near = request.path == TransferPath::bounce && request.file->fd() >= 0;
			if (Workers::is_worker_thread())
				bounce_buffers.bind_thread(near ? request.memory.device : -1);
		}
		// A thread's part in a job.
		Workers::Task job_task(std::shared_ptr<Job> job)
		{
			return [this, job = std::move(job)] {
				bind_worker(job->request(0));
				process_pieces(*job, deps, bounce_buffers);
			};
		}
		const Dependencies deps;
		Config config;
		BounceBufferPool bounce_buffers;
		PeerGpuBounces peer_gpus;
		Workers workers;
		Workers stream_workers;                    // for what streams wait for, behind nothing that copies
		const unsigned cores;                      // that the program may use
		std::atomic<unsigned> bouncing_threads{0}; // threads of the program that bounce something
		std::atomic<bool> logged_no_uring{false};
	};
	struct BouncingThread {
		explicit BouncingThread(Engine &e) : engine(e) { engine.bouncing_threads++; }
		~BouncingThread() { engine.bouncing_threads--; }
		BouncingThread(const BouncingThread &) = delete;
		BouncingThread &operator=(const BouncingThread &) = delete;
		Engine &engine;
	};
	struct StreamIo;

	// A shared hold on the engine; empty if the driver is closed.
	class Use;

	// With open_lock_.
	CUfileOpError open_if_closed();
	void open_log(const Config &config, Log::Level least);
	void refuse(const Config &config, const std::string &fault);
	// As the first call of a program that does not open the driver.
	CUfileOpError open_for_use();
	CUfileError_t change(const std::function<void(Config &)> &apply, const std::function<void()> &keep);
	CUfileError_t change_size(CUFileSizeTConfigParameter_t param, size_t value);
	uint64_t bar_bytes(int gpu);
	Config config_now();
	CUfileError_t set_while_closed(const std::function<void(Settings &)> &apply);
	// Both with table_lock_.
	bool is_registered(int fd, dev_t device, ino_t inode, uintptr_t others) const;
	uintptr_t last_id() const { return 0x70000000 + next_id_; }
	uintptr_t new_id(); // with table_lock_
	void cancel_pending(Batch &batch);
	void end_batch(Batch &batch);
	std::shared_ptr<FileHandle> find(CUfileHandle_t fh);
	// What all of a range is in, whatever base it was registered by; of foreign memory its first byte: there is nothing else
	// that it could be; or in what it was registered with, but not mapped then. With table_lock_.
	std::shared_ptr<RegisteredMemory> registration_at(const void *address, uint64_t size) const;
	// Calls see(entry) with each registration that may have something of a range, the last first, until it says true. With
	// table_lock_.
	template <class See> void each_near(uintptr_t address, uint64_t size, const See &see) const;
	// Whether what was registered has been freed, and other memory of CUDA's is at its address.
	bool is_replaced(const void *base, const RegisteredBuffer &buffer);
	// Ends what was registered in a range, as far as it has been replaced; of another base the program may yet deregister it.
	void drop_replaced(const void *base, uint64_t size);
	void pin_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer);
	CUfileOpError import_buffer(const void *base, uint64_t size, RegisteredBuffer &buffer);
	std::shared_ptr<Batch> find_batch(CUfileBatchHandle_t id);
	bool has_cuda() { return deps_.cuda.load(); }
	// Once a program has loaded CUDA or libpeerdma it makes one of the calls that are the first of many.
	void retry_load()
	{
		deps_.cuda.retry_load();
		deps_.peerdma.retry_load();
	}
	// Fills in a request, or says what is wrong with it. 1: there is nothing to move.
	int64_t prepare(Engine &engine, const std::shared_ptr<FileHandle> &handle, const void *base, size_t size,
			off_t file_off, off_t buf_off, bool write, Request &request);
	int64_t choose_path(Engine &engine, FileHandle &handle, const RegisteredBuffer *buffer,
			    std::shared_ptr<RegisteredMemory> registration, const void *base, Request &request);
	bool find_peer_gpu(Engine &engine, FileHandle &handle, Request &request);
	// for_now: there is none, but for a shortage of descriptors or memory there might have been.
	std::shared_ptr<PeerGpuBounce> choose_peer_gpu(Engine &engine, FileHandle &handle, int device, bool &for_now);
	bool may_go_directly(const Request &request, struct peerdma_cufile_route &out);
	// 0 or -errno.
	int open_direct_file(FileHandle &handle, const BufferLocation &location, std::shared_ptr<DirectFile> &out);
	int64_t run(Engine &engine, Request &request);
	// How a request that bounces is moved.
	struct Plan {
		unsigned threads = 1; // the calling one included
		bool by_uring = false, crowded = false;
		NtReader::Share share = NtReader::Share::none;
	};
	Plan plan(Engine &engine, Request &request);
	static unsigned nr_threads(Engine &engine, const Request &request);
	bool for_uring(Engine &engine, Request &request, uint64_t piece_bytes);
	int64_t run_as_job(Engine &engine, const Request &request, const Plan &how);
	// With use_ held.
	int64_t transfer_leased(Engine &engine, const std::shared_ptr<FileHandle> &handle, const void *base,
				size_t size, off_t file_off, off_t buf_off, bool write);
	int64_t transfer_segments(CUfileHandle_t fh, const CUfileIOVec_t *vector, size_t n, off_t file_off,
				  unsigned flags, bool write);
	void log_fallback(FileHandle &handle, FallbackReason fallback, uint32_t reason) noexcept;
	void log_lost_descriptor(FileHandle &handle) noexcept;
	void log_lost_descriptor(const BufferLocation &location) noexcept;
	CUfileError_t put_into_stream(std::unique_ptr<StreamIo> io, CUstream stream);
	// A stream by its name. The default ones share theirs: each context has one, and each thread of it; so the id is part of
	// their key.
	using StreamKey = std::pair<void *, uint64_t>;
	static StreamKey key_of(CUstream stream, uint64_t id);
	// Registered under a name, which the program may give to another stream once it has destroyed this one.
	struct RegisteredStream {
		uint64_t id; // the driver's, never given twice; 0: not known, and then no flags
		unsigned flags;
	};
	// A CUresult.
	int id_of(CUstream stream, uint64_t &id);
	int flags_of(CUstream stream, unsigned &flags);
	// A function of the stream's.
	template <void (StreamIo::*...steps)()> static void in_stream(void *io);

	const Dependencies deps_;
	Log log_;
	Stats stats_;
	StagingBufferPool staging_buffers_;
	PinQuota pin_quota_;
	FrameTable frame_table_{deps_.peerdma, &pin_quota_};
	std::atomic<bool> busy_{false}, dead_{false};
	alignas(64) std::atomic<unsigned> inside_{0}; // threads
	std::atomic<bool> logged_no_stream_copy_{false};
	std::atomic<bool> closing_{false}; // written under open_lock_, which close() has until all has ended
	std::atomic<long> count_{0};       // written under open_lock_
	std::mutex open_lock_;             // opening, closing, settings_
	Settings settings_;
	std::array<unsigned, CU_FILE_MAX_TARGET_TYPES> p2p_flags_{}; // CU_FILE_P2P_FLAG_*; with open_lock_
	std::shared_mutex use_;                                      // held shared by all that moves; protects engine_
	std::unique_ptr<Engine> engine_;
	std::shared_mutex table_lock_; // protects all of these
	uintptr_t next_id_ = 0;
	std::unordered_map<uintptr_t, std::shared_ptr<FileHandle>> handles_;
	std::unordered_map<int, uintptr_t> by_fd_;
	std::map<uintptr_t, RegisteredBuffer> buffers_; // by base
	uint64_t longest_ = 0;                          // that was ever in there
	std::unordered_map<uintptr_t, std::shared_ptr<Batch>> batches_;
	std::map<StreamKey, RegisteredStream> streams_;
	std::array<std::atomic<uint64_t>, PEERDMA_CUFILE_NR_WHYS> ios_{}, bytes_{};
	std::atomic<uint64_t> peer_gpu_ios_{0}, peer_gpu_bytes_{0}; // by a peer_gpu
	std::atomic<int> logged_lost_device_{0};                    // its number, BufferLocation::device; 0: none
};

inline CUfileError_t error(CUfileOpError code, CUresult cuda = CUDA_SUCCESS) { return {code, cuda}; }
inline CUfileError_t success() { return error(CU_FILE_SUCCESS); }

class Library::Visit
{
public:
	// pthread_cancel() waits for its end: a thread that ended in the middle would leave locks and bounce_buffers behind.
	explicit Visit(Library &library) : library_(library)
	{
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
		library_.inside_++;
	}
	~Visit()
	{
		library_.inside_--;
		pthread_setcancelstate(before_, nullptr);
	}
	Visit(const Visit &) = delete;
	Visit &operator=(const Visit &) = delete;

private:
	Library &library_;
	int before_ = PTHREAD_CANCEL_ENABLE;
};

class Library::Use
{
public:
	// Nobody new while the driver is being closed: who closes it would wait for ever for a moment without anybody.
	explicit Use(Library &library) : guard_(library.use_, std::defer_lock)
	{
		if (library.closing_)
			return;
		guard_.lock();
		engine_ = library.engine_.get();
	}
	Engine *operator->() const { return engine_; }
	Engine &operator*() const { return *engine_; }
	explicit operator bool() const { return engine_; }

private:
	std::shared_lock<std::shared_mutex> guard_;
	Engine *engine_ = nullptr;
};

} // namespace cufile
