/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the derivation gathered becomes the tables allocation, callsite_stat, total_stat, sample, segment, oom, keyframe and
 * those of the CUDA API. There may be a hundred million allocations, so the scratch file is read once, in order, and dropped
 * from memory behind the reader; they go through the image, as events do, in several transactions: until store_finish sets
 * meta.complete, what is here is not final.
 */
#include "trace/store/derived.h"

#include "trace/error.h"
#include "trace/model/derive/keyframes.h"
#include "trace/model/device/calls.h"
#include "trace/model/device/names.h"
#include "trace/model/device/streams.h"
#include "trace/model/domain.h"
#include "trace/model/scratch.h"
#include "trace/model/series.h"
#include "trace/model/state.h"
#include "trace/model/totals.h"
#include "trace/record.h"
#include "trace/store/image.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"
#include "trace/store/transaction.h"

#include <stdio.h>

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
    return image_add(store->image, IMAGE_ALLOCATION, id, values, nulls, sizeof(values) / sizeof(values[0]));
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
    int error = VARVE_OK;
    for (uint64_t id = 1; id <= scratch->count && error == VARVE_OK;) {
        for (uint64_t end = id + COMMIT_ROWS; id < end && id <= scratch->count; id++) {
            if (!allocation_add(store, derive, id, block_follow(derive, id, &block))) {
                break;
            }
        }
        error = writer_insert_batch(store, STATEMENT_ALLOCATIONS, message);
        if (error == VARVE_OK) {
            error = writer_commit(store, message);
        }
        if (error != VARVE_OK) {
            /* Not to be taken for events by the next commit; they are in the scratch file. */
            image_clear(store->image);
        }
        scratch_cool(scratch, id);
        if (derive->blocks.count > 0) {
            scratch_cool(&derive->blocks, block <= derive->blocks.count ? block : derive->blocks.count);
        }
    }
    return error;
}

static int write_row(struct store *store, enum store_statement statement, const struct store_value *values,
                     unsigned count, struct varve_message *message)
{
    int error = rows_write(store, statement, values, count);
    return error == VARVE_OK ? VARVE_OK : varve_message_set(message, error, "%s", store->failure.text);
}

#define WRITE_ROW(store, statement, values, message) \
    write_row(store, statement, values, sizeof(values) / sizeof((values)[0]), message)

/* The slots of a domain that were used. */
struct slots {
    const struct domain_totals *totals[DEVICE_LIMIT];
    unsigned count;
    size_t callsite_limit;
};

static void slots_gather(const struct derive *derive, enum domain domain, struct slots *slots)
{
    for (unsigned device = 0; device < domain_devices(domain); device++) {
        const struct domain_totals *totals = &derive->domains[slot_of(domain, device)];
        if (totals->callsite_limit > 0) {
            slots->totals[slots->count++] = totals;
            slots->callsite_limit = totals->callsite_limit > slots->callsite_limit ? totals->callsite_limit
                                                                                   : slots->callsite_limit;
        }
    }
}

/* One call site in all slots of the domain: of devices, the sum over them, each at its own peak. */
static int write_callsite(struct store *store, const struct slots *slots, enum domain domain,
                          uint32_t callsite, struct varve_message *message)
{
    struct callsite_total sum = {0};
    for (unsigned i = 0; i < slots->count; i++) {
        const struct domain_totals *totals = slots->totals[i];
        if (callsite < totals->callsite_limit) {
            const struct callsite_total *total = &totals->callsites[callsite];
            uint64_t peak_allocations;
            uint64_t peak_bytes;
            totals_callsite_peak(totals, callsite, &peak_allocations, &peak_bytes);
            sum.allocations += total->allocations;
            sum.frees += total->frees;
            sum.bytes += total->bytes;
            sum.live_allocations += total->live_allocations;
            sum.live_bytes += total->live_bytes;
            sum.peak_allocations += peak_allocations;
            sum.peak_bytes += peak_bytes;
            sum.temporary += total->temporary;
            sum.lifetime_ns += total->lifetime_ns;
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
    return WRITE_ROW(store, STATEMENT_CALLSITE_STAT, values, message);
}

static int write_callsites(const struct derive *derive, struct store *store, enum domain domain,
                           struct varve_message *message)
{
    struct slots slots = {0};
    int error = VARVE_OK;
    slots_gather(derive, domain, &slots);
    for (size_t i = 0; i < slots.callsite_limit && error == VARVE_OK; i++) {
        error = write_callsite(store, &slots, domain, (uint32_t)i, message);
    }
    return error;
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
    return WRITE_ROW(store, STATEMENT_TOTAL_STAT, values, message);
}

static int write_samples(struct store *store, uint32_t process_id, unsigned slot, const struct series *series,
                         struct varve_message *message)
{
    int error = VARVE_OK;
    for (uint32_t i = 0; i < series->count && error == VARVE_OK; i++) {
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
        error = WRITE_ROW(store, STATEMENT_SAMPLE, values, message);
    }
    return error;
}

/* Totals of one process, or of all processes (`process` NULL), in order of the key, so that it only appends.
 */
static int write_totals(struct derive *derive, struct store *store, uint32_t process_id,
                        const struct derive_process *process, struct varve_message *message)
{
    int error = VARVE_OK;
    for (unsigned slot = 1; slot < SLOT_LIMIT && error == VARVE_OK; slot++) {
        struct total **found = process != NULL ? process_total(process, slot) : NULL;
        struct total *total = process == NULL ? &derive->domains[slot].all : found != NULL ? *found : NULL;
        if (total == NULL || total->series.limit == 0) {
            continue;
        }
        series_end(&total->series, total->series.limit);
        error = write_total(store, process_id, slot, total, message);
        if (error == VARVE_OK) {
            error = write_samples(store, process_id, slot, &total->series, message);
        }
    }
    return error;
}

/* ---- caching allocators ---- */

static int write_segments(const struct derive *derive, struct store *store, struct varve_message *message)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < derive->segment_count && error == VARVE_OK; i++) {
        const struct derive_segment *segment = &derive->segments[i];
        bool is_freed = segment->free_seq != 0;
        const struct store_value values[] = {
            VALUE_INTEGER(i + 1),
            VALUE_INTEGER(segment->device),
            VALUE_INTEGER(segment->pool),
            VALUE_INTEGER(segment->stream),
            VALUE_INTEGER(segment->addr),
            VALUE_INTEGER(segment->size),
            VALUE_INTEGER(segment->alloc_seq),
            is_freed ? VALUE_INTEGER(segment->free_seq) : VALUE_NULL,
            VALUE_INTEGER(segment->alloc_ns),
            is_freed ? VALUE_INTEGER(segment->free_ns) : VALUE_NULL,
            is_freed ? VALUE_INTEGER(segment->cause) : VALUE_NULL,
            VALUE_INTEGER(segment->process_id),
            value_not_negative(segment->number != 0 ? (int64_t)segment->number : -1),
            VALUE_INTEGER(segment->is_expandable),
        };
        error = WRITE_ROW(store, STATEMENT_SEGMENT, values, message);
    }
    return error;
}

static int write_ooms(const struct derive *derive, struct store *store, struct varve_message *message)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < derive->oom_count && error == VARVE_OK; i++) {
        const struct derive_oom *oom = &derive->ooms[i];
        const struct store_value values[] = {
            VALUE_INTEGER(oom->seq),
            VALUE_INTEGER(oom->ts_ns),
            VALUE_INTEGER(oom->device),
            VALUE_INTEGER(oom->requested),
            VALUE_INTEGER(oom->allocated),
            VALUE_INTEGER(oom->reserved),
            oom->largest_free != 0 ? VALUE_INTEGER(oom->largest_free) : VALUE_NULL,
            oom->stage != 0 ? VALUE_INTEGER(oom->stage) : VALUE_NULL,
            VALUE_INTEGER(oom->process_id),
        };
        error = WRITE_ROW(store, STATEMENT_OOM, values, message);
    }
    return error;
}

struct keyframe_writer {
    struct store *store;
    struct varve_message *message;
};

static int write_keyframe(void *context, const struct derive_keyframe *keyframe, const void *bytes)
{
    const struct keyframe_writer *writer = context;
    const struct store_value values[] = {
        VALUE_INTEGER(keyframe->seq),
        VALUE_INTEGER(keyframe->process_id),
        VALUE_INTEGER(keyframe->device),
        {.blob = bytes, .integer = (int64_t)keyframe->bytes, .is_null = bytes == NULL},
    };
    return write_row(writer->store, STATEMENT_KEYFRAME, values, sizeof(values) / sizeof(values[0]),
                     writer->message);
}

static int write_blocks(const struct derive *derive, struct store *store, struct varve_message *message)
{
    struct keyframe_writer writer = {.store = store, .message = message};
    int error = write_segments(derive, store, message);
    if (error == VARVE_OK) {
        error = write_ooms(derive, store, message);
    }
    return error == VARVE_OK ? keyframes_each(derive, write_keyframe, &writer, message) : error;
}

/* ---- the CUDA API ---- */

/* As nvidia-smi writes it. */
static void uuid_text(const uint64_t uuid[2], char text[64])
{
    const unsigned char *byte = (const unsigned char *)uuid;
    int at = snprintf(text, 64, "GPU-");
    for (int i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        at += snprintf(text + at, 64 - (size_t)at, "%s%02x", dash, byte[i]);
    }
}

static int write_devices(const struct derive_names *names, struct store *store, struct varve_message *message)
{
    int error = VARVE_OK;
    for (unsigned i = 0; i < DEVICE_LIMIT && error == VARVE_OK; i++) {
        const struct derive_name *device = &names->devices[i];
        char text[64];
        if (!device->is_used && device->total_bytes == 0) {
            continue;
        }
        uuid_text(device->uuid, text);
        const struct store_value values[] = {
            VALUE_INTEGER(i),
            value_text(device->name[0] != '\0' ? device->name : NULL),
            value_not_negative(device->total_bytes > 0 ? (int64_t)device->total_bytes : -1),
            value_text(device->is_used ? text : NULL),
        };
        error = WRITE_ROW(store, STATEMENT_DEVICE, values, message);
    }
    for (size_t i = 0; i < names->ordinal_count && error == VARVE_OK; i++) {
        const struct derive_ordinal *ordinal = &names->ordinals[i];
        const struct store_value values[] = {VALUE_INTEGER(ordinal->process_id),
                                             VALUE_INTEGER(ordinal->ordinal), VALUE_INTEGER(ordinal->device)};
        error = WRITE_ROW(store, STATEMENT_PROCESS_DEVICE, values, message);
    }
    return error;
}

static int write_meanings(const struct derive *derive, struct store *store, struct varve_message *message)
{
    const struct derive_names *names = derive->names;
    int error = VARVE_OK;
    for (size_t i = 0; i < names->meaning_count && error == VARVE_OK; i++) {
        const struct derive_meaning *row = &names->meanings[i];
        unsigned device = names_device_of(derive, row);
        error = row->is_pool ? store_pool(store, row->process_id, device, row->number, row->ids[0],
                                          row->ids[1], row->is_small)
                             : store_stream(store, row->process_id, device, row->number, row->ids[0]);
        if (error != VARVE_OK) {
            varve_message_set(message, error, "%s", store->failure.text);
        }
    }
    return error;
}

static int write_calls(const struct derive_calls *calls, struct store *store, struct varve_message *message)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < calls->call_count && error == VARVE_OK; i++) {
        const struct derive_call *call = &calls->calls[i];
        const struct store_value values[] = {
            VALUE_INTEGER(call->process_id), VALUE_INTEGER(call->device), VALUE_INTEGER(call->stream),
            VALUE_INTEGER(call->cause),      VALUE_INTEGER(call->class),  VALUE_INTEGER(call->calls),
            VALUE_INTEGER(call->failed),     VALUE_INTEGER(call->ns),     VALUE_INTEGER(call->max_ns),
            VALUE_INTEGER(call->bytes),
        };
        error = WRITE_ROW(store, STATEMENT_DEVICE_CALL, values, message);
    }
    for (size_t i = 0; i < calls->memory_count && error == VARVE_OK; i++) {
        const struct derive_memory *memory = &calls->memories[i];
        const struct store_value values[] = {
            VALUE_INTEGER(memory->seq),         VALUE_INTEGER(memory->ts_ns),
            VALUE_INTEGER(memory->process_id),  VALUE_INTEGER(memory->device),
            VALUE_INTEGER(memory->total_bytes), VALUE_INTEGER(memory->free_bytes),
            VALUE_INTEGER(memory->live_bytes),
        };
        error = WRITE_ROW(store, STATEMENT_DEVICE_MEMORY, values, message);
    }
    return error;
}

static int write_streams(const struct derive_streams *streams, struct store *store,
                         struct varve_message *message)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < streams->count && error == VARVE_OK; i++) {
        const struct derive_stream *stream = &streams->streams[i];
        const struct store_value values[] = {
            VALUE_INTEGER(stream->process_id),  VALUE_INTEGER(stream->domain),
            VALUE_INTEGER(stream->device),      VALUE_INTEGER(stream->stream),
            VALUE_INTEGER(stream->allocations), VALUE_INTEGER(stream->frees),
            VALUE_INTEGER(stream->bytes),       VALUE_INTEGER(stream->live_bytes),
            VALUE_INTEGER(stream->peak_bytes),
        };
        error = WRITE_ROW(store, STATEMENT_STREAM_STAT, values, message);
    }
    return error;
}

struct event_writer {
    struct store *store;
    struct varve_message *message;
};

static int write_event(void *context, uint64_t seq, unsigned kind)
{
    const struct event_writer *writer = context;
    const struct store_value values[] = {VALUE_INTEGER(seq), VALUE_INTEGER(kind)};
    return WRITE_ROW(writer->store, STATEMENT_DEVICE_EVENT, values, writer->message);
}

static int write_api(const struct derive *derive, struct store *store, struct varve_message *message)
{
    struct event_writer writer = {.store = store, .message = message};
    int error = write_devices(derive->names, store, message);
    if (error == VARVE_OK) {
        error = write_meanings(derive, store, message);
    }
    if (error == VARVE_OK) {
        error = write_calls(derive->calls, store, message);
    }
    if (error == VARVE_OK) {
        error = write_streams(derive->streams, store, message);
    }
    return error == VARVE_OK ? calls_each_event(derive, write_event, &writer, message) : error;
}

/* ---- all of it ---- */

int derive_finish(struct derive *derive, struct store *store, struct varve_message *message)
{
    /* Events first: the image serves one table at a time. */
    int error = store_commit(store, NULL, 0, message);
    if (error == VARVE_OK) {
        error = writer_begin(store, message);
    }
    if (error == VARVE_OK) {
        /* Empty but for what an earlier attempt left. */
        error = writer_execute(store,
                               "DELETE FROM allocation; DELETE FROM callsite_stat; DELETE FROM total_stat;"
                               "DELETE FROM sample; DELETE FROM segment; DELETE FROM oom;"
                               "DELETE FROM keyframe; DELETE FROM process_device; DELETE FROM device_event;"
                               "DELETE FROM device_call_stat; DELETE FROM device_memory;"
                               "DELETE FROM stream_stat;",
                               message);
    }
    if (error == VARVE_OK) {
        error = write_allocations(derive, store, message);
    }
    for (unsigned number = DOMAIN_HEAP; number < DOMAIN_LIMIT && error == VARVE_OK; number++) {
        error = write_callsites(derive, store, number, message);
    }
    if (error == VARVE_OK) {
        error = write_totals(derive, store, 0, NULL, message);
    }
    for (size_t i = 1; i < derive->process_limit && error == VARVE_OK; i++) {
        if (derive->processes[i] != NULL) {
            error = write_totals(derive, store, (uint32_t)i, derive->processes[i], message);
        }
    }
    if (error == VARVE_OK) {
        error = write_blocks(derive, store, message);
    }
    if (error == VARVE_OK) {
        error = write_api(derive, store, message);
    }
    store->has_derived = error == VARVE_OK;
    return error;
}
