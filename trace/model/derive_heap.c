/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The malloc family. A realloc is two events, and another thread may get the old address between them. The block
 * therefore waits in its thread's list of pending reallocs, closed, and comes back to life only if the call failed.
 * derive.c calls it.
 */
#include "trace/model/derive.h"

#include "base/grown_array.h"
#include "base/error.h"
#include "trace/model/domain.h"
#include "trace/model/model_event.h"
#include "base/hash_index.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <string.h>

/* An object of Python may lie where a block of the heap does. */
static struct index *address_index(const struct derive_step *step)
{
    return step->domain == DOMAIN_PYTHON ? &step->process->python : &step->process->live;
}

/* A new block; what the index still has at the address was freed without an event. */
static void derive_heap_block_open(struct derive_step *step)
{
    struct event *event = step->event;
    derive_size_check(step);
    uint64_t before = index_insert(address_index(step), event->addr, scratch_next(&step->derive->scratch));
    if (before != 0) {
        derive_row_close(step, before);
    }
    event->id = derive_row_open(step, event->addr, event->size, event->cause, NULL);
    *step->last_id = event->id;
    totals_update_peak(&step->totals);
}

static int block_reserve(struct derive_step *step, struct varve_message *message)
{
    int error = scratch_reserve(&step->derive->scratch, 1, message);
    if (error == VARVE_OK && !index_reserve(address_index(step))) {
        error = varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for one more live allocation");
    }
    return error;
}

int derive_heap_alloc(struct derive_step *step, struct varve_message *message)
{
    int error = block_reserve(step, message);
    if (error != VARVE_OK) {
        return error;
    }
    step->event->id = 0;
    step->event->requested = step->event->size;
    *step->last_id = 0;
    if (step->event->addr == 0 || (step->event->flags & VARVE_FLAG_FAILED)) {
        totals_fail(&step->totals);
        return VARVE_OK;
    }
    derive_heap_block_open(step);
    return VARVE_OK;
}

/* The id that waits for the end of a realloc of `addr`, which no longer does; 0: there is none. The latest first: calls
 * may nest, and Python's may lie around one of the heap with the same address. */
static uint64_t realloc_remove(const struct derive_step *step, uint64_t addr)
{
    struct derive *derive = step->derive;
    struct derive_thread *thread = step->thread;
    for (size_t i = thread->realloc_count; i-- > 0;) {
        if (thread->reallocs[i].addr == addr &&
            scratch_peek(&derive->scratch, thread->reallocs[i].id)->domain == step->domain) {
            uint64_t id = thread->reallocs[i].id;
            scratch_touch(&derive->scratch, id)->is_waiting = false;
            derive_row_forget(derive, id);
            thread->realloc_count--;
            memmove(&thread->reallocs[i], &thread->reallocs[i + 1],
                    (thread->realloc_count - i) * sizeof(*thread->reallocs));
            return id;
        }
    }
    return 0;
}

int derive_heap_free(struct derive_step *step, struct varve_message *message)
{
    struct event *event = step->event;
    struct derive_thread *thread = step->thread;
    bool is_realloc = event->cause == VARVE_CAUSE_REALLOC;
    if (is_realloc && !ARRAY_GROW(thread->reallocs, thread->realloc_capacity, thread->realloc_count + 1)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for one more realloc");
    }
    event->id = index_remove(address_index(step), event->addr);
    if (event->id == 0) {
        const bool is_inherited = step->process->is_forked && !step->derive->has_lost_past;
        event->cause = is_inherited ? VARVE_CAUSE_INHERITED : VARVE_CAUSE_UNKNOWN_ADDRESS;
        step->derive->frees_unknown += !is_inherited;
        *step->last_id = 0;
        return VARVE_OK;
    }
    struct scratch_row *row = derive_row_close(step, event->id);
    row->is_waiting = is_realloc;
    event->size = row->size;
    event->requested = scratch_requested(row);
    if (is_realloc) {
        thread->reallocs[thread->realloc_count++] = (struct derive_realloc){.addr = event->addr, .id = event->id};
    }
    *step->last_id = 0;
    totals_update_peak(&step->totals);
    return VARVE_OK;
}

int derive_heap_realloc(struct derive_step *step, struct varve_message *message)
{
    int error = block_reserve(step, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct event *event = step->event;
    bool has_failed = event->flags & VARVE_FLAG_FAILED;
    uint64_t old = realloc_remove(step, has_failed ? event->addr : event->arg);
    event->id = 0;
    event->requested = event->size;
    *step->last_id = 0;
    if (!has_failed) {
        /* realloc(old, 0) may free and return nothing. */
        if (event->addr != 0) {
            derive_heap_block_open(step);
        }
        return VARVE_OK;
    }
    totals_fail(&step->totals);
    if (old != 0) {
        uint64_t other = index_remove(address_index(step), event->addr);
        if (other != 0) {
            derive_row_close(step, other);
        }
        struct scratch_row *row = scratch_touch(&step->derive->scratch, old);
        totals_reopen(&step->totals, row);
        row->free_seq = 0;
        row->free_ns = 0;
        row->temporary = 0;
        row->holds_free = 0;
        index_insert(address_index(step), event->addr, old);
        event->id = old;
        totals_update_peak(&step->totals);
    }
    return VARVE_OK;
}
