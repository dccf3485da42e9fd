// SPDX-License-Identifier: MIT
//
// /etc/peerdma/rules: which processes and files may use which provider. One rule a line; the first that matches
// decides; without a match the access is allowed: peerdma-rules(5). The rules bind this library and its users only. A
// process that may open /dev/peerdma can bypass the library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/pci.hpp"
#include "common/syscalls.hpp"

namespace peerdma_impl
{

inline constexpr const char *rules_path = "/etc/peerdma/rules";

// A PCI function by both names that a rule may use. kind is vendor << 16 | device.
struct FunctionName {
	PciAddress address;
	std::optional<uint32_t> kind; // nullopt: could not be determined
};

// A disk below a file.
struct DiskName {
	std::string name;
	PciAddress address;
};

// The question to the rules.
struct RuleQuery {
	FunctionName provider;
	std::string cgroup; // of the process; "": could not be determined
	// nullopt: no file is known yet, for example when memory is published or allocated.
	std::optional<std::string> file; // its path, without links; "": could not be determined
	std::optional<std::vector<DiskName>> disks;
	bool more_disks = false; // there may be others
};

enum class Verb { allow, deny, prefer };

struct Rule {
	Verb verb = Verb::allow;
	unsigned line = 0;
	std::string text; // as in the file
	// The conditions. An absent condition holds.
	std::optional<PciAddress> provider_address, disk_address;
	std::optional<uint32_t> provider_kind;
	std::string disk_name, file, cgroup;

	bool is_about(const FunctionName &provider) const;
	bool fits(const RuleQuery &question) const;
	std::string place() const { return std::string(rules_path) + ":" + std::to_string(line); }
};

// The position of a fault and its description; line and column start at 1, columns are bytes.
struct Fault {
	unsigned line, column;
	std::string what;
};

class Rules
{
public:
	// Nothing is changed after a fault.
	std::optional<Fault> parse(std::string_view text);

	const std::vector<Rule> &all() const { return rules_; }
	bool empty() const { return rules_.empty(); }
	bool has_disks() const;
	// The rule that decides; nullptr: no rule matches, access is allowed.
	const Rule *decide(const RuleQuery &question) const;

private:
	std::vector<Rule> rules_;
};

// 0, also if the file does not exist; or -EBADMSG with a description in fault. A dangling symbolic link is a fault.
int load_rules(Syscalls &sys, const std::string &path, Rules &out, std::string &fault);

// The cgroup of the calling process, in the form of RuleQuery.
std::string own_cgroup(Syscalls &sys);

// The names of a function, from sysfs.
FunctionName function_name(Syscalls &sys, PciAddress address);

} // namespace peerdma_impl
