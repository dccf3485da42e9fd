#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make hooks: git runs scripts/pre-commit.sh before each commit in this clone. An existing hook is kept.
set -euo pipefail
. "$(dirname "$0")/common.sh"

hook=$(git -C "$PEERDMA_ROOT" rev-parse --path-format=absolute --git-path hooks)/pre-commit
if [ -e "$hook" ] && ! grep -q scripts/pre-commit.sh "$hook"; then
	die "$hook: another hook is there; call scripts/pre-commit.sh from it"
fi
mkdir -p "$(dirname "$hook")"
printf '#!/bin/sh\nexec scripts/pre-commit.sh\n' >"$hook"
chmod +x "$hook"
echo "git runs scripts/pre-commit.sh before each commit; rm '$hook' ends that"
