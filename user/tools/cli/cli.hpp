// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/pci.hpp"
#include "peerdma.h"
#include "tools/cli/number.hpp"

namespace cli
{

using Json = nlohmann::ordered_json;
using peerdma_impl::PciAddress;

// Exit statuses, the same for every subcommand.
inline constexpr int exit_ok = 0, exit_failed = 1, exit_usage = 2;

// The result of one check.
enum class State { good, warn, bad, unknown };
const char *state_name(State state);

// Why a subcommand failed. what: one clause that names the file or device.
struct Failure {
	std::string what;
	int error = 0;       // positive errno, 0 without one
	uint32_t reason = 0; // enum peerdma_reason, 0 without one
	std::string advice;  // replaces the reason's own advice
	Json facts;          // for --json; an object or nothing

	std::string line() const;
	Json json() const;
};

struct Usage {
	std::string what;
};

// The output of a subcommand: text for people, or one JSON object for programs.
struct Report {
	std::string text;
	Json json = Json::object();
	int status = exit_ok;
};

struct CheckOptions {
	std::vector<std::string> targets =
		{};            // a file, disk or mount point, and a PCI address, in any order; may be empty
	std::string root = {}; // directory with a copy of another machine's files; empty: this machine
	bool verbose = false;
};

struct PublishOptions {
	std::string device;
	int bar = PEERDMA_BAR_AUTO;
	std::string offset = "0", size = "0";
	bool force = false, non_prefetchable = false;
};

struct CopyOptions {
	std::string source, target, provider; // the provider if the target is a file
	bool verify = false, require_direct = false;
};

struct SelftestOptions {
	std::string dir, provider;
	std::string memory = "provider"; // or a vendor's: "cuda", "hip", "ze"
};

// Options of a benchmark by name, or job files.
struct BenchOptions {
	std::string target, jobs, svg;
	std::map<std::string, std::string> settings; // keys of a job file
};

struct WitnessOptions {
	std::optional<int> pid;
	std::vector<std::string> command; // to run, if there is no pid
	bool json = false;                // standard output contains only the report
};

struct RulesOptions {
	std::string action;        // "check" or "explain"
	std::string rules = {};    // a rules file; empty: the one that the library reads
	std::string provider = {}; // the provider to explain
	std::string file = {};     // empty: allocating or publishing memory
	std::string cgroup = {};   // empty: that of this process
	std::vector<std::string> disks = {};
};

struct TopoOptions {
	std::string svg; // file for the picture
	bool dot = false;
};

// The whole command, called once by main(). Return: the exit status.
int run(int argc, char **argv);

Report check(const CheckOptions &options);
Report providers();
Report publish(const PublishOptions &options);
Report unpublish(const std::string &device);
Report explain(const std::string &file, const std::string &provider, const std::string &codec = "");
// What reduces the elements of a view or file: "storage", "host" or "none". where: PEERDMA_VIEW_WHERE_*
const char *where_name(uint32_t where);
Report copy(const CopyOptions &options);
Report bench(const BenchOptions &options);
Report selftest(const SelftestOptions &options);
Report stat();
Report witness(const WitnessOptions &options);
Report topo(const TopoOptions &options);
Report rules(const RulesOptions &options);

// Handles that close themselves when destroyed.
struct CloseDevice {
	void operator()(struct peerdma_device *p) const { peerdma_close(p); }
};
struct CloseFile {
	void operator()(struct peerdma_file *p) const { peerdma_file_close(p); }
};
struct DestroyBuffer {
	void operator()(struct peerdma_buf *p) const { peerdma_buf_destroy(p); }
};
struct DestroyRing {
	void operator()(struct peerdma_ring *p) const { peerdma_ring_destroy(p); }
};
using Device = std::unique_ptr<struct peerdma_device, CloseDevice>;
using File = std::unique_ptr<struct peerdma_file, CloseFile>;
using Buffer = std::unique_ptr<struct peerdma_buf, DestroyBuffer>;
using Ring = std::unique_ptr<struct peerdma_ring, DestroyRing>;

// The target "gpu:[ID|BDF][+OFFSET]".
struct GpuTarget {
	std::string provider; // empty: the only provider
	uint64_t offset = 0;  // bytes from the buffer's start
};
std::optional<GpuTarget> parse_gpu(std::string_view text);

uint64_t bytes_or_usage(const std::string &option, std::string_view text);
PciAddress device_or_usage(const std::string &text);

inline uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
std::string size_text(uint64_t bytes);                 // "35.3 MiB"
std::string rate_text(uint64_t bytes, double seconds); // "35.3 MiB/s"; empty if no time has passed
std::string errno_name(int error);                     // "EXDEV"
std::string pci_text(uint32_t domain, uint32_t bdf);

// These throw Failure with a remedy.
Device open_device(uint32_t flags = PEERDMA_OPEN_REQUIRE_DIRECT);
// The remedy if there is no provider, as a sentence.
std::string advice_without_provider();

// How to load a PeerDMA module on this host, as a sentence.
std::string advice_to_load(const std::string &name);
struct peerdma_provider_info find_provider(const Device &device, const std::string &name);
File open_file(const Device &device, const std::string &path, int flags);
uint64_t size_of(const File &file, const std::string &path);
// Waits for results of a ring; at least one unless there are no more requests. Return: as peerdma_ring_wait().
int wait_for(const Ring &ring, struct peerdma_done *done, uint32_t max);
Buffer create_buffer(const Device &device, const struct peerdma_provider_info &provider, uint64_t len);
void *map_buffer(const Buffer &buffer);
struct peerdma_explanation explain_route(const File &file, const std::string &path,
					 const struct peerdma_provider_info &provider, uint32_t leaf = 0);
// The peerdma_reason why bytes do not go direct; 0 if they do. A route without a refusal may be copied by software.
uint32_t why_not_direct(const struct peerdma_explanation &why);

Json provider_json(const struct peerdma_provider_info &info);
Json backing_json(const struct peerdma_explanation &why);
std::string backing_text(const struct peerdma_explanation &why);

} // namespace cli
