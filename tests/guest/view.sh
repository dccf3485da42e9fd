# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the tests of views, after lib.sh: peerdma-viewd in this guest.

modprobe -d "$LAB_KERNEL" ublk_drv || bail "no ublk"
image() { "$LAB_ROOT/tests/guest/view/image.py" "$@"; }
mkdir -p /run/views /mnt/data
mount -t tmpfs none /mnt/data || bail "no place for files"
socket=/run/viewd.sock service=
clean_up() {
	[ -z "$service" ] || kill -KILL "$service" 2>/dev/null
	umount -l /mnt/data
	rm -rf /run/views
}
trap clean_up EXIT

# begin [OPTION...]: starts the service, with $memory MiB and $threads threads
memory=8 threads=2
begin() {
	"$LAB_BUILD/bin/peerdma-viewd" --folder /run/views --socket $socket --memory $memory --threads $threads "$@" &
	service=$!
	soon 20 image field $socket none none 2>/dev/null || bail "the service does not start"
}
# ends NAME: stops it in order
ends() {
	kill -TERM $service
	wait $service
	same "$1" 0 $?
}
# field NAME KEY: of a view's status
field() { image field $socket "$@"; }
is() { [ "$(field "$1" "$2")" = "$3" ]; }
fails() { ! "$@"; }

# published DESCRIPTION NAME: waits for the scan
published() {
	if soon 20 is "$2" state published; then ok "$1"; else not_ok "$1"; diag "$(field "$2" state): $(field "$2" error)"; fi
}
