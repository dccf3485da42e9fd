// SPDX-License-Identifier: MIT
// Turns to work on files: so many at a time, and a storage that does not answer holds up only its own.
#include <atomic>
#include <chrono>
#include <future>
#include <memory>

#include <gtest/gtest.h>

#include "viewd/turns.hpp"

namespace
{

using namespace std::chrono_literals;
using viewd::Turn;
using viewd::Turns;

class TurnsTest : public ::testing::Test
{
protected:
	std::future<std::unique_ptr<Turn>> take(uint64_t storage)
	{
		return std::async(std::launch::async,
				  [this, storage] { return std::make_unique<Turn>(turns, storage, stop); });
	}

	Turns turns{2, 300ms};
	std::atomic<bool> stop = false;
};

TEST_F(TurnsTest, AreSoManyAtATime)
{
	std::unique_ptr<Turn> first = take(1).get(), second = take(2).get();
	std::future<std::unique_ptr<Turn>> third = take(3);
	EXPECT_EQ(third.wait_for(100ms), std::future_status::timeout);
	first.reset();
	EXPECT_TRUE(*third.get());
	EXPECT_TRUE(*second);
}

TEST_F(TurnsTest, OfASilentStorageHoldUpItsOwn)
{
	const std::unique_ptr<Turn> first = take(1).get();
	std::unique_ptr<Turn> second = take(1).get();
	std::future<std::unique_ptr<Turn>> same = take(1), alone = take(0);
	EXPECT_TRUE(*take(2).get());
	EXPECT_TRUE(*alone.get());
	EXPECT_EQ(same.wait_for(300ms), std::future_status::timeout);
	second.reset();
	EXPECT_TRUE(*same.get());
}

TEST_F(TurnsTest, DoNotComeToWhoIsStopped)
{
	const std::unique_ptr<Turn> first = take(1).get(), second = take(1).get();
	std::future<std::unique_ptr<Turn>> third = take(1);
	stop = true;
	EXPECT_FALSE(*third.get());
}

} // namespace
