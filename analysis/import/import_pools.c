/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/import/import.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/history/infer_ranges.h"
#include "analysis/replay/replay.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS 65536                    /* of small and large pools by turns */
#define EVENTS_PLAYED UINT64_C(10000000) /* some seconds */

struct device_pools {
    const struct replay_device *inferred; /* NULL: all is of the allocator's own */
    struct replay_device own;             /* that, if the history was not followed */
    struct varve_pool_id *ids;            /* 0: the allocator's own */
    size_t count;
    uint16_t *of_event;  /* index into `ids` */
    uint8_t *is_written; /* numbers that the database has */
};

struct import_pools {
    const struct history *history;
    struct replay_inference *followed; /* NULL: it does not come out */
    struct device_pools devices[];     /* of the history */
};

/* An id that is new goes to the end. */
static size_t index_of(struct device_pools *device, struct varve_pool_id id)
{
    size_t index = 0;
    while (index < device->count && !replay_same_pool(device->ids[index], id)) {
        index++;
    }
    if (index == device->count) {
        device->ids = memory_resize(device->ids, (device->count + 1) * sizeof(device->ids[0]));
        device->ids[device->count++] = id;
    }
    return index;
}

/* Blocks of the start, by address: their pools. */
static void put_start(struct device_pools *device, struct map *live)
{
    const struct varve_alloc_snapshot *start = &device->inferred->start;
    for (size_t i = 0; i < start->segment_count; i++) {
        const struct varve_segment_info *segment = &start->segments[i];
        size_t index = index_of(device, segment->pool);
        for (size_t j = 0; j < segment->block_count; j++) {
            map_put(live, start->blocks[segment->first_block + j].addr, index);
        }
    }
}

/* A free is in the pool that its block was allocated from. */
static void import_pools_fill_events(struct device_pools *device, const struct history_device *history)
{
    const struct replay_pools *inferred = &device->inferred->pools;
    struct map live = {0};
    device->of_event = memory_resize(NULL, (history->event_count + 1) * sizeof(*device->of_event));
    put_start(device, &live);
    for (size_t i = 0; i < history->event_count; i++) {
        const struct history_event *event = &history->events[i];
        size_t index = index_of(device, inferred->ids[inferred->of_event[i]]);
        if (event->action == HISTORY_ALLOC) {
            map_put(&live, event->addr, index);
        } else if (event->action == HISTORY_FREE_REQUESTED || event->action == HISTORY_FREE_COMPLETED) {
            uint64_t pool = map_find(&live, event->addr);
            index = pool != MAP_NONE ? (size_t)pool : 0;
        }
        device->of_event[i] = (uint16_t)(index < NUMBERS / 2 ? index : 0);
    }
    map_free(&live);
}

static void load_device(struct import_pools *pools, unsigned number)
{
    struct device_pools *device = &pools->devices[number];
    struct varve_message ignored = {""};
    if (pools->followed != NULL) {
        device->inferred = replay_inference_device(pools->followed, number);
    }
    /* a state behind the first events is not the one before them */
    if (device->inferred != NULL && device->inferred->hints.first > 0) {
        device->inferred = NULL;
    }
    if (device->inferred == NULL && replay_has_pools(&pools->history->devices[number]) &&
        replay_infer_device(pools->history, number, NULL, 0, false, &device->own, &ignored) == VARVE_OK) {
        device->inferred = &device->own;
    }
    if (device->inferred == NULL || device->inferred->pools.of_event == NULL) {
        device->inferred = NULL;
        return;
    }
    index_of(device, (struct varve_pool_id){0, 0});
    import_pools_fill_events(device, &pools->history->devices[number]);
    device->is_written = memory_resize(NULL, NUMBERS);
    memset(device->is_written, 0, NUMBERS);
}

/* Pools that all ended before the history did are looked for on several streams only: each import would be a replay. */
static bool may_have_pools(const struct history *history)
{
    bool may_have = history->stream_count > 1;
    for (size_t i = 0; i < history->device_count && !may_have; i++) {
        may_have = replay_has_pools(&history->devices[i]);
    }
    return may_have;
}

struct import_pools *import_pools_new(const struct history *history, struct progress *progress)
{
    size_t bytes = sizeof(struct import_pools) + history->device_count * sizeof(struct device_pools);
    struct import_pools *pools = memset(memory_resize(NULL, bytes), 0, bytes);
    struct replay_options options = {.follow = true, .events_max = EVENTS_PLAYED, .progress = progress};
    struct replay_result result;
    struct varve_message ignored = {""};
    pools->history = history;
    if (!may_have_pools(history)) {
        return pools;
    }
    if (replay_infer(history, &options, &pools->followed, &result, &ignored) == VARVE_OK && result.mismatches > 0) {
        replay_inference_free(pools->followed);
        pools->followed = NULL;
    }
    for (unsigned i = 0; i < history->device_count; i++) {
        load_device(pools, i);
    }
    return pools;
}

void import_pools_free(struct import_pools *pools)
{
    for (size_t i = 0; i < pools->history->device_count; i++) {
        replay_device_clear(&pools->devices[i].own);
        free(pools->devices[i].ids);
        free(pools->devices[i].of_event);
        free(pools->devices[i].is_written);
    }
    replay_inference_free(pools->followed);
    free(pools);
}

const struct varve_alloc_snapshot *import_pools_start(const struct import_pools *pools, unsigned device)
{
    const struct replay_device *inferred = pools->devices[device].inferred;
    return inferred != NULL ? &inferred->start : NULL;
}

uint16_t import_pools_of_event(const struct import_pools *pools, unsigned device, size_t event, bool is_small)
{
    const uint16_t *of_event = pools->devices[device].of_event;
    return (uint16_t)((of_event != NULL ? 2 * of_event[event] : 0) + (is_small ? 1 : 0));
}

uint16_t import_pools_of_segment(const struct import_pools *pools, unsigned device,
                                 const struct varve_segment_info *segment)
{
    const struct device_pools *of = &pools->devices[device];
    size_t index = 0;
    while (index < of->count && !replay_same_pool(of->ids[index], segment->pool)) {
        index++;
    }
    return (uint16_t)((index < of->count && index < NUMBERS / 2 ? 2 * index : 0) + (segment->is_small ? 1 : 0));
}

void import_pools_write(struct import_pools *pools, struct varve_writer *writer, unsigned device, uint16_t number)
{
    struct device_pools *of = &pools->devices[device];
    if (of->is_written != NULL && of->is_written[number] == 0) {
        of->is_written[number] = 1;
        varve_writer_pool(writer, device, number, of->ids[number / 2U].capture, of->ids[number / 2U].user,
                          number % 2U != 0);
    }
}
