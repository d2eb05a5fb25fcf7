/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * What the naive models of derive have in common (model.h, api_model.h): a list of allocations, added up anew after
 * each event that changed one, and the sample points and peaks that follow; a database that derive and the store made
 * of the same events must have the same, column by column.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_ROWS_MODEL_H
#define VARVE_TESTS_SUPPORT_DERIVE_ROWS_MODEL_H

#include "support/derive/rows_expected.h"
#include "trace/error.h"
#include "trace/event_names.h"
#include "trace/model/derive/derive.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/store/allocations.h"
#include "trace/store/derived.h"
#include "trace/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS 2700
#define POINTS 8000
#define PROCESSES_MAX 9U
#define SITES_MAX 6U
#define DOMAINS 10U
#define DEVICES 5U
#define SLOTS (DOMAINS * DEVICES)

struct row {
    uint64_t addr, size, requested, alloc_seq, free_seq;
    int64_t alloc_ns, free_ns;
    uint32_t process, thread, callsite;
    unsigned domain, device, pool, stream, source, temporary;
    bool is_known; /* of the heap: the address index has it; it is live, and its process has not ended */
};

struct sums {
    uint64_t live, live_bytes, peak, peak_bytes, peak_seq, failed;
};

struct point {
    uint32_t process;
    unsigned slot;
    uint64_t seq, bytes, live;
};

/* A slot is a domain, or a device of it: DEVICES * domain + device. */
struct rows_model {
    struct row rows[ROWS];
    size_t row_count;
    struct point points[POINTS];
    size_t point_count;
    struct sums sums[PROCESSES_MAX + 1][SLOTS]; /* [0]: all processes */
    uint64_t callsite_peak[SITES_MAX + 1][SLOTS], callsite_peak_bytes[SITES_MAX + 1][SLOTS];
    bool has_changed[SLOTS]; /* in this event */
};

static inline unsigned rows_slot(unsigned domain, unsigned device)
{
    bool has_devices = domain != DOMAIN_HEAP && domain != DOMAIN_MMAP && domain != DOMAIN_PINNED &&
                       domain != DOMAIN_ADDRESS_SPACE && domain != DOMAIN_PYTHON;
    return DEVICES * domain + (has_devices ? device : 0);
}

static inline void rows_change(struct rows_model *model, const struct row *row)
{
    model->has_changed[rows_slot(row->domain, row->device)] = true;
}

static inline size_t rows_open(struct rows_model *model, const struct event *event, unsigned domain, uint64_t addr,
                               uint64_t size, unsigned source)
{
    struct row *row = &model->rows[model->row_count];
    assert_true(model->row_count < ROWS);
    *row = (struct row){.addr = addr,
                        .size = size,
                        .requested = domain_is_api(domain) ? size : event->requested,
                        .alloc_seq = event->seq,
                        .alloc_ns = event->ts_ns,
                        .process = event->process_id,
                        .thread = event->thread_id,
                        .callsite = event->callsite,
                        .domain = domain,
                        .device = event->device,
                        .pool = event->pool,
                        .stream = event->stream,
                        .source = source,
                        .is_known = true};
    rows_change(model, row);
    return model->row_count++;
}

static inline void rows_close(struct rows_model *model, const struct event *event, struct row *row, bool is_temporary)
{
    row->free_seq = event->seq;
    row->free_ns = event->ts_ns;
    row->temporary = is_temporary;
    row->is_known = false;
    rows_change(model, row);
}

static inline void rows_reopen(struct rows_model *model, struct row *row)
{
    row->free_seq = 0;
    row->free_ns = 0;
    row->temporary = 0;
    row->is_known = true;
    rows_change(model, row);
}

static inline void rows_fail(struct rows_model *model, const struct event *event, unsigned slot)
{
    model->sums[0][slot].failed++;
    model->sums[event->process_id][slot].failed++;
}

/* Add up what is live, for one process or for all (0). */
static inline void rows_sum(struct rows_model *model, const struct event *event, uint32_t process, unsigned slot)
{
    struct sums *sums = &model->sums[process][slot];
    uint64_t callsites[SITES_MAX + 1] = {0};
    uint64_t callsite_bytes[SITES_MAX + 1] = {0};
    sums->live = 0;
    sums->live_bytes = 0;
    for (size_t i = 0; i < model->row_count; i++) {
        const struct row *row = &model->rows[i];
        if (row->free_seq == 0 && rows_slot(row->domain, row->device) == slot &&
            (process == 0 || row->process == process)) {
            sums->live++;
            sums->live_bytes += row->size;
            callsites[row->callsite]++;
            callsite_bytes[row->callsite] += row->size;
        }
    }
    assert_true(model->point_count < POINTS);
    model->points[model->point_count++] = (struct point){process, slot, event->seq, sums->live_bytes, sums->live};
    if (sums->live_bytes > sums->peak_bytes) {
        sums->peak_bytes = sums->live_bytes;
        sums->peak = sums->live;
        sums->peak_seq = event->seq;
        for (unsigned i = 0; i <= SITES_MAX && process == 0; i++) {
            model->callsite_peak[i][slot] = callsites[i];
            model->callsite_peak_bytes[i][slot] = callsite_bytes[i];
        }
    }
}

/* The event is over. */
static inline void rows_sum_changed(struct rows_model *model, const struct event *event)
{
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        if (model->has_changed[slot]) {
            rows_sum(model, event, 0, slot);
            rows_sum(model, event, event->process_id, slot);
        }
    }
    memset(model->has_changed, 0, sizeof(model->has_changed));
}

/* ---- a database against it ---- */

static inline void compare_events(sqlite3 *db, const struct event *events, size_t count)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT seq, ts_ns, pid, tid, kind, coalesce(id, 0), cause, thread_id, flags, size,"
                        " requested, callsite_id, device, stream, pool FROM event ORDER BY seq");
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &events[i];
        const struct event_kind_info *info = event_kind_info(event->kind);
        bool is_process = strcmp(info->group, "process") == 0;
        bool has_device = !is_process && strcmp(info->group, "heap") != 0;
        const int64_t values[] = {
            (int64_t)event->seq,
            event->ts_ns,
            event->pid,
            event->tid,
            event->kind,
            (int64_t)event->id,
            event->cause,
            event->thread_id,
            event->flags,
            info->size[0] != '\0' ? (int64_t)event->size : INT64_MIN,
            info->requested[0] != '\0' ? (int64_t)event->requested : INT64_MIN,
            is_process || (kind_gives_back(event->kind) && event->callsite == 0) ? INT64_MIN : (int64_t)event->callsite,
            has_device ? event->device : INT64_MIN,
            has_device ? event->stream : INT64_MIN,
            has_device ? event->pool : INT64_MIN};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

static inline void compare_allocations(sqlite3 *db, const struct rows_model *model)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT id, domain, pid, tid, addr, size, requested, alloc_seq, free_requested_seq,"
                        " free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary, device,"
                        " pool, stream, segment_id, memory_kind FROM allocation ORDER BY id");
    for (size_t i = 0; i < model->row_count; i++) {
        const struct row *row = &model->rows[i];
        int64_t free_seq = row->free_seq != 0 ? (int64_t)row->free_seq : INT64_MIN;
        bool is_api = domain_is_api(row->domain);
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
                                  is_api ? row->device : INT64_MIN,
                                  is_api ? row->pool & 0xfffU : INT64_MIN,
                                  is_api ? row->stream : INT64_MIN,
                                  INT64_MIN,
                                  is_api ? row->pool >> 12 : INT64_MIN};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

static inline void compare_callsites(sqlite3 *db, const struct rows_model *model)
{
    sqlite3_stmt *query = query_begin(db, "SELECT callsite_id, domain, allocations, frees, bytes, live_allocations,"
                                          " live_bytes, peak_allocations, peak_bytes, temporary, lifetime_ns"
                                          " FROM callsite_stat ORDER BY callsite_id, domain");
    for (unsigned k = 0; k < (SITES_MAX + 1) * DOMAINS; k++) {
        unsigned callsite = k / DOMAINS;
        unsigned domain = k % DOMAINS;
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
        for (unsigned slot = DEVICES * domain; slot < DEVICES * (domain + 1); slot++) {
            values[7] += (int64_t)model->callsite_peak[callsite][slot];
            values[8] += (int64_t)model->callsite_peak_bytes[callsite][slot];
        }
        if (values[2] > 0) {
            EXPECT_ROW(query, values);
        }
    }
    expect_end(query);
}

static inline void compare_totals(sqlite3 *db, const struct rows_model *model, const struct event *events)
{
    sqlite3_stmt *query = query_begin(db, "SELECT process_id, domain, device, allocations, frees, bytes,"
                                          " live_allocations, live_bytes, peak_bytes, peak_allocations, peak_seq,"
                                          " peak_ns, temporary, failed FROM total_stat"
                                          " WHERE allocations + failed > 0 ORDER BY 1, 2, 3");
    for (unsigned k = 0; k < (PROCESSES_MAX + 1) * SLOTS; k++) {
        uint32_t process = k / SLOTS;
        unsigned slot = k % SLOTS;
        const struct sums *sums = &model->sums[process][slot];
        bool has_peak = sums->peak_seq != 0;
        int64_t values[14] = {process,
                              slot / DEVICES,
                              slot % DEVICES,
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
            if (rows_slot(row->domain, row->device) == slot && (process == 0 || row->process == process)) {
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
    expect_end(query);
}

/* Over the allocations, whose own rows are compared with the model's. Pinned memory (5) is of no device. */
static inline void compare_sizes(sqlite3 *db)
{
    sqlite3_stmt *query = query_begin(
        db,
        "WITH RECURSIVE class(size) AS (SELECT 1 UNION ALL SELECT size * 2 FROM class WHERE size < 1 << 60), part AS "
        "(SELECT p.id, a.domain, iif(a.domain = 5, 0, coalesce(a.device, 0)) AS device, a.size, a.temporary, "
        "a.alloc_ns,   a.free_ns, a.free_requested_seq FROM allocation a JOIN (SELECT 0 AS id UNION SELECT "
        "process_id FROM   allocation) p ON p.id IN (0, a.process_id)), expected AS (SELECT id, domain, device, "
        "(SELECT min(c.size) FROM class c WHERE c.size >= p.size) AS up_to,   count(*), count(free_requested_seq), "
        "sum(size), sum(free_requested_seq IS NULL),   sum(iif(free_requested_seq IS NULL, size, 0)), "
        "sum(temporary), sum(coalesce(free_ns - alloc_ns, 0))   FROM part p GROUP BY 1, 2, 3, 4) SELECT (SELECT "
        "count(*) FROM (SELECT * FROM expected EXCEPT SELECT * FROM size_stat)),   (SELECT count(*) FROM (SELECT * "
        "FROM size_stat EXCEPT SELECT * FROM expected)),   (SELECT count(*) > 0 FROM size_stat) = (SELECT count(*) > "
        "0 FROM allocation)");
    const int64_t values[] = {0, 0, 1};
    EXPECT_ROW(query, values);
    expect_end(query);
}

static inline int compare_points(const void *a, const void *b)
{
    const struct point *x = a;
    const struct point *y = b;
    int64_t order = (int64_t)x->process - y->process;
    order = order != 0 ? order : (int64_t)x->slot - y->slot;
    order = order != 0 ? order : (int64_t)x->seq - (int64_t)y->seq;
    return order < 0 ? -1 : order > 0;
}

static inline void compare_samples(sqlite3 *db, struct rows_model *model, const struct event *events)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT process_id, domain, device, seq, ts_ns, allocated, allocated_max, live,"
                        " active, reserved, requested FROM sample ORDER BY 1, 2, 3, 4");
    qsort(model->points, model->point_count, sizeof(*model->points), compare_points);
    for (size_t i = 0; i < model->point_count; i++) {
        const struct point *point = &model->points[i];
        const int64_t values[] = {point->process,
                                  point->slot / DEVICES,
                                  point->slot % DEVICES,
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

/* ---- one stream of events through derive and the store ---- */

struct run {
    char directory[64];
    char path[96];
    char scratch[96];
    struct derive *derive;
    struct store *store;
    struct event *events; /* as the model completed them */
    size_t event_count;
};

static inline void run_begin(struct run *run, size_t events_max)
{
    struct varve_message message;
    snprintf(run->directory, sizeof(run->directory), "/tmp/test_derive.XXXXXX");
    assert_non_null(mkdtemp(run->directory));
    snprintf(run->path, sizeof(run->path), "%s/trace.db", run->directory);
    snprintf(run->scratch, sizeof(run->scratch), "%s/allocations", run->directory);
    assert_int_equal(store_open(run->path, STORE_CREATE, &run->store, &message), VARVE_OK);
    assert_int_equal(derive_open(run->scratch, &run->derive, &message), VARVE_OK);
    run->events = calloc(events_max, sizeof(*run->events));
    assert_non_null(run->events);
}

static inline void run_take(struct run *run, struct event event)
{
    struct varve_message message;
    assert_int_equal(derive_event(run->derive, &event, &message), VARVE_OK);
    assert_int_equal(store_append(run->store, &event, &message), VARVE_OK);
    if (derive_check(run->derive, &message) != VARVE_OK) {
        fail_msg("event %llu, kind %u: %s", (unsigned long long)event.seq, event.kind, message.text);
    }
    /* Allocations are stored while they are made; of many it is not known yet how they end. */
    if (event.seq % 53 == 0) {
        allocations_gather(run->store, run->derive, event.seq % 7);
    }
    if (event.seq % 371 == 0) {
        assert_int_equal(store_commit(run->store, NULL, 0, &message), VARVE_OK);
    }
}

/* Returns the finished database, all of it compared but what only the caller's model knows. */
static inline sqlite3 *run_finish(struct run *run, struct rows_model *model)
{
    struct varve_message message;
    sqlite3 *db;
    assert_int_equal(derive_finish(run->derive, run->store, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(derive_finish(run->derive, run->store, NULL, NULL, &message), VARVE_OK); /* as after a full disk */
    assert_int_equal(store_finish(run->store, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(derive_check(run->derive, &message), VARVE_OK);
    derive_close(run->derive);
    store_close(run->store);
    assert_int_equal(sqlite3_open_v2(run->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    compare_events(db, run->events, run->event_count);
    compare_allocations(db, model);
    compare_callsites(db, model);
    compare_totals(db, model, run->events);
    compare_sizes(db);
    compare_samples(db, model, run->events);
    return db;
}

static inline void run_end(struct run *run, sqlite3 *db)
{
    sqlite3_close(db);
    unlink(run->path);
    unlink(run->scratch);
    rmdir(run->directory);
    free(run->events);
}

#endif
