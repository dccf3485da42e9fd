#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make deb-check: the packages of build/deb in clean Debian systems (debootstrap, as root): DKMS against the headers of
# 6.1, 6.12 and 7.2, an outside example by pkg-config and by CMake, and what is left when they are gone. Prints TAP.
set -euo pipefail
. "$(dirname "$0")/../scripts/common.sh"

[ "$(id -u)" = 0 ] || die "chroots are made by root: sudo make deb-check"
debs=$PEERDMA_BUILD/deb
ls "$debs"/peerdma-dkms_*.deb >/dev/null 2>&1 || die "no packages in $debs: make deb"
home=$PEERDMA_CACHE/chroots
trees=$PEERDMA_BUILD/chroots
key=/usr/share/keyrings/debian-archive-keyring.gpg
n=0 bad=0

# check TEXT COMMAND...
check() {
	n=$((n + 1))
	if "${@:2}" >"$trees/log" 2>&1; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		tail -n 30 "$trees/log" | sed 's/^/# /'
		bad=1
	fi
}

# inside SUITE COMMAND: as root of it, with namespaces of its own, so that nothing of it stays behind
inside() {
	unshare --mount --pid --ipc --uts --fork --propagation private \
		sh -c 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" && mount --bind "$2" "$1/mnt" &&
			exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
			DEBIAN_FRONTEND=noninteractive bash -ec "$3"' inside "$trees/$1" "$debs" "$2"
}

# system SUITE EXTRA-SUITES PACKAGES: a clean one, with packages of the extra suites too. What debootstrap made is cached.
system() {
	local suite=$1 extra=$2 packages=$3 mirror
	mirror=$(machine_mirrors | awk '$1 ~ /\/debian\/?$/ { print $1; exit }')
	mkdir -p "$home" "$trees"
	if [ ! -f "$home/$suite.tar" ]; then
		step "debootstrap $suite"
		rm -rf "$home/$suite.new"
		debootstrap --variant=minbase --include=ca-certificates "$suite" "$home/$suite.new" "$mirror" >"$home/$suite.log" 2>&1 ||
			{ tail -n 5 "$home/$suite.log" >&2; die "debootstrap $suite failed"; }
		tar -C "$home/$suite.new" -cf "$home/$suite.tar.new" . && mv "$home/$suite.tar.new" "$home/$suite.tar"
		rm -rf "$home/$suite.new"
	fi
	rm -rf "${trees:?}/$suite" && mkdir -p "$trees/$suite"
	tar -C "$trees/$suite" -xf "$home/$suite.tar"
	cp /etc/resolv.conf "$trees/$suite/etc/"
	{
		echo "deb [signed-by=$key] $mirror $suite main"
		for more in $extra; do echo "deb [signed-by=$key] $mirror $more main"; done
	} >"$trees/$suite/etc/apt/sources.list"
	step "$suite: $packages"
	inside "$suite" "apt-get -qq update && apt-get -qq -y --no-install-recommends install $packages >/tmp/log 2>&1 || { tail -n 20 /tmp/log; exit 1; }"
}

# What packages may leave: logs, caches, the lists of dpkg and apt, what depmod writes,
# DKMS's empty folder (a module in it is a fault), the key that DKMS makes for itself.
files() {
	inside "$1" 'find / -xdev \( -path /proc -o -path /tmp -o -path /mnt -o -path /var/log -o -path /var/cache -o -path /var/lib/dpkg \
		-o -path /var/lib/apt -o -path /run -o -path /dev \) -prune -o -print' |
		grep -vE '^/(usr/)?lib/modules/[^/]*/(modules\.|updates(/dkms)?$)|^/var/lib/dkms/(mok|dkms_)|^/etc/(group|gshadow|passwd|shadow)-?$|^/etc/ld.so.cache'
}

# install SUITE WORD...: packages of /mnt; what DKMS could not build is shown
install() {
	inside "$1" "apt-get -y --no-install-recommends install ${*:2} || { tail -n 40 /var/lib/dkms/peerdma/*/build/make.log; exit 1; }"
}

# built SUITE: one module of DKMS for each kernel whose headers are there
built() {
	inside "$1" 'for headers in /lib/modules/*/build; do
			kernel=$(basename "$(dirname "$headers")")
			for name in peerdma peerdma_rdma peerdma_nfs peerdma_nvidia; do
				ls /lib/modules/"$kernel"/updates/dkms/$name.ko* >/dev/null
			done
			echo "$kernel"
		done'
}

# at_least MINOR KERNEL...: one of them is 7.MINOR or later
at_least() { printf '%s\n' "${@:2}" | awk -F'[.+~-]' -v minor="$1" '$1 > 7 || ($1 == 7 && $2 + 0 >= minor) { found = 1 } END { exit !found }'; }

# --- 6.1 and 6.12, libraries and tools
system bookworm bookworm-backports "dkms g++ cmake make pkg-config libfmt9 libibverbs-dev liburing2 linux-headers-amd64"
new=$(inside bookworm "apt-cache search --names-only '^linux-headers-6[.]12[.].*-amd64\$'" | awk '!/cloud|rt/ { print $1 }' | sort -V | tail -n 1)
[ -n "$new" ] || die "bookworm-backports offers no headers of 6.12"
inside bookworm "apt-get -qq -y --no-install-recommends install -t bookworm-backports $new >/tmp/log 2>&1 || { tail -n 20 /tmp/log; exit 1; }"
files bookworm >"$trees/before"
check "they install on Debian 12" install bookworm "\$(ls /mnt/*.deb | grep -v dbgsym)"
check "DKMS built for its kernels" built bookworm
kernels=$(built bookworm 2>/dev/null | tr '\n' ' ') || true
for want in 6.1. 6.12.; do check "among them $want: $kernels" grep -q "\(^\| \)$want" <<<"$kernels"; done
check "its modules are signed" inside bookworm 'for ko in /lib/modules/*/updates/dkms/*.ko; do tail -c 28 "$ko" | grep -q "Module signature appended"; done'
check "the group is there" inside bookworm 'getent group peerdma'
check "the command runs" inside bookworm 'peerdma --version'
check "an outside program by pkg-config" inside bookworm 'cd /tmp && printf "%s\n" "#include <peerdma.h>" "#include <cstdio>" \
	"int main() { std::puts(peerdma_version()); }" >a.cpp && g++ -std=c++20 a.cpp $(pkg-config --cflags --libs libpeerdma) -o a && ./a'
check "the same by CMake" inside bookworm 'mkdir /tmp/b && cd /tmp/b && printf "%s\n" "cmake_minimum_required(VERSION 3.13)" "project(b CXX)" \
	"find_package(peerdma 0.1 REQUIRED)" "add_executable(b b.cpp)" "target_link_libraries(b peerdma::peerdma)" >CMakeLists.txt &&
	printf "%s\n" "#include <peerdma.h>" "#include <cstdio>" "int main() { std::puts(peerdma_version()); }" >b.cpp && cmake . && make && ./b'
check "a later version than there is, by CMake, is refused" inside bookworm 'mkdir /tmp/c && cd /tmp/c && printf "%s\n" "cmake_minimum_required(VERSION 3.13)" \
	"project(c CXX)" "find_package(peerdma 9 REQUIRED)" >CMakeLists.txt && ! cmake .'
check "peerdma-cufile runs a program with our library" inside bookworm 'peerdma-cufile grep -q /usr/lib/peerdma/libcufile.so.0 /proc/self/maps'
check "and nobody else gets it" inside bookworm '! ldconfig -p | grep libcufile && ! grep -q libcufile /proc/self/maps'
check "they go" inside bookworm "apt-get -y purge 'peerdma-*' 'libpeerdma*' libcufile-peerdma"
files bookworm >"$trees/after"
check "and leave nothing" diff "$trees/before" "$trees/after"

# --- 7.2
system trixie trixie-backports "dkms"
new=$(inside trixie "apt-cache search --names-only '^linux-headers-7[.].*-amd64\$'" | awk '!/cloud|rt/ { print $1 }' | sort -V | tail -n 1)
[ -n "$new" ] || die "trixie-backports offers no headers of 7.x"
inside trixie "apt-get -qq -y --no-install-recommends install -t trixie-backports $new >/tmp/log 2>&1 || { tail -n 20 /tmp/log; exit 1; }"
check "the module's package installs on Debian 13" install trixie '/mnt/peerdma-dkms_*.deb'
check "DKMS built for $new" built trixie
mapfile -t kernels < <(built trixie 2>/dev/null || true)
check "that is 7.2 or later: ${kernels[*]}" at_least 2 "${kernels[@]}"

echo "1..$n"
rm -rf "$trees"
exit $bad
