// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/// Stands for peerdma-viewd: answers requests with these texts, in order, one each.
class FakeService
{
public:
	FakeService(const std::string &path, std::vector<std::string> answers) : path_(path)
	{
		sockaddr_un address = {};
		address.sun_family = AF_UNIX;
		std::memcpy(address.sun_path, path.data(), path.size());
		fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr *>(&address), sizeof(address)), 0);
		EXPECT_EQ(::listen(fd_, 1), 0);
		const timeval most = {60, 0};
		EXPECT_EQ(::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)), 0);
		thread_ = std::thread([this, answers = std::move(answers)] {
			for (const std::string &text : answers)
				answer(text);
		});
	}
	~FakeService()
	{
		::shutdown(fd_, SHUT_RDWR); // ends accept()
		if (thread_.joinable())
			thread_.join();
		::close(fd_);
		::unlink(path_.c_str());
	}
	FakeService(const FakeService &) = delete;
	FakeService &operator=(const FakeService &) = delete;

	/// The last one, after all are answered.
	std::string request()
	{
		thread_.join();
		return request_;
	}

private:
	void answer(const std::string &text)
	{
		const int one = ::accept(fd_, nullptr, nullptr);
		if (one < 0)
			return;
		request_.clear();
		char some[4096];
		for (ssize_t n; (n = ::recv(one, some, sizeof(some), 0)) > 0;)
			request_.append(some, static_cast<size_t>(n));
		::send(one, text.data(), text.size(), MSG_NOSIGNAL);
		::close(one);
	}

	const std::string path_;
	int fd_;
	std::string request_;
	std::thread thread_; // begins last
};
