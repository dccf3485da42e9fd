// SPDX-License-Identifier: MIT
//
// The kernel: which one, how it was built, and whether it takes the module.

#include "tools/check/check.hpp"

#include <cerrno>
#include <cstdio>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/system/sysfs.hpp"

namespace cli
{
namespace
{

// Debugging information makes modules large; a kernel has 200,000 symbols, of up to 512 bytes each.
constexpr uint64_t module_limit = 256 << 20, symbols_limit = 64 << 20;

std::string gunzip(const std::string &packed)
{
	z_stream stream = {};
	std::string out;
	// 16: a gzip header, not a zlib one.
	if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK)
		return out;
	// zlib's interface is from before const.
	stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(packed.data()));
	stream.avail_in = static_cast<uInt>(packed.size());
	int rc;
	do {
		Bytef chunk[16384];
		stream.next_out = chunk;
		stream.avail_out = sizeof(chunk);
		rc = inflate(&stream, Z_NO_FLUSH);
		out.append(reinterpret_cast<char *>(chunk), sizeof(chunk) - stream.avail_out);
	} while (rc == Z_OK && out.size() < peerdma_impl::file_limit);
	inflateEnd(&stream);
	return rc == Z_STREAM_END ? out : std::string();
}

// The kernel's configuration and where it was found; empty if nowhere.
std::string kernel_config(const Host &host, std::string &where)
{
	std::string text;
	where = "/proc/config.gz";
	if (host.sys.read_file(where, text) == 0 && !(text = gunzip(text)).empty())
		return text;
	for (const std::string &path : {"/boot/config-" + host.release, "/lib/modules/" + host.release + "/config",
					"/lib/modules/" + host.release + "/build/.config"})
		if (host.sys.read_file(path, text) == 0 && !text.empty()) {
			where = path;
			return text;
		}
	where.clear();
	return "";
}

bool has_line(const std::string &text, const std::string &line)
{
	return ("\n" + text + "\n").find("\n" + line + "\n") != std::string::npos;
}

// Whether an option is set; and as well if it is built as a module.
bool has_option(const std::string &text, const std::string &option)
{
	return has_line(text, option + "=y") || has_line(text, option + "=m");
}

// Where depmod knows the module to be, below /lib/modules/RELEASE; empty if it was not installed for this kernel.
std::string installed_module(const Host &host, const std::string &name)
{
	const std::string dir = "/lib/modules/" + host.release + "/";
	std::string text;
	host.sys.read_file(dir + "modules.dep", text);
	std::istringstream lines(text);
	// Behind the colon is what it needs.
	for (std::string line; std::getline(lines, line);)
		if (const std::string path = line.substr(0, line.find(':')); base(path).starts_with(name + ".ko"))
			return dir + path;
	return "";
}

// Whose 6.12 or 7.2 it is, where its name tells that it is another's than the source that the module was run on.
std::string builder_of(const std::string &release)
{
	for (const auto &[mark, name] :
	     {std::pair(".el", "Red Hat's"), std::pair(".fc", "Fedora's"), std::pair("-generic", "Ubuntu's"),
	      std::pair("-default", "SUSE's"), std::pair("-arch", "Arch's")})
		if (release.find(mark) != release.npos)
			return name;
	return "";
}

// The version whose source DKMS has; empty if it has none.
std::string dkms_version(const Host &host)
{
	std::vector<std::string> names;
	host.sys.list_dir("/var/lib/dkms/peerdma", names);
	for (const std::string &name : names)
		if (!name.empty() && name[0] >= '0' && name[0] <= '9')
			return name;
	return "";
}

enum class Signed { yes, no, unknown };

// What scripts/sign-file of the kernel ends a signed module with.
Signed signature_of(const Host &host, const std::string &module)
{
	std::string bytes;
	if (!module.ends_with(".ko") || host.sys.read_bounded(module, module_limit, bytes) < 0)
		return Signed::unknown; // packed, or not ours to read
	return bytes.ends_with("~Module signature appended~\n") ? Signed::yes : Signed::no;
}

// The level in brackets: "none [integrity] confidentiality". Empty if it cannot be read.
std::string lockdown_of(const Host &host)
{
	const std::string levels = line_of(host.sys, "/sys/kernel/security/lockdown");
	const size_t begin = levels.find('['), end = levels.find(']');
	return begin == levels.npos || end == levels.npos || end < begin ? "" :
									   levels.substr(begin + 1, end - begin - 1);
}

// "on", "off", or "unknown" without EFI.
std::string secure_boot_of(const Host &host)
{
	std::string variable;
	// Four bytes of attributes, one of value; the GUID is that of EFI's global variables.
	if (host.sys.read_file("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", variable) <
		    0 ||
	    variable.size() != 5)
		return "unknown";
	return variable[4] ? "on" : "off";
}

} // namespace

Finding check_kernel(const Host &host)
{
	Finding finding{
		.id = "kernel",
		.found = host.release,
		.why = "make check runs on 6.12 and 7.2, of Debian's source, in an emulator; for 6.1 and 7.3 the "
		       "module is only compiled"};
	unsigned major = 0, minor = 0;
	const Advice kernel = get_kernel(host);
	if (std::sscanf(host.release.c_str(), "%u.%u", &major, &minor) != 2)
		return finding.set(State::unknown, fmt::format("'{}' is no version", host.release), "uname -r",
				   "it changes nothing");
	if (major < 6 || (major == 6 && minor < 1))
		return finding.set(State::bad, host.release + ", older than any that the module was built for", kernel);
	const std::string builder = builder_of(host.release);
	if (builder.empty() && ((major == 6 && minor == 12) || (major == 7 && minor == 2)))
		return finding;
	const bool compiled = (major == 6 && minor == 1) || (major == 7 && minor == 3);
	return finding.set(
		State::warn,
		host.release + (builder.empty() ? "" : ", a kernel of " + builder) +
			(compiled && builder.empty() ? ", which PeerDMA compiles for and was not run on" :
						       ", on which PeerDMA was not tried"),
		{"peerdma selftest DIRECTORY says whether it works on this one; for another kernel: " + kernel.change,
		 kernel.undo, "try it: peerdma selftest DIRECTORY"});
}

Finding check_config(const Host &host)
{
	Finding finding{.id = "config",
			.why = "without these options the kernel cannot treat a device's memory as pages"};
	Advice kernel = get_kernel(host);
	kernel.undo = "boot the old kernel again: both stay installed";
	std::string where, symbols;
	const std::string text = kernel_config(host, where);
	if (!where.empty()) {
		std::string missing;
		for (const char *option : {"CONFIG_PCI_P2PDMA=y", "CONFIG_ZONE_DEVICE=y"})
			if (!has_line(text, option))
				missing += std::string(missing.empty() ? "" : " and ") + option;
		if (!missing.empty())
			return finding.set(State::bad, fmt::format("{} missing in {}", missing, where), kernel);
		if (!has_option(text, "CONFIG_IO_URING"))
			return finding.set(State::warn, fmt::format("CONFIG_IO_URING missing in {}: no rings", where),
					   kernel);
		finding.found = fmt::format("CONFIG_PCI_P2PDMA=y and CONFIG_ZONE_DEVICE=y in {}", where);
		return finding;
	}
	// No copy of the configuration: a function that only that option brings is as good a proof.
	const int rc = host.sys.read_bounded("/proc/kallsyms", symbols_limit, symbols);
	if (rc < 0 || symbols.empty())
		return finding.set(
			State::unknown,
			fmt::format("the configuration is neither in /proc/config.gz nor in /boot/config-{}",
				    host.release),
			fmt::format("modprobe configs, and ask again; without that module: cp .config, of the "
				    "kernel's own build, /boot/config-{}",
				    host.release),
			fmt::format("rm /boot/config-{}", host.release));
	if (symbols.find(" pci_p2pdma_add_resource") == symbols.npos)
		return finding.set(State::bad, "no P2PDMA functions in /proc/kallsyms", kernel);
	finding.found = "CONFIG_PCI_P2PDMA, by its functions in /proc/kallsyms";
	return finding;
}

Finding check_headers(const Host &host, int open_error)
{
	Finding finding{.id = "headers", .why = "make module and DKMS build the module with them"};
	const std::string build = "/lib/modules/" + host.release + "/build";
	if (host.sys.access(build + "/Makefile", F_OK) == 0) {
		std::string target;
		finding.found = host.sys.read_link(build, target) == 0 ? target : build;
		return finding;
	}
	finding.found = "none at " + build;
	const bool loaded = !open_error || host.sys.access("/sys/module/peerdma", F_OK) == 0;
	if (loaded || !installed_module(host, "peerdma").empty()) {
		finding.found += fmt::format(", and none needed: peerdma is {}", loaded ? "loaded" : "installed");
		return finding;
	}
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	return finding.set(State::bad, finding.found, get_headers(host));
}

Finding check_module(const Host &host, int open_error)
{
	Finding finding{
		.id = "module", .found = "peerdma is loaded", .why = "it publishes the memory and issues the reads"};
	if (!open_error || host.sys.access("/sys/module/peerdma", F_OK) == 0)
		return finding;
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	return finding.set(State::bad, "peerdma is not loaded", how_to_load(host, "peerdma"));
}

Advice how_to_load(const Host &host, const std::string &name)
{
	const std::string undo = "rmmod " + name;
	if (!installed_module(host, name).empty())
		return {"modprobe " + name, undo};
	if (const std::string version = dkms_version(host); !version.empty()) {
		const std::string install = fmt::format("dkms install --force peerdma/{} -k {}", version, host.release);
		return {fmt::format("{}, which needs the kernel's headers{}; modprobe {}", install,
				    name == "peerdma_rdma" || name == "peerdma_nfs" ?
					    " and builds this one where the kernel has RDMA" :
					    "",
				    name),
			undo, install};
	}
	return {fmt::format("insmod {}.ko; make module builds it and prints where it is", name), undo,
		fmt::format("make module, insmod {}.ko", name)};
}

std::string advice_to_load(const std::string &name)
{
	auto &sys = peerdma_impl::system_calls();
	return fmt::format("Load the module first: {}.",
			   how_to_load({sys, line_of(sys, "/proc/sys/kernel/osrelease")}, name).change);
}

Finding check_signing(const Host &host)
{
	Finding finding{
		.id = "signing",
		.why = "a kernel that takes only modules signed by a key it knows refuses one that was built here"};
	std::string where, lockdown = lockdown_of(host);
	const std::string boot = secure_boot_of(host), config = kernel_config(host, where),
			  parameter = line_of(host.sys, "/sys/module/module/parameters/sig_enforce");
	// What cannot be read is not off, unless the kernel was built without it.
	if (lockdown.empty() && !where.empty() && !has_line(config, "CONFIG_SECURITY_LOCKDOWN_LSM=y"))
		lockdown = "none";
	const std::string facts = fmt::format("Secure Boot {}, lockdown {}, sig_enforce {}", boot,
					      lockdown.empty() ? "unknown" : lockdown,
					      parameter.empty() ? "unknown" :
					      parameter == "Y"  ? "on" :
								  "off");
	finding.found = facts;
	if (!host.sysfs)
		return finding.set(State::unknown, "not known without /sys", with_sysfs, without_sysfs);
	if (host.sys.access("/sys/module/peerdma", F_OK) == 0) {
		finding.found += ": it let the module in";
		return finding;
	}
	if (!where.empty() && !has_line(config, "CONFIG_MODULE_SIG=y")) {
		finding.found = "a kernel that asks for no signatures: it is without CONFIG_MODULE_SIG in " + where;
		return finding;
	}
	if (parameter != "Y" && (lockdown.empty() || lockdown == "none")) {
		if (parameter.empty())
			return finding.set(
				State::unknown, facts,
				"peerdma check on the host itself, where /sys/module/module/parameters is not "
				"hidden",
				"it changes nothing");
		if (lockdown.empty())
			return finding.set(State::unknown, facts,
					   "mount -t securityfs securityfs /sys/kernel/security, and ask again; in a "
					   "container, peerdma check on the host itself",
					   "umount /sys/kernel/security");
		return finding;
	}
	const Advice sign = sign_module(host), enroll = enroll_key(host);
	const std::string module = installed_module(host, "peerdma"), version = dkms_version(host);
	if (module.empty() && version.empty())
		return finding.set(State::bad, facts + ": only signed modules load, and peerdma is not installed",
				   sign);
	const std::string install = fmt::format("dkms install --force peerdma/{} -k {}", version, host.release);
	const Advice again = {fmt::format("{}, which signs it; {}", install, enroll.change), enroll.undo, install};
	if (module.empty())
		return finding.set(State::bad,
				   facts + ": only signed modules load, and peerdma is not built for this kernel",
				   again);
	switch (signature_of(host, module)) {
	case Signed::no:
		return finding.set(State::bad,
				   fmt::format("{}: only signed modules load, and {} has no signature", facts, module),
				   version.empty() ? sign : again);
	case Signed::yes:
		return finding.set(
			State::warn,
			facts + ": the module is signed; whether the kernel knows the key shows when it is loaded",
			{"modprobe peerdma; if it says \"Key was rejected by service\": " + enroll.change, enroll.undo,
			 "modprobe peerdma; --verbose"});
	case Signed::unknown:
		break;
	}
	return finding.set(State::unknown, fmt::format("{}: whether {} is signed cannot be read", facts, module),
			   "modinfo -F signer peerdma; if that is empty: " + sign.change, sign.undo);
}

} // namespace cli
