/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load by the events, as in demand.c: an alloc is live until its free is requested. Of a history that begins late, blocks that are
 * freed and were never allocated, or are in use at the end and were never allocated, live from the start.
 */
#include "analysis/whatif/capacity.h"

#include "analysis/base/map.h"
#include "analysis/base/memory.h"
#include "trace/trace.h"

#include <stdlib.h>
#include <string.h>

#define SHED_TRIES 8
#define NOWHERE (UINT64_MAX - 1) /* address of what failed, less the event's number */

/* ---- the user's lines ---- */

struct line_table {
    const struct history *history;
    uint64_t *keys;                 /* of each stack */
    const struct history_frame **frames; /* the user's line of each stack; NULL: none */
};

static bool is_python(const char *file)
{
    size_t length = strlen(file);

    return length > 3 && strcmp(file + length - 3, ".py") == 0;
}

/* The innermost frame of the largest rank, as everywhere (varve_plumbing_rank). */
static const struct history_frame *user_frame(const struct history *history, const struct history_stack *stack,
                                              const struct varve_plumbing *plumbing)
{
    const struct history_frame *best = NULL;
    enum varve_frame_rank best_rank = VARVE_FRAME_PLUMBING;

    for (uint32_t i = stack->frame_count; i-- > 0;) {
        const struct history_frame *frame = &history->frames[stack->first_frame + i];
        const char *file = history->texts[frame->file];
        struct varve_writer_symbol symbol = {
            .function = history->texts[frame->function],
            .file = file,
            .line = frame->line,
            .is_python = is_python(file),
        };
        enum varve_frame_rank rank = varve_plumbing_rank(plumbing, &symbol);

        if (best == NULL || rank >= best_rank) {
            best = frame;
            best_rank = rank;
        }
    }
    return best;
}

static int line_table_make(const struct history *history, struct line_table *table)
{
    struct varve_plumbing *plumbing;
    int error = varve_plumbing_open(&plumbing);

    if (error != VARVE_OK) {
        return error;
    }
    *table = (struct line_table){.history = history};
    table->keys = memory_resize(NULL, (history->stack_count + 1) * sizeof(*table->keys));
    table->frames = memory_resize(NULL, (history->stack_count + 1) * sizeof(*table->frames));
    for (size_t i = 0; i < history->stack_count; i++) {
        const struct history_frame *frame = user_frame(history, &history->stacks[i], plumbing);
        uint32_t place[3] = {0};

        table->frames[i] = frame;
        if (frame != NULL) {
            place[0] = frame->function;
            place[1] = frame->file;
            place[2] = frame->line;
        }
        table->keys[i] = map_hash(place, sizeof(place));
    }
    varve_plumbing_close(plumbing);
    return VARVE_OK;
}

static void line_table_free(struct line_table *table)
{
    free(table->keys);
    free(table->frames);
}

/* Blocks without a call site are distinguished by their size. */
static uint64_t line_key(const struct line_table *table, uint32_t stack, uint64_t size)
{
    uint64_t unnamed[2] = {UINT64_MAX, size};

    return stack < table->history->stack_count && table->frames[stack] != NULL ? table->keys[stack]
                                                                               : map_hash(unnamed, sizeof(unnamed));
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
    blocks->items = memory_grow(blocks->items, &blocks->capacity, blocks->count, sizeof(*blocks->items));
    blocks->items[blocks->count++] = (struct block){addr, size, stack};
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

        if (is_block && map_find(&seen, event->addr) == NULL) {
            map_put(&seen, event->addr, 0);
            if (event->action == HISTORY_FREE_REQUESTED) {
                blocks_add(&blocks, event->addr, event->size, event->stack);
            }
        }
    }
    for (size_t i = 0; i < device->block_count; i++) {
        const struct history_block *block = &device->blocks[i];

        if (block->state == HISTORY_ACTIVE_ALLOCATED && map_find(&seen, block->addr) == NULL) {
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
        uint64_t number;

        if (event->action == HISTORY_ALLOC) {
            sweep_add(sweep, event->addr, event->size, event->stack, i + 1);
        } else if (event->action == HISTORY_OOM) { /* what it asked for would have been live then */
            sweep_add(sweep, NOWHERE - i, event->size, event->stack, i + 1);
            if (i + 1 < end && map_remove(&sweep->live, NOWHERE - i, &number)) {
                sweep->bytes -= event->size;
            }
        } else if (event->action == HISTORY_FREE_REQUESTED && map_remove(&sweep->live, event->addr, &number)) {
            sweep->bytes -= sweep->blocks.items[number].size;
        }
    }
}

static void sweep_free(struct sweep *sweep)
{
    map_free(&sweep->live);
    free(sweep->blocks.items);
}

static int compare_lines(const void *left_untyped, const void *right_untyped)
{
    const struct capacity_line *left = left_untyped, *right = right_untyped;

    if (left->bytes != right->bytes) {
        return left->bytes > right->bytes ? -1 : 1;
    }
    return left->key < right->key ? -1 : left->key > right->key;
}

static void add_line(struct capacity_load *load, size_t *capacity, struct map *numbers,
                     const struct line_table *table, const struct block *block)
{
    uint64_t key = line_key(table, block->stack, block->size);
    const uint64_t *number = map_find(numbers, key);
    struct capacity_line *line;

    if (number == NULL) {
        const struct history_frame *frame =
            block->stack < table->history->stack_count ? table->frames[block->stack] : NULL;

        map_put(numbers, key, load->line_count);
        load->lines = memory_grow(load->lines, capacity, load->line_count, sizeof(*load->lines));
        line = &load->lines[load->line_count++];
        *line = (struct capacity_line){.size = block->size, .key = key};
        if (frame != NULL) {
            line->function = table->history->texts[frame->function];
            line->file = table->history->texts[frame->file];
            line->line = frame->line;
            load->has_callsites = true;
        }
    } else {
        line = &load->lines[*number];
    }
    line->bytes += block->size;
    line->blocks++;
}

int capacity_load_find(const struct history *history, struct capacity_load *out)
{
    struct line_table table;
    struct map numbers = {0};
    struct sweep sweep;
    size_t capacity = 0;
    int error = line_table_make(history, &table);

    *out = (struct capacity_load){.bytes = 0};
    if (error != VARVE_OK) {
        return error;
    }
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
        sweep_device(&history->devices[out->device], out->event, &sweep);
        for (size_t i = 0; i < sweep.blocks.count; i++) {
            const uint64_t *number = map_find(&sweep.live, sweep.blocks.items[i].addr);

            if (number != NULL && *number == i) {
                add_line(out, &capacity, &numbers, &table, &sweep.blocks.items[i]);
            }
        }
        sweep_free(&sweep);
        qsort(out->lines, out->line_count, sizeof(*out->lines), compare_lines);
    }
    map_free(&numbers);
    line_table_free(&table);
    return VARVE_OK;
}

void capacity_load_free(struct capacity_load *load)
{
    free(load->lines);
    *load = (struct capacity_load){.lines = NULL};
}

/* ---- what would have to go ---- */

/* The history without the requests of the first `count` lines; it borrows all but the arrays of events. */
static struct history without_lines(const struct history *history, const struct line_table *table,
                                    const struct capacity_load *load, size_t count)
{
    struct history left = *history;
    struct map gone = {0}; /* keys of lines */

    for (size_t i = 0; i < count; i++) {
        map_put(&gone, load->lines[i].key, 0);
    }
    left.devices = memory_resize(NULL, (history->device_count + 1) * sizeof(*left.devices));
    for (size_t i = 0; i < history->device_count; i++) {
        const struct history_device *from = &history->devices[i];
        struct history_device *to = &left.devices[i];
        struct map skipped = {0}; /* addresses of blocks that are left out */
        uint64_t ignored;

        *to = *from;
        to->events = memory_resize(NULL, (from->event_count + 1) * sizeof(*to->events));
        to->event_count = 0;
        for (size_t j = 0; j < from->event_count; j++) {
            const struct history_event *event = &from->events[j];
            bool is_left = true;

            if ((event->action == HISTORY_ALLOC || event->action == HISTORY_OOM) &&
                map_find(&gone, line_key(table, event->stack, event->size)) != NULL) {
                is_left = false;
                if (event->action == HISTORY_ALLOC) {
                    map_put(&skipped, event->addr, 0);
                }
            } else if (event->action == HISTORY_FREE_REQUESTED) {
                is_left = map_find(&skipped, event->addr) == NULL;
            } else if (event->action == HISTORY_FREE_COMPLETED) {
                is_left = !map_remove(&skipped, event->addr, &ignored);
            }
            if (is_left) {
                to->events[to->event_count++] = *event;
            }
        }
        map_free(&skipped);
    }
    map_free(&gone);
    return left;
}

static bool runs_without(const struct history *history, const struct line_table *table,
                         const struct capacity_load *load, size_t count, const struct whatif_setting *setting)
{
    struct history left = without_lines(history, table, load, count);
    struct whatif_setting alone = *setting;
    struct whatif_outcome outcome = {.error = VARVE_OK};
    struct varve_message ignored = {""};
    bool runs;

    alone.stop_at_oom = true;
    runs = whatif_run(&left, &alone, 1, 1, &outcome, NULL, &ignored) == VARVE_OK && outcome.error == VARVE_OK &&
           outcome.result.ooms == 0;
    for (size_t i = 0; i < left.device_count; i++) {
        free(left.devices[i].events);
    }
    free(left.devices);
    return runs;
}

size_t capacity_shed(const struct history *history, const struct capacity_load *load,
                     const struct whatif_setting *setting, uint64_t bytes)
{
    struct line_table table;
    uint64_t sum = 0;
    size_t count = 0, found = 0;

    if (line_table_make(history, &table) != VARVE_OK) {
        return 0;
    }
    while (count < load->line_count && sum < bytes) {
        sum += load->lines[count++].bytes;
    }
    for (size_t tries = 0; tries < SHED_TRIES && found == 0 && count <= load->line_count && sum >= bytes; tries++) {
        if (runs_without(history, &table, load, count, setting)) {
            found = count;
        }
        count++;
    }
    line_table_free(&table);
    return found;
}
