# SPDX-License-Identifier: MIT
# Verbs only: what each does is in the folder it names.
#   K=7.2|6.12  guest kernel     DEBUG=1  its debug build (kcsan: its race detector)    FILE=/host/file
#   T=switch|rp|rp-vtd|rp-intel|mf-vtd|cmb|disks|sata|paths|far|bounce|edu|edu-vtd  topology (demo: not edu, edu-vtd; bounce, far, rp-intel: the read is refused)
#   GROUP=host|meta|io|route|input|lifetime|limits|proxy|cli|seeing|fail|fuzz|perf|rdma|cufile  tests
#   SECONDS=60 SEED=1 FAST=1 PROGRAM=/file  of make fuzz (FAST: without kmemleak and object debugging)
#   KSRC=/path  your own kernel tree     ACCEL=tcg|kvm     V=1  show the commands
export K DEBUG T GROUP BASELINE OPS SEED N EVENTS PROGRAM FAST NAME FILE KSRC ACCEL V
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
.PHONY: help demo demo-rdma bench check soak soak-revoke fuzz fuzz-user mutants coverage lint docs module lib tools verbs install uninstall deb deb-check cache cache-clean clean

demo: ## move a real file from an emulated NVMe drive into an emulated GPU's memory and prove it (FILE=, K=, T=)
	$(Q)scripts/demo.sh

demo-rdma: ## two guests: a file of the one's drives into the other's GPU, by NVMe and NFS over RDMA, and back, proven (FILE=, K=)
	$(Q)scripts/demo.sh rdma

bench: ## count instructions per operation in an emulated guest: ratios, not times (K=, ONLY=near|far, BASELINE=1 keeps them)
	$(Q)scripts/bench.sh

check: ## every test: host, lab, guests on both kernels and a debug kernel (K=, DEBUG=, T=, GROUP=)
	$(Q)scripts/check.sh

soak: ## many random operations, every byte compared by the host (K=, DEBUG=, OPS=200000, SEED=1)
	$(Q)scripts/soak.sh

soak-revoke: ## everything that can happen to a buffer, in each of its states, N times (K=, DEBUG=, N=200, EVENTS=all)
	$(Q)scripts/soak.sh revoke

# A shell counts in SECONDS itself.
fuzz: ## random calls to the module in a guest, guided by KCOV (SECONDS=60, SEED=1, K=, FAST=1, DEBUG=0 is blind, PROGRAM= replays)
	$(Q)FUZZ_SECONDS="$(SECONDS)" scripts/fuzz.sh

fuzz-user: ## random input to each parser of the user side, under the sanitizers (SECONDS=60 in all)
	$(Q)FUZZ_SECONDS="$(SECONDS)" scripts/fuzz-user.sh

mutants: ## break the module in one place after another: the test that is meant for it must notice (K=, NAME="limit-*")
	$(Q)scripts/mutants.sh

coverage: ## which lines and branches of kernel/ the guest tests run (K=, T=, GROUP=, JSON=/file)
	$(Q)scripts/coverage.sh $(if $(JSON),--json "$(abspath $(JSON))")

lint: ## style and static analysis of everything
	$(Q)scripts/lint.sh

docs: ## the documentation as HTML, in build/docs, its links checked
	$(Q)scripts/docs.sh

module: ## peerdma.ko for one kernel (KDIR=/lib/modules/.../build, or a folder of the lab's cache; W=1: a warning is a failure)
	$(Q)scripts/module.sh "$(KDIR)"

lib tools verbs: ## libpeerdma and libcufile.so.0; the peerdma command; libpeerdma-verbs, which wants libibverbs-dev
	$(Q)$(MAKE) --no-print-directory -C user $@ BUILD=$(BUILD)

install: lib tools ## libraries (libcufile.so.0 too), command, headers and man pages (PREFIX=, DESTDIR=)
	$(Q)$(MAKE) --no-print-directory -C user install BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR)))

uninstall: ## what install has put there (PREFIX=, DESTDIR=)
	$(Q)$(MAKE) --no-print-directory -C user uninstall BUILD=$(BUILD) PREFIX=$(PREFIX) DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR)))

deb: ## Debian packages, in build/deb: the module for DKMS, libraries, command
	$(Q)scripts/deb.sh

deb-check: deb ## the packages in clean Debian systems: DKMS on 6.1, 6.12, 7.2 and the newest, outside programs, removal (as root)
	$(Q)tests/packages.sh

cache: ## what the lab's cache holds, with sizes
	$(Q)qemu/kernel.sh list

cache-clean: ## empty the lab's cache
	$(Q)qemu/kernel.sh clean

clean: ## remove the build folder
	$(Q)rm -rf "$(BUILD)"

help: ## this list
	@sed -n 's/^\([a-z][a-z -]*\):.*## /\1\t/p' Makefile | awk -F'\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'
	@echo
	@sed -n 's/^#   /  /p' Makefile
