/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/history/infer_device.h"

#include <stdlib.h>

void replay_hints_free(struct replay_hints *hints)
{
    map_free(&hints->sizes);
    map_free(&hints->choices);
    map_free(&hints->pools);
    free(hints->apart);
    *hints = (struct replay_hints){0};
}

void replay_hints_apply(const struct replay_hints *hints, struct varve_alloc_snapshot *start)
{
    if (hints->sizes.index.count == 0) {
        return;
    }
    for (size_t i = 0; i + 1 < start->block_count; i++) {
        struct varve_block_info *block = &start->blocks[i];
        struct varve_block_info *rest = &start->blocks[i + 1];
        uint64_t bytes = map_find(&hints->sizes, block->addr);
        if (bytes != MAP_NONE && block->allocation_id != 0) {
            rest->addr += bytes - block->bytes;
            rest->bytes -= bytes - block->bytes;
            block->bytes = bytes;
        }
    }
}
