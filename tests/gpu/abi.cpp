// SPDX-License-Identifier: MIT
//
// Compares whatever cufile.h it is compiled with, the CUDA toolkit's for instance, with the numbers that ours is held to
// (tests/gpu/README.md). -DCUFILE_ABI=1190: the header is as new as libcufile 1.19.
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
