// SPDX-License-Identifier: MIT
// Passes descriptors through a Unix socket.
#pragma once

#include <cstring>
#include <sys/socket.h>

namespace descriptor
{

/// One byte, and room for a descriptor.
struct Message {
	alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
	char byte = 0;
	iovec data = {&byte, 1};
	msghdr header = {nullptr, 0, &data, 1, space, sizeof(space), 0};
};

inline bool send(int socket, int fd)
{
	Message message;
	cmsghdr *head = CMSG_FIRSTHDR(&message.header);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(fd));
	std::memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	return ::sendmsg(socket, &message.header, 0) == 1;
}

/// -1: no message, or none with a descriptor.
inline int receive(int socket)
{
	Message message;
	int fd = -1;
	if (::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message.header))
		std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message.header)), sizeof(fd));
	return fd;
}

} // namespace descriptor
