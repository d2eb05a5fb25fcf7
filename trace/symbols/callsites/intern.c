/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interning for the call sites of all processes: texts, pairs of texts, frames, stacks, each a growing array
 * with a hash index beside it. To stay small with 100,000 stacks, the index keeps a number
 * and 32 bits of hash per entry, never a pointer, so that arrays can move and growing needs no comparison.
 * Called by reader.c, entry.c, resume.c.
 */
#include "trace/symbols/callsites/intern.h"

#include "trace/base/array.h"
#include "trace/base/index.h"
#include "trace/format/callsite_file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX (UINT32_C(1) << 31)

static bool reserve32(void **array, uint32_t *capacity, uint32_t count, size_t element_bytes)
{
    size_t wide = *capacity;

    if (count >= COUNT_MAX || !array_grow(array, &wide, (size_t)count + 1, element_bytes)) {
        return false;
    }
    *capacity = (uint32_t)wide;
    return true;
}

/* ---- texts ---- */

struct text_key {
    const struct callsites_texts *texts;
    const void *bytes;
    size_t length;
};

const char *callsites_text(const struct callsites_texts *texts, uint32_t number, size_t *length_out)
{
    uint64_t end;

    if (length_out) {
        *length_out = 0;
    }
    if (number == 0) {
        return "";
    }
    assert(number <= texts->count);
    end = number < texts->count ? texts->starts[number] : texts->bytes_used;
    if (length_out) {
        *length_out = (size_t)(end - texts->starts[number - 1] - 1);
    }
    return texts->bytes + texts->starts[number - 1];
}

static bool text_is_equal(const void *context, uint32_t number)
{
    const struct text_key *key = context;
    size_t length;
    const char *text = callsites_text(key->texts, number, &length);

    return length == key->length && (length == 0 || memcmp(text, key->bytes, length) == 0);
}

uint32_t callsites_text_intern(struct callsites_texts *texts, const void *bytes, size_t length)
{
    const struct text_key key = {texts, bytes, length};
    uint32_t hash = index_hash(bytes, length, 1);
    struct index_slot *slot = index_find(&texts->index, hash, text_is_equal, &key);

    if (!slot) {
        return 0;
    }
    if (slot->number) {
        return slot->number;
    }
    if (!array_grow((void **)&texts->bytes, &texts->bytes_capacity, texts->bytes_used + length + 1, 1) ||
        !reserve32((void **)&texts->starts, &texts->capacity, texts->count, sizeof(*texts->starts))) {
        return 0;
    }
    if (length) {
        memcpy(texts->bytes + texts->bytes_used, bytes, length);
    }
    texts->bytes[texts->bytes_used + length] = '\0';
    texts->starts[texts->count++] = texts->bytes_used;
    texts->bytes_used += length + 1;
    index_fill(&texts->index, slot, hash, texts->count);
    return texts->count;
}

/* ---- pairs and frames ---- */

struct pair_key {
    const struct callsites_pairs *pairs;
    struct callsites_pair pair;
};

static bool pair_is_equal(const void *context, uint32_t number)
{
    const struct pair_key *key = context;
    const struct callsites_pair *pair = &key->pairs->pairs[number - 1];

    return pair->first == key->pair.first && pair->second == key->pair.second;
}

uint32_t callsites_pair_intern(struct callsites_pairs *pairs, struct callsites_pair pair)
{
    const struct pair_key key = {pairs, pair};
    uint32_t hash = index_hash(&pair, sizeof(pair), 2);
    struct index_slot *slot = index_find(&pairs->index, hash, pair_is_equal, &key);

    if (!slot) {
        return 0;
    }
    if (slot->number) {
        return slot->number;
    }
    if (!reserve32((void **)&pairs->pairs, &pairs->capacity, pairs->count, sizeof(pair))) {
        return 0;
    }
    pairs->pairs[pairs->count++] = pair;
    index_fill(&pairs->index, slot, hash, pairs->count);
    return pairs->count;
}

struct frame_key {
    const struct callsites_frames *frames;
    struct callsites_frame frame;
};

static bool frame_is_equal(const void *context, uint32_t number)
{
    const struct frame_key *key = context;
    const struct callsites_frame *frame = &key->frames->frames[number - 1];

    return frame->position == key->frame.position && frame->owner == key->frame.owner &&
           frame->is_python == key->frame.is_python;
}

uint32_t callsites_frame_intern(struct callsites_frames *frames, struct callsites_frame frame)
{
    const struct frame_key key = {frames, frame};
    uint32_t hash = index_hash(&frame, sizeof(frame), 3);
    struct index_slot *slot = index_find(&frames->index, hash, frame_is_equal, &key);

    if (!slot) {
        return 0;
    }
    if (slot->number) {
        return slot->number;
    }
    if (!reserve32((void **)&frames->frames, &frames->capacity, frames->count, sizeof(frame))) {
        return 0;
    }
    frames->frames[frames->count++] = frame;
    index_fill(&frames->index, slot, hash, frames->count);
    return frames->count;
}

/* ---- stacks ---- */

struct stack_key {
    const struct callsites_stacks *stacks;
    const struct callsites_stack *stack;
    const uint32_t *frame_ids;
};

static size_t stack_depth(const struct callsites_stack *stack)
{
    return (size_t)stack->native_count + stack->python_count;
}

static uint32_t stack_hash(const struct callsites_stack *stack, const uint32_t *frame_ids)
{
    return index_hash(frame_ids, stack_depth(stack) * sizeof(*frame_ids), 4 + stack->native_count);
}

static bool stack_is_equal(const void *context, uint32_t number)
{
    const struct stack_key *key = context;
    const struct callsites_stack *stack = &key->stacks->stacks[number - 1];
    size_t bytes = stack_depth(stack) * sizeof(*key->frame_ids);

    return stack->native_count == key->stack->native_count &&
           stack->python_count == key->stack->python_count &&
           (bytes == 0 || memcmp(key->stacks->frame_ids + stack->start, key->frame_ids, bytes) == 0);
}

uint32_t callsites_stack_intern(struct callsites_stacks *stacks, const struct callsites_stack *stack,
                                const uint32_t *frame_ids)
{
    const struct stack_key key = {stacks, stack, frame_ids};
    size_t depth = stack_depth(stack);
    uint32_t hash = stack_hash(stack, frame_ids);
    struct index_slot *slot = index_find(&stacks->index, hash, stack_is_equal, &key);

    if (!slot) {
        return 0;
    }
    if (slot->number) {
        return slot->number;
    }
    if (stacks->frame_ids_used + depth > UINT32_MAX ||
        !array_grow((void **)&stacks->frame_ids, &stacks->frame_ids_capacity,
                    stacks->frame_ids_used + depth + 1, sizeof(*frame_ids)) ||
        !reserve32((void **)&stacks->stacks, &stacks->capacity, stacks->count, sizeof(*stack))) {
        return 0;
    }
    if (depth) {
        memcpy(stacks->frame_ids + stacks->frame_ids_used, frame_ids, depth * sizeof(*frame_ids));
    }
    stacks->stacks[stacks->count] = *stack;
    stacks->stacks[stacks->count++].start = (uint32_t)stacks->frame_ids_used;
    stacks->frame_ids_used += depth;
    index_fill(&stacks->index, slot, hash, stacks->count);
    return stacks->count;
}

bool callsites_stacks_reindex(struct callsites_stacks *stacks)
{
    index_clear(&stacks->index);
    for (uint32_t number = 1; number <= stacks->count; number++) {
        const struct callsites_stack *stack = &stacks->stacks[number - 1];
        const struct stack_key key = {stacks, stack, stacks->frame_ids + stack->start};
        uint32_t hash = stack_hash(stack, key.frame_ids);
        struct index_slot *slot = index_find(&stacks->index, hash, stack_is_equal, &key);

        if (!slot) {
            return false;
        }
        if (slot->number == 0) {
            index_fill(&stacks->index, slot, hash, number);
        }
    }
    return true;
}

/* ---- numbers of a file ---- */

bool callsites_map_set(struct callsites_map *map, uint32_t number, uint32_t value)
{
    size_t page = number / CALLSITES_MAP_PAGE;

    assert(number <= CALLSITE_FILE_NUMBER_MAX);
    if (page >= map->page_count &&
        !array_cover((void **)&map->pages, &map->page_count, page, sizeof(*map->pages))) {
        return false;
    }
    if (!map->pages[page]) {
        map->pages[page] = calloc(CALLSITES_MAP_PAGE, sizeof(**map->pages));
    }
    if (!map->pages[page]) {
        return false;
    }
    map->pages[page][number % CALLSITES_MAP_PAGE] = value;
    return true;
}

void callsites_map_free(struct callsites_map *map)
{
    for (size_t page = 0; page < map->page_count; page++) {
        free(map->pages[page]);
    }
    free(map->pages);
    map->pages = NULL;
    map->page_count = 0;
}
