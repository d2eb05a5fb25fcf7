/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of one size moved from strides to strides, whatever their type. Sizes are 1, 2, 4 and 8 bytes, strides count
 * bytes, and nothing needs to be aligned. Target and source do not overlap.
 */
#ifndef VARVE_STORAGE_TENSORS_ELEMENT_MOVE_H
#define VARVE_STORAGE_TENSORS_ELEMENT_MOVE_H

#include <stddef.h>
#include <stdint.h>

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
