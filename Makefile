# SPDX-License-Identifier: MIT
# Targets only; scripts/, qemu/ and tests/ implement them.
#   K=KERNEL  guest kernel     DEBUG=1|kcsan|rt  a build with more checks    FILE=/host/file
#   T=switch|switch-vtd|bridges|rp|rp-vtd|rp-intel|mf-vtd|cmb|disks|sata|paths|far|bounce|edu|edu-vtd|sleep|storage  topology (demo: not edu, edu-vtd, storage; bounce, far, rp-intel: the read is refused)
#   GROUP=host|meta|io|route|input|lifetime|limits|proxy|cli|seeing|fail|fuzz|perf|rdma|cufile|view  tests    TEST=name,name  some of them
#   CHANGED=1   the tests that the changed files can affect     TIMES=1  how long each test took     SHORT=1  check-all without what takes long (2: less still); demo-offload with fewer tokens     LIMIT=seconds  of check-all
#   SECONDS=60 SEED=1 FAST=1 PROGRAM=/file  of make fuzz (FAST: without kmemleak and object debugging)
#   KSRC=/path  your own kernel tree     ACCEL=tcg|kvm     V=1  show the commands
export K DEBUG T GROUP TEST CHANGED BASELINE OPS SEED N EVENTS PROGRAM FAST NAME FILE TOKENS KSRC ACCEL V SHORT LIMIT
ifneq ($(words $(CURDIR)),1)
$(error PeerDMA cannot be built in a folder with a blank in its name: $(CURDIR))
endif
BUILD ?= build
override BUILD := $(abspath $(BUILD))
export PEERDMA_BUILD := $(BUILD)
KDIR ?= /lib/modules/$(shell uname -r)/build
PREFIX ?= /usr/local
Q := $(if $(V),,@)

.DEFAULT_GOAL := help
.PHONY: help format hooks compile_commands.json demo demo-rdma demo-offload bench bench-pack check check-quick check-all soak soak-revoke fuzz fuzz-user mutants coverage lint docs module lib tools verbs viewd install uninstall deb deb-check cache cache-clean clean

#= See it, check it
demo: ## move a real file from an emulated NVMe drive into an emulated GPU's memory and prove it (FILE=, K=, T=)
	$(Q)scripts/demo.sh

demo-rdma: ## two guests: move a file from one's drives to the other's GPU and back, by NVMe and NFS over RDMA; then by an emulated card; and prove it (FILE=, K=)
	$(Q)scripts/demo.sh rdma

demo-offload: ## two guests: tokens of one, reduced to 16 and 18 bits there, into the other's GPU over a limited wire, beside plain reads (TOKENS=, SHORT=1, JSON=/file, K=)
	$(Q)$(if $(JSON),JSON="$(abspath $(JSON))") scripts/demo.sh offload

check: ## the tests that catch nearly everything, or a selection of all tests (K=, DEBUG=, T=, GROUP=, TEST=, CHANGED=1, TIMES=1)
	$(Q)TIER=check scripts/check.sh $(if $(filter-out 0,$(TIMES)),--times)

check-quick: ## most host tests, and one guest (CHANGED=1, TIMES=1)
	$(Q)TIER=quick scripts/check.sh $(if $(filter-out 0,$(TIMES)),--times)

check-all: ## every test: host, lab, guests on each kernel and a debug kernel; CI runs it with SHORT=1 (TIMES=1)
	$(Q)TIER=all scripts/check.sh $(if $(filter-out 0,$(TIMES)),--times)

help: ## this list
	@awk -F':.*## ' '/^#= / { printf "\n%s\n", substr($$0, 4) } /^[a-z][a-z_. -]*:.*## / { printf "  make %-21s %s\n", $$1, $$2 }' Makefile
	@echo
	@sed -n "s/^#   K=KERNEL /  K=$$(awk '$$1 == "kernel" { print $$2 }' qemu/kernels.tbl | paste -sd '|') /p; s/^#   /  /p" Makefile

#= Build and install
module: ## peerdma.ko for one kernel (KDIR=/lib/modules/.../build, or a folder of the lab's cache; W=1: a warning is a failure)
	$(Q)scripts/module.sh "$(KDIR)"

lib tools verbs viewd: ## libpeerdma and libcufile.so.0; the peerdma command; libpeerdma-verbs, which needs libibverbs-dev; peerdma-viewd
	$(Q)$(MAKE) --no-print-directory -C user $@ BUILD=$(BUILD)

install: lib tools viewd ## libraries (libcufile.so.0 too), command, peerdma-viewd, headers and man pages (PREFIX=, DESTDIR=)
	$(Q)$(MAKE) --no-print-directory -C user install BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR)))

uninstall: ## remove installed files (PREFIX=, DESTDIR=)
	$(Q)$(MAKE) --no-print-directory -C user uninstall BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR)))

deb: ## Debian packages, in build/deb: the module for DKMS, libraries, command, service of views
	$(Q)scripts/deb.sh

docs: ## the documentation as HTML, in build/docs, its links checked
	$(Q)scripts/docs.sh

cache: ## list the lab's cache, with sizes
	$(Q)qemu/kernel.sh list

cache-clean: ## empty the lab's cache
	$(Q)qemu/kernel.sh clean

clean: ## remove the build folder
	$(Q)rm -rf "$(BUILD)"

#= Develop
lint: ## style and static analysis of everything
	$(Q)scripts/lint.sh

format: ## format the C and C++ files that differ from the last commit
	$(Q)scripts/format.sh

hooks: ## let git check the format and lint staged files before each commit
	$(Q)scripts/hooks.sh

compile_commands.json: ## the compile commands of user/, tests/ and what Kbuild has built, for clangd
	$(Q)scripts/compile_commands.py $@

bench: ## count instructions per operation in an emulated guest: ratios, not times (K=, ONLY=near|far, BASELINE=1 keeps them)
	$(Q)scripts/bench.sh

bench-pack: ## packing of integers on one core beside memcpy(), in GB/s: run it on an idle machine
	$(Q)scripts/bench-pack.sh

coverage: ## which lines and branches of kernel/ the guest tests run (K=, T=, GROUP=, JSON=/file)
	$(Q)scripts/coverage.sh $(if $(JSON),--json "$(abspath $(JSON))")

mutants: ## break the module in one place after another: the test named for each must fail (K=, NAME="limit-*")
	$(Q)scripts/mutants.sh

# Renamed, because a shell sets SECONDS itself.
fuzz: ## random calls to the module in a guest, guided by KCOV (SECONDS=60, SEED=1, K=, FAST=1, DEBUG=0: no KCOV, PROGRAM= replays)
	$(Q)FUZZ_SECONDS="$(SECONDS)" scripts/fuzz.sh

fuzz-user: ## random input to each user-space parser, with the sanitizers (SECONDS=60 in total)
	$(Q)FUZZ_SECONDS="$(SECONDS)" scripts/fuzz-user.sh

soak: ## many random operations, every byte compared by the host (K=, DEBUG=, OPS=200000, SEED=1)
	$(Q)scripts/soak.sh

soak-revoke: ## each event that can revoke a buffer, in each of its states, N times (K=, DEBUG=, N=200, EVENTS=all)
	$(Q)scripts/soak.sh revoke

deb-check: deb ## the packages in clean Debian systems: DKMS on Debian's 6.1, the lab's kernels and the newest, outside programs, removal (as root)
	$(Q)tests/packages.sh
