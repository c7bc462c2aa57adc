/* Streams, events, copies and launches of the stand-in for CUDA: what is asked of a GPU, and when it is done.
 *
 * A stream is a queue whose first item is at work. A thread of its own, which is there once something has to wait, finishes
 * items when their time has come; what has to wait for nothing is done at once by whoever asks.
 */
#include "cuda_stub.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define POLL_US 200

typedef struct Stream Stream;
typedef struct Event Event;
typedef struct Item Item;

struct Item {
    enum { COPY, FILL, KERNEL, RECORD, WAIT, CALL, READY } what;
    Item *next;
    int64_t takes_us;
    void *to;                           /* COPY, FILL */
    const void *from;                   /* COPY: as it is when the item is done, or `own` */
    void *own;                          /* COPY: a copy that was made when it was asked for */
    size_t bytes;
    int value;                          /* FILL */
    Event *event;                       /* RECORD, WAIT */
    unsigned target;                    /* RECORD, WAIT: which record of the event */
    void (*act)(void *);                /* CALL, READY */
    int (*ready)(void *);               /* READY */
    void *of;                           /* CALL, READY */
};

struct Stream {
    int ordinal;
    Item *first, *last;
    int64_t begun_us;                   /* when the first item came to the front */
    Stream *next;
};

struct Event { unsigned asked, done, pending; int gone; int64_t at_us; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;      /* something was done, or asked for */
static Stream legacy[STATE_GPUS], *streams;                     /* the default stream of each device; all others */
static int has_thread;

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000000 + now.tv_nsec / 1000;
}

static Stream *stream_of(cudaStream_t handle) {
    if ((uintptr_t)handle > 2) return (Stream *)handle;         /* 0, 1 and 2 are default streams */
    legacy[current_ordinal()].ordinal = current_ordinal();
    return &legacy[current_ordinal()];
}

/* Doing things; all under `lock` */

static void without_infinities(uint32_t *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        if ((words[i] & 0x7f800000u) == 0x7f800000u) words[i] = 0;
}

static void copy(const Item *item) {
    const void *from = item->own ? item->own : item->from;
    memmove(item->to, from, item->bytes);
    if (ordinal_of(from) != -1 && ordinal_of(item->to) == -1 && !cuda_state()->exact && item->bytes % 4 == 0)
        without_infinities(item->to, item->bytes / 4);
}

static void let_go(Event *event) {
    if (event->gone && !event->pending) free(event);
}

static int may_end(const Stream *stream, const Item *item) {
    const State *state = cuda_state();
    if (gpu_at(stream->ordinal)->hangs && !gpu_at(stream->ordinal)->error) return 0;
    if (state && item->takes_us && now_us() < stream->begun_us + item->takes_us) return 0;
    if (item->what == WAIT) return item->event->done >= item->target;
    return item->what != READY || item->ready(item->of);
}

static void end(Item *item) {
    if (item->what == COPY) copy(item);
    if (item->what == FILL) memset(item->to, item->value, item->bytes);
    if (item->what == CALL || item->what == READY) item->act(item->of);
    if (item->event) {
        item->event->pending--;
        if (item->what == RECORD) {
            item->event->done = item->target;
            item->event->at_us = now_us();
        }
        let_go(item->event);
    }
    free(item->own);
    free(item);
}

/* Ends what can be ended of one stream; whether anything was. */
static int advance(Stream *stream) {
    int moved = 0;
    while (stream->first && may_end(stream, stream->first)) {
        Item *item = stream->first;
        stream->first = item->next;
        stream->begun_us = now_us();
        end(item);
        moved = 1;
    }
    return moved;
}

static int advance_all(void) {
    int moved = 0, moved_now;
    do {
        moved_now = 0;
        for (int i = 0; i < STATE_GPUS; i++) moved_now |= advance(&legacy[i]);
        for (Stream *stream = streams; stream; stream = stream->next) moved_now |= advance(stream);
        moved |= moved_now;
    } while (moved_now);
    return moved;
}

static int all_idle(void) {
    for (int i = 0; i < STATE_GPUS; i++)
        if (legacy[i].first) return 0;
    for (Stream *stream = streams; stream; stream = stream->next)
        if (stream->first) return 0;
    return 1;
}

static void wait_a_little(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += POLL_US * 1000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_cond_timedwait(&changed, &lock, &until);
}

static void *work(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        if (advance_all()) pthread_cond_broadcast(&changed);
        if (all_idle()) pthread_cond_wait(&changed, &lock);
        else wait_a_little();
    }
    return NULL;
}

/* Puts an item on a stream, where it is done at once if nothing stands in its way. */
static cudaError_t ask(cudaStream_t handle, Item item, const char *call) {
    Stream *stream = stream_of(handle);
    cudaError_t error = wake(stream->ordinal, call);
    if (error) return error;
    Item *own = malloc(sizeof *own);
    *own = item;
    own->next = NULL;
    pthread_mutex_lock(&lock);
    if (item.event) item.event->pending++;
    if (stream->first) stream->last->next = own;
    else stream->first = own, stream->begun_us = now_us();
    stream->last = own;
    if (stream->first == own) advance(stream);
    if (stream->first && !has_thread) {
        pthread_t thread;
        has_thread = !pthread_create(&thread, NULL, work, NULL) && !pthread_detach(thread);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

/* Has the host wait until `done`; the error of the GPU where it has one meanwhile. */
static cudaError_t wait_until(int ordinal, int (*done)(void *), void *of, const char *call) {
    cudaError_t error = wake(ordinal, call);
    note(ordinal, "sync", "%s", call);
    pthread_mutex_lock(&lock);
    while (!error && !done(of)) {
        advance_all();
        if (done(of)) break;
        wait_a_little();
        error = gpu_at(ordinal)->error;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int is_idle(void *stream) { return !((Stream *)stream)->first; }
static int is_over(void *event) { return ((Event *)event)->done >= ((Event *)event)->asked; }

static int device_is_idle(void *ordinal) {
    if (legacy[*(int *)ordinal].first) return 0;
    for (Stream *stream = streams; stream; stream = stream->next)
        if (stream->ordinal == *(int *)ordinal && stream->first) return 0;
    return 1;
}

void drain_all(void) {
    for (int i = 0; gpu_at(i); i++) {
        pthread_mutex_lock(&lock);
        while (!device_is_idle(&i) && !gpu_at(i)->error) {
            advance_all();
            if (!device_is_idle(&i)) wait_a_little();
        }
        pthread_mutex_unlock(&lock);
    }
}

cudaError_t launch(cudaStream_t stream) {
    return ask(stream, (Item){.what = KERNEL, .takes_us = cuda_state() ? cuda_state()->kernel_us : 0}, "cudaLaunchKernel");
}

cudaError_t when_ready(cudaStream_t stream, int (*ready)(void *), void (*act)(void *), void *of) {
    return ask(stream, (Item){.what = READY, .ready = ready, .act = act, .of = of}, "ncclCollective");
}

/* Streams */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *to, unsigned flags, int priority) {
    (void)flags, (void)priority;
    cudaError_t error = wake(current_ordinal(), __func__);
    if (error) return error;
    Stream *stream = calloc(1, sizeof *stream);
    stream->ordinal = current_ordinal();
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    *to = (cudaStream_t)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *to, unsigned flags) { return cudaStreamCreateWithPriority(to, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t *to) { return cudaStreamCreateWithPriority(to, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { (void)stream; return cudaSuccess; }

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return wake(current_ordinal(), __func__);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *to) { (void)stream; *to = 0; return cudaSuccess; }

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    Stream *stream = stream_of(handle);
    pthread_mutex_lock(&lock);
    advance_all();
    int idle = is_idle(stream);
    pthread_mutex_unlock(&lock);
    return idle ? wake(stream->ordinal, __func__) : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    Stream *stream = stream_of(handle);
    return wait_until(stream->ordinal, is_idle, stream, __func__);
}

cudaError_t cudaDeviceSynchronize(void) {
    int ordinal = current_ordinal();
    return wait_until(ordinal, device_is_idle, &ordinal, __func__);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *to) {
    (void)stream;
    *to = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, enum cudaStreamCaptureStatus *to, unsigned long long *id, cudaGraph_t *graph,
    const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges, size_t *count
) {
    (void)graph, (void)nodes, (void)edges, (void)count;
    if (id) *id = 0;
    return cudaStreamIsCapturing(stream, to);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { (void)mode; return cudaSuccess; }

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t act, void *of) {
    return ask(stream, (Item){.what = CALL, .act = act, .of = of}, __func__);
}

/* Events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *to, unsigned flags) {
    (void)flags;
    *to = calloc(1, sizeof(Event));
    return wake(current_ordinal(), __func__);
}

cudaError_t cudaEventCreate(cudaEvent_t *to) { return cudaEventCreateWithFlags(to, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    Event *event = (Event *)handle;
    pthread_mutex_lock(&lock);
    event->gone = 1;
    let_go(event);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned flags) {
    (void)flags;
    Event *event = (Event *)handle;
    pthread_mutex_lock(&lock);
    unsigned target = ++event->asked;
    pthread_mutex_unlock(&lock);
    return ask(stream, (Item){.what = RECORD, .event = event, .target = target}, "cudaEventRecord");
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaEventRecordWithFlags(event, stream, 0); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned flags) {
    (void)flags;
    Event *event = (Event *)handle;
    return ask(stream, (Item){.what = WAIT, .event = event, .target = event->asked}, __func__);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    pthread_mutex_lock(&lock);
    advance_all();
    int over = is_over((Event *)handle);
    pthread_mutex_unlock(&lock);
    return over ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    return wait_until(current_ordinal(), is_over, (Event *)handle, __func__);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (!is_over((Event *)from) || !is_over((Event *)to)) return cudaErrorNotReady;
    *ms = (float)(((Event *)to)->at_us - ((Event *)from)->at_us) / 1000;
    return cudaSuccess;
}

/* Copies */

static cudaError_t copying(void *to, const void *from, size_t bytes, cudaStream_t handle, int waits, const char *call) {
    const int from_gpu = ordinal_of(from) != -1, to_gpu = ordinal_of(to) != -1;
    const char *way = from_gpu ? (to_gpu ? "within" : "down") : (to_gpu ? "up" : "host");
    const int pageable = (!from_gpu && !is_pinned(from)) || (!to_gpu && !is_pinned(to));
    Item item = {.what = COPY, .to = to, .from = from, .bytes = bytes, .takes_us = cuda_state() ? cuda_state()->copy_us : 0};
    /* The driver takes what lies in pageable memory before it returns. */
    if (!from_gpu && !is_pinned(from)) item.own = memcpy(malloc(bytes ? bytes : 1), from, bytes);
    Stream *stream = stream_of(handle);
    note(stream->ordinal, "copy", "%s %zu%s%s", way, bytes, pageable ? " pageable" : "", waits ? " waits" : "");
    cudaError_t error = ask(handle, item, call);
    if (error || !(waits || (from_gpu && pageable))) return error;
    return wait_until(stream->ordinal, is_idle, stream, call);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind;
    return copying(to, from, bytes, stream, 0, __func__);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream) {
    (void)to_device, (void)from_device;
    return copying(to, from, bytes, stream, 0, __func__);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    (void)kind;
    return copying(to, from, bytes, 0, 1, __func__);
}

cudaError_t cudaMemcpy2DAsync(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, enum cudaMemcpyKind kind,
    cudaStream_t stream
) {
    cudaError_t error = cudaSuccess;
    for (size_t row = 0; row < height && !error; row++)
        error = cudaMemcpyAsync((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width, kind, stream);
    return error;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return ask(stream, (Item){.what = FILL, .to = to, .value = value, .bytes = bytes}, __func__);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, 0); }

/* Kernels */

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    (void)kernel, (void)grid, (void)block, (void)args, (void)shared;
    return launch(stream);
}

/* As nvcc of CUDA 13 compiles launches. */
cudaError_t __cudaGetKernel(void **to, const void *function) { *to = (void *)function; return cudaSuccess; }
cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args) {
    (void)kernel, (void)args;
    return launch(config->stream);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *to, const void *kernel) {
    (void)kernel;
    memset(to, 0, sizeof *to);
    to->maxThreadsPerBlock = 1024;
    to->ptxVersion = to->binaryVersion = 90;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    (void)kernel, (void)attribute, (void)value;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *to, const void *kernel, int block, size_t shared, unsigned flags
) {
    (void)kernel, (void)block, (void)shared, (void)flags;
    *to = 1;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *to, const void *kernel, int block, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(to, kernel, block, shared, 0);
}
