/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from the events in their order: which allocation a free gives up, what is live, what the peak
 * was. The collector calls derive_event for every event just before it stores it; the rules are in
 * collect_internal.h. An event is either derived wholly or, on an error, not at all: everything that can fail
 * is reserved first, so the caller may try the same event again when there is space.
 *
 * The hard part is realloc: two events, and another thread may get the old address between them. The block
 * therefore waits in its thread's limbo, closed, and comes back to life only if the call failed.
 */
#include "trace/derive_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* No block is larger than the address space, and what is live stays far from where the sums would wrap. */
#define SIZE_LIMIT (UINT64_C(1) << 48)
#define SUM_LIMIT (UINT64_C(1) << 62)
#define NUMBER_LIMIT ((uint32_t)1 << 26) /* of threads and processes; more is a damaged ring */

/* Grow an array of `*limit` elements so that `index` is in it; new elements are zero. */
static int array_cover(void **array, size_t *limit, size_t index, size_t element_bytes)
{
    if (index < *limit) {
        return VARVE_OK;
    }
    size_t wanted = *limit > 0 ? *limit : 16;
    while (wanted <= index) {
        wanted *= 2;
    }
    char *grown = realloc(*array, wanted * element_bytes);
    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    memset(grown + *limit * element_bytes, 0, (wanted - *limit) * element_bytes);
    *array = grown;
    *limit = wanted;
    return VARVE_OK;
}

static struct derive_process *process_get(struct derive *derive, uint32_t process_id)
{
    if (process_id >= NUMBER_LIMIT || array_cover((void **)&derive->processes, &derive->process_limit,
                                                  process_id, sizeof *derive->processes) != VARVE_OK) {
        return NULL;
    }
    if (derive->processes[process_id] == NULL) {
        derive->processes[process_id] = calloc(1, sizeof **derive->processes);
    }
    return derive->processes[process_id];
}

int derive_open(const char *scratch_path, struct derive **derive_out, struct varve_message *message)
{
    struct derive *derive = calloc(1, sizeof *derive);
    if (derive == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to pair allocations");
    }
    derive->blocks.fd = -1;
    derive->keyframes = (struct derive_keyframes){.fd = -1, .next_seq = UINT64_MAX};
    derive->path = strdup(scratch_path);
    int code = derive->path != NULL
                   ? scratch_open(&derive->scratch, scratch_path, message)
                   : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to pair allocations");
    if (code != VARVE_OK) {
        free(derive->path);
        free(derive);
        return code;
    }
    *derive_out = derive;
    return VARVE_OK;
}

static void process_free(struct derive_process *process)
{
    live_clear(&process->live);
    ranges_clear(&process->ranges);
    for (unsigned slot = 0; slot < SLOT_LIMIT; slot++) {
        struct total **total = process_total(process, slot);
        if (total != NULL && *total != NULL) {
            series_free(&(*total)->series);
            free(*total);
        }
    }
    derive_devices_free(process);
    free(process);
}

void derive_close(struct derive *derive)
{
    if (derive == NULL) {
        return;
    }
    for (size_t i = 0; i < derive->process_limit; i++) {
        if (derive->processes[i] != NULL) {
            process_free(derive->processes[i]);
        }
    }
    for (size_t i = 0; i < derive->thread_limit; i++) {
        free(derive->threads[i].limbo);
    }
    for (unsigned i = 0; i < SLOT_LIMIT; i++) {
        totals_close_domain(&derive->domains[i]);
    }
    scratch_close(&derive->scratch);
    scratch_close(&derive->blocks);
    if (derive->keyframes.fd >= 0) {
        close(derive->keyframes.fd);
    }
    free(derive->segments);
    free(derive->ooms);
    free(derive->path);
    free(derive->processes);
    free(derive->threads);
    free(derive);
}

void derive_process_start(struct derive *derive, uint32_t process_id, uint32_t forked_from)
{
    struct derive_process *process = process_get(derive, process_id);
    if (process != NULL && forked_from != 0) {
        process->is_forked = true;
    }
}

/* Ten thousand compilers may each leave a series: the more there are, the shorter the new ones become. */
static uint32_t ended_limit(const struct derive *derive)
{
    uint64_t points = derive->ended_points;
    return points < (1U << 19) ? SERIES_POINTS_PROCESS : points < (1U << 20) ? 128 : 16;
}

void derive_process_end(struct derive *derive, uint32_t process_id)
{
    if (process_id >= derive->process_limit || derive->processes[process_id] == NULL) {
        return;
    }
    struct derive_process *process = derive->processes[process_id];
    live_clear(&process->live);
    ranges_clear(&process->ranges);
    for (unsigned slot = 0; slot < SLOT_LIMIT && !process->has_ended; slot++) {
        struct total **total = process_total(process, slot);
        if (total != NULL && *total != NULL) {
            series_end(&(*total)->series, ended_limit(derive));
            derive->ended_points += (*total)->series.count;
        }
    }
    derive_devices_end(derive, process);
    process->has_ended = true;
}

uint64_t derive_row_open(const struct derive_step *step, uint64_t addr, uint64_t size, unsigned source,
                         const struct scratch_row *like)
{
    const struct event *event = step->event;
    struct scratch_row *row;
    uint64_t id = scratch_add(&step->derive->scratch, &row);
    *row = (struct scratch_row){
        .addr = addr,
        .size = size,
        .requested = like != NULL ? size : event->requested,
        .alloc_seq = event->seq,
        .source = source,
        .domain = step->domain,
        .alloc_ns = event->ts_ns,
        .callsite = like != NULL ? like->callsite : event->callsite,
        .thread_id = like != NULL ? like->thread_id : event->thread_id,
    };
    totals_open(&step->totals, row);
    return id;
}

struct scratch_row *derive_row_close(const struct derive_step *step, uint64_t id)
{
    struct scratch_row *row = scratch_touch(&step->derive->scratch, id);
    assert(row->free_seq == 0);
    row->free_seq = step->event->seq;
    row->free_ns = step->event->ts_ns;
    /* An allocating event has reset that already: only a free makes an allocation temporary. */
    row->temporary = *step->last_id == id;
    totals_close(&step->totals, row);
    return row;
}

/* Make what belongs to a process or thread that is new. */
static int step_prepare(struct derive *derive, const struct event *event, struct varve_message *message)
{
    int code = VARVE_ERROR_INVALID;
    if (event->thread_id < NUMBER_LIMIT && event->process_id < NUMBER_LIMIT) {
        code = array_cover((void **)&derive->threads, &derive->thread_limit, event->thread_id,
                           sizeof *derive->threads);
    }
    if (code == VARVE_OK && process_get(derive, event->process_id) == NULL) {
        code = VARVE_ERROR_NO_MEMORY;
    }
    if (code != VARVE_OK) {
        return varve_message_set(message, code, "event %llu: cannot follow process %u, thread %u",
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

/* Look up what the event belongs to, and reserve what every kind needs. */
static int step_begin(struct derive *derive, struct event *event, enum domain domain,
                      struct derive_step *step, struct varve_message *message)
{
    unsigned slot = domain == DOMAIN_BLOCK ? (unsigned)DOMAIN_BLOCK + event->device : (unsigned)domain;
    int code = VARVE_OK;
    if (event->thread_id >= derive->thread_limit || derive->threads[event->thread_id].process_id == 0 ||
        event->process_id >= derive->process_limit || derive->processes[event->process_id] == NULL) {
        code = step_prepare(derive, event, message);
        if (code != VARVE_OK) {
            return code;
        }
    }
    struct derive_process *process = derive->processes[event->process_id];
    if (domain == DOMAIN_BLOCK) {
        code = derive_device_prepare(derive, process, event, message);
        if (code != VARVE_OK) {
            return code;
        }
    }
    struct total **total = process_total(process, slot);
    code = totals_reserve(&derive->domains[slot], total, slot, event->callsite);
    if (code != VARVE_OK) {
        varve_message_set(message, code, "no memory for totals");
        return code;
    }
    struct derive_thread *thread = &derive->threads[event->thread_id];
    *step = (struct derive_step){
        .derive = derive,
        .event = event,
        .thread = thread,
        .process = process,
        .device = domain == DOMAIN_BLOCK ? process->devices[event->device] : NULL,
        .domain = domain,
        .last_id = domain == DOMAIN_BLOCK ? &thread->last_block_id : &thread->last_alloc_id,
        .totals = {.domain = &derive->domains[slot],
                   .process = *total,
                   .seq = event->seq,
                   .ts_ns = event->ts_ns},
    };
    return VARVE_OK;
}

void derive_size_check(const struct derive_step *step)
{
    struct event *event = step->event;
    if (event->size > SIZE_LIMIT || step->totals.domain->all.live_bytes > SUM_LIMIT - event->size) {
        event->size = 0;
        event->requested = 0;
        step->derive->sizes_refused++;
    }
}

/* A new block of the heap; what the index still has at the address was freed without our hearing of it. */
static void block_open(struct derive_step *step)
{
    struct event *event = step->event;
    derive_size_check(step);
    uint64_t before = live_put(&step->process->live, event->addr, step->derive->scratch.count + 1);
    if (before != 0) {
        derive_row_close(step, before);
    }
    event->id = derive_row_open(step, event->addr, event->size, event->cause, NULL);
    step->thread->last_alloc_id = event->id;
    totals_settle(&step->totals);
}

static int block_reserve(struct derive_step *step, struct varve_message *message)
{
    int code = scratch_reserve(&step->derive->scratch, 1, message);
    if (code == VARVE_OK && live_reserve(&step->process->live) != VARVE_OK) {
        code = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for one more live allocation");
    }
    return code;
}

static int heap_alloc(struct derive_step *step, struct varve_message *message)
{
    int code = block_reserve(step, message);
    if (code != VARVE_OK) {
        return code;
    }
    step->event->id = 0;
    step->event->requested = step->event->size;
    step->thread->last_alloc_id = 0;
    if (step->event->addr == 0 || (step->event->flags & VARVE_FLAG_FAILED)) {
        totals_fail(&step->totals);
        return VARVE_OK;
    }
    block_open(step);
    return VARVE_OK;
}

static int limbo_reserve(struct derive_thread *thread)
{
    if (thread->limbo_count < thread->limbo_capacity) {
        return VARVE_OK;
    }
    uint32_t capacity = 2 * thread->limbo_capacity + 2;
    void *grown = realloc(thread->limbo, capacity * sizeof *thread->limbo);
    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    thread->limbo = grown;
    thread->limbo_capacity = capacity;
    return VARVE_OK;
}

/* The id that waits for the end of a realloc of `addr`; 0 if none does. The latest first: calls may nest. */
static uint64_t limbo_take(struct derive_thread *thread, uint64_t addr)
{
    for (uint32_t i = thread->limbo_count; i-- > 0;) {
        if (thread->limbo[i].addr == addr) {
            uint64_t id = thread->limbo[i].id;
            thread->limbo_count--;
            memmove(&thread->limbo[i], &thread->limbo[i + 1],
                    (thread->limbo_count - i) * sizeof *thread->limbo);
            return id;
        }
    }
    return 0;
}

static int heap_free(struct derive_step *step, struct varve_message *message)
{
    struct event *event = step->event;
    struct derive_thread *thread = step->thread;
    bool is_realloc = event->cause == VARVE_CAUSE_REALLOC;
    if (is_realloc && limbo_reserve(thread) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for one more realloc");
    }
    event->id = live_take(&step->process->live, event->addr);
    if (event->id == 0) {
        event->cause = step->process->is_forked ? VARVE_CAUSE_INHERITED : VARVE_CAUSE_UNKNOWN_ADDRESS;
        thread->last_alloc_id = 0;
        return VARVE_OK;
    }
    const struct scratch_row *row = derive_row_close(step, event->id);
    event->size = row->size;
    event->requested = row->requested;
    if (event->callsite == 0) {
        event->callsite = row->callsite;
    }
    if (is_realloc) {
        thread->limbo[thread->limbo_count++] = (struct derive_limbo){.addr = event->addr, .id = event->id};
    }
    thread->last_alloc_id = 0;
    totals_settle(&step->totals);
    return VARVE_OK;
}

static int heap_realloc(struct derive_step *step, struct varve_message *message)
{
    int code = block_reserve(step, message);
    if (code != VARVE_OK) {
        return code;
    }
    struct event *event = step->event;
    bool has_failed = event->flags & VARVE_FLAG_FAILED;
    uint64_t old = limbo_take(step->thread, has_failed ? event->addr : event->arg);
    event->id = 0;
    event->requested = event->size;
    step->thread->last_alloc_id = 0;
    if (!has_failed) {
        /* realloc(old, 0) may free and return nothing. */
        if (event->addr != 0) {
            block_open(step);
        }
        return VARVE_OK;
    }
    totals_fail(&step->totals);
    if (old != 0) {
        uint64_t other = live_take(&step->process->live, event->addr);
        if (other != 0) {
            derive_row_close(step, other);
        }
        struct scratch_row *row = scratch_touch(&step->derive->scratch, old);
        totals_reopen(&step->totals, row);
        row->free_seq = 0;
        row->free_ns = 0;
        row->temporary = 0;
        live_put(&step->process->live, event->addr, old);
        event->id = old;
        totals_settle(&step->totals);
    }
    return VARVE_OK;
}

static int event_derive(struct derive *derive, struct event *event, struct varve_message *message)
{
    struct derive_step step = {0};
    int code;
    switch (event->kind) {
    case VARVE_KIND_HEAP_ALLOC:
        code = step_begin(derive, event, DOMAIN_HEAP, &step, message);
        return code == VARVE_OK ? heap_alloc(&step, message) : code;
    case VARVE_KIND_HEAP_FREE:
        code = step_begin(derive, event, DOMAIN_HEAP, &step, message);
        return code == VARVE_OK ? heap_free(&step, message) : code;
    case VARVE_KIND_HEAP_REALLOC:
        code = step_begin(derive, event, DOMAIN_HEAP, &step, message);
        return code == VARVE_OK ? heap_realloc(&step, message) : code;
    case VARVE_KIND_MMAP:
        code = step_begin(derive, event, DOMAIN_MMAP, &step, message);
        return code == VARVE_OK ? derive_mmap(&step, message) : code;
    case VARVE_KIND_MUNMAP:
        code = step_begin(derive, event, DOMAIN_MMAP, &step, message);
        return code == VARVE_OK ? derive_munmap(&step, message) : code;
    default:
        if (kind_is_allocator(event->kind)) {
            code = step_begin(derive, event, DOMAIN_BLOCK, &step, message);
            return code == VARVE_OK ? derive_block(&step, message) : code;
        }
        /* Other kinds carry their own ids and feed no table made here: they are stored as they are. */
        return VARVE_OK;
    }
}

int derive_event(struct derive *derive, struct event *event, struct varve_message *message)
{
    int code = event_derive(derive, event, message);
    if (code == VARVE_OK) {
        derive->last_seq = event->seq;
        if (event->seq >= derive->keyframes.next_seq) {
            keyframes_step(derive, event->seq);
        }
    }
    return code;
}

uint64_t derive_allocations(const struct derive *derive)
{
    return derive->scratch.count;
}

uint64_t derive_sizes_refused(const struct derive *derive)
{
    return derive->sizes_refused;
}
