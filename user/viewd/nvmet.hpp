// SPDX-License-Identifier: MIT
//
// A block device as a namespace of the kernel's NVMe target (nvmet), by configfs. What a service before has set up is taken over.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
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
	// root: of the target in configfs. Makes the ports that are not there, and finds what services before have exported. Throws
	// std::runtime_error. tried_again: how long after a port could not be opened it is tried again, at the earliest.
	Nvmet(std::filesystem::path root, const std::vector<NvmetPort> &ports,
	      std::chrono::steady_clock::duration tried_again = std::chrono::seconds(1));
	// Removes the ports and hosts that it has made, if no other subsystem uses them.
	~Nvmet();
	Nvmet(const Nvmet &) = delete;
	Nvmet &operator=(const Nvmet &) = delete;

	// A subsystem of one namespace, to which these hosts may connect once it is open. serial: 20 hexadecimal digits, of the subsystem; it
	// tells what this service or one before has exported from what an administrator has. The namespace's UUID is made of it and the NQN, so that a
	// host that waits for the target finds the namespace as it was. nsid: the namespace's number, 1 to 1024. A host that reconnects
	// sends its queued reads to the number that it knows, so the number must differ from that of the device before. Throws
	// std::runtime_error.
	void add(const std::string &nqn, const std::string &serial, unsigned nsid, const std::string &device,
		 const std::vector<std::string> &hosts);
	// Lets its hosts connect, by each port that can be opened. The first subsystem of a port opens that, and the target refuses hosts of
	// others that are not there yet: since Linux 6.10 such a host gives up. So a port that can be opened at last gets all that were to be
	// open. Throws std::runtime_error if a port cannot be opened. It may be called again.
	void open(const std::string &nqn);
	// Whether there is a port to which no host can connect yet.
	bool has_closed_port() const;
	// Disconnects all hosts, and lets none connect any more: those of one subsystem would be refused while another is there still.
	void close_all() noexcept;
	// Disconnects all hosts of what was exported with this serial, if that has another NQN or lets more connect than these. Before
	// the device answers again, as it may have held reads of a host that is no longer allowed. Throws std::runtime_error.
	void close_if_more(const std::string &serial, const std::string &nqn, const std::vector<std::string> &hosts);
	// Disconnects its hosts and forgets it; the device is free then. If a part cannot be removed, the others are all the same.
	void remove(const std::string &nqn) noexcept;
	// Removes what services before have exported with this serial by other NQNs than `nqn`, for one with another prefix.
	void remove_others(const std::string &serial, const std::string &nqn) noexcept;

private:
	using Clock = std::chrono::steady_clock;

	void make_port(const NvmetPort &port);
	// A folder that the destructor removes, unless it was there before.
	void make_owned(const std::filesystem::path &path);
	void remove_made() noexcept;
	std::string open_port(const std::string &number);
	bool has_subsystem(const std::string &nqn) const;
	void close(const std::string &nqn) noexcept;
	bool may_more(const std::string &nqn, const std::vector<std::string> &hosts) const;

	const std::filesystem::path root_;
	const Clock::duration tried_again_;
	std::vector<std::string> port_numbers_;
	std::multimap<std::string, std::string> left_; // at the start: NQNs, by serials
	std::mutex mutex_;                             // protects the members below, and open() against close_all()
	std::vector<std::filesystem::path> made_;      // ports and hosts that were not there before
	std::set<std::string> added_, opened_; // NQNs; opened_: to be open, whether their ports can be opened or not
	struct Failure {
		std::string what;
		Clock::time_point time;
	};
	std::map<std::string, Failure> failures_; // of ports, by their numbers
	bool is_closed_ = false;                  // by close_all()
};

} // namespace viewd
