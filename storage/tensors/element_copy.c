/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between arrays of any strides and types. One type goes by moves, two by runs that are converted; runs with
 * strides are gathered into a buffer first and scattered from one afterwards.
 */
#include "storage/tensors/element_loop.h"

#include <stdlib.h>
#include <string.h>

/* ---- ways of walking ---- */

#define TARGET 0
#define SOURCE 1
/* Elements: runs of fewer cost more by their calls than by their elements. */
#define SHORT_RUN 16
/* Elements of an axis that are worth tiles. */
#define TILE_AXIS_MIN 4

struct copy {
    size_t target_bytes, source_bytes;
    elements_cast *cast; /* NULL: the types are the same */
};

/* Bring an axis to the place before the last one; the others stay in their order. */
static void axis_bring(struct elements_loop *loop, unsigned axis)
{
    int64_t size = loop->shape[axis];
    ptrdiff_t target = loop->strides[TARGET][axis];
    ptrdiff_t source = loop->strides[SOURCE][axis];
    for (; axis + 2 < loop->ndim; axis++) {
        loop->shape[axis] = loop->shape[axis + 1];
        loop->strides[TARGET][axis] = loop->strides[TARGET][axis + 1];
        loop->strides[SOURCE][axis] = loop->strides[SOURCE][axis + 1];
    }
    loop->shape[axis] = size;
    loop->strides[TARGET][axis] = target;
    loop->strides[SOURCE][axis] = source;
}

/* The axis along which the source is denser than along the innermost one, which is the target's densest; the innermost
 * one if there is none. */
static unsigned element_copy_axis_of_source(const struct elements_loop *loop)
{
    unsigned found = loop->ndim - 1;
    ptrdiff_t least = labs(loop->strides[SOURCE][found]);
    for (unsigned i = loop->ndim - 1; i-- > 0;) {
        ptrdiff_t stride = labs(loop->strides[SOURCE][i]);
        if (stride != 0 && stride < least && loop->shape[i] >= TILE_AXIS_MIN) {
            found = i;
            least = stride;
        }
    }
    return found;
}

/* How many axes are walked at once: 2 where the source lies the other way round, or where runs would be short. */
static unsigned loop_choose(struct elements_loop *loop)
{
    unsigned last = loop->ndim - 1;
    unsigned axis = element_copy_axis_of_source(loop);
    if (axis != last) {
        axis_bring(loop, axis);
        return 2;
    }
    return loop->ndim > 1 && loop->shape[last] < SHORT_RUN ? 2 : 1;
}

static struct elements_plane plane_of(const struct elements_loop *loop)
{
    struct elements_plane plane;
    for (unsigned i = 0; i < 2; i++) {
        unsigned axis = loop->ndim - 2 + i;
        plane.shape[i] = loop->shape[axis];
        plane.target_strides[i] = loop->strides[TARGET][axis];
        plane.source_strides[i] = loop->strides[SOURCE][axis];
    }
    return plane;
}

static void inner_move(const struct elements_loop *loop, char *const *data, const void *context)
{
    const struct copy *copy = context;
    unsigned last = loop->ndim - 1;
    elements_move(data[TARGET], loop->strides[TARGET][last], data[SOURCE], loop->strides[SOURCE][last],
                  loop->shape[last], copy->target_bytes);
}

static void inner_move_plane(const struct elements_loop *loop, char *const *data, const void *context)
{
    const struct copy *copy = context;
    struct elements_plane plane = plane_of(loop);
    elements_move_plane(data[TARGET], data[SOURCE], &plane, copy->target_bytes);
}

/* ---- conversions ---- */

#define BUFFER_COUNT 1024
#define BUFFER_BYTES (BUFFER_COUNT * 8)
#define PLANE_SIDE 32

/* At most BUFFER_COUNT elements that follow each other, to strides. */
static void cast_scatter(const struct copy *copy, char *target, ptrdiff_t stride, const char *source, int64_t count)
{
    char buffer[BUFFER_BYTES] __attribute__((aligned(64)));
    if (stride == (ptrdiff_t)copy->target_bytes) {
        copy->cast(target, source, count);
    } else {
        copy->cast(buffer, source, count);
        elements_move(target, stride, buffer, (ptrdiff_t)copy->target_bytes, count, copy->target_bytes);
    }
}

static void cast_part(const struct copy *copy, char *target, ptrdiff_t target_stride, const char *source,
                      ptrdiff_t source_stride, int64_t count)
{
    char buffer[BUFFER_BYTES] __attribute__((aligned(64)));
    if (source_stride == (ptrdiff_t)copy->source_bytes) {
        cast_scatter(copy, target, target_stride, source, count);
    } else {
        elements_move(buffer, (ptrdiff_t)copy->source_bytes, source, source_stride, count, copy->source_bytes);
        cast_scatter(copy, target, target_stride, buffer, count);
    }
}

static void cast_run(const struct copy *copy, char *target, ptrdiff_t target_stride, const char *source,
                     ptrdiff_t source_stride, int64_t count)
{
    if (target_stride == (ptrdiff_t)copy->target_bytes && source_stride == (ptrdiff_t)copy->source_bytes) {
        copy->cast(target, source, count);
        return;
    }
    for (int64_t i = 0; i < count; i += BUFFER_COUNT) {
        cast_part(copy, target + i * target_stride, target_stride, source + i * source_stride, source_stride,
                  count - i < BUFFER_COUNT ? count - i : BUFFER_COUNT);
    }
}

static void inner_cast(const struct elements_loop *loop, char *const *data, const void *context)
{
    unsigned last = loop->ndim - 1;
    cast_run(context, data[TARGET], loop->strides[TARGET][last], data[SOURCE], loop->strides[SOURCE][last],
             loop->shape[last]);
}

/* A square of PLANE_SIDE or less: gathered as the target lies, converted in one run. */
static void cast_square(const struct copy *copy, char *target, const char *source, const struct elements_plane *plane)
{
    char gathered[BUFFER_BYTES] __attribute__((aligned(64)));
    char converted[BUFFER_BYTES] __attribute__((aligned(64)));
    ptrdiff_t source_bytes = (ptrdiff_t)copy->source_bytes;
    ptrdiff_t target_bytes = (ptrdiff_t)copy->target_bytes;
    struct elements_plane gather = *plane;
    gather.target_strides[0] = plane->shape[1] * source_bytes;
    gather.target_strides[1] = source_bytes;
    elements_move_plane(gathered, source, &gather, copy->source_bytes);
    copy->cast(converted, gathered, plane->shape[0] * plane->shape[1]);
    for (int64_t i = 0; i < plane->shape[0]; i++) {
        elements_move(target + i * plane->target_strides[0], plane->target_strides[1],
                      converted + i * plane->shape[1] * target_bytes, target_bytes, plane->shape[1],
                      copy->target_bytes);
    }
}

static void inner_cast_plane(const struct elements_loop *loop, char *const *data, const void *context)
{
    struct elements_plane plane = plane_of(loop);
    struct elements_plane square = plane;
    for (int64_t i = 0; i < plane.shape[0]; i += PLANE_SIDE) {
        square.shape[0] = plane.shape[0] - i < PLANE_SIDE ? plane.shape[0] - i : PLANE_SIDE;
        for (int64_t k = 0; k < plane.shape[1]; k += PLANE_SIDE) {
            square.shape[1] = plane.shape[1] - k < PLANE_SIDE ? plane.shape[1] - k : PLANE_SIDE;
            cast_square(context, data[TARGET] + i * plane.target_strides[0] + k * plane.target_strides[1],
                        data[SOURCE] + i * plane.source_strides[0] + k * plane.source_strides[1], &square);
        }
    }
}

/* ---- overlap ---- */

void elements_copy(const struct varve_array *target, const struct varve_array *source)
{
    struct copy copy = {.target_bytes = varve_dtype_bytes(target->dtype),
                        .source_bytes = varve_dtype_bytes(source->dtype)};
    struct elements_loop loop;
    elements_loop_init(&loop, 2, (const struct varve_array *const[]){target, source});
    unsigned inner = loop_choose(&loop);
    if (target->dtype == source->dtype) {
        elements_loop_walk(&loop, inner, inner == 1 ? inner_move : inner_move_plane, &copy);
    } else {
        copy.cast = elements_cast_find(target->dtype, source->dtype);
        elements_loop_walk(&loop, inner, inner == 1 ? inner_cast : inner_cast_plane, &copy);
    }
}

int elements_set_aside(const struct varve_array *source, enum varve_dtype dtype, struct varve_array *copy_out,
                       struct varve_message *message)
{
    struct varve_array copy = {.dtype = dtype};
    size_t bytes = (size_t)varve_geometry_count(&source->geometry) * varve_dtype_bytes(dtype);
    int error = varve_geometry_contiguous(source->geometry.ndim, source->geometry.shape, &copy.geometry, message);
    if (error != 0) {
        return error;
    }
    copy.data = malloc(bytes + 1);
    if (copy.data == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory for a copy of %zu bytes", bytes);
    }
    elements_copy(&copy, source);
    *copy_out = copy;
    return VARVE_OK;
}

bool elements_are_same(const struct varve_array *array, const struct varve_array *other)
{
    const struct varve_geometry *geometry = &array->geometry;
    if (elements_begin(array) != elements_begin(other) ||
        !varve_geometry_has_shape(geometry, other->geometry.ndim, other->geometry.shape)) {
        return false;
    }
    for (unsigned i = 0; i < geometry->ndim; i++) {
        if (geometry->shape[i] != 1 && geometry->strides[i] != other->geometry.strides[i]) {
            return false;
        }
    }
    return true;
}

/* A source that overlaps its target is set aside as it was before it was expanded. */
static int copy_aside(const struct varve_array *target, const struct varve_array *source, struct varve_message *message)
{
    struct varve_array aside = *source;
    int error = elements_set_aside(source, source->dtype, &aside, message);
    if (error == 0) {
        void *memory = aside.data;
        error = varve_geometry_expand(&aside.geometry, target->geometry.ndim, target->geometry.shape, message);
        if (error == 0) {
            elements_copy(target, &aside);
        }
        free(memory);
    }
    return error;
}

int elements_copy_check(const struct varve_array *target, const struct varve_array *source,
                        struct varve_array *expanded_out, struct varve_message *message)
{
    const struct varve_geometry *shape = &target->geometry;
    int error = elements_check_target(target, message);
    *expanded_out = *source;
    VARVE_THEN(error, elements_check_source(source, message));
    return error == 0 ? varve_geometry_expand(&expanded_out->geometry, shape->ndim, shape->shape, message) : error;
}

int varve_array_copy(const struct varve_array *target, const struct varve_array *source, struct varve_message *message)
{
    const struct varve_geometry *shape = &target->geometry;
    struct varve_array expanded;
    int error = elements_copy_check(target, source, &expanded, message);
    if (error != 0) {
        return error;
    }
    if (!elements_overlap(target, &expanded)) {
        elements_copy(target, &expanded);
    } else if (elements_are_same(target, &expanded) &&
               varve_dtype_bytes(target->dtype) == varve_dtype_bytes(source->dtype)) {
        if (target->dtype != source->dtype) {
            elements_copy(target, &expanded);
        }
    } else if (target->dtype == source->dtype && varve_geometry_is_contiguous(shape) &&
               varve_geometry_is_contiguous(&expanded.geometry)) {
        memmove(elements_begin(target), elements_begin(&expanded),
                (size_t)varve_geometry_count(shape) * varve_dtype_bytes(target->dtype));
    } else {
        return copy_aside(target, source, message);
    }
    return VARVE_OK;
}
