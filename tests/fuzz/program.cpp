// SPDX-License-Identifier: MIT
#include "program.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "grammar.hpp"

namespace fuzz
{

void Program::remove(size_t at)
{
	std::copy(calls.begin() + at + 1, calls.begin() + ncalls, calls.begin() + at);
	ncalls--;
}

unsigned Program::threads() const
{
	unsigned most = 0;
	for (size_t i = 0; i < ncalls; i++)
		most = std::max<unsigned>(most, calls[i].thread);
	return most + 1;
}

namespace
{

std::string text_of(const Value &value)
{
	if (value.slot != Slot::number)
		return letters[size_t(value.slot)] + std::to_string(value.number);
	if (value.number < 10)
		return std::to_string(value.number);
	char text[24];
	std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value.number));
	return text;
}

std::optional<Value> value_of(std::string_view text)
{
	Value value;
	int base = 10;
	const size_t letter = text.empty() ? std::string::npos : std::string_view(letters).find(text[0]);
	if (text.starts_with("0x")) {
		base = 16;
		text.remove_prefix(2);
	} else if (letter != std::string::npos && letter > 0) {
		value.slot = Slot(letter);
		text.remove_prefix(1);
	}
	auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value.number, base);
	if (error != std::errc() || end != text.data() + text.size())
		return std::nullopt;
	if (value.slot != Slot::number && value.number >= slot_count[size_t(value.slot)])
		return std::nullopt;
	return value;
}

std::string text_of(const Call &call)
{
	const Spec &spec = specs()[call.spec];
	std::string text;
	if (call.thread)
		text += std::to_string(call.thread) + ": ";
	if (spec.makes != Slot::number)
		text += text_of(Value{spec.makes, call.out}) + " = ";
	text += spec.name;
	for (size_t i = 0; i < call.nargs; i++)
		if (call.args[i] != spec.args[i].usual)
			text += std::string(" ") + spec.args[i].name + "=" + text_of(call.args[i]);
	return text;
}

/// The fault of a line that is not a call; empty if it is one.
std::string parse_line(const std::string &line, Call &call)
{
	std::istringstream words(line);
	std::string word, name;
	std::optional<Value> made;
	while (name.empty() && words >> word) {
		const auto value = value_of(word);
		if (word.size() == 2 && word[1] == ':' && word[0] >= '0' && word[0] < char('0' + max_threads)) {
			call.thread = uint8_t(word[0] - '0');
		} else if (value && value->slot != Slot::number) {
			made = value;
			if (!(words >> word) || word != "=")
				return "= is missing";
		} else {
			name = word;
		}
	}
	const auto spec = std::find_if(specs().begin(), specs().end(), [&](const Spec &s) { return s.name == name; });
	if (spec == specs().end())
		return "no call is named '" + name + "'";
	call = usual_call(size_t(spec - specs().begin()), call.thread);
	if (spec->makes != Slot::number) {
		if (!made || made->slot != spec->makes)
			return name + " makes another kind of thing";
		call.out = uint8_t(made->number);
	}
	while (words >> word) {
		const size_t equals = word.find('=');
		size_t at = 0;
		while (at < spec->args.size() && spec->args[at].name != word.substr(0, equals))
			at++;
		const auto value = equals == std::string::npos ? std::nullopt : value_of(word.substr(equals + 1));
		if (at == spec->args.size() || !value)
			return "'" + word + "' is no argument of " + name;
		call.args[at] = *value;
	}
	return "";
}

} // namespace

std::string text_of(const Program &program)
{
	std::string text;
	for (size_t i = 0; i < program.ncalls; i++)
		text += text_of(program.calls[i]) + "\n";
	return text;
}

std::optional<Program> parse(const std::string &text, std::string &why)
{
	std::istringstream lines(text);
	std::string line;
	Program program;
	for (unsigned number = 1; std::getline(lines, line); number++) {
		if (line.find_first_not_of(" \t") == std::string::npos || line[0] == '#')
			continue;
		Call call;
		why = parse_line(line, call);
		if (!why.empty() || program.ncalls == max_calls) {
			why = "line " + std::to_string(number) + ": " + (why.empty() ? "too many calls" : why);
			return std::nullopt;
		}
		program.push(call);
	}
	return program;
}

} // namespace fuzz
