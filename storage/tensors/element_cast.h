/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of elements from one type to another. What each conversion gives is said at varve_array_copy. Called by what
 * copies and fills, and by operators that compute in another type than they store.
 */
#ifndef VARVE_STORAGE_TENSORS_ELEMENT_CAST_H
#define VARVE_STORAGE_TENSORS_ELEMENT_CAST_H

#include "storage/array.h"

/// Convert `count` elements that follow each other; nothing needs to be aligned. Target and source do not overlap,
/// unless both begin at the same address and their elements have the same size.
typedef void elements_cast(void *target, const void *source, int64_t count);

/// Never NULL for types of the list; for two equal types it copies.
elements_cast *elements_cast_find(enum varve_dtype target, enum varve_dtype source);
/// The one for processors without extensions; both give the same bits. For tests.
elements_cast *elements_cast_find_plain(enum varve_dtype target, enum varve_dtype source);

#endif
