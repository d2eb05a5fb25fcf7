/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/tensors/element_loop.h"

#include <inttypes.h>
#include <stdlib.h>

int elements_check_source(const struct varve_array *source, struct varve_message *message)
{
    const struct varve_geometry *geometry = &source->geometry;
    if (varve_dtype_bytes(source->dtype) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%d is no type of elements", (int)source->dtype);
    }
    VARVE_TRY(varve_shape_check(geometry->ndim, geometry->shape, message));
    if (source->data == NULL && varve_geometry_count(geometry) > 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the array has elements but no data");
    }
    return VARVE_OK;
}

/* Axes that are walked, by their strides' size, the least first. Returns their number. */
static unsigned axes_by_stride(const struct varve_geometry *geometry, unsigned *axes)
{
    unsigned count = 0;
    for (unsigned i = 0; i < geometry->ndim; i++) {
        unsigned at = count;
        if (geometry->shape[i] == 1) {
            continue;
        }
        for (; at > 0 && labs(geometry->strides[axes[at - 1]]) > labs(geometry->strides[i]); at--) {
            axes[at] = axes[at - 1];
        }
        axes[at] = i;
        count++;
    }
    return count;
}

int elements_check_target(const struct varve_array *target, struct varve_message *message)
{
    const struct varve_geometry *geometry = &target->geometry;
    int error = elements_check_source(target, message);
    if (error != 0 || varve_geometry_count(geometry) == 0) {
        return error;
    }
    unsigned axes[VARVE_DIMS_MAX];
    unsigned count = axes_by_stride(geometry, axes);
    int64_t reach = 0;
    for (unsigned i = 0; i < count; i++) {
        int64_t stride = labs(geometry->strides[axes[i]]);
        if (stride <= reach) {
            return varve_message_set(message, VARVE_ERROR_INVALID,
                                     "elements of the target share addresses: stride %" PRId64 " of axis %u",
                                     geometry->strides[axes[i]], axes[i]);
        }
        reach += stride * (geometry->shape[axes[i]] - 1);
    }
    return VARVE_OK;
}

static void element_check_range_of(const struct varve_array *array, uintptr_t *first_out, uintptr_t *end_out)
{
    int64_t bytes = (int64_t)varve_dtype_bytes(array->dtype);
    int64_t first, end;
    varve_geometry_range(&array->geometry, &first, &end);
    *first_out = (uintptr_t)array->data + (uintptr_t)(first * bytes);
    *end_out = (uintptr_t)array->data + (uintptr_t)(end * bytes);
}

bool elements_overlap(const struct varve_array *array, const struct varve_array *other)
{
    uintptr_t first, end;
    element_check_range_of(array, &first, &end);
    uintptr_t other_first, other_end;
    element_check_range_of(other, &other_first, &other_end);
    return first < other_end && other_first < end && first < end && other_first < other_end;
}
