/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as the page in front of shared memory, and any size of it. What attaches gets a storage
 * that is what the page says and lies in the memory with all of its elements, or a reason; and nothing is left of it.
 */
#include "fuzz/target.h"

#include "storage/storage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096U
#define SIZE_BYTES 2U /* of the input: the memory's size */

static char name[64];
static int memory = -1;
static volatile unsigned char read_sum; /* so that each byte is read */

static void clean(void)
{
    shm_unlink(name);
}

static void prepare(void)
{
    snprintf(name, sizeof(name), "/varve-fuzz-%ld", (long)getpid());
    shm_unlink(name);
    memory = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    check(memory >= 0);
    atexit(clean);
}

/* Type, number of dimensions and sizes lie where the page has them. */
static void check_said(const uint8_t *page, const struct varve_array *array)
{
    uint32_t dtype, ndim;
    memcpy(&dtype, page + 12, sizeof(dtype));
    memcpy(&ndim, page + 16, sizeof(ndim));
    int64_t shape[VARVE_DIMS_MAX];
    memcpy(shape, page + 24, sizeof(shape));
    check((uint32_t)array->dtype == dtype && array->geometry.ndim == ndim);
    check(varve_geometry_has_shape(&array->geometry, ndim, shape));
    check(varve_geometry_is_contiguous(&array->geometry) && array->geometry.offset == 0);
}

static void check_attached(const uint8_t *page, uint64_t memory_bytes, bool is_read_only, struct varve_storage *storage)
{
    uint64_t bytes = varve_storage_bytes(storage);
    unsigned char *elements = varve_storage_data(storage);
    check(varve_storage_check(storage, NULL) == VARVE_OK);
    check(varve_storage_is_read_only(storage) == is_read_only);
    struct varve_array array;
    varve_storage_get_array(storage, &array);
    check_said(page, &array);
    check(bytes == 0 || (elements != NULL && PAGE_BYTES + bytes <= memory_bytes));
    for (uint64_t i = 0; i < bytes; i++) {
        read_sum = (unsigned char)(read_sum + elements[i]);
        if (!is_read_only) {
            elements[i] = 0x5a;
        }
    }
}

static void attach(const uint8_t *page, uint64_t memory_bytes, bool is_read_only)
{
    struct varve_storage *storage = NULL;
    struct varve_message message = {""};
    int error = varve_storage_shared_attach(name, is_read_only, &storage, &message);
    if (error == VARVE_OK) {
        check_attached(page, memory_bytes, is_read_only, storage);
        check(varve_storage_release(storage, NULL) == VARVE_OK);
    } else {
        check(error == VARVE_ERROR_FORMAT || error == VARVE_ERROR_VERSION);
        check(storage == NULL && message.text[0] != '\0');
    }
    check(varve_storage_live() == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t page[PAGE_BYTES] = {0};
    if (size < SIZE_BYTES || size > SIZE_BYTES + sizeof(page)) {
        return 0;
    }
    if (memory < 0) {
        prepare();
    }
    uint16_t memory_bytes;
    memcpy(&memory_bytes, data, SIZE_BYTES);
    if (size > SIZE_BYTES) {
        memcpy(page, data + SIZE_BYTES, size - SIZE_BYTES);
    }
    check(pwrite(memory, page, sizeof(page), 0) == (ssize_t)sizeof(page));
    check(ftruncate(memory, memory_bytes) == 0);
    attach(page, memory_bytes, true);
    attach(page, memory_bytes, false);
    return 0;
}
