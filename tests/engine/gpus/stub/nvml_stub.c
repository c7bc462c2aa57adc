/* libnvidia-ml.so.1 for tests: answers what a profile says, through NVML's C interface.
 *
 * Structs and error codes are written from NVIDIA's nvml.h (as published in NVIDIA/go-nvml), not from pynvml, so that
 * the real pynvml is what is tested. Compiled with -DOLD_DRIVER it lacks the functions that drivers before R510 lack.
 *
 * The profile is the file that FOOTPLATE_NVML_PROFILE names; "key=value" lines, "#" begins a comment. Keys before the
 * first "gpu" line are the library's; each "gpu" line begins a GPU.
 *   library: init (error code), init_hang (1), count (error code), driver_version,
 *            hang_file, abort_file (once that file exists, any reading hangs or aborts),
 *            refused_file (gets a byte for each call that is answered with an error of the GPU's own)
 *   a GPU:   name, uuid, bus_id, total, used, reserved (bytes), utilization, temperature, power_mw, power_limit_mw,
 *            process (pid:bytes, several; bytes -1 where the driver does not tell), graphics_process,
 *            wave (1: utilisation moves), handle, X_error (error code) for X of name, memory, utilization, temperature,
 *            power, power_limit, processes, any; lost_file (once that file exists the GPU is lost), lost_after (readings)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define INSUFFICIENT_SIZE 7
#define GPU_IS_LOST 15
#define ARGUMENT_VERSION_MISMATCH 25

#define MAX_GPUS 16
#define MAX_PROCESSES 16

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
#define nvmlMemory_v2 ((unsigned int)(sizeof(nvmlMemory_v2_t) | (2U << 24)))

typedef struct { unsigned int count; nvmlProcessInfo_t rows[MAX_PROCESSES]; } Processes;

typedef struct {
    char name[96], uuid[96], bus_id[32], lost_file[512];
    unsigned long long total, used, reserved;
    int utilization, temperature, power_mw, power_limit_mw, wave;
    int handle, name_error, memory_error, utilization_error, temperature_error, power_error, power_limit_error;
    int processes_error, any_error;
    long lost_after, readings;
    Processes compute, graphics;
} Device;

static struct {
    int initialised, init, init_hang, count_error, gpus;
    char driver_version[80], hang_file[512], abort_file[512], refused_file[512];
    Device gpu[MAX_GPUS];
} library;

static void add_process(Processes *to, const char *value) {
    long long bytes = -1;
    nvmlProcessInfo_t *row = &to->rows[to->count++];
    sscanf(value, "%u:%lld", &row->pid, &bytes);
    row->usedGpuMemory = (unsigned long long)bytes;
    row->gpuInstanceId = row->computeInstanceId = 0xFFFFFFFF;
}

static void set_library(const char *key, const char *value) {
    if (!strcmp(key, "init")) library.init = atoi(value);
    else if (!strcmp(key, "init_hang")) library.init_hang = atoi(value);
    else if (!strcmp(key, "count")) library.count_error = atoi(value);
    else if (!strcmp(key, "driver_version")) snprintf(library.driver_version, 80, "%s", value);
    else if (!strcmp(key, "hang_file")) snprintf(library.hang_file, 512, "%s", value);
    else if (!strcmp(key, "refused_file")) snprintf(library.refused_file, 512, "%s", value);
    else if (!strcmp(key, "abort_file")) snprintf(library.abort_file, 512, "%s", value);
    else { fprintf(stderr, "profile: unknown key %s\n", key); abort(); }
}

static void set_device(Device *gpu, const char *key, const char *value) {
    if (!strcmp(key, "name")) snprintf(gpu->name, 96, "%s", value);
    else if (!strcmp(key, "uuid")) snprintf(gpu->uuid, 96, "%s", value);
    else if (!strcmp(key, "bus_id")) snprintf(gpu->bus_id, 32, "%s", value);
    else if (!strcmp(key, "lost_file")) snprintf(gpu->lost_file, 512, "%s", value);
    else if (!strcmp(key, "total")) gpu->total = strtoull(value, NULL, 10);
    else if (!strcmp(key, "used")) gpu->used = strtoull(value, NULL, 10);
    else if (!strcmp(key, "reserved")) gpu->reserved = strtoull(value, NULL, 10);
    else if (!strcmp(key, "process")) add_process(&gpu->compute, value);
    else if (!strcmp(key, "graphics_process")) add_process(&gpu->graphics, value);
    else if (!strcmp(key, "lost_after")) gpu->lost_after = atol(value);
    else {
        struct { const char *key; int *at; } numbers[] = {
            {"utilization", &gpu->utilization}, {"temperature", &gpu->temperature}, {"power_mw", &gpu->power_mw},
            {"power_limit_mw", &gpu->power_limit_mw}, {"wave", &gpu->wave}, {"handle", &gpu->handle},
            {"name_error", &gpu->name_error}, {"memory_error", &gpu->memory_error},
            {"utilization_error", &gpu->utilization_error}, {"temperature_error", &gpu->temperature_error},
            {"power_error", &gpu->power_error}, {"power_limit_error", &gpu->power_limit_error},
            {"processes_error", &gpu->processes_error}, {"any_error", &gpu->any_error},
        };
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            if (!strcmp(key, numbers[i].key)) { *numbers[i].at = atoi(value); return; }
        fprintf(stderr, "profile: unknown key %s\n", key);
        abort();
    }
}

static void read_profile(void) {
    char line[1024];
    const char *path = getenv("FOOTPLATE_NVML_PROFILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) { fprintf(stderr, "no profile\n"); abort(); }
    memset(&library, 0, sizeof library);
    while (fgets(line, sizeof line, file)) {
        char *value = strchr(line, '=');
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || !line[0]) continue;
        if (!strcmp(line, "gpu")) { library.gpu[library.gpus++].lost_after = -1; continue; }
        if (!value) { fprintf(stderr, "profile: %s\n", line); abort(); }
        *value++ = 0;
        if (library.gpus) set_device(&library.gpu[library.gpus - 1], line, value);
        else set_library(line, value);
    }
    fclose(file);
}

static void hang(void) { for (;;) pause(); }

static int exists(const char *path) { return path[0] && access(path, F_OK) == 0; }

static void note_refusal(void) {
    FILE *file = library.refused_file[0] ? fopen(library.refused_file, "a") : NULL;
    if (!file) return;
    fputc('x', file);
    fclose(file);
}

/* What every call on a GPU meets first: faults of the library, a lost GPU, then the call's own error. */
static int meets(Device *gpu, int error) {
    if (!library.initialised) return UNINITIALIZED;
    if (exists(library.hang_file)) hang();
    if (exists(library.abort_file)) abort();
    if (exists(gpu->lost_file)) return GPU_IS_LOST;
    if (gpu->lost_after >= 0 && gpu->readings > gpu->lost_after) return GPU_IS_LOST;
    if (!error) error = gpu->any_error;
    if (error) note_refusal();
    return error;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    read_profile();
    if (library.init_hang) hang();
    if (!library.init) library.initialised = 1;
    return library.init;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { library.initialised = 0; return SUCCESS; }

const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "stub error"; }

int nvmlSystemGetDriverVersion(char *to, unsigned int size) {
    snprintf(to, size, "%s", library.driver_version);
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = (unsigned int)library.gpus;
    return library.count_error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **handle) {
    if (index >= (unsigned int)library.gpus) return INVALID_ARGUMENT;
    *handle = &library.gpu[index];
    return meets(*handle, (*handle)->handle);
}

int nvmlDeviceGetName(Device *gpu, char *to, unsigned int size) {
    snprintf(to, size, "%s", gpu->name);
    return meets(gpu, gpu->name_error);
}

int nvmlDeviceGetUUID(Device *gpu, char *to, unsigned int size) {
    snprintf(to, size, "%s", gpu->uuid);
    return meets(gpu, 0);
}

int nvmlDeviceGetPciInfo_v3(Device *gpu, nvmlPciInfo_t *to) {
    memset(to, 0, sizeof *to);
    snprintf(to->busId, sizeof to->busId, "%s", gpu->bus_id);
    return meets(gpu, 0);
}

int nvmlDeviceGetUtilizationRates(Device *gpu, nvmlUtilization_t *to) {
    gpu->readings++;
    to->gpu = (unsigned int)(gpu->wave ? (gpu->utilization + 7 * gpu->readings) % 101 : gpu->utilization);
    to->memory = to->gpu / 2;
    return meets(gpu, gpu->utilization_error);
}

/* Version 1 counts what the driver reserves as used. */
int nvmlDeviceGetMemoryInfo(Device *gpu, nvmlMemory_t *to) {
    to->total = gpu->total;
    to->used = gpu->used + gpu->reserved;
    to->free = gpu->total - to->used;
    return meets(gpu, gpu->memory_error);
}

int nvmlDeviceGetTemperature(Device *gpu, int sensor, unsigned int *to) {
    (void)sensor;
    *to = (unsigned int)gpu->temperature;
    return meets(gpu, gpu->temperature_error);
}

int nvmlDeviceGetPowerUsage(Device *gpu, unsigned int *to) {
    *to = (unsigned int)gpu->power_mw;
    return meets(gpu, gpu->power_error);
}

int nvmlDeviceGetEnforcedPowerLimit(Device *gpu, unsigned int *to) {
    *to = (unsigned int)gpu->power_limit_mw;
    return meets(gpu, gpu->power_limit_error);
}

static int list(Device *gpu, const Processes *from, unsigned int *count, nvmlProcessInfo_t *to) {
    unsigned int room = *count;
    int error = meets(gpu, gpu->processes_error);
    if (error) return error;
    *count = from->count;
    if (from->count == 0) return SUCCESS;
    if (!to || room < from->count) return INSUFFICIENT_SIZE;
    memcpy(to, from->rows, from->count * sizeof *to);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(Device *gpu, unsigned int *count, nvmlProcessInfo_t *to) {
    return list(gpu, &gpu->compute, count, to);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(Device *gpu, unsigned int *count, nvmlProcessInfo_t *to) {
    return list(gpu, &gpu->graphics, count, to);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(Device *gpu, nvmlMemory_v2_t *to) {
    if (to->version != nvmlMemory_v2) return ARGUMENT_VERSION_MISMATCH;
    to->total = gpu->total;
    to->reserved = gpu->reserved;
    to->used = gpu->used;
    to->free = gpu->total - gpu->used - gpu->reserved;
    return meets(gpu, gpu->memory_error);
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *gpu, unsigned int *count, nvmlProcessInfo_t *to) {
    return list(gpu, &gpu->compute, count, to);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *gpu, unsigned int *count, nvmlProcessInfo_t *to) {
    return list(gpu, &gpu->graphics, count, to);
}
#endif
