// SPDX-License-Identifier: MIT
#include "grammar.hpp"

#include <algorithm>
#include <cstddef>

#include "../tools/handlers.hpp"

namespace fuzz
{
namespace
{

// Lists every member of a struct in order. A hole, or an end before the end of the struct, is a missing member.
#define M(type, member, kind)                                                                                          \
	{                                                                                                              \
#member, offsetof(type, member), sizeof(type::member), Kind::kind                                      \
	}

const std::vector<Field> info_fields = {
	M(peerdma_info, size, size),
	M(peerdma_info, flags, flags),
	M(peerdma_info, out_abi, out),
	M(peerdma_info, out_page_size, out),
	M(peerdma_info, out_features, out),
	M(peerdma_info, out_nproviders, out),
	M(peerdma_info, out_publish_align, out),
};

const std::vector<Field> provider_query_fields = {
	M(peerdma_provider_query, size, size),
	M(peerdma_provider_query, flags, flags),
	M(peerdma_provider_query, provider_id, provider),
	M(peerdma_provider_query, out_provider_id, out),
	M(peerdma_provider_query, out_pci_domain, out),
	M(peerdma_provider_query, out_pci_bdf, out),
	M(peerdma_provider_query, out_bar, out),
	M(peerdma_provider_query, out_numa_node, out),
	M(peerdma_provider_query, out_bar_offset, out),
	M(peerdma_provider_query, out_len, out),
	M(peerdma_provider_query, out_available, out),
	M(peerdma_provider_query, out_pci_vendor, out),
	M(peerdma_provider_query, out_pci_device, out),
};

const std::vector<Field> publish_fields = {
	M(peerdma_publish, size, size),         M(peerdma_publish, flags, flags),
	M(peerdma_publish, pci_domain, domain), M(peerdma_publish, pci_bdf, bdf),
	M(peerdma_publish, bar, bar),           M(peerdma_publish, out_provider_id, out),
	M(peerdma_publish, bar_offset, pages),  M(peerdma_publish, len, pages),
	M(peerdma_publish, out_reason, out),    M(peerdma_publish, __reserved, zero),
};

const std::vector<Field> buf_alloc_fields = {
	M(peerdma_buf_alloc, size, size),
	M(peerdma_buf_alloc, flags, flags),
	M(peerdma_buf_alloc, provider_id, provider),
	M(peerdma_buf_alloc, out_buf_id, out),
	M(peerdma_buf_alloc, len, pages),
	M(peerdma_buf_alloc, out_bar_offset, out),
	M(peerdma_buf_alloc, out_reason, out),
	M(peerdma_buf_alloc, __reserved, zero),
	M(peerdma_buf_alloc, out_mmap_offset, out),
};

const std::vector<Field> destroy_fields = {
	M(peerdma_destroy, size, size),
	M(peerdma_destroy, flags, flags),
	M(peerdma_destroy, id, id_of_buffer),
	M(peerdma_destroy, __reserved, zero),
};

const std::vector<Field> file_remove_fields = {
	M(peerdma_destroy, size, size),
	M(peerdma_destroy, flags, flags),
	M(peerdma_destroy, id, id_of_file),
	M(peerdma_destroy, __reserved, zero),
};

const std::vector<Field> file_query_fields = {
	M(peerdma_file_query, size, size),
	M(peerdma_file_query, flags, flags),
	M(peerdma_file_query, fd, fd),
	M(peerdma_file_query, provider_id, provider),
	M(peerdma_file_query, out_errno, out),
	M(peerdma_file_query, out_reason, out),
	M(peerdma_file_query, out_map, out),
	M(peerdma_file_query, out_distance, out),
	M(peerdma_file_query, out_dio_mem_align, out),
	M(peerdma_file_query, out_dio_offset_align, out),
	M(peerdma_file_query, out_leaf_domain, out),
	M(peerdma_file_query, out_leaf_bdf, out),
	M(peerdma_file_query, out_leaf_major, out),
	M(peerdma_file_query, out_leaf_minor, out),
	M(peerdma_file_query, out_leaf_name, out),
	M(peerdma_file_query, out_fs_name, out),
	M(peerdma_file_query, leaf, index),
	M(peerdma_file_query, out_nr_leaves, out),
	M(peerdma_file_query, out_leaf_reason, out),
	M(peerdma_file_query, out_leaf_map, out),
	M(peerdma_file_query, out_leaf_distance, out),
	M(peerdma_file_query, __reserved, zero),
	M(peerdma_file_query, out_refused_name, out),
};

const std::vector<Field> io_fields = {
	M(peerdma_io, size, size),       M(peerdma_io, flags, flags),  M(peerdma_io, fd, fd_or_file),
	M(peerdma_io, buf_id, buffer),   M(peerdma_io, file_off, off), M(peerdma_io, buf_off, off),
	M(peerdma_io, len, len),         M(peerdma_io, out_done, out), M(peerdma_io, out_direct, out),
	M(peerdma_io, out_near, out),    M(peerdma_io, out_host, out), M(peerdma_io, out_reason, out),
	M(peerdma_io, __reserved, zero),
};

const std::vector<Field> file_add_fields = {
	M(peerdma_file_add, size, size),      M(peerdma_file_add, flags, flags),
	M(peerdma_file_add, fd, fd),          M(peerdma_file_add, out_file_id, out),
	M(peerdma_file_add, out_reason, out), M(peerdma_file_add, __reserved, zero),
};

const std::vector<Field> buf_export_fields = {
	M(peerdma_buf_export, size, size),      M(peerdma_buf_export, flags, flags),
	M(peerdma_buf_export, buf_id, buffer),  M(peerdma_buf_export, out_fd, out),
	M(peerdma_buf_export, off, off),        M(peerdma_buf_export, len, pages),
	M(peerdma_buf_export, out_reason, out), M(peerdma_buf_export, __reserved, zero),
};

const std::vector<Field> buf_register_fields = {
	M(peerdma_buf_register, size, size),
	M(peerdma_buf_register, flags, flags),
	M(peerdma_buf_register, pci_vendor, index),
	M(peerdma_buf_register, out_buf_id, out),
	M(peerdma_buf_register, addr, off),
	M(peerdma_buf_register, len, len),
	M(peerdma_buf_register, out_provider_id, out),
	M(peerdma_buf_register, out_reason, out),
	M(peerdma_buf_register, out_mmap_offset, out),
};

const std::vector<Field> buf_import_fields = {
	M(peerdma_buf_import, size, size),
	M(peerdma_buf_import, flags, flags),
	M(peerdma_buf_import, fd, fd),
	M(peerdma_buf_import, pci_domain, domain),
	M(peerdma_buf_import, pci_bdf, bdf),
	M(peerdma_buf_import, out_buf_id, out),
	M(peerdma_buf_import, off, off),
	M(peerdma_buf_import, len, len),
	M(peerdma_buf_import, out_provider_id, out),
	M(peerdma_buf_import, out_reason, out),
	M(peerdma_buf_import, out_mmap_offset, out),
};

struct Ioctl {
	uint32_t cmd;
	const char *name;
	const std::vector<Field> &fields;
	unsigned weight, gusts;
	Slot makes;
	bool writes;
	size_t out_at;
};

const Ioctl ioctls[] = {
	{PEERDMA_INFO, "info", info_fields, 1, 4, Slot::number, false, 0},
	{PEERDMA_PROVIDER_QUERY, "provider_query", provider_query_fields, 1, 16, Slot::number, false, 0},
	{PEERDMA_PUBLISH, "publish", publish_fields, 1, 0, Slot::number, false, 0},
	{PEERDMA_BUF_ALLOC, "buf_alloc", buf_alloc_fields, 10, 2, Slot::buffer, false,
	 offsetof(peerdma_buf_alloc, out_buf_id)},
	{PEERDMA_DESTROY, "destroy", destroy_fields, 6, 16, Slot::number, false, 0},
	{PEERDMA_FILE_QUERY, "file_query", file_query_fields, 5, 1, Slot::number, false, 0},
	{PEERDMA_READ, "read", io_fields, 16, 24, Slot::number, false, 0},
	{PEERDMA_WRITE, "write", io_fields, 14, 8, Slot::number, true, 0},
	{PEERDMA_FILE_ADD, "file_add", file_add_fields, 6, 4, Slot::file, false,
	 offsetof(peerdma_file_add, out_file_id)},
	{PEERDMA_FILE_REMOVE, "file_remove", file_remove_fields, 4, 12, Slot::number, false, 0},
	{PEERDMA_BUF_EXPORT, "buf_export", buf_export_fields, 4, 4, Slot::number, false, 0},
	{PEERDMA_BUF_REGISTER, "buf_register", buf_register_fields, 1, 1, Slot::number, false, 0},
	{PEERDMA_BUF_IMPORT, "buf_import", buf_import_fields, 1, 1, Slot::number, false, 0},
};

struct Uring {
	uint32_t cmd;
	const char *name;
	bool many, writes;
};

const Uring uring_commands[] = {
	{PEERDMA_URING_READ, "uring_read", false, false},
	{PEERDMA_URING_WRITE, "uring_write", false, true},
	{PEERDMA_URING_READV, "uring_readv", true, false},
	{PEERDMA_URING_WRITEV, "uring_writev", true, true},
};

constexpr Value n(uint64_t number) { return {Slot::number, number}; }
constexpr Value s(Slot slot, uint64_t index = 0) { return {slot, index}; }
const Arg dev = {"dev", Kind::dev, s(Slot::dev)}, map = {"map", Kind::map, s(Slot::map)},
	  ring = {"ring", Kind::ring, s(Slot::ring)}, target = {"fd", Kind::fd, s(Slot::target)};

Value usual(const Field &field, size_t size)
{
	switch (field.kind) {
	case Kind::size:
		return n(size);
	case Kind::provider:
		return s(Slot::provider);
	case Kind::buffer:
	case Kind::id_of_buffer:
		return s(Slot::buffer);
	case Kind::id_of_file:
		return s(Slot::file);
	case Kind::fd:
	case Kind::fd_or_file:
		return s(Slot::target);
	case Kind::pages:
	case Kind::len:
		return n(4096);
	default:
		return n(0);
	}
}

Spec ioctl_spec(const Ioctl &row)
{
	const peerdma_op *op = peerdma_op_find(row.cmd);
	Spec spec{row.name, Action::ioctl, row.weight, row.makes, row.writes, {dev, {"at", Kind::at, n(0)}}};
	spec.cmd = row.cmd;
	spec.op = op;
	spec.fields = row.fields;
	spec.out_at = row.out_at;
	spec.gusts = row.gusts;
	for (const Field &field : row.fields)
		if (field.kind != Kind::out)
			spec.args.push_back({field.name, field.kind, usual(field, op ? op->size : 0)});
	return spec;
}

Spec uring_spec(const Uring &row)
{
	Spec spec{row.name,
		  row.many ? Action::uring_vec : Action::uring_io,
		  row.many ? 6u : 8u,
		  Slot::number,
		  row.writes,
		  {dev,
		   ring,
		   {"sqe", Kind::sqe, n(0)},
		   {"flags", Kind::flags, n(0)},
		   {"buf_id", Kind::buffer, s(Slot::buffer)},
		   {"fd", Kind::fd_or_file, s(Slot::target)},
		   {"file_off", Kind::off, n(0)},
		   {"buf_off", Kind::off, n(0)},
		   {"len", Kind::len, n(4096)}}};
	if (row.many) // segments are equal and adjacent, step bytes apart
		spec.args.insert(spec.args.end(), {{"nr", Kind::count, n(4)},
						   {"step", Kind::len, n(4096)},
						   {"at", Kind::at, n(0)},
						   {"__reserved", Kind::zero, n(0)}});
	spec.cmd = row.cmd;
	spec.gusts = row.many ? 8 : 16;
	return spec;
}

std::vector<Spec> all_specs()
{
	std::vector<Spec> all;
	for (const Ioctl &row : ioctls)
		all.push_back(ioctl_spec(row));
	for (const Uring &row : uring_commands)
		all.push_back(uring_spec(row));
	const Arg off = {"off", Kind::off, n(0)}, len = {"len", Kind::len, n(4096)}, bits = {"bits", Kind::bits, n(0)};
	const std::vector<Spec> others = {
		{"ioctl",
		 Action::ioctl_raw,
		 1,
		 Slot::number,
		 false,
		 {dev, {"cmd", Kind::number, n(0)}, {"at", Kind::at, n(0)}, {"size", Kind::size, n(8)}}},
		{"uring_cmd", Action::uring_raw, 1, Slot::number, false, {dev, ring, {"cmd", Kind::number, n(0)}}},
		{"reap", Action::reap, 6, Slot::number, false, {ring, {"nr", Kind::count, n(1)}}},
		{"ring_exit", Action::ring_exit, 1, Slot::number, false, {ring}},
		{"open", Action::open, 2, Slot::dev, false, {bits}},
		{"close", Action::close, 2, Slot::number, false, {dev}},
		{"mmap",
		 Action::mmap,
		 6,
		 Slot::map,
		 false,
		 {dev, {"buf_id", Kind::buffer, s(Slot::buffer)}, off, len, {"prot", Kind::bits, n(3)}, bits}},
		{"munmap", Action::munmap, 2, Slot::number, false, {map, off, len}},
		{"mremap", Action::mremap, 1, Slot::map, false, {map, len}},
		{"drop", Action::drop, 2, Slot::number, false, {map, off, len}},
		{"touch", Action::touch, 6, Slot::number, false, {map, off, bits}},
		{"fork", Action::fork, 1, Slot::number, false, {dev, map}},
		{"pread", Action::pread, 3, Slot::number, false, {target, map, off, len}},
		{"pwrite", Action::pwrite, 3, Slot::number, true, {target, map, off, len}},
		{"truncate", Action::truncate, 3, Slot::number, true, {target, len}},
		{"fallocate", Action::fallocate, 2, Slot::number, true, {target, off, len, bits}},
		{"store", Action::store, 3, Slot::number, true, {target, off, len}},
		{"sync", Action::sync, 1, Slot::number, false, {target}},
		{"mode", Action::mode, 1, Slot::number, false, {target, bits}},
		{"fdinfo", Action::fdinfo, 1, Slot::number, false, {dev}},
		{"debugfs", Action::debugfs, 1, Slot::number, false, {}},
		{"unbind", Action::unbind, 1, Slot::number, false, {}},
		{"bind", Action::bind, 1, Slot::number, false, {}},
		{"storm",
		 Action::storm,
		 0, // Mutator::add_storm()
		 Slot::number,
		 true,
		 {dev, {"what", Kind::index, n(0)}, {"seed", Kind::number, n(1)}, {"nr", Kind::count, n(64)}}},
	};
	all.insert(all.end(), others.begin(), others.end());
	return all;
}

} // namespace

const std::vector<Spec> &specs()
{
	static const std::vector<Spec> all = all_specs();
	return all;
}

uint32_t flags_known(const Spec &spec) { return spec.op ? spec.op->flags : spec.cmd ? PEERDMA_IO_FLAGS : 0; }
size_t size_known(const Spec &spec) { return spec.op ? spec.op->size : 8; }
size_t size_least(const Spec &spec) { return spec.op ? spec.op->min_size : 8; }

bool knows_uring(uint32_t cmd)
{
	return std::any_of(std::begin(uring_commands), std::end(uring_commands),
			   [&](const Uring &row) { return row.cmd == cmd; });
}

Call usual_call(size_t spec, uint8_t thread)
{
	Call call;
	call.spec = uint8_t(spec);
	call.thread = thread;
	call.nargs = uint8_t(specs()[spec].args.size());
	for (size_t i = 0; i < call.nargs; i++)
		call.args[i] = specs()[spec].args[i].usual;
	return call;
}

std::string grammar_faults()
{
	std::string faults;
	for (uint32_t nr = 0; nr < 256; nr++) {
		const peerdma_op *op = peerdma_op_find(_IO(PEERDMA_IOC_TYPE, nr));
		const auto row = std::find_if(std::begin(ioctls), std::end(ioctls),
					      [&](const Ioctl &r) { return r.cmd == _IO(PEERDMA_IOC_TYPE, nr); });
		const std::string name = "ioctl " + std::to_string(nr);
		if (!op != (row == std::end(ioctls))) {
			faults += name + (op ? " is in kernel/face/op.c and has no grammar\n" :
					       " is not in kernel/face/op.c\n");
			continue;
		}
		if (!op)
			continue;
		size_t at = 0;
		for (const Field &field : row->fields) {
			if (field.off != at)
				faults += name + ": a member before " + field.name + " has no meaning\n";
			at = field.off + field.len;
		}
		if (at != op->size)
			faults += name + ": the members behind byte " + std::to_string(at) + " have no meaning\n";
	}
	for (const Spec &spec : specs())
		if (spec.args.size() > max_args)
			faults += spec.name + " has more arguments than a call has room for\n";
	return faults;
}

} // namespace fuzz
