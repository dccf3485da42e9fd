// SPDX-License-Identifier: MIT
//
// The topology as a graph: the DOT source, and the SVG that Graphviz makes of it.

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/system/fd.hpp"
#include "tools/topo/topology.hpp"

extern char **environ;

namespace cli
{
namespace
{

// In a quoted DOT string a quote and a backslash need a backslash. Names come from the kernel.
std::string dot_string(std::string_view text)
{
	std::string out = "\"";
	for (char c : text) {
		if (c == '"' || c == '\\')
			out += '\\';
		out += c;
	}
	return out + "\"";
}

class ChildProcess
{
public:
	ChildProcess(const char *program, std::vector<const char *> argv, int input, int output)
	{
		posix_spawn_file_actions_t actions;
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
		posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
		argv.push_back(nullptr);
		error_ = ::posix_spawnp(&pid_, program, &actions, nullptr, const_cast<char **>(argv.data()), environ);
		posix_spawn_file_actions_destroy(&actions);
	}
	int error() const { return error_; }
	int wait() const
	{
		int status = 0;
		while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR)
			;
		return status;
	}

private:
	pid_t pid_ = -1;
	int error_;
};

// Anonymous memory files for dot's input and output. Unlike pipes they do not have to be read and written alternately.
Fd open_memory(const char *name)
{
	const int fd = ::memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		throw Failure{"cannot create a file in memory", errno, 0, "", {}};
	return {peerdma_impl::kernel_syscalls(), fd};
}

} // namespace

std::string topo_dot(const Topology &topo)
{
	std::string text = "digraph topology {\n\trankdir=TB;\n\tnode [shape=box, fontname=\"sans-serif\"];\n"
			   "\tedge [fontname=\"sans-serif\"];\n";
	std::vector<std::string> roots;
	for (const Function &function : topo.functions) {
		std::string label = function.pci + "\\n" + function.class_name, style;
		for (const std::string &disk : function.disks)
			label += "\\ndisk " + disk;
		for (uint32_t id : providers_of(topo, function))
			label += fmt::format("\\nprovider {}", id);
		if (function.numa_node >= 0)
			label += fmt::format("\\nnode {}", function.numa_node);
		if (!function.disks.empty())
			style = ", style=filled, fillcolor=lightblue";
		else if (!providers_of(topo, function).empty())
			style = ", style=filled, fillcolor=lightgreen";
		// Line breaks in the label are DOT escapes.
		text += fmt::format("\t{} [label=\"{}\"{}];\n", dot_string(function.pci), label, style);
		const std::string &above = function.parent.empty() ? function.root : function.parent;
		if (function.parent.empty() && std::find(roots.begin(), roots.end(), above) == roots.end()) {
			roots.push_back(above);
			text += fmt::format("\t{} [shape=ellipse];\n", dot_string(above));
		}
		text += fmt::format("\t{} -> {} [dir=none];\n", dot_string(above), dot_string(function.pci));
	}
	for (const OtherDisk &disk : topo.others) {
		const std::string node = dot_string("disk " + disk.name);
		text += fmt::format("\t{} [label=\"disk {}\\n{}\", style=filled, fillcolor=lightblue];\n", node,
				    disk.name, place_of(disk));
		for (const BackingDevice &device : disk.devices)
			if (!device.pci.empty())
				text += fmt::format("\t{} -> {} [dir=none, style=dashed];\n", dot_string(device.pci),
						    node);
	}
	for (const Pair &pair : topo.pairs) {
		std::string label = verdict_name(pair);
		if (!pair.error && pair.why.distance >= 0)
			label += fmt::format("\\ndistance {}", pair.why.distance);
		if (!pair.error)
			label += fmt::format("\\n{}", pair.why.error ? peerdma_reason_name(pair.why.reason) :
								       peerdma_map_name(pair.why.map));
		text += fmt::format("\t{} -> {} [label=\"{}: {}\", style={}, color={}, constraint=false];\n",
				    dot_string(pair.disk_pci.empty() ? "disk " + pair.disk : pair.disk_pci),
				    dot_string(pair.provider_pci), pair.disk, label, pair.error ? "dotted" : "bold",
				    pair.error               ? "gray" :
				    pair.why.error           ? "red" :
				    why_not_direct(pair.why) ? "orange" :
							       "darkgreen");
	}
	return text + "}\n";
}

// dot writes to our descriptor: it does not report an error of writing a file of its own.
std::string render_svg(const std::string &source)
{
	const Fd input = open_memory("dot"), drawn = open_memory("svg");
	if (const int64_t rc = input.write(source, 0); rc < 0)
		throw Failure{"cannot create a file in memory", static_cast<int>(-rc), 0, "", {}};
	const ChildProcess child("dot", {"dot", "-Tsvg"}, input.get(), drawn.get());
	if (child.error())
		throw Failure{"cannot run dot, which draws the picture",
			      child.error(),
			      0,
			      "Install the package graphviz, or print the source with --dot.",
			      {}};
	const int status = child.wait();
	std::string picture(
		static_cast<size_t>(std::max<int64_t>(peerdma_impl::kernel_syscalls().size_of(drawn.get()), 0)), '\0');
	const int64_t n = drawn.read(picture, 0);
	if (status || picture.empty() || n != static_cast<int64_t>(picture.size()))
		throw Failure{"dot could not draw the picture", 0, 0, "", {}};
	return picture;
}

} // namespace cli
