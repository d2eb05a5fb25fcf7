/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index expressions, by NumPy's rules: which index takes which axes, what integers and slices leave, and where the axes
 * of arrays and masks go. They go where the first array or mask stands if all of them, integers too, stand side by
 * side, and to the front if a slice, an ellipsis or a new axis stands between two.
 */
#include "storage/tensors/index_internal.h"

#include <inttypes.h>
#include <string.h>

static bool is_integer_type(enum varve_dtype dtype)
{
    return dtype == VARVE_DTYPE_I64 || dtype == VARVE_DTYPE_I32 || dtype == VARVE_DTYPE_I16 ||
           dtype == VARVE_DTYPE_I8 || dtype == VARVE_DTYPE_U8;
}

/* An array without axes is the integer in it. */
static bool is_integer(const struct varve_index *index)
{
    return index->kind == VARVE_INDEX_INTEGER || (index->kind == VARVE_INDEX_ARRAY && index->array.geometry.ndim == 0);
}

static int64_t index_expression_integer_of(const struct varve_index *index)
{
    const struct varve_array *array = &index->array;
    if (index->kind == VARVE_INDEX_INTEGER) {
        return index->start;
    }
    const char *at = (const char *)array->data + array->geometry.offset * (int64_t)varve_dtype_bytes(array->dtype);
    int64_t whole = 0;
    int32_t word = 0;
    int16_t half = 0;
    switch (array->dtype) {
    case VARVE_DTYPE_I64:
        memcpy(&whole, at, sizeof(whole));
        return whole;
    case VARVE_DTYPE_I32:
        memcpy(&word, at, sizeof(word));
        return word;
    case VARVE_DTYPE_I16:
        memcpy(&half, at, sizeof(half));
        return half;
    case VARVE_DTYPE_I8:
        return (signed char)*at;
    default:
        return (unsigned char)*at;
    }
}

/* Axes of the source that an index takes. */
static unsigned axes_taken(const struct varve_index *index)
{
    switch (index->kind) {
    case VARVE_INDEX_INTEGER:
    case VARVE_INDEX_SLICE:
    case VARVE_INDEX_ARRAY:
        return 1;
    case VARVE_INDEX_MASK:
        return index->array.geometry.ndim;
    default:
        return 0;
    }
}

static int entry_check(const struct varve_index *index, struct varve_message *message)
{
    bool is_array = index->kind == VARVE_INDEX_ARRAY || index->kind == VARVE_INDEX_MASK;
    if (is_array && index->array.geometry.ndim > VARVE_DIMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "an index of %u dimensions; at most %d are possible",
                                 index->array.geometry.ndim, VARVE_DIMS_MAX);
    }
    switch (index->kind) {
    case VARVE_INDEX_INTEGER:
    case VARVE_INDEX_NEW_AXIS:
    case VARVE_INDEX_ELLIPSIS:
        return VARVE_OK;
    case VARVE_INDEX_SLICE:
        return index->step == 0 ? varve_message_set(message, VARVE_ERROR_INVALID, "slice step cannot be zero")
                                : VARVE_OK;
    case VARVE_INDEX_ARRAY:
        return !is_integer_type(index->array.dtype)
                   ? varve_message_set(message, VARVE_ERROR_INVALID,
                                       "arrays used as indices must be of integer (or boolean) type, not %s",
                                       varve_dtype_name(index->array.dtype))
                   : VARVE_OK;
    case VARVE_INDEX_MASK:
        return index->array.dtype != VARVE_DTYPE_BOOL
                   ? varve_message_set(message, VARVE_ERROR_INVALID, "a mask is of type bool, not %s",
                                       varve_dtype_name(index->array.dtype))
                   : VARVE_OK;
    }
    return varve_message_set(message, VARVE_ERROR_INVALID, "%d is no kind of index", (int)index->kind);
}

/* How many axes the indices take all together. */
static int entries_check(const struct varve_geometry *source, const struct varve_index *indices, unsigned count,
                         unsigned *taken_out, struct varve_message *message)
{
    unsigned taken = 0, ellipses = 0;
    for (unsigned i = 0; i < count; i++) {
        VARVE_TRY(entry_check(&indices[i], message));
        taken += axes_taken(&indices[i]);
        ellipses += indices[i].kind == VARVE_INDEX_ELLIPSIS;
    }
    if (ellipses > 1) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "an index can only have a single ellipsis ('...')");
    }
    if (taken > source->ndim) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "too many indices for array: array is %u-dimensional, but %u were indexed",
                                 source->ndim, taken);
    }
    *taken_out = taken;
    return VARVE_OK;
}

static int masks_check(const struct varve_geometry *source, const struct varve_index *indices, unsigned count,
                       unsigned taken, struct varve_message *message)
{
    unsigned axis = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct varve_geometry *mask = &indices[i].array.geometry;
        for (unsigned j = 0; indices[i].kind == VARVE_INDEX_MASK && j < mask->ndim; j++) {
            if (mask->shape[j] != source->shape[axis + j]) {
                return varve_message_set(message, VARVE_ERROR_INVALID,
                                         "boolean index did not match indexed array along axis %u; size of "
                                         "axis is %" PRId64 " but size of corresponding boolean axis is "
                                         "%" PRId64,
                                         axis + j, source->shape[axis + j], mask->shape[j]);
            }
        }
        axis += indices[i].kind == VARVE_INDEX_ELLIPSIS ? source->ndim - taken : axes_taken(&indices[i]);
    }
    return VARVE_OK;
}

/* ---- what is left ---- */

static int rest_push(struct varve_geometry *rest, int64_t size, int64_t stride, struct varve_message *message)
{
    if (rest->ndim == VARVE_DIMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "the result has more than %d dimensions, the most that are possible", VARVE_DIMS_MAX);
    }
    rest->shape[rest->ndim] = size;
    rest->strides[rest->ndim++] = stride;
    return VARVE_OK;
}

static int rest_push_slice(struct index_expression *expression, unsigned axis, const struct varve_index *index,
                           struct varve_message *message)
{
    struct varve_geometry one = {.ndim = 1};
    one.shape[0] = expression->source->shape[axis];
    one.strides[0] = expression->source->strides[axis];
    (void)varve_geometry_slice(&one, 0, index->start, index->stop, index->step, NULL);
    expression->rest.offset += one.offset;
    return rest_push(&expression->rest, one.shape[0], one.strides[0], message);
}

static int rest_push_whole(struct index_expression *expression, unsigned axis, unsigned count,
                           struct varve_message *message)
{
    for (unsigned i = axis; i < axis + count; i++) {
        VARVE_TRY(rest_push(&expression->rest, expression->source->shape[i], expression->source->strides[i], message));
    }
    return VARVE_OK;
}

static int integer_apply(struct index_expression *expression, unsigned axis, int64_t index,
                         struct varve_message *message)
{
    int64_t size = expression->source->shape[axis];
    int64_t at = index < 0 ? index + size : index;
    if (at < 0 || at >= size) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "index %" PRId64 " is out of bounds for axis %u with size %" PRId64, index, axis,
                                 size);
    }
    expression->rest.offset += at * expression->source->strides[axis];
    return VARVE_OK;
}

static void advanced_add(struct index_expression *expression, unsigned axis, const struct varve_index *index)
{
    const struct varve_array *array = &index->array;
    if (array->geometry.ndim == 0) {
        bool is_true = ((const char *)array->data)[array->geometry.offset] != 0;
        expression->flag_size = is_true && expression->flag_size != 0 ? 1 : 0;
        return;
    }
    expression->advanced[expression->advanced_count++] = (struct index_advanced){
        .array = array,
        .is_mask = index->kind == VARVE_INDEX_MASK,
        .axis = axis,
        .axis_count = axes_taken(index),
    };
}

static int entry_apply(struct index_expression *expression, unsigned axis, unsigned untaken,
                       const struct varve_index *index, struct varve_message *message)
{
    if (is_integer(index)) {
        return integer_apply(expression, axis, index_expression_integer_of(index), message);
    }
    switch (index->kind) {
    case VARVE_INDEX_SLICE:
        return rest_push_slice(expression, axis, index, message);
    case VARVE_INDEX_NEW_AXIS:
        return rest_push(&expression->rest, 1, 0, message);
    case VARVE_INDEX_ELLIPSIS:
        return rest_push_whole(expression, axis, untaken, message);
    default:
        advanced_add(expression, axis, index);
        return VARVE_OK;
    }
}

static bool any_advanced(const struct varve_index *indices, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (indices[i].kind == VARVE_INDEX_MASK ||
            (indices[i].kind == VARVE_INDEX_ARRAY && indices[i].array.geometry.ndim > 0)) {
            return true;
        }
    }
    return false;
}

int index_expression_read(const struct varve_geometry *source, const struct varve_index *indices, unsigned count,
                          struct index_expression *expression, struct varve_message *message)
{
    enum { NONE_YET, INSIDE, BEHIND } group = NONE_YET; /* of the advanced indices */
    unsigned taken = 0;
    int error = entries_check(source, indices, count, &taken, message);
    VARVE_THEN(error, masks_check(source, indices, count, taken, message));
    expression->source = source;
    expression->rest.ndim = 0;
    expression->rest.offset = source->offset;
    expression->advanced_at = 0;
    expression->has_advanced = any_advanced(indices, count);
    expression->flag_size = -1;
    expression->advanced_count = 0;
    unsigned untaken = source->ndim - taken;
    unsigned axis = 0;
    for (unsigned i = 0; i < count && error == VARVE_OK; i++) {
        enum varve_index_kind kind = indices[i].kind;
        if (kind == VARVE_INDEX_SLICE || kind == VARVE_INDEX_NEW_AXIS || kind == VARVE_INDEX_ELLIPSIS) {
            group = group == INSIDE ? BEHIND : group;
        } else {
            expression->advanced_at = group == NONE_YET ? expression->rest.ndim
                                      : group == BEHIND ? 0
                                                        : expression->advanced_at;
            group = INSIDE;
        }
        error = entry_apply(expression, axis, untaken, &indices[i], message);
        axis += kind == VARVE_INDEX_ELLIPSIS ? untaken : axes_taken(&indices[i]);
    }
    return error == VARVE_OK ? rest_push_whole(expression, axis, source->ndim - axis, message) : error;
}
