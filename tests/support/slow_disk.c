/* A slow disk or network file system, for the process that this library is preloaded into and all that it starts: fsync
   of a checkpoint that is being received takes $SLOW_SYNC_US, and a stat of a path that contains $SLOW_STAT_PATH takes
   $SLOW_STAT_US longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void wait_as(const char *variable)
{
    const char *us = getenv(variable);
    if (us)
        usleep(atoi(us));
}

static void look_at(const char *path)
{
    const char *part = getenv("SLOW_STAT_PATH");
    if (part && path && strstr(path, part))
        wait_as("SLOW_STAT_US");
}

int fsync(int fd)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/.last.pt."))
        wait_as("SLOW_SYNC_US");
    return REAL(fsync)(fd);
}

int stat(const char *path, struct stat *to)
{
    look_at(path);
    return REAL(stat)(path, to);
}

int lstat(const char *path, struct stat *to)
{
    look_at(path);
    return REAL(lstat)(path, to);
}

int fstatat(int fd, const char *path, struct stat *to, int flags)
{
    look_at(path);
    return REAL(fstatat)(fd, path, to, flags);
}

int stat64(const char *path, struct stat64 *to)
{
    look_at(path);
    return REAL(stat64)(path, to);
}

int lstat64(const char *path, struct stat64 *to)
{
    look_at(path);
    return REAL(lstat64)(path, to);
}

int fstatat64(int fd, const char *path, struct stat64 *to, int flags)
{
    look_at(path);
    return REAL(fstatat64)(fd, path, to, flags);
}
