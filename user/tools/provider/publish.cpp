// SPDX-License-Identifier: MIT
#include <cerrno>

#include <fmt/format.h>

#include "tools/cli/cli.hpp"

namespace cli
{
namespace
{

struct peerdma_provider_info provider_of(const Device &device, uint32_t id, const std::string &name)
{
	struct peerdma_provider_info info = {};
	info.size = sizeof(info);
	int rc = peerdma_provider_get(device.get(), id, &info);
	if (rc < 0)
		throw Failure{fmt::format("{} was published and is gone again", name), -rc, 0, "", {}};
	return info;
}

// Whether the existing provider matches the request.
bool satisfies(const struct peerdma_provider_info &info, const struct peerdma_publish_args &args)
{
	return (args.bar == PEERDMA_BAR_AUTO || static_cast<uint32_t>(args.bar) == info.bar) &&
	       args.bar_offset == info.bar_offset && (!args.len || args.len == info.len);
}

std::string range_text(const struct peerdma_provider_info &info)
{
	return fmt::format("{} of BAR {} at offset {:#x}", size_text(info.len), info.bar, info.bar_offset);
}

std::string advice_for(int error, const struct peerdma_publish_args &args)
{
	if (args.out_reason)
		return "";
	switch (error) {
	case EACCES:
	case EPERM:
	case EROFS:
		return "Publish it as root.";
	case ENODEV:
		return "List the devices with lspci -D.";
	case ENOENT:
		return advice_to_load("peerdma");
	default:
		return "The kernel's log (dmesg) may say more; the device is as it was before.";
	}
}

} // namespace

Report publish(const PublishOptions &options)
{
	const PciAddress address = device_or_usage(options.device);
	const std::string name = address.str();
	struct peerdma_publish_args args = {};
	args.size = sizeof(args);
	args.flags = (options.force ? PEERDMA_PUBLISH_FORCE : 0) |
		     (options.non_prefetchable ? PEERDMA_PUBLISH_NONPREFETCHABLE : 0);
	args.pci_domain = address.domain;
	args.pci_bdf = address.bdf;
	args.bar = options.bar;
	args.bar_offset = bytes_or_usage("--offset", options.offset);
	args.len = bytes_or_usage("--size", options.size);

	Device device = open_device();
	int rc = peerdma_provider_publish(device.get(), &args);
	Report report;
	if (rc == -EEXIST && args.out_provider_id) {
		const auto info = provider_of(device, args.out_provider_id, name);
		if (!satisfies(info, args))
			throw Failure{fmt::format("{} has published {} already, as provider {}", name, range_text(info),
						  info.id),
				      EEXIST,
				      0,
				      fmt::format("Unpublish it first: peerdma unpublish {}.", name),
				      {}};
		report.text =
			fmt::format("provider {}: {} has published {} already\n", info.id, name, range_text(info));
		report.json = {{"ok", true}, {"already", true}, {"provider", provider_json(info)}};
		return report;
	}
	if (rc == -EBUSY && !options.force && args.out_driver[0] && std::string_view(args.out_where) == name)
		throw Failure{fmt::format("{} is in use by the driver '{}'", name, args.out_driver),
			      EBUSY,
			      0,
			      "If nothing uses it there, take it with --force.",
			      {{"driver", args.out_driver}}};
	if (rc < 0) {
		const std::string where = args.out_where;
		throw Failure{where.empty() || where == name ? fmt::format("cannot publish {}", name) :
							       fmt::format("cannot publish {}: {}", name, where),
			      -rc,
			      args.out_reason,
			      advice_for(-rc, args),
			      {}};
	}
	const auto info = provider_of(device, args.out_provider_id, name);
	report.text = fmt::format("provider {}: {} publishes {}\n", info.id, name, range_text(info));
	report.json = {{"ok", true}, {"already", false}, {"provider", provider_json(info)}};
	return report;
}

Report unpublish(const std::string &text)
{
	const PciAddress address = device_or_usage(text);
	const std::string name = address.str();
	int rc = peerdma_provider_unpublish(address.domain, address.bdf, 0);
	Report report;
	switch (-rc) {
	case 0:
		report.text = fmt::format("{} is no longer published; no driver is bound to it\n", name);
		break;
	case EALREADY:
		report.text = fmt::format("{} was not published\n", name);
		break;
	case EBUSY:
		throw Failure{fmt::format("{} is in use by another driver", name),
			      EBUSY,
			      0,
			      "PeerDMA has not published it: there is nothing to unpublish.",
			      {}};
	case ENODEV:
		throw Failure{fmt::format("there is no PCI function {}", name),
			      ENODEV,
			      0,
			      "List the devices with lspci -D.",
			      {}};
	case EACCES:
	case EPERM:
		throw Failure{fmt::format("cannot unpublish {}", name), -rc, 0, "Unpublish it as root.", {}};
	default:
		throw Failure{fmt::format("cannot unpublish {}", name), -rc, 0, "", {}};
	}
	report.json = {{"ok", true}, {"pci", name}, {"already", rc == -EALREADY}};
	return report;
}

} // namespace cli
