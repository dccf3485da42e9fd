// SPDX-License-Identifier: MIT
#include "cufile/diag/stats.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace cufile
{
namespace
{

unsigned bucket(uint64_t bytes) { return std::min<unsigned>(static_cast<unsigned>(std::bit_width(bytes >> 10)), 31); }

uint64_t per_second(uint64_t what, uint64_t ns)
{
	return ns ? static_cast<uint64_t>(static_cast<unsigned __int128>(what) * 1'000'000'000 / ns) : 0;
}

uint64_t ratio(uint64_t sum, uint64_t count) { return count ? sum / count : 0; }

// Members that CUDA 13.4 has added to the end of level 1.
struct Longer {
	CUfileOpCounter_t readv_ops, writev_ops;
	uint64_t not_counted[10];
};
static_assert(sizeof(CUfileStatsLevel1_t) + sizeof(Longer) == 624);

constexpr size_t ends[] = {sizeof(CUfileStatsLevel1_t), sizeof(CUfileStatsLevel2_t), sizeof(CUfileStatsLevel3_t)};

} // namespace

bool Stats::set_level(int level)
{
	if (level < 0 || level > 3)
		return false;
	level_.store(level);
	if (!level)
		stop();
	return true;
}

bool Stats::start()
{
	std::lock_guard guard(lock_);
	if (!level_)
		return false;
	if (!on_)
		started_ns_ = system_.now_ns();
	on_ = true;
	return true;
}

void Stats::stop()
{
	std::lock_guard guard(lock_);
	if (!on_)
		return;
	counted_ns_ += system_.now_ns() - started_ns_;
	on_ = false;
}

void Stats::reset()
{
	std::lock_guard guard(lock_);
	all_ = {};
	std::fill(std::begin(vectors_), std::end(vectors_), CUfileOpCounter_t{});
	counted_ns_ = 0;
	started_ns_ = system_.now_ns();
}

CUfilePerGpuStats_t *Stats::gpu(int device, Cuda *cuda)
{
	if (device < 0 || level_ < 3)
		return nullptr;
	for (unsigned i = 0; i < all_.num_gpus; i++)
		if (devices_[i] == device)
			return &all_.per_gpu_stats[i];
	if (all_.num_gpus == std::size(devices_))
		return nullptr;
	CUfilePerGpuStats_t &fresh = all_.per_gpu_stats[all_.num_gpus];
	if (cuda)
		cuda->uuid(device, fresh.uuid);
	devices_[all_.num_gpus++] = device;
	return &fresh;
}

void Stats::io(const Io &io, Cuda *cuda)
{
	if (!on())
		return;
	std::lock_guard guard(lock_);
	CUfileStatsLevel1_t &basic = all_.detailed.basic;
	CUfileOpCounter_t &ops = io.write ? basic.write_ops : basic.read_ops;
	(io.ok ? ops.ok : ops.err)++;
	if (io.ok) {
		(io.write ? basic.write_bytes : basic.read_bytes) += io.bytes;
		(io.write ? basic.write_lat_sum_us : basic.read_lat_sum_us) += io.ns / 1000;
		if (level_ >= 2)
			(io.write ? all_.detailed.write_size_kb_hist :
				    all_.detailed.read_size_kb_hist)[bucket(io.bytes)]++;
	}
	CUfilePerGpuStats_t *per = gpu(io.device, cuda);
	if (!per)
		return;
	if (io.write) {
		per->n_total_writes++;
		per->n_writes_err += !io.ok;
		per->writes_bytes += io.ok ? io.bytes : 0;
		per->write_duration_us += io.ns / 1000;
		(io.direct ? per->n_p2p_writes : per->n_posix_writes)++;
		per->n_unaligned_writes += !io.aligned;
	} else {
		per->n_total_reads++;
		per->n_reads_err += !io.ok;
		per->read_bytes += io.ok ? io.bytes : 0;
		per->read_duration_us += io.ns / 1000;
		(io.direct ? per->n_p2p_reads : per->n_posix_reads)++;
		per->n_unaligned_reads += !io.aligned;
	}
}

void Stats::count(CUfileOpCounter_t CUfileStatsLevel1_t::*counter, bool ok, uint64_t by)
{
	if (!on())
		return;
	std::lock_guard guard(lock_);
	CUfileOpCounter_t &ops = all_.detailed.basic.*counter;
	(ok ? ops.ok : ops.err) += by;
}

void Stats::vector(bool write, bool ok)
{
	if (!on())
		return;
	std::lock_guard guard(lock_);
	(ok ? vectors_[write].ok : vectors_[write].err)++;
}

void Stats::batch_submitted(uint64_t entries, uint64_t direct, uint64_t read_bytes, uint64_t write_bytes, uint64_t ns,
			    bool ok)
{
	if (!on())
		return;
	std::lock_guard guard(lock_);
	CUfileStatsLevel1_t &basic = all_.detailed.basic;
	(ok ? basic.batch_submit_ops.ok : basic.batch_submit_ops.err)++;
	if (!ok)
		return;
	basic.batch_total_submit_ops.ok += entries;
	basic.batch_enqueued_ops.ok += entries;
	basic.batch_posix_enqueued_ops.ok += entries - direct;
	basic.batch_p2p_submit_ops.ok += direct;
	basic.batch_read_bytes += read_bytes;
	basic.batch_write_bytes += write_bytes;
	basic.last_batch_read_bytes = read_bytes;
	basic.last_batch_write_bytes = write_bytes;
	basic.batch_submit_lat_sum_us += ns / 1000;
}

void Stats::batch_request_completed(bool ok, bool direct, uint64_t ns)
{
	if (!on())
		return;
	std::lock_guard guard(lock_);
	CUfileStatsLevel1_t &basic = all_.detailed.basic;
	(ok ? basic.batch_complete_ops.ok : basic.batch_complete_ops.err)++;
	(ok ? basic.batch_processed_ops.ok : basic.batch_processed_ops.err)++;
	if (!direct)
		(ok ? basic.batch_posix_processed_ops.ok : basic.batch_posix_processed_ops.err)++;
	basic.batch_completion_lat_sum_us += ns / 1000;
}

void Stats::buffer(int device, bool add, bool ok, uint64_t bytes, Cuda *cuda)
{
	count(add ? &CUfileStatsLevel1_t::buf_register_ops : &CUfileStatsLevel1_t::buf_deregister_ops, ok);
	if (!on())
		return;
	std::lock_guard guard(lock_);
	CUfilePerGpuStats_t *per = gpu(device, cuda);
	if (!per)
		return;
	if (!add) {
		per->n_mmap_free++;
		per->reg_bytes -= std::min(per->reg_bytes, bytes);
		return;
	}
	per->n_mmap++;
	(ok ? per->n_mmap_ok : per->n_mmap_err)++;
	per->reg_bytes += ok ? bytes : 0;
}

void Stats::get(CUfileStatsLevel3_t &out)
{
	std::lock_guard guard(lock_);
	const uint64_t ns = counted_ns_ + (on_ ? system_.now_ns() - started_ns_ : 0);
	out = all_;
	CUfileStatsLevel1_t &basic = out.detailed.basic;
	basic.read_bw_bytes_per_sec = per_second(basic.read_bytes, ns);
	basic.write_bw_bytes_per_sec = per_second(basic.write_bytes, ns);
	basic.read_ops_per_sec = per_second(basic.read_ops.ok, ns);
	basic.write_ops_per_sec = per_second(basic.write_ops.ok, ns);
	basic.read_lat_avg_us = ratio(basic.read_lat_sum_us, basic.read_ops.ok);
	basic.write_lat_avg_us = ratio(basic.write_lat_sum_us, basic.write_ops.ok);
	basic.batch_read_bw_bytes = per_second(basic.batch_read_bytes, ns);
	basic.batch_write_bw_bytes = per_second(basic.batch_write_bytes, ns);
	basic.batch_submit_ops_per_sec = per_second(basic.batch_submit_ops.ok, ns);
	basic.batch_complete_ops_per_sec = per_second(basic.batch_complete_ops.ok, ns);
	basic.batch_submit_lat_avg_us = ratio(basic.batch_submit_lat_sum_us, basic.batch_submit_ops.ok);
	basic.batch_completion_lat_avg_us = ratio(basic.batch_completion_lat_sum_us, basic.batch_complete_ops.ok);
	for (unsigned i = 0; i < out.num_gpus; i++) {
		CUfilePerGpuStats_t &per = out.per_gpu_stats[i];
		per.read_bw_bytes_per_sec = per_second(per.read_bytes, ns);
		per.write_bw_bytes_per_sec = per_second(per.writes_bytes, ns);
		// Per cent of the time; concurrent I/O adds up to more than 100.
		per.read_utilization = ratio(per.read_duration_us * 100, ns / 1000);
		per.write_utilization = ratio(per.write_duration_us * 100, ns / 1000);
	}
}

int Stats::write(int level, void *out, size_t size)
{
	const size_t shorter = ends[level - 1];
	if (size != shorter && size != shorter + sizeof(Longer))
		return -EINVAL;
	write_as(size != shorter, level, out);
	return 0;
}

void Stats::write_as(bool longer, int level, void *out)
{
	constexpr size_t first = sizeof(CUfileStatsLevel1_t);
	CUfileStatsLevel3_t all;
	get(all);
	// The lower levels are prefixes of the highest.
	const char *const from = reinterpret_cast<const char *>(&all);
	char *to = static_cast<char *>(out);
	std::memcpy(to, from, first);
	to += first;
	if (longer) {
		Longer more = {};
		{
			std::lock_guard guard(lock_);
			more.readv_ops = vectors_[0];
			more.writev_ops = vectors_[1];
		}
		std::memcpy(to, &more, sizeof(more));
		to += sizeof(more);
	}
	std::memcpy(to, from + first, ends[level - 1] - first);
}

} // namespace cufile
