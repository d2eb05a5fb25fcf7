/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays: the driver says neither how large one is nor where it lies. What is told is the handle, and the
 * bytes of its texels in all levels: a lower bound, since the driver may pad.
 */
#include "trace/cupti_internal.h"

#define ARRAY_LAYERED 0x01U
#define ARRAY_CUBEMAP 0x04U
#define ARRAY_WITHOUT_MEMORY 0xc0U /* sparse, or to be mapped later */

/* Bytes of one channel; 0 for formats whose pixels share blocks: their size is not told. */
static size_t channel_bytes(uint32_t format)
{
    switch (format) {
    case 0x01:
    case 0x08: /* 8 bits */
    case 0xc0:
    case 0xc1:
    case 0xc2:
    case 0xc6:
    case 0xc7:
    case 0xc8: /* the same, normalized */
        return 1;
    case 0x02:
    case 0x09:
    case 0x10: /* 16 bits */
    case 0xc3:
    case 0xc4:
    case 0xc5:
    case 0xc9:
    case 0xca:
    case 0xcb:
        return 2;
    case 0x03:
    case 0x0a:
    case 0x20: /* 32 bits */
        return 4;
    default:
        return 0;
    }
}

static size_t at_least_one(size_t count)
{
    return count > 0 ? count : 1;
}

static uint64_t array_bytes(const struct cupti_array_3d *array, uint32_t levels)
{
    bool is_stack = (array->flags & (ARRAY_LAYERED | ARRAY_CUBEMAP)) != 0;
    size_t width = array->width, height = array->height, depth = array->depth;
    uint64_t texels = 0;

    if ((array->flags & ARRAY_WITHOUT_MEMORY) != 0) {
        return 0;
    }
    for (uint32_t level = 0; level < levels; level++) {
        texels += (uint64_t)at_least_one(width) * at_least_one(height) * at_least_one(depth);
        width /= 2;
        height /= 2;
        depth = is_stack ? depth : depth / 2;
    }
    return texels * array->channels * channel_bytes(array->format);
}

static bool read_any_array(const struct cupti_call_array *call, const struct cupti_array_3d *array,
                           uint32_t levels, bool has_out, struct cupti_parameters *out)
{
    out->bytes = array != NULL ? array_bytes(array, levels) : 0; /* NULL: the call fails */
    out->addr = has_out ? *call->out : 0;
    return true;
}

bool cupti_read_array(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_array *call = parameters;
    const struct cupti_array *flat = call->array;
    struct cupti_array_3d array = {0};

    if (flat != NULL) { /* else the call fails */
        array.width = flat->width;
        array.height = flat->height;
        array.format = flat->format;
        array.channels = flat->channels;
    }
    return read_any_array(call, &array, 1, has_out, out);
}

bool cupti_read_array_3d(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_array *call = parameters;

    return read_any_array(call, call->array, 1, has_out, out);
}

bool cupti_read_mipmapped(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_array *call = parameters;

    return read_any_array(call, call->array, call->levels, has_out, out);
}
