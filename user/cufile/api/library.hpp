// SPDX-License-Identifier: MIT
//
// The library's parts. No lock of one part is held across a call of another, except Driver's open_lock_ and then a
// lease of the driver state.
#pragma once

#include "cufile/api/driver.hpp"
#include "cufile/async/batches.hpp"
#include "cufile/async/streams.hpp"
#include "cufile/diag/log.hpp"
#include "cufile/diag/stats.hpp"
#include "cufile/path/engine.hpp"
#include "cufile/path/router.hpp"
#include "cufile/registry/registry.hpp"

namespace cufile
{

struct Library {
	explicit Library(const Dependencies &dependencies) : deps(dependencies) {}
	Library(const Library &) = delete;
	Library &operator=(const Library &) = delete;

	// Calls that open the driver if the program has not.
	CUfileError_t register_file(CUfileHandle_t *fh, const CUfileDescr_t *descr);
	CUfileError_t register_buffer(const void *base, size_t size, int flags);
	CUfileError_t create_batch(CUfileBatchHandle_t *out, unsigned nr);
	void deregister_file(CUfileHandle_t fh);
	CUfileError_t deregister_buffer(const void *base);

	const Dependencies deps;
	DriverState state;
	Log log{deps.system};
	Stats stats{deps.system};
	IdSource ids;
	Registry registry{deps, log, ids};
	Router router{deps, state, registry, log, stats};
	Batches batches{deps, state, registry, router, stats, ids};
	Streams streams{deps, state, registry, router, log, stats};
	Driver driver{deps, state, log, stats, registry, batches, streams};
};

} // namespace cufile
