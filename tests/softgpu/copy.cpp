// SPDX-License-Identifier: MIT
//
// Copies, fills, and our kernels.
#include <chrono>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>

#include "kernels.hpp"
#include "stream.hpp"

using namespace softgpu;

namespace
{

// Reading back makes the CPU's stores to device memory visible to other devices.
void read_back(const Span &span)
{
	if (span.size)
		static_cast<void>(*const_cast<volatile char *>(span.bytes + span.size - 1));
}

} // namespace

void softgpu::copy(Spans to, Spans from)
{
	for (size_t t = 0, f = 0; t < to.size() && f < from.size();) {
		const size_t part = std::min(to[t].size, from[f].size);
		std::memmove(to[t].bytes, from[f].bytes, part);
		read_back({to[t].bytes, part});
		for (Span *const span : {&to[t], &from[f]}) {
			span->bytes += part;
			span->size -= part;
		}
		t += !to[t].size;
		f += !from[f].size;
	}
}

namespace
{

void fill(const Spans &to, unsigned char byte)
{
	for (const Span &span : to) {
		std::memset(span.bytes, byte, span.size);
		read_back(span);
	}
}

enum class Side { device, host, any };

struct End {
	CUdeviceptr address;
	Side side;
};

Spans spans_of(const End &end, size_t size)
{
	if (end.side == Side::host)
		return {{reinterpret_cast<char *>(end.address), size}};
	return spans_at(end.address, size, end.side == Side::any);
}

CUcontext owner_of_either(const End &to, const End &from)
{
	return to.side == Side::device   ? owner_of(to.address) :
	       from.side == Side::device ? owner_of(from.address) :
					   nullptr;
}

// Copies in the current context's default stream. A copy between device memory is not waited for unless the memory has
// SYNC_MEMOPS.
CUresult copy_now(const char *name, const End &to, const End &from, size_t size)
{
	return call(name, [&] {
		const Spans into = spans_of(to, size), out_of = spans_of(from, size);
		if (into.empty() || out_of.empty())
			return CUDA_ERROR_INVALID_VALUE;
		const std::shared_lock guard(driver_lock());
		return with_stream(nullptr, [&](Stream &stream) {
			add(stream, [into, out_of] { copy(into, out_of); });
			if (is_left_behind(to.address) && is_left_behind(from.address))
				return CUDA_SUCCESS;
			return stream.wait() ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
		});
	});
}

CUresult copy_later(const char *name, const End &to, const End &from, size_t size, CUstream handle)
{
	return call(name, [&] {
		return with_stream(handle, [&](Stream &stream) {
			check_context(handle, stream, owner_of_either(to, from));
			const Spans into = spans_of(to, size), out_of = spans_of(from, size);
			if (into.empty() || out_of.empty())
				return CUDA_ERROR_INVALID_VALUE;
			const std::shared_lock guard(driver_lock());
			add(stream, [into, out_of] { copy(into, out_of); });
			return CUDA_SUCCESS;
		});
	});
}

CUdeviceptr number(const void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }
End device(CUdeviceptr address) { return {address, Side::device}; }
End host(const void *address) { return {number(address), Side::host}; }
End any(CUdeviceptr address) { return {address, Side::any}; }

// which[k] is the first copy that attributes k apply to.
bool are_good(const CUmemcpyAttributes *attributes, const size_t *which, size_t nr_attributes, size_t n)
{
	if (!attributes || !which || !nr_attributes || nr_attributes > n || which[0])
		return false;
	for (size_t i = 0; i < nr_attributes; i++) {
		const int order = attributes[i].srcAccessOrder;
		if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
		    which[i] >= n || (i && which[i] <= which[i - 1]))
			return false;
	}
	return true;
}

// A condition of CUstreamWaitValue_flags.
template <class Value> bool is_reached(Value now, Value value, unsigned flags)
{
	switch (flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ:
		return static_cast<std::make_signed_t<Value>>(now - value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return now & value;
	default:
		return ~(now | value);
	}
}

// Acts on a value in memory in stream order, without the thread of host functions.
template <class Value, class Act> CUresult with_value(const char *name, CUstream handle, CUdeviceptr address, Act act)
{
	return call(name, [&] {
		const Spans at = spans_at(address, sizeof(Value), true);
		if (at.empty() || at[0].size != sizeof(Value) || address % sizeof(Value))
			return CUDA_ERROR_INVALID_VALUE;
		return with_stream(handle, [&](Stream &stream) {
			add(stream, [act, to = reinterpret_cast<Value *>(at[0].bytes)] { act(std::atomic_ref(*to)); });
			return CUDA_SUCCESS;
		});
	});
}

template <class Value>
CUresult wait_value(const char *name, CUstream handle, CUdeviceptr address, Value value, unsigned flags)
{
	return with_value<Value>(name, handle, address, [=](std::atomic_ref<Value> at) {
		while (!is_reached<Value>(at, value, flags) && !world().down)
			std::this_thread::sleep_for(std::chrono::microseconds(100));
	});
}

template <class Value> CUresult write_value(const char *name, CUstream handle, CUdeviceptr address, Value value)
{
	return with_value<Value>(name, handle, address, [=](std::atomic_ref<Value> at) { at = value; });
}

// Reads the source during the call: it may not be valid afterwards.
std::shared_ptr<std::string> read_now(const Spans &from)
{
	auto bytes = std::make_shared<std::string>();
	for (const Span &span : from)
		bytes->append(span.bytes, span.size);
	return bytes;
}

// Copies what the parameter points to when the kernel runs.
Work launch_copy(void **parameters, CUcontext in)
{
	struct Order {
		CUdeviceptr to, from;
		uint64_t size;
	};
	const volatile Order *const order = *static_cast<const volatile Order **>(parameters[0]);
	return [order, in] {
		if (!order->size)
			return;
		const Spans to = spans_at(order->to, order->size, false),
			    from = spans_at(order->from, order->size, false);
		const bool others = (owner_of(order->to) && owner_of(order->to) != in) ||
				    (owner_of(order->from) && owner_of(order->from) != in);
		if (to.empty() || from.empty() || others)
			wrong();
		else
			softgpu::copy(to, from);
	};
}

template <bool last> Work launch_widening(void **parameters, CUcontext in)
{
	const auto number = [&](int i) { return *static_cast<const uint64_t *>(parameters[i]); };
	const auto word = [&](int i) { return *static_cast<const uint32_t *>(parameters[i]); };
	const Widening what = {number(0), number(1), number(2), word(3), word(4), word(5), word(6)};
	return [what, in] { widen(what, in, last); };
}

struct Kernel {
	std::string_view name;
	Work (*launch)(void **parameters, CUcontext in);
};
constexpr Kernel kernels[] = {{"peerdma_copy", launch_copy},
			      {"peerdma_widen", launch_widening<false>},
			      {"peerdma_widen_last", launch_widening<true>}};

} // namespace

extern "C" {

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return copy_now(__func__, any(to), any(from), size);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t size)
{
	return copy_now("cuMemcpyHtoD_v2", device(to), host(from), size);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t size)
{
	return copy_now("cuMemcpyDtoH_v2", host(to), device(from), size);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size)
{
	return copy_now("cuMemcpyDtoD_v2", device(to), device(from), size);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size)
{
	return copy_now(__func__, any(to), any(from), size);
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_later(__func__, any(to), any(from), size, stream);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size, CUstream stream)
{
	return copy_later(__func__, any(to), any(from), size, stream);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
	return copy_later("cuMemcpyHtoDAsync_v2", device(to), host(from), size, stream);
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_later("cuMemcpyDtoHAsync_v2", host(to), device(from), size, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)
{
	return copy_later("cuMemcpyDtoDAsync_v2", device(to), device(from), size, stream);
}
// Each copy in the direction that its addresses determine. The order is not defined: here the last copy comes first. If
// one copy is not valid, nothing is copied.
CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
			    size_t *which, size_t nr_attributes, CUstream handle)
{
	return call("cuMemcpyBatchAsync_v2", [&] {
		if (!handle || handle == CU_STREAM_LEGACY || !to || !from || !sizes || !n ||
		    !are_good(attributes, which, nr_attributes, n))
			return CUDA_ERROR_INVALID_VALUE;
		return with_stream(handle, [&](Stream &stream) {
			std::vector<Work> copies;
			for (size_t i = 0, at = 0; i < n; i++) {
				at += at + 1 < nr_attributes && which[at + 1] == i;
				const Spans into = spans_at(to[i], sizes[i], true),
					    out_of = spans_at(from[i], sizes[i], true);
				if (into.empty() || out_of.empty())
					return CUDA_ERROR_INVALID_VALUE;
				check_context(handle, stream, owner_of(to[i]) ? owner_of(to[i]) : owner_of(from[i]));
				if (attributes[at].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
					copies.push_back([into, bytes = read_now(out_of)] {
						copy(into, {{bytes->data(), bytes->size()}});
					});
				else
					copies.push_back([into, out_of] { copy(into, out_of); });
			}
			std::ranges::reverse(copies);
			const std::shared_lock guard(driver_lock());
			add(stream, [copies] {
				for (const Work &one : copies)
					one();
			});
			return CUDA_SUCCESS;
		});
	});
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char byte, size_t size)
{
	return call("cuMemsetD8_v2", [&] {
		const Spans into = spans_at(to, size, false);
		if (into.empty())
			return CUDA_ERROR_INVALID_VALUE;
		return with_stream(nullptr, [&](Stream &stream) {
			add(stream, [into, byte] { fill(into, byte); });
			return is_left_behind(to) || stream.wait() ? CUDA_SUCCESS : CUDA_ERROR_DEINITIALIZED;
		});
	});
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, CUstream handle)
{
	return call(__func__, [&] {
		const Spans into = spans_at(to, size, false);
		if (into.empty())
			return CUDA_ERROR_INVALID_VALUE;
		return with_stream(handle, [&](Stream &stream) {
			add(stream, [into, byte] { fill(into, byte); });
			return CUDA_SUCCESS;
		});
	});
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags)
{
	return wait_value("cuStreamWaitValue32_v2", stream, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags)
{
	return wait_value("cuStreamWaitValue64_v2", stream, address, value, flags);
}
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned)
{
	return write_value("cuStreamWriteValue32_v2", stream, address, value);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, uint64_t value, unsigned)
{
	return write_value("cuStreamWriteValue64_v2", stream, address, value);
}

// --- Our kernels
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, void *, void **, unsigned, void *, void **, unsigned)
{
	return call(__func__, [&] {
		*library = static_cast<CUlibrary>(const_cast<void *>(code));
		const bool is_text = std::strstr(static_cast<const char *>(code), ".entry");
		return is_text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	});
}
CUresult cuLibraryUnload(CUlibrary)
{
	return call(__func__, [] { return CUDA_SUCCESS; });
}
// A kernel that the text has, and that is known here.
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
	return call(__func__, [&] {
		const auto found = std::ranges::find_if(kernels, [&](const Kernel &one) { return one.name == name; });
		const std::string entry = std::string(".entry ") + name + "(";
		if (found == std::end(kernels) || !std::strstr(reinterpret_cast<char *>(library), entry.c_str()))
			return CUDA_ERROR_NOT_FOUND;
		*kernel = reinterpret_cast<CUkernel>(const_cast<Kernel *>(&*found));
		return CUDA_SUCCESS;
	});
}
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
	return call(__func__, [&] {
		const std::shared_lock guard(driver_lock());
		*function = reinterpret_cast<CUfunction>(kernel);
		return CUDA_SUCCESS;
	});
}
// Does what that kernel does. It cannot access host memory that the driver does not know, nor another context's memory.
CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			CUstream handle, void **parameters, void **)
{
	return call(__func__, [&] {
		return with_stream(handle, [&](Stream &stream) {
			check_context(handle, stream);
			const Work work = reinterpret_cast<const Kernel *>(function)->launch(parameters, current());
			const std::shared_lock guard(driver_lock());
			add(stream, work);
			return CUDA_SUCCESS;
		});
	});
}
}
