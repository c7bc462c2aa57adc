/* What each call tells of a GPU in a number or two.
 *
 * Keys: total, used, reserved (bytes), utilization, memory_busy, encoder, decoder, fan (percent), temperature,
 *   temperature_v (of the function that replaces the deprecated one), slowdown, shutdown, memory_max (degrees C),
 *   margin (degrees C to where clocks are lowered), power_mw, power_limit_mw, management_limit_mw (set by the
 *   administrator), sm_clock, memory_clock, and those with _max (MHz), throttle (bits of
 *   NVML_CLOCKS_EVENT_REASON_*), pstate, compute_mode, persistence, ecc (0 or 1), pcie_generation, pcie_width, and those
 *   with _max, pcie_received_per_s, pcie_sent_per_s (bytes).
 * Errors: memory, utilization, encoder, decoder, temperature, temperature_v, thresholds, margin, power, power_limit,
 *   fan, clocks, throttle, pstate, compute_mode, persistence, ecc_mode, pcie, pcie_throughput.
 */
#include "cuda_state.h"
#include "nvml_stub.h"

#include <unistd.h>

#define MIB (1LL << 20)
#define PCIE_WINDOW_US 20000

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned int version; int marginTemperature; } nvmlMarginTemperature_v1_t;
typedef struct { unsigned int version; int sensorType, temperature; } nvmlTemperature_v1_t;
#define VERSION(type, number) ((unsigned int)(sizeof(type) | ((number) << 24U)))

const Key quantity_keys[] = {
    A_NUMBER(total), A_NUMBER(used), A_NUMBER(reserved), A_NUMBER(utilization), A_NUMBER(memory_busy),
    A_NUMBER(encoder), A_NUMBER(decoder), A_NUMBER(temperature), A_NUMBER(power_mw), A_NUMBER(power_limit_mw),
    A_NUMBER(management_limit_mw), A_NUMBER(temperature_v),
    A_NUMBER(slowdown), A_NUMBER(shutdown), A_NUMBER(memory_max), A_NUMBER(margin), A_NUMBER(fan), A_NUMBER(sm_clock),
    A_NUMBER(sm_clock_max), A_NUMBER(memory_clock), A_NUMBER(memory_clock_max), A_NUMBER(throttle), A_NUMBER(pstate),
    A_NUMBER(compute_mode), A_NUMBER(persistence), A_NUMBER(ecc), A_NUMBER(pcie_generation),
    A_NUMBER(pcie_generation_max), A_NUMBER(pcie_width), A_NUMBER(pcie_width_max), A_NUMBER(pcie_received_per_s),
    A_NUMBER(pcie_sent_per_s), NO_MORE_KEYS,
};

int nvmlDeviceGetUtilizationRates(Device *gpu, nvmlUtilization_t *to) {
    gpu->readings++;
    int error = tells(gpu, "utilization", gpu->utilization, &to->gpu);
    if (error) return error;
    if (gpu->wave) to->gpu = (unsigned int)((gpu->utilization + 7 * gpu->readings) % 101);
    to->memory = (unsigned int)(gpu->memory_busy == -1 ? to->gpu / 2 : gpu->memory_busy);
    return SUCCESS;
}

/* What CUDA's stand-in holds counts besides what the profile says. */
static long long used(const Device *gpu) {
    const Gpu *cuda = cuda_gpu_of(gpu);
    return gpu->used + moving(gpu, 0, 63) * MIB + (cuda ? (long long)held(cuda_state(), cuda) : 0);
}

/* Version 1 counts what the driver reserves as used. */
int nvmlDeviceGetMemoryInfo(Device *gpu, nvmlMemory_t *to) {
    int error = meets(gpu, "memory");
    if (error) return error;
    if (gpu->total == -1) return NOT_SUPPORTED;
    to->total = (unsigned long long)gpu->total;
    to->used = (unsigned long long)(used(gpu) + gpu->reserved);
    to->free = to->total - to->used;
    return SUCCESS;
}

int nvmlDeviceGetEncoderUtilization(Device *gpu, unsigned int *to, unsigned int *period_us) {
    *period_us = 167000;
    return tells(gpu, "encoder", gpu->encoder, to);
}

int nvmlDeviceGetDecoderUtilization(Device *gpu, unsigned int *to, unsigned int *period_us) {
    *period_us = 167000;
    return tells(gpu, "decoder", gpu->decoder, to);
}

int nvmlDeviceGetTemperature(Device *gpu, int sensor, unsigned int *to) {
    if (sensor) return INVALID_ARGUMENT;
    return tells(gpu, "temperature", moving(gpu, gpu->temperature, 4), to);
}

int nvmlDeviceGetTemperatureThreshold(Device *gpu, int threshold, unsigned int *to) {
    const long long of[] = {gpu->shutdown, gpu->slowdown, gpu->memory_max};
    if (threshold < 0 || threshold > 7) return INVALID_ARGUMENT;
    return tells(gpu, "thresholds", threshold < 3 ? of[threshold] : -1, to);
}

int nvmlDeviceGetPowerUsage(Device *gpu, unsigned int *to) {
    return tells(gpu, "power", moving(gpu, gpu->power_mw, 40000), to);
}

int nvmlDeviceGetEnforcedPowerLimit(Device *gpu, unsigned int *to) {
    return tells(gpu, "power_limit", gpu->power_limit_mw, to);
}

int nvmlDeviceGetPowerManagementLimit(Device *gpu, unsigned int *to) {
    return tells(gpu, "power_limit", gpu->management_limit_mw, to);
}

int nvmlDeviceGetFanSpeed(Device *gpu, unsigned int *to) { return tells(gpu, "fan", moving(gpu, gpu->fan, 9), to); }

int nvmlDeviceGetClockInfo(Device *gpu, int clock, unsigned int *to) {
    if (clock != 1 && clock != 2) return NOT_SUPPORTED;
    return tells(gpu, "clocks", clock == 1 ? moving(gpu, gpu->sm_clock, 45) : gpu->memory_clock, to);
}

int nvmlDeviceGetMaxClockInfo(Device *gpu, int clock, unsigned int *to) {
    if (clock != 1 && clock != 2) return NOT_SUPPORTED;
    return tells(gpu, "clocks", clock == 1 ? gpu->sm_clock_max : gpu->memory_clock_max, to);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *gpu, unsigned long long *to) {
    unsigned int bits;
    int error = tells(gpu, "throttle", gpu->throttle, &bits);
    if (!error) *to = bits;
    return error;
}

int nvmlDeviceGetPerformanceState(Device *gpu, unsigned int *to) { return tells(gpu, "pstate", gpu->pstate, to); }

int nvmlDeviceGetComputeMode(Device *gpu, unsigned int *to) {
    return tells(gpu, "compute_mode", gpu->compute_mode, to);
}

int nvmlDeviceGetPersistenceMode(Device *gpu, unsigned int *to) {
    return tells(gpu, "persistence", gpu->persistence, to);
}

int nvmlDeviceGetEccMode(Device *gpu, unsigned int *current, unsigned int *pending) {
    int error = tells(gpu, "ecc_mode", gpu->ecc, current);
    if (!error) *pending = !*current;  // always about to change
    return error;
}

int nvmlDeviceGetCurrPcieLinkGeneration(Device *gpu, unsigned int *to) {
    return tells(gpu, "pcie", gpu->pcie_generation, to);
}

int nvmlDeviceGetMaxPcieLinkGeneration(Device *gpu, unsigned int *to) {
    return tells(gpu, "pcie", gpu->pcie_generation_max, to);
}

int nvmlDeviceGetCurrPcieLinkWidth(Device *gpu, unsigned int *to) { return tells(gpu, "pcie", gpu->pcie_width, to); }

int nvmlDeviceGetMaxPcieLinkWidth(Device *gpu, unsigned int *to) {
    return tells(gpu, "pcie", gpu->pcie_width_max, to);
}

/* In KiB per second, measured while the caller waits. */
int nvmlDeviceGetPcieThroughput(Device *gpu, int way, unsigned int *to) {
    long long bytes = way == 0 ? gpu->pcie_sent_per_s : gpu->pcie_received_per_s;
    int error = tells(gpu, "pcie_throughput", bytes == -1 ? -1 : bytes / 1024, to);
    if (!error) usleep(PCIE_WINDOW_US);
    return error;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(Device *gpu, nvmlMemory_v2_t *to) {
    if (to->version != VERSION(nvmlMemory_v2_t, 2)) return ARGUMENT_VERSION_MISMATCH;
    int error = meets(gpu, "memory");
    if (error) return error;
    if (gpu->total == -1) return NOT_SUPPORTED;
    to->total = (unsigned long long)gpu->total;
    to->reserved = (unsigned long long)gpu->reserved;
    to->used = (unsigned long long)used(gpu);
    to->free = to->total - to->used - to->reserved;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *gpu, unsigned long long *to) {
    return nvmlDeviceGetCurrentClocksThrottleReasons(gpu, to);
}

int nvmlDeviceGetMarginTemperature(Device *gpu, nvmlMarginTemperature_v1_t *to) {
    unsigned int margin;
    if (to->version != VERSION(nvmlMarginTemperature_v1_t, 1)) return ARGUMENT_VERSION_MISMATCH;
    int error = tells(gpu, "margin", gpu->margin, &margin);
    if (!error) to->marginTemperature = (int)margin;
    return error;
}

int nvmlDeviceGetTemperatureV(Device *gpu, nvmlTemperature_v1_t *to) {
    unsigned int celsius;
    if (to->version != VERSION(nvmlTemperature_v1_t, 1)) return ARGUMENT_VERSION_MISMATCH;
    if (to->sensorType) return INVALID_ARGUMENT;
    int error = tells(gpu, "temperature_v", gpu->temperature_v, &celsius);
    if (!error) to->temperature = (int)celsius;
    return error;
}
#endif
