// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "tools/trace/transfer_audit.hpp"

struct tep_handle;
struct tracefs_instance;

namespace cli
{

// Records the events that an audit needs, in a trace instance of its own, so that other tracing is not disturbed. All
// functions throw a Failure. Source: libtracefs, which reads the kernel's buffers without turning events into text.
class TraceReader
{
public:
	// name: of the instance, in tracefs.
	explicit TraceReader(const std::string &name);
	~TraceReader();
	TraceReader(const TraceReader &) = delete;
	TraceReader &operator=(const TraceReader &) = delete;

	// Records from now on.
	void start();
	// Tells the audit what was recorded since the last call. False if that is nothing.
	bool read(TransferAudit &audit);

private:
	class Events;

	void set(const std::string &file, const char *value);

	const std::string name_;
	tracefs_instance *instance_;
	tep_handle *formats_ = nullptr;
	std::unique_ptr<Events> events_;
};

} // namespace cli
