#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# peerdma-viewd.service, as make install writes it: systemd understands each line, the sandbox is as tight as it was, and what it
# names is what the service uses by default. Nothing is started.
. "$(dirname "$0")/../tap.sh"
temporary

silent() {
	local said status=0
	said=$("$@" 2>&1) || status=$?
	echo "$said"
	[ $status = 0 ] && [ -z "$said" ]
}

unit=$tmp/peerdma-viewd.service
sed "s|/usr/sbin/|$build/bin/|" "$root/scripts/peerdma-viewd.service" >"$unit"
check "it starts the program" grep -q "^ExecStart=$build/bin/peerdma-viewd " "$unit"
help=$("$build/bin/peerdma-viewd" --help)
# default OPTION: of the program
default() { grep -oE -- "^ *--$1 TEXT(=[^ ]*| \[[^]]*\])" <<<"$help" | sed "s/.*TEXT[= ]\[*\([^]]*\)\]*/\1/"; }
# directory KEY BASE: what a key of the unit makes
directory() { sed -n "s|^$1=|$2/|p" "$unit"; }
check "its state is in the program's folder" [ "$(directory StateDirectory /var/lib)" = "$(default folder)" ]
check "its definitions too" [ "$(directory ConfigurationDirectory /etc)" = "$(default conf-dir)" ]
check "its socket is where it may make one" [ "$(directory RuntimeDirectory /run)" = "$(dirname "$(default socket)")" ]
if command -v systemd-analyze >/dev/null; then
	check "systemd understands it" silent systemd-analyze verify --man=no "$unit"
	check "its exposure is 2.5 or less" systemd-analyze security --offline=true --threshold=25 "$unit"
	grep -v '^\(NoNewPrivileges\|ProtectSystem\|CapabilityBoundingSet\|SystemCallFilter\)=' "$unit" >"$tmp/open.service"
	check "which a unit without its sandbox has not" eval '! systemd-analyze security --offline=true --threshold=25 "$tmp/open.service"'
else
	for what in "systemd understands it" "its exposure is 2.5 or less" "which a unit without its sandbox has not"; do
		skip "$what" "there is no systemd-analyze"
	done
fi
finish
