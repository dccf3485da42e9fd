// SPDX-License-Identifier: MIT
//
// iofaults errors DISK DEVICE | full FILE | table NAME TARGET: the storage fails under each way of moving bytes. DISK
// is a drive's folder in sysfs, DEVICE its node, of which the first 64 KiB are used, TARGET a linear table line for
// NAME. Each request must return the errno documented for the failure, must not report a byte that has not moved, must
// be counted accordingly, and must work once the storage does.
#include <array>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "../../tools/tap.hpp"
#include "../../tools/ways.hpp"

namespace
{

using ways::Answer, ways::Request, ways::Way, ways::Witness;

constexpr uint64_t kib = 1024, file_len = 64 * kib, buf_len = 96 * kib;
const std::string debugfs = "/sys/kernel/debug/";
int dev;
uint32_t provider_id;

void put(const std::string &path, const std::string &what)
{
	int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
	if (fd < 0 || ::write(fd, what.data(), what.size()) != ssize_t(what.size()))
		raw::die(path);
	::close(fd);
}

// --- The module's counters for this open file

struct Counts {
	uint64_t requests, bytes, errors, refused;
};

Counts counts()
{
	std::map<std::string, uint64_t> all;
	std::ifstream in("/proc/self/fdinfo/" + std::to_string(dev));
	std::string key;
	for (std::string line; std::getline(in, line);)
		if (const size_t colon = line.find(':'); colon != std::string::npos)
			all[line.substr(0, colon)] = std::strtoull(&line[colon + 1], nullptr, 10);
	return {all["peerdma-reads"] + all["peerdma-writes"],
		all["peerdma-direct-bytes"] + all["peerdma-near-bytes"] + all["peerdma-host-bytes"],
		all["peerdma-errors"], all["peerdma-refused"]};
}

/// Returns what is wrong with the counters after one request. Plain I/O is not counted.
std::string miscounted(const Counts &before, Way way, const Answer &answer)
{
	const Counts now = counts();
	if (way == Way::proxy)
		return now.requests == before.requests ? "" : "plain I/O was counted";
	const bool refused = answer.reason && answer.failed;
	const Counts want = {0, before.bytes + answer.bytes(), before.errors + (refused ? 0 : answer.failed),
			     before.refused + (refused ? answer.failed : 0)};
	// A command that was split fails as a whole, but bytes moved by its other pieces are counted.
	const bool cut = answer.failed && (way == Way::ring || way == Way::ring_id);
	if ((now.bytes == want.bytes || (cut && now.bytes > want.bytes)) && now.errors == want.errors &&
	    now.refused == want.refused)
		return "";
	return "counted " + std::to_string(now.bytes - before.bytes) + " bytes, " +
	       std::to_string(now.errors - before.errors) + " errors, " + std::to_string(now.refused - before.refused) +
	       " refused";
}

// --- One request meets a fault

struct Fault {
	std::string name;
	std::function<void()> begin, end;
	int err; // the errno that a request must return; 0: the fault is hidden
};

constexpr uint64_t all = ~0ULL;

/// done: bytes moved before or beside the fault.
void meets(Witness &witness, const Fault &fault, Way way, const Request &req, uint64_t done = 0)
{
	const int want = done && way != Way::pieces && way != Way::pieces_worker ? 0 : fault.err;
	if (done == all)
		done = req.len;
	const Counts before = counts();
	witness.begin(req);
	fault.begin();
	const Answer answer = witness.mover.move(way, req);
	fault.end();
	std::string why = witness.judge(answer);
	if (answer.err && answer.reason)
		why += " reason " + std::to_string(answer.reason) + " for what the storage said";
	if (answer.err != want || answer.bytes() != done)
		why += " errno " + std::to_string(answer.err) + " and " + std::to_string(answer.bytes()) +
		       " bytes, not " + std::to_string(want) + " and " + std::to_string(done);
	why += miscounted(before, way, answer);
	if (why.empty())
		why = witness.again(way);
	tap::report(why.empty(), fault.name + ": " + (req.write ? "write" : "read") + ", " + ways::name(way), why);
}

const Request reads = {false, 4096, 8192, 16384}, writes = {true, 4096, 8192, 16384};

/// By every way. One of four pieces meets the fault; any other request fails as a whole.
void every_way(Witness &witness, const Fault &fault)
{
	for (const auto &req : {reads, writes}) {
		for (Way way : {Way::fd, Way::id, Way::ring, Way::ring_id, Way::worker, Way::proxy})
			meets(witness, fault, way, req, fault.err ? 0 : all);
		for (Way way : {Way::pieces, Way::pieces_worker})
			meets(witness, fault, way, req, fault.err ? req.len - ways::Mover::piece : all);
	}
}

// --- Faults

/// Arms a folder of fault attributes: after `spared` requests the fault always triggers.
void arm(const std::string &folder, const char *times, const char *spared = "0")
{
	put(folder + "/verbose", "0");
	put(folder + "/space", spared);
	put(folder + "/times", times);
	put(folder + "/probability", "100");
}

void disarm(const std::string &folder)
{
	put(folder + "/probability", "0");
	put(folder + "/times", "0");
}

Fault lost_request(const std::string &disk)
{
	const std::string folder = debugfs + "fail_make_request";
	return {"the block layer fails it",
		[=] {
			put(disk + "/make-it-fail", "1");
			arm(folder, "1");
		},
		[=] {
			disarm(folder);
			put(disk + "/make-it-fail", "0");
		},
		EIO};
}

/// A completion of the drive with this status.
Fault status(const std::string &drive, const char *name, const char *code, int err, const char *spared = "0")
{
	const std::string folder = debugfs + drive + "/fault_inject";
	return {name,
		[=] {
			put(folder + "/status", code);
			put(folder + "/dont_retry", err ? "Y" : "N");
			arm(folder, "1", spared);
		},
		[=] { disarm(folder); }, err};
}

/// The drive's answer is lost. The driver times out, aborts, resets the drive and resubmits.
Fault lost_answer(const std::string &disk)
{
	const std::string folder = debugfs + "fail_io_timeout";
	return {"the drive's answer is lost",
		[=] {
			put(disk + "/queue/io_timeout", "400");
			put(disk + "/io-timeout-fail", "1");
			arm(folder, "1");
		},
		[=] {
			disarm(folder);
			put(disk + "/io-timeout-fail", "0");
			put(disk + "/queue/io_timeout", "30000");
		},
		0};
}

void errors(const std::string &disk, const std::string &node)
{
	const std::string drive = disk.substr(disk.find_last_of('/') + 1);
	Witness witness(dev, provider_id, node, file_len, buf_len);

	every_way(witness, lost_request(disk));
	every_way(witness, status(drive, "the drive cannot read or write it", "0x281", ENODATA));
	for (const auto &fault : {
		     status(drive, "an internal error", "0x006", EIO),
		     status(drive, "its checksum is wrong", "0x282", EILSEQ),
		     status(drive, "out of the drive's range", "0x080", EREMOTEIO),
		     status(drive, "the drive is full", "0x081", ENOSPC),
		     status(drive, "the drive is reserved", "0x083", EBADE),
	     }) {
		meets(witness, fault, Way::fd, reads);
		meets(witness, fault, Way::ring_id, writes);
	}
	const auto unsupported = status(drive, "the drive does not know the command", "0x001", EOPNOTSUPP);
	meets(witness, unsupported, Way::fd, reads);
	// The same status that a filesystem returns if it cannot proceed without blocking: resubmitted from a context
	// that may block.
	meets(witness, unsupported, Way::ring_id, reads, all);
	// io_uring can only retry a whole command. One of several pieces can be retried by the module alone.
	auto unnoticed = unsupported;
	unnoticed.err = 0;
	meets(witness, unnoticed, Way::pieces, reads, all);
	every_way(witness, status(drive, "an error that the driver tries again after", "0x006", 0));
	for (Way way : {Way::fd, Way::ring_id, Way::pieces, Way::proxy})
		meets(witness, lost_answer(disk), way, way == Way::fd ? writes : reads, all);

	// Short: bytes moved before the fault count. 1001 is 23 bytes before a block's end.
	const auto second = status(drive, "the second command fails", "0x281", ENODATA, "2");
	const Request odd = {false, 1001, 777 + 1024, 9000};
	for (Way way : {Way::fd, Way::worker})
		meets(witness, second, way, odd, 23);
	// Less than a block, bytes that cannot be addressed, and bytes written through the page cache whose writeback
	// fails.
	const auto first = status(drive, "the only command fails", "0x281", ENODATA);
	for (Way way : {Way::fd, Way::worker}) {
		meets(witness, first, way, odd);
		meets(witness, first, way, {false, 4096, 8193, 9000});
	}
	meets(witness, status(drive, "it is not written back", "0x280", EIO, "2"), Way::fd,
	      {true, 1001, 777 + 1024, 100});
	// One kiocb with several commands fails as a whole; bytes that arrived are not counted.
	const std::string most = disk + "/queue/max_sectors_kb";
	std::string before;
	std::ifstream(most) >> before;
	put(most, "4");
	for (const auto &req : {reads, writes}) {
		for (Way way : {Way::fd, Way::ring_id, Way::proxy})
			meets(witness, status(drive, "one of four commands fails", "0x281", ENODATA, "3"), way, req);
	}
	put(most, before);
}

// --- A full filesystem

/// Creates a file that takes all free space.
int fill_up(const std::string &path)
{
	const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	off_t at = 0;
	for (off_t step = 256 << 20; fd >= 0 && step >= 4096; step /= 2)
		while (!::fallocate(fd, 0, at, step))
			at += step;
	return fd;
}

void full(const std::string &path)
{
	Witness witness(dev, provider_id, path, file_len, buf_len);
	const std::string rest = path + ".rest";
	int ballast = -1;
	const Fault fault = {
		"no room",
		[&] {
			// The file keeps its length and loses its blocks.
			if (::fallocate(witness.mover.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, file_len))
				raw::die("punch");
			::fsync(witness.mover.fd());
			witness.look_again();
			ballast = fill_up(rest);
		},
		[&] {
			::close(ballast);
			::unlink(rest.c_str());
		},
		ENOSPC};
	for (Way way : {Way::fd, Way::id, Way::ring_id, Way::worker, Way::proxy})
		meets(witness, fault, way, writes);
	// All pieces fail to allocate.
	for (Way way : {Way::pieces, Way::pieces_worker})
		meets(witness, fault, way, writes);
}

// --- A table is replaced while requests are in flight

/// Suspends and resumes the device with the new table; requests wait meanwhile.
bool swap(const std::string &name, const std::string &table)
{
	return host::run("dmsetup suspend --noflush --nolockfs " + name + " && dmsetup load " + name + " --table \"" +
			 table + "\" && dmsetup resume " + name);
}

void table(const std::string &name, const std::string &linear)
{
	Witness witness(dev, provider_id, "/dev/mapper/" + name, file_len, buf_len);
	std::atomic<bool> stop = false;
	std::map<int, unsigned> seen;
	std::string why;
	bool reasoned = true;
	std::thread worker([&] {
		for (unsigned n = 0; !stop && why.empty(); n++) {
			const Way way = std::array{Way::fd, Way::ring_id, Way::pieces, Way::worker}[n % 4];
			witness.begin(reads);
			const Answer answer = witness.mover.move(way, reads);
			why = witness.judge(answer);
			seen[answer.err]++;
			if (way == Way::fd && answer.err == EXDEV)
				reasoned &= answer.reason == PEERDMA_REASON_DM_TARGET;
			::usleep(2000); // lets other threads run
		}
	});
	bool swapped = true;
	for (int i = 0; i < 2; i++)
		swapped = swap(name, "0 2048 error") && swap(name, linear) && swapped;
	stop = true;
	worker.join();
	std::string list;
	bool documented = true;
	for (const auto &[err, n] : seen) {
		list += " " + std::to_string(n) + " x " + (err ? strerrorname_np(err) : "done");
		documented &= !err || err == EIO || err == EXDEV;
	}
	tap::report(swapped && documented && reasoned && why.empty() && seen.size() > 1,
		    "a table is replaced under requests:" + list, why);
	witness.begin(reads);
	why = witness.again(Way::fd) + witness.again(Way::pieces);
	tap::report(why.empty(), "and they work again", why);
}

} // namespace

int main(int argc, char **argv)
{
	dev = raw::open_device();
	provider_id = raw::provider(dev).out_provider_id;
	const std::string what = argc > 2 ? argv[1] : "";
	if (what == "errors" && argc == 4)
		errors(argv[2], argv[3]);
	else if (what == "full")
		full(argv[2]);
	else if (what == "table" && argc == 4)
		table(argv[2], argv[3]);
	else
		return 2;
	return tap::end();
}
