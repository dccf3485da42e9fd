#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A network card that goes on using memory which its owner has moved, in the test card_moving.
# must-fail: not-ok 1 of 2
# needs: rdma
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"
plan 2
modprobe -d "$LAB_KERNEL" ib_uverbs || bail "no ib_uverbs"
insmod "$(dirname "$LAB_MODULE")/kmod/dmacard.ko" ignore_invalidation=1 || bail "dmacard.ko"
"$LAB_ROOT/tests/guest/verbs/card_moving.sh" >/tmp/moving 2>&1
check "it comes to its end" grep -q "^1\.\." /tmp/moving
check "no byte comes to a place that was left" eval '! grep "^not ok .*none at the old one" /tmp/moving'
