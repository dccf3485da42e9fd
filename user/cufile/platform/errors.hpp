// SPDX-License-Identifier: MIT
//
// Errors inside the library: a CUfileError_t, or a negative errno or CUfileOpError.
#pragma once

#include <cerrno>
#include <cstdint>

#include "cufile.h"

namespace cufile
{

inline CUfileError_t error(CUfileOpError code, CUresult cuda = CUDA_SUCCESS) { return {code, cuda}; }
inline CUfileError_t success() { return error(CU_FILE_SUCCESS); }

constexpr int64_t failed(CUfileOpError error) { return -static_cast<int64_t>(error); }

// The GPU has failed, or was given an address that it does not have.
constexpr int64_t copy_failed = -EIO;

} // namespace cufile
