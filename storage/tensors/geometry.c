/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on shapes and strides. Counts stay below 2^60 elements and below that many even with empty axes left out,
 * so that no product of sizes and strides overflows, whatever view is made of a geometry. What reads and writes
 * elements is in other folders.
 */
#include "storage/array.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT_LIMIT (INT64_C(1) << 60)

/* ---- texts ---- */

const char *varve_shape_text(unsigned ndim, const int64_t *shape, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "(");
    for (unsigned i = 0; i < ndim && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, i > 0 ? ", %" PRId64 : "%" PRId64, shape[i]);
    }
    if (used < bytes) {
        snprintf(text + used, bytes - used, ndim == 1 ? ",)" : ")");
    }
    return text;
}

static int refuse_axis(const struct varve_geometry *geometry, int axis, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_INVALID, "axis %d is out of bounds for %u dimensions", axis,
                             geometry->ndim);
}

static int refuse_shape(const struct varve_geometry *geometry, const char *what, unsigned ndim, const int64_t *shape,
                        struct varve_message *message)
{
    char from[VARVE_SHAPE_TEXT_BYTES];
    char to[VARVE_SHAPE_TEXT_BYTES];
    return varve_message_set(message, VARVE_ERROR_INVALID, "shape %s can't be %s %s",
                             varve_shape_text(geometry->ndim, geometry->shape, from, sizeof(from)), what,
                             varve_shape_text(ndim, shape, to, sizeof(to)));
}

/* ---- questions ---- */

/* The number of an axis from the first one; false: there is no such axis. */
static bool axis_find(const struct varve_geometry *geometry, int axis, unsigned *axis_out)
{
    int64_t number = axis < 0 ? (int64_t)axis + geometry->ndim : axis;
    if (number < 0 || number >= geometry->ndim) {
        return false;
    }
    *axis_out = (unsigned)number;
    return true;
}

int64_t varve_geometry_count(const struct varve_geometry *geometry)
{
    int64_t count = 1;
    for (unsigned i = 0; i < geometry->ndim; i++) {
        count *= geometry->shape[i];
    }
    return count;
}

bool varve_geometry_is_contiguous(const struct varve_geometry *geometry)
{
    if (varve_geometry_count(geometry) == 0) {
        return true;
    }
    int64_t stride = 1;
    for (unsigned i = geometry->ndim; i-- > 0;) {
        if (geometry->shape[i] != 1 && geometry->strides[i] != stride) {
            return false;
        }
        stride *= geometry->shape[i];
    }
    return true;
}

void varve_geometry_range(const struct varve_geometry *geometry, int64_t *first_out, int64_t *end_out)
{
    if (varve_geometry_count(geometry) == 0) {
        *first_out = 0;
        *end_out = 0;
        return;
    }
    int64_t below = 0, above = 0;
    for (unsigned i = 0; i < geometry->ndim; i++) {
        int64_t reach = (geometry->shape[i] - 1) * geometry->strides[i];
        below += reach < 0 ? reach : 0;
        above += reach > 0 ? reach : 0;
    }
    *first_out = geometry->offset + below;
    *end_out = geometry->offset + above + 1;
}

bool varve_geometry_has_shape(const struct varve_geometry *geometry, unsigned ndim, const int64_t *shape)
{
    return geometry->ndim == ndim && memcmp(geometry->shape, shape, ndim * sizeof(*shape)) == 0;
}

/* ---- making ---- */

/* With empty axes left out; false: too many. */
static bool count_fits(unsigned ndim, const int64_t *shape)
{
    int64_t count = 1;
    for (unsigned i = 0; i < ndim; i++) {
        if (shape[i] > 0 && count > (COUNT_LIMIT - 1) / shape[i]) {
            return false;
        }
        count *= shape[i] > 0 ? shape[i] : 1;
    }
    return true;
}

/* Strides of the usual order, as if empty axes had size 1. */
static void strides_fill(struct varve_geometry *geometry)
{
    int64_t stride = 1;
    for (unsigned i = geometry->ndim; i-- > 0;) {
        geometry->strides[i] = stride;
        stride *= geometry->shape[i] > 0 ? geometry->shape[i] : 1;
    }
}

int varve_shape_check(unsigned ndim, const int64_t *shape, struct varve_message *message)
{
    if (ndim > VARVE_DIMS_MAX) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%u dimensions; at most %d are possible", ndim,
                                 VARVE_DIMS_MAX);
    }
    for (unsigned i = 0; i < ndim; i++) {
        if (shape[i] < 0) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "size %" PRId64 " of axis %u is negative", shape[i],
                                     i);
        }
    }
    char text[VARVE_SHAPE_TEXT_BYTES];
    return count_fits(ndim, shape) ? VARVE_OK
                                   : varve_message_set(message, VARVE_ERROR_INVALID, "shape %s has too many elements",
                                                       varve_shape_text(ndim, shape, text, sizeof(text)));
}

int varve_geometry_contiguous(unsigned ndim, const int64_t *shape, struct varve_geometry *geometry_out,
                              struct varve_message *message)
{
    VARVE_TRY(varve_shape_check(ndim, shape, message));
    for (unsigned i = 0; i < ndim; i++) {
        geometry_out->shape[i] = shape[i];
    }
    geometry_out->ndim = ndim;
    geometry_out->offset = 0;
    strides_fill(geometry_out);
    return VARVE_OK;
}

/* How far an axis reaches to both sides, in elements; false: farther than data can be long. */
static bool reach_add(int64_t size, int64_t stride, uint64_t *below, uint64_t *above)
{
    uint64_t step = stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
    uint64_t *side = stride < 0 ? below : above;
    if (size < 2) {
        return true;
    }
    if (step >= (uint64_t)COUNT_LIMIT / (uint64_t)(size - 1)) {
        return false;
    }
    *side += step * (uint64_t)(size - 1);
    return true;
}

int varve_geometry_check(const struct varve_geometry *geometry, uint64_t elements, struct varve_message *message)
{
    uint64_t offset = (uint64_t)geometry->offset;
    int error = varve_shape_check(geometry->ndim, geometry->shape, message);
    if (error != VARVE_OK || varve_geometry_count(geometry) == 0) {
        return error;
    }
    bool reaches = true;
    uint64_t below = 0, above = 0;
    for (unsigned i = 0; i < geometry->ndim; i++) {
        reaches = reaches && reach_add(geometry->shape[i], geometry->strides[i], &below, &above);
    }
    char text[VARVE_SHAPE_TEXT_BYTES];
    if (!reaches || geometry->offset < 0 || offset >= elements || below > offset || above > elements - 1 - offset) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "elements of shape %s lie outside of the %" PRIu64 " that there are",
                                 varve_shape_text(geometry->ndim, geometry->shape, text, sizeof(text)), elements);
    }
    return VARVE_OK;
}

/* ---- views ---- */

/* A bound of a slice as a position from `least` to `most`; `size` positions are there. */
static int64_t bound_of(int64_t bound, int64_t size, int64_t least, int64_t most)
{
    int64_t at = bound < 0 ? bound + size : bound;
    return at < least ? least : at > most ? most : at;
}

int varve_geometry_slice(struct varve_geometry *geometry, int axis, int64_t start, int64_t stop, int64_t step,
                         struct varve_message *message)
{
    unsigned number;
    if (!axis_find(geometry, axis, &number)) {
        return refuse_axis(geometry, axis, message);
    }
    if (step == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "slice step of axis %d is zero", axis);
    }
    step = step == VARVE_SLICE_NONE ? 1 : step;
    int64_t size = geometry->shape[number];
    int64_t least = step > 0 ? 0 : -1;
    int64_t most = step > 0 ? size : size - 1;
    int64_t begin = start == VARVE_SLICE_NONE ? (step > 0 ? least : most) : bound_of(start, size, least, most);
    int64_t end = stop == VARVE_SLICE_NONE ? (step > 0 ? most : least) : bound_of(stop, size, least, most);
    int64_t count = 0;
    if (step > 0 && begin < end) {
        count = 1 + (end - begin - 1) / step;
    } else if (step < 0 && begin > end) {
        count = 1 + (int64_t)((uint64_t)(begin - end - 1) / -(uint64_t)step);
    }
    geometry->shape[number] = count;
    if (count > 0) {
        geometry->offset += begin * geometry->strides[number];
    }
    if (count > 1) {
        geometry->strides[number] *= step;
    }
    return VARVE_OK;
}

static void geometry_axis_remove(struct varve_geometry *geometry, unsigned axis)
{
    geometry->ndim--;
    for (unsigned i = axis; i < geometry->ndim; i++) {
        geometry->shape[i] = geometry->shape[i + 1];
        geometry->strides[i] = geometry->strides[i + 1];
    }
}

int varve_geometry_select(struct varve_geometry *geometry, int axis, int64_t index, struct varve_message *message)
{
    unsigned number;
    if (!axis_find(geometry, axis, &number)) {
        return refuse_axis(geometry, axis, message);
    }
    int64_t size = geometry->shape[number];
    int64_t at = index < 0 ? index + size : index;
    if (at < 0 || at >= size) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "index %" PRId64 " is out of bounds for axis %u with size %" PRId64, index, number,
                                 size);
    }
    geometry->offset += at * geometry->strides[number];
    geometry_axis_remove(geometry, number);
    return VARVE_OK;
}

int varve_geometry_transpose(struct varve_geometry *geometry, int axis, int other, struct varve_message *message)
{
    unsigned one;
    if (!axis_find(geometry, axis, &one)) {
        return refuse_axis(geometry, axis, message);
    }
    unsigned two;
    if (!axis_find(geometry, other, &two)) {
        return refuse_axis(geometry, other, message);
    }
    int64_t size = geometry->shape[one];
    int64_t stride = geometry->strides[one];
    geometry->shape[one] = geometry->shape[two];
    geometry->strides[one] = geometry->strides[two];
    geometry->shape[two] = size;
    geometry->strides[two] = stride;
    return VARVE_OK;
}

int varve_geometry_permute(struct varve_geometry *geometry, const int *axes, unsigned count,
                           struct varve_message *message)
{
    struct varve_geometry old = *geometry;
    struct varve_geometry result = old;
    unsigned used = 0, number;
    if (count != old.ndim) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%u axes for %u dimensions", count, old.ndim);
    }
    for (unsigned i = 0; i < count; i++) {
        if (!axis_find(&old, axes[i], &number)) {
            return refuse_axis(&old, axes[i], message);
        }
        if (used & 1U << number) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "axis %d is named twice", axes[i]);
        }
        used |= 1U << number;
        result.shape[i] = old.shape[number];
        result.strides[i] = old.strides[number];
    }
    *geometry = result;
    return VARVE_OK;
}

int varve_geometry_expand(struct varve_geometry *geometry, unsigned ndim, const int64_t *shape,
                          struct varve_message *message)
{
    struct varve_geometry result = {.ndim = ndim, .offset = geometry->offset};
    unsigned more = ndim - geometry->ndim;
    if (ndim < geometry->ndim || ndim > VARVE_DIMS_MAX) {
        return refuse_shape(geometry, "expanded to", ndim < VARVE_DIMS_MAX ? ndim : VARVE_DIMS_MAX, shape, message);
    }
    for (unsigned i = 0; i < ndim; i++) {
        bool is_new = i < more;
        int64_t size = is_new ? 1 : geometry->shape[i - more];
        int64_t wanted = shape[i] == -1 && !is_new ? size : shape[i];
        if (wanted < 0 || (wanted != size && size != 1)) {
            return refuse_shape(geometry, "expanded to", ndim, shape, message);
        }
        result.shape[i] = wanted;
        result.strides[i] = is_new || wanted != size ? 0 : geometry->strides[i - more];
    }
    if (!count_fits(ndim, result.shape)) {
        return refuse_shape(geometry, "expanded to", ndim, shape, message);
    }
    *geometry = result;
    return VARVE_OK;
}

/* Axes of size 1 have no stride of their own; without them, and with neighbours joined that lie as one axis would. */
static void geometry_axes_join(const struct varve_geometry *geometry, struct varve_geometry *joined)
{
    *joined = (struct varve_geometry){.offset = geometry->offset};
    for (unsigned i = 0; i < geometry->ndim; i++) {
        unsigned last = joined->ndim - 1;
        if (geometry->shape[i] == 1) {
            continue;
        }
        if (joined->ndim > 0 && joined->strides[last] == geometry->shape[i] * geometry->strides[i]) {
            joined->shape[last] *= geometry->shape[i];
            joined->strides[last] = geometry->strides[i];
        } else {
            joined->shape[joined->ndim] = geometry->shape[i];
            joined->strides[joined->ndim++] = geometry->strides[i];
        }
    }
}

/* Each joined axis must be a product of sizes of the new shape. */
static bool strides_split(const struct varve_geometry *joined, struct varve_geometry *result)
{
    unsigned axis = joined->ndim;
    int64_t left = 1; /* of the size of joined axis `axis` */
    int64_t stride = 1;
    for (unsigned i = result->ndim; i-- > 0;) {
        if (result->shape[i] == 1) {
            result->strides[i] = stride;
            continue;
        }
        if (left == 1) {
            axis--;
            left = joined->shape[axis];
            stride = joined->strides[axis];
        }
        if (left % result->shape[i] != 0) {
            return false;
        }
        result->strides[i] = stride;
        stride *= result->shape[i];
        left /= result->shape[i];
    }
    return true;
}

/* -1 becomes the size that is left; false: there is none, or the numbers of elements differ. */
static bool shape_complete(int64_t count, unsigned ndim, const int64_t *shape, int64_t *shape_out)
{
    int64_t known = 1;
    int unknown = -1;
    for (unsigned i = 0; i < ndim; i++) {
        shape_out[i] = shape[i];
        if (shape[i] == -1 && unknown < 0) {
            unknown = (int)i;
        } else if (shape[i] < 0 || (shape[i] > 0 && known > (COUNT_LIMIT - 1) / shape[i])) {
            return false;
        } else {
            known *= shape[i];
        }
    }
    if (unknown >= 0) {
        if (known == 0 || count % known != 0) {
            return false;
        }
        shape_out[unknown] = count / known;
        known = count;
    }
    return known == count && count_fits(ndim, shape_out);
}

int varve_geometry_reshape(struct varve_geometry *geometry, unsigned ndim, const int64_t *shape,
                           struct varve_message *message)
{
    struct varve_geometry result = {.ndim = ndim, .offset = geometry->offset};
    if (ndim > VARVE_DIMS_MAX || !shape_complete(varve_geometry_count(geometry), ndim, shape, result.shape)) {
        return refuse_shape(geometry, "reshaped to", ndim < VARVE_DIMS_MAX ? ndim : VARVE_DIMS_MAX, shape, message);
    }
    if (varve_geometry_count(geometry) == 0) {
        strides_fill(&result);
        *geometry = result;
        return VARVE_OK;
    }
    struct varve_geometry joined;
    geometry_axes_join(geometry, &joined);
    char text[VARVE_SHAPE_TEXT_BYTES];
    if (!strides_split(&joined, &result)) {
        return varve_message_set(message, VARVE_ERROR_UNSUPPORTED,
                                 "no view of shape %s of elements that lie this way; copy them first",
                                 varve_shape_text(ndim, result.shape, text, sizeof(text)));
    }
    *geometry = result;
    return VARVE_OK;
}

int varve_shape_broadcast(unsigned ndim, const int64_t *shape, unsigned other_ndim, const int64_t *other_shape,
                          unsigned *ndim_out, int64_t *shape_out, struct varve_message *message)
{
    char one[VARVE_SHAPE_TEXT_BYTES];
    char two[VARVE_SHAPE_TEXT_BYTES];
    int64_t result[VARVE_DIMS_MAX] = {0};
    unsigned count = ndim > other_ndim ? ndim : other_ndim;
    for (unsigned i = 1; i <= count; i++) {
        int64_t a = i <= ndim ? shape[ndim - i] : 1;
        int64_t b = i <= other_ndim ? other_shape[other_ndim - i] : 1;
        if (a != b && a != 1 && b != 1) {
            return varve_message_set(message, VARVE_ERROR_INVALID, "shapes %s and %s do not broadcast",
                                     varve_shape_text(ndim, shape, one, sizeof(one)),
                                     varve_shape_text(other_ndim, other_shape, two, sizeof(two)));
        }
        result[count - i] = a == 1 ? b : a;
    }
    memcpy(shape_out, result, count * sizeof(*result));
    *ndim_out = count;
    return VARVE_OK;
}
