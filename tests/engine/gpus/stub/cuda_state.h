/* What the stand-ins for CUDA and NVML share: a machine's GPUs, and which process holds how much of each.
 *
 * It is a file that FOOTPLATE_CUDA_STATE names, mapped by every process; tests/support/cuda_stub.py makes it and changes
 * it while processes run. A process writes only its own rows; those of processes that have ended count no more, so that a
 * killed process gives its memory back as a real one does.
 */
#ifndef CUDA_STATE_H
#define CUDA_STATE_H

#include <stdint.h>

#define STATE_GPUS 16
#define STATE_USERS 64

typedef struct {
    int32_t pid;        /* 0: a free row */
    int32_t context;    /* 1 once the process has a context on the GPU */
    uint64_t bytes;     /* allocated, without the context */
} User;

typedef struct Gpu {
    unsigned char uuid[16];
    uint64_t total_bytes;
    int32_t major, minor;   /* compute capability */
    int32_t hangs;          /* while 1 nothing that was asked of the GPU goes on */
    int32_t error;          /* what every call on the GPU answers, unless 0 */
    int32_t exclusive;      /* 1: a single process may have a context */
    int32_t spare;
    User user[STATE_USERS];
} Gpu;

typedef struct {
    int32_t gpus;           /* in CUDA's order */
    int32_t driver_version; /* as cudaDriverGetVersion counts: 13020 */
    int32_t copy_us;        /* how long each copy takes */
    int32_t kernel_us;      /* how long each kernel takes, of which none does anything */
    int32_t exact;          /* 0: floats that are not finite are read as 0, since what kernels leave unwritten may be any */
    int32_t spare;
    uint64_t context_bytes; /* what a context takes of a GPU's memory */
    Gpu gpu[STATE_GPUS];
} State;

/* The mapped file, NULL where there is none. */
static inline State *cuda_state(void);

/* Whether a process still holds what it held: one that has ended and waits to be reaped does not. */
static inline int holds(int32_t pid);

/* What a living process holds of a GPU, its context included; 0 for a row that is free or whose process has ended. */
static inline uint64_t held_by(const State *state, const User *user);

/* What all processes hold of a GPU. */
static inline uint64_t held(const State *state, const Gpu *gpu);

/* Whether `name`, "GPU-" and hex digits, is a GPU's UUID or begins like it. */
static inline int is_named(const Gpu *gpu, const char *name);

/* Below: the definitions. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

static inline State *cuda_state(void) {
    static State *state;
    const char *path = getenv("FOOTPLATE_CUDA_STATE");
    if (state || !path) return state;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file == -1) return NULL;
    void *at = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at != MAP_FAILED) state = at;
    return state;
}

static inline int holds(int32_t pid) {
    char path[32], run_state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &run_state) != 1) run_state = 0;
    fclose(file);
    return run_state != 'Z' && run_state != 'X';
}

static inline uint64_t held_by(const State *state, const User *user) {
    if (!user->pid || (!user->context && !user->bytes) || !holds(user->pid)) return 0;
    return user->bytes + (user->context ? state->context_bytes : 0);
}

static inline uint64_t held(const State *state, const Gpu *gpu) {
    uint64_t total = 0;
    for (int i = 0; i < STATE_USERS; i++) total += held_by(state, &gpu->user[i]);
    return total;
}

static inline int is_named(const Gpu *gpu, const char *name) {
    char hex[33];
    const char *at = hex;
    for (int i = 0; i < 16; i++) snprintf(hex + 2 * i, 3, "%02x", gpu->uuid[i]);
    if (strncmp(name, "GPU-", 4)) return 0;
    for (name += 4; *name; name++)
        if (*name != '-' && (!*at || strncasecmp(at++, name, 1))) return 0;
    return 1;
}

#endif
