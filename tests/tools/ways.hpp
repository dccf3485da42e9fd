// SPDX-License-Identifier: MIT
// The ways to move bytes between a file and a buffer: the same request by each of them, with comparable answers.
#pragma once

#include <cstring>
#include <liburing.h>
#include <string>
#include <vector>

#include "command.hpp"

namespace ways
{

enum class Way { fd, id, ring, ring_id, worker, pieces, pieces_worker, proxy };

inline const char *name(Way way)
{
	static const char *const names[] = {
		"ioctl, by descriptor", "ioctl, by id", "ring, by descriptor",      "ring, by id",
		"ring, in a worker",    "ring, pieces", "ring, pieces in a worker", "plain I/O on the proxy"};
	return names[static_cast<int>(way)];
}

struct Request {
	bool write;
	uint64_t file_off, buf_off, len;
};

/// The number of bytes reported as moved.
struct Moved {
	uint64_t file_off, buf_off, len;
};

struct Answer {
	int err = 0;         // positive: of the request, or of its first failed segment
	uint32_t reason = 0; // reported by ioctls only
	unsigned failed = 0; // number of failed requests; segments count separately
	std::vector<Moved> moved;

	uint64_t bytes() const
	{
		uint64_t sum = 0;
		for (const auto &part : moved)
			sum += part.len;
		return sum;
	}
};

/// An open and registered file, a buffer with its proxy mapping, and a ring.
class Mover
{
public:
	static constexpr uint64_t piece = 4096; // bytes per segment of a vector command

	Mover(int dev, uint32_t provider, const std::string &path, uint64_t len, int flags = 0) : dev_(dev), len_(len)
	{
		fd_ = raw::open_file(path, O_RDWR | O_DIRECT | flags);
		id_ = raw::add_file(dev, fd_);
		const auto got = raw::alloc(dev, provider, len);
		buf_ = got.out_buf_id;
		bar_off_ = got.out_bar_offset;
		if (!id_ || !buf_)
			raw::die("file or buffer");
		proxy_ = raw::map(dev, got);
		if (io_uring_queue_init(8, &ring_, 0))
			raw::die("ring");
	}
	~Mover()
	{
		io_uring_queue_exit(&ring_);
		::munmap(proxy_, len_);
		raw::destroy(dev_, buf_);
		auto req = raw::sized<peerdma_destroy>();
		req.id = id_;
		raw::call(dev_, PEERDMA_FILE_REMOVE, req);
		::close(fd_);
	}
	Mover(const Mover &) = delete;
	Mover &operator=(const Mover &) = delete;

	char *proxy() const { return proxy_; }
	uint64_t len() const { return len_; }
	uint64_t bar_off() const { return bar_off_; }
	int fd() const { return fd_; }
	uint32_t buf() const { return buf_; }

	Answer move(Way way, const Request &req)
	{
		switch (way) {
		case Way::fd:
		case Way::id:
			return by_ioctl(way, req);
		case Way::proxy:
			return by_proxy(req);
		default:
			return by_ring(way, req);
		}
	}

private:
	Answer by_ioctl(Way way, const Request &req)
	{
		Answer answer;
		auto io = raw::io(way == Way::id ? int(id_) : fd_, buf_, req.file_off, req.buf_off, req.len);
		if (way == Way::id)
			io.flags = PEERDMA_IO_FILE_ID;
		answer.err = -raw::call(dev_, req.write ? PEERDMA_WRITE : PEERDMA_READ, io);
		answer.reason = io.out_reason;
		answer.failed = answer.err != 0;
		if (!answer.err && io.out_done)
			answer.moved.push_back({req.file_off, req.buf_off, io.out_done});
		return answer;
	}

	Answer by_proxy(const Request &req)
	{
		Answer answer;
		const ssize_t n = req.write ? ::pwrite(fd_, proxy_ + req.buf_off, req.len, off_t(req.file_off)) :
					      ::pread(fd_, proxy_ + req.buf_off, req.len, off_t(req.file_off));
		answer.err = n < 0 ? errno : 0;
		answer.failed = n < 0;
		if (n > 0)
			answer.moved.push_back({req.file_off, req.buf_off, uint64_t(n)});
		return answer;
	}

	static bool in_pieces(Way way) { return way == Way::pieces || way == Way::pieces_worker; }

	void prepare(Way way, const Request &req)
	{
		segs_.clear();
		for (uint64_t at = 0; in_pieces(way) && at < req.len; at += piece)
			segs_.push_back(
				{req.file_off + at, req.buf_off + at, uint32_t(std::min(piece, req.len - at)), 0});
		io_uring_sqe *sqe = io_uring_get_sqe(&ring_);
		if (in_pieces(way))
			raw::command(sqe, dev_, req.write ? PEERDMA_URING_WRITEV : PEERDMA_URING_READV, buf_, id_,
				     uint32_t(segs_.size()), {reinterpret_cast<uintptr_t>(segs_.data()), 0});
		else
			raw::command(sqe, dev_, req.write ? PEERDMA_URING_WRITE : PEERDMA_URING_READ, buf_, id_,
				     uint32_t(req.len), {req.file_off, req.buf_off});
		if (way == Way::worker || way == Way::pieces_worker)
			sqe->flags = IOSQE_ASYNC;
	}

	/// Waits for the command's result. If the ring itself fails, waits again: the command is still in it.
	bool result(int *res)
	{
		io_uring_cqe *cqe = nullptr;
		for (int tries = 0; io_uring_peek_cqe(&ring_, &cqe); tries++) {
			const int ret = io_uring_submit_and_wait(&ring_, 1);
			*res = ret;
			if (ret < 0 && ret != -EINTR && tries == 3)
				return false;
		}
		*res = cqe->res;
		io_uring_cqe_seen(&ring_, cqe);
		return true;
	}

	Answer by_ring(Way way, const Request &req)
	{
		Answer answer;
		int res = 0;
		while (stuck_ && result(&res)) // a command that an earlier call could not submit
			stuck_ = false;
		prepare(way, req);
		stuck_ = !result(&res);
		if (res < 0) {
			answer.err = -res;
			answer.failed = 1;
		} else if (!in_pieces(way)) {
			if (res)
				answer.moved.push_back({req.file_off, req.buf_off, uint64_t(res)});
		} else {
			tell_pieces(unsigned(res) == segs_.size(), answer);
		}
		return answer;
	}

	void tell_pieces(bool all, Answer &answer)
	{
		for (const auto &seg : segs_) {
			const int moved = all ? int(seg.len) : seg.out_res;
			if (moved > 0)
				answer.moved.push_back({seg.file_off, seg.buf_off, uint64_t(moved)});
			answer.failed += moved < 0;
			if (moved < 0 && !answer.err)
				answer.err = -moved;
		}
	}

	int dev_, fd_ = -1;
	uint32_t id_ = 0, buf_ = 0;
	uint64_t len_, bar_off_ = 0;
	char *proxy_ = nullptr;
	io_uring ring_{};
	std::vector<peerdma_uring_seg> segs_;
	bool stuck_ = false;
};

// --- Contents of files and buffers

/// Bytes that depend on their offset and on the time they were written.
inline char byte(unsigned when, uint64_t at)
{
	const uint64_t x = (at + 1) * 0x9e3779b97f4a7c15 ^ when * 0xc2b2ae3d27d4eb4fULL;
	return char(x >> 56 ^ x >> 24);
}

inline void fill(char *to, unsigned when, uint64_t at, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		to[i] = byte(when, at + i);
}

/**
 * A file with a model of its contents. After each request it compares the result with the model: all bytes of the
 * buffer and of the file, including those around the range.
 */
class Witness
{
public:
	Witness(int dev, uint32_t provider, const std::string &path, uint64_t file_len, uint64_t buf_len)
		: mover(dev, provider, path, buf_len), file_(file_len), held_(buf_len), room_(page_up(file_len) + 4096)
	{
		if (!load(file_))
			raw::die(path);
	}

	/// Before a request: fills the buffer with bytes that were never used before.
	void begin(const Request &req)
	{
		req_ = req;
		fill(held_.data(), ++when_, 0, held_.size());
		std::memcpy(mover.proxy(), held_.data(), held_.size());
	}

	/// Reads the file again after another program has changed it.
	void look_again()
	{
		if (!load(file_))
			raw::die("the file");
	}

	/// The fault of the request's result, or "".
	std::string judge(const Answer &answer) { return req_.write ? judge_write(answer) : judge_read(answer); }

	/// Repeats the request undisturbed: it must move all bytes, and every byte must be right.
	std::string again(Way way)
	{
		const Request req = req_;
		begin(req);
		const Answer answer = mover.move(way, req);
		if (answer.err || answer.bytes() != req.len)
			return "undisturbed it fails: errno " + std::to_string(answer.err) + ", " +
			       std::to_string(answer.bytes()) + " bytes";
		return judge(answer);
	}

	Mover mover;

private:
	static uint64_t page_up(uint64_t len) { return (len + 4095) / 4096 * 4096; }

	bool load(std::vector<char> &to)
	{
		char *aligned = room_.data() + (-reinterpret_cast<uintptr_t>(room_.data()) & 4095);
		if (::pread(mover.fd(), aligned, page_up(to.size()), 0) != ssize_t(to.size()))
			return false;
		std::memcpy(to.data(), aligned, to.size());
		return true;
	}

	std::string judge_read(const Answer &answer)
	{
		const std::vector<char> now(mover.proxy(), mover.proxy() + held_.size());
		for (uint64_t at = 0; at < now.size(); at++) {
			if ((at < req_.buf_off || at >= req_.buf_off + req_.len) && now[at] != held_[at])
				return "byte " + std::to_string(at) + " of the buffer, outside, has changed";
		}
		for (const auto &part : answer.moved) {
			if (std::memcmp(&now[part.buf_off], &file_[part.file_off], part.len))
				return "bytes said to be read into " + std::to_string(part.buf_off) + " are wrong";
		}
		return "";
	}

	std::string judge_write(const Answer &answer)
	{
		std::vector<char> now(file_.size());
		if (!load(now))
			return "the file cannot be read";
		for (const auto &part : answer.moved) {
			if (std::memcmp(&now[part.file_off], &held_[part.buf_off], part.len))
				return "bytes said to be written to " + std::to_string(part.file_off) + " are wrong";
		}
		for (uint64_t at = 0; at < now.size(); at++) {
			const bool inside = at >= req_.file_off && at < req_.file_off + req_.len;
			const bool fresh = inside && now[at] == held_[at - req_.file_off + req_.buf_off];
			if (now[at] != file_[at] && !fresh)
				return "byte " + std::to_string(at) + " of the file is neither old nor new";
		}
		file_ = now;
		return "";
	}

	std::vector<char> file_, held_;
	std::vector<char> room_;
	Request req_{};
	unsigned when_ = 0;
};

} // namespace ways
