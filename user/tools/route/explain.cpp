// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "tools/cli/cli.hpp"
#include "tools/cli/output.hpp"
#include "tools/route/first_bytes.hpp"
#include "view/header.hpp"

namespace cli
{

namespace
{

namespace fs = std::filesystem;
using Explanations = std::vector<struct peerdma_explanation>;

// One answer per backing device; without a backing device one answer that says so.
Explanations explain_devices(const File &file, const std::string &path, const struct peerdma_provider_info &provider)
{
	Explanations devices = {explain_route(file, path, provider)};
	for (uint32_t device = 1; device < devices.front().nr_leaves; device++)
		devices.push_back(explain_route(file, path, provider, device));
	return devices;
}

Json devices_json(const Explanations &devices)
{
	Json list = Json::array();
	for (const auto &device : devices) {
		if (device.nr_leaves)
			list.push_back(backing_json(device));
	}
	return list;
}

// Whether the only backing device has the same result as the whole.
bool says_all(const Explanations &devices)
{
	return devices.size() == 1 && (!devices[0].nr_leaves || devices[0].leaf_reason == devices[0].reason);
}

std::string device_verdict(const struct peerdma_explanation &device)
{
	if (device.leaf_reason)
		return fmt::format("  {}: {}", peerdma_reason_name(device.leaf_reason),
				   peerdma_reason_text(device.leaf_reason));
	return fmt::format("  distance {}, {}", device.leaf_distance, peerdma_map_name(device.leaf_map));
}

// The peerdma_reason why a permitted request is bounced; 0 if it is not.
uint32_t why_bounced(const struct peerdma_explanation &why) { return why.reason ? 0 : why_not_direct(why); }

// What a program that reads elements has of a file, and what reduces them, in words.
struct ViewText {
	std::string text;
	Json json;
};

// codec: "": none; then empty for a device that is no view. Throws Failure if a codec does not apply.
ViewText view_of(const std::string &path, const std::string &codec, bool is_device)
{
	struct peerdma_view *opened = nullptr;
	struct peerdma_view_args args = {};
	args.size = sizeof(args);
	args.codec = codec.empty() ? nullptr : codec.c_str();
	const int rc = peerdma_view_open(nullptr, path.c_str(), &args, &opened);
	// A header that is damaged is worth a word; what else cannot be opened so, explain() has opened and described.
	if (rc == -EBADMSG)
		return {fmt::format("damaged: {}", args.out_why), {{"error", args.out_why}}};
	if (rc < 0 && !codec.empty())
		throw Failure{fmt::format("--codec {}: {}{}{}", codec, path, args.out_why[0] ? ": " : "", args.out_why),
			      -rc,
			      0,
			      "",
			      {}};
	if (rc < 0)
		return {};
	const std::unique_ptr<struct peerdma_view, decltype(&peerdma_view_close)> view(opened, peerdma_view_close);
	struct peerdma_view_description info = {};
	info.size = sizeof(info);
	if (peerdma_view_info(view.get(), &info) ||
	    (codec.empty() && is_device && info.where != PEERDMA_VIEW_WHERE_STORAGE))
		return {};
	return {info.text,
		{{"text", info.text},
		 {"codec", info.codec},
		 {"bits", info.bits},
		 {"elements", info.elements},
		 {"data_offset", info.data_offset},
		 {"data_bytes", info.data_bytes},
		 {"files", info.files},
		 {"reduced_by", where_name(info.where)}}};
}

// The drive that a block device is, or that a file is on, in sysfs. "" if the file system has several, or none.
fs::path drive_of(const struct stat &st)
{
	const dev_t number = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	const fs::path drive = fmt::format("/sys/dev/block/{}:{}", major(number), minor(number));
	std::error_code error;
	return fs::exists(drive, error) ? drive : fs::path{};
}

// Whether a file's bytes may be those of a server. A read of one that does not answer may wait for ever, even after a signal,
// and nobody can unmount it then.
bool is_remote(const std::string &path)
{
	struct stat st = {};
	struct statfs fs = {};
	if (::stat(path.c_str(), &st))
		return errno != ENOENT;
	if (!drive_of(st).empty())
		return false;
	// Those that have no drive, several, or those of another file system.
	constexpr std::array<int64_t, 4> local = {BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, RAMFS_MAGIC, TMPFS_MAGIC};
	return ::statfs(path.c_str(), &fs) || std::ranges::find(local, int64_t{fs.f_type}) == local.end();
}

// Whether an NVMe drive has a controller that is connected. true for other devices.
bool is_connected(const std::string &path)
{
	struct stat st = {};
	if (::stat(path.c_str(), &st))
		return true;
	const fs::path disk = drive_of(st);
	if (disk.empty())
		return true;
	std::error_code error;
	const fs::path whole = fs::exists(disk / "partition", error) ? fs::canonical(disk, error).parent_path() : disk;
	bool has_controller = false;
	// A multipath drive's device is a subsystem, with a folder for each controller.
	std::vector<fs::path> devices = {whole / "device"};
	for (fs::directory_iterator at(devices[0], error); !error && at != fs::directory_iterator();
	     at.increment(error))
		if (at->path().filename().string().starts_with("nvme"))
			devices.push_back(at->path());
	for (const fs::path &device : devices) {
		std::ifstream from(device / "state");
		std::string state;
		if (!(from >> state))
			continue;
		std::string transport;
		std::ifstream(device / "transport") >> transport;
		// One of this machine's own is soon there again after a reset.
		if (state == "live" || transport.empty() || transport == "pcie")
			return true;
		has_controller = true;
	}
	return !has_controller;
}

// Of a block device, or of a file, which may be an image of one.
ViewText view_at(const std::string &path, const std::string &codec, bool is_device)
{
	// What a network file system has is read on demand only.
	if (codec.empty() && !is_device && is_remote(path))
		return {};
	if (!is_connected(path))
		return {"unknown: the drive is not connected", {{"error", errno_name(ENOTCONN)}}};
	std::array<std::byte, view::header_unit> bytes = {};
	const int rc = first_bytes(path, bytes, std::chrono::seconds(2));
	if (rc == -ETIMEDOUT)
		return {is_device ? "unknown: the drive does not answer" :
				    "unknown: the file's storage does not answer",
			{{"error", errno_name(ETIMEDOUT)}}};
	// Without a limit of time a file is not read, for it could wait for a server that is gone. A shorter one has answered.
	if (rc && rc != -ENODATA && codec.empty() && !is_device)
		return {};
	const bool is_no_view = is_device && codec.empty() && !rc && !view::begins_as_view(bytes);
	return is_no_view ? ViewText{} : view_of(path, codec, is_device);
}

Json bounced_json(uint32_t reason)
{
	if (!reason)
		return nullptr;
	return {{"reason", peerdma_reason_name(reason)},
		{"text", peerdma_reason_text(reason)},
		{"advice", peerdma_reason_advice(reason)}};
}

} // namespace

Report explain(const std::string &path, const std::string &name, const std::string &codec)
{
	Device device = open_device();
	const auto provider = find_provider(device, name);
	File file = open_file(device, path, O_RDONLY);
	const auto devices = explain_devices(file, path, provider);
	const auto &why = devices.front();
	const uint32_t bounced = why_bounced(why);
	const ViewText view = view_at(path, codec, std::string_view(why.fs_name) == "block");

	Report report;
	report.json = {{"ok", true},
		       {"file", path},
		       {"filesystem", why.fs_name},
		       {"provider", provider_json(provider)},
		       {"route", peerdma_route_name(why.route)},
		       {"direct", why_not_direct(why) == 0},
		       {"errno", why.error ? Json(errno_name(static_cast<int>(why.error))) : Json()},
		       {"reason", peerdma_reason_name(why.reason)},
		       {"text", peerdma_reason_text(why.reason)},
		       {"advice", peerdma_reason_advice(why.reason)},
		       {"bounced", bounced_json(bounced)},
		       {"refused_by", why.refused_name[0] ? Json(why.refused_name) : Json()},
		       {"leaf", backing_json(why)},
		       {"leaves", devices_json(devices)},
		       {"distance", why.distance},
		       {"map", peerdma_map_name(why.map)},
		       {"dio_mem_align", why.dio_mem_align},
		       {"dio_offset_align", why.dio_offset_align},
		       {"view", view.json}};

	auto row = [&](std::string_view key, const std::string &value) {
		report.text += fmt::format("{:<11}{}\n", key, value);
	};
	row("file", fmt::format("{} ({})", escaped(path), why.fs_name[0] ? why.fs_name : "unknown filesystem"));
	if (!view.text.empty())
		row("contents", escaped(view.text));
	row("route", why.error ? fmt::format("none ({})", errno_name(static_cast<int>(why.error))) :
				 peerdma_route_name(why.route));
	row("reason", fmt::format("{}: {}", peerdma_reason_name(why.reason), peerdma_reason_text(why.reason)));
	if (bounced)
		row("bounced", fmt::format("{}: {}", peerdma_reason_name(bounced), peerdma_reason_text(bounced)));
	if (const char *advice = peerdma_reason_advice(bounced ? bounced : why.reason); *advice)
		row("advice", advice);
	if (why.refused_name[0])
		row("refused by", why.refused_name);
	for (const auto &one : devices)
		row("backing", backing_text(one) + (says_all(devices) ? "" : device_verdict(one)));
	row("provider", fmt::format("{}  provider {}, BAR {}", pci_text(provider.pci_domain, provider.pci_bdf),
				    provider.id, provider.bar));
	row("distance", why.map == PEERDMA_MAP_SOFTWARE ? "none" :
			why.distance < 0                ? "no route" :
							  std::to_string(why.distance));
	row("mapping", peerdma_map_name(why.map));
	if (why.dio_offset_align)
		row("alignment", fmt::format("file offset and length {}, buffer offset {} bytes", why.dio_offset_align,
					     why.dio_mem_align));
	return report;
}

} // namespace cli
