/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor in the memory of a pool: views of it, a copy in another type, and what the pool has done. */
#include "storage/storage.h"

#include <inttypes.h>
#include <stdio.h>

int main(void)
{
    const int64_t shape[] = {1000, 256};
    struct varve_message message = {""};
    struct varve_alloc_options options;
    struct varve_storage_options place = {.name = "activations"};
    struct varve_storage *tensor = NULL, *column = NULL, *half = NULL;
    struct varve_storage_info info;
    struct varve_alloc *alloc = NULL;
    char text[512];
    int error;

    varve_alloc_options_init(&options);
    options.recorder = &varve_alloc_recorder_ring; /* `varve record` sees every block */
    error = varve_host_open(&(struct varve_host_options){.limit_bytes = 64 << 20}, &options.device, &message);
    VARVE_THEN(error, varve_alloc_open(&options, &alloc, &message));
    VARVE_THEN(error, varve_memory_open(alloc, &place.memory, &message));
    if (error == VARVE_OK) {
        error = varve_storage_full(&place, VARVE_DTYPE_F32, 2, shape,
                                   (struct varve_scalar){.kind = VARVE_SCALAR_REAL, .real = 0.5}, &tensor, &message);
    }
    if (error == VARVE_OK) {
        error = varve_storage_select(tensor, 1, 7, &column, &message); /* no copy: stride 256 */
    }
    VARVE_THEN(error, varve_storage_to(column, place.memory, VARVE_DTYPE_F16, &half, &message));
    if (error != VARVE_OK) {
        fprintf(stderr, "%s\n", message.text);
        return 1;
    }
    for (unsigned i = 0; i < 3; i++) {
        varve_storage_inspect(i == 0 ? tensor : i == 1 ? column : half, &info);
        varve_storage_info_text(&info, text, sizeof(text));
        puts(text);
    }
    varve_storage_release(tensor, NULL); /* the column keeps its memory */
    printf("allocated: %" PRId64 " bytes", varve_alloc_memory_allocated(alloc));
    varve_storage_release(column, NULL);
    varve_storage_release(half, NULL);
    printf(", then %" PRId64 " of %" PRId64 " reserved\n", varve_alloc_memory_allocated(alloc),
           varve_alloc_memory_reserved(alloc));
    error = varve_memory_close(place.memory, &message);
    varve_alloc_close(alloc);
    options.device->ops->close(options.device);
    return error != VARVE_OK;
}
