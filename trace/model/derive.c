/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event after the other: which process and thread it is of, and who works out what follows from it: derive_heap.c,
 * derive_mapping.c, derive_blocks.c (caching allocators) or model/device_api.c (CUDA). An event is either derived
 * wholly or, on an error, not at all: everything that can fail is reserved first, so the caller may try the same event
 * again when there is space.
 */
#include "trace/model/derive.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/derive_remat.h"
#include "trace/model/device_rows.h"
#include "trace/model/device_calls.h"
#include "trace/model/device_labels.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "base/hash_index.h"
#include "base/range_set.h"
#include "trace/model/allocation_scratch.h"
#include "base/downsample.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENDED_SHARES_MAX (UINT64_C(1) << 20)
#define NUMBER_LIMIT ((uint32_t)1 << 26) /* of threads and processes; more is a damaged ring */

static struct derive_process *process_get(struct derive *derive, uint32_t process_id)
{
    if (process_id >= NUMBER_LIMIT ||
        (process_id >= derive->process_limit && !ARRAY_COVER(derive->processes, derive->process_limit, process_id))) {
        return NULL;
    }
    if (derive->processes[process_id] == NULL) {
        derive->processes[process_id] = calloc(1, sizeof(**derive->processes));
    }
    return derive->processes[process_id];
}

int derive_open(const char *scratch_path, struct derive **derive_out, struct varve_message *message)
{
    struct derive *derive = calloc(1, sizeof(*derive));
    if (derive == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to pair allocations");
    }
    derive->scratch.fd = -1;
    derive->blocks.fd = -1;
    derive->storages.lines.fd = -1;
    derive->keyframes = (struct derive_keyframes){.fd = -1, .next_seq = UINT64_MAX};
    derive->path = strdup(scratch_path);
    derive->names = calloc(1, sizeof(*derive->names));
    derive->calls = calls_open();
    derive->streams = calloc(1, sizeof(*derive->streams));
    derive->remat = derive_remat_open();
    int error = derive->path != NULL && derive->names != NULL && derive->calls != NULL && derive->streams != NULL &&
                        derive->remat != NULL
                    ? scratch_open(&derive->scratch, scratch_path, message)
                    : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to pair allocations");
    if (error != VARVE_OK) {
        derive_close(derive);
        return error;
    }
    *derive_out = derive;
    return VARVE_OK;
}

static void derive_process_free(struct derive_process *process)
{
    index_free(&process->live);
    index_free(&process->python);
    index_free(&process->storages);
    index_free(&process->marks);
    ranges_clear(&process->ranges);
    for (unsigned domain = 0; domain < DOMAIN_LIMIT; domain++) {
        for (unsigned i = 0; process->totals[domain] != NULL && i < domain_devices(domain); i++) {
            if (process->totals[domain][i] != NULL) {
                downsample_free(&process->totals[domain][i]->samples);
                totals_shares_free(&process->totals[domain][i]->shares);
                free(process->totals[domain][i]);
            }
        }
        free(process->totals[domain]);
    }
    derive_devices_free(process);
    derive_api_free(process);
    derive_remat_end(process);
    free(process->device_numbers);
    free(process);
}

static void threads_free(struct derive *derive)
{
    for (size_t i = 0; i < derive->thread_limit; i++) {
        free(derive->threads[i].reallocs);
        derive_api_thread_free(&derive->threads[i]);
    }
    free(derive->threads);
}

void derive_close(struct derive *derive)
{
    if (derive == NULL) {
        return;
    }
    for (size_t i = 0; i < derive->process_limit; i++) {
        if (derive->processes[i] != NULL) {
            derive_process_free(derive->processes[i]);
        }
    }
    for (unsigned i = 0; i < SLOT_LIMIT; i++) {
        totals_close_domain(&derive->domains[i]);
    }
    scratch_close(&derive->scratch);
    scratch_close(&derive->blocks);
    scratch_close(&derive->storages.lines);
    if (derive->keyframes.fd >= 0) {
        close(derive->keyframes.fd);
    }
    threads_free(derive);
    names_close(derive->names);
    calls_close(derive->calls);
    streams_close(derive->streams);
    derive_remat_close(derive->remat);
    free(derive->keyframes.dirty);
    free(derive->segments);
    free(derive->ooms);
    free(derive->marks);
    free(derive->forgotten);
    free(derive->path);
    free(derive->processes);
    free(derive);
}

void derive_process_start(struct derive *derive, uint32_t process_id, uint32_t forked_from)
{
    struct derive_process *process = process_get(derive, process_id);
    if (process != NULL && forked_from != 0) {
        process->is_forked = true;
    }
}

/* Ten thousand compilers may each leave samples: the more there are, the shorter the new ones become. */
static uint32_t ended_limit(const struct derive *derive)
{
    uint64_t points = derive->ended_points;
    return points < (1U << 19) ? SAMPLES_PROCESS : points < (1U << 20) ? 128 : 16;
}

void derive_process_end(struct derive *derive, uint32_t process_id)
{
    if (process_id >= derive->process_limit || derive->processes[process_id] == NULL) {
        return;
    }
    struct derive_process *process = derive->processes[process_id];
    index_free(&process->live);
    index_free(&process->python);
    index_free(&process->storages);
    index_free(&process->marks);
    ranges_clear(&process->ranges);
    for (unsigned domain = 0; domain < DOMAIN_LIMIT && !process->has_ended; domain++) {
        for (unsigned i = 0; process->totals[domain] != NULL && i < domain_devices(domain); i++) {
            struct total *total = process->totals[domain][i];
            if (total != NULL) {
                downsample_limit(&total->samples, ended_limit(derive));
                derive->ended_points += total->samples.count;
                derive->ended_shares += total->shares.count;
                totals_process_end(&derive->domains[slot_of(domain, i)], total,
                                   derive->ended_shares <= ENDED_SHARES_MAX, derive->last_seq);
            }
        }
    }
    derive_devices_end(derive, process);
    derive_api_end(process);
    derive_remat_end(process);
    process->has_ended = true;
}

/* Make what belongs to a process or thread that is new. */
static int step_prepare(struct derive *derive, const struct event *event, struct varve_message *message)
{
    int error = VARVE_ERROR_INVALID;
    if (event->thread_id < NUMBER_LIMIT && event->process_id < NUMBER_LIMIT) {
        error = event->thread_id < derive->thread_limit ||
                        ARRAY_COVER(derive->threads, derive->thread_limit, event->thread_id)
                    ? VARVE_OK
                    : VARVE_ERROR_NO_MEMORY;
    }
    if (error == VARVE_OK && process_get(derive, event->process_id) == NULL) {
        error = VARVE_ERROR_NO_MEMORY;
    }
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "event %llu: cannot follow process %u, thread %u",
                                 (unsigned long long)event->seq, event->process_id, event->thread_id);
    }
    struct derive_thread *thread = &derive->threads[event->thread_id];
    if (thread->process_id == 0) {
        thread->process_id = event->process_id;
        thread->pid = event->pid;
        thread->tid = event->tid;
    }
    return VARVE_OK;
}

/* The process and thread of the event, made if they are new. */
static int step_find(struct derive *derive, struct event *event, struct derive_step *step,
                     struct varve_message *message)
{
    if (event->thread_id >= derive->thread_limit || derive->threads[event->thread_id].process_id == 0 ||
        event->process_id >= derive->process_limit || derive->processes[event->process_id] == NULL) {
        int error = step_prepare(derive, event, message);
        if (error != VARVE_OK) {
            return error;
        }
    }
    *step = (struct derive_step){
        .derive = derive,
        .event = event,
        .thread = &derive->threads[event->thread_id],
        .process = derive->processes[event->process_id],
    };
    return VARVE_OK;
}

/* Look up what the event belongs to, and reserve what every kind needs. Domain 0: it depends. */
static int step_begin(struct derive *derive, struct event *event, enum domain domain, struct derive_step *step,
                      struct varve_message *message)
{
    int error = step_find(derive, event, step, message);
    if (error == VARVE_OK && domain == DOMAIN_BLOCK) {
        error = derive_device_prepare(derive, step->process, event, message);
    }
    if (error == VARVE_OK && domain != 0) {
        error = derive_step_enter(step, domain, message);
    }
    if (error == VARVE_OK && domain == DOMAIN_BLOCK) {
        step->device = step->process->devices[event->device];
        step->last_id = &step->thread->last_block_id;
    } else if (error == VARVE_OK) {
        step->last_id = domain == DOMAIN_PYTHON ? &step->thread->last_python_id : &step->thread->last_alloc_id;
    }
    return error;
}

/* Events of devices, whose numbers are the process' own until here. */
static int device_event_derive(struct derive *derive, struct event *event, struct varve_message *message)
{
    struct derive_step step = {0};
    int error = step_find(derive, event, &step, message);
    if (error == VARVE_OK && !names_reserve(derive, event)) {
        error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for what a number means");
    }
    if (error != VARVE_OK) {
        return error;
    }
    names_apply(derive, event); /* once more, where the event is tried again: it says the same */
    if (kind_is_allocator(event->kind)) {
        error = step_begin(derive, event, DOMAIN_BLOCK, &step, message);
        return error == VARVE_OK ? derive_block(&step, message) : error;
    }
    error = calls_reserve(derive, event, message);
    VARVE_THEN(error, derive_api(&step, message));
    if (error == VARVE_OK) {
        calls_count(derive, event);
    }
    return error;
}

/* What needs its process, but neither totals nor space in them. */
static int plain_event_derive(struct derive *derive, struct event *event,
                              int (*take)(const struct derive_step *step, struct varve_message *message),
                              struct varve_message *message)
{
    struct derive_step step = {0};
    int error = step_find(derive, event, &step, message);
    if (error == VARVE_OK) {
        event->device = names_device(derive, event);
        error = take(&step, message);
    }
    return error;
}

/* Phases are numbered by nobody, unless an allocator emits them. */
static bool derive_is_mark(const struct event *event)
{
    return (event->kind == VARVE_KIND_MARK_BEGIN || event->kind == VARVE_KIND_MARK_END) && event->dev_seq == 0;
}

/* A process says it once; what a damaged record repeats does not move it. */
static int main_end_derive(const struct derive_step *step, struct varve_message *message)
{
    (void)message;
    if (step->process->main_end_seq == 0) {
        step->process->main_end_seq = step->event->seq;
        step->process->main_end_ns = step->event->ts_ns;
    }
    return VARVE_OK;
}

static int event_derive(struct derive *derive, struct event *event, struct varve_message *message)
{
    static const struct {
        int (*derive)(struct derive_step *step, struct varve_message *message);
        enum domain domain;
    } kinds[VARVE_KIND_LIMIT] = {
        [VARVE_KIND_HEAP_ALLOC] = {derive_heap_alloc, DOMAIN_HEAP},
        [VARVE_KIND_HEAP_FREE] = {derive_heap_free, DOMAIN_HEAP},
        [VARVE_KIND_HEAP_REALLOC] = {derive_heap_realloc, DOMAIN_HEAP},
        [VARVE_KIND_PYTHON_ALLOC] = {derive_heap_alloc, DOMAIN_PYTHON},
        [VARVE_KIND_PYTHON_FREE] = {derive_heap_free, DOMAIN_PYTHON},
        [VARVE_KIND_PYTHON_REALLOC] = {derive_heap_realloc, DOMAIN_PYTHON},
        [VARVE_KIND_MMAP] = {derive_mmap, 0},
        [VARVE_KIND_MUNMAP] = {derive_munmap, 0},
    };
    struct derive_step step = {0};
    if (event->kind < VARVE_KIND_LIMIT && kinds[event->kind].derive != NULL) {
        int error = step_begin(derive, event, kinds[event->kind].domain, &step, message);
        return error == VARVE_OK ? kinds[event->kind].derive(&step, message) : error;
    }
    if (kind_is_storage(event->kind)) {
        return plain_event_derive(derive, event, derive_storage, message);
    }
    if (kind_is_remat(event->kind)) {
        return plain_event_derive(derive, event, derive_remat, message);
    }
    if (derive_is_mark(event)) {
        return plain_event_derive(derive, event, derive_mark, message);
    }
    if (event->kind == VARVE_KIND_MAIN_END) {
        return plain_event_derive(derive, event, main_end_derive, message);
    }
    if (kind_is_allocator(event->kind) || kind_is_api(event->kind)) {
        return device_event_derive(derive, event, message);
    }
    /* Other kinds carry their own ids and feed no table made here: they are stored as they are. */
    event->device = names_device(derive, event);
    return VARVE_OK;
}

/* The event is over; what it forgot is not looked at any more. */
static void forgotten_release(struct derive *derive)
{
    for (size_t i = 0; i < derive->forgotten_count; i++) {
        const struct scratch_row *row = scratch_peek(&derive->scratch, derive->forgotten[i]);
        if (row->free_seq != 0 && !row->is_waiting && !derive_row_is_left(derive, row)) {
            scratch_release(&derive->scratch, derive->forgotten[i]);
        }
    }
    derive->forgotten_count = 0;
}

void derive_forget(struct derive *derive)
{
    derive->forgets_from = scratch_next(&derive->scratch);
    derive->storages.forgets_from = derive->storages.count + 1;
    derive->keyframes.next_seq = UINT64_MAX;
    derive->calls->events.is_closed = true;
    derive->remat->events.is_closed = true;
}

void derive_forget_short(struct derive *derive)
{
    derive->forgets_short = true;
}

static void host_peak_update(struct derive *derive, const struct event *event)
{
    const uint64_t heap = derive->domains[slot_of(DOMAIN_HEAP, 0)].all.sum.live_bytes;
    const uint64_t mmap = derive->domains[slot_of(DOMAIN_MMAP, 0)].all.sum.live_bytes;
    if (heap + mmap > derive->host_peak.bytes) {
        derive->host_peak = (struct derive_host_peak){heap + mmap, heap, mmap, event->seq, event->ts_ns};
    }
}

int derive_event(struct derive *derive, struct event *event, struct varve_message *message)
{
    uint8_t device = event->device;
    event->ladder_change = (struct ladder){0};
    int error = event_derive(derive, event, message);
    if (error != VARVE_OK) {
        event->device = device;
        return error;
    }
    derive->last_seq = event->seq;
    host_peak_update(derive, event);
    if (derive->forgotten_count > 0) {
        forgotten_release(derive);
    }
    if (event->seq >= derive->keyframes.next_seq) {
        keyframes_step(derive, event->seq);
    }
    return VARVE_OK;
}

bool derive_may_return(const struct event *event)
{
    return kind_gives_back(event->kind) && event->cause == VARVE_CAUSE_REALLOC;
}

bool derive_can_hold(const struct derive *derive, const struct event *event)
{
    const int64_t lag = (int64_t)(event->seq - event->ring_seq);
    if (event->id == 0 || event->ring_seq == 0 || event->flags != 0 || lag != (int32_t)lag ||
        event->id > derive->scratch.count) {
        return false;
    }
    const struct scratch_row *row = scratch_peek(&derive->scratch, event->id);
    switch (event->kind) {
    case VARVE_KIND_HEAP_ALLOC:
    case VARVE_KIND_PYTHON_ALLOC:
        return event->arg == 0 && row->alloc_seq == event->seq;
    case VARVE_KIND_HEAP_REALLOC:
    case VARVE_KIND_PYTHON_REALLOC:
        return event->arg == event->addr && row->alloc_seq == event->seq;
    case VARVE_KIND_HEAP_FREE:
    case VARVE_KIND_PYTHON_FREE:
        return (event->cause == VARVE_CAUSE_FREE || event->cause == VARVE_CAUSE_REALLOC) && event->callsite == 0 &&
               row->free_seq == event->seq &&
               (event->thread_id == row->thread_id || event->thread_id < SCRATCH_FREE_THREADS);
    default:
        return false;
    }
}

void derive_hold(struct derive *derive, const struct event *event)
{
    struct scratch_row *row = &derive->scratch.rows[event->id - 1];
    const int32_t lag = (int32_t)(event->seq - event->ring_seq);
    if (kind_gives_back(event->kind)) {
        row->holds_free = 1;
        row->is_given_up = derive_may_return(event);
        row->free_lag = lag;
        row->free_thread = event->thread_id < SCRATCH_FREE_THREADS ? event->thread_id : 0;
    } else {
        row->holds_alloc = 1;
        row->is_in_place = event->kind == VARVE_KIND_HEAP_REALLOC || event->kind == VARVE_KIND_PYTHON_REALLOC;
        row->alloc_lag = lag;
    }
}

bool derive_holds_free(const struct derive *derive, const struct event *event)
{
    if (event->id == 0 || event->id > derive->scratch.count) {
        return false;
    }
    const struct scratch_row *row = scratch_peek(&derive->scratch, event->id);
    return row->holds_free && row->free_seq == event->seq;
}

uint64_t derive_allocations(const struct derive *derive)
{
    return derive->opened;
}

uint64_t derive_sizes_refused(const struct derive *derive)
{
    return derive->sizes_refused;
}

uint64_t derive_frees_unknown(const struct derive *derive)
{
    return derive->frees_unknown;
}

void derive_past_is_lost(struct derive *derive)
{
    derive->has_lost_past = true;
}

/* ---- order ---- */

bool derive_is_out_of_order(const struct derive *derive, const struct event *event)
{
    static const struct derive_process unseen; /* nothing is live in it */
    const struct derive_process *process = &unseen;
    if (event->process_id < derive->process_limit && derive->processes[event->process_id] != NULL) {
        process = derive->processes[event->process_id];
    }
    if (kind_is_allocator(event->kind)) {
        return derive_block_is_out_of_order(derive, process, event);
    }
    if (kind_is_api(event->kind)) {
        return derive_api_is_out_of_order(derive, process, event);
    }
    if (kind_is_storage(event->kind)) {
        return derive_storage_is_out_of_order(process, event);
    }
    if (event->addr == 0 || (event->flags & VARVE_FLAG_FAILED)) {
        return false;
    }
    struct range range;
    switch (event->kind) {
    case VARVE_KIND_HEAP_ALLOC:
    case VARVE_KIND_HEAP_REALLOC:
        return index_find(&process->live, event->addr) != 0;
    case VARVE_KIND_HEAP_FREE: /* of a realloc, too */
        return index_find(&process->live, event->addr) == 0;
    case VARVE_KIND_PYTHON_ALLOC:
    case VARVE_KIND_PYTHON_REALLOC:
        return index_find(&process->python, event->addr) != 0;
    case VARVE_KIND_PYTHON_FREE:
        return index_find(&process->python, event->addr) == 0;
    case VARVE_KIND_MMAP:
        /* MAP_FIXED may map over what is there, and the flags of an mremap are not recorded. */
        return event->cause == VARVE_CAUSE_MMAP && ((event->arg >> 32) & MAP_FIXED) == 0 &&
               ranges_first(&process->ranges, event->addr, event->addr + event->size, &range);
    case VARVE_KIND_MUNMAP:
        return !ranges_first(&process->ranges, event->addr, event->addr + event->size, &range);
    default:
        return false;
    }
}

/* ---- the walker: what the indexes say is live must be what the rows say, and what the totals counted ---- */

struct walk {
    const struct derive *derive;
    uint32_t process_id;
    uint64_t live_allocations[DOMAIN_LIMIT];
    uint64_t live_bytes[DOMAIN_LIMIT];
    uint64_t bad_id;
};

static int walk_row(struct walk *walk, uint64_t id, uint64_t addr, enum domain domain)
{
    walk->bad_id = id;
    if (id == 0 || id > walk->derive->scratch.count) {
        return VARVE_ERROR_CORRUPT;
    }
    const struct scratch_row *row = scratch_peek(&walk->derive->scratch, id);
    if (row->free_seq != 0 || row->addr != addr || row->domain != domain ||
        walk->derive->threads[row->thread_id].process_id != walk->process_id) {
        return VARVE_ERROR_CORRUPT;
    }
    walk->live_allocations[domain]++;
    walk->live_bytes[domain] += row->size;
    return VARVE_OK;
}

static int derive_walk_range(void *context, const struct range *range)
{
    struct walk *walk = context;
    bool is_memory = range->id > walk->derive->scratch.count ||
                     scratch_peek(&walk->derive->scratch, range->id)->domain != DOMAIN_ADDRESS_SPACE;
    int error = walk_row(walk, range->id, range->start, is_memory ? DOMAIN_MMAP : DOMAIN_ADDRESS_SPACE);
    if (error != VARVE_OK || scratch_peek(&walk->derive->scratch, range->id)->size != range->end - range->start) {
        return VARVE_ERROR_CORRUPT;
    }
    return VARVE_OK;
}

static int walk_addresses(struct walk *walk, const struct index *index, enum domain domain)
{
    int error = VARVE_OK;
    for (uint64_t i = 0; i < index_slots(index) && error == VARVE_OK; i++) {
        const struct index_slot *slot = &index->slots[i];
        if (slot->number != 0) {
            error = walk_row(walk, slot->number, slot->key, domain);
        }
    }
    return error;
}

static int process_check(const struct derive *derive, uint32_t process_id, struct varve_message *message)
{
    const struct derive_process *process = derive->processes[process_id];
    struct walk walk = {.derive = derive, .process_id = process_id};
    if (!index_check(&process->live) || !index_check(&process->python) || !ranges_check(&process->ranges)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "address index of process %u", process_id);
    }
    int error = ranges_each(&process->ranges, derive_walk_range, &walk);
    VARVE_THEN(error, walk_addresses(&walk, &process->live, DOMAIN_HEAP));
    VARVE_THEN(error, walk_addresses(&walk, &process->python, DOMAIN_PYTHON));
    if (error != VARVE_OK) {
        return varve_message_set(message, error,
                                 "process %u: allocation %llu is in the address index, but its row differs", process_id,
                                 (unsigned long long)walk.bad_id);
    }
    for (unsigned i = DOMAIN_HEAP; i < DOMAIN_LIMIT && !process->has_ended; i++) {
        if (!domain_is_host(i)) {
            continue;
        }
        const struct total none = {0};
        const struct total *found = process_total(process, slot_of(i, 0));
        const struct total *total = found != NULL ? found : &none;
        if (walk.live_allocations[i] != total->sum.live_allocations || walk.live_bytes[i] != total->sum.live_bytes) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT,
                                     "process %u, domain %u: %llu live allocations in the index, %llu in the total",
                                     process_id, i, (unsigned long long)walk.live_allocations[i],
                                     (unsigned long long)total->sum.live_allocations);
        }
    }
    for (unsigned i = 0; i < DEVICE_LIMIT && process->devices != NULL && error == VARVE_OK; i++) {
        if (process->devices[i] != NULL) {
            error = derive_device_check(derive, process, i, message);
        }
    }
    VARVE_THEN(error, derive_storages_check(derive, process_id, message));
    return error == VARVE_OK ? derive_api_check(derive, process_id, message) : error;
}

/* Whatever waits for the end of a realloc is closed. */
static int reallocs_check(const struct derive *derive, struct varve_message *message)
{
    for (size_t i = 0; i < derive->thread_limit; i++) {
        const struct derive_thread *thread = &derive->threads[i];
        for (size_t k = 0; k < thread->realloc_count; k++) {
            const struct scratch_row *row = scratch_peek(&derive->scratch, thread->reallocs[k].id);
            if (row->free_seq == 0 || row->addr != thread->reallocs[k].addr) {
                return varve_message_set(message, VARVE_ERROR_CORRUPT, "realloc of thread %zu", i);
            }
        }
    }
    return VARVE_OK;
}

int derive_check(const struct derive *derive, struct varve_message *message)
{
    int error = reallocs_check(derive, message);
    for (size_t i = 0; i < derive->process_limit && error == VARVE_OK; i++) {
        if (derive->processes[i] != NULL) {
            error = process_check(derive, (uint32_t)i, message);
        }
    }
    VARVE_THEN(error, derive_remat_check(derive, message));
    for (unsigned i = 0; i < SLOT_LIMIT && error == VARVE_OK; i++) {
        error = totals_check(&derive->domains[i], derive->processes, derive->process_limit, i, message);
    }
    return error;
}
