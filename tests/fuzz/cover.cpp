// SPDX-License-Identifier: MIT
#include "cover.hpp"

#include <fcntl.h>
#include <linux/kcov.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "../tools/raw.hpp"

namespace fuzz
{
namespace
{

constexpr const char *path = "/sys/kernel/debug/kcov";
constexpr size_t words = 1 << 16;

Signal hash(uint64_t what) { return Signal((what * 0x9e3779b97f4a7c15) >> 46); }

} // namespace

static_assert(Seen::size == 1 << (64 - 46), "hash() keeps so many bits");

Signal result_signal(uint64_t what) { return hash(what) | is_result; }

std::vector<Signal> Seen::take(const std::vector<Signal> &signals)
{
	std::vector<Signal> fresh;
	for (Signal signal : signals) {
		uint8_t &seen = byte(signal);
		if (__atomic_load_n(&seen, __ATOMIC_RELAXED) || __atomic_exchange_n(&seen, 1, __ATOMIC_RELAXED))
			continue;
		__atomic_fetch_add(signal & is_result ? &nresults : &nplaces, 1, __ATOMIC_RELAXED);
		fresh.push_back(signal);
	}
	return fresh;
}

bool Seen::has_news(const std::vector<Signal> &signals)
{
	return std::any_of(signals.begin(), signals.end(),
			   [this](Signal s) { return !__atomic_load_n(&byte(s), __ATOMIC_RELAXED); });
}

bool Cover::possible() { return ::access(path, R_OK | W_OK) == 0; }

Cover::Cover()
{
	fd_ = ::open(path, O_RDWR | O_CLOEXEC);
	if (fd_ < 0)
		return;
	if (::ioctl(fd_, KCOV_INIT_TRACE, words))
		raw::die("KCOV_INIT_TRACE");
	void *area = ::mmap(nullptr, words * sizeof(*area_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
	if (area == MAP_FAILED)
		raw::die("mmap of KCOV");
	area_ = static_cast<uint64_t *>(area);
}

Cover::~Cover()
{
	if (area_)
		::munmap(area_, words * sizeof(*area_));
	if (fd_ >= 0)
		::close(fd_);
}

void Cover::begin(Look look)
{
	look_ = fd_ < 0 ? Look::nothing : look;
	if (look_ == Look::nothing)
		return;
	if (::ioctl(fd_, KCOV_ENABLE, look == Look::comparisons ? KCOV_TRACE_CMP : KCOV_TRACE_PC))
		raw::die("KCOV_ENABLE");
	__atomic_store_n(&area_[0], 0, __ATOMIC_RELAXED);
}

void Cover::end()
{
	if (look_ != Look::nothing && ::ioctl(fd_, KCOV_DISABLE, 0))
		raw::die("KCOV_DISABLE");
}

void Cover::places(std::vector<Signal> &signals) const
{
	if (look_ != Look::places)
		return;
	const uint64_t n = std::min<uint64_t>(area_[0], words - 1);
	uint64_t before = 0;
	for (uint64_t i = 1; i <= n; i++) {
		const uint64_t here = area_[i];
		signals.push_back(hash(here ^ (before << 20)));
		before = here;
	}
}

std::vector<Comparison> Cover::comparisons() const
{
	std::vector<Comparison> all;
	if (look_ != Look::comparisons)
		return all;
	const uint64_t n = std::min<uint64_t>(area_[0], (words - 1) / 4);
	for (uint64_t i = 0; i < n && all.size() < 256; i++) {
		const uint64_t *record = &area_[1 + 4 * i]; // type, two operands, code address
		const uint64_t a = record[1], b = record[2];
		if (a == b)
			continue;
		for (const Comparison &one : {Comparison{b, a}, Comparison{a, b}}) {
			// KCOV puts a constant operand, if there is one, first.
			if ((record[0] & KCOV_CMP_CONST) && one.wanted == b)
				continue;
			if (std::find(all.begin(), all.end(), one) == all.end())
				all.push_back(one);
		}
	}
	return all;
}

} // namespace fuzz
