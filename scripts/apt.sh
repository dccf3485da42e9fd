# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # the script that sources this sets $apt_home
# Sourced after common.sh: a private apt in the folder $apt_home. It has lists and archives of its own, and the machine's mirrors
# and keys. It changes nothing of the machine's apt.

# apt_private TOOL ARGUMENT...
apt_private() {
	local tool=$1
	shift
	"$tool" -o Dir::State="$apt_home/state" -o Dir::State::status=/var/lib/dpkg/status \
		-o Dir::Cache="$apt_home/cache" -o Dir::Etc::sourcelist="$apt_home/sources.list" \
		-o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false \
		-o APT::Sandbox::User=root -o Debug::NoLocking=true "$@"
}

# apt_sources INSTEAD SUITE...: makes $apt_home, with the machine's suites as sources, and these in addition. INSTEAD: what to give where
# the machine has no Debian mirror.
apt_sources() {
	local instead=$1 mirror suite key=/usr/share/keyrings/debian-archive-keyring.gpg
	shift
	mkdir -p "$apt_home"/{state/lists/partial,cache/archives/partial}
	mirror=$(machine_mirrors | awk '$1 ~ /\/debian\/?$/ { print $1; exit }')
	[ -n "$mirror" ] || die "no Debian mirror in this machine's apt sources: add one, or give $instead"
	{
		machine_mirrors | while read -r uri suite; do
			echo "deb [signed-by=$key] $uri $suite main"
		done
		for suite; do
			machine_mirrors | grep -q " $suite\$" || echo "deb [signed-by=$key] $mirror $suite main"
		done
	} >"$apt_home/sources.list"
}
