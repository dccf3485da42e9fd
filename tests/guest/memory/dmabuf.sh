#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Exports parts of buffers as dma-bufs. Another device's DMA engine reads and writes them until they are revoked:
# dmabuf.cpp.
# group: rdma
# topologies: edu edu-vtd
# long: debug
# timeout: 120
# coverage: gcov debug
. "$LAB_ROOT/tests/guest/lib.sh"

publish
# Pieces of 64 KiB, so that a mapping has several.
insmod "$(dirname "$LAB_MODULE")/kmod/edu.ko" segment=65536 || bail "edu.ko"
dmabuf "$(gpu_bdf)"
status=$?
rmmod edu
exit $status
