// SPDX-License-Identifier: MIT
//
// A QEMU plugin that finds the cache lines written by two CPUs, and the instructions of a module that write them. It
// records stores by instructions at MODULES and above, where the guest's kernel loads modules. A program in the guest
// delimits the recording: "nopl MARK + 1(%rax,%rax)" begins it, "nopl MARK(%rax,%rax)" ends it and writes FILE. FILE
// has a line "ADDRESS CPUS PC PC ..." for each cache line that more than one CPU wrote, and ends with "end LINES
// STORES".
//
//   -plugin lines.so,out=FILE
//
// No Debian package contains QEMU's plugin header. The declarations below follow version 1 of that interface.
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULES 0xffffffffa0000000ULL // of a kernel without address space randomization
#define MARK 0x50444d40
#define LINE 64
#define LINES 65536 // a power of 2
#define PCS 8

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
enum { NO_REGISTERS };
enum { STORES = 2 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
				      void (*)(unsigned, qemu_plugin_meminfo_t, uint64_t, void *), int flags, int which,
				      void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

struct line {
	uint64_t address; // 0: free
	uint64_t cpus;    // one bit each
	uint64_t pcs[PCS];
};

static struct line lines[LINES];
static uint64_t stores;
static unsigned long nr;
static bool watching;
static const char *file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // protects all above except file

static struct line *find(uint64_t address)
{
	size_t at = address / LINE * 0x9e3779b97f4a7c15ULL >> 48;

	while (lines[at].address && lines[at].address != address)
		at = (at + 1) % LINES;
	if (!lines[at].address && ++nr == LINES) {
		fprintf(stderr, "lines: too many lines\n");
		exit(1);
	}
	lines[at].address = address;
	return &lines[at];
}

static void note_pc(struct line *line, uint64_t pc)
{
	for (int i = 0; i < PCS; i++) {
		if (line->pcs[i] == pc)
			return;
		if (!line->pcs[i]) {
			line->pcs[i] = pc;
			return;
		}
	}
}

static void stored(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void *pc)
{
	struct line *line;

	/* The callback is also called for loads. */
	if (!qemu_plugin_mem_is_store(info))
		return;
	pthread_mutex_lock(&lock);
	if (watching) {
		line = find(address / LINE * LINE);
		line->cpus |= 1ULL << cpu;
		note_pc(line, (uintptr_t)pc);
		stores++;
	}
	pthread_mutex_unlock(&lock);
}

static void begin(unsigned cpu, void *unused)
{
	(void)cpu, (void)unused;
	pthread_mutex_lock(&lock);
	memset(lines, 0, sizeof(lines));
	nr = stores = 0;
	watching = true;
	pthread_mutex_unlock(&lock);
}

static void end(unsigned cpu, void *unused)
{
	(void)cpu, (void)unused;
	pthread_mutex_lock(&lock);
	watching = false;
	FILE *out = fopen(file, "w");
	if (!out) {
		perror(file);
		exit(1);
	}
	for (size_t i = 0; i < LINES; i++) {
		if (!(lines[i].cpus & (lines[i].cpus - 1)))
			continue;
		fprintf(out, "%" PRIx64 " %" PRIx64, lines[i].address, lines[i].cpus);
		for (int k = 0; k < PCS && lines[i].pcs[k]; k++)
			fprintf(out, " %" PRIx64, lines[i].pcs[k]);
		fprintf(out, "\n");
	}
	fprintf(out, "end %lu %" PRIu64 "\n", nr, stores);
	fclose(out);
	pthread_mutex_unlock(&lock);
}

/// The last four bytes of "nopl DISPLACEMENT(%rax,%rax)"; 0 for any other instruction.
static uint32_t mark_of(const struct qemu_plugin_insn *insn)
{
	static const unsigned char nopl[] = {0x0f, 0x1f, 0x84, 0x00};
	uint32_t mark;

	if (qemu_plugin_insn_size(insn) != sizeof(nopl) + sizeof(mark) ||
	    memcmp(qemu_plugin_insn_data(insn), nopl, sizeof(nopl)))
		return 0;
	memcpy(&mark, (const char *)qemu_plugin_insn_data(insn) + sizeof(nopl), sizeof(mark));
	return mark;
}

/// Calls, returns and jumps. Their stores go to the stack of the running task.
static bool transfers(const struct qemu_plugin_insn *insn)
{
	const unsigned char *byte = qemu_plugin_insn_data(insn), *end = byte + qemu_plugin_insn_size(insn);

	/* Skips prefixes. */
	while (byte < end && ((*byte & 0xf0) == 0x40 || *byte == 0x66 || *byte == 0x2e || *byte == 0x3e ||
			      *byte == 0x65 || *byte == 0xf0 || *byte == 0xf2 || *byte == 0xf3))
		byte++;
	if (byte == end)
		return true;
	if (*byte == 0x0f)
		return byte + 1 < end && (byte[1] & 0xf0) == 0x80;
	if (*byte == 0xff)
		return byte + 1 < end && (byte[1] >> 3 & 7) >= 2 && (byte[1] >> 3 & 7) <= 5;
	return (*byte & 0xf0) == 0x70 || *byte == 0xe8 || *byte == 0xe9 || *byte == 0xeb || *byte == 0xc2 ||
	       *byte == 0xc3 || *byte == 0xcc;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	// QEMU attributes stores of its own helpers to the last instruction that it translated. So the last one of a
	// block is not watched: a jump, or one at the end of a page.
	const size_t n = qemu_plugin_tb_n_insns(tb);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint64_t pc = qemu_plugin_insn_vaddr(insn);
		const uint32_t mark = mark_of(insn);

		if (mark == MARK + 1)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, begin, NO_REGISTERS, NULL);
		else if (mark == MARK)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, end, NO_REGISTERS, NULL);
		else if (pc >= MODULES && i + 1 < n && !transfers(insn))
			qemu_plugin_register_vcpu_mem_cb(insn, stored, NO_REGISTERS, STORES, (void *)(uintptr_t)pc);
	}
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc,
							       char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4))
		return 1;
	file = strdup(argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
