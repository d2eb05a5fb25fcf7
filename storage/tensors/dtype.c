/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/array.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[VARVE_DTYPE_LIMIT] = {
#define DTYPE_ROW(code, NAME, text, size) [VARVE_DTYPE_##NAME] = {.name = (text), .bytes = (size)},
    VARVE_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static bool is_dtype(enum varve_dtype dtype)
{
    return (unsigned)dtype < VARVE_DTYPE_LIMIT;
}

size_t varve_dtype_bytes(enum varve_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bytes : 0;
}

const char *varve_dtype_name(enum varve_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

int varve_dtype_find(const char *name, enum varve_dtype *dtype_out)
{
    for (unsigned i = 0; i < VARVE_DTYPE_LIMIT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *dtype_out = (enum varve_dtype)i;
            return VARVE_OK;
        }
    }
    return VARVE_ERROR_NOT_FOUND;
}
