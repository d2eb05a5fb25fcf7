/* SPDX-License-Identifier: Apache-2.0 */
/* A file of 64 MiB goes through a pool of 20 MiB: piece by piece, each a view of the mapped file,
 * copied into the pool. */
#include "storage/storage.h"

#include <stdio.h>
#include <unistd.h>

#define ROWS INT64_C(16384)
#define ROWS_AT_ONCE INT64_C(1024)

static int step(struct varve_storage *file, struct varve_memory *pool, int64_t row, double *sum,
                struct varve_message *message)
{
    struct varve_storage *piece, *copy = NULL;
    int error = varve_storage_slice(file, 0, row, row + ROWS_AT_ONCE, 1, &piece, message);

    if (error != VARVE_OK) {
        return error;
    }
    error = varve_storage_to(piece, pool, VARVE_DTYPE_F32, &copy, message);
    varve_storage_release(piece, NULL);
    for (int64_t i = 0; error == VARVE_OK && i < varve_storage_count(copy); i++) {
        *sum += (double)((const float *)varve_storage_data(copy))[i];
    }
    varve_storage_release(copy, NULL);
    return error;
}

int main(int argc, char **argv)
{
    const int64_t shape[] = {ROWS, 1024};
    const struct varve_file where = {.path = argc > 1 ? argv[1] : "mapped_file.bin", .mode = "w+"};
    struct varve_message message = {""};
    struct varve_alloc_options options;
    struct varve_alloc *alloc;
    struct varve_memory *pool;
    struct varve_storage *file;
    double sum = 0;
    int error;

    varve_alloc_options_init(&options);
    if (varve_host_open(&(struct varve_host_options){.limit_bytes = 20 << 20}, &options.device, &message) != VARVE_OK ||
        varve_alloc_open(&options, &alloc, &message) != VARVE_OK ||
        varve_memory_open(alloc, &pool, &message) != VARVE_OK ||
        varve_storage_map(&where, VARVE_DTYPE_F32, 2, shape, &file, &message) != VARVE_OK) {
        fprintf(stderr, "%s\n", message.text);
        return 1;
    }
    error = varve_storage_fill(file, (struct varve_scalar){.kind = VARVE_SCALAR_REAL, .real = 0.25}, &message);
    for (int64_t row = 0; error == VARVE_OK && row < ROWS; row += ROWS_AT_ONCE) {
        error = step(file, pool, row, &sum, &message);
    }
    printf("sum %.0f, %s\n", sum, error != VARVE_OK ? message.text : "by way of 20 MiB");
    varve_storage_release(file, NULL);
    unlink(where.path);
    return error != VARVE_OK || sum != 4194304.0 || varve_memory_close(pool, &message) != VARVE_OK;
}
