/* Devices, contexts and memory of the stand-in for CUDA. */
#include "cuda_stub.h"

#include <dlfcn.h>
#include <pthread.h>
#include <search.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

#define REGION ((size_t)1 << 40)        /* addresses that belong to one GPU, or to pinned memory */
#define PAGE ((size_t)4096)

typedef struct { char *at; size_t bytes; } Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int ordinal;            /* the current device of each thread */
static int visible[STATE_GPUS], visible_count = -1;
static char *regions[STATE_GPUS + 1];   /* the last is pinned memory's */
static size_t given[STATE_GPUS + 1];    /* bytes of each region that were given out once */
static void *blocks;                    /* a tree of Block, by address */
static int used_by;                     /* the process that has used CUDA: a child forked from it cannot */
static __thread cudaError_t last;       /* what cudaGetLastError tells, by which launches tell of theirs */

/* Devices */

/* CUDA_VISIBLE_DEVICES: what stands before the first entry that names no GPU, in that order. */
static void look_around(void) {
    const State *state = cuda_state();
    const char *names = getenv("CUDA_VISIBLE_DEVICES");
    if (visible_count != -1) return;
    visible_count = 0;
    if (!state) return;
    if (!names) {
        while (visible_count < state->gpus) visible[visible_count] = visible_count, visible_count++;
        return;
    }
    char copy[2048], *rest = copy, *name;
    snprintf(copy, sizeof copy, "%s", names);
    while ((name = strsep(&rest, ",")) && *name && visible_count < STATE_GPUS) {
        int found = -1;
        for (int i = 0; i < state->gpus; i++)
            if (is_named(&state->gpu[i], name) || (*name >= '0' && *name <= '9' && atoi(name) == i)) found = i;
        if (found == -1) break;
        visible[visible_count++] = found;
    }
}

Gpu *gpu_at(int at) {
    look_around();
    return at >= 0 && at < visible_count ? &cuda_state()->gpu[visible[at]] : NULL;
}

int current_ordinal(void) { return ordinal; }

void note(int of, const char *kind, const char *format, ...) {
    static int file = -2;
    const char *path = getenv("FOOTPLATE_CUDA_NOTES");
    if (file == -2) file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file == -1) return;
    char line[256];
    int length = snprintf(line, sizeof line, "%d %ld %d %s ", getpid(), syscall(SYS_gettid), of, kind);
    va_list values;
    va_start(values, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, values);
    va_end(values);
    if (length > (int)sizeof line - 2) length = sizeof line - 2;
    line[length++] = '\n';
    if (write(file, line, (size_t)length) == -1) abort();
}

/* This process's row of a GPU, which it takes at its first call. */
static User *own_row(Gpu *gpu) {
    int pid = getpid();
    for (int i = 0; i < STATE_USERS; i++)
        if (gpu->user[i].pid == pid) return &gpu->user[i];
    for (int i = 0; i < STATE_USERS; i++) {
        User *user = &gpu->user[i];
        int32_t before = user->pid;
        if (before && holds(before)) continue;
        if (__sync_bool_compare_and_swap(&user->pid, before, pid)) {
            user->bytes = 0;
            user->context = 0;
            return user;
        }
    }
    abort();
}

static int held_by_another(const Gpu *gpu) {
    for (int i = 0; i < STATE_USERS; i++) {
        const User *user = &gpu->user[i];
        if (user->context && user->pid != getpid() && holds(user->pid)) return 1;
    }
    return 0;
}

static cudaError_t failed(cudaError_t error) { return last = error; }

cudaError_t wake(int at, const char *call) {
    Gpu *gpu = gpu_at(at);
    if (!gpu) return failed(visible_count ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    if (!used_by) used_by = getpid();
    if (used_by != getpid()) return failed(cudaErrorInitializationError);
    if (gpu->error) return failed(gpu->error);
    User *row = own_row(gpu);
    if (row->context) return cudaSuccess;
    if (gpu->exclusive && held_by_another(gpu)) return failed(cudaErrorDevicesUnavailable);
    if (held(cuda_state(), gpu) + cuda_state()->context_bytes > gpu->total_bytes) return failed(cudaErrorMemoryAllocation);
    row->context = 1;
    note(at, "context", "%s", call);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    const State *state = cuda_state();
    int runtime = CUDART_VERSION;
    look_around();
    *count = 0;
    if (state && state->driver_version / 1000 < runtime / 1000) return cudaErrorInsufficientDriver;
    *count = visible_count;
    return visible_count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *to) { *to = ordinal; return cudaSuccess; }

cudaError_t cudaSetDevice(int to) {
    if (!gpu_at(to)) return cudaErrorInvalidDevice;
    ordinal = to;
    return wake(to, __func__);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = cuda_state() ? cuda_state()->driver_version : 0;
    return cudaSuccess;
}

#undef cudaGetDeviceProperties
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *to, int of) {
    const Gpu *gpu = gpu_at(of);
    if (!gpu) return cudaErrorInvalidDevice;
    memset(to, 0, sizeof *to);
    snprintf(to->name, sizeof to->name, "NVIDIA stand-in");
    memcpy(to->uuid.bytes, gpu->uuid, sizeof gpu->uuid);
    to->major = gpu->major;
    to->minor = gpu->minor;
    to->totalGlobalMem = gpu->total_bytes;
    to->multiProcessorCount = 4;
    to->warpSize = 32;
    to->maxThreadsPerMultiProcessor = 2048;
    to->maxThreadsPerBlock = 1024;
    to->regsPerMultiprocessor = to->regsPerBlock = 65536;
    to->sharedMemPerBlock = to->sharedMemPerBlockOptin = to->sharedMemPerMultiprocessor = 49152;
    to->maxGridSize[0] = to->maxGridSize[1] = to->maxGridSize[2] = 65535;
    to->maxThreadsDim[0] = to->maxThreadsDim[1] = to->maxThreadsDim[2] = 1024;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *to, enum cudaDeviceAttr attribute, int of) {
    const Gpu *gpu = gpu_at(of);
    if (!gpu) return cudaErrorInvalidDevice;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *to = gpu->major; break;
    case cudaDevAttrComputeCapabilityMinor: *to = gpu->minor; break;
    case cudaDevAttrMultiProcessorCount: *to = 4; break;
    case cudaDevAttrMaxThreadsPerBlock: *to = 1024; break;
    case cudaDevAttrMaxGridDimX: case cudaDevAttrMaxGridDimY: *to = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: case cudaDevAttrMaxSharedMemoryPerBlockOptin: *to = 49152; break;
    case cudaDevAttrWarpSize: *to = 32; break;
    default: *to = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *to, int one, int other) { (void)one, (void)other; *to = 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int of, unsigned flags) { (void)of, (void)flags; return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { return last; }
cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaDeviceGetPCIBusId(char *to, int size, int of) {
    snprintf(to, (size_t)size, "0000:%02X:00.0", of + 1);
    return cudaSuccess;
}

static int not_supported(void) { return cudaErrorNotSupported; }

/* What libcuda.so.1 of the stand-in lacks is there, and is not supported: torch looks up all that it may ever call. */
cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **to, unsigned version, unsigned long long flags, enum cudaDriverEntryPointQueryResult *result
) {
    (void)version, (void)flags;
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY);
    *to = driver ? dlsym(driver, name) : NULL;
    if (!*to) *to = (void *)not_supported;
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

/* Memory */

static int by_address(const void *one, const void *other) {
    const Block *a = one, *b = other;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Zeros at addresses of the region that were not given out before. */
static void *give(int region, size_t bytes) {
    pthread_mutex_lock(&lock);
    if (!regions[region]) {
        regions[region] = mmap(NULL, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (regions[region] == MAP_FAILED) abort();
    }
    Block *block = malloc(sizeof *block);
    block->at = regions[region] + given[region];
    block->bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    given[region] += block->bytes;
    if (given[region] > REGION || mprotect(block->at, block->bytes, PROT_READ | PROT_WRITE)) abort();
    tsearch(block, &blocks, by_address);
    pthread_mutex_unlock(&lock);
    return block->at;
}

/* How many bytes were given at `at`, which is nobody's any more; 0 where nothing was. */
static size_t take_back(void *at) {
    Block known = {at, 0};
    pthread_mutex_lock(&lock);
    void **found = tfind(&known, &blocks, by_address);
    Block *block = found ? *found : NULL;
    size_t bytes = block ? block->bytes : 0;
    if (block) {
        tdelete(block, &blocks, by_address);
        mmap(block->at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        free(block);
    }
    pthread_mutex_unlock(&lock);
    return bytes;
}

static int region_of(const void *at) {
    for (int i = 0; i <= STATE_GPUS; i++)
        if (regions[i] && (char *)at >= regions[i] && (char *)at < regions[i] + REGION) return i;
    return -1;
}

int is_pinned(const void *at) { return region_of(at) == STATE_GPUS; }

int ordinal_of(const void *at) {
    int region = region_of(at);
    return region == STATE_GPUS ? -1 : region;
}

cudaError_t cudaMalloc(void **to, size_t bytes) {
    cudaError_t error = wake(ordinal, __func__);
    Gpu *gpu = gpu_at(ordinal);
    *to = NULL;
    if (error || !bytes) return error;
    if (held(cuda_state(), gpu) + bytes > gpu->total_bytes) {
        note(ordinal, "memory", "refused %zu", bytes);
        return failed(cudaErrorMemoryAllocation);
    }
    *to = give(ordinal, bytes);
    __sync_fetch_and_add(&own_row(gpu)->bytes, (bytes + PAGE - 1) / PAGE * PAGE);
    note(ordinal, "memory", "given %zu", bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *at) {
    cudaError_t error = wake(ordinal, __func__);
    int of = ordinal_of(at);
    if (error || !at) return error;
    drain_all();
    size_t bytes = take_back(at);
    if (of == -1 || !bytes) return cudaErrorInvalidValue;
    __sync_fetch_and_sub(&own_row(gpu_at(of))->bytes, bytes);
    note(of, "memory", "back %zu", bytes);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **to, size_t bytes, unsigned flags) {
    (void)flags;
    cudaError_t error = wake(ordinal, __func__);
    if (error) return error;
    *to = give(STATE_GPUS, bytes);
    note(ordinal, "pinned", "given %zu", bytes);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **to, size_t bytes) { return cudaHostAlloc(to, bytes, 0); }

cudaError_t cudaFreeHost(void *at) {
    note(ordinal, "pinned", "back %zu", take_back(at));
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags) {
    (void)at, (void)flags;
    note(ordinal, "pinned", "registered %zu", bytes);
    return wake(ordinal, __func__);
}

cudaError_t cudaHostUnregister(void *at) { (void)at; return cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    cudaError_t error = wake(ordinal, __func__);
    const Gpu *gpu = gpu_at(ordinal);
    if (error) return error;
    *total_bytes = gpu->total_bytes;
    uint64_t taken = held(cuda_state(), gpu);
    *free_bytes = taken < gpu->total_bytes ? gpu->total_bytes - taken : 0;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *to, const void *at) {
    memset(to, 0, sizeof *to);
    int of = ordinal_of(at);
    to->type = of != -1 ? cudaMemoryTypeDevice : is_pinned(at) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    to->device = of != -1 ? of : ordinal;
    to->devicePointer = to->hostPointer = (void *)at;
    return cudaSuccess;
}
