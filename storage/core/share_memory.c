/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages in POSIX shared memory, which any process attaches to by name. A page in front of the elements
 * says what they are:
 *
 * offset  bytes  field
 *      0      8  magic, written last: what has none is not finished
 *      8      4  version
 *     12      4  type of the elements, enum varve_dtype
 *     16      4  number of dimensions
 *     20      4  0
 *     24    128  shape
 *
 * A segment may come from anybody, so what attaches believes nothing of it.
 */
#include "storage/core/storage_object.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_MAGIC UINT64_C(0x6465726168737676) /* "vvshared" */
#define SHARED_VERSION 1U
#define SHARED_DATA 4096U
#define NAME_BYTES 256

struct shared_header {
    uint64_t magic;
    uint32_t version, dtype, ndim, zero;
    int64_t shape[VARVE_DIMS_MAX];
};

_Static_assert(sizeof(struct shared_header) == 24 + 8 * VARVE_DIMS_MAX, "as the table says");

/* With a slash in front, as shm_open wants it. */
static int name_complete(const char *name, char *complete, struct varve_message *message)
{
    int length = snprintf(complete, NAME_BYTES, "%s%s", name[0] == '/' ? "" : "/", name);
    if (length < 2 || length >= NAME_BYTES - 1 || strchr(complete + 1, '/') != NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID,
                                 "'%.80s' is no name of shared memory: 1 to 254 bytes without a slash", name);
    }
    return VARVE_OK;
}

static int write_header(int fd, const char *name, enum varve_dtype dtype, const struct varve_geometry *geometry,
                        struct varve_message *message)
{
    struct shared_header header = {.version = SHARED_VERSION, .dtype = (uint32_t)dtype, .ndim = geometry->ndim};
    memcpy(header.shape, geometry->shape, geometry->ndim * sizeof(header.shape[0]));
    const uint64_t magic = SHARED_MAGIC;
    if (pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
        pwrite(fd, &magic, sizeof(magic), 0) != (ssize_t)sizeof(magic)) {
        return mapping_error(name, "can't be written", message);
    }
    return VARVE_OK;
}

/* All of its memory is there afterwards: else a full /dev/shm would end the program at the first write. */
static int share_memory_create(int fd, const char *name, enum varve_dtype dtype, const struct varve_geometry *geometry,
                               struct varve_storage **storage_out, struct varve_message *message)
{
    uint64_t bytes = (uint64_t)varve_geometry_count(geometry) * varve_dtype_bytes(dtype);
    int error = posix_fallocate(fd, 0, (off_t)(SHARED_DATA + bytes));
    if (error != 0) {
        errno = error;
        return mapping_error(name, "can't be made as large as the shape needs", message);
    }
    VARVE_TRY(
        mapping_storage(fd, name, SHARED_DATA, MAPPING_WRITE, VARVE_KIND_SHARE, dtype, geometry, storage_out, message));
    error = write_header(fd, name, dtype, geometry, message);
    if (error != VARVE_OK) {
        varve_storage_release(*storage_out, NULL);
    }
    return error;
}

int varve_storage_shared_create(const char *name, enum varve_dtype dtype, unsigned ndim, const int64_t *shape,
                                struct varve_storage **storage_out, struct varve_message *message)
{
    char complete[NAME_BYTES];
    int error = name_complete(name, complete, message);
    if (error == VARVE_OK && varve_dtype_bytes(dtype) == 0) {
        error = varve_message_set(message, VARVE_ERROR_INVALID, "%d is no type of elements", (int)dtype);
    }
    struct varve_geometry geometry;
    VARVE_THEN(error, varve_geometry_contiguous(ndim, shape, &geometry, message));
    if (error != VARVE_OK) {
        return error;
    }
    int fd = shm_open(complete, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return mapping_error(complete, "can't be created", message);
    }
    struct varve_storage *storage = NULL;
    error = share_memory_create(fd, complete, dtype, &geometry, &storage, message);
    close(fd);
    if (error != VARVE_OK) {
        shm_unlink(complete);
        return error;
    }
    *storage_out = storage;
    return object_created(VARVE_OK, storage_out, __builtin_return_address(0));
}

static int refuse_segment(const char *name, const char *reason, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_FORMAT, "%s: %s", name, reason);
}

static int share_memory_read_header(int fd, const char *name, struct shared_header *header,
                                    struct varve_geometry *geometry, struct varve_message *message)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return mapping_error(name, "can't be examined", message);
    }
    if (pread(fd, header, sizeof(*header), 0) != (ssize_t)sizeof(*header) || header->magic != SHARED_MAGIC) {
        return refuse_segment(name, "holds no shared storage, or one that is being made", message);
    }
    if (header->version > SHARED_VERSION) {
        return varve_message_set(message, VARVE_ERROR_VERSION, "%s: was made by a newer version", name);
    }
    if (header->ndim > VARVE_DIMS_MAX || varve_dtype_bytes((enum varve_dtype)header->dtype) == 0) {
        return refuse_segment(name, "says nothing sensible about its elements", message);
    }
    int error = varve_geometry_contiguous(header->ndim, header->shape, geometry, NULL);
    if (error != VARVE_OK ||
        (uint64_t)status.st_size < SHARED_DATA + (uint64_t)varve_geometry_count(geometry) *
                                                     varve_dtype_bytes((enum varve_dtype)header->dtype)) {
        return refuse_segment(name, "is shorter than its shape", message);
    }
    return VARVE_OK;
}

int varve_storage_shared_attach(const char *name, bool is_read_only, struct varve_storage **storage_out,
                                struct varve_message *message)
{
    struct varve_geometry geometry = {.ndim = 0};
    struct shared_header header = {.magic = 0};
    char complete[NAME_BYTES];
    VARVE_TRY(name_complete(name, complete, message));
    int fd = shm_open(complete, (is_read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC, 0);
    if (fd < 0) {
        return mapping_error(complete, "can't be opened", message);
    }
    int error = share_memory_read_header(fd, complete, &header, &geometry, message);
    VARVE_THEN(error,
               mapping_storage(fd, complete, SHARED_DATA, is_read_only ? MAPPING_READ : MAPPING_WRITE, VARVE_KIND_SHARE,
                               (enum varve_dtype)header.dtype, &geometry, storage_out, message));
    close(fd);
    return object_created(error, storage_out, __builtin_return_address(0));
}

int varve_storage_shared_unlink(const char *name, struct varve_message *message)
{
    char complete[NAME_BYTES];
    VARVE_TRY(name_complete(name, complete, message));
    return shm_unlink(complete) == 0 ? VARVE_OK : mapping_error(complete, "can't be unlinked", message);
}
