// SPDX-License-Identifier: MIT
// Executes the calls of one thread of a program.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <liburing.h>

#include "../tools/raw.hpp"
#include "cover.hpp"
#include "grammar.hpp"
#include "world.hpp"

namespace fuzz
{

double now(); // seconds

/// Time and number of calls of one kind.
struct Cost {
	uint64_t times = 0;
	double seconds = 0;

	void add(double since)
	{
		times++;
		seconds += now() - since;
	}
};

class Runner
{
public:
	explicit Runner(World &world);
	~Runner();
	Runner(const Runner &) = delete;
	Runner &operator=(const Runner &) = delete;

	/// Runs the calls of this thread and waits for all of them.
	void run(const Program &program, unsigned thread);
	void exit_rings();

	Cover cover;
	std::vector<Signal> signals; // from results
	uint64_t executions = 0;     // calls and commands since the Runner was created
	uint64_t digest = 0;         // of the results of the last run()
	std::vector<Cost> costs;     // by spec; the last two are for begin and end of a program
	std::string wrong;           // a result that no supported kernel may return

private:
	struct Ring {
		io_uring ring;
		bool open = false;
		unsigned pending = 0;
	};

	int64_t execute(const Spec &spec, const Call &call);
	int64_t ioctl(const Spec &spec, const Call &call);
	int64_t ioctl_raw(const Call &call);
	void keep_dmabuf(int fd);
	void close_dmabufs();
	int64_t uring(const Spec &spec, const Call &call);
	int64_t map(const Call &call);
	int64_t remap(const Call &call);
	int64_t touch(const Call &call);
	int64_t fork(const Call &call);
	int64_t change_file(const Spec &spec, const Call &call);
	int64_t look(const std::string &path);
	int64_t storm(const Call &call);

	char *place(uint64_t at, size_t size) const;
	bool copy(void *to, const void *from, size_t size);
	Ring *ring(const Value &value);
	void reap(Ring &ring, unsigned n);
	void came(uint64_t tag, int res);
	void result(unsigned spec, int64_t res, unsigned detail = 0);
	void check_io(const Spec &spec, const peerdma_io &io, int64_t res);

	World &world_;
	std::array<Ring, 2> rings_;
	std::array<int, 2> dmabufs_ = {-1, -1}; // the latest ones of the program
	char *memory_;                          // two pages, then an unmapped one, then a read-only one
	char *read_only_;                       // the read-only page
	std::vector<std::array<peerdma_uring_seg, PEERDMA_URING_SEGS>> segs_;
	size_t next_segs_ = 0;
};

/// Makes SIGBUS and SIGSEGV on a mapping end only the access.
void catch_faults();

} // namespace fuzz
