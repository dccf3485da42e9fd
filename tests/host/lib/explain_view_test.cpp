// SPDX-License-Identifier: MIT
//
// What `peerdma explain` says of a file's contents: whether it is a view, what reduces its elements, and why. Without
// --codec it looks at the first bytes only.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "machine.hpp"
#include "tools/cli/cli.hpp"
#include "view_image.hpp"
#include "view_values.hpp"

namespace
{

class ExplainView : public Machine
{
protected:
	ExplainView() { sys.add_function("0000:01:00.0", 1 << 20, "peerdma"); }

	// As the module answers for a block device, or for a file.
	void add(const std::string &bytes, bool is_device)
	{
		sys.contents["/f"] = {.bytes = bytes, .mode = (is_device ? S_IFBLK : S_IFREG) | 0600u};
		sys.on_ioctl = [this, is_device](unsigned long request, void *arg) {
			if (request != PEERDMA_FILE_QUERY || !is_device)
				return 1;
			const int rc = sys.perform(request, arg);
			std::strcpy(static_cast<peerdma_file_query *>(arg)->out_fs_name, "block");
			return rc;
		};
	}
	static std::string run(std::vector<std::string> words, int status = 0)
	{
		words.insert(words.begin(), {"peerdma", "explain"});
		std::vector<char *> argv;
		for (std::string &word : words)
			argv.push_back(word.data());
		argv.push_back(nullptr);
		::testing::internal::CaptureStdout();
		EXPECT_EQ(cli::run(static_cast<int>(words.size()), argv.data()), status);
		std::fflush(stdout);
		return ::testing::internal::GetCapturedStdout();
	}
	// The first bytes are read with a limit of time, by the kernel's own calls, the rest by the fake: of a file that both have.
	std::pair<std::string, nlohmann::json> explain_file(const std::string &bytes)
	{
		const auto path = std::filesystem::temp_directory_path() / ("explain-view-" + std::to_string(getpid()));
		std::ofstream(path) << bytes;
		add(bytes, false);
		sys.contents[path.string()] = sys.contents["/f"];
		auto said = explain({path.string()});
		std::filesystem::remove(path);
		return said;
	}
	// The words behind "contents", and what --json has; "" and null: nothing.
	static std::pair<std::string, nlohmann::json> explain(std::vector<std::string> words = {"/f"})
	{
		const std::string text = run(words), key = "\ncontents   ";
		const size_t at = text.find(key), from = at + key.size();
		EXPECT_NE(text.find("\nroute "), std::string::npos) << text;
		words.insert(words.begin(), "--json");
		return {at == std::string::npos ? "" : text.substr(from, text.find('\n', from) - from),
			nlohmann::json::parse(run(words)).at("view")};
	}
};

} // namespace

TEST_F(ExplainView, ReducedByTheStorage)
{
	add(image("u32:17", 1000, packed(random_values(1000, 17), 17)), true);
	const auto [text, json] = explain();
	EXPECT_EQ(text,
		  "a view: u32 in 17 bits, 1000 elements, reduced by the storage, because it has a view's header");
	EXPECT_EQ(json, (nlohmann::json{{"text", text},
					{"codec", "u32:17"},
					{"bits", 17},
					{"elements", 1000},
					{"data_offset", 4096},
					{"data_bytes", 2125},
					{"files", 1},
					{"reduced_by", "storage"}}));
}

TEST_F(ExplainView, ServedByTheStorageAsItIs)
{
	add(image("i64:none", 1, "12345678"), true);
	const auto [text, json] = explain();
	EXPECT_EQ(
		text,
		"a view: i64 in 64 bits, 1 element, served by the storage as they are, because it has a view's header");
	EXPECT_EQ(json.at("codec"), "i64:none");
}

TEST_F(ExplainView, ADamagedHeader)
{
	std::string bytes = image("u32:17", 1000, packed(random_values(1000, 17), 17));
	bytes[40] ^= 1;
	add(bytes, true);
	const auto [text, json] = explain();
	EXPECT_EQ(text, "damaged: the header is invalid: its checksum is wrong");
	EXPECT_EQ(json, (nlohmann::json{{"error", "the header is invalid: its checksum is wrong"}}));
}

TEST_F(ExplainView, ADeviceThatIsNoView)
{
	for (const std::string &bytes : {std::string(8192, 'x'), std::string()}) {
		add(bytes, true);
		const auto [text, json] = explain();
		EXPECT_EQ(text, "");
		EXPECT_TRUE(json.is_null());
	}
}

TEST_F(ExplainView, AnImageInAFile)
{
	const auto [text, json] = explain_file(image("u32:17", 1000, packed(random_values(1000, 17), 17)));
	EXPECT_EQ(text,
		  "a view: u32 in 17 bits, 1000 elements, reduced by the storage, because it has a view's header");
	EXPECT_EQ(json.at("codec"), "u32:17");
}

TEST_F(ExplainView, AFileThatNothingReduces)
{
	// A short one has fewer bytes than a header.
	for (const size_t size : {8000, 7}) {
		const auto [text, json] = explain_file(std::string(size, 'x'));
		EXPECT_EQ(text, "a plain file: byte, " + std::to_string(size) +
					" elements, not reduced, because no codec was given");
		EXPECT_EQ(json.at("codec"), "byte:none");
		EXPECT_EQ(json.at("elements"), size);
		EXPECT_EQ(json.at("reduced_by"), "none");
	}
}

// Its storage may not answer, and there is no limit of time.
TEST_F(ExplainView, AFileWhoseFirstBytesCannotBeReadIsNotOpened)
{
	add(bytes_of(random_values(2000, 16), 4), false);
	const auto [text, json] = explain();
	EXPECT_EQ(text, "");
	EXPECT_TRUE(json.is_null());
	EXPECT_TRUE(sys.posix_fds.empty());
}

TEST_F(ExplainView, WithACodecItSaysWhatReducesAnyFile)
{
	add(bytes_of(random_values(100, 16), 4), false);
	auto [text, json] = explain({"--codec", "u32:u16", "/f"});
	EXPECT_EQ(text,
		  "a plain file: u32 in 16 bits, 100 elements, reduced by this host's CPU, because a codec was given");
	EXPECT_EQ(json.at("reduced_by"), "host");
	EXPECT_EQ(explain({"--codec", "u32:none", "/f"}).second.at("reduced_by"), "none");
	add(image("u32:17", 1000, packed(random_values(1000, 17), 17)), true);
	EXPECT_EQ(explain({"--codec", "u32:17", "/f"}).second.at("reduced_by"), "storage");
	for (const char *wrong : {"u33", "i64:18"})
		run({"--codec", wrong, "/f"}, 1);
}
