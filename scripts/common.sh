# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the project's scripts: paths and messages.

PEERDMA_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PEERDMA_BUILD=${PEERDMA_BUILD:-$PEERDMA_ROOT/build}
PEERDMA_CACHE=${PEERDMA_CACHE:-${XDG_CACHE_HOME:-${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.cache}/peerdma}

# make -jN names a jobserver that its scripts do not inherit. Without it, a make that they start does not warn.
if [ -n "${MAKEFLAGS:-}" ]; then
	MAKEFLAGS=$(sed -E 's/(^| )(-j[0-9]*|--jobserver[^ ]*)//g' <<<"$MAKEFLAGS")
	export MAKEFLAGS
fi

# Compilers by ccache, if it is there: what one clone has compiled, the next one, or an earlier commit, has at once. Sloppiness: as
# precompiled headers need it.
if [ -d /usr/lib/ccache ] && [ -z "${CCACHE_DISABLE:-}" ] && mkdir -p "${CCACHE_DIR:-$PEERDMA_CACHE/ccache}" "$PEERDMA_CACHE/pch" 2>/dev/null &&
	[ -w "${CCACHE_DIR:-$PEERDMA_CACHE/ccache}" ] && [ -w "$PEERDMA_CACHE/pch" ]; then
	case $PATH in */usr/lib/ccache*) ;; *) export PATH=/usr/lib/ccache:$PATH ;; esac
	export CCACHE_DIR=${CCACHE_DIR:-$PEERDMA_CACHE/ccache} CCACHE_MAXSIZE=${CCACHE_MAXSIZE:-3G} CCACHE_NOHASHDIR=1
	export CCACHE_BASEDIR=$PEERDMA_ROOT CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
	export PEERDMA_PCH=$PEERDMA_CACHE/pch
fi

# The lab's kernels, the newest first: qemu/kernels.tbl.
kernels()       { awk '$1 == "kernel" { print $2 }' "$PEERDMA_ROOT/qemu/kernels.tbl"; }
newest_kernel() { kernels | sed -n 1p; }
oldest_kernel() { kernels | sed -n '$p'; }

say()  { printf '%s\n' "$*" >&2; }
step() { printf '==> %s\n' "$*" >&2; }
die()  { printf 'error: %s\n' "$*" >&2; exit 1; }

# end_groups PID...: ends these process groups, as far as they are there
end_groups() {
	local leader
	for leader; do kill -- "-$leader" 2>/dev/null || true; done
}

# Abbreviations that are no spelling mistakes: lint and the git hook.
# shellcheck disable=SC2034 # used by both
CODESPELL_KNOWS=fo,hsa,inout,iput,nd,inflight
# kernel_style HOME: clang-format's style of this kernel, with the 100 columns that its coding style permits
kernel_style() { sed 's/^ColumnLimit: 80/ColumnLimit: 100/' "$1/build/.clang-format"; }

# cached_kernel_style: that of the newest kernel, if the cache has it: nothing is downloaded
cached_kernel_style() {
	local built
	built=$(find "$PEERDMA_CACHE/kernels" -path "*/kernels/$(newest_kernel)[.-]*/build/.clang-format" ! -path '*.new/*' 2>/dev/null | sort -V | tail -n 1)
	[ -n "$built" ] && kernel_style "${built%/build/.clang-format}"
}
# Which files have clang-format's style of the tree, and which the kernel's.
# shellcheck disable=SC2034 # used by the git hook and by make format
CPP_FILES='\.(cpp|hpp)$|^include/[^/]*\.h$|^qemu/init\.c$' KERNEL_FILES='^(kernel|tests/kmod|include/uapi)/.*\.[ch]$'

# need_disk DIR MIB WHAT: fails early if the disk is too small.
need_disk() {
	local have
	mkdir -p "$1"
	have=$(df -Pm "$1" | awk 'NR == 2 { print $4 }')
	[ "$have" -ge "$2" ] ||
		die "$3 needs $2 MiB in $1, which has $have MiB free: make room or point XDG_CACHE_HOME elsewhere"
}

# progress LOG REGEX TOTAL USUAL WHAT PID: shows progress while PID runs, from the number of lines of LOG that match
# REGEX. A terminal shows one line that is redrawn; a log gets a line every 30 s.
progress() {
	local log=$1 regex=$2 total=$3 usual=$4 what=$5 pid=$6 start=$SECONDS said=-30 n pct gone line
	while kill -0 "$pid" 2>/dev/null; do
		n=$(grep -cE "$regex" "$log" 2>/dev/null || true)
		pct=$((n * 100 / total))
		[ "$pct" -le 99 ] || pct=99
		gone=$((SECONDS - start))
		line=$(printf '    %s: %d%% (%d of about %d), %d:%02d gone, usually about %d min' \
			"$what" "$pct" "$n" "$total" $((gone / 60)) $((gone % 60)) "$usual")
		if [ -t 2 ]; then
			printf '\r%s' "$line" >&2
		elif [ $((gone - said)) -ge 30 ]; then
			printf '%s\n' "$line" >&2
			said=$gone
		fi
		sleep 1
	done
	[ ! -t 2 ] || printf '\n' >&2
}

# The Debian mirrors of this machine with their security suites, one "URI suite" a line.
machine_mirrors() {
	apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Component: main' |
		awk '$1 ~ /\/debian(-security)?\/?$/' | sort -u
}
