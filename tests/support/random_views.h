/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Random shapes, and random geometries of a shape, for tests of what works on arrays.
 */
#ifndef VARVE_TESTS_SUPPORT_RANDOM_VIEWS_H
#define VARVE_TESTS_SUPPORT_RANDOM_VIEWS_H

#include "storage/array.h"
#include "support/random.h"

#include <stdbool.h>

/* Up to five axes, small ones and at times a large one, of at most `most` elements; now and then one without any. */
static inline unsigned random_views_shape(uint64_t *random, int64_t *shape, int64_t most)
{
    unsigned ndim = (unsigned)random_below(random, 6);
    for (unsigned i = 0; i < ndim; i++) {
        int64_t limit = random_below(random, 3) == 0 ? 150 : 6;
        limit = limit < most ? limit : most;
        shape[i] = random_below(random, 40) == 0 ? 0 : 1 + (int64_t)random_below(random, (uint64_t)limit);
        most /= shape[i] > 0 ? shape[i] : 1;
    }
    return ndim;
}

/* A geometry of that shape: axes in a random order, some with steps or gaps, some turned round, somewhere in
 * `elements`. False: it would need more than these. */
static inline bool random_views_geometry(uint64_t *random, struct varve_geometry *view, unsigned ndim,
                                         const int64_t *shape, int64_t elements)
{
    bool is_usual = random_below(random, 2) == 0;
    int64_t stride = 1, first, end;
    *view = (struct varve_geometry){.ndim = ndim};
    unsigned order[VARVE_DIMS_MAX];
    for (unsigned i = 0; i < ndim; i++) {
        unsigned other = is_usual ? i : (unsigned)random_below(random, i + 1);
        order[i] = order[other];
        order[other] = ndim - 1 - i;
    }
    for (unsigned i = 0; i < ndim; i++) {
        unsigned axis = order[i];
        int64_t step = random_below(random, 4) == 0 ? 1 + (int64_t)random_below(random, 3) : 1;
        int64_t gap = random_below(random, 6) == 0 ? (int64_t)random_below(random, 3) : 0;
        int64_t size = shape[axis] + gap;
        view->shape[axis] = shape[axis];
        view->strides[axis] = stride * step * (random_below(random, 4) == 0 ? -1 : 1);
        stride *= (size > 0 ? size : 1) * step;
    }
    varve_geometry_range(view, &first, &end);
    if (end - first > elements) {
        return false;
    }
    view->offset = (int64_t)random_below(random, (uint64_t)(elements - (end - first) + 1)) - first;
    return true;
}

#endif
