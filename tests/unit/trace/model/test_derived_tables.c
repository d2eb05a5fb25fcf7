/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every derived table against its definition in SQL, derived_tables.sql: random events of all groups, possible and
 * impossible ones, of several processes and threads, go through derive and the store, and beside it as they are into a
 * table from which SQLite works out what must follow. However a recording is kept, and where it is resumed in the
 * middle, so that half of the events come back from the database.
 * Costs: 9 s, full 70 s
 */
#include "support/command.h"
#include "support/derive/blocks_model.h"
#include "support/query.h"
#include "support/random.h"
#include "base/error.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "trace/model/model_state.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "trace/store/store_resume.h"

#include <float.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#define EVENTS 2500
#define PROCESSES 3U /* the third was forked */
#define THREADS 10U  /* thread ids: 10 * process and what each is for */
#define THREAD_HEAP 0U
#define THREAD_API 2U
#define THREAD_PYTHON 4U
#define THREAD_BLOCKS 6U
#define THREAD_OTHER 8U
#define THREAD_LIMIT (THREADS * (PROCESSES + 1))
#define DEVICES 2U
#define ORDINALS 3U
#define NUMBERS 16U  /* of storages in each process */
#define OPERATORS 5U /* of the last, no name is ever said */

/* The last is as the one before it, with call sites put together at the end. */
enum way { WAY_USUAL, WAY_RESUMED, WAY_PRIVATE, WAY_ALLOCATIONS, WAY_TOTALS, WAY_JOINED };
#define CALLSITES 7U

/* What the program and its recorder are like at the moment; nothing that follows from the events. */
struct scene {
    uint64_t random, seq;
    enum way way;
    bool is_silent;
    struct store *store;
    struct derive *derive;
    sqlite3 *db;
    sqlite3_stmt *say;
    struct model_device devices[PROCESSES + 1][DEVICES];
    struct owner {
        struct scene *scene;
        uint32_t process;
    } owners[PROCESSES + 1];
    uint64_t pending[THREAD_LIMIT];       /* reallocs under way */
    struct event last_free[THREAD_LIMIT]; /* of the CUDA API */
    uint8_t last_call[THREAD_LIMIT][2];   /* kind; of the CUDA recorder, of CUPTI */
    bool has_ended[PROCESSES + 1];
};

static const char *const texts[OPERATORS] = {"", "matmul", "a name that is too long!", "gelu\n", "step"};
static const char *const kept_texts[OPERATORS] = {"", "matmul", "a name that is too long!", "gelu?", "step"};

static uint64_t below(struct scene *scene, uint64_t limit)
{
    return random_below(&scene->random, limit);
}

#define PICK(...) ((const uint8_t[]){__VA_ARGS__}[below(scene, sizeof((const uint8_t[]){__VA_ARGS__}))])

/* ---- an event on its way ---- */

static void run_sql(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) {
        fail_msg("%s", error);
    }
}

/* As it was emitted; `text` is what the name in it is kept as, `score` that of an eviction. */
static void say(struct scene *scene, const struct event *event, const char *text, double score)
{
    const int64_t values[] = {(int64_t)event->seq,
                              event->ts_ns,
                              event->process_id,
                              event->thread_id,
                              event->pid,
                              event->tid,
                              event->kind,
                              event->cause,
                              event->device,
                              event->flags,
                              (event->flags & VARVE_FLAG_FAILED) != 0,
                              (event->flags & VARVE_FLAG_DUPLICATE) != 0,
                              event->pool,
                              event->stream,
                              event->callsite,
                              (int64_t)event->id,
                              (int64_t)event->addr,
                              (int64_t)event->size,
                              (int64_t)event->requested,
                              (int64_t)event->arg};
    const int count = (int)(sizeof(values) / sizeof(values[0]));
    for (int i = 0; i < count; i++) {
        sqlite3_bind_int64(scene->say, i + 1, values[i]);
    }
    sqlite3_bind_text(scene->say, count + 1, text, -1, SQLITE_STATIC);
    sqlite3_bind_double(scene->say, count + 2, score);
    assert_int_equal(sqlite3_step(scene->say), SQLITE_DONE);
    sqlite3_reset(scene->say);
}

static void take_named(struct scene *scene, struct event event, unsigned thread, const char *text, double score)
{
    event.seq = ++scene->seq;
    event.ts_ns = 50 * (int64_t)event.seq + (int64_t)below(scene, 50);
    event.thread_id = THREADS * event.process_id + thread;
    event.pid = 1000 + (int32_t)event.process_id;
    event.tid = 2000 + (int32_t)event.thread_id;
    say(scene, &event, text, score);
    struct varve_message message;
    assert_int_equal(derive_event(scene->derive, &event, &message), VARVE_OK);
    assert_int_equal(store_append(scene->store, scene->derive, &event, &message), VARVE_OK);
    if (derive_check(scene->derive, &message) != VARVE_OK) {
        fail_msg("event %llu, kind %u: %s", (unsigned long long)event.seq, event.kind, message.text);
    }
    if (event.seq % 371 == 0) {
        assert_int_equal(store_commit(scene->store, NULL, 0, &message), VARVE_OK);
    }
}

static void take(struct scene *scene, struct event event, unsigned thread)
{
    take_named(scene, event, thread, NULL, NAN);
}

/* ---- the heap, Python's memory and mappings ---- */

/* Few addresses, so that events meet; the reallocs under way in each thread are continued at random. */
static void emit_heap(struct scene *scene, struct event event)
{
    static const uint8_t kinds[2][3] = {{VARVE_KIND_HEAP_ALLOC, VARVE_KIND_HEAP_FREE, VARVE_KIND_HEAP_REALLOC},
                                        {VARVE_KIND_PYTHON_ALLOC, VARVE_KIND_PYTHON_FREE, VARVE_KIND_PYTHON_REALLOC}};
    bool is_python = below(scene, 4) == 0;
    unsigned thread = (is_python ? THREAD_PYTHON : THREAD_HEAP) + (unsigned)below(scene, 2);
    uint64_t *pending = &scene->pending[THREADS * event.process_id + thread];
    uint64_t choice = below(scene, 100);
    event.addr = 0x1000 + 16 * (1 + below(scene, 20));
    if (*pending != 0 && choice < 60) {
        uint64_t outcome = below(scene, 8);
        event.kind = kinds[is_python][2];
        event.cause = VARVE_CAUSE_REALLOC;
        event.arg = *pending;
        event.addr = outcome < 4 ? event.addr : outcome == 4 ? 0 : *pending;
        event.size = outcome == 4 ? 0 : below(scene, 300) * (is_python ? 4 : 1); /* above 512: in the heap too */
        event.flags = outcome >= 6 ? VARVE_FLAG_FAILED : 0;
        *pending = 0;
    } else if (choice < 55) {
        event.flags = below(scene, 20) == 0 ? VARVE_FLAG_FAILED : 0;
        event.kind = kinds[is_python][0];
        event.cause = PICK(VARVE_CAUSE_MALLOC, VARVE_CAUSE_CALLOC);
        event.addr = event.flags != 0 ? 0 : event.addr;
        event.size = below(scene, 200) * (is_python ? 4 : 1);
    } else {
        event.kind = kinds[is_python][1];
        event.cause = *pending == 0 ? PICK(VARVE_CAUSE_FREE, VARVE_CAUSE_FREE, VARVE_CAUSE_REALLOC) : VARVE_CAUSE_FREE;
        event.callsite = below(scene, 2) ? 0 : event.callsite;
        *pending = event.cause == VARVE_CAUSE_REALLOC ? event.addr : *pending;
    }
    take(scene, event, thread);
}

static void emit_mapping(struct scene *scene, struct event event)
{
    uint64_t flags = MAP_PRIVATE | (below(scene, 4) == 0 ? MAP_NORESERVE : 0);
    uint64_t protection = below(scene, 3) == 0 ? PROT_NONE : PROT_READ;
    event.kind = PICK(VARVE_KIND_MMAP, VARVE_KIND_MUNMAP);
    event.cause = below(scene, 4) == 0            ? VARVE_CAUSE_MREMAP
                  : event.kind == VARVE_KIND_MMAP ? PICK(VARVE_CAUSE_MMAP, VARVE_CAUSE_MMAP, VARVE_CAUSE_MUNMAP)
                                                  : VARVE_CAUSE_MUNMAP;
    event.flags = event.kind == VARVE_KIND_MMAP && below(scene, 16) == 0 ? VARVE_FLAG_FAILED : 0;
    event.addr = event.flags != 0 ? 0 : 0x100000 + 4096 * below(scene, 24);
    event.size = 4096 * (1 + below(scene, 7));
    event.requested = event.kind == VARVE_KIND_MMAP ? event.size - below(scene, 4096) : 0;
    event.arg = below(scene, 8) == 0 ? 0 : flags << 32 | protection;
    take(scene, event, THREAD_HEAP + (unsigned)below(scene, 2));
}

/* ---- the CUDA API, by its recorder and by CUPTI ---- */

static void fill_address(struct scene *scene, struct event *event)
{
    event->addr = 0x1000 * (1 + below(scene, 12));
    if (below(scene, 2)) {
        event->kind = PICK(VARVE_KIND_DEV_ALLOC, VARVE_KIND_DEV_ALLOC, VARVE_KIND_DEV_ALLOC_ASYNC);
        event->cause = PICK(VARVE_CAUSE_CUDA_MALLOC, VARVE_CAUSE_CU_MEM_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC,
                            VARVE_CAUSE_CU_IPC_OPEN_MEM_HANDLE);
        event->size = 1 + below(scene, 500);
    } else {
        event->kind = PICK(VARVE_KIND_DEV_FREE, VARVE_KIND_DEV_FREE, VARVE_KIND_DEV_FREE_ASYNC);
        event->cause = PICK(VARVE_CAUSE_CUDA_FREE, VARVE_CAUSE_CU_MEM_FREE);
        event->addr = below(scene, 20) == 0 ? 0 : event->addr;
    }
}

static void fill_physical(struct scene *scene, struct event *event)
{
    event->arg = 0x100 + below(scene, 5);
    event->size = 0x1000 * (1 + below(scene, 4));
    event->kind = PICK(VARVE_KIND_VMM_CREATE, VARVE_KIND_VMM_MAP, VARVE_KIND_VMM_MAP, VARVE_KIND_VMM_UNMAP,
                       VARVE_KIND_VMM_RELEASE);
    if (event->kind == VARVE_KIND_VMM_CREATE) {
        event->cause = PICK(VARVE_CAUSE_CU_MEM_CREATE, VARVE_CAUSE_CU_MEM_CREATE, VARVE_CAUSE_CU_MEM_CREATE,
                            VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE);
    } else if (event->kind == VARVE_KIND_VMM_RELEASE) {
        event->cause = VARVE_CAUSE_CU_MEM_RELEASE;
    } else {
        bool is_map = event->kind == VARVE_KIND_VMM_MAP;
        event->cause = is_map ? VARVE_CAUSE_CU_MEM_MAP : VARVE_CAUSE_CU_MEM_UNMAP;
        event->addr = 0x100000 + 0x1000 * below(scene, 16);
        event->arg = is_map ? event->arg : 0;
    }
}

static void fill_other(struct scene *scene, struct event *event)
{
    event->kind = PICK(VARVE_KIND_DEV_RESET, VARVE_KIND_DEV_SYNC, VARVE_KIND_DEV_SYNC, VARVE_KIND_DEV_OOM,
                       VARVE_KIND_DEV_MEMORY, VARVE_KIND_STREAM, VARVE_KIND_VMM_RESERVE, VARVE_KIND_VMM_SET_ACCESS);
    if (event->kind == VARVE_KIND_DEV_RESET) {
        event->cause = VARVE_CAUSE_CUDA_DEVICE_RESET;
        event->flags |= below(scene, 4) == 0 ? VARVE_FLAG_FAILED : 0;
    } else if (event->kind == VARVE_KIND_DEV_SYNC) {
        event->cause = PICK(VARVE_CAUSE_CUDA_FREE, VARVE_CAUSE_CUDA_FREE, VARVE_CAUSE_CU_STREAM_SYNCHRONIZE);
    } else if (event->kind == VARVE_KIND_DEV_OOM) {
        event->cause = VARVE_CAUSE_CUDA_MALLOC;
        event->flags |= VARVE_FLAG_FAILED;
        event->size = 12345;
        event->arg = 2;
    } else {
        event->cause = event->kind == VARVE_KIND_DEV_MEMORY ? VARVE_CAUSE_CU_MEM_GET_INFO : 0;
        event->size = 100000;
        event->addr = event->kind == VARVE_KIND_STREAM ? 0xabc : 0x100000;
    }
}

static void emit_api(struct scene *scene, struct event event)
{
    unsigned thread = THREAD_API + (unsigned)below(scene, 2);
    struct event *last = &scene->last_free[THREADS * event.process_id + thread];
    uint64_t choice = below(scene, 100);
    event.flags = below(scene, 3) == 0 ? VARVE_FLAG_DUPLICATE : 0;
    event.device = (uint8_t)below(scene, ORDINALS);
    event.stream = (uint16_t)below(scene, 4);
    event.pool = (uint16_t)(below(scene, 3) | (uint64_t)PICK(0, 2, 3, 3, 3, 3, 4, 5, 6, 7) << 12);
    event.requested = below(scene, 1000);
    if (last->kind != 0 && choice < 12) { /* the thread's last free once more, as a failure */
        event.kind = last->kind;
        event.cause = last->cause;
        event.flags = last->flags | VARVE_FLAG_FAILED;
        event.addr = below(scene, 3) == 0 ? 0 : last->addr;
        event.size = last->size;
        event.arg = 999;
    } else if (choice < 50) {
        fill_address(scene, &event);
    } else if (choice < 90) {
        fill_physical(scene, &event);
    } else {
        fill_other(scene, &event);
    }
    unsigned side = (event.flags & VARVE_FLAG_DUPLICATE) != 0;
    uint8_t *call = &scene->last_call[THREADS * event.process_id + thread][side];
    /* A failed unmapping or release takes back another one: test_derive.c. */
    bool is_physical = event.kind == VARVE_KIND_VMM_UNMAP || event.kind == VARVE_KIND_VMM_RELEASE;
    if (choice >= 12 && choice < 90 && below(scene, 25) == 0 && !(is_physical && *call == event.kind)) {
        event.flags |= VARVE_FLAG_FAILED;
        event.addr = 0;
    }
    bool has_failed = (event.flags & VARVE_FLAG_FAILED) != 0;
    *call = has_failed ? 0 : choice < 90 && event.kind != VARVE_KIND_VMM_MAP ? event.kind : *call;
    if (!has_failed && (event.kind == VARVE_KIND_DEV_FREE || event.kind == VARVE_KIND_DEV_FREE_ASYNC)) {
        *last = event;
    }
    take(scene, event, thread);
}

/* Each process has its own order of the devices. */
static void emit_devices(struct scene *scene, uint32_t process)
{
    for (unsigned i = 0; i < ORDINALS; i++) {
        take(scene,
             (struct event){.kind = VARVE_KIND_DEVICE,
                            .process_id = process,
                            .device = (uint8_t)i,
                            .addr = 0x500 + (i + process) % ORDINALS,
                            .arg = 77,
                            .size = 1000},
             THREAD_API);
    }
}

/* ---- caching allocators ---- */

static void take_record(void *context, const struct varve_record *record)
{
    const struct owner *owner = context;
    struct event event = {.process_id = owner->process,
                          .kind = (uint8_t)varve_record_kind(record),
                          .cause = record->cause,
                          .device = record->device,
                          .pool = record->pool,
                          .stream = (uint16_t)varve_record_stream(record),
                          .callsite = record->callsite,
                          .dev_seq = varve_record_dev_seq(record),
                          .addr = record->addr,
                          .size = record->size,
                          .requested = record->requested,
                          .arg = record->arg};
    take(owner->scene, event, THREAD_BLOCKS + (unsigned)below(owner->scene, 2));
}

/* ---- phases, storages, rematerialization ---- */

static void name_event(struct event *event, const char *text)
{
    uint64_t words[4] = {0};
    memcpy(words, text, strlen(text));
    event->addr = words[0];
    event->size = words[1];
    event->requested = words[2];
    event->arg = words[3];
}

static void emit_mark(struct scene *scene, struct event event)
{
    const char *text = texts[PICK(0, 2, 4)];
    name_event(&event, text);
    event.kind = PICK(VARVE_KIND_MARK_BEGIN, VARVE_KIND_MARK_END);
    take_named(scene, event, THREAD_OTHER, text, NAN);
}

static void emit_storage(struct scene *scene, struct event event)
{
    event.device = (uint8_t)below(scene, DEVICES);
    const struct model_device *device = &scene->devices[event.process_id][event.device];
    uint64_t addr = 0x1000;
    if (device->block_count != 0) {
        const struct model_block *block = &device->blocks[below(scene, (uint64_t)device->block_count)];
        addr = block->state > VARVE_LAYOUT_FREE ? block->addr + below(scene, block->size) : addr;
    }
    event.kind =
        PICK(VARVE_KIND_STORAGE_CREATE, VARVE_KIND_STORAGE_CREATE, VARVE_KIND_STORAGE_CREATE, VARVE_KIND_VIEW,
             VARVE_KIND_VIEW, VARVE_KIND_STORAGE_DESTROY, VARVE_KIND_STORAGE_DESTROY, VARVE_KIND_STORAGE_DESTROY,
             VARVE_KIND_COPY, VARVE_KIND_CAST, VARVE_KIND_TRANSFER, VARVE_KIND_SHARE, VARVE_KIND_MAP, VARVE_KIND_LEAK);
    event.id = below(scene, NUMBERS);
    event.addr = addr;
    event.size = below(scene, 5000);
    event.requested = below(scene, NUMBERS);
    event.arg =
        event.kind == VARVE_KIND_STORAGE_CREATE ? below(scene, 12) | below(scene, 3) << 8 : below(scene, NUMBERS);
    event.cause = event.kind == VARVE_KIND_LEAK ? PICK(VARVE_CAUSE_LEAK_CYCLE, VARVE_CAUSE_LEAK_UNTOUCHED) : 0;
    take(scene, event, THREAD_OTHER + (unsigned)below(scene, 2));
}

static double random_score(struct scene *scene)
{
    static const double special[] = {0.0, 1.0, DBL_MAX, DBL_MIN, 1.0 / 3.0, 0x1p64, 0x1p-128, INFINITY, NAN};
    uint64_t choice = below(scene, 2 * sizeof(special) / sizeof(special[0]));
    uint64_t bits = (1 + below(scene, 2046)) << 52 | random_next(&scene->random) >> 12; /* any normal one */
    double score;
    memcpy(&score, &bits, sizeof(score));
    return choice < sizeof(special) / sizeof(special[0]) ? special[choice] : score;
}

static void fill_remat(struct scene *scene, struct event *event)
{
    if (event->kind == VARVE_KIND_OP) {
        event->requested = below(scene, 9000);
        event->arg = below(scene, 1000);
    } else if (event->kind == VARVE_KIND_REMAT) {
        event->cause = PICK(VARVE_CAUSE_REMAT_DIRECT, VARVE_CAUSE_REMAT_COLLATERAL);
        event->requested = 1 + below(scene, 1 + below(scene, 40));
        event->arg = event->cause == VARVE_CAUSE_REMAT_DIRECT ? below(scene, 1000) : 0;
    } else if (event->kind == VARVE_KIND_BUDGET && event->flags == 0) {
        event->pool = 0;
        event->id = 0;
        event->size = below(scene, 3) ? 1000 + below(scene, 9000) : UINT64_MAX;
    } else if (event->kind == VARVE_KIND_BUDGET) {
        event->arg = below(scene, 9000);
    } else if (event->flags != 0) {
        event->cause = PICK(VARVE_CAUSE_BLOCKED_PINNED, VARVE_CAUSE_BLOCKED_INPUT);
    }
}

static void emit_remat(struct scene *scene, struct event event)
{
    double score = NAN;
    const char *text = NULL;
    event.kind = PICK(VARVE_KIND_OP_NAME, VARVE_KIND_OP, VARVE_KIND_OP, VARVE_KIND_OP, VARVE_KIND_EVICT,
                      VARVE_KIND_EVICT, VARVE_KIND_EVICT, VARVE_KIND_REMAT, VARVE_KIND_REMAT, VARVE_KIND_PIN,
                      VARVE_KIND_PIN, VARVE_KIND_UNPIN, VARVE_KIND_BUDGET);
    if (event.kind == VARVE_KIND_PIN || event.kind == VARVE_KIND_BUDGET) {
        event.flags = below(scene, 2) ? VARVE_FLAG_FAILED : 0;
    }
    event.id = below(scene, 12);
    event.pool = (uint16_t)(below(scene, 6) ? event.id % OPERATORS : below(scene, OPERATORS));
    event.size = 512 * (event.id % 3) + 100 * below(scene, 20) / 19; /* mostly the same of a number */
    event.addr = below(scene, 2) * 4096 * event.id;
    fill_remat(scene, &event);
    if (event.kind == VARVE_KIND_OP_NAME) {
        event.pool = 0;
        event.id = 1 + below(scene, OPERATORS - 2);
        text = kept_texts[event.id];
        name_event(&event, texts[event.id]);
    } else if (event.kind == VARVE_KIND_EVICT) {
        event.cause = PICK(VARVE_CAUSE_NONE, VARVE_CAUSE_EVICT_RELEASED, VARVE_CAUSE_EVICT_BUDGET,
                           VARVE_CAUSE_EVICT_ALLOCATOR, VARVE_CAUSE_EVICT_REQUESTED, VARVE_CAUSE_EVICT_BANISHED);
        event.requested = scene->seq * 7;
        score = random_score(scene);
        memcpy(&event.arg, &score, sizeof(event.arg));
    }
    take_named(scene, event, THREAD_OTHER, text, score);
}

/* Recomputed so many runs of operators after the eviction: just soon enough to be wasted, and just too late. */
static void emit_wasted(struct scene *scene)
{
    for (uint64_t runs = 14; runs <= 19; runs++) {
        struct event event = {.process_id = 1, .kind = VARVE_KIND_EVICT, .id = 100 + runs, .pool = 1, .size = 512};
        event.cause = VARVE_CAUSE_EVICT_BUDGET;
        take_named(scene, event, THREAD_OTHER, NULL, 0.0);
        event.kind = VARVE_KIND_OP;
        event.cause = VARVE_CAUSE_NONE;
        for (uint64_t i = 1; i < runs; i++) {
            take(scene, event, THREAD_OTHER);
        }
        event.kind = VARVE_KIND_REMAT;
        event.cause = VARVE_CAUSE_REMAT_DIRECT;
        event.requested = 1;
        take(scene, event, THREAD_OTHER);
    }
}

/* ---- a recording ---- */

static void emit_any(struct scene *scene)
{
    struct event event = {.callsite = (uint32_t)below(scene, CALLSITES)};
    uint64_t choice = below(scene, 100);
    do {
        event.process_id = 1 + (uint32_t)below(scene, PROCESSES);
    } while (scene->has_ended[event.process_id]);
    if (choice < 18) {
        emit_heap(scene, event);
    } else if (choice < 27) {
        emit_mapping(scene, event);
    } else if (choice < 50) {
        emit_api(scene, event);
    } else if (choice < 60) {
        if (event.process_id < PROCESSES) { /* the third has none, since its devices get their numbers late */
            model_step(&scene->devices[event.process_id][below(scene, DEVICES)], 60);
        }
    } else if (choice < 63) {
        emit_mark(scene, event);
    } else if (choice < 74) {
        emit_storage(scene, event);
    } else if (choice < 99) {
        emit_remat(scene, event);
    } else {
        event.kind = scene->seq > EVENTS / 2 ? PICK(VARVE_KIND_MAIN_END, VARVE_KIND_MODULE) : VARVE_KIND_MODULE;
        take(scene, event, THREAD_OTHER);
    }
}

static int take_again(void *context, struct event *event, bool is_held)
{
    struct scene *scene = context;
    struct varve_message message;
    struct event stored = *event;
    assert_int_equal(derive_event(scene->derive, event, &message), VARVE_OK);
    assert_int_equal(stored.device, event->device);
    if (is_held) {
        assert_true(derive_can_hold(scene->derive, event));
    } else {
        assert_int_equal(stored.id, event->id);
    }
    store_hold_again(scene->store, scene->derive, event, is_held);
    assert_int_equal(stored.stream, event->stream);
    return VARVE_OK;
}

/* As if the collector had died after its last commit. */
static void scene_resume(struct scene *scene)
{
    struct varve_message message;
    assert_int_equal(store_commit(scene->store, NULL, 0, &message), VARVE_OK);
    store_close(scene->store);
    derive_close(scene->derive);
    unlink("allocations");
    assert_int_equal(store_open("trace.db", STORE_RESUME, &scene->store, &message), VARVE_OK);
    assert_int_equal(derive_open("allocations", &scene->derive, &message), VARVE_OK);
    derive_process_start(scene->derive, PROCESSES, 1);
    assert_int_equal(store_each_event(scene->store, take_again, scene, &message), VARVE_OK);
    assert_int_equal(derive_check(scene->derive, &message), VARVE_OK);
}

static void scene_begin(struct scene *scene)
{
    enum store_mode mode = scene->way == WAY_PRIVATE ? STORE_CREATE_DIRECT : STORE_CREATE;
    unlink("trace.db");
    struct varve_message message;
    assert_int_equal(store_open("trace.db", mode, &scene->store, &message), VARVE_OK);
    assert_int_equal(derive_open("allocations", &scene->derive, &message), VARVE_OK);
    if (scene->way >= WAY_ALLOCATIONS) {
        store_keep(scene->store, scene->way == WAY_ALLOCATIONS ? VARVE_KEEP_ALLOCATIONS : VARVE_KEEP_TOTALS);
    }
    if (scene->way >= WAY_TOTALS) {
        derive_forget(scene->derive);
    }
    derive_process_start(scene->derive, PROCESSES, 1);
    for (uint32_t id = THREADS; id < THREAD_LIMIT; id++) {
        uint32_t process = id / THREADS;
        const struct store_thread thread = {
            .id = id, .process_id = process, .pid = 1000 + (int32_t)process, .tid = 2000 + (int32_t)id, .end_ns = -1};
        assert_int_equal(store_thread(scene->store, &thread), VARVE_OK);
        scene->owners[process] = (struct owner){.scene = scene, .process = process};
    }
    for (unsigned i = 0; i < (PROCESSES + 1) * DEVICES; i++) {
        struct owner *owner = &scene->owners[i / DEVICES];
        model_init(&scene->devices[i / DEVICES][i % DEVICES], i % DEVICES, scene->is_silent, &scene->random,
                   take_record, owner);
    }
    sqlite3_exec(scene->db,
                 "CREATE TABLE said(seq INTEGER PRIMARY KEY, ts_ns, process, thread, pid, tid, kind_code, cause_code,"
                 " ordinal, flags, failed, side, pool, stream, callsite, id, addr, size, requested, arg, text, score);"
                 "CREATE TABLE joined(callsite INTEGER PRIMARY KEY, target); CREATE TABLE without_shares(process)",
                 NULL, NULL, NULL);
    assert_int_equal(sqlite3_prepare_v2(scene->db,
                                        "INSERT INTO said VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,"
                                        " ?, ?, ?, ?)",
                                        -1, &scene->say, NULL),
                     SQLITE_OK);
}

/* Each call site into one with a smaller number that stays, or not; or into rows, numbered in turn. */
static void join_some(struct scene *scene)
{
    static uint32_t joined[CALLSITES];
    const bool is_same = below(scene, 2) == 0;
    for (uint32_t n = 1, rows = 0; n < CALLSITES; n++) {
        uint32_t into = 1 + (uint32_t)below(scene, n);
        char sql[64];
        joined[n] = below(scene, 3) == 0 || joined[into] != into ? n : into;
        if (is_same) {
            joined[n] = rows == 0 || below(scene, 2) == 0 ? ++rows : 1 + (uint32_t)below(scene, rows);
        }
        snprintf(sql, sizeof(sql), "INSERT INTO joined VALUES(%u, %u)", n, joined[n]);
        run_sql(scene->db, sql);
    }
    assert_int_equal(join_callsites(scene->derive, joined, CALLSITES, is_same), VARVE_OK);
    store_callsite_rows(scene->store, joined, CALLSITES);
}

static void scene_record(struct scene *scene)
{
    uint64_t resume_at = scene->way == WAY_RESUMED ? below(scene, EVENTS) : EVENTS * 2;
    for (uint32_t process = 1; process < PROCESSES; process++) {
        emit_devices(scene, process);
    }
    while (scene->seq < EVENTS) {
        uint64_t before = scene->seq;
        emit_any(scene);
        if (before < EVENTS / 3 && scene->seq >= EVENTS / 3) {
            emit_devices(scene, PROCESSES);
        }
        if (before < resume_at && scene->seq >= resume_at) {
            scene_resume(scene);
        }
        if (scene->seq > EVENTS * 3 / 4 && scene->seq > resume_at && !scene->has_ended[2] && below(scene, 100) == 0) {
            if (scene->way == WAY_JOINED && below(scene, 2) == 0) { /* as if many had ended before */
                scene->derive->ended_shares = UINT64_C(1) << 20;
                run_sql(scene->db, "INSERT INTO without_shares VALUES(2)");
            }
            derive_process_end(scene->derive, 2);
            scene->has_ended[2] = true;
        }
    }
    emit_wasted(scene);
    if (scene->way == WAY_JOINED) {
        join_some(scene);
    }
    struct varve_message message;
    for (int i = 0; i < 2; i++) { /* the second time as after a full disk */
        assert_int_equal(derive_finish(scene->derive, scene->store, NULL, NULL, &message), VARVE_OK);
    }
    assert_int_equal(derive_check(scene->derive, &message), VARVE_OK);
    assert_int_equal(store_finish(scene->store, NULL, NULL, &message), VARVE_OK);
    if (scene->way >= WAY_TOTALS) { /* rows of host memory and of storages that are gone were used again */
        assert_true(scene->derive->scratch.count < derive_allocations(scene->derive) * 3 / 4);
        assert_true(scene->derive->storages.count <= 2 * PROCESSES * NUMBERS);
    }
    derive_close(scene->derive);
    store_close(scene->store);
    sqlite3_finalize(scene->say);
}

/* ---- what the database must have ---- */

/* No row that one has and the other hasn't, of the columns that both have. */
static void expect_equal(sqlite3 *db, const char *table, const char *where)
{
    static const char *const schemas[] = {"main", "trace"};
    sqlite3_stmt *query;
    char *sql = sqlite3_mprintf("SELECT group_concat(name) FROM (SELECT name FROM pragma_table_info(%Q, 'main')"
                                " INTERSECT SELECT name FROM pragma_table_info(%Q, 'trace'))",
                                table, table);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &query, NULL), SQLITE_OK);
    sqlite3_free(sql);
    assert_int_equal(sqlite3_step(query), SQLITE_ROW);
    const char *columns = (const char *)sqlite3_column_text(query, 0);
    for (int i = 0; i < 2; i++) {
        sql = sqlite3_mprintf("SELECT %s FROM %s.%s WHERE %s EXCEPT SELECT %s FROM %s.%s WHERE %s LIMIT 3", columns,
                              schemas[i], table, where, columns, schemas[1 - i], table, where);
        query_expect(db, sql, "");
        sqlite3_free(sql);
    }
    assert_int_equal(sqlite3_finalize(query), SQLITE_OK);
}

/* What is not kept, or names what is not kept, is no longer there. */
static const char *part_of(enum way way, bool is_silent, const char *table)
{
    bool is_event = strcmp(table, "event") == 0 || strcmp(table, "op") == 0 || strcmp(table, "eviction") == 0 ||
                    strcmp(table, "rematerialization") == 0 || strcmp(table, "device_event") == 0 ||
                    strcmp(table, "remat_event") == 0 || strcmp(table, "segment") == 0;
    if ((is_event && way >= WAY_ALLOCATIONS) || (is_silent && strcmp(table, "segment") == 0)) {
        return NULL;
    }
    if (strcmp(table, "total_stat") == 0) {
        return "allocations + failed > 0";
    }
    if (way < WAY_TOTALS) {
        return "1";
    }
    return strcmp(table, "allocation") == 0
               ? "domain IN (1, 2, 8, 9) AND (alloc_seq, addr) IN (SELECT alloc_seq, addr FROM left_row)"
           : strcmp(table, "storage") == 0 ? "destroy_seq IS NULL"
                                           : "1";
}

static void scene_compare(struct scene *scene)
{
    size_t bytes;
    char *definitions = file_read(VARVE_SOURCE_DIR "/tests/unit/trace/model/derived_tables.sql", &bytes);
    size_t count = 0;
    run_sql(scene->db, "ATTACH 'trace.db' AS trace");
    run_sql(scene->db, definitions);
    free(definitions);
    if (scene->way >= WAY_TOTALS) { /* rows are used again, and what refers to one that is gone refers to none */
        run_sql(scene->db, "UPDATE storage SET allocation_id = NULL, base_id = NULL;"
                           "ALTER TABLE allocation DROP COLUMN id; ALTER TABLE storage DROP COLUMN id;"
                           "ALTER TABLE storage DROP COLUMN base_id; ALTER TABLE storage DROP COLUMN allocation_id");
    }
    sqlite3_stmt *tables;
    assert_int_equal(sqlite3_prepare_v2(scene->db,
                                        "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name IN"
                                        " (SELECT name FROM trace.sqlite_schema) ORDER BY name",
                                        -1, &tables, NULL),
                     SQLITE_OK);
    while (sqlite3_step(tables) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(tables, 0);
        const char *where = part_of(scene->way, scene->is_silent, table);
        count++;
        if (where == NULL) {
            continue;
        }
        expect_equal(scene->db, table, where);
        char sql[128];
        snprintf(sql, sizeof(sql), "SELECT count(*) FROM main.%s", table);
        if (query_integer(scene->db, sql) == 0) {
            fail_msg("%s: nothing to compare", table);
        }
    }
    sqlite3_finalize(tables);
    assert_int_equal(count, 26);
    query_expect(scene->db, "SELECT * FROM wrong", "");
}

static void run_scene(uint64_t seed, enum way way)
{
    struct scene *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    scene->random = seed * 7919;
    scene->way = way;
    scene->is_silent = seed % 3 == 0;
    assert_int_equal(sqlite3_open(":memory:", &scene->db), SQLITE_OK);
    scene_begin(scene);
    scene_record(scene);
    scene_compare(scene);
    assert_int_equal(sqlite3_close(scene->db), SQLITE_OK);
    free(scene);
}

static void run_way(enum way way, int quick, int full)
{
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + (uint64_t)test_rounds(quick, full); seed++) {
        run_scene(seed, way);
    }
}

#define TEST_WAY(name, way, quick, full)                     \
    TEST_WITH(name, test_folder_setup, test_folder_teardown) \
    {                                                        \
        (void)state;                                         \
        run_way(way, quick, full);                           \
    }

TEST_WAY(test_recorded, WAY_USUAL, 3, 20)
TEST_WAY(test_resumed, WAY_RESUMED, 3, 20)
TEST_WAY(test_private, WAY_PRIVATE, 2, 8) /* as importers write it: events and allocations past SQLite */
TEST_WAY(test_allocations_are_kept, WAY_ALLOCATIONS, 1, 8)
TEST_WAY(test_totals_are_kept, WAY_TOTALS, 3, 8)
TEST_WAY(test_joined_call_sites, WAY_JOINED, 3, 12)
