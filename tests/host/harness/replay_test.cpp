// SPDX-License-Identifier: MIT
//
// The host's side of the random verification, without a guest. Each test corrupts one item of a guest's results; the
// host must detect it.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "../../tools/model.hpp"

namespace
{

using namespace verify;

constexpr uint64_t operations = 60, seed = 7;
constexpr std::array<uint64_t, 3> bar = {kib * kib, 512 * kib, 2048 * kib};
constexpr uint64_t file_at = 4096 * kib; // of file n on its drive, times n + 1

class Replay : public ::testing::Test
{
protected:
	void SetUp() override
	{
		const char *build = std::getenv("PEERDMA_BUILD");
		tool = std::string(build ? build : "build") + "/bin/replay";
		ASSERT_TRUE(std::filesystem::exists(tool)) << "make -C tests builds it";
		std::string name = std::filesystem::temp_directory_path() / "replay.XXXXXX";
		ASSERT_NE(::mkdtemp(name.data()), nullptr);
		dir = name;
		play();
		write_all();
	}
	void TearDown() override { std::filesystem::remove_all(dir); }

	/// Acts as a guest without faults.
	void play()
	{
		Stream stream(seed, 0, 0, model.sizes());
		for (uint64_t counted = 0; counted < operations;) {
			const auto ops = stream.next();
			std::vector<int64_t> rets;
			for (const Op &op : ops)
				rets.push_back(model.apply(op));
			for (size_t i = 0; i < ops.size(); i++) {
				counted += ops[i].counts();
				results.push_back({rets[i], model.look(ops[i])});
			}
		}
	}

	std::string disk(unsigned n) const { return dir / ("disk" + std::to_string(n)); }
	std::string gpu() const { return dir / "gpu"; }

	static void put(const std::string &path, uint64_t at, const void *from, size_t len)
	{
		std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
		file.seekp(std::streamoff(at));
		file.write(static_cast<const char *>(from), std::streamsize(len));
		ASSERT_TRUE(file.good());
	}

	void write_all()
	{
		for (const auto &path : {gpu(), disk(0), disk(1), disk(2)}) {
			std::ofstream(path).put(0);
			std::filesystem::resize_file(path, told_at + told_len);
		}
		put(gpu(), bar[0], model.buffer.data(), buf_len);
		std::vector<Extent> extents;
		for (uint32_t f = 0; f < files; f++)
			for (uint32_t leg = 0; leg < (f == mirror ? 2 : 1); leg++) {
				put(disk(leg), file_at * (f + 1), model.file[f].data(), model.file[f].size());
				extents.push_back({f, leg, leg, 0, 0, file_max, file_at * (f + 1)});
			}
		const Told told = {told_magic, 0, 0, results.size(), extents.size(), {bar[0], bar[1], bar[2]}};
		uint64_t at = told_at;
		put(disk(2), at, &told, sizeof(told));
		put(disk(2), at += sizeof(told), results.data(), results.size() * sizeof(Result));
		put(disk(2), at + results.size() * sizeof(Result), extents.data(), extents.size() * sizeof(Extent));
	}

	void flip(const std::string &path, uint64_t at)
	{
		char byte;
		std::ifstream file(path, std::ios::binary);
		file.seekg(std::streamoff(at));
		file.get(byte);
		byte = char(byte ^ 1);
		put(path, at, &byte, 1);
	}

	/// Runs replay: its exit status and output.
	std::pair<int, std::string> run(unsigned round = 0)
	{
		std::string line = tool + " 7 1 " + std::to_string(round) + " " + std::to_string(operations) + " " +
				   (dir / "state").string() + " " + gpu();
		for (unsigned n = 0; n < 3; n++)
			line += " " + disk(n);
		std::FILE *pipe = ::popen(line.c_str(), "r");
		std::string said;
		for (int c; (c = std::fgetc(pipe)) != EOF;)
			said += char(c);
		return {::pclose(pipe), said};
	}

	void notices(const std::string &what)
	{
		const auto [status, said] = run();
		EXPECT_NE(status, 0);
		EXPECT_NE(said.find(what), std::string::npos) << said;
	}

	Model model;
	std::vector<Result> results;
	std::string tool;
	std::filesystem::path dir;
};

TEST_F(Replay, WhatIsRightIsFoundRight)
{
	const auto [status, said] = run();
	EXPECT_EQ(status, 0) << said;
	EXPECT_EQ(said.rfind("ok ", 0), 0U) << said;
}

TEST_F(Replay, OneByteOfTheBuffer)
{
	flip(gpu(), bar[0] + buf_len - 1);
	notices("the buffer of process 0 differs at byte 524287");
}

TEST_F(Replay, OneByteBesideTheBuffer)
{
	flip(gpu(), bar[1] + guard_len - 1);
	notices("beside the buffer");
}

TEST_F(Replay, OneByteOfEachFileAndOfBothLegs)
{
	for (unsigned f = 0; f < files; f++)
		for (unsigned leg = 0; leg < (f == mirror ? 2 : 1); leg++) {
			ASSERT_GT(model.file[f].size(), 0U);
			const uint64_t at = file_at * (f + 1) + model.file[f].size() - 1;
			flip(disk(leg), at);
			notices(std::string(file_names[f]) + " of process 0 differs");
			flip(disk(leg), at);
		}
}

TEST_F(Replay, AResultThatIsOneOff)
{
	for (size_t n : {size_t(0), results.size() / 2, results.size() - 1}) {
		results[n].ret++;
		write_all();
		notices("operation " + std::to_string(n) + ": ");
		results[n].ret--;
	}
}

TEST_F(Replay, AChecksumThatIsWrong)
{
	results[results.size() / 2].sum ^= 1;
	write_all();
	notices("bytes WRONG");
}

TEST_F(Replay, OneOperationTooFewOrTooMany)
{
	const Result last = results.back();
	results.pop_back();
	write_all();
	notices("the guest did only");
	results.push_back(last);
	results.push_back(last);
	write_all();
	notices("want");
}

TEST_F(Replay, NothingFromThisRound)
{
	const auto [status, said] = run();
	ASSERT_EQ(status, 0) << said;
	EXPECT_NE(run(1).first, 0); // the log is still that of the previous round
}

/// A missing, moved or swapped byte changes the sum.
TEST(Checksum, SeesEachByteAndItsPlace)
{
	std::array<uint64_t, 9> words;
	for (size_t i = 0; i < words.size(); i++)
		words[i] = mixed(i + 1);
	auto *bytes = reinterpret_cast<uint8_t *>(words.data());
	const uint64_t right = checksum(words.data(), 69, 0);
	for (size_t i = 0; i < 69; i++) {
		bytes[i] ^= 1;
		EXPECT_NE(checksum(words.data(), 69, 0), right) << i;
		bytes[i] ^= 1;
	}
	std::swap(words[2], words[3]);
	EXPECT_NE(checksum(words.data(), 69, 0), right);
	std::swap(words[2], words[3]);
	EXPECT_NE(checksum(words.data(), 68, 0), right);
	EXPECT_EQ(checksum(words.data(), 69, 0), right);
}

} // namespace
