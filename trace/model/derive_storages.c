/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages and views of the storage layer. Their process numbers them, and never gives a number twice; rows are found
 * by it. What a storage lies in is the block that is at its address when it is created. A fork child knows its parent's
 * storages by their numbers, too: what it does with those is its parent's, and not followed.
 */
#include "trace/model/derive.h"

#include "base/hash_index.h"
#include "base/range_set.h"
#include "base/error.h"
#include "trace/model/model_event.h"
#include "trace/model/layout_state.h"
#include "trace/model/allocation_scratch.h"
#include "trace/model/model_state.h"
#include "trace/record.h"

#include <assert.h>

#define DTYPE_BITS 8

/* ---- rows ---- */

static uint64_t derive_storages_row_add(struct derive *derive)
{
    struct derive_storages *storages = &derive->storages;
    uint64_t id = storages->released;
    if (id != 0) {
        storages->released = derive_storage_row(derive, id)->addr;
        return id;
    }
    struct scratch_row *line;
    scratch_add(&storages->lines, &line);
    scratch_add(&storages->lines, &line);
    return ++storages->count;
}

/* Nobody asks for it any more, if rows are given again: it is gone, and so are its views, which name it. */
static void row_forget(struct derive *derive, uint64_t id)
{
    struct derive_storages *storages = &derive->storages;
    struct scratch_storage *row = derive_storage_row(derive, id);
    if (storages->forgets_from != 0 && id >= storages->forgets_from && row->destroy_seq != 0 && row->views == 0) {
        row->addr = storages->released;
        storages->released = id;
    }
}

/* NULL: unknown, or gone. */
static struct scratch_storage *row_find(const struct derive_step *step, uint64_t number)
{
    uint64_t id = index_find(&step->process->storages, number);
    return id != 0 ? derive_storage_row(step->derive, id) : NULL;
}

/* ---- events ---- */

static uint64_t element_bytes(unsigned dtype)
{
#define ELEMENT_ROW(code, NAME, name, bytes) [code] = (bytes),
    static const uint8_t sizes[] = {VARVE_ELEMENT_LIST(ELEMENT_ROW)};
#undef ELEMENT_ROW
    return dtype < sizeof(sizes) ? sizes[dtype] : 0;
}

/* The allocation whose block is at this address now; 0: none. */
static uint64_t allocation_at(const struct derive_step *step, unsigned device, uint64_t addr)
{
    const struct derive_device *allocator = step->process->devices != NULL ? step->process->devices[device] : NULL;
    const struct range *range = allocator != NULL ? ranges_at(&allocator->layout->ranges, addr) : NULL;
    uint64_t block = range != NULL ? allocator->layout->blocks[range->id - 1].row : 0;
    return block != 0 ? derive_block_row(step->derive, block)->id : 0;
}

static struct scratch_storage *storage_open(const struct derive_step *step, enum storage_kind kind)
{
    const struct event *event = step->event;
    uint64_t id = derive_storages_row_add(step->derive);
    struct scratch_storage *row = derive_storage_row(step->derive, id);
    *row = (struct scratch_storage){
        .number = event->id,
        .kind = kind,
        .addr = event->addr,
        .size = event->size,
        .create_seq = event->seq,
        .create_ns = event->ts_ns,
        .callsite = event->callsite,
        .thread_id = event->thread_id,
    };
    index_insert(&step->process->storages, event->id, id);
    return row;
}

static void storage_create(const struct derive_step *step)
{
    const struct event *event = step->event;
    struct scratch_storage *row = storage_open(step, STORAGE_OWN);
    row->dtype = event->arg & ((1U << DTYPE_BITS) - 1);
    row->elements = event->requested;
    row->is_of_device = event->arg >> DTYPE_BITS != 0;
    if (row->is_of_device) {
        row->device = event->device;
        row->allocation_id = allocation_at(step, event->device, event->addr);
    }
}

static void view_create(const struct derive_step *step)
{
    uint64_t base_id = index_find(&step->process->storages, step->event->arg);
    struct scratch_storage *row = storage_open(step, STORAGE_VIEW);
    struct scratch_storage *base = base_id != 0 ? derive_storage_row(step->derive, base_id) : NULL;
    if (base != NULL && base->kind == STORAGE_VIEW) { /* views of views are views of their base */
        base_id = base->base;
        base = base_id != 0 ? derive_storage_row(step->derive, base_id) : NULL;
    }
    if (base == NULL) {
        return;
    }
    base->views++;
    row->base = base_id;
    row->dtype = base->dtype;
    row->elements = element_bytes(row->dtype) != 0 ? row->size / element_bytes(row->dtype) : 0;
    row->allocation_id = base->allocation_id;
    row->is_of_device = base->is_of_device;
    row->device = base->device;
}

static void storage_destroy(const struct derive_step *step)
{
    const struct event *event = step->event;
    uint64_t id = index_remove(&step->process->storages, event->id);
    struct scratch_storage *row = id != 0 ? derive_storage_row(step->derive, id) : NULL;
    if (row == NULL) {
        return;
    }
    row->destroy_seq = event->seq;
    row->destroy_ns = event->ts_ns;
    if (row->base != 0) {
        uint64_t base = row->base;
        derive_storage_row(step->derive, base)->views--;
        row_forget(step->derive, base);
    }
    row_forget(step->derive, id);
}

static void use_one(const struct derive_step *step, struct scratch_storage *row, bool is_write)
{
    uint32_t *count = is_write ? &row->writes : &row->reads;
    *count += *count < UINT32_MAX;
    row->last_use_ns = step->event->ts_ns;
    row->leak_seq = 0; /* somebody could reach it */
}

/* Elements came to it, or from it; what happens to a view happens to its base. */
static void derive_storages_use(const struct derive_step *step, uint64_t number, bool is_write)
{
    struct scratch_storage *row = row_find(step, number);

    struct scratch_storage *base = row != NULL && row->base != 0 ? derive_storage_row(step->derive, row->base) : NULL;
    if (row != NULL) {
        use_one(step, row, is_write);
    }
    if (base != NULL && base->destroy_seq == 0) { /* what is gone stays as it is */
        use_one(step, base, is_write);
    }
}

static void leak(const struct derive_step *step)
{
    const struct event *event = step->event;
    struct scratch_storage *row = row_find(step, event->id);
    if (row != NULL) {
        row->leak_seq = event->seq;
        row->leak_cause = event->cause;
        row->leak_references = event->requested;
    }
}

static void become(const struct derive_step *step, enum storage_kind kind)
{
    struct scratch_storage *row = row_find(step, step->event->id);
    if (row != NULL && row->kind != STORAGE_VIEW) {
        row->kind = kind;
    }
}

static bool is_new(const struct derive_step *step)
{
    return step->event->id != 0 && index_find(&step->process->storages, step->event->id) == 0;
}

int derive_storage(const struct derive_step *step, struct varve_message *message)
{
    const struct event *event = step->event;
    int error = derive_storages_reserve(step->derive, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (!index_reserve(&step->process->storages)) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to follow a storage");
    }
    if (event->kind == VARVE_KIND_STORAGE_CREATE && is_new(step)) {
        storage_create(step);
    } else if (event->kind == VARVE_KIND_VIEW && is_new(step)) {
        view_create(step);
    } else if (event->kind == VARVE_KIND_STORAGE_DESTROY) {
        storage_destroy(step);
    } else if (event->kind == VARVE_KIND_SHARE || event->kind == VARVE_KIND_MAP) {
        become(step, event->kind == VARVE_KIND_SHARE ? STORAGE_SHARED : STORAGE_MAPPED);
    } else if (event->kind == VARVE_KIND_COPY || event->kind == VARVE_KIND_CAST || event->kind == VARVE_KIND_TRANSFER) {
        derive_storages_use(step, event->id, true);
        derive_storages_use(step, event->requested, false);
    } else if (event->kind == VARVE_KIND_LEAK) {
        leak(step);
    }
    return VARVE_OK;
}

bool derive_storage_is_out_of_order(const struct derive_process *process, const struct event *event)
{
    uint64_t number = event->kind == VARVE_KIND_STORAGE_DESTROY ? event->id
                      : event->kind == VARVE_KIND_VIEW          ? event->arg
                                                                : 0;
    return number != 0 && index_find(&process->storages, number) == 0;
}

/* ---- the walker ---- */

/* A row that the index of its process says is alive. */
static bool row_is_sound(const struct derive *derive, unsigned process_id, uint64_t number, uint64_t id)
{
    if (id > derive->storages.count) {
        return false;
    }
    const struct scratch_storage *row = derive_storage_row(derive, id);
    const struct scratch_storage *base =
        row->base != 0 && row->base <= derive->storages.count ? derive_storage_row(derive, row->base) : NULL;
    return row->number == number && row->destroy_seq == 0 && derive->threads[row->thread_id].process_id == process_id &&
           (row->base == 0) == (base == NULL) &&
           (base == NULL || (base->views > 0 && row->kind == STORAGE_VIEW && base->base == 0));
}

int derive_storages_check(const struct derive *derive, unsigned process_id, struct varve_message *message)
{
    const struct index *index = &derive->processes[process_id]->storages;
    if (!index_check(index)) {
        return varve_message_set(message, VARVE_ERROR_CORRUPT, "index of storages of process %u", process_id);
    }
    uint64_t views = 0, counted = 0;
    for (uint64_t i = 0; i < index_slots(index); i++) {
        const struct index_slot *slot = &index->slots[i];
        if (slot->number == 0) {
            continue;
        }
        if (!row_is_sound(derive, process_id, slot->key, slot->number)) {
            return varve_message_set(message, VARVE_ERROR_CORRUPT, "process %u: storage %llu and its row differ",
                                     process_id, (unsigned long long)slot->key);
        }
        views += derive_storage_row(derive, slot->number)->base != 0;
        counted += derive_storage_row(derive, slot->number)->views;
    }
    /* A base that went before a view of it, which no program can do, is in no index. */
    return counted <= views
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_CORRUPT, "process %u: views of storages", process_id);
}
