/* NCCL of the stand-in for CUDA: ranks meet, and what they send arrives, through files beside the state's.
 *
 * Every rank puts what it gives to a collective into a file, and goes on once the files of all are there: so a rank that is
 * missing holds the others up for ever, as it does on GPUs, and what is received is what was sent. The collectives of a
 * communicator are done in the order in which they were asked for, whatever their streams, as by NCCL.
 */
#include "cuda_stub.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { OK = 0, SYSTEM_ERROR = 2, VERSION = 23007, NO_COLOR = -1 };
enum { SUM, PROD, MAX, MIN, AVG };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16 };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, MEET };

typedef struct { char internal[128]; } Id;

typedef struct {
    char id[96];
    int rank, ranks, aborted;
    unsigned long asked;                /* collectives and meetings so far */
    unsigned long begun, done;          /* collectives so far */
    unsigned long sent[64], received[64];
} Comm;

typedef struct {
    Comm *comm;
    unsigned long number, turn;
    int what, type, op, root, given;
    const void *from;
    void *to;
    size_t count;
} Collective;

typedef struct { Comm *comm; char path[512]; const void *from; void *to; size_t bytes; } Message;

static const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static const char *folder(void) {
    static char path[400];
    if (!path[0]) {
        snprintf(path, sizeof path, "%s.nccl", getenv("FOOTPLATE_CUDA_STATE"));
        if (mkdir(path, 0700) && errno != EEXIST) abort();
    }
    return path;
}

/* Files */

static void path_of(char *to, const Comm *comm, unsigned long number, int rank) {
    snprintf(to, 512, "%s/%s.%lu.%d", folder(), comm->id, number, rank);
}

static void put(const char *path, const void *from, size_t bytes) {
    char temporary[520];
    snprintf(temporary, sizeof temporary, "%s.part", path);
    FILE *file = fopen(temporary, "we");
    if (!file || (bytes && fwrite(from, 1, bytes, file) != bytes) || fclose(file) || rename(temporary, path)) abort();
}

static void get(const char *path, void *to, size_t bytes) {
    FILE *file = fopen(path, "re");
    if (!file || fread(to, 1, bytes, file) != bytes) abort();
    fclose(file);
}

static int exists(const char *path) { return access(path, F_OK) == 0; }

static int all_gave(const Comm *comm, unsigned long number) {
    char path[512];
    for (int rank = 0; rank < comm->ranks; rank++) {
        path_of(path, comm, number, rank);
        if (!exists(path)) return 0;
    }
    return 1;
}

/* Once all have given to `number`, all have taken from the one before. */
static void tidy(const Comm *comm, unsigned long number) {
    char path[512];
    if (!number) return;
    path_of(path, comm, number - 1, comm->rank);
    unlink(path);
}

/* Numbers */

static double load(const void *at, size_t i, int type) {
    switch (type) {
    case INT8: return ((const int8_t *)at)[i];
    case UINT8: return ((const uint8_t *)at)[i];
    case INT32: return ((const int32_t *)at)[i];
    case UINT32: return ((const uint32_t *)at)[i];
    case INT64: return (double)((const int64_t *)at)[i];
    case UINT64: return (double)((const uint64_t *)at)[i];
    case FLOAT32: return ((const float *)at)[i];
    case FLOAT64: return ((const double *)at)[i];
    case BFLOAT16: {
        uint32_t word = (uint32_t)((const uint16_t *)at)[i] << 16;
        float value;
        memcpy(&value, &word, sizeof value);
        return value;
    }
    default: return 0;      /* halves, which nothing on the host reads */
    }
}

static void store(void *at, size_t i, int type, double value) {
    switch (type) {
    case INT8: ((int8_t *)at)[i] = (int8_t)value; break;
    case UINT8: ((uint8_t *)at)[i] = (uint8_t)value; break;
    case INT32: ((int32_t *)at)[i] = (int32_t)value; break;
    case UINT32: ((uint32_t *)at)[i] = (uint32_t)value; break;
    case INT64: ((int64_t *)at)[i] = (int64_t)value; break;
    case UINT64: ((uint64_t *)at)[i] = (uint64_t)value; break;
    case FLOAT32: ((float *)at)[i] = (float)value; break;
    case FLOAT64: ((double *)at)[i] = value; break;
    case BFLOAT16: {
        float narrow = (float)value;
        uint32_t word;
        memcpy(&word, &narrow, sizeof word);
        ((uint16_t *)at)[i] = (uint16_t)(word >> 16);
        break;
    }
    default: ((uint16_t *)at)[i] = 0;
    }
}

static double joined(double one, double other, int op) {
    switch (op) {
    case PROD: return one * other;
    case MAX: return one > other ? one : other;
    case MIN: return one < other ? one : other;
    default: return one + other;        /* an average is divided at the end */
    }
}

/* `count` numbers from `first` on of what all ranks gave, joined into `to`. */
static void reduce(const Collective *own, size_t given, size_t first) {
    const size_t size = SIZES[own->type];
    char path[512], *others = malloc(given * size + 1);
    double *total = malloc(own->count * sizeof *total);
    for (int rank = 0; rank < own->comm->ranks; rank++) {
        path_of(path, own->comm, own->number, rank);
        get(path, others, given * size);
        for (size_t i = 0; i < own->count; i++) {
            double value = load(others, first + i, own->type);
            total[i] = rank ? joined(total[i], value, own->op) : value;
        }
    }
    for (size_t i = 0; i < own->count; i++)
        store(own->to, i, own->type, own->op == AVG ? total[i] / own->comm->ranks : total[i]);
    free(total);
    free(others);
}

/* The `place`th part of what `rank` gave in parts of `count`, into the `into`th part of what is received. */
static void take(const Collective *own, int rank, size_t parts, size_t place, size_t into) {
    const size_t bytes = own->count * SIZES[own->type];
    char path[512], *all = malloc(parts * bytes + 1);
    path_of(path, own->comm, own->number, rank);
    get(path, all, parts * bytes);
    memcpy((char *)own->to + into * bytes, all + place * bytes, bytes);
    free(all);
}

/* Collectives */

static size_t given_by(const Collective *own) {
    if (own->what == MEET || (own->what == BROADCAST && own->comm->rank != own->root)) return 0;
    const int parts = own->what == REDUCE_SCATTER || own->what == ALL_TO_ALL;
    return own->count * (parts ? (size_t)own->comm->ranks : 1);
}

static int ready(void *of) {
    Collective *own = of;
    char path[512];
    if (own->comm->aborted) return 1;
    if (own->turn != own->comm->done) return 0;
    if (!own->given) {
        path_of(path, own->comm, own->number, own->comm->rank);
        put(path, own->from, given_by(own) * SIZES[own->type]);
        own->given = 1;
    }
    return all_gave(own->comm, own->number);
}

static void act(void *of) {
    Collective *own = of;
    Comm *comm = own->comm;
    comm->done++;
    if (!comm->aborted) {
        if (own->what == ALL_REDUCE || (own->what == REDUCE && comm->rank == own->root)) reduce(own, own->count, 0);
        if (own->what == REDUCE_SCATTER) reduce(own, own->count * (size_t)comm->ranks, own->count * (size_t)comm->rank);
        if (own->what == BROADCAST) take(own, own->root, 1, 0, 0);
        for (int rank = 0; rank < comm->ranks; rank++) {
            if (own->what == ALL_GATHER) take(own, rank, 1, 0, (size_t)rank);
            if (own->what == ALL_TO_ALL) take(own, rank, (size_t)comm->ranks, (size_t)comm->rank, (size_t)rank);
        }
        tidy(comm, own->number);
    }
    free(own);
}

static int collective(Collective own, cudaStream_t stream) {
    Collective *kept = malloc(sizeof *kept);
    own.number = own.comm->asked++;
    own.turn = own.comm->begun++;
    *kept = own;
    return when_ready(stream, ready, act, kept) ? SYSTEM_ERROR : OK;
}

#define GIVES Comm *comm, cudaStream_t stream
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, GIVES) {
    return collective((Collective){comm, 0, 0, ALL_REDUCE, type, op, 0, 0, from, to, count}, stream);
}
int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, GIVES) {
    return collective((Collective){comm, 0, 0, REDUCE, type, op, root, 0, from, to, count}, stream);
}
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, GIVES) {
    return collective((Collective){comm, 0, 0, BROADCAST, type, 0, root, 0, from, to, count}, stream);
}
int ncclBcast(void *at, size_t count, int type, int root, GIVES) {
    return ncclBroadcast(at, at, count, type, root, comm, stream);
}
int ncclAllGather(const void *from, void *to, size_t count, int type, GIVES) {
    return collective((Collective){comm, 0, 0, ALL_GATHER, type, 0, 0, 0, from, to, count}, stream);
}
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, GIVES) {
    return collective((Collective){comm, 0, 0, REDUCE_SCATTER, type, op, 0, 0, from, to, count}, stream);
}
int ncclAlltoAll(const void *from, void *to, size_t count, int type, GIVES) {
    return collective((Collective){comm, 0, 0, ALL_TO_ALL, type, 0, 0, 0, from, to, count}, stream);
}

/* Messages between two ranks, as strict as NCCL may be: a send ends once its receiver has the message. The messages between
 * ncclGroupStart and ncclGroupEnd proceed and end together, and the rest of the stream waits for them. */

typedef struct { Message *message; int sends, put, got; } Part;
typedef struct { Part parts[512]; int count; cudaStream_t stream; long begun_s; int told; } Batch;

static __thread int depth;
static __thread Batch *open_batch;

/* FOOTPLATE_NCCL_BROKEN is a number of a rank that never gets what others send, as behind a misconfigured IOMMU. */
static int is_lost(const Comm *comm, const Part *part) {
    const char *broken = getenv("FOOTPLATE_NCCL_BROKEN");
    return broken && !part->sends && atoi(broken) == comm->rank;
}

static int progressed(void *of) {
    Batch *batch = of;
    int all = 1;
    for (int i = 0; i < batch->count; i++) {
        Part *part = &batch->parts[i];
        Message *message = part->message;
        if (message->comm->aborted) return 1;
        if (part->sends) {
            if (!part->put) put(message->path, message->from, message->bytes), part->put = 1;
            if (exists(message->path)) all = 0;
        } else if (!part->got) {
            if (exists(message->path) && !is_lost(message->comm, part)) {
                struct stat info;
                if (stat(message->path, &info) || (size_t)info.st_size != message->bytes) {
                    fprintf(stderr, "NCCL stand-in: %s has %zu bytes, expected %zu\n", message->path, (size_t)info.st_size, message->bytes);
                    abort();
                }
                get(message->path, message->to, message->bytes);
                unlink(message->path);
                part->got = 1;
            } else all = 0;
        }
    }
    return all;
}

static void done_with(void *of) {
    Batch *batch = of;
    for (int i = 0; i < batch->count; i++) free(batch->parts[i].message);
    free(batch);
}

static Message *message(Comm *comm, int sender, int receiver, unsigned long number, size_t bytes) {
    Message *made = calloc(1, sizeof *made);
    made->comm = comm;
    made->bytes = bytes;
    snprintf(made->path, sizeof made->path, "%s/%s.%d-%d.%lu", folder(), comm->id, sender, receiver, number);
    return made;
}

static int ask_for(Message *made, int sends, cudaStream_t stream) {
    Batch *batch = open_batch;
    if (depth && batch && batch->stream != stream) { fprintf(stderr, "NCCL stand-in: a group on two streams\n"); abort(); }
    if (!batch) batch = calloc(1, sizeof *batch);
    batch->stream = stream;
    batch->parts[batch->count++] = (Part){made, sends, 0, 0};
    if (batch->count == 512) abort();
    if (depth) { open_batch = batch; return OK; }
    return when_ready(stream, progressed, done_with, batch) ? SYSTEM_ERROR : OK;
}

int ncclSend(const void *from, size_t count, int type, int peer, GIVES) {
    Message *made = message(comm, comm->rank, peer, comm->sent[peer]++, count * SIZES[type]);
    made->from = from;
    return ask_for(made, 1, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, GIVES) {
    Message *made = message(comm, peer, comm->rank, comm->received[peer]++, count * SIZES[type]);
    made->to = to;
    return ask_for(made, 0, stream);
}

/* Communicators */

int ncclGetVersion(int *version) { *version = VERSION; return OK; }
const char *ncclGetErrorString(int error) { return error ? "an error of the stand-in" : "no error"; }
const char *ncclGetLastError(void *comm) { (void)comm; return ""; }
int ncclGroupStart(void) { depth++; return OK; }
int ncclGroupEnd(void) {
    Batch *batch = open_batch;
    if (--depth || !batch) return OK;
    open_batch = NULL;
    return when_ready(batch->stream, progressed, done_with, batch) ? SYSTEM_ERROR : OK;
}
int ncclCommGetAsyncError(void *comm, int *error) { (void)comm; *error = OK; return OK; }
int ncclCommCount(const Comm *comm, int *count) { *count = comm->ranks; return OK; }
int ncclCommUserRank(const Comm *comm, int *rank) { *rank = comm->rank; return OK; }
int ncclCommFinalize(void *comm) { (void)comm; return OK; }
int ncclCommDestroy(void *comm) { (void)comm; return OK; }
int ncclCommRegister(void *comm, void *at, size_t bytes, void **handle) { (void)comm, (void)bytes; *handle = at; return OK; }
int ncclCommDeregister(void *comm, void *handle) { (void)comm, (void)handle; return OK; }
int ncclCommAbort(Comm *comm) { comm->aborted = 1; return OK; }

int ncclGetUniqueId(Id *id) {
    static int made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, 64, "%d-%d", getpid(), __sync_fetch_and_add(&made, 1));
    return OK;
}

/* Waits for all ranks, as the meeting of a communicator does. */
static void meet(Comm *comm, const void *from, size_t bytes) {
    char path[512];
    path_of(path, comm, comm->asked, comm->rank);
    put(path, from, bytes);
    while (!all_gave(comm, comm->asked)) usleep(500);
    tidy(comm, comm->asked);
    comm->asked++;
}

int ncclCommInitRankConfig(Comm **to, int ranks, Id id, int rank, void *config) {
    (void)config;
    if (wake(current_ordinal(), "ncclCommInitRank")) return SYSTEM_ERROR;
    Comm *comm = calloc(1, sizeof *comm);
    snprintf(comm->id, sizeof comm->id, "%.64s", id.internal);
    comm->rank = rank;
    comm->ranks = ranks;
    meet(comm, NULL, 0);
    *to = comm;
    return OK;
}

int ncclCommInitRank(Comm **to, int ranks, Id id, int rank) { return ncclCommInitRankConfig(to, ranks, id, rank, NULL); }

/* One process with a GPU for each rank. They need not meet. */
int ncclCommInitAll(Comm **to, int ranks, const int *devices) {
    Id id;
    (void)devices;
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < ranks; rank++) {
        to[rank] = calloc(1, sizeof **to);
        snprintf(to[rank]->id, sizeof to[rank]->id, "%.64s", id.internal);
        to[rank]->rank = rank;
        to[rank]->ranks = ranks;
    }
    return OK;
}

int ncclCommInitRankScalable(Comm **to, int ranks, int rank, int ids, Id *id, void *config) {
    (void)ids;
    return ncclCommInitRankConfig(to, ranks, *id, rank, config);
}

/* One communicator for each color, its ranks in the order of their keys. */
int ncclCommSplit(Comm *comm, int color, int key, Comm **to, void *config) {
    (void)config;
    const unsigned long number = comm->asked;
    int own[2] = {color, key};
    meet(comm, own, sizeof own);
    Comm *part = calloc(1, sizeof *part);
    snprintf(part->id, sizeof part->id, "%.64s_%lu_%d", comm->id, number, color);
    for (int rank = 0; rank < comm->ranks; rank++) {
        char path[512];
        int theirs[2];
        path_of(path, comm, number, rank);
        get(path, theirs, sizeof theirs);
        if (theirs[0] != color) continue;
        part->ranks++;
        if (theirs[1] < key || (theirs[1] == key && rank < comm->rank)) part->rank++;
    }
    meet(comm, NULL, 0);        /* so that nobody tidies away what another has yet to read */
    *to = part;
    if (color == NO_COLOR) {
        free(part);
        *to = NULL;
    } else meet(part, NULL, 0);
    return OK;
}
