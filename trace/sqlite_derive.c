/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the pairing: what derive.c gathered becomes the tables allocation, callsite_stat, total_stat and
 * sample. There may be a hundred million allocations, so the scratch file is read once, in order, and dropped
 * from memory behind the reader; they take the road of events (sqlite_image.c), in several transactions:
 * until store_finish sets meta.complete, what is here is not final. The collector calls derive_finish once
 * the last event is in; after a full disk it may call it again.
 */
#include "trace/derive_internal.h"
#include "trace/sqlite_internal.h"

/* Sorted by rowid already, so one commit per so many keeps the log of the database short. */
#define COMMIT_ROWS ((uint64_t)1 << 18)

static bool allocation_add(struct store *store, const struct derive *derive, uint64_t id)
{
    const struct scratch_row *row = scratch_peek(&derive->scratch, id);
    const struct derive_thread *thread = &derive->threads[row->thread_id];
    const int64_t values[] = {
        0,
        row->domain,
        thread->pid,
        thread->tid,
        0,
        0,
        0,
        0,
        (int64_t)row->addr,
        (int64_t)row->size,
        (int64_t)row->requested,
        (int64_t)row->alloc_seq,
        (int64_t)row->free_seq,
        (int64_t)row->free_seq,
        row->alloc_ns,
        row->free_ns,
        row->callsite,
        row->source,
        thread->process_id,
        row->temporary,
    };
    /* id is the rowid; device, pool, stream and segment_id (4 to 7) are not the heap's; then what a free
     * sets. */
    uint32_t nulls = 1U | 15U << 4 | (row->free_seq != 0 ? 0 : 1U << 12 | 1U << 13 | 1U << 15);
    return image_add(store->image, IMAGE_ALLOCATION, id, values, nulls, sizeof values / sizeof values[0]);
}

static int write_allocations(struct derive *derive, struct store *store, struct varve_message *message)
{
    struct scratch *scratch = &derive->scratch;
    int code = VARVE_OK;
    for (uint64_t id = 1; id <= scratch->count && code == VARVE_OK;) {
        for (uint64_t end = id + COMMIT_ROWS; id < end && id <= scratch->count; id++) {
            if (!allocation_add(store, derive, id)) {
                break;
            }
        }
        code = writer_insert_batch(store, STATEMENT_ALLOCATIONS, message);
        if (code == VARVE_OK) {
            code = writer_commit(store, message);
        }
        if (code != VARVE_OK) {
            /* Not to be taken for events by the next commit; they are in the scratch file. */
            image_clear(store->image);
        }
        scratch_cool(scratch, id);
    }
    return code;
}

static int write_row(struct store *store, enum store_statement statement, const struct store_value *values,
                     unsigned count, struct varve_message *message)
{
    int code = rows_write(store, statement, values, count);
    return code == VARVE_OK ? VARVE_OK : varve_message_set(message, code, "%s", store->failure.text);
}

static int write_sites(const struct derive *derive, struct store *store, enum domain number,
                       struct varve_message *message)
{
    const struct domain_totals *domain = &derive->domains[number];
    int code = VARVE_OK;
    for (size_t i = 0; i < domain->site_limit && code == VARVE_OK; i++) {
        const struct site_total *site = &domain->sites[i];
        if (site->allocations == 0) {
            continue;
        }
        uint64_t peak_allocations;
        uint64_t peak_bytes;
        totals_site_peak(domain, (uint32_t)i, &peak_allocations, &peak_bytes);
        const struct store_value values[] = {
            VALUE_INTEGER(i),
            VALUE_INTEGER(number),
            VALUE_INTEGER(site->allocations),
            VALUE_INTEGER(site->frees),
            VALUE_INTEGER(site->bytes),
            VALUE_INTEGER(site->live_allocations),
            VALUE_INTEGER(site->live_bytes),
            VALUE_INTEGER(peak_allocations),
            VALUE_INTEGER(peak_bytes),
            VALUE_INTEGER(site->temporary),
            VALUE_INTEGER(site->lifetime_ns),
        };
        code = write_row(store, STATEMENT_CALLSITE_STAT, values, sizeof values / sizeof values[0], message);
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
    return write_row(store, STATEMENT_TOTAL_STAT, values, sizeof values / sizeof values[0], message);
}

static int write_samples(struct store *store, uint32_t process_id, enum domain number,
                         const struct series *series, struct varve_message *message)
{
    int code = VARVE_OK;
    for (uint32_t i = 0; i < series->count && code == VARVE_OK; i++) {
        const struct series_point *point = &series->points[i];
        const struct store_value values[] = {
            VALUE_INTEGER(process_id),           VALUE_INTEGER(number),       VALUE_INTEGER(0),
            VALUE_INTEGER(point->seq),           VALUE_INTEGER(point->ts_ns), VALUE_INTEGER(point->allocated),
            VALUE_INTEGER(point->allocated_max), VALUE_INTEGER(point->live),
        };
        code = write_row(store, STATEMENT_SAMPLE, values, sizeof values / sizeof values[0], message);
    }
    return code;
}

/* One domain's totals of all processes (number 0) and of each; in order of the key, so that it only appends.
 */
static int write_totals(struct derive *derive, struct store *store, uint32_t process_id,
                        struct total *const totals[DOMAIN_LIMIT], struct varve_message *message)
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
            code = write_samples(store, process_id, number, &total->series, message);
        }
    }
    return code;
}

int derive_finish(struct derive *derive, struct store *store, struct varve_message *message)
{
    /* Events first: the image serves one table at a time. */
    int code = store_commit(store, NULL, 0, message);
    if (code == VARVE_OK) {
        code = writer_begin(store, message);
    }
    if (code == VARVE_OK) {
        /* Empty but for what an earlier attempt left. */
        code = writer_execute(store,
                              "DELETE FROM allocation; DELETE FROM callsite_stat; DELETE FROM total_stat;"
                              "DELETE FROM sample;",
                              message);
    }
    if (code == VARVE_OK) {
        code = write_allocations(derive, store, message);
    }
    for (unsigned number = 0; number < DOMAIN_LIMIT && code == VARVE_OK; number++) {
        code = write_sites(derive, store, number, message);
    }
    if (code == VARVE_OK) {
        code = write_totals(derive, store, 0, NULL, message);
    }
    for (size_t i = 1; i < derive->process_limit && code == VARVE_OK; i++) {
        if (derive->processes[i] != NULL) {
            code = write_totals(derive, store, (uint32_t)i, derive->processes[i]->totals, message);
        }
    }
    store->has_derived = code == VARVE_OK;
    return code;
}
