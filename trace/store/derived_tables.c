/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the derivation gathered becomes the tables callsite_stat, total_stat, size_stat, sample, segment, oom, mark,
 * keyframe and those of the CUDA API and of rematerialization, after the rows of allocations, events and
 * storages. Until store_finish sets meta.complete, what is here is not final.
 */
#include "trace/store/store.h"

#include "base/error.h"
#include "trace/model/curve.h"
#include "trace/model/derive.h"
#include "trace/model/derive_remat.h"
#include "trace/model/device_calls.h"
#include "trace/model/device_labels.h"
#include "trace/model/domain.h"
#include "base/downsample.h"
#include "trace/model/model_state.h"
#include "trace/record.h"
#include "trace/store/sqlite_format.h"
#include "trace/store/store_transaction.h"

#include "columns_generated.h"
#include "statements_generated.h"

#include <stdio.h>
#include <stdlib.h>

struct writer {
    struct derive *derive;
    struct store *store;
    struct varve_message *message;
};

static int row_result(const struct writer *writer, int error)
{
    return error == VARVE_OK ? VARVE_OK : varve_message_set(writer->message, error, "%s", writer->store->failure.text);
}

#define WRITE_ROW(writer, statement, ...) row_result(writer, ROWS_WRITE((writer)->store, statement, __VA_ARGS__))

#define CALLSITE_SHARED UINT32_MAX
#define CALLSITE_BITS 32 /* of the number of a row of callsite_stat_row */

enum callsite_stat_use { USE_OWNER = 1 };

/* The call sites of one domain. */
struct domain_writer {
    const struct writer *writer;
    enum domain domain;
    struct domain_slots slots;
    uint32_t *owners; /* by call site: the only process that has used it, 0: none; CALLSITE_SHARED: several */
};

/* As the tables have them, one after the other. */
#define LEFT_VALUES(sum)                                                                             \
    VALUE((sum).allocations), VALUE((sum).frees), VALUE((sum).bytes), VALUE((sum).left_allocations), \
        VALUE((sum).left_bytes)

/* The row of a domain's call site: small numbers for most. */
static uint64_t callsite_stat_id(enum domain domain, uint32_t callsite)
{
    return (uint64_t)(domain - DOMAIN_HEAP) << CALLSITE_BITS | callsite;
}

/* One call site in all slots of the domain: of devices, the sum over them, each at its own peak. */
static int write_callsite(const struct domain_writer *domain, uint32_t callsite)
{
    struct store *store = domain->writer->store;
    struct callsite_total *total = &(struct callsite_total){0};
    for (unsigned i = 0; i < domain->slots.count; i++) {
        totals_callsite_add(domain->slots.totals[i], callsite, total);
    }
    if (total->sum.allocations == 0) {
        return VARVE_OK;
    }
    const uint32_t owner = domain->owners[callsite];
    const unsigned uses = owner != CALLSITE_SHARED ? USE_OWNER : 0;
    static const struct column_defaults defaults = COLUMN_DEFAULTS(CALLSITE_STAT_DEFAULTS);
    const int64_t values[CALLSITE_STAT_COLUMNS] = {CALLSITE_STAT_MEMBERS(COLUMN_VALUE)};
    const uint32_t nulls = 1U << CALLSITE_STAT_ID CALLSITE_STAT_USES(COLUMN_NULL);
    const struct callsite_figures row = {callsite,
                                         domain->domain,
                                         {(int64_t)total->sum.allocations, (int64_t)total->sum.frees,
                                          (int64_t)total->sum.bytes, (int64_t)total->sum.left_allocations,
                                          (int64_t)total->sum.left_bytes, (int64_t)total->peak_allocations,
                                          (int64_t)total->peak_bytes, (int64_t)total->sum.temporary}};
    const unsigned count = record_columns(values, nulls, &defaults, CALLSITE_STAT_COLUMNS);
    const bool is_added = functions_figures(&store->functions, &row) &&
                          row_pages_add(store->pages, ROWS_CALLSITE_STAT, callsite_stat_id(domain->domain, callsite),
                                        values, nulls, count);
    return is_added ? VARVE_OK
                    : varve_message_set(domain->writer->message, VARVE_ERROR_NO_MEMORY, "no memory for call sites");
}

/* How what is left of a call site grew with its own allocations. */
static int write_growth(const struct domain_writer *domain, uint32_t callsite, const struct callsite_total *total)
{
    const struct curve_point end = {total->sum.left_allocations, total->sum.left_bytes};
    int error = VARVE_OK;
    for (unsigned tenth = 1; tenth <= 10 && error == VARVE_OK; tenth++) {
        const struct curve_point live = curve_at(total->curve, tenth, total->sum.allocations, end);
        error = WRITE_ROW(domain->writer, STATEMENT_GROWTH, VALUE(callsite), VALUE(domain->domain), VALUE(tenth),
                          VALUE(live.allocations), VALUE(live.bytes));
    }
    return error;
}

static int write_growths(const struct domain_writer *domain, const struct domain_totals *slot)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < slot->callsite_limit && error == VARVE_OK; i++) {
        const struct callsite_total *total = &slot->callsites[i];
        if (total->curve != NULL && total->sum.left_allocations > 0 && total->sum.frees > 0) {
            error = write_growth(domain, (uint32_t)i, total);
        }
    }
    return error;
}

static int write_work(const struct writer *writer, uint32_t process_id, const struct work *work)
{
    struct work_mark begin = work->first;
    int error = VARVE_OK;
    for (uint32_t i = 0; i <= work->count && error == VARVE_OK; i++) {
        const struct work_mark end = i == work->count ? work->last : work->marks[i];
        if (end.seq > begin.seq) {
            error = WRITE_ROW(writer, STATEMENT_WORK, VALUE(process_id), VALUE(begin.seq), VALUE(begin.ns),
                              VALUE(begin.active_ns), VALUE(begin.allocations), VALUE(end.seq), VALUE(end.ns),
                              VALUE(end.active_ns), VALUE(end.allocations));
        }
        begin = end;
    }
    return error;
}

static int write_works(const struct writer *writer)
{
    const struct derive *derive = writer->derive;
    int error = VARVE_OK;
    for (size_t i = 0; i < derive->process_limit && error == VARVE_OK; i++) {
        error = derive->processes[i] != NULL ? write_work(writer, (uint32_t)i, &derive->processes[i]->work) : VARVE_OK;
    }
    return error;
}

/* Whose each call site is, in all slots of the domain. */
static bool owners_gather(struct domain_writer *domain)
{
    domain->owners = calloc(domain->slots.callsite_limit + 1, sizeof(*domain->owners));
    for (unsigned i = 0; i < domain->slots.count && domain->owners != NULL; i++) {
        for (size_t n = 0; n < domain->slots.totals[i]->callsite_limit; n++) {
            const struct callsite_total *total = &domain->slots.totals[i]->callsites[n];
            uint32_t owner = total->is_shared ? CALLSITE_SHARED : total->owner;
            uint32_t *known = &domain->owners[n];
            if (total->sum.allocations > 0) {
                *known = *known == 0 || *known == owner ? owner : CALLSITE_SHARED;
            }
        }
    }
    return domain->owners != NULL;
}

static bool is_of_several(void *context, uint32_t callsite)
{
    return ((const struct domain_writer *)context)->owners[callsite] == CALLSITE_SHARED;
}

/* Devices of a domain add up in one row. */
static int write_share(void *context, uint32_t process_id, uint32_t callsite, const struct callsite_total *share)
{
    const struct domain_writer *domain = context;
    return WRITE_ROW(domain->writer, STATEMENT_CALLSITE_SHARE, VALUE(process_id), VALUE(domain->domain),
                     VALUE(callsite), LEFT_VALUES(share->sum), VALUE(share->peak_allocations), VALUE(share->peak_bytes),
                     VALUE(share->sum.temporary), VALUE(share->sum.lifetime_ns));
}

/* What each process has of call sites that several have used, and the curves. */
static int write_slot(struct domain_writer *domain, const struct domain_totals *slot)
{
    const struct derive *derive = domain->writer->derive;
    const struct totals_share_reading reading = {.wanted = is_of_several, .take = write_share, .context = domain};
    int error = totals_shares_each(slot, derive->processes, derive->process_limit, (unsigned)(slot - derive->domains),
                                   &reading);
    VARVE_THEN(error, write_growths(domain, slot));
    return error;
}

static int derived_tables_write_callsites(const struct writer *writer)
{
    int error = VARVE_OK;
    for (unsigned i = DOMAIN_HEAP; i < DOMAIN_LIMIT; i++) {
        struct domain_writer domain = {.writer = writer, .domain = i, .slots = domain_slots(writer->derive, i)};
        if (!owners_gather(&domain)) {
            return varve_message_set(writer->message, VARVE_ERROR_NO_MEMORY, "no memory for call sites");
        }
        for (size_t k = 0; k < domain.slots.callsite_limit && error == VARVE_OK; k++) {
            error = write_callsite(&domain, (uint32_t)k);
        }
        for (unsigned k = 0; k < domain.slots.count && error == VARVE_OK; k++) {
            error = write_slot(&domain, domain.slots.totals[k]);
        }
        free(domain.owners);
    }
    return error;
}

static int write_total(const struct writer *writer, uint32_t process_id, unsigned slot, const struct total *total)
{
    bool has_peak = total->peak_seq != 0;
    return WRITE_ROW(writer, STATEMENT_TOTAL_STAT, VALUE(process_id), VALUE(slot_domain(slot)),
                     VALUE(slot_device(slot)), LEFT_VALUES(total->sum), VALUE(total->peak_bytes),
                     VALUE(total->peak_allocations), has_peak ? VALUE(total->peak_seq) : VALUE_NULL,
                     has_peak ? VALUE(total->peak_ns) : VALUE_NULL, VALUE(total->sum.temporary), VALUE(total->failed));
}

static int derived_tables_write_sizes(const struct writer *writer, uint32_t process_id, unsigned slot,
                                      const struct total *total)
{
    int error = VARVE_OK;
    for (unsigned i = 0; i < SIZE_CLASSES && error == VARVE_OK; i++) {
        const struct figures *size = &total->sizes[i];
        if (size->allocations > 0) {
            error = WRITE_ROW(writer, STATEMENT_SIZE_STAT, VALUE(process_id), VALUE(slot_domain(slot)),
                              VALUE(slot_device(slot)), VALUE(INT64_C(1) << i), LEFT_VALUES(*size),
                              VALUE(size->temporary), VALUE(size->lifetime_ns));
        }
    }
    return error;
}

static int derived_tables_write_samples(const struct writer *writer, uint32_t process_id, unsigned slot,
                                        const struct downsample *samples)
{
    bool has_extras = samples->curves > 1;
    int error = VARVE_OK;
    for (size_t i = 0; i < samples->count && error == VARVE_OK; i++) {
        const int64_t *row = downsample_row(samples, i);
        error =
            WRITE_ROW(writer, STATEMENT_SAMPLE, VALUE(process_id), VALUE(slot_domain(slot)), VALUE(slot_device(slot)),
                      VALUE(row[SAMPLE_SEQ]), VALUE(row[SAMPLE_NS]), VALUE(row[SAMPLE_ALLOCATED]),
                      VALUE(row[SAMPLE_ALLOCATED_MAX]), has_extras ? VALUE(row[SAMPLE_ACTIVE]) : VALUE_NULL,
                      has_extras ? VALUE(row[SAMPLE_RESERVED]) : VALUE_NULL,
                      has_extras ? VALUE(row[SAMPLE_REQUESTED]) : VALUE_NULL, VALUE(row[SAMPLE_LIVE]));
    }
    return error;
}

/* Totals of one process, or of all processes (`process` NULL), in order of the key, so that it only appends.
 */
static int write_process(const struct writer *writer, uint32_t process_id, const struct derive_process *process)
{
    int error = VARVE_OK;
    for (unsigned slot = 1; slot < SLOT_LIMIT && error == VARVE_OK; slot++) {
        const struct total *total = process == NULL ? &writer->derive->domains[slot].all : process_total(process, slot);
        if (total == NULL || total->samples.limit == 0) {
            continue;
        }
        error = write_total(writer, process_id, slot, total);
        if (slot_domain(slot) != DOMAIN_CUPTI) {
            VARVE_THEN(error, derived_tables_write_sizes(writer, process_id, slot, total));
            VARVE_THEN(error, derived_tables_write_samples(writer, process_id, slot, &total->samples));
        }
    }
    return error;
}

/* Where there are both. */
static int write_host_peak(const struct writer *writer)
{
    const struct derive *derive = writer->derive;
    const struct derive_host_peak *peak = &derive->host_peak;
    const bool has_both = derive->domains[slot_of(DOMAIN_HEAP, 0)].all.sum.allocations > 0 &&
                          derive->domains[slot_of(DOMAIN_MMAP, 0)].all.sum.allocations > 0;
    if (!has_both || peak->seq == 0) {
        return VARVE_OK;
    }
    return WRITE_ROW(writer, STATEMENT_HOST_PEAK, VALUE(peak->bytes), VALUE(peak->heap_bytes), VALUE(peak->mmap_bytes),
                     VALUE(peak->seq), VALUE(peak->ts_ns));
}

static int write_totals(const struct writer *writer)
{
    const struct derive *derive = writer->derive;
    int error = write_process(writer, 0, NULL);
    for (size_t i = 1; i < derive->process_limit && error == VARVE_OK; i++) {
        if (derive->processes[i] != NULL) {
            error = write_process(writer, (uint32_t)i, derive->processes[i]);
        }
    }
    return error;
}

/* Into the rows of processes, which are there. */
static int write_main_ends(const struct writer *writer)
{
    int error = VARVE_OK;
    for (size_t i = 1; i < writer->derive->process_limit && error == VARVE_OK; i++) {
        const struct derive_process *process = writer->derive->processes[i];
        if (process != NULL && process->main_end_seq != 0) {
            error = WRITE_ROW(writer, STATEMENT_MAIN_END, VALUE(i), VALUE(process->main_end_seq),
                              VALUE(process->main_end_ns));
        }
    }
    return error;
}

/* ---- caching allocators ---- */

static int derived_tables_write_segments(const struct writer *writer)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < writer->derive->segment_count && error == VARVE_OK; i++) {
        const struct derive_segment *segment = &writer->derive->segments[i];
        bool is_freed = segment->free_seq != 0;
        error =
            WRITE_ROW(writer, STATEMENT_SEGMENT, VALUE(i + 1), VALUE(segment->device), VALUE(segment->pool),
                      VALUE(segment->stream), VALUE(segment->addr), VALUE(segment->size), VALUE(segment->alloc_seq),
                      is_freed ? VALUE(segment->free_seq) : VALUE_NULL, VALUE(segment->alloc_ns),
                      is_freed ? VALUE(segment->free_ns) : VALUE_NULL, is_freed ? VALUE(segment->cause) : VALUE_NULL,
                      VALUE(segment->process_id), value_least(1, segment->number), VALUE(segment->is_expandable));
    }
    return error;
}

/* In the order of enum ladder_rung, as the tables have them. */
#define LADDER_VALUES(ladder)                                                                                   \
    VALUE((ladder)->bytes[0]), VALUE((ladder)->bytes[1]), VALUE((ladder)->bytes[2]), VALUE((ladder)->bytes[3]), \
        VALUE((ladder)->bytes[4]), VALUE((ladder)->bytes[5]), VALUE((ladder)->bytes[6]), VALUE((ladder)->bytes[7])
_Static_assert(LADDER_RUNGS == 8, "LADDER_VALUES has all rungs");

static int write_ladder_peak(const struct writer *writer, uint32_t process_id, unsigned device,
                             const struct ladder_peak *peak)
{
    if (peak->seq == 0) {
        return VARVE_OK;
    }
    return WRITE_ROW(writer, STATEMENT_LADDER_PEAK, VALUE(process_id), VALUE(device), VALUE(peak->seq),
                     VALUE(peak->ts_ns), LADDER_VALUES(&peak->ladder));
}

static int write_ladder_peaks(const struct writer *writer)
{
    const struct derive *derive = writer->derive;
    int error = VARVE_OK;
    for (uint32_t i = 1; i < derive->process_limit && error == VARVE_OK; i++) {
        struct derive_device **devices = derive->processes[i] != NULL ? derive->processes[i]->devices : NULL;
        for (unsigned k = 0; k < DEVICE_LIMIT && devices != NULL && error == VARVE_OK; k++) {
            error = devices[k] != NULL ? write_ladder_peak(writer, i, k, &devices[k]->ladder_peak) : VARVE_OK;
        }
    }
    return error;
}

static int write_ooms(const struct writer *writer)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < writer->derive->oom_count && error == VARVE_OK; i++) {
        const struct derive_oom *oom = &writer->derive->ooms[i];
        error = WRITE_ROW(writer, STATEMENT_OOM, VALUE(oom->seq), VALUE(oom->ts_ns), VALUE(oom->device),
                          VALUE(oom->requested), VALUE(oom->allocated), VALUE(oom->reserved),
                          oom->largest_free != 0 ? VALUE(oom->largest_free) : VALUE_NULL,
                          oom->stage != 0 ? VALUE(oom->stage) : VALUE_NULL, VALUE(oom->process_id));
    }
    return error;
}

static int derived_tables_write_marks(const struct writer *writer)
{
    int error = VARVE_OK;
    for (size_t i = 0; i < writer->derive->mark_count && error == VARVE_OK; i++) {
        const struct derive_mark *mark = &writer->derive->marks[i];
        const struct derive_thread *thread = &writer->derive->threads[mark->thread_id];
        bool has_ended = mark->end_seq != 0;
        error = WRITE_ROW(writer, STATEMENT_MARK, VALUE(i + 1), VALUE((const char *)mark->name), VALUE(thread->pid),
                          VALUE(thread->tid), VALUE(mark->begin_seq), has_ended ? VALUE(mark->end_seq) : VALUE_NULL,
                          VALUE(mark->begin_ns), has_ended ? VALUE(mark->end_ns) : VALUE_NULL, VALUE(mark->process_id));
    }
    return error;
}

static int write_keyframe(void *context, const struct derive_keyframe *keyframe, const void *bytes)
{
    const struct store_value data = {.blob = bytes, .integer = (int64_t)keyframe->bytes, .is_null = bytes == NULL};
    return WRITE_ROW((const struct writer *)context, STATEMENT_KEYFRAME, VALUE(keyframe->seq),
                     VALUE(keyframe->process_id), VALUE(keyframe->device), data, LADDER_VALUES(&keyframe->ladder));
}

/* Rows that name events, where these have rows. */
static bool names_events(const struct writer *writer)
{
    return writer->store->keep_rows != VARVE_KEEP_ALLOCATIONS;
}

static int write_keyframes(const struct writer *writer)
{
    return !names_events(writer) ? VARVE_OK
                                 : keyframes_each(writer->derive, write_keyframe, (void *)writer, writer->message);
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

static int write_devices(const struct writer *writer)
{
    const struct derive_names *names = writer->derive->names;
    int error = VARVE_OK;
    for (unsigned i = 0; i < DEVICE_LIMIT && error == VARVE_OK; i++) {
        const struct derive_name *device = &names->devices[i];
        if (!device->is_used && device->total_bytes == 0) {
            continue;
        }
        char text[64];
        uuid_text(device->uuid, text);
        error = WRITE_ROW(writer, STATEMENT_DEVICE, VALUE(i), VALUE(device->name[0] != '\0' ? device->name : NULL),
                          value_least(1, device->total_bytes), VALUE(device->is_used ? text : NULL));
    }
    for (size_t i = 0; i < names->ordinal_count && error == VARVE_OK; i++) {
        const struct derive_ordinal *ordinal = &names->ordinals[i];
        error = WRITE_ROW(writer, STATEMENT_PROCESS_DEVICE, PROCESS_DEVICE_MEMBERS(ROW_VALUE));
    }
    return error;
}

static int write_meanings(const struct writer *writer)
{
    const struct derive_names *names = writer->derive->names;
    int error = VARVE_OK;
    for (size_t i = 0; i < names->meaning_count && error == VARVE_OK; i++) {
        const struct derive_meaning *row = &names->meanings[i];
        unsigned device = names_device_of(writer->derive, row);
        error = row_result(
            writer, row->is_pool ? store_pool(writer->store, row->process_id, device, row->number, row->ids[0],
                                              row->ids[1], row->is_small)
                                 : store_stream(writer->store, row->process_id, device, row->number, row->ids[0]));
    }
    return error;
}

static int derived_tables_write_calls(const struct writer *writer)
{
    const struct derive_calls *calls = writer->derive->calls;
    int error = VARVE_OK;
    for (size_t i = 0; i < calls->call_count && error == VARVE_OK; i++) {
        const struct derive_call *call = &calls->calls[i];
        error = WRITE_ROW(writer, STATEMENT_DEVICE_CALL, DEVICE_CALL_STAT_MEMBERS(ROW_VALUE));
    }
    for (size_t i = 0; i < calls->memory_count && error == VARVE_OK; i++) {
        const struct derive_memory *memory = &calls->memories[i];
        error = WRITE_ROW(writer, STATEMENT_DEVICE_MEMORY, DEVICE_MEMORY_MEMBERS(ROW_VALUE));
    }
    return error;
}

static int write_streams(const struct writer *writer)
{
    const struct derive_streams *streams = writer->derive->streams;
    int error = VARVE_OK;
    for (size_t i = 0; i < streams->count && error == VARVE_OK; i++) {
        const struct derive_stream *stream = &streams->streams[i];
        error = stream->domain == DOMAIN_CUPTI
                    ? VARVE_OK
                    : WRITE_ROW(writer, STATEMENT_STREAM_STAT, STREAM_STAT_MEMBERS(ROW_VALUE));
    }
    return error;
}

static int derived_tables_write_event(void *context, uint64_t seq, unsigned kind)
{
    return WRITE_ROW((const struct writer *)context, STATEMENT_DEVICE_EVENT, VALUE(seq), VALUE(kind));
}

static int derived_tables_write_events(const struct writer *writer)
{
    return !names_events(writer)
               ? VARVE_OK
               : seqs_each(&writer->derive->calls->events, derived_tables_write_event, (void *)writer, writer->message);
}

/* ---- rematerialization ---- */

/* Sums of damaged records, and budgets that are none, may be larger than a column. */
static struct store_value value_clamped(uint64_t value)
{
    return value_integer(value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static struct store_value value_budget(uint64_t bytes)
{
    if (bytes >= INT64_MAX) {
        return VALUE_NULL;
    }
    return VALUE(bytes);
}

static int write_operator(const struct writer *writer, const struct derive_operator *row)
{
    const char *name = row->name[0] != '\0' ? row->name : NULL;
    int error = WRITE_ROW(writer, STATEMENT_OPERATOR, VALUE(row->process_id), VALUE(row->number), VALUE(name),
                          VALUE(row->runs), value_clamped(row->run_ns), value_clamped(row->input_bytes),
                          value_clamped(row->output_bytes), VALUE(row->remats), VALUE(row->collateral),
                          value_clamped(row->remat_ns), VALUE(row->depth_max), VALUE(row->wasted));
    for (unsigned i = 0; i < EVICT_CAUSES && error == VARVE_OK; i++) {
        if (row->evictions[i] != 0) {
            error = WRITE_ROW(writer, STATEMENT_EVICTION, VALUE(row->process_id), VALUE(row->number),
                              VALUE(i != 0 ? VARVE_CAUSE_EVICT_RELEASED + i - 1 : VARVE_CAUSE_NONE),
                              VALUE(row->evictions[i]), value_clamped(row->evicted_bytes[i]));
        }
    }
    return error;
}

static int write_operators(const struct writer *writer)
{
    const struct derive_remat *remat = writer->derive->remat;
    int error = VARVE_OK;
    for (size_t i = 0; i < remat->operator_count && error == VARVE_OK; i++) {
        error = write_operator(writer, &remat->operators[i]);
    }
    for (size_t i = 0; i < remat->storage_count && error == VARVE_OK; i++) {
        const struct derive_remat_storage *row = &remat->storages[i];
        error = WRITE_ROW(writer, STATEMENT_REMAT_STORAGE, VALUE(i + 1), VALUE(row->process_id), VALUE(row->number),
                          VALUE(row->maker), value_clamped(row->size), VALUE(row->evictions), VALUE(row->remats),
                          VALUE(row->collateral), value_clamped(row->remat_ns), VALUE(row->wasted),
                          VALUE(row->is_evicted), VALUE(row->is_pinned));
    }
    return error;
}

static int write_budgets(const struct writer *writer)
{
    const struct derive_remat *remat = writer->derive->remat;
    int error = VARVE_OK;
    for (size_t i = 0; i < remat->budget_count && error == VARVE_OK; i++) {
        const struct derive_budget *row = &remat->budgets[i];
        error = WRITE_ROW(writer, STATEMENT_REMAT_BUDGET, VALUE(row->seq), VALUE(row->ts_ns), VALUE(row->process_id),
                          value_budget(row->bytes));
    }
    for (size_t i = 0; i < remat->failure_count && error == VARVE_OK; i++) {
        const struct derive_remat_failure *row = &remat->failures[i];
        error = WRITE_ROW(writer, STATEMENT_REMAT_FAILURE, VALUE(row->seq), VALUE(row->ts_ns), VALUE(row->process_id),
                          VALUE(row->op), VALUE(row->maker), value_clamped(row->needed),
                          row->budget != 0 ? value_budget(remat->budgets[row->budget - 1].bytes) : VALUE_NULL,
                          value_clamped(row->blocked));
    }
    for (size_t i = 0; i < remat->blocked_count && error == VARVE_OK; i++) {
        const struct derive_blocked *row = &remat->blocked[i];
        error = WRITE_ROW(writer, STATEMENT_REMAT_BLOCKED, VALUE(row->failure_seq), VALUE(row->maker),
                          VALUE(row->cause), VALUE(row->storages), value_clamped(row->bytes));
    }
    return error;
}

static int write_remat_event(void *context, uint64_t seq, unsigned tag)
{
    return WRITE_ROW((const struct writer *)context, STATEMENT_REMAT_EVENT, VALUE(seq), VALUE(tag & ~REMAT_WASTED),
                     VALUE((tag & REMAT_WASTED) != 0), VALUE_NULL);
}

static int write_remat_events(const struct writer *writer)
{
    return !names_events(writer)
               ? VARVE_OK
               : seqs_each(&writer->derive->remat->events, write_remat_event, (void *)writer, writer->message);
}

/* ---- all of it ---- */

int derive_finish(struct derive *derive, struct store *store, store_progress progress, void *context,
                  struct varve_message *message)
{
    static int (*const parts[])(const struct writer *writer) = {derived_tables_write_callsites,
                                                                write_totals,
                                                                write_main_ends,
                                                                derived_tables_write_segments,
                                                                write_ladder_peaks,
                                                                write_ooms,
                                                                derived_tables_write_marks,
                                                                write_keyframes,
                                                                write_devices,
                                                                write_meanings,
                                                                derived_tables_write_calls,
                                                                write_streams,
                                                                write_works,
                                                                write_host_peak,
                                                                derived_tables_write_events,
                                                                write_operators,
                                                                write_budgets,
                                                                write_remat_events};
    const struct writer writer = {.derive = derive, .store = store, .message = message};
    row_pages_drop(store->pages, ROWS_STORAGE);
    row_pages_drop(store->pages, ROWS_CALLSITE_STAT);
    functions_drop_figures(&store->functions);
    int error = writer_execute(store, sql_derived_clear, message);
    VARVE_THEN(error, allocations_begin(store, derive, message));
    VARVE_THEN(error, events_finish(store, derive, message));
    VARVE_THEN(error, storages_finish(store, derive, message));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && error == VARVE_OK; i++) {
        error = parts[i](&writer);
    }
    const int of_allocations = allocations_finish(store, progress, context, error == VARVE_OK ? message : NULL);
    error = error == VARVE_OK ? of_allocations : error;
    store->has_derived = error == VARVE_OK;
    return error;
}
