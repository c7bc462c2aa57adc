/* libnvidia-ml.so.1 for tests: answers what a profile says, through NVML's C interface.
 *
 * Structs, enumerations and error codes are written from NVIDIA's nvml.h (as published in NVIDIA/go-nvml), not from
 * pynvml, so that the real pynvml is what is tested. Compiled with -DOLD_DRIVER it lacks what drivers before R510 lack.
 *
 * The profile is the file that FOOTPLATE_NVML_PROFILE names; "key=value" lines, "#" begins a comment. Keys before the
 * first "gpu" line are the library's; each "gpu" line begins a GPU, each "instance" line a MIG instance of that GPU.
 * Keys are listed in tables, one per source file, which says what they mean: nvml_core.c (library and identity),
 * nvml_quantities.c, nvml_fields.c, nvml_activity.c, nvml_mig.c, nvml_processes.c, nvml_topology.c.
 *
 * "X_error=CODE" of a GPU makes the calls that tell X answer with that error code; X is what `meets` is given.
 */
#ifndef NVML_STUB_H
#define NVML_STUB_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NO_PERMISSION 4
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define TIMEOUT 10
#define GPU_IS_LOST 15
#define ARGUMENT_VERSION_MISMATCH 25

#define MAX_GPUS 16
#define MAX_PROCESSES 16
#define MAX_SAMPLES 16
#define MAX_LINKS 18
#define MAX_INSTANCES 8
#define MAX_ERRORS 48
#define NONE 0xFFFFFFFFu

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

typedef struct { unsigned int count; nvmlProcessInfo_t rows[MAX_PROCESSES]; } Processes;
typedef struct { int count, of[MAX_GPUS]; } PerGpu;     /* a number for each GPU, as NVML counts them */

/* One GPU, or one MIG instance: those are Devices too, with `parent` set. */
typedef struct Device Device;
struct Device {
    /* nvml_core.c */
    char name[96], uuid[96], bus_id[32], lost_file[512];
    int wave;                           /* 1: utilisation and what goes with it moves with each reading */
    long long compute_capability;
    int lost_after, readings;           /* -1: never lost; readings are counted by nvmlDeviceGetUtilizationRates */
    struct { char of[32]; int code; } errors[MAX_ERRORS];
    /* nvml_quantities.c. A long long is -1 unless the profile sets it, which is what a GPU does not tell. */
    long long total, used, reserved, utilization, memory_busy, encoder, decoder, temperature, power_mw, power_limit_mw;
    long long management_limit_mw, temperature_v;
    long long slowdown, shutdown, memory_max, margin, fan, sm_clock, sm_clock_max, memory_clock, memory_clock_max;
    long long throttle, pstate, compute_mode, persistence, ecc;
    long long pcie_generation, pcie_generation_max, pcie_width, pcie_width_max, pcie_received_per_s, pcie_sent_per_s;
    /* nvml_fields.c */
    long long energy_mj, memory_temperature, shutdown_tlimit, slowdown_tlimit, pcie_replays, pcie_bits;
    long long nvlinks, nvlinks_active, nvlink_version, nvlink_received_per_s, nvlink_sent_per_s;
    long long ecc_corrected, ecc_uncorrected, ecc_total_corrected, ecc_total_uncorrected;
    long long retired_single, retired_double, retired_pending;
    long long rows_corrected, rows_uncorrected, rows_pending, rows_failed;
    /* nvml_activity.c */
    long long sm_active, tensor_active;
    char xid_file[512];
    int xids_told;
    /* nvml_mig.c */
    Device *parent;
    long long mig;
    int instances, gpu_instance, compute_instance;
    Device *instance[MAX_INSTANCES];
    /* nvml_processes.c */
    Processes compute, graphics, mps;
    struct { unsigned int pid, sm; long long at_us; } samples[MAX_SAMPLES];     /* at_us 0: always taken just now */
    int sample_count, long_structs;
    /* nvml_topology.c: what each link leads to ("" where it leads to nothing), what is close, and how far the others are */
    struct { char bus_id[32]; int type; } links[MAX_LINKS];
    char cores[64];
    char numa_node[16];
    PerGpu ancestors, peers, nvlink_peers;
};

/* What a key of the profile sets: one of the members at `at`, or whatever `take` makes of the value. */
typedef struct {
    const char *key;
    enum { TEXT, WHOLE, NUMBER, TAKEN } kind;   /* char[size], int, long long, or by `take` */
    size_t at, size;
    void (*take)(Device *, const char *value);
} Key;
#define A_TEXT(member) {#member, TEXT, offsetof(Device, member), sizeof(((Device *)0)->member), NULL}
#define A_WHOLE(member) {#member, WHOLE, offsetof(Device, member), 0, NULL}
#define A_NUMBER(member) {#member, NUMBER, offsetof(Device, member), 0, NULL}
#define TAKEN_BY(key, function) {key, TAKEN, 0, 0, function}
#define NO_MORE_KEYS {NULL, TEXT, 0, 0, NULL}

/* One table per source file, ended by NO_MORE_KEYS. */
extern const Key core_keys[], quantity_keys[], field_keys[], activity_keys[], mig_keys[], process_keys[], topology_keys[];

typedef struct {
    int initialized, init, init_hang, count_error, gpus, cuda_version, delay_us;
    long long begun_us;
    char driver_version[80], hang_file[512], abort_file[512], refused_file[512], calls_file[512];
    Device *gpu[MAX_GPUS];
} Library;
extern Library library;

/* What every call on a GPU meets first: faults of the library, a lost GPU, then the GPU's "X_error" for X of
 * `quantity`, then its "any_error". SUCCESS where nothing stands in the way. */
int meets(Device *gpu, const char *quantity);

/* The same for a member that is told in a single number: NOT_SUPPORTED where it is -1. */
int tells(Device *gpu, const char *quantity, long long value, unsigned int *to);

/* The GPU's error for X of `quantity`, without what all calls meet: for one of several answers of a single call. */
int refuses(Device *gpu, const char *quantity);

/* `value`, which moves with each reading by up to `span` where the profile says "wave". */
long long moving(const Device *gpu, long long value, long long span);

/* The GPU as CUDA's stand-in knows it (cuda_state.h), NULL where it does not. */
const struct Gpu *cuda_gpu_of(const Device *gpu);

/* Which GPU this is, as NVML counts. */
int index_of(const Device *gpu);

/* Microseconds since 1970, and since the library began. */
long long now_us(void);
long long running_us(void);

#endif
