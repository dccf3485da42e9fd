// SPDX-License-Identifier: GPL-2.0
#include "base/ref.h"

/*
 * Counts a use; the last counted use spreads the count. Two CPUs may count one use together, or
 * both find it the last: the second switch does nothing. If the count was killed in between, the
 * switch waits for at most a grace period.
 */
void peerdma_ref_spread(struct peerdma_ref *ref)
{
	unsigned int uses = READ_ONCE(ref->uses) + 1;

	WRITE_ONCE(ref->uses, uses);
	if (uses != PEERDMA_REF_SPREAD)
		return;
	WRITE_ONCE(ref->spread, true);
	percpu_ref_switch_to_percpu(&ref->count);
}
