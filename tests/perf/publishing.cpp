// SPDX-License-Identifier: MIT
// publishing BDF ROUNDS LEN...: the cost of publishing LEN bytes of a function's BAR 2: seconds, and memory. Each round
// binds the function, publishes and unbinds it. The first round is not counted, because it fills the allocator's
// caches.
//
// A row: bytes; seconds of PEERDMA_PUBLISH, median, minimum, maximum; KiB of free memory used, median, minimum,
// maximum; KiB of struct pages by the kernel's counter, 0 if it has none; seconds of the unbinding, median, minimum,
// maximum.
#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <vector>

#include "../tools/raw.hpp"

namespace
{

const std::string pci = "/sys/bus/pci/";

void tell(const std::string &path, const std::string &text)
{
	std::ofstream file(path);
	if (!(file << text << std::flush))
		raw::die(path);
}

/// The number after this word; 0 if it is missing.
uint64_t number(const char *path, const std::string &word)
{
	std::ifstream file(path);
	uint64_t value = 0;
	for (std::string found; file >> found;)
		if (found == word && file >> value)
			break;
	return value;
}

/// KiB of free memory after dropping the page cache.
uint64_t free_memory()
{
	tell("/proc/sys/vm/drop_caches", "3");
	return number("/proc/meminfo", "MemFree:");
}

uint64_t struct_pages() { return number("/proc/vmstat", "nr_memmap_pages") * 4; }

template <typename F> double seconds(F body)
{
	const auto start = std::chrono::steady_clock::now();
	body();
	return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Round {
	double publish, unpublish;
	uint64_t taken, pages;
};

Round round_of(int dev, const std::string &bdf, peerdma_publish request)
{
	Round round{};
	tell(pci + "drivers/peerdma/bind", bdf);
	const uint64_t before = free_memory(), pages = struct_pages();
	int err = 0;
	round.publish = seconds([&] { err = raw::call(dev, PEERDMA_PUBLISH, request); });
	if (err) {
		errno = -err;
		raw::die("PEERDMA_PUBLISH");
	}
	round.taken = before - std::min(before, free_memory());
	round.pages = struct_pages() - pages;
	round.unpublish = seconds([&] { tell(pci + "drivers/peerdma/unbind", bdf); });
	return round;
}

/// Median, minimum and maximum.
template <typename T> std::array<T, 3> spread(const std::vector<Round> &rounds, T Round::*member)
{
	std::vector<T> all;
	for (const Round &round : rounds)
		all.push_back(round.*member);
	std::sort(all.begin(), all.end());
	return {all[all.size() / 2], all.front(), all.back()};
}

void row(uint64_t len, const std::vector<Round> &rounds)
{
	std::printf("%llu", static_cast<unsigned long long>(len));
	for (double value : spread(rounds, &Round::publish))
		std::printf(" %.3f", value);
	for (uint64_t value : spread(rounds, &Round::taken))
		std::printf(" %llu", static_cast<unsigned long long>(value));
	std::printf(" %llu", static_cast<unsigned long long>(spread(rounds, &Round::pages)[0]));
	for (double value : spread(rounds, &Round::unpublish))
		std::printf(" %.3f", value);
	std::printf("\n");
	std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	const std::string bdf = argv[1];
	unsigned domain, bus, device, function;
	if (std::sscanf(argv[1], "%x:%x:%x.%u", &domain, &bus, &device, &function) != 4)
		return 2;
	tell(pci + "devices/" + bdf + "/driver_override", "peerdma");
	const int dev = raw::open_device();
	auto request = raw::sized<peerdma_publish>();
	request.pci_domain = domain;
	request.pci_bdf = bus << 8 | device << 3 | function;
	request.bar = 2;
	for (int i = 3; i < argc; i++) {
		request.len = std::strtoull(argv[i], nullptr, 0);
		std::vector<Round> rounds;
		round_of(dev, bdf, request);
		for (int n = std::atoi(argv[2]); n > 0; n--)
			rounds.push_back(round_of(dev, bdf, request));
		row(request.len, rounds);
	}
	tell(pci + "devices/" + bdf + "/driver_override", "\n");
	return 0;
}
