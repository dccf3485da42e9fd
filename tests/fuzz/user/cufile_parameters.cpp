// SPDX-License-Identifier: MIT
// Arbitrary calls that set and get parameters and open and close the driver, in any order. A get must return the last
// permitted set, and never write beyond the given room.
#include <algorithm>
#include <cstring>

#include "../../host/cufile/fake_dependencies.hpp"
#include "cufile/api/library.hpp"
#include "cufile/config/config.hpp"
#include "input.hpp"

using input::must;

namespace
{

class Calls
{
public:
	Calls(const uint8_t *data, size_t size) : at_(data), end_(data + size) {}
	bool more() const { return at_ < end_; }
	uint8_t byte() { return more() ? *at_++ : 0; }
	// A small number, one beside a power of two, or any.
	uint64_t number()
	{
		const uint8_t how = byte();
		if (how < 128)
			return how % 16;
		if (how < 224)
			return (uint64_t{1} << how % 64) + byte() - 128;
		uint64_t any = 0;
		for (int i = 0; i < 8; i++)
			any = any << 8 | byte();
		return any;
	}
	template <class Enum> Enum name()
	{
		const auto any = static_cast<unsigned>(number());
		Enum named;
		std::memcpy(&named, &any, sizeof(named)); // as a C caller passes it
		return named;
	}
	std::string text()
	{
		std::string all(number() % 300, 'x');
		for (char &c : all)
			c = static_cast<char>(byte() | 1);
		return all;
	}

private:
	const uint8_t *at_, *const end_;
};

class World
{
public:
	explicit World(Calls &calls) : calls_(calls) {}
	~World()
	{
		while (library_.driver.use_count())
			library_.driver.close();
	}

	void step()
	{
		switch (calls_.byte() % 12) {
		case 0:
			return open();
		case 1:
			return close();
		case 2:
		case 3:
			return size();
		case 4:
		case 5:
			return flag();
		case 6:
		case 7:
			return text();
		case 8:
		case 9:
			return slabs();
		case 10:
			return limit();
		default:
			return all_is_as_it_was_set();
		}
	}

private:
	bool is_open() const { return library_.driver.use_count(); }
	static bool good(CUfileError_t error) { return error.err == CU_FILE_SUCCESS; }
	// Checks the result of a call that sets a parameter.
	void said(CUfileError_t error, bool can_be)
	{
		must(error.err == (!can_be   ? CU_FILE_INVALID_VALUE :
				   is_open() ? CU_FILE_DRIVER_ALREADY_OPEN :
					       CU_FILE_SUCCESS),
		     "the right error");
	}

	void open()
	{
		if (is_open())
			return;
		// If fallback is disabled, opening must fail.
		const bool may = bools_[CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE].value_or(true) ||
				 bools_[CUFILE_PARAM_FORCE_COMPAT_MODE].value_or(false);
		must(good(library_.driver.open()) == may, "it opens if it may");
	}
	void close()
	{
		const bool open = is_open();
		must(good(library_.driver.close()) == open, "it closes if it is open");
		if (!open)
			return;
		std::ranges::fill(sizes_, std::nullopt);
		std::ranges::fill(bools_, std::nullopt);
		std::ranges::fill(strings_, std::nullopt);
		std::ranges::fill(slabs_, std::nullopt);
	}

	void size()
	{
		const auto param = calls_.name<CUFileSizeTConfigParameter_t>();
		unsigned index;
		std::memcpy(&index, &param, sizeof(index));
		const uint64_t value = calls_.number();
		const cufile::Range range = cufile::size_range(index);
		const bool can_be = index < cufile::nr_sizes && value >= range.min && value <= range.max;
		const bool open = is_open();
		said(library_.driver.set(param, value), can_be);
		if (can_be && !open)
			sizes_[index] = value;
		size_t got = 4711;
		must(good(library_.driver.get(param, &got)) == (index < cufile::nr_sizes), "a parameter that is one");
		if (index >= cufile::nr_sizes)
			must(got == 4711, "nothing is written of one that is none");
	}

	void flag()
	{
		const auto param = calls_.name<CUFileBoolConfigParameter_t>();
		unsigned index;
		std::memcpy(&index, &param, sizeof(index));
		const bool value = calls_.byte() & 1, open = is_open();
		said(library_.driver.set(param, value), index < cufile::nr_bools);
		if (index < cufile::nr_bools && !open)
			bools_[index] = value;
		bool got = false;
		must(good(library_.driver.get(param, &got)) == (index < cufile::nr_bools), "a parameter that is one");
	}

	void text()
	{
		const auto param = calls_.name<CUFileStringConfigParameter_t>();
		unsigned index;
		std::memcpy(&index, &param, sizeof(index));
		const std::string value = calls_.text();
		const bool open = is_open();
		if (calls_.byte() & 1) {
			said(library_.driver.set(param, value.c_str()), index < cufile::nr_strings);
			if (index < cufile::nr_strings && !open)
				strings_[index] = value;
		}
		// Allocates exactly the announced room.
		const auto length = static_cast<int>(calls_.number() % 400) - 2;
		std::vector<char> room(static_cast<size_t>(std::max(length, 0)));
		room.shrink_to_fit();
		const bool fits = good(library_.driver.get(param, room.empty() ? nullptr : room.data(), length));
		must(!fits || (index < cufile::nr_strings && std::strlen(room.data()) < room.size()), "it has an end");
		if (index < cufile::nr_strings && strings_[index] && !strings_[index]->empty() && !is_open())
			must(fits == (length > static_cast<int>(strings_[index]->size())), "it fits, or is refused");
	}

	void slabs()
	{
		const auto pool = static_cast<cufile::Pool>(calls_.byte() % cufile::nr_pools);
		const auto length = static_cast<int>(calls_.number() % 20) - 2;
		const auto n = static_cast<size_t>(std::max(length, 0));
		std::vector<size_t> sizes(n), counts(n);
		bool can_be = n > 0 && n <= cufile::max_slabs;
		for (size_t i = 0; i < n; i++) {
			sizes[i] = calls_.number();
			counts[i] = calls_.number();
			can_be = can_be && sizes[i] && sizes[i] <= UINT32_MAX && counts[i] <= UINT32_MAX;
		}
		const bool open = is_open();
		said(library_.driver.set_slabs(pool, sizes.data(), counts.data(), length), can_be);
		if (can_be && !open)
			slabs_[pool] = {sizes, counts};
		std::vector<size_t> got_sizes(n), got_counts(n);
		const bool got = good(library_.driver.get_slabs(pool, got_sizes.data(), got_counts.data(), length));
		if (slabs_[pool])
			must(got == (n >= slabs_[pool]->count.size() && n), "as many as there is room for");
	}

	// Parameters with their own calls, which work before and after opening.
	void limit()
	{
		const uint64_t kb = calls_.number();
		const auto set = [&](CUFileSizeTConfigParameter_t param, CUfileError_t error) {
			if (good(error) && !is_open()) // a value set while the driver is open is discarded at its close
				sizes_[param] = kb;
		};
		switch (calls_.byte() % 4) {
		case 0:
			return set(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, library_.driver.set_max_direct(kb));
		case 1:
			return set(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, library_.driver.set_max_cache(kb));
		case 2:
			return set(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB,
				   library_.driver.set_max_pinned(kb));
		default:
			const CUfileError_t error = library_.driver.set_poll_mode(true, kb);
			set(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, error);
			if (good(error) && !is_open())
				bools_[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = true;
			return;
		}
	}

	void all_is_as_it_was_set()
	{
		for (unsigned i = 0; i < cufile::nr_sizes; i++) {
			size_t value = 0;
			const cufile::Range range = cufile::size_range(i);
			must(good(library_.driver.get(static_cast<CUFileSizeTConfigParameter_t>(i), &value)),
			     "each can be had");
			must(value >= range.min && value <= range.max, "each is in its range");
			if (!is_open() && sizes_[i])
				must(value == *sizes_[i], "it is what was set");
		}
		for (unsigned i = 0; i < cufile::nr_bools; i++) {
			bool value = false;
			must(good(library_.driver.get(static_cast<CUFileBoolConfigParameter_t>(i), &value)),
			     "each can be had");
			if (!is_open() && bools_[i])
				must(value == *bools_[i], "it is what was set");
		}
	}

	Calls &calls_;
	FakeSystem system_;
	FakeCuda cuda_;
	FakePeerdma peerdma_;
	cufile::Library library_{{system_, cuda_, peerdma_}};
	// The values set since the driver was closed.
	std::optional<uint64_t> sizes_[cufile::nr_sizes];
	std::optional<bool> bools_[cufile::nr_bools];
	std::optional<std::string> strings_[cufile::nr_strings];
	std::optional<cufile::Slabs> slabs_[cufile::nr_pools];
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Calls calls(data, size);
	World world(calls);
	while (calls.more())
		world.step();
	return 0;
}
