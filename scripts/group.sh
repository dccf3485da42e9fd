#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# group.sh: after an installation into this very system: the group peerdma, and the rule for a node that is there
# already. May be run again and again; says what is left to do where it may not do it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

if ! getent group peerdma >/dev/null; then
	if [ "$(id -u)" = 0 ]; then
		groupadd --system peerdma
	else
		say "as root: groupadd --system peerdma"
	fi
fi
if [ -d /run/udev ] && [ "$(id -u)" = 0 ]; then
	udevadm control --reload && udevadm trigger --action=add --subsystem-match=misc --sysname-match=peerdma ||
		say "udev did not take the new rule: udevadm control --reload, when it runs"
fi
