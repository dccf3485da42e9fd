// SPDX-License-Identifier: MIT
// What the fake CUDA driver (fake_cuda.cpp) offers to tests beyond the driver's own calls.
#pragma once

#include <cstddef>

extern "C" {

// Device memory of a device (0 or 1). Its address cannot be touched by the CPU or by system calls, as real device
// memory cannot; fake_peek() is where the test sees its bytes. kind: 0 plain, 1 managed (the CPU may touch it), 2
// without a context (of a pool, or mapped in pieces).
void *fake_alloc(size_t size, int device, int kind);
void fake_free(void *memory);
char *fake_peek(void *memory);

// The next call of this name, after so many that go well, fails with this CUresult.
void fake_fail(const char *name, int after, int result);
// What was done that a real driver forbids or that would give wrong results: calls from a host function, streams of
// another context.
int fake_wrongs(void);
// Streams, events and pinned allocations that exist.
int fake_live(void);
// cuInit() was called, or not.
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
