/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A history as the events that a database of it would have, one after the other: the layout of each allocator, who
 * allocated what is in it, and the stages since its last request are kept up to date, and a request that fails is
 * noted with what they are at that moment.
 */
#include "analysis/cli/oom_print.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/history/infer_device.h"
#include "analysis/import/import.h"
#include "analysis/replay/history_writer.h"
#include "base/error.h"
#include "trace/layout.h"
#include "trace/record.h"
#include "trace/writer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 256

/* The last allocation at an address. */
struct followed_block {
    int64_t seq, ts_ns;
    int64_t number; /* among the allocations of its device, from 1 */
    uint32_t callsite;
};

struct followed_device {
    struct varve_layout *layout; /* NULL: no event had a block yet */
    struct map numbers;          /* of blocks[], by address */
    struct followed_block *blocks;
    size_t count, capacity;
    int64_t allocations;
    struct oom_stage stages[OOM_STAGES_MAX]; /* since the last request that came to an end */
    size_t stage_count;
};

/* A line of the program; the texts are the history's. */
struct followed_symbol {
    const char *function, *file;
    uint32_t line;
};

struct follow {
    struct oom_scene *scene;
    int64_t device; /* < 0: all */
    int64_t seq;    /* of the last event */
    size_t next;    /* request to be numbered */
    struct followed_device *devices[DEVICES];
    struct map symbol_numbers; /* by hash */
    struct followed_symbol *symbols;
    size_t symbol_count, symbol_capacity;
    uint32_t *users; /* symbol of call site n + 1 at [n]; 0: none */
    size_t callsite_count, callsite_capacity;
    size_t with_frames, shown; /* call sites; those with a frame that is not hidden */
};

/* ---- call sites ---- */

static uint32_t follow_symbol(void *context, const struct varve_writer_symbol *symbol)
{
    struct follow *follow = context;
    const struct followed_symbol wanted = {symbol->function, symbol->file, symbol->line};
    uint64_t key = 31 * map_hash(wanted.function, strlen(wanted.function)) + wanted.line;
    key ^= map_hash(wanted.file, strlen(wanted.file));
    for (uint64_t number; (number = map_find(&follow->symbol_numbers, key)) != MAP_NONE; key++) {
        const struct followed_symbol *found = &follow->symbols[number - 1];
        if (found->line == wanted.line && strcmp(found->function, wanted.function) == 0 &&
            strcmp(found->file, wanted.file) == 0) {
            return (uint32_t)number;
        }
    }
    *MEMORY_ADD(follow->symbols, follow->symbol_count, follow->symbol_capacity) = wanted;
    map_put(&follow->symbol_numbers, key, follow->symbol_count);
    return (uint32_t)follow->symbol_count;
}

/* They are numbered from 1 without a gap. */
static void follow_callsite(void *context, uint32_t number, uint32_t symbol, bool is_hidden)
{
    struct follow *follow = context;
    (void)number;
    *MEMORY_ADD(follow->users, follow->callsite_count, follow->callsite_capacity) = symbol;
    follow->with_frames += symbol != 0;
    follow->shown += !is_hidden;
}

static uint32_t followed_user(const struct follow *follow, uint32_t callsite)
{
    return callsite > 0 && callsite <= follow->callsite_count ? follow->users[callsite - 1] : 0;
}

static struct owner follow_owner(const struct follow *follow, uint32_t callsite)
{
    const uint32_t user = followed_user(follow, callsite);
    struct owner owner = {.callsite_id = callsite};
    if (user != 0) {
        owner.function = follow->symbols[user - 1].function;
        owner.file = follow->symbols[user - 1].file;
        owner.line = follow->symbols[user - 1].line;
    }
    return owner;
}

/* ---- the memory when a request failed ---- */

static const struct followed_block *followed_block_at(const struct followed_device *device, uint64_t addr)
{
    uint64_t number = map_find(&device->numbers, addr);
    return number != MAP_NONE ? &device->blocks[number] : NULL;
}

static void follow_holders(const struct follow *follow, const struct followed_device *device,
                           const struct varve_layout_block *blocks, uint64_t count, struct oom_holder *holders)
{
    for (size_t i = 0; i < count && i < FAILURE_BLOCKS_MAX; i++) {
        const struct followed_block *block = followed_block_at(device, blocks[i].addr);
        if (block != NULL) {
            holders[i].owner = follow_owner(follow, block->callsite);
            holders[i].owner.alloc_seq = block->seq;
            holders[i].owner.alloc_ns = block->ts_ns;
            holders[i].allocations = device->allocations - block->number;
        }
    }
}

/* All blocks in use whose call sites have one line, or none. */
struct used_line {
    uint32_t user, callsite; /* the last of them */
    int64_t bytes, blocks;
};

static int compare_used_lines(const void *a_untyped, const void *b_untyped)
{
    const struct used_line *a = a_untyped;
    const struct used_line *b = b_untyped;
    return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes)
                                : (a->user < b->user) - (a->user > b->user); /* as sql_oom_sites has it */
}

static void follow_sites(const struct follow *follow, const struct followed_device *device, struct oom_request *request)
{
    struct used_line *lines = memory_resize(NULL, (follow->symbol_count + 1) * sizeof(*lines)); /* by symbol */
    memset(lines, 0, (follow->symbol_count + 1) * sizeof(*lines));
    struct varve_layout_block block;
    for (uint64_t from = 0; varve_layout_block(device->layout, from, &block); from = block.addr + block.extent) {
        const struct followed_block *allocated = followed_block_at(device, block.addr);
        if (block.state == VARVE_LAYOUT_USED && allocated != NULL) {
            struct used_line *line = &lines[followed_user(follow, allocated->callsite)];
            line->user = (uint32_t)(line - lines);
            line->callsite = allocated->callsite > line->callsite ? allocated->callsite : line->callsite;
            line->bytes += (int64_t)block.size;
            line->blocks++;
        }
    }
    qsort(lines, follow->symbol_count + 1, sizeof(*lines), compare_used_lines);
    for (size_t i = 0; i < OOM_SITES_MAX && i <= follow->symbol_count && lines[i].blocks > 0; i++) {
        request->sites[request->site_count++] = (struct oom_site){
            .owner = follow_owner(follow, lines[i].callsite), .bytes = lines[i].bytes, .blocks = lines[i].blocks};
    }
    free(lines);
}

static void follow_failure(struct follow *follow, const struct followed_device *device,
                           const struct varve_record *record, int64_t ts_ns)
{
    struct oom_request *added = oom_scene_add(
        follow->scene, &(struct oom_request){.request = {.seq = follow->seq,
                                                         .process_id = 1,
                                                         .device = record->device,
                                                         .stream = (uint16_t)varve_record_stream(record),
                                                         .pool = record->pool},
                                             .seq = follow->seq,
                                             .ts_ns = ts_ns,
                                             .pid = 1,
                                             .tid = 1,
                                             .requested = (int64_t)record->size,
                                             .allocated = (int64_t)record->requested,
                                             .reserved = (int64_t)record->arg,
                                             .largest_free = record->addr != 0 ? (int64_t)record->addr : -1});
    struct failure *failure = &added->failure;
    added->owner = follow_owner(follow, record->callsite);
    memcpy(added->stages, device->stages, sizeof(added->stages));
    added->stage_count = device->stage_count;
    if (device->layout == NULL || follow->scene->count > OOM_DETAILS_MAX) {
        return;
    }
    failure_of_layout(failure, device->layout, &added->request);
    if (failure->is_known) {
        pool_name_of(record->pool % 2 != 0, record->pool, added->pool);
        follow_holders(follow, device, failure->freeing.first, failure->freeing.blocks, added->freeing);
        follow_holders(follow, device, failure->best.first, failure->best.blocks, added->best);
        follow_sites(follow, device, added);
    }
}

/* ---- the events ---- */

static struct followed_device *followed_device_get(struct follow *follow, unsigned number)
{
    struct followed_device **device = &follow->devices[number % DEVICES];
    if (*device == NULL) {
        *device = memory_resize(NULL, sizeof(**device));
        **device = (struct followed_device){0};
    }
    return *device;
}

static void follow_layout(struct followed_device *device, const struct varve_record *record)
{
    if (device->layout == NULL) {
        device->layout = varve_layout_new();
    }
    if (device->layout == NULL || varve_layout_apply(device->layout, record) != VARVE_OK) {
        memory_exhausted();
    }
}

static void follow_allocation(const struct follow *follow, struct followed_device *device,
                              const struct varve_record *record, int64_t ts_ns)
{
    uint64_t known = map_find(&device->numbers, record->addr);
    size_t number = known != MAP_NONE ? (size_t)known : device->count;
    if (known == MAP_NONE) {
        device->blocks = memory_grow(device->blocks, &device->capacity, device->count, sizeof(device->blocks[0]));
        map_put(&device->numbers, record->addr, device->count++);
    }
    assert(number < device->count && device->blocks != NULL);
    device->allocations++;
    device->blocks[number] = (struct followed_block){
        .seq = follow->seq, .ts_ns = ts_ns, .number = device->allocations, .callsite = record->callsite};
}

static void follow_stage(const struct follow *follow, struct followed_device *device, const struct varve_record *record)
{
#define FOLLOW_CAUSE_TEXT(code, NAME, text) [code] = (text),
    static const char *const names[] = {VARVE_CAUSE_LIST(FOLLOW_CAUSE_TEXT)};
#undef FOLLOW_CAUSE_TEXT
    if (device->stage_count == OOM_STAGES_MAX) {
        memmove(&device->stages[0], &device->stages[1], (OOM_STAGES_MAX - 1) * sizeof(device->stages[0]));
        device->stage_count--;
    }
    struct oom_stage *stage = &device->stages[device->stage_count++];
    const char *name = record->cause < sizeof(names) / sizeof(names[0]) ? names[record->cause] : NULL;
    snprintf(stage->name, sizeof(stage->name), "%s", name != NULL ? name : "?");
    stage->seq = follow->seq;
    stage->bytes_freed = (int64_t)record->requested;
}

static void follow_event(void *context, const struct varve_record *record, int64_t ts_ns)
{
    struct follow *follow = context;
    const enum varve_kind kind = (enum varve_kind)varve_record_kind(record);
    follow->seq++;
    if (follow->device >= 0 && follow->device != record->device) {
        return;
    }
    struct followed_device *device = followed_device_get(follow, record->device);
    if (kind >= VARVE_KIND_ALLOC && kind <= VARVE_KIND_SEGMENT_UNMAP) {
        follow_layout(device, record);
    }
    if (kind == VARVE_KIND_ALLOC) {
        follow_allocation(follow, device, record, ts_ns);
    } else if (kind == VARVE_KIND_OOM) {
        follow_failure(follow, device, record, ts_ns);
    }
    if (kind == VARVE_KIND_OOM_RETRY && record->arg == 0) {
        follow_stage(follow, device, record);
    } else if (kind == VARVE_KIND_ALLOC || kind == VARVE_KIND_OOM || kind == VARVE_KIND_OOM_RETRY) {
        device->stage_count = 0; /* it came to an end */
    }
}

/* Requests that are known get the numbers that they have among these events. */
static void follow_number(void *context, const struct varve_record *record, int64_t ts_ns)
{
    struct follow *follow = context;
    (void)ts_ns;
    follow->seq++;
    if (varve_record_kind(record) == VARVE_KIND_OOM && follow->next < follow->scene->count &&
        (follow->device < 0 || follow->device == record->device)) {
        follow->scene->requests[follow->next++].seq = follow->seq;
    }
}

static void followed_free(struct follow *follow)
{
    for (size_t i = 0; i < DEVICES; i++) {
        if (follow->devices[i] != NULL) {
            varve_layout_free(follow->devices[i]->layout);
            map_free(&follow->devices[i]->numbers);
            free(follow->devices[i]->blocks);
            free(follow->devices[i]);
        }
    }
    map_free(&follow->symbol_numbers);
    free(follow->symbols);
    free(follow->users);
}

/* ---- where the events come from ---- */

/* What is inferred of a history that comes out again; NULL: it does not. */
static struct replay_inference *follow_infer(const struct history *history, struct replay_options *options)
{
    const uint64_t limits[] = {options->memory_limit, 0};
    struct replay_inference *inference;
    struct replay_result result;
    struct varve_message ignored = {""};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        options->memory_limit = limits[i];
        if (replay_infer(history, options, &inference, &result, &ignored) != VARVE_OK) {
            continue;
        }
        if (result.mismatches == 0 && result.segments_equal) {
            return inference;
        }
        replay_inference_free(inference);
    }
    return NULL;
}

/* The decisions, as a play of the history makes them. */
static int follow_decisions(const struct oom_following *following, struct varve_writer *writer,
                            struct varve_message *message)
{
    struct replay_options options = {.memory_limit = following->limit, .follow = true, .progress = following->progress};
    struct replay_inference *inference = follow_infer(following->history, &options);
    struct replay_result result;
    if (inference == NULL) {
        return varve_message_set(message, VARVE_ERROR_FORMAT, "the recorded decisions do not come out again");
    }
    struct history_writer *records = history_writer_new(writer, following->history);
    options.output = history_writer_output(records);
    int error = replay_play(inference, &options, &result, message);
    history_writer_free(records);
    replay_inference_free(inference);
    return error;
}

static void follow_end(struct follow *follow, struct oom_following *following)
{
    following->all_hidden = following->plumbing != NULL && follow->shown == 0 ? follow->with_frames : 0;
    followed_free(follow);
}

int oom_follow(struct oom_scene *scene, struct oom_following *following, struct varve_message *message)
{
    struct follow follow = {.scene = scene, .device = following->device};
    const struct varve_writer_output output = {follow_symbol, follow_callsite, follow_event, &follow};
    struct history_settings settings;
    struct varve_writer *writer = NULL;
    int error = replay_settings(following->history, NULL, &settings, message);
    VARVE_THEN(error, varve_writer_open_output(&output, following->plumbing, &writer, message));
    if (error == VARVE_OK) {
        oom_scene_configure(scene, settings.is_known ? settings.text : NULL);
        error = follow_decisions(following, writer, message);
    }
    varve_writer_abandon(writer);
    follow_end(&follow, following);
    scene->count = error == VARVE_OK ? scene->count : 0;
    return error;
}

int oom_follow_import(struct oom_scene *scene, struct oom_following *following, bool numbers_only,
                      struct varve_message *message)
{
    const struct history *history = following->history;
    struct follow follow = {.scene = scene, .device = following->device};
    struct varve_writer_output output = {follow_symbol, follow_callsite, follow_event, &follow};
    struct import_result ignored;
    struct varve_writer *writer = NULL;
    if (numbers_only) {
        output = (struct varve_writer_output){.event = follow_number, .context = &follow};
    } else {
        oom_scene_configure(scene, history->settings.is_known ? history->settings.text : NULL);
    }
    int error = varve_writer_open_output(&output, following->plumbing, &writer, message);
    VARVE_THEN(error, import_pytorch(history, writer, following->progress, &ignored, message));
    varve_writer_abandon(writer);
    if (!numbers_only) {
        follow_end(&follow, following);
    }
    return error;
}
