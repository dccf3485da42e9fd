// SPDX-License-Identifier: MIT
//
// The client's side of the protocol of peerdma-viewd (view/protocol.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/cli.hpp"
#include "view/protocol.hpp"

namespace cli
{

// The answer to a request. Throws Failure if there is no service, if it refuses the request, or if its answer is none.
Json ask_service(const std::string &socket, const Json &request);

// Elements that will be read. A plan is a list of them in the order of the reads.
struct PlannedRange {
	uint64_t first, count;
};
using view::max_planned_ranges;

// Hands the service a plan for a view; an empty one ends the view's plan. Ranges do not become JSON values here: those take
// ten times as much memory. Throws Failure as ask_service().
void send_plan(const std::string &socket, const std::string &name, const std::vector<PlannedRange> &ranges);

// A member of an answer, if it has this type, else the value that stands for none.
std::string text_of(const Json &from, const char *key);
uint64_t number_of(const Json &from, const char *key);
double fraction_of(const Json &from, const char *key);
bool flag_of(const Json &from, const char *key);

// The views of a status by name, each an object with a name. Throws Failure.
std::vector<Json> views_of(const Json &status);
// One of them; null if it is not there.
Json find_view(const Json &status, const std::string &name);

} // namespace cli
