// SPDX-License-Identifier: MIT
#include "view/scan.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "view/layout.hpp"

namespace view
{

namespace
{

using json = nlohmann::json;

constexpr int saved_version = 2;
constexpr uint64_t measured_at_once = 1 << 18; // elements
constexpr size_t checked_at_once = 16;         // files that were not read now

json json_of(const Sequence &files, const std::vector<Identity> &identities)
{
	json all = json::array();
	for (size_t i = 0; i < identities.size(); i++) {
		const Identity &id = identities[i];
		// Its bytes: it may be compressed, or not, for the scan.
		const Source &file = *files.files()[i];
		all.push_back({file.name(), id.device, id.inode, id.size, id.mtime, id.ctime, file.bytes()});
	}
	return all;
}

// Of integers that need so many bits.
Codec codec_of(Element element, unsigned bits)
{
	const Codec codec = {element, Reduction::bits, bits};
	return codec.valid() ? codec : Codec::unreduced(element);
}

} // namespace

Scan::Scan(const Sequence &files, std::optional<Codec> codec) : files_(files), wanted_(codec)
{
	for (const std::unique_ptr<Source> &file : files_.files())
		identities_.push_back(file->opened());
	if (!wanted_ && is_integer(files.element()))
		return;
	codec_ = wanted_ ? *wanted_ : Codec::unreduced(files.element());
	measured_ = files_.elements();
	reducer_.emplace(codec_, files_);
}

void Scan::check_unchanged(size_t begin, size_t end) const
{
	for (size_t i = begin; i < end; i++)
		if (files_.files()[i]->identity() != identities_[i])
			throw Changed(fmt::format("{}: changed while it was scanned", files_.files()[i]->name()));
}

// What measure() or sum() reads next.
ElementRange Scan::next() const
{
	if (measured_ < files_.elements())
		return {measured_, std::min(measured_ + measured_at_once, files_.elements())};
	const uint64_t begin = sums_.size() * sum_bytes;
	return elements_of(codec_, files_.elements(), begin, begin + reducer_->chunk_bytes(sums_.size()));
}

void Scan::measure()
{
	const uint64_t here = std::min(measured_at_once, files_.elements() - measured_);
	buffer_.resize(here * Codec::unreduced(files_.element()).element_bytes());
	files_.read(measured_, buffer_);
	uint64_t misfit = 0;
	const unsigned bits = needed_bits(files_.element(), buffer_, misfit);
	if (!bits) {
		const Sequence::Place at = files_.place(measured_ + misfit);
		throw Misfit(fmt::format("{}: element {} is {}, which does not fit into 32 bits",
					 files_.files()[at.file]->name(), at.element,
					 value_text(files_.element(), buffer_, misfit)),
			     at);
	}
	bits_ = std::max(bits_, bits);
	measured_ += here;
}

void Scan::sum()
{
	const uint64_t chunk = sums_.size();
	buffer_.resize(reducer_->chunk_bytes(chunk));
	reducer_->reduce_chunk(chunk, buffer_.data(), reducer_buffers_);
	sums_.push_back(crc32c(buffer_));
}

void Scan::check_unchanged(const ElementRange &elements) const
{
	check_unchanged(files_.place(elements.first).file, files_.place(elements.end - 1).file + 1);
}

// Throws Changed if a file that holds these elements has changed, as far as that can be told.
void Scan::check_after_error(const ElementRange &elements) const
{
	try {
		check_unchanged(elements);
	} catch (const SourceError &) {
		// The first error says more.
	}
}

bool Scan::advance(uint64_t bytes)
{
	const uint64_t element_bytes = Codec::unreduced(files_.element()).element_bytes();
	const uint64_t until = steps_done() + std::max<uint64_t>(bytes / element_bytes, 1);
	ElementRange read = {files_.elements(), 0}, now = {};
	bool done = false;
	try {
		while (!done && steps_done() < until) {
			const bool measures = measured_ < files_.elements();
			if (!measures && !reducer_) {
				codec_ = codec_of(files_.element(), bits_);
				reducer_.emplace(codec_, files_);
			}
			done = !measures && sums_.size() == chunks_of(reducer_->data_bytes());
			if (done)
				break;
			now = next();
			measures ? measure() : sum();
			read = {std::min(read.first, now.first), std::max(read.end, now.end)};
		}
	} catch (const SourceError &error) {
		// It may have been cut. One that was stopped may be on a storage that does not answer.
		if (error.error != ECANCELED)
			check_after_error(now);
		throw;
	} catch (const Misfit &) {
		check_after_error(now);
		throw;
	}
	// What was read before a change was made cannot be told from what was read after it. There may be a million files, so those that were
	// not read now are checked at the end, and some of them each time.
	if (read.first < read.end)
		check_unchanged(read);
	const size_t begin = done || checked_ >= identities_.size() ? 0 : checked_;
	checked_ = done ? identities_.size() : std::min(begin + checked_at_once, identities_.size());
	check_unchanged(begin, checked_);
	// Another view's scan may come first now.
	buffer_ = {};
	reducer_buffers_ = {};
	return done;
}

uint64_t Scan::steps_done() const
{
	uint64_t summed = 0;
	// The last sum may be of as many bits as a whole chunk, and of fewer elements.
	if (reducer_ && sums_.size() == chunks_of(reducer_->data_bytes()))
		summed = files_.elements();
	else if (reducer_)
		summed = sums_.size() * sum_bytes / codec_.bits * 8;
	return (wanted_ ? 0 : measured_) + summed;
}

Header Scan::header() const
{
	Header header;
	header.codec = codec_;
	header.elements = files_.elements();
	for (size_t i = 0; i < files_.files().size(); i++)
		header.files.push_back({files_.files()[i]->name(), files_.elements_of(i)});
	header.sums = sums_;
	return header;
}

uint64_t Scan::least_header_bytes() const
{
	uint64_t names = 0;
	for (const std::unique_ptr<Source> &file : files_.files())
		names += file->name().size();
	return header_bytes(files_.files().size(), names, wanted_ ? wanted_->reduced_bytes(files_.elements()) : 0);
}

std::string Scan::save() const
{
	const auto *sums = reinterpret_cast<const uint8_t *>(sums_.data());
	const json saved = {
		{"version", saved_version},
		{"files", json_of(files_, identities_)},
		{"element", element_name(files_.element())},
		{"wanted", wanted_ ? wanted_->name() : ""},
		{"measured", measured_},
		{"bits", bits_},
		{"sums", json::binary({sums, sums + sums_.size() * sizeof(uint32_t)})},
	};
	std::string bytes;
	json::to_cbor(saved, bytes);
	return bytes;
}

bool Scan::resume(const std::string &saved)
{
	const json found = json::from_cbor(saved, true, false);
	const auto is = [&](const char *key, const json &value) { return found.contains(key) && found[key] == value; };
	if (!found.is_object() || !is("version", saved_version) || !is("files", json_of(files_, identities_)) ||
	    !is("element", element_name(files_.element())) || !is("wanted", wanted_ ? wanted_->name() : ""))
		return false;
	const auto number = [&](const char *key, uint64_t least, uint64_t most) {
		return found.contains(key) && found[key].is_number_unsigned() && found[key] >= least &&
		       found[key] <= most;
	};
	if (!number("measured", 0, files_.elements()) || !number("bits", 1, max_bits) || !found.contains("sums") ||
	    !found["sums"].is_binary())
		return false;
	const auto measured = found["measured"].get<uint64_t>();
	const auto bits = found["bits"].get<unsigned>();
	const std::vector<uint8_t> &sums = found["sums"].get_binary();
	const bool all_measured = measured == files_.elements();
	const Codec codec = wanted_ || !is_integer(files_.element()) ? codec_ : codec_of(files_.element(), bits);
	const uint64_t most = all_measured ? chunks_of(codec.reduced_bytes(files_.elements())) : 0;
	if (sums.size() % sizeof(uint32_t) || sums.size() / sizeof(uint32_t) > most)
		return false;

	measured_ = measured;
	bits_ = bits;
	sums_.resize(sums.size() / sizeof(uint32_t));
	if (!sums.empty()) {
		std::memcpy(sums_.data(), sums.data(), sums.size());
		codec_ = codec;
		reducer_.emplace(codec_, files_);
	}
	return true;
}

} // namespace view
