// SPDX-License-Identifier: MIT
// Libraries are found if present, even if they appear after the first attempt.
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "cufile/platform/loader.hpp"

namespace
{

constexpr const char *name = "libpeerdma.so.0";

// A library with all needed symbols, or with some missing.
struct Wanted {
	const char *(*version)() = nullptr;
	void (*other)() = nullptr;
	bool with_other = false;

	auto find()
	{
		return [this](auto get) {
			get(version, "peerdma_version");
			get(other, "what_no_library_has", with_other);
		};
	}
};

TEST(CufileLoader, WhatIsLoadedLater)
{
	cufile::Loader loader(name), unused(name), another(name);
	Wanted wanted, more;
	if (loader.load(wanted.find()))
		GTEST_SKIP() << "it is installed here";
	more.with_other = true;
	EXPECT_FALSE(another.load(more.find()));
	loader.retry_load(wanted.find());
	EXPECT_FALSE(loader.load(wanted.find())) << "nobody has loaded it";
	auto build = std::filesystem::read_symlink("/proc/self/exe").parent_path();
	while (build.has_relative_path() && !exists(build / "lib" / name))
		build = build.parent_path();
	void *const library = dlopen((build / "lib" / name).c_str(), RTLD_NOW | RTLD_LOCAL);
	ASSERT_NE(library, nullptr) << dlerror();
	EXPECT_FALSE(loader.load(wanted.find())) << "not before it is looked for";
	loader.retry_load(wanted.find());
	ASSERT_TRUE(loader.load(wanted.find()));
	EXPECT_NE(wanted.version(), nullptr);
	another.retry_load(more.find());
	EXPECT_FALSE(another.load(more.find())) << "it is not all there";
	Wanted first;
	unused.retry_load(first.find());
	EXPECT_EQ(first.version, nullptr) << "nobody has wanted it yet";
	EXPECT_TRUE(unused.load(first.find()));
	dlclose(library);
	EXPECT_NE(wanted.version(), nullptr) << "it is kept";
}

// A missing library is not searched for again; one that failed to open for lack of descriptors is.
TEST(CufileLoader, TheLinkerSaysWhetherDescriptorsAreShort)
{
	EXPECT_FALSE(cufile::Linker::is_short());
	struct rlimit old = {}, none = {};
	ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
	none.rlim_max = old.rlim_max;
	ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
	const bool is_short = cufile::Linker::is_short();
	ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
	EXPECT_TRUE(is_short);
}

// A dynamic linker that finds nothing at first.
struct Poor {
	static void *open(const char *, int flags)
	{
		asked++;
		return there || (loadable && !(flags & RTLD_NOLOAD)) ? dlopen(nullptr, RTLD_NOW) : nullptr;
	}
	static uint64_t loads() { return loaded; }
	static bool is_short() { return too_few; }
	static inline int asked = 0;
	static inline uint64_t loaded = 5;
	static inline bool there = false, loadable = false, too_few = false;
};

TEST(CufileLoader, NobodyLooksWhereNothingIsNew)
{
	cufile::LoaderVia<Poor> loader("libnone.so.1");
	const auto find = [](auto) {};
	loader.retry_load(find);
	EXPECT_EQ(Poor::asked, 0) << "nobody has wanted it";
	EXPECT_FALSE(loader.load(find));
	for (int i = 0; i < 100; i++)
		loader.retry_load(find);
	EXPECT_EQ(Poor::asked, 1);
	Poor::loaded = 6; // another error
	Poor::loadable = true;
	for (int i = 0; i < 100; i++)
		loader.retry_load(find);
	EXPECT_EQ(Poor::asked, 2);
	EXPECT_FALSE(loader.load(find));
	Poor::there = true;
	Poor::loaded = 7;
	loader.retry_load(find);
	EXPECT_TRUE(loader.load(find));
	EXPECT_EQ(Poor::asked, 3);
}

// A shortage of descriptors must not be remembered as a missing library.
TEST(CufileLoader, AShortageIsNotRemembered)
{
	Poor::asked = 0;
	Poor::there = Poor::loadable = false;
	Poor::too_few = true;
	cufile::LoaderVia<Poor> loader("libnone.so.1");
	const auto find = [](auto) {};
	EXPECT_FALSE(loader.load(find));
	EXPECT_FALSE(loader.load(find));
	EXPECT_EQ(Poor::asked, 1) << "not at each I/O";
	loader.retry_load(find);
	EXPECT_EQ(Poor::asked, 2);
	Poor::too_few = false;
	Poor::loadable = true;
	loader.retry_load(find);
	EXPECT_TRUE(loader.load(find));
	EXPECT_EQ(Poor::asked, 3);
}

TEST(CufileLoader, WhatOnlyOthersLoad)
{
	Poor::asked = 0;
	Poor::there = false;
	Poor::loadable = true;
	Poor::loaded = 8;
	cufile::LoaderVia<Poor> loader("libnone.so.1", true);
	const auto find = [](auto) {};
	EXPECT_FALSE(loader.load(find));
	EXPECT_EQ(Poor::asked, 0) << "it is not looked for";
	for (int i = 0; i < 100; i++)
		loader.retry_load(find);
	EXPECT_EQ(Poor::asked, 1);
	EXPECT_FALSE(loader.load(find)) << "it could have been loaded";
	Poor::there = true;
	loader.retry_load(find);
	EXPECT_FALSE(loader.load(find)) << "nothing is new";
	Poor::loaded = 9;
	loader.retry_load(find);
	EXPECT_TRUE(loader.load(find));
}

TEST(CufileLoader, WhatIsLoadedIsCounted)
{
	const uint64_t before = cufile::Linker::loads();
	EXPECT_GT(before, 0u);
	EXPECT_EQ(cufile::Linker::loads(), before);
	void *const library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
	ASSERT_NE(library, nullptr) << dlerror();
	EXPECT_GT(cufile::Linker::loads(), before);
	dlclose(library);
}

} // namespace
