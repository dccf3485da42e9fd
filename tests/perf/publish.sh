#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# For publish.py: the cost of publishing a part of a large BAR, a line of publishing.cpp for each size.
# group: bench
# topologies: switch
# variants: plain
# timeout: 3000
. "$LAB_ROOT/tests/guest/lib.sh"

afresh
load_module
# shellcheck disable=SC2086 # numbers
publishing "$(gpu_bdf)" "$PUBLISH_ROUNDS" $PUBLISH_SIZES | while IFS= read -r row; do
	diag "row $row"
	echo "$row" >>/run/rows
done
same "every size was published" "$(wc -w <<<"$PUBLISH_SIZES")" "$(grep -c '' /run/rows)"
plan $tap_n
