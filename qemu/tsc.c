// SPDX-License-Identifier: MIT
//
// How fast this machine's time stamp counter runs, in kHz: an emulated guest has the same one, and what it measures itself
// while this machine is busy may be a tenth of it; then its clock runs ten times too fast. Status 1 where there is none.
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>

struct moment {
	unsigned long long ns, ticks;
};

/// Both clocks at once: nobody came between, as the best of many tries.
static struct moment now(void)
{
	struct moment best = {0, 0};
	unsigned long long narrowest = ~0ULL;

	for (int i = 0; i < 200; i++) {
		struct timespec t;
		const unsigned long long before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		const unsigned long long after = __rdtsc();
		if (after - before < narrowest) {
			narrowest = after - before;
			best.ns = t.tv_sec * 1000000000ULL + t.tv_nsec;
			best.ticks = before + narrowest / 2;
		}
	}
	return best;
}

int main(void)
{
	const struct timespec while_ago = {0, 50000000};
	const struct moment first = now();
	nanosleep(&while_ago, NULL);
	const struct moment last = now();
	return printf("%llu\n", (last.ticks - first.ticks) * 1000000 / (last.ns - first.ns)) < 0;
}
#else
int main(void) { return 1; }
#endif
