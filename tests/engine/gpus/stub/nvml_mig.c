/* Instances that a GPU is cut into (MIG). Each is a device of its own, begun by an "instance" line of the profile.
 *
 * Keys of a GPU: mig (0 off, 1 on; not known to chips without it). Keys of an instance: gpu_instance, compute_instance,
 *   besides those of a GPU. Errors of a GPU: mig; of an instance: instance_ids, handle.
 */
#include "nvml_stub.h"

const Key mig_keys[] = {A_NUMBER(mig), A_WHOLE(gpu_instance), A_WHOLE(compute_instance), NO_MORE_KEYS};

int nvmlDeviceGetMigMode(Device *gpu, unsigned int *current, unsigned int *pending) {
    int error = tells(gpu, "mig", gpu->mig, current);
    if (!error) *pending = !*current;  // always about to change
    return error;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *gpu, unsigned int *to) {
    return tells(gpu, "mig", gpu->mig == -1 ? -1 : MAX_INSTANCES, to);
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *gpu, unsigned int index, Device **to) {
    int error = meets(gpu, "mig");
    if (error) return error;
    if (index >= MAX_INSTANCES) return INVALID_ARGUMENT;
    if (gpu->mig != 1 || index >= (unsigned int)gpu->instances) return NOT_FOUND;
    *to = gpu->instance[index];
    return refuses(*to, "handle");
}

int nvmlDeviceGetGpuInstanceId(Device *instance, unsigned int *to) {
    if (!instance->parent) return INVALID_ARGUMENT;
    return tells(instance, "instance_ids", instance->gpu_instance, to);
}

int nvmlDeviceGetComputeInstanceId(Device *instance, unsigned int *to) {
    if (!instance->parent) return INVALID_ARGUMENT;
    return tells(instance, "instance_ids", instance->compute_instance, to);
}
