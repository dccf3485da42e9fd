// SPDX-License-Identifier: MIT
// The possible calls and their arguments. The ioctls are the rows of the module's own table, kernel/face/op.c, compiled
// in, so their numbers, sizes and flags are not duplicated. grammar.cpp gives the meaning of each struct member. A row
// or a member without a meaning stops the build (grammar_faults()).
#pragma once

#include <string>
#include <vector>

#include "program.hpp"

struct peerdma_op;

namespace fuzz
{

/// The meaning of an argument: mutate.cpp generates values by it.
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
	unsigned weight; // relative frequency of generation
	Slot makes = Slot::number;
	bool writes = false; // it may change a target file
	std::vector<Arg> args{};
	uint32_t cmd = 0;
	const peerdma_op *op = nullptr;
	std::vector<Field> fields{};
	size_t out_at = 0;  // offset in the struct of the created object's id
	unsigned gusts = 0; // relative frequency in a storm: low for slow calls, 0 for calls that end a storm
};

const std::vector<Spec> &specs();
uint32_t flags_known(const Spec &spec);
size_t size_known(const Spec &spec);
size_t size_least(const Spec &spec);

/// Whether the grammar has this io_uring command.
bool knows_uring(uint32_t cmd);

Call usual_call(size_t spec, uint8_t thread = 0);

/// Entries of the module's table without a grammar, one per line.
std::string grammar_faults();

} // namespace fuzz
