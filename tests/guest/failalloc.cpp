// SPDX-License-Identifier: MIT
//
// failalloc: makes the n-th allocation inside PEERDMA_BUF_ALLOC fail, for every n, with /proc/self/fail-nth.
// A failed one must not hand out an id, nor take anybody's, and the pool must be as full as before.
#include <cstring>
#include <vector>

#include "../tools/raw.hpp"

namespace
{

void put(const char *path, const std::string &what)
{
	int fd = ::open(path, O_WRONLY);
	if (fd < 0 || ::write(fd, what.data(), what.size()) != ssize_t(what.size()))
		raw::die(path);
	::close(fd);
}

/// Was it used up? What is left of it is taken back.
bool injected(int fail_nth)
{
	char left[16] = {};
	if (::pread(fail_nth, left, sizeof(left) - 1, 0) < 0)
		raw::die("fail-nth");
	[[maybe_unused]] ssize_t cleared = ::pwrite(fail_nth, "0", 1, 0);
	return !std::atoi(left);
}

} // namespace

int main()
{
	put("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	put("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	put("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	put("/sys/kernel/debug/failslab/verbose", "0");
	put("/sys/kernel/debug/fail_page_alloc/verbose", "0");

	int dev = raw::open_device();
	const uint32_t provider = raw::provider(dev).out_provider_id;
	// With 63 ids taken the next one needs a new node of the xarray: one more allocation that can fail.
	std::vector<uint32_t> mine;
	for (int i = 0; i < 63; i++)
		mine.push_back(raw::alloc(dev, provider, 4096).out_buf_id);
	const uint64_t available = raw::provider(dev).out_available;

	int fail_nth = ::open("/proc/self/fail-nth", O_RDWR);
	if (fail_nth < 0)
		raw::die("/proc/self/fail-nth");
	int failed = 0, wrong = 0, nth = 1;
	for (; nth < 200; nth++) {
		auto req = raw::sized<peerdma_buf_alloc>();
		req.provider_id = provider;
		req.len = 4096;
		const std::string text = std::to_string(nth);
		if (::pwrite(fail_nth, text.data(), text.size(), 0) < 0)
			raw::die("fail-nth");
		int err = raw::call(dev, PEERDMA_BUF_ALLOC, req);
		const bool was = injected(fail_nth);
		if (err) {
			failed++;
			if (err != -ENOMEM || req.out_buf_id) {
				wrong++;
				std::printf("# allocation %d failed: errno %d, id %u\n", nth, -err, req.out_buf_id);
			}
		} else {
			raw::destroy(dev, req.out_buf_id);
		}
		if (!was)
			break;
	}
	std::printf("%sok 1 - %d allocations made to fail, %d requests with them, no id with an error\n",
		    wrong || !failed ? "not " : "", nth - 1, failed);
	for (uint32_t id : mine)
		wrong += raw::destroy(dev, id) != 0;
	std::printf("%sok 2 - every other buffer is still there\n", wrong ? "not " : "");
	const bool full = raw::provider(dev).out_available == available + mine.size() * 4096;
	std::printf("%sok 3 - the pool is full\n1..3\n", full ? "" : "not ");
	return wrong || !failed || !full;
}
