// SPDX-License-Identifier: MIT
//
// How the command talks to peerdma-viewd: by a unix socket. A connection carries one request and its answer, both JSON in UTF-8. The
// client ends its request by shutting down its side.
//
//   {"op": "publish", "name": NAME, "conf": TEXT}     {}
//   {"op": "withdraw", "name": NAME}                  {}
//   {"op": "status"}                                  {"views": [...], "cache": {...}, "conf_dir": PATH or null, "conf_error": TEXT}
//   what is refused                                   {"error": TEXT}
//
// A view of the status has "name"; "state": "scanning", "published" or "failed"; "origin": "command" or the path of its definition;
// "hosts"; where it holds "error": why it failed, "conf_error": why its definition is not followed, "scanned": 0 to 1; and once it is
// published "device", "nqn", "codec", "elements", "files", "bytes", "reads", "bytes_read", "failed_reads", "stale", "last_fault".
//
// Anybody may ask for the status; root and the service's own user may publish and withdraw.
#pragma once

#include <cstddef>

namespace view
{

inline constexpr const char *default_socket = "/run/peerdma/viewd.sock";
inline constexpr const char *default_conf_dir = "/etc/peerdma/views.d";
inline constexpr size_t max_request = 1 << 20; // bytes

} // namespace view
