#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# setup.sh demo|demo-rdma|demo-offload|bench|bench-pack|check|lint|docs|deb: checks the packages that a target needs.
# Installs missing packages on Debian 12, only lists them elsewhere.
set -euo pipefail
. "$(dirname "$0")/common.sh"

kernel_packages='bc bison cpio flex gcc gzip kmod libelf-dev make perl rsync xz-utils'
user_packages='g++ libcli11-dev libfmt-dev libisal-dev libtraceevent-dev libtracefs-dev liburing-dev nlohmann-json3-dev pkg-config systemtap-sdt-dev zlib1g-dev'
program_packages='libibverbs-dev' # what else the guests' test programs are built with
guest_packages='e2fsprogs procps python3-minimal python3 qemu-system-x86 util-linux'
network_packages='iproute2 nfs-kernel-server rpcbind xfsprogs'
view_packages='iproute2 libisal-dev liblz4-dev libzstd-dev nvme-cli'
check_packages='bindfs btrfs-progs ccache clang crun dmsetup fsverity git graphviz ibverbs-providers iproute2 libclang-rt-dev libgtest-dev liblz4-dev libzstd-dev linux-headers-amd64 lz4 mandoc mdadm nfs-kernel-server nvme-cli patch perftest python3-yaml rpcbind systemd udev xfsprogs zstd'
lint_packages='abigail-tools clang-format clang-tidy codespell cppcheck g++-aarch64-linux-gnu pyflakes3 qemu-user shellcheck sparse'
docs_packages='furo graphviz mandoc python3 python3-myst-parser python3-sphinx'
deb_packages='cmake debhelper debootstrap dh-dkms dpkg-dev fakeroot lintian python3'

# The lab's guests, and the names of packages below, are of this architecture.
[ "$(uname -m)" = x86_64 ] || [ "${1:-}" = deb ] || [ "${1:-}" = docs ] || die "this machine is $(uname -m): the lab needs x86-64"

packages_of() {
	case ${1:-} in
	demo) echo "$kernel_packages $user_packages $guest_packages" ;;
	demo-rdma) echo "$kernel_packages $user_packages $guest_packages $network_packages" ;;
	demo-offload) echo "$kernel_packages $user_packages $guest_packages $view_packages" ;;
	bench-pack) echo "$user_packages libbenchmark-dev" ;;
	bench) echo "$kernel_packages $user_packages $program_packages $guest_packages $network_packages" ;;
	check) echo "$kernel_packages $user_packages $program_packages $guest_packages $check_packages" ;;
	lint) echo "$kernel_packages $user_packages $program_packages $check_packages $lint_packages" ;;
	docs) echo "$docs_packages" ;;
	deb) echo "$user_packages $program_packages liblz4-dev libzstd-dev $deb_packages" ;;
	*) die "usage: setup.sh demo|demo-rdma|demo-offload|bench|bench-pack|check|lint|docs|deb" ;;
	esac
}

missing_debian() {
	local package
	for package in $(packages_of "$1"); do
		[ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null)" = 'ii ' ] || echo "$package"
	done
}

# Package names differ on other distributions: check for the tools and headers.
missing_elsewhere() {
	local tool header probe tools='bc bison cpio flex gcc g++ gzip modprobe make perl pkg-config python3 rsync xz' headers=
	[ "$1" = lint ] || tools="$tools qemu-system-x86_64 mke2fs debugfs setpriv"
	case $1 in demo-rdma | bench) tools="$tools exportfs ip mkfs.xfs mount.nfs nfsdcld rdma rpc.mountd rpc.nfsd rpcbind" ;; esac
	[ "$1" != demo-offload ] || tools="$tools ip nvme rdma tc" headers='isa-l/crc.h lz4frame.h zstd.h'
	case $1 in demo | demo-rdma | demo-offload | bench) ;; *) tools="$tools clang++ dot git mandoc mkfs.xfs patch" headers='gtest/gtest.h isa-l/crc.h lz4frame.h zstd.h' ;; esac
	# What guest tests use without "# needs:".
	[ "$1" != check ] || tools="$tools addpart bindfs dmsetup fsfreeze fsverity losetup mdadm mkfs.btrfs wipefs"
	case $1 in demo | demo-rdma | demo-offload) ;; *) headers="$headers infiniband/verbs.h" ;; esac
	[ "$1" != lint ] || tools="$tools aarch64-linux-gnu-g++ abidiff abidw clang-format clang-tidy codespell cppcheck pyflakes3 qemu-aarch64 shellcheck sparse"
	[ "$1" != bench-pack ] || tools='g++ make pkg-config python3' headers=benchmark/benchmark.h
	[ "$1" != docs ] || tools='dot mandoc python3 sphinx-build'
	[ "$1" != deb ] || tools='dh_dkms dpkg-buildpackage fakeroot g++ lintian make pkg-config python3'
	for tool in $tools; do
		command -v "$tool" >/dev/null || [ -x "/sbin/$tool" ] || echo "$tool"
	done
	if [ "$1" = docs ]; then
		python3 -c 'import furo, myst_parser' 2>/dev/null || echo 'furo and myst-parser, for Sphinx'
		return 0
	fi
	if [ "$1" = deb ]; then
		headers=infiniband/verbs.h
	else
		headers="$headers libelf.h"
		# The guest's test programs are static.
		echo 'int main() {}' | g++ -static -x c++ - -o /dev/null 2>/dev/null || echo 'libc and libstdc++ to link statically'
	fi
	if [ "$1" = check ]; then
		for probe in 'clang++ address,undefined' 'g++ address,undefined' 'g++ thread'; do
			echo 'int main() {}' | ${probe% *} -fsanitize="${probe#* }" -x c++ - -o /dev/null 2>/dev/null ||
				echo "the libraries of ${probe% *} -fsanitize=${probe#* }"
		done
	fi
	for header in CLI/CLI.hpp fmt/format.h isa-l/crc.h liburing.h nlohmann/json.hpp traceevent/event-parse.h tracefs/tracefs.h zlib.h $headers; do
		[ -f "/usr/include/$header" ] || [ -f "/usr/local/include/$header" ] || echo "$header"
	done
}

is_debian_12() {
	# shellcheck source=/dev/null
	(. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && [ "${VERSION_ID:-}" = 12 ])
}

packages_of "${1:-}" >/dev/null
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo

if ! is_debian_12; then
	missing=$(missing_elsewhere "$1")
	[ -z "$missing" ] || die "this is not Debian 12, so nothing is installed for you; missing here: ${missing//$'\n'/, }; scripts/Containerfile makes a container of Debian 12"
	[ -n "${KSRC:-}" ] || command -v apt-get >/dev/null ||
		die "guest kernels come from Debian's linux-source packages: without apt-get give KSRC=/path/to/linux"
	exit 0
fi

missing=$(missing_debian "$1" | tr '\n' ' ')
[ -n "$missing" ] || exit 0
[ -z "$as_root" ] || command -v sudo >/dev/null || die "as root: apt-get install --no-install-recommends $missing"
step "installing packages: $missing"
log=$PEERDMA_BUILD/setup.log
mkdir -p "$PEERDMA_BUILD"
install=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install)
# Downloads package lists only if the existing ones are stale or missing.
# shellcheck disable=SC2086 # a list of names
$as_root "${install[@]}" $missing >"$log" 2>&1 ||
	{ $as_root apt-get -qq update >>"$log" 2>&1 && $as_root "${install[@]}" $missing >>"$log" 2>&1; } ||
	{ tail -n 20 "$log" >&2; die "apt-get could not install them: $log"; }
