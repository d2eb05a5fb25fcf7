/* SPDX-License-Identifier: Apache-2.0 */
/* Copies without the checks of varve_array_copy, for what has checked its arrays. */
#ifndef VARVE_STORAGE_TENSORS_ELEMENT_COPY_H
#define VARVE_STORAGE_TENSORS_ELEMENT_COPY_H

#include "storage/array.h"

/// What varve_array_copy asks of its arrays; `expanded_out` is the source in the target's shape. Errors: as there.
int elements_copy_check(const struct varve_array *target, const struct varve_array *source,
                        struct varve_array *expanded_out, struct varve_message *message);
/// Copy between two checked arrays of the same shape that share no memory, or that are the same but for their types of
/// the same size.
void elements_copy(const struct varve_array *target, const struct varve_array *source);
/// A contiguous copy of `source` as `dtype`, in new memory: `copy_out->data` is the caller's to free(). Errors:
/// VARVE_ERROR_NO_MEMORY.
int elements_set_aside(const struct varve_array *source, enum varve_dtype dtype, struct varve_array *copy_out,
                       struct varve_message *message);
/// Do both begin at the same address with the same strides?
bool elements_are_same(const struct varve_array *array, const struct varve_array *other);

#endif
