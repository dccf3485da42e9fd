// SPDX-License-Identifier: MIT
#include "view/codec.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "view/layout.hpp"
#include "view/pack.hpp"

namespace view
{

namespace
{

struct ElementType {
	const char *name;
	unsigned bits;
	Element element;
};
constexpr ElementType element_types[] = {
	{"u32", 32, Element::u32},
	{"i64", 64, Element::i64},
	{"f32", 32, Element::f32},
	{"byte", 8, Element::byte},
};

const ElementType &type_of(Element element)
{
	return *std::ranges::find(element_types, element, &ElementType::element);
}

// Values that are packed at once. They fit into the first-level cache beside the packed bytes.
constexpr size_t chunk_elements = 1024;
static_assert(chunk_elements % group_elements == 0);

template <class Value> Value value_at(std::span<const std::byte> file, uint64_t index)
{
	Value value;
	std::memcpy(&value, file.data() + index * sizeof(value), sizeof(value));
	return value;
}

// The first of `count` values at `from` that needs more than `bits` bits; `count`: there is none.
template <class Value> uint64_t first_misfit(std::span<const std::byte> from, uint64_t count, unsigned bits)
{
	for (uint64_t i = 0; i < count; i++)
		if (static_cast<uint64_t>(value_at<Value>(from, i)) >> bits)
			return i;
	return count;
}

// Packs integers of 32 or 64 bits. Value is unsigned, so a negative one has its highest bit set and does not fit.
template <class Value> uint64_t reduce_integers(unsigned bits, std::span<const std::byte> file, std::byte *to)
{
	const uint64_t count = file.size() / sizeof(Value);
	std::array<uint32_t, chunk_elements> values;
	for (uint64_t done = 0; done < count; done += chunk_elements) {
		const uint64_t here = std::min<uint64_t>(chunk_elements, count - done);
		const std::span<const std::byte> from = file.subspan(done * sizeof(Value), here * sizeof(Value));
		Value all = 0;
		for (uint64_t i = 0; i < here; i++) {
			const auto value = value_at<Value>(from, i);
			all |= value;
			values[i] = static_cast<uint32_t>(value);
		}
		if (static_cast<uint64_t>(all) >> bits)
			// A file that somebody writes to may have another value there by now.
			return done + std::min(first_misfit<Value>(from, here, bits), here - 1);
		pack({values.data(), here}, bits, to + packed_bytes(done, bits));
	}
	return count;
}

template <class Value> void restore_integers(unsigned bits, const std::byte *reduced, uint64_t elements, std::byte *to)
{
	std::array<uint32_t, chunk_elements> values;
	for (uint64_t done = 0; done < elements; done += chunk_elements) {
		const uint64_t here = std::min<uint64_t>(chunk_elements, elements - done);
		unpack(reduced + packed_bytes(done, bits), bits, {values.data(), here});
		for (uint64_t i = 0; i < here; i++) {
			const Value value = values[i];
			std::memcpy(to + (done + i) * sizeof(value), &value, sizeof(value));
		}
	}
}

uint16_t bf16_of(uint32_t bits)
{
	constexpr uint32_t infinity = 0x7f800000, quiet = 0x00400000;
	// Rounding could carry a NaN's payload away, or leave none: it becomes a quiet one instead.
	if ((bits & 0x7fffffff) > infinity)
		return static_cast<uint16_t>((bits | quiet) >> 16);
	const uint32_t odd = bits >> 16 & 1;
	return static_cast<uint16_t>((bits + 0x7fff + odd) >> 16);
}

uint64_t reduce_floats(std::span<const std::byte> file, std::byte *to)
{
	const uint64_t count = file.size() / 4;
	for (uint64_t i = 0; i < count; i++) {
		const uint16_t value = bf16_of(value_at<uint32_t>(file, i));
		std::memcpy(to + i * 2, &value, 2);
	}
	return count;
}

void restore_floats(const std::byte *reduced, uint64_t elements, std::byte *to)
{
	for (uint64_t i = 0; i < elements; i++) {
		uint16_t half;
		std::memcpy(&half, reduced + i * 2, 2);
		const uint32_t value = static_cast<uint32_t>(half) << 16;
		std::memcpy(to + i * 4, &value, 4);
	}
}

} // namespace

bool is_integer(Element element) { return element == Element::u32 || element == Element::i64; }

const char *element_name(Element element) { return type_of(element).name; }

std::optional<Element> element_of(std::string_view name)
{
	const auto *found = std::ranges::find(element_types, name, &ElementType::name);
	return found == std::end(element_types) ? std::nullopt : std::optional(found->element);
}

std::optional<Codec> Codec::parse(std::string_view name)
{
	const size_t colon = name.find(':');
	const std::optional<Element> element = element_of(name.substr(0, colon));
	if (!element || colon == std::string_view::npos)
		return std::nullopt;
	std::string_view to = name.substr(colon + 1);
	Codec codec = unreduced(*element);
	if (to == "bf16")
		codec = {*element, Reduction::bf16, 16};
	else if (to != "none") {
		codec.reduction = Reduction::bits;
		const bool named = to == "u16" || to == "u24" || to == "u32";
		to.remove_prefix(named);
		const auto [end, error] = std::from_chars(to.data(), to.data() + to.size(), codec.bits);
		if (error != std::errc() || end != to.data() + to.size() || to.front() == '0')
			return std::nullopt;
	}
	return codec.valid() ? std::optional(codec) : std::nullopt;
}

Codec Codec::unreduced(Element element) { return {element, Reduction::none, type_of(element).bits}; }

std::string Codec::name() const
{
	const char *const from = element_name(element);
	switch (reduction) {
	case Reduction::none:
		return fmt::format("{}:none", from);
	case Reduction::bf16:
		return fmt::format("{}:bf16", from);
	case Reduction::bits:
		break;
	}
	const bool named = bits == 16 || bits == 24 || bits == 32;
	return fmt::format("{}:{}{}", from, named ? "u" : "", bits);
}

bool Codec::valid() const
{
	if (std::ranges::find(element_types, element, &ElementType::element) == std::end(element_types))
		return false;
	switch (reduction) {
	case Reduction::none:
		return bits == type_of(element).bits;
	case Reduction::bits:
		return is_integer(element) && bits >= 1 && bits <= max_bits && bits < type_of(element).bits;
	case Reduction::bf16:
		return element == Element::f32 && bits == 16;
	}
	return false;
}

size_t Codec::element_bytes() const { return type_of(element).bits / 8; }

uint64_t Codec::reduced_bytes(uint64_t elements) const { return packed_bytes(elements, bits); }

uint64_t reduce(const Codec &codec, std::span<const std::byte> file, std::byte *to)
{
	switch (codec.reduction) {
	case Reduction::none:
		std::memcpy(to, file.data(), file.size());
		return file.size() / codec.element_bytes();
	case Reduction::bits:
		return codec.element == Element::u32 ? reduce_integers<uint32_t>(codec.bits, file, to) :
						       reduce_integers<uint64_t>(codec.bits, file, to);
	case Reduction::bf16:
		return reduce_floats(file, to);
	}
	return 0;
}

void restore(const Codec &codec, const std::byte *reduced, uint64_t elements, std::byte *to)
{
	switch (codec.reduction) {
	case Reduction::none:
		std::memcpy(to, reduced, elements * codec.element_bytes());
		return;
	case Reduction::bits:
		if (codec.element == Element::u32)
			restore_integers<uint32_t>(codec.bits, reduced, elements, to);
		else
			restore_integers<uint64_t>(codec.bits, reduced, elements, to);
		return;
	case Reduction::bf16:
		restore_floats(reduced, elements, to);
		return;
	}
}

unsigned needed_bits(Element element, std::span<const std::byte> file, uint64_t &misfit)
{
	const uint64_t count = file.size() / (type_of(element).bits / 8);
	uint64_t all = 1;
	if (element == Element::u32)
		for (uint64_t i = 0; i < count; i++)
			all |= value_at<uint32_t>(file, i);
	else
		for (uint64_t i = 0; i < count; i++)
			all |= value_at<uint64_t>(file, i);
	if (!(all >> 32))
		return static_cast<unsigned>(std::bit_width(all));
	misfit = first_misfit<uint64_t>(file, count, 32);
	return 0;
}

std::string value_text(Element element, std::span<const std::byte> file, uint64_t index)
{
	switch (element) {
	case Element::u32:
		return fmt::format("{}", value_at<uint32_t>(file, index));
	case Element::i64:
		return fmt::format("{}", value_at<int64_t>(file, index));
	case Element::f32:
		return fmt::format("{}", value_at<float>(file, index));
	case Element::byte:
		break;
	}
	return fmt::format("{}", value_at<uint8_t>(file, index));
}

} // namespace view
