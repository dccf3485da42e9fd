// SPDX-License-Identifier: MIT
//
// Positions of keys and values in a JSON text, which nlohmann::json does not keep.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace cufile
{

// A message about a position in the text.
struct Remark {
	size_t at;
	std::string what;
};

// Finds the start of each token while a parser accepts the same text. Skips commas and colons.
class JsonTokens
{
public:
	explicit JsonTokens(std::string_view text) : text_(text) { at_ = text.starts_with("\xef\xbb\xbf") ? 3 : 0; }

	size_t next()
	{
		skip();
		const size_t start = at_;
		if (at_ == text_.size())
			return start;
		const char first = text_[at_++];
		if (first == '"')
			skip_string();
		else if (first != '{' && first != '}' && first != '[' && first != ']')
			at_ = std::min(text_.find_first_of(" \t\r\n,:]}/", at_), text_.size());
		return start;
	}

private:
	void skip()
	{
		constexpr std::string_view line_ends("\n\r\0", 3);
		for (;;) {
			at_ = std::min(text_.find_first_not_of(" \t\r\n,:", at_), text_.size());
			const std::string_view rest = text_.substr(at_);
			if (rest.starts_with("//"))
				at_ = std::min(text_.find_first_of(line_ends, at_), text_.size());
			else if (rest.starts_with("/*"))
				at_ = std::min(text_.find("*/", at_ + 2), text_.size() - 2) + 2;
			else
				return;
		}
	}
	void skip_string()
	{
		while (at_ < text_.size() && text_[at_] != '"')
			at_ += text_[at_] == '\\' ? 2 : 1;
		at_ = std::min(at_ + 1, text_.size());
	}

	const std::string_view text_;
	size_t at_;
};

// Positions of keys, duplicate keys, and unknown keys that resemble restricting ones, at any depth. The parser calls
// add() for each token.
class JsonIndex
{
public:
	struct Position {
		size_t key, value;
	};

	explicit JsonIndex(std::string_view text) : tokens_(text) {}

	void add(int depth, nlohmann::json::parse_event_t event, const nlohmann::json &parsed);
	size_t next() { return tokens_.next(); }
	const Position &position(const std::string &path) const { return places_.at(path); }
	const std::vector<std::string> &twice() const { return twice_; }
	const std::vector<Remark> &misnamed() const { return misnamed_; }

private:
	void add_value(size_t depth, nlohmann::json::parse_event_t event);
	void add_key(size_t depth, size_t at, std::string name);
	void check_name(const std::string &path, size_t at);

	JsonTokens tokens_;
	std::vector<std::string> parts_;
	std::vector<std::optional<size_t>> elements_; // elements of each open array; nullopt: an object
	std::map<std::string, Position> places_;
	size_t bytes_ = 0;         // of all paths
	Position *last_ = nullptr; // of the key whose value follows
	std::vector<std::string> twice_;
	std::vector<Remark> misnamed_;
};

} // namespace cufile
