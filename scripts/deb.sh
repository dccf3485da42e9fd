#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make deb: builds Debian packages of this tree in build/deb and checks them with lintian. DEBFULLNAME and DEBEMAIL set
# the maintainer.
set -euo pipefail
export CCACHE_DISABLE=1 # a package is compiled anew
. "$(dirname "$0")/common.sh"

"$PEERDMA_ROOT/scripts/setup.sh" deb
version=$(awk '$2 ~ /^PEERDMA_VERSION_(MAJOR|MINOR|PATCH)$/ { v = v d $3; d = "." } END { print v }' "$PEERDMA_ROOT/include/peerdma.h")
out=$PEERDMA_BUILD/deb
tree=$out/peerdma-$version
rm -rf "$out" && mkdir -p "$tree"
step "peerdma $version: building packages (log: $out/log)"
cp -r "$PEERDMA_ROOT"/{kernel,user,include,Documentation,LICENSE.md,LICENSES,README.md} "$tree/"
mkdir -p "$tree/scripts"
cp "$PEERDMA_ROOT"/scripts/{60-peerdma.rules,peerdma.sysusers,peerdma.modprobe,peerdma-viewd.service,group.sh,common.sh,manpages.py,comments.py} "$tree/scripts/"
cp -r "$PEERDMA_ROOT/scripts/debian" "$tree/debian"
by="${DEBFULLNAME:-The PeerDMA authors} <${DEBEMAIL:-peerdma@localhost}>"
sed -i "s/@maintainer@/$by/" "$tree/debian/control"
# The date of the last commit, so that the same tree gives the same packages.
day=$(git -C "$PEERDMA_ROOT" log -1 --format=%cD 2>/dev/null || date -R)
cat >"$tree/debian/changelog" <<EOF
peerdma ($version) unstable; urgency=medium

  * Built from the project's tree.

 -- $by  $day
EOF
(cd "$tree" && DEB_BUILD_OPTIONS="parallel=$(nproc) nocheck" dpkg-buildpackage -b -uc -us) >"$out/log" 2>&1 ||
	{ tail -n 40 "$out/log" >&2; die "the packages do not build: $out/log"; }
# Without DEBEMAIL the maintainer has no valid address: suppress those tags.
quiet=(--suppress-tags 'bogus-mail-host,bogus-mail-host-in-debian-changelog')
[ -z "${DEBEMAIL:-}" ] || quiet=()
lintian --fail-on error,warning --tag-display-limit 0 --allow-root "${quiet[@]}" "$out"/*.changes || die "lintian reports errors or warnings"
ls -1s --block-size=K "$out"/*.deb | sed "s|$PEERDMA_ROOT/||"
