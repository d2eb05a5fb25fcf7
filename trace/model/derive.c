/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows from the events in their order: which allocation a free gives up, what is live, what the peak
 * was. The collector calls derive_event for every event just before it stores it; the rules are in
 * collect_internal.h. An event is either derived wholly or, on an error, not at all: everything that can fail
 * is reserved first, so the caller may try the same event again when there is space. What each kind does is
 * in heap.c, mapping.c, blocks.c (caching allocators) and model/device/device.c (CUDA).
 */
#include "trace/model/device/device.h"

#include <stdio.h>
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

int derive_array_reserve(void **array, size_t *capacity, size_t count, size_t bytes)
{
    if (count < *capacity) {
        return VARVE_OK;
    }
    size_t larger = 2 * count + 16;
    void *grown = realloc(*array, larger * bytes);
    if (grown == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    *array = grown;
    *capacity = larger;
    return VARVE_OK;
}

int derive_blocks_reserve(struct derive *derive, struct varve_message *message)
{
    char path[4096 + 16];
    int code = VARVE_OK;
    if (derive->blocks.fd < 0) {
        snprintf(path, sizeof path, "%s.blocks", derive->path);
        code = scratch_open(&derive->blocks, path, message);
        if (code == VARVE_OK) {
            unlink(path); /* nobody has to find it again */
        }
    }
    return code == VARVE_OK ? scratch_reserve(&derive->blocks, 1, message) : code;
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
    derive->scratch.fd = -1;
    derive->blocks.fd = -1;
    derive->keyframes = (struct derive_keyframes){.fd = -1, .next_seq = UINT64_MAX};
    derive->path = strdup(scratch_path);
    derive->names = calloc(1, sizeof *derive->names);
    derive->calls = calls_open();
    derive->streams = calloc(1, sizeof *derive->streams);
    int code =
        derive->path != NULL && derive->names != NULL && derive->calls != NULL && derive->streams != NULL
            ? scratch_open(&derive->scratch, scratch_path, message)
            : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to pair allocations");
    if (code != VARVE_OK) {
        derive_close(derive);
        return code;
    }
    *derive_out = derive;
    return VARVE_OK;
}

static void process_free(struct derive_process *process)
{
    live_clear(&process->live);
    ranges_clear(&process->ranges);
    for (unsigned domain = 0; domain < DOMAIN_LIMIT; domain++) {
        for (unsigned i = 0; process->totals[domain] != NULL && i < domain_devices(domain); i++) {
            if (process->totals[domain][i] != NULL) {
                series_free(&process->totals[domain][i]->series);
                free(process->totals[domain][i]);
            }
        }
        free(process->totals[domain]);
    }
    derive_devices_free(process);
    derive_api_free(process);
    free(process->device_numbers);
    free(process);
}

static void threads_free(struct derive *derive)
{
    for (size_t i = 0; i < derive->thread_limit; i++) {
        free(derive->threads[i].limbo);
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
            process_free(derive->processes[i]);
        }
    }
    for (unsigned i = 0; i < SLOT_LIMIT; i++) {
        totals_close_domain(&derive->domains[i]);
    }
    scratch_close(&derive->scratch);
    scratch_close(&derive->blocks);
    if (derive->keyframes.fd >= 0) {
        close(derive->keyframes.fd);
    }
    threads_free(derive);
    names_close(derive->names);
    calls_close(derive->calls);
    streams_close(derive->streams);
    free(derive->keyframes.dirty);
    free(derive->segments);
    free(derive->ooms);
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
    for (unsigned domain = 0; domain < DOMAIN_LIMIT && !process->has_ended; domain++) {
        for (unsigned i = 0; process->totals[domain] != NULL && i < domain_devices(domain); i++) {
            struct total *total = process->totals[domain][i];
            if (total != NULL) {
                series_end(&total->series, ended_limit(derive));
                derive->ended_points += total->series.count;
            }
        }
    }
    derive_devices_end(derive, process);
    derive_api_end(process);
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
        .requested = like != NULL || domain_is_api(step->domain) ? size : event->requested,
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

/* The process and thread of the event, made if they are new. */
static int step_find(struct derive *derive, struct event *event, struct derive_step *step,
                     struct varve_message *message)
{
    if (event->thread_id >= derive->thread_limit || derive->threads[event->thread_id].process_id == 0 ||
        event->process_id >= derive->process_limit || derive->processes[event->process_id] == NULL) {
        int code = step_prepare(derive, event, message);
        if (code != VARVE_OK) {
            return code;
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

/* What totals_reserve would find in order, found at once: it is asked for every event. */
static inline bool has_space(const struct series *series)
{
    return series->count < series->capacity || (series->limit != 0 && series->capacity >= series->limit);
}

int derive_step_enter(struct derive_step *step, enum domain domain, struct varve_message *message)
{
    const struct event *event = step->event;
    unsigned slot = slot_of(domain, event->device);
    struct domain_totals *totals = &step->derive->domains[slot];
    struct total **list = step->process->totals[domain];
    struct total *total = list != NULL ? list[slot - slot_first[domain]] : NULL;
    if (total == NULL || event->callsite >= totals->site_limit || !has_space(&totals->all.series) ||
        !has_space(&total->series)) {
        int code = totals_reserve(totals, step->process, slot, event->callsite);
        if (code != VARVE_OK) {
            return varve_message_set(message, code, "no memory for totals");
        }
        total = *process_total(step->process, slot);
    }
    step->domain = domain;
    step->totals =
        (struct totals_step){.domain = totals, .process = total, .seq = event->seq, .ts_ns = event->ts_ns};
    return VARVE_OK;
}

/* Look up what the event belongs to, and reserve what every kind needs. */
static int step_begin(struct derive *derive, struct event *event, enum domain domain,
                      struct derive_step *step, struct varve_message *message)
{
    int code = step_find(derive, event, step, message);
    if (code == VARVE_OK && domain == DOMAIN_BLOCK) {
        code = derive_device_prepare(derive, step->process, event, message);
    }
    if (code == VARVE_OK) {
        code = derive_step_enter(step, domain, message);
    }
    if (code == VARVE_OK && domain == DOMAIN_BLOCK) {
        step->device = step->process->devices[event->device];
        step->last_id = &step->thread->last_block_id;
    } else if (code == VARVE_OK) {
        step->last_id = &step->thread->last_alloc_id;
    }
    return code;
}

void derive_size_check(const struct derive_step *step)
{
    struct event *event = step->event;
    if (event->size > SIZE_LIMIT || step->totals.domain->all.live_bytes > SUM_LIMIT - event->size) {
        event->size = 0;
        event->requested = domain_is_api(step->domain) ? event->requested : 0;
        step->derive->sizes_refused++;
    }
}

/* Events of devices, whose numbers are the process' own until here. */
static int device_event_derive(struct derive *derive, struct event *event, struct varve_message *message)
{
    struct derive_step step = {0};
    int code = step_find(derive, event, &step, message);
    if (code == VARVE_OK && names_reserve(derive, event) != VARVE_OK) {
        code = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for what a number means");
    }
    if (code != VARVE_OK) {
        return code;
    }
    names_take(derive, event); /* once more, where the event is tried again: it says the same */
    if (kind_is_allocator(event->kind)) {
        code = step_begin(derive, event, DOMAIN_BLOCK, &step, message);
        return code == VARVE_OK ? derive_block(&step, message) : code;
    }
    code = calls_reserve(derive, event, message);
    if (code == VARVE_OK) {
        code = derive_api(&step, message);
    }
    if (code == VARVE_OK) {
        calls_take(derive, event);
    }
    return code;
}

static int event_derive(struct derive *derive, struct event *event, struct varve_message *message)
{
    struct derive_step step = {0};
    int code;
    switch (event->kind) {
    case VARVE_KIND_HEAP_ALLOC:
        code = step_begin(derive, event, DOMAIN_HEAP, &step, message);
        return code == VARVE_OK ? derive_heap_alloc(&step, message) : code;
    case VARVE_KIND_HEAP_FREE:
        code = step_begin(derive, event, DOMAIN_HEAP, &step, message);
        return code == VARVE_OK ? derive_heap_free(&step, message) : code;
    case VARVE_KIND_HEAP_REALLOC:
        code = step_begin(derive, event, DOMAIN_HEAP, &step, message);
        return code == VARVE_OK ? derive_heap_realloc(&step, message) : code;
    case VARVE_KIND_MMAP:
        code = step_begin(derive, event, DOMAIN_MMAP, &step, message);
        return code == VARVE_OK ? derive_mmap(&step, message) : code;
    case VARVE_KIND_MUNMAP:
        code = step_begin(derive, event, DOMAIN_MMAP, &step, message);
        return code == VARVE_OK ? derive_munmap(&step, message) : code;
    default:
        if (kind_is_allocator(event->kind) || kind_is_api(event->kind)) {
            return device_event_derive(derive, event, message);
        }
        /* Other kinds carry their own ids and feed no table made here: they are stored as they are. */
        event->device = names_device(derive, event);
        return VARVE_OK;
    }
}

int derive_event(struct derive *derive, struct event *event, struct varve_message *message)
{
    uint8_t device = event->device;
    int code = event_derive(derive, event, message);
    if (code != VARVE_OK) {
        event->device = device;
        return code;
    }
    derive->last_seq = event->seq;
    if (event->seq >= derive->keyframes.next_seq) {
        keyframes_step(derive, event->seq);
    }
    return VARVE_OK;
}

uint64_t derive_allocations(const struct derive *derive)
{
    return derive->scratch.count;
}

uint64_t derive_sizes_refused(const struct derive *derive)
{
    return derive->sizes_refused;
}
