#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Views by the command: published, listed, examined, withdrawn; defined by files that SIGHUP reads again, nonsense among them; what a
# service that was killed finds changed when it comes back.
# group: view
# topologies: switch
# variants: plain
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK
# timeout: 200
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/view.sh"

export LC_ALL=C
definitions=/run/views.d
mkdir $definitions
view() { peerdma view "$1" --socket $socket "${@:2}"; }
# said COMMAND...: what a command that fails says
said() { { "$@" >/dev/null && echo "it succeeded" >&2; } 2>&1; }
# define NAME LINE...: writes a definition
define() { printf '%s\n' "${@:2}" >$definitions/"$1".conf; }
reload() { kill -HUP $service; }
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
gone() { [ -z "$(field "$1" state)" ]; }
begins() { begin --conf-dir $definitions; }

same "without a service it says so" \
	"peerdma: cannot connect to peerdma-viewd by $socket: No such file or directory (ENOENT). Start it on the storage node: systemctl start peerdma-viewd." \
	"$(said view ls)"
image make /mnt/data/a 300001 17 1
image make /mnt/data/b 99999 17 2
begins
check "published" view publish tokens /mnt/data/a /mnt/data/b --codec u32 --wait
device=$(field tokens device)
check "each element is there" image compare "$device" /mnt/data/a /mnt/data/b
check "by its own checksums too" peerdma view info "$device" --verify
check "the command reads it" peerdma view read "$device" --output /mnt/data/whole
check "each element as it is in the files" cmp /mnt/data/whole <(cat /mnt/data/a /mnt/data/b)
check "and a part of it" cmp <(peerdma view read "$device" --first 300000 --count 1000) <(tail -c +1200001 /mnt/data/whole | head -c 4000)
check "a plan" view plan tokens --ranges <(seq -f '%.0f 1000' 0 1000 399000)
same "is followed" "400 400" "$(cat "$device" >/dev/null; blockdev --flushbufs "$device"; field tokens plan_position plan_ranges | paste -sd' ')"
same "one that goes beyond the view" "peerdma: tokens: range 0 of the plan: 2 elements from 399999 on; the view has 400000" \
	"$(said view plan tokens --ranges <(echo 399999 2))"
same "it is listed" "tokens published u32:17 400000 $device - command" "$(view ls | tail -n 1 | tr -s ' ')"
same "a value that does not fit" 1 "$(view publish narrow /mnt/data/a --codec u32:u16 --wait >/dev/null 2>/run/said; echo $?)"
check "is named" grep -q '^peerdma: narrow: not published: /mnt/data/a: element [0-9]* is [0-9]*, which does not fit into u32:u16' /run/said
check "withdrawn" view withdraw narrow
same "a name that is taken" "peerdma: tokens: there is such a view already; withdraw it first" "$(said view publish tokens /mnt/data/a)"
same "nobody but root may publish" "peerdma: permission denied: only root may publish and withdraw views" \
	"$(said nobody "$LAB_BUILD/bin/peerdma" view withdraw tokens --socket $socket)"
same "nor publish" "peerdma: permission denied: only root may publish and withdraw views" \
	"$(said nobody "$LAB_BUILD/bin/peerdma" view publish other /mnt/data/a --socket $socket)"
same "nor read a view's device" "head: cannot open '$device' for reading: Permission denied" \
	"$(said nobody head -c 1 "$device")"
check "anybody may look" nobody "$LAB_BUILD/bin/peerdma" view status --socket $socket

# Headers that are wrong, in a file and on a device: at each 8 bytes, and cut.
cp "$device" /mnt/data/image
check "a copy of a view is one" peerdma view info /mnt/data/image --verify
# wrong_at OFFSET: the copy with other bytes there
wrong_at() {
	cp "$device" /mnt/data/image
	printf '\377\376\375\374\373\372\371\370' | dd of=/mnt/data/image bs=1 seek="$1" conv=notrunc status=none
}
is_refused() { ! peerdma view info "$1" >/run/said 2>&1 && grep -q "header" /run/said && ! peerdma view read "$1" >/dev/null 2>&1; }
taken=''
for ((at = 8; at < 128; at += 8)); do
	wrong_at $at
	is_refused /mnt/data/image || taken+="wrong at byte $at: $(cat /run/said)"$'\n'
done
same "headers that are wrong are refused" '' "$taken"
taken=''
# One byte short of the header, and of the data: 400000 elements of 17 bits, behind which the device has zeros.
for size in 4095 $((4096 + 400000 * 17 / 8 - 1)); do
	cp "$device" /mnt/data/image
	truncate -s $size /mnt/data/image
	is_refused /mnt/data/image || taken+="cut to $size bytes: $(cat /run/said)"$'\n'
done
same "so are images that are cut" '' "$taken"
wrong_at 40
modprobe -d "$LAB_KERNEL" loop
wrong=$(losetup -f --show /mnt/data/image)
check "so is one of a device" is_refused "$wrong"
losetup -d "$wrong"

printf x | dd of=/mnt/data/b bs=1 seek=1000 conv=notrunc status=none
blockdev --flushbufs "$device"
check "a changed file fails its reads" fails dd if="$device" of=/dev/null bs=64k iflag=direct status=none
check "which is named" eval "view status tokens | grep -q 'last fault   /mnt/data/b: changed after it was published'"
check "with its place" eval "view status tokens | grep -q 'at           /mnt/data/b, element 0$'"
check "as stale" eval "view status tokens | grep -q 'stale        yes'"
case $(said peerdma view info "$device" --verify) in
"peerdma: $device: chunk 0 (bytes 4096 to 854095; elements 0 to 399999, from /mnt/data/a, element 0 on) cannot be read"*) ok "and at its place" ;;
*) not_ok "and at its place"; diag "$(said peerdma view info "$device" --verify)" ;;
esac
case $(said peerdma view read "$device" --output /mnt/data/part) in
"peerdma: $device: cannot read elements "*" to 399999: "*" On the storage node, peerdma view status says why.") ok "the command, too, and says where to look" ;;
*) not_ok "the command, too, and says where to look"; diag "$(said peerdma view read "$device" --output /mnt/data/part)" ;;
esac
check "and leaves no part of it" fails test -e /mnt/data/part
exec 9<"$device"
check "withdrawn while somebody has it open" timeout 20 "$LAB_BUILD/bin/peerdma" view withdraw tokens --socket $socket
check "its device is gone" fails test -b "$device"
same "the service answers" "no view is published" "$(view ls)"
exec 9<&-

# A user who may write a directory of a pattern.
mkdir /mnt/data/theirs /mnt/data/secret
cp /mnt/data/a /mnt/data/secret/a
cp /mnt/data/a /mnt/data/theirs/a
ln -s /mnt/data/secret/a /mnt/data/theirs/b
chown -h 65534 /mnt/data/theirs{,/a,/b}
same "another's link to a file that is not his" 1 "$(view publish linked '/mnt/data/theirs/b' --wait >/dev/null 2>/run/said; echo $?)"
check "is named" grep -q "/mnt/data/theirs/b: a symbolic link in the path is owned by neither root nor the file's owner" /run/said
check "withdrawn" view withdraw linked

define good 'file = /mnt/data/a' 'codec = u32'
define bad 'file = /mnt/data/a' 'codec = u33'
head -c 3000 /dev/urandom >$definitions/random.conf
head -c 1000000 /dev/zero >$definitions/huge.conf
mkdir $definitions/folder.conf
ln -s loop.conf $definitions/loop.conf
define 'bad name' 'file = /mnt/data/a' 'codec = u32'
reload
published "a definition is published" good
same "with where it comes from" "$definitions/good.conf" "$(field good origin)"
same "another has failed, with its line" \
	"$definitions/bad.conf:2: codec = u33: unknown; for example u32, u32:u16, u32:17, i64:18, f32:bf16, byte:none" "$(field bad error)"
view status >/run/status
for name in random huge folder loop 'bad name'; do
	check "so has $name, which names its file" grep -qF "error        $definitions/$name.conf:" /run/status
done
same "what is defined is not withdrawn by command" "peerdma: good: defined by $definitions/good.conf; remove that file and reload peerdma-viewd" \
	"$(said view withdraw good)"
view publish theirs /mnt/data/a --codec u32 --wait >/dev/null
define theirs 'file = /mnt/data/a' 'codec = u32:u24'
define good 'file = /mnt/data/a' 'codec = u32:u24'
reload
check "a definition that has changed" soon 20 is good codec u32:u24
same "a name of both stays as it was" u32:17 "$(field theirs codec)"
same "with the reason" "$definitions/theirs.conf: theirs was published by command; withdraw it, then reload peerdma-viewd" \
	"$(field theirs conf_error)"
device=$(field good device)
define good 'nonsense'
reload
check "a definition that is spoiled" soon 20 is good conf_error "$definitions/good.conf:1: expected key = value"
check "leaves its view as it was" image compare "$device" /mnt/data/a

# While there is no service: a definition goes, a file changes, and both have readers that wait.
view withdraw theirs >/dev/null
rm -r "${definitions:?}"/*
image make /mnt/data/b 99999 17 2
define gone 'file = /mnt/data/a' 'codec = u32'
define changed 'file = /mnt/data/b' 'codec = u32'
reload
published "two more" gone
published "are published" changed
check "the others are not there any more" soon 20 gone good
first=$(field gone device) second=$(field changed device)
blockdev --flushbufs "$first" "$second"
kill -KILL $service
wait $service 2>/dev/null
dd if="$first" of=/dev/null bs=64k iflag=direct status=none 2>/dev/null &
early=$!
dd if="$second" of=/dev/null bs=64k iflag=direct status=none 2>/dev/null &
late=$!
soon 20 waits $early $late || not_ok "both wait"
rm $definitions/gone.conf
image make /mnt/data/b 50000 17 3
begins
published "the service comes back" changed
wait $early
same "a read of what is gone fails" 1 $?
wait $late
same "so does one of what has changed" 1 $?
second=$(field changed device)
check "which has another device" image compare "$second" /mnt/data/b
# Whose number may be that of the first.
check "and nothing is left of the first" soon 10 eval '[ "$first" = "$second" ] || ! test -b "$first"'

ends "it ends"
check "the driver is free" rmmod ublk_drv
plan $tap_n
