/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A placement problem in its plainest form: times are numbers of points, and sizes are rounded up to the alignment, so
 * that offsets keep to it by themselves. Two buffers share a point if and only if they live at the same time: a point
 * stands for a run of begins without an end between them, after which all buffers live that live at any time of the
 * run. Made by placement.c, read by all solvers.
 */
#ifndef VARVE_ANALYSIS_WHATIF_PLACEMENT_INSTANCE_H
#define VARVE_ANALYSIS_WHATIF_PLACEMENT_INSTANCE_H

#include "analysis/whatif/placement.h"

struct placement_item {
    uint32_t first, end; /* points: it lives in [first, end) */
    uint64_t size;       /* rounded up, not 0 */
};

struct placement_instance {
    struct placement_item *items;
    size_t *buffers; /* of each item, its number among the buffers */
    size_t count;    /* at most that of the buffers: those of size 0 are left out */
    uint32_t points;
    uint64_t load;  /* of sizes as they are */
    uint64_t bound; /* of rounded ones: no placement is lower */
    uint64_t unit;  /* all sizes are multiples of it, so that heights need be no others */
};

static inline uint64_t placement_round(uint64_t size, uint64_t alignment)
{
    return (size + alignment - 1) / alignment * alignment;
}

/// Buffers as placement_solve takes them, fewer than 2^31. Owner: the caller, by placement_instance_free.
void placement_instance_make(struct placement_instance *instance, const struct placement_buffer *buffers, size_t count,
                             uint64_t alignment);
void placement_instance_free(struct placement_instance *instance);

#endif
