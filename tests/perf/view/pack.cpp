// SPDX-License-Identifier: MIT
// Packing and unpacking on one core, and memcpy() of as many elements beside it. Bytes are those of the elements that are not packed.
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>

#include "view/pack.hpp"

namespace
{

constexpr size_t count = 16 << 20; // 64 MiB: more than the caches

struct Memory {
	std::vector<uint32_t> values = std::vector<uint32_t>(count, 1);
	std::vector<std::byte> packed = std::vector<std::byte>(count * sizeof(uint32_t));
};

template <class Body> void measure(benchmark::State &state, Body &&body)
{
	static Memory memory;
	for (auto _ : state) {
		body(memory);
		benchmark::ClobberMemory();
	}
	state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * count * sizeof(uint32_t)));
}

void copied(benchmark::State &state)
{
	measure(state, [](Memory &memory) {
		std::memcpy(memory.packed.data(), memory.values.data(), count * sizeof(uint32_t));
	});
}

void packed(benchmark::State &state)
{
	measure(state, [&](Memory &memory) {
		view::pack(memory.values, static_cast<unsigned>(state.range(0)), memory.packed.data());
	});
}

void unpacked(benchmark::State &state)
{
	measure(state, [&](Memory &memory) {
		view::unpack(memory.packed.data(), static_cast<unsigned>(state.range(0)), memory.values);
	});
}

void packed_portable(benchmark::State &state)
{
	measure(state, [&](Memory &memory) {
		view::pack_portable(memory.values, static_cast<unsigned>(state.range(0)), memory.packed.data());
	});
}

void unpacked_portable(benchmark::State &state)
{
	measure(state, [&](Memory &memory) {
		view::unpack_portable(memory.packed.data(), static_cast<unsigned>(state.range(0)), memory.values);
	});
}

void widths(benchmark::internal::Benchmark *of)
{
	for (const int bits : {8, 16, 17, 18, 24, 28})
		of->Arg(bits);
}

BENCHMARK(copied);
BENCHMARK(packed)->Apply(widths);
BENCHMARK(unpacked)->Apply(widths);
BENCHMARK(packed_portable)->Apply(widths);
BENCHMARK(unpacked_portable)->Apply(widths);

} // namespace

BENCHMARK_MAIN();
