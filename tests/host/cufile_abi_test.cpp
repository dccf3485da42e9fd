// SPDX-License-Identifier: MIT
// The numbers that programs were compiled with. Those of structs and enums are checked by the compiler: tests/gpu/abi.hpp.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "cufile.h"

#define CUFILE_ABI 1190 // the newest that it has something of
#define SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "sizeof " #type);
#define AT(type, member, offset) static_assert(offsetof(type, member) == (offset), #type "." #member);
#define IS(name, value) static_assert((name) == (value), #name);
#include "../gpu/abi.hpp"

static_assert(sizeof(CUresult) == 4 && sizeof(CUstream) == 8);

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
