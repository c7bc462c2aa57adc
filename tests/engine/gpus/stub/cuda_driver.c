/* libcuda.so.1 of the stand-in: as much of the driver's interface as the sampler and torch ask for themselves.
 *
 * FOOTPLATE_CUDA_HANG makes cuInit hang. Compiled with -DOLD_DRIVER it lacks what drivers before R510 lack. Whether a context
 * exists is asked of the preloaded runtime where there is one.
 */
#define _GNU_SOURCE
#include "cuda_state.h"

#include <dlfcn.h>
#include <string.h>

#define NO_DEVICE 100

static Gpu *gpu_at(int ordinal) {
    Gpu *(*visible)(int) = (Gpu *(*)(int))dlsym(RTLD_DEFAULT, "gpu_at");
    State *state = cuda_state();
    if (visible) return visible(ordinal);
    return state && ordinal < state->gpus && !getenv("CUDA_VISIBLE_DEVICES") ? &state->gpu[ordinal] : NULL;
}

int cuInit(unsigned flags) {
    (void)flags;
    while (getenv("FOOTPLATE_CUDA_HANG")) pause();
    return gpu_at(0) ? 0 : NO_DEVICE;
}

int cuDriverGetVersion(int *to) { *to = cuda_state() ? cuda_state()->driver_version : 0; return 0; }

int cuDeviceGetCount(int *count) {
    for (*count = 0; gpu_at(*count);) ++*count;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return gpu_at(ordinal) ? 0 : NO_DEVICE; }

#ifdef OLD_DRIVER
int cuDeviceGetUuid(unsigned char *to, int device) {
#else
int cuDeviceGetUuid_v2(unsigned char *to, int device) {
#endif
    if (!gpu_at(device)) return NO_DEVICE;
    memcpy(to, gpu_at(device)->uuid, 16);
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    const Gpu *gpu = gpu_at(device);
    *flags = 0;
    *active = 0;
    for (int i = 0; gpu && i < STATE_USERS; i++)
        if (gpu->user[i].pid == getpid()) *active = gpu->user[i].context;
    return gpu ? 0 : NO_DEVICE;
}

int cuGetErrorString(int error, const char **to) { (void)error; *to = "an error of the stand-in"; return 0; }

/* The context of a device is a number: its ordinal and one. */
int cuCtxGetCurrent(void **to) {
    int (*current)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "current_ordinal");
    int flags, active = 0;
    if (current) cuDevicePrimaryCtxGetState(current(), (unsigned *)&flags, &active);
    *to = active ? (void *)(uintptr_t)(current() + 1) : NULL;
    return 0;
}

int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuDevicePrimaryCtxRetain(void **to, int device) { *to = (void *)(uintptr_t)(device + 1); return 0; }
