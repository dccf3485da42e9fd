// SPDX-License-Identifier: MIT
#include "common/rules.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <unistd.h>

namespace peerdma_impl
{
namespace
{

// "10de:2336", as lspci -n prints it.
std::optional<uint32_t> parse_kind(std::string_view text)
{
	if (text.size() != 9 || text[4] != ':')
		return std::nullopt;
	uint32_t kind = 0;
	for (const std::string_view half : {text.substr(0, 4), text.substr(5)}) {
		uint32_t number = 0;
		const auto [end, error] = std::from_chars(half.data(), half.data() + half.size(), number, 16);
		if (error != std::errc() || end != half.data() + half.size())
			return std::nullopt;
		kind = kind << 16 | number;
	}
	return kind;
}

// An absolute path as the kernel prints it, without empty parts, "." or "..".
std::optional<std::string> parse_path(std::string text)
{
	while (text.size() > 1 && text.ends_with('/'))
		text.pop_back();
	if (text == "/")
		return text;
	const std::string parts = text + "/";
	for (const char *odd : {"//", "/./", "/../"})
		if (parts.find(odd) != std::string::npos)
			return std::nullopt;
	return text.starts_with('/') ? std::optional(text) : std::nullopt;
}

bool is_below(const std::string &path, const std::string &top)
{
	return top == "/" || (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '/'));
}

// One line: words separated by blanks; the first is a verb, the others are conditions.
class Line
{
public:
	Line(std::string_view text, unsigned number) : text_(text) { rule_.line = number; }

	// false: the line is empty or has a fault.
	bool parse()
	{
		skip();
		if (at_end())
			return false;
		const size_t start = at_;
		const std::string_view verb = word();
		if (verb == "allow")
			rule_.verb = Verb::allow;
		else if (verb == "deny")
			rule_.verb = Verb::deny;
		else if (verb == "prefer")
			rule_.verb = Verb::prefer;
		else
			return fail(start, "'" + std::string(verb) + "': expected allow, deny or prefer");
		for (skip(); !at_end(); skip())
			if (!condition())
				return false;
		// It chooses a provider before a file is known.
		if (rule_.verb == Verb::prefer && (!rule_.file.empty() || has_disk()))
			return fail(start, "prefer: file= and disk= are not valid here, because it chooses a provider "
					   "before they are known");
		rule_.text = text_.substr(start, end_ - start);
		return true;
	}

	const Rule &rule() const { return rule_; }
	const std::optional<Fault> &fault() const { return fault_; }

private:
	bool fail(size_t at, std::string what)
	{
		fault_ = Fault{rule_.line, static_cast<unsigned>(at + 1), std::move(what)};
		return false;
	}

	static bool blank(char c) { return c == ' ' || c == '\t'; }
	void skip()
	{
		while (at_ < text_.size() && blank(text_[at_]))
			at_++;
	}
	bool at_end() const { return at_ == text_.size() || text_[at_] == '#'; }
	bool has_disk() const { return rule_.disk_address || !rule_.disk_name.empty(); }

	std::string_view word()
	{
		const size_t start = at_;
		while (at_ < text_.size() && !blank(text_[at_]))
			at_++;
		end_ = at_;
		return text_.substr(start, at_ - start);
	}

	// The text after "=", bare or in double quotes.
	bool value(std::string &out)
	{
		if (at_ == text_.size() || text_[at_] != '"') {
			out = word();
			return true;
		}
		const size_t start = at_++;
		for (; at_ < text_.size() && text_[at_] != '"'; at_++) {
			if (text_[at_] == '\\' && ++at_ == text_.size())
				break;
			out += text_[at_];
		}
		if (at_ >= text_.size())
			return fail(start, "missing closing quote");
		end_ = ++at_;
		return (at_ == text_.size() || blank(text_[at_])) || fail(at_, "missing blank after the closing quote");
	}

	bool condition()
	{
		const size_t start = at_;
		while (at_ < text_.size() && !blank(text_[at_]) && text_[at_] != '=')
			at_++;
		const std::string key(text_.substr(start, at_ - start));
		if (at_ == text_.size() || text_[at_] != '=')
			return fail(start, "'" + key + "': expected provider=, disk=, file= or cgroup=");
		const size_t place = ++at_;
		const bool quoted = text_.substr(place).starts_with('"');
		std::string text;
		if (!value(text))
			return false;
		if (key == "provider")
			return provider(start, place, text);
		if (key != "disk" && key != "file" && key != "cgroup")
			return fail(start, "unknown condition '" + key + "'; expected provider, disk, file or cgroup");
		if (!quoted && !literal(place, text))
			return false;
		if (key == "disk")
			return disk(start, place, text);
		return path(start, place, text, key == "file" ? rule_.file : rule_.cgroup, key);
	}

	// Names are compared literally: an unquoted pattern, list or comment would silently match nothing.
	bool literal(size_t place, const std::string &text)
	{
		const size_t odd = text.find_first_of("*?[,#\"'");
		return odd == text.npos ||
		       fail(place + odd, "'" + text.substr(odd, 1) +
						 "' is not valid outside double quotes: patterns and lists are not "
						 "supported, and a comment needs a blank before it");
	}

	bool twice(size_t start, const char *key)
	{
		return fail(start, std::string("duplicate ") + key + ": expected at most one of each kind");
	}

	bool provider(size_t start, size_t place, const std::string &text)
	{
		if (rule_.provider_address || rule_.provider_kind)
			return twice(start, "provider");
		rule_.provider_address = PciAddress::parse(text);
		rule_.provider_kind = parse_kind(text);
		return rule_.provider_address || rule_.provider_kind ||
		       fail(place, "'" + text +
					   "': expected a PCI address such as 0000:01:00.0, or a vendor and device "
					   "such as 10de:2336");
	}

	bool disk(size_t start, size_t place, std::string text)
	{
		if (has_disk())
			return twice(start, "disk");
		rule_.disk_address = PciAddress::parse(text);
		if (rule_.disk_address)
			return true;
		if (text.starts_with("/dev/"))
			text.erase(0, std::strlen("/dev/"));
		rule_.disk_name = text;
		return (!text.empty() && text.find('/') == std::string::npos) ||
		       fail(place, "'" + text + "': expected a PCI address or a disk's name such as nvme0n1");
	}

	bool path(size_t start, size_t place, const std::string &text, std::string &out, const std::string &key)
	{
		if (!out.empty())
			return twice(start, key.c_str());
		const auto parsed = parse_path(text);
		out = parsed.value_or("");
		return parsed || fail(place, "'" + text + "': expected an absolute path without //, . or ..");
	}

	const std::string_view text_;
	size_t at_ = 0, end_ = 0; // end_: after the last word
	Rule rule_;
	std::optional<Fault> fault_;
};

// Whether a condition holds.
enum class Answer {
	no,
	yes,
	unknown, // it could not be determined
	later,   // its subject is not known yet
};

Answer answer(bool yes) { return yes ? Answer::yes : Answer::no; }

Answer of_provider(const Rule &rule, const FunctionName &provider)
{
	if (rule.provider_address)
		return answer(*rule.provider_address == provider.address);
	if (rule.provider_kind)
		return provider.kind ? answer(*rule.provider_kind == *provider.kind) : Answer::unknown;
	return Answer::yes;
}

Answer of_path(const std::string &top, const std::string &path)
{
	if (top.empty())
		return Answer::yes;
	return path.empty() ? Answer::unknown : answer(is_below(path, top));
}

Answer of_file(const Rule &rule, const std::optional<std::string> &file)
{
	if (!rule.file.empty() && !file)
		return Answer::later;
	return of_path(rule.file, file.value_or(""));
}

// A deny rule matches if one of the file's disks does, an allow rule only if all do.
Answer of_disks(const Rule &rule, const RuleQuery &question)
{
	const auto &disks = question.disks;
	if (!rule.disk_address && rule.disk_name.empty())
		return Answer::yes;
	if (!disks)
		return Answer::later;
	const auto is_it = [&](const DiskName &disk) {
		return rule.disk_address ? disk.address == *rule.disk_address : disk.name == rule.disk_name;
	};
	const bool deny = rule.verb == Verb::deny;
	const bool fits = deny ? std::any_of(disks->begin(), disks->end(), is_it) :
				 std::all_of(disks->begin(), disks->end(), is_it);
	// An unknown disk could change the answer.
	return question.more_disks && fits != deny ? Answer::unknown : answer(fits);
}

// Unknown counts against the process. Later counts as allowed: the question is asked again when its subject is known.
bool counts(Verb verb, Answer answer)
{
	return answer == Answer::yes || answer == (verb == Verb::deny ? Answer::unknown : Answer::later);
}

} // namespace

bool Rule::is_about(const FunctionName &provider) const { return of_provider(*this, provider) == Answer::yes; }

bool Rule::fits(const RuleQuery &question) const
{
	return counts(verb, of_provider(*this, question.provider)) && counts(verb, of_path(cgroup, question.cgroup)) &&
	       counts(verb, of_file(*this, question.file)) && counts(verb, of_disks(*this, question));
}

std::optional<Fault> Rules::parse(std::string_view text)
{
	std::vector<Rule> found;
	for (unsigned number = 1; !text.empty(); number++) {
		const size_t len = std::min(text.find('\n'), text.size());
		const std::string_view line = text.substr(0, len);
		text.remove_prefix(std::min(len + 1, text.size()));
		// Rules are printed on terminals: refuse control characters.
		const auto odd = std::find_if(line.begin(), line.end(), [](char c) {
			return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == '\x7f';
		});
		if (odd != line.end())
			return Fault{number, static_cast<unsigned>(odd - line.begin() + 1),
				     "control character; expected printable text"};
		Line one(line, number);
		if (one.parse())
			found.push_back(one.rule());
		else if (one.fault())
			return one.fault();
	}
	rules_ = std::move(found);
	return std::nullopt;
}

bool Rules::has_disks() const
{
	return std::any_of(rules_.begin(), rules_.end(),
			   [](const Rule &rule) { return rule.disk_address || !rule.disk_name.empty(); });
}

const Rule *Rules::decide(const RuleQuery &question) const
{
	const auto found =
		std::find_if(rules_.begin(), rules_.end(), [&](const Rule &rule) { return rule.fits(question); });
	return found == rules_.end() ? nullptr : &*found;
}

namespace
{

// The symbolic link because of which a path does not exist; empty if no link is dangling.
std::string broken_link(Syscalls &sys, std::string path)
{
	std::string target;
	while (!path.empty()) {
		const bool is_link = sys.read_link(path, target) == 0;
		if (sys.access(path, F_OK) == 0)
			return "";
		if (is_link)
			return path;
		const size_t slash = path.rfind('/');
		path.resize(slash == path.npos ? 0 : slash);
	}
	return "";
}

} // namespace

int load_rules(Syscalls &sys, const std::string &path, Rules &out, std::string &fault)
{
	std::string text;
	const int rc = sys.read_bounded(path, written_limit, text);
	const std::string broken = rc == -ENOENT ? broken_link(sys, path) : "";
	if (rc == -ENOENT && broken.empty())
		return 0;
	if (rc < 0) {
		const char *name = refusal(rc) ? refusal(rc) : strerrorname_np(-rc);
		const std::string why = name ? name : std::to_string(-rc);
		fault = path + " cannot be read: " +
			(broken.empty() ? why : "the target of the symbolic link " + broken + " does not exist");
		return -EBADMSG;
	}
	const auto found = out.parse(text);
	if (!found)
		return 0;
	fault = path + ":" + std::to_string(found->line) + ":" + std::to_string(found->column) + ": " + found->what;
	return -EBADMSG;
}

std::string own_cgroup(Syscalls &sys)
{
	std::string text;
	sys.read_file("/proc/self/cgroup", text);
	// The entry of the version 2 hierarchy; those of version 1 have no name that a rule could use.
	const size_t at = ("\n" + text).find("\n0::");
	if (at == std::string::npos)
		return "";
	text.erase(0, at + std::strlen("0::"));
	return text.substr(0, text.find('\n'));
}

FunctionName function_name(Syscalls &sys, PciAddress address)
{
	const std::string dir = "/sys/bus/pci/devices/" + address.str() + "/";
	std::string vendor, device;
	// "0x10de\n"
	if (sys.read_file(dir + "vendor", vendor) < 0 || sys.read_file(dir + "device", device) < 0 ||
	    vendor.size() < 6 || device.size() < 6)
		return {address, std::nullopt};
	return {address, parse_kind(vendor.substr(2, 4) + ":" + device.substr(2, 4))};
}

} // namespace peerdma_impl
