/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load by the events, as in live_demand.c: an alloc is live until its free is requested. Of a history that begins
 * late, blocks that are freed and were never allocated, or are in use at the end and were never allocated, live from
 * the start.
 */
#include "analysis/whatif/capacity_search.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "base/error.h"
#include "trace/writer.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT64_MAX /* address of what failed, less the event's number */

/* ---- call sites ---- */

static enum varve_frame_rank capacity_search_rank_of(const struct history *history, const struct history_frame *frame,
                                                     const struct varve_plumbing *plumbing)
{
    const char *file = history->texts[frame->file];
    struct varve_writer_symbol symbol = {
        .function = history->texts[frame->function],
        .file = file,
        .line = frame->line,
        .is_python = history_file_is_python(file),
    };
    return varve_plumbing_rank(plumbing, &symbol);
}

static struct capacity_place capacity_search_place_of(const struct history *history, const struct history_frame *frame)
{
    return (struct capacity_place){
        .function = history->texts[frame->function],
        .file = history->texts[frame->file],
        .line = frame->line,
    };
}

/* How much of a path names the package that it lies in: up to …/site-packages/NAME/; 0: in none. */
static size_t package_length(const char *file)
{
    static const char folder[] = "-packages/";
    const char *at = strstr(file, folder);
    const char *end = at != NULL ? strchr(at + sizeof(folder) - 1, '/') : NULL;
    return end != NULL ? (size_t)(end - file) + 1 : 0;
}

static bool same_package(const struct history *history, const struct history_frame *a, const struct history_frame *b)
{
    const char *file = history->texts[a->file];
    size_t length = package_length(file);
    return length > 0 && strncmp(file, history->texts[b->file], length) == 0;
}

/* The user's line is the innermost frame of the largest rank, as everywhere (varve_plumbing_rank). Of libraries in
 * between the innermost frame stands that does not lie in the package of the allocating one, which all
 * call: else that one. */
static void name_site(const struct history *history, const struct history_stack *stack,
                      const struct varve_plumbing *plumbing, struct capacity_site *site)
{
    const struct history_frame *frames = &history->frames[stack->first_frame];
    const struct history_frame *user = NULL, *innermost = NULL, *caller = NULL;
    enum varve_frame_rank user_rank = VARVE_FRAME_PLUMBING;
    for (uint32_t i = 0; i < stack->frame_count; i++) {
        enum varve_frame_rank rank = capacity_search_rank_of(history, &frames[i], plumbing);
        if (user == NULL || rank > user_rank) {
            user = &frames[i];
            user_rank = rank;
        }
        if (rank != VARVE_FRAME_PLUMBING && innermost == NULL) {
            innermost = &frames[i];
        } else if (rank != VARVE_FRAME_PLUMBING && caller == NULL && !same_package(history, innermost, &frames[i])) {
            caller = &frames[i];
        }
    }
    if (user != NULL) {
        site->user = capacity_search_place_of(history, user);
    }
    if (innermost != NULL && innermost != user) {
        site->inner = capacity_search_place_of(history, caller != NULL && caller < user ? caller : innermost);
    }
}

/* Equal stacks have one number. Blocks without a call site are distinguished by their size. */
static uint64_t site_key(const struct history *history, uint32_t stack, uint64_t size)
{
    bool is_named = stack < history->stack_count && history->stacks[stack].frame_count > 0;
    return is_named ? stack : size | UINT64_C(1) << 63;
}

/* ---- the load ---- */

struct block {
    uint64_t addr, size;
    uint32_t stack;
};

struct blocks {
    struct block *items;
    size_t count, capacity;
};

static void blocks_add(struct blocks *blocks, uint64_t addr, uint64_t size, uint32_t stack)
{
    *MEMORY_ADD(blocks->items, blocks->count, blocks->capacity) = (struct block){addr, size, stack};
}

/* Blocks that were live when the history began. */
static struct blocks starting_blocks(const struct history_device *device)
{
    struct blocks blocks = {0};
    struct map seen = {0}; /* addresses whose first event was met */
    for (size_t i = 0; i < device->event_count; i++) {
        const struct history_event *event = &device->events[i];
        bool is_block = event->action == HISTORY_ALLOC || event->action == HISTORY_FREE_REQUESTED ||
                        event->action == HISTORY_FREE_COMPLETED;
        if (is_block && map_find(&seen, event->addr) == MAP_NONE) {
            map_put(&seen, event->addr, 0);
            if (event->action == HISTORY_FREE_REQUESTED) {
                blocks_add(&blocks, event->addr, event->size, event->stack);
            }
        }
    }
    for (size_t i = 0; i < device->block_count; i++) {
        const struct history_block *block = &device->blocks[i];
        if (block->state == HISTORY_ACTIVE_ALLOCATED && map_find(&seen, block->addr) == MAP_NONE) {
            blocks_add(&blocks, block->addr, block->requested, block->stack);
        }
    }
    map_free(&seen);
    return blocks;
}

/* What is live after event number `end` - 1; the most bytes so far, and after how many events they are live. */
struct sweep {
    struct map live; /* address → number in blocks */
    struct blocks blocks;
    uint64_t bytes, most;
    size_t most_event;
};

static void sweep_add(struct sweep *sweep, uint64_t addr, uint64_t size, uint32_t stack, size_t event)
{
    map_put(&sweep->live, addr, sweep->blocks.count);
    blocks_add(&sweep->blocks, addr, size, stack);
    sweep->bytes += size;
    if (sweep->bytes > sweep->most) {
        sweep->most = sweep->bytes;
        sweep->most_event = event;
    }
}

static void sweep_device(const struct history_device *device, size_t end, struct sweep *sweep)
{
    struct blocks start = starting_blocks(device);
    *sweep = (struct sweep){.bytes = 0};
    for (size_t i = 0; i < start.count; i++) {
        sweep_add(sweep, start.items[i].addr, start.items[i].size, start.items[i].stack, 0);
    }
    free(start.items);
    for (size_t i = 0; i < end; i++) {
        const struct history_event *event = &device->events[i];
        if (event->action == HISTORY_ALLOC) {
            sweep_add(sweep, event->addr, event->size, event->stack, i + 1);
        } else if (event->action == HISTORY_OOM) { /* what it asked for would have been live then */
            sweep_add(sweep, NOWHERE - i, event->size, event->stack, i + 1);
            if (i + 1 < end && map_remove(&sweep->live, NOWHERE - i) != MAP_NONE) {
                sweep->bytes -= event->size;
            }
        } else if (event->action == HISTORY_FREE_REQUESTED) {
            uint64_t number = map_remove(&sweep->live, event->addr);
            sweep->bytes -= number != MAP_NONE ? sweep->blocks.items[number].size : 0;
        }
    }
}

static void sweep_free(struct sweep *sweep)
{
    map_free(&sweep->live);
    free(sweep->blocks.items);
}

static int compare_sites(const void *left_untyped, const void *right_untyped)
{
    const struct capacity_site *left = left_untyped, *right = right_untyped;
    if (left->bytes != right->bytes) {
        return left->bytes > right->bytes ? -1 : 1;
    }
    return left->key < right->key ? -1 : left->key > right->key;
}

/* What is live at the moment of the load, by call site. */
static void add_sites(const struct history *history, const struct varve_plumbing *plumbing, struct capacity_load *load)
{
    struct sweep sweep;
    sweep_device(&history->devices[load->device], load->event, &sweep);
    size_t capacity = 0;
    struct map numbers = {0}; /* key → number of the site */
    for (size_t i = 0; i < sweep.blocks.count; i++) {
        const struct block *block = &sweep.blocks.items[i];
        uint64_t live = map_find(&sweep.live, block->addr);
        uint64_t key = site_key(history, block->stack, block->size);
        uint64_t number = map_find(&numbers, key);
        if (live != i) {
            continue;
        }
        if (number == MAP_NONE) {
            load->sites = memory_grow(load->sites, &capacity, load->site_count, sizeof(*load->sites));
            load->sites[load->site_count] = (struct capacity_site){.size = block->size, .key = key};
            if (block->stack < history->stack_count) {
                name_site(history, &history->stacks[block->stack], plumbing, &load->sites[load->site_count]);
            }
            load->has_callsites |= load->sites[load->site_count].user.file != NULL;
            number = load->site_count++;
            map_put(&numbers, key, number);
        }
        load->sites[number].bytes += block->size;
        load->sites[number].blocks++;
    }
    sweep_free(&sweep);
    map_free(&numbers);
    if (load->site_count > 0) {
        qsort(load->sites, load->site_count, sizeof(*load->sites), compare_sites);
    }
}

int capacity_load_find(const struct history *history, struct capacity_load *out)
{
    struct varve_plumbing *plumbing;
    int error = varve_plumbing_open(&plumbing);
    *out = (struct capacity_load){.bytes = 0};
    if (error != VARVE_OK) {
        return error;
    }
    struct sweep sweep;
    for (size_t i = 0; i < history->device_count; i++) {
        sweep_device(&history->devices[i], history->devices[i].event_count, &sweep);
        if (sweep.most > out->bytes) {
            out->bytes = sweep.most;
            out->event = sweep.most_event;
            out->device = (unsigned)i;
        }
        sweep_free(&sweep);
    }
    if (out->bytes > 0) {
        add_sites(history, plumbing, out);
    }
    varve_plumbing_close(plumbing);
    return VARVE_OK;
}

void capacity_load_free(struct capacity_load *load)
{
    free(load->sites);
    *load = (struct capacity_load){.sites = NULL};
}

/* ---- what would have to go ---- */

struct gone {
    const struct history *history;
    struct map keys; /* of sites */
};

static bool capacity_search_is_gone(void *context, const struct history_event *event)
{
    const struct gone *gone = context;
    return map_find(&gone->keys, site_key(gone->history, event->stack, event->size)) != MAP_NONE;
}

static bool runs_without(struct whatif *whatif, const struct history *history, const struct capacity_load *load,
                         size_t count, const struct whatif_setting *setting)
{
    struct gone gone = {.history = history};
    struct whatif_setting alone = *setting;
    for (size_t i = 0; i < count; i++) {
        map_put(&gone.keys, load->sites[i].key, 0);
    }
    alone.stop_at_oom = true;
    alone.skip = capacity_search_is_gone;
    alone.skip_context = &gone;
    struct whatif_outcome outcome;
    whatif_play(whatif, &alone, 1, 1, &outcome, NULL);
    map_free(&gone.keys);
    return outcome.error == VARVE_OK && outcome.result.ooms == 0;
}

/* Less of them is live elsewhere, so that a few more than the sum says may be needed: first one more, then
 * twice as many more. */
size_t capacity_shed(struct whatif *whatif, const struct history *history, const struct capacity_load *load,
                     const struct whatif_setting *setting, uint64_t bytes)
{
    uint64_t sum = 0;
    size_t count = 0;
    while (count < load->site_count && (sum < bytes || count == 0)) {
        sum += load->sites[count++].bytes;
    }
    size_t fails = count - 1;
    while (count > 0 && !runs_without(whatif, history, load, count, setting)) {
        size_t step = 2 * (count - fails);
        if (count == load->site_count) {
            return 0;
        }
        fails = count;
        count = load->site_count - count < step ? load->site_count : count + step;
    }
    while (count > fails + 1) { /* the fewest that do */
        size_t middle = fails + (count - fails) / 2;
        *(runs_without(whatif, history, load, middle, setting) ? &count : &fails) = middle;
    }
    return count;
}
