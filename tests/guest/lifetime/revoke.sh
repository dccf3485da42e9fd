#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every event that can happen to a buffer, its provider, its owner or its drive, in the states of a buffer (revoke.cpp).
# Each event is tested in two states, on a debug kernel only some of them. LAB_ROUNDS and LAB_EVENTS (or "all") extend
# that, as `make soak-revoke` does.
# group: lifetime
# topologies: switch
# tier: debug
# needs: CONFIG_MEMCG CONFIG_BLK_DEV_DM dmsetup
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

modprobe -d "$LAB_KERNEL" -a dm-mod 2>/dev/null
export DM_DISABLE_UDEV=1
gpu=$(gpu_bdf)
if mountpoint -q /mnt/disk; then umount /mnt/disk; fi
# It publishes a part and reloads the module.
afresh
events=few
if [ "$LAB_VARIANT" = debug ]; then
	events="unbind:block remove:busy kill:block exec:sync pass:completing fork:busy teardown:queued"
fi
# shellcheck disable=SC2086
revoke "$gpu" "${LAB_ROUNDS:-1}" ${LAB_EVENTS:-$events}
