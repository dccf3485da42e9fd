// SPDX-License-Identifier: MIT
#include "peerdma.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *peerdma_version(void)
{
	return TEXT(PEERDMA_VERSION_MAJOR) "." TEXT(PEERDMA_VERSION_MINOR) "." TEXT(PEERDMA_VERSION_PATCH);
}
