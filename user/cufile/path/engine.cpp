// SPDX-License-Identifier: MIT
#include "cufile/path/engine.hpp"

#include <algorithm>

namespace cufile
{
namespace
{

uint64_t pool_bytes(const Config &config)
{
	uint64_t bytes = 0;
	const Slabs &slabs = config.slabs[posix_pool];
	for (size_t i = 0; i < slabs.size_kb.size(); i++)
		bytes += static_cast<uint64_t>(slabs.size_kb[i]) * slabs.count[i] * 1024;
	return bytes;
}

unsigned count_cores(System &system)
{
	Cpus all;
	return system.cpus(all) < 0 ? 1 : static_cast<unsigned>(all.count());
}

unsigned max_threads(const Config &config)
{
	return static_cast<unsigned>(std::max<uint64_t>(1, config.size(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS)));
}

} // namespace

Engine::Engine(Config c, const Dependencies &d)
	: deps(d), config(std::move(c)),
	  bounce_buffers(deps.cuda, deps.system, pool_bytes(config),
			 static_cast<unsigned>(config.size(CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH))),
	  peer_gpus(deps), workers(max_threads(config)), stream_workers(max_threads(config)),
	  cores(count_cores(deps.system))
{
}

void Engine::bind_worker(const Request &request)
{
	const bool near = request.path == TransferPath::bounce && request.file->fd() >= 0;
	bounce_buffers.bind_thread(near ? request.memory.device : -1);
}

void DriverState::set_engine(std::unique_ptr<Engine> engine)
{
	const std::lock_guard all(use_);
	engine_ = std::move(engine);
}

std::unique_ptr<Engine> DriverState::take_engine()
{
	const std::lock_guard all(use_);
	return std::move(engine_);
}

} // namespace cufile
