/* A disk that fails or is slow, for the process that this library is preloaded into and all that it forks: what is done to
   files below $BAD_DISK goes as the file $BAD_DISK_FAULT says, and as ever where that is empty or missing.

   "write", "sync", "rename": each of them fails with EIO; "torn": half of what is written fits, then the disk is full;
   "slow": each of them takes a while. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
enum { WRITE_US = 20000, SYNC_US = 300000 };

static int is_below(const char *path)
{
    const char *disk = getenv("BAD_DISK");
    return disk && !strncmp(path, disk, strlen(disk));
}

static int is_on_it(int fd)
{
    char link[40], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && is_below(path);
}

static int has_fault(const char *what)
{
    const char *file = getenv("BAD_DISK_FAULT");
    char fault[16] = "";
    int fd = file ? REAL(open)(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, fault, sizeof fault - 1);
    close(fd);
    return length > 0 && !strcmp(fault, what);
}

/* Whether it fails. */
static int goes_badly(const char *what, useconds_t slow)
{
    if (has_fault("slow"))
        usleep(slow);
    if (!has_fault(what))
        return 0;
    errno = EIO;
    return 1;
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (is_on_it(fd)) {
        if (goes_badly("write", WRITE_US))
            return -1;
        if (has_fault("torn")) {
            if (size < 2) {
                errno = ENOSPC;
                return -1;
            }
            size /= 2;
        }
    }
    return REAL(write)(fd, data, size);
}

int fsync(int fd) { return is_on_it(fd) && goes_badly("sync", SYNC_US) ? -1 : REAL(fsync)(fd); }

int rename(const char *from, const char *to)
{
    return is_below(to) && goes_badly("rename", WRITE_US) ? -1 : REAL(rename)(from, to);
}
