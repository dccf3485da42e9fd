// SPDX-License-Identifier: MIT
//
// The rules: their syntax, the rule that decides, and the effect of a denial in libpeerdma.

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "common/rules.hpp"
#include "fake_syscalls.hpp"
#include "peerdma.hpp"

using peerdma_impl::PciAddress;
using peerdma_impl::RuleQuery;
using peerdma_impl::Rules;
using peerdma_impl::Verb;

namespace
{

const PciAddress gpu = {0, 0x0100}, drive = {0, 0x0300};

RuleQuery about(const std::string &file = "/srv/a", const std::string &cgroup = "/one")
{
	return {{gpu, 0x10de2336}, cgroup, file, {{{"nvme0n1", drive}}}};
}

// A query before a file is known.
RuleQuery early()
{
	RuleQuery question = about();
	question.file.reset();
	question.disks.reset();
	return question;
}

Rules rules_of(const std::string &text)
{
	Rules rules;
	const auto fault = rules.parse(text);
	EXPECT_FALSE(fault) << text << ": " << fault->what;
	return rules;
}

// The line number of the deciding rule, 0 if no rule decides.
unsigned decides(const std::string &text, const RuleQuery &question = about())
{
	const Rules rules = rules_of(text);
	const auto *rule = rules.decide(question);
	return rule ? rule->line : 0;
}

} // namespace

TEST(Rules, FaultsNameTheirPlace)
{
	const struct {
		std::string text;
		unsigned line, column;
		const char *what;
	} faults[] = {
		{"permit", 1, 1, "'permit': expected allow"},
		{"Allow", 1, 1, "expected allow, deny or prefer"},
		{"# fine\n\n  forbid provider=1:0.0", 3, 3, "expected allow, deny or prefer"},
		{"deny gpu=0000:01:00.0", 1, 6, "unknown condition 'gpu'"},
		{"deny provider", 1, 6, "'provider': expected provider="},
		{"deny =x", 1, 6, "unknown condition ''"},
		{"deny provider=", 1, 15, "expected a PCI address such"},
		{"deny provider=gpu0", 1, 15, "'gpu0': expected a PCI address such"},
		{"deny provider=10de:23361", 1, 15, "expected a PCI address such"},
		{"deny provider=10de:233g", 1, 15, "expected a PCI address such"},
		{"deny provider=10de:-123", 1, 15, "expected a PCI address such"},
		{"deny provider=01:00.0 provider=10de:2336", 1, 23, "duplicate provider"},
		{"deny disk=", 1, 11, "a disk's name"},
		{"deny disk=a/b", 1, 11, "a disk's name"},
		{"deny disk=/dev/", 1, 11, "a disk's name"},
		{"deny disk=sda disk=sda", 1, 15, "duplicate disk"},
		{"deny file=srv", 1, 11, "expected an absolute path"},
		{"deny file=", 1, 11, "expected an absolute path"},
		{"deny file=/srv/../etc", 1, 11, "expected an absolute path"},
		{"deny file=/srv/..", 1, 11, "expected an absolute path"},
		{"deny file=/srv//a", 1, 11, "expected an absolute path"},
		{"deny file=/srv file=/srv", 1, 16, "duplicate file"},
		{"deny cgroup=one", 1, 13, "expected an absolute path"},
		{"deny cgroup=/ cgroup=/", 1, 15, "duplicate cgroup"},
		{"deny file=\"/srv", 1, 11, "missing closing quote"},
		{"deny file=\"/srv\\", 1, 11, "missing closing quote"},
		{"deny file=\"/srv\"x", 1, 17, "missing blank after"},
		{"deny disk=nvme*", 1, 15, "'*' is not valid outside double quotes"},
		{"deny disk=nvme?n1", 1, 15, "'?' is not valid"},
		{"deny disk=nvme[01]n1", 1, 15, "'[' is not valid"},
		{"deny disk=nvme0n1,nvme1n1", 1, 18, "',' is not valid"},
		{"deny disk='nvme0n1'", 1, 11, "''' is not valid"},
		{"deny file=/home/*/x", 1, 17, "'*' is not valid"},
		{"deny file=/srv,/home", 1, 15, "',' is not valid"},
		{"deny file=/x#c", 1, 13, "'#' is not valid"},
		{"deny file=/srv/\"a\"", 1, 16, "'\"' is not valid"},
		{"deny cgroup=/user-*.slice", 1, 19, "'*' is not valid"},
		{"deny gpu=*", 1, 6, "unknown condition 'gpu'"},
		{"allow\r\n", 1, 6, "control character"},
		{"allow\ndeny file=/\x1b[2J", 2, 12, "control character"},
		{"deny\n prefer file=/srv", 2, 2, "prefer: file= and disk="},
		{"prefer disk=nvme0n1", 1, 1, "prefer: file= and disk="},
	};
	for (const auto &fault : faults) {
		Rules rules = rules_of("allow");
		const auto found = rules.parse(fault.text);
		ASSERT_TRUE(found) << fault.text;
		EXPECT_EQ(found->line, fault.line) << fault.text;
		EXPECT_EQ(found->column, fault.column) << fault.text;
		EXPECT_NE(found->what.find(fault.what), std::string::npos) << fault.text << ": " << found->what;
		EXPECT_EQ(rules.all().size(), 1u) << "nothing is changed";
	}
}

TEST(Rules, WhatIsWrittenIsWhatIsRead)
{
	const Rules rules =
		rules_of("# a comment\n\n\t deny  provider=0000:01:00.0\tdisk=/dev/nvme0n1 # why\n"
			 "allow file=\"/srv/my \\\"own\\\" \\\\ #1/\" cgroup=/a.slice\nprefer provider=10DE:2336");
	ASSERT_EQ(rules.all().size(), 3u);
	const auto &deny = rules.all()[0], &allow = rules.all()[1], &prefer = rules.all()[2];
	EXPECT_EQ(deny.verb, Verb::deny);
	EXPECT_EQ(deny.line, 3u);
	EXPECT_EQ(deny.text, "deny  provider=0000:01:00.0\tdisk=/dev/nvme0n1");
	EXPECT_EQ(deny.provider_address, gpu);
	EXPECT_EQ(deny.disk_name, "nvme0n1");
	EXPECT_EQ(allow.file, "/srv/my \"own\" \\ #1");
	EXPECT_EQ(allow.cgroup, "/a.slice");
	EXPECT_EQ(prefer.verb, Verb::prefer);
	EXPECT_EQ(prefer.provider_kind, 0x10de2336u);
	EXPECT_EQ(rules_of("deny file=\"/srv/*?[,'#\"").all()[0].file, "/srv/*?[,'#") << "quoted";
	EXPECT_EQ(rules_of("deny disk=\"a*\"").all()[0].disk_name, "a*") << "quoted";
	EXPECT_EQ(rules_of("deny cgroup=/a\\x2db.slice").all()[0].cgroup, "/a\\x2db.slice") << "systemd's names";
	EXPECT_TRUE(rules_of("").empty());
	EXPECT_TRUE(rules_of("\n# nothing\n \t\n").empty());
}

TEST(Rules, TheFirstThatFitsDecides)
{
	EXPECT_EQ(decides(""), 0u);
	EXPECT_EQ(decides("deny file=/other\nallow file=/srv\ndeny"), 2u);
	EXPECT_EQ(decides("deny\nallow"), 1u);
	EXPECT_EQ(decides("deny provider=02:00.0\ndeny provider=10de:2337\ndeny provider=10de:2336"), 3u);
	EXPECT_EQ(decides("deny provider=01:00.0 cgroup=/two\nallow provider=01:00.0 cgroup=/one"), 2u);
}

TEST(Rules, PathsEndWhereTheirPartsDo)
{
	for (const char *file : {"/srv/a", "/srv/a/b", "/srv/a/b/c"})
		EXPECT_EQ(decides("deny file=/srv/a", about(file)), 1u) << file;
	for (const char *file : {"/srv/ab", "/srv", "/srv/b/srv/a", "/"})
		EXPECT_EQ(decides("deny file=/srv/a/", about(file)), 0u) << file;
	EXPECT_EQ(decides("deny file=/", about("/x")), 1u);
	EXPECT_EQ(decides("deny cgroup=/a", about("/x", "/a/b")), 1u);
	EXPECT_EQ(decides("deny cgroup=/a", about("/x", "/ab")), 0u);
}

TEST(Rules, OneDiskIsEnoughToBeDeniedAndAllAreNeededToBeAllowed)
{
	RuleQuery two = about();
	two.disks->push_back({"nvme1n1", {0, 0x0400}});
	EXPECT_EQ(decides("deny disk=nvme1n1", two), 1u);
	EXPECT_EQ(decides("deny disk=04:00.0", two), 1u);
	EXPECT_EQ(decides("allow disk=nvme1n1", two), 0u);
	EXPECT_EQ(decides("allow disk=nvme0n1", about()), 1u);
	RuleQuery none = about();
	none.disks->clear();
	EXPECT_EQ(decides("deny disk=nvme0n1", none), 0u);
	EXPECT_EQ(decides("deny disk=nvme0n1\nallow disk=nvme0n1", none), 2u) << "it is on no other";
}

TEST(Rules, DisksThatAreNotAllKnown)
{
	RuleQuery some = about();
	some.more_disks = true;
	EXPECT_EQ(decides("deny disk=nvme1n1", some), 1u) << "it may be on it";
	EXPECT_EQ(decides("deny disk=nvme0n1", some), 1u);
	EXPECT_EQ(decides("allow disk=nvme0n1", some), 0u) << "it may be on another";
	EXPECT_EQ(decides("allow disk=nvme1n1", some), 0u);
	some.disks->clear();
	EXPECT_EQ(decides("deny disk=04:00.0", some), 1u);
	EXPECT_EQ(decides("allow disk=nvme0n1", some), 0u);
}

TEST(Rules, WhatCouldNotBeFoundOutSpeaksAgainstTheProcess)
{
	for (const char *condition : {"file=/srv", "cgroup=/a", "provider=10de:2336"}) {
		const RuleQuery dark = {{gpu, {}}, "", "", {{{"nvme0n1", drive}}}};
		EXPECT_EQ(decides(std::string("deny ") + condition, dark), 1u) << condition;
		EXPECT_EQ(decides(std::string("allow ") + condition, dark), 0u) << condition;
	}
}

TEST(Rules, BeforeThereIsAFileItMayStillBeAllowed)
{
	EXPECT_EQ(decides("allow file=/other\ndeny", early()), 1u);
	EXPECT_EQ(decides("allow disk=nvme7n1\ndeny", early()), 1u);
	EXPECT_EQ(decides("deny file=/srv\ndeny disk=nvme0n1", early()), 0u);
	EXPECT_EQ(decides("allow file=/srv cgroup=/two\ndeny", early()), 2u);
}

namespace
{

const char *const path = peerdma_impl::rules_path;

// Two providers of 1 MiB, 1 at 0000:01:00.0 and 2 at 0000:02:00.0; in the fake both are 1af4:1110.
class Ruled : public ::testing::Test
{
protected:
	Ruled()
	{
		sys.add_function("0000:01:00.0", 1 << 20, "peerdma");
		sys.add_function("0000:02:00.0", 1 << 20, "peerdma");
		sys.add_provider(0, 0x0100, 2, 0, 1 << 20);
		sys.add_provider(0, 0x0200, 2, 0, 1 << 20);
		sys.files["/proc/self/cgroup"] = "1:name=old:/elsewhere\n0::/one/two\n";
		sys.contents["/srv/f"].bytes = std::string(8192, 'f');
		sys.contents["/tmp/f"].bytes = std::string(8192, 'f');
	}
	~Ruled() override { close(); }

	void close()
	{
		peerdma_buf_destroy(buf);
		peerdma_file_close(file);
		peerdma_close(device);
		buf = nullptr;
		file = nullptr;
		device = nullptr;
		EXPECT_TRUE(sys.fds.empty()) << "a descriptor leaked";
		EXPECT_TRUE(sys.buffers.empty()) << "a buffer leaked";
	}
	int open_by(const std::string &rules, uint32_t flags = 0)
	{
		close();
		sys.files[path] = rules;
		return peerdma_open(&device, flags);
	}
	int create(uint32_t provider = 1) { return peerdma_buf_create(device, provider, 8192, 0, &buf, &reason); }
	std::string found(const char *name = "")
	{
		auto info = peerdma::detail::sized<peerdma_provider_info>();
		const int rc = peerdma_provider_find(device, name, &info);
		return rc ? strerrorname_np(-rc) : std::to_string(info.id);
	}

	FakeSyscalls sys;
	struct peerdma_device *device = nullptr;
	struct peerdma_file *file = nullptr;
	struct peerdma_buf *buf = nullptr;
	uint32_t reason = 99;
};

constexpr uint32_t by_rule = PEERDMA_REASON_RULE;

} // namespace

TEST_F(Ruled, WithoutRulesNothingIsAsked)
{
	ASSERT_EQ(peerdma_open(&device, 0), 0);
	EXPECT_EQ(create(), 0);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDONLY, &file), 0);
	sys.can_see_fds = false;
	unsigned asked = 0;
	sys.on_ioctl = [&](unsigned long request, void *) {
		asked += request != PEERDMA_READ;
		return 1;
	};
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
	EXPECT_EQ(asked, 0u);
	sys.on_ioctl = nullptr;
}

TEST_F(Ruled, AFaultOpensNothing)
{
	EXPECT_EQ(open_by("deny nothing"), -EBADMSG);
	EXPECT_EQ(device, nullptr);
	sys.node_error = -ENOENT;
	EXPECT_EQ(open_by("deny nothing"), -ENOENT) << "what is missing first";
}

TEST_F(Ruled, MemoryOfADeniedProvider)
{
	ASSERT_EQ(open_by("deny provider=01:00.0 cgroup=/one"), 0);
	EXPECT_EQ(create(), -EACCES);
	EXPECT_EQ(reason, by_rule);
	EXPECT_EQ(buf, nullptr);
	EXPECT_TRUE(sys.buffers.empty());
	EXPECT_EQ(create(2), 0);
	EXPECT_EQ(reason, 0u);
	ASSERT_EQ(open_by("deny provider=01:00.0 cgroup=/three\nallow provider=1af4:1110\ndeny"), 0);
	EXPECT_EQ(create(), 0);
	EXPECT_EQ(peerdma_buf_create(device, 77, 8192, 0, &buf, &reason), -ENOENT) << "no provider is no denial";
}

TEST_F(Ruled, RegisteredMemoryOfADeniedProviderIsGivenBack)
{
	ASSERT_EQ(open_by("deny provider=01:00.0"), 0);
	EXPECT_EQ(peerdma_buf_from_gpu(device, 0x10de, 0, 65536, 0, &buf, &reason), -EACCES);
	EXPECT_EQ(reason, by_rule);
	EXPECT_TRUE(sys.buffers.empty());
	reason = 0;
	EXPECT_EQ(peerdma_buf_from_dmabuf(device, 77, 0, 65536, 0, 0x300, 0, &buf, &reason), -EACCES);
	EXPECT_EQ(reason, by_rule);
	EXPECT_EQ(buf, nullptr);
	EXPECT_TRUE(sys.buffers.empty());
}

TEST_F(Ruled, FilesThatAreDenied)
{
	// Fallback is enabled, but does not bypass the rule.
	ASSERT_EQ(open_by("deny file=/srv provider=01:00.0"), 0);
	ASSERT_EQ(create(), 0);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDWR, &file), 0);
	auto result = peerdma::detail::sized<peerdma_io_result>();
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 4096, 0, &result), -EACCES);
	EXPECT_EQ(result.reason, by_rule);
	EXPECT_EQ(result.error, static_cast<uint32_t>(EACCES));
	EXPECT_EQ(peerdma_write(file, buf, 0, 4096, 0), -EACCES);
	EXPECT_TRUE(sys.ios.empty());
	EXPECT_TRUE(sys.posix_fds.empty());
	struct peerdma_ring *ring = nullptr;
	ASSERT_EQ(peerdma_ring_create(device, 1, 1, 0, &ring), 0);
	struct peerdma_op op = {};
	op.kind = PEERDMA_OP_READ;
	op.file = file;
	op.buf = buf;
	op.len = 4096;
	EXPECT_EQ(peerdma_ring_queue(ring, &op, 1), -EACCES);
	peerdma_ring_destroy(ring);

	auto why = peerdma::detail::sized<peerdma_explanation>();
	ASSERT_EQ(peerdma_explain(file, 1, &why), 0);
	EXPECT_EQ(why.route, static_cast<uint32_t>(PEERDMA_ROUTE_NONE));
	EXPECT_EQ(why.reason, by_rule);
	EXPECT_EQ(why.error, static_cast<uint32_t>(EACCES));
	EXPECT_EQ(why.distance, 4) << "it would be as far";
	EXPECT_STREQ(why.refused_name, "/etc/peerdma/rules:1");
	ASSERT_EQ(peerdma_explain(file, 2, &why), 0);
	EXPECT_EQ(why.error, 0u) << "of another provider nothing is said";

	peerdma_file_close(file);
	ASSERT_EQ(peerdma_file_open(device, "/tmp/f", O_RDWR, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
}

TEST_F(Ruled, FilesWhoseDisksTheKernelDoesNotName)
{
	ASSERT_EQ(open_by("deny disk=nvme7n1"), 0);
	ASSERT_EQ(create(), 0);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDWR, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096) << "it is on another";
	peerdma_file_close(file);
	auto &content = sys.contents.at("/srv/f");
	content.refused_errno = EXDEV;
	for (const uint32_t why :
	     {PEERDMA_REASON_FILESYSTEM, PEERDMA_REASON_DM_TARGET, PEERDMA_REASON_MD_LEVEL, PEERDMA_REASON_STACKED}) {
		content.refused_reason = why;
		content.leaves = why == PEERDMA_REASON_FILESYSTEM ? 0 : 1;
		ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDWR, &file), 0);
		EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EACCES) << "reason " << why;
		peerdma_file_close(file);
	}
	content.refused_reason = PEERDMA_REASON_DISTANCE;
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDWR, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096) << "they are all known, and it falls back";
	peerdma_file_close(file);
	content.refused_errno = 0;
	content.refused_reason = 0;
	content.share = true;
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDWR, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
	ASSERT_EQ(open_by("deny disk=03:00.0"), 0);
	ASSERT_EQ(create(), 0);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDWR, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EACCES) << "a share's network card";
}

TEST_F(Ruled, OnlyFilesThatAreAllowed)
{
	ASSERT_EQ(open_by("allow file=/srv\ndeny"), 0);
	ASSERT_EQ(create(), 0) << "it may still be for an allowed file";
	ASSERT_EQ(peerdma_file_open(device, "/tmp/f", O_RDONLY, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EACCES);
	peerdma_file_close(file);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDONLY, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
	peerdma_file_close(file);
	sys.can_see_fds = false;
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDONLY, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EACCES) << "which file it is could not be found out";
}

TEST_F(Ruled, DisksBelowAFile)
{
	sys.contents["/srv/f"].leaves = 2;
	ASSERT_EQ(open_by("deny disk=nvme1n1"), 0);
	ASSERT_EQ(create(), 0);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDONLY, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EACCES);
	ASSERT_EQ(open_by("allow disk=03:00.0\ndeny"), 0);
	ASSERT_EQ(create(), 0);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDONLY, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EACCES) << "its second disk is not allowed";
	peerdma_file_close(file);
	ASSERT_EQ(peerdma_file_open(device, "/tmp/f", O_RDONLY, &file), 0);
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
	// If the kernel cannot be queried, its errno is returned and no decision is cached.
	peerdma_file_close(file);
	ASSERT_EQ(peerdma_file_open(device, "/tmp/f", O_RDONLY, &file), 0);
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_FILE_QUERY ? -ENODEV : 1; };
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -ENODEV);
	sys.on_ioctl = nullptr;
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
}

TEST_F(Ruled, AskedOncePerFileAndProvider)
{
	ASSERT_EQ(open_by("deny disk=nvme1n1"), 0);
	ASSERT_EQ(create(), 0);
	ASSERT_EQ(peerdma_file_open(device, "/srv/f", O_RDONLY, &file), 0);
	unsigned asked = 0;
	sys.on_ioctl = [&](unsigned long request, void *) {
		asked += request == PEERDMA_FILE_QUERY || request == PEERDMA_PROVIDER_QUERY;
		return 1;
	};
	for (int i = 0; i < 10; i++)
		EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
	EXPECT_EQ(asked, 2u);
	sys.on_ioctl = nullptr;
}

TEST_F(Ruled, WhichProviderIsTaken)
{
	ASSERT_EQ(open_by("allow"), 0);
	EXPECT_EQ(found(), "ENOTUNIQ");
	ASSERT_EQ(open_by("prefer provider=02:00.0"), 0);
	EXPECT_EQ(found(), "2");
	EXPECT_EQ(found("1"), "1") << "a name is a name";
	ASSERT_EQ(open_by("prefer provider=02:00.0 cgroup=/other\nprefer provider=01:00.0\nprefer"), 0);
	EXPECT_EQ(found(), "1");
	ASSERT_EQ(open_by("prefer provider=1af4:1110"), 0);
	EXPECT_EQ(found(), "ENOTUNIQ") << "both";
	ASSERT_EQ(open_by("deny provider=01:00.0"), 0);
	EXPECT_EQ(found(), "2") << "the other one is no choice";
	ASSERT_EQ(open_by("deny"), 0);
	EXPECT_EQ(found(), "ENOTUNIQ");
	sys.providers.erase(2);
	EXPECT_EQ(found(), "1") << "the only one; its denial is said when memory is wanted";
}

TEST_F(Ruled, PublishingWhatIsDenied)
{
	const std::string functions = "/sys/bus/pci/devices/";
	sys.add_function("0000:05:00.0", 1 << 20, "driver");
	sys.files[functions + "0000:05:00.0/vendor"] = "0x10de\n";
	sys.files[functions + "0000:05:00.0/device"] = "0x2336\n";
	auto args = peerdma::detail::sized<peerdma_publish_args>();
	args.pci_bdf = 0x0500;
	args.bar = PEERDMA_BAR_AUTO;
	args.flags = PEERDMA_PUBLISH_FORCE;
	ASSERT_EQ(open_by("allow provider=01:00.0\ndeny provider=10de:2336"), 0);
	EXPECT_EQ(peerdma_provider_publish(device, &args), -EACCES);
	EXPECT_EQ(args.out_reason, by_rule);
	EXPECT_STREQ(args.out_where, "/etc/peerdma/rules:2");
	EXPECT_EQ(sys.driver_of("0000:05:00.0"), "driver") << "it is left alone";
	EXPECT_TRUE(sys.writes.empty());
	ASSERT_EQ(open_by("deny provider=10de:2337"), 0);
	EXPECT_EQ(peerdma_provider_publish(device, &args), 0);
}
