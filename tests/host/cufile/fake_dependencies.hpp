// SPDX-License-Identifier: MIT
// In-memory dependencies of libcufile: files, a CUDA driver and libpeerdma, controlled by the test.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <sched.h>

#include "cufile/platform/dependencies.hpp"
#include "cufile/platform/numa_affinity.hpp"

class FakeSystem final : public cufile::System
{
public:
	struct File {
		std::string bytes;
		uint32_t mode = S_IFREG | 0644;
		ino_t ino = 1;
	};
	struct Open {
		std::shared_ptr<File> file;
		int flags;
		int description = 0; // shared with duplicates of the descriptor
	};
	struct Call {
		bool write, direct;
		uint64_t size, offset;
		const void *memory;
	};
	// How rings behave, and what was done with them.
	struct Rings {
		std::vector<int> errors;           // of the next rings to create; 0: success
		std::map<size_t, int64_t> results; // of the reads with these numbers; they move nothing
		uint64_t most = UINT64_MAX;        // bytes moved by one read
		size_t break_at = SIZE_MAX;        // reads, after which submissions fail
		std::atomic<bool> closed{false};   // reads move nothing
		std::atomic<size_t> made{0}, live{0};
		std::atomic<size_t> reads{0}, under_way{0}, most_under_way{0};
		// Reads outside of the memory, of a file that is not O_DIRECT, by two threads at once, or left
		// unfinished.
		std::atomic<size_t> wrong{0};
		std::atomic<int> held{-1};
	};

	// Adds a descriptor of the program.
	int program_fd(const std::string &bytes, int flags, uint32_t mode = S_IFREG | 0644)
	{
		auto file = std::make_shared<File>(File{bytes, mode, static_cast<ino_t>(next_)});
		fds[next_] = {file, flags, next_};
		return next_++;
	}
	// As fcntl(F_SETFL): for all descriptors of the description.
	void set_flags(int fd, int flags)
	{
		std::lock_guard guard(lock);
		for (auto &[number, one] : fds)
			if (one.description == fds.at(fd).description)
				one.flags = flags;
	}
	std::string &bytes(int fd) { return fds.at(fd).file->bytes; }

	int open(const char *path, int flags) override
	{
		if (const auto meanwhile = std::exchange(on_open, nullptr))
			meanwhile();
		std::lock_guard guard(lock);
		opened.emplace_back(path, flags);
		const std::string name = path, self = "/proc/self/fd/";
		if (name.starts_with("/dev/")) {
			if (name == "/dev/peerdma" && node_error)
				return node_error;
			if (!node || name != node_path)
				return -ENOENT;
			fds[next_] = {std::make_shared<File>(), flags, next_};
			return next_++;
		}
		if (no_fds || fds_left-- <= 0)
			return -EMFILE;
		if (!name.starts_with(self) || no_proc)
			return -ENOENT;
		if ((flags & O_DIRECT) && no_direct)
			return -EINVAL;
		const Open &one = fds.at(std::stoi(name.substr(self.size())));
		if (no_twin && (flags & O_DIRECT) != (one.flags & O_DIRECT))
			return -EACCES;
		fds[next_] = {one.file, flags, next_};
		return next_++;
	}
	int module_answers = 0; // result of ask_module()
	int ask_module(int) override { return module_answers; }
	int close(int fd) override
	{
		std::lock_guard guard(lock);
		return fds.erase(fd) ? 0 : -EBADF;
	}
	int dup(int fd) override
	{
		std::lock_guard guard(lock);
		if (no_fds || fds_left-- <= 0)
			return -EMFILE;
		fds[next_] = fds.at(fd);
		return next_++;
	}
	int open_flags(int fd) override
	{
		std::lock_guard guard(lock);
		return fds.contains(fd) ? fds[fd].flags : -EBADF;
	}
	int fstat(int fd, struct stat &st) override
	{
		std::lock_guard guard(lock);
		if (!fds.contains(fd))
			return -EBADF;
		st = {};
		st.st_mode = fds[fd].file->mode;
		st.st_ino = fds[fd].file->ino;
		st.st_size = static_cast<off_t>(claimed ? claimed : fds[fd].file->bytes.size());
		return 0;
	}
	off_t seek(int fd, off_t to) override
	{
		std::lock_guard guard(lock);
		if (!fds.contains(fd) || no_seek)
			return -EINVAL;
		return positions[fds[fd].description] = to;
	}
	off_t position(int fd) override
	{
		std::lock_guard guard(lock);
		return fds.contains(fd) ? positions[fds[fd].description] : -EBADF;
	}
	bool mark(int fd) override
	{
		std::lock_guard guard(lock);
		return fds.contains(fd) && !marks.insert(fds[fd].description).second;
	}
	int64_t copy(void *to, const void *from, uint64_t size) override
	{
		std::memcpy(to, from, size);
		return static_cast<int64_t>(size);
	}
	int direct_limits(int, cufile::DirectLimits &out) override
	{
		out = limits;
		return 0;
	}
	int64_t pages_cached(int, uint64_t offset, uint64_t size) override
	{
		if (size == 1)
			return says_cached; // for data that was just read
		cache_asked++;
		return cached_to > offset ? static_cast<int64_t>((std::min(size, cached_to - offset) + 4095) / 4096) :
					    cached_error;
	}
	int64_t pread(int fd, void *to, uint64_t size, uint64_t offset) override
	{
		std::lock_guard guard(lock);
		const int64_t rc = begin(false, fd, to, size, offset);
		if (rc)
			return rc;
		const std::string &all = fds.at(fd).file->bytes;
		return offset >= all.size() ?
			       0 :
			       static_cast<int64_t>(all.copy(static_cast<char *>(to), std::min(size, most), offset));
	}
	int64_t pwrite(int fd, const void *from, uint64_t size, uint64_t offset) override
	{
		std::lock_guard guard(lock);
		const int64_t rc = begin(true, fd, from, size, offset);
		if (rc)
			return rc;
		std::string &all = fds.at(fd).file->bytes;
		size = std::min(size, most);
		if (fds.at(fd).flags & O_APPEND)
			offset = all.size();
		all.resize(std::max<size_t>(all.size(), offset + size));
		all.replace(offset, size, static_cast<const char *>(from), size);
		return static_cast<int64_t>(size);
	}
	int make_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<cufile::Ring> &out) override;
	int read_file(const std::string &path, std::string &out) override { return look_up(texts, path, out); }
	int write_file(const std::string &path, std::string_view text) override
	{
		texts[path] = text;
		return no_write ? -EACCES : 0;
	}
	int read_link(const std::string &path, std::string &out) override { return look_up(links, path, out); }
	int list(const std::string &path, std::vector<std::string> &names) override
	{
		if (read_errors.contains(path))
			return read_errors[path];
		for (const auto &[link, to] : links)
			if (link.starts_with(path))
				names.push_back(link.substr(path.size()));
		return 0;
	}
	int open_log(const std::string &path) override
	{
		if (no_log)
			return -EACCES;
		log_paths.push_back(path);
		fds[next_] = {std::make_shared<File>(File{"", log_mode}), O_WRONLY, next_};
		return next_++;
	}
	int append(int fd, std::string_view text) override
	{
		if (append_error)
			return append_error;
		(fd == 2 ? to_stderr : to_log) += text;
		return 0;
	}
	int rename(const std::string &from, const std::string &to) override
	{
		if (!rename_error)
			renamed.emplace_back(from, to);
		return rename_error;
	}
	std::optional<std::string> variable(const char *name) override
	{
		const auto found = variables.find(name);
		return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
	}
	int cpus(cufile::Cpus &out) override
	{
		std::lock_guard guard(lock);
		cufile::CpuMask mask;
		if (real_cpus && sched_getaffinity(0, mask.bytes, mask.get()))
			return -errno;
		out = real_cpus ? mask.cpus() : allowed;
		began_on[std::this_thread::get_id()] = out;
		return 0;
	}
	int set_affinity(const cufile::Cpus &cpus) override
	{
		std::lock_guard guard(lock);
		stays[std::this_thread::get_id()] = cpus;
		const cufile::CpuMask mask(cpus);
		return real_cpus && sched_setaffinity(0, mask.bytes, mask.get()) ? -errno : 0;
	}
	int prefer_node(int one) override
	{
		if (prefer_error)
			return prefer_error;
		preferred = one;
		return 0;
	}
	uint64_t now_ns() override { return now += 1000; }
	int pid() override { return 42; }

	std::mutex lock;
	std::map<int, Open> fds;
	std::map<int, off_t> positions; // by description
	std::set<int> marks;            // by description
	int fds_left = INT_MAX;         // descriptors left to open
	bool no_twin = false;           // reopening a file with other flags fails
	std::vector<std::pair<std::string, int>> opened;
	std::vector<Call> calls;
	std::set<std::thread::id> threads; // threads that called pread or pwrite
	Rings rings;
	std::vector<int64_t> errors;   // of the next preads and pwrites; 0: none
	uint64_t stop_at = UINT64_MAX; // file offset at which all I/O ends with stop_error
	int stop_error = 0;
	std::map<uint64_t, int64_t> error_at; // by offset of the pread or pwrite
	uint64_t most = UINT64_MAX;           // bytes moved by one call
	cufile::DirectLimits limits = {512, 512};
	bool node = false, no_proc = false, no_direct = false, no_fds = false, no_log = false, no_write = false,
	     no_seek = false;
	uint64_t claimed = 0; // size reported for each file
	int64_t says_cached = 1;
	uint64_t cached_to = 0;   // the page cache holds the file up to here
	int64_t cached_error = 0; // of a page cache query beyond cached_to
	std::atomic<int> cache_asked{0};
	cufile::Cpus allowed = 0xffff;
	bool real_cpus = false; // threads move to the CPUs that they ask for
	std::map<std::thread::id, cufile::Cpus> began_on, stays;
	int prefer_error = 0;
	std::atomic<int> preferred{-1};
	std::map<std::string, std::string> texts, variables, links;
	std::string node_path = "/dev/peerdma"; // valid if `node` is set
	int node_error = 0;                     // of opening /dev/peerdma
	std::map<std::string, int> read_errors; // by path of a text, link or directory
	std::function<void()> on_open;          // runs before the next open(), as another thread would
	uint32_t log_mode = S_IFREG | 0644;
	int append_error = 0, rename_error = 0;
	std::string to_stderr, to_log;
	std::vector<std::string> log_paths;
	std::vector<std::pair<std::string, std::string>> renamed;
	std::atomic<uint64_t> now{0};

private:
	int look_up(const std::map<std::string, std::string> &entries, const std::string &path, std::string &out) const
	{
		const auto found = entries.find(path);
		out = found == entries.end() ? "" : found->second;
		if (const auto bad = read_errors.find(path); bad != read_errors.end())
			return bad->second;
		return found == entries.end() ? -ENOENT : 0;
	}
	int64_t begin(bool write, int fd, const void *memory, uint64_t &size, uint64_t offset)
	{
		const bool direct = fds.at(fd).flags & O_DIRECT;
		calls.push_back({write, direct, size, offset, memory});
		threads.insert(std::this_thread::get_id());
		if (direct && (reinterpret_cast<uintptr_t>(memory) % limits.memory || offset % limits.offset ||
			       size % limits.offset))
			return -EINVAL;
		if (const auto bad = error_at.find(offset); bad != error_at.end())
			return bad->second;
		if (offset >= stop_at)
			return -stop_error;
		size = std::min(size, stop_at - offset);
		if (errors.empty())
			return 0;
		const int64_t error = errors.front();
		errors.erase(errors.begin());
		return error;
	}

	int next_ = 100;
};

// Reads complete in any order. Until one completes, its memory holds other bytes.
class FakeRing final : public cufile::Ring
{
public:
	FakeRing(FakeSystem &system, unsigned depth, void *memory, uint64_t bytes)
		: system_(system), rings_(system.rings), depth_(depth), memory_(static_cast<char *>(memory)),
		  bytes_(bytes)
	{
		rings_.made++;
		rings_.live++;
	}
	~FakeRing() override
	{
		rings_.wrong += all_.size();
		rings_.live--;
	}
	bool read(int fd, void *to, uint64_t size, uint64_t offset, uint64_t tag) override
	{
		const Alone alone(*this);
		std::lock_guard guard(system_.lock);
		if (rings_.reads >= rings_.break_at)
			broken_ = true;
		if (broken_ || all_.size() == depth_)
			return false;
		char *const at = static_cast<char *>(to);
		rings_.wrong += at < memory_ || at + size > memory_ + bytes_ || !(system_.fds.at(fd).flags & O_DIRECT);
		std::memset(to, 0x55, size);
		all_.push_back({fd, at, size, offset, tag, rings_.reads++});
		rings_.most_under_way = std::max<size_t>(rings_.most_under_way, ++rings_.under_way);
		return true;
	}
	size_t reap(Completion *out, size_t most, bool wait) override
	{
		const Alone alone(*this);
		while (wait && rings_.closed)
			std::this_thread::yield();
		size_t n = 0;
		random_ = random_ * 6364136223846793005 + 1442695040888963407;
		size_t some = rings_.closed ? 0 : random_ >> 62;
		if (wait || broken_)
			some = std::max<size_t>(some, 1);
		for (; n < std::min(some, most) && !all_.empty(); n++) {
			random_ = random_ * 6364136223846793005 + 1442695040888963407;
			const auto one = all_.begin() + static_cast<ptrdiff_t>((random_ >> 33) % all_.size());
			out[n] = {one->tag, land(*one)};
			all_.erase(one);
			rings_.under_way--;
		}
		return n;
	}
	void register_file(int fd) override
	{
		rings_.held = fd;
		rings_.wrong += all_.size(); // called when a job begins and ends, with no read left
	}

private:
	// Checks that one thread at a time uses the ring.
	struct Alone {
		explicit Alone(FakeRing &r) : ring(r) { ring.rings_.wrong += ring.busy_.exchange(true); }
		~Alone() { ring.busy_ = false; }
		FakeRing &ring;
	};
	struct One {
		int fd;
		char *to;
		uint64_t size, offset, tag;
		size_t number;
	};
	int64_t land(const One &one)
	{
		const auto result = rings_.results.find(one.number);
		if (result != rings_.results.end())
			return result->second;
		if (broken_)
			return -ECANCELED;
		return system_.pread(one.fd, one.to, std::min(one.size, rings_.most), one.offset);
	}

	FakeSystem &system_;
	FakeSystem::Rings &rings_;
	const unsigned depth_;
	char *const memory_;
	const uint64_t bytes_;
	std::vector<One> all_;
	uint64_t random_ = 1;
	bool broken_ = false;
	std::atomic<bool> busy_{false};
};

inline int FakeSystem::make_ring(unsigned depth, void *memory, uint64_t bytes, std::unique_ptr<cufile::Ring> &out)
{
	std::lock_guard guard(lock);
	int error = 0;
	if (!rings.errors.empty()) {
		error = rings.errors.front();
		rings.errors.erase(rings.errors.begin());
	}
	if (!error)
		out = std::make_unique<FakeRing>(*this, depth, memory, bytes);
	return error;
}

// No driver unless a test sets device memory; then copies are immediate.
class FakeCuda final : public cufile::Cuda
{
public:
	FakeCuda() { pinned_ids.reserve(512); } // so that appending allocates nothing in tests that run out of memory
	bool load() override { return present; }
	void retry_load() override { present = present.load() || loaded_since; }
	int look_up(const void *address, cufile::Memory &memory) override
	{
		memory = {};
		const char *at = static_cast<const char *>(address);
		const auto in = [&](const std::string &all) {
			return at >= all.data() && at < all.data() + all.size();
		};
		if ((in(device) && at < device.data() + std::min(device.size(), mapped_to)) || (also && in(*also)))
			memory = {kind, this, 0};
		std::lock_guard guard(lock);
		for (const auto &[bytes, number] : allocated)
			if (in(*bytes))
				memory = {kind, this, number};
		return look_up_error;
	}
	int allocation(const void *address, cufile::Allocation &out) override
	{
		const char *at = static_cast<const char *>(address);
		out = {};
		allocations_asked++;
		const size_t there = std::min(device.size(), mapped_to);
		if (at >= device.data() && at < device.data() + there)
			out = {reinterpret_cast<uintptr_t>(device.data()), there,
			       second_id && at >= second_piece ? second_id : id};
		if (also && also_id && at >= also->data() && at < also->data() + also->size())
			out = {reinterpret_cast<uintptr_t>(also->data()), also->size(), also_id};
		for (const auto &[start, one] : side_by_side)
			if (at >= start && at < start + one.size)
				out = {reinterpret_cast<uintptr_t>(start), one.size, one.id};
		std::lock_guard guard(lock);
		for (const auto &[bytes, number] : allocated)
			if (at >= bytes->data() && at < bytes->data() + bytes->size())
				out = {reinterpret_cast<uintptr_t>(bytes->data()), bytes->size(),
				       no_ids_of_allocated ? 0u : 100u};
		for (const auto &[memory, number] : pinned_ids)
			if (memory == at)
				out = {reinterpret_cast<uintptr_t>(at), 1, number};
		return look_up_error;
	}
	bool is_mapped(const void *address) override
	{
		const char *at = static_cast<const char *>(address);
		return mapped && at >= device.data() && at < device.data() + std::min(device.size(), mapped_to);
	}
	int set_sync_memops(const void *) override
	{
		synced++;
		return sync_error;
	}
	// Only alloc_device() depends on the current context.
	int enter(cufile::Context context, bool &entered) override
	{
		const auto number = static_cast<int *>(context) - devices;
		inside = number >= 0 && number < nr_devices ? static_cast<int>(number) : 0;
		entered = true;
		return 0;
	}
	int primary(int number, cufile::Context &out) override
	{
		out = &devices[number];
		return primary_error;
	}
	bool can_access_peer(int one, int other) override { return one == other || !apart; }
	int alloc_device(uint64_t size, void **out) override
	{
		if (alloc_error)
			return alloc_error;
		std::lock_guard guard(lock);
		// Like CUDA for large allocations: no frame is shared.
		constexpr uintptr_t frame = 65536;
		allocated.emplace_back(std::make_unique<std::string>(size + 2 * frame, 'r'), inside);
		const auto start = reinterpret_cast<uintptr_t>(allocated.back().first->data());
		*out = reinterpret_cast<void *>((start + frame - 1) / frame * frame);
		return 0;
	}
	void free_device(void *memory) override
	{
		std::lock_guard guard(lock);
		const char *const at = static_cast<char *>(memory);
		std::erase_if(allocated, [&](const auto &one) {
			return at >= one.first->data() && at < one.first->data() + one.first->size();
		});
	}
	int copy_between_devices(void *to, const void *from, uint64_t size, cufile::Stream) override
	{
		if (!calls_until_error--)
			return CUDA_ERROR_UNKNOWN;
		std::memcpy(to, from, size);
		return 0;
	}
	void leave() override {}
	int alloc_pinned(uint64_t size, void **out) override
	{
		if (no_pinned)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*out = std::aligned_alloc(4096, size);
		const std::lock_guard guard(lock);
		pinned_ids.emplace_back(static_cast<char *>(*out), ++last_id);
		pinned++;
		if (system)
			pinned_on.push_back(system->preferred);
		return 0;
	}
	bool is_pinned(const void *address)
	{
		const std::lock_guard guard(lock);
		const auto at = reinterpret_cast<uintptr_t>(address);
		return std::any_of(pinned_ids.begin(), pinned_ids.end(), [&](const auto &one) {
			const auto start = reinterpret_cast<uintptr_t>(one.first);
			return at >= start && at - start < malloc_usable_size(one.first);
		});
	}
	void free_pinned(void *memory) override
	{
		{
			const std::lock_guard guard(lock);
			std::erase_if(pinned_ids, [&](const auto &one) { return one.first == memory; });
		}
		std::free(memory);
		pinned--;
	}
	int create_stream(cufile::Stream *out) override
	{
		*out = this;
		return 0;
	}
	void destroy_stream(cufile::Stream) override {}
	int create_event(cufile::Event *out) override
	{
		*out = this;
		return 0;
	}
	void destroy_event(cufile::Event) override {}
	int record(cufile::Event, cufile::Stream) override { return calls_until_error-- ? 0 : CUDA_ERROR_UNKNOWN; }
	int wait(cufile::Event) override { return calls_until_error-- ? 0 : CUDA_ERROR_UNKNOWN; }
	int wait_stream(cufile::Stream) override { return calls_until_error-- ? 0 : CUDA_ERROR_UNKNOWN; }
	int copy_to_device(const cufile::Copy *copies, size_t n, cufile::Stream) override
	{
		if (!calls_until_error--)
			return CUDA_ERROR_UNKNOWN;
		for (size_t i = 0; i < n; i++)
			std::memcpy(copies[i].device, copies[i].host, copies[i].size);
		return 0;
	}
	int copy_to_host(void *to, const void *from, uint64_t size, cufile::Stream) override
	{
		std::memcpy(to, from, size);
		return 0;
	}
	int query_stream(cufile::Stream stream, cufile::StreamInfo &out) override
	{
		out = {here ? here : this, reinterpret_cast<uintptr_t>(stream) + 1, capturing};
		return copy_kernel_error;
	}
	int launch_copy(const cufile::CopyDescriptor *order, cufile::Stream) override
	{
		if (!launches_until_error--)
			return CUDA_ERROR_UNKNOWN;
		in_stream.push_back({[](void *arg) {
					     const auto *const now = static_cast<const cufile::CopyDescriptor *>(arg);
					     if (now->size)
						     std::memcpy(now->to, now->from, now->size);
				     },
				     nullptr, const_cast<cufile::CopyDescriptor *>(order)});
		return 0;
	}
	int call_in_stream(cufile::Stream, void (*call)(void *), void (*gone)(void *), void *arg,
			   bool &captured) override
	{
		captured = capturing;
		if (launch_error)
			return launch_error;
		in_stream.push_back({call, gone, arg});
		return 0;
	}
	int device_count(int &count) override
	{
		count = nr_devices;
		return 0;
	}
	int current_device(int &out) override
	{
		out = 0;
		return 0;
	}
	int uuid(int, char (&)[CUFILE_GPU_UUID_LEN]) override { return 0; }
	int pci_address(int which, std::string &out) override
	{
		out = std::string("0000:0") + static_cast<char>('A' + (apiece ? which : 0)) + ":00.0";
		return 0;
	}

	int stream_id(cufile::Stream stream, uint64_t &out) override
	{
		ids_asked++;
		out = stream_id_error ? 0 : reinterpret_cast<uintptr_t>(stream) + 1 + generation * 1000000;
		return stream_id_error;
	}
	int stream_id_error = 0, ids_asked = 0;
	uint64_t generation = 0; // of streams; streams of the next generation have the same handles but other IDs

	// An operation queued in a stream; it runs when the test says so.
	struct InStream {
		void (*call)(void *);
		void (*gone)(void *);
		void *arg;
	};
	std::vector<InStream> in_stream;
	bool capturing = false;
	int launch_error = 0;
	cufile::Context here = nullptr; // the streams' context if not that of the memory
	// The driver lacks the kernel; launches until a failure, negative: none fails.
	int copy_kernel_error = 0, launches_until_error = -1;

	std::atomic<bool> present = false; // written by each call of several threads
	bool loaded_since = false;
	cufile::Memory::Kind kind = cufile::Memory::Kind::device; // of `device`
	int look_up_error = 0;
	uint64_t id = 1;                    // of the allocation that is `device`; 0: none
	const char *second_piece = nullptr; // where in `device` a second allocation begins
	uint64_t second_id = 0;             // 0: there is no second one
	bool mapped = false;                // by cuMemMap()
	size_t mapped_to = SIZE_MAX;        // mapped part of `device`; the rest is only reserved
	struct Small {
		size_t size;
		uint64_t id;
	};
	std::map<char *, Small> side_by_side; // allocations within `device`, instead of one
	std::atomic<int> synced{0}, allocations_asked{0};
	bool no_ids_of_allocated = false;
	int sync_error = 0;
	std::atomic<int> pinned{0};
	std::vector<std::pair<char *, uint64_t>> pinned_ids; // live allocations; protected by lock
	uint64_t last_id = 1000;
	bool no_pinned = false;
	const FakeSystem *system = nullptr; // memory comes from this system's preferred node
	std::vector<int> pinned_on;
	std::atomic<int> calls_until_error{-1}; // negative: none fails
	std::string device;
	const std::string *also = nullptr; // further memory of its device
	uint64_t also_id = 99;             // of that allocation; 0: unknown to the driver
	int devices[4]{};                  // their addresses are their contexts
	int nr_devices = 1;
	bool apiece = false; // each device has its own PCI address
	int primary_error = 0, alloc_error = 0;
	bool apart = false;                        // no device can access another
	static inline thread_local int inside = 0; // device of the thread's context
	std::mutex lock;                           // protects allocated
	std::vector<std::pair<std::unique_ptr<std::string>, int>> allocated;
};

class FakePeerdma final : public cufile::PeerdmaClient
{
public:
	void retry_load() override { present = present.load() || loaded_since; }
	int look_up(const void *address, cufile::BufferLocation &location) override
	{
		if (!present)
			return -ENOSYS;
		const char *at = static_cast<const char *>(address);
		if (at < buffer.data() || at >= buffer.data() + buffer.size())
			return -ENOENT;
		location.buffer = reinterpret_cast<struct peerdma_buf *>(this);
		location.offset = static_cast<uint64_t>(at - buffer.data());
		location.size = buffer.size() - location.offset;
		location.provider = 7;
		location.device = device;
		return 0;
	}
	// Identifies the buffer by its address.
	int pin(const void *address, uint64_t size, cufile::BufferLocation &location, uint32_t &reason) override
	{
		auto *const at = static_cast<char *>(const_cast<void *>(address));
		std::lock_guard guard(lock);
		pins++;
		reason = pin_reason;
		if (pin_error)
			return pin_error;
		for (const auto &[other, bytes] : pinned)
			if (at < other + bytes && other < at + size) {
				reason = PEERDMA_REASON_VENDOR_BUSY;
				return -EBUSY;
			}
		pinned[at] = size;
		made_by[at] = device;
		location = {reinterpret_cast<struct peerdma_buf *>(at), 0, size, next_provider, device};
		next_provider += one_each;
		return 0;
	}
	// A buffer of whole frames, also identified by its address.
	int import_cuda(const void *address, uint64_t size, const std::string &gpu, cufile::BufferLocation &location,
			uint32_t &reason) override
	{
		std::lock_guard guard(lock);
		imports.push_back(gpu);
		reason = import_reason;
		if (import_error)
			return import_error;
		constexpr uint64_t frame = 65536;
		const auto at = reinterpret_cast<uintptr_t>(address);
		const uintptr_t first = at / frame * frame, end = (at + size + frame - 1) / frame * frame;
		auto *const buf = reinterpret_cast<char *>(first);
		for (const auto &[other, bytes] : pinned)
			if (buf < other + bytes && other < buf + (end - first)) {
				reason = PEERDMA_REASON_VENDOR_BUSY;
				return -EBUSY;
			}
		pinned[buf] = end - first;
		made_by[buf] = device;
		location = {reinterpret_cast<struct peerdma_buf *>(buf), at - first, end - at, next_provider, device};
		return 0;
	}
	int import_foreign(const void *address, uint64_t size, cufile::BufferLocation &location,
			   uint32_t &reason) override
	{
		std::lock_guard guard(lock);
		foreign_imports++;
		const char *const at = static_cast<const char *>(address);
		if (at < foreign.data() || at >= foreign.data() + foreign.size())
			return -ENOENT;
		reason = foreign_reason;
		if (foreign_error)
			return foreign_error;
		// Whole frames from the frame in which it begins.
		constexpr uint64_t frame = 65536;
		const auto from = static_cast<uint64_t>(at - foreign.data());
		const uint64_t first = from / frame * frame, end = (from + size + frame - 1) / frame * frame;
		if (end > foreign.size()) {
			reason = PEERDMA_REASON_VENDOR_ALIGN;
			return -EINVAL;
		}
		auto *const buf = foreign.data() + first;
		for (const auto &[other, bytes] : pinned)
			if (buf < other + bytes && other < foreign.data() + end) {
				reason = PEERDMA_REASON_VENDOR_BUSY;
				return -EBUSY;
			}
		pinned[buf] = end - first;
		made_by[buf] = device;
		location = {reinterpret_cast<struct peerdma_buf *>(buf), from - first, end - from, next_provider,
			    device};
		return 0;
	}
	void release(struct peerdma_buf *buf) override
	{
		std::lock_guard guard(lock);
		released += pinned.erase(reinterpret_cast<char *>(buf));
	}
	// From now on another device is open; the kernel has released the buffers of this one.
	void close_device()
	{
		closed.insert(device++);
		pinned.clear();
	}
	bool is_valid(const cufile::BufferLocation &location) override { return !closed.contains(location.device); }
	// Files carry the device that opened them.
	int open_file(struct peerdma_buf *buf, int fd, struct peerdma_file **out) override
	{
		std::lock_guard guard(lock);
		const auto made = made_by.find(reinterpret_cast<char *>(buf));
		const int by = made == made_by.end() ? device : made->second;
		if (open_error || closed.contains(by))
			return open_error ? open_error : -EBADF;
		opened.push_back(fd);
		open_files++;
		*out = reinterpret_cast<struct peerdma_file *>(static_cast<uintptr_t>(by));
		return 0;
	}
	void close_file(struct peerdma_file *) override { open_files--; }
	int explain(struct peerdma_file *, uint32_t provider, struct peerdma_explanation &out) override
	{
		std::lock_guard guard(lock);
		explained.push_back(provider);
		const uint32_t why = why_not(provider);
		const bool denied = why == PEERDMA_REASON_RULE;
		out.route = denied ? PEERDMA_ROUTE_NONE : why ? PEERDMA_ROUTE_POSIX : PEERDMA_ROUTE_DIRECT_EDGES;
		out.error = denied ? EACCES : 0;
		out.reason = why;
		out.dio_mem_align = 4;
		out.dio_offset_align = 512;
		const auto far = distances.find(provider);
		out.distance = far == distances.end() ? 0 : far->second;
		return 0;
	}
	int64_t read(struct peerdma_file *by, const cufile::BufferLocation &location, uint64_t size, uint64_t offset,
		     struct peerdma_io_result &result) override
	{
		std::lock_guard guard(lock);
		if (reinterpret_cast<uintptr_t>(by) != static_cast<uintptr_t>(location.device))
			return -ENOENT;
		if (closed.contains(location.device))
			return -EBADF;
		reads.push_back({location.offset, size, offset});
		if (error || lost.count(location.provider))
			return error ? error : -ENODEV;
		if (later_error && !reads_until_error--)
			return later_error;
		outside += !is_inside(location, size);
		uint64_t n = offset >= file.size() ? 0 : std::min<uint64_t>(size, file.size() - offset);
		if (!stop(n, offset, result))
			return -stop_error;
		if (n)
			file.copy(bytes_at(location), n, offset);
		tell(location, n, result);
		return static_cast<int64_t>(n);
	}
	int64_t write(struct peerdma_file *, const cufile::BufferLocation &location, uint64_t size, uint64_t offset,
		      struct peerdma_io_result &result) override
	{
		std::lock_guard guard(lock);
		if (error)
			return error;
		writes.push_back({location.offset, size, offset});
		outside += !is_inside(location, size);
		if (!stop(size, offset, result))
			return -stop_error;
		tell(location, size, result);
		file.resize(std::max<size_t>(file.size(), offset + size));
		file.replace(offset, size, bytes_at(location), size);
		return static_cast<int64_t>(size);
	}
	int preferred(uint32_t &provider) override
	{
		provider = prefers;
		return prefers ? 0 : -ENOTUNIQ;
	}
	const char *reason_text(uint32_t) override { return "the drive is far away"; }

	struct Io {
		uint64_t buf_off, size, offset;
		bool operator==(const Io &) const = default;
	};
	std::mutex lock;
	std::atomic<bool> present = true;
	bool loaded_since = false;
	uint32_t refused = 0, bounced = 0;       // enum peerdma_reason
	uint32_t falls_back = 0;                 // as `refused`, but not reported in advance
	uint64_t edges = 0;                      // bytes of direct I/O that go through the host
	std::map<uint32_t, uint32_t> refused_by; // by provider, overrides `refused`
	std::map<uint32_t, int> distances;
	uint32_t next_provider = 9, prefers = 0;
	std::set<uint32_t> lost; // providers that have disappeared
	bool one_each = false;   // each pinned buffer belongs to another provider
	int64_t error = 0;
	uint64_t stop_at = UINT64_MAX; // file offset at which I/O ends with stop_error
	int stop_error = 0;
	int open_error = 0, open_files = 0;
	int device = 3;                // that creates new buffers
	std::set<int> closed;          // by the program
	std::map<char *, int> made_by; // device of each pinned buffer
	std::string buffer, file;
	std::string foreign; // memory of another vendor
	int foreign_imports = 0, foreign_error = 0;
	uint32_t foreign_reason = 0; // returned with foreign_error
	std::vector<int> opened;
	std::vector<uint32_t> explained;
	std::vector<Io> reads, writes;
	int64_t later_error = 0; // of one read, after reads_until_error reads
	int reads_until_error = 0;
	size_t outside = 0; // reads and writes of unregistered memory
	std::map<char *, uint64_t> pinned;
	int pin_error = -ENOENT, pins = 0;
	uint32_t pin_reason = 0;          // returned with pin_error
	std::vector<std::string> imports; // GPU of each attempt
	int import_error = -EOPNOTSUPP;
	uint32_t import_reason = PEERDMA_REASON_IMPORT_HANDLE;
	size_t released = 0;

private:
	// Like libpeerdma: returns the bytes moved and, beside them, the error. False: nothing was moved.
	bool stop(uint64_t &size, uint64_t offset, struct peerdma_io_result &result) const
	{
		if (offset + size <= stop_at)
			return true;
		size = stop_at > offset ? stop_at - offset : 0;
		result.error = static_cast<uint32_t>(stop_error);
		return size;
	}
	uint32_t why_not(uint32_t provider) const
	{
		const auto own = refused_by.find(provider);
		return own == refused_by.end() ? refused : own->second;
	}
	void tell(const cufile::BufferLocation &location, uint64_t n, struct peerdma_io_result &result) const
	{
		const uint32_t refusal = why_not(location.provider), why = refusal ? refusal : falls_back;
		result.route = why     ? PEERDMA_ROUTE_POSIX :
			       bounced ? PEERDMA_ROUTE_HOST :
			       edges   ? PEERDMA_ROUTE_DIRECT_EDGES :
					 PEERDMA_ROUTE_DIRECT;
		result.reason = why ? why : bounced;
		result.host = why || bounced ? n : std::min(edges, n);
	}
	bool is_inside(const cufile::BufferLocation &location, uint64_t size)
	{
		if (location.buffer == reinterpret_cast<struct peerdma_buf *>(this))
			return location.offset + size <= buffer.size();
		const auto found = pinned.find(reinterpret_cast<char *>(location.buffer));
		return found != pinned.end() && location.offset + size <= found->second;
	}
	char *bytes_at(const cufile::BufferLocation &location)
	{
		const bool own = location.buffer == reinterpret_cast<struct peerdma_buf *>(this);
		return (own ? buffer.data() : reinterpret_cast<char *>(location.buffer)) + location.offset;
	}
};
