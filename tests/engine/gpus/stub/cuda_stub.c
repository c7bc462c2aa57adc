/* libcuda.so.1 for tests: the devices whose UUIDs stand in FOOTPLATE_CUDA_UUIDS (32 hex digits each, comma between),
 * in that order. FOOTPLATE_CUDA_HANG makes cuInit hang; CUDA_VISIBLE_DEVICES, when it is set at all, hides every device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_NO_DEVICE 100

static const char *uuids(void) {
    const char *value = getenv("FOOTPLATE_CUDA_UUIDS");
    return getenv("CUDA_VISIBLE_DEVICES") || !value ? "" : value;
}

int cuInit(unsigned int flags) {
    (void)flags;
    while (getenv("FOOTPLATE_CUDA_HANG")) pause();
    return uuids()[0] ? 0 : CUDA_ERROR_NO_DEVICE;
}

int cuDeviceGetCount(int *count) {
    *count = (int)(strlen(uuids()) + 1) / 33;
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

#ifdef OLD_DRIVER
int cuDeviceGetUuid(unsigned char *to, int device) {
#else
int cuDeviceGetUuid_v2(unsigned char *to, int device) {
#endif
    for (int i = 0; i < 16; i++)
        if (sscanf(uuids() + 33 * device + 2 * i, "%2hhx", &to[i]) != 1) return CUDA_ERROR_INVALID_VALUE;
    return 0;
}
