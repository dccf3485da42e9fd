// SPDX-License-Identifier: MIT
//
// failalloc: makes the n-th allocation or user copy inside PEERDMA_BUF_ALLOC fail, for every n, with
// /proc/self/fail-nth.
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

/// Was it used up? What is left of it is taken back. Copies from and to user space count too, these here included.
bool injected(int fail_nth)
{
	char left[16] = {};
	const bool used = ::pread(fail_nth, left, sizeof(left) - 1, 0) > 0 && !std::atoi(left);
	while (::pwrite(fail_nth, "0", 1, 0) < 0 && errno == EFAULT)
		;
	return used;
}

/// Requests that failed, and what is wrong with how they did.
struct Tally {
	int failed = 0, wrong = 0;

	/// One PEERDMA_BUF_ALLOC, undone if it worked.
	void request(int dev, uint32_t provider, const std::string &what)
	{
		auto req = raw::sized<peerdma_buf_alloc>();
		req.provider_id = provider;
		req.len = 4096;
		int err = raw::call(dev, PEERDMA_BUF_ALLOC, req);
		if (!err) {
			// What was to fail and did not may fail here.
			while (raw::destroy(dev, req.out_buf_id) == -EFAULT)
				;
			return;
		}
		failed++;
		if ((err == -ENOMEM || err == -EFAULT) && !req.out_buf_id)
			return;
		wrong++;
		std::printf("# %s failed: errno %d, id %u\n", what.c_str(), -err, req.out_buf_id);
	}
};

/// Each allocation and user copy once, all others work.
int one_by_one(int dev, uint32_t provider, Tally &tally)
{
	int fail_nth = ::open("/proc/self/fail-nth", O_RDWR), nth = 1;
	if (fail_nth < 0)
		raw::die("/proc/self/fail-nth");
	do {
		const std::string text = std::to_string(nth);
		if (::pwrite(fail_nth, text.data(), text.size(), 0) < 0)
			raw::die("fail-nth");
		tally.request(dev, provider, "number " + text);
	} while (injected(fail_nth) && nth++ < 200);
	::close(fail_nth);
	return nth - 1;
}

/// The first few allocations work and all later ones fail, a second try included.
void from_some_point_on(int dev, uint32_t provider, Tally &tally)
{
	put("/sys/kernel/debug/failslab/task-filter", "Y");
	put("/sys/kernel/debug/failslab/times", "-1");
	put("/sys/kernel/debug/failslab/probability", "100");
	// Kept open: while it is on, nothing can be opened.
	int make_it_fail = ::open("/proc/self/make-it-fail", O_WRONLY);
	auto fail = [&](const char *on) { return ::pwrite(make_it_fail, on, 1, 0) == 1; };
	for (int bytes = 0; bytes < 4096; bytes += 16) {
		const std::string what = "all after " + std::to_string(bytes) + " bytes";
		put("/sys/kernel/debug/failslab/space", std::to_string(bytes));
		if (!fail("1"))
			raw::die("make-it-fail");
		tally.request(dev, provider, what);
		if (!fail("0"))
			raw::die("make-it-fail");
	}
	put("/sys/kernel/debug/failslab/probability", "0");
	::close(make_it_fail);
}

} // namespace

int main()
{
	put("/sys/kernel/debug/failslab/ignore-gfp-wait", "N");
	put("/sys/kernel/debug/fail_page_alloc/ignore-gfp-wait", "N");
	put("/sys/kernel/debug/fail_page_alloc/min-order", "0");
	for (const char *fault : {"failslab", "fail_page_alloc", "fail_usercopy"})
		put((std::string("/sys/kernel/debug/") + fault + "/verbose").c_str(), "0");

	int dev = raw::open_device();
	const uint32_t provider = raw::provider(dev).out_provider_id;
	// With 63 ids taken the next one needs a new node of the xarray: one more allocation that can fail.
	std::vector<uint32_t> mine;
	for (int i = 0; i < 63; i++)
		mine.push_back(raw::alloc(dev, provider, 4096).out_buf_id);
	const uint64_t available = raw::provider(dev).out_available;

	Tally once, all;
	const int injections = one_by_one(dev, provider, once);
	std::printf(
		"%sok 1 - %d allocations and user copies made to fail, %d requests with them, no id with an error\n",
		once.wrong || !once.failed ? "not " : "", injections, once.failed);
	from_some_point_on(dev, provider, all);
	std::printf("%sok 2 - %d requests that ran out of memory half way, no id with an error\n",
		    all.wrong || !all.failed ? "not " : "", all.failed);
	int lost = 0;
	for (uint32_t id : mine)
		lost += raw::destroy(dev, id) != 0;
	std::printf("%sok 3 - every other buffer is still there\n", lost ? "not " : "");
	const bool full = raw::provider(dev).out_available == available + mine.size() * 4096;
	std::printf("%sok 4 - the pool is full\n1..4\n", full ? "" : "not ");
	return once.wrong || !once.failed || all.wrong || !all.failed || lost || !full;
}
