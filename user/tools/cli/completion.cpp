// SPDX-License-Identifier: MIT
//
// Generates the completion script from the same tree that parses the command line, so no option can be missing. If no
// word matches, bash completes file names.

#include "tools/cli/completion.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace cli
{
namespace
{

std::string options_of(const CLI::App &app)
{
	std::string words;
	for (const CLI::Option *option : app.get_options())
		for (const std::string &name : option->get_lnames())
			words += (words.empty() ? "--" : " --") + name;
	return words;
}

} // namespace

std::string bash_completion(const CLI::App &app)
{
	std::string names, cases;
	for (const CLI::App *sub : app.get_subcommands([](const CLI::App *) { return true; })) {
		names += sub->get_name() + " ";
		cases += fmt::format("\t{}) words='{}' ;;\n", sub->get_name(), options_of(*sub));
	}
	return fmt::format(R"(# bash completion for peerdma, written by: peerdma completion
_peerdma()
{{
	local word=${{COMP_WORDS[COMP_CWORD]}} words=
	COMPREPLY=()
	case $([ "$COMP_CWORD" = 1 ] || echo "${{COMP_WORDS[1]}}") in
	'') words='{}{}' ;;
{}	esac
	# A name of a file is no option.
	[ "$COMP_CWORD" = 1 ] || [[ $word == -* ]] || return 0
	while read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$word")
}}
complete -o default -F _peerdma peerdma
)",
			   names, options_of(app), cases);
}

} // namespace cli
