/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs inside the workload */
/*
 * The stacks of this process image as a tree: a node is a frame below those of its parent. Two kinds of frames, native and
 * Python, each with a tree of its own. Guarded by the lock of callsite.c, whose holders are called writers here.
 */
#ifndef VARVE_TRACE_RECORDER_STACKS_STACK_TREE_H
#define VARVE_TRACE_RECORDER_STACKS_STACK_TREE_H

#include "trace/format/callsite_file.h"

#include <stdint.h>

enum stack_kind { STACK_NATIVE, STACK_PYTHON, STACK_KINDS };

/* The stack that was put last: the next one mostly shares its outer frames. Outermost first. */
struct stack_path {
    uint64_t frames[CALLSITE_FILE_DEPTH_MAX];
    uint32_t nodes[CALLSITE_FILE_DEPTH_MAX];
    unsigned count;
};

/* All zero is an empty tree. */
struct stack_tree {
    uintptr_t entries;   /* pages; the low 12 bits hold the logarithm of the number of entries */
    uint32_t count;      /* nodes */
    unsigned generation; /* of the loaded objects; nodes of an earlier one are not used again */
    struct stack_path *last;
};

/// The node of a stack: `frames`, innermost first, as words (a return address, or a struct callsite_file_python). Nodes
/// that are new are appended to the call-site file first. `generation`: of the loaded objects. Returns 0 if there is no
/// room for it, in memory or in the file. Threads: writers.
uint32_t stack_tree_put(struct stack_tree *tree, enum stack_kind kind, const uint64_t *frames, unsigned count,
                        unsigned generation);

/// Empty it and give its memory back. Threads: writers.
void stack_tree_reset(struct stack_tree *tree);

#endif
