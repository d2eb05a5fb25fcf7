/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of the pairing: what model/derive.c gathered becomes the tables allocation, callsite_stat, total_stat and
 * sample. There may be a hundred million allocations, so the scratch file is read once, in order, and dropped
 * from memory behind the reader; they take the road of events (image.c), in several transactions:
 * until store_finish sets meta.complete, what is here is not final. The collector calls derive_finish once
 * the last event is in; after a full disk it may call it again. What only caching allocators have is in
 * derived_blocks.c.
 */
#include "trace/model/device/device.h"
#include "trace/store/derived.h"

/* Sorted by rowid already, so one commit per so many keeps the log of the database short. */
#define COMMIT_ROWS ((uint64_t)1 << 18)

/* `more` is the block row: what caching allocators and the CUDA API have, NULL of all others. */
static bool allocation_add(struct store *store, const struct derive *derive, uint64_t id,
                           const struct scratch_block *more)
{
    const struct scratch_row *row = scratch_peek(&derive->scratch, id);
    const struct derive_thread *thread = &derive->threads[row->thread_id];
    bool is_block = row->domain == DOMAIN_BLOCK;
    uint64_t completed_seq = is_block && more != NULL ? more->completed_seq : row->free_seq;
    unsigned pool = more == NULL ? 0 : is_block ? more->pool : more->pool & 0xfffU;
    const int64_t values[] = {
        0,
        row->domain,
        thread->pid,
        thread->tid,
        more != NULL ? more->device : 0,
        pool,
        more != NULL ? more->stream : 0,
        more != NULL ? (int64_t)more->segment_id : 0,
        (int64_t)row->addr,
        (int64_t)row->size,
        (int64_t)row->requested,
        (int64_t)row->alloc_seq,
        (int64_t)row->free_seq,
        (int64_t)completed_seq,
        row->alloc_ns,
        row->free_ns,
        row->callsite,
        row->source,
        thread->process_id,
        row->temporary,
        more != NULL ? more->pool >> VARVE_MEMORY_KIND_SHIFT : 0,
    };
    /* id is the rowid; device, pool, stream and segment_id (4 to 7) are not the host's; then what a free
     * sets: it is over when it was requested, even if the block is still pending; memory_kind is last. */
    uint32_t nulls = 1U |
                     (more == NULL            ? 15U << 4
                      : more->segment_id == 0 ? 1U << 7
                                              : 0) |
                     (row->free_seq != 0 ? 0 : 1U << 12 | 1U << 15) | (completed_seq != 0 ? 0 : 1U << 13) |
                     (more != NULL && !is_block ? 0 : 1U << 20);
    return image_add(store->image, IMAGE_ALLOCATION, id, values, nulls, sizeof values / sizeof values[0]);
}

/* The block row of allocation `id`, if it has one; they come in the same order. */
static const struct scratch_block *block_follow(const struct derive *derive, uint64_t id, uint64_t *block)
{
    while (*block <= derive->blocks.count) {
        const struct scratch_block *more =
            scratch_block((struct scratch_row *)&derive->blocks.rows[*block - 1]);
        if (more->id >= id) {
            return more->id == id ? more : NULL;
        }
        ++*block;
    }
    return NULL;
}

static int write_allocations(struct derive *derive, struct store *store, struct varve_message *message)
{
    struct scratch *scratch = &derive->scratch;
    uint64_t block = 1;
    int code = VARVE_OK;
    for (uint64_t id = 1; id <= scratch->count && code == VARVE_OK;) {
        for (uint64_t end = id + COMMIT_ROWS; id < end && id <= scratch->count; id++) {
            if (!allocation_add(store, derive, id, block_follow(derive, id, &block))) {
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
        if (derive->blocks.count > 0) {
            scratch_cool(&derive->blocks, block <= derive->blocks.count ? block : derive->blocks.count);
        }
    }
    return code;
}

int derive_write_row(struct store *store, enum store_statement statement, const struct store_value *values,
                     unsigned count, struct varve_message *message)
{
    int code = rows_write(store, statement, values, count);
    return code == VARVE_OK ? VARVE_OK : varve_message_set(message, code, "%s", store->failure.text);
}

/* The slots of a domain that were used. */
struct slots {
    const struct domain_totals *totals[DEVICE_LIMIT];
    unsigned count;
    size_t site_limit;
};

static void slots_gather(const struct derive *derive, enum domain domain, struct slots *slots)
{
    for (unsigned device = 0; device < domain_devices(domain); device++) {
        const struct domain_totals *totals = &derive->domains[slot_of(domain, device)];
        if (totals->site_limit > 0) {
            slots->totals[slots->count++] = totals;
            slots->site_limit =
                totals->site_limit > slots->site_limit ? totals->site_limit : slots->site_limit;
        }
    }
}

/* One call site in all slots of the domain: of devices, the sum over them, each at its own peak. */
static int write_site(struct store *store, const struct slots *slots, enum domain domain, uint32_t callsite,
                      struct varve_message *message)
{
    struct site_total sum = {0};
    for (unsigned i = 0; i < slots->count; i++) {
        const struct domain_totals *totals = slots->totals[i];
        if (callsite < totals->site_limit) {
            const struct site_total *site = &totals->sites[callsite];
            uint64_t peak_allocations;
            uint64_t peak_bytes;
            totals_site_peak(totals, callsite, &peak_allocations, &peak_bytes);
            sum.allocations += site->allocations;
            sum.frees += site->frees;
            sum.bytes += site->bytes;
            sum.live_allocations += site->live_allocations;
            sum.live_bytes += site->live_bytes;
            sum.peak_allocations += peak_allocations;
            sum.peak_bytes += peak_bytes;
            sum.temporary += site->temporary;
            sum.lifetime_ns += site->lifetime_ns;
        }
    }
    if (sum.allocations == 0) {
        return VARVE_OK;
    }
    const struct store_value values[] = {
        VALUE_INTEGER(callsite),        VALUE_INTEGER(domain),
        VALUE_INTEGER(sum.allocations), VALUE_INTEGER(sum.frees),
        VALUE_INTEGER(sum.bytes),       VALUE_INTEGER(sum.live_allocations),
        VALUE_INTEGER(sum.live_bytes),  VALUE_INTEGER(sum.peak_allocations),
        VALUE_INTEGER(sum.peak_bytes),  VALUE_INTEGER(sum.temporary),
        VALUE_INTEGER(sum.lifetime_ns),
    };
    return derive_write_row(store, STATEMENT_CALLSITE_STAT, values, sizeof values / sizeof values[0],
                            message);
}

static int write_sites(const struct derive *derive, struct store *store, enum domain domain,
                       struct varve_message *message)
{
    struct slots slots = {0};
    int code = VARVE_OK;
    slots_gather(derive, domain, &slots);
    for (size_t i = 0; i < slots.site_limit && code == VARVE_OK; i++) {
        code = write_site(store, &slots, domain, (uint32_t)i, message);
    }
    return code;
}

static int write_total(struct store *store, uint32_t process_id, unsigned slot, const struct total *total,
                       struct varve_message *message)
{
    bool has_peak = total->peak_seq != 0;
    const struct store_value values[] = {
        VALUE_INTEGER(process_id),
        VALUE_INTEGER(slot_domain(slot)),
        VALUE_INTEGER(slot_device(slot)),
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
    return derive_write_row(store, STATEMENT_TOTAL_STAT, values, sizeof values / sizeof values[0], message);
}

static int write_samples(struct store *store, uint32_t process_id, unsigned slot, const struct series *series,
                         struct varve_message *message)
{
    int code = VARVE_OK;
    for (uint32_t i = 0; i < series->count && code == VARVE_OK; i++) {
        const struct series_point *point = &series->points[i];
        const struct series_extra *extra = series->has_extras ? &series->extras[i] : NULL;
        const struct store_value values[] = {
            VALUE_INTEGER(process_id),
            VALUE_INTEGER(slot_domain(slot)),
            VALUE_INTEGER(slot_device(slot)),
            VALUE_INTEGER(point->seq),
            VALUE_INTEGER(point->ts_ns),
            VALUE_INTEGER(point->allocated),
            VALUE_INTEGER(point->allocated_max),
            extra != NULL ? VALUE_INTEGER(extra->active) : VALUE_NULL,
            extra != NULL ? VALUE_INTEGER(extra->reserved) : VALUE_NULL,
            extra != NULL ? VALUE_INTEGER(extra->requested) : VALUE_NULL,
            VALUE_INTEGER(point->live),
        };
        code = derive_write_row(store, STATEMENT_SAMPLE, values, sizeof values / sizeof values[0], message);
    }
    return code;
}

/* Totals of one process, or of all processes (`process` NULL), in order of the key, so that it only appends.
 */
static int write_totals(struct derive *derive, struct store *store, uint32_t process_id,
                        const struct derive_process *process, struct varve_message *message)
{
    int code = VARVE_OK;
    for (unsigned slot = 1; slot < SLOT_LIMIT && code == VARVE_OK; slot++) {
        struct total **place = process != NULL ? process_total(process, slot) : NULL;
        struct total *total = process == NULL ? &derive->domains[slot].all : place != NULL ? *place : NULL;
        if (total == NULL || total->series.limit == 0) {
            continue;
        }
        series_end(&total->series, total->series.limit);
        code = write_total(store, process_id, slot, total, message);
        if (code == VARVE_OK) {
            code = write_samples(store, process_id, slot, &total->series, message);
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
                              "DELETE FROM sample; DELETE FROM segment; DELETE FROM oom;"
                              "DELETE FROM keyframe; DELETE FROM process_device; DELETE FROM device_event;"
                              "DELETE FROM device_call_stat; DELETE FROM device_memory;"
                              "DELETE FROM stream_stat;",
                              message);
    }
    if (code == VARVE_OK) {
        code = write_allocations(derive, store, message);
    }
    for (unsigned number = DOMAIN_HEAP; number < DOMAIN_LIMIT && code == VARVE_OK; number++) {
        code = write_sites(derive, store, number, message);
    }
    if (code == VARVE_OK) {
        code = write_totals(derive, store, 0, NULL, message);
    }
    for (size_t i = 1; i < derive->process_limit && code == VARVE_OK; i++) {
        if (derive->processes[i] != NULL) {
            code = write_totals(derive, store, (uint32_t)i, derive->processes[i], message);
        }
    }
    if (code == VARVE_OK) {
        code = derive_write_blocks(derive, store, message);
    }
    if (code == VARVE_OK) {
        code = derive_write_api(derive, store, message);
    }
    store->has_derived = code == VARVE_OK;
    return code;
}
