// SPDX-License-Identifier: MIT
// What may be called and with what. The ioctls are the rows of the module's own table, kernel/face/op.c, compiled in: their
// numbers, sizes and flags are not written down a second time. What each member of a struct means is, in grammar.cpp;
// a row or a member without a meaning stops the build (grammar_faults()).
#pragma once

#include <string>
#include <vector>

#include "program.hpp"

struct peerdma_op;

namespace fuzz
{

/// What an argument means: mutate.cpp makes up values by it.
enum class Kind : uint8_t {
	dev,
	at,
	size,
	flags,
	zero,
	out,
	provider,
	buffer,
	fd,
	fd_or_file,
	domain,
	bdf,
	bar,
	pages,
	len,
	off,
	index,
	id_of_buffer,
	id_of_file,
	map,
	ring,
	sqe,
	count,
	bits,
	number,
};

enum class Action : uint8_t {
	ioctl,
	ioctl_raw,
	uring_io,
	uring_vec,
	uring_raw,
	reap,
	ring_exit,
	open,
	close,
	mmap,
	munmap,
	mremap,
	drop,
	touch,
	fork,
	pread,
	pwrite,
	truncate,
	fallocate,
	store,
	sync,
	mode,
	fdinfo,
	debugfs,
	unbind,
	bind,
	storm,
};

struct Arg {
	std::string name;
	Kind kind;
	Value usual;
};

/// A member of an ioctl's struct.
struct Field {
	std::string name;
	size_t off, len;
	Kind kind;
};

struct Spec {
	std::string name;
	Action action;
	unsigned weight; // how often it is made up, beside the others
	Slot makes = Slot::number;
	bool writes = false; // it may change a target file
	std::vector<Arg> args{};
	uint32_t cmd = 0;
	const peerdma_op *op = nullptr;
	std::vector<Field> fields{};
	size_t out_at = 0;  // where the struct has the number of what was made
	unsigned gusts = 0; // how often it is part of a storm: what takes long is, rarely; what ends one for all, never
};

const std::vector<Spec> &specs();
uint32_t flags_known(const Spec &spec);
size_t size_known(const Spec &spec);
size_t size_least(const Spec &spec);

/// The commands of io_uring that the grammar has.
bool knows_uring(uint32_t cmd);

Call usual_call(size_t spec, uint8_t thread = 0);

/// What the module's table has and the grammar has not, one a line.
std::string grammar_faults();

} // namespace fuzz
