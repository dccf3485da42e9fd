// SPDX-License-Identifier: MIT
//
// libpeerdma, found at run time: libcufile is useful without it, and finds the one that the program, or
// the provider of its device memory, has loaded already.
#include <atomic>
#include <cerrno>
#include <mutex>
#include <type_traits>

#include <dlfcn.h>

#include "real.hpp"

namespace cufile
{
namespace
{

struct Table {
	decltype(&peerdma_buf_at) buf_at;
	decltype(&peerdma_buf_query) buf_query;
	decltype(&peerdma_file_for_buf) file_for_buf;
	decltype(&peerdma_file_close) file_close;
	decltype(&peerdma_explain) explain;
	decltype(&peerdma_read_result) read_result;
	decltype(&peerdma_write_result) write_result;
	decltype(&peerdma_reason_text) reason_text;
};

class RealPeer final : public Peer
{
public:
	constexpr RealPeer() = default;

	int look_up(const void *address, Place &place) override
	{
		if (!load())
			return -ENOSYS;
		place = {};
		const int rc = table_.buf_at(address, &place.buffer, &place.offset);
		if (rc < 0)
			return rc;
		struct peerdma_buf_info info = {};
		info.size = sizeof(info);
		const int query = table_.buf_query(place.buffer, &info);
		place.size = info.len - place.offset;
		place.provider = info.provider_id;
		place.device = info.device_fd;
		return query;
	}
	int open_file(struct peerdma_buf *buffer, int fd, struct peerdma_file **out) override
	{
		return table_.file_for_buf(buffer, fd, out);
	}
	void close_file(struct peerdma_file *file) override { table_.file_close(file); }
	int explain(struct peerdma_file *file, uint32_t provider, struct peerdma_explanation &out) override
	{
		out.size = sizeof(out);
		return table_.explain(file, provider, &out);
	}
	int64_t read(struct peerdma_file *file, const Place &place, uint64_t size, uint64_t offset,
		     struct peerdma_io_result &result) override
	{
		result.size = sizeof(result);
		return table_.read_result(file, place.buffer, place.offset, size, offset, &result);
	}
	int64_t write(struct peerdma_file *file, const Place &place, uint64_t size, uint64_t offset,
		      struct peerdma_io_result &result) override
	{
		result.size = sizeof(result);
		return table_.write_result(file, place.buffer, place.offset, size, offset, &result);
	}
	const char *reason_text(uint32_t reason) override { return load() ? table_.reason_text(reason) : ""; }

private:
	bool load()
	{
		const int known = state_.load(std::memory_order_acquire);
		if (known)
			return known > 0;
		std::lock_guard guard(lock_);
		if (!state_.load(std::memory_order_relaxed))
			state_.store(find() ? 1 : -1, std::memory_order_release);
		return state_.load(std::memory_order_relaxed) > 0;
	}

	bool find()
	{
		void *library = ::dlopen("libpeerdma.so.0", RTLD_NOW | RTLD_LOCAL);
		if (!library)
			return false;
		bool all = true;
		const auto get = [&](auto &function, const char *name) {
			function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
			all = all && function;
		};
		get(table_.buf_at, "peerdma_buf_at");
		get(table_.buf_query, "peerdma_buf_query");
		get(table_.file_for_buf, "peerdma_file_for_buf");
		get(table_.file_close, "peerdma_file_close");
		get(table_.explain, "peerdma_explain");
		get(table_.read_result, "peerdma_read_result");
		get(table_.write_result, "peerdma_write_result");
		get(table_.reason_text, "peerdma_reason_text");
		return all;
	}

	std::mutex lock_;           // protects the first load()
	std::atomic<int> state_{0}; // 0 not looked for, 1 found, -1 there is none
	Table table_{};             // immutable once state_ is 1
};

constinit RealPeer the_peer;

} // namespace

Peer &real_peer() { return the_peer; }

} // namespace cufile
