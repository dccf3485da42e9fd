#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/spdx.sh FILE...: names each whose first five lines have no SPDX line, and exits 1 if there is one. make lint and the
# git hook both ask it.
set -euo pipefail
bad=0
for file; do
	case $file in
	*.md | *.json | *.csv | LICENSE* | .gitignore | *.svg | *.map | *.abi) continue ;;
	tests/fuzz/*corpus/*) continue ;; # fuzzer input, used byte by byte
	scripts/debian/*.install | scripts/debian/*.manpages | scripts/debian/source/format) continue ;; # lists of paths, which have no comments
	esac
	head -n 5 "$file" | grep -q SPDX-License-Identifier || { echo "$file: no SPDX line in its first 5 lines"; bad=1; }
done
exit $bad
