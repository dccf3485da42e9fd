// SPDX-License-Identifier: MIT
//
// halt FILE DRIVE COMMAND: runs COMMAND, in a shell, which disturbs the GPU so that its memory may be lost. Afterwards
// requests and mappings must no longer reach the buffer, and a new buffer must work.
#include <chrono>
#include <cstdlib>
#include <thread>

#include "../../tools/raw.hpp"
#include "../../tools/sigbus.hpp"
#include "../../tools/tap.hpp"

namespace
{

using host::throttle, tap::report;
constexpr unsigned len = 65536;
} // namespace

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const int dev = raw::open_device(), file = ::open(argv[1], O_RDONLY), drive = ::open(argv[2], O_RDONLY);
	const uint32_t provider = raw::provider(dev).out_provider_id;
	const auto before = raw::alloc(dev, provider, len);
	if (file < 0 || !before.out_buf_id)
		raw::die(argv[1]);
	sigbus::expect();
	const volatile char *mapped = raw::map(dev, before, PROT_READ);
	auto io = raw::io(file, before.out_buf_id, 0, 0, len);
	report(!raw::call(dev, PEERDMA_READ, io) && io.out_direct == len && !sigbus::given_at(mapped),
	       "a buffer before");

	// A drive that takes a second to answer: it moves bytes while the memory is lost.
	throttle(16384);
	auto slow = raw::io(drive, before.out_buf_id, 600 << 20, 0, len);
	raw::call(dev, PEERDMA_READ, slow); // the throttle passes the first request at once
	int slow_err = 0;
	std::thread reader([&] { slow_err = raw::call(dev, PEERDMA_READ, slow); });
	std::this_thread::sleep_for(std::chrono::milliseconds(300));
	const int status = std::system(argv[3]);
	throttle(0);
	reader.join();
	report(slow_err == -ENODEV && slow.out_reason == PEERDMA_REASON_REVOKED && !slow.out_done,
	       "a read that was under way has moved nothing", std::to_string(slow_err));
	report(!status, "what is done to the GPU is done", std::to_string(status));
	io = raw::io(file, before.out_buf_id, 0, 0, len);
	const int err = raw::call(dev, PEERDMA_READ, io);
	report(err == -ENODEV && io.out_reason == PEERDMA_REASON_REVOKED && !io.out_done,
	       "the buffer is gone for requests", std::to_string(err) + ", reason " + std::to_string(io.out_reason));
	report(sigbus::given_at(mapped), "and for the CPU");
	report(!raw::destroy(dev, before.out_buf_id), "what is left of it is destroyed");

	const auto after = raw::alloc(dev, provider, len);
	const volatile char *fresh = raw::map(dev, after, PROT_READ);
	bool zeros = after.out_buf_id;
	for (unsigned i = 0; zeros && i < len; i++)
		zeros = !fresh[i];
	report(zeros, "another one of the same provider holds zeros");
	io = raw::io(file, after.out_buf_id, 0, 0, len);
	static char want[len];
	bool good = !raw::call(dev, PEERDMA_READ, io) && io.out_direct == len && ::pread(file, want, len, 0) == len;
	for (unsigned i = 0; good && i < len; i++)
		good = fresh[i] == want[i];
	report(good, "and a read into it brings the file's bytes");
	return tap::end();
}
