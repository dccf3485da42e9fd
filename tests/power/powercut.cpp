// SPDX-License-Identifier: MIT
//
// powercut write SEED LIE DIR...: writes to files in each DIR in every way and syncs now and then, until the power is
// cut. Prints "# w FILE VERSION FIRST COUNT" before each write (in sectors), "# s FILE VERSION" when all writes up to
// this one are synced, "# d FILE VERSION" when this write is. LIE: prints these without syncing.
//
// powercut check DIR...: prints the current contents as "# r FILE FIRST COUNT VERSION": 0 for zeros, -1 for contents
// that were never written there.
#include <memory>
#include <random>
#include <sys/stat.h>

#include "../tools/ways.hpp"

namespace
{

using ways::Way;

constexpr uint64_t sector = 512, sectors = 4096, most = 48; // sectors per file and per write
constexpr uint64_t magic = 0x5045455250435554;

/// The start of each sector; its other bytes are derived from it.
struct Head {
	uint64_t magic, file, at, version;
};

void make_sector(char *to, const Head &head)
{
	ways::fill(to, unsigned(head.version), head.file << 40 | head.at * sector, sector);
	std::memcpy(to, &head, sizeof(head));
}

/// One way to write to one file; several writers may share either.
struct Writer {
	std::string name;
	uint64_t file;
	std::unique_ptr<ways::Mover> mover;
	bool synchronous; // O_DSYNC
};

/// Each write has its own number, over all files.
class Cut
{
public:
	Cut(unsigned seed, bool lie) : random_(seed), lie_(lie)
	{
		dev_ = raw::open_device();
		provider_ = raw::provider(dev_).out_provider_id;
	}

	/// Two files in a folder: one is fully allocated, the other one grows. The first is also open with O_DSYNC.
	void add(const std::string &dir)
	{
		const std::string name = dir.substr(dir.find_last_of('/') + 1);
		for (const char *kind : {"old", "grows"}) {
			const std::string path = dir + "/" + kind;
			const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
			if (fd < 0 || ::fsync(fd))
				raw::die(path);
			::close(fd);
			add(name + "/" + kind, path, 0);
		}
		write(writers_[writers_.size() - 2], 0, sectors, true);
		add(name + "/old", dir + "/old", O_DSYNC);
		files_--;
		writers_.back().file = writers_[writers_.size() - 3].file;
		const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 || ::fsync(fd))
			raw::die(dir);
		::close(fd);
	}

	void run()
	{
		for (;;) {
			const Writer &writer = writers_[random_() % writers_.size()];
			const uint64_t count = 1 + random_() % most;
			uint64_t first = random_() % (sectors - count);
			if (random_() % 2) // whole pages, the common case
				first = first / 8 * 8;
			write(writer, first, count, false);
		}
	}

private:
	void add(const std::string &name, const std::string &path, int flags)
	{
		writers_.push_back({name, ++files_,
				    std::make_unique<ways::Mover>(dev_, provider_, path, sectors * sector, flags),
				    flags != 0});
	}

	void write(const Writer &writer, uint64_t first, uint64_t count, bool sync)
	{
		static const Way ways[] = {Way::fd,     Way::id,     Way::ring_id,
					   Way::worker, Way::pieces, Way::pieces_worker};
		ways::Mover &mover = *writer.mover;
		const uint64_t version = ++version_;
		std::printf("# w %s %lu %lu %lu\n", writer.name.c_str(), version, first, count);
		std::fflush(stdout);
		for (uint64_t i = 0; i < count; i++)
			make_sector(mover.proxy() + i * sector, {magic, writer.file, first + i, version});
		const ways::Request req = {true, first * sector, 0, count * sector};
		const auto answer = mover.move(sync ? Way::fd : ways[random_() % std::size(ways)], req);
		if (answer.err || answer.bytes() != req.len) {
			std::printf("not ok 1 - write %lu: errno %d, %lu bytes\n", version, answer.err, answer.bytes());
			std::exit(1);
		}
		if (writer.synchronous)
			return say("d", writer, version);
		if (!sync && random_() % 4)
			return;
		if (!lie_ && (random_() % 2 ? ::fsync(mover.fd()) : ::fdatasync(mover.fd())))
			raw::die("fsync");
		say("s", writer, version);
	}

	static void say(const char *what, const Writer &writer, uint64_t version)
	{
		std::printf("# %s %s %llu\n", what, writer.name.c_str(), static_cast<unsigned long long>(version));
		std::fflush(stdout);
	}

	std::mt19937 random_;
	bool lie_;
	int dev_;
	uint32_t provider_;
	std::vector<Writer> writers_;
	uint64_t files_ = 0, version_ = 0;
};

/// The write that a sector belongs to.
long long version_of(const char *at, uint64_t number)
{
	static const char zeros[sector] = {};
	char want[sector];
	Head head;
	if (!std::memcmp(at, zeros, sector))
		return 0;
	std::memcpy(&head, at, sizeof(head));
	make_sector(want, head);
	return head.magic == magic && head.at == number && !std::memcmp(at, want, sector) ?
		       static_cast<long long>(head.version) :
		       -1;
}

void check(const std::string &dir, const char *kind)
{
	const std::string path = dir + "/" + kind, name = path.substr(path.find_last_of('/', dir.size() - 1) + 1);
	const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
	std::vector<char> all(sectors * sector);
	const ssize_t len = fd < 0 ? 0 : ::pread(fd, all.data(), all.size(), 0);
	uint64_t first = 0;
	for (uint64_t i = 1; i <= uint64_t(len) / sector; i++) {
		const long long version = version_of(&all[first * sector], first);
		if (i < uint64_t(len) / sector && version_of(&all[i * sector], i) == version)
			continue;
		std::printf("# r %s %llu %llu %lld\n", name.c_str(), static_cast<unsigned long long>(first),
			    static_cast<unsigned long long>(i - first), version);
		first = i;
	}
	::close(fd);
}

} // namespace

int main(int argc, char **argv)
{
	const std::string what = argc > 2 ? argv[1] : "";
	if (what == "write" && argc > 4) {
		Cut cut(unsigned(std::atoi(argv[2])), *argv[3]);
		for (int i = 4; i < argc; i++)
			cut.add(argv[i]);
		cut.run();
	}
	for (int i = 2; i < argc; i++)
		for (const char *kind : {"old", "grows"})
			check(argv[i], kind);
	return what == "check" ? 0 : 2;
}
