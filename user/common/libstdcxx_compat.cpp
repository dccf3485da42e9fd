// SPDX-License-Identifier: MIT
//
// What this compiler's headers call and only its own libstdc++ has, so that older ones do: a process has one, and it need not
// be ours. tests/host/lib/exports.sh looks at what is left.
#include <new>

namespace std
{

// GLIBCXX_3.4.29. Of more elements than there can be.
[[noreturn]] void __throw_bad_array_new_length() { throw std::bad_array_new_length(); }

} // namespace std
