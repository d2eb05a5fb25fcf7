/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the allocator rounds under a history's settings: request to block, block to segment. All passes ask here.
 */
#ifndef VARVE_ANALYSIS_REPLAY_ROUNDING_H
#define VARVE_ANALYSIS_REPLAY_ROUNDING_H

#include "alloc/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct replay_rounding {
    struct varve_device *device;
    struct varve_alloc *alloc; /* never allocates */
    uint64_t max_split;        /* blocks of this size and more are not split; UINT64_MAX: no limit */
    uint64_t large_unit;       /* that an expandable segment of large blocks grows by */
};

/// replay_rounding_close in any case. Errors: those of the settings.
int replay_rounding_open(struct replay_rounding *rounding, const struct varve_alloc_config *config,
                         struct varve_message *message);
void replay_rounding_close(struct replay_rounding *rounding);
/// Bytes of the block that serves a request; 0: no such request is possible.
uint64_t replay_block_size(const struct replay_rounding *rounding, uint64_t requested);

#ifdef __cplusplus
}
#endif

#endif
