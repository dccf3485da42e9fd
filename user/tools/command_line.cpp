// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <exception>
#include <functional>
#include <new>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tools/cli/cli.hpp"
#include "tools/cli/completion.hpp"
#include "tools/cli/output.hpp"
#include "tools/copy/verify.hpp"
#include "tools/view/view.hpp"

namespace cli
{
namespace
{

int run_command(const std::function<Report()> &command, bool json)
{
	auto failed = [json](const Failure &failure) {
		complain(failure.line());
		return json ? print(dump(failure.json()), exit_failed) : exit_failed;
	};
	try {
		Report report = command();
		return print(json ? dump(report.json) : printable(report.text), report.status);
	} catch (const Usage &usage) {
		complain(usage.what);
		return exit_usage;
	} catch (const Failure &failure) {
		return failed(failure);
	} catch (const std::bad_alloc &) {
		return failed({"the command itself", ENOMEM, 0, "", {}});
	} catch (const std::exception &error) {
		return failed({error.what(), 0, 0, "", {}});
	}
}

std::string no_subcommand(const std::string &name)
{
	return fmt::format("unknown subcommand '{}'; see peerdma --help", name);
}

// One line, like every other error of this command.
std::string usage_line(const CLI::App *app, const CLI::Error &error)
{
	// CLI11 reports an unknown subcommand as a missing one.
	if (const auto words = app->remaining(); app->get_parent() == nullptr && !words.empty())
		return no_subcommand(words.front());
	for (const CLI::App *group : app->get_subcommands()) {
		if (!group->get_require_subcommand_min() || !group->get_subcommands().empty())
			continue;
		std::string names;
		for (const CLI::App *sub : group->get_subcommands({}))
			names += (names.empty() ? "" : ", ") + sub->get_name();
		const auto words = group->remaining();
		return fmt::format("{}: {}expected {}; see peerdma {} --help", group->get_name(),
				   words.empty() ? "" : fmt::format("unknown subcommand '{}'; ", words.front()), names,
				   group->get_name());
	}
	return fmt::format("{}; see peerdma --help", error.what());
}

// An option or an argument that is a whole number.
template <class Number, class Place>
CLI::Option *add_number(CLI::App *sub, const char *name, Place &place, uint64_t least, uint64_t most, const char *text)
{
	return sub->add_option_function<std::string>(
		name,
		[name, &place, least, most](const std::string &value) {
			const auto n = parse_integer(value);
			if (!n || *n < least || *n > most)
				throw CLI::ValidationError(
					name,
					fmt::format("'{}': expected a whole number from {} to {}", value, least, most));
			place = static_cast<Number>(*n);
		},
		text);
}

// peerdma view: subcommands of its own. add(parent, name, text, body) adds one.
template <class Add> void add_view_commands(CLI::App &parent, ViewOptions &options, const Add &add)
{
	parent.require_subcommand(1);
	auto add_view = [&](const char *name, const char *text, Report (*body)(const ViewOptions &)) {
		return add(parent, name, text, [&options, body] { return body(options); });
	};
	auto add_asking = [&](const char *name, const char *text, Report (*body)(const ViewOptions &)) {
		CLI::App *sub = add_view(name, text, body);
		sub->add_option("--socket", options.socket, "Where peerdma-viewd answers")->capture_default_str();
		return sub;
	};
	CLI::App *sub = add_asking("publish", "Publish a view of files, once they are scanned", view_publish);
	sub->add_option("NAME", options.name, "The view's name: letters, digits, '-', '_' and '.'");
	sub->add_option("FILE", options.files, "A file; the elements of several follow each other");
	sub->add_option("--codec", options.codec,
			"The elements and what they are reduced to: u32, u32:u16, i64:18, ...")
		->capture_default_str();
	sub->add_option("--host", options.hosts, "A host that may connect, by its NQN; default: none")
		->allow_extra_args(false);
	sub->add_flag("--compressed", options.compressed,
		      "The files are compressed with zstd or lz4: the view is of what they decompress to");
	sub->add_flag_callback(
		"--no-prefetch", [&options] { options.prefetch = false; }, "Do not read ahead of sequential readers");
	sub->add_option("--conf", options.conf, "A file with the definition; its name is that of the view");
	sub->add_flag("--wait", options.wait, "Wait until the view is published or has failed");
	sub = add_asking("withdraw", "End serving a view", view_withdraw);
	sub->add_option("NAME", options.name, "The view")->required();
	sub = add_asking("plan", "Say which elements of a view will be read, and in which order", view_plan);
	sub->add_option("NAME", options.name, "The view")->required();
	sub->add_option("--ranges", options.ranges,
			"A file with lines of FIRST COUNT, or with a JSON list of [FIRST, COUNT]; -: standard input")
		->required();
	add_asking("ls", "List the views", view_ls);
	sub = add_asking("status", "Show the state of views: scan, reads, faults", view_status);
	sub->add_option("NAME", options.name, "The view; default: all");
	sub = add_view("info", "Show the header of a view, on a block device or in an image of one", view_info);
	sub->add_option("DEVICE", options.device, "A block device, or an image file")->required();
	sub->add_flag("--verify", options.verify, "Read everything and compare each MiB with its CRC32C");
	sub = add_view("read", "Read elements of a view, or of a plain file, into a file or standard output",
		       view_read);
	sub->add_option("DEVICE", options.device, "A view's block device, an image of one, or a plain file")
		->required();
	add_number<uint64_t>(sub, "--first", options.first, 0, UINT64_MAX, "The first element; default: 0");
	add_number<uint64_t>(sub, "--count", options.count, 1, UINT64_MAX, "Elements; default: to the last one");
	sub->add_option("--codec", options.file_codec,
			"Of a plain file: its elements and what they are reduced to on the way, such as u32:17");
	sub->add_option("--output", options.output, "A file that is written or replaced; -: standard output")
		->capture_default_str();
	sub->add_flag("--packed", options.packed, "Leave the elements reduced, one after the other without gaps");
}

// The index, from 1, of the first empty argument, else 0. No option and no argument accepts an empty value.
int empty_argument(int argc, char **argv)
{
	bool options = true;
	for (int i = 1; i < argc; i++) {
		const std::string_view word = argv[i];
		if (word.empty() || (options && word.starts_with("--") && word.find('=') == word.size() - 1))
			return i;
		options = options && word != "--";
	}
	return 0;
}

// Words after -- are the command line of another program. Return: the number of words before them.
int take_command(int argc, char **argv, std::vector<std::string> &command)
{
	if (argc < 2 || std::string_view(argv[1]) != "witness")
		return argc;
	const auto end = argv + argc, dashes = std::find(argv, end, std::string_view("--"));
	if (dashes != end)
		command.assign(dashes + 1, end);
	return static_cast<int>(dashes - argv);
}

} // namespace

int run(int argc, char **argv)
{
	CLI::App app("Moves data between files and the memory of PCI devices.", "peerdma");
	app.set_version_flag("--version", std::string("peerdma ") + peerdma_version());
	app.require_subcommand(1);
	app.fallthrough(false);
	app.failure_message(usage_line);
	bool json = false;
	std::function<Report()> command;

	auto add_to = [&](CLI::App &parent, const char *name, const char *text, std::function<Report()> body) {
		CLI::App *added = parent.add_subcommand(name, text);
		added->add_flag("--json", json, "Print one JSON object, for programs");
		added->callback([&command, body] { command = body; });
		return added;
	};
	auto add = [&](const char *name, const char *text, std::function<Report()> body) {
		return add_to(app, name, text, std::move(body));
	};

	CheckOptions check_options;
	CLI::App *sub = add("check", "Check whether this host is ready, and how to fix what is missing",
			    [&] { return check(check_options); });
	sub->add_option("TARGET", check_options.targets,
			"A file, disk or mount point, and a PCI address: check this pair")
		->expected(0, 2);
	sub->add_option("--root", check_options.root,
			"Check a copy of another machine's files: a folder with its proc, sys, dev");
	sub->add_flag("--verbose", check_options.verbose,
		      "Print each item, why it matters, each change and how to undo it");

	add("providers", "List the devices whose memory is published", [] { return providers(); });

	PublishOptions options;
	sub = add("publish", "Publish a range of a PCI device's memory", [&] { return publish(options); });
	sub->add_option("DEVICE", options.device, "PCI address, such as 0000:01:00.0")->required();
	add_number<int>(sub, "--bar", options.bar, 0, 5,
			"BAR number; default: the largest 64-bit prefetchable memory BAR");
	sub->add_option("--offset", options.offset, "Bytes from the BAR's start; K, M, G are powers of 1024");
	sub->add_option("--size", options.size, "Bytes; default: to the end of the BAR");
	sub->add_flag("--force", options.force, "Take the device from the driver that is bound to it");
	sub->add_flag("--non-prefetchable", options.non_prefetchable,
		      "Accept a BAR that is not prefetchable: it may hold registers");

	std::string device;
	sub = add("unpublish", "Unpublish a device's memory", [&] { return unpublish(device); });
	sub->add_option("DEVICE", device, "PCI address")->required();

	std::string file, provider, codec;
	sub = add("explain", "Explain how a file's bytes would reach a provider, and why not directly",
		  [&] { return explain(file, provider, codec); });
	sub->add_option("--codec", codec,
			"Also what reduces its elements for a program that opens it with this codec, as u32:17");
	sub->add_option("FILE", file, "A regular file or a block device")->required();
	sub->add_option("--provider", provider, "Provider's id or PCI address, if there are several");

	CopyOptions copied;
	sub = add("cp", "Copy a file into a provider's memory, or through it into another file",
		  [&] { return copy(copied); });
	sub->add_option("FILE", copied.source, "A regular file or a block device")->required();
	sub->add_option("TARGET", copied.target, "gpu:[ID|PCI address][+OFFSET], a file or a directory")->required();
	sub->add_option("--provider", copied.provider,
			"Into a file: provider's id or PCI address, if there are several");
	sub->add_flag("--require-direct", copied.require_direct, "Into a file: fail if one side has no direct route");
	sub->add_flag("--verify", copied.verify, "Compare every byte with read(2)");

	BenchOptions measured;
	sub = add("bench", "Measure the routes between a file and a provider's memory",
		  [&] { return bench(measured); });
	sub->add_option("TARGET", measured.target, "A file, a block device, or a directory to create a file in");
	auto setting = [&](const char *name, const char *key, const char *text) {
		sub->add_option_function<std::string>(
			name, [&measured, key](const std::string &value) { measured.settings[key] = value; }, text);
	};
	setting("--provider", "provider", "Provider's id or PCI address, if there are several");
	setting("--route", "route", "Any of direct,bounce,host,naive; default: all");
	setting("--rw", "rw", "read, write, randread or randwrite; default: read");
	setting("--io-size", "io_size", "Bytes per request, such as 4K,64K,1M or 1M:4M:1M; default: 1M");
	setting("--threads", "threads", "Number of threads, such as 1,4; default: 1");
	setting("--depth", "depth", "Concurrent requests per thread, such as 1,32; default: 1");
	setting("--runtime", "runtime", "Seconds per row; default: 3");
	setting("--bytes", "bytes", "Maximum bytes per row");
	setting("--file-size", "file_size", "Bytes of the file created in a directory; default: 64M");
	sub->add_flag_callback(
		"--overwrite", [&measured] { measured.settings["overwrite"] = "1"; },
		"Let a write overwrite an existing file or device");
	sub->add_option("--jobs", measured.jobs, "A job file with gdsio's keys; excludes most other options");
	sub->add_option("--svg", measured.svg, "Write the picture to this file");

	SelftestOptions tested;
	sub = add("selftest", "Test on a new file: move bytes, compare each of them, and report", [&] {
		tested.provider = provider;
		return selftest(tested);
	});
	sub->add_option("DIRECTORY", tested.dir, "Directory for the file; its filesystem is tested")->required();
	sub->add_option("--provider", provider, "Provider's id or PCI address, if there are several");
	sub->add_option("--memory", tested.memory,
			"Memory of the provider, or of a vendor's library: provider (default), cuda, hip, ze")
		->check(CLI::IsMember({"provider", "cuda", "hip", "ze"}));

	std::string most = "0";
	sub = add("verify", "Read a file into a provider's memory, and compare it with read(2)",
		  [&] { return verify(file, provider, most); });
	sub->add_option("FILE", file, "A regular file or a block device")->required();
	sub->add_option("--provider", provider, "Provider's id or PCI address, if there are several");
	sub->add_option("--size", most, "Maximum bytes from its start; 0 is all");

	double every = 0;
	unsigned rounds = 0;
	sub = add("stat", "Show counters, by process and by disk", [] { return stat(); });
	CLI::Option *interval = sub->add_option_function<std::string>(
		"INTERVAL",
		[&every](const std::string &value) {
			const auto seconds = parse_real(value);
			if (!seconds || *seconds < 0.01 || *seconds > 86400)
				throw CLI::ValidationError(
					"INTERVAL",
					fmt::format("'{}': expected a number of seconds from 0.01 to 86400", value));
			every = *seconds;
		},
		"Repeat after this many seconds");
	add_number<unsigned>(sub, "COUNT", rounds, 1, UINT_MAX, "Number of repetitions")->needs(interval);

	WitnessOptions observed;
	sub = add("witness", "Prove the route of a process's bytes by kernel tracing",
		  [&] { return witness(observed); });
	add_number<int>(sub, "PID", observed.pid, 1, INT_MAX,
			"The process to watch until it ends; or -- COMMAND to run one");

	RulesOptions asked;
	sub = add("rules", "Check a rules file, or explain which rule decides", [&] { return rules(asked); });
	sub->add_option("ACTION", asked.action, "check or explain")
		->required()
		->check(CLI::IsMember({"check", "explain"}));
	sub->add_option("RULES", asked.rules, "A rules file; default: /etc/peerdma/rules");
	sub->add_option("--provider", asked.provider, "To explain: the device, by its PCI address");
	sub->add_option("--file", asked.file, "To explain: the file; default: publishing and allocating memory");
	sub->add_option("--disk", asked.disks, "To explain: a disk of the file: its name, PCI address, or NAME=ADDRESS")
		->allow_extra_args(false);
	sub->add_option("--cgroup", asked.cgroup, "To explain: the cgroup of the process; default: that of this one");

	TopoOptions picture;
	sub = add("topo", "Show the PCI tree with disks, providers and the routes between them",
		  [&] { return topo(picture); });
	sub->add_option("--svg", picture.svg, "Write a picture to this file; needs dot of graphviz");
	sub->add_flag("--dot", picture.dot, "Print the source for dot");

	ViewOptions viewed;
	add_view_commands(
		*app.add_subcommand("view", "Publish views: reduced images of files, served as block devices"), viewed,
		add_to);

	std::string subject;
	CLI::App *help = app.add_subcommand("help", "Print the help of the command or of a subcommand");
	help->add_option("COMMAND", subject, "A subcommand");
	// Its output is a script, not a report.
	CLI::App *completion = app.add_subcommand("completion", "Print the bash completion script of this command");

	argc = take_command(argc, argv, observed.command);
	if (const int at = empty_argument(argc, argv)) {
		complain(fmt::format("argument {} is empty: '{}'; omit it or give it a value", at, argv[at]));
		return exit_usage;
	}
	try {
		app.parse(argc, argv);
	} catch (const CLI::ParseError &e) {
		// CLI11 reports help and version as parse errors with status 0.
		std::ostringstream out, wrong;
		if (app.exit(e, out, wrong) == 0)
			return print(out.str(), exit_ok);
		complain(wrong.str());
		return exit_usage;
	}
	if (*help) {
		const auto about = app.get_subcommands([&](const CLI::App *one) { return one->get_name() == subject; });
		if (!subject.empty() && about.empty()) {
			complain(no_subcommand(subject));
			return exit_usage;
		}
		// A new tree: after parsing a subcommand the old one prints that subcommand's help.
		std::string flag = "--help";
		std::vector<char *> words = {argv[0], flag.data()};
		if (!subject.empty())
			words.insert(words.begin() + 1, subject.data());
		return run(static_cast<int>(words.size()), words.data());
	}
	if (*completion)
		return print(bash_completion(app), exit_ok);
	observed.json = viewed.json = json;
	int status = run_command(command, json);
	for (unsigned i = 1; every > 0 && status == exit_ok && i != rounds; i++) {
		std::this_thread::sleep_for(std::chrono::duration<double>(every));
		status = run_command(command, json);
	}
	return status;
}

} // namespace cli
