// SPDX-License-Identifier: MIT
#include "viewd/served_view.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace viewd
{

namespace
{

// A read that needs chunks. The last part to end tells it.
struct Parts {
	Parts(std::shared_ptr<ViewRead> of, unsigned count) : read(std::move(of)), left(count) {}
	const std::shared_ptr<ViewRead> read;
	std::atomic<unsigned> left;
	std::atomic<int> error = 0;

	void end(int with)
	{
		int none = 0;
		if (with)
			error.compare_exchange_strong(none, with);
		if (!--left)
			read->done(error);
	}
};

constexpr uint64_t page = 4096;

} // namespace

ServedView::ServedView(ChunkCache &cache, const view::Sequence &files, const view::Header &header,
		       std::vector<view::Identity> identities, bool prefetch)
	: cache_(cache), files_(files), codec_(header.codec), header_(view::serialize(header)), sums_(header.sums),
	  identities_(std::move(identities)), data_bytes_(header.data_bytes()),
	  device_bytes_((header_.size() + data_bytes_ + page - 1) / page * page), prefetches_(prefetch),
	  ahead_(data_bytes_)
{
	number_ = cache_.add([this](uint64_t chunk, std::byte *to) { return load(chunk, to); });
}

ServedView::~ServedView() { withdraw(); }

void ServedView::withdraw() { cache_.remove(number_); }

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
	if (!is_fresh(begin_data, end_data)) {
		failed_++;
		read->done(-ENODATA);
		return;
	}
	constexpr uint64_t chunk_bytes = ChunkCache::chunk_size;
	const uint64_t first = begin_data / chunk_bytes, last = (end_data - 1) / chunk_bytes;
	const uint64_t data_at = begin_data + header_.size() - offset; // of the read: where the data begins
	auto parts = std::make_shared<Parts>(std::move(read), static_cast<unsigned>(last - first + 1));
	for (uint64_t chunk = first; chunk <= last; chunk++) {
		const uint64_t from = std::max(begin_data, chunk * chunk_bytes),
			       to = std::min(end_data, (chunk + 1) * chunk_bytes);
		const auto at = static_cast<uint32_t>(data_at + (from - begin_data));
		cache_.get({number_, chunk}, [this, parts, chunk, from, to, at](const ChunkCache::Held &held,
										int failed) {
			if (!failed)
				failed = parts->read->copy(at, held.bytes() + (from - chunk * chunk_bytes), to - from);
			if (failed)
				failed_++;
			parts->end(failed);
		});
	}
	if (prefetches_)
		prefetch(begin_data, end_data);
}

bool ServedView::is_fresh(uint64_t begin, uint64_t end)
{
	try {
		return unchanged(begin, end);
	} catch (const view::SourceError &error) {
		fault(error.what());
		return false;
	}
}

void ServedView::prefetch(uint64_t begin, uint64_t end)
{
	// Half of the memory is for what was read; the other half is shared by the streams that are active.
	ChunkRange range;
	{
		const std::lock_guard lock(ahead_mutex_);
		const uint64_t most = cache_.chunks() / 2 / std::max<size_t>(ahead_.active(), 1);
		range = ahead_.on_read(begin, end, most);
	}
	for (uint64_t chunk = range.begin; chunk < range.end; chunk++)
		cache_.prefetch({number_, chunk});
}

ServedView::Status ServedView::status() const
{
	const std::lock_guard lock(fault_mutex_);
	return {reads_, bytes_, failed_, stale_, fault_};
}

void ServedView::fault(const std::string &what)
{
	const std::lock_guard lock(fault_mutex_);
	fault_ = what;
}

bool ServedView::unchanged(uint64_t begin, uint64_t end)
{
	const view::ElementRange elements = view::elements_of(codec_, files_.elements(), begin, end);
	const size_t last = files_.place(elements.end - 1).file;
	for (size_t i = files_.place(elements.first).file; i <= last; i++)
		if (files_.files()[i]->identity() != identities_[i]) {
			stale_ = true;
			fault(fmt::format("{}: changed after it was published", files_.files()[i]->name()));
			return false;
		}
	return true;
}

int ServedView::load(uint64_t chunk, std::byte *to)
{
	try {
		view::Reducer reducer(codec_, files_);
		const uint64_t begin = chunk * view::sum_bytes, bytes = reducer.chunk_bytes(chunk);
		reducer.reduce_chunk(chunk, to);
		const uint32_t sum = view::crc32c({to, bytes});
		// Stores to a mapping may change a file without a new time. The CRC tells them all the same.
		if (!unchanged(begin, begin + bytes))
			return -ENODATA;
		if (sum != sums_[chunk]) {
			fault(fmt::format("chunk {}: its bytes are not those that were published", chunk));
			return -ENODATA;
		}
		return 0;
	} catch (const view::SourceError &error) {
		fault(error.what());
		return error.error == EIO ? -EIO : -ENODATA;
	} catch (const view::Misfit &misfit) {
		fault(misfit.what());
		return -ENODATA;
	}
}

} // namespace viewd
