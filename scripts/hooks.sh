#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make hooks: git runs scripts/pre-commit.sh before each commit in this clone. Another hook, and one of other repositories,
# is left as it is.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# A commit from before the script was there runs none.
ours=$'#!/bin/sh\n[ ! -x scripts/pre-commit.sh ] || exec scripts/pre-commit.sh'
git=$(git -C "$PEERDMA_ROOT" rev-parse --path-format=absolute --git-common-dir)
hook=$(git -C "$PEERDMA_ROOT" rev-parse --path-format=absolute --git-path hooks)/pre-commit
case $hook in
"$git"/* | "$PEERDMA_ROOT"/*) ;;
*) die "$hook: core.hooksPath is a folder outside this clone; call scripts/pre-commit.sh from a hook of your own" ;;
esac
if [ -e "$hook" ]; then
	case $(<"$hook") in
	"$ours" | $'#!/bin/sh\nexec scripts/pre-commit.sh') ;;
	*) die "$hook: another hook is there; call scripts/pre-commit.sh from it" ;;
	esac
fi
mkdir -p "$(dirname "$hook")"
printf '%s\n' "$ours" >"$hook"
chmod +x "$hook"
echo "git runs scripts/pre-commit.sh before each commit; rm '$hook' ends that"
