// SPDX-License-Identifier: MIT
//
// Tells the service manager how far this service is: sd_notify(3)'s protocol, a datagram to the socket that $NOTIFY_SOCKET names.
#pragma once

#include <string>

namespace viewd
{

// Returns whether it was sent: false without a service manager, too.
bool notify(const std::string &state);
// The state of a service that reads its configuration anew; "READY=1" ends it.
std::string reloading();

} // namespace viewd
