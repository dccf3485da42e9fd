// SPDX-License-Identifier: MIT
//
// Functions that this compiler's headers call and that only a newer libstdc++ exports. Defined here so that the library
// also loads with an older one: a process has one libstdc++, and it may be older. tests/host/lib/exports.sh checks which
// symbols are still needed.
#include <new>

namespace std
{

// GLIBCXX_3.4.29. Called for an array size that is too large.
__attribute__((__noreturn__)) void __throw_bad_array_new_length() { throw std::bad_array_new_length(); }

} // namespace std
