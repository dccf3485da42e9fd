// SPDX-License-Identifier: MIT
// What peerdma witness makes of any events of a trace, in any order.
#include <fuzzer/FuzzedDataProvider.h>

#include "input.hpp"
#include "tools/trace/transfer_audit.hpp"

using input::must;

namespace
{

// Few different values, so that requests, commands and threads meet.
cli::TracedRequest request_of(FuzzedDataProvider &in)
{
	const uint8_t bits = in.ConsumeIntegral<uint8_t>();
	return {{(bits & 1) != 0, {bits >> 1 & 1, 5}, bits >> 2 & 1u, bits >> 3 & 1u},
		bits >> 4 & 3,
		(bits & 64) != 0,
		in.ConsumeIntegralInRange<uint64_t>(0, 3)};
}

cli::TracedResult result_of(FuzzedDataProvider &in)
{
	return {in.ConsumeIntegral<uint16_t>(),
		in.ConsumeIntegral<uint16_t>(),
		in.ConsumeIntegral<uint16_t>(),
		in.ConsumeIntegral<uint8_t>(),
		in.ConsumeIntegralInRange<uint64_t>(0, 2),
		in.ConsumeIntegralInRange<int>(-12, 0)};
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FuzzedDataProvider in(data, size);
	cli::TransferAudit audit({1, 2, 3});
	bool lost = false;
	while (in.remaining_bytes()) {
		const int tid = in.ConsumeIntegralInRange<int>(0, 4);
		switch (in.ConsumeIntegralInRange<int>(0, 4)) {
		case 0:
			audit.on_fork(tid, in.ConsumeIntegralInRange<int>(0, 7));
			break;
		case 1:
			audit.on_submit(tid, request_of(in));
			break;
		case 2:
			audit.on_issue(tid, {{in.ConsumeIntegralInRange<uint32_t>(0, 1), 5},
					     in.ConsumeBool(),
					     in.ConsumeIntegral<uint16_t>(),
					     in.ConsumeIntegralInRange<unsigned>(511, 514)});
			break;
		case 3: {
			const cli::TracedRequest request = request_of(in);
			audit.on_complete(tid, request, result_of(in));
			break;
		}
		default:
			audit.on_lost(1);
			lost = true;
		}
	}
	const auto report = audit.report([](const std::string &dev) { return dev; });
	must((report.status == cli::exit_ok) == audit.proved(), "what is proved is reported as such");
	must(!lost || !audit.proved(), "nothing is proved by a trace with gaps");
	for (const auto &[key, bytes] : audit.unmoved()) {
		const cli::TransferRecord &file = audit.files().at(key);
		must(bytes && bytes <= file.direct + file.near, "no more is missing than was claimed");
	}
	report.json.dump();
	return 0;
}
