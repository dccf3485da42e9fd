#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# bash completion and the manual page match the peerdma command's own tree of subcommands and options.
. "$(dirname "$0")/../tap.sh"
tool=$build/bin/peerdma
page=$root/Documentation/man/peerdma.1
view_page=$root/Documentation/man/peerdma-view.1

# complete_word WORD...: the completions of the last word, sorted
complete_word() {
	COMP_WORDS=(peerdma "$@") COMP_CWORD=$#
	_peerdma
	printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' '
}

# Subcommands, of a subcommand too, and options according to --help.
subcommands() { "$tool" "$@" --help | sed -n '/^Subcommands:/,$s/^  \([a-z]*\) .*/\1/p' | sort | tr '\n' ' '; }
options() { "$tool" "$@" --help | grep -oE '^ +(-[a-z],)?--[a-z-]+' | grep -oE '\--[a-z-]+' | sort | tr '\n' ' '; }

# described SUBCOMMAND [PAGE]: its options in the page's synopsis, plus those of every subcommand
described() {
	awk -v sub_name="$1" '
		$1 == ".Sh" { synopsis = $2 == "SYNOPSIS" }
		synopsis && $1 == ".Nm" { ours = 0 }
		synopsis && $1 == ".Cm" && $2 == sub_name { ours = 1 }
		synopsis && ours { for (i = 1; i < NF; i++) if ($i == "Fl" || $i == ".Fl") if ($(i + 1) ~ /^-[a-z]/) print "-" $(i + 1) }
	' "${2:-$page}" | { cat; echo --help; } | sort -u | tr '\n' ' '
}

script=$("$tool" completion) || exit 1
eval "$script"
# The function given to bash exists.
same "bash is told of it" "complete -o default -F _peerdma peerdma" "$(complete -p peerdma)"
all=$(subcommands)
same "there are subcommands" check "$(grep -ow check <<<"$all")"
same "the first word" "$(printf '%s\n' $all --help --version | sort | tr '\n' ' ')" "$(complete_word '')"
same "the beginning of one" "selftest " "$(complete_word self)"
same "what is none of ours is left to bash" " " "$(complete_word explain /et)"
same "a file where an option might be" " " "$(complete_word cp '')"
for name in $all; do
	same "$name: its options" "$(options "$name")" "$(complete_word "$name" -)"
	same "$name: the page has them in its synopsis" "$(options "$name")" "$(described "$name")"
	same "$name: the page describes it" 1 "$(grep -c "^\.It Cm $name\$" "$page")"
done
views=$(subcommands view)
same "view has subcommands" publish "$(grep -ow publish <<<"$views")"
same "they are completed" "$(printf '%s\n' $views --help | sort | tr '\n' ' ')" "$(complete_word view '')"
same "the beginning of one, too" "withdraw " "$(complete_word view wi)"
same "and files behind one" " " "$(complete_word view info /et)"
for name in $views; do
	same "view $name: its options" "$(options view "$name")" "$(complete_word view "$name" -)"
	same "view $name: the page has them in its synopsis" "$(options view "$name")" "$(described "$name" "$view_page")"
	same "view $name: the page describes it" 1 "$(grep -c "^\.It Cm $name\$" "$view_page")"
done
same "the page describes the common options" "--help --json --version " "$(sed -n 's/^\.It Fl -\([a-z]*\)$/--\1/p' "$page" | sort | tr '\n' ' ')"
finish
