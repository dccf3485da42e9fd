// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace peerdma_impl
{

// The address of a PCI function, as the kernel writes it: domain:bus:device.function.
struct PciAddress {
	uint32_t domain = 0;
	uint32_t bdf = 0; // bus << 8 | device << 3 | function

	std::string str() const
	{
		char text[32];
		std::snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", domain, (bdf >> 8) & 0xff, (bdf >> 3) & 0x1f,
			      bdf & 7);
		return text;
	}

	bool operator==(const PciAddress &) const = default;

	// Also accepts "01:00.0", as lspci prints it. Otherwise strict: the result is written to sysfs.
	static std::optional<PciAddress> parse(std::string_view text)
	{
		auto hex = [](std::string_view digits, size_t max, uint32_t limit) -> std::optional<uint32_t> {
			if (digits.empty() || digits.size() > max)
				return std::nullopt;
			uint32_t value = 0;
			for (char c : digits) {
				uint32_t digit;
				if (c >= '0' && c <= '9')
					digit = static_cast<uint32_t>(c - '0');
				else if (c >= 'a' && c <= 'f')
					digit = static_cast<uint32_t>(c - 'a') + 10;
				else if (c >= 'A' && c <= 'F')
					digit = static_cast<uint32_t>(c - 'A') + 10;
				else
					return std::nullopt;
				value = value << 4 | digit;
			}
			if (value > limit)
				return std::nullopt;
			return value;
		};
		PciAddress address;
		size_t last = text.rfind(':');
		if (last == std::string_view::npos)
			return std::nullopt;
		std::string_view slot = text.substr(last + 1), bus = text.substr(0, last);
		if (size_t colon = bus.find(':'); colon != std::string_view::npos) {
			auto domain = hex(bus.substr(0, colon), 8, 0xffffffff);
			if (!domain)
				return std::nullopt;
			address.domain = *domain;
			bus = bus.substr(colon + 1);
		}
		size_t dot = slot.find('.');
		if (dot == std::string_view::npos)
			return std::nullopt;
		auto b = hex(bus, 2, 0xff), d = hex(slot.substr(0, dot), 2, 0x1f), f = hex(slot.substr(dot + 1), 1, 7);
		if (!b || !d || !f)
			return std::nullopt;
		address.bdf = *b << 8 | *d << 3 | *f;
		return address;
	}
};

} // namespace peerdma_impl
