#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# .ci/run with stand-ins for what it calls: a failure does not end it, its status is not 0 then, and the last lines are those of
# check-all that say what failed.
. "$(dirname "$0")/../tap.sh"
temporary
unset MAKEFLAGS MAKELEVEL KSRC ACCEL PEERDMA_BUILD
export PATH=$tmp/bin:$PATH PEERDMA_CACHE=$tmp/cache

mkdir -p "$tmp"/{.ci,bin,scripts,qemu}
cp "$root/.ci/run" "$tmp/.ci/"
cp "$root/scripts/common.sh" "$tmp/scripts/"
cp "$root/qemu/kernels.tbl" "$tmp/qemu/"
# stand_in FILE LINE...
stand_in() {
	printf '%s\n' '#!/bin/bash' "${@:2}" >"$tmp/$1"
	chmod +x "$tmp/$1"
}
stand_in bin/sleep 'exec /bin/sleep 0.05'
stand_in scripts/setup.sh :
stand_in scripts/user.sh :
stand_in scripts/fio.sh "! [[ \$FAILING = *fio* ]]"
stand_in qemu/kernel.sh :
# What make check-all prints, by its own code.
cat >"$tmp/check.py" <<END
import os, sys
sys.path[:0] = ["$root/tests"]
import run
report = run.Report()
report.add("host", "early", "a test", "failed" if "check-all" in os.environ["FAILING"].split() else "passed")
report.add("host", "late", "a test", "passed")
report.times += [run.Took("host", name, 1234.5) for name in ("early", "late")]
report.step("done")
sys.exit(report.close(show_times=True))
END
cat >"$tmp/Makefile" <<END
docs demo demo-rdma lint:
	@echo "\$@ was run"
	@case " \$(FAILING) " in *" \$@ "*) exit 1 ;; esac
check-all:
	@python3 $tmp/check.py
END

# ends STATUS FAILING LAST...: its status if these fail, and its last lines, in front of which is the CPU time
ends() {
	local status=0
	FAILING=$2 "$tmp/.ci/run" >"$tmp/out" 2>&1 || status=$?
	cat "$tmp/out"
	[ "$status" = "$1" ] && diff <(sed '1,/^CPU time/d' "$tmp/out") <(printf '%s\n' "${@:3}") &&
		grep -q 'demo-rdma was run' "$tmp/out" && grep -q 'lint was run' "$tmp/out"
}
check "all is well" ends 0 "" "2 passed, 0 failed, 0 skipped"
for target in docs demo-rdma lint; do
	check "make $target fails" ends 1 $target "FAIL make $target" "2 passed, 0 failed, 0 skipped"
done
mapfile -t demos < <(. "$root/scripts/common.sh" && kernels | sed 's/^/FAIL make demo K=/')
check "the demos fail, on each kernel" ends 1 demo "${demos[@]}" "2 passed, 0 failed, 0 skipped"
check "fio does not build" ends 1 fio "FAIL scripts/fio.sh" "2 passed, 0 failed, 0 skipped"
check "check-all fails, and so does lint" ends 1 "check-all lint" "FAIL make check-all" "FAIL make lint" "FAIL host early: a test" \
	"To repeat what failed:" "  make check GROUP=host TEST=early" "1 passed, 1 failed, 0 skipped"
finish
