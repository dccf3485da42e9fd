// SPDX-License-Identifier: MIT
//
// Prints the frequency of this machine's time stamp counter in kHz. An emulated guest sees the same counter. If the
// guest measures it while this machine is busy, the result may be a tenth of it, and the guest's clock then runs ten
// times too fast. Status 1 if there is no counter.
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>

struct moment {
	unsigned long long ns, ticks;
};

/// Both clocks at the same time: the closest of many attempts, without a preemption in between.
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
