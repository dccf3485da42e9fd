// SPDX-License-Identifier: MIT
//
// /etc/peerdma/rules: whose bytes may go to and from which provider. One rule a line, the first that fits decides, and what
// none fits is allowed: peerdma-rules(5). It is a policy among those who keep to it, this library and what is built on it;
// who may open /dev/peerdma can do without the library.
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

// A PCI function by the two names that a rule may have for it; vendor and device are one number: vendor << 16 | device.
struct FunctionName {
	PciAddress address;
	std::optional<uint32_t> kind; // nullopt: could not be found out
};

// A disk that a file is made of in the end.
struct DiskName {
	std::string name;
	PciAddress address;
};

// What a rule is asked about.
struct RuleQuery {
	FunctionName provider;
	std::string cgroup; // of the process; "": could not be found out
	// nullopt: no file is in question yet, as where memory is published or taken.
	std::optional<std::string> file; // its path, without links; "": could not be found out
	std::optional<std::vector<DiskName>> disks;
	bool more_disks = false; // or there may be others
};

enum class Verb { allow, deny, prefer };

struct Rule {
	Verb verb = Verb::allow;
	unsigned line = 0;
	std::string text; // as it is in the file
	// The conditions; those that are not there are met.
	std::optional<PciAddress> provider_address, disk_address;
	std::optional<uint32_t> provider_kind;
	std::string disk_name, file, cgroup;

	bool is_about(const FunctionName &provider) const;
	bool fits(const RuleQuery &question) const;
	std::string place() const { return std::string(rules_path) + ":" + std::to_string(line); }
};

// Where a text is no rules, and why: both numbers begin with 1, columns are bytes.
struct Fault {
	unsigned line, column;
	std::string what;
};

class Rules
{
public:
	// Nothing is changed if there is a fault.
	std::optional<Fault> parse(std::string_view text);

	const std::vector<Rule> &all() const { return rules_; }
	bool empty() const { return rules_.empty(); }
	bool has_disks() const;
	// The rule that decides; nullptr: none, and it is allowed.
	const Rule *decide(const RuleQuery &question) const;

private:
	std::vector<Rule> rules_;
};

// 0, also if there is no such file; or -EBADMSG, and in fault what is wrong with it. A symbolic link whose target does not
// exist is a fault.
int load_rules(Syscalls &sys, const std::string &path, Rules &out, std::string &fault);

// The calling process's, as RuleQuery has it.
std::string own_cgroup(Syscalls &sys);

// A function as sysfs has it.
FunctionName function_name(Syscalls &sys, PciAddress address);

} // namespace peerdma_impl
