// SPDX-License-Identifier: MIT
// The numbers that programs were compiled with. Those of structs and enums are checked by the compiler.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cufile.h"

#define AT(type, member, offset) static_assert(offsetof(type, member) == (offset), #type "." #member)
#define IS(name, value) static_assert((name) == (value), #name)

static_assert(sizeof(CUfileOpError) == 4 && sizeof(CUresult) == 4 && sizeof(CUfileError_t) == 8);
AT(CUfileError_t, err, 0);
AT(CUfileError_t, cu_err, 4);

static_assert(sizeof(CUfileDrvProps_t) == 56);
AT(CUfileDrvProps_t, nvfs.poll_thresh_size, 8);
AT(CUfileDrvProps_t, nvfs.max_direct_io_size, 16);
AT(CUfileDrvProps_t, nvfs.dstatusflags, 24);
AT(CUfileDrvProps_t, nvfs.dcontrolflags, 28);
AT(CUfileDrvProps_t, fflags, 32);
AT(CUfileDrvProps_t, max_device_cache_size, 36);
AT(CUfileDrvProps_t, per_buffer_cache_size, 40);
AT(CUfileDrvProps_t, max_device_pinned_mem_size, 44);
AT(CUfileDrvProps_t, max_batch_io_size, 48);
AT(CUfileDrvProps_t, max_batch_io_timeout_msecs, 52);

static_assert(sizeof(cufileRDMAInfo_t) == 16 && sizeof(CUfileFSOps_t) == 40 && sizeof(CUfileDescr_t) == 24);
AT(CUfileFSOps_t, read, 24);
AT(CUfileFSOps_t, write, 32);
AT(CUfileDescr_t, handle, 8);
AT(CUfileDescr_t, fs_ops, 16);

static_assert(sizeof(CUfileIOParams_t) == 64 && sizeof(CUfileIOEvents_t) == 24 && sizeof(CUfileIOVec_t) == 16);
AT(CUfileIOParams_t, u, 8);
AT(CUfileIOParams_t, u.batch.devPtr_base, 8);
AT(CUfileIOParams_t, u.batch.file_offset, 16);
AT(CUfileIOParams_t, u.batch.devPtr_offset, 24);
AT(CUfileIOParams_t, u.batch.size, 32);
AT(CUfileIOParams_t, fh, 40);
AT(CUfileIOParams_t, opcode, 48);
AT(CUfileIOParams_t, cookie, 56);
AT(CUfileIOEvents_t, status, 8);
AT(CUfileIOEvents_t, ret, 16);

static_assert(sizeof(CUfileStatsLevel1_t) == 512 && sizeof(CUfileStatsLevel2_t) == 1024);
static_assert(sizeof(CUfilePerGpuStats_t) == 248 && sizeof(CUfileStatsLevel3_t) == 5000);
AT(CUfileStatsLevel1_t, read_bytes, 96);
AT(CUfileStatsLevel1_t, batch_submit_ops, 176);
AT(CUfileStatsLevel1_t, batch_read_bytes, 416);
AT(CUfileStatsLevel2_t, read_size_kb_hist, 512);
AT(CUfileStatsLevel3_t, num_gpus, 1024);
AT(CUfileStatsLevel3_t, per_gpu_stats, 1032);

IS(CUFILEOP_BASE_ERR, 5000);
IS(CU_FILE_DRIVER_NOT_INITIALIZED, 5001);
IS(CU_FILE_DRIVER_UNSUPPORTED_LIMIT, 5003);
IS(CU_FILE_IO_NOT_SUPPORTED, 5008);
IS(CU_FILE_CUDA_DRIVER_ERROR, 5011);
IS(CU_FILE_INVALID_MAPPING_SIZE, 5016);
IS(CU_FILE_INVALID_MAPPING_RANGE, 5017);
IS(CU_FILE_INVALID_FILE_TYPE, 5018);
IS(CU_FILE_INVALID_FILE_OPEN_FLAG, 5019);
IS(CU_FILE_DIO_NOT_SET, 5020);
IS(CU_FILE_INVALID_VALUE, 5022);
IS(CU_FILE_MEMORY_ALREADY_REGISTERED, 5023);
IS(CU_FILE_MEMORY_NOT_REGISTERED, 5024);
IS(CU_FILE_DRIVER_ALREADY_OPEN, 5026);
IS(CU_FILE_HANDLE_NOT_REGISTERED, 5027);
IS(CU_FILE_HANDLE_ALREADY_REGISTERED, 5028);
IS(CU_FILE_GETNEWFD_FAILED, 5031);
IS(CU_FILE_NVFS_SETUP_ERROR, 5033);
IS(CU_FILE_BATCH_FULL, 5037);
IS(CU_FILE_ASYNC_NOT_SUPPORTED, 5038);
IS(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR, 5040);
IS(CU_FILE_NOMEM_ERROR, 5043);
IS(CU_FILE_BATCH_NOCOMPAT_ERROR, 5049);
IS(CU_FILE_IO_MAX_ERROR, 5050);

IS(CU_FILE_NVME_SUPPORTED, 4);
IS(CU_FILE_BEEGFS_SUPPORTED, 9);
IS(CU_FILE_NVME_P2P_SUPPORTED, 11);
IS(CU_FILE_VIRTIOFS_SUPPORTED, 13);
IS(CU_FILE_MAX_TARGET_TYPES, 14);
IS(CU_FILE_ALLOW_COMPAT_MODE, 1);
IS(CU_FILE_FALLBACK_IO_MODE, 4);
IS(CU_FILE_P2P_SUPPORTED, 4);
IS(CUFILE_NVIDIA_PEERMEM, 4);
IS(CU_FILE_HANDLE_TYPE_OPAQUE_FD, 1);
IS(CU_FILE_HANDLE_TYPE_USERSPACE_FS, 3);
IS(CUFILE_READ, 0);
IS(CUFILE_WRITE, 1);
IS(CUFILE_WAITING, 1);
IS(CUFILE_PENDING, 2);
IS(CUFILE_INVALID, 4);
IS(CUFILE_CANCELED, 8);
IS(CUFILE_COMPLETE, 16);
IS(CUFILE_TIMEOUT, 32);
IS(CUFILE_FAILED, 64);
IS(CUFILE_BATCH, 1);
IS(CU_FILE_RDMA_REGISTER, 1);
IS(CU_FILE_RDMA_RELAXED_ORDERING, 2);
IS(CU_FILE_STREAM_FIXED_BUF_OFFSET, 1);
IS(CU_FILE_STREAM_FIXED_FILE_OFFSET, 2);
IS(CU_FILE_STREAM_FIXED_FILE_SIZE, 4);
IS(CU_FILE_STREAM_PAGE_ALIGNED_INPUTS, 8);
IS(CUFILE_PARAM_PROFILE_STATS, 0);
IS(CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB, 3);
IS(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, 8);
IS(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS, 11);
IS(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, 0);
IS(CUFILE_PARAM_EXECUTION_PARALLEL_IO, 4);
IS(CUFILE_PARAM_FORCE_ODIRECT_MODE, 9);
IS(CUFILE_PARAM_STREAM_MEMOPS_BYPASS, 11);
IS(CUFILE_PARAM_LOGGING_LEVEL, 0);
IS(CUFILE_PARAM_LOG_DIR, 2);
IS(CUFILE_PARAM_POSIX_POOL_SLAB_COUNT, 1);
IS(CUFILE_PARAM_GPU_BOUNCE_BUFFER_SLAB_COUNT, 3);

TEST(CufileHeader, EveryErrorHasWordsOfItsOwn)
{
	std::set<std::string> words;
	for (int error = 5001; error <= 5050; error++) {
		const std::string text = CUFILE_ERRSTR(error);
		if (error == 5021 || error == 5032) {
			EXPECT_EQ(text, "unknown cuFile error") << error;
			continue;
		}
		EXPECT_NE(text, "unknown cuFile error") << error;
		EXPECT_TRUE(words.insert(text).second) << error << " says the same as another: " << text;
	}
	EXPECT_STREQ(CUFILE_ERRSTR(0), "success");
	EXPECT_STREQ(CUFILE_ERRSTR(-5022), CUFILE_ERRSTR(5022)) << "as it comes back from calls that return a count";
}

TEST(CufileHeader, TheMacrosTellTheLibrarysErrorsFromTheSystems)
{
	EXPECT_TRUE(IS_CUFILE_ERR(5022));
	EXPECT_TRUE(IS_CUFILE_ERR(-5022));
	EXPECT_FALSE(IS_CUFILE_ERR(5000));
	EXPECT_FALSE(IS_CUFILE_ERR(-5));
	const CUfileError_t cuda = {CU_FILE_CUDA_DRIVER_ERROR, CUDA_ERROR_INVALID_VALUE};
	EXPECT_TRUE(IS_CUDA_ERR(cuda));
	EXPECT_EQ(CU_FILE_CUDA_ERR(cuda), CUDA_ERROR_INVALID_VALUE);
}
