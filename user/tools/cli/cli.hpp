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

// What a look at something came to.
enum class State { good, warn, bad, unknown };
const char *state_name(State state);

// Why a subcommand gave up. what: one clause that names the file or device.
struct Failure {
	std::string what;
	int error = 0;       // positive errno, 0 if none
	uint32_t reason = 0; // enum peerdma_reason, 0 if none
	std::string advice;  // overrides the reason's own
	Json facts;          // for --json; an object or nothing

	std::string line() const;
	Json json() const;
};

struct Usage {
	std::string what;
};

// What a subcommand has to say: text for people or one JSON object for programs.
struct Report {
	std::string text;
	Json json = Json::object();
	int status = exit_ok;
};

struct CheckOptions {
	std::vector<std::string> targets =
		{};            // a file, disk or mount point, and a PCI address, in any order; or nothing
	std::string root = {}; // of a record of another machine's files; empty: this machine
	bool verbose = false;
};

struct PublishOptions {
	std::string device;
	int bar = PEERDMA_BAR_AUTO;
	std::string offset = "0", size = "0";
	bool force = false, non_prefetchable = false;
};

struct CopyOptions {
	std::string source, target, provider; // the provider of a target that is a file
	bool verify = false, require_direct = false;
};

struct SelftestOptions {
	std::string dir, provider;
	std::string memory = "provider"; // or a vendor's: "cuda", "hip", "ze"
};

// What a benchmark is asked for, by the names of its options; or files that say so.
struct BenchOptions {
	std::string target, jobs, svg;
	std::map<std::string, std::string> settings; // names as in a file of jobs
};

struct WitnessOptions {
	std::optional<int> pid;
	std::vector<std::string> command; // if there is no pid
	bool json = false;                // standard output is for the report alone
};

struct RulesOptions {
	std::string action;        // "check" or "explain"
	std::string rules = {};    // a file; empty: the one that the library reads
	std::string provider = {}; // what is explained: whose memory
	std::string file = {};     // none: taking memory, or publishing it
	std::string cgroup = {};   // empty: this process's
	std::vector<std::string> disks = {};
};

struct TopoOptions {
	std::string svg; // a file to draw into
	bool dot = false;
};

// The whole command; main() is one call of it. Return: the exit status.
int run(int argc, char **argv);

Report check(const CheckOptions &options);
Report providers();
Report publish(const PublishOptions &options);
Report unpublish(const std::string &device);
Report explain(const std::string &file, const std::string &provider);
Report copy(const CopyOptions &options);
Report bench(const BenchOptions &options);
Report selftest(const SelftestOptions &options);
Report stat();
Report witness(const WitnessOptions &options);
Report topo(const TopoOptions &options);
Report rules(const RulesOptions &options);

// Handles that close themselves.
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

// A provider's place in the words of a person: "gpu:[ID|BDF][+OFFSET]".
struct GpuTarget {
	std::string provider; // empty: the only one there is
	uint64_t offset = 0;  // bytes from the buffer's start
};
std::optional<GpuTarget> parse_gpu(std::string_view text);

uint64_t bytes_or_usage(const std::string &option, std::string_view text);
PciAddress device_or_usage(const std::string &text);

inline uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
std::string size_text(uint64_t bytes);                 // "35.3 MiB"
std::string rate_text(uint64_t bytes, double seconds); // "35.3 MiB/s"; empty if it took no time
std::string errno_name(int error);                     // "EXDEV"
std::string pci_text(uint32_t domain, uint32_t bdf);

// They throw Failure with a message that says how to mend it.
Device open_device(uint32_t flags = PEERDMA_OPEN_REQUIRE_DIRECT);
// What to do where there is none, as a sentence.
std::string advice_without_provider();

// How a module of ours is loaded on this host, as a sentence.
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
// Why bytes do not go direct, a peerdma_reason; 0 if they do. What refuses nothing may be software that copies.
uint32_t why_not_direct(const struct peerdma_explanation &why);

Json provider_json(const struct peerdma_provider_info &info);
Json backing_json(const struct peerdma_explanation &why);
std::string backing_text(const struct peerdma_explanation &why);

} // namespace cli
