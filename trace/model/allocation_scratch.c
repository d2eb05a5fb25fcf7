/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row of 64 bytes per allocation, in a file of the recording directory until the end: written when the
 * allocation opens, completed when it closes, read once in order of id. The whole file is one shared mapping,
 * so a row costs a cache miss and no system call. Two things are hard: a full disk must be an error and not
 * SIGBUS, so space is reserved in steps before it is touched; and the file may be much larger than the memory
 * the collector may use, so all but its newest part is dropped from memory again and again (the kernel keeps
 * it in the page cache or writes it out). derive.c and store/derived_tables.c call it.
 */
#include "trace/model/allocation_scratch.h"

#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STEP_BYTES ((uint64_t)16 << 20)
#define STEP_ROWS (STEP_BYTES / sizeof(struct scratch_row))
#define MAPPING_ROWS_MIN (STEP_ROWS * 64)

/* Each touch of a cold row may bring one page back (16, where the kernel maps around a read fault, which is
 * why scratch_touch writes first): at most 32 MiB until they are dropped again. */
#define COLD_TOUCHES_MAX 8192U

int scratch_open(struct scratch *scratch, const char *path, struct varve_message *message)
{
    *scratch = (struct scratch){.fd = -1};
    scratch->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (scratch->fd < 0) {
        int reason = errno;
        int error = reason == ENOSPC || reason == EDQUOT  ? VARVE_ERROR_FULL
                    : reason == ENOENT                    ? VARVE_ERROR_NOT_FOUND
                    : reason == EACCES || reason == EROFS ? VARVE_ERROR_PERMISSION
                                                          : VARVE_ERROR_IO;
        return varve_message_set(message, error, "%s: cannot create: %s", path, strerror(reason));
    }
    return VARVE_OK;
}

void scratch_close(struct scratch *scratch)
{
    if (scratch->rows != NULL) {
        munmap(scratch->rows, scratch->mapped * sizeof(*scratch->rows));
    }
    if (scratch->fd >= 0) {
        close(scratch->fd);
    }
    *scratch = (struct scratch){.fd = -1};
}

/* The mapping may be longer than the file: only rows below `capacity` are ever touched. */
static int mapping_grow(struct scratch *scratch, uint64_t rows)
{
    uint64_t wanted = scratch->mapped > 0 ? scratch->mapped : MAPPING_ROWS_MIN;
    while (wanted < rows) {
        wanted *= 2;
    }
    if (wanted == scratch->mapped) {
        return VARVE_OK;
    }
    size_t bytes = wanted * sizeof(*scratch->rows);
    void *memory;
    if (scratch->rows == NULL) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, scratch->fd, 0);
    } else {
        memory = mremap(scratch->rows, scratch->mapped * sizeof(*scratch->rows), bytes, MREMAP_MAYMOVE);
    }
    if (memory == MAP_FAILED) {
        return VARVE_ERROR_NO_MEMORY;
    }
    scratch->rows = memory;
    scratch->mapped = wanted;
    return VARVE_OK;
}

static int file_grow(struct scratch *scratch, struct varve_message *message)
{
    int error = mapping_grow(scratch, scratch->capacity + STEP_ROWS);
    if (error != VARVE_OK) {
        return varve_message_set(message, error, "no memory to map the table of allocations");
    }
    int reason = posix_fallocate(scratch->fd, (off_t)(scratch->capacity * sizeof(*scratch->rows)), (off_t)STEP_BYTES);
    if (reason != 0) {
        error = reason == ENOSPC || reason == EDQUOT || reason == EFBIG ? VARVE_ERROR_FULL : VARVE_ERROR_IO;
        return varve_message_set(message, error, "the table of allocations cannot grow to %llu MiB: %s",
                                 (unsigned long long)((scratch->capacity + STEP_ROWS) * sizeof(*scratch->rows) >> 20),
                                 strerror(reason));
    }
    scratch->capacity += STEP_ROWS;
    if (scratch->capacity > 2 * STEP_ROWS) {
        scratch_cool(scratch, scratch->capacity - 2 * STEP_ROWS + 1);
    }
    return VARVE_OK;
}

int scratch_reserve(struct scratch *scratch, uint64_t count, struct varve_message *message)
{
    while (scratch->capacity - scratch->count < count) {
        int error = file_grow(scratch, message);
        if (error != VARVE_OK) {
            return error;
        }
    }
    return VARVE_OK;
}

uint64_t scratch_add(struct scratch *scratch, struct scratch_row **row_out)
{
    uint64_t id = scratch->released;
    if (id != 0) {
        *row_out = scratch_touch(scratch, id);
        scratch->released = (*row_out)->addr;
        return id;
    }
    assert(scratch->count < scratch->capacity);
    *row_out = &scratch->rows[scratch->count++];
    return scratch->count;
}

void scratch_release(struct scratch *scratch, uint64_t id)
{
    struct scratch_row *row = scratch_touch(scratch, id);
    assert(row->free_seq != 0);
    row->addr = scratch->released;
    scratch->released = id;
}

void scratch_cool(struct scratch *scratch, uint64_t id)
{
    uint64_t bytes = (id - 1) * sizeof(*scratch->rows) & ~UINT64_C(4095);
    if (bytes > 0) {
        madvise(scratch->rows, bytes, MADV_DONTNEED);
    }
    scratch->cold = bytes / sizeof(*scratch->rows);
    scratch->cold_touches = 0;
}

struct scratch_row *scratch_touch(struct scratch *scratch, uint64_t id)
{
    assert(id >= 1 && id <= scratch->count);
    if (id <= scratch->cold) {
        if (++scratch->cold_touches > COLD_TOUCHES_MAX) {
            scratch_cool(scratch, scratch->cold + 1);
        }
        /* A write fault maps one page, ready for the writes to come; a read fault would map its neighbours
         * too, and the first write would fault again. An atomic OR of nothing is such a write. */
        __atomic_fetch_or(&scratch->rows[id - 1].addr, 0, __ATOMIC_RELAXED);
    }
    return &scratch->rows[id - 1];
}
