/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the CUDA recorder (cuda/) and the CUPTI recorder (cupti/) */
/*
 * Arrays as the driver is asked for them, and what they come to in bytes, the same for both recorders: the
 * driver says neither how large one is nor where it lies. A lower bound: the driver may pad.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_ARRAY_H
#define VARVE_TRACE_RECORDER_CUDA_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_array_2d {
    size_t width, height;
    unsigned format, channels;
};

struct cuda_array_3d {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

#define CUDA_ARRAY_LAYERED 0x01U
#define CUDA_ARRAY_CUBEMAP 0x04U
#define CUDA_ARRAY_WITHOUT_MEMORY 0xc0U /* sparse, or to be mapped later */

static inline unsigned cuda_array_channel_bytes(unsigned format)
{
    switch (format) {
    case 0x01: /* integers of 8, 16, 32 bits */
    case 0x08:
        return 1;
    case 0x02:
    case 0x09:
    case 0x10: /* half */
        return 2;
    case 0x03:
    case 0x0a:
    case 0x20: /* float */
        return 4;
    case 0xc0: /* normalized: 8 bits, unsigned and signed, of 1, 2, 4 channels */
    case 0xc1:
    case 0xc2:
    case 0xc6:
    case 0xc7:
    case 0xc8:
        return 1;
    case 0xc3: /* 16 bits */
    case 0xc4:
    case 0xc5:
    case 0xc9:
    case 0xca:
    case 0xcb:
        return 2;
    default:
        return 0;
    }
}

/// Bytes of all levels; 0 for formats whose texels share blocks, and for arrays that get their memory later.
static inline uint64_t cuda_array_bytes(const struct cuda_array_3d *array, unsigned levels)
{
    bool is_stack = (array->flags & (CUDA_ARRAY_LAYERED | CUDA_ARRAY_CUBEMAP)) != 0;
    uint64_t width = array->width, height = array->height, depth = array->depth;
    uint64_t texels = 0;

    if ((array->flags & CUDA_ARRAY_WITHOUT_MEMORY) != 0) {
        return 0;
    }
    for (unsigned level = 0; level < levels; level++) {
        texels += (width > 0 ? width : 1) * (height > 0 ? height : 1) * (depth > 0 ? depth : 1);
        width /= 2;
        height /= 2;
        depth = is_stack ? depth : depth / 2;
    }
    return texels * array->channels * cuda_array_channel_bytes(array->format);
}

/// A flat one as an array of the general kind.
static inline struct cuda_array_3d cuda_array_flat(const struct cuda_array_2d *flat)
{
    return (struct cuda_array_3d){
        .width = flat->width, .height = flat->height, .format = flat->format, .channels = flat->channels};
}

#endif
