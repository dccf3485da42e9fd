// SPDX-License-Identifier: MIT
// A rules file. An accepted file must be accepted again with the same result, and each rule must decide about the names
// that it contains.
#include "common/rules.hpp"
#include "input.hpp"

using input::must;
using peerdma_impl::Rule;
using peerdma_impl::RuleQuery;
using peerdma_impl::Rules;

namespace
{

bool same(const Rule &a, const Rule &b)
{
	return a.verb == b.verb && a.text == b.text && a.provider_address == b.provider_address &&
	       a.provider_kind == b.provider_kind && a.disk_address == b.disk_address && a.disk_name == b.disk_name &&
	       a.file == b.file && a.cgroup == b.cgroup;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const std::string text(reinterpret_cast<const char *>(data), size);
	Rules rules;
	if (const auto fault = rules.parse(text)) {
		must(rules.empty(), "a fault leaves what was there");
		must(fault->line >= 1 && fault->column >= 1 && !fault->what.empty(), "a fault has a place");
		must(fault->column <= text.size() + 1, "and that is in the text");
		return 0;
	}
	for (const Rule &rule : rules.all()) {
		Rules again;
		must(!again.parse(rule.text), "a rule that is printed is read again");
		must(again.all().size() == 1 && same(again.all()[0], rule), "and says the same");
		RuleQuery question = {
			{rule.provider_address.value_or(peerdma_impl::PciAddress{}), rule.provider_kind},
			rule.cgroup,
			rule.file,
			std::vector<peerdma_impl::DiskName>{
				{rule.disk_name, rule.disk_address.value_or(peerdma_impl::PciAddress{})}}};
		must(rule.fits(question), "a rule fits what it says");
		must(rules.decide(question), "and then something decides");
	}
	return 0;
}
