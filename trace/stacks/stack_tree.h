/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stacks of this process image as a tree: a node is a frame below those of its parent. Two kinds of frames, native
 * and Python, each with a tree of its own. Guarded by the lock of callsite_here.c, whose holders are called writers
 * here.
 */
#ifndef VARVE_TRACE_STACKS_STACK_TREE_H
#define VARVE_TRACE_STACKS_STACK_TREE_H

#include "trace/format/callsite_format.h"

#include <stdint.h>

enum stack_kind { STACK_NATIVE, STACK_PYTHON, STACK_KINDS };

#define STACK_TREE_NODES_MAX (6U << 20)
#define STACK_TREE_CHUNK (1U << 16) /* nodes that are mapped together */

struct stack_tree_node;

/* The stack that was put last: the next one mostly shares its outer frames. Outermost first. */
struct stack_path {
    uint64_t keys[CALLSITE_FILE_DEPTH_MAX];
    uint64_t frames[CALLSITE_FILE_DEPTH_MAX];
    uint32_t nodes[CALLSITE_FILE_DEPTH_MAX];
    unsigned count;
};

/* All zero is an empty tree. A node takes 12 bytes, and 5 to 11 in the table. */
struct stack_tree {
    struct stack_tree_node *chunks[STACK_TREE_NODES_MAX / STACK_TREE_CHUNK];
    uintptr_t slots;     /* pages; the low 12 bits hold the logarithm of the number of slots */
    uint32_t count;      /* nodes */
    unsigned generation; /* of the loaded objects; nodes of an earlier one are not used again */
    struct stack_path *last;
};

/// How many of the outer frames of a stack are those of the one that was put last, by their keys (innermost first);
/// `frames` of these, at the end, are filled in. Threads: writers.
unsigned stack_tree_shared(const struct stack_tree *tree, enum stack_kind kind, const uint64_t *keys, uint64_t *frames,
                           unsigned count, unsigned generation);

/// The node of a stack: `frames`, innermost first, as words (a return address, or a struct callsite_file_python), and
/// what they are recognized by, which may be the frames themselves. Nodes that are new are appended to the call-site
/// file first. `generation`: of the loaded objects. Returns 0 if there is no room: in memory, in the file, or by
/// STACK_TREE_NODES_MAX. Threads: writers.
uint32_t stack_tree_put(struct stack_tree *tree, enum stack_kind kind, const uint64_t *keys, const uint64_t *frames,
                        unsigned count, unsigned generation);

/// Empty it and give its memory back. Threads: writers.
void stack_tree_reset(struct stack_tree *tree);

#endif
