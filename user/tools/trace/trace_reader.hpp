// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/system/fd.hpp"
#include "tools/trace/transfer_audit.hpp"

struct kbuffer;
struct tep_handle;
struct tracefs_instance;

namespace cli
{

struct TraceEvent;
class EventFormats;

// Records the events that an audit needs, in a trace instance of its own, so that other tracing is not disturbed. All
// functions throw a Failure. Source: libtraceevent decodes the kernel's buffers; the kernel makes no text of them.
class TraceReader
{
public:
	// tracefs: where it is mounted. name: of the instance.
	TraceReader(peerdma_impl::Syscalls &sys, const std::string &tracefs, const std::string &name);
	~TraceReader();
	TraceReader(const TraceReader &) = delete;
	TraceReader &operator=(const TraceReader &) = delete;

	// Records from now on.
	void start();
	// Tells the audit what happened, in the order in which it did, except for the last hold_ns. False if nothing new was
	// recorded.
	bool read(TransferAudit &audit);
	// Ends the recording and tells the audit the rest, and how many events were lost.
	void finish(TransferAudit &audit);

private:
	void set(const std::string &file, const char *value);
	std::string text_of(const std::string &file);
	void load_formats();
	bool read_cpu(int fd, uint64_t until);
	void tell(TransferAudit &audit, uint64_t until);
	uint64_t lost();

	peerdma_impl::Syscalls &sys_;
	const std::string name_;
	tracefs_instance *instance_;
	const std::unique_ptr<tep_handle, void (*)(tep_handle *)> decoder_;
	const std::unique_ptr<kbuffer, void (*)(kbuffer *)> page_;
	std::unique_ptr<EventFormats> formats_;
	std::vector<std::string> cpus_; // their folders in the instance
	std::vector<Fd> buffers_;       // one a CPU
	std::vector<char> bytes_;       // of one page of a buffer
	std::vector<TraceEvent> held_;  // not yet told
};

} // namespace cli
