// SPDX-License-Identifier: MIT
//
// Graphs: the operations of a captured stream, repeated by each launch.
#include "stream.hpp"

using namespace softgpu;

// Owns the graph only after the end of the capture.
struct CUgraph_st {
	std::weak_ptr<Graph> captured;
	std::shared_ptr<Graph> is = {};
	std::shared_ptr<Graph> graph() const { return is ? is : captured.lock(); }
};

struct CUgraphExec_st {
	std::shared_ptr<Graph> is;
};

struct CUuserObject_st : UserObject {
	using UserObject::UserObject;
};

namespace
{

// Streams that tests capture without the driver's calls.
struct Fakes {
	std::mutex lock; // protects all below
	std::map<void *, std::shared_ptr<Graph>> graphs;
};

Fakes &fakes()
{
	static Fakes *const the_fakes = new Fakes;
	return *the_fakes;
}

// The graph of the stream's last capture.
std::shared_ptr<Graph> fake_graph(void *stream)
{
	const std::lock_guard guard(fakes().lock);
	if (auto graph = stream_of(static_cast<CUstream>(stream))->end_capture())
		fakes().graphs[stream] = std::move(graph);
	return fakes().graphs[stream];
}

void launch(const std::shared_ptr<Graph> &graph, Stream &stream)
{
	add(stream, [graph] {
		const std::lock_guard after(graph->running);
		std::vector<Work> nodes;
		{
			const std::lock_guard guard(graph->lock);
			nodes = graph->nodes;
		}
		for (const Work &node : nodes)
			node();
	});
}

} // namespace

namespace softgpu
{

bool UserObject::release(unsigned count)
{
	for (unsigned now = references_; count && count <= now;) {
		if (!references_.compare_exchange_weak(now, now - count))
			continue;
		if (now == count)
			call_host_later([this] {
				destroy_(arg_);
				delete static_cast<CUuserObject>(this);
			});
		return true;
	}
	return false;
}

std::shared_ptr<Graph> Graph::make(CUstreamCaptureMode mode, bool forbids)
{
	auto graph = std::make_shared<Graph>(mode, forbids);
	graph->handle = std::make_unique<CUgraph_st>(CUgraph_st{graph});
	return graph;
}
Graph::Graph(CUstreamCaptureMode in, bool counted) : mode(in), forbids(counted) {}
Graph::~Graph()
{
	for (const auto &[object, count] : owned)
		object->release(count);
}
void Graph::add(Work node)
{
	const std::lock_guard guard(lock);
	nodes.push_back(std::move(node));
}
void Graph::spoil(CUresult why)
{
	const std::lock_guard guard(lock);
	spoiled = why;
}

} // namespace softgpu

extern "C" {

void fake_capture(void *stream)
{
	stream_of(static_cast<CUstream>(stream))->begin_capture(Graph::make(CU_STREAM_CAPTURE_MODE_RELAXED, false));
}
void fake_launch_graph(void *stream) { launch(fake_graph(stream), *stream_of(static_cast<CUstream>(stream))); }
void fake_end_graph(void *stream)
{
	fake_graph(stream);
	stream_of(static_cast<CUstream>(stream))->wait();
	{
		const std::lock_guard guard(fakes().lock);
		fakes().graphs.erase(stream);
	}
	call_host([] {}); // runs after the destructors of its user objects
}

CUresult cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
	return call("cuStreamBeginCapture_v2", [&] {
		if (!handle || handle == CU_STREAM_LEGACY)
			return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		return with_stream(handle, [&](Stream &stream) {
			const bool forbids = mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
			if (!stream.begin_capture(Graph::make(mode, forbids)))
				return CUDA_ERROR_ILLEGAL_STATE;
			world().captures += forbids;
			return CUDA_SUCCESS;
		});
	});
}
CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
	return call(__func__, [&] {
		return with_stream(handle, [&](Stream &stream) {
			*out = nullptr;
			const std::shared_ptr<Graph> graph = stream.captured();
			if (!graph)
				return CUDA_ERROR_ILLEGAL_STATE;
			if (graph->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
			    graph->thread != std::this_thread::get_id())
				return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
			for (const auto &joined : streams_into(graph))
				joined->end_capture();
			world().captures -= graph->forbids;
			const std::lock_guard guard(graph->lock);
			if (graph->forbids && world().capture_void.exchange(false))
				graph->spoiled = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
			if (graph->spoiled)
				return graph->spoiled;
			graph->handle->is = graph;
			*out = graph->handle.release();
			return CUDA_SUCCESS;
		});
	});
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	*mode = static_cast<CUstreamCaptureMode>(std::exchange(capture_mode, static_cast<int>(*mode)));
	return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	return call(__func__, [&] {
		return with_stream(handle, [&](Stream &stream) {
			*status = stream.captured() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
			return CUDA_SUCCESS;
		});
	});
}
// The program may add to the graph only until the capture ends.
CUresult cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
				const CUgraphNode **, size_t *)
{
	return call("cuStreamGetCaptureInfo_v2", [&] {
		return with_stream(handle, [&](Stream &stream) {
			const std::shared_ptr<Graph> into = stream.captured();
			*status = into ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
			if (into && id)
				*id = into->id;
			if (graph)
				*graph = into ? into->handle.get() : nullptr;
			return CUDA_SUCCESS;
		});
	});
}
CUresult cuUserObjectCreate(CUuserObject *out, void *arg, CUhostFn destroy, unsigned references, unsigned flags)
{
	return call(__func__, [&] {
		if (!out || !destroy || !references || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
			return CUDA_ERROR_INVALID_VALUE;
		*out = new CUuserObject_st(destroy, arg, references);
		return CUDA_SUCCESS;
	});
}
CUresult cuUserObjectRetain(CUuserObject object, unsigned count)
{
	return call(__func__, [&] {
		object->retain(count);
		return CUDA_SUCCESS;
	});
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
	return call(__func__, [&] { return object->release(count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}
// With the flag the graph takes over the caller's references, else it gets new ones.
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
	return call(__func__, [&] {
		if (!count || flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE))
			return CUDA_ERROR_INVALID_VALUE;
		if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
			object->retain(count);
		const std::shared_ptr<Graph> into = graph->graph();
		const std::lock_guard guard(into->lock);
		into->owned.emplace_back(object, count);
		return CUDA_SUCCESS;
	});
}
CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph graph, unsigned long long)
{
	return call("cuGraphInstantiateWithFlags", [&] {
		*out = new CUgraphExec_st{graph->graph()};
		return CUDA_SUCCESS;
	});
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	return call(__func__, [&] {
		return with_stream(handle, [&](Stream &stream) {
			launch(exec->is, stream);
			return CUDA_SUCCESS;
		});
	});
}
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	return call(__func__, [&] {
		delete exec;
		return CUDA_SUCCESS;
	});
}
CUresult cuGraphDestroy(CUgraph graph)
{
	return call(__func__, [&] {
		delete graph;
		return CUDA_SUCCESS;
	});
}
}
