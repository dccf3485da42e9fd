// SPDX-License-Identifier: MIT
// libcufile's inputs from the machine: environment variables, and sysfs of a GPU and a drive. Each line of the input is
// the number of a place in the list and its contents.
#include <algorithm>
#include <iterator>

#include <nlohmann/json.hpp>

#include "../../host/cufile/fake_dependencies.hpp"
#include "cufile/api/library.hpp"
#include "cufile/config/config.hpp"
#include "input.hpp"

using input::must;

namespace
{

const char *const variables[] = {
	"CUFILE_FORCE_COMPAT_MODE", "CUFILE_ALLOW_COMPAT_MODE", "CUFILE_USE_PCIP2PDMA",       "CUFILE_LOGGING_LEVEL",
	"CUFILE_LOGFILE_PATH",      "CUFILE_ENV_PATH_JSON",     "CUFILE_LOGFILE_MAX_SIZE_MB", "PEERDMA_REQUIRE_DIRECT",
};

// The first address is that of the fake CUDA's device.
const std::string gpu = "/sys/bus/pci/devices/0000:0a:00.0", drive = "/sys/bus/pci/devices/0000:05:00.0";
const std::string files[] = {
	gpu + "/class",   gpu + "/numa_node", gpu + "/vendor",   gpu + "/device",    gpu + "/resource",
	drive + "/class", drive + "/vendor",  drive + "/device", "/etc/cufile.json",
};

void is_consistent(const nlohmann::json &topology)
{
	const auto listed = [&](const nlohmann::json &address) {
		return std::any_of(topology["devices"].begin(), topology["devices"].end(),
				   [&](const nlohmann::json &device) { return device["address"] == address; });
	};
	for (const auto &pair : topology["pairs"]) {
		must(listed(pair["memory"]) && listed(pair["device"]), "a pair is of devices that are listed");
		must(pair["meet"].is_null() == pair["links"].is_null(), "who does not meet has no distance");
		must(pair["links"].is_null() || pair["links"] >= 2, "a distance counts the links of both");
	}
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FakeSystem system;
	FakeCuda cuda;
	FakePeerdma peerdma;
	cuda.present = true;
	system.links[gpu] = "../../../devices/pci0000:00/0000:00:01.0/0000:0a:00.0";
	system.links[drive] = "../../../devices/pci0000:00/0000:00:01.0/0000:05:00.0";
	system.texts[gpu + "/class"] = "0x030200\n";
	system.texts[drive + "/class"] = "0x010802\n";
	for (const std::string &line : input::lines(data, size)) {
		if (line.empty())
			continue;
		const size_t index =
			static_cast<unsigned char>(line[0]) % (std::size(variables) + std::size(files) + 2);
		const std::string text = line.substr(1);
		if (index < std::size(variables))
			system.variables[variables[index]] = text;
		else if (index < std::size(variables) + std::size(files))
			system.texts[files[index - std::size(variables)]] += text + "\n";
		else
			system.links[index % 2 ? gpu : drive] = text;
	}

	cufile::Findings found;
	const cufile::Config config = cufile::Settings{}.merge(system, found);
	must(config.log_max_mb << 20 >> 20 == config.log_max_mb && config.log_max_mb, "a log has room");
	must(!config.strings[CUFILE_PARAM_LOGGING_LEVEL].empty(), "there is a logging level");
	for (unsigned i = 0; i < cufile::nr_sizes; i++) {
		const cufile::Range range = cufile::size_range(i);
		must(config.sizes[i] >= range.min && config.sizes[i] <= range.max, "a number is in its range");
	}

	cufile::Library library({system, cuda, peerdma});
	size_t kb = 0;
	library.driver.bar_size(0, &kb);
	must(library.driver.export_topology("/topology").err == CU_FILE_SUCCESS, "a topology is written");
	is_consistent(nlohmann::json::parse(system.texts.at("/topology")));
	return 0;
}
