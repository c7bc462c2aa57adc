/* cuBLAS, cuDNN and CUPTI of the stand-in for CUDA: handles, answers about algorithms, and kernels that do nothing.
 *
 * torch is to use cuDNN's older interface (TORCH_CUDNN_V8_API_DISABLED=1). Descriptors are the real library's, which needs no
 * GPU for them.
 */
#include "cuda_stub.h"

#include <string.h>

/* Without the libraries' headers, so that a call may take whatever it takes.

   cuBLAS */

typedef struct { cudaStream_t stream; int mode, math; } Handle;

int cublasCreate_v2(Handle **to) { *to = calloc(1, sizeof **to); return wake(current_ordinal(), __func__) ? 1 : 0; }
int cublasDestroy_v2(Handle *handle) { free(handle); return 0; }
int cublasSetStream_v2(Handle *handle, cudaStream_t stream) { handle->stream = stream; return 0; }
int cublasSetWorkspace_v2(void) { return 0; }
int cublasSetPointerMode_v2(Handle *handle, int mode) { handle->mode = mode; return 0; }
int cublasGetPointerMode_v2(Handle *handle, int *mode) { *mode = handle->mode; return 0; }
int cublasSetMathMode(Handle *handle, int math) { handle->math = math; return 0; }
int cublasGetMathMode(Handle *handle, int *math) { *math = handle->math; return 0; }

#define COMPUTES(name) int name(Handle *handle) { return launch(handle->stream) ? 14 : 0; }
COMPUTES(cublasSgemm_v2)
COMPUTES(cublasDgemm_v2)
COMPUTES(cublasGemmEx)
COMPUTES(cublasSgemmEx)
COMPUTES(cublasSgemmStridedBatched)
COMPUTES(cublasDgemmStridedBatched)
COMPUTES(cublasGemmStridedBatchedEx)
COMPUTES(cublasSgemv_v2)
COMPUTES(cublasDgemv_v2)
COMPUTES(cublasSdot_v2)
COMPUTES(cublasDdot_v2)
COMPUTES(cublasDotEx)
COMPUTES(cublasLtMatmul)

/* The first algorithm, with no workspace: a cublasLtMatmulHeuristicResult_t has 96 bytes */
int cublasLtMatmulAlgoGetHeuristic(
    Handle *handle, void *of, void *a, void *b, void *c, void *d, void *preference, int wanted, void *result, int *found
) {
    (void)handle, (void)of, (void)a, (void)b, (void)c, (void)d, (void)preference;
    memset(result, 0, 96 * (size_t)wanted);
    *found = 1;
    return 0;
}

/* cuDNN */

#define NOT_INITIALIZED 1001
#define EXECUTION_FAILED 5000

/* cudnnConvolutionFwdAlgoPerf_t, and those of the backward passes, which are alike. */
typedef struct { int algorithm, status; float ms; size_t bytes; int deterministic, math, reserved[3]; } Perf;

int cudnnCreate(Handle **to) { *to = calloc(1, sizeof **to); return wake(current_ordinal(), __func__) ? NOT_INITIALIZED : 0; }
int cudnnDestroy(Handle *handle) { free(handle); return 0; }
int cudnnSetStream(Handle *handle, cudaStream_t stream) { handle->stream = stream; return 0; }
int cudnnGetStream(Handle *handle, cudaStream_t *to) { *to = handle->stream; return 0; }

static int one_algorithm(Perf *perf, int *found) {
    memset(perf, 0, sizeof *perf);
    perf->algorithm = perf->deterministic = 1;
    *found = 1;
    return 0;
}

#define CONVOLUTION(which) \
    int cudnnGetConvolution##which##Algorithm_v7( \
        void *handle, void *a, void *b, void *convolution, void *c, int wanted, int *found, Perf *perf \
    ) { \
        (void)handle, (void)a, (void)b, (void)convolution, (void)c, (void)wanted; \
        return one_algorithm(perf, found); \
    } \
    int cudnnGetConvolution##which##WorkspaceSize( \
        void *handle, void *a, void *b, void *convolution, void *c, int algorithm, size_t *bytes \
    ) { \
        (void)handle, (void)a, (void)b, (void)convolution, (void)c, (void)algorithm; \
        *bytes = 0; \
        return 0; \
    } \
    int cudnnFindConvolution##which##AlgorithmEx( \
        void *handle, void *a, void *one, void *b, void *other, void *convolution, void *c, void *to, int wanted, int *found, \
        Perf *perf, void *workspace, size_t bytes \
    ) { \
        (void)handle, (void)a, (void)one, (void)b, (void)other, (void)convolution, (void)c, (void)to, (void)wanted; \
        (void)workspace, (void)bytes; \
        note(current_ordinal(), "search", #which); \
        return one_algorithm(perf, found); \
    } \
    int cudnnConvolution##which(Handle *handle) { return launch(handle->stream) ? EXECUTION_FAILED : 0; }
CONVOLUTION(Forward)
CONVOLUTION(BackwardData)
CONVOLUTION(BackwardFilter)

#define NORMALIZES(name) int name(Handle *handle) { return launch(handle->stream) ? EXECUTION_FAILED : 0; }
NORMALIZES(cudnnBatchNormalizationForwardTrainingEx)
NORMALIZES(cudnnBatchNormalizationForwardInference)
NORMALIZES(cudnnBatchNormalizationBackwardEx)

int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    void *handle, int mode, int ops, void *x, void *z, void *y, void *of, void *activation, size_t *bytes
) {
    (void)handle, (void)mode, (void)ops, (void)x, (void)z, (void)y, (void)of, (void)activation;
    *bytes = 0;
    return 0;
}

int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    void *handle, int mode, int ops, void *activation, void *x, size_t *bytes
) {
    (void)handle, (void)mode, (void)ops, (void)activation, (void)x;
    *bytes = 0;
    return 0;
}

int cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    void *handle, int mode, int ops, void *x, void *y, void *dy, void *dz, void *dx, void *of, void *activation, size_t *bytes
) {
    (void)handle, (void)mode, (void)ops, (void)x, (void)y, (void)dy, (void)dz, (void)dx, (void)of, (void)activation;
    *bytes = 0;
    return 0;
}

/* CUPTI, by which torch.profiler would see kernels: it says that it is not there. */

#define CUPTI_NOT_INITIALIZED 15
#define ABSENT(name) int name(void) { return CUPTI_NOT_INITIALIZED; }
ABSENT(cuptiActivityDisable) ABSENT(cuptiActivityEnable) ABSENT(cuptiActivityEnableCudaEventDeviceTimestamps)
ABSENT(cuptiActivityEnableDriverApi) ABSENT(cuptiActivityEnableRuntimeApi) ABSENT(cuptiActivityFlushAll)
ABSENT(cuptiActivityGetNextRecord) ABSENT(cuptiActivityGetNumDroppedRecords)
ABSENT(cuptiActivityPopExternalCorrelationId) ABSENT(cuptiActivityPushExternalCorrelationId)
ABSENT(cuptiActivityRegisterCallbacks) ABSENT(cuptiActivityRegisterTimestampCallback) ABSENT(cuptiActivitySetAttribute)
ABSENT(cuptiGetVersion) ABSENT(cuptiEnableCallback) ABSENT(cuptiEnableDomain) ABSENT(cuptiFinalize) ABSENT(cuptiSubscribe) ABSENT(cuptiUnsubscribe)
