/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays: what is told is the handle, and the bytes of its texels in all levels.
 */
#include "trace/recorder/cupti/cupti.h"

static bool read_any_array(const struct cupti_call_array *call, const struct cuda_array_3d *array,
                           uint32_t levels, bool has_out, struct cupti_parameters *out)
{
    out->bytes = array != NULL ? cuda_array_bytes(array, levels) : 0; /* NULL: the call fails */
    out->addr = has_out ? *call->out : 0;
    return true;
}

bool cupti_read_array(const void *parameters, bool has_out, struct cupti_parameters *out)
{
    const struct cupti_call_array *call = parameters;
    const struct cuda_array_2d *flat = call->array;
    struct cuda_array_3d array = {0};

    if (flat != NULL) { /* else the call fails */
        array = cuda_array_flat(flat);
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
