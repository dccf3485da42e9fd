// SPDX-License-Identifier: MIT
#include "viewd/nvmet.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "view/crc32c.hpp"

namespace viewd
{

namespace
{

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path &path, int error)
{
	throw std::runtime_error(fmt::format("{}: {}", path.string(), std::strerror(error)));
}

// An attribute takes its value in one write.
void set(const fs::path &path, const std::string &value)
{
	const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
	const int error = fd < 0 || ::write(fd, value.data(), value.size()) < 0 ? errno : 0;
	if (fd >= 0)
		::close(fd);
	if (error)
		throw std::runtime_error(fmt::format("{} = {}: {}", path.string(), value, std::strerror(error)));
}

std::string get(const fs::path &path)
{
	std::string value;
	std::getline(std::ifstream(path), value);
	return value;
}

// Returns whether it was not there before.
bool make_folder(const fs::path &path)
{
	std::error_code error;
	const bool is_new = fs::create_directory(path, error);
	if (error)
		fail(path, error.value());
	return is_new;
}

// Returns why it is not there afterwards.
std::error_code make_link(const fs::path &to, const fs::path &path)
{
	std::error_code error;
	if (!fs::is_symlink(path, error))
		fs::create_symlink(to, path, error);
	return error;
}

std::vector<std::string> names_in(const fs::path &path, std::error_code &error)
{
	std::vector<std::string> names;
	for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator(); at.increment(error))
		names.push_back(at->path().filename());
	return names;
}

// Of a device's namespace. The kernel gives each new namespace a random UUID, and a host that has reconnected removes a namespace whose
// UUID has changed. The NQN is part of it: hosts refuse a UUID of two subsystems, and two machines may have copies of one state folder.
// Version 8: RFC 9562 leaves the other bits to the program.
std::string uuid_of(const std::string &nqn, const std::string &serial)
{
	return fmt::format("{:08x}-{}-8{}-8{}-00{}", view::crc32c(std::as_bytes(std::span(nqn))), serial.substr(0, 4),
			   serial.substr(4, 3), serial.substr(7, 3), serial.substr(10));
}

// What is not there has no names.
std::vector<std::string> names_in(const fs::path &path)
{
	std::error_code error;
	std::vector<std::string> names = names_in(path, error);
	if (error && error != std::errc::no_such_file_or_directory)
		fail(path, error.value());
	return names;
}

} // namespace

NvmetPort NvmetPort::parse(const std::string &text)
{
	const size_t first = text.find(':'), last = text.rfind(':');
	NvmetPort port;
	if (first != std::string::npos && last > first) {
		port = {text.substr(0, first), text.substr(first + 1, last - first - 1), text.substr(last + 1)};
		if (port.address.starts_with('[') && port.address.ends_with(']'))
			port.address = port.address.substr(1, port.address.size() - 2);
	}
	const bool number = !port.service.empty() && port.service.find_first_not_of("0123456789") == std::string::npos;
	if ((port.transport != "rdma" && port.transport != "tcp") || port.address.empty() || !number)
		throw std::runtime_error(fmt::format(
			"port {}: expected TRANSPORT:ADDRESS:PORT, for example rdma:192.168.1.1:4420", text));
	return port;
}

Nvmet::Nvmet(fs::path root, const std::vector<NvmetPort> &ports, Clock::duration tried_again)
	: root_(std::move(root)), tried_again_(tried_again)
{
	if (!ports.empty() && !fs::is_directory(root_))
		throw std::runtime_error(fmt::format("{}: not there (is the module nvmet loaded?)", root_.string()));
	for (const std::string &nqn : names_in(root_ / "subsystems"))
		left_.emplace(get(root_ / "subsystems" / nqn / "attr_serial"), nqn);
	try {
		for (const NvmetPort &port : ports)
			make_port(port);
	} catch (...) {
		remove_made();
		throw;
	}
}

Nvmet::~Nvmet() { remove_made(); }

void Nvmet::remove_made() noexcept
{
	std::error_code ignored;
	for (const fs::path &path : made_)
		fs::remove(path, ignored);
}

void Nvmet::make_port(const NvmetPort &port)
{
	const std::vector<std::string> there = names_in(root_ / "ports");
	for (const std::string &number : there) {
		const fs::path at = root_ / "ports" / number;
		if (get(at / "addr_trtype") == port.transport && get(at / "addr_traddr") == port.address &&
		    get(at / "addr_trsvcid") == port.service) {
			port_numbers_.push_back(number);
			return;
		}
	}
	int free = 1;
	while (std::ranges::find(there, std::to_string(free)) != there.end())
		free++;
	const fs::path at = root_ / "ports" / std::to_string(free);
	make_owned(at);
	set(at / "addr_trtype", port.transport);
	set(at / "addr_adrfam", port.address.find(':') == std::string::npos ? "ipv4" : "ipv6");
	set(at / "addr_traddr", port.address);
	set(at / "addr_trsvcid", port.service);
	port_numbers_.push_back(std::to_string(free));
}

void Nvmet::make_owned(const fs::path &path)
{
	if (!make_folder(path))
		return;
	const std::lock_guard lock(mutex_);
	made_.push_back(path);
}

void Nvmet::add(const std::string &nqn, const std::string &serial, unsigned nsid, const std::string &device,
		const std::vector<std::string> &hosts)
{
	const fs::path subsystem = root_ / "subsystems" / nqn;
	{
		const std::lock_guard lock(mutex_);
		added_.insert(nqn);
	}
	// What a service before has left. The kernel disconnects a host that it no longer allows, or of a port that is given up, only with
	// the subsystem.
	if (may_more(nqn, hosts) || get(subsystem / "attr_serial") != serial)
		remove(nqn);
	make_folder(subsystem);
	// Once a host has asked for it, it cannot be set.
	if (get(subsystem / "attr_serial") != serial)
		set(subsystem / "attr_serial", serial);
	set(subsystem / "attr_allow_any_host", "0");
	for (const std::string &host : hosts) {
		make_owned(root_ / "hosts" / host);
		const fs::path link = subsystem / "allowed_hosts" / host;
		if (const std::error_code error = make_link(root_ / "hosts" / host, link))
			fail(link, error.value());
	}
	const std::vector<std::string> left = names_in(subsystem / "namespaces");
	const fs::path space = subsystem / "namespaces" / (left.empty() ? std::to_string(nsid) : left.front());
	make_folder(space);
	if (get(space / "enable") != "1" || get(space / "device_path") != device) {
		if (get(space / "enable") == "1")
			set(space / "enable", "0");
		set(space / "device_path", device);
		set(space / "device_uuid", uuid_of(nqn, serial));
		set(space / "enable", "1");
	}
	if (may_more(nqn, hosts))
		throw std::runtime_error(
			fmt::format("{}: hosts that may no longer connect cannot be removed", subsystem.string()));
}

// All that are to be open, as soon as a port can be: the target refuses a host that finds the port without its subsystem, and Linux 6.10 and
// newer give up then.
void Nvmet::open(const std::string &nqn)
{
	const std::lock_guard lock(mutex_);
	if (is_closed_)
		return;
	opened_.insert(nqn);
	std::string first;
	for (const std::string &number : port_numbers_)
		if (const std::string why_not = open_port(number); first.empty())
			first = why_not;
	if (first.empty() && !has_subsystem(nqn))
		first = fmt::format("{}: was removed by hand; publish the view again",
				    (root_ / "subsystems" / nqn).string());
	if (!first.empty())
		throw std::runtime_error(first);
}

// With the mutex held. Returns why it cannot be opened, or "". The kernel logs each try that fails.
std::string Nvmet::open_port(const std::string &number)
{
	Failure &last = failures_[number];
	if (!last.what.empty() && Clock::now() < last.time + tried_again_)
		return last.what;
	last.what.clear();
	const fs::path port = root_ / "ports" / number;
	for (const std::string &nqn : opened_) {
		// One that an administrator has removed: the others need not wait for it.
		if (!has_subsystem(nqn))
			continue;
		if (const std::error_code error = make_link(root_ / "subsystems" / nqn, port / "subsystems" / nqn)) {
			last = {fmt::format("--port {}:{}:{} cannot be opened: {}", get(port / "addr_trtype"),
					    get(port / "addr_traddr"), get(port / "addr_trsvcid"), error.message()),
				Clock::now()};
			break;
		}
	}
	return last.what;
}

bool Nvmet::has_subsystem(const std::string &nqn) const
{
	std::error_code ignored;
	return fs::is_directory(root_ / "subsystems" / nqn, ignored);
}

bool Nvmet::has_closed_port() const
{
	return std::ranges::any_of(port_numbers_, [this](const std::string &number) {
		return names_in(root_ / "ports" / number / "subsystems").empty();
	});
}

void Nvmet::close_all() noexcept
{
	const std::lock_guard lock(mutex_);
	is_closed_ = true;
	for (const std::string &nqn : added_)
		close(nqn);
}

// Whether a subsystem that is there lets another host connect, or by another port.
bool Nvmet::may_more(const std::string &nqn, const std::vector<std::string> &hosts) const
{
	const auto has = [](const std::vector<std::string> &all, const std::string &one) {
		return std::ranges::find(all, one) != all.end();
	};
	for (const std::string &host : names_in(root_ / "subsystems" / nqn / "allowed_hosts"))
		if (!has(hosts, host))
			return true;
	std::error_code ignored;
	for (const std::string &number : names_in(root_ / "ports"))
		if (!has(port_numbers_, number) &&
		    fs::is_symlink(root_ / "ports" / number / "subsystems" / nqn, ignored))
			return true;
	return false;
}

void Nvmet::close_if_more(const std::string &serial, const std::string &nqn, const std::vector<std::string> &hosts)
{
	const auto [begin, end] = left_.equal_range(serial);
	for (auto at = begin; at != end; ++at)
		if (at->second != nqn || may_more(nqn, hosts))
			close(at->second);
}

// The kernel disconnects the hosts of a port that is given up, and waits for none of their requests.
void Nvmet::close(const std::string &nqn) noexcept
{
	try {
		std::error_code ignored;
		for (const std::string &number : names_in(root_ / "ports", ignored))
			fs::remove(root_ / "ports" / number / "subsystems" / nqn, ignored);
	} catch (const std::exception &) {
		// Without memory for the names it stays open.
	}
}

void Nvmet::remove_others(const std::string &serial, const std::string &nqn) noexcept
{
	const auto [begin, end] = left_.equal_range(serial);
	for (auto at = begin; at != end; ++at)
		if (at->second != nqn)
			remove(at->second);
}

void Nvmet::remove(const std::string &nqn) noexcept
{
	try {
		const fs::path subsystem = root_ / "subsystems" / nqn;
		std::error_code ignored;
		{
			const std::lock_guard lock(mutex_);
			opened_.erase(nqn);
		}
		if (!has_subsystem(nqn))
			return;
		close(nqn);
		for (const std::string &number : names_in(subsystem / "namespaces", ignored)) {
			const fs::path space = subsystem / "namespaces" / number;
			try {
				set(space / "enable", "0");
			} catch (const std::exception &) {
				// It is not enabled.
			}
			fs::remove(space, ignored);
		}
		for (const std::string &host : names_in(subsystem / "allowed_hosts", ignored))
			fs::remove(subsystem / "allowed_hosts" / host, ignored);
		fs::remove(subsystem, ignored);
	} catch (const std::exception &) {
		// Without memory for the names the export stays, without its device.
	}
}

} // namespace viewd
