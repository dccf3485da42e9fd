// SPDX-License-Identifier: MIT
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/pci.hpp"
#include "machine.hpp"

using peerdma_impl::PciAddress;

namespace
{

// An open handle of a machine whose provider is a PCI function.
class Library : public Machine
{
protected:
	Library()
	{
		sys.add_function("0000:01:00.0", 1 << 20, "peerdma");
		EXPECT_EQ(peerdma_open(&device, PEERDMA_OPEN_REQUIRE_DIRECT), 0);
	}

	void open(const std::string &bytes, uint64_t buf_len)
	{
		sys.contents["/f"].bytes = bytes;
		ASSERT_EQ(peerdma_file_open(device, "/f", O_RDWR, &file), 0);
		ASSERT_EQ(peerdma_buf_create(device, 1, buf_len, 0, &buf, nullptr), 0);
	}

	// `buf` has this length and can be mapped.
	void expect_usable(uint64_t len)
	{
		auto info = peerdma::detail::sized<peerdma_buf_info>();
		ASSERT_EQ(peerdma_buf_query(buf, &info), 0);
		EXPECT_EQ(info.len, len);
		EXPECT_EQ(info.provider_id, 1u);
		void *at = nullptr;
		EXPECT_EQ(peerdma_buf_map(buf, &at), 0);
	}

	peerdma_io_result result = peerdma::detail::sized<peerdma_io_result>();
};

std::string pattern(size_t n)
{
	std::string bytes(n, '\0');
	for (size_t i = 0; i < n; i++)
		bytes[i] = static_cast<char>(i * 31 + i / 509);
	return bytes;
}

} // namespace

// --- Opening ---

TEST(Open, SaysWhatTheNodeSays)
{
	for (int error : {ENOENT, EACCES, ENXIO, EMFILE}) {
		FakeSyscalls sys;
		sys.node_error = -error;
		struct peerdma_device *p = nullptr;
		errno = 7777;
		EXPECT_EQ(peerdma_open(&p, 0), -error);
		EXPECT_EQ(errno, 7777);
		EXPECT_EQ(p, nullptr);
	}
}

TEST(Open, TakesTheFirstProvidersNodeThatItMayOpen)
{
	for (const int error : {-ENOENT, -EACCES, -EPERM, -ENXIO}) {
		FakeSyscalls sys;
		sys.provider_nodes = {{"/dev/peerdma1", 0}, // not in the list
				      {"/dev/peerdma2", -EACCES},
				      {"/dev/peerdma3", 0},
				      {"/dev/peerdma10", 0}};
		for (const char *name :
		     {"peerdma2", "peerdma3", "peerdma10", "peerdma3x", "peerdma01", "peerdma", "null"})
			sys.files[std::string("/dev/") + name] = "";
		struct peerdma_device *p = nullptr;
		ASSERT_EQ(peerdma_open(&p, 0), 0);
		EXPECT_EQ(sys.opened_node, "/dev/peerdma") << "if that opens";
		peerdma_close(p);
		p = nullptr;
		sys.node_error = error;
		sys.opened_node.clear();
		EXPECT_EQ(peerdma_open(&p, 0), error == -ENXIO ? error : 0);
		EXPECT_EQ(sys.opened_node, error == -ENXIO ? "" : "/dev/peerdma3");
		peerdma_close(p);
		sys.provider_nodes["/dev/peerdma3"] = sys.provider_nodes["/dev/peerdma10"] = -EPERM;
		p = nullptr;
		EXPECT_EQ(peerdma_open(&p, 0), error) << "if none does";
		EXPECT_EQ(p, nullptr);
		EXPECT_TRUE(sys.fds.empty());
	}
}

TEST(Open, TheEnvironmentNamesANode)
{
	FakeSyscalls sys;
	sys.provider_nodes = {{"/dev/peerdma3", 0}, {"/dev/peerdma4", -EACCES}};
	sys.files["/dev/peerdma3"] = "";
	struct peerdma_device *p = nullptr;
	::setenv("PEERDMA_DEVICE", "/dev/peerdma3", 1);
	EXPECT_EQ(peerdma_open(&p, 0), 0);
	EXPECT_EQ(sys.opened_node, "/dev/peerdma3");
	peerdma_close(p);
	p = nullptr;
	::setenv("PEERDMA_DEVICE", "/dev/peerdma4", 1);
	EXPECT_EQ(peerdma_open(&p, 0), -EACCES) << "and no other is looked for";
	EXPECT_EQ(p, nullptr);
	::setenv("PEERDMA_DEVICE", "", 1);
	EXPECT_EQ(peerdma_open(&p, 0), 0);
	EXPECT_EQ(sys.opened_node, "/dev/peerdma") << "an empty one counts as not set";
	peerdma_close(p);
	::unsetenv("PEERDMA_DEVICE");
}

TEST(Open, RefusesAnotherAbiAndClosesTheNode)
{
	FakeSyscalls sys;
	sys.abi = PEERDMA_ABI_VERSION + 1;
	struct peerdma_device *p = nullptr;
	EXPECT_EQ(peerdma_open(&p, 0), -EPROTONOSUPPORT);
	EXPECT_EQ(p, nullptr);
	EXPECT_TRUE(sys.fds.empty());
}

TEST(Open, RefusesANodeThatIsNotOurs)
{
	FakeSyscalls sys;
	sys.on_ioctl = [](unsigned long, void *) { return -ENOTTY; };
	struct peerdma_device *p = nullptr;
	EXPECT_EQ(peerdma_open(&p, 0), -ENOTTY);
	EXPECT_TRUE(sys.fds.empty());
}

TEST(Open, RefusesUnknownFlagsAndNull)
{
	FakeSyscalls sys;
	struct peerdma_device *p = nullptr;
	EXPECT_EQ(peerdma_open(&p, 2), -EOPNOTSUPP);
	EXPECT_EQ(peerdma_open(nullptr, 0), -EINVAL);
}

TEST(Open, TheRealOneLeavesErrnoAlone)
{
	// Not a fake: this host may or may not have the module. errno must not change in either case.
	struct peerdma_device *p = nullptr;
	errno = 4242;
	const int rc = peerdma_open(&p, 0);
	EXPECT_EQ(errno, 4242);
	EXPECT_LE(rc, 0);
	peerdma_close(p);
}

// A descriptor with the number of a standard stream would be used by the program or its children.
TEST(KernelSyscalls, StandardStreamsThatAreClosedAreLeftAlone)
{
	const auto end = [] {
		close(0);
		const int fd = peerdma_impl::kernel_syscalls().open("/dev/null", O_RDWR | O_CLOEXEC);
		_exit(fd > 2 && fcntl(fd, F_GETFD) == FD_CLOEXEC && fcntl(0, F_GETFD) == -1 ? 0 : 1);
	};
	EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "");
}

TEST_F(Library, NullHandlesAreRefusedAndMayBeClosed)
{
	peerdma_close(nullptr);
	peerdma_buf_destroy(nullptr);
	peerdma_file_close(nullptr);
	auto info = peerdma::detail::sized<peerdma_device_info>();
	auto provider = peerdma::detail::sized<peerdma_provider_info>();
	auto why = peerdma::detail::sized<peerdma_explanation>();
	auto buffer = peerdma::detail::sized<peerdma_buf_info>();
	auto args = peerdma::detail::sized<peerdma_publish_args>();
	uint64_t size;
	EXPECT_EQ(peerdma_query(nullptr, &info), -EINVAL);
	EXPECT_EQ(peerdma_query(device, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_provider_list(nullptr, nullptr, 0), -EINVAL);
	EXPECT_EQ(peerdma_provider_list(device, nullptr, 1), -EINVAL);
	EXPECT_EQ(peerdma_provider_get(nullptr, 1, &provider), -EINVAL);
	EXPECT_EQ(peerdma_provider_find(nullptr, "", &provider), -EINVAL);
	EXPECT_EQ(peerdma_provider_publish(nullptr, &args), -EINVAL);
	EXPECT_EQ(peerdma_provider_publish(device, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_buf_create(nullptr, 1, 4096, 0, &buf, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_buf_create(device, 1, 4096, 0, nullptr, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_buf_query(nullptr, &buffer), -EINVAL);
	EXPECT_EQ(peerdma_file_open(nullptr, "/f", 0, &file), -EINVAL);
	EXPECT_EQ(peerdma_file_open(device, nullptr, 0, &file), -EINVAL);
	EXPECT_EQ(peerdma_file_from_fd(nullptr, 0, &file), -EINVAL);
	EXPECT_EQ(peerdma_file_size(nullptr, &size), -EINVAL);
	EXPECT_EQ(peerdma_explain(nullptr, 1, &why), -EINVAL);
	EXPECT_EQ(peerdma_read(nullptr, nullptr, 0, 512, 0), -EINVAL);
	EXPECT_EQ(peerdma_read_result(nullptr, nullptr, 0, 512, 0, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_fd(nullptr), -EINVAL);
	EXPECT_GE(peerdma_fd(device), 0);
}

// --- Structs that grow ---

TEST_F(Library, AShortStructIsRefused)
{
	auto info = peerdma::detail::sized<peerdma_device_info>();
	info.size -= 1;
	EXPECT_EQ(peerdma_query(device, &info), -EINVAL);
	auto provider = peerdma::detail::sized<peerdma_provider_info>();
	provider.size = 4;
	EXPECT_EQ(peerdma_provider_get(device, 1, &provider), -EINVAL);
	auto args = peerdma::detail::sized<peerdma_publish_args>();
	args.size = 0;
	EXPECT_EQ(peerdma_provider_publish(device, &args), -EINVAL);
}

TEST_F(Library, ALongerStructIsFilledWithZeros)
{
	struct {
		peerdma_device_info known;
		uint64_t later = UINT64_MAX;
	} info = {};
	info.known.size = sizeof(info);
	EXPECT_EQ(peerdma_query(device, &info.known), 0);
	EXPECT_EQ(info.known.page_size, 4096u);
	EXPECT_EQ(info.known.nproviders, 1u);
	EXPECT_EQ(info.known.size, sizeof(info));
	EXPECT_EQ(info.later, 0u);
}

TEST_F(Library, ALongerRequestMustNotAskForTheUnknown)
{
	struct {
		peerdma_publish_args known = peerdma::detail::sized<peerdma_publish_args>();
		uint64_t later = 0;
	} args;
	args.known.size = sizeof(args);
	args.known.pci_bdf = 0x0700;
	args.known.bar = PEERDMA_BAR_AUTO;
	args.later = 1;
	EXPECT_EQ(peerdma_provider_publish(device, &args.known), -E2BIG);
	args.later = 0;
	EXPECT_EQ(peerdma_provider_publish(device, &args.known), -ENODEV);
}

// --- Providers ---

TEST_F(Library, ListsProvidersWithGapsInTheirIds)
{
	sys.add_provider(0, 0x0200, 2, 0, 4096);
	sys.add_provider(1, 0x0100, 4, 8192, 4096);
	sys.providers.erase(2);
	uint32_t ids[4] = {};
	EXPECT_EQ(peerdma_provider_list(device, nullptr, 0), 2);
	EXPECT_EQ(peerdma_provider_list(device, ids, 1), 2);
	EXPECT_EQ(ids[0], 1u);
	EXPECT_EQ(ids[1], 0u);
	EXPECT_EQ(peerdma_provider_list(device, ids, 4), 2);
	EXPECT_EQ(ids[1], 3u);

	auto info = peerdma::detail::sized<peerdma_provider_info>();
	EXPECT_EQ(peerdma_provider_get(device, 2, &info), -ENOENT);
	ASSERT_EQ(peerdma_provider_get(device, 3, &info), 0);
	EXPECT_EQ(info.pci_domain, 1u);
	EXPECT_EQ(info.bar_offset, 8192u);
	EXPECT_EQ(info.numa_node, -1);
	EXPECT_EQ(info.pci_vendor, 0x1af4u);
}

TEST_F(Library, AnIdOfAllOnesEndsTheWalk)
{
	sys.providers[UINT32_MAX] = {0, 0x0200, 2, 0, 4096};
	EXPECT_EQ(peerdma_provider_list(device, nullptr, 0), 2);
}

TEST_F(Library, FindsProvidersByWhatAPersonTypes)
{
	auto info = peerdma::detail::sized<peerdma_provider_info>();
	for (const char *name : {"", "1", "0000:01:00.0", "01:00.0"}) {
		EXPECT_EQ(peerdma_provider_find(device, name, &info), 0) << name;
		EXPECT_EQ(info.id, 1u);
	}
	EXPECT_EQ(peerdma_provider_find(device, nullptr, &info), 0);
	EXPECT_EQ(peerdma_provider_find(device, "2", &info), -ENOENT);
	EXPECT_EQ(peerdma_provider_find(device, "01:00.1", &info), -ENOENT);
	for (const char *name :
	     {"gpu", "1x", "-1", "0x1", " 1", "01:00", "01:20.0", "01:00.8", "123:01:00.0.0", "4294967296"})
		EXPECT_EQ(peerdma_provider_find(device, name, &info), -EINVAL) << name;
	sys.add_provider(0, 0x0200, 2, 0, 4096);
	EXPECT_EQ(peerdma_provider_find(device, "", &info), -ENOTUNIQ);
	sys.providers.clear();
	EXPECT_EQ(peerdma_provider_find(device, "", &info), -ENOENT);
}

TEST_F(Library, AWalkReportsOtherErrors)
{
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_PROVIDER_QUERY ? -EIO : 1; };
	EXPECT_EQ(peerdma_provider_list(device, nullptr, 0), -EIO);
	auto info = peerdma::detail::sized<peerdma_provider_info>();
	EXPECT_EQ(peerdma_provider_find(device, "", &info), -EIO);
	EXPECT_EQ(peerdma_provider_get(device, 1, &info), -EIO);
}

// --- Buffers ---

TEST_F(Library, ABufferKnowsItsPlace)
{
	struct peerdma_buf *first = nullptr;
	uint32_t reason = 99;
	ASSERT_EQ(peerdma_buf_create(device, 1, 8192, 0, &first, &reason), 0);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	ASSERT_EQ(peerdma_buf_create(device, 1, 4096, 0, &buf, nullptr), 0);
	auto info = peerdma::detail::sized<peerdma_buf_info>();
	ASSERT_EQ(peerdma_buf_query(buf, &info), 0);
	EXPECT_EQ(info.bar_offset, 8192u);
	EXPECT_EQ(info.len, 4096u);
	EXPECT_EQ(info.provider_id, 1u);
	EXPECT_NE(info.buf_id, 0u);
	EXPECT_EQ(info.device_fd, peerdma_fd(device));
	peerdma_buf_destroy(first);
	EXPECT_EQ(sys.buffers.size(), 1u);
}

TEST_F(Library, MemoryOfAGpusDriverIsABuffer)
{
	constexpr uint64_t addr = 0x7f0000000000, frame = 65536;
	uint32_t reason = 99;
	ASSERT_EQ(peerdma_buf_from_gpu(device, 0x10de, addr, 2 * frame, 0, &buf, &reason), 0);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	expect_usable(2 * frame);
	struct peerdma_buf *none = nullptr;
	EXPECT_EQ(peerdma_buf_from_gpu(device, 0x10de, addr + 4096, frame, 0, &none, &reason), -EINVAL);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_ALIGN));
	EXPECT_EQ(peerdma_buf_from_gpu(device, 0x1002, addr, frame, 0, &none, &reason), -EOPNOTSUPP);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_MODULE));
	EXPECT_EQ(peerdma_buf_from_gpu(device, 0x10de, addr, frame, 1, &none, nullptr), -EOPNOTSUPP);
	EXPECT_EQ(peerdma_buf_from_gpu(device, 0x10de, addr, frame, 0, nullptr, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_buf_from_gpu(nullptr, 0x10de, addr, frame, 0, &none, nullptr), -EINVAL);
	// A module that is older than the library.
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_BUF_REGISTER ? -ENOTTY : 1; };
	EXPECT_EQ(peerdma_buf_from_gpu(device, 0x10de, addr, frame, 0, &none, &reason), -EOPNOTSUPP);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_MODULE));
	sys.on_ioctl = nullptr;
	EXPECT_EQ(none, nullptr);
}

TEST_F(Library, ARangeOfADmabufIsABuffer)
{
	constexpr uint64_t page = 4096, frame = 65536;
	constexpr uint32_t drive = 0x300;
	constexpr int fd = 77;
	uint32_t reason = 99;
	ASSERT_EQ(peerdma_buf_from_dmabuf(device, fd, page, 2 * frame, 0, drive, 0, &buf, &reason), 0);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	expect_usable(2 * frame);
	struct peerdma_buf *none = nullptr;
	EXPECT_EQ(peerdma_buf_from_dmabuf(device, -1, 0, frame, 0, drive, 0, &none, &reason), -EBADF);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	EXPECT_EQ(peerdma_buf_from_dmabuf(device, fd, 0, frame + page, 0, drive, 0, &none, &reason), -EINVAL);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_VENDOR_ALIGN));
	EXPECT_EQ(peerdma_buf_from_dmabuf(device, fd, 0, frame, 0, drive, 1, &none, nullptr), -EOPNOTSUPP);
	EXPECT_EQ(peerdma_buf_from_dmabuf(device, fd, 0, frame, 0, drive, 0, nullptr, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_buf_from_dmabuf(nullptr, fd, 0, frame, 0, drive, 0, &none, nullptr), -EINVAL);
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_BUF_IMPORT ? -ENOTTY : 1; };
	EXPECT_EQ(peerdma_buf_from_dmabuf(device, fd, 0, frame, 0, drive, 0, &none, &reason), -EOPNOTSUPP);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_IMPORT_UNABLE));
	sys.on_ioctl = nullptr;
	EXPECT_EQ(none, nullptr);
}

TEST_F(Library, ABufferThatCannotBeSaysWhy)
{
	struct peerdma_buf *none = nullptr;
	uint32_t reason = 99;
	EXPECT_EQ(peerdma_buf_create(device, 1, 4097, 0, &none, &reason), -EINVAL);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_PAGE_ALIGN));
	EXPECT_EQ(peerdma_buf_create(device, 1, 0, 0, &none, &reason), -EINVAL);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_LEN_ZERO));
	EXPECT_EQ(peerdma_buf_create(device, 1, 2 << 20, 0, &none, &reason), -ENOMEM);
	EXPECT_EQ(peerdma_buf_create(device, 7, 4096, 0, &none, &reason), -ENOENT);
	EXPECT_EQ(peerdma_buf_create(device, 1, 4096, 2, &none, &reason), -EOPNOTSUPP);
	// The module decides whether the caller may have memory that is not zeroed.
	uint32_t flags = 0;
	sys.on_ioctl = [&](unsigned long request, void *arg) {
		if (request != PEERDMA_BUF_ALLOC)
			return 1;
		flags = static_cast<peerdma_buf_alloc *>(arg)->flags;
		return -EPERM;
	};
	EXPECT_EQ(peerdma_buf_create(device, 1, 4096, PEERDMA_BUF_NO_ZERO, &none, &reason), -EPERM);
	EXPECT_EQ(flags, PEERDMA_BUF_NO_ZERO);
	sys.on_ioctl = [](unsigned long request, void *arg) {
		if (request != PEERDMA_BUF_ALLOC)
			return 1;
		static_cast<peerdma_buf_alloc *>(arg)->out_reason = PEERDMA_REASON_USER_LIMIT;
		return -EDQUOT;
	};
	EXPECT_EQ(peerdma_buf_create(device, 1, 4096, 0, &none, &reason), -EDQUOT);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_USER_LIMIT));
	sys.on_ioctl = nullptr;
	EXPECT_EQ(none, nullptr);
}

TEST_F(Library, AMappingLivesWithItsBuffer)
{
	struct peerdma_buf *first = nullptr;
	ASSERT_EQ(peerdma_buf_create(device, 1, 8192, 0, &first, nullptr), 0);
	ASSERT_EQ(peerdma_buf_create(device, 1, 4096, 0, &buf, nullptr), 0);
	void *one = nullptr, *two = nullptr, *again = nullptr;
	ASSERT_EQ(peerdma_buf_map(first, &one), 0);
	ASSERT_EQ(peerdma_buf_map(buf, &two), 0);
	ASSERT_EQ(peerdma_buf_map(buf, &again), 0);
	EXPECT_NE(one, two);
	EXPECT_EQ(two, again);
	EXPECT_EQ(sys.mappings.size(), 2u);
	static_cast<char *>(two)[4095] = 'x';
	EXPECT_EQ(sys.buffers.rbegin()->second.bytes[4095], 'x');
	// The buffer must be unmapped before it is destroyed: a mapping left behind would raise SIGBUS.
	sys.on_ioctl = [&](unsigned long request, void *) {
		if (request == PEERDMA_DESTROY) {
			EXPECT_EQ(sys.mappings.count(one), 0u);
		}
		return 1;
	};
	peerdma_buf_destroy(first);
	EXPECT_EQ(sys.mappings.size(), 1u);
}

TEST_F(Library, ABufferIsFoundByItsAddresses)
{
	open("x", 8192);
	void *addr = nullptr;
	struct peerdma_buf *found = nullptr;
	uint64_t off = 77;
	EXPECT_EQ(peerdma_buf_at(sys.contents["/f"].bytes.data(), &found, &off), -ENOENT) << "nothing is mapped";
	ASSERT_EQ(peerdma_buf_map(buf, &addr), 0);
	char *const start = static_cast<char *>(addr);
	EXPECT_EQ(peerdma_buf_at(start, &found, &off), 0);
	EXPECT_EQ(found, buf);
	EXPECT_EQ(off, 0u);
	EXPECT_EQ(peerdma_buf_at(start + 8191, &found, &off), 0);
	EXPECT_EQ(off, 8191u);
	EXPECT_EQ(peerdma_buf_at(start - 1, &found, &off), -ENOENT);
	EXPECT_EQ(peerdma_buf_at(start + 8192, &found, &off), -ENOENT);
	EXPECT_EQ(peerdma_buf_at(nullptr, &found, &off), -ENOENT);
	EXPECT_EQ(peerdma_buf_at(start, nullptr, &off), -EINVAL);
	EXPECT_EQ(peerdma_buf_at(start, &found, nullptr), -EINVAL);
	peerdma_buf_destroy(buf);
	buf = nullptr;
	EXPECT_EQ(peerdma_buf_at(start, &found, &off), -ENOENT) << "it is gone";
}

TEST_F(Library, AFileForABufferIsOfItsDevice)
{
	open("0123456789", 4096);
	peerdma_device *other = nullptr;
	ASSERT_EQ(peerdma_open(&other, 0), 0);
	const int fd = sys.open("/f", O_RDONLY);
	peerdma_file *strange = nullptr, *its = nullptr;
	ASSERT_EQ(peerdma_file_from_fd(other, fd, &strange), 0);
	ASSERT_EQ(peerdma_file_for_buf(buf, fd, &its), 0);
	EXPECT_EQ(peerdma_file_for_buf(nullptr, fd, &its), -EINVAL);
	EXPECT_EQ(peerdma_file_for_buf(buf, 9999, &its), -EBADF);
	sys.close(fd);
	EXPECT_EQ(peerdma_read(strange, buf, 0, 10, 0), -ENOENT);
	EXPECT_EQ(peerdma_read(its, buf, 0, 10, 0), 10);
	peerdma_file_close(its);
	peerdma_file_close(strange);
	peerdma_close(other);
}

TEST_F(Library, APieceIsExported)
{
	int fd = -1;
	uint32_t reason = 99;
	open("", 64 << 10);
	ASSERT_EQ(peerdma_buf_export_dmabuf(buf, 4096, 8192, &fd, &reason), 0);
	EXPECT_EQ(sys.fds.at(fd), "dmabuf:" + std::to_string(sys.buffers.begin()->first) + ":4096:8192");
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
	sys.close(fd);
	fd = -7;
	EXPECT_EQ(peerdma_buf_export_dmabuf(buf, 0, 1 << 30, &fd, &reason), -EINVAL);
	EXPECT_EQ(reason, static_cast<uint32_t>(PEERDMA_REASON_BUF_RANGE));
	EXPECT_EQ(fd, -7) << "it is written on success only";
	EXPECT_EQ(peerdma_buf_export_dmabuf(buf, 0, 4096, nullptr, &reason), -EINVAL);
	EXPECT_EQ(peerdma_buf_export_dmabuf(nullptr, 0, 4096, &fd, nullptr), -EINVAL);
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_BUF_EXPORT ? -ENOTTY : 1; };
	EXPECT_EQ(peerdma_buf_export_dmabuf(buf, 0, 4096, &fd, nullptr), -EOPNOTSUPP) << "a module from before it";
	sys.on_ioctl = nullptr;
}

TEST_F(Library, AMappingOnDemandIsItsOwnAndOfAPiece)
{
	void *addr = nullptr;
	ASSERT_EQ(peerdma_buf_create(device, 1, 64 << 10, 0, &buf, nullptr), 0);
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 0, 4096, &addr), -EOPNOTSUPP) << "the module does not offer it";
	sys.features |= PEERDMA_FEATURE_ON_DEMAND;
	ASSERT_EQ(peerdma_buf_map_on_demand(buf, 8192, 5000, &addr), 0);
	EXPECT_EQ(sys.mappings.at(addr), 5000u);
	peerdma_buf_destroy(buf);
	buf = nullptr;
	EXPECT_EQ(sys.mappings.size(), 1u) << "it stays when the buffer goes";
	sys.mappings.clear();

	ASSERT_EQ(peerdma_buf_create(device, 1, 64 << 10, 0, &buf, nullptr), 0);
	addr = nullptr;
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 100, 4096, &addr), -EINVAL) << "inside a page";
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 0, 0, &addr), -EINVAL);
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 0, (64 << 10) + 1, &addr), -EINVAL);
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, UINT64_MAX, 2, &addr), -EINVAL);
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 0, 4096, nullptr), -EINVAL);
	EXPECT_EQ(peerdma_buf_map_on_demand(nullptr, 0, 4096, &addr), -EINVAL);
	sys.mmap_error = -ENODEV;
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 0, 4096, &addr), -ENODEV);
	sys.mmap_error = 0;
	sys.on_ioctl = [](unsigned long request, void *) { return request == PEERDMA_INFO ? -EFAULT : 1; };
	EXPECT_EQ(peerdma_buf_map_on_demand(buf, 0, 4096, &addr), -EFAULT);
	sys.on_ioctl = nullptr;
	EXPECT_EQ(addr, nullptr) << "it is written on success only";
}

TEST_F(Library, AMappingThatCannotBe)
{
	ASSERT_EQ(peerdma_buf_create(device, 1, 4096, 0, &buf, nullptr), 0);
	void *addr = nullptr;
	EXPECT_EQ(peerdma_buf_map(nullptr, &addr), -EINVAL);
	EXPECT_EQ(peerdma_buf_map(buf, nullptr), -EINVAL);
	sys.mmap_error = -ENODEV;
	EXPECT_EQ(peerdma_buf_map(buf, &addr), -ENODEV);
	EXPECT_EQ(addr, nullptr);
	sys.mmap_error = 0;
	EXPECT_EQ(peerdma_buf_map(buf, &addr), 0);
	struct peerdma_buf *old = nullptr;
	sys.can_map = false;
	ASSERT_EQ(peerdma_buf_create(device, 1, 4096, 0, &old, nullptr), 0);
	EXPECT_EQ(peerdma_buf_map(old, &addr), -EOPNOTSUPP);
	peerdma_buf_destroy(old);
}

TEST_F(Library, HandlesMayBeClosedInAnyOrder)
{
	open(pattern(4096), 4096);
	peerdma_close(device);
	device = nullptr;
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), 4096);
	peerdma_file_close(file);
	file = nullptr;
	EXPECT_EQ(sys.fds.size(), 1u) << "the buffer needs the node";
}

// --- Files ---

TEST_F(Library, AFileFromADescriptorLeavesTheCallersOpen)
{
	sys.contents["/f"].bytes = pattern(512);
	const int fd = sys.open("/f", O_RDONLY);
	ASSERT_EQ(peerdma_file_from_fd(device, fd, &file), 0);
	peerdma_file_close(file);
	file = nullptr;
	EXPECT_EQ(sys.close(fd), 0);
	EXPECT_EQ(peerdma_file_from_fd(device, fd, &file), -EBADF);
	EXPECT_EQ(peerdma_file_from_fd(device, -1, &file), -EBADF);
}

TEST_F(Library, OpeningSaysWhatOpenSays)
{
	sys.contents["/secret"].open_error = -EACCES;
	EXPECT_EQ(peerdma_file_open(device, "/secret", O_RDONLY, &file), -EACCES);
	EXPECT_EQ(peerdma_file_open(device, "/none", O_RDONLY, &file), -ENOENT);
	EXPECT_EQ(peerdma_file_open(device, "/none", O_RDWR | O_CREAT, &file), -EINVAL);
	EXPECT_EQ(peerdma_file_open(device, "/tmp", O_RDWR | O_TMPFILE, &file), -EINVAL);
	EXPECT_EQ(file, nullptr);
}

// A file of a server that does not answer can be opened and explained; its size cannot be had.
TEST_F(Library, OpeningAsksNoServer)
{
	sys.contents["/far"] = {.bytes = pattern(512), .stat_error = -EIO};
	ASSERT_EQ(peerdma_file_open(device, "/far", O_RDONLY, &file), 0);
	uint64_t size = 5;
	EXPECT_EQ(peerdma_file_size(file, &size), -EIO);
	EXPECT_EQ(size, 5u);
}

TEST_F(Library, AFileThatCannotBeIdentifiedIsClosed)
{
	sys.contents["/f"] = {.bytes = pattern(512), .identity_error = -ESTALE};
	const size_t open = sys.fds.size();
	EXPECT_EQ(peerdma_file_open(device, "/f", O_RDONLY, &file), -ESTALE);
	EXPECT_EQ(sys.fds.size(), open);
	const int fd = sys.open("/f", O_RDONLY);
	EXPECT_EQ(peerdma_file_from_fd(device, fd, &file), -ESTALE);
	EXPECT_EQ(sys.fds.size(), open + 1);
	EXPECT_EQ(file, nullptr);
	sys.close(fd);
}

TEST_F(Library, SizesOfWhatHasOne)
{
	auto size_of = [&](uint32_t mode, uint64_t &size) {
		sys.contents["/x"] = {.bytes = pattern(1000), .mode = mode};
		struct peerdma_file *x = nullptr;
		EXPECT_EQ(peerdma_file_open(device, "/x", O_RDONLY, &x), 0);
		const int rc = peerdma_file_size(x, &size);
		peerdma_file_close(x);
		return rc;
	};
	uint64_t size = 5;
	EXPECT_EQ(size_of(S_IFDIR, size), -EISDIR);
	EXPECT_EQ(size_of(S_IFIFO, size), -ESPIPE);
	EXPECT_EQ(size_of(S_IFCHR, size), -ESPIPE);
	EXPECT_EQ(size_of(S_IFSOCK, size), -ESPIPE);
	EXPECT_EQ(size, 5u);
	EXPECT_EQ(size_of(S_IFBLK, size), 0);
	EXPECT_EQ(size, 1000u);
	EXPECT_EQ(size_of(S_IFREG, size), 0);
	EXPECT_EQ(size, 1000u);
}

// --- Fork ---

// Counts the kernel calls of a child, in memory shared by parent and child.
class Forked
{
public:
	explicit Forked(FakeSyscalls &sys)
		: asked_(static_cast<std::atomic<int> *>(
			  ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)))
	{
		sys.on_ioctl = [this](unsigned long, void *) {
			if (::getpid() != parent_)
				++*asked_;
			return 1;
		};
	}
	~Forked() { ::munmap(asked_, 4096); }
	Forked(const Forked &) = delete;
	Forked &operator=(const Forked &) = delete;

	int asked() const { return *asked_; }

	// Return: the result of the child's function, 0 for success; -1 if it was killed.
	template <class Child> static int run(Child &&child)
	{
		const pid_t pid = ::fork();
		if (!pid) {
			::alarm(20); // kills a child that waits for a lock of a parent's thread
			::_exit(child());
		}
		int status = -1;
		EXPECT_EQ(::waitpid(pid, &status, 0), pid);
		return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	}

private:
	const pid_t parent_ = ::getpid();
	std::atomic<int> *const asked_;
};

TEST_F(Library, AChildsCallsLeaveItsParentsObjectsAlone)
{
	open(pattern(8192), 8192);
	struct peerdma_ring *ring = nullptr;
	ASSERT_EQ(peerdma_ring_create(device, 4, 4, 0, &ring), 0);
	const peerdma_op op = {PEERDMA_OP_READ, 0, file, buf, 0, 512, 0, 1};
	ASSERT_EQ(peerdma_ring_queue(ring, &op, 1), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 1);
	void *addr = nullptr;
	ASSERT_EQ(peerdma_buf_map(buf, &addr), 0);
	const Forked forked(sys);
	const int wrong = Forked::run([&] {
		auto info = peerdma::detail::sized<peerdma_device_info>();
		auto provider = peerdma::detail::sized<peerdma_provider_info>();
		auto of_buf = peerdma::detail::sized<peerdma_buf_info>();
		auto why = peerdma::detail::sized<peerdma_explanation>();
		auto publish = peerdma::detail::sized<peerdma_publish_args>();
		auto pointer = peerdma::detail::sized<peerdma_pointer_args>();
		peerdma_seg seg = {0, 512, 0, 0};
		peerdma_done done;
		struct peerdma_buf *made = nullptr;
		struct peerdma_file *opened = nullptr;
		struct peerdma_ring *rings = nullptr;
		uint64_t number = 0;
		int fd = -1;
		const int64_t all[] = {
			peerdma_fd(device),
			peerdma_query(device, &info),
			peerdma_provider_list(device, nullptr, 0),
			peerdma_provider_get(device, 1, &provider),
			peerdma_provider_find(device, "", &provider),
			peerdma_provider_publish(device, &publish),
			peerdma_buf_create(device, 1, 4096, 0, &made, nullptr),
			peerdma_buf_from_gpu(device, 0x10de, 0, 65536, 0, &made, nullptr),
			peerdma_buf_from_dmabuf(device, 5, 0, 65536, 0, 0, 0, &made, nullptr),
			peerdma_buf_from_pointer(device, &pointer, &made),
			peerdma_buf_map(buf, &addr),
			peerdma_buf_map_on_demand(buf, 0, 4096, &addr),
			peerdma_buf_export_dmabuf(buf, 0, 4096, &fd, nullptr),
			peerdma_buf_query(buf, &of_buf),
			peerdma_file_open(device, "/f", O_RDONLY, &opened),
			peerdma_file_from_fd(device, 0, &opened),
			peerdma_file_for_buf(buf, 0, &opened),
			peerdma_file_size(file, &number),
			peerdma_explain(file, 1, &why),
			peerdma_read(file, buf, 0, 512, 0),
			peerdma_write(file, buf, 0, 512, 0),
			peerdma_read_result(file, buf, 0, 512, 0, &result),
			peerdma_write_result(file, buf, 0, 512, 0, &result),
			peerdma_readv(file, buf, &seg, 1),
			peerdma_writev(file, buf, &seg, 1),
			peerdma_ring_create(device, 1, 1, 0, &rings),
			peerdma_ring_queue(ring, &op, 1),
			peerdma_ring_submit(ring),
			peerdma_ring_wait(ring, &done, 1, 1, -1),
			peerdma_ring_cancel(ring, 1),
		};
		size_t refused = 0;
		for (const int64_t rc : all)
			refused += rc == -ECHILD;
		struct peerdma_buf *found = nullptr;
		const bool unknown = peerdma_buf_at(addr, &found, &number) == -ENOENT;
		return refused == std::size(all) ? unknown ? 0 : 100 : static_cast<int>(refused) + 1;
	});
	EXPECT_EQ(wrong, 0) << "the number of calls that were refused, and one";
	EXPECT_EQ(forked.asked(), 0) << "a child asked the kernel on its parent's open file";
	// The parent's handles still work.
	peerdma_done done;
	ASSERT_EQ(peerdma_ring_wait(ring, &done, 1, 1, -1), 1);
	EXPECT_EQ(done.result, 512);
	EXPECT_EQ(peerdma_read(file, buf, 0, 8192, 0), 8192);
	struct peerdma_buf *found = nullptr;
	uint64_t off = 0;
	EXPECT_EQ(peerdma_buf_at(addr, &found, &off), 0);
	peerdma_ring_destroy(ring);
	sys.on_ioctl = nullptr;
}

TEST_F(Library, AChildThatEndsDestroysNothingOfItsParents)
{
	sys.contents["/f"].bytes = pattern(8192);
	auto owner = peerdma::Device::open();
	ASSERT_TRUE(owner);
	std::optional<peerdma::Buffer> buffer(std::move(*owner->create_buffer(1, 8192)));
	std::optional<peerdma::File> of(std::move(*owner->open_file("/f", O_RDWR)));
	struct peerdma_ring *ring = nullptr;
	ASSERT_EQ(peerdma_ring_create(owner->get(), 4, 8, PEERDMA_RING_VECTORS, &ring), 0);
	ASSERT_TRUE(buffer->map());
	// Two requests in one command, which is under way.
	for (uint64_t tag = 0; tag < 2; tag++) {
		const peerdma_op op = {PEERDMA_OP_READ, 0, of->get(), buffer->get(), tag * 512, 512, tag * 512, tag};
		ASSERT_EQ(peerdma_ring_queue(ring, &op, 1), 1);
	}
	ASSERT_EQ(peerdma_ring_submit(ring), 1);
	const Forked forked(sys);
	const int left = Forked::run([&] {
		sys.hold = true; // destructors may run in any order
		peerdma_ring_destroy(ring);
		buffer.reset();
		of.reset();
		{
			const auto gone = std::move(*owner);
		}
		const bool closed = sys.fds.size() == 1 && sys.queues == 0 && sys.mappings.empty();
		return closed ? 0 : static_cast<int>(sys.fds.size()) + 10;
	});
	EXPECT_EQ(left, 0) << "the child keeps descriptors, a queue or a mapping";
	EXPECT_EQ(forked.asked(), 0) << "a destructor in the child asked the kernel to destroy";
	peerdma_done done[2];
	EXPECT_EQ(peerdma_ring_wait(ring, done, 2, 2, -1), 2);
	EXPECT_EQ(sys.buffers.begin()->second.bytes.substr(0, 1024), pattern(8192).substr(0, 1024));
	peerdma_ring_destroy(ring);
	sys.on_ioctl = nullptr;
}

TEST_F(Library, AChildHasHandlesOfItsOwnAndItsChildDoesNot)
{
	const int wrong = Forked::run([&] {
		struct peerdma_device *own = nullptr;
		struct peerdma_buf *mine = nullptr;
		void *addr = nullptr;
		uint64_t off = 0;
		if (peerdma_open(&own, 0) || peerdma_buf_create(own, 1, 4096, 0, &mine, nullptr) ||
		    peerdma_buf_map(mine, &addr))
			return 1;
		struct peerdma_buf *found = nullptr;
		if (peerdma_buf_at(addr, &found, &off) || found != mine)
			return 2;
		const int grandchild = Forked::run([&] {
			return peerdma_fd(own) == -ECHILD && peerdma_fd(device) == -ECHILD &&
					       peerdma_buf_at(addr, &found, &off) == -ENOENT ?
				       0 :
				       3;
		});
		if (grandchild)
			return grandchild;
		peerdma_buf_destroy(mine);
		peerdma_close(own);
		return sys.buffers.empty() ? 0 : 4;
	});
	EXPECT_EQ(wrong, 0);
	EXPECT_GE(peerdma_fd(device), 0);
}

TEST_F(Library, AChildDoesNotWaitForALockOfItsParents)
{
	open(pattern(8192), 8192);
	struct peerdma_ring *ring = nullptr;
	ASSERT_EQ(peerdma_ring_create(device, 1, 1, 0, &ring), 0);
	const peerdma_op op = {PEERDMA_OP_READ, 0, file, buf, 0, 512, 0, 1};
	ASSERT_EQ(peerdma_ring_queue(ring, &op, 1), 1);
	ASSERT_EQ(peerdma_ring_submit(ring), 1);
	sys.hold = true;
	sys.sleeps = 1;
	std::thread waiter([&] {
		peerdma_done done;
		EXPECT_EQ(peerdma_ring_wait(ring, &done, 1, 1, -1), -EDEADLK);
	});
	while (sys.sleeps)
		std::this_thread::yield();
	EXPECT_EQ(Forked::run([&] {
			  const int rc = peerdma_ring_submit(ring);
			  peerdma_ring_destroy(ring);
			  return rc == -ECHILD ? 0 : 1;
		  }),
		  0);
	waiter.join();
	sys.hold = false;
	peerdma_ring_destroy(ring);
}

// --- Reading and writing ---

TEST_F(Library, AWholeReadIsOneCall)
{
	open(pattern(8192), 8192);
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 8192, 0, &result), 8192);
	EXPECT_EQ(sys.ios.size(), 1u);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT));
	EXPECT_EQ(result.direct, 8192u);
	EXPECT_EQ(result.near + result.host, 0u);
	EXPECT_EQ(result.error, 0u);
	EXPECT_EQ(sys.buffers.begin()->second.bytes, pattern(8192));
}

TEST_F(Library, AReadThatEndsInsideABlockIsNotAskedForMore)
{
	open(pattern(5000), 8192);
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 8192, 0, &result), 5000);
	EXPECT_EQ(sys.ios.size(), 1u);
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT_EDGES));
	EXPECT_EQ(result.near, 5000u % 512);
	EXPECT_EQ(result.done, 5000u);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_END_OF_FILE));
}

TEST_F(Library, WhyBytesWereBouncedIsSaidAfterASuccessToo)
{
	open(pattern(30000), 32768);
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 4096, 100, &result), 4096);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_FILE_ALIGN));
	EXPECT_EQ(result.error, 0u);
	sys.on_ioctl = [&](unsigned long request, void *arg) {
		if (request == PEERDMA_READ) // all requests but the first are aligned
			sys.io_limit = 8192 - static_cast<peerdma_io *>(arg)->file_off % 512;
		return 1;
	};
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 16284, 100, &result), 16284);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_FILE_ALIGN));
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 32000, 100, &result), 29900);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_END_OF_FILE)) << "it is short";
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 4096, 0, &result), 4096);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_NONE));
}

TEST_F(Library, AReadThatEndsAtABlockIsNotAskedForMore)
{
	open(pattern(5120), 8192);
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 8192, 0, &result), 5120);
	EXPECT_EQ(sys.ios.size(), 1u) << "the kernel has said that it is the end";
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_END_OF_FILE));
	EXPECT_EQ(result.error, 0u);
}

TEST_F(Library, AShortReadInTheMiddleGoesOn)
{
	open(pattern(50000), 65536);
	sys.io_limit = 8192;
	EXPECT_EQ(peerdma_read_result(file, buf, 4096, 53248, 0, &result), 50000);
	EXPECT_EQ(sys.ios.size(), 7u);
	for (size_t i = 0; i < sys.ios.size(); i++) {
		EXPECT_EQ(sys.ios[i].file_off, i * 8192);
		EXPECT_EQ(sys.ios[i].buf_off, 4096 + i * 8192);
		EXPECT_EQ(sys.ios[i].len, 53248 - i * 8192);
	}
	EXPECT_EQ(sys.buffers.begin()->second.bytes.substr(4096, 50000), pattern(50000));
	EXPECT_EQ(result.direct + result.near, 50000u);
}

TEST_F(Library, AtTheEndOfTheFileNothingIsRead)
{
	open(pattern(512), 4096);
	EXPECT_EQ(peerdma_read_result(file, buf, 0, 512, 512, &result), 0);
	EXPECT_EQ(result.reason, static_cast<uint32_t>(PEERDMA_REASON_END_OF_FILE));
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_NONE));
	EXPECT_EQ(sys.ios.size(), 1u);
}

TEST_F(Library, AReadThatAnErrorEndsIsNoShortOne)
{
	open(pattern(16384), 16384);
	// At the end of a block, and inside of one: a server may stop anywhere.
	for (const uint64_t moved : {8192, 1000}) {
		sys.ios.clear();
		sys.io_limit = moved;
		sys.io_error = -EIO;
		sys.io_good = 1;
		EXPECT_EQ(peerdma_read_result(file, buf, 0, 16384, 0, &result), -EIO);
		EXPECT_EQ(result.error, static_cast<uint32_t>(EIO));
		EXPECT_EQ(result.done, moved) << "what came before is said";
		sys.ios.clear();
		EXPECT_EQ(peerdma_read(file, buf, 0, 16384, 0), -EIO);
		sys.ios.clear();
		peerdma_seg seg = {0, 16384, 0, 0};
		EXPECT_EQ(peerdma_readv(file, buf, &seg, 1), 0);
		EXPECT_EQ(seg.result, -EIO);
	}
	sys.io_error = 0;
	sys.io_limit = 1000;
	EXPECT_EQ(peerdma_read(file, buf, 0, 16384, 0), 16384);
	EXPECT_EQ(sys.buffers.begin()->second.bytes, pattern(16384));
}

TEST_F(Library, AShortWriteMeansThatThereIsNoRoom)
{
	open("", 16384);
	sys.io_limit = 8192;
	sys.io_good = 1;
	for (const int error : {ENOSPC, EDQUOT, EFBIG, EIO, ENODEV}) {
		sys.ios.clear();
		sys.io_error = -error;
		const bool no_room = error != EIO && error != ENODEV;
		EXPECT_EQ(peerdma_write_result(file, buf, 0, 16384, 0, &result), no_room ? 8192 : -error);
		EXPECT_EQ(result.error, static_cast<uint32_t>(error));
		EXPECT_EQ(result.done, 8192u);
		// If no bytes were moved before it, the error is the result.
		sys.ios.resize(1);
		EXPECT_EQ(peerdma_write(file, buf, 0, 16384, 8192), -error);
	}
}

TEST_F(Library, AWriteEndsAtTheLimitOfTheProcess)
{
	open("", 16384);
	rlimit old = {};
	ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
	const rlimit limit = {1 << 20, old.rlim_max};
	sys.io_limit = 8192; // the kernel's limit for one call
	ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
	const int64_t n = peerdma_write(file, buf, 0, 16384, (1 << 20) - 8192);
	ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
	EXPECT_EQ(n, 8192);
	EXPECT_EQ(sys.ios.size(), 1u) << "the next one would be SIGXFSZ";
}

TEST_F(Library, RefusalsKeepTheirErrnoAndReason)
{
	open(pattern(4096), 4096);
	const std::pair<uint32_t, uint32_t> cases[] = {
		{EXDEV, PEERDMA_REASON_DISTANCE}, {EISDIR, PEERDMA_REASON_FILE_TYPE}, {ENODEV, PEERDMA_REASON_REVOKED},
		{EBADF, PEERDMA_REASON_FD_MODE},  {ESPIPE, PEERDMA_REASON_FILE_TYPE},
	};
	for (auto [error, reason] : cases) {
		sys.contents["/f"].refused_errno = error;
		sys.contents["/f"].refused_reason = reason;
		errno = 31337;
		EXPECT_EQ(peerdma_read_result(file, buf, 0, 4096, 0, &result), -static_cast<int64_t>(error));
		EXPECT_EQ(errno, 31337);
		EXPECT_EQ(result.error, error);
		EXPECT_EQ(result.reason, reason);
		EXPECT_EQ(result.done, 0u);
		EXPECT_EQ(peerdma_write(file, buf, 0, 4096, 0), -static_cast<int64_t>(error));
	}
}

TEST_F(Library, WrongNumbersAreNamed)
{
	open(pattern(4096), 4096);
	const struct {
		uint64_t buf_off, len, file_off;
		uint32_t reason;
	} cases[] = {
		{0, 0, 0, PEERDMA_REASON_LEN_ZERO},          {0, 8192, 0, PEERDMA_REASON_BUF_RANGE},
		{4096, 512, 0, PEERDMA_REASON_BUF_RANGE},    {0, uint64_t(1) << 63, 0, PEERDMA_REASON_OVERFLOW},
		{0, UINT64_MAX, 0, PEERDMA_REASON_OVERFLOW},
	};
	for (const auto &c : cases) {
		EXPECT_EQ(peerdma_read_result(file, buf, c.buf_off, c.len, c.file_off, &result), -EINVAL);
		EXPECT_EQ(result.reason, c.reason);
		EXPECT_EQ(result.error, static_cast<uint32_t>(EINVAL));
	}
}

TEST_F(Library, AKernelThatClaimsTooMuchIsNotBelieved)
{
	open(pattern(4096), 4096);
	sys.on_ioctl = [&](unsigned long request, void *arg) {
		if (request != PEERDMA_READ)
			return 1;
		static_cast<peerdma_io *>(arg)->out_done = 1 << 20;
		return 0;
	};
	EXPECT_EQ(peerdma_read(file, buf, 0, 4096, 0), -EIO);
}

TEST_F(Library, ABufferOfAnotherHandleIsRefused)
{
	open(pattern(4096), 4096);
	struct peerdma_device *other = nullptr;
	struct peerdma_buf *foreign = nullptr;
	ASSERT_EQ(peerdma_open(&other, 0), 0);
	ASSERT_EQ(peerdma_buf_create(other, 1, 4096, 0, &foreign, nullptr), 0);
	EXPECT_EQ(peerdma_read(file, foreign, 0, 4096, 0), -ENOENT);
	EXPECT_TRUE(sys.ios.empty());
	peerdma_buf_destroy(foreign);
	peerdma_close(other);
}

TEST_F(Library, Writes)
{
	open("", 8192);
	sys.buffers.begin()->second.bytes = pattern(8192);
	sys.io_limit = 4096;
	EXPECT_EQ(peerdma_write_result(file, buf, 0, 8192, 0, &result), 8192);
	EXPECT_EQ(sys.contents["/f"].bytes, pattern(8192));
	EXPECT_EQ(result.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT));
}

TEST_F(Library, RoutesFollowFromTheCounts)
{
	open(pattern(4096), 4096);
	const struct {
		uint64_t direct, near, host;
		uint32_t route;
	} cases[] = {
		{512, 0, 0, PEERDMA_ROUTE_DIRECT},         {512, 512, 0, PEERDMA_ROUTE_DIRECT_EDGES},
		{512, 0, 512, PEERDMA_ROUTE_DIRECT_EDGES}, {0, 512, 0, PEERDMA_ROUTE_NEAR},
		{0, 0, 512, PEERDMA_ROUTE_HOST},           {0, 256, 256, PEERDMA_ROUTE_HOST},
	};
	for (const auto &c : cases) {
		sys.on_ioctl = [&](unsigned long request, void *arg) {
			if (request != PEERDMA_READ)
				return 1;
			auto &io = *static_cast<peerdma_io *>(arg);
			io.out_done = c.direct + c.near + c.host;
			io.out_direct = c.direct;
			io.out_near = c.near;
			io.out_host = c.host;
			return 0;
		};
		EXPECT_EQ(peerdma_read_result(file, buf, 0, c.direct + c.near + c.host, 0, &result),
			  static_cast<int64_t>(c.direct + c.near + c.host));
		EXPECT_EQ(result.route, c.route);
	}
}

// --- Explain ---

TEST_F(Library, ExplainsBothAnswers)
{
	open(pattern(512), 4096);
	auto why = peerdma::detail::sized<peerdma_explanation>();
	ASSERT_EQ(peerdma_explain(file, 1, &why), 0);
	EXPECT_EQ(why.route, static_cast<uint32_t>(PEERDMA_ROUTE_DIRECT));
	EXPECT_EQ(why.error, 0u);
	EXPECT_EQ(why.map, static_cast<uint32_t>(PEERDMA_MAP_BUS_ADDR));
	EXPECT_EQ(why.distance, 4);
	EXPECT_EQ(why.leaf_bdf, 0x0300u);
	EXPECT_STREQ(why.leaf_name, "nvme0n1");
	EXPECT_STREQ(why.fs_name, "ext4");
	sys.contents["/f"].refused_errno = EXDEV;
	sys.contents["/f"].refused_reason = PEERDMA_REASON_QUEUE;
	ASSERT_EQ(peerdma_explain(file, 1, &why), 0);
	EXPECT_EQ(why.route, static_cast<uint32_t>(PEERDMA_ROUTE_NONE));
	EXPECT_EQ(why.error, static_cast<uint32_t>(EXDEV));
	EXPECT_EQ(why.reason, static_cast<uint32_t>(PEERDMA_REASON_QUEUE));
	EXPECT_EQ(peerdma_explain(file, 9, &why), -ENOENT);
}

TEST_F(Library, ExplainsEachLeaf)
{
	open(pattern(512), 4096);
	sys.contents["/f"].leaves = 2;
	auto why = peerdma::detail::sized<peerdma_explanation>();
	why.leaf = 1;
	ASSERT_EQ(peerdma_explain(file, 1, &why), 0);
	EXPECT_EQ(why.nr_leaves, 2u);
	EXPECT_EQ(why.leaf, 1u);
	EXPECT_STREQ(why.leaf_name, "nvme1n1");
	// The first released struct: the library neither reads nor writes members after it.
	why.size = offsetof(struct peerdma_explanation, leaf);
	why.leaf_name[0] = '\0';
	ASSERT_EQ(peerdma_explain(file, 1, &why), 0);
	EXPECT_STREQ(why.leaf_name, "nvme0n1");
	EXPECT_EQ(why.leaf, 1u);
}

TEST_F(Library, NamesWithoutAnEndAreCutShort)
{
	open(pattern(512), 4096);
	sys.on_ioctl = [&](unsigned long request, void *arg) {
		if (request != PEERDMA_FILE_QUERY)
			return 1;
		auto &query = *static_cast<peerdma_file_query *>(arg);
		std::memset(query.out_leaf_name, 'x', sizeof(query.out_leaf_name));
		std::memset(query.out_fs_name, 'y', sizeof(query.out_fs_name));
		return 0;
	};
	auto why = peerdma::detail::sized<peerdma_explanation>();
	ASSERT_EQ(peerdma_explain(file, 1, &why), 0);
	EXPECT_EQ(std::strlen(why.leaf_name), sizeof(why.leaf_name) - 1);
	EXPECT_EQ(std::strlen(why.fs_name), sizeof(why.fs_name) - 1);
}

// --- Words ---

TEST(Words, EveryReasonHasThem)
{
	// Every value of the enum. For new ones the compiler reports the library's switch without default.
	const uint32_t all[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 16, 17, 18, 19, 20, 21,
				22, 23, 24, 25, 26, 27, 32, 33, 34, 35, 36, 37, 38, 40, 41, 42, 43, 44,
				45, 46, 47, 48, 56, 57, 58, 60, 61, 62, 64, 65, 66, 67, 68, 69, 70, 71,
				72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 96};
	std::set<std::string> names, texts;
	for (uint32_t reason : all) {
		EXPECT_TRUE(names.insert(peerdma_reason_name(reason)).second) << reason;
		EXPECT_TRUE(texts.insert(peerdma_reason_text(reason)).second) << reason;
		EXPECT_STRNE(peerdma_reason_name(reason), "UNKNOWN");
		const std::string text = peerdma_reason_text(reason), advice = peerdma_reason_advice(reason);
		EXPECT_FALSE(text.empty() || text.ends_with("."));
		// A clause takes no full stop, a sentence needs one.
		const bool fine = reason == PEERDMA_REASON_NONE || reason == PEERDMA_REASON_END_OF_FILE;
		EXPECT_EQ(advice.ends_with("."), !fine) << reason;
	}
	unsigned known = 0;
	for (uint32_t reason = 0; reason < 1000; reason++)
		known += std::string(peerdma_reason_name(reason)) != "UNKNOWN";
	EXPECT_EQ(known, std::size(all)) << "the list above and the library's differ";
	for (uint32_t reason : {12u, 63u, 89u, 127u, 128u, 1u << 31, UINT32_MAX})
		EXPECT_STREQ(peerdma_reason_name(reason), "UNKNOWN");
}

// Network storage is reached by a network card and has an address instead of a drive.
TEST(Words, OfStorageElsewhere)
{
	EXPECT_STREQ(peerdma_reason_text(PEERDMA_REASON_QUEUE),
		     "the disk's driver does not announce support for peer memory, or the network card's DMA does not "
		     "support it");
	EXPECT_STREQ(peerdma_reason_text(PEERDMA_REASON_DISTANCE),
		     "the kernel knows no PCI route between the provider and the disk, or the network card that leads "
		     "to it");
	EXPECT_STREQ(peerdma_reason_text(PEERDMA_REASON_RDMA_ROUTE),
		     "no RDMA device leads to the storage's address now");
}

TEST(Words, MapsAndRoutes)
{
	EXPECT_STREQ(peerdma_map_name(PEERDMA_MAP_NONE), "none");
	EXPECT_STREQ(peerdma_map_name(PEERDMA_MAP_BUS_ADDR), "bus address");
	EXPECT_STREQ(peerdma_map_name(PEERDMA_MAP_HOST_BRIDGE), "host bridge");
	EXPECT_STREQ(peerdma_map_name(PEERDMA_MAP_IOVA), "iova");
	EXPECT_STREQ(peerdma_map_name(PEERDMA_MAP_SOFTWARE), "software");
	EXPECT_STREQ(peerdma_map_name(PEERDMA_MAP_SOFTWARE + 1), "unknown");
	std::set<std::string> routes;
	for (uint32_t route = 0; route <= PEERDMA_ROUTE_POSIX; route++)
		EXPECT_TRUE(routes.insert(peerdma_route_name(route)).second);
	EXPECT_STREQ(peerdma_route_name(PEERDMA_ROUTE_POSIX + 1), "unknown");
	EXPECT_STREQ(peerdma_route_name(UINT32_MAX), "unknown");
	EXPECT_STREQ(peerdma_version(), "0.2.0");
}

TEST(Pci, AddressesAreReadStrictly)
{
	EXPECT_EQ(PciAddress::parse("0000:01:00.0"), (PciAddress{0, 0x0100}));
	EXPECT_EQ(PciAddress::parse("10000:ff:1f.7"), (PciAddress{0x10000, 0xffff}));
	EXPECT_EQ((PciAddress{0x10000, 0xffff}).str(), "10000:ff:1f.7");
	EXPECT_EQ((PciAddress{0, 0x0a10}).str(), "0000:0a:02.0");
	for (const char *text :
	     {"", ":", "1", "01:00", "0000:01:00", "0000:01:00.", "0000:01:00.8", "0000:01:20.0", "0000:100:00.0",
	      "0000:01:00.0\n", "../01:00.0", "0000:01:00.0/..", "g:00.0", "123456789:01:00.0"})
		EXPECT_FALSE(PciAddress::parse(text)) << text;
}

// --- The C++ API ---

TEST_F(Library, CxxReadsAFile)
{
	sys.contents["/f"].bytes = pattern(5000);
	auto dev = peerdma::Device::open();
	ASSERT_TRUE(dev);
	EXPECT_EQ(dev->info()->page_size, 4096u);
	auto all = dev->providers();
	ASSERT_TRUE(all);
	ASSERT_EQ(all->size(), 1u);
	EXPECT_EQ(dev->find("01:00.0")->id, 1u);
	auto buffer = dev->create_buffer(all->front().id, 8192);
	ASSERT_TRUE(buffer);
	EXPECT_EQ(buffer->size(), 8192u);
	auto bytes = buffer->map();
	ASSERT_TRUE(bytes);
	EXPECT_EQ(bytes->size(), 8192u);
	EXPECT_NE(bytes->data(), nullptr);
	auto piece = buffer->export_dmabuf(0, 4096);
	ASSERT_TRUE(piece);
	sys.close(*piece);
	EXPECT_EQ(buffer->export_dmabuf(8192, 4096).error().reason(), PEERDMA_REASON_BUF_RANGE);
	auto f = dev->open_file("/f", O_RDONLY);
	ASSERT_TRUE(f);
	EXPECT_EQ(f->size().value(), 5000u);
	EXPECT_EQ(f->explain(1)->distance, 4);
	auto read = f->read(*buffer, 0, 5120, 0);
	ASSERT_TRUE(read);
	EXPECT_EQ(read->done, 5000u);
	auto refused = f->read(*buffer, 0, 10000, 0);
	ASSERT_FALSE(refused);
	EXPECT_EQ(refused.error().code(), EINVAL);
	EXPECT_EQ(refused.error().reason(), PEERDMA_REASON_BUF_RANGE);
	EXPECT_EQ(refused.error().reason_name(), "BUF_RANGE");
	EXPECT_THROW(static_cast<void>(refused.value()), std::bad_variant_access);
	EXPECT_FALSE(dev->open_file("/none", O_RDONLY));
	EXPECT_EQ(dev->provider(9).error().code(), ENOENT);
	EXPECT_EQ(peerdma::Device::unpublish(9, 0).error().code(), ENODEV);
	// Owners move and release once.
	peerdma::Buffer moved = std::move(*buffer);
	EXPECT_EQ(buffer->get(), nullptr);
	EXPECT_NE(moved.get(), nullptr);
}
