// SPDX-License-Identifier: MIT
#include "recorder.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../tools/raw.hpp"

namespace fuzz
{
namespace
{

constexpr uint64_t magic = 0x7a7a75665f647000;
constexpr size_t stride = 16 << 10, of_worker = Recorder::kept * stride;
static_assert(sizeof(Record) <= stride);

char *tail(const std::string &path, int mode)
{
	const int fd = ::open(path.c_str(), mode | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || ::fstat(fd, &st))
		raw::die(path);
	void *got = ::mmap(nullptr, Recorder::room, mode == O_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED,
			   fd, st.st_size - off_t(Recorder::room));
	::close(fd);
	if (got == MAP_FAILED)
		raw::die(path);
	return static_cast<char *>(got);
}

} // namespace

Recorder::Recorder(const std::string &path, unsigned worker)
{
	if (!path.empty())
		records_ = reinterpret_cast<Record *>(tail(path, O_RDWR) + worker % (room / of_worker) * of_worker);
}

void Recorder::begin(const Program &program, bool goes_on)
{
	if (!records_)
		return;
	auto *record = reinterpret_cast<Record *>(reinterpret_cast<char *>(records_) + number_++ % kept * stride);
	record->magic = 0;
	std::memcpy(&record->program, &program, program.bytes());
	record->number = number_;
	record->running = 1;
	record->goes_on = goes_on;
	record->magic = magic;
}

void Recorder::done()
{
	if (records_)
		reinterpret_cast<Record *>(reinterpret_cast<char *>(records_) + (number_ - 1) % kept * stride)
			->running = 0;
}

std::string Recorder::decode(const std::string &image)
{
	const char *base = tail(image, O_RDONLY);
	std::string text;
	for (size_t worker = 0; worker < room / of_worker; worker++) {
		std::vector<const Record *> found;
		for (size_t i = 0; i < kept; i++) {
			const auto *record = reinterpret_cast<const Record *>(base + worker * of_worker + i * stride);
			if (record->magic == magic && record->program.ncalls <= max_calls)
				found.push_back(record);
		}
		std::sort(found.begin(), found.end(), [](auto *a, auto *b) { return a->number < b->number; });
		for (const Record *record : found)
			text += "# worker " + std::to_string(worker) + ", program " + std::to_string(record->number) +
				(record->goes_on ? ", in the world of the one before" : "") +
				(record->running ? ", which did not come back" : "") + "\n" + text_of(record->program) +
				"\n";
	}
	return text;
}

} // namespace fuzz
