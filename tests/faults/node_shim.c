/* Preloaded into a node of the tests. Files in the folder SHIM_FOLDER say, while it runs, what is to go wrong:
 *
 *   wall_clock_s     seconds that the wall clock is ahead; monotonic clocks are left alone
 *   sync_ms          each fsync and fdatasync takes so much longer
 *   fail             fdatasync, fsync, pwritev or pread: every such call on a file below SHIM_DATA fails with EIO
 *
 * What took effect is said on the standard error output: "shim: ...". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

/* What the file says, without its line end; empty if there is none. Keeps errno. */
static void setting(const char *name, char *text, size_t size) {
    char path[4096];
    const char *folder = getenv("SHIM_FOLDER");
    int before = errno, fd;
    ssize_t got = 0;
    text[0] = 0;
    if (folder && snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && (fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
        got = read(fd, text, size - 1);
        close(fd);
        text[got > 0 ? got : 0] = 0;
        text[strcspn(text, "\n")] = 0;
    }
    errno = before;
}

static void say(const char *what, const char *value) {
    char line[256];
    int before = errno, size = snprintf(line, sizeof line, "shim: %s %s\n", what, value);
    if (write(2, line, size) < 0) { /* nobody listens */ }
    errno = before;
}

/* --- the wall clock */

typedef int (*clock_gettime_t)(clockid_t, struct timespec *);

static long ahead_s(void) {
    static long last;
    char text[32];
    setting("wall_clock_s", text, sizeof text);
    long seconds = atol(text);
    if (__atomic_exchange_n(&last, seconds, __ATOMIC_RELAXED) != seconds) say("wall clock", text);
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static clock_gettime_t real;
    if (!real) real = REAL("clock_gettime", clock_gettime_t);
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead_s();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

/* --- the disk */

static int is_below_data(int fd) {
    char link[64], path[4096];
    const char *folder = getenv("SHIM_DATA");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (!folder || size < 0) return 0;
    path[size] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

static int fails(const char *call, int fd) {
    char wanted[32];
    setting("fail", wanted, sizeof wanted);
    if (strcmp(wanted, call) != 0 || !is_below_data(fd)) return 0;
    say("failed", call);
    errno = EIO;
    return 1;
}

static void wait_for_disk(int fd) {
    char text[32];
    setting("sync_ms", text, sizeof text);
    long ms = atol(text);
    if (ms <= 0 || !is_below_data(fd)) return;
    struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
    say("slow sync", text);
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    if (fails("fsync", fd)) return -1;
    wait_for_disk(fd);
    return REAL("fsync", int (*)(int))(fd);
}

int fdatasync(int fd) {
    if (fails("fdatasync", fd)) return -1;
    wait_for_disk(fd);
    return REAL("fdatasync", int (*)(int))(fd);
}

typedef ssize_t (*read_t)(int, void *, size_t, off_t);
ssize_t pread64(int fd, void *data, size_t size, off_t at) { return fails("pread", fd) ? -1 : REAL("pread64", read_t)(fd, data, size, at); }
ssize_t pread(int fd, void *data, size_t size, off_t at) { return pread64(fd, data, size, at); }

/* CPython calls the form with flags. */
typedef ssize_t (*writev_t)(int, const struct iovec *, int, off_t);
ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off_t at) { return fails("pwritev", fd) ? -1 : REAL("pwritev64", writev_t)(fd, pieces, count, at); }
ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at) { return pwritev64(fd, pieces, count, at); }
ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t at, int flags) { (void)flags; return pwritev64(fd, pieces, count, at); }
ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags) { (void)flags; return pwritev64(fd, pieces, count, at); }
