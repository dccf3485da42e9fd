// SPDX-License-Identifier: MIT
//
// How the command talks to peerdma-viewd: by a unix socket. A connection carries one request and its answer, both JSON in UTF-8. The
// client ends its request by shutting down its side.
//
//   {"op": "publish", "name": NAME, "conf": TEXT}     {}
//   {"op": "withdraw", "name": NAME}                  {}
//   {"op": "plan", "name": NAME,
//    "ranges": [[FIRST, COUNT], ...]}                 {}
//   {"op": "status"}                                  {"views": [...], "cache": {...}, "conf_dir": PATH or null, "conf_error": TEXT}
//   what is refused                                   {"error": TEXT}
//
// A view of the status has "name"; "state": "scanning", "published", "failed" or "ending", that is withdrawn but read still; "origin": "command" or the path of its definition;
// "hosts"; where it holds "error": why it failed or has not ended, "conf_error": why its definition is not followed, "scanned": 0 to 1; and once it is
// published "device", "nqn", "codec", "elements", "files", "bytes", "reads", "bytes_read", "failed_reads", "stale", "changed", the number of
// files that were seen to have changed, with "changed_files", the names of the first 16 of them, "last_fault" with
// "fault_file" and "fault_element", "note", "restarts" of decompression, "plan_ranges", "plan_position".
//
// A plan is the ranges of elements that will be read, in this order; FIRST counts from 0. The service reads them ahead, within the
// share of the memory that a stream has, as the reads go on. The next plan of the view replaces it, [] or the view's withdrawal ends
// it. It has at most 1,048,576 ranges, and takes 16 bytes for each.
//
// Anybody may ask for the status; root and the service's own user may publish, withdraw and plan. Their requests have at most 48 MiB, those
// of others 4 KiB, and all of one must be there within 10 s.
#pragma once

#include <cstddef>

namespace view
{

inline constexpr const char *default_socket = "/run/peerdma/viewd.sock";
inline constexpr const char *default_conf_dir = "/etc/peerdma/views.d";
// The most bytes of a request of a peer that may change something; of any other peer, small so that parsing it costs little; and of a
// request to publish.
inline constexpr size_t max_change = 48 << 20, max_question = 4096, max_request = 1 << 20;
inline constexpr size_t max_planned_ranges = 1 << 20; // of a plan

} // namespace view
