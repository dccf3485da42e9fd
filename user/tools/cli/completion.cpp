// SPDX-License-Identifier: MIT
//
// Generates the completion script from the same tree that parses the command line, so no option can be missing. If no
// word matches, bash completes file names.

#include "tools/cli/completion.hpp"

#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace cli
{
namespace
{

using Apps = std::vector<const CLI::App *>;

Apps subcommands_of(const CLI::App &app)
{
	return app.get_subcommands([](const CLI::App *) { return true; });
}

std::string options_of(const CLI::App &app)
{
	std::string words;
	for (const CLI::Option *option : app.get_options())
		for (const std::string &name : option->get_lnames())
			words += (words.empty() ? "--" : " --") + name;
	return words;
}

std::string names_of(const CLI::App &app)
{
	std::string names;
	for (const CLI::App *sub : subcommands_of(app))
		names += sub->get_name() + " ";
	return names;
}

// One for the words in place of each subcommand, and of each below one; `before` are the words before it.
std::string cases_of(const CLI::App &app, const std::string &before)
{
	std::string cases;
	for (const CLI::App *sub : subcommands_of(app)) {
		const std::string path = before + sub->get_name();
		if (subcommands_of(*sub).empty()) {
			cases += fmt::format("\t'{} '*) words='{}' ;;\n", path, options_of(*sub));
		} else {
			cases += cases_of(*sub, path + " ");
			cases += fmt::format("\t'{} ') words='{}{}' files= ;;\n", path, names_of(*sub),
					     options_of(*sub));
		}
	}
	return cases;
}

} // namespace

std::string bash_completion(const CLI::App &app)
{
	return fmt::format(R"(# bash completion for peerdma, written by: peerdma completion
_peerdma()
{{
	local word=${{COMP_WORDS[COMP_CWORD]}} words= files=1
	COMPREPLY=()
	case "${{COMP_WORDS[*]:1:COMP_CWORD-1}} " in
	' ') words='{}{}' files= ;;
{}	esac
	# A name of a file is no option.
	[ -z "$files" ] || [[ $word == -* ]] || return 0
	while read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$word")
}}
complete -o default -F _peerdma peerdma
)",
			   names_of(app), options_of(app), cases_of(app, ""));
}

} // namespace cli
