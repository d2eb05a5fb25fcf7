/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * The naive model of the CUDA API's events for unit/trace/model/test_derive_api_model.c, its upper half: failures,
 * resets, the numbers of devices.
 */
#ifndef VARVE_TESTS_SUPPORT_DERIVE_API_MODEL_H
#define VARVE_TESTS_SUPPORT_DERIVE_API_MODEL_H

#include "support/derive/api_model_lists.h"
#include "trace/model/event.h"
#include "trace/record.h"

/* ---- failures and resets ---- */

static inline void model_take_back(struct model *model, struct event *event, const struct last_free *last)
{
    uint64_t size = event->size;
    uint64_t id = 0;
    struct object *object = last->object >= 0 ? &model->objects[last->object] : NULL;
    if (event->kind == VARVE_KIND_VMM_UNMAP) {
        for (size_t i = 0; i < last->gone_count; i++) {
            struct mapping again = last->gone[i];
            object = &model->objects[again.object];
            model_unmap_others(model, event, again.start, again.end);
            if (!model_reopen(model, object, last->seq)) {
                continue;
            }
            again.is_there = true;
            object->maps++;
            model->mappings[model->mapping_count++] = again;
            if (again.was_named) {
                model_name(model, event, again.object);
            }
            if (id == 0 && object->row != 0) {
                model_emit(model, event, object);
                id = event->id;
            }
        }
        event->id = id;
        event->size = size;
    } else if (object != NULL && model_reopen(model, object, last->seq)) {
        if (event->kind == VARVE_KIND_VMM_RELEASE) {
            object->refs++;
            model_name(model, event, (size_t)last->object);
        } else {
            model_forget_at(model, event, last->addr);
            object->is_known = true;
        }
        if (object->row != 0) {
            model_emit(model, event, object);
        }
    }
}

static inline void model_fail(struct model *model, struct event *event, struct last_free *last)
{
    unsigned domain = model_domain(event);
    unsigned slot = rows_slot(domain, event->device);
    event->id = 0;
    if (model_closes(event->kind) && last->kind == event->kind && last->cause == event->cause &&
        (event->addr == 0 || event->addr == last->addr)) {
        model_take_back(model, event, last);
    }
    if (event->id != 0) {
        const struct row *row = &model->base.rows[event->id - 1];
        domain = row->domain;
        slot = rows_slot(domain, row->device);
    }
    if (domain != 0) {
        rows_fail(&model->base, event, slot);
    }
    last->row = -1;
    last->kind = 0;
}

static inline bool model_is_of(const struct object *object, const struct event *event)
{
    unsigned context = event->pool & 0xfffU;
    return object->process == event->process_id && object->side == model_side(event) &&
           object->device == event->device &&
           (context == 0 || (!object->is_async && (object->pool & 0xfffU) == context));
}

static inline void model_reset(struct model *model, struct event *event, struct last_free *last)
{
    last->row = -1;
    for (size_t i = 0; i < model->mapping_count; i++) {
        struct mapping *mapping = &model->mappings[i];
        if (mapping->is_there && model_is_of(&model->objects[mapping->object], event)) {
            mapping->is_there = false;
            model->objects[mapping->object].maps--;
            model->objects[mapping->object].refs = 0;
            if (model->objects[mapping->object].maps == 0) {
                model_memory_ends(model, event, &model->objects[mapping->object], true);
            }
        }
    }
    for (size_t i = 0; i < model->object_count; i++) {
        struct object *object = &model->objects[i];
        if ((object->is_known || object->is_named) && model_is_of(object, event)) {
            object->is_known = false;
            object->refs = 0;
            model_memory_ends(model, event, object, true);
        }
    }
}

/* ---- the event ---- */

static inline unsigned model_number(struct model *model, uint64_t uuid, unsigned wanted)
{
    for (unsigned i = 0; i < DEVICES; i++) {
        if (model->uuids[i] == uuid) {
            return i;
        }
    }
    while (model->uuids[wanted] != 0) {
        wanted = (wanted + 1) % DEVICES;
    }
    model->uuids[wanted] = uuid;
    return wanted;
}

static inline void model_apply(struct model *model, struct event *event, struct last_free *last, bool makes_row)
{
    switch (event->kind) {
    case VARVE_KIND_DEV_ALLOC:
    case VARVE_KIND_DEV_ALLOC_ASYNC:
        model_alloc(model, event, makes_row);
        break;
    case VARVE_KIND_DEV_FREE:
    case VARVE_KIND_DEV_FREE_ASYNC:
        model_free(model, event, last);
        break;
    case VARVE_KIND_VMM_CREATE:
        model_create(model, event, makes_row);
        break;
    case VARVE_KIND_VMM_MAP:
        model_map(model, event);
        break;
    case VARVE_KIND_VMM_UNMAP:
        model_unmap(model, event, last);
        break;
    case VARVE_KIND_VMM_RELEASE:
        model_release(model, event, last);
        break;
    default:
        model_reset(model, event, last);
        break;
    }
}

static inline void model_row_event(struct model *model, struct event *event)
{
    struct last_free *last = &model->last[event->thread_id][model_side(event)];
    bool is_row = model_opens(event->kind) || model_closes(event->kind);
    bool makes_row = event->cause != VARVE_CAUSE_CU_IPC_OPEN_MEM_HANDLE &&
                     event->cause != VARVE_CAUSE_CU_MEM_IMPORT_FROM_SHAREABLE_HANDLE;
    if ((event->flags & VARVE_FLAG_FAILED) || event->kind == VARVE_KIND_DEV_OOM) {
        model_fail(model, event, last);
        return;
    }
    if (is_row) {
        last->kind = model_closes(event->kind) ? event->kind : 0;
        last->cause = event->cause;
        last->seq = event->seq;
        last->addr = event->addr;
        last->object = -1;
        last->gone_count = 0;
    }
    model_apply(model, event, last, makes_row);
    if (is_row) {
        last->device = event->device;
        last->stream = event->stream;
    }
}

static inline void model_event(struct model *model, struct event *event)
{
    unsigned ordinal = event->device;
    if (event->kind == VARVE_KIND_DEVICE) {
        unsigned number = model_number(model, event->addr, ordinal);
        model->numbers[event->process_id][ordinal] = number + 1;
        event->id = ordinal;
        event->device = (uint8_t)number;
        return;
    }
    unsigned number = model->numbers[event->process_id][ordinal];
    event->device = (uint8_t)(number != 0 ? number - 1 : ordinal);
    event->id = event->kind == VARVE_KIND_STREAM ? ordinal : event->id;
    if (event->kind == VARVE_KIND_DEV_SYNC) {
        const struct last_free *last = &model->last[event->thread_id][model_side(event)];
        if (event->cause == VARVE_CAUSE_CUDA_FREE && last->cause == event->cause) {
            event->device = (uint8_t)last->device;
            event->stream = (uint16_t)last->stream;
        }
        return;
    }
    if (model_opens(event->kind) || model_closes(event->kind) || event->kind == VARVE_KIND_VMM_MAP ||
        (event->kind == VARVE_KIND_DEV_RESET && !(event->flags & VARVE_FLAG_FAILED))) {
        model_row_event(model, event);
    }
    rows_sum_changed(&model->base, event);
}

#endif
