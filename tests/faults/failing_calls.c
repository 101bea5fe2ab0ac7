/* Preloaded into a process of the tests: the Nth call of one kind on a file below a folder fails with EIO, or writes
 * half. FAIL_FOLDER, FAIL_CALL (fdatasync, fsync, pwritev, pread, ftruncate), FAIL_AT (from 1), FAIL_SHORT=1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long calls;

static int hit(const char *call, int fd) {
    const char *wanted = getenv("FAIL_CALL"), *folder = getenv("FAIL_FOLDER"), *at = getenv("FAIL_AT");
    char link[64], path[4096];
    ssize_t size;
    if (!wanted || !folder || !at || strcmp(wanted, call) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    if (strncmp(path, folder, strlen(folder)) != 0 || __sync_add_and_fetch(&calls, 1) != atol(at)) return 0;
    fprintf(stderr, "injected\n");
    return 1;
}

#define FAIL_IF(call, fd) do { if (hit(call, fd)) { errno = EIO; return -1; } } while (0)
#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

int fsync(int fd) { FAIL_IF("fsync", fd); return REAL("fsync", int (*)(int))(fd); }
int fdatasync(int fd) { FAIL_IF("fdatasync", fd); return REAL("fdatasync", int (*)(int))(fd); }
int ftruncate64(int fd, off_t size) { FAIL_IF("ftruncate", fd); return REAL("ftruncate64", int (*)(int, off_t))(fd, size); }
int ftruncate(int fd, off_t size) { FAIL_IF("ftruncate", fd); return REAL("ftruncate64", int (*)(int, off_t))(fd, size); }

typedef ssize_t (*read_t)(int, void *, size_t, off_t);
ssize_t pread64(int fd, void *data, size_t size, off_t at) { FAIL_IF("pread", fd); return REAL("pread64", read_t)(fd, data, size, at); }
ssize_t pread(int fd, void *data, size_t size, off_t at) { FAIL_IF("pread", fd); return REAL("pread64", read_t)(fd, data, size, at); }

typedef ssize_t (*writev_t)(int, const struct iovec *, int, off_t);
static ssize_t write_vector(int fd, const struct iovec *pieces, int count, off_t at) {
    writev_t real = REAL("pwritev64", writev_t);
    if (!hit("pwritev", fd)) return real(fd, pieces, count, at);
    if (getenv("FAIL_SHORT") && pieces[0].iov_len > 1) {
        struct iovec half = {pieces[0].iov_base, pieces[0].iov_len / 2};
        return real(fd, &half, 1, at);
    }
    errno = EIO;
    return -1;
}
/* CPython calls the form with flags. */
ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off_t at, int flags) { (void)flags; return write_vector(fd, pieces, count, at); }
ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags) { (void)flags; return write_vector(fd, pieces, count, at); }
ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off_t at) { return write_vector(fd, pieces, count, at); }
ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at) { return write_vector(fd, pieces, count, at); }
