/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of one shape, walked together. Axes of size 1 disappear, the others are put into the order in which the first
 * array lies in memory, and neighbours that all arrays can walk as one axis become one: most loops end up with one or
 * two axes. Called by what copies, fills and computes.
 */
#ifndef VARVE_STORAGE_TENSORS_ELEMENT_LOOP_H
#define VARVE_STORAGE_TENSORS_ELEMENT_LOOP_H

#include "storage/array.h"

#include <stddef.h>
#include <stdint.h>

#define ELEMENTS_OPERANDS_MAX 3

struct elements_loop {
    unsigned operands;
    unsigned ndim; /* at least 1 */
    int64_t shape[VARVE_DIMS_MAX];
    ptrdiff_t strides[ELEMENTS_OPERANDS_MAX][VARVE_DIMS_MAX]; /* bytes; those of operand 0 are not negative */
    char *data[ELEMENTS_OPERANDS_MAX];                        /* the element that the loop begins with */
};

/// The element [0, 0, …] of an array.
char *elements_begin(const struct varve_array *array);
/// The loop over `arrays`, which all have the shape of the first one. `operands` is 1 to ELEMENTS_OPERANDS_MAX.
void elements_loop_init(struct elements_loop *loop, unsigned operands, const struct varve_array *const *arrays);

uint64_t elements_loop_count(const struct elements_loop *loop);

/// Called with the address of each operand's element where the innermost axes begin.
typedef void elements_inner(const struct elements_loop *loop, char *const *data, const void *context);
/// Walk all axes but the `inner_ndim` last ones, which `inner` walks. A loop without elements makes no call.
void elements_loop_walk(const struct elements_loop *loop, unsigned inner_ndim, elements_inner *inner,
                        const void *context);

/*
 * What is asked of arrays before their elements are touched: known types, a target whose elements have addresses of
 * their own, and whether two arrays share memory.
 */

/// Errors: VARVE_ERROR_INVALID (no such type, too many axes, a negative size, no data but elements).
int elements_check_source(const struct varve_array *source, struct varve_message *message);
/// The same, and: no two elements at one address. Sorted by stride, each axis must step over all that the axes before
/// it reach; geometries made by varve_geometry_… without expanding satisfy that. Some that interleave axes without
/// sharing an address do not, and are refused as well.
int elements_check_target(const struct varve_array *target, struct varve_message *message);
/// May the two share a byte? True also for arrays that lie between each other's elements.
bool elements_overlap(const struct varve_array *array, const struct varve_array *other);

/*
 * Runs of elements from one type to another. What each conversion gives is said at varve_array_copy. Called by what
 * copies and fills, and by operators that compute in another type than they store.
 */

/// Convert `count` elements that follow each other; nothing needs to be aligned. Target and source do not overlap,
/// unless both begin at the same address and their elements have the same size.
typedef void elements_cast(void *target, const void *source, int64_t count);

/// Never NULL for types of the list; for two equal types it copies.
elements_cast *elements_cast_find(enum varve_dtype target, enum varve_dtype source);
/// The one for processors without extensions; both give the same bits. For tests.
elements_cast *elements_cast_find_plain(enum varve_dtype target, enum varve_dtype source);

/* Copies without the checks of varve_array_copy, for what has checked its arrays. */

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

/*
 * Elements of one size moved from strides to strides, whatever their type. Sizes are 1, 2, 4 and 8 bytes, strides count
 * bytes, and nothing needs to be aligned. Target and source do not overlap.
 */

/// `count` elements; a source stride of 0 repeats one element.
void elements_move(char *target, ptrdiff_t target_stride, const char *source, ptrdiff_t source_stride, int64_t count,
                   size_t bytes);

/* Two axes, outer and inner. */
struct elements_plane {
    int64_t shape[2];
    ptrdiff_t target_strides[2];
    ptrdiff_t source_strides[2];
};

/// A plane whose axes lie the other way round in the source: tile by tile.
void elements_move_plane(char *target, const char *source, const struct elements_plane *plane, size_t bytes);

#endif
