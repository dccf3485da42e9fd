// SPDX-License-Identifier: MIT
//
// Publishes as an administrator would by hand: driver_override, unbind, bind, then the ioctl. Each step is recorded,
// and a failure undoes them all: a mistyped command must not leave a disk or a GPU without its driver.

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/pci.hpp"
#include "lib/boundary.hpp"
#include "lib/device.hpp"
#include "lib/policy.hpp"

namespace peerdma_impl
{
namespace
{

constexpr std::string_view driver_name = "peerdma";
const char *const drivers_dir = "/sys/bus/pci/drivers/";

constexpr size_t args_min = offsetof(struct peerdma_publish_args, out_where) + sizeof(peerdma_publish_args::out_where);

// include/linux/ioport.h; the resource file prints them and sysfs-bus-pci documents that it does.
constexpr uint64_t resource_mem = 0x200, resource_prefetch = 0x2000, resource_mem_64 = 0x100000;

struct Bar {
	uint64_t start = 0;
	uint64_t len = 0;
	uint64_t flags = 0;
};

// A PCI function as sysfs shows it.
class PciFunction
{
public:
	PciFunction(Syscalls &sys, PciAddress address)
		: sys_(sys), address_(address), dir_("/sys/bus/pci/devices/" + address.str() + "/")
	{
	}

	std::string path(std::string_view name) const { return dir_ + std::string(name); }

	// Empty if no driver is bound.
	int driver(std::string &name) const
	{
		std::string target;
		int rc = sys_.read_link(path("driver"), target);
		name.clear();
		if (rc == -ENOENT)
			return 0;
		if (rc < 0)
			return rc;
		name = target.substr(target.rfind('/') + 1);
		return 0;
	}

	// Empty if none is set, which sysfs shows as "(null)".
	int override_get(std::string &name) const
	{
		int rc = sys_.read_file(path("driver_override"), name);
		if (rc < 0)
			return rc;
		while (!name.empty() && name.back() == '\n')
			name.pop_back();
		if (name == "(null)")
			name.clear();
		return 0;
	}

	// An empty line clears it.
	int override_set(std::string_view name) const
	{
		return sys_.write_file(path("driver_override"), std::string(name) + "\n");
	}

	int bind(std::string_view driver) const { return write_address(driver, "/bind"); }
	int unbind(std::string_view driver) const { return write_address(driver, "/unbind"); }

	static std::string driver_path(std::string_view driver, std::string_view file)
	{
		return drivers_dir + std::string(driver) + std::string(file);
	}

	int bars(std::array<Bar, 6> &out) const
	{
		std::string text;
		int rc = sys_.read_file(path("resource"), text);
		if (rc < 0)
			return rc;
		// One line for each BAR: first byte, last byte, flags.
		const char *line = text.c_str();
		for (Bar &bar : out) {
			bar = {};
			unsigned long long start, last, flags;
			if (std::sscanf(line, "%llx %llx %llx", &start, &last, &flags) == 3 && last > start)
				bar = {start, last - start + 1, flags};
			line += std::strcspn(line, "\n");
			line += *line == '\n';
		}
		return 0;
	}

private:
	int write_address(std::string_view driver, std::string_view file) const
	{
		return sys_.write_file(driver_path(driver, file), address_.str());
	}

	Syscalls &sys_;
	PciAddress address_;
	std::string dir_;
};

// GPUs and FPGAs have their memory in such a BAR; the other BARs are registers. -1 without such a BAR.
int choose_bar(const std::array<Bar, 6> &bars)
{
	constexpr uint64_t wanted = resource_mem | resource_prefetch | resource_mem_64;
	int best = -1;
	for (size_t i = 0; i < bars.size(); i++)
		if ((bars[i].flags & wanted) == wanted &&
		    (best < 0 || bars[i].len > bars[static_cast<size_t>(best)].len))
			best = static_cast<int>(i);
	return best;
}

class Publish
{
public:
	Publish(const Device &device, struct peerdma_publish_args &args)
		: device_(device), args_(args), address_{args.pci_domain, args.pci_bdf},
		  function_(device.sys(), address_)
	{
	}

	int run()
	{
		int rc = prepare();
		if (rc == 0)
			rc = ask_rules();
		if (rc == 0)
			rc = take();
		if (rc == 0)
			rc = publish();
		if (rc < 0)
			undo();
		return rc;
	}

private:
	int fail(int rc, const std::string &where, uint32_t reason = PEERDMA_REASON_NONE)
	{
		copy_text(args_.out_where, where.data(), where.size());
		if (reason)
			args_.out_reason = reason;
		return rc;
	}

	// Refuses all that can be refused before the device is touched.
	int prepare()
	{
		std::array<Bar, 6> bars;
		int rc = function_.bars(bars);
		if (rc < 0)
			return fail(rc == -ENOENT ? -ENODEV : rc, address_.str());
		rc = function_.driver(driver_);
		if (rc < 0)
			return fail(rc, function_.path("driver"));
		copy_text(args_.out_driver, driver_.data(), driver_.size());
		if (!driver_.empty() && driver_ != driver_name && !(args_.flags & PEERDMA_PUBLISH_FORCE))
			return fail(-EBUSY, address_.str());

		int bar = args_.bar == PEERDMA_BAR_AUTO ? choose_bar(bars) : args_.bar;
		args_.out_bar = bar;
		if (bar < 0 || bar >= static_cast<int>(bars.size()) ||
		    !(bars[static_cast<size_t>(bar)].flags & resource_mem))
			return fail(-EINVAL, address_.str(), PEERDMA_REASON_BAR_RANGE);
		const Bar &chosen = bars[static_cast<size_t>(bar)];
		if (!(chosen.flags & resource_prefetch) && !(args_.flags & PEERDMA_PUBLISH_NONPREFETCHABLE))
			return fail(-EINVAL, address_.str(), PEERDMA_REASON_NOT_PREFETCHABLE);
		if (args_.bar_offset >= chosen.len || args_.len > chosen.len - args_.bar_offset)
			return fail(-EINVAL, address_.str(), PEERDMA_REASON_BAR_RANGE);

		struct peerdma_info info = {};
		rc = device_.ioctl(PEERDMA_INFO, info);
		if (rc < 0)
			return fail(rc, device_.node());
		// Physical addresses are aligned, not BAR offsets: the kernel lays out its page structures by address.
		const uint64_t align = info.out_publish_align;
		const uint64_t len = args_.len ? args_.len : chosen.len - args_.bar_offset;
		if (align && ((chosen.start + args_.bar_offset) % align || len % align))
			return fail(-EINVAL, address_.str(), PEERDMA_REASON_RANGE_ALIGN);
		return 0;
	}

	int ask_rules()
	{
		const Policy &policy = device_.policy();
		if (policy.rules.empty())
			return 0;
		const Rule *rule = policy.rules.decide({function_name(device_.sys(), address_), policy.cgroup, {}, {}});
		return rule && rule->verb == Verb::deny ? fail(-EACCES, rule->place(), PEERDMA_REASON_RULE) : 0;
	}

	int take()
	{
		if (driver_ == driver_name)
			return 0;
		int rc = function_.override_get(override_);
		if (rc == 0)
			rc = function_.override_set(driver_name);
		if (rc < 0)
			return fail(rc, function_.path("driver_override"));
		overridden_ = true;
		if (!driver_.empty()) {
			rc = function_.unbind(driver_);
			if (rc < 0)
				return fail(rc, PciFunction::driver_path(driver_, "/unbind"));
			unbound_ = true;
		}
		rc = function_.bind(driver_name);
		if (rc < 0)
			return fail(rc, PciFunction::driver_path(driver_name, "/bind"));
		bound_ = true;
		return 0;
	}

	int publish()
	{
		struct peerdma_publish request = {};
		request.flags = args_.flags & PEERDMA_PUBLISH_NONPREFETCHABLE;
		request.pci_domain = args_.pci_domain;
		request.pci_bdf = args_.pci_bdf;
		request.bar = static_cast<uint32_t>(args_.out_bar);
		request.bar_offset = args_.bar_offset;
		request.len = args_.len;
		int rc = device_.ioctl(PEERDMA_PUBLISH, request);
		args_.out_reason = request.out_reason;
		args_.out_provider_id = request.out_provider_id;
		if (rc == -EEXIST && !args_.out_provider_id)
			args_.out_provider_id = existing();
		return rc < 0 ? fail(rc, address_.str()) : 0;
	}

	uint32_t existing() const
	{
		struct peerdma_provider_info info;
		for (uint32_t from = 0; provider_next(device_, from, info) == 0; from = info.id + 1) {
			if (PciAddress{info.pci_domain, info.pci_bdf} == address_)
				return info.id;
			if (info.id == UINT32_MAX)
				break;
		}
		return 0;
	}

	// In reverse order. Errors are ignored: the caller gets the first one.
	void undo()
	{
		if (bound_)
			function_.unbind(driver_name);
		// The override is restored before the old driver is bound: while it is "peerdma", no other driver
		// matches the device.
		if (overridden_)
			function_.override_set(override_);
		if (unbound_)
			function_.bind(driver_);
	}

	const Device &device_;
	struct peerdma_publish_args &args_;
	const PciAddress address_;
	const PciFunction function_;
	std::string driver_;   // bound before
	std::string override_; // set before
	bool overridden_ = false, unbound_ = false, bound_ = false;
};

} // namespace
} // namespace peerdma_impl

using namespace peerdma_impl;

int peerdma_provider_publish(struct peerdma_device *p, struct peerdma_publish_args *args)
{
	return boundary([&] {
		struct peerdma_publish_args full;
		int rc = check_handle(p);
		if (rc)
			return rc;
		rc = copy_in(full, args, args_min);
		if (rc)
			return rc;
		full.out_reason = PEERDMA_REASON_NONE;
		full.out_provider_id = 0;
		full.out_bar = full.bar;
		std::memset(full.out_driver, 0, sizeof(full.out_driver));
		std::memset(full.out_where, 0, sizeof(full.out_where));
		if (full.flags & ~(PEERDMA_PUBLISH_FORCE | PEERDMA_PUBLISH_NONPREFETCHABLE))
			rc = -EOPNOTSUPP;
		else
			rc = Publish(*p->device, full).run();
		copy_out(args, full);
		return rc;
	});
}

int peerdma_provider_unpublish(uint32_t pci_domain, uint32_t pci_bdf, uint32_t flags)
{
	return boundary([&] {
		if (flags)
			return -EOPNOTSUPP;
		const PciFunction function(system_calls(), {pci_domain, pci_bdf});
		std::string driver, override;
		// This also checks that the function exists.
		int rc = function.override_get(override);
		if (rc < 0)
			return rc == -ENOENT ? -ENODEV : rc;
		rc = function.driver(driver);
		if (rc < 0)
			return rc;
		if (!driver.empty() && driver != driver_name)
			return -EBUSY;
		const bool bound = !driver.empty();
		if (bound)
			rc = function.unbind(driver_name);
		if (rc < 0)
			return rc;
		// Only our override is cleared: any other was set on purpose.
		if (override == driver_name)
			rc = function.override_set("");
		if (rc < 0)
			return rc;
		return bound ? 0 : -EALREADY;
	});
}
