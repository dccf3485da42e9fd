// SPDX-License-Identifier: MIT
//
// The files that a view is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "view/codec.hpp"

namespace view
{

// Why a file cannot be opened or read.
struct SourceError : std::runtime_error {
	SourceError(const std::string &what, int code) : std::runtime_error(what), error(code) {}
	int error; // errno
};

// Which file it was, and in which state: any write, truncation or replacement changes it, and so does a new mode, owner, link or name.
struct Identity {
	uint64_t device = 0, inode = 0, size = 0;
	int64_t mtime = 0, ctime = 0; // nanoseconds
	bool operator==(const Identity &) const = default;
};

// The contents of one file, decompressed if it is compressed. Several threads may read at a time.
class Source
{
public:
	Source() = default;
	virtual ~Source() = default;
	Source(const Source &) = delete;
	Source &operator=(const Source &) = delete;

	// A compressed file is indexed before all else: goes on for about so many bytes. Returns whether all is done. Throws SourceError.
	virtual bool index(uint64_t) { return true; }
	// What the index has so far, "" if there is none; and the opposite, before index(). resume_index() returns false if these bytes are
	// not of an index of the same file, unchanged since; nothing has changed then. Both throw SourceError.
	virtual std::string save_index() const { return ""; }
	virtual bool resume_index(const std::string &) { return false; }

	virtual const std::string &name() const = 0;
	virtual uint64_t bytes() const = 0; // when it was opened, decompressed
	// Of the file as it is stored, as stat(2) tells it; may wait for the storage. Throws SourceError.
	virtual Identity identity() const = 0;
	// The same from the file's server, past this machine's cache of attributes. Throws SourceError.
	virtual Identity server_identity() const { return identity(); }
	// The same as far as this machine knows, without waiting: of a file of a server it may be an old one. nullopt: this file system
	// may ask a server or another machine in any case, so it was not asked. Throws SourceError.
	virtual std::optional<Identity> known_identity() const = 0;
	virtual Identity opened() const = 0;            // the same, when it was opened
	virtual uint64_t restarts() const { return 0; } // reads that decompressed more than they had to
	// Fills `to`. Throws SourceError, with ENODATA if the file ends before.
	virtual void read(uint64_t offset, std::span<std::byte> to) const = 0;
	// Reads end with ECANCELED from now on, those that are under way as soon as they can: for those that take long.
	virtual void stop() {}
	// These bytes are read next, in pieces: what is not in memory is fetched at once, and not awaited.
	virtual void will_read(uint64_t, uint64_t /*bytes*/) const {}
};

// A regular file as it is. Throws SourceError.
std::unique_ptr<Source> open_plain(const std::string &path);

// Files, the elements of which follow each other.
class Sequence
{
public:
	struct Place {
		size_t file;      // index
		uint64_t element; // of the file
	};

	// Throws SourceError if a file does not consist of whole elements, and std::bad_alloc; `files` is as it was then.
	Sequence(Element element, std::vector<std::unique_ptr<Source>> &&files);

	Element element() const { return element_; }
	uint64_t elements() const { return starts_.back(); }
	uint64_t elements_of(size_t file) const { return starts_[file + 1] - starts_[file]; }
	const std::vector<std::unique_ptr<Source>> &files() const { return files_; }
	// The number of the file system that all of them are on; 0: there are several.
	uint64_t storage() const;
	// Fills `to`, whole elements, from element `first` on, which are there. Throws SourceError.
	void read(uint64_t first, std::span<std::byte> to) const;
	// As Source::will_read(), for so many elements that are there.
	void will_read(uint64_t first, uint64_t count) const;
	// Where an element is that is there.
	Place place(uint64_t element) const;

private:
	const Element element_;
	const size_t element_bytes_;
	std::vector<uint64_t> starts_; // first element of each file, and the end of the last
	std::vector<std::unique_ptr<Source>> files_;
};

} // namespace view
