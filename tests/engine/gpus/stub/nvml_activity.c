/* What happens within a GPU: GPM's shares of activity between two samples, and events.
 *
 * Keys: sm_active, tensor_active (percent; without the first the GPU has no GPM), xid_file (its lines, as they come, are
 *   numbers of Xids).
 * Errors: gpm, events.
 */
#include "nvml_stub.h"

#define GPM_METRIC_SM_UTIL 2
#define GPM_METRIC_ANY_TENSOR_UTIL 5
#define GPM_METRIC_MAX 333
#define GPM_REFRESH_US 100000
#define EVENT_TYPE_XID 8ULL

const Key activity_keys[] = {A_NUMBER(sm_active), A_NUMBER(tensor_active), A_TEXT(xid_file), NO_MORE_KEYS};

typedef struct {
    Device *device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

typedef struct { int count; Device *of[MAX_GPUS]; } EventSet;

static int lines_of(const char *path, int number, unsigned long long *last) {
    FILE *file = path[0] ? fopen(path, "r") : NULL;
    int count = 0;
    if (!file) return 0;
    while (count < number && fscanf(file, "%llu", last) == 1) count++;
    fclose(file);
    return count;
}

int nvmlEventSetCreate(EventSet **set) {
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

int nvmlEventSetFree(EventSet *set) {
    free(set);
    return SUCCESS;
}

/* Only what happens from now on will be told. */
int nvmlDeviceRegisterEvents(Device *gpu, unsigned long long types, EventSet *set) {
    unsigned long long last;
    int error = meets(gpu, "events");
    if (error) return error;
    if (types != EVENT_TYPE_XID) return NOT_SUPPORTED;
    gpu->xids_told = lines_of(gpu->xid_file, 1 << 30, &last);
    set->of[set->count++] = gpu;
    return SUCCESS;
}

int nvmlEventSetWait_v2(EventSet *set, nvmlEventData_t *to, unsigned int timeout_ms) {
    if (timeout_ms) abort();    /* whoever waits here would be late with everything else */
    for (int i = 0; i < set->count; i++) {
        Device *gpu = set->of[i];
        unsigned long long number = 0;
        if (lines_of(gpu->xid_file, gpu->xids_told + 1, &number) <= gpu->xids_told) continue;
        gpu->xids_told++;
        nvmlEventData_t event = {gpu, EVENT_TYPE_XID, number, NONE, NONE};
        *to = event;
        return SUCCESS;
    }
    return TIMEOUT;
}

#ifndef OLD_DRIVER
typedef struct { Device *of; long long at_us; double sm, tensor; } Sample;

typedef struct {
    unsigned int metricId;
    int nvmlReturn;
    double value;
    struct { char *shortName, *longName, *unit; } metricInfo;
} nvmlGpmMetric_t;

typedef struct {
    unsigned int version, numMetrics;
    Sample *sample1, *sample2;
    nvmlGpmMetric_t metrics[GPM_METRIC_MAX];
} nvmlGpmMetricsGet_t;

typedef struct { unsigned int version, isSupportedDevice; } nvmlGpmSupport_t;

int nvmlGpmQueryDeviceSupport(Device *gpu, nvmlGpmSupport_t *to) {
    if (to->version != 1) return ARGUMENT_VERSION_MISMATCH;
    to->isSupportedDevice = gpu->sm_active != -1;
    return meets(gpu, "gpm");
}

int nvmlGpmSampleAlloc(Sample **sample) {
    *sample = calloc(1, sizeof **sample);
    return SUCCESS;
}

int nvmlGpmSampleFree(Sample *sample) {
    free(sample);
    return SUCCESS;
}

static int take_sample(Device *of, Sample *to) {
    to->of = of;
    to->at_us = now_us();
    to->sm = (double)moving(of, of->sm_active, 20);
    to->tensor = (double)moving(of, of->tensor_active, 20);
    return of->sm_active == -1 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlGpmSampleGet(Device *gpu, Sample *to) {
    int error = meets(gpu, "gpm");
    if (error) return error;
    return gpu->mig > 0 ? NOT_SUPPORTED : take_sample(gpu, to);
}

int nvmlGpmMigSampleGet(Device *gpu, unsigned int gpu_instance, Sample *to) {
    int error = meets(gpu, "gpm");
    if (error) return error;
    for (int i = 0; i < gpu->instances; i++)
        if ((unsigned int)gpu->instance[i]->gpu_instance == gpu_instance) return take_sample(gpu->instance[i], to);
    return INVALID_ARGUMENT;
}

int nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get) {
    const Sample *one = get->sample1, *other = get->sample2;
    if (get->version != 1) return ARGUMENT_VERSION_MISMATCH;
    if (!one->of || one->of != other->of || other->at_us - one->at_us < GPM_REFRESH_US) return INVALID_ARGUMENT;
    for (unsigned int i = 0; i < get->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &get->metrics[i];
        int tensor = metric->metricId == GPM_METRIC_ANY_TENSOR_UTIL;
        metric->nvmlReturn = tensor || metric->metricId == GPM_METRIC_SM_UTIL ? SUCCESS : NOT_SUPPORTED;
        metric->value = tensor ? (one->tensor + other->tensor) / 2 : (one->sm + other->sm) / 2;
        if (tensor && other->of->tensor_active == -1) metric->nvmlReturn = NOT_SUPPORTED;
    }
    return SUCCESS;
}
#endif
