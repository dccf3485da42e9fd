// SPDX-License-Identifier: MIT
//
// Shared by the subcommands: how names and sizes are printed, and how failures become messages.

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "common/node.hpp"
#include "tools/cli/cli.hpp"
#include "tools/system/device_node.hpp"

namespace cli
{

const char *state_name(State state)
{
	switch (state) {
	case State::good:
		return "good";
	case State::warn:
		return "warn";
	case State::bad:
		return "bad";
	case State::unknown:
		return "unknown";
	}
	return "";
}

std::string Failure::line() const
{
	std::string text = what;
	if (reason)
		text += fmt::format(": {}", peerdma_reason_text(reason));
	if (error && reason)
		text += fmt::format(" ({}, {})", errno_name(error), peerdma_reason_name(reason));
	else if (error)
		text += fmt::format(": {} ({})", strerrordesc_np(error) ? strerrordesc_np(error) : "unknown error",
				    errno_name(error));
	std::string hint = advice.empty() ? peerdma_reason_advice(reason) : advice;
	if (!hint.empty())
		text += ". " + hint;
	return text;
}

Json Failure::json() const
{
	Json out = {{"ok", false}};
	out["error"] = {{"message", line()},
			{"what", what},
			{"errno", error ? Json(errno_name(error)) : Json()},
			{"reason", reason ? Json(peerdma_reason_name(reason)) : Json()},
			{"text", reason ? Json(peerdma_reason_text(reason)) : Json()},
			{"advice", advice.empty() ? peerdma_reason_advice(reason) : advice}};
	if (facts.is_object())
		out.update(facts);
	return out;
}

std::string errno_name(int error)
{
	const char *name = strerrorname_np(error);
	return name ? name : fmt::format("errno {}", error);
}

std::string pci_text(uint32_t domain, uint32_t bdf) { return PciAddress{domain, bdf}.str(); }

std::string size_text(uint64_t bytes)
{
	static constexpr const char *units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	if (bytes < 1024)
		return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
	double value = static_cast<double>(bytes);
	size_t unit = 0;
	// 1023.95 KiB and more would be printed as "1024.0 KiB": use the next unit.
	while (value >= 1023.95 && unit + 1 < std::size(units)) {
		value /= 1024;
		unit++;
	}
	std::string text = fmt::format("{:.1f}", value);
	if (text.ends_with(".0"))
		text.resize(text.size() - 2);
	return text + " " + units[unit];
}

std::string rate_text(uint64_t bytes, double seconds)
{
	return seconds > 0 ? size_text(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)) + "/s" : "";
}

uint64_t bytes_or_usage(const std::string &option, std::string_view text)
{
	auto bytes = parse_bytes(text);
	if (!bytes)
		throw Usage{fmt::format("{}: '{}' is not a number of bytes; expected 65536, 0x10000, 64K or 2M", option,
					text)};
	return *bytes;
}

PciAddress device_or_usage(const std::string &text)
{
	auto address = PciAddress::parse(text);
	if (!address)
		throw Usage{fmt::format("'{}': expected a PCI address such as 0000:01:00.0", text)};
	return *address;
}

// An id has 32 bits and decimal digits, as for peerdma_provider_find().
static bool is_provider(std::string_view text)
{
	const auto id = text.find('x') == text.npos ? parse_integer(text) : std::nullopt;
	return (id && *id <= UINT32_MAX) || PciAddress::parse(text);
}

std::optional<GpuTarget> parse_gpu(std::string_view text)
{
	if (!text.starts_with("gpu:"))
		return std::nullopt;
	text.remove_prefix(4);
	GpuTarget target;
	if (size_t plus = text.find('+'); plus != std::string_view::npos) {
		auto offset = parse_bytes(text.substr(plus + 1));
		if (!offset)
			return std::nullopt;
		target.offset = *offset;
		text = text.substr(0, plus);
	}
	if (!text.empty() && !is_provider(text))
		return std::nullopt;
	target.provider = text;
	return target;
}

Device open_device(uint32_t flags)
{
	struct peerdma_device *p = nullptr;
	int rc = peerdma_open(&p, flags);
	if (rc == 0)
		return Device(p);
	const std::string named = peerdma_impl::named_node();
	std::string advice = "Run peerdma check, which reports what is missing.";
	if (rc == -EACCES || rc == -EPERM)
		advice = "Run it as root, or join the group of the device node: usermod -aG peerdma USER.";
	else if (rc == -EPROTONOSUPPORT)
		advice = "The versions of the module and of this library differ: install both from one release.";
	else if (rc == -EBADMSG)
		advice = "The rules file has a fault: peerdma rules check shows it.";
	else if (!named.empty())
		advice = "PEERDMA_DEVICE names it: unset the variable, or set it to an existing node.";
	else if (rc == -ENOENT || rc == -ENXIO || rc == -ENODEV)
		advice = advice_to_load("peerdma");
	throw Failure{"cannot open " + device_node(peerdma_impl::system_calls()), -rc, 0, advice, {}};
}

struct peerdma_provider_info find_provider(const Device &device, const std::string &name)
{
	struct peerdma_provider_info info = {};
	info.size = sizeof(info);
	int rc = peerdma_provider_find(device.get(), name.c_str(), &info);
	if (rc == 0)
		return info;
	if (rc == -EINVAL)
		throw Usage{fmt::format("'{}': expected a provider's id or a PCI address", name)};
	std::string what = name.empty() ? "no provider is published" : fmt::format("there is no provider '{}'", name);
	std::string advice;
	if (rc == -ENOTUNIQ) {
		what = name.empty() ? "several providers are published" :
				      fmt::format("several providers are at {}", name);
		advice = "Name one by its id, as peerdma providers lists them.";
	} else if (rc == -ENOENT) {
		advice = advice_without_provider();
	} else {
		what = "cannot query the module's providers";
	}
	throw Failure{what, -rc, 0, advice, {}};
}

File open_file(const Device &device, const std::string &path, int flags)
{
	struct peerdma_file *file = nullptr;
	int rc = peerdma_file_open(device.get(), path.c_str(), flags, &file);
	if (rc < 0)
		throw Failure{fmt::format("cannot open {}", path), -rc, 0, "", {}};
	return File(file);
}

uint64_t size_of(const File &file, const std::string &path)
{
	uint64_t size = 0;
	int rc = peerdma_file_size(file.get(), &size);
	if (rc < 0)
		throw Failure{fmt::format("cannot get the size of {}", path), -rc, 0, "", {}};
	return size;
}

Buffer create_buffer(const Device &device, const struct peerdma_provider_info &provider, uint64_t len)
{
	struct peerdma_buf *raw = nullptr;
	uint32_t reason = 0;
	int rc = peerdma_buf_create(device.get(), provider.id, len, 0, &raw, &reason);
	if (rc < 0)
		throw Failure{fmt::format("cannot allocate {} in provider {} at {}", size_text(len), provider.id,
					  pci_text(provider.pci_domain, provider.pci_bdf)),
			      -rc,
			      reason,
			      "",
			      {}};
	return Buffer(raw);
}

int wait_for(const Ring &ring, struct peerdma_done *done, uint32_t max)
{
	int rc;
	do
		rc = peerdma_ring_wait(ring.get(), done, max, 1, -1);
	while (rc == -EINTR); // for example after SIGSTOP and SIGCONT
	return rc;
}

void *map_buffer(const Buffer &buffer)
{
	void *addr = nullptr;
	int rc = peerdma_buf_map(buffer.get(), &addr);
	if (rc < 0)
		throw Failure{"cannot map the buffer", -rc, 0, "", {}};
	return addr;
}

struct peerdma_explanation explain_route(const File &file, const std::string &path,
					 const struct peerdma_provider_info &provider, uint32_t leaf)
{
	struct peerdma_explanation why = {};
	why.size = sizeof(why);
	why.leaf = leaf;
	int rc = peerdma_explain(file.get(), provider.id, &why);
	if (rc < 0)
		throw Failure{fmt::format("cannot query the route from {} to {}", path,
					  pci_text(provider.pci_domain, provider.pci_bdf)),
			      -rc,
			      0,
			      "",
			      {}};
	return why;
}

uint32_t why_not_direct(const struct peerdma_explanation &why)
{
	return why.reason ? why.reason : why.map == PEERDMA_MAP_SOFTWARE ? uint32_t{PEERDMA_REASON_RDMA_SOFTWARE} : 0;
}

Json provider_json(const struct peerdma_provider_info &info)
{
	return {{"id", info.id},
		{"pci", pci_text(info.pci_domain, info.pci_bdf)},
		{"vendor", fmt::format("{:04x}", info.pci_vendor)},
		{"device", fmt::format("{:04x}", info.pci_device)},
		{"bar", info.bar},
		{"bar_offset", info.bar_offset},
		{"len", info.len},
		{"available", info.available},
		{"numa_node", info.numa_node}};
}

// 0000:00:00.0 means that there is no function: only a host bridge has that address.
static bool has_function(const struct peerdma_explanation &why) { return why.leaf_domain || why.leaf_bdf; }

// An NFS share has a backing device whose disk has no number.
static bool has_backing_device(const struct peerdma_explanation &why) { return why.leaf_major || why.nr_leaves; }

Json backing_json(const struct peerdma_explanation &why)
{
	if (!has_backing_device(why))
		return nullptr;
	return {{"name", why.leaf_name},
		{"pci", has_function(why) ? Json(pci_text(why.leaf_domain, why.leaf_bdf)) : Json()},
		{"major", why.leaf_major},
		{"minor", why.leaf_minor},
		{"reason", peerdma_reason_name(why.leaf_reason)},
		{"advice", peerdma_reason_advice(why.leaf_reason)},
		{"distance", why.leaf_distance},
		{"map", peerdma_map_name(why.leaf_map)}};
}

std::string backing_text(const struct peerdma_explanation &why)
{
	if (!has_backing_device(why))
		return "none";
	return has_function(why) ? fmt::format("{}  {}", pci_text(why.leaf_domain, why.leaf_bdf), why.leaf_name) :
				   fmt::format("{}  not a PCI function's own", why.leaf_name);
}

} // namespace cli
