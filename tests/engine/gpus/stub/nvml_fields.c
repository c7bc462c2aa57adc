/* Values that are told several at a call, by numbers of fields (NVML_FI_DEV_*), some for each NVLink.
 *
 * Keys: energy_mj, memory_temperature, shutdown_tlimit, slowdown_tlimit (degrees C against `margin`), pcie_replays,
 *   pcie_bits (width of the counters of PCIe's bytes: 32, or 64 which begins beyond 32 bits; without it there are none),
 *   nvlinks (how many there are), nvlinks_active (all unless the profile says so), nvlink_version
 *   (as NVML counts them: 6 is NVLink 4, 7 NVLink 5), nvlink_received_per_s, nvlink_sent_per_s (bytes, of each link),
 *   ecc_corrected, ecc_uncorrected and those with ecc_total_, retired_single, retired_double, retired_pending,
 *   rows_corrected, rows_uncorrected, rows_pending, rows_failed. Counters of bytes and, with `wave`, energy grow by the
 *   clock.
 * Errors: fields (the call), and of single fields: energy, memory_temperature, tlimits, pcie_replays, pcie_counters,
 *   nvlink, ecc, retired, rows; nvlink_state for the state of links.
 */
#include "nvml_stub.h"

#define OLD_DRIVERS_LAST_FIELD 160
#define NVLINK_VERSION_5_0 7

typedef enum { DOUBLE, UNSIGNED_INT, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED_INT } nvmlValueType_t;

typedef union {
    double dVal;
    int siVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
    unsigned short usVal;
} nvmlValue_t;

typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    nvmlValueType_t valueType;
    int nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

const Key field_keys[] = {
    A_NUMBER(energy_mj), A_NUMBER(memory_temperature), A_NUMBER(shutdown_tlimit), A_NUMBER(slowdown_tlimit),
    A_NUMBER(pcie_replays), A_NUMBER(pcie_bits), A_NUMBER(nvlinks), A_NUMBER(nvlinks_active), A_NUMBER(nvlink_version),
    A_NUMBER(nvlink_received_per_s), A_NUMBER(nvlink_sent_per_s), A_NUMBER(ecc_corrected), A_NUMBER(ecc_uncorrected),
    A_NUMBER(ecc_total_corrected), A_NUMBER(ecc_total_uncorrected), A_NUMBER(retired_single), A_NUMBER(retired_double),
    A_NUMBER(retired_pending), A_NUMBER(rows_corrected), A_NUMBER(rows_uncorrected), A_NUMBER(rows_pending),
    A_NUMBER(rows_failed), NO_MORE_KEYS,
};

static int is_active(const Device *gpu, unsigned int link) {
    return (long long)link < (gpu->nvlinks_active == -1 ? gpu->nvlinks : gpu->nvlinks_active);
}

static long long grown(long long per_s) { return per_s == -1 ? -1 : (long long)(per_s * (running_us() / 1e6)); }

static long long pcie_counter(const Device *gpu, long long per_s) {
    if (gpu->pcie_bits == -1 || per_s == -1) return -1;
    long long beyond = gpu->pcie_bits == 64 ? 1LL << 33 : 0xF0000000LL;
    return (grown(per_s) + beyond) & (gpu->pcie_bits == 64 ? -1LL : 0xFFFFFFFFLL);
}

/* Up to NVLink 4 in KiB by 138 and 139, from NVLink 5 on in bytes by 202 and 204. */
static long long link_counter(const Device *gpu, unsigned int link, long long per_s, int in_bytes) {
    if (!is_active(gpu, link) || in_bytes != (gpu->nvlink_version >= NVLINK_VERSION_5_0)) return -1;
    return in_bytes ? grown(per_s) : grown(per_s) / 1024;
}

static long long energy(const Device *gpu) {
    return gpu->energy_mj == -1 || !gpu->wave ? gpu->energy_mj : gpu->energy_mj + grown(gpu->power_mw);
}

static void tell(Device *gpu, nvmlFieldValue_t *field, const char *quantity, nvmlValueType_t type, long long value) {
    field->nvmlReturn = refuses(gpu, quantity);
    if (!field->nvmlReturn && value == -1) field->nvmlReturn = NOT_SUPPORTED;
    if (field->nvmlReturn) return;
    field->valueType = type;
    if (type == UNSIGNED_INT) field->value.uiVal = (unsigned int)value;
    else if (type == SIGNED_INT) field->value.siVal = (int)value;
    else field->value.ullVal = (unsigned long long)value;
}

static void answer(Device *gpu, nvmlFieldValue_t *field) {
    unsigned int link = field->scopeId;
    nvmlValueType_t width = gpu->pcie_bits == 64 ? UNSIGNED_LONG_LONG : UNSIGNED_INT;
    field->timestamp = now_us();
    field->latencyUsec = 1;
#ifdef OLD_DRIVER
    if (field->fieldId > OLD_DRIVERS_LAST_FIELD) { field->nvmlReturn = INVALID_ARGUMENT; return; }
#endif
    switch (field->fieldId) {
    case 3: tell(gpu, field, "ecc", UNSIGNED_LONG_LONG, gpu->ecc_corrected); break;
    case 4: tell(gpu, field, "ecc", UNSIGNED_LONG_LONG, gpu->ecc_uncorrected); break;
    case 5: tell(gpu, field, "ecc", UNSIGNED_LONG_LONG, gpu->ecc_total_corrected); break;
    case 6: tell(gpu, field, "ecc", UNSIGNED_LONG_LONG, gpu->ecc_total_uncorrected); break;
    case 29: tell(gpu, field, "retired", UNSIGNED_INT, gpu->retired_single); break;
    case 30: tell(gpu, field, "retired", UNSIGNED_INT, gpu->retired_double); break;
    case 31: tell(gpu, field, "retired", UNSIGNED_INT, gpu->retired_pending); break;
    case 82: tell(gpu, field, "memory_temperature", UNSIGNED_INT, moving(gpu, gpu->memory_temperature, 3)); break;
    case 83: tell(gpu, field, "energy", UNSIGNED_LONG_LONG, energy(gpu)); break;
    case 94: tell(gpu, field, "pcie_replays", UNSIGNED_INT, gpu->pcie_replays); break;
    case 138: tell(gpu, field, "nvlink", UNSIGNED_LONG_LONG, link_counter(gpu, link, gpu->nvlink_sent_per_s, 0)); break;
    case 139:
        tell(gpu, field, "nvlink", UNSIGNED_LONG_LONG, link_counter(gpu, link, gpu->nvlink_received_per_s, 0));
        break;
    case 142: tell(gpu, field, "rows", UNSIGNED_INT, gpu->rows_corrected); break;
    case 143: tell(gpu, field, "rows", UNSIGNED_INT, gpu->rows_uncorrected); break;
    case 144: tell(gpu, field, "rows", UNSIGNED_INT, gpu->rows_pending); break;
    case 145: tell(gpu, field, "rows", UNSIGNED_INT, gpu->rows_failed); break;
    case 193: tell(gpu, field, "tlimits", SIGNED_INT, gpu->shutdown_tlimit); break;
    case 194: tell(gpu, field, "tlimits", SIGNED_INT, gpu->slowdown_tlimit); break;
    case 197: tell(gpu, field, "pcie_counters", width, pcie_counter(gpu, gpu->pcie_sent_per_s)); break;
    case 198: tell(gpu, field, "pcie_counters", width, pcie_counter(gpu, gpu->pcie_received_per_s)); break;
    case 202: tell(gpu, field, "nvlink", UNSIGNED_LONG_LONG, link_counter(gpu, link, gpu->nvlink_sent_per_s, 1)); break;
    case 204:
        tell(gpu, field, "nvlink", UNSIGNED_LONG_LONG, link_counter(gpu, link, gpu->nvlink_received_per_s, 1));
        break;
    default: field->nvmlReturn = INVALID_ARGUMENT;
    }
}

int nvmlDeviceGetFieldValues(Device *gpu, int count, nvmlFieldValue_t *fields) {
    int error = meets(gpu, "fields");
    for (int i = 0; !error && i < count; i++) answer(gpu, &fields[i]);
    return error;
}

int nvmlDeviceGetNvLinkState(Device *gpu, unsigned int link, unsigned int *to) {
    if ((long long)link >= gpu->nvlinks) return gpu->nvlinks > 0 ? INVALID_ARGUMENT : NOT_SUPPORTED;
    return tells(gpu, "nvlink_state", is_active(gpu, link), to);
}

int nvmlDeviceGetNvLinkVersion(Device *gpu, unsigned int link, unsigned int *to) {
    if (!is_active(gpu, link)) return NOT_SUPPORTED;
    return tells(gpu, "nvlink_state", gpu->nvlink_version, to);
}
