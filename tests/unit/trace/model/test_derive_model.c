/* SPDX-License-Identifier: Apache-2.0 */
/*
 * derive against a naive model: random streams of events (threads, processes, forks, realloc in place, moved,
 * failed and cut off, mmap splits, unknown and double frees) go through derive and the store; the model keeps
 * plain lists, searches them from end to end and adds everything up anew after each event. Every column of
 * allocation, callsite_stat, total_stat, sample and of the completed events must agree.
 */
#include "support/derive/model.h"
#include "support/random.h"
#include "support/derive/rows_expected.h"
#include "trace/error.h"
#include "trace/event_names.h"
#include "trace/model/derive/derive.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- random streams ---- */

static uint64_t random_state; /* seeded by each test */

/* Few addresses, so that events meet; the reallocs under way in each thread are continued at random. */
static void stream_event(struct event *event, uint64_t pending[10 * PROCESSES + 10], uint32_t process_count)
{
    uint32_t process = 1 + (uint32_t)random_below(&random_state, process_count);
    uint32_t thread = 10 * process + (uint32_t)random_below(&random_state, THREADS);
    uint64_t addr = 0x1000 + 16 * (1 + random_below(&random_state, 20));
    uint64_t choice = random_below(&random_state, 100);
    *event = (struct event){.process_id = process,
                            .thread_id = thread,
                            .pid = 1000 + (int32_t)process,
                            .tid = 2000 + (int32_t)thread,
                            .callsite = (uint32_t)random_below(&random_state, SITES + 1)};
    if (pending[thread] != 0 && choice < 60) {
        uint64_t outcome = random_below(&random_state, 8);
        event->kind = VARVE_KIND_HEAP_REALLOC;
        event->cause = VARVE_CAUSE_REALLOC;
        event->arg = pending[thread];
        event->addr = outcome < 4 ? addr : outcome == 4 ? 0 : pending[thread];
        event->size = outcome == 4 ? 0 : random_below(&random_state, 300);
        event->flags = outcome >= 6 ? VARVE_FLAG_FAILED : 0;
        pending[thread] = 0;
    } else if (choice < 40) {
        bool has_failed = random_below(&random_state, 20) == 0;
        event->kind = VARVE_KIND_HEAP_ALLOC;
        event->cause = random_below(&random_state, 2) ? VARVE_CAUSE_MALLOC : VARVE_CAUSE_CALLOC;
        event->addr = has_failed ? 0 : addr;
        event->size = random_below(&random_state, 200);
        event->flags = has_failed ? VARVE_FLAG_FAILED : 0;
    } else if (choice < 72) {
        bool is_realloc = random_below(&random_state, 3) == 0;
        event->kind = VARVE_KIND_HEAP_FREE;
        event->cause = is_realloc ? VARVE_CAUSE_REALLOC : VARVE_CAUSE_FREE;
        event->callsite = random_below(&random_state, 2) ? 0 : event->callsite;
        event->addr = addr;
        pending[thread] = is_realloc ? addr : pending[thread];
    } else if (choice < 96) {
        event->kind = choice < 84 ? VARVE_KIND_MMAP : VARVE_KIND_MUNMAP;
        event->cause = random_below(&random_state, 4) == 0 ? VARVE_CAUSE_MREMAP
                       : choice < 84                       ? VARVE_CAUSE_MMAP
                                                           : VARVE_CAUSE_MUNMAP;
        event->flags = choice < 84 && random_below(&random_state, 16) == 0 ? VARVE_FLAG_FAILED : 0;
        event->addr = event->flags ? 0 : 0x100000 + PAGE * random_below(&random_state, 24);
        event->size = PAGE * (1 + random_below(&random_state, 7));
        event->requested =
            event->kind == VARVE_KIND_MMAP ? event->size - random_below(&random_state, PAGE) : 0;
    } else {
        event->kind = choice < 98 ? VARVE_KIND_MODULE : VARVE_KIND_STORAGE_CREATE;
        event->addr = addr;
    }
}

/* ---- comparison ---- */

static void compare_events(sqlite3 *db, const struct event *events, size_t count)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT seq, ts_ns, pid, tid, kind, coalesce(id, 0), size, requested, cause,"
                        " callsite_id, thread_id FROM event ORDER BY seq");
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &events[i];
        bool is_heap = event->kind >= VARVE_KIND_HEAP_ALLOC && event->kind <= VARVE_KIND_MUNMAP;
        bool has_requested = event_kind_info(event->kind)->requested[0] != '\0';
        const int64_t values[] = {
            (int64_t)event->seq,
            event->ts_ns,
            event->pid,
            event->tid,
            event->kind,
            (int64_t)event->id,
            (int64_t)event->size,
            has_requested ? (int64_t)event->requested : INT64_MIN,
            event->cause,
            is_heap || event->kind == VARVE_KIND_STORAGE_CREATE ? (int64_t)event->callsite : INT64_MIN,
            event->thread_id};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

static void compare_allocations(sqlite3 *db, const struct model *model)
{
    sqlite3_stmt *query = query_begin(
        db, "SELECT id, domain, pid, tid, addr, size, requested, alloc_seq, free_requested_seq,"
            " free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary, device"
            " FROM allocation ORDER BY id");
    for (size_t i = 0; i < model->row_count; i++) {
        const struct row *row = &model->rows[i];
        int64_t free_seq = row->free_seq != 0 ? (int64_t)row->free_seq : INT64_MIN;
        const int64_t values[] = {(int64_t)i + 1,
                                  row->domain,
                                  1000 + row->process,
                                  2000 + row->thread,
                                  (int64_t)row->addr,
                                  (int64_t)row->size,
                                  (int64_t)row->requested,
                                  (int64_t)row->alloc_seq,
                                  free_seq,
                                  free_seq,
                                  row->alloc_ns,
                                  row->free_seq != 0 ? row->free_ns : INT64_MIN,
                                  row->callsite,
                                  row->source,
                                  row->process,
                                  row->temporary,
                                  INT64_MIN};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

static void compare_callsites(sqlite3 *db, const struct model *model)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT callsite_id, domain, allocations, frees, bytes, live_allocations,"
                        " live_bytes, peak_allocations, peak_bytes, temporary, lifetime_ns"
                        " FROM callsite_stat ORDER BY callsite_id, domain");
    for (unsigned callsite = 0; callsite <= SITES; callsite++) {
        for (unsigned domain = DOMAIN_HEAP; domain <= DOMAIN_MMAP; domain++) {
            int64_t values[11] = {callsite, domain};
            for (size_t i = 0; i < model->row_count; i++) {
                const struct row *row = &model->rows[i];
                if (row->callsite == callsite && row->domain == domain) {
                    values[2]++;
                    values[3] += row->free_seq != 0;
                    values[4] += (int64_t)row->size;
                    values[5] += row->free_seq == 0;
                    values[6] += row->free_seq == 0 ? (int64_t)row->size : 0;
                    values[9] += row->temporary;
                    values[10] += row->free_seq != 0 ? row->free_ns - row->alloc_ns : 0;
                }
            }
            values[7] = (int64_t)model->callsite_peak[callsite][domain];
            values[8] = (int64_t)model->callsite_peak_bytes[callsite][domain];
            if (values[2] > 0) {
                EXPECT_ROW(query, values);
            }
        }
    }
    expect_end(query);
}

static void compare_totals(sqlite3 *db, const struct model *model, const struct event *events)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT process_id, domain, device, allocations, frees, bytes,"
                        " live_allocations, live_bytes, peak_bytes, peak_allocations, peak_seq,"
                        " peak_ns, temporary, failed FROM total_stat"
                        " WHERE allocations + failed > 0 ORDER BY 1, 2");
    for (uint32_t process = 0; process <= PROCESSES; process++) {
        for (unsigned domain = DOMAIN_HEAP; domain <= DOMAIN_MMAP; domain++) {
            const struct sums *sums = &model->sums[process][domain];
            bool has_peak = sums->peak_seq != 0;
            int64_t values[14] = {process,
                                  domain,
                                  0,
                                  0,
                                  0,
                                  0,
                                  (int64_t)sums->live,
                                  (int64_t)sums->live_bytes,
                                  (int64_t)sums->peak_bytes,
                                  (int64_t)sums->peak,
                                  has_peak ? (int64_t)sums->peak_seq : INT64_MIN,
                                  has_peak ? events[sums->peak_seq - 1].ts_ns : INT64_MIN,
                                  0,
                                  (int64_t)sums->failed};
            for (size_t i = 0; i < model->row_count; i++) {
                const struct row *row = &model->rows[i];
                if (row->domain == domain && (process == 0 || row->process == process)) {
                    values[3]++;
                    values[4] += row->free_seq != 0;
                    values[5] += (int64_t)row->size;
                    values[12] += row->temporary;
                }
            }
            if (values[3] + values[13] > 0) {
                EXPECT_ROW(query, values);
            }
        }
    }
    expect_end(query);
}

static int compare_points(const void *a, const void *b)
{
    const struct point *x = a;
    const struct point *y = b;
    int64_t order = (int64_t)x->process - y->process;
    order = order != 0 ? order : (int64_t)x->domain - y->domain;
    order = order != 0 ? order : (int64_t)x->seq - (int64_t)y->seq;
    return order < 0 ? -1 : order > 0;
}

static void compare_samples(sqlite3 *db, struct model *model, const struct event *events)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT process_id, domain, device, seq, ts_ns, allocated, allocated_max,"
                        " live, active, reserved, requested FROM sample ORDER BY 1, 2, 4");
    qsort(model->points, model->point_count, sizeof(*model->points), compare_points);
    for (size_t i = 0; i < model->point_count; i++) {
        const struct point *point = &model->points[i];
        const int64_t values[] = {point->process,
                                  point->domain,
                                  0,
                                  (int64_t)point->seq,
                                  events[point->seq - 1].ts_ns,
                                  (int64_t)point->bytes,
                                  (int64_t)point->bytes,
                                  (int64_t)point->live,
                                  INT64_MIN,
                                  INT64_MIN,
                                  INT64_MIN};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

/* ---- the test ---- */

struct run {
    char directory[64];
    char path[96];
    char scratch[96];
    struct derive *derive;
    struct store *store;
    struct model *model;
    struct event *events;
};

static void run_begin(struct run *run)
{
    struct varve_message message;
    snprintf(run->directory, sizeof(run->directory), "/tmp/test_derive_model.XXXXXX");
    assert_non_null(mkdtemp(run->directory));
    snprintf(run->path, sizeof(run->path), "%s/trace.db", run->directory);
    snprintf(run->scratch, sizeof(run->scratch), "%s/allocations", run->directory);
    assert_int_equal(store_open(run->path, STORE_CREATE, &run->store, &message), VARVE_OK);
    assert_int_equal(derive_open(run->scratch, &run->derive, &message), VARVE_OK);
    run->model = calloc(1, sizeof(*run->model));
    run->events = calloc(EVENTS, sizeof(*run->events));
    memset(run->model->last_alloc, 0xff, sizeof(run->model->last_alloc));
}

static void run_stream(struct run *run)
{
    struct varve_message message;
    uint64_t pending[10 * PROCESSES + 10] = {0};
    uint32_t process_count = 1;
    for (size_t i = 0; i < EVENTS; i++) {
        if (process_count < PROCESSES && random_below(&random_state, 90) == 0) {
            process_count++;
            run->model->is_forked[process_count] = random_below(&random_state, 2);
            derive_process_start(run->derive, process_count, run->model->is_forked[process_count] ? 1 : 0);
        }
        struct event event;
        do {
            stream_event(&event, pending, process_count);
        } while (run->model->has_ended[event.process_id]);
        event.seq = i + 1;
        event.ts_ns = 50 * (int64_t)i + (int64_t)random_below(&random_state, 50);
        run->events[i] = event;
        model_event(run->model, &run->events[i]);
        assert_int_equal(derive_event(run->derive, &event, &message), VARVE_OK);
        assert_int_equal(store_append(run->store, &event, &message), VARVE_OK);
        if (derive_check(run->derive, &message) != VARVE_OK) {
            fail_msg("event %zu: %s", i + 1, message.text);
        }
        if (process_count > 2 && random_below(&random_state, 150) == 0) {
            uint32_t process = 2 + (uint32_t)random_below(&random_state, process_count - 1);
            derive_process_end(run->derive, process);
            run->model->has_ended[process] = true;
            for (size_t k = 0; k < run->model->row_count; k++) {
                run->model->rows[k].is_known &= run->model->rows[k].process != process;
            }
        }
    }
}

static void run_end(struct run *run)
{
    struct varve_message message;
    sqlite3 *db;
    assert_int_equal(derive_finish(run->derive, run->store, &message), VARVE_OK);
    assert_int_equal(store_finish(run->store, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(derive_check(run->derive, &message), VARVE_OK);
    derive_close(run->derive);
    store_close(run->store);
    assert_int_equal(sqlite3_open_v2(run->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    compare_events(db, run->events, EVENTS);
    compare_allocations(db, run->model);
    compare_callsites(db, run->model);
    compare_totals(db, run->model, run->events);
    compare_samples(db, run->model, run->events);
    sqlite3_close(db);
    unlink(run->path);
    unlink(run->scratch);
    rmdir(run->directory);
    free(run->model);
    free(run->events);
}

static void test_random_streams(void **state)
{
    (void)state;
    for (uint64_t first = test_first_seed(1), seed = first; seed < first + 40; seed++) {
        struct run run = {0};
        random_state = seed * 7919;
        run_begin(&run);
        run_stream(&run);
        run_end(&run);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
