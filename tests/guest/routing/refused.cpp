// SPDX-License-Identifier: MIT
//
// refused FILE LEN REASON SEED: FILE, which holds pattern SEED, cannot go direct for REASON (a number). Without a
// fallback, each read and write must fail with EXDEV and change nothing. With one, the library must move LEN bytes
// through the host, count them so and name the reason. FILE then holds pattern SEED + 1.
#include <iostream>

#include "../../tools/tap.hpp"
#include "peerdma.hpp"

namespace
{

constexpr uint64_t SIZE = 1 << 20;
using tap::need, tap::report;

struct Case {
	std::string path;
	uint64_t len;
	uint32_t reason;
	int seed;

	std::string pattern(int more) const { return "pattern:" + std::to_string(seed + more); }
};

std::string said(const peerdma::Result<peerdma::IoResult> &got)
{
	if (!got)
		return got.error().message();
	return "done " + std::to_string(got->done) + ", direct " + std::to_string(got->direct) + ", host " +
	       std::to_string(got->host) + ", reason " + std::to_string(got->reason);
}

bool fill(const peerdma::Buffer &buffer, const std::string &source)
{
	return host::run("host fill gpu0 " + std::to_string(buffer.info().bar_offset) + " " + std::to_string(SIZE) +
			 " " + source);
}

bool holds(const peerdma::Buffer &buffer, uint64_t from, uint64_t len, const std::string &source)
{
	return tap::gpu_is(buffer.info().bar_offset + from, len, source, from);
}

void without_fallback(const Case &one)
{
	auto device = need(peerdma::Device::open(PEERDMA_OPEN_REQUIRE_DIRECT), "open");
	auto file = need(device.open_file(one.path, O_RDWR), one.path.c_str());
	auto buffer = need(device.create_buffer(need(device.find(""), "provider").id, SIZE), "buffer");
	auto is_refused = [&](const peerdma::Result<peerdma::IoResult> &got) {
		return !got && got.error().code() == EXDEV && got.error().reason() == one.reason;
	};
	fill(buffer, "pattern:99");
	const auto read = file.read(buffer, 0, one.len, 0), written = file.write(buffer, 0, one.len, 0);
	report(is_refused(read), "without a fallback a read is refused, for that reason", said(read));
	report(is_refused(written), "and a write", said(written));
	report(holds(buffer, 0, SIZE, "pattern:99"), "nothing came into the buffer");
	report(host::run("pattern compare " + one.path + " 0 " + std::to_string(one.len) + " " + one.pattern(0)),
	       "the file holds what it held");
}

void with_fallback(const Case &one)
{
	auto device = need(peerdma::Device::open(), "open");
	auto file = need(device.open_file(one.path, O_RDWR), one.path.c_str());
	const uint32_t provider = need(device.find(""), "provider").id;
	auto buffer = need(device.create_buffer(provider, SIZE), "buffer");
	auto is_counted = [&](const peerdma::Result<peerdma::IoResult> &got) {
		return got && got->done == one.len && got->host == one.len && !got->direct && !got->near &&
		       got->route == PEERDMA_ROUTE_POSIX && got->reason == one.reason;
	};
	const auto why = need(file.explain(provider), "explain");
	report(why.route == PEERDMA_ROUTE_POSIX && why.reason == one.reason, "the library says so before");
	fill(buffer, "pattern:99");
	const auto read = file.read(buffer, 0, one.len, 0);
	report(is_counted(read), "with a fallback a read goes by way of the host, and is counted and named",
	       said(read));
	report(holds(buffer, 0, one.len, one.pattern(0)), "each byte of it is right");
	report(holds(buffer, one.len, SIZE - one.len, "pattern:99"), "and none behind it has changed");
	fill(buffer, one.pattern(1));
	const auto written = file.write(buffer, 0, one.len, 0);
	report(is_counted(written), "a write likewise", said(written));
	report(host::run("pattern compare " + one.path + " 0 " + std::to_string(one.len) + " " + one.pattern(1)),
	       "the file holds each byte of it");
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	const Case one = {argv[1], std::strtoull(argv[2], nullptr, 0), uint32_t(std::atoi(argv[3])),
			  std::atoi(argv[4])};
	without_fallback(one);
	with_fallback(one);
	return tap::end();
}
