// SPDX-License-Identifier: MIT
//
// The numbers of whatever cufile.h it is compiled with: the output with the CUDA toolkit's and that with ours are to be the
// same (tests/gpu/README.md).
#include <cstddef>
#include <cstdio>

#include <cufile.h>

#define SIZE(type) std::printf("sizeof " #type " %zu\n", sizeof(type))
#define AT(type, member) std::printf("offsetof " #type "." #member " %zu\n", offsetof(type, member))
#define VALUE(name) std::printf(#name " %lld\n", static_cast<long long>(name))

int main()
{
	SIZE(CUfileError_t);
	SIZE(CUfileDrvProps_t);
	SIZE(CUfileFSOps_t);
	SIZE(CUfileDescr_t);
	SIZE(CUfileIOParams_t);
	SIZE(CUfileIOEvents_t);
	SIZE(CUfileHandle_t);
	SIZE(CUfileBatchHandle_t);
	SIZE(CUfileOpCounter_t);
	SIZE(CUfileStatsLevel1_t);
	SIZE(CUfileStatsLevel2_t);
	SIZE(CUfilePerGpuStats_t);
	SIZE(CUfileStatsLevel3_t);
	AT(CUfileError_t, cu_err);
	AT(CUfileDrvProps_t, nvfs.poll_thresh_size);
	AT(CUfileDrvProps_t, nvfs.max_direct_io_size);
	AT(CUfileDrvProps_t, nvfs.dstatusflags);
	AT(CUfileDrvProps_t, nvfs.dcontrolflags);
	AT(CUfileDrvProps_t, fflags);
	AT(CUfileDrvProps_t, max_device_cache_size);
	AT(CUfileDrvProps_t, per_buffer_cache_size);
	AT(CUfileDrvProps_t, max_device_pinned_mem_size);
	AT(CUfileDrvProps_t, max_batch_io_size);
	AT(CUfileDrvProps_t, max_batch_io_timeout_msecs);
	AT(CUfileFSOps_t, fs_type);
	AT(CUfileFSOps_t, getRDMADeviceList);
	AT(CUfileFSOps_t, getRDMADevicePriority);
	AT(CUfileFSOps_t, read);
	AT(CUfileFSOps_t, write);
	AT(CUfileDescr_t, type);
	AT(CUfileDescr_t, handle.fd);
	AT(CUfileDescr_t, fs_ops);
	AT(CUfileIOParams_t, mode);
	AT(CUfileIOParams_t, u.batch.devPtr_base);
	AT(CUfileIOParams_t, u.batch.file_offset);
	AT(CUfileIOParams_t, u.batch.devPtr_offset);
	AT(CUfileIOParams_t, u.batch.size);
	AT(CUfileIOParams_t, fh);
	AT(CUfileIOParams_t, opcode);
	AT(CUfileIOParams_t, cookie);
	AT(CUfileIOEvents_t, cookie);
	AT(CUfileIOEvents_t, status);
	AT(CUfileIOEvents_t, ret);
	AT(CUfileStatsLevel1_t, read_ops);
	AT(CUfileStatsLevel1_t, read_bytes);
	AT(CUfileStatsLevel1_t, write_lat_sum_us);
	AT(CUfileStatsLevel1_t, batch_submit_ops);
	AT(CUfileStatsLevel1_t, batch_total_submit_ops);
	AT(CUfileStatsLevel1_t, batch_read_bytes);
	AT(CUfileStatsLevel1_t, last_batch_write_bytes);
	AT(CUfileStatsLevel2_t, read_size_kb_hist);
	AT(CUfileStatsLevel2_t, write_size_kb_hist);
	AT(CUfilePerGpuStats_t, read_bytes);
	AT(CUfilePerGpuStats_t, n_dr_reads);
	AT(CUfilePerGpuStats_t, writes_bytes);
	AT(CUfilePerGpuStats_t, reg_bytes);
	AT(CUfileStatsLevel3_t, num_gpus);
	AT(CUfileStatsLevel3_t, per_gpu_stats);
	VALUE(CU_FILE_DRIVER_NOT_INITIALIZED);
	VALUE(CU_FILE_IO_NOT_SUPPORTED);
	VALUE(CU_FILE_CUDA_DRIVER_ERROR);
	VALUE(CU_FILE_INVALID_MAPPING_RANGE);
	VALUE(CU_FILE_DIO_NOT_SET);
	VALUE(CU_FILE_INVALID_VALUE);
	VALUE(CU_FILE_HANDLE_ALREADY_REGISTERED);
	VALUE(CU_FILE_GETNEWFD_FAILED);
	VALUE(CU_FILE_NVFS_SETUP_ERROR);
	VALUE(CU_FILE_ASYNC_NOT_SUPPORTED);
	VALUE(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	VALUE(CU_FILE_NOMEM_ERROR);
	VALUE(CU_FILE_BATCH_NOCOMPAT_ERROR);
	VALUE(CU_FILE_IO_MAX_ERROR);
	VALUE(CU_FILE_NVME_SUPPORTED);
	VALUE(CU_FILE_USE_POLL_MODE);
	VALUE(CU_FILE_ALLOW_COMPAT_MODE);
	VALUE(CU_FILE_PARALLEL_IO_SUPPORTED);
	VALUE(CU_FILE_HANDLE_TYPE_OPAQUE_FD);
	VALUE(CU_FILE_HANDLE_TYPE_OPAQUE_WIN32);
	VALUE(CU_FILE_HANDLE_TYPE_USERSPACE_FS);
	VALUE(CUFILE_READ);
	VALUE(CUFILE_WRITE);
	VALUE(CUFILE_WAITING);
	VALUE(CUFILE_PENDING);
	VALUE(CUFILE_INVALID);
	VALUE(CUFILE_CANCELED);
	VALUE(CUFILE_COMPLETE);
	VALUE(CUFILE_TIMEOUT);
	VALUE(CUFILE_FAILED);
	VALUE(CUFILE_BATCH);
	VALUE(CU_FILE_RDMA_REGISTER);
	VALUE(CU_FILE_RDMA_RELAXED_ORDERING);
	VALUE(CU_FILE_STREAM_FIXED_BUF_OFFSET);
	VALUE(CU_FILE_STREAM_FIXED_FILE_OFFSET);
	VALUE(CU_FILE_STREAM_FIXED_FILE_SIZE);
	VALUE(CU_FILE_STREAM_PAGE_ALIGNED_INPUTS);
	VALUE(CUFILE_PARAM_PROFILE_STATS);
	VALUE(CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM);
	VALUE(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS);
	VALUE(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE);
	VALUE(CUFILE_PARAM_STREAM_MEMOPS_BYPASS);
	VALUE(CUFILE_PARAM_LOGGING_LEVEL);
	VALUE(CUFILE_PARAM_LOG_DIR);
	return 0;
}
