/* SPDX-License-Identifier: Apache-2.0 */
/* Whole stacks out of a call-site file's nodes, for those who want each stack by itself. */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_UNROLL_H
#define VARVE_TRACE_CALLSITES_CALLSITE_UNROLL_H

#include "trace/format/callsite_format.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unroll_node {
    uint64_t frame;
    uint32_t parent;
};

/* The nodes of one file. All zero: none. */
struct unroll {
    struct unroll_node *nodes; /* of number n at [n] */
    size_t capacity;
};

/* An entry of tag STACK and its payload. */
struct unroll_stack {
    struct callsite_file_entry entry;
    struct callsite_file_stack stack; /* the payload begins here */
    uint64_t frames[2 * CALLSITE_FILE_DEPTH_MAX];
};

/// Take the nodes of a sound entry of tag NATIVE or PYTHON; false: no memory.
bool unroll_take(struct unroll *unroll, const struct callsite_file_entry *entry, const uint8_t *payload);
/// The stack of a sound entry of tag SITE; false if it names nodes that are not there, or more than a stack has.
bool unroll_site(const struct unroll *unroll, const uint8_t *payload, struct unroll_stack *out);
void unroll_free(struct unroll *unroll);

#endif
