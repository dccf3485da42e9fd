// SPDX-License-Identifier: MIT
//
// The form in which a read delivers elements.
#pragma once

#include <cstdint>
#include <optional>

#include "peerdma.h"
#include "view/codec.hpp"
#include "view/layout.hpp"

namespace peerdma_impl
{

struct Form {
	// As they are read from the storage, or as this host has reduced them. Otherwise they are widened to `width` bytes
	// each, their values shifted left by `left` bits.
	bool as_is = false;
	unsigned bits = 0;  // of a reduced element
	unsigned width = 0; // bytes of a delivered element; of PEERDMA_VIEW_AS_PACKED, 1
	unsigned left = 0;

	// Of so many delivered elements.
	uint64_t bytes(uint64_t elements) const
	{
		return as_is ? view::packed_bytes(elements, bits) : elements * width;
	}

	// What view::restore() widens to.
	view::Codec codec() const
	{
		return left ? view::Codec{view::Element::f32, view::Reduction::bf16, bits} :
			      view::Codec{width == 8 ? view::Element::i64 : view::Element::u32, view::Reduction::bits,
					  bits};
	}
};

// nullopt: elements of this codec cannot be delivered so, or not exactly.
inline std::optional<Form> form_of(const view::Codec &codec, uint32_t as)
{
	const unsigned bits = codec.bits;
	const bool integer = view::is_integer(codec.element), is_float = codec.element == view::Element::f32;
	const auto widened_to = [&](unsigned width, unsigned left = 0) {
		return Form{bits == width * 8, bits, width, left};
	};
	switch (as) {
	case PEERDMA_VIEW_AS_FILE:
		if (codec.reduction == view::Reduction::none)
			return Form{true, bits, bits / 8, 0};
		return is_float ? widened_to(4, 16) : widened_to(codec.element == view::Element::i64 ? 8 : 4);
	case PEERDMA_VIEW_AS_PACKED:
		return Form{true, bits, 1, 0};
	case PEERDMA_VIEW_AS_U32:
		return integer && bits <= 32 ? std::optional(widened_to(4)) : std::nullopt;
	case PEERDMA_VIEW_AS_I32:
		return integer && bits <= 31 ? std::optional(widened_to(4)) : std::nullopt;
	case PEERDMA_VIEW_AS_I64:
		return integer ? std::optional(widened_to(8)) : std::nullopt;
	case PEERDMA_VIEW_AS_F32:
		return is_float ? std::optional(widened_to(4, bits == 16 ? 16 : 0)) : std::nullopt;
	default:
		return std::nullopt;
	}
}

} // namespace peerdma_impl
