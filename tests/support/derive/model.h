/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * The naive model of derive for unit/trace/model/test_derive_model.c: plain lists of allocations and of reallocs
 * under way, searched from end to end. The rules are those of model/derive/derive.h, written a second time without
 * any index or running sum.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_MODEL_H
#define VARVE_TESTS_SUPPORT_DERIVE_MODEL_H

#include "support/derive/rows_model.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#define EVENTS 700
#define PROCESSES 9U
#define THREADS 3U /* of each process: thread ids 10 * process + 0, 1, 2 */
#define CALLSITES 6U
#define PAGE 4096U

struct reallocs {
    uint32_t thread;
    uint64_t addr;
    size_t row;
};

struct model {
    struct rows_model base;
    struct reallocs reallocs[EVENTS];
    size_t realloc_count;
    int64_t last_alloc[10 * PROCESSES + 10];      /* row that the thread's last heap event opened, or -1 */
    unsigned unmapped_cause[10 * PROCESSES + 10]; /* of the munmap that the thread's next mmap may take back */
    unsigned unmapped_domain[10 * PROCESSES + 10];
    bool is_forked[PROCESSES + 1];
    bool has_ended[PROCESSES + 1];
};

static inline void model_close(struct model *model, const struct event *event, size_t at, bool is_free)
{
    rows_close(&model->base, event, &model->base.rows[at],
               is_free && model->last_alloc[event->thread_id] == (int64_t)at);
}

static inline int64_t model_find(const struct model *model, uint32_t process, uint64_t addr)
{
    for (size_t i = 0; i < model->base.row_count; i++) {
        const struct row *row = &model->base.rows[i];
        if (row->is_known && row->domain == DOMAIN_HEAP && row->process == process && row->addr == addr) {
            return (int64_t)i;
        }
    }
    return -1;
}

static inline void model_heap_open(struct model *model, struct event *event)
{
    int64_t before = model_find(model, event->process_id, event->addr);
    if (before >= 0) {
        model_close(model, event, (size_t)before, false);
    }
    size_t at = rows_open(&model->base, event, DOMAIN_HEAP, event->addr, event->size, event->cause);
    event->id = at + 1;
    model->last_alloc[event->thread_id] = (int64_t)at;
}

static inline void model_free(struct model *model, struct event *event)
{
    int64_t at = model_find(model, event->process_id, event->addr);
    if (at < 0) {
        event->cause = model->is_forked[event->process_id] ? VARVE_CAUSE_INHERITED : VARVE_CAUSE_UNKNOWN_ADDRESS;
        return;
    }
    const struct row *row = &model->base.rows[at];
    model_close(model, event, (size_t)at, true);
    event->id = (uint64_t)at + 1;
    event->size = row->size;
    event->requested = row->requested;
    if (event->cause == VARVE_CAUSE_REALLOC) {
        model->reallocs[model->realloc_count++] = (struct reallocs){event->thread_id, event->addr, (size_t)at};
    }
}

static inline void model_realloc(struct model *model, struct event *event)
{
    bool has_failed = event->flags & VARVE_FLAG_FAILED;
    uint64_t old_addr = has_failed ? event->addr : event->arg;
    int64_t old = -1;
    for (size_t i = model->realloc_count; i-- > 0 && old < 0;) {
        if (model->reallocs[i].thread == event->thread_id && model->reallocs[i].addr == old_addr) {
            old = (int64_t)model->reallocs[i].row;
            model->reallocs[i].thread = 0;
        }
    }
    if (!has_failed) {
        if (event->addr != 0) {
            model_heap_open(model, event);
        }
        return;
    }
    rows_fail(&model->base, event, rows_slot(DOMAIN_HEAP, 0));
    if (old >= 0) {
        int64_t other = model_find(model, event->process_id, event->addr);
        if (other >= 0) {
            model_close(model, event, (size_t)other, false);
        }
        rows_reopen(&model->base, &model->base.rows[old]);
        event->id = (uint64_t)old + 1;
    }
}

/* The known row of lowest address in [start, end). */
static inline int64_t model_overlap(const struct model *model, uint32_t process, uint64_t start, uint64_t end)
{
    int64_t found = -1;
    for (size_t i = 0; i < model->base.row_count; i++) {
        const struct row *row = &model->base.rows[i];
        if (row->is_known && row->domain != DOMAIN_HEAP && row->process == process && row->addr < end &&
            row->addr + row->size > start && (found < 0 || row->addr < model->base.rows[found].addr)) {
            found = (int64_t)i;
        }
    }
    return found;
}

static inline uint64_t model_clear(struct model *model, const struct event *event, bool is_free)
{
    uint64_t start = event->addr;
    uint64_t end = start + event->size;
    uint64_t first = 0;
    for (int64_t at; (at = model_overlap(model, event->process_id, start, end)) >= 0;) {
        const struct row old = model->base.rows[at];
        const uint64_t parts[2][2] = {{old.addr, start}, {end, old.addr + old.size}};
        model_close(model, event, (size_t)at, is_free);
        first = first != 0 ? first : (uint64_t)at + 1;
        for (int i = 0; i < 2; i++) {
            if (parts[i][0] < parts[i][1]) {
                uint64_t size = parts[i][1] - parts[i][0];
                struct row *part =
                    &model->base
                         .rows[rows_open(&model->base, event, old.domain, parts[i][0], size, VARVE_CAUSE_REMAINDER)];
                part->requested = size;
                part->callsite = old.callsite;
                part->thread = old.thread;
            }
        }
    }
    return first;
}

static inline unsigned model_map_domain(struct model *model, const struct event *event)
{
    unsigned cause = model->unmapped_cause[event->thread_id];
    uint64_t flags = event->arg >> 32;
    bool is_reserved = flags != 0 && ((event->arg & 0xffffffff) == PROT_NONE || (flags & MAP_NORESERVE) != 0);
    model->unmapped_cause[event->thread_id] = 0;
    if (event->cause != VARVE_CAUSE_MMAP) {
        return cause == event->cause ? model->unmapped_domain[event->thread_id] : DOMAIN_MMAP;
    }
    return is_reserved ? DOMAIN_ADDRESS_SPACE : DOMAIN_MMAP;
}

static inline void model_map(struct model *model, struct event *event)
{
    unsigned domain = model_map_domain(model, event);
    if (event->flags & VARVE_FLAG_FAILED) {
        rows_fail(&model->base, event, rows_slot(domain, 0));
        return;
    }
    model_clear(model, event, false);
    size_t at = rows_open(&model->base, event, domain, event->addr, event->size, event->cause);
    event->id = at + 1;
    model->last_alloc[event->thread_id] = (int64_t)at;
}

static inline void model_unmap(struct model *model, struct event *event)
{
    event->id = model_clear(model, event, true);
    model->unmapped_cause[event->thread_id] = event->id != 0 ? event->cause : 0;
    if (event->id == 0) {
        event->cause = model->is_forked[event->process_id] ? VARVE_CAUSE_INHERITED : VARVE_CAUSE_UNKNOWN_ADDRESS;
    } else {
        model->unmapped_domain[event->thread_id] = model->base.rows[event->id - 1].domain;
    }
}

static inline void model_event(struct model *model, struct event *event)
{
    int64_t last = model->last_alloc[event->thread_id];
    bool opens = event->kind != VARVE_KIND_HEAP_FREE && event->kind != VARVE_KIND_MUNMAP;
    if (event->kind < VARVE_KIND_HEAP_ALLOC || event->kind > VARVE_KIND_MUNMAP) {
        return;
    }
    model->last_alloc[event->thread_id] = opens ? -1 : last;
    switch (event->kind) {
    case VARVE_KIND_HEAP_ALLOC:
        event->requested = event->size;
        if (event->addr == 0) {
            rows_fail(&model->base, event, rows_slot(DOMAIN_HEAP, 0));
        } else {
            model_heap_open(model, event);
        }
        break;
    case VARVE_KIND_HEAP_FREE:
        model_free(model, event);
        break;
    case VARVE_KIND_HEAP_REALLOC:
        event->requested = event->size;
        model_realloc(model, event);
        break;
    case VARVE_KIND_MMAP:
        model_map(model, event);
        break;
    default:
        model_unmap(model, event);
        break;
    }
    if (!opens) {
        model->last_alloc[event->thread_id] = -1;
    }
    rows_sum_changed(&model->base, event);
}

#endif
