#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh bzImage [SECONDS]: boots that kernel (CONFIG_PROVE_LOCKING, CONFIG_HOTPLUG_PCI_PCIE) in QEMU with nothing but a
# device below a port that can hot-plug, has QEMU take the device after so many seconds, and shows what lockdep says.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '#include <unistd.h>\nint main(void) { for (;;) pause(); }\n' >"$dir/init.c"
cc -static -o "$dir/init" "$dir/init.c"
(cd "$dir" && echo init | cpio -o -H newc >initrd 2>/dev/null)
{ sleep "${2:-60}"; echo 'device_del rng0'; sleep 20; echo quit; } |
	qemu-system-x86_64 -M q35 -global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off -m 1024 \
		-kernel "$1" -initrd "$dir/initrd" -append console=ttyS0 -serial "file:$dir/log" -display none \
		-monitor stdio -device pcie-root-port,id=rp0,chassis=1,slot=1 \
		-device virtio-rng-pci,id=rng0,bus=rp0 >/dev/null
grep -A 60 'possible circular' "$dir/log" || { tail -n 5 "$dir/log"; echo "lockdep found nothing"; exit 1; }
