// SPDX-License-Identifier: MIT
#include <exception>

#include "tools/cli/cli.hpp"
#include "tools/cli/output.hpp"

int main(int argc, char **argv)
{
	cli::reserve_streams();
	int status = cli::exit_failed;
	try {
		status = cli::run(argc, argv);
	} catch (const std::exception &e) {
		cli::complain(e.what());
	}
	return cli::close_output(status);
}
