// SPDX-License-Identifier: MIT

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "tools/trace/trace_reader.hpp"

// libtracefs 1.6's header is for C: a function in it passes 0 as an enum. This overload takes it, and is not called.
struct tracefs_hist;
[[maybe_unused]] static int tracefs_hist_command(tracefs_instance *, tracefs_hist *, int) { return -1; }
extern "C" {
#include <tracefs.h>
}

namespace cli
{
namespace
{

// Per CPU. An event has about 100 bytes.
constexpr const char *buffer_kib = "4096";

// Commands with PeerDMA's priority hint, which is 512: the block layer keeps it in these bits.
constexpr const char *hint_filter = "ioprio & 4096";
constexpr unsigned hint_shift = 3, hint_mask = 1023;

constexpr const char *systems[] = {"sched", "block", "peerdma", nullptr};

const tep_event *find_event(tep_handle *formats, const char *system, const char *name)
{
	const tep_event *event = tep_find_event_by_name(formats, system, name);
	if (!event)
		throw Failure{fmt::format("the kernel does not describe its event {}/{}", system, name), 0, 0, "", {}};
	return event;
}

// A field of an event.
class Field
{
public:
	Field(const tep_event *event, const char *name) : field_(tep_find_field(const_cast<tep_event *>(event), name))
	{
		if (!field_)
			throw Failure{
				fmt::format("the kernel's event {}/{} has no '{}'", event->system, event->name, name),
				0,
				0,
				"",
				{}};
	}
	uint64_t number(const tep_record &record) const
	{
		unsigned long long value = 0;
		tep_read_number_field(field_, record.data, &value);
		return value;
	}
	bool contains(const tep_record &record, char letter) const
	{
		const char *text = static_cast<const char *>(record.data) + field_->offset;
		return std::memchr(text, letter, ::strnlen(text, static_cast<size_t>(field_->size))) != nullptr;
	}

private:
	tep_format_field *const field_;
};

// The kernel's own form of a device number, which is not that of user space.
DeviceNumber device_number(uint64_t dev)
{
	return {static_cast<uint32_t>(dev >> 20), static_cast<uint32_t>(dev & 0xfffff)};
}

struct RequestFields {
	explicit RequestFields(const tep_event *event)
		: dev(event, "dev"), pid(event, "pid"), ino(event, "ino"), provider(event, "provider"),
		  number(event, "number"), write(event, "write"), async(event, "async")
	{
	}
	TracedRequest of(const tep_record &record) const
	{
		return {{write.number(record) != 0, device_number(dev.number(record)), ino.number(record),
			 provider.number(record)},
			static_cast<int>(pid.number(record)),
			async.number(record) != 0,
			number.number(record)};
	}
	Field dev, pid, ino, provider, number, write, async;
};

struct ResultFields {
	explicit ResultFields(const tep_event *event)
		: done(event, "done"), direct(event, "direct"), near(event, "near"), host(event, "host"),
		  reason(event, "reason"), error(event, "error")
	{
	}
	TracedResult of(const tep_record &record) const
	{
		return {done.number(record), direct.number(record), near.number(record),
			host.number(record), reason.number(record), static_cast<int>(error.number(record))};
	}
	Field done, direct, near, host, reason, error;
};

struct CommandFields {
	explicit CommandFields(const tep_event *event)
		: dev(event, "dev"), bytes(event, "bytes"), ioprio(event, "ioprio"), rwbs(event, "rwbs")
	{
	}
	TracedCommand of(const tep_record &record) const
	{
		return {device_number(dev.number(record)), rwbs.contains(record, 'W'), bytes.number(record),
			static_cast<unsigned>(ioprio.number(record)) >> hint_shift & hint_mask};
	}
	Field dev, bytes, ioprio, rwbs;
};

} // namespace

// The events that are recorded, and where their fields are.
class TraceReader::Events
{
public:
	explicit Events(tep_handle *formats)
		: formats_(formats), fork_(find_event(formats, "sched", "sched_process_fork")),
		  issue_(find_event(formats, "block", "block_rq_issue")),
		  submit_(find_event(formats, "peerdma", "peerdma_submit")),
		  complete_(find_event(formats, "peerdma", "peerdma_complete")), child_(fork_, "child_pid"),
		  command_(issue_), submitted_(submit_), completed_(complete_), result_(complete_)
	{
	}

	void tell(TransferAudit &audit, const tep_event *event, tep_record *record) const
	{
		const int tid = tep_data_pid(formats_, record);
		if (event->id == submit_->id)
			audit.on_submit(tid, submitted_.of(*record));
		else if (event->id == complete_->id)
			audit.on_complete(tid, completed_.of(*record), result_.of(*record));
		else if (event->id == issue_->id)
			audit.on_issue(tid, command_.of(*record));
		else if (event->id == fork_->id)
			audit.on_fork(tid, static_cast<int>(child_.number(*record)));
	}

private:
	tep_handle *const formats_;
	const tep_event *const fork_, *const issue_, *const submit_, *const complete_;
	const Field child_;
	const CommandFields command_;
	const RequestFields submitted_, completed_;
	const ResultFields result_;
};

TraceReader::TraceReader(const std::string &name) : name_(name), instance_(tracefs_instance_create(name.c_str()))
{
	if (!instance_)
		throw Failure{fmt::format("cannot create the trace instance {}", name_),
			      errno,
			      0,
			      errno == EACCES || errno == EPERM ? "Tracing is for root: run it as root." : "",
			      {}};
}

TraceReader::~TraceReader()
{
	tep_free(formats_);
	tracefs_instance_destroy(instance_);
	tracefs_instance_free(instance_);
}

void TraceReader::set(const std::string &file, const char *value)
{
	if (tracefs_instance_file_write(instance_, file.c_str(), value) < 0)
		throw Failure{fmt::format("cannot write '{}' to {} of the trace instance {}", value, file, name_),
			      errno,
			      0,
			      file.starts_with("events/peerdma") ? "Load the module first." : "",
			      {}};
}

void TraceReader::start()
{
	set("buffer_size_kb", buffer_kib);
	set("events/block/block_rq_issue/filter", hint_filter);
	for (const char *event :
	     {"sched/sched_process_fork", "block/block_rq_issue", "peerdma/peerdma_complete", "peerdma/peerdma_submit"})
		set(fmt::format("events/{}/enable", event), "1");
	formats_ = tracefs_local_events_system(nullptr, systems);
	if (!formats_)
		throw Failure{"cannot read the formats of the kernel's events", errno, 0, "", {}};
	events_ = std::make_unique<Events>(formats_);
}

bool TraceReader::read(TransferAudit &audit)
{
	struct Reading {
		const Events &events;
		TransferAudit &audit;
		bool any;
	} reading = {*events_, audit, false};
	auto tell = [](tep_event *event, tep_record *record, int, void *context) {
		auto &to = *static_cast<Reading *>(context);
		to.any = true;
		// Negative: the kernel does not know how many.
		if (record->missed_events)
			to.audit.on_lost(record->missed_events < 0 ? 1 : static_cast<uint64_t>(record->missed_events));
		to.events.tell(to.audit, event, record);
		return 0;
	};
	if (tracefs_iterate_raw_events(formats_, instance_, nullptr, 0, tell, &reading) < 0)
		throw Failure{"cannot read the trace", errno, 0, "", {}};
	return reading.any;
}

} // namespace cli
