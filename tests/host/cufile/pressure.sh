#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# tests/gpu/pressure.cpp, which is meant for a real GPU, with the stand-in for the CUDA driver: I/O in
# streams while the program frees memory.
exec "$(dirname "$0")/../../gpu/stand_in.sh" pressure
