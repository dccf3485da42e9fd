// SPDX-License-Identifier: MIT
// Test interface of the stand-in for the CUDA driver, beyond the driver's own calls.
//
// The stand-in is a test fixture: a libcuda.so.1 without a GPU. If the module has published memory, each provider is a
// device, and device memory is a buffer of libpeerdma. The CPU can access it, unlike a real GPU's. Without the module
// there are two devices of host memory, which neither the CPU nor system calls can access. With SOFTGPU_STAND=ADDRESS
// the first device is that PCI function, with memory of its own driver: tests/kmod/nvstand.c, through which libpeerdma
// can register it, or tests/kmod/expstand.c, which exports dma-bufs of it.
#pragma once

#include <cstddef>

extern "C" {

// Allocates memory of a device (0 or 1). fake_peek() returns the address where the test can access its bytes. kind: 0
// plain, 1 managed (accessible by the CPU), 2 without a context (from a pool, or mapped in pieces).
void *fake_alloc(size_t size, int device, int kind);
void fake_free(void *memory);
char *fake_peek(void *memory);

// After `after` successful calls of this name, the next one fails with this CUresult. Without a name: removes all such
// failures.
void fake_fail(const char *name, int after, int result);
// Counts uses that a real driver forbids or that would give wrong results: calls from a host function, streams of
// another context.
int fake_wrongs(void);
// The number of existing streams, events and pinned allocations.
int fake_live(void);
// Pretends that cuInit() was called, or not. Without the module it counts as called from the start.
void fake_initialized(int yes);

void *fake_stream(int device);
void fake_stream_destroy(void *stream);
void fake_sync(void *stream); // nullptr: the default stream
// Captures host functions of the stream, which each launch runs; the end of the capture drops what the graph owns.
void fake_capture(void *stream);
void fake_launch_graph(void *stream);
void fake_end_graph(void *stream);
void fake_set_current(int device); // the calling thread's context; -1: no context
}
