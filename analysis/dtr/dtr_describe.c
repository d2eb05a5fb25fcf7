/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over the schedule. A storage goes by the number of the tensor that it was made as. */
#include "analysis/dtr/dtr_print.h"

#include "analysis/base/memory_or_exit.h"

#include <stdlib.h>

struct storage_state {
    uint32_t references, used_by; /* used_by: the last operator that has it as an input, and 1 */
    bool is_pinned;
};

struct pass {
    const struct dtr_log *log;
    struct dtr_description *description;
    uint32_t *storage_of; /* by tensor */
    struct storage_state *storages;
    uint64_t pinned_bytes;
    bool frees_pinned;
};

static void note_bound(struct pass *pass, uint64_t bytes, uint32_t op)
{
    if (bytes > pass->description->bound_bytes) {
        pass->description->bound_bytes = bytes;
        pass->description->bound_op = op;
    }
}

static void enter_outputs(struct pass *pass, const struct dtr_op *op, uint64_t *bytes)
{
    const struct dtr_log *log = pass->log;
    for (uint32_t i = 0; i < op->output_count; i++) {
        uint32_t tensor = op->first_output + i;
        int32_t alias = log->aliases[tensor];
        pass->storage_of[tensor] =
            alias < 0 ? tensor : pass->storage_of[log->inputs[op->first_input + (uint32_t)alias]];
        pass->storages[pass->storage_of[tensor]].references++;
        pass->description->storages += alias < 0;
        pass->description->views += alias >= 0;
        pass->description->constant_bytes += op->is_constant ? log->sizes[tensor] : 0;
        *bytes += log->sizes[tensor];
    }
}

static void enter_op(struct pass *pass, uint32_t number)
{
    const struct dtr_log *log = pass->log;
    const struct dtr_op *op = &log->ops[number];
    uint64_t bytes = pass->pinned_bytes;
    for (uint32_t i = 0; i < op->input_count; i++) {
        uint32_t tensor = log->inputs[op->first_input + i];
        struct storage_state *storage = &pass->storages[pass->storage_of[tensor]];
        if (!storage->is_pinned && storage->used_by != number + 1) {
            bytes += log->storage_bytes[tensor];
        }
        storage->used_by = number + 1;
    }
    enter_outputs(pass, op, &bytes);
    pass->description->backward_ops += op->is_backward;
    note_bound(pass, bytes, number);
}

static void enter_event(struct pass *pass, struct dtr_event event)
{
    if (event.kind == DTR_EVENT_COMPUTE) {
        enter_op(pass, event.id);
        return;
    }
    if (event.kind == DTR_EVENT_MARK) {
        return;
    }
    struct storage_state *storage = &pass->storages[pass->storage_of[event.id]];
    if (event.kind == DTR_EVENT_PIN && !storage->is_pinned) {
        storage->is_pinned = true;
        pass->pinned_bytes += pass->log->storage_bytes[event.id];
    }
    storage->references += event.kind == DTR_EVENT_GET;
    storage->references -= event.kind == DTR_EVENT_RELEASE;
    if (storage->references == 0 && storage->is_pinned && pass->frees_pinned) {
        storage->is_pinned = false;
        pass->pinned_bytes -= pass->log->storage_bytes[event.id];
    }
}

void dtr_describe(const struct dtr_log *log, enum varve_remat_dealloc dealloc, struct dtr_description *description_out)
{
    struct pass pass = {
        .log = log,
        .description = description_out,
        .storage_of = memory_resize(NULL, log->tensor_count * sizeof(*pass.storage_of)),
        .storages = memory_resize(NULL, log->tensor_count * sizeof(*pass.storages)),
        .frees_pinned = dealloc == VARVE_REMAT_DEALLOC_BANISH,
    };
    *description_out = (struct dtr_description){.bound_op = VARVE_REMAT_NONE};
    for (uint32_t i = 0; i < log->tensor_count; i++) {
        pass.storages[i] = (struct storage_state){0};
    }
    for (size_t i = 0; i < log->event_count; i++) {
        enter_event(&pass, log->events[i]);
    }
    description_out->end_bytes = pass.pinned_bytes;
    note_bound(&pass, pass.pinned_bytes, VARVE_REMAT_NONE);
    free(pass.storage_of);
    free(pass.storages);
}
