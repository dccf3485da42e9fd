// SPDX-License-Identifier: MIT
//
// How the elements of a file are reduced in a view, and restored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace view
{

// What a file consists of, little endian. The values stand in a view's header.
enum class Element : uint8_t { u32 = 1, i64 = 2, f32 = 3, byte = 4 };

// The values stand in a view's header.
//   none  the file's bytes
//   bits  integers of k bits each (layout.hpp): exact. A value that needs more does not fit.
//   bf16  the upper half of a float, rounded to the nearest, of two to the even one. A NaN stays a NaN.
enum class Reduction : uint8_t { none = 0, bits = 1, bf16 = 2 };

struct Codec {
	Element element = Element::byte;
	Reduction reduction = Reduction::none;
	unsigned bits = 8; // of a reduced element: 1 to 32 with `bits`, 16 with bf16, else those of the element

	// The codecs of a file of these elements: "u32:none", "u32:u16", "u32:u24", "u32:17", "i64:u32", "f32:bf16", "byte:none".
	// The name of a codec is unique: "u32:16" is printed as "u32:u16". nullopt: there is no such codec.
	static std::optional<Codec> parse(std::string_view name);
	static Codec unreduced(Element element);
	std::string name() const;
	bool valid() const; // false for combinations that no name has

	size_t element_bytes() const;                    // of the file
	uint64_t reduced_bytes(uint64_t elements) const; // of the view
	bool operator==(const Codec &) const = default;
};

bool is_integer(Element element);

// The name of an element type; and the opposite.
const char *element_name(Element element);
std::optional<Element> element_of(std::string_view name);

// Reduces whole elements into reduced_bytes() bytes of `to`. Returns how many it has reduced: all, or the index of the first that
// does not fit, and then `to` holds unspecified bytes. Ranges that begin with a group (layout.hpp) are reduced by themselves.
uint64_t reduce(const Codec &codec, std::span<const std::byte> file, std::byte *to);

// The opposite: writes elements * element_bytes() bytes of `to`. What a Reduction::bf16 has lost stays lost.
void restore(const Codec &codec, const std::byte *reduced, uint64_t elements, std::byte *to);

// The fewest bits that hold each of these integers. 0: one is negative, or needs more than 32; `misfit` is its index.
unsigned needed_bits(Element element, std::span<const std::byte> file, uint64_t &misfit);

// The value of an element, for messages: "-5", "nan".
std::string value_text(Element element, std::span<const std::byte> file, uint64_t index);

} // namespace view
