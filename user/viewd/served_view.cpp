// SPDX-License-Identifier: MIT
#include "viewd/served_view.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace viewd
{

namespace
{

constexpr uint64_t page = 4096;
// Loading this key asks one storage for the identities of its files in to_ask_. Each storage has a key of its own: one that does not
// answer delays only its own files.
constexpr uint64_t question(size_t storage) { return ChunkCache::no_chunk + storage; }

std::vector<uint64_t> storages_of(const view::Sequence &files)
{
	std::set<uint64_t> numbers;
	for (const std::unique_ptr<view::Source> &file : files.files())
		numbers.insert(file->opened().device);
	return {numbers.begin(), numbers.end()};
}

} // namespace

// A read that needs chunks. The last part to end tells it.
struct ServedView::Parts {
	Parts(std::shared_ptr<ViewRead> of, unsigned count, std::atomic<uint64_t> &failed_reads)
		: read(std::move(of)), failed(failed_reads), left(count)
	{
	}
	const std::shared_ptr<ViewRead> read;
	std::atomic<uint64_t> &failed; // of the view, which may be gone once the read was told
	std::atomic<unsigned> left;
	std::atomic<int> error = 0;

	void end(int with)
	{
		int none = 0;
		if (with)
			error.compare_exchange_strong(none, with);
		if (--left)
			return;
		if (error)
			failed++;
		read->done(error);
	}
};

ServedView::ServedView(ChunkCache &cache, const view::Sequence &files, const view::Header &header,
		       std::vector<view::Identity> identities, bool prefetch, ChunkCache::Clock::duration asked_every)
	: cache_(cache), files_(files), codec_(header.codec), reducer_(codec_, files), header_(view::serialize(header)),
	  sums_(header.sums), identities_(std::move(identities)), storages_(storages_of(files_)),
	  data_bytes_(header.data_bytes()), device_bytes_((header_.size() + data_bytes_ + page - 1) / page * page),
	  prefetches_(prefetch), asked_every_(asked_every), ahead_(data_bytes_),
	  asked_(files_.files().size(), ChunkCache::Clock::now()), to_ask_(storages_.size()),
	  changed_(files_.files().size())
{
	const auto load_or_ask = [this](uint64_t chunk, std::byte *to) {
		return chunk < ChunkCache::no_chunk ? load(chunk, to) : ask_now(chunk - ChunkCache::no_chunk);
	};
	number_ = cache_.add(load_or_ask, files_.storage());
}

ServedView::~ServedView()
{
	withdraw();
	cache_.wait_until_unused(number_);
}

// A load may be decompressing a long file, or wait for those that do.
void ServedView::withdraw()
{
	for (const std::unique_ptr<view::Source> &file : files_.files())
		file->stop();
	cache_.remove(number_);
}

void ServedView::read(uint64_t offset, uint32_t bytes, std::shared_ptr<ViewRead> read)
{
	reads_++;
	bytes_ += bytes;
	const uint64_t end = offset + bytes, data_end = header_.size() + data_bytes_;
	// What is not data is copied at once.
	int error = 0;
	if (offset < header_.size())
		error = read->copy(0, header_.data() + offset, std::min<uint64_t>(bytes, header_.size() - offset));
	if (!error && end > data_end) {
		static constexpr std::array<std::byte, page> zeros = {};
		const uint64_t from = std::max(offset, data_end);
		error = read->copy(static_cast<uint32_t>(from - offset), zeros.data(), end - from);
	}
	const uint64_t begin_data = std::max<uint64_t>(offset, header_.size()) - header_.size();
	const uint64_t end_data = std::min(end, data_end) - std::min<uint64_t>(header_.size(), end);
	if (error || begin_data >= end_data) {
		read->done(error);
		return;
	}

	// What the cache has is as it was published; a view that is not has no right bytes any more.
	constexpr uint64_t chunk_bytes = ChunkCache::chunk_size;
	const uint64_t first = begin_data / chunk_bytes, last = (end_data - 1) / chunk_bytes;
	std::shared_ptr<Parts> parts;
	try {
		if (is_fresh(begin_data, end_data))
			parts = std::make_shared<Parts>(read, static_cast<unsigned>(last - first + 1), failed_);
		else
			error = -ENODATA;
	} catch (const std::bad_alloc &) {
		error = -ENOMEM;
	}
	if (error) {
		failed_++;
		read->done(error);
		return;
	}
	read_data(begin_data, end_data, static_cast<uint32_t>(begin_data + header_.size() - offset), parts);
	prefetch(begin_data, end_data);
	ask_now_and_then(begin_data, end_data);
}

// Bytes of the data, which come to `at` of the read.
void ServedView::read_data(uint64_t begin, uint64_t end, uint32_t at, const std::shared_ptr<Parts> &parts)
{
	constexpr uint64_t chunk_bytes = ChunkCache::chunk_size;
	for (uint64_t from = begin; from < end;) {
		const uint64_t chunk = from / chunk_bytes, to = std::min(end, (chunk + 1) * chunk_bytes);
		const auto here = static_cast<uint32_t>(at + (from - begin));
		const auto ready = [parts, chunk, from, to, here](const ChunkCache::Held &held, int failed) {
			if (!failed)
				failed =
					parts->read->copy(here, held.bytes() + (from - chunk * chunk_bytes), to - from);
			parts->end(failed);
		};
		ChunkCache::Ready call;
		try {
			call = ready;
		} catch (const std::bad_alloc &) {
			ready({}, -ENOMEM);
		}
		if (call)
			cache_.get({number_, chunk}, std::move(call));
		from = to;
	}
}

bool ServedView::is_fresh(uint64_t begin, uint64_t end)
{
	try {
		return unchanged(begin, end, Ask::nobody);
	} catch (const view::SourceError &error) {
		fault(error.what(), place_of(begin));
		return false;
	}
}

void ServedView::prefetch(uint64_t begin, uint64_t end)
{
	// Without memory for it, less is prefetched.
	try {
		std::vector<uint64_t> chunks;
		{
			const std::lock_guard lock(ahead_mutex_);
			const bool is_planned = plan_ && plan_->on_read(begin, end);
			const bool is_streamed = prefetches_ && !is_planned && end > begin;
			if (!is_streamed && !streams() && !shared_)
				return;
			uint64_t most = share();
			if (is_streamed) {
				const ChunkRange range = ahead_.on_read(begin, end, most);
				for (uint64_t chunk = range.begin; chunk < range.end; chunk++)
					chunks.push_back(chunk);
				// It may have been the first of a stream, or the last.
				if (streams() != shared_)
					most = share();
			}
			while (const auto chunk = plan_ ? plan_->next(most) : std::nullopt)
				chunks.push_back(*chunk);
		}
		for (const uint64_t chunk : chunks)
			cache_.prefetch({number_, chunk});
	} catch (const std::bad_alloc &) {
	}
}

// With ahead_mutex_ held: those that memory is shared among.
size_t ServedView::streams() const { return (prefetches_ ? ahead_.active() : 0) + (plan_ && !plan_->is_done()); }

// With ahead_mutex_ held: how many chunks to prefetch for each of them.
uint64_t ServedView::share()
{
	shared_ = streams();
	return cache_.share(number_, shared_);
}

void ServedView::plan(Plan plan)
{
	{
		const std::lock_guard lock(ahead_mutex_);
		plan_.reset();
		plan_.emplace(std::move(plan));
	}
	prefetch(0, 0);
}

ServedView::Status ServedView::status() const
{
	Status status = {reads_, bytes_, failed_, stale_};
	{
		const std::lock_guard lock(fault_mutex_);
		status.fault = fault_;
	}
	{
		const std::lock_guard lock(ahead_mutex_);
		if (plan_) {
			status.plan_length = plan_->length();
			status.plan_position = plan_->position();
		}
	}
	for (size_t i = 0; i < files_.files().size(); i++) {
		const view::Source &file = *files_.files()[i];
		status.restarts += file.restarts();
		if (changed_[i] && status.changed++ < most_changed_files)
			status.changed_files.push_back(file.name());
	}
	return status;
}

bool ServedView::is_stale() { return stale_ || (data_bytes_ && !is_fresh(0, data_bytes_)); }

void ServedView::fault(const std::string &what, view::Sequence::Place at)
{
	const std::lock_guard lock(fault_mutex_);
	fault_ = {what, files_.files()[at.file]->name(), at.element};
}

view::Sequence::Place ServedView::place_of(uint64_t begin) const
{
	return files_.place(view::elements_of(codec_, files_.elements(), begin, begin + 1).first);
}

ServedView::Files ServedView::files_of(uint64_t begin, uint64_t end) const
{
	const view::ElementRange elements = view::elements_of(codec_, files_.elements(), begin, end);
	return {files_.place(elements.first), files_.place(elements.end - 1).file + 1};
}

bool ServedView::unchanged(uint64_t begin, uint64_t end, Ask ask)
{
	const Files files = files_of(begin, end);
	bool are_unchanged = true;
	// Backwards: the last fault is that of the first file.
	for (size_t i = files.end; i-- > files.first.file;) {
		const view::Source &file = *files_.files()[i];
		const std::optional<view::Identity> now = ask == Ask::storage ? file.identity() : file.known_identity();
		are_unchanged &= is_unchanged(now, {i, i == files.first.file ? files.first.element : 0});
	}
	return are_unchanged;
}

// now: nullopt: it is not known.
bool ServedView::is_unchanged(const std::optional<view::Identity> &now, view::Sequence::Place at)
{
	// A change that was seen once stays: known_identity() of 9p and SMB does not report it.
	if (!changed_[at.file] && (!now || *now == identities_[at.file]))
		return true;
	changed(at);
	return false;
}

void ServedView::changed(view::Sequence::Place at)
{
	changed_[at.file] = true;
	stale_ = true;
	fault(fmt::format("{}: changed after it was published", files_.files()[at.file]->name()), at);
}

// Servers return ESTALE or ENOENT for a file that was removed or replaced.
void ServedView::failed(const view::SourceError &error, view::Sequence::Place at)
{
	if (error.error == ESTALE || error.error == ENOENT)
		changed(at);
	else
		fault(error.what(), at);
}

// What is read from the cache asks nobody, and what this machine knows of the files of a server gets old.
void ServedView::ask_now_and_then(uint64_t begin, uint64_t end)
{
	const std::lock_guard lock(ask_mutex_);
	try {
		const auto now = ChunkCache::Clock::now();
		const Files files = files_of(begin, end);
		for (size_t i = files.first.file; i < files.end; i++)
			if (now - asked_[i] >= asked_every_) {
				to_ask_[storage_of(i)].insert(i);
				asked_[i] = now;
			}
	} catch (const std::bad_alloc &) {
		// A later read asks.
	}
	for (size_t storage = 0; storage < to_ask_.size(); storage++)
		if (!to_ask_[storage].empty())
			cache_.run({number_, question(storage)});
}

size_t ServedView::storage_of(size_t file) const
{
	return static_cast<size_t>(std::ranges::lower_bound(storages_, files_.files()[file]->opened().device) -
				   storages_.begin());
}

size_t ServedView::ask_all(const std::function<void()> &done)
{
	{
		const std::lock_guard lock(ask_mutex_);
		for (size_t i = 0; i < files_.files().size(); i++)
			to_ask_[storage_of(i)].insert(i);
	}
	for (size_t storage = 0; storage < storages_.size(); storage++)
		cache_.get({number_, question(storage)}, [done](const ChunkCache::Held &, int) { done(); });
	return storages_.size();
}

// Returns an error, so that the cache keeps no chunk.
int ServedView::ask_now(size_t storage)
{
	std::set<size_t> wanted;
	{
		const std::lock_guard lock(ask_mutex_);
		wanted.swap(to_ask_[storage]);
	}
	for (const size_t i : wanted) {
		try {
			is_unchanged(files_.files()[i]->server_identity(), {i, 0});
		} catch (const view::SourceError &error) {
			failed(error, {i, 0});
		}
	}
	return -ENODATA;
}

int ServedView::load(uint64_t chunk, std::byte *to)
{
	// One for each worker.
	static thread_local view::Reducer::Buffers buffers;
	const uint64_t begin = chunk * view::sum_bytes;
	try {
		const uint64_t bytes = reducer_.chunk_bytes(chunk);
		reducer_.reduce_chunk(chunk, to, buffers);
		const uint32_t sum = view::crc32c({to, bytes});
		// Stores to a mapping may change a file without a new time. The CRC tells them all the same.
		if (!unchanged(begin, begin + bytes, Ask::storage))
			return -ENODATA;
		if (sum != sums_[chunk]) {
			stale_ = true;
			fault(fmt::format("chunk {}: its bytes are not those that were published", chunk),
			      place_of(begin));
			return -ENODATA;
		}
		return 0;
	} catch (const view::SourceError &error) {
		failed(error, place_of(begin));
		return error.error == EIO || error.error == ENOMEM ? -error.error : -ENODATA;
	} catch (const view::Misfit &misfit) {
		stale_ = true;
		fault(misfit.what(), misfit.place);
		return -ENODATA;
	} catch (const std::bad_alloc &) {
		// If there is none for the words either, the cache makes the same error of that.
		fault(fmt::format("chunk {}: out of memory", chunk), place_of(begin));
		return -ENOMEM;
	}
}

} // namespace viewd
