// SPDX-License-Identifier: MIT
//
// A block device as a namespace of the kernel's NVMe target (nvmet), by configfs. What a service before has set up is taken over.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace viewd
{

// Where the target listens: "rdma:192.168.1.1:4420", "tcp:[fd00::1]:4420".
struct NvmetPort {
	std::string transport, address, service;
	// Throws std::runtime_error.
	static NvmetPort parse(const std::string &text);
	bool operator==(const NvmetPort &) const = default;
};

class Nvmet
{
public:
	// root: of the target in configfs. Makes the ports that are not there. Throws std::runtime_error.
	Nvmet(std::filesystem::path root, const std::vector<NvmetPort> &ports);

	// A subsystem of one namespace, to which these hosts may connect. Throws std::runtime_error.
	void add(const std::string &nqn, const std::string &device, const std::vector<std::string> &hosts);
	// Disconnects its hosts and forgets it; the device is free then. If a part cannot be removed, the others are all the same.
	void remove(const std::string &nqn) noexcept;
	// Removes the view's exports of this device by other NQNs than `nqn`, as a service with another prefix has left. Throws
	// std::runtime_error.
	void remove_others(const std::string &view, const std::string &device, const std::string &nqn);

private:
	void make_port(const NvmetPort &port);
	void listen(const std::string &number, const std::string &nqn) const;
	bool may_more(const std::string &nqn, const std::vector<std::string> &hosts) const;

	const std::filesystem::path root_;
	std::vector<std::string> port_numbers_;
};

} // namespace viewd
