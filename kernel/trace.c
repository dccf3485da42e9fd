// SPDX-License-Identifier: GPL-2.0
/* The tracepoints' own code, which must be compiled once. */
#define CREATE_TRACE_POINTS
#include "trace.h"
