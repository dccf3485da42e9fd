// SPDX-License-Identifier: MIT
//
// Compares the cufile.h that it is compiled with, such as the CUDA toolkit's, with the numbers that ours must match
// (tests/gpu/README.md). -DCUFILE_ABI=1190: the header belongs to libcufile 1.19.
#include <cstddef>
#include <cstdio>

#include <cufile.h>

namespace
{

int all, others;

void compare(const char *what, long long is, long long wanted)
{
	all++;
	if (is == wanted)
		return;
	others++;
	std::printf("%s is %lld, not %lld\n", what, is, wanted);
}

} // namespace

#define SIZE(type, bytes) compare("sizeof " #type, sizeof(type), bytes);
#define AT(type, member, offset) compare("offsetof " #type "." #member, offsetof(type, member), offset);
#define IS(name, value) compare(#name, name, value);

int main()
{
#include "abi.hpp"
	std::printf("%d numbers, %d of them others\n", all, others);
	return others != 0;
}
