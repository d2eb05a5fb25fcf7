/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * An allocator on the sim device whose events are kept, folded ones as what they stand for: for tests that let two
 * allocators do the same, and compare.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_KEPT_H
#define VARVE_TESTS_SUPPORT_ALLOC_KEPT_H

#include <cmocka.h>

#include "alloc/alloc.h"

#include <stdlib.h>
#include <string.h>

struct kept {
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct varve_record *events; /* but those of settings, in which the two differ */
    size_t count, capacity;
    uint64_t records, folded; /* as they came */
};

static inline void kept_take(void *context, const struct varve_record *record)
{
    struct kept *kept = context;
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    unsigned count = varve_record_unfold(record, parts);
    if (varve_record_kind(record) == VARVE_KIND_CONFIG) {
        return;
    }
    /* as the front ends' recorders ask: in the middle of a request */
    struct varve_pool_id pool;
    uint64_t stream;
    assert_int_equal(varve_alloc_resolve_record(kept->alloc, record, &stream, &pool), VARVE_OK);
    kept->records++;
    kept->folded += varve_record_is_folded(record);
    for (unsigned i = 0; i < count && kept->count < kept->capacity; i++) {
        kept->events[kept->count++] = parts[i];
    }
}

/* `options` say all but the device. The recorder is not set, unless they name `kept->recorder`. */
static inline void kept_open(struct kept *kept, struct varve_alloc_options *options, size_t capacity, bool folds)
{
    struct varve_sim_options sim = {.index = 3};
    struct varve_message message = {""};
    *kept = (struct kept){.events = calloc(capacity, sizeof(*kept->events)), .capacity = capacity};
    assert_non_null(kept->events);
    kept->recorder = (struct varve_alloc_recorder){.record = kept_take, .context = kept, .folds = folds};
    assert_int_equal(varve_sim_open(&sim, &kept->device, &message), VARVE_OK);
    options->device = kept->device;
    assert_int_equal(varve_alloc_open(options, &kept->alloc, &message), VARVE_OK);
}

static inline void kept_close(struct kept *kept)
{
    struct varve_message message = {""};
    if (varve_alloc_check(kept->alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    varve_alloc_close(kept->alloc);
    kept->device->ops->close(kept->device);
    free(kept->events);
}

#endif
