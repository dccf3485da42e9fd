// SPDX-License-Identifier: MIT
//
// peerdma-viewd: serves views of files as block devices. See peerdma-viewd(8).
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "view/protocol.hpp"
#include "viewd/control.hpp"
#include "viewd/notify.hpp"
#include "viewd/service.hpp"
#include "viewd/state_folder.hpp"
#include "viewd/ublk_devices.hpp"

// The command line is wrong. The unit does not start the service again then.
static constexpr int exit_usage = 2;

static std::string host_name()
{
	char name[256] = {};
	return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// Each view has three descriptors for its device and one for each of its files.
static void allow_many_files()
{
	rlimit limit = {};
	if (::getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	::setrlimit(RLIMIT_NOFILE, &limit);
}

static void complain_of_definitions(const viewd::Service &service)
{
	for (const std::string &error : service.conf_errors())
		std::fprintf(stderr, "peerdma-viewd: %s\n", error.c_str());
}

int main(int argc, char **argv)
{
	CLI::App app("Serves views of files as block devices, which the kernel exports by NVMe over Fabrics.",
		     "peerdma-viewd");
	std::string folder = "/var/lib/peerdma/views", conf_dir = view::default_conf_dir, socket = view::default_socket;
	uint64_t memory = 256, decompress_memory = 64;
	unsigned threads = std::max(std::thread::hardware_concurrency(), 1u);
	app.add_option("--folder", folder, "what is published, and what its scans have found")->capture_default_str();
	app.add_option("--conf-dir", conf_dir,
		       "definitions of views, NAME.conf each; read at the start and upon SIGHUP")
		->capture_default_str();
	app.add_option("--socket", socket, "where the command reaches it")->capture_default_str();
	app.add_option("--memory", memory, "MiB for reduced chunks, and the buffers of the threads that reduce")
		->check(CLI::Range(2, 1 << 20))
		->capture_default_str();
	app.add_option("--decompress-memory", decompress_memory, "MiB for decompressing files, besides")
		->check(CLI::Range(8, 1 << 20))
		->capture_default_str();
	app.add_option("--threads", threads, "that reduce, and as many that serve requests")
		->check(CLI::Range(1, 256))
		->capture_default_str();
	std::vector<std::string> ports;
	std::string prefix = "nqn.2026-11.org.peerdma:" + host_name() + ":";
	app.add_option("--port", ports,
		       "where the kernel's NVMe target listens: rdma:ADDRESS:PORT or tcp:ADDRESS:PORT; without it no "
		       "view is exported");
	app.add_option("--nqn-prefix", prefix, "of a view's NQN, before its name")->capture_default_str();
	std::vector<viewd::NvmetPort> parsed;
	try {
		app.parse(argc, argv);
		for (const std::string &port : ports)
			parsed.push_back(viewd::NvmetPort::parse(port));
	} catch (const CLI::Success &help) {
		return app.exit(help);
	} catch (const std::exception &error) {
		std::fprintf(stderr, "peerdma-viewd: %s; see peerdma-viewd --help\n", error.what());
		return exit_usage;
	}

	// Before there are threads, so that all of them block it.
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, nullptr);
	const int arrived = ::signalfd(-1, &signals, SFD_CLOEXEC);
	allow_many_files();
	try {
		viewd::ControlSocket control(socket);
		// Locked before anything is made that another service may have.
		auto state = std::make_unique<viewd::StateFolder>(folder);
		viewd::Nvmet nvmet("/sys/kernel/config/nvmet", parsed);
		viewd::UblkDevices devices(threads, nvmet, !parsed.empty(), prefix);
		viewd::Service service({.folder = folder,
					.conf_dir = conf_dir,
					.memory = memory << 20,
					.decompress_memory = decompress_memory << 20,
					.workers = threads},
				       devices, std::move(state));
		complain_of_definitions(service);
		viewd::notify("READY=1");
		for (;;) {
			control.serve(service, arrived);
			signalfd_siginfo signal = {};
			if (::read(arrived, &signal, sizeof(signal)) != sizeof(signal) || signal.ssi_signo != SIGHUP)
				break;
			viewd::notify(viewd::reloading());
			try {
				service.reload();
			} catch (const std::exception &error) {
				std::fprintf(stderr, "peerdma-viewd: %s\n", error.what());
			}
			complain_of_definitions(service);
			viewd::notify("READY=1");
		}
		viewd::notify("STOPPING=1");
		// What still reads would be waited for, and by the kernel if it cannot be interrupted: the next service need not.
		if (service.stop()) {
			control.close();
			::_exit(0);
		}
	} catch (const std::exception &error) {
		std::fprintf(stderr, "peerdma-viewd: %s\n", error.what());
		return 1;
	}
	return 0;
}
