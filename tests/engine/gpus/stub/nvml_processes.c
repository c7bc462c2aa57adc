/* Who uses a GPU, and how much of it.
 *
 * Keys of a GPU or MIG instance (each but long_structs may be given several times):
 *   process, mps_process, graphics_process   PID:BYTES, -1 bytes where the driver does not tell
 *   sample        PID:SM or PID:SM:AGE_US: a share in percent, taken at every moment, or once, before the library began
 *   long_structs  1: version 3 fills longer structs than its callers have room for, as drivers 535.43 to 535.86 do
 * Errors: processes, process_utilization.
 */
#include "cuda_state.h"
#include "nvml_stub.h"

#define MAX_ROWS (MAX_PROCESSES * (1 + MAX_INSTANCES) + STATE_USERS)

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

/* What version 3 was in those drivers, by the name of nvmlProcessDetail_v1_t since; it begins like the shorter one. */
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
    unsigned long long usedGpuCcProtectedMemory;
} LongProcessInfo;

static void add_to(Processes *to, const char *value) {
    long long bytes = -1;
    nvmlProcessInfo_t *row = &to->rows[to->count];
    if (to->count++ == MAX_PROCESSES || sscanf(value, "%u:%lld", &row->pid, &bytes) < 1) abort();
    row->usedGpuMemory = (unsigned long long)bytes;
}

static void add_compute(Device *gpu, const char *value) { add_to(&gpu->compute, value); }
static void add_mps(Device *gpu, const char *value) { add_to(&gpu->mps, value); }
static void add_graphics(Device *gpu, const char *value) { add_to(&gpu->graphics, value); }

static void add_sample(Device *gpu, const char *value) {
    long long age_us = -1;
    unsigned int pid, sm;
    if (gpu->sample_count == MAX_SAMPLES || sscanf(value, "%u:%u:%lld", &pid, &sm, &age_us) < 2) abort();
    gpu->samples[gpu->sample_count].pid = pid;
    gpu->samples[gpu->sample_count].sm = sm;
    gpu->samples[gpu->sample_count++].at_us = age_us < 0 ? 0 : now_us() - age_us;
}

const Key process_keys[] = {
    TAKEN_BY("process", add_compute), TAKEN_BY("mps_process", add_mps), TAKEN_BY("graphics_process", add_graphics),
    TAKEN_BY("sample", add_sample), A_WHOLE(long_structs), NO_MORE_KEYS,
};

typedef enum { COMPUTE, MPS, GRAPHICS } Kind;

static const Processes *processes(const Device *gpu, Kind kind) {
    return kind == COMPUTE ? &gpu->compute : kind == MPS ? &gpu->mps : &gpu->graphics;
}

/* The processes of `gpu` put behind the `count` rows that are there; how many there are then. */
static unsigned int gather(const Device *gpu, Kind kind, nvmlProcessInfo_t *rows, unsigned int count) {
    const Processes *from = processes(gpu, kind);
    for (unsigned int i = 0; i < from->count; i++) {
        rows[count + i] = from->rows[i];
        rows[count + i].gpuInstanceId = gpu->parent ? (unsigned int)gpu->gpu_instance : NONE;
        rows[count + i].computeInstanceId = gpu->parent ? (unsigned int)gpu->compute_instance : NONE;
    }
    count += from->count;
    const Gpu *cuda = kind == COMPUTE ? cuda_gpu_of(gpu) : NULL;
    for (int i = 0; cuda && i < STATE_USERS; i++) {
        nvmlProcessInfo_t row = {(unsigned int)cuda->user[i].pid, held_by(cuda_state(), &cuda->user[i]), NONE, NONE};
        if (row.usedGpuMemory && count < MAX_ROWS) rows[count++] = row;
    }
    /* A GPU with MIG on tells those of all its instances to callers with the privilege. */
    for (int i = 0; i < gpu->instances; i++) count = gather(gpu->instance[i], kind, rows, count);
    return count;
}

static int list(Device *gpu, Kind kind, unsigned int *count, void *to, int version) {
    static nvmlProcessInfo_t rows[MAX_ROWS];
    unsigned int room = *count;
    int error = meets(gpu, "processes");
    if (error) return error;
    *count = gather(gpu, kind, rows, 0);
    if (*count == 0) return SUCCESS;
    if (!to || room < *count) return INSUFFICIENT_SIZE;
    const size_t size = version == 1 ? offsetof(nvmlProcessInfo_t, gpuInstanceId) : sizeof(nvmlProcessInfo_t);
    const size_t stride = version == 3 && gpu->long_structs ? sizeof(LongProcessInfo) : size;
    for (unsigned int i = 0; i < *count; i++) memcpy((char *)to + i * stride, &rows[i], size);
    return SUCCESS;
}

#define LISTS(name, kind) \
    int nvmlDeviceGet##name##RunningProcesses_v2(Device *gpu, unsigned int *count, nvmlProcessInfo_t *to) { \
        return list(gpu, kind, count, to, 2); \
    }
LISTS(Compute, COMPUTE)
LISTS(MPSCompute, MPS)
LISTS(Graphics, GRAPHICS)

/* As torch asks where memory has run out. */
int nvmlDeviceGetComputeRunningProcesses(Device *gpu, unsigned int *count, nvmlProcessInfo_t *to) {
    return list(gpu, COMPUTE, count, to, 1);
}

#ifndef OLD_DRIVER
#define NEW_LISTS(name, kind) \
    int nvmlDeviceGet##name##RunningProcesses_v3(Device *gpu, unsigned int *count, nvmlProcessInfo_t *to) { \
        return list(gpu, kind, count, to, 3); \
    }
NEW_LISTS(Compute, COMPUTE)
NEW_LISTS(MPSCompute, MPS)
NEW_LISTS(Graphics, GRAPHICS)
#endif

int nvmlDeviceGetProcessUtilization(
    Device *gpu, nvmlProcessUtilizationSample_t *to, unsigned int *count, unsigned long long seen_us
) {
    unsigned int room = *count, told = 0;
    int error = meets(gpu, "process_utilization");
    if (error) return error;
    if (gpu->mig > 0 || gpu->parent) return NOT_SUPPORTED;
    for (int i = 0; i < gpu->sample_count; i++) {
        unsigned long long at = (unsigned long long)(gpu->samples[i].at_us ? gpu->samples[i].at_us : now_us());
        if (at <= seen_us) continue;
        if (to && told < room) {
            nvmlProcessUtilizationSample_t sample = {
                .pid = gpu->samples[i].pid, .timeStamp = at, .smUtil = gpu->samples[i].sm,
            };
            to[told] = sample;
        }
        told++;
    }
    *count = told;
    if (told == 0) return NOT_FOUND;
    return !to || room < told ? INSUFFICIENT_SIZE : SUCCESS;
}
