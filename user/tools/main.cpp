// SPDX-License-Identifier: MIT
#include <cstdio>
#include <exception>

#include "cli.hpp"

int main(int argc, char **argv)
{
	try {
		return cli::run(argc, argv);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "peerdma: %s\n", e.what());
		return cli::exit_failed;
	}
}
