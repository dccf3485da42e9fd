// SPDX-License-Identifier: MIT
//
// seeing ACT...: requests of every kind on one open file of /dev/peerdma, with a buffer of 1 MiB. ACT is
//
//   read:FILE:FILE_OFF:LEN:BUF_OFF     write:FILE:FILE_OFF:LEN:BUF_OFF
//   ring:FILE:FILE_OFF:LEN:N           N consecutive reads by io_uring, all in flight at once
//   ring:FILE:FILE_OFF:LEN:N:REASON    the same, to be refused for REASON: a ring returns the errno only
//   limit                              limit file sizes of this process to 1 MiB from now on
//   again                              wait for a line of standard input
//   wait                               print the counts and "ready", wait for a line or the end
//
// Prints the results that the requests returned as "said KEY VALUE", and "fdinfo KEY VALUE" of the open file.
//
// seeing get FILE POINTER...: prints values of a JSON file in one line; RFC 6901
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>
#include <liburing.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/resource.h>
#include <vector>

#include "../../tools/command.hpp"

namespace
{

constexpr uint64_t mib = 1 << 20, block = 512;

std::map<std::string, unsigned long long> said;
int dev;
uint32_t buf;

std::vector<std::string> split(const std::string &text)
{
	std::vector<std::string> parts;
	std::istringstream in(text);
	for (std::string part; std::getline(in, part, ':');)
		parts.push_back(part);
	return parts;
}

uint64_t number(const std::string &text) { return std::strtoull(text.c_str(), nullptr, 0); }

void say(bool write, int err, uint32_t reason, uint64_t direct, uint64_t near, uint64_t host)
{
	said[write ? "writes" : "reads"]++;
	said["direct-bytes"] += direct;
	said["near-bytes"] += near;
	said["host-bytes"] += host;
	if (err && reason) {
		said["refused"]++;
		said["refused-" + std::to_string(reason)]++;
	} else if (err) {
		said["errors"]++;
	}
}

void request(const std::vector<std::string> &act, bool write)
{
	const int fd = raw::open_file(act.at(1), write ? O_RDWR : O_RDONLY);
	auto req = raw::io(fd, buf, number(act.at(2)), number(act.at(4)), number(act.at(3)));
	const int err = raw::call(dev, write ? PEERDMA_WRITE : PEERDMA_READ, req);
	say(write, err, req.out_reason, req.out_direct, req.out_near, req.out_host);
	::close(fd);
}

void ring(const std::vector<std::string> &act)
{
	const int fd = raw::open_file(act.at(1), O_RDONLY);
	const uint64_t off = number(act.at(2)), len = number(act.at(3)), n = number(act.at(4));
	io_uring ring;
	if (io_uring_queue_init(64, &ring, 0))
		raw::die("ring");
	for (uint64_t i = 0; i < n; i++)
		raw::command(io_uring_get_sqe(&ring), dev, PEERDMA_URING_READ, buf, raw::add_file(dev, fd),
			     static_cast<uint32_t>(len), {off + i * len, i * len});
	if (io_uring_submit_and_wait(&ring, static_cast<unsigned>(n)) < 0)
		raw::die("submit");
	const uint64_t head = -off % block, whole = (len - head) / block * block;
	for (uint64_t i = 0; i < n; i++) {
		io_uring_cqe *cqe;
		if (io_uring_wait_cqe(&ring, &cqe))
			raw::die("wait");
		const bool done = cqe->res == static_cast<int>(len);
		if (!done && act.size() < 6)
			std::printf("a ring's result is %d\n", cqe->res);
		const uint32_t reason = act.size() > 5 ? static_cast<uint32_t>(number(act[5])) : 0;
		if (raw::by_software())
			say(false, done ? 0 : cqe->res, reason, 0, 0, done ? len : 0);
		else
			say(false, done ? 0 : cqe->res, reason, done ? whole : 0, done ? len - whole : 0, 0);
		io_uring_cqe_seen(&ring, cqe);
	}
	io_uring_queue_exit(&ring);
	::close(fd);
}

void print()
{
	for (const auto &[key, value] : said)
		std::printf("said %s %llu\n", key.c_str(), value);
	std::ifstream info("/proc/self/fdinfo/" + std::to_string(dev));
	for (std::string line; std::getline(info, line);) {
		char name[64];
		unsigned long long value;
		if (std::sscanf(line.c_str(), "peerdma-%63[^:]: %llu", name, &value) == 2)
			std::printf("fdinfo %s %llu\n", name, value);
	}
	std::fflush(stdout);
}

void wait_for_line()
{
	std::string line;
	std::getline(std::cin, line);
}

void perform(const std::string &text)
{
	const auto act = split(text);
	if (act[0] == "read" || act[0] == "write")
		request(act, act[0] == "write");
	else if (act[0] == "ring")
		ring(act);
	else if (act[0] == "limit") {
		const rlimit limit = {mib, mib};
		::signal(SIGXFSZ, SIG_IGN);
		if (::setrlimit(RLIMIT_FSIZE, &limit))
			raw::die("setrlimit");
	} else if (act[0] == "again")
		wait_for_line();
	else if (act[0] == "wait") {
		print();
		std::printf("ready\n");
		std::fflush(stdout);
		wait_for_line();
	} else {
		std::fprintf(stderr, "there is no act %s\n", act[0].c_str());
		std::exit(2);
	}
}

int get(int argc, char **argv)
{
	std::ifstream in(argv[2]);
	const auto json = nlohmann::json::parse(in, nullptr, false);
	for (int i = 3; i < argc; i++) {
		const nlohmann::json::json_pointer at(argv[i]);
		const auto value = json.contains(at) ? json[at] : nlohmann::json("absent");
		std::printf("%s%s", i > 3 ? " " : "",
			    (value.is_string() ? value.get<std::string>() : value.dump()).c_str());
	}
	std::printf("\n");
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc > 3 && !std::strcmp(argv[1], "get"))
		return get(argc, argv);
	dev = raw::open_device();
	buf = raw::buffer(dev, mib).out_buf_id;
	for (const char *key : {"reads", "writes", "direct-bytes", "near-bytes", "host-bytes", "errors", "refused"})
		said[key] = 0;
	for (int i = 1; i < argc; i++)
		perform(argv[i]);
	print();
	return 0;
}
