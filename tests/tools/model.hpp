// SPDX-License-Identifier: MIT
// A model of the operations in operations.hpp: performs them on plain memory.
#pragma once

#include <cerrno>

#include "operations.hpp"

namespace verify
{

using Bytes = std::vector<uint8_t>;

/// The state of one process: the model itself.
struct Model {
	Bytes buffer = Bytes(buf_len);
	std::array<Bytes, files> file;

	Model()
	{
		for (unsigned f = drive; f < files; f++)
			file[f].resize(file_max);
	}

	std::array<uint64_t, files> sizes() const
	{
		std::array<uint64_t, files> all;
		for (unsigned f = 0; f < files; f++)
			all[f] = file[f].size();
		return all;
	}

	/// Returns the expected result.
	int64_t apply(const Op &op)
	{
		Bytes &bytes = file[op.file];
		switch (op.kind) {
		case Kind::read:
		case Kind::ring_read:
		case Kind::proxy_read: {
			const uint64_t end = std::min<uint64_t>(bytes.size(), op.off + op.len);
			if (op.off >= end)
				return 0;
			std::memcpy(&buffer[op.buf], &bytes[op.off], end - op.off);
			return int64_t(end - op.off);
		}
		case Kind::write:
		case Kind::append:
		case Kind::ring_write:
		case Kind::proxy_write:
			put(bytes, op, &buffer[op.buf]);
			return int64_t(op.len);
		case Kind::cached_write:
			put(bytes, op, bytes_of(op).data());
			return int64_t(op.len);
		case Kind::store:
			std::memcpy(&buffer[op.buf], bytes_of(op).data(), op.len);
			return int64_t(op.len);
		case Kind::truncate:
			bytes.resize(op.off);
			return 0;
		case Kind::punch:
			for (uint64_t i = op.off; i < std::min<uint64_t>(op.off + op.len, bytes.size()); i++)
				bytes[i] = 0;
			return 0;
		case Kind::refuse:
			return -EINVAL;
		default:
			return 0;
		}
	}

	uint64_t look(const Op &op) const
	{
		uint64_t sum = 0;
		if (op.in_buffer()) {
			const Range range = seen_of_buffer(op);
			sum = checksum(&buffer[range.begin], range.len(), sum);
		}
		if (op.writes() || op.kind == Kind::cached_read || op.kind == Kind::punch) {
			const Range range = seen_of_file(op, file[op.file].size());
			const Bytes copy(&file[op.file][range.begin], &file[op.file][range.begin] + range.len());
			sum = checksum(copy.data(), range.len(), sum);
		}
		return sum;
	}

private:
	static void put(Bytes &bytes, const Op &op, const uint8_t *from)
	{
		if (bytes.size() < op.off + op.len)
			bytes.resize(op.off + op.len);
		std::memcpy(&bytes[op.off], from, op.len);
	}
};

} // namespace verify
