// SPDX-License-Identifier: MIT
// Numeric values that programs were compiled with. The compiler checks those of structs and enums: tests/gpu/abi.hpp.
#include <set>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include "cufile.h"

#define CUFILE_ABI 1190 // the newest version whose declarations we have
#define SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "sizeof " #type);
#define AT(type, member, offset) static_assert(offsetof(type, member) == (offset), #type "." #member);
#define IS(name, value) static_assert((name) == (value), #name);
#include "../../../gpu/abi.hpp"

static_assert(sizeof(CUresult) == 4 && sizeof(CUstream) == 8);

// Signatures of the calls, grouped by type.
template <class... Args> using Call = CUfileError_t (*)(Args...);
template <class Wanted, class... Calls> constexpr bool are(Calls...) { return (std::is_same_v<Wanted, Calls> && ...); }

static_assert(are<Call<>>(cuFileDriverOpen, cuFileDriverClose, cuFileDriverClose_v2, cuFileStatsStart, cuFileStatsStop,
			  cuFileStatsReset));
static_assert(are<long (*)()>(cuFileUseCount));
static_assert(are<Call<CUfileDrvProps_t *>>(cuFileDriverGetProperties));
static_assert(are<Call<bool, size_t>>(cuFileDriverSetPollMode));
static_assert(are<Call<size_t>>(cuFileDriverSetMaxDirectIOSize, cuFileDriverSetMaxCacheSize,
				cuFileDriverSetMaxPinnedMemSize));
static_assert(are<Call<int *>>(cuFileGetVersion, cuFileGetStatsLevel));
static_assert(are<Call<int>>(cuFileSetStatsLevel));
static_assert(are<Call<int, size_t *>>(cuFileGetBARSizeInKB));
static_assert(are<Call<CUfileDriverStatusFlags_t, CUfileP2PFlags_t>>(cuFileDriverSetP2PFlags));
static_assert(are<Call<CUfileDriverStatusFlags_t, CUfileP2PFlags_t *>>(cuFileDriverGetP2PFlags));
static_assert(are<Call<const char *>>(cuFileExportPCIeTopology));
static_assert(are<Call<CUfileHandle_t *, CUfileDescr_t *>>(cuFileHandleRegister));
static_assert(are<void (*)(CUfileHandle_t)>(cuFileHandleDeregister));
static_assert(are<Call<const void *, size_t, int>>(cuFileBufRegister));
static_assert(are<Call<const void *>>(cuFileBufDeregister));
static_assert(are<ssize_t (*)(CUfileHandle_t, void *, size_t, off_t, off_t)>(cuFileRead));
static_assert(are<ssize_t (*)(CUfileHandle_t, const void *, size_t, off_t, off_t)>(cuFileWrite));
static_assert(are<ssize_t (*)(CUfileHandle_t, const CUfileIOVec_t *, size_t, off_t, unsigned)>(cuFileReadv,
											       cuFileWritev));
static_assert(are<Call<CUfileBatchHandle_t *, unsigned>>(cuFileBatchIOSetUp));
static_assert(are<Call<CUfileBatchHandle_t, unsigned, CUfileIOParams_t *, unsigned>>(cuFileBatchIOSubmit));
static_assert(are<Call<CUfileBatchHandle_t, unsigned, unsigned *, CUfileIOEvents_t *, struct timespec *>>(
	cuFileBatchIOGetStatus));
static_assert(are<Call<CUfileBatchHandle_t>>(cuFileBatchIOCancel));
static_assert(are<void (*)(CUfileBatchHandle_t)>(cuFileBatchIODestroy));
static_assert(are<Call<CUfileHandle_t, void *, size_t *, off_t *, off_t *, ssize_t *, CUstream>>(cuFileReadAsync,
												 cuFileWriteAsync));
static_assert(are<Call<CUstream, unsigned>>(cuFileStreamRegister) && are<Call<CUstream>>(cuFileStreamDeregister));
static_assert(are<Call<CUFileSizeTConfigParameter_t, size_t>>(cuFileSetParameterSizeT) &&
	      are<Call<CUFileSizeTConfigParameter_t, size_t *>>(cuFileGetParameterSizeT) &&
	      are<Call<CUFileSizeTConfigParameter_t, size_t *, size_t *>>(cuFileGetParameterMinMaxValue));
static_assert(are<Call<CUFileBoolConfigParameter_t, bool>>(cuFileSetParameterBool) &&
	      are<Call<CUFileBoolConfigParameter_t, bool *>>(cuFileGetParameterBool));
static_assert(are<Call<CUFileStringConfigParameter_t, const char *>>(cuFileSetParameterString) &&
	      are<Call<CUFileStringConfigParameter_t, char *, int>>(cuFileGetParameterString));
static_assert(are<Call<const size_t *, const size_t *, int>>(cuFileSetParameterPosixPoolSlabArray,
							     cuFileSetParameterGpuBounceBufferSlabArray));
static_assert(are<Call<size_t *, size_t *, int>>(cuFileGetParameterPosixPoolSlabArray,
						 cuFileGetParameterGpuBounceBufferSlabArray));
static_assert(are<Call<CUfileStatsLevel1_t *>>(cuFileGetStatsL1) &&
	      are<Call<CUfileStatsLevel2_t *>>(cuFileGetStatsL2) && are<Call<CUfileStatsLevel3_t *>>(cuFileGetStatsL3));

TEST(CufileHeader, EveryErrorHasWordsOfItsOwn)
{
	std::set<std::string> words;
	for (int error = 5001; error <= 5050; error++) {
		const std::string text = CUFILE_ERRSTR(error);
		if (error == 5021 || error == 5032) {
			EXPECT_EQ(text, "unknown cufile error") << error;
			continue;
		}
		EXPECT_NE(text, "unknown cufile error") << error;
		EXPECT_TRUE(words.insert(text).second) << error << " says the same as another: " << text;
	}
	EXPECT_STREQ(CUFILE_ERRSTR(0), "cufile success");
	// The messages that NVIDIA's sample cufile_sample_008 compares.
	EXPECT_STREQ(CUFILE_ERRSTR(5007), "GPUDirect Storage not supported on current platform");
	EXPECT_STREQ(CUFILE_ERRSTR(5011), "CUDA Driver API error");
	EXPECT_STREQ(CUFILE_ERRSTR(5018), "unsupported file type");
	EXPECT_STREQ(CUFILE_ERRSTR(5022), "invalid arguments");
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
