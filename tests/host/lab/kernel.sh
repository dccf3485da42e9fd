#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: check
# The lab refuses an unknown kernel or build in one line, before it fetches, unpacks or builds anything. A download that fails
# leaves the archive that was there, and a kernel that is used is not one that was not used for 30 days.
. "$(dirname "$0")/../tap.sh"
cd "$root" || exit 1
temporary

refuses() {
	local status=0 said
	said=$(XDG_CACHE_HOME=$tmp PEERDMA_CACHE='' KSRC='' qemu/kernel.sh "$@" 2>&1) || status=$?
	if [ "$status" = 1 ] && [ "$(wc -l <<<"$said")" = 1 ] && [ -z "$(ls "$tmp")" ]; then
		ok "kernel.sh $*"
	else
		not_ok "kernel.sh $*" "status $status, it left $(ls "$tmp"): $said"
	fi
}

refuses path
refuses path 6.1
refuses path 7.1
refuses path bogus
refuses have 6.13
refuses path "$(. scripts/common.sh && newest_kernel)" typo

k=$(. scripts/common.sh && newest_kernel)
export PEERDMA_CACHE=$tmp/cache KSRC=
mkdir -p "$tmp/bin" "$PEERDMA_CACHE/source"
# apt that offers a newer package, and a package that cannot be had, or not be unpacked
cat >"$tmp/bin/apt-get" <<'EOF'
#!/bin/sh
case " $* " in
*" download "*) [ "$BROKEN" = package ] && echo none >"linux-source-$KERNEL"_9.deb ;;
*" update "*) ;;
*) exec /usr/bin/apt-get "$@" ;;
esac
EOF
cat >"$tmp/bin/apt-cache" <<'EOF'
#!/bin/sh
case " $* " in
*" search "*) echo "linux-source-$KERNEL - source" ;;
*) echo "linux-source-$KERNEL | 9999-1 | here" ;;
esac
EOF
chmod +x "$tmp"/bin/*
old=linux-source-${k}_1-1.tar.xz
touch -d '2 days ago' "$PEERDMA_CACHE/source/$old"
for broken in download package; do
	status=0
	BROKEN=$broken KERNEL=$k PATH="$tmp/bin:$PATH" qemu/kernel.sh have "$k" >"$tmp/said" 2>&1 || status=$?
	same "a $broken that fails" "1 $old" "$status $(cd "$PEERDMA_CACHE/source" && echo *)"
	check "a $broken that fails is said" grep -q "could not fetch" "$tmp/said"
done

# Its name has a sum of its configuration.
touch "$PEERDMA_CACHE/source/$old"
home=$(bash -x qemu/kernel.sh have "$k" 2>&1 | sed -n 's/^+* home=//p' | tail -n 1)
mkdir -p "$home"
touch "$home/version"
touch -d '40 days ago' "$home"
same "a kernel that is there" "$home" "$(qemu/kernel.sh have "$k")"
check "was used, and is not removed soon" [ -n "$(find "$home" -maxdepth 0 -mtime -1)" ]
finish
