/* SPDX-License-Identifier: Apache-2.0 */
/* C only: test code */
/*
 * A naive model of the caching allocator, written from its specification alone: unordered lists, searched
 * from end to end at every step, and a device that is a counter of bytes. It shares no code with alloc/, only
 * the types of its public header, and answers every request with the address, the events, the statistics and
 * the snapshot that the real one must give. Tests and the fuzzer run both side by side
 * (pair.h).
 *
 * Device addresses come from the caller, so that both see the same ones. A model that runs out of memory or
 * finds itself inconsistent aborts.
 */
#ifndef VARVE_TESTS_SUPPORT_ALLOC_MODEL_H
#define VARVE_TESTS_SUPPORT_ALLOC_MODEL_H

#include "alloc/alloc.h"

struct alloc_model_options {
    struct varve_alloc_config config;
    uint64_t memory_limit; /* 0: by config.memory_fraction */
    uint64_t capacity, total;
    /* The address of the next segment, or reservation of addresses. */
    uint64_t (*place)(void *context, uint64_t bytes, uint64_t stream, bool is_reservation);
    /* The device has these addresses back. */
    void (*gone)(void *context, uint64_t addr, uint64_t bytes);
    /* A pool has nothing: blocks may be freed now; true if some were. NULL: nobody to ask. */
    bool (*miss)(void *context);
    void *context;
};

/* What is compared of a record. */
struct alloc_model_event {
    unsigned kind; /* enum varve_kind */
    uint64_t addr, size, requested;
};

struct alloc_model;

struct alloc_model *alloc_model_open(const struct alloc_model_options *options);
void alloc_model_close(struct alloc_model *model);

int alloc_model_alloc(struct alloc_model *model, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
int alloc_model_free(struct alloc_model *model, uint64_t addr);
int alloc_model_record_stream(struct alloc_model *model, uint64_t addr, uint64_t stream);
void alloc_model_empty_cache(struct alloc_model *model);
int alloc_model_set_fraction(struct alloc_model *model, double fraction);
void alloc_model_set_limit(struct alloc_model *model, uint64_t bytes);

int alloc_model_begin(struct alloc_model *model, struct varve_pool_id id,
                      bool (*filter)(void *context, uint64_t stream), void *context);
int alloc_model_end(struct alloc_model *model, struct varve_pool_id id);
int alloc_model_release(struct alloc_model *model, struct varve_pool_id id);
int alloc_model_set_no_split(struct alloc_model *model, struct varve_pool_id id);
int alloc_model_set_use_on_oom(struct alloc_model *model, struct varve_pool_id id);
/// A pool of that id exists, and requests are routed to it at the moment.
bool alloc_model_is_pool(const struct alloc_model *model, struct varve_pool_id id);
bool alloc_model_is_capturing(const struct alloc_model *model, struct varve_pool_id id);
int64_t alloc_model_references(const struct alloc_model *model, struct varve_pool_id id);

/// As varve_sim_fail; false if too many rules wait already.
bool alloc_model_fail(struct alloc_model *model, enum varve_device_call call, uint64_t nth, uint64_t count,
                      int error);
/// Everything recorded on `stream` so far completes.
void alloc_model_stream_complete(struct alloc_model *model, uint64_t stream);

/// Events since the last alloc_model_events_clear, in order; they live until then.
const struct alloc_model_event *alloc_model_events(const struct alloc_model *model, size_t *count_out);
void alloc_model_events_clear(struct alloc_model *model);

const struct varve_alloc_stats *alloc_model_stats(const struct alloc_model *model);
void alloc_model_reset_accumulated(struct alloc_model *model);
void alloc_model_reset_peak(struct alloc_model *model);
/// Segment and allocation numbers are 0: the model has none. Owner: the caller, by alloc_model_snapshot_free.
void alloc_model_snapshot(const struct alloc_model *model, struct varve_alloc_snapshot *snapshot_out);
void alloc_model_snapshot_free(struct varve_alloc_snapshot *snapshot);
/// Room for one item more behind `count`.
void *alloc_model_grow(void *items, size_t count, size_t *capacity, size_t item_size);
/// Abort unless the model's own sums agree: lists, statistics, device.
void alloc_model_check(const struct alloc_model *model);

#endif
