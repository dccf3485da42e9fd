// SPDX-License-Identifier: MIT
// What the stand-in for the CUDA driver offers to tests beyond the driver's own calls.
//
// It is a test fixture: a libcuda.so.1 that has no GPU. Where the module has published memory, each provider is a
// device, and device memory is buffers of libpeerdma's there (the CPU sees them, which a real GPU's it does not). Where
// there is no module, it is two devices of host memory, which neither the CPU nor system calls can touch. With
// SOFTGPU_STAND=ADDRESS the first device is that PCI function, and its memory its own driver's: tests/kmod/nvstand.c, which
// libpeerdma can register it by, or tests/kmod/expstand.c, by which there are dma-bufs of it.
#pragma once

#include <cstddef>

extern "C" {

// Device memory of a device (0 or 1). fake_peek() is where the test sees its bytes. kind: 0 plain, 1 managed (the CPU may
// touch it), 2 without a context (of a pool, or mapped in pieces).
void *fake_alloc(size_t size, int device, int kind);
void fake_free(void *memory);
char *fake_peek(void *memory);

// The next call of this name, after so many that go well, fails with this CUresult. Without a name: no call fails any more.
void fake_fail(const char *name, int after, int result);
// What was done that a real driver forbids or that would give wrong results: calls from a host function, streams of
// another context.
int fake_wrongs(void);
// Streams, events and pinned allocations that exist.
int fake_live(void);
// cuInit() was called, or not. Without the module it was, from the beginning.
void fake_initialized(int yes);

void *fake_stream(int device);
void fake_stream_destroy(void *stream);
void fake_sync(void *stream); // nullptr: the default stream
// Host functions of a captured stream are kept and run by each launch; the end drops what the graph owns.
void fake_capture(void *stream);
void fake_launch_graph(void *stream);
void fake_end_graph(void *stream);
void fake_set_current(int device); // the calling thread's context; -1: none
}
