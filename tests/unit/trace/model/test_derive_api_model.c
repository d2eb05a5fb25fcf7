/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA API's events against a naive model (support/derive/api_model.h): random streams of several processes,
 * threads and devices, by the CUDA recorder and by CUPTI, with failures, resets, imported memory, handles used again
 * and missed events, go through derive and the store; in the middle the store is closed and resumed, so that half of
 * the events come back from the database. All derived columns must be the model's.
 * Costs: 4 s
 */
#include "support/derive/api_model.h"
#include "support/random.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/resume.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- random streams ---- */

static uint64_t random_state; /* seeded by each test */

#define PICK(...) ((const uint8_t[]){__VA_ARGS__}[random_below(&random_state, sizeof((const uint8_t[]){__VA_ARGS__}))])

/* The thread's last free once more, as a failure. */
static void stream_failure(struct event *event, const struct event *last)
{
    event->kind = last->kind;
    event->cause = last->cause;
    event->flags = (uint8_t)(last->flags | VARVE_FLAG_FAILED);
    event->addr = random_below(&random_state, 3) == 0 ? 0 : last->addr;
    event->size = last->size;
    event->arg = 999;
}

static void stream_address(struct event *event)
{
    event->addr = 0x1000 * (1 + random_below(&random_state, 12));
    event->arg = 0;
    if (random_below(&random_state, 2)) {
        event->kind = PICK(VARVE_KIND_DEV_ALLOC, VARVE_KIND_DEV_ALLOC, VARVE_KIND_DEV_ALLOC_ASYNC);
        event->cause = PICK(VARVE_CAUSE_CUDA_MALLOC, VARVE_CAUSE_CU_MEM_ALLOC, VARVE_CAUSE_CU_MEM_ALLOC,
                            VARVE_CAUSE_CU_IPC_OPEN_MEM_HANDLE);
        event->size = 1 + random_below(&random_state, 500);
    } else {
        event->kind = PICK(VARVE_KIND_DEV_FREE, VARVE_KIND_DEV_FREE, VARVE_KIND_DEV_FREE_ASYNC);
        event->cause = PICK(VARVE_CAUSE_CUDA_FREE, VARVE_CAUSE_CU_MEM_FREE);
        event->addr = random_below(&random_state, 20) == 0 ? 0 : event->addr;
    }
}

static void stream_physical(struct event *event)
{
    event->addr = 0;
    event->arg = 0x100 + random_below(&random_state, 7);
    event->size = 0x1000 * (1 + random_below(&random_state, 4));
    switch (random_below(&random_state, 5)) {
    case 0:
        event->kind = VARVE_KIND_VMM_CREATE;
        event->cause =
            PICK(VARVE_CAUSE_CU_MEM_CREATE, VARVE_CAUSE_CU_MEM_CREATE, VARVE_CAUSE_CU_MEM_CREATE,
                 VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE, VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE);
        break;
    case 1:
    case 2:
        event->kind = VARVE_KIND_VMM_MAP;
        event->cause = VARVE_CAUSE_CU_MEM_MAP;
        event->addr = 0x100000 + 0x1000 * random_below(&random_state, 16);
        break;
    case 3:
        event->kind = VARVE_KIND_VMM_UNMAP;
        event->cause = VARVE_CAUSE_CU_MEM_UNMAP;
        event->addr = 0x100000 + 0x1000 * random_below(&random_state, 16);
        event->arg = 0;
        break;
    default:
        event->kind = VARVE_KIND_VMM_RELEASE;
        event->cause = VARVE_CAUSE_CU_MEM_RELEASE;
        break;
    }
}

static void stream_other(struct event *event)
{
    event->addr = 0;
    event->size = 0;
    event->arg = 0;
    event->flags &= VARVE_FLAG_DUPLICATE;
    switch (random_below(&random_state, 8)) {
    case 0:
        event->kind = VARVE_KIND_DEV_RESET;
        event->cause = VARVE_CAUSE_CUDA_DEVICE_RESET;
        event->flags |= random_below(&random_state, 4) == 0 ? VARVE_FLAG_FAILED : 0;
        break;
    case 1:
    case 2:
    case 3:
        event->kind = VARVE_KIND_DEV_SYNC;
        event->cause = PICK(VARVE_CAUSE_CUDA_FREE, VARVE_CAUSE_CUDA_FREE, VARVE_CAUSE_CU_STREAM_SYNCHRONIZE);
        break;
    case 4:
        event->kind = VARVE_KIND_DEV_OOM;
        event->cause = VARVE_CAUSE_CUDA_MALLOC;
        event->flags |= VARVE_FLAG_FAILED;
        event->size = 12345;
        event->arg = 2;
        break;
    case 5: /* each process has its own order of the devices */
        event->kind = VARVE_KIND_DEVICE;
        event->cause = 0;
        event->flags = 0;
        event->callsite = 0;
        event->addr = 0x500 + (event->device + event->process_id) % ORDINALS;
        event->arg = 77;
        event->size = 1000;
        break;
    default:
        event->kind =
            PICK(VARVE_KIND_VMM_RESERVE, VARVE_KIND_VMM_ADDRESS_FREE, VARVE_KIND_VMM_SET_ACCESS, VARVE_KIND_STREAM);
        event->flags = 0;
        event->addr = 0x100000;
        break;
    }
}

/* Few addresses and handles, so that events meet. */
static void stream_event(struct event *event, struct event last[THREAD_IDS], uint32_t process_count)
{
    uint32_t process = 1 + (uint32_t)random_below(&random_state, process_count);
    uint32_t thread = 10 * process + (uint32_t)random_below(&random_state, THREADS);
    *event = (struct event){
        .process_id = process,
        .thread_id = thread,
        .pid = 1000 + (int32_t)process,
        .tid = 2000 + (int32_t)thread,
        .device = (uint8_t)random_below(&random_state, ORDINALS),
        .stream = (uint16_t)random_below(&random_state, 4),
        .pool = (uint16_t)(random_below(&random_state, 3) | (uint64_t)PICK(0, 2, 3, 3, 3, 3, 4, 5, 6, 7) << 12),
        .flags = random_below(&random_state, 3) == 0 ? VARVE_FLAG_DUPLICATE : 0,
        .requested = random_below(&random_state, 1000),
        .callsite = (uint32_t)random_below(&random_state, CALLSITES + 1),
    };
    uint64_t choice = random_below(&random_state, 100);
    if (last[thread].kind != 0 && choice < 12) {
        stream_failure(event, &last[thread]);
    } else if (choice < 50) {
        stream_address(event);
    } else if (choice < 90) {
        stream_physical(event);
    } else {
        stream_other(event);
    }
    if (choice >= 12 && choice < 90 && random_below(&random_state, 25) == 0) {
        event->flags |= VARVE_FLAG_FAILED;
        event->addr = 0;
    }
    if (model_closes(event->kind) && !(event->flags & VARVE_FLAG_FAILED)) {
        last[thread] = *event;
    }
}

/* ---- the test ---- */

static void compare_streams(sqlite3 *db, const struct model *model)
{
    sqlite3_stmt *query = query_begin(db, "SELECT process_id, domain, device, stream, allocations, frees, bytes,"
                                          " live_bytes, peak_bytes FROM stream_stat ORDER BY 1, 2, 3, 4");
    for (unsigned k = 0; k < (PROCESSES + 1) * DOMAINS * DEVICES * 4; k++) {
        uint32_t process = k / (DOMAINS * DEVICES * 4);
        unsigned domain = k / (DEVICES * 4) % DOMAINS;
        unsigned device = k / 4 % DEVICES;
        unsigned stream = k % 4;
        int64_t values[9] = {process, domain, device, stream};
        for (size_t i = 0; i < model->base.row_count; i++) {
            const struct row *row = &model->base.rows[i];
            if (row->process == process && row->domain == domain && row->device == device && row->stream == stream) {
                values[4]++;
                values[5] += row->free_seq != 0;
                values[6] += (int64_t)row->size;
                values[7] += row->free_seq == 0 ? (int64_t)row->size : 0;
            }
        }
        values[8] = (int64_t)model->stream_peak[process][domain][device][stream];
        if (values[4] > 0) {
            EXPECT_ROW(query, values);
        }
    }
    expect_end(query);
}

static int take_again(void *context, struct event *event)
{
    struct run *run = context;
    struct varve_message message;
    struct event stored = *event;
    assert_int_equal(derive_event(run->derive, event, &message), VARVE_OK);
    assert_int_equal(stored.device, event->device);
    assert_int_equal(stored.id, event->id);
    assert_int_equal(stored.stream, event->stream);
    return VARVE_OK;
}

/* As if the collector had died after its last commit. */
static void run_resume(struct run *run)
{
    struct varve_message message;
    for (uint32_t i = 1; i <= PROCESSES; i++) {
        for (uint32_t k = 0; k < THREADS; k++) {
            const struct store_thread thread = {
                .id = 10 * i + k, .process_id = i, .pid = 1000 + (int32_t)i, .end_ns = -1};
            assert_int_equal(store_thread(run->store, &thread), VARVE_OK);
        }
    }
    assert_int_equal(store_commit(run->store, NULL, 0, &message), VARVE_OK);
    store_close(run->store);
    derive_close(run->derive);
    unlink(run->scratch);
    assert_int_equal(store_open(run->path, STORE_RESUME, &run->store, &message), VARVE_OK);
    assert_int_equal(derive_open(run->scratch, &run->derive, &message), VARVE_OK);
    assert_int_equal(store_each_event(run->store, take_again, run, &message), VARVE_OK);
    assert_int_equal(derive_check(run->derive, &message), VARVE_OK);
}

static void run_stream(struct run *run, struct model *model)
{
    struct event last[THREAD_IDS] = {0};
    bool has_ended = false;
    uint64_t resume_at = random_below(&random_state, EVENTS);
    run->event_count = EVENTS;
    for (size_t i = 0; i < EVENTS; i++) {
        struct event event;
        do {
            stream_event(&event, last, PROCESSES);
        } while (has_ended && event.process_id == PROCESSES);
        event.seq = i + 1;
        event.ts_ns = 50 * (int64_t)i + (int64_t)random_below(&random_state, 50);
        run->events[i] = event;
        model_event(model, &run->events[i]);
        run_take(run, event);
        if (i == resume_at) {
            run_resume(run);
        }
        if (i > EVENTS * 3 / 4 && random_below(&random_state, 100) == 0) {
            derive_process_end(run->derive, PROCESSES);
            has_ended = true;
        }
    }
}

TEST(test_random_streams)
{
    const uint64_t streams = (uint64_t)test_rounds(10, 40);
    size_t rows = 0;
    for (uint64_t seed = 1; seed <= streams; seed++) {
        struct run run = {0};
        struct model *model = calloc(1, sizeof(*model));
        assert_non_null(model);
        for (unsigned i = 0; i < THREAD_IDS; i++) {
            model->last[i][0].row = -1;
            model->last[i][1].row = -1;
        }
        random_state = seed * 7919;
        run_begin(&run, EVENTS);
        run_stream(&run, model);
        sqlite3 *db = run_finish(&run, &model->base);
        compare_streams(db, model);
        run_end(&run, db);
        rows += model->base.row_count;
        free(model);
    }
    assert_true(rows > streams * EVENTS / 8); /* the streams are about something */
}
