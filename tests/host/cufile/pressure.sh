#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: check
#
# Runs tests/gpu/pressure.cpp, written for a real GPU, with the stand-in CUDA driver: I/O in streams while the program
# frees memory.
exec "$(dirname "$0")/../../gpu/stand_in.sh" pressure
