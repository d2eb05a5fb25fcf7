/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of the arguments of the driver's functions, and the table that says which function has which. What a
 * call gives out lies behind a pointer of the program's that may be read only after success.
 */
#include "trace/recorder/cuda/driver_calls.h"

#include <stddef.h>
#include <string.h>

static uint64_t given_out(const void *out, bool has_out)
{
    uint64_t value = 0; /* an address or a handle: all have 64 bits */
    if (has_out) {
        memcpy(&value, out, sizeof(value));
    }
    return value;
}

/* ---- linear memory ---- */

static bool read_alloc(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_alloc *call = arguments;
    out->bytes = call->bytes;
    out->addr = given_out(call->out, has_out);
    return true;
}

/* The pitch is the driver's choice: what was asked for stands in for it if there is none. */
static bool read_pitch(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_alloc_pitch *call = arguments;
    out->bytes = (uint64_t)(has_out ? *call->pitch_out : call->width_bytes) * call->height;
    out->addr = given_out(call->out, has_out);
    return true;
}

static bool read_alloc_async(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    out->stream = ((const struct cuda_arguments_alloc_async *)arguments)->stream;
    return read_alloc(arguments, has_out, out);
}

static bool read_alloc_pool(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_alloc_pool *call = arguments;
    out->stream = call->stream;
    out->pool = call->pool;
    return read_alloc(arguments, has_out, out);
}

static bool read_free(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)has_out;
    out->addr = ((const struct cuda_arguments_free *)arguments)->addr;
    return out->addr != 0;
}

static bool read_free_async(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    out->stream = ((const struct cuda_arguments_free_async *)arguments)->stream;
    return read_free(arguments, has_out, out);
}

static bool read_range(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_range *call = arguments;
    (void)has_out;
    out->addr = call->addr;
    out->bytes = call->bytes;
    return true;
}

/* Somebody else knows how large it is. */
static bool read_ipc_open(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    out->addr = given_out(((const struct cuda_arguments_out *)arguments)->out, has_out);
    return true;
}

/* ---- virtual memory ---- */

/* NULL: the call fails. */
static void set_placement(const struct cuda_placement *wanted, struct cuda_parameters *out)
{
    if (wanted == NULL) {
        return;
    }
    if (wanted->location.type == CUDA_LOCATION_DEVICE) {
        out->device = wanted->location.id;
        out->has_device = true;
        out->memory = VARVE_MEMORY_DEVICE;
    } else {
        out->memory = VARVE_MEMORY_PINNED;
    }
}

static bool read_create(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_create *call = arguments;
    out->bytes = call->bytes;
    out->arg = given_out(call->out, has_out);
    set_placement(call->properties, out);
    return true;
}

static bool read_out(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    out->arg = given_out(((const struct cuda_arguments_out *)arguments)->out, has_out);
    return true;
}

static bool read_release(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)has_out;
    out->arg = ((const struct cuda_arguments_free *)arguments)->addr;
    return true;
}

static bool read_map(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    out->arg = ((const struct cuda_arguments_map *)arguments)->handle;
    return read_range(arguments, has_out, out);
}

static bool read_access(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    out->arg = ((const struct cuda_arguments_access *)arguments)->count;
    return read_range(arguments, has_out, out);
}

/* ---- pools ---- */

static bool read_pool_create(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_pool_create *call = arguments;
    const struct cuda_placement *wanted = call->properties;
    out->addr = out->pool = given_out(call->out, has_out);
    set_placement(wanted, out);
    if (wanted != NULL && wanted->type == CUDA_ALLOCATION_MANAGED) {
        out->memory = VARVE_MEMORY_MANAGED;
    }
    return true;
}

static bool read_pool(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)has_out;
    out->addr = out->pool = ((const struct cuda_arguments_free *)arguments)->addr;
    return true;
}

static bool read_pool_trim(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    out->arg = ((const struct cuda_arguments_pool_trim *)arguments)->bytes_to_keep;
    return read_pool(arguments, has_out, out);
}

/* Of what can be set, only the bytes that it may keep are about memory. */
static bool read_pool_set(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_pool_set *call = arguments;
    if (call->attribute != CUDA_POOL_RELEASE_THRESHOLD || call->value == NULL) {
        return false;
    }
    out->arg = given_out(call->value, true);
    return read_pool(arguments, has_out, out);
}

/* ---- contexts, waiting, the state of the device ---- */

static bool read_device(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)has_out;
    out->has_device = true;
    out->device = ((const struct cuda_arguments_device *)arguments)->device;
    return true;
}

static bool read_context(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)has_out;
    out->context = ((const struct cuda_arguments_context *)arguments)->context;
    return true;
}

static bool read_nothing(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)arguments;
    (void)has_out;
    (void)out;
    return true;
}

static bool read_stream(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)has_out;
    out->stream = ((const struct cuda_arguments_sync *)arguments)->handle;
    return true;
}

static bool read_event(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    (void)has_out;
    out->addr = ((const struct cuda_arguments_sync *)arguments)->handle;
    return true;
}

static bool read_info(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_info *call = arguments;
    if (!has_out || call->total_out == NULL || call->free_out == NULL) {
        return false;
    }
    out->bytes = *call->total_out;
    out->arg = *call->free_out;
    return true;
}

/* ---- arrays: the handle, and the bytes of the texels in all levels ---- */

#define CUDA_ARRAY_LAYERED 0x01U
#define CUDA_ARRAY_CUBEMAP 0x04U
#define CUDA_ARRAY_WITHOUT_MEMORY 0xc0U /* sparse, or to be mapped later */

static unsigned channel_bytes(unsigned format)
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

/* The driver says neither how large an array is nor where it lies. Bytes of all levels, a lower bound: the driver may
 * pad. 0 for formats whose texels share blocks, and for arrays that get their memory later. */
static uint64_t driver_calls_array_bytes(const struct cuda_array_3d *array, unsigned levels)
{
    bool is_stack = (array->flags & (CUDA_ARRAY_LAYERED | CUDA_ARRAY_CUBEMAP)) != 0;
    uint64_t width = array->width, height = array->height, depth = array->depth;
    if ((array->flags & CUDA_ARRAY_WITHOUT_MEMORY) != 0) {
        return 0;
    }
    uint64_t texels = 0;
    for (unsigned level = 0; level < levels; level++) {
        texels += (width > 0 ? width : 1) * (height > 0 ? height : 1) * (depth > 0 ? depth : 1);
        width /= 2;
        height /= 2;
        depth = is_stack ? depth : depth / 2;
    }
    return texels * array->channels * channel_bytes(array->format);
}

static bool read_any_array(const struct cuda_arguments_array *call, const struct cuda_array_3d *array, uint32_t levels,
                           bool has_out, struct cuda_parameters *out)
{
    out->bytes = array != NULL ? driver_calls_array_bytes(array, levels) : 0; /* NULL: the call fails */
    out->addr = given_out(call->out, has_out);
    return true;
}

static bool read_array(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_array *call = arguments;
    const struct cuda_array_2d *flat = call->array;
    struct cuda_array_3d array = {0};
    if (flat != NULL) { /* else the call fails */
        array = (struct cuda_array_3d){
            .width = flat->width, .height = flat->height, .format = flat->format, .channels = flat->channels};
    }
    return read_any_array(call, &array, 1, has_out, out);
}

static bool read_array_3d(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_array *call = arguments;
    return read_any_array(call, call->array, 1, has_out, out);
}

static bool read_mipmapped(const void *arguments, bool has_out, struct cuda_parameters *out)
{
    const struct cuda_arguments_array *call = arguments;
    return read_any_array(call, call->array, call->levels, has_out, out);
}

/* ---- the table ---- */

static const struct cuda_rule rules[] = {
#define RULE(name, number, ROLE, KIND, CAUSE, MEMORY, is_own, reader) \
    {CUDA_ROLE_##ROLE, VARVE_KIND_##KIND, VARVE_CAUSE_##CAUSE, VARVE_MEMORY_##MEMORY, is_own, read_##reader},
    CUDA_DRIVER_CALL_LIST(RULE)
#undef RULE
};

const struct cuda_rule *cuda_rule_of(enum cuda_driver_call call)
{
    return &rules[call];
}
