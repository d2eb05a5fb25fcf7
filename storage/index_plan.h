/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index plans: what source[indices], source[indices] = values and source[indices] = number mean, worked out once and
 * checked before an element is touched. Part of storage.h; the semantics are NumPy's. A plan needs no data, tells what
 * it is about to cost, and runs as often as wanted, on any arrays of the geometry that it was made for.
 *
 * Functions that fail return a negative enum varve_error with a reason in `message` (may be NULL) and change nothing;
 * for indices the reasons are NumPy's own. A finished plan is never changed: any number of threads may read and run it.
 */
#ifndef VARVE_STORAGE_INDEX_PLAN_H
#define VARVE_STORAGE_INDEX_PLAN_H

#include "storage/array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One entry of what stands in the brackets. */
enum varve_index_kind {
    VARVE_INDEX_INTEGER,  /* start */
    VARVE_INDEX_SLICE,    /* start, stop, step; VARVE_SLICE_NONE for what is left out */
    VARVE_INDEX_NEW_AXIS, /* None of Python */
    VARVE_INDEX_ELLIPSIS,
    VARVE_INDEX_ARRAY, /* integers of any type; one without axes is an INTEGER */
    VARVE_INDEX_MASK,  /* bool: one takes as many axes as it has; without axes it makes one of size 1 or 0 */
};

struct varve_index {
    enum varve_index_kind kind;
    int64_t start;
    int64_t stop;
    int64_t step;
    struct varve_array array; /* ARRAY, MASK: borrowed while the plan is made */
};

enum varve_plan_kind {
    VARVE_PLAN_VIEW,    /* of integers, slices and new axes: nothing has to move */
    VARVE_PLAN_GATHER,  /* elements of the source, picked by arrays or masks, into a new array */
    VARVE_PLAN_SCATTER, /* values, or one number, to elements picked so; of equal indices the last one wins */
    VARVE_PLAN_COPY,    /* values into a view */
    VARVE_PLAN_FILL,    /* one number into a view */
};

/* What a plan keeps of arrays and masks, checked and of its own. */
enum varve_index_storage {
    VARVE_INDEX_STORAGE_NONE,       /* nothing: VIEW, COPY, FILL */
    VARVE_INDEX_STORAGE_OFFSETS_32, /* offsets in bytes, 4 bytes each: they reach over less than 2 GiB */
    VARVE_INDEX_STORAGE_OFFSETS_64,
    VARVE_INDEX_STORAGE_BITS, /* a bit for each element of one mask, where that is smaller */
};

struct varve_index_plan {
    enum varve_plan_kind kind;
    enum varve_dtype dtype; /* of source and result */
    /* What is indexed. The plan runs on arrays with these sizes and strides, at any offset. */
    struct varve_geometry source;
    /* VIEW, COPY, FILL: the view, strides and offset into the source. GATHER, SCATTER: the shape of what is picked,
     * with the strides that a new array of it has. */
    struct varve_geometry result;
    int64_t offset_bytes;  /* VIEW, COPY, FILL: that of the result in the source; else 0 */
    int64_t element_count; /* of the result */
    /* BITS: offsets are worked out each time the plan runs. */
    bool needs_mask_compaction;
    enum varve_index_storage index_storage;
    int64_t index_bytes;
    /* What a run allocates: values in the type of the source, if theirs is another. Where arrays overlap in memory,
     * which only a run sees, the values, or what is gathered, are set aside as well. */
    int64_t temporary_bytes;
    /* What a run reads, elements and what is kept of indices, and writes; a value that is used many times counts once.
     * A VIEW that is not copied moves nothing: 0. */
    int64_t read_bytes;
    int64_t written_bytes;
};

/// Plan source[indices], a VIEW or a GATHER. Of `source` only geometry and type are read; `indices` has `count`
/// entries. Owner of the plan: the caller, until varve_index_plan_free(). Errors: VARVE_ERROR_INVALID (an index outside
/// of its axis, too many, a mask of another shape, arrays that don't broadcast, no integers, more than VARVE_DIMS_MAX
/// axes), VARVE_ERROR_NO_MEMORY.
int varve_index_plan_get(const struct varve_array *source, const struct varve_index *indices, unsigned count,
                         struct varve_index_plan **plan_out, struct varve_message *message);
/// Plan target[indices] = value, a COPY or a SCATTER; the value is expanded and converted. Of `target` and `value` only
/// geometry and type are read. Errors: those of varve_index_plan_get, and VARVE_ERROR_INVALID for a value that can't be
/// expanded to what is indexed, and for a target with elements that share an address.
int varve_index_plan_set(const struct varve_array *target, const struct varve_index *indices, unsigned count,
                         const struct varve_array *value, struct varve_index_plan **plan_out,
                         struct varve_message *message);
/// Plan target[indices] = value, a FILL or a SCATTER; the plan keeps the number, converted as varve_array_fill() does.
/// Errors: those of varve_index_plan_set.
int varve_index_plan_fill(const struct varve_array *target, const struct varve_index *indices, unsigned count,
                          struct varve_scalar value, struct varve_index_plan **plan_out, struct varve_message *message);
/// Without effect on NULL.
void varve_index_plan_free(struct varve_index_plan *plan);

/// The view that a VIEW, COPY or FILL plan is about, in the memory of `source`. Errors: VARVE_ERROR_INVALID (another
/// plan, or an array of another type or geometry).
int varve_index_plan_view(const struct varve_index_plan *plan, const struct varve_array *source,
                          struct varve_array *view_out, struct varve_message *message);
/// Run a plan in host memory. GATHER (and VIEW, to have a copy): from `source`, the indexed array, to `target`, which
/// has the result's shape and type, and any strides. SCATTER and COPY: from `source`, the values, to `target`, the
/// indexed array; of a number, and for FILL, `source` is NULL. Arrays that overlap are treated as if the source had
/// been set aside first. Errors: VARVE_ERROR_INVALID (arrays of other types, shapes or strides than planned),
/// VARVE_ERROR_NO_MEMORY.
int varve_index_plan_run(const struct varve_index_plan *plan, const struct varve_array *target,
                         const struct varve_array *source, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
