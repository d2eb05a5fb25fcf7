/* SPDX-License-Identifier: Apache-2.0 */
/* What a log needs by itself, whatever is evicted: the budget below which no play can reach its end. */
#ifndef VARVE_ANALYSIS_DTR_DTR_DESCRIBE_H
#define VARVE_ANALYSIS_DTR_DTR_DESCRIBE_H

#include "analysis/dtr/dtr_log.h"
#include "storage/storage.h"

struct dtr_description {
    uint32_t storages, views, backward_ops;
    uint64_t constant_bytes;
    uint64_t end_bytes; /* what must be resident at the end, constants included */
    /* No budget below can work. It is what `bound_op` needs: what is pinned by then, its inputs and its outputs; or the
     * end condition (VARVE_REMAT_NONE). */
    uint64_t bound_bytes;
    uint32_t bound_op;
};

/// `dealloc`: with VARVE_REMAT_DEALLOC_BANISH what is pinned goes, too, once it is released.
void dtr_describe(const struct dtr_log *log, enum varve_remat_dealloc dealloc, struct dtr_description *description_out);

#endif
