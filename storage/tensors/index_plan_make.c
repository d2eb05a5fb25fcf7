/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans: made from an expression that was read, with what a run will cost, and run in host memory. Copies and fills of
 * views are those of array.h.
 */
#include "storage/tensors/index_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static int source_check(const struct varve_array *source, struct varve_message *message)
{
    if (varve_dtype_bytes(source->dtype) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%d is no type of elements", (int)source->dtype);
    }
    if (source->geometry.ndim > VARVE_DIMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%u dimensions; at most %d are possible",
                                 source->geometry.ndim, VARVE_DIMS_MAX);
    }
    return VARVE_OK;
}

/* The result's shape: axes of arrays and masks among those that are left. */
static int result_make(const struct index_plan *plan, struct varve_geometry *result_out, struct varve_message *message)
{
    const struct index_positions *positions = &plan->positions;
    unsigned ndim = plan->rest.ndim + positions->ndim, at = plan->advanced_at;
    int64_t shape[2 * VARVE_DIMS_MAX];
    memcpy(shape, plan->rest.shape, at * sizeof(*shape));
    memcpy(shape + at, positions->shape, positions->ndim * sizeof(*shape));
    memcpy(shape + at + positions->ndim, plan->rest.shape + at, (plan->rest.ndim - at) * sizeof(*shape));
    if (ndim > VARVE_DIMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the result has %u dimensions; at most %d are possible",
                                 ndim, VARVE_DIMS_MAX);
    }
    return varve_geometry_contiguous(ndim, shape, result_out, message);
}

static void plan_storage(struct index_plan *plan)
{
    const struct index_positions *positions = &plan->positions;
    struct varve_index_plan *public = &plan->plan;
    public->index_bytes = index_positions_bytes(positions);
    public->needs_mask_compaction = positions->bits.words != NULL;
    public->index_storage = positions->bits.words != NULL ? VARVE_INDEX_STORAGE_BITS
                            : positions->is_wide          ? VARVE_INDEX_STORAGE_OFFSETS_64
                                                          : VARVE_INDEX_STORAGE_OFFSETS_32;
}

/* What every plan has; its kind is `basic` if nothing but integers, slices and new axes is there, else `advanced`. */
static int plan_make(struct index_plan *plan, const struct varve_array *source, const struct varve_index *indices,
                     unsigned count, enum varve_plan_kind basic, enum varve_plan_kind advanced,
                     struct varve_message *message)
{
    struct varve_index_plan *public = &plan->plan;
    int64_t bytes = (int64_t)varve_dtype_bytes(source->dtype);
    struct index_expression expression;
    int error = source_check(source, message);
    VARVE_THEN(error, index_expression_read(&source->geometry, indices, count, &expression, message));
    if (error != VARVE_OK) {
        return error;
    }
    public->dtype = source->dtype;
    public->source = source->geometry;
    plan->rest = expression.rest;
    if (expression.has_advanced) {
        public->kind = advanced;
        plan->advanced_at = expression.advanced_at;
        error = index_positions_make(&expression, (size_t)bytes, &plan->positions, message);
        VARVE_THEN(error, result_make(plan, &public->result, message));
        if (error == VARVE_OK) {
            plan_storage(plan);
        }
    } else {
        public->kind = basic;
        public->result = expression.rest;
        public->offset_bytes = expression.rest.offset * bytes;
    }
    public->element_count = error == VARVE_OK ? varve_geometry_count(&public->result) : 0;
    return error;
}

static int plan_finish(struct index_plan *plan, int error, struct varve_index_plan **plan_out)
{
    if (error != VARVE_OK) {
        index_positions_free(&plan->positions);
        free(plan);
        return error;
    }
    *plan_out = &plan->plan;
    return VARVE_OK;
}

static int index_make_plan_alloc(struct index_plan **plan_out, struct varve_message *message)
{
    *plan_out = calloc(1, sizeof(**plan_out));
    return *plan_out == NULL ? varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a plan") : VARVE_OK;
}

int varve_index_plan_get(const struct varve_array *source, const struct varve_index *indices, unsigned count,
                         struct varve_index_plan **plan_out, struct varve_message *message)
{
    struct index_plan *plan;
    VARVE_TRY(index_make_plan_alloc(&plan, message));
    int error = plan_make(plan, source, indices, count, VARVE_PLAN_VIEW, VARVE_PLAN_GATHER, message);
    if (plan->plan.kind == VARVE_PLAN_GATHER) {
        int64_t bytes = plan->plan.element_count * (int64_t)varve_dtype_bytes(source->dtype);
        plan->plan.read_bytes = bytes + plan->plan.index_bytes;
        plan->plan.written_bytes = bytes;
    }
    return plan_finish(plan, error, plan_out);
}

/* Elements that share an address can't be set one by one. */
static int target_check(const struct varve_array *target, struct varve_message *message)
{
    const struct varve_geometry *geometry = &target->geometry;
    for (unsigned i = 0; i < geometry->ndim && i < VARVE_DIMS_MAX; i++) {
        if (geometry->shape[i] > 1 && geometry->strides[i] == 0) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "the elements along axis %u share an address: they can't be set", i);
        }
    }
    return VARVE_OK;
}

/* As NumPy does, leading axes of size 1 that the result has not are left out of the value. */
static int value_expand(const struct varve_geometry *value, const struct varve_geometry *result,
                        struct varve_geometry *expanded_out, struct varve_message *message)
{
    struct varve_geometry expanded = {.offset = value->offset};
    unsigned first = 0;
    while (value->ndim - first > result->ndim && value->shape[first] == 1) {
        first++;
    }
    expanded.ndim = value->ndim - first;
    memcpy(expanded.shape, value->shape + first, expanded.ndim * sizeof(*expanded.shape));
    memcpy(expanded.strides, value->strides + first, expanded.ndim * sizeof(*expanded.strides));
    char from[VARVE_SHAPE_TEXT_BYTES], to[VARVE_SHAPE_TEXT_BYTES];
    if (varve_geometry_expand(&expanded, result->ndim, result->shape, NULL) != VARVE_OK) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "shape mismatch: value array of shape %s could not be broadcast to indexing "
                                 "result of shape %s",
                                 index_shape_text(value->ndim, value->shape, from, sizeof(from)),
                                 index_shape_text(result->ndim, result->shape, to, sizeof(to)));
    }
    *expanded_out = expanded;
    return VARVE_OK;
}

int varve_index_plan_set(const struct varve_array *target, const struct varve_index *indices, unsigned count,
                         const struct varve_array *value, struct varve_index_plan **plan_out,
                         struct varve_message *message)
{
    struct index_plan *plan;
    VARVE_TRY(index_make_plan_alloc(&plan, message));
    int error = plan_make(plan, target, indices, count, VARVE_PLAN_COPY, VARVE_PLAN_SCATTER, message);
    VARVE_THEN(error, target_check(target, message));
    VARVE_THEN(error, source_check(value, message));
    struct varve_geometry expanded;
    VARVE_THEN(error, value_expand(&value->geometry, &plan->plan.result, &expanded, message));
    if (error == VARVE_OK) {
        int64_t values = plan->plan.element_count == 0 ? 0 : varve_geometry_count(&value->geometry);
        int64_t bytes = (int64_t)varve_dtype_bytes(target->dtype);
        plan->value = value->geometry;
        plan->value_dtype = value->dtype;
        plan->plan.temporary_bytes =
            plan->plan.kind == VARVE_PLAN_SCATTER && value->dtype != target->dtype ? values * bytes : 0;
        plan->plan.read_bytes = values * (int64_t)varve_dtype_bytes(value->dtype) + plan->plan.index_bytes;
        plan->plan.written_bytes = plan->plan.element_count * bytes;
    }
    return plan_finish(plan, error, plan_out);
}

int varve_index_plan_fill(const struct varve_array *target, const struct varve_index *indices, unsigned count,
                          struct varve_scalar value, struct varve_index_plan **plan_out, struct varve_message *message)
{
    struct index_plan *plan;
    VARVE_TRY(index_make_plan_alloc(&plan, message));
    int error = plan_make(plan, target, indices, count, VARVE_PLAN_FILL, VARVE_PLAN_SCATTER, message);
    VARVE_THEN(error, target_check(target, message));
    if (error == VARVE_OK) {
        struct varve_array number = {.data = plan->number, .dtype = target->dtype};
        plan->is_number = true;
        plan->scalar = value;
        plan->plan.read_bytes = plan->plan.index_bytes;
        plan->plan.written_bytes = plan->plan.element_count * (int64_t)varve_dtype_bytes(target->dtype);
        error = varve_array_fill(&number, value, message);
    }
    return plan_finish(plan, error, plan_out);
}

void varve_index_plan_free(struct varve_index_plan *plan)
{
    struct index_plan *whole = (struct index_plan *)plan;
    if (whole != NULL) {
        index_positions_free(&whole->positions);
        free(whole);
    }
}

/* ---- running ---- */

/* The indexed array is one that the plan was made for. */
static int indexed_check(const struct varve_index_plan *plan, const struct varve_array *array,
                         struct varve_message *message)
{
    const struct varve_geometry *geometry = &array->geometry;
    if (array->dtype != plan->dtype) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the plan is for %s, not for %s",
                                 varve_dtype_name(plan->dtype), varve_dtype_name(array->dtype));
    }
    if (!varve_geometry_has_shape(geometry, plan->source.ndim, plan->source.shape) ||
        memcmp(geometry->strides, plan->source.strides, geometry->ndim * sizeof(*geometry->strides)) != 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "the plan is for an array of another shape or other strides");
    }
    return VARVE_OK;
}

static int packed_check(const struct varve_array *array, enum varve_dtype dtype, const struct varve_geometry *shape,
                        struct varve_message *message)
{
    if (array->dtype != dtype) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the plan is for values of %s, not %s",
                                 varve_dtype_name(dtype), varve_dtype_name(array->dtype));
    }
    char from[VARVE_SHAPE_TEXT_BYTES], to[VARVE_SHAPE_TEXT_BYTES];
    if (!varve_geometry_has_shape(&array->geometry, shape->ndim, shape->shape)) {
        unsigned ndim = array->geometry.ndim < VARVE_DIMS_MAX ? array->geometry.ndim : VARVE_DIMS_MAX;
        return varve_message_set(message, VARVE_ERROR_INVALID, "the plan is for an array of shape %s, not %s",
                                 varve_shape_text(shape->ndim, shape->shape, to, sizeof(to)),
                                 varve_shape_text(ndim, array->geometry.shape, from, sizeof(from)));
    }
    return VARVE_OK;
}

/* Where `part` of the plan's source begins in an array, whose offset may be another than when the plan was made. */
static int64_t offset_in(const struct varve_array *indexed, const struct varve_index_plan *plan,
                         const struct varve_geometry *part)
{
    return part->offset + indexed->geometry.offset - plan->source.offset;
}

static struct varve_array indexed_view(const struct varve_array *indexed, const struct varve_index_plan *plan)
{
    struct varve_array view = {.data = indexed->data, .geometry = plan->result, .dtype = indexed->dtype};
    view.geometry.offset = offset_in(indexed, plan, &plan->result);
    return view;
}

static bool arrays_overlap(const struct varve_array *one, const struct varve_array *two)
{
    int64_t first, end;
    varve_geometry_range(&one->geometry, &first, &end);
    uintptr_t one_first = (uintptr_t)one->data + (uintptr_t)first * varve_dtype_bytes(one->dtype);
    uintptr_t one_end = (uintptr_t)one->data + (uintptr_t)end * varve_dtype_bytes(one->dtype);
    varve_geometry_range(&two->geometry, &first, &end);
    uintptr_t two_first = (uintptr_t)two->data + (uintptr_t)first * varve_dtype_bytes(two->dtype);
    uintptr_t two_end = (uintptr_t)two->data + (uintptr_t)end * varve_dtype_bytes(two->dtype);
    return one_first < two_end && two_first < one_end;
}

/* A new array of that shape; owner of its data: the caller, by the runner's release(). */
static int array_make(const struct index_runner *runner, const struct varve_geometry *shape, enum varve_dtype dtype,
                      struct varve_array *array_out, struct varve_message *message)
{
    struct varve_array array = {.dtype = dtype};
    int error = varve_geometry_contiguous(shape->ndim, shape->shape, &array.geometry, message);
    uint64_t bytes = (uint64_t)varve_geometry_count(&array.geometry) * varve_dtype_bytes(dtype);
    VARVE_THEN(error, runner->allocate(runner, bytes, &array.data, message));
    if (error == VARVE_OK) {
        *array_out = array;
    }
    return error;
}

static int run_gather(const struct index_runner *runner, const struct index_plan *plan,
                      const struct varve_array *target, const struct varve_array *source, struct varve_message *message)
{
    int64_t offset = offset_in(source, &plan->plan, &plan->rest);
    VARVE_TRY(target_check(target, message));
    if (!arrays_overlap(target, source)) {
        return runner->move(runner, plan, target, source->data, offset, message);
    }
    struct varve_array aside;
    VARVE_TRY(array_make(runner, &target->geometry, target->dtype, &aside, message));
    int error = runner->move(runner, plan, &aside, source->data, offset, message);
    VARVE_THEN(error, runner->copy(runner, target, &aside, message));
    runner->release(runner, aside.data);
    return error;
}

/* Without `source` it is the plan's number. */
static int run_scatter(const struct index_runner *runner, const struct index_plan *plan,
                       const struct varve_array *target, const struct varve_array *source,
                       struct varve_message *message)
{
    struct varve_array values = {.data = (void *)plan->number, .dtype = target->dtype}, aside = {0};
    int error = VARVE_OK;
    if (source != NULL) {
        values = *source;
        if (values.dtype != target->dtype || arrays_overlap(&values, target)) {
            error = array_make(runner, &values.geometry, target->dtype, &aside, message);
            VARVE_THEN(error, runner->copy(runner, &aside, &values, message));
            values = aside;
        }
    }
    VARVE_THEN(error, value_expand(&values.geometry, &plan->plan.result, &values.geometry, message));
    VARVE_THEN(error,
               runner->move(runner, plan, &values, target->data, offset_in(target, &plan->plan, &plan->rest), message));
    if (aside.data != NULL) {
        runner->release(runner, aside.data);
    }
    return error;
}

int varve_index_plan_view(const struct varve_index_plan *plan, const struct varve_array *source,
                          struct varve_array *view_out, struct varve_message *message)
{
    int error = indexed_check(plan, source, message);
    if (error == VARVE_OK && (plan->kind == VARVE_PLAN_GATHER || plan->kind == VARVE_PLAN_SCATTER)) {
        error = varve_message_set(message, VARVE_ERROR_INVALID, "arrays and masks make no view");
    }
    if (error == VARVE_OK) {
        *view_out = indexed_view(source, plan);
    }
    return error;
}

static int run_view(const struct index_runner *runner, const struct index_plan *plan, const struct varve_array *target,
                    const struct varve_array *source, struct varve_message *message)
{
    struct varve_array view = indexed_view(source, &plan->plan);
    return runner->copy(runner, target, &view, message);
}

/* COPY and FILL, which has no `source`. */
static int run_view_set(const struct index_runner *runner, const struct index_plan *plan,
                        const struct varve_array *target, const struct varve_array *source,
                        struct varve_message *message)
{
    struct varve_array view = indexed_view(target, &plan->plan);
    if (source == NULL) {
        return runner->fill(runner, &view, plan->scalar, message);
    }
    struct varve_array values = *source;
    int error = value_expand(&source->geometry, &view.geometry, &values.geometry, message);
    return error == VARVE_OK ? runner->copy(runner, &view, &values, message) : error;
}

int index_plan_run(const struct index_runner *runner, const struct varve_index_plan *plan,
                   const struct varve_array *target, const struct varve_array *source, struct varve_message *message)
{
    const struct index_plan *whole = (const struct index_plan *)plan;
    enum varve_plan_kind kind = plan->kind;
    bool is_get = kind == VARVE_PLAN_VIEW || kind == VARVE_PLAN_GATHER;
    const struct varve_array *values = whole->is_number ? NULL : source;
    if ((is_get || !whole->is_number) && source == NULL) {
        varve_message_set(message, VARVE_ERROR_INVALID, "the plan needs an array to read from");
        return VARVE_ERROR_INVALID;
    }
    int error = indexed_check(plan, is_get ? source : target, message);
    if (error == VARVE_OK && is_get) {
        error = packed_check(target, plan->dtype, &plan->result, message);
    } else if (error == VARVE_OK && values != NULL) {
        error = packed_check(values, whole->value_dtype, &whole->value, message);
    }
    if (error != VARVE_OK) {
        return error;
    }
    switch (kind) {
    case VARVE_PLAN_VIEW:
        return run_view(runner, whole, target, source, message);
    case VARVE_PLAN_GATHER:
        return run_gather(runner, whole, target, source, message);
    case VARVE_PLAN_SCATTER:
        return run_scatter(runner, whole, target, values, message);
    default:
        return run_view_set(runner, whole, target, values, message);
    }
}

/* ---- in host memory ---- */

static int host_allocate(const struct index_runner *runner, uint64_t bytes, void **data_out,
                         struct varve_message *message)
{
    (void)runner;
    *data_out = malloc((size_t)bytes + 1);
    return *data_out != NULL
               ? VARVE_OK
               : varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for %" PRIu64 " bytes set aside", bytes);
}

static void host_release(const struct index_runner *runner, void *data)
{
    (void)runner;
    free(data);
}

static int index_plan_make_host_copy(const struct index_runner *runner, const struct varve_array *target,
                                     const struct varve_array *source, struct varve_message *message)
{
    (void)runner;
    return varve_array_copy(target, source, message);
}

static int index_plan_make_host_fill(const struct index_runner *runner, const struct varve_array *target,
                                     struct varve_scalar value, struct varve_message *message)
{
    (void)runner;
    return varve_array_fill(target, value, message);
}

static int host_move(const struct index_runner *runner, const struct index_plan *plan, const struct varve_array *packed,
                     void *indexed_data, int64_t indexed_offset, struct varve_message *message)
{
    (void)runner;
    (void)message;
    index_move(plan, packed, indexed_data, indexed_offset, plan->plan.kind == VARVE_PLAN_SCATTER);
    return VARVE_OK;
}

int varve_index_plan_run(const struct varve_index_plan *plan, const struct varve_array *target,
                         const struct varve_array *source, struct varve_message *message)
{
    static const struct index_runner host = {
        .allocate = host_allocate,
        .release = host_release,
        .copy = index_plan_make_host_copy,
        .fill = index_plan_make_host_fill,
        .move = host_move,
    };
    return index_plan_run(&host, plan, target, source, message);
}
