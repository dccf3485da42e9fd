// SPDX-License-Identifier: MIT
/*
 * PID 1 of the lab's guest, in its initramfs next to /job and /ram.
 *
 * /job is written by lab.py for each boot. Line 1 is the path over which /ram/interpreter is
 * mounted, line 2 the script to run, line 3 its argument. The other lines are paths of the host
 * that stay visible where a tmpfs covers their parent. Without /job the guest powers off at once:
 * lab.py probes an accelerator so. /ram holds the files that ram.py has chosen. With /memory the
 * initramfs is the whole root, without the host's files: 9p does not survive a suspend.
 *
 * The last line on the port "tap" is "exit N", the script's exit status. Any failure here ends
 * without that line, which the host treats as a failure.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROOT "/host"
#define PORTS "/dev/virtio-ports"
#define RAM "/run/lab"

static char job[64][512];
static int njob;

static void power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

static void die(const char *what)
{
	fprintf(stderr, "init: %s: %s\n", what, strerror(errno));
	power_off();
}

static void read_job(void)
{
	FILE *f = fopen("/job", "re");

	if (!f)
		return;
	while (njob < 64 && fgets(job[njob], sizeof(job[0]), f)) {
		job[njob][strcspn(job[njob], "\n")] = 0;
		njob++;
	}
	fclose(f);
}

static void must_mount(const char *src, const char *dst, const char *type, unsigned long flags, const char *opts)
{
	if (mount(src, dst, type, flags, opts))
		die(dst);
}

/* Mounts a filesystem that a kernel or a host may lack; a test that needs it fails by itself. */
static void may_mount(const char *dst, const char *type)
{
	mkdir(dst, 0755);
	mount(type, dst, type, 0, NULL);
}

static void mkdir_parents(char *path)
{
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		mkdir(path, 0755);
		*p = '/';
	}
}

/* Makes @path of the host visible again where the tmpfs at @over hid it. */
static void keep(const char *path, const char *over)
{
	char from[600], to[600];
	struct stat st;
	size_t n = strlen(over);

	if (strncmp(path, over, n) || path[n] != '/')
		return;
	snprintf(from, sizeof(from), "/all%s", path);
	snprintf(to, sizeof(to), ROOT "%s", path);
	if (stat(from, &st))
		die(from);
	mkdir_parents(to);
	if (S_ISDIR(st.st_mode))
		mkdir(to, 0755);
	else
		close(open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	must_mount(from, to, NULL, MS_BIND, NULL);
}

static void mount_all(void)
{
	static const char *const writable[] = {"/tmp", "/run", "/mnt", "/var/tmp", "/var/lib/nfs"};
	char path[600];

	mkdir(ROOT, 0755);
	mkdir("/all", 0755);
	/* The host's files do not change during a boot, so the guest may cache everything. */
	if (access("/memory", F_OK))
		must_mount("root", ROOT, "9p", MS_RDONLY | MS_NOATIME,
			   "trans=virtio,version=9p2000.L,cache=loose,msize=512000");
	else
		must_mount("/", ROOT, NULL, MS_BIND, NULL);
	must_mount(ROOT, "/all", NULL, MS_BIND, NULL);
	must_mount("proc", ROOT "/proc", "proc", 0, NULL);
	must_mount("sysfs", ROOT "/sys", "sysfs", 0, NULL);
	must_mount("devtmpfs", ROOT "/dev", "devtmpfs", 0, NULL);
	may_mount(ROOT "/dev/pts", "devpts");
	may_mount(ROOT "/dev/shm", "tmpfs");
	may_mount(ROOT "/sys/kernel/debug", "debugfs");
	may_mount(ROOT "/sys/kernel/tracing", "tracefs");
	may_mount(ROOT "/sys/kernel/config", "configfs");
	may_mount(ROOT "/sys/fs/cgroup", "cgroup2");
	for (size_t i = 0; i < sizeof(writable) / sizeof(writable[0]); i++) {
		snprintf(path, sizeof(path), ROOT "%s", writable[i]);
		if (mount("tmpfs", path, "tmpfs", 0, "mode=1777") && i < 3)
			die(path);
		for (int k = 1; k < njob; k++)
			keep(job[k], writable[i]);
	}
	mkdir(ROOT RAM, 0755);
	must_mount("/ram", ROOT RAM, NULL, MS_BIND, NULL);
	snprintf(path, sizeof(path), ROOT "%s", job[0]);
	must_mount("/ram/interpreter", path, NULL, MS_BIND, NULL);
	if (chdir(ROOT) || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die("switching to the host's root");
}

/*
 * Creates the names that udev would: /dev/fd and the like for shells, /dev/virtio-ports/NAME for
 * the lab.
 */
static void name_devices(void)
{
	static const char *const fds[] = {"stdin", "stdout", "stderr"};
	const char *class = "/sys/class/virtio-ports";
	char path[512], name[64], target[300];
	struct dirent *d;
	DIR *dir = opendir(class);
	FILE *f;

	if (!dir)
		die(class);
	symlink("/proc/self/fd", "/dev/fd");
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "/dev/%s", fds[i]);
		snprintf(target, sizeof(target), "/proc/self/fd/%d", i);
		symlink(target, path);
	}
	mkdir(PORTS, 0755);
	while ((d = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s/name", class, d->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fscanf(f, "%63s", name) == 1) {
			snprintf(path, sizeof(path), PORTS "/%s", name);
			snprintf(target, sizeof(target), "/dev/%s", d->d_name);
			if (symlink(target, path))
				die(path);
		}
		fclose(f);
	}
	closedir(dir);
}

static int run_script(void)
{
	char *const argv[] = {"bash", job[1], job[2], NULL};
	/* Any locale but "C" opens more files. */
	char *const envp[] = {"PATH=" RAM "/bin:/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin",
			      "LD_LIBRARY_PATH=" RAM "/lib",
			      "HOME=/tmp",
			      "LC_ALL=C",
			      "TERM=dumb",
			      NULL};
	pid_t child = fork(), pid;
	int status;

	if (child < 0)
		die("fork");
	if (!child) {
		setsid();
		execve(RAM "/bin/bash", argv, envp);
		_exit(127);
	}
	while ((pid = wait(&status)) != child)
		if (pid < 0 && errno != EINTR)
			die("wait");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A port has one opener at a time: kill the processes that may hold it first. */
static void report(int status)
{
	struct timespec nap = {.tv_nsec = 10 * 1000 * 1000};
	int fd = -1;

	kill(-1, SIGKILL);
	for (int i = 0; i < 200 && fd < 0; i++) {
		fd = open(PORTS "/tap", O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			nanosleep(&nap, NULL);
	}
	if (fd < 0)
		die("reporting");
	sync();
	dprintf(fd, "exit %d\n", status);
}

int main(void)
{
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	for (int fd = 0; fd < 3; fd++) {
		close(fd);
		open("/dev/console", O_RDWR);
	}
	read_job();
	if (njob < 3)
		power_off();
	mount_all();
	name_devices();
	report(run_script());
	power_off();
}
