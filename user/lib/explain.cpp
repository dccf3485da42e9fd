// SPDX-License-Identifier: MIT
#include "lib/boundary.hpp"
#include "lib/device.hpp"
#include "lib/policy.hpp"

using namespace peerdma_impl;

int peerdma_explain(struct peerdma_file *file, uint32_t provider_id, struct peerdma_explanation *explanation)
{
	return boundary([&] {
		int rc = check_handle(file);
		if (!rc)
			rc = check_size(explanation,
					offsetof(struct peerdma_explanation, fs_name) + sizeof(explanation->fs_name));
		if (rc)
			return rc;
		struct peerdma_file_query query = {};
		query.fd = file->own.fd;
		query.provider_id = provider_id;
		if (explanation->size >= offsetof(struct peerdma_explanation, leaf) + sizeof(explanation->leaf))
			query.leaf = explanation->leaf;
		rc = file->device->ioctl(PEERDMA_FILE_QUERY, query);
		if (rc >= 0 && !file->own.is_there(file->device->sys()))
			rc = -EBADF;
		if (rc < 0)
			return rc;
		struct peerdma_explanation full = {};
		full.provider_id = provider_id;
		const bool falls_back = query.out_errno == EXDEV && !file->device->direct_only();
		full.route = falls_back                            ? PEERDMA_ROUTE_POSIX :
			     query.out_errno                       ? PEERDMA_ROUTE_NONE :
			     query.out_map == PEERDMA_MAP_SOFTWARE ? PEERDMA_ROUTE_HOST :
								     PEERDMA_ROUTE_DIRECT;
		full.reason = query.out_reason;
		full.error = falls_back ? 0 : query.out_errno;
		full.map = query.out_map;
		full.distance = query.out_distance;
		full.dio_mem_align = query.out_dio_mem_align;
		full.dio_offset_align = query.out_dio_offset_align;
		full.leaf_domain = query.out_leaf_domain;
		full.leaf_bdf = query.out_leaf_bdf;
		full.leaf_major = query.out_leaf_major;
		full.leaf_minor = query.out_leaf_minor;
		copy_text(full.leaf_name, query.out_leaf_name, sizeof(query.out_leaf_name));
		copy_text(full.fs_name, query.out_fs_name, sizeof(query.out_fs_name));
		full.leaf = query.leaf;
		full.nr_leaves = query.out_nr_leaves;
		full.leaf_reason = query.out_leaf_reason;
		full.leaf_map = query.out_leaf_map;
		full.leaf_distance = query.out_leaf_distance;
		copy_text(full.refused_name, query.out_refused_name, sizeof(query.out_refused_name));
		const Rule *rule = nullptr;
		rc = permit(*file, provider_id, &rule);
		if (rc == -EACCES) {
			full.route = PEERDMA_ROUTE_NONE;
			full.reason = PEERDMA_REASON_RULE;
			full.error = EACCES;
			const std::string place = rule->place();
			copy_text(full.refused_name, place.data(), place.size());
		} else if (rc < 0) {
			return rc;
		}
		copy_out(explanation, full);
		return 0;
	});
}
