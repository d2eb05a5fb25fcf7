/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the nodes of a call-site file as they are in it, and follows a call site's outwards. Called by
 * callsite_reader.c where somebody listens.
 */
#include "trace/callsites/callsite_reader.h"

#include "base/grown_array.h"

#include <stdlib.h>
#include <string.h>

bool unroll_take(struct unroll *unroll, const struct callsite_file_entry *entry, const uint8_t *payload)
{
    struct callsite_file_nodes chain;
    size_t count = (entry->bytes - sizeof(chain)) / sizeof(uint64_t);
    memcpy(&chain, payload, sizeof(chain));
    payload += sizeof(chain);
    if (chain.first == 0 || chain.first > CALLSITE_FILE_NUMBER_MAX || count > CALLSITE_FILE_NUMBER_MAX - chain.first) {
        return true; /* the reader counts it as damage */
    }
    if (count > 0 && !ARRAY_COVER(unroll->nodes, unroll->capacity, chain.first + count - 1)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct unroll_node *node = &unroll->nodes[chain.first + i];
        memcpy(&node->frame, payload + i * sizeof(uint64_t), sizeof(node->frame));
        node->parent = i == 0 ? chain.parent : chain.first + (uint32_t)i - 1;
    }
    return true;
}

static bool add_frames(const struct unroll *unroll, uint32_t node, uint64_t *frames, uint16_t *count)
{
    for (*count = 0; node != 0; node = unroll->nodes[node].parent) {
        if (node >= unroll->capacity || *count == CALLSITE_FILE_DEPTH_MAX) {
            return false;
        }
        frames[(*count)++] = unroll->nodes[node].frame;
    }
    return true;
}

bool unroll_site(const struct unroll *unroll, const uint8_t *payload, struct unroll_stack *out)
{
    struct callsite_file_site site;
    memcpy(&site, payload, sizeof(site));
    out->stack.callsite = site.callsite;
    if (!add_frames(unroll, site.native, out->frames, &out->stack.native_count) ||
        !add_frames(unroll, site.python, out->frames + out->stack.native_count, &out->stack.python_count)) {
        return false;
    }
    out->entry.tag = CALLSITE_FILE_TAG_STACK;
    out->entry.bytes = (uint32_t)(sizeof(out->stack) +
                                  (size_t)(out->stack.native_count + out->stack.python_count) * sizeof(out->frames[0]));
    return true;
}

void unroll_free(struct unroll *unroll)
{
    free(unroll->nodes);
    *unroll = (struct unroll){NULL, 0};
}
