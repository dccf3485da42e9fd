// SPDX-License-Identifier: MIT
//
// The batch calls: cuFileBatchIO*.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <shared_mutex>
#include <unordered_map>

#include "cufile/async/batch.hpp"
#include "cufile/diag/stats.hpp"
#include "cufile/path/engine.hpp"
#include "cufile/path/router.hpp"
#include "cufile/registry/id_source.hpp"

namespace cufile
{

class Batches
{
public:
	Batches(const Dependencies &deps, DriverState &state, Registry &registry, Router &router, Stats &stats,
		IdSource &ids)
		: deps_(deps), state_(state), registry_(registry), router_(router), stats_(stats), ids_(ids)
	{
	}
	Batches(const Batches &) = delete;
	Batches &operator=(const Batches &) = delete;

	CUfileError_t create(const Config &config, CUfileBatchHandle_t *out, unsigned nr);
	CUfileError_t submit(CUfileBatchHandle_t id, unsigned nr, const CUfileIOParams_t *ios);
	CUfileError_t status(CUfileBatchHandle_t id, unsigned min, unsigned *nr, CUfileIOEvents_t *events,
			     const struct timespec *timeout);
	CUfileError_t cancel(CUfileBatchHandle_t id);
	void destroy(CUfileBatchHandle_t id);
	// Cancels requests that have not begun and waits for the others.
	void destroy_all();

private:
	std::shared_ptr<Batch> find(CUfileBatchHandle_t id);

	const Dependencies deps_;
	DriverState &state_;
	Registry &registry_;
	Router &router_;
	Stats &stats_;
	IdSource &ids_;
	std::shared_mutex lock_; // protects batches_
	std::unordered_map<uintptr_t, std::shared_ptr<Batch>> batches_;
};

} // namespace cufile
