// SPDX-License-Identifier: MIT
//
// replay SEED PROCESSES ROUND OPERATIONS STATE GPU DISK0 DISK1 DISK2: verifies one round of tests/guest/io/verify.cpp on
// the host. Performs the same operations on plain memory. Compares the returned values, the guest's checksums, every
// byte of the buffers in the GPU's memory and of the files in the drives' images, and the memory beside the buffers.
// STATE keeps the model's memory from round to round.
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <unistd.h>

#include "model.hpp"

namespace
{

using namespace verify;

[[noreturn]] __attribute__((format(printf, 1, 2))) void wrong(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	std::vprintf(format, args);
	va_end(args);
	std::printf("\n");
	std::exit(1);
}

class Image
{
public:
	explicit Image(const char *path) : path_(path), fd_(::open(path, O_RDONLY | O_CLOEXEC))
	{
		if (fd_ < 0)
			wrong("%s: %m", path);
	}
	std::vector<uint8_t> read(uint64_t at, uint64_t len) const
	{
		std::vector<uint8_t> bytes(len);
		if (::pread(fd_, bytes.data(), len, off_t(at)) != ssize_t(len))
			wrong("%s cannot be read at %lu", path_, at);
		return bytes;
	}

private:
	const char *path_;
	int fd_;
};

// --- State between rounds

bool load(std::FILE *state, Bytes &bytes)
{
	uint64_t len;
	if (std::fread(&len, sizeof(len), 1, state) != 1)
		return false;
	bytes.resize(len);
	return std::fread(bytes.data(), 1, len, state) == len;
}

void save(std::FILE *state, const Bytes &bytes)
{
	const uint64_t len = bytes.size();
	std::fwrite(&len, sizeof(len), 1, state);
	std::fwrite(bytes.data(), 1, len, state);
}

std::vector<Model> load_all(const char *path, unsigned processes, unsigned round)
{
	std::vector<Model> models(processes);
	if (!round)
		return models;
	std::FILE *state = std::fopen(path, "rb");
	for (Model &model : models) {
		bool good = state && load(state, model.buffer);
		for (Bytes &bytes : model.file)
			good = good && load(state, bytes);
		if (!good)
			wrong("no state of the round before: %s", path);
	}
	std::fclose(state);
	return models;
}

void save_all(const char *path, const std::vector<Model> &models)
{
	std::FILE *state = std::fopen(path, "wb");
	if (!state)
		wrong("%s: %m", path);
	for (const Model &model : models) {
		save(state, model.buffer);
		for (const Bytes &bytes : model.file)
			save(state, bytes);
	}
	if (std::fclose(state))
		wrong("%s: %m", path);
}

// --- One process

struct Round {
	uint64_t seed, operations;
	unsigned process, number;
	std::array<uint64_t, size_t(Kind::kinds)> count{};
	uint64_t bytes = 0;
};

template <typename T> std::vector<T> array_at(const Bytes &page_of, uint64_t &at, uint64_t n)
{
	if (n > told_len / sizeof(T) || at + n * sizeof(T) > told_len)
		wrong("the guest's log is damaged");
	std::vector<T> all(n);
	std::memcpy(all.data(), &page_of[at], n * sizeof(T));
	at += n * sizeof(T);
	return all;
}

void replay(Model &model, Round &round, const std::vector<Result> &results)
{
	Stream stream(round.seed, round.process, round.number, model.sizes());
	size_t n = 0;
	for (uint64_t counted = 0; counted < round.operations;) {
		const auto ops = stream.next();
		std::vector<int64_t> rets;
		for (const Op &op : ops)
			rets.push_back(model.apply(op));
		for (size_t i = 0; i < ops.size(); i++, n++) {
			const Op &op = ops[i];
			counted += op.counts();
			if (n >= results.size())
				wrong("the guest did only %zu operations", n);
			const bool same_sum = model.look(op) == results[n].sum;
			if (results[n].ret != rets[i] || !same_sum)
				wrong("process %u round %u operation %zu: %s: returned %ld, want %ld; bytes %s",
				      round.process, round.number, n, op.text().c_str(), long(results[n].ret),
				      long(rets[i]), same_sum ? "right" : "WRONG");
			round.count[size_t(op.kind)]++;
			round.bytes += rets[i] > 0 ? uint64_t(rets[i]) : 0;
		}
	}
	if (n != results.size())
		wrong("the guest did %zu operations, want %zu", results.size(), n);
}

void same(const char *what, const Round &round, const uint8_t *want, const Bytes &got, uint64_t off)
{
	const auto at = std::mismatch(got.begin(), got.end(), want);
	if (at.first != got.end())
		wrong("after round %u: %s of process %u differs at byte %lu: expected 0x%02x got 0x%02x", round.number,
		      what, round.process, off + uint64_t(at.first - got.begin()), *at.second, *at.first);
}

/// Compares every byte of a file at its extents; bytes without an extent are zero.
void compare_files(const Model &model, const Round &round, const std::vector<Extent> &extents,
		   const std::vector<Image> &disks)
{
	std::map<std::pair<uint32_t, uint32_t>, Bytes> copies;
	for (unsigned f = 0; f < files; f++)
		for (unsigned leg = 0; leg < (f == mirror ? 2 : 1); leg++)
			copies[{f, leg}] = Bytes(model.file[f].size());
	for (const Extent &extent : extents) {
		Bytes &copy = copies.at({extent.file, extent.copy});
		if (extent.off >= copy.size())
			continue;
		const auto bytes =
			disks.at(extent.disk).read(extent.at, std::min(extent.len, copy.size() - extent.off));
		std::copy(bytes.begin(), bytes.end(), copy.begin() + std::ptrdiff_t(extent.off));
	}
	for (const auto &[which, copy] : copies)
		same(file_names[which.first], round, model.file[which.first].data(), copy, 0);
}

void check(Model &model, Round &round, const Image &gpu, const std::vector<Image> &disks)
{
	const Bytes page_of = disks[2].read(told_at + round.process * told_len, told_len);
	uint64_t at = 0;
	const Told told = array_at<Told>(page_of, at, 1)[0];
	if (told.magic != told_magic || told.process != round.process || told.round != round.number)
		wrong("the guest told nothing of process %u round %u", round.process, round.number);
	const auto results = array_at<Result>(page_of, at, told.results);
	const auto extents = array_at<Extent>(page_of, at, told.extents);
	replay(model, round, results);
	same("the buffer", round, model.buffer.data(), gpu.read(told.bar[0], buf_len), 0);
	const Bytes zeros(guard_len);
	for (int side : {1, 2})
		same("the memory beside the buffer", round, zeros.data(), gpu.read(told.bar[side], guard_len), 0);
	compare_files(model, round, extents, disks);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 10) {
		std::printf("usage: replay SEED PROCESSES ROUND OPERATIONS STATE GPU DISK0 DISK1 DISK2\n");
		return 2;
	}
	Round sum = {std::strtoull(argv[1], nullptr, 0), std::strtoull(argv[4], nullptr, 0), 0,
		     unsigned(std::atoi(argv[3]))};
	const unsigned processes = unsigned(std::atoi(argv[2]));
	const Image gpu(argv[6]);
	std::vector<Image> disks;
	for (int i = 7; i < 10; i++)
		disks.emplace_back(argv[i]);
	auto models = load_all(argv[5], processes, sum.number);
	for (sum.process = 0; sum.process < processes; sum.process++)
		check(models[sum.process], sum, gpu, disks);
	save_all(argv[5], models);
	std::printf("ok %lu bytes;", sum.bytes);
	for (size_t i = 0; i < sum.count.size(); i++)
		std::printf(" %s %lu%s", kind_names[i], sum.count[i], i + 1 < sum.count.size() ? "," : "");
	std::printf("\n");
	return 0;
}
