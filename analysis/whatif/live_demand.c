/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over the events. A block is live until its free is requested, also where other streams hold it back longer;
 * a request that failed was never live, but would have needed its bytes at that moment.
 */
#include "analysis/whatif/live_demand.h"

#include "analysis/base/key_map.h"
#include "analysis/history/infer_device.h"
#include "base/error.h"

#include <stdlib.h>

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What was live before the first event: its bytes, and its blocks in `sizes`. */
static int live_demand_add_start(const struct history *history, const struct history_device *device, struct map *sizes,
                                 uint64_t *live_out, struct varve_message *message)
{
    uint64_t reserved = 0;
    int error = replay_reserved_at_start(device, &reserved, message);
    *live_out = 0;
    if (error != VARVE_OK || reserved == 0) {
        return error;
    }
    struct varve_alloc_snapshot start;
    error = replay_start_of(history, device, &start, message);
    for (size_t i = 0; i < start.block_count && error == VARVE_OK; i++) {
        if (start.blocks[i].state == VARVE_BLOCK_ACTIVE_ALLOCATED) {
            map_put(sizes, start.blocks[i].addr, start.blocks[i].requested);
            *live_out += start.blocks[i].requested;
        }
    }
    free(start.segments);
    free(start.blocks);
    return error;
}

static void live_demand_add_events(const struct history_device *device, struct map *sizes, uint64_t live,
                                   struct whatif_demand *demand)
{
    uint64_t load = live, load_all = live;
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        if (event->action == HISTORY_ALLOC) {
            map_put(sizes, event->addr, event->size);
            live += event->size;
            load = larger(load, live);
            demand->served++;
            if (event->size > demand->largest) {
                demand->largest = event->size;
                demand->largest_event = i;
            }
        } else if (event->action == HISTORY_FREE_REQUESTED) {
            uint64_t size = map_remove(sizes, event->addr);
            live -= size != MAP_NONE ? size : 0;
        } else if (event->action == HISTORY_OOM) {
            load_all = larger(load_all, live + event->size);
            demand->largest_all = larger(demand->largest_all, event->size);
            demand->failed++;
        }
    }
    load_all = larger(load_all, load);
    demand->load += load;
    demand->load_all += load_all;
    demand->device_load = larger(demand->device_load, load);
    demand->device_load_all = larger(demand->device_load_all, load_all);
    demand->largest_all = larger(demand->largest_all, demand->largest);
    demand->events += device->event_count;
}

int whatif_demand_load(const struct history *history, struct whatif_demand *demand_out, struct varve_message *message)
{
    *demand_out = (struct whatif_demand){0};
    int error = VARVE_OK;
    for (size_t i = 0; i < history->device_count && error == VARVE_OK; i++) {
        struct map sizes = {0};
        uint64_t live;
        error = live_demand_add_start(history, &history->devices[i], &sizes, &live, message);
        if (error == VARVE_OK) {
            live_demand_add_events(&history->devices[i], &sizes, live, demand_out);
        }
        map_free(&sizes);
    }
    return error;
}
