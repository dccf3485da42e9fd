// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "view/source.hpp"

/// A folder of a test's files, removed at its end.
class TemporaryFiles
{
public:
	explicit TemporaryFiles(const std::filesystem::path &where = std::filesystem::temp_directory_path())
	{
		std::string name = where / "peerdma-view-XXXXXX";
		if (!::mkdtemp(name.data()))
			throw std::runtime_error("mkdtemp");
		folder = name;
	}
	~TemporaryFiles() { std::filesystem::remove_all(folder); }
	TemporaryFiles(const TemporaryFiles &) = delete;
	TemporaryFiles &operator=(const TemporaryFiles &) = delete;

	/// Writes a file of these values and returns its path.
	template <class Value> std::string write(const std::string &name, const std::vector<Value> &values)
	{
		const std::filesystem::path path = folder / name;
		std::ofstream(path, std::ios::binary)
			.write(reinterpret_cast<const char *>(values.data()),
			       static_cast<std::streamsize>(values.size() * sizeof(Value)));
		return path;
	}

	std::filesystem::path folder;
};

/// Another file, with something that happens before each read.
class WrappedFile : public view::Source
{
public:
	explicit WrappedFile(std::unique_ptr<view::Source> file) : file_(std::move(file)) {}
	const std::string &name() const override { return file_->name(); }
	uint64_t bytes() const override { return file_->bytes(); }
	std::optional<view::Identity> known_identity() const override { return file_->known_identity(); }
	view::Identity identity() const override { return file_->identity(); }
	view::Identity opened() const override { return file_->opened(); }
	void read(uint64_t offset, std::span<std::byte> to) const override
	{
		before_read();
		file_->read(offset, to);
	}

private:
	virtual void before_read() const = 0;
	const std::unique_ptr<view::Source> file_;
};

/// Tokens below 2^bits, the last of which is the highest.
inline std::vector<uint32_t> tokens(size_t count, unsigned bits)
{
	std::vector<uint32_t> values(count);
	for (size_t i = 0; i < count; i++)
		values[i] = static_cast<uint32_t>(i * 2654435761u) >> (32 - bits);
	if (count)
		values.back() = (1u << bits) - 1;
	return values;
}

inline view::Sequence sequence(view::Element element, const std::vector<std::string> &paths)
{
	std::vector<std::unique_ptr<view::Source>> files;
	for (const std::string &path : paths)
		files.push_back(view::open_plain(path));
	return {element, std::move(files)};
}
