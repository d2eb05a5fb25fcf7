/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the nodes of a stack from the outermost frame inwards: those that its thread knows from its last stack go
 * before, the others are found by a table from parent and frame to node. What is not in the table is a chain of new
 * nodes, since a new node has no children: it is appended to the call-site file as one entry. Called by
 * callsite_here.c.
 */
#include "trace/stacks/callsite_writer.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/stack_hash.h"
#include "base/error.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

enum { TABLE_BITS_FIRST = 13, TABLE_BITS_MORE = 2, NODE_BITS = 23, FETCH_AHEAD = 8 };

#define TABLE_BITS_MASK ((uintptr_t)4095) /* pages leave these bits of their address free */

/* `above` of outermost frames: one number for each kind and generation, which no node has. */
#define ROOT 0x80000000U

struct stack_tree_node {
    uint32_t frame[2]; /* low and high half */
    uint32_t above;    /* number of the parent, or a root */
};

/* A slot of the table: the number of a node, and above it bits of its hash that are not in the place of
 * the slot. 0: empty. */
static_assert(STACK_TREE_NODES_MAX < 1U << NODE_BITS, "a number leaves room for bits of the hash");

static uint64_t stack_tree_hash_of(uint32_t above, uint64_t frame)
{
    return stack_hash_mix(frame ^ UINT64_C(0xa0761d6478bd642f), above ^ UINT64_C(0xe7037ed1a0b428db));
}

static uint32_t stack_tree_tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32) & ~((1U << NODE_BITS) - 1);
}

static size_t stack_tree_table_bytes(unsigned bits)
{
    return sizeof(uint32_t) << bits;
}

static uint32_t *table_slots(uintptr_t tagged)
{
    return (uint32_t *)(tagged & ~TABLE_BITS_MASK);
}

static struct stack_tree_node *node_at(const struct stack_tree *tree, uint32_t number)
{
    return &tree->chunks[(number - 1) / STACK_TREE_CHUNK][(number - 1) % STACK_TREE_CHUNK];
}

static bool node_is(const struct stack_tree_node *node, uint32_t above, uint64_t frame)
{
    return node->above == above && node->frame[0] == (uint32_t)frame && node->frame[1] == (uint32_t)(frame >> 32);
}

/* The slot of this node, or the empty one where it belongs. */
static uint32_t *table_seek(const struct stack_tree *tree, uint32_t above, uint64_t frame, uint64_t hash)
{
    const size_t mask = ((size_t)1 << (tree->slots & TABLE_BITS_MASK)) - 1;
    const uint32_t number_mask = (1U << NODE_BITS) - 1, tag = stack_tree_tag_of(hash);
    uint32_t *slots = table_slots(tree->slots);
    size_t i = hash & mask;
    while (slots[i] != 0 &&
           ((slots[i] & ~number_mask) != tag || !node_is(node_at(tree, slots[i] & number_mask), above, frame))) {
        i = (i + 1) & mask;
    }
    return &slots[i];
}

/* The slot where a hash belongs that no node of the table has. */
static uint32_t *table_free_slot(const struct stack_tree *tree, uint64_t hash)
{
    const size_t mask = ((size_t)1 << (tree->slots & TABLE_BITS_MASK)) - 1;
    uint32_t *slots = table_slots(tree->slots);
    size_t i = hash & mask;
    while (slots[i] != 0) {
        i = (i + 1) & mask;
    }
    return &slots[i];
}

static void table_fetch(uintptr_t tagged, uint64_t hash)
{
    const size_t mask = ((size_t)1 << (tagged & TABLE_BITS_MASK)) - 1;
    __builtin_prefetch(&table_slots(tagged)[hash & mask], 1);
}

static uint64_t node_hash(const struct stack_tree *tree, uint32_t number)
{
    const struct stack_tree_node *node = node_at(tree, number);
    return stack_tree_hash_of(node->above, (uint64_t)node->frame[1] << 32 | node->frame[0]);
}

static void table_fill(const struct stack_tree *tree)
{
    for (uint32_t number = 1; number <= tree->count; number++) {
        const uint64_t hash = node_hash(tree, number);
        if (number + FETCH_AHEAD <= tree->count) {
            table_fetch(tree->slots, node_hash(tree, number + FETCH_AHEAD));
        }
        *table_free_slot(tree, hash) = stack_tree_tag_of(hash) | number;
    }
}

/* Slots for `count` more nodes. */
static bool table_reserve(struct stack_tree *tree, unsigned count)
{
    const uintptr_t old = tree->slots;
    const unsigned old_bits = (unsigned)(old & TABLE_BITS_MASK);
    const unsigned bits = old == 0 ? TABLE_BITS_FIRST : old_bits + TABLE_BITS_MORE; /* seldom: all nodes move */
    if (old != 0 && tree->count + count < ((size_t)1 << old_bits) / 4 * 3) {
        return true;
    }
    void *memory = recorder_map_table(stack_tree_table_bytes(bits));
    if (memory == NULL) {
        return false;
    }
    __atomic_store_n(&tree->slots, (uintptr_t)memory | bits, __ATOMIC_RELAXED);
    table_fill(tree);
    if (old != 0) {
        recorder_unmap(table_slots(old), stack_tree_table_bytes(old_bits));
    }
    return true;
}

/* Memory for `count` more nodes. */
static bool stack_tree_reserve(struct stack_tree *tree, unsigned count)
{
    if (tree->count + count > STACK_TREE_NODES_MAX || !table_reserve(tree, count)) {
        return false;
    }
    for (uint32_t i = tree->count / STACK_TREE_CHUNK; i <= (tree->count + count - 1) / STACK_TREE_CHUNK; i++) {
        if (tree->chunks[i] == NULL) {
            tree->chunks[i] = recorder_map(STACK_TREE_CHUNK * sizeof(struct stack_tree_node));
        }
        if (tree->chunks[i] == NULL) {
            return false;
        }
    }
    return true;
}

/* `frames`, innermost first, are new nodes. Their places in a large table are far apart: all are fetched first. */
static bool append_chain(struct stack_tree *tree, enum stack_kind kind, struct stack_path *path, const uint64_t *frames,
                         unsigned count, uint32_t above)
{
    const struct callsite_file_nodes chain = {.first = tree->count + 1, .parent = path->count > 0 ? above : 0};
    uint64_t outside_in[CALLSITE_FILE_DEPTH_MAX];
    for (unsigned i = 0; i < count; i++) {
        outside_in[i] = frames[count - 1 - i];
    }
    const struct callsite_part parts[] = {{&chain, sizeof(chain)}, {outside_in, count * sizeof(outside_in[0])}};
    if (!stack_tree_reserve(tree, count) ||
        callsite_file_append(kind == STACK_NATIVE ? CALLSITE_FILE_TAG_NATIVE : CALLSITE_FILE_TAG_PYTHON, parts, 2) !=
            VARVE_OK) {
        return false;
    }
    uint64_t hashes[CALLSITE_FILE_DEPTH_MAX];
    for (uint32_t i = 0, parent = above; i < count; i++, parent = tree->count + i) {
        hashes[i] = stack_tree_hash_of(parent, outside_in[i]);
        table_fetch(tree->slots, hashes[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t frame = outside_in[i];
        __atomic_store_n(&tree->count, tree->count + 1, __ATOMIC_RELAXED); /* read by stack_tree_fetch */
        *node_at(tree, tree->count) = (struct stack_tree_node){{(uint32_t)frame, (uint32_t)(frame >> 32)}, above};
        *table_free_slot(tree, hashes[i]) = stack_tree_tag_of(hashes[i]) | tree->count;
        path->nodes[path->count++] = above = tree->count;
    }
    return true;
}

/* What `path` ends in: the parent of the next frame. */
static uint32_t path_end(const struct stack_path *path, enum stack_kind kind, unsigned generation)
{
    return path->count > 0 ? path->nodes[path->count - 1] : ROOT | (generation << 1) | (kind == STACK_PYTHON);
}

/* As if the frames were new nodes, and no other thread added any: mostly so, and no harm is done else. */
void stack_tree_fetch(const struct stack_tree *tree, enum stack_kind kind, const struct stack_path *path,
                      const uint64_t *frames, unsigned count, unsigned generation)
{
    const uintptr_t tagged = __atomic_load_n(&tree->slots, __ATOMIC_RELAXED);
    const uint32_t nodes = __atomic_load_n(&tree->count, __ATOMIC_RELAXED);
    uint32_t above = path_end(path, kind, generation);
    for (unsigned i = 0; tagged != 0 && i < count && i < FETCH_AHEAD; i++, above = nodes + i) {
        table_fetch(tagged, stack_tree_hash_of(above, frames[count - 1 - i]));
    }
}

uint32_t stack_tree_put(struct stack_tree *tree, enum stack_kind kind, struct stack_path *path, const uint64_t *keys,
                        const uint64_t *frames, unsigned count, unsigned generation)
{
    uint32_t above = path_end(path, kind, generation);
    assert(path->count + count > 0 && path->count + count <= CALLSITE_FILE_DEPTH_MAX);
    if (!table_reserve(tree, 0)) {
        return 0;
    }
    for (unsigned i = 0; i < count; i++) {
        path->keys[path->count + i] = keys[count - 1 - i];
    }
    for (; count > 0; count--) {
        const uint64_t frame = frames[count - 1];
        const uint32_t slot = *table_seek(tree, above, frame, stack_tree_hash_of(above, frame));
        if (slot == 0) {
            return append_chain(tree, kind, path, frames, count, above) ? path->nodes[path->count - 1] : 0;
        }
        path->nodes[path->count++] = above = slot & ((1U << NODE_BITS) - 1);
    }
    return above;
}

void stack_tree_reset(struct stack_tree *tree)
{
    if (tree->slots != 0) {
        recorder_unmap(table_slots(tree->slots), stack_tree_table_bytes((unsigned)(tree->slots & TABLE_BITS_MASK)));
    }
    for (size_t i = 0; i < sizeof(tree->chunks) / sizeof(tree->chunks[0]) && tree->chunks[i] != NULL; i++) {
        recorder_unmap(tree->chunks[i], STACK_TREE_CHUNK * sizeof(struct stack_tree_node));
    }
    *tree = (struct stack_tree){0};
}
