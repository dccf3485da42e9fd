// SPDX-License-Identifier: MIT
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "tools/cli/output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/view/service.hpp"
#include "tools/view/view.hpp"
#include "view/view_conf.hpp"

namespace cli
{
namespace
{

constexpr auto asked_every = std::chrono::milliseconds(200);

// Of the words of the command line. The service looks for files from the root on and takes their names for patterns.
view::ViewConf conf_of_words(const ViewOptions &options)
{
	view::ViewConf conf;
	conf.name = options.name;
	for (const std::string &file : options.files)
		conf.files.push_back(view::pattern_of(std::filesystem::absolute(file)));
	conf.prefetch = options.prefetch;
	conf.compressed = options.compressed;
	try {
		view::set_codec(conf, options.codec);
		for (const std::string &host : options.hosts)
			view::add_host(conf, host);
		if (!view::is_view_name(conf.name))
			view::parse_conf(conf.name, conf.name, ""); // says what is wrong with it
	} catch (const view::BadConf &bad) {
		throw Usage{bad.what()};
	}
	for (size_t i = 0; i < conf.files.size(); i++) {
		view::ViewConf one = conf;
		one.files = {conf.files[i]};
		bool is_kept = false;
		try {
			is_kept = view::parse_conf(conf.name, conf.name, view::conf_text(one)) == one;
		} catch (const view::BadConf &) {
		}
		if (!is_kept)
			throw Failure{
				fmt::format("{}: its name has a line break, or a blank at its end", options.files[i]),
				EINVAL,
				0,
				"Give it another name, or name it by a pattern: --conf FILE.",
				{}};
	}
	return conf;
}

view::ViewConf conf_of_file(const std::string &path)
{
	try {
		std::filesystem::path name = std::filesystem::path(path).filename();
		if (name.extension() == ".conf")
			name.replace_extension();
		return view::parse_conf(path, name, view::read_conf(path));
	} catch (const view::BadConf &bad) {
		throw Failure{bad.what(), 0, 0, "", {}};
	}
}

std::string published_text(const Json &view)
{
	const std::string nqn = text_of(view, "nqn"), note = text_of(view, "note");
	return fmt::format("{}: published as {}{}: {} elements of {}, {}\n{}", text_of(view, "name"),
			   text_of(view, "device"), nqn.empty() ? "" : ", " + nqn, number_of(view, "elements"),
			   text_of(view, "codec"), size_text(number_of(view, "bytes")),
			   note.empty() ? "" : fmt::format("note: {}\n", note));
}

// Until the view is published or has failed.
Json wait_for_view(const ViewOptions &options, const std::string &name)
{
	Progress progress;
	for (;; std::this_thread::sleep_for(asked_every)) {
		const Json view = find_view(ask_service(options.socket, {{"op", "status"}}), name);
		if (view.is_null() || text_of(view, "state") == "ending")
			throw Failure{fmt::format("{}: was withdrawn before it was published", name), 0, 0, "", {}};
		const std::string state = text_of(view, "state");
		if (state == "published")
			return view;
		if (state == "failed")
			throw Failure{
				fmt::format("{}: not published: {}", name, text_of(view, "error")),
				0,
				0,
				fmt::format("Withdraw it by peerdma view withdraw {}, then publish it again.", name),
				{{"view", view}}};
		progress.say(fmt::format("{}: scanned {:.1f} %", name, 100 * fraction_of(view, "scanned")));
	}
}

} // namespace

Report view_publish(const ViewOptions &options)
{
	const bool has_words = !options.name.empty() || !options.files.empty();
	if (options.conf.empty() && (options.name.empty() || options.files.empty()))
		throw Usage{"view publish: expected NAME and FILE, or --conf FILE"};
	if (!options.conf.empty() && (has_words || !options.hosts.empty() || options.codec != ViewOptions().codec ||
				      !options.prefetch || options.compressed))
		throw Usage{
			"view publish: --conf excludes NAME, FILE, --codec, --host, --compressed and --no-prefetch"};
	const view::ViewConf conf = options.conf.empty() ? conf_of_words(options) : conf_of_file(options.conf);
	ask_service(options.socket, {{"op", "publish"}, {"name", conf.name}, {"conf", view::conf_text(conf)}});
	Report report;
	if (options.wait) {
		const Json view = wait_for_view(options, conf.name);
		report.json = {{"ok", true}, {"view", view}};
		report.text = published_text(view);
	} else {
		report.json = {{"ok", true}, {"view", {{"name", conf.name}}}};
		report.text = fmt::format("{0}: its files are scanned now; peerdma view status {0} says how far\n",
					  conf.name);
	}
	return report;
}

Report view_withdraw(const ViewOptions &options)
{
	ask_service(options.socket, {{"op", "withdraw"}, {"name", options.name}});
	Report report;
	report.json = {{"ok", true}, {"name", options.name}};
	report.text = fmt::format("{}: withdrawn\n", escaped(options.name));
	return report;
}

} // namespace cli
