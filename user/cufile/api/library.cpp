// SPDX-License-Identifier: MIT
#include "cufile/api/library.hpp"

#include "cufile/platform/errors.hpp"

namespace cufile
{
namespace
{

template <class Call> CUfileError_t with_driver(Library &library, Call &&call)
{
	const CUfileOpError opened = library.driver.open_for_use();
	if (opened)
		return error(opened);
	library.driver.retry_load();
	const DriverState::Lease lease(library.state);
	return lease ? call(lease->config) : error(CU_FILE_DRIVER_CLOSING);
}

} // namespace

CUfileError_t Library::register_file(CUfileHandle_t *fh, const CUfileDescr_t *descr)
{
	const CUfileError_t rc =
		fh && descr ?
			with_driver(*this,
				    [&](const Config &config) { return registry.register_file(config, fh, descr); }) :
			error(CU_FILE_INVALID_VALUE);
	stats.count(&CUfileStatsLevel1_t::hdl_register_ops, rc.err == CU_FILE_SUCCESS);
	return rc;
}

void Library::deregister_file(CUfileHandle_t fh)
{
	stats.count(&CUfileStatsLevel1_t::hdl_deregister_ops, registry.deregister_file(fh));
}

CUfileError_t Library::register_buffer(const void *base, size_t size, int)
{
	int device = -1;
	const CUfileError_t rc =
		base && size ? with_driver(*this,
					   [&](const Config &config) {
						   return registry.register_buffer(config, base, size, device);
					   }) :
			       error(CU_FILE_INVALID_VALUE);
	if (rc.err)
		stats.buffer(-1, true, false, size, nullptr);
	else
		stats.buffer(device, true, true, size, &deps.cuda);
	return rc;
}

CUfileError_t Library::deregister_buffer(const void *base)
{
	RegisteredBuffer gone;
	const CUfileError_t rc = registry.deregister_buffer(base, gone);
	if (!rc.err)
		stats.buffer(gone.memory.device, false, true, gone.size, &deps.cuda);
	return rc;
}

CUfileError_t Library::create_batch(CUfileBatchHandle_t *out, unsigned nr)
{
	const CUfileError_t rc =
		out && nr ? with_driver(*this, [&](const Config &config) { return batches.create(config, out, nr); }) :
			    error(CU_FILE_INVALID_VALUE);
	stats.count(&CUfileStatsLevel1_t::batch_setup_ops, rc.err == CU_FILE_SUCCESS);
	return rc;
}

} // namespace cufile
