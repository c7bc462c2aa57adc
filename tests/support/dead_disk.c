/* A disk of a network that is gone, for the process that this library is preloaded into: whoever looks at a path below
   $DEAD_DISK, or reads an open file there, waits for ever, as with a hard mount of NFS.

   With $DEAD_DISK_SINCE, the disk responds until that file exists. With $DEAD_DISK_TRAP, the first thread gets SIGUSR1 and
   continues instead of waiting. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void wait_if_dead(const char *path)
{
    const char *dead = getenv("DEAD_DISK"), *since = getenv("DEAD_DISK_SINCE");
    if (!path || !dead || strncmp(path, dead, strlen(dead)) || (since && REAL(access)(since, F_OK)))
        return;
    if (getenv("DEAD_DISK_TRAP") && gettid() == getpid()) {
        raise(SIGUSR1);
        return;
    }
    for (;;)
        pause();
}

static void wait_if_on_dead(int fd)
{
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = REAL(readlink)(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        wait_if_dead(path);
    }
}

ssize_t read(int fd, void *to, size_t size) { if (getenv("DEAD_DISK_SINCE")) wait_if_on_dead(fd); return REAL(read)(fd, to, size); }
int mkdir(const char *path, mode_t mode) { wait_if_dead(path); return REAL(mkdir)(path, mode); }
int unlink(const char *path) { wait_if_dead(path); return REAL(unlink)(path); }
int rename(const char *from, const char *to) { wait_if_dead(from); wait_if_dead(to); return REAL(rename)(from, to); }
ssize_t readlink(const char *path, char *to, size_t size) { wait_if_dead(path); return REAL(readlink)(path, to, size); }
int stat(const char *path, struct stat *found) { wait_if_dead(path); return REAL(stat)(path, found); }
int stat64(const char *path, struct stat64 *found) { wait_if_dead(path); return REAL(stat64)(path, found); }
int lstat(const char *path, struct stat *found) { wait_if_dead(path); return REAL(lstat)(path, found); }
int lstat64(const char *path, struct stat64 *found) { wait_if_dead(path); return REAL(lstat64)(path, found); }
int fstatat(int at, const char *path, struct stat *found, int flags)
{ wait_if_dead(path); return REAL(fstatat)(at, path, found, flags); }
int fstatat64(int at, const char *path, struct stat64 *found, int flags)
{ wait_if_dead(path); return REAL(fstatat64)(at, path, found, flags); }
int statx(int at, const char *path, int flags, unsigned mask, struct statx *found)
{ wait_if_dead(path); return REAL(statx)(at, path, flags, mask, found); }
int access(const char *path, int mode) { wait_if_dead(path); return REAL(access)(path, mode); }
int faccessat(int at, const char *path, int mode, int flags)
{ wait_if_dead(path); return REAL(faccessat)(at, path, mode, flags); }
DIR *opendir(const char *path) { wait_if_dead(path); return REAL(opendir)(path); }

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { va_list rest; va_start(rest, flags); mode_t mode = mode_of(flags, rest); va_end(rest); \
      wait_if_dead(path); return REAL(name)(path, flags, mode); }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) \
    { va_list rest; va_start(rest, flags); mode_t mode = mode_of(flags, rest); va_end(rest); \
      wait_if_dead(path); return REAL(name)(at, path, flags, mode); }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
