#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make lint: style and static analysis. Each line of output is one tool on one part. All of them run, and any failure
# makes the whole fail. The kernel's own tools come with the lab's kernel. TIDY_NODES=N limits clang-tidy to N nodes of paths through
# each function (default: 225000): at 40000 it takes 40 % of the time.
set -uo pipefail
. "$(dirname "$0")/common.sh"

cd "$PEERDMA_ROOT" || exit 1
mapfile -t all_files < <(git ls-files -co --exclude-standard)
[ ${#all_files[@]} -gt 0 ] || die "git ls-files lists no file in $PEERDMA_ROOT: run make lint in a clone that git trusts"
scripts/setup.sh lint || exit 1
kernel=$(qemu/kernel.sh path "$(newest_kernel)") || exit 1
old_kernel=$(qemu/kernel.sh path "$(oldest_kernel)") || exit 1
logs=$PEERDMA_BUILD/lint
mkdir -p "$logs"
failed=0

# lint NAME COMMAND...: runs it and shows its output only after a failure.
lint() {
	local name=$1 log start=$SECONDS TIMEFORMAT='%0U %0S' user system
	log=$logs/${name//[ \/]/-}.log
	shift
	if { time "$@" >"$log" 2>&1; } 2>"$logs/time"; then
		read -r user system <"$logs/time"
		printf '  ok    %s (%d s, CPU time %d s)\n' "$name" $((SECONDS - start)) $((user + system))
	else
		printf '  FAIL  %s\n' "$name"
		sed 's/^/        /' "$log"
		failed=1
	fi
}

mapfile -t kernel_files < <(git ls-files -co --exclude-standard 'kernel/*.[ch]' 'tests/kmod/*.[ch]' 'include/uapi/*.h')
mapfile -t cpp_files < <(git ls-files -co --exclude-standard '*.cpp' '*.hpp' include/peerdma.h include/cufile.h include/peerdma_cufile.h include/peerdma_verbs.h qemu/init.c)
mapfile -t shell_files < <(git ls-files -co --exclude-standard '*.sh' .ci/run)
mapfile -t python_files < <(git ls-files -co --exclude-standard '*.py')

kernel_format() {
	kernel_style "$kernel" >"$logs/clang-format"
	clang-format --style="file:$logs/clang-format" --dry-run --Werror "${kernel_files[@]}"
}

checkpatch() {
	local ignore=(
		PREFER_KERNEL_TYPES # headers of base/ and op.h are compiled on the host as well
		ARRAY_SIZE          # likewise op.c
		MACRO_ARG_REUSE     # op.c: the arguments are names of types and members
		MACRO_ARG_UNUSED    # compat: an older kernel has no use for the argument
		FILE_PATH_CHANGES   # about patches, not files
		LINUX_VERSION_CODE  # the rule is enforced below, with compat/ left out
	)
	# TRACE_EVENT has a layout of its own, in the kernel too.
	local trace_ignore=("${ignore[@]}" OPEN_ENDED_LINE PARENTHESIS_ALIGNMENT LONG_LINE_STRING) file rest=()
	for file in "${kernel_files[@]}"; do [ "$file" = kernel/trace.h ] || rest+=("$file"); done
	local -a run=("$kernel/build/scripts/checkpatch.pl" --no-tree --strict --show-types --max-line-length=100 --terse -f)
	"${run[@]}" --ignore "$(IFS=,; echo "${ignore[*]}")" "${rest[@]}" &&
		"${run[@]}" --ignore "$(IFS=,; echo "${trace_ignore[*]}")" kernel/trace.h
}

no_version_tests() { ! grep -rnE 'LINUX_VERSION_CODE|KERNEL_VERSION' kernel; }

# sparse 0.6.4 cannot read 7.2's headers: use 6.12. Its warnings about the kernel's own headers are ignored.
run_sparse() {
	local out=$logs/sparse
	rm -rf "$out" && mkdir -p "$out/include" && cp -r kernel "$out/" && cp -r include/uapi "$out/include/"
	make -C "$old_kernel/build" M="$out/kernel" C=2 CF=-Wbitwise modules >"$out/log" 2>&1 || { cat "$out/log"; return 1; }
	! grep -E "^$out/kernel/.*(warning|error):" "$out/log"
}

modules_everywhere() {
	local headers
	scripts/module.sh "$kernel" && scripts/module.sh "$old_kernel" || return 1
	headers=$(find /usr/src -maxdepth 1 -name 'linux-headers-6.1.*-amd64' | sort -V | tail -n 1)
	[ -n "$headers" ] || { echo "no 6.1 headers on this machine"; return 1; }
	W=1 scripts/module.sh "$headers"
}

layers() {
	local module
	for module in "$kernel" "$old_kernel"; do
		scripts/layers.py "$(dirname "$(scripts/module.sh "$module")")/src/kernel" || return 1
	done
}

# The kernel's checker of these comments; 7.2's is not part of its build tree. It does not know comments beside
# enumerators, which make docs checks.
kernel_doc() {
	local -a kernel_docs
	mapfile -t kernel_docs < <(git ls-files -co --exclude-standard 'kernel/*.[ch]' 'include/uapi/*.h')
	! "$old_kernel/build/scripts/kernel-doc" -none -Wall "${kernel_docs[@]}" 2>&1 | grep -v "Enum value '.*' not described"
}

man_pages() {
	local pages=$logs/man
	scripts/manpages.py "$pages" && mandoc -T lint -W warning "$pages"/*.[1-8] scripts/debian/*.1
}

# Skips a file whose preprocessed text, with comments, has passed before by the same options and version.
tidied=$PEERDMA_CACHE/tidy
tidy() {
	mkdir -p "$tidied"
	find "$tidied" -type f -mtime +30 -delete
	# shellcheck disable=SC2016 # expanded by the inner shell
	printf '%s\0' "$@" | passed=$tidied version="$(clang-tidy --version && clang-tidy --dump-config)" \
		options="--quiet --warnings-as-errors=*" analyzer="-Xclang -analyzer-config -Xclang max-nodes=${TIDY_NODES:-225000}" \
		flags="-std=c++20 -D_GNU_SOURCE -Iinclude -Iuser $(pkg-config --cflags-only-I libtracefs)" xargs -0 -n 1 -P "$(nproc)" bash -c '
		set -fo pipefail
		name=$({ echo "$version $options $flags $analyzer $1" && clang++ -E -C $flags "$1"; } | sha256sum | cut -c1-40) || exit
		[ ! -e "$passed/$name" ] || exec touch "$passed/$name"
		clang-tidy $options "$1" -- $flags $analyzer && touch "$passed/$name"' tidy
}
# A warning must fail: by default it does not.
tidy_fails() {
	echo 'int at(int i) { int *p = nullptr; return i ? *p : 0; }' >"$logs/fault.cpp"
	! tidy "$logs/fault.cpp" >"$logs/fault.log" 2>&1 && grep 'error: Dereference of null pointer' "$logs/fault.log"
}
mapfile -t tidy_files < <(git ls-files -co --exclude-standard 'user/*.cpp')

lint "kernel: clang-format" kernel_format
lint "kernel: checkpatch" checkpatch
lint "kernel: no version tests outside compat" no_version_tests
lint "kernel: W=1 on the newest and the oldest kernel, and the 6.1 headers" modules_everywhere
lint "kernel: layers" layers
lint "kernel: sparse on $(oldest_kernel)" run_sparse
lint "kernel: kernel-doc" kernel_doc
lint "user: clang-format" clang-format --dry-run --Werror "${cpp_files[@]}"
lint "user: clang-tidy of a fault" tidy_fails
lint "user: clang-tidy" tidy "${tidy_files[@]}"
lint "user: cppcheck" cppcheck -j "$(nproc)" --quiet --std=c++20 --language=c++ --error-exitcode=1 --inline-suppr \
	--enable=warning,performance,portability -Iinclude user tests/tools tests/guest tests/perf tests/power tests/fuzz
lint "user: includes" scripts/includes.py
lint "shell: shellcheck" shellcheck -S warning -x -P SCRIPTDIR "${shell_files[@]}"
lint "python: pyflakes" pyflakes3 "${python_files[@]}"
lint "all: codespell" codespell -L "$CODESPELL_KNOWS" "${all_files[@]}"
lint "all: SPDX" scripts/spdx.sh "${all_files[@]}"
lint "man: mandoc" man_pages
lint "lib: ABI" scripts/abi.sh
lint "arm64: peerdma-viewd and its unit tests" scripts/arm64.sh
exit $failed
