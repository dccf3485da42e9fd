// SPDX-License-Identifier: MIT
#pragma once

#include "cufile/platform/dependencies.hpp"

namespace cufile
{

// Enters a context, until leave() or the end of the scope.
class ScopedCudaContext
{
public:
	explicit ScopedCudaContext(Cuda &cuda) : cuda_(cuda) {}
	~ScopedCudaContext() { leave(); }
	ScopedCudaContext(const ScopedCudaContext &) = delete;
	ScopedCudaContext &operator=(const ScopedCudaContext &) = delete;
	// Returns a CUresult.
	int enter(Context context) { return cuda_.enter(context, entered_); }
	void leave()
	{
		if (entered_)
			cuda_.leave();
		entered_ = false;
	}

private:
	Cuda &cuda_;
	bool entered_ = false;
};

} // namespace cufile
