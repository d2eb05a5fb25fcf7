/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the nodes of a stack from the outermost frame inwards: first along the stack that was put last, as far as the two
 * are the same, then by a table from parent and frame to node. What is not in the table is a chain of new nodes, since a new
 * node has no children: it is appended to the call-site file as one entry. Called by callsite.c.
 */
#include "trace/recorder/stacks/stack_tree.h"
#include "trace/recorder/guest/memory.h"
#include "trace/recorder/guest/stack_hash.h"
#include "trace/recorder/stacks/callsite_file.h"
#include "trace/error.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { TABLE_BITS_FIRST = 12, TABLE_BITS_MAX = 30 };

#define TABLE_BITS_MASK ((uintptr_t)4095) /* pages leave these bits of their address free */

/* `above` of outermost frames: one number for each kind and generation, which no node has. */
#define ROOT 0x80000000U

struct tree_entry {
    uint64_t frame;
    uint32_t above; /* number of the parent, or a root */
    uint32_t node;  /* 0: empty */
};

static size_t table_bytes(unsigned bits)
{
    return sizeof(struct tree_entry) << bits;
}

static struct tree_entry *table_entries(uintptr_t tagged)
{
    return (struct tree_entry *)(tagged & ~TABLE_BITS_MASK);
}

/* Where it is, or the empty entry where it belongs. */
static struct tree_entry *table_seek(uintptr_t tagged, uint32_t above, uint64_t frame)
{
    const size_t mask = ((size_t)1 << (tagged & TABLE_BITS_MASK)) - 1;
    struct tree_entry *entries = table_entries(tagged);
    size_t i =
        stack_hash_mix(frame ^ UINT64_C(0xa0761d6478bd642f), above ^ UINT64_C(0xe7037ed1a0b428db)) & mask;

    while (entries[i].node != 0 && (entries[i].frame != frame || entries[i].above != above)) {
        i = (i + 1) & mask;
    }
    return &entries[i];
}

/* Room for `count` more nodes. */
static bool table_reserve(struct stack_tree *tree, unsigned count)
{
    const uintptr_t old = tree->entries;
    const unsigned old_bits = (unsigned)(old & TABLE_BITS_MASK);
    const unsigned bits = old == 0 ? TABLE_BITS_FIRST : old_bits + 1;

    if (old != 0 && tree->count + count < ((size_t)1 << old_bits) / 4 * 3) {
        return true;
    }
    void *memory = bits <= TABLE_BITS_MAX ? recorder_map(table_bytes(bits)) : NULL;

    if (memory == NULL) {
        return false;
    }
    tree->entries = (uintptr_t)memory | bits;
    for (size_t i = 0; old != 0 && i < (size_t)1 << old_bits; i++) {
        const struct tree_entry *entry = &table_entries(old)[i];

        if (entry->node != 0) {
            *table_seek(tree->entries, entry->above, entry->frame) = *entry;
        }
    }
    if (old != 0) {
        recorder_unmap(table_entries(old), table_bytes(old_bits));
    }
    return true;
}

/* How many of the outer frames the path has; `frames` are innermost first, the path is outermost first. */
static unsigned path_shared(const struct stack_path *path, const uint64_t *frames, unsigned count)
{
    unsigned most = path->count < count ? path->count : count;
    unsigned shared = 0;

    while (shared < most && path->frames[shared] == frames[count - 1 - shared]) {
        shared++;
    }
    return shared;
}

/* Frames [path->count, count) are new nodes. */
static bool append_chain(struct stack_tree *tree, enum stack_kind kind, struct stack_path *path,
                         unsigned count, uint32_t above)
{
    const unsigned added = count - path->count;
    const struct callsite_file_nodes chain = {.first = tree->count + 1,
                                              .parent = path->count > 0 ? above : 0};
    const struct callsite_part parts[] = {{&chain, sizeof(chain)},
                                          {&path->frames[path->count], added * sizeof(path->frames[0])}};

    if (callsite_file_append(kind == STACK_NATIVE ? CALLSITE_FILE_TAG_NATIVE : CALLSITE_FILE_TAG_PYTHON,
                             parts, 2) != VARVE_OK) {
        return false;
    }
    for (; path->count < count; path->count++) {
        const uint64_t frame = path->frames[path->count];

        *table_seek(tree->entries, above, frame) =
            (struct tree_entry){.frame = frame, .above = above, .node = ++tree->count};
        path->nodes[path->count] = above = tree->count;
    }
    return true;
}

uint32_t stack_tree_put(struct stack_tree *tree, enum stack_kind kind, const uint64_t *frames, unsigned count,
                        unsigned generation)
{
    struct stack_path *path;
    uint32_t above = ROOT | (generation << 1) | (kind == STACK_PYTHON);

    assert(count > 0 && count <= CALLSITE_FILE_DEPTH_MAX);
    if (tree->last == NULL) {
        tree->last = recorder_map(STACK_KINDS * sizeof(*tree->last));
    }
    if (tree->last == NULL || !table_reserve(tree, count)) {
        return 0;
    }
    path = &tree->last[kind];
    if (tree->generation != generation) {
        tree->generation = generation;
        tree->last[STACK_NATIVE].count = tree->last[STACK_PYTHON].count = 0;
    }
    path->count = path_shared(path, frames, count);
    above = path->count > 0 ? path->nodes[path->count - 1] : above;
    for (; path->count < count; path->count++) {
        const struct tree_entry *entry = table_seek(tree->entries, above, frames[count - 1 - path->count]);

        if (entry->node == 0) {
            break;
        }
        path->frames[path->count] = entry->frame;
        path->nodes[path->count] = above = entry->node;
    }
    if (path->count < count) {
        for (unsigned i = path->count; i < count; i++) {
            path->frames[i] = frames[count - 1 - i];
        }
        if (!append_chain(tree, kind, path, count, above)) {
            return 0;
        }
    }
    return path->nodes[count - 1];
}

void stack_tree_reset(struct stack_tree *tree)
{
    if (tree->entries != 0) {
        recorder_unmap(table_entries(tree->entries),
                       table_bytes((unsigned)(tree->entries & TABLE_BITS_MASK)));
    }
    if (tree->last != NULL) {
        recorder_unmap(tree->last, STACK_KINDS * sizeof(*tree->last));
    }
    *tree = (struct stack_tree){0};
}
