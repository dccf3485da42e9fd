// SPDX-License-Identifier: MIT
#pragma once

#include "seams.hpp"

namespace cufile
{

// The calling thread is in a context as long as there is one of these, or until it leaves.
class Inside
{
public:
	explicit Inside(Cuda &cuda) : cuda_(cuda) {}
	~Inside() { leave(); }
	Inside(const Inside &) = delete;
	Inside &operator=(const Inside &) = delete;
	// A CUresult.
	int enter(Context context)
	{
		bool entered = false;
		const int rc = cuda_.enter(context, entered);
		entered_ = !rc && entered;
		return rc;
	}
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
