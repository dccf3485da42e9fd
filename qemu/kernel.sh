#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Guest kernels of the lab: Debian's linux-source packages, built once and cached.
#
#   kernel.sh path K [debug|kcsan|rt|gcov]   print the folder of the kernel; builds it if necessary
#   kernel.sh have K [debug|kcsan|rt|gcov]   the same, but fails instead of building
#   kernel.sh list                        list the cache with sizes
#   kernel.sh clean                       empty the cache
#
# A cached kernel contains what booting and building modules need:
#   bzImage  lib/modules/<release> (as installed)  build/ (headers, scripts, Module.symvers)
#   config   version (package and release)   seconds (duration of the build)
set -euo pipefail
shopt -s inherit_errexit
export CCACHE_DISABLE=1 # a kernel is cached as a whole
. "$(dirname "$0")/../scripts/common.sh"
. "$(dirname "$0")/../scripts/apt.sh"

kernels=$PEERDMA_CACHE/kernels
sources=$PEERDMA_CACHE/source
work=$PEERDMA_CACHE/work
apt_home=$PEERDMA_CACHE/apt
steps='^  (CC|LD|AR|AS|HOSTCC|UPD|GEN|HOSTLD|CC \[M\]|LD \[M\]|MODPOST) '

# The suites that carry each kernel, in addition to the machine's own.
suites_of() {
	awk -v k="$1" '$1 == "kernel" && $2 == k { $1 = $2 = $3 = ""; print; found = 1 } END { exit !found }' \
		"$PEERDMA_ROOT/qemu/kernels.tbl" ||
		die "K=$1 is not a kernel of the lab: $(any_kernel ' or ') (or KSRC=/path for your own tree)"
}

# any_kernel SEPARATOR: all of them, in a line
any_kernel() { kernels | paste -sd , | sed "s/,/$1/g"; }

# successors_of K: a regular expression of the packages that take the place of one that is gone, or nothing
successors_of() {
	awk -v k="$1" '$1 == "kernel" && $2 == k && $3 != "-" { print "linux-source-" $3 "[.][0-9]+" }' "$PEERDMA_ROOT/qemu/kernels.tbl"
}

# newest_package K: "package version" of the newest linux-source for K. One that has left every suite is
# followed by its successor, if the table says so, and that is said.
newest_package() {
	local k=$1 name successor found
	successor=$(successors_of "$k")
	for name in "linux-source-$k" ${successor:+"$successor"}; do
		found=$(apt_private apt-cache search --names-only "^$name\$" | awk '{ print $1 }' | sort -V | tail -n 1)
		[ -z "$found" ] || break
	done
	[ -n "$found" ] || die "no suite of this machine's mirror offers linux-source-$k"
	[ "$found" = "linux-source-$k" ] || say "    linux-source-$k is no longer offered: using $found"
	apt_private apt-cache madison "$found" | awk -F'|' '{ gsub(/ /, "", $2); print $2 }' |
		sort -V | tail -n 1 | sed "s/^/$found /"
}

# cached_source K [FIND-TEST...]: the newest source archive that is here already, of K or of a successor
cached_source() {
	local of
	of=$(successors_of "$1")
	find "$sources" -regextype posix-extended -regex ".*/${of:-linux-source-${1//./[.]}}_[^/]*[.]tar[.]xz" "${@:2}" 2>/dev/null | sort -V | tail -n 1
}

# fetch K: downloads the source archive if necessary; its path on stdout.
fetch() {
	local k=$1 package version archive
	mkdir -p "$sources"
	# One process at a time: apt's lists and the archive are shared. Not the lock of builds: others look kernels up meanwhile.
	exec 8>"$PEERDMA_CACHE/fetch.lock"
	flock 8
	# Asks the mirror at most once a day.
	archive=$(cached_source "$k" -mtime -1)
	if [ -n "$archive" ]; then
		echo "$archive"
		return
	fi
	need_disk "$sources" 700 "fetching the kernel source"
	step "looking up the newest linux-source for $k"
	# shellcheck disable=SC2046 # several suites
	apt_sources KSRC=/path/to/linux $(suites_of "$k")
	if ! apt_private apt-get -qq update >&2; then
		archive=$(cached_source "$k")
		[ -n "$archive" ] || die "apt-get update failed for the lab's suites, and no kernel source is in the cache"
		say "    apt-get update failed: going on with $(basename "$archive") of the cache"
		echo "$archive"
		return
	fi
	read -r package version < <(newest_package "$k") || exit 1
	archive=$sources/${package}_$version.tar.xz
	if [ ! -f "$archive" ]; then
		step "fetching $package $version"
		if [ -t 2 ]; then quiet=; else quiet=-qq; fi
		# Bash does not end a function at a failure whose caller asks for its status, so each step does.
		(
			cd "$apt_home/cache/archives" && rm -f "$package"_*.deb &&
				apt_private apt-get $quiet download "$package=$version" >&2 &&
				dpkg-deb --fsys-tarfile "$package"_*.deb | tar -xO "./usr/src/$package.tar.xz" >"$archive.part" &&
				rm -f "$package"_*.deb && mv "$archive.part" "$archive"
		) || { rm -f "$archive.part"; die "could not fetch $package $version"; }
		find "$sources" -name "${package}_*" ! -path "$archive" -delete
	fi
	touch "$archive"
	echo "$archive"
}

# fragments K VARIANT: the requested configuration, without comments, on stdout.
fragments() {
	{
		cat "$PEERDMA_ROOT/qemu/kernel.config"
		[ ! -f "$PEERDMA_ROOT/qemu/kernel-$1.config" ] || cat "$PEERDMA_ROOT/qemu/kernel-$1.config"
		[ "$2" = plain ] || cat "$PEERDMA_ROOT/qemu/$2.config"
	} | grep -E '^(CONFIG_|# CONFIG_)'
}

# Identifies the user's own tree, so that a change to it makes a new kernel.
ksrc_version() {
	local top
	top=$(make -s -C "$KSRC" kernelversion)
	if git -C "$KSRC" rev-parse -q --verify HEAD >/dev/null 2>&1; then
		echo "$top-$(git -C "$KSRC" rev-parse --short HEAD)-$(git -C "$KSRC" diff HEAD | sha256sum | cut -c1-8)"
	else
		echo "$top-$(find "$KSRC" -name '*.[chS]' -newer "$KSRC/Makefile" -printf '%T@\n' | sha256sum | cut -c1-8)"
	fi
}

# locate K VARIANT: sets $version and $home, the folder of that kernel, built or not.
locate() {
	local k=$1 variant=$2 archive
	if [ -n "${KSRC:-}" ]; then
		[ -f "$KSRC/Kbuild" ] || die "KSRC=$KSRC is not a kernel source tree"
		version=$(ksrc_version)
	else
		archive=$(fetch "$k") || exit 1
		version=$(basename "$archive" .tar.xz | sed 's/.*_//')
		source_archive=$archive
	fi
	home=$kernels/$version-$variant-$({
		echo "$version"
		fragments "$k" "$variant"
		gcc --version | head -n 1
		ld --version | head -n 1
	} | sha256sum | cut -c1-10)
}

configure() {
	local k=$1 variant=$2 src=$3 obj=$4 missing
	fragments "$k" "$variant" >"$obj/fragment"
	make -C "$src" O="$obj" KCONFIG_ALLCONFIG="$obj/fragment" allnoconfig >"$obj/log" 2>&1 ||
		{ tail -n 20 "$obj/log" >&2; die "configuring $k $variant failed"; }
	# If fragments set an option twice, only the last one counts.
	missing=$(awk '{ n = $1 == "#" ? $2 : $1; sub(/=.*/, "", n); last[n] = $0 } END { for (n in last) print last[n] }' "$obj/fragment" |
		while read -r line; do
			case $line in
			'# '*) ! grep -q "^$(echo "$line" | awk '{ print $2 }')=" "$obj/.config" || echo "$line" ;;
			*) grep -qxF "$line" "$obj/.config" || echo "$line" ;;
			esac
		done)
	[ -z "$missing" ] || die "kernel $k $variant does not take: $(echo "$missing" | tr '\n' ' ')"
}

build() {
	local k=$1 variant=$2 src obj new total usual start=$SECONDS
	need_disk "$PEERDMA_CACHE" 6000 "building kernel $k $variant"
	obj=$work/$(basename "$home")
	new=$home.new
	# Removes incomplete builds of other kernels. An incomplete build of this one is continued.
	rm -rf "$kernels"/*.new
	mkdir -p "$obj" "$new"
	find "$work" -mindepth 1 -maxdepth 1 ! -name "$(basename "$obj")" ! -name "source-$version" -exec rm -rf {} +
	if [ -n "${KSRC:-}" ]; then
		src=$(realpath "$KSRC")
	else
		src=$work/source-$version
		if [ ! -f "$src/.unpacked" ]; then
			step "unpacking $(basename "$source_archive")"
			rm -rf "$src"
			mkdir -p "$src"
			tar -xJf "$source_archive" -C "$src" --strip-components=1
			touch "$src/.unpacked"
		fi
	fi
	configure "$k" "$variant" "$src" "$obj"
	# shellcheck disable=SC2086 # three fields
	read -r total usual < <(awk -v k="$k-$variant" '$1 == "build" && $2 == k { print $3, $4 }' "$PEERDMA_ROOT/qemu/kernels.tbl")
	step "building kernel $version $variant (log: $obj/log)"
	if [ -n "${V:-}" ]; then
		make -C "$src" O="$obj" -j"$(nproc)" V=1 bzImage modules 2>&1 | tee "$obj/log" >&2
	else
		make -C "$src" O="$obj" -j"$(nproc)" bzImage modules >"$obj/log" 2>&1 &
		local pid=$!
		# An interrupt kills the compiler; the finished objects are kept.
		trap 'kill "$pid" 2>/dev/null; exit 130' INT TERM
		progress "$obj/log" "$steps" "${total:-3500}" "${usual:-8}" "kernel $k $variant" "$pid"
		trap - INT TERM
		wait "$pid" || { grep -E -A8 'error|Error|\*\*\*' "$obj/log" | head -n 40 >&2; die "kernel $k $variant did not build: $obj/log"; }
	fi
	{
		make -C "$src" O="$obj" INSTALL_MOD_PATH="$new" INSTALL_MOD_STRIP=1 modules_install
		make -C "$src" O="$obj" run-command \
			KBUILD_RUN_COMMAND="\$(srctree)/scripts/package/install-extmod-build $new/build"
	} >>"$obj/log" 2>&1 || { tail -n 20 "$obj/log" >&2; die "kernel $k $variant did not install"; }
	cp "$obj/arch/x86/boot/bzImage" "$new/bzImage"
	cp "$obj/.config" "$new/config"
	cp "$src/.clang-format" "$new/build/.clang-format"
	echo "$version $(make -s -C "$src" O="$obj" kernelrelease)" >"$new/version"
	grep -cE "$steps" "$obj/log" >"$new/steps" || true
	echo $((SECONDS - start)) >"$new/seconds"
	find "$new" -name build -type l -delete
	rm -rf "$home"
	mv "$new" "$home"
	rm -rf "$obj"
	# Only a concurrent build of another variant would need the tree again, and it unpacks its own in half a minute.
	[ -n "${KEEP_SOURCE:-}" ] || rm -rf "$work"/source-*
	say "    built in $(cat "$home/seconds") s"
}

prune() {
	# Removes kernels that were not used for 30 days: a newer package, configuration or compiler makes another
	# kernel.
	find "$kernels" -mindepth 1 -maxdepth 1 -type d -mtime +30 -exec rm -rf {} + 2>/dev/null || true
}

# answer: prints the folder of the kernel, and notes that it was used, by which prune() goes. The cache may be read-only.
answer() {
	touch -c "$home" 2>/dev/null || true
	echo "$home"
}

cmd_path() {
	suites_of "$1" >/dev/null
	mkdir -p "$PEERDMA_CACHE"
	# A finished kernel is available while another one is being built.
	if [ -n "${KSRC:-}$(cached_source "$1" -mtime -1 2>/dev/null)" ]; then
		locate "$1" "${2:-plain}"
		[ ! -f "$home/version" ] || { answer; return; }
	fi
	exec 9>"$PEERDMA_CACHE/lock"
	flock -n 9 || { say "    waiting for another build of the lab's kernels"; flock 9; }
	locate "$1" "${2:-plain}"
	if [ ! -f "$home/version" ]; then
		build "$1" "${2:-plain}"
		prune
	fi
	answer
}

cmd_have() {
	suites_of "$1" >/dev/null
	locate "$1" "${2:-plain}"
	[ -f "$home/version" ] || return
	answer
}

cmd_list() {
	[ -d "$PEERDMA_CACHE" ] || { echo "the cache $PEERDMA_CACHE does not exist yet"; return; }
	echo "cache: $PEERDMA_CACHE"
	(shopt -s nullglob; cd "$PEERDMA_CACHE" && du -sh -- kernels/* source/* arm64/sysroot-* apt work ccache pch tidy 2>/dev/null) | sed 's/^/  /'
	echo "total: $(du -sh "$PEERDMA_CACHE" | cut -f1)"
}

cmd_clean() {
	rm -rf "${PEERDMA_CACHE:?}"
	echo "emptied $PEERDMA_CACHE"
}

case ${1:-}:${2:-} in
path:* | have:* | list: | clean:)
	[ "$1" = list ] || [ "$1" = clean ] || [ -n "${2:-}" ] || die "usage: kernel.sh $1 $(any_kernel '|') [debug|kcsan|rt|gcov]"
	case ${3:-plain} in
	plain | debug | kcsan | rt | gcov) ;;
	*) die "$3 is not a build of a lab kernel: plain, debug, kcsan, rt or gcov" ;;
	esac
	verb=$1
	shift
	"cmd_$verb" "$@"
	;;
*) sed -n '4,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
