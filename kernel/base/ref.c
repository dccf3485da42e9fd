// SPDX-License-Identifier: GPL-2.0
#include "base/ref.h"

/*
 * Counts a use, and spreads the count with the last that is counted. Two CPUs may count one use
 * between them, or both find that they are the last: the second switch does nothing. It waits for
 * at most a grace period, if the count was killed in between.
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
