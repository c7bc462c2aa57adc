/* The library itself: the profile, faults that all calls share, and who is there.
 *
 * Keys of the library: init, init_hang, count (error codes; init_hang 1 hangs), driver_version, cuda_version (13020),
 *   delay_us (how long each call takes), hang_file (while that file exists, any call on a GPU hangs), abort_file (once
 *   that file exists, any call on a GPU aborts), refused_file (gets a byte for each call that is answered with an error of the GPU's own), calls_file (gets
 *   a line "INDEX QUANTITY" for each call on a GPU).
 * Keys of a GPU or MIG instance: name, uuid, bus_id, compute_capability (90 for 9.0), wave (1: what it tells moves with each reading), lost_file (once
 *   that file exists the GPU is lost), lost_after (that many readings). Errors: handle, name, compute_capability, any, and
 *   each file's own.
 */
#include "cuda_state.h"
#include "nvml_stub.h"

#include <strings.h>
#include <time.h>
#include <unistd.h>

#define MAX_DEVICES (MAX_GPUS * (1 + MAX_INSTANCES))

Library library;
static Device devices[MAX_DEVICES];     /* MIG instances, too */
static int device_count;

const Key core_keys[] = {
    A_TEXT(name), A_TEXT(uuid), A_TEXT(bus_id), A_TEXT(lost_file), A_WHOLE(wave), A_WHOLE(lost_after),
    A_NUMBER(compute_capability), NO_MORE_KEYS,
};
static const Key *const TABLES[] = {
    core_keys, quantity_keys, field_keys, activity_keys, mig_keys, process_keys, topology_keys,
};
#define TABLE_COUNT (sizeof TABLES / sizeof *TABLES)

static void refuse(const char *what) {
    fprintf(stderr, "profile: %s\n", what);
    abort();
}

static void set_library(const char *key, const char *value) {
    struct { const char *key; char *at; size_t size; } texts[] = {
        {"driver_version", library.driver_version, sizeof library.driver_version},
        {"hang_file", library.hang_file, sizeof library.hang_file},
        {"abort_file", library.abort_file, sizeof library.abort_file},
        {"refused_file", library.refused_file, sizeof library.refused_file},
        {"calls_file", library.calls_file, sizeof library.calls_file},
    };
    struct { const char *key; int *at; } numbers[] = {
        {"init", &library.init}, {"init_hang", &library.init_hang}, {"count", &library.count_error},
        {"cuda_version", &library.cuda_version}, {"delay_us", &library.delay_us},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(key, texts[i].key)) { snprintf(texts[i].at, texts[i].size, "%s", value); return; }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) { *numbers[i].at = atoi(value); return; }
    refuse(key);
}

static void set_error(Device *gpu, const char *of, size_t length, int code) {
    for (int i = 0; i < MAX_ERRORS; i++)
        if (!gpu->errors[i].of[0]) {
            snprintf(gpu->errors[i].of, sizeof gpu->errors[i].of, "%.*s", (int)length, of);
            gpu->errors[i].code = code;
            return;
        }
    refuse("too many errors");
}

static void set_device(Device *gpu, const char *name, const char *value) {
    size_t length = strlen(name);
    if (length > 6 && !strcmp(name + length - 6, "_error")) { set_error(gpu, name, length - 6, atoi(value)); return; }
    for (size_t table = 0; table < TABLE_COUNT; table++)
        for (const Key *key = TABLES[table]; key->key; key++) {
            char *at = (char *)gpu + key->at;
            if (strcmp(name, key->key)) continue;
            if (key->kind == TEXT) snprintf(at, key->size, "%s", value);
            else if (key->kind == WHOLE) *(int *)at = atoi(value);
            else if (key->kind == NUMBER) *(long long *)at = atoll(value);
            else key->take(gpu, value);
            return;
        }
    refuse(name);
}

/* A device that tells nothing yet. */
static Device *new_device(Device *parent) {
    if (device_count == MAX_DEVICES) refuse("too many devices");
    Device *device = &devices[device_count++];
    memset(device, 0, sizeof *device);
    for (size_t table = 0; table < TABLE_COUNT; table++)
        for (const Key *key = TABLES[table]; key->key; key++)
            if (key->kind == NUMBER) *(long long *)((char *)device + key->at) = -1;
    device->lost_after = -1;
    device->parent = parent;
    if (parent) {
        if (parent->instances == MAX_INSTANCES) refuse("too many MIG instances");
        parent->instance[parent->instances++] = device;
    } else {
        if (library.gpus == MAX_GPUS) refuse("too many GPUs");
        library.gpu[library.gpus++] = device;
    }
    return device;
}

static void read_profile(void) {
    char line[1024];
    Device *device = NULL;
    const char *path = getenv("FOOTPLATE_NVML_PROFILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) refuse("there is none");
    memset(&library, 0, sizeof library);
    device_count = 0;
    library.begun_us = now_us();
    while (fgets(line, sizeof line, file)) {
        char *value = strchr(line, '=');
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#' || !line[0]) continue;
        if (!strcmp(line, "gpu")) { device = new_device(NULL); continue; }
        if (!strcmp(line, "instance")) {
            if (!library.gpus) refuse("an instance of no GPU");
            device = new_device(library.gpu[library.gpus - 1]);
            continue;
        }
        if (!value) refuse(line);
        *value++ = 0;
        if (device) set_device(device, line, value);
        else set_library(line, value);
    }
    fclose(file);
}

static int exists(const char *path) { return path[0] && access(path, F_OK) == 0; }

static void note(const char *path, const char *what) {
    FILE *file = path[0] ? fopen(path, "a") : NULL;
    if (!file) return;
    fputs(what, file);
    fclose(file);
}

static int is_lost(const Device *gpu) {
    if (gpu->parent && is_lost(gpu->parent)) return 1;
    return exists(gpu->lost_file) || (gpu->lost_after >= 0 && gpu->readings > gpu->lost_after);
}

int meets(Device *gpu, const char *quantity) {
    if (!library.initialized) return UNINITIALIZED;
    if (library.delay_us) usleep((useconds_t)library.delay_us);
    while (exists(library.hang_file)) usleep(10000);
    if (exists(library.abort_file)) abort();
    char call[64];
    snprintf(call, sizeof call, "%d %s\n", index_of(gpu), quantity);
    note(library.calls_file, call);
    if (is_lost(gpu)) return GPU_IS_LOST;
    return refuses(gpu, quantity);
}

int refuses(Device *gpu, const char *quantity) {
    for (int i = 0; i < MAX_ERRORS && gpu->errors[i].of[0]; i++)
        if (!strcmp(gpu->errors[i].of, quantity) || !strcmp(gpu->errors[i].of, "any")) {
            note(library.refused_file, "x");
            return gpu->errors[i].code;
        }
    return SUCCESS;
}

int tells(Device *gpu, const char *quantity, long long value, unsigned int *to) {
    int error = meets(gpu, quantity);
    if (error) return error;
    if (value == -1) return NOT_SUPPORTED;
    *to = (unsigned int)value;
    return SUCCESS;
}

long long moving(const Device *gpu, long long value, long long span) {
    return gpu->wave && value != -1 ? value + 7 * gpu->readings % (span + 1) : value;
}

int index_of(const Device *gpu) {
    const Device *whole = gpu->parent ? gpu->parent : gpu;
    for (int i = 0; i < library.gpus; i++)
        if (library.gpu[i] == whole) return i;
    return -1;
}

const Gpu *cuda_gpu_of(const Device *gpu) {
    const State *state = cuda_state();
    for (int i = 0; state && i < state->gpus; i++)
        if (!gpu->parent && is_named(&state->gpu[i], gpu->uuid)) return &state->gpu[i];
    return NULL;
}

long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

long long running_us(void) { return now_us() - library.begun_us; }

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    read_profile();
    while (library.init_hang) pause();
    if (!library.init) library.initialized = 1;
    return library.init;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { library.initialized = 0; return SUCCESS; }

const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "stub error"; }

int nvmlSystemGetDriverVersion(char *to, unsigned int size) {
    if (!library.driver_version[0]) return NOT_SUPPORTED;
    snprintf(to, size, "%s", library.driver_version);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *to) {
    *to = library.cuda_version;
    return library.cuda_version ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = (unsigned int)library.gpus;
    return library.count_error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **handle) {
    if (index >= (unsigned int)library.gpus) return INVALID_ARGUMENT;
    *handle = library.gpu[index];
    return meets(*handle, "handle");
}

/* Domains may be written with four digits or with eight. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device **handle) {
    const size_t length = strlen("0000:00:00.0");
    for (int i = 0; i < library.gpus; i++) {
        const char *known = library.gpu[i]->bus_id;
        if (strlen(bus_id) < length || strlen(known) < length) continue;
        if (strcasecmp(bus_id + strlen(bus_id) - length, known + strlen(known) - length)) continue;
        *handle = library.gpu[i];
        return meets(*handle, "handle");
    }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Device *gpu, char *to, unsigned int size) {
    snprintf(to, size, "%s", gpu->name);
    return meets(gpu, "name");
}

int nvmlDeviceGetUUID(Device *gpu, char *to, unsigned int size) {
    snprintf(to, size, "%s", gpu->uuid);
    return meets(gpu, "uuid");
}

int nvmlDeviceGetPciInfo_v3(Device *gpu, nvmlPciInfo_t *to) {
    memset(to, 0, sizeof *to);
    snprintf(to->busId, sizeof to->busId, "%s", gpu->bus_id);
    return meets(gpu, "pci");
}

int nvmlDeviceGetCudaComputeCapability(Device *gpu, int *major, int *minor) {
    unsigned int both;
    int error = tells(gpu, "compute_capability", gpu->compute_capability, &both);
    if (error) return error;
    *major = (int)both / 10;
    *minor = (int)both % 10;
    return SUCCESS;
}
