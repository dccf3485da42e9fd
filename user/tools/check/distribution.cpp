// SPDX-License-Identifier: MIT
//
// What differs by distribution: where a kernel comes from, how its command line and its initramfs are changed, what
// packages are called. Only what is known of one is said of it: Documentation/packages.md, "Other distributions".

#include "tools/check/check.hpp"

#include <cstdlib>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

// A value of os-release: as the shell reads it, without variables.
std::string unquoted(const std::string &text)
{
	std::string out;
	char quote = 0;
	for (size_t i = 0; i < text.size(); i++) {
		const char c = text[i];
		if (c == '\\' && quote != '\'' && i + 1 < text.size())
			out += text[++i];
		else if (c == quote)
			quote = 0;
		else if (!quote && (c == '"' || c == '\''))
			quote = c;
		else
			out += c;
	}
	return out;
}

std::string value_of(const std::string &text, const std::string &key)
{
	std::istringstream lines(text);
	std::string value;
	// The last one counts, as for the shell.
	for (std::string line; std::getline(lines, line);)
		if (line.starts_with(key + "="))
			value = unquoted(line.substr(key.size() + 1));
	return value;
}

Family family_of(const std::string &id)
{
	static constexpr std::pair<const char *, Family> ids[] = {
		{"debian", Family::debian},      {"ubuntu", Family::ubuntu}, {"rhel", Family::redhat},
		{"centos", Family::redhat},      {"rocky", Family::redhat},  {"almalinux", Family::redhat},
		{"ol", Family::redhat},          {"fedora", Family::fedora}, {"sles", Family::suse},
		{"sles_sap", Family::suse},      {"sled", Family::suse},     {"suse", Family::suse},
		{"opensuse-leap", Family::suse}, {"opensuse", Family::suse}, {"opensuse-tumbleweed", Family::suse},
		{"arch", Family::arch}};
	for (const auto &[name, family] : ids)
		if (id == name)
			return family;
	return Family::unknown;
}

// The lts releases, as 24.04 is one: a year that is even, and April.
bool is_lts(const std::string &version)
{
	return version.size() == 5 && version.ends_with(".04") && (version[1] - '0') % 2 == 0;
}

const std::string enable = "scripts/config -e PCI_P2PDMA -e ZONE_DEVICE -e IO_URING, ";

std::string build_kernel(Family family)
{
	const std::string what = "build 6.12 or 7.2: " + enable;
	switch (family) {
	case Family::debian:
	case Family::ubuntu:
		return what + "make olddefconfig bindeb-pkg, install the packages, and boot it";
	case Family::redhat:
	case Family::fedora:
	case Family::suse:
		return what + "make olddefconfig binrpm-pkg, install the packages, and boot it";
	case Family::arch:
	case Family::unknown:
		break;
	}
	return what + "make olddefconfig, make, make modules_install install, and boot it";
}

// A kernel of the distribution's own, as far as one is known; empty if none is.
std::string packaged_kernel(const Distribution &distribution)
{
	const std::string &name = distribution.name, &version = distribution.version;
	const std::string look =
		"grep CONFIG_PCI_P2PDMA /boot/config-* or /lib/modules/*/config shows what a kernel has";
	// Its kernels are not those of what it is like.
	if (!distribution.itself)
		return fmt::format("PeerDMA was run on no kernel of {}: {}", name, look);
	const int major = std::atoi(version.c_str());
	switch (distribution.family) {
	case Family::debian:
		if (major == 13)
			return "boot a 7.2 of Debian 13's: apt install the newest that apt-cache search "
			       "'^linux-image-7[.]2[.].*deb13-amd64$' lists with trixie-backports among apt's sources "
			       "(snapshot.debian.org has what has left it), and reboot";
		if (major && major < 13)
			return fmt::format(
				"Debian {}'s own kernels and its backports' are without "
				"CONFIG_PCI_P2PDMA: upgrade to Debian 13, whose backports have a 7.2 with it",
				version);
		return "boot a 7.2 of Debian's, which has CONFIG_PCI_P2PDMA: snapshot.debian.org has those that have "
		       "left the suite";
	case Family::ubuntu:
		return fmt::format(
			"PeerDMA was run on no kernel of Ubuntu; NVIDIA's guide counts on CONFIG_PCI_P2PDMA "
			"in those from 6.2 on{}; {}",
			is_lts(version) ? fmt::format(": apt install linux-generic-hwe-{}, and reboot", version) : "",
			look);
	case Family::redhat:
		if (major && major < 10)
			return fmt::format("all kernels of {} {} are older than 6.1, the oldest that the module builds "
					   "for: release 10 has a 6.12, on which PeerDMA was not run",
					   name, version);
		return fmt::format("PeerDMA was run on no kernel of {}: {}", name, look);
	case Family::fedora:
	case Family::suse:
	case Family::arch:
		return fmt::format("PeerDMA was run on no kernel of {}: {}", name, look);
	case Family::unknown:
		break;
	}
	return "";
}

// The same in a few words.
std::string packaged_in_brief(const Distribution &distribution)
{
	const int major = distribution.itself ? std::atoi(distribution.version.c_str()) : 0;
	switch (distribution.family) {
	case Family::debian:
		if (major == 13)
			return "boot 7.2 of trixie-backports";
		if (major && major < 13)
			return "Debian 13 with 7.2 of its backports";
		break;
	case Family::ubuntu:
		if (is_lts(distribution.version))
			return fmt::format("apt install linux-generic-hwe-{}, reboot", distribution.version);
		break;
	case Family::redhat:
		if (major && major < 10)
			return "upgrade to release 10, or build 7.2";
		break;
	case Family::fedora:
	case Family::suse:
	case Family::arch:
	case Family::unknown:
		break;
	}
	return "build 6.12 or 7.2 with CONFIG_PCI_P2PDMA";
}

// How the initramfs is made anew. The tool that is there, before the one that the distribution comes with.
std::string rebuild_initramfs(const Host &host, Family family)
{
	struct Tool {
		const char *command;
		std::vector<const char *> paths;
	};
	static const Tool debian = {"update-initramfs -u -k all",
				    {"/usr/sbin/update-initramfs", "/sbin/update-initramfs"}},
			  dracut = {"dracut -f --regenerate-all", {"/usr/bin/dracut", "/sbin/dracut"}},
			  arch = {"mkinitcpio -P", {"/usr/bin/mkinitcpio"}};
	std::vector<const Tool *> tools = {&debian, &dracut, &arch};
	const Tool *own = family == Family::debian || family == Family::ubuntu ? &debian :
			  family == Family::arch                               ? &arch :
			  family == Family::unknown                            ? nullptr :
										 &dracut;
	if (own)
		tools.insert(tools.begin(), own);
	for (const Tool *tool : tools)
		for (const char *path : tool->paths)
			if (host.sys.access(path, F_OK) == 0)
				return tool->command;
	if (own)
		return own->command;
	return "rebuild the initramfs with the distribution's tool (update-initramfs -u -k all, dracut -f "
	       "--regenerate-all or mkinitcpio -P)";
}

// Whether the kernel has a module built in, which reads no file of modprobe.d.
bool built_in(const Host &host, std::string module)
{
	std::string text, line;
	host.sys.read_file("/lib/modules/" + host.release + "/modules.builtin", text);
	auto dashes = [](std::string name) {
		for (char &c : name)
			c = c == '_' ? '-' : c;
		return name;
	};
	std::istringstream lines(text);
	while (std::getline(lines, line))
		if (dashes(base(line)) == dashes(module) + ".ko")
			return true;
	return false;
}

} // namespace

Distribution distribution_of(const Host &host)
{
	std::string text;
	if (host.sys.read_file("/etc/os-release", text) < 0)
		host.sys.read_file("/usr/lib/os-release", text);
	Distribution found{
		.id = value_of(text, "ID"), .name = value_of(text, "NAME"), .version = value_of(text, "VERSION_ID")};
	if (found.name.empty())
		found.name = found.id.empty() ? "this distribution" : found.id;
	// Its packages are a part of the image.
	if (host.sys.access("/run/ostree-booted", F_OK) == 0)
		return found;
	found.family = family_of(found.id);
	found.itself = found.family != Family::unknown;
	std::istringstream like(value_of(text, "ID_LIKE"));
	for (std::string id; found.family == Family::unknown && like >> id;)
		found.family = family_of(id);
	return found;
}

Advice get_kernel(const Host &host)
{
	const Distribution distribution = distribution_of(host);
	const std::string packaged = packaged_kernel(distribution);
	return {(packaged.empty() ? "" : packaged + "; or ") + build_kernel(distribution.family),
		"boot this kernel again: both stay installed", packaged_in_brief(distribution)};
}

Advice get_headers(const Host &host)
{
	const Distribution distribution = distribution_of(host);
	const std::string build = "/lib/modules/" + host.release + "/build",
			  own = fmt::format("for a kernel of your own: ln -s FOLDER {}, where FOLDER is what it was "
					    "built in, or make module KDIR=FOLDER",
					    build);
	std::string install, remove;
	switch (distribution.family) {
	case Family::debian:
	case Family::ubuntu:
		install = "apt install linux-headers-" + host.release;
		remove = "apt purge linux-headers-" + host.release;
		break;
	case Family::redhat:
	case Family::fedora:
		install = "dnf install kernel-devel-" + host.release;
		remove = "dnf remove kernel-devel-" + host.release;
		break;
	case Family::suse: {
		// 6.12.0-160000.5-default
		const size_t dash = host.release.rfind('-');
		const std::string flavor = dash == host.release.npos ? "default" : host.release.substr(dash + 1);
		install = fmt::format("zypper install kernel-{}-devel, of the version of {}", flavor, host.release);
		remove = fmt::format("zypper remove kernel-{}-devel", flavor);
		break;
	}
	case Family::arch: {
		std::string package = "linux-headers";
		for (const char *flavor : {"lts", "zen", "hardened"})
			if (host.release.ends_with(std::string("-") + flavor))
				package = fmt::format("linux-{}-headers", flavor);
		install = fmt::format("pacman -S {}, of the version of {}", package, host.release);
		remove = "pacman -R " + package;
		break;
	}
	case Family::unknown:
		return {fmt::format("install the headers that {} has for {}; {}", distribution.name, host.release, own),
			"remove them; rm " + build, fmt::format("install the headers for {}", host.release)};
	}
	return {install + "; " + own, remove + "; rm " + build, install};
}

Advice kernel_parameter(const Host &host, const std::string &parameter)
{
	const std::string file = fmt::format("add {} to GRUB_CMDLINE_LINUX in /etc/default/grub{}", parameter,
					     parameter.find(';') == parameter.npos ? "" : " (in quotes)");
	const std::string brief = "boot with " + parameter;
	auto by = [&](const std::string &command) {
		return Advice{fmt::format("{}, {}, reboot", file, command),
			      fmt::format("take {} out again, {}, reboot", parameter, command), brief};
	};
	switch (distribution_of(host).family) {
	case Family::debian:
	case Family::ubuntu:
		return by("update-grub");
	case Family::redhat:
	case Family::fedora:
		return {fmt::format("grubby --update-kernel=ALL --args='{}', reboot", parameter),
			fmt::format("grubby --update-kernel=ALL --remove-args='{}', reboot", parameter), brief};
	case Family::suse:
		return by("grub2-mkconfig -o /boot/grub2/grub.cfg");
	case Family::arch:
		return by("grub-mkconfig -o /boot/grub/grub.cfg");
	case Family::unknown:
		break;
	}
	return {fmt::format("add {} to the kernel's command line where the boot loader has it, reboot", parameter),
		fmt::format("take {} out again, reboot", parameter), brief};
}

Advice module_option(const Host &host, const std::string &module, const std::string &option)
{
	if (built_in(host, module))
		return kernel_parameter(host, module + "." + option);
	const std::string file = fmt::format("/etc/modprobe.d/{}-peerdma.conf", module),
			  rebuild = rebuild_initramfs(host, distribution_of(host).family);
	return {fmt::format("in {}: options {} {}; then {}, as the module may load from the initramfs; reboot", file,
			    module, option, rebuild),
		fmt::format("rm {}; {}; reboot", file, rebuild), fmt::format("option of {}, see --verbose", module)};
}

Advice open_nvidia(const Host &host)
{
	const std::string release = "570 or later", brief = "NVIDIA's open kernel modules, " + release;
	switch (distribution_of(host).family) {
	case Family::debian:
		return {fmt::format("apt install nvidia-open of NVIDIA's repository, or nvidia-open-kernel-dkms of "
				    "Debian's if that is {} (apt policy shows it), and reboot",
				    release),
			"apt install cuda-drivers or nvidia-kernel-dkms, and reboot", brief};
	case Family::ubuntu:
		return {fmt::format(
				"apt install nvidia-open of NVIDIA's repository, or an nvidia-driver-NUMBER-open of "
				"Ubuntu's, {} (apt search lists them), and reboot",
				release),
			"apt install the nvidia-driver package that was there, and reboot", brief};
	case Family::redhat:
	case Family::fedora:
		return {fmt::format("dnf install nvidia-open of NVIDIA's repository, {}, and reboot", release),
			"dnf install cuda-drivers of NVIDIA's repository, and reboot", brief};
	case Family::suse:
		return {fmt::format("zypper install nvidia-open of NVIDIA's repository, {}, and reboot", release),
			"zypper install cuda-drivers of NVIDIA's repository, and reboot", brief};
	case Family::arch:
		return {fmt::format("pacman -S nvidia-open-dkms, {}, and reboot", release),
			"install the nvidia package that was there, and reboot", brief};
	case Family::unknown:
		break;
	}
	return {fmt::format("install NVIDIA's driver, {}, with its open kernel modules (its .run file: "
			    "--kernel-module-type=open), and reboot",
			    release),
		"install the driver that was there, and reboot", brief};
}

std::optional<Advice> amdgpu_packages(const Host &host)
{
	const std::string what = " (AMD's packages), which publishes it where the BAR shows all of the GPU's memory, "
				 "and reboot";
	switch (distribution_of(host).family) {
	case Family::debian:
	case Family::ubuntu:
		return Advice{"apt install amdgpu-dkms" + what, "apt purge amdgpu-dkms, and reboot",
			      "apt install amdgpu-dkms"};
	case Family::redhat:
		return Advice{"dnf install amdgpu-dkms" + what, "dnf remove amdgpu-dkms, and reboot",
			      "dnf install amdgpu-dkms"};
	case Family::suse:
		return Advice{"zypper install amdgpu-dkms" + what, "zypper remove amdgpu-dkms, and reboot",
			      "zypper install amdgpu-dkms"};
	case Family::fedora:
	case Family::arch:
	case Family::unknown:
		break;
	}
	return {};
}

Advice install_packages(const Host &host)
{
	const Family family = distribution_of(host).family;
	if (family == Family::debian || family == Family::ubuntu)
		return {"apt install ./peerdma-dkms_*.deb ./libpeerdma0_*.deb ./peerdma-tools_*.deb; rmmod peerdma; "
			"modprobe peerdma",
			"the same with the packages of the other release", "install the packages of one release"};
	return {"make module and make install in its tree; rmmod peerdma; insmod the file that make module prints",
		"the same in the tree of the other release", "make module, make install in one tree"};
}

Advice enroll_key(const Host &host)
{
	std::string text;
	host.sys.read_file("/etc/dkms/framework.conf", text);
	std::string key = value_of(text, "mok_certificate");
	if (key.empty())
		key = distribution_of(host).family == Family::ubuntu ? "/var/lib/shim-signed/mok/MOK.der" :
								       "/var/lib/dkms/mok.pub";
	return {fmt::format("mokutil --import {}, reboot, and choose Enroll MOK", key),
		fmt::format("mokutil --delete {}, and reboot", key), "mokutil --import " + key};
}

Advice sign_module(const Host &host)
{
	const Family family = distribution_of(host).family;
	const Advice enroll = enroll_key(host);
	if (family == Family::debian || family == Family::ubuntu)
		return {"make deb, apt install ./peerdma-dkms_*.deb, which signs it; " + enroll.change,
			"apt purge peerdma-dkms; " + enroll.undo, "peerdma-dkms signs it; then enroll the key"};
	return {fmt::format("/lib/modules/{}/build/scripts/sign-file sha256 KEY CERTIFICATE peerdma.ko, with a key of "
			    "your own; mokutil --import CERTIFICATE, reboot, and choose Enroll MOK",
			    host.release),
		"mokutil --delete CERTIFICATE, and reboot", "sign peerdma.ko and enroll the key"};
}

} // namespace cli
