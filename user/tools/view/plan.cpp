// SPDX-License-Identifier: MIT
//
// peerdma view plan: tells the service which elements will be read, and in which order.
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/view/service.hpp"
#include "tools/view/view.hpp"

namespace cli
{
namespace
{

// Bytes of a list: the longest plan in JSON, with as many blanks again.
constexpr size_t max_list = 128 << 20;

std::string read_list(const std::string &path, const std::string &shown)
{
	const bool is_stdin = path == "-";
	const int fd = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC);
	std::string text;
	int error = fd < 0 ? errno : 0;
	for (ssize_t n = 1; !error && n && text.size() <= max_list;) {
		std::array<char, 65536> some;
		n = ::read(fd, some.data(), some.size());
		if (n < 0 && errno != EINTR)
			error = errno;
		text.append(some.data(), n > 0 ? static_cast<size_t>(n) : 0);
	}
	if (!is_stdin && fd >= 0)
		::close(fd);
	if (error)
		throw Failure{fmt::format("cannot read {}", shown), error, 0, "", {}};
	if (text.size() > max_list)
		throw Failure{
			fmt::format("{}: too large for a list of ranges; expected at most {} bytes", shown, max_list),
			EFBIG,
			0,
			"",
			{}};
	return text;
}

// A list of ranges: lines of "FIRST COUNT", or JSON: [[FIRST, COUNT], ...]. The JSON library does not say in which line a value
// is, and takes ten times the memory of the list.
class List
{
public:
	List(std::string_view text, const std::string &name) : rest_(text), name_(name) {}

	// Throws Failure that names the line.
	std::vector<PlannedRange> ranges()
	{
		skip_blanks();
		while (take('\n'))
			skip_blanks();
		if (starts_with('['))
			parse_json();
		else
			parse_lines();
		return std::move(ranges_);
	}

private:
	void parse_lines()
	{
		for (; !rest_.empty(); skip_blanks()) {
			if (!starts_with('\n') && !starts_with('#')) {
				const std::string_view line = rest_.substr(0, rest_.find_first_of("\r\n"));
				PlannedRange range = {};
				const bool has_first = number(range.first), has_blank = skip_blanks();
				const bool has_count = has_first && has_blank && number(range.count);
				skip_blanks();
				if (!has_count || !(rest_.empty() || starts_with('\n')))
					fail(fmt::format("'{:.40}': expected FIRST COUNT, two whole numbers", line));
				add(range);
			}
			rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
			take('\n');
		}
		if (ranges_.empty())
			fail("there is no range; a list of [] ends the plan");
	}

	void parse_json()
	{
		expect('[');
		if (!take_token(']')) {
			do {
				PlannedRange range = {};
				expect('[');
				expect_number(range.first);
				expect(',');
				expect_number(range.count);
				expect(']');
				add(range);
			} while (take_token(','));
			expect(']');
		}
		skip_space();
		if (!rest_.empty())
			fail(expected("the end after the list"));
	}

	bool starts_with(char c) const { return rest_.starts_with(c); }
	bool take(char c)
	{
		if (!starts_with(c))
			return false;
		line_ += c == '\n';
		rest_.remove_prefix(1);
		return true;
	}
	bool skip_blanks()
	{
		const size_t before = rest_.size();
		rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
		return rest_.size() < before;
	}
	void skip_space()
	{
		do
			skip_blanks();
		while (take('\n'));
	}
	// Digits only, as JSON has them: no sign, no leading zero.
	bool number(uint64_t &value)
	{
		const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
		if (error == std::errc::result_out_of_range)
			fail(fmt::format("'{:.40}': the number is too large",
					 std::string_view(rest_.data(), static_cast<size_t>(end - rest_.data()))));
		if (error != std::errc() || (starts_with('0') && end > rest_.data() + 1))
			return false;
		rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
		return true;
	}
	bool take_token(char c)
	{
		skip_space();
		return take(c);
	}
	void expect(char c)
	{
		if (!take_token(c))
			fail(expected(fmt::format("'{}' of [[FIRST, COUNT], ...]", c)));
	}
	void expect_number(uint64_t &value)
	{
		skip_space();
		if (!number(value))
			fail(expected("a whole number of [[FIRST, COUNT], ...]"));
	}
	std::string expected(const std::string &what) const
	{
		return rest_.empty() ? fmt::format("the list ends here; expected {}", what) :
				       fmt::format("'{:.40}': expected {}", rest_.substr(0, rest_.find('\n')), what);
	}
	void add(const PlannedRange &range)
	{
		if (!range.count)
			fail(fmt::format("'{} {}': COUNT is 0", range.first, range.count));
		if (ranges_.size() == max_planned_ranges)
			fail(fmt::format("too many ranges; expected at most {}", max_planned_ranges));
		ranges_.push_back(range);
	}
	[[noreturn]] void fail(const std::string &why) const
	{
		throw Failure{fmt::format("{}:{}: {}", name_, line_, why), 0, 0, "", {{"line", line_}}};
	}

	std::string_view rest_; // not parsed yet
	const std::string &name_;
	uint64_t line_ = 1; // in which rest_ begins
	std::vector<PlannedRange> ranges_;
};

} // namespace

Report view_plan(const ViewOptions &options)
{
	const std::string shown = options.ranges == "-" ? "standard input" : options.ranges;
	const std::vector<PlannedRange> ranges = List(read_list(options.ranges, shown), shown).ranges();
	send_plan(options.socket, options.name, ranges);
	Report report;
	report.json = {{"ok", true}, {"name", options.name}, {"ranges", ranges.size()}};
	report.text = escaped(options.name) + (ranges.empty() ? std::string(": its plan is ended\n") :
								fmt::format(": a plan of {} range{}\n", ranges.size(),
									    ranges.size() == 1 ? "" : "s"));
	return report;
}

} // namespace cli
