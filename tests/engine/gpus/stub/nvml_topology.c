/* How the GPUs reach each other, and where in the host they sit.
 *
 * Keys of a GPU:
 *   link            NUMBER:BUS_ID:TYPE (several): what an NVLink leads to, by nvmlIntNvLinkDeviceType_t (0 GPU, 2 switch)
 *   ancestors       nvmlGpuTopologyLevel_t to each GPU in NVML's order, commas between; -1 is not supported
 *   peers           the same for nvmlGpuP2PStatus_t of reading
 *   nvlink_peers    the same for that of NVLink
 *   cores           the processor's cores that are close, as "0-31,64-95"
 *   numa_node       the nodes whose memory is close, as "0" or "0-1"
 * Errors: topology (ancestors and peers), nvlink_remote (what links lead to), affinity (cores and node).
 */
#include "nvml_stub.h"

#define P2P_READ 0
#define P2P_NVLINK 2
#define WORD_BITS (8 * (unsigned int)sizeof(unsigned long))

static void add_link(Device *gpu, const char *value) {
    const char *bus_id = strchr(value, ':') + 1, *type = strrchr(value, ':') + 1;
    int number = atoi(value);
    if (number < 0 || number >= MAX_LINKS || type <= bus_id) abort();
    snprintf(gpu->links[number].bus_id, sizeof gpu->links[number].bus_id, "%.*s", (int)(type - bus_id - 1), bus_id);
    gpu->links[number].type = atoi(type);
}

static void take_each(PerGpu *to, const char *value) {
    for (const char *at = value; at && to->count < MAX_GPUS; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        to->of[to->count++] = atoi(at);
}

static void take_ancestors(Device *gpu, const char *value) { take_each(&gpu->ancestors, value); }
static void take_peers(Device *gpu, const char *value) { take_each(&gpu->peers, value); }
static void take_nvlink_peers(Device *gpu, const char *value) { take_each(&gpu->nvlink_peers, value); }

const Key topology_keys[] = {
    TAKEN_BY("link", add_link), TAKEN_BY("ancestors", take_ancestors), TAKEN_BY("peers", take_peers),
    TAKEN_BY("nvlink_peers", take_nvlink_peers), A_TEXT(cores), A_TEXT(numa_node), NO_MORE_KEYS,
};

static int tell(Device *one, const Device *other, const PerGpu *each, int *to) {
    int error = meets(one, "topology"), at = index_of(other);
    if (error) return error;
    if (one == other) return INVALID_ARGUMENT;
    if (at >= each->count || each->of[at] < 0) return NOT_SUPPORTED;
    *to = each->of[at];
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(Device *one, Device *other, int *level) {
    return tell(one, other, &one->ancestors, level);
}

int nvmlDeviceGetP2PStatus(Device *one, Device *other, int capability, int *status) {
    if (capability != P2P_READ && capability != P2P_NVLINK) return INVALID_ARGUMENT;
    return tell(one, other, capability == P2P_READ ? &one->peers : &one->nvlink_peers, status);
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *gpu, unsigned int link, nvmlPciInfo_t *to) {
    int error = meets(gpu, "nvlink_remote");
    if (error) return error;
    if (link >= (unsigned int)gpu->nvlinks) return INVALID_ARGUMENT;
    if (!gpu->links[link].bus_id[0]) return NOT_SUPPORTED;
    memset(to, 0, sizeof *to);
    snprintf(to->busId, sizeof to->busId, "%s", gpu->links[link].bus_id);
    return SUCCESS;
}

static int set_bits(const char *ranges, unsigned int words, unsigned long *to) {
    memset(to, 0, words * sizeof *to);
    for (const char *at = ranges; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        unsigned int first, last;
        int read = sscanf(at, "%u-%u", &first, &last);
        if (read < 1) return NOT_SUPPORTED;
        for (unsigned int bit = first; bit <= (read == 2 ? last : first) && bit < words * WORD_BITS; bit++)
            to[bit / WORD_BITS] |= 1UL << bit % WORD_BITS;
    }
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(Device *gpu, unsigned int words, unsigned long *to) {
    int error = meets(gpu, "affinity");
    return error ? error : set_bits(gpu->cores, words, to);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetNvLinkRemoteDeviceType(Device *gpu, unsigned int link, int *type) {
    int error = meets(gpu, "nvlink_remote");
    if (error) return error;
    if (link >= (unsigned int)gpu->nvlinks) return INVALID_ARGUMENT;
    *type = gpu->links[link].type;
    return SUCCESS;
}

int nvmlDeviceGetMemoryAffinity(Device *gpu, unsigned int words, unsigned long *to, unsigned int scope) {
    int error = meets(gpu, "affinity");
    if (error) return error;
    return scope > 1 ? INVALID_ARGUMENT : set_bits(gpu->numa_node, words, to);
}
#endif
