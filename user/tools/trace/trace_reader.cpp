// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <new>
#include <string_view>
#include <variant>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/trace/trace_reader.hpp"

// libtracefs 1.6's header is for C: a function in it passes 0 as an enum. This overload takes it, and is not called.
struct tracefs_hist;
[[maybe_unused]] static int tracefs_hist_command(tracefs_instance *, tracefs_hist *, int) { return -1; }
extern "C" {
#include <kbuffer.h>
#include <tracefs.h>
}

namespace cli
{

// An event, decoded.
struct TraceEvent {
	struct Fork {
		int child;
	};
	using Completion = std::pair<TracedRequest, TracedResult>;

	uint64_t ns; // CLOCK_MONOTONIC
	int tid;
	std::variant<Fork, TracedRequest, TracedCommand, Completion> what;
};

namespace
{

// Per CPU. An event has about 80 bytes.
constexpr const char *buffer_kib = "4096";
constexpr size_t largest_page = 1 << 16; // of a buffer

// An event is written a little after the time that it bears. Events of other CPUs are held so long.
constexpr uint64_t hold_ns = 10'000'000;

// Commands with PeerDMA's priority hint, which is 512: the block layer keeps it in these bits.
constexpr const char *hint_filter = "ioprio & 4096";
constexpr unsigned hint_shift = 3, hint_mask = 1023;

constexpr const char *no_module = "Load the module first.";

uint64_t now_ns()
{
	timespec now{};
	::clock_gettime(CLOCK_MONOTONIC, &now);
	return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// A field of an event.
class Field
{
public:
	Field(tep_event *event, const char *name) : field_(tep_find_field(event, name))
	{
		if (!field_)
			throw Failure{
				fmt::format("the kernel's event {}/{} has no '{}'", event->system, event->name, name),
				0,
				0,
				"",
				{}};
	}
	uint64_t number(const void *record) const
	{
		unsigned long long value = 0;
		tep_read_number_field(field_, record, &value);
		return value;
	}
	bool contains(const void *record, char letter) const
	{
		const char *text = static_cast<const char *>(record) + field_->offset;
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
	explicit RequestFields(tep_event *event)
		: dev(event, "dev"), pid(event, "pid"), ino(event, "ino"), provider(event, "provider"),
		  number(event, "number"), write(event, "write"), async(event, "async")
	{
	}
	TracedRequest of(const void *record) const
	{
		return {{write.number(record) != 0, device_number(dev.number(record)), ino.number(record),
			 provider.number(record)},
			static_cast<int>(pid.number(record)),
			async.number(record) != 0,
			number.number(record)};
	}
	const Field dev, pid, ino, provider, number, write, async;
};

struct ResultFields {
	explicit ResultFields(tep_event *event)
		: done(event, "done"), direct(event, "direct"), near(event, "near"), host(event, "host"),
		  reason(event, "reason"), error(event, "error")
	{
	}
	TracedResult of(const void *record) const
	{
		return {done.number(record), direct.number(record), near.number(record),
			host.number(record), reason.number(record), static_cast<int>(error.number(record))};
	}
	const Field done, direct, near, host, reason, error;
};

struct CommandFields {
	explicit CommandFields(tep_event *event)
		: dev(event, "dev"), bytes(event, "bytes"), ioprio(event, "ioprio"), rwbs(event, "rwbs")
	{
	}
	TracedCommand of(const void *record) const
	{
		return {device_number(dev.number(record)), rwbs.contains(record, 'W'), bytes.number(record),
			static_cast<unsigned>(ioprio.number(record)) >> hint_shift & hint_mask};
	}
	const Field dev, bytes, ioprio, rwbs;
};

// The number after "key: " in a file of lines; 0 without it.
uint64_t number_after(std::string_view text, std::string_view key)
{
	uint64_t number = 0;
	const std::string start = fmt::format("{}: ", key);
	for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1)
		if (const std::string_view line = text.substr(at); line.starts_with(start))
			std::from_chars(line.data() + start.size(), line.data() + line.size(), number);
	return number;
}

} // namespace

// The events that are recorded, and where their fields are.
class EventFormats
{
public:
	static constexpr std::pair<const char *, const char *> names[] = {
		{"sched", "sched_process_fork"},
		{"block", "block_rq_issue"},
		{"peerdma", "peerdma_complete"},
		{"peerdma", "peerdma_submit"},
	};

	explicit EventFormats(tep_handle *decoder)
		: decoder_(decoder), fork_(find(names[0])), issue_(find(names[1])), complete_(find(names[2])),
		  submit_(find(names[3])), child_(fork_, "child_pid"), command_(issue_), completed_(complete_),
		  submitted_(submit_), result_(complete_)
	{
	}

	// Appends the event, if it is one of these.
	void decode(void *data, uint64_t ns, std::vector<TraceEvent> &events) const
	{
		tep_record record{};
		record.data = data;
		const int type = tep_data_type(decoder_, &record), tid = tep_data_pid(decoder_, &record);
		if (type == submit_->id)
			events.push_back({ns, tid, submitted_.of(data)});
		else if (type == complete_->id)
			events.push_back({ns, tid, TraceEvent::Completion(completed_.of(data), result_.of(data))});
		else if (type == issue_->id)
			events.push_back({ns, tid, command_.of(data)});
		else if (type == fork_->id)
			events.push_back({ns, tid, TraceEvent::Fork{static_cast<int>(child_.number(data))}});
	}

private:
	tep_event *find(const std::pair<const char *, const char *> &name) const
	{
		tep_event *event = tep_find_event_by_name(decoder_, name.first, name.second);
		if (!event)
			throw Failure{
				fmt::format("the kernel's event {}/{} cannot be decoded", name.first, name.second),
				0,
				0,
				"",
				{}};
		return event;
	}

	tep_handle *const decoder_;
	tep_event *const fork_, *const issue_, *const complete_, *const submit_;
	const Field child_;
	const CommandFields command_;
	const RequestFields completed_, submitted_;
	const ResultFields result_;
};

TraceReader::TraceReader(peerdma_impl::Syscalls &sys, const std::string &tracefs, const std::string &name)
	: sys_(sys), name_(name), decoder_(tep_alloc(), tep_free),
	  page_(kbuffer_alloc(KBUFFER_LSIZE_SAME_AS_HOST, KBUFFER_ENDIAN_SAME_AS_HOST), kbuffer_free),
	  bytes_(largest_page)
{
	if (!decoder_ || !page_)
		throw std::bad_alloc();
	tracefs_set_tracing_dir(const_cast<char *>(tracefs.c_str()));
	instance_ = tracefs_instance_create(name.c_str());
	int error = errno;
	if (instance_) {
		if (tracefs_instance_is_new(instance_))
			return;
		tracefs_instance_free(instance_);
		error = EEXIST;
	}
	throw Failure{fmt::format("cannot create {}/instances/{}", tracefs, name),
		      error,
		      0,
		      error == EACCES || error == EPERM ? "Tracing is for root: run it as root." : "",
		      {}};
}

// tracefs does not remove an instance with open files.
TraceReader::~TraceReader()
{
	buffers_.clear();
	tracefs_instance_destroy(instance_);
	tracefs_instance_free(instance_);
}

void TraceReader::set(const std::string &file, const char *value)
{
	if (tracefs_instance_file_write(instance_, file.c_str(), value) < 0)
		throw Failure{fmt::format("cannot write '{}' to {} of the trace instance {}", value, file, name_),
			      errno,
			      0,
			      file.starts_with("events/peerdma") ? no_module : "",
			      {}};
}

std::string TraceReader::text_of(const std::string &file)
{
	const std::unique_ptr<char, void (*)(void *)> text(tracefs_instance_file_read(instance_, file.c_str(), nullptr),
							   ::free);
	if (!text)
		throw Failure{fmt::format("cannot read {} of the trace instance {}", file, name_),
			      errno,
			      0,
			      file.starts_with("events/peerdma") ? no_module : "",
			      {}};
	return text.get();
}

void TraceReader::load_formats()
{
	for (const auto &[system, name] : EventFormats::names) {
		const std::string format = text_of(fmt::format("events/{}/{}/format", system, name));
		tep_parse_event(decoder_.get(), format.data(), format.size(), system);
	}
	formats_ = std::make_unique<EventFormats>(decoder_.get());
}

void TraceReader::start()
{
	load_formats();
	set("trace_clock", "mono");
	set("buffer_size_kb", buffer_kib);
	set("events/block/block_rq_issue/filter", hint_filter);
	const std::unique_ptr<char, void (*)(char *)> folder(tracefs_instance_get_dir(instance_),
							     tracefs_put_tracing_file);
	std::vector<std::string> names;
	if (const int rc = sys_.list_dir(fmt::format("{}/per_cpu", folder.get()), names); rc < 0)
		throw Failure{fmt::format("cannot read {}/per_cpu", folder.get()), -rc, 0, "", {}};
	for (const std::string &name : names) {
		const std::string path = fmt::format("{}/per_cpu/{}/trace_pipe_raw", folder.get(), name);
		const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			throw Failure{fmt::format("cannot read {}", path), errno, 0, "", {}};
		buffers_.emplace_back(sys_, fd);
		cpus_.push_back("per_cpu/" + name);
	}
	for (const auto &[system, name] : EventFormats::names)
		set(fmt::format("events/{}/{}/enable", system, name), "1");
}

// Reads a CPU's buffer until it is empty, or an event is later than this. False if it was empty.
bool TraceReader::read_cpu(int fd, uint64_t until)
{
	ssize_t n;
	bool any = false;
	unsigned long long ns = 0;
	while (ns <= until && (n = ::read(fd, bytes_.data(), bytes_.size())) > 0) {
		any = true;
		kbuffer_load_subbuffer(page_.get(), bytes_.data());
		for (void *data = kbuffer_read_event(page_.get(), &ns); data;
		     data = kbuffer_next_event(page_.get(), &ns))
			formats_->decode(data, ns, held_);
	}
	if (ns <= until && n < 0 && errno != EAGAIN && errno != EINTR)
		throw Failure{"cannot read the trace", errno, 0, "", {}};
	return any;
}

// Tells the audit the events until this time, the earliest first.
void TraceReader::tell(TransferAudit &audit, uint64_t until)
{
	std::stable_sort(held_.begin(), held_.end(),
			 [](const TraceEvent &a, const TraceEvent &b) { return a.ns < b.ns; });
	auto event = held_.begin();
	for (; event != held_.end() && event->ns <= until; ++event) {
		if (const auto *request = std::get_if<TracedRequest>(&event->what))
			audit.on_submit(event->tid, *request);
		else if (const auto *end = std::get_if<TraceEvent::Completion>(&event->what))
			audit.on_complete(event->tid, end->first, end->second);
		else if (const auto *command = std::get_if<TracedCommand>(&event->what))
			audit.on_issue(event->tid, *command);
		else
			audit.on_fork(event->tid, std::get<TraceEvent::Fork>(event->what).child);
	}
	held_.erase(held_.begin(), event);
}

bool TraceReader::read(TransferAudit &audit)
{
	const uint64_t now = now_ns();
	bool any = false;
	for (const Fd &buffer : buffers_)
		any |= read_cpu(buffer.get(), now);
	tell(audit, now - hold_ns);
	return any;
}

void TraceReader::finish(TransferAudit &audit)
{
	tracefs_trace_off(instance_);
	for (const Fd &buffer : buffers_)
		read_cpu(buffer.get(), UINT64_MAX);
	tell(audit, UINT64_MAX);
	audit.on_lost(lost());
}

uint64_t TraceReader::lost()
{
	uint64_t events = 0;
	for (const std::string &cpu : cpus_) {
		const std::string stats = text_of(cpu + "/stats");
		for (const char *key : {"overrun", "commit overrun", "dropped events"})
			events += number_after(stats, key);
	}
	return events;
}

} // namespace cli
