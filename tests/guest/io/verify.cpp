// SPDX-License-Identifier: MIT
//
// verify SEED PROCESSES ROUNDS OPERATIONS EXT4_DIR XFS_DIR DRIVE STRIPE MIRROR LOG: random operations of
// operations.hpp. Each process has a buffer, a file in both directories and a part of each of the three block devices.
// After OPERATIONS operations all processes stop and write their observations to the block device LOG. The host
// (replay.cpp) checks these and every byte of the buffers and files.
#include <csignal>
#include <filesystem>
#include <liburing.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <memory>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../../tools/command.hpp"
#include "../../tools/operations.hpp"
#include "../../tools/tap.hpp"

namespace
{

using namespace verify;

struct Job {
	uint64_t seed;
	unsigned processes, rounds;
	uint64_t operations;
	std::array<std::string, files> paths;
	std::string log;
};

/// Page-aligned host memory, for O_DIRECT.
class Aligned
{
public:
	explicit Aligned(uint64_t len)
		: at_(static_cast<uint8_t *>(std::aligned_alloc(page, (len + page - 1) / page * page)), std::free)
	{
	}
	uint8_t *get() const { return at_.get(); }

private:
	std::unique_ptr<uint8_t, decltype(&std::free)> at_;
};

int64_t result(ssize_t ret) { return ret < 0 ? -errno : ret; }

/// A process's file, opened in every way that it is used.
struct Opened {
	int cached = -1, direct = -1, append = -1, plain = -1; // plain: for system calls on the proxy
	uint32_t id = 0;
	uint64_t base = 0; // start of this process's part

	Opened() = default;
	Opened(int dev, const std::string &path, uint64_t at) : base(at)
	{
		cached = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		direct = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
		plain = raw::by_software() ? cached : direct;
		append = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
		id = raw::add_file(dev, cached);
		if (cached < 0 || direct < 0 || append < 0 || !id)
			raw::die(path);
	}
};

class Process
{
public:
	Process(const Job &job, unsigned self) : job_(job), self_(self), dev_(raw::open_device())
	{
		const uint32_t provider = raw::provider(dev_).out_provider_id;
		const auto before = raw::alloc(dev_, provider, guard_len);
		const auto buffer = raw::alloc(dev_, provider, buf_len);
		const auto behind = raw::alloc(dev_, provider, guard_len);
		if (!before.out_buf_id || !buffer.out_buf_id || !behind.out_buf_id)
			raw::die("buffers");
		buf_ = buffer.out_buf_id;
		told_.bar[0] = buffer.out_bar_offset;
		told_.bar[1] = before.out_bar_offset;
		told_.bar[2] = behind.out_bar_offset;
		map_ = reinterpret_cast<uint8_t *>(raw::map(dev_, buffer));
		if (io_uring_queue_init(batch_max, &ring_, 0))
			raw::die("io_uring");
		const std::vector<uint8_t> zeros(file_max);
		for (unsigned f = 0; f < files; f++) {
			const std::string &path = job.paths[f];
			sizes_[f] = regular(f) ? 0 : file_max;
			files_[f] = Opened(dev_, regular(f) ? path + "/" + std::to_string(self) : path,
					   regular(f) ? 0 : self * file_max);
			if (!regular(f) && ::pwrite(files_[f].cached, zeros.data(), file_max, off_t(files_[f].base)) !=
						   ssize_t(file_max))
				raw::die(path);
		}
		log_ = raw::open_file(job.log, O_RDWR | O_DIRECT);
	}

	void round(unsigned n)
	{
		Stream stream(job_.seed, self_, n, sizes_);
		results_.clear();
		for (uint64_t counted = 0; counted < job_.operations;) {
			const auto ops = stream.next();
			const auto rets = ops.size() > 1 ? batch(ops) : std::vector<int64_t>{one(ops[0])};
			for (size_t i = 0; i < ops.size(); i++) {
				counted += ops[i].counts();
				results_.push_back({rets[i], look(ops[i], stream.size[ops[i].file])});
			}
		}
		sizes_ = stream.size;
		tell(n);
	}

private:
	int64_t ioctl(const Op &op, unsigned long cmd, int fd)
	{
		auto req = raw::io(fd, buf_, files_[op.file].base + op.off, op.buf, op.len);
		if (op.by_id() && op.kind != Kind::append) {
			req.fd = int(files_[op.file].id);
			req.flags = PEERDMA_IO_FILE_ID;
		}
		const int err = raw::call(dev_, cmd, req);
		// The byte counts by route must add up.
		if (req.out_direct + req.out_near + req.out_host != req.out_done)
			return -EPROTO;
		return err ? err : int64_t(req.out_done);
	}

	int64_t one(const Op &op)
	{
		const Opened &file = files_[op.file];
		const off_t at = off_t(file.base + op.off);

		switch (op.kind) {
		case Kind::read:
		case Kind::refuse:
			return ioctl(op, PEERDMA_READ, file.cached);
		case Kind::write:
			return ioctl(op, PEERDMA_WRITE, op.random & 4 ? file.direct : file.cached);
		case Kind::append:
			return ioctl(op, PEERDMA_WRITE, file.append);
		case Kind::proxy_read:
			return result(::pread(file.plain, map_ + op.buf, op.len, at));
		case Kind::proxy_write:
			return result(::pwrite(file.plain, map_ + op.buf, op.len, at));
		case Kind::cached_write:
			return result(::pwrite(file.cached, bytes_of(op).data(), op.len, at));
		case Kind::store:
			std::memcpy(map_ + op.buf, bytes_of(op).data(), op.len);
			return int64_t(op.len);
		case Kind::truncate:
			return result(::ftruncate(file.cached, at));
		case Kind::punch:
			return result(::fallocate(file.cached, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at,
						  off_t(op.len)));
		default: // look() does all of cached_read
			return 0;
		}
	}

	std::vector<int64_t> batch(const std::vector<Op> &ops)
	{
		for (size_t i = 0; i < ops.size(); i++) {
			const Opened &file = files_[ops[i].file];
			io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
			raw::command(sqe, dev_,
				     ops[i].kind == Kind::ring_read ? PEERDMA_URING_READ : PEERDMA_URING_WRITE, buf_,
				     file.id, uint32_t(ops[i].len), {file.base + ops[i].off, ops[i].buf});
			sqe->user_data = i;
		}
		std::vector<int64_t> rets(ops.size(), -ECANCELED);
		io_uring_submit(&ring_);
		for (size_t i = 0; i < ops.size(); i++) {
			io_uring_cqe *cqe = nullptr;
			while (io_uring_wait_cqe(&ring_, &cqe))
				;
			rets[cqe->user_data] = cqe->res;
			io_uring_cqe_seen(&ring_, cqe);
		}
		return rets;
	}

	/// A checksum of the operation's target and a page around it. Written bytes are read back, half of the time
	/// from the storage, otherwise through the page cache.
	uint64_t look(const Op &op, uint64_t size)
	{
		uint64_t sum = 0;

		if (op.in_buffer()) {
			const Range range = seen_of_buffer(op);
			sum = checksum(map_ + range.begin, range.len(), sum);
		}
		if (op.writes() || op.kind == Kind::cached_read || op.kind == Kind::punch) {
			const Opened &file = files_[op.file];
			const Range range = seen_of_file(op, size);
			const int fd = op.direct_look() ? file.direct : file.cached;
			const Aligned copy(range.len() + page);
			const ssize_t got = ::pread(fd, copy.get(), (range.len() + block - 1) / block * block,
						    off_t(file.base + range.begin));
			sum = checksum(copy.get(), uint64_t(std::clamp<ssize_t>(got, 0, ssize_t(range.len()))), sum);
		}
		return sum;
	}

	// --- Reported to the host

	void add_extent(unsigned file, uint32_t copy, uint32_t disk, uint64_t off, uint64_t len, uint64_t at)
	{
		extents_.push_back({file, copy, disk, 0, off, len, at});
	}

	/// Asks the filesystem where a file's bytes are.
	void map_file(unsigned file)
	{
		std::vector<char> room(sizeof(fiemap) + 512 * sizeof(fiemap_extent));
		auto *map = reinterpret_cast<fiemap *>(room.data());
		map->fm_length = file_max;
		map->fm_flags = FIEMAP_FLAG_SYNC;
		map->fm_extent_count = 512;
		if (::ioctl(files_[file].cached, FS_IOC_FIEMAP, map))
			raw::die("fiemap");
		for (uint32_t i = 0; i < map->fm_mapped_extents; i++) {
			const fiemap_extent &extent = map->fm_extents[i];
			if (!(extent.fe_flags & FIEMAP_EXTENT_UNWRITTEN))
				add_extent(file, 0, file, extent.fe_logical, extent.fe_length, extent.fe_physical);
		}
	}

	/// Must match the layout in verify.sh.
	void map_devices()
	{
		static constexpr uint64_t mib = kib * kib, chunk = 64 * kib;
		add_extent(drive, 0, 2, 0, file_max, files_[drive].base);
		for (uint64_t off = 0; off < file_max; off += chunk) {
			const uint64_t nr = (files_[stripe].base + off) / chunk;
			add_extent(stripe, 0, nr % 2, off, chunk, 512 * mib + nr / 2 * chunk);
		}
		for (uint32_t leg = 0; leg < 2; leg++)
			add_extent(mirror, leg, leg, 0, file_max, 640 * mib + files_[mirror].base);
	}

	void tell(unsigned n)
	{
		extents_.clear();
		for (unsigned f = 0; f < files; f++) {
			if (::fsync(files_[f].cached))
				raw::die("fsync");
			if (regular(f))
				map_file(f);
		}
		map_devices();
		told_.magic = told_magic;
		told_.process = self_;
		told_.round = n;
		told_.results = results_.size();
		told_.extents = extents_.size();
		const Aligned page_of(told_len);
		uint8_t *at = page_of.get();
		const auto put = [&](const void *from, size_t len) {
			if (at + len > page_of.get() + told_len)
				raw::die("too much to tell");
			std::memcpy(at, from, len);
			at += len;
		};
		put(&told_, sizeof(told_));
		put(results_.data(), results_.size() * sizeof(Result));
		put(extents_.data(), extents_.size() * sizeof(Extent));
		const size_t len = (size_t(at - page_of.get()) + page - 1) / page * page;
		if (::pwrite(log_, page_of.get(), len, off_t(told_at + self_ * told_len)) != ssize_t(len))
			raw::die("log");
	}

	const Job &job_;
	unsigned self_;
	int dev_, log_;
	uint32_t buf_;
	uint8_t *map_;
	io_uring ring_;
	std::array<Opened, files> files_;
	std::array<uint64_t, files> sizes_;
	std::vector<Result> results_;
	std::vector<Extent> extents_;
	Told told_{};
};

/// A process and the pipes that make it continue and report that it has stopped.
struct Child {
	pid_t pid;
	int go, done;
};

Child start(const Job &job, unsigned self)
{
	int go[2], done[2];
	if (::pipe2(go, O_CLOEXEC) || ::pipe2(done, O_CLOEXEC))
		raw::die("pipe");
	const pid_t pid = ::fork();
	if (!pid) {
		::close(go[1]);
		::close(done[0]);
		Process process(job, self);
		char word;
		for (unsigned round = 0; ::read(go[0], &word, 1) == 1; round++) {
			process.round(round);
			if (::write(done[1], "", 1) != 1)
				::_exit(1);
		}
		::_exit(0);
	}
	::close(go[0]);
	::close(done[1]);
	return {pid, go[1], done[0]};
}

bool round_of(const std::vector<Child> &children)
{
	char word;
	bool good = true;
	for (const Child &child : children)
		good = ::write(child.go, "", 1) == 1 && good;
	for (const Child &child : children)
		good = ::read(child.done, &word, 1) == 1 && good;
	return good;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 11)
		return 2;
	const Job job = {std::strtoull(argv[1], nullptr, 0),
			 unsigned(std::atoi(argv[2])),
			 unsigned(std::atoi(argv[3])),
			 std::strtoull(argv[4], nullptr, 0),
			 {argv[5], argv[6], argv[7], argv[8], argv[9]},
			 argv[10]};
	std::signal(SIGPIPE, SIG_IGN);
	std::vector<Child> children;
	for (unsigned i = 0; i < job.processes; i++)
		children.push_back(start(job, i));
	bool good = true;
	for (unsigned round = 0; good && round < job.rounds; round++) {
		good = round_of(children);
		tap::report(good, "round " + std::to_string(round + 1) + " of " + std::to_string(job.rounds));
		if (!good)
			break;
		std::string question = "replay";
		for (uint64_t number : {job.seed, uint64_t(job.processes), uint64_t(round), job.operations})
			question += " " + std::to_string(number);
		// verify.sh forwards what is written to descriptor 3.
		const std::string answer = host::ask(question);
		::dprintf(3, "# %s\n", answer.c_str());
		good = answer.starts_with("ok");
		tap::report(good, "as the host knows it");
	}
	// Close all pipes first: a later child inherits those of the earlier ones.
	for (const Child &child : children)
		::close(child.go);
	for (const Child &child : children) {
		int status = 0;
		::waitpid(child.pid, &status, 0);
		good = good && !status;
	}
	tap::report(good, "all processes ended well");
	return tap::end();
}
