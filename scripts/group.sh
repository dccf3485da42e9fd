#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# group.sh: after an installation on this system, creates the group peerdma and applies the rule to an existing node.
# May be repeated. Prints the remaining steps if it is not root.
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
		say "udev did not load the new rule; when it runs: udevadm control --reload"
fi
