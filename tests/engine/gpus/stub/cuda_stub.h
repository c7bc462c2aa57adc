/* A stand-in for the CUDA runtime, cuBLAS, cuDNN and NCCL, for PyPI's CUDA build of torch on a machine without a GPU.
 *
 * It is loaded by LD_PRELOAD before the real libraries. What is real: devices and their order, contexts, the memory of each
 * GPU and its limit, streams, events and copies in the order in which a GPU would do them and as late as the state says,
 * pinned memory, collectives between processes. What is not: kernels do nothing, so that what is computed means nothing.
 * Graphs, IPC, CUPTI and Triton are missing.
 *
 * cuda_state.h: the machine. cuda_devices.c: devices, contexts, memory. cuda_streams.c: what happens when.
 * cuda_math.c: cuBLAS, cuDNN, CUPTI. cuda_nccl.c: NCCL. cuda_driver.c: libcuda.so.1, a library of its own.
 *
 * What happens is noted in the file FOOTPLATE_CUDA_NOTES, a line "PID THREAD GPU KIND WHAT" each; kinds: context (a context
 * is made, by which call), memory (an allocation or the end of one), pinned (the same of pinned memory), copy (a copy is
 * done, and how), sync (the host waits, in which call), search (cuDNN tries its algorithms for a new shape).
 */
#ifndef CUDA_STUB_H
#define CUDA_STUB_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#include "cuda_state.h"

/* The GPU that CUDA's `ordinal` means to this process, NULL where there is none. */
Gpu *gpu_at(int ordinal);

/* The ordinal that is current in this thread. */
int current_ordinal(void);

/* Makes this process's context on the GPU where there is none; what stands in the way as an error. */
cudaError_t wake(int ordinal, const char *call);

/* The GPU in whose memory `at` lies, -1 where it lies in the host's. */
int ordinal_of(const void *at);

/* Whether `at` lies in memory that cudaHostAlloc gave. */
int is_pinned(const void *at);

/* A line of the notes. */
__attribute__((format(printf, 3, 4))) void note(int ordinal, const char *kind, const char *format, ...);

/* A kernel on a stream, which takes its time and does nothing. */
cudaError_t launch(cudaStream_t stream);

/* Waits until all GPUs have done what was asked of them: freeing does. */
void drain_all(void);

/* Something on a stream that is done once `ready` says so, which it is asked again and again, and then does `act`, once. */
cudaError_t when_ready(cudaStream_t stream, int (*ready)(void *), void (*act)(void *), void *of);

#endif
