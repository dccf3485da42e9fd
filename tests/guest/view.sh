# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # rdma.sh assigns $far_ip
# Sourced by the tests of views, after lib.sh: peerdma-viewd in this guest.

modprobe -d "$LAB_KERNEL" ublk_drv || bail "no ublk"
image() { "$LAB_ROOT/tests/guest/view/image.py" "$@"; }
mkdir -p /run/views /mnt/data
mount -t tmpfs none /mnt/data || bail "no place for files"
socket=/run/viewd.sock service='' loop=''
clean_up() {
	[ ! -s /run/viewd.said ] || diag "$(cat /run/viewd.said)"
	rm -f /run/viewd.said
	[ -z "$service" ] || kill -KILL "$service" 2>/dev/null
	if [ -n "$loop" ]; then
		umount -l /run/files 2>/dev/null
		dmsetup remove drive
		losetup -d "$loop"
	fi
	umount -l /mnt/data
	rm -rf /run/views
}
trap clean_up EXIT

# begin [OPTION...]: starts the service, with $memory MiB and $threads threads
memory=8 threads=2
begin() {
	"$LAB_BUILD/bin/peerdma-viewd" --folder /run/views --socket $socket --memory $memory --threads $threads "$@" 2>>/run/viewd.said &
	service=$!
	soon 20 image field $socket none none 2>/run/asked || gives_up
}
# gives_up: bails out with what the service says, where it is, and why it could not be asked
gives_up() {
	local how
	if kill -0 "$service" 2>/dev/null; then
		how="$(grep -h ^State /proc/"$service"/status), $(sort -u /proc/"$service"/task/*/wchan | paste -sd,)"
	else
		wait "$service"
		how="status $?"
	fi
	bail "the service does not start: $how; $(tail -n 2 /run/viewd.said | paste -sd,); $(tail -n 1 /run/asked)"
}
# ends NAME: stops it in order
ends() {
	kill -TERM $service
	wait $service
	same "$1" 0 $?
	service=''
}
# field NAME KEY: of a view's status
field() { image field $socket "$@"; }
# memory_of KEY: of the service's /proc/PID/status, in KiB
memory_of() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$service/status"; }
is() { [ "$(field "$1" "$2")" = "$3" ]; }
fails() { ! "$@"; }

# published DESCRIPTION NAME: waits for the scan
published() {
	if soon 20 is "$2" state published; then ok "$1"; else not_ok "$1"; diag "$(field "$2" state): $(field "$2" error)"; fi
}

# On a drive that the test makes fail or wait: make_drive MIB mounts /run/files from it.
make_drive() {
	export DM_DISABLE_UDEV=1
	modprobe -d "$LAB_KERNEL" -a loop dm-mod || bail "no device mapper"
	truncate -s "$1M" /mnt/data/drive
	loop=$(losetup -f --show /mnt/data/drive)
	sectors=$(blockdev --getsz "$loop")
	whole="0 $sectors linear $loop 0"
	dmsetup create drive --table "$whole" || bail "no dm"
	mke2fs -q -F -t ext4 /dev/mapper/drive && mkdir -p /run/files && mount /dev/mapper/drive /run/files || bail "no filesystem"
}
# drive LINE...: its table from now on
drive() { printf '%s\n' "$@" | dmsetup reload drive && dmsetup suspend drive && dmsetup resume drive; }
# delayed MS: the table of a drive whose reads take so much longer
delayed() { echo "0 $sectors delay $loop 0 $1 $loop 0 0"; }
cold() { sync; echo 3 >/proc/sys/vm/drop_caches; }

# Exported by NVMe over RDMA, to a host of this guest: prepare_export, after rdma.sh. $me: the host; $prefix: of the views' names
# shellcheck disable=SC2034 # the tests use $me
prefix=nqn.2026-11.org.example: me=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555
prepare_export() {
	publish
	kernel_has veth nvmet nvmet-rdma nvme-rdma
	knows_rdma
	wire
	mount | grep -q configfs || mount -t configfs none /sys/kernel/config
}
# exports; to OPTIONS NAME HOST: connects, and prints the controller. The service is at $far_ip.
exports() { begin --port "rdma:$far_ip:4420" --nqn-prefix $prefix; }
to() { connect "$1,transport=rdma,traddr=$far_ip,trsvcid=4420,nqn=$prefix$2,hostnqn=$3,hostid=11111111-2222-3333-4444-555555555555"; }
