/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the pairing: what derive.c gathered becomes the tables allocation, callsite_stat, total_stat and
 * sample, by the same virtual tables that events take. There may be a hundred million allocations, so the
 * scratch file is read once, in order, and dropped from memory behind the reader. The collector calls
 * derive_finish once the last event is in; after a full disk it may call it again.
 */
#include "trace/derive_internal.h"
#include "trace/sqlite_internal.h"

#include <stdlib.h>

#define BATCH_ROWS 4096U

static int write_allocations(struct derive *derive, struct store *store, struct store_allocation *batch,
                             struct varve_message *message)
{
    struct scratch *scratch = &derive->scratch;
    int code = VARVE_OK;
    for (uint64_t id = 1; id <= scratch->count && code == VARVE_OK;) {
        size_t count = 0;
        for (; id <= scratch->count && count < BATCH_ROWS; id++) {
            const struct scratch_row *row = scratch_peek(scratch, id);
            const struct derive_thread *thread = &derive->threads[row->thread_id];
            batch[count++] = (struct store_allocation){
                .id = id,
                .pid = thread->pid,
                .tid = thread->tid,
                .process_id = thread->process_id,
                .callsite = row->callsite,
                .addr = row->addr,
                .size = row->size,
                .requested = row->requested,
                .alloc_seq = row->alloc_seq,
                .free_seq = row->free_seq,
                .alloc_ns = row->alloc_ns,
                .free_ns = row->free_ns,
                .domain = row->domain,
                .source = row->source,
                .temporary = row->temporary,
            };
        }
        code = writer_insert_rows(store, STATEMENT_ALLOCATIONS, SOURCE_ALLOCATION, batch, count, message);
        if (id / (64 * BATCH_ROWS) != (id - count) / (64 * BATCH_ROWS)) {
            scratch_cool(scratch, id);
        }
    }
    return code;
}

static int write_sites(struct derive *derive, struct store *store, enum domain number,
                       struct store_callsite_stat *batch, struct varve_message *message)
{
    const struct domain_totals *domain = &derive->domains[number];
    int code = VARVE_OK;
    for (size_t i = 0; i < domain->site_limit && code == VARVE_OK;) {
        size_t count = 0;
        for (; i < domain->site_limit && count < BATCH_ROWS; i++) {
            const struct site_total *site = &domain->sites[i];
            if (site->allocations == 0) {
                continue;
            }
            struct store_callsite_stat *row = &batch[count++];
            *row = (struct store_callsite_stat){
                .callsite = (uint32_t)i,
                .domain = number,
                .allocations = site->allocations,
                .frees = site->frees,
                .bytes = site->bytes,
                .live_allocations = site->live_allocations,
                .live_bytes = site->live_bytes,
                .temporary = site->temporary,
                .lifetime_ns = site->lifetime_ns,
            };
            totals_site_peak(domain, (uint32_t)i, &row->peak_allocations, &row->peak_bytes);
        }
        if (count > 0) {
            code = writer_insert_rows(store, STATEMENT_CALLSITE_STATS, SOURCE_CALLSITE_STAT, batch, count,
                                      message);
        }
    }
    return code;
}

static int write_total(struct store *store, uint32_t process_id, enum domain number,
                       const struct total *total, struct varve_message *message)
{
    bool has_peak = total->peak_seq != 0;
    const struct store_value values[] = {
        VALUE_INTEGER(process_id),
        VALUE_INTEGER(number),
        VALUE_INTEGER(0),
        VALUE_INTEGER(total->allocations),
        VALUE_INTEGER(total->frees),
        VALUE_INTEGER(total->bytes),
        VALUE_INTEGER(total->live_allocations),
        VALUE_INTEGER(total->live_bytes),
        VALUE_INTEGER(total->peak_bytes),
        VALUE_INTEGER(total->peak_allocations),
        has_peak ? VALUE_INTEGER(total->peak_seq) : VALUE_NULL,
        has_peak ? VALUE_INTEGER(total->peak_ns) : VALUE_NULL,
        VALUE_INTEGER(total->temporary),
        VALUE_INTEGER(total->failed),
    };
    int code = rows_write(store, STATEMENT_TOTAL_STAT, values, sizeof values / sizeof values[0]);
    return code == VARVE_OK ? VARVE_OK : varve_message_set(message, code, "%s", store->failure.text);
}

static int write_samples(struct store *store, uint32_t process_id, enum domain number,
                         const struct total *total, struct store_sample *batch, struct varve_message *message)
{
    int code = VARVE_OK;
    const struct series *series = &total->series;
    for (uint32_t i = 0; i < series->count && code == VARVE_OK;) {
        size_t count = 0;
        for (; i < series->count && count < BATCH_ROWS; i++) {
            const struct series_point *point = &series->points[i];
            batch[count++] = (struct store_sample){
                .process_id = process_id,
                .domain = number,
                .seq = point->seq,
                .ts_ns = point->ts_ns,
                .allocated = point->allocated,
                .allocated_max = point->allocated_max,
                .live = point->live,
            };
        }
        code = writer_insert_rows(store, STATEMENT_SAMPLES, SOURCE_SAMPLE, batch, count, message);
    }
    return code;
}

/* One domain's totals of all processes (number 0) and of each; in order of the key, so that it only appends.
 */
static int write_totals(struct derive *derive, struct store *store, uint32_t process_id,
                        struct total *const totals[DOMAIN_LIMIT], struct store_sample *batch,
                        struct varve_message *message)
{
    int code = VARVE_OK;
    for (unsigned number = 0; number < DOMAIN_LIMIT && code == VARVE_OK; number++) {
        struct total *total = process_id == 0 ? &derive->domains[number].all : totals[number];
        if (total == NULL || total->series.limit == 0) {
            continue;
        }
        series_end(&total->series, total->series.limit);
        code = write_total(store, process_id, number, total, message);
        if (code == VARVE_OK) {
            code = write_samples(store, process_id, number, total, batch, message);
        }
    }
    return code;
}

int derive_finish(struct derive *derive, struct store *store, struct varve_message *message)
{
    union batch {
        struct store_allocation allocations[BATCH_ROWS];
        struct store_callsite_stat sites[BATCH_ROWS];
        struct store_sample samples[BATCH_ROWS];
    } *batch = malloc(sizeof *batch);
    if (batch == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to write allocations");
    }
    int code = writer_begin(store, message);
    if (code == VARVE_OK) {
        /* Empty but for what an earlier attempt left. */
        code = writer_execute(store,
                              "DELETE FROM allocation; DELETE FROM callsite_stat; DELETE FROM total_stat;"
                              "DELETE FROM sample;",
                              message);
    }
    if (code == VARVE_OK) {
        code = write_allocations(derive, store, batch->allocations, message);
    }
    for (unsigned number = 0; number < DOMAIN_LIMIT && code == VARVE_OK; number++) {
        code = write_sites(derive, store, number, batch->sites, message);
    }
    if (code == VARVE_OK) {
        code = write_totals(derive, store, 0, NULL, batch->samples, message);
    }
    for (size_t i = 1; i < derive->process_limit && code == VARVE_OK; i++) {
        if (derive->processes[i] != NULL) {
            code = write_totals(derive, store, (uint32_t)i, derive->processes[i]->totals, batch->samples,
                                message);
        }
    }
    free(batch);
    store->has_derived = code == VARVE_OK;
    return code;
}
