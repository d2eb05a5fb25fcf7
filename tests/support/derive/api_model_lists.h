/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * The naive model of the CUDA API's events for unit/trace/model/test_derive_api_model.c, its lower half: plain lists
 * of rows, of addresses, of physical memory and of mappings, searched from end to end. The rules are those of
 * trace/model/device/, written a second time without any index. api_model.h has the events.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_API_MODEL_LISTS_H
#define VARVE_TESTS_SUPPORT_DERIVE_API_MODEL_LISTS_H

#include "support/derive/rows_model.h"
#include "trace/model/domain.h"
#include "trace/model/event.h"
#include "trace/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#define EVENTS 900
#define PROCESSES 3U
#define THREADS 2U  /* of each process: thread ids 10 * process + 0, 1 */
#define ORDINALS 3U /* of each process */
#define CALLSITES 5U
#define THREAD_IDS (10U * PROCESSES + 10U)

/* What an address or a handle stands for; physical memory has a handle. */
struct object {
    uint64_t addr, handle;
    uint32_t process, row; /* row: its number from 1, 0: another process' memory */
    unsigned side, device, pool, stream, refs, maps;
    bool is_known; /* by its address */
    bool is_named; /* by its handle */
    bool is_async, is_physical;
};

struct mapping {
    uint64_t start, end;
    uint32_t process;
    unsigned side;
    size_t object;
    bool is_there;
    bool was_named; /* when an unmapping ended it */
};

struct last_free {
    unsigned kind, cause, device, stream;
    uint64_t seq, addr;
    int64_t object; /* -1: unknown */
    struct mapping gone[64];
    size_t gone_count;
    int64_t row; /* opened by the last event that opens or closes, or -1 */
};

struct model {
    struct rows_model base;
    struct object objects[EVENTS];
    size_t object_count;
    struct mapping mappings[EVENTS * 2];
    size_t mapping_count;
    struct last_free last[THREAD_IDS][2];
    uint64_t stream_peak[PROCESSES + 1][DOMAINS][DEVICES][4];
    uint64_t uuids[DEVICES]; /* of the numbers of the trace; 0: free */
    unsigned numbers[PROCESSES + 1][ORDINALS];
};

static inline bool model_opens(unsigned kind)
{
    return kind == VARVE_KIND_DEV_ALLOC || kind == VARVE_KIND_DEV_ALLOC_ASYNC || kind == VARVE_KIND_VMM_CREATE ||
           kind == VARVE_KIND_DEV_OOM;
}

static inline bool model_closes(unsigned kind)
{
    return kind == VARVE_KIND_DEV_FREE || kind == VARVE_KIND_DEV_FREE_ASYNC || kind == VARVE_KIND_VMM_UNMAP ||
           kind == VARVE_KIND_VMM_RELEASE;
}

static inline unsigned model_side(const struct event *event)
{
    return (event->flags & VARVE_FLAG_DUPLICATE) ? 1 : 0;
}

static inline unsigned model_domain(const struct event *event)
{
    static const unsigned domains[16] = {
        [1] = DOMAIN_PINNED, [2] = DOMAIN_PINNED, [5] = DOMAIN_MANAGED, [7] = DOMAIN_MANAGED};
    unsigned domain = domains[event->pool >> 12];
    return model_side(event) == 0 ? (domain != 0 ? domain : DOMAIN_DEVICE) : domain != 0 ? 0 : DOMAIN_CUPTI;
}

static inline void model_sum_stream(struct model *model, const struct row *like)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < model->base.row_count; i++) {
        const struct row *row = &model->base.rows[i];
        if (row->free_seq == 0 && row->process == like->process && row->domain == like->domain &&
            row->device == like->device && row->stream == like->stream) {
            bytes += row->size;
        }
    }
    uint64_t *peak = &model->stream_peak[like->process][like->domain][like->device][like->stream];
    *peak = bytes > *peak ? bytes : *peak;
}

static inline size_t model_open(struct model *model, struct event *event, unsigned domain, uint64_t addr)
{
    size_t at = model->object_count++;
    struct object *object = &model->objects[at];
    *object = (struct object){.addr = addr,
                              .process = event->process_id,
                              .side = model_side(event),
                              .device = event->device,
                              .pool = event->pool,
                              .stream = event->stream,
                              .is_async = event->kind == VARVE_KIND_DEV_ALLOC_ASYNC};
    event->id = 0;
    if (domain != 0) {
        size_t row = rows_open(&model->base, event, domain, addr, event->size, event->cause);
        object->row = (uint32_t)model->base.row_count;
        event->id = model->base.row_count;
        model->last[event->thread_id][model_side(event)].row = (int64_t)row;
        model_sum_stream(model, &model->base.rows[row]);
    }
    return at;
}

static inline void model_close(struct model *model, const struct event *event, const struct object *object,
                               bool is_free)
{
    struct row *row = object->row != 0 ? &model->base.rows[object->row - 1] : NULL;
    if (row == NULL || row->free_seq != 0) {
        return;
    }
    rows_close(&model->base, event, row,
               is_free && model->last[event->thread_id][model_side(event)].row == (int64_t)object->row - 1);
}

static inline bool model_reopen(struct model *model, const struct object *object, uint64_t seq)
{
    struct row *row = object->row != 0 ? &model->base.rows[object->row - 1] : NULL;
    if (row == NULL || row->free_seq == 0) {
        return true;
    }
    if (row->free_seq != seq) {
        return false;
    }
    rows_reopen(&model->base, row);
    model_sum_stream(model, row);
    return true;
}

/* What a free says of what it refers to. */
static inline void model_emit(const struct model *model, struct event *event, const struct object *object)
{
    event->id = object->row;
    event->device = (uint8_t)object->device;
    event->pool = (uint16_t)object->pool;
    event->stream = event->kind == VARVE_KIND_DEV_FREE_ASYNC ? event->stream : (uint16_t)object->stream;
    if (object->row != 0) {
        const struct row *row = &model->base.rows[object->row - 1];
        event->size = row->size;
    }
}

static inline int64_t model_at(const struct model *model, const struct event *event, uint64_t addr)
{
    for (size_t i = 0; i < model->object_count; i++) {
        const struct object *object = &model->objects[i];
        if (object->is_known && object->process == event->process_id && object->side == model_side(event) &&
            object->addr == addr) {
            return (int64_t)i;
        }
    }
    return -1;
}

static inline int64_t model_named(const struct model *model, const struct event *event, uint64_t handle)
{
    for (size_t i = 0; i < model->object_count; i++) {
        const struct object *object = &model->objects[i];
        if (object->is_named && object->process == event->process_id && object->side == model_side(event) &&
            object->handle == handle) {
            return (int64_t)i;
        }
    }
    return -1;
}

static inline void model_forget_at(struct model *model, const struct event *event, uint64_t addr)
{
    int64_t old = model_at(model, event, addr);
    if (old >= 0) {
        model->objects[old].is_known = false;
        model_close(model, event, &model->objects[old], false);
    }
}

static inline void model_alloc(struct model *model, struct event *event, bool makes_row)
{
    model->last[event->thread_id][model_side(event)].row = -1;
    event->id = 0;
    if (event->addr == 0) {
        return;
    }
    model_forget_at(model, event, event->addr);
    size_t at = model_open(model, event, makes_row ? model_domain(event) : 0, event->addr);
    model->objects[at].is_known = true;
}

static inline void model_free(struct model *model, struct event *event, struct last_free *last)
{
    event->id = 0;
    last->object = event->addr != 0 ? model_at(model, event, event->addr) : -1;
    if (last->object >= 0) {
        struct object *object = &model->objects[last->object];
        object->is_known = false;
        model_emit(model, event, object);
        model_close(model, event, object, true);
    }
    last->row = -1;
}

/* ---- physical memory ---- */

static inline bool model_memory_ends(struct model *model, const struct event *event, struct object *object,
                                     bool is_free)
{
    bool was_named = object->is_named;
    object->is_named = false;
    model_close(model, event, object, is_free);
    return was_named;
}

static inline bool model_mapping_ends(struct model *model, const struct event *event, struct mapping *mapping,
                                      bool is_free)
{
    struct object *object = &model->objects[mapping->object];
    mapping->is_there = false;
    object->maps--;
    return object->maps == 0 && object->refs == 0 && model_memory_ends(model, event, object, is_free);
}

/* The lowest mapping in [start, end), or -1. */
static inline int64_t model_mapped(const struct model *model, const struct event *event, uint64_t start, uint64_t end)
{
    int64_t found = -1;
    for (size_t i = 0; i < model->mapping_count; i++) {
        const struct mapping *mapping = &model->mappings[i];
        if (mapping->is_there && mapping->process == event->process_id && mapping->side == model_side(event) &&
            mapping->start < end && mapping->end > start &&
            (found < 0 || mapping->start < model->mappings[found].start)) {
            found = (int64_t)i;
        }
    }
    return found;
}

static inline void model_unmap_others(struct model *model, const struct event *event, uint64_t start, uint64_t end)
{
    for (int64_t at; (at = model_mapped(model, event, start, end)) >= 0;) {
        model_mapping_ends(model, event, &model->mappings[at], false);
    }
}

static inline void model_name(struct model *model, const struct event *event, size_t at)
{
    int64_t before = model_named(model, event, model->objects[at].handle);
    if (before >= 0 && before != (int64_t)at) {
        struct object *old = &model->objects[before];
        old->is_named = false;
        old->refs = 0;
        if (old->maps == 0) {
            model_close(model, event, old, false);
        }
    }
    model->objects[at].is_named = true;
}

static inline void model_create(struct model *model, struct event *event, bool makes_row)
{
    int64_t at = model_named(model, event, event->arg);
    bool is_import = event->cause == VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE;
    event->id = 0;
    model->last[event->thread_id][model_side(event)].row = -1;
    if (event->cause == VARVE_CAUSE_CU_MEM_RETAIN_ALLOCATION_HANDLE || (is_import && at >= 0)) {
        if (at >= 0) {
            model->objects[at].refs++;
            event->id = model->objects[at].row;
        }
        return;
    }
    size_t made = model_open(model, event, makes_row ? model_domain(event) : 0, 0);
    model->objects[made].handle = event->arg;
    model->objects[made].refs = 1;
    model->objects[made].is_physical = true;
    model_name(model, event, made);
}

static inline void model_map(struct model *model, struct event *event)
{
    event->id = 0;
    model_unmap_others(model, event, event->addr, event->addr + event->size);
    int64_t at = model_named(model, event, event->arg);
    if (at < 0) {
        return;
    }
    struct object *object = &model->objects[at];
    object->maps++;
    model->mappings[model->mapping_count++] = (struct mapping){.start = event->addr,
                                                               .end = event->addr + event->size,
                                                               .process = event->process_id,
                                                               .side = model_side(event),
                                                               .object = (size_t)at,
                                                               .is_there = true};
    event->id = object->row;
    if (object->row != 0 && model->base.rows[object->row - 1].addr == 0) {
        model->base.rows[object->row - 1].addr = event->addr;
    }
}

static inline void model_unmap(struct model *model, struct event *event, struct last_free *last)
{
    uint64_t size = event->size;
    uint64_t id = 0;
    event->id = 0;
    for (int64_t at; (at = model_mapped(model, event, event->addr, event->addr + size)) >= 0;) {
        struct mapping *mapping = &model->mappings[at];
        if (id == 0) {
            model_emit(model, event, &model->objects[mapping->object]);
            id = event->id;
        }
        bool was_named = model_mapping_ends(model, event, mapping, true);
        last->gone[last->gone_count] = *mapping;
        last->gone[last->gone_count++].was_named = was_named;
    }
    event->id = id;
    event->size = size;
    last->row = -1;
}

static inline void model_release(struct model *model, struct event *event, struct last_free *last)
{
    int64_t at = model_named(model, event, event->arg);
    event->id = 0;
    if (at >= 0 && model->objects[at].refs > 0) {
        struct object *object = &model->objects[at];
        last->object = at;
        object->refs--;
        model_emit(model, event, object);
        if (object->refs == 0 && object->maps == 0) {
            model_memory_ends(model, event, object, true);
        }
    }
    last->row = -1;
}

#endif
