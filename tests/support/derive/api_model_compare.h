/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * A database against the model of api_model.h, column by column: for unit/trace/model/test_derive_api_model.c.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_API_MODEL_COMPARE_H
#define VARVE_TESTS_SUPPORT_DERIVE_API_MODEL_COMPARE_H

#include "support/derive/api_model.h"
#include "support/derive/rows_expected.h"
#include "trace/event_names.h"
#include "trace/model/event.h"

#include <stdlib.h>

static inline void compare_events(sqlite3 *db, const struct event *events)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT seq, device, stream, pool, coalesce(id, 0), coalesce(size, 0),"
                        " cause, callsite_id, flags FROM event ORDER BY seq");
    for (size_t i = 0; i < EVENTS; i++) {
        const struct event *event = &events[i];
        bool has_size = event_kind_info(event->kind)->size[0] != '\0';
        const int64_t values[] = {
            (int64_t)event->seq, event->device,      event->stream,
            event->pool,         (int64_t)event->id, has_size ? (int64_t)event->size : 0,
            event->cause,        event->callsite,    event->flags};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

static inline void compare_allocations(sqlite3 *db, const struct model *model)
{
    sqlite3_stmt *query = query_begin(
        db, "SELECT id, domain, pid, tid, addr, size, requested, alloc_seq, free_requested_seq,"
            " free_completed_seq, alloc_ns, free_ns, callsite_id, source, process_id, temporary, device,"
            " pool, stream, segment_id, memory_kind FROM allocation ORDER BY id");
    for (size_t i = 0; i < model->row_count; i++) {
        const struct row *row = &model->rows[i];
        int64_t free_seq = row->free_seq != 0 ? (int64_t)row->free_seq : INT64_MIN;
        const int64_t values[] = {(int64_t)i + 1,
                                  row->domain,
                                  1000 + row->process,
                                  2000 + row->thread,
                                  (int64_t)row->addr,
                                  (int64_t)row->size,
                                  (int64_t)row->size,
                                  (int64_t)row->alloc_seq,
                                  free_seq,
                                  free_seq,
                                  row->alloc_ns,
                                  row->free_seq != 0 ? row->free_ns : INT64_MIN,
                                  row->callsite,
                                  row->source,
                                  row->process,
                                  row->temporary,
                                  row->device,
                                  row->pool & 0xfffU,
                                  row->stream,
                                  INT64_MIN,
                                  row->pool >> 12};
        EXPECT_ROW(query, values);
    }
    expect_end(query);
}

static inline void compare_callsites(sqlite3 *db, const struct model *model)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT callsite_id, domain, allocations, frees, bytes, live_allocations,"
                        " live_bytes, peak_allocations, peak_bytes, temporary, lifetime_ns"
                        " FROM callsite_stat ORDER BY callsite_id, domain");
    for (unsigned callsite = 0; callsite <= SITES; callsite++) {
        for (unsigned domain = 0; domain < DOMAINS; domain++) {
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
            for (unsigned place = 0; place < DEVICES; place++) {
                values[7] += (int64_t)model->callsite_peak[callsite][domain][place];
                values[8] += (int64_t)model->callsite_peak_bytes[callsite][domain][place];
            }
            if (values[2] > 0) {
                EXPECT_ROW(query, values);
            }
        }
    }
    expect_end(query);
}

static inline void compare_totals(sqlite3 *db, const struct model *model)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT process_id, domain, device, allocations, frees, bytes,"
                        " live_allocations, live_bytes, peak_bytes, peak_allocations, peak_seq,"
                        " temporary, failed FROM total_stat"
                        " WHERE allocations + failed > 0 ORDER BY 1, 2, 3");
    for (unsigned k = 0; k < (PROCESSES + 1) * DOMAINS * DEVICES; k++) {
        uint32_t process = k / (DOMAINS * DEVICES);
        unsigned domain = k / DEVICES % DOMAINS;
        unsigned place = k % DEVICES;
        const struct sums *sums = &model->sums[process][domain][place];
        int64_t values[13] = {process,
                              domain,
                              place,
                              0,
                              0,
                              0,
                              (int64_t)sums->live,
                              (int64_t)sums->live_bytes,
                              (int64_t)sums->peak_bytes,
                              (int64_t)sums->peak,
                              sums->peak_seq != 0 ? (int64_t)sums->peak_seq : INT64_MIN,
                              0,
                              (int64_t)sums->failed};
        for (size_t i = 0; i < model->row_count; i++) {
            const struct row *row = &model->rows[i];
            if (row->domain == domain && model_place(domain, row->device) == place &&
                (process == 0 || row->process == process)) {
                values[3]++;
                values[4] += row->free_seq != 0;
                values[5] += (int64_t)row->size;
                values[11] += row->temporary;
            }
        }
        if (values[3] + values[12] > 0) {
            EXPECT_ROW(query, values);
        }
    }
    expect_end(query);
}

static inline void compare_streams(sqlite3 *db, const struct model *model)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT process_id, domain, device, stream, allocations, frees, bytes,"
                        " live_bytes, peak_bytes FROM stream_stat ORDER BY 1, 2, 3, 4");
    for (unsigned k = 0; k < (PROCESSES + 1) * DOMAINS * DEVICES * 4; k++) {
        uint32_t process = k / (DOMAINS * DEVICES * 4);
        unsigned domain = k / (DEVICES * 4) % DOMAINS;
        unsigned device = k / 4 % DEVICES;
        unsigned stream = k % 4;
        int64_t values[9] = {process, domain, device, stream};
        for (size_t i = 0; i < model->row_count; i++) {
            const struct row *row = &model->rows[i];
            if (row->process == process && row->domain == domain && row->device == device &&
                row->stream == stream) {
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

static inline int compare_points(const void *a, const void *b)
{
    const struct point *x = a;
    const struct point *y = b;
    int64_t order = (int64_t)x->process - y->process;
    order = order != 0 ? order : (int64_t)x->domain - y->domain;
    order = order != 0 ? order : (int64_t)x->device - y->device;
    order = order != 0 ? order : (int64_t)x->seq - (int64_t)y->seq;
    return order < 0 ? -1 : order > 0;
}

static inline void compare_samples(sqlite3 *db, struct model *model)
{
    sqlite3_stmt *query =
        query_begin(db, "SELECT process_id, domain, device, seq, allocated, allocated_max, live, active,"
                        " reserved, requested FROM sample ORDER BY 1, 2, 3, 4");
    qsort(model->points, model->point_count, sizeof(*model->points), compare_points);
    for (size_t i = 0; i < model->point_count; i++) {
        const struct point *point = &model->points[i];
        const int64_t values[] = {point->process,
                                  point->domain,
                                  point->device,
                                  (int64_t)point->seq,
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

#endif
