/* SPDX-License-Identifier: Apache-2.0 */
/* Files as storages, in the modes of numpy.memmap. */
#include "storage/core/storage_object.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct mode {
    const char *name;
    int flags;
    enum mapping_access access;
    bool may_grow; /* the file, to what the shape needs */
} modes[] = {
    {"r", O_RDONLY, MAPPING_READ, false},
    {"r+", O_RDWR, MAPPING_WRITE, true},
    {"w+", O_RDWR | O_CREAT, MAPPING_WRITE, true}, /* emptied once nothing else is wrong */
    {"c", O_RDONLY, MAPPING_COPY, false},
};

static const struct mode *mode_find(const char *name)
{
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        if (strcmp(modes[i].name, name) == 0) {
            return &modes[i];
        }
    }
    return NULL;
}

/* A size of -1 becomes as many as the file holds. */
static int geometry_of_file(const struct varve_file *file, uint64_t file_bytes, enum varve_dtype dtype, unsigned ndim,
                            const int64_t *shape, struct varve_geometry *geometry, struct varve_message *message)
{
    int64_t sizes[VARVE_DIMS_MAX];
    uint64_t row = varve_dtype_bytes(dtype);
    unsigned unknown = ndim;
    for (unsigned i = 0; i < ndim && i < VARVE_DIMS_MAX; i++) {
        sizes[i] = shape[i];
        if (shape[i] == -1 && unknown == ndim) {
            unknown = i;
            sizes[i] = 1;
        }
    }
    if (ndim <= VARVE_DIMS_MAX && unknown < ndim) {
        VARVE_TRY(varve_geometry_contiguous(ndim, sizes, geometry, message));
        row *= (uint64_t)varve_geometry_count(geometry);
        if (row == 0 || file_bytes < file->offset || (file_bytes - file->offset) % row != 0) {
            return varve_message_set(
                message, VARVE_ERROR_INVALID,
                "%s: its %" PRIu64 " bytes behind offset %" PRIu64 " are no whole number of %" PRIu64, file->path,
                file_bytes < file->offset ? 0 : file_bytes - file->offset, file->offset, row);
        }
        sizes[unknown] = (int64_t)((file_bytes - file->offset) / row);
    }
    return varve_geometry_contiguous(ndim, ndim <= VARVE_DIMS_MAX ? sizes : shape, geometry, message);
}

/* The file gets the size that the storage needs, or must have it. */
static int share_file_fit(int fd, const struct varve_file *file, const struct mode *mode, uint64_t file_bytes,
                          uint64_t needed, struct varve_message *message)
{
    bool is_new = (mode->flags & O_CREAT) != 0;
    if (!mode->may_grow && file_bytes < needed) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: has %" PRIu64 " bytes, the shape needs %" PRIu64,
                                 file->path, file_bytes, needed);
    }
    if ((is_new && ftruncate(fd, 0) != 0) ||
        ((is_new || file_bytes < needed) && mode->may_grow && ftruncate(fd, (off_t)needed) != 0)) {
        return mapping_error(file->path, "can't be made as large as the shape needs", message);
    }
    return VARVE_OK;
}

static int map_file(int fd, const struct varve_file *file, const struct mode *mode, enum varve_dtype dtype,
                    unsigned ndim, const int64_t *shape, struct varve_storage **storage_out,
                    struct varve_message *message)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return mapping_error(file->path, "can't be examined", message);
    }
    if (!S_ISREG(status.st_mode)) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: is no regular file", file->path);
    }
    struct varve_geometry geometry;
    VARVE_TRY(geometry_of_file(file, (uint64_t)status.st_size, dtype, ndim, shape, &geometry, message));
    uint64_t needed = (uint64_t)varve_geometry_count(&geometry) * varve_dtype_bytes(dtype);
    if (file->offset > (uint64_t)INT64_MAX - needed) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%s: offset %" PRIu64 " is beyond any file", file->path,
                                 file->offset);
    }
    int error = share_file_fit(fd, file, mode, (uint64_t)status.st_size, file->offset + needed, message);
    return error != VARVE_OK ? error
                             : mapping_storage(fd, file->path, file->offset, mode->access, VARVE_KIND_MAP, dtype,
                                               &geometry, storage_out, message);
}

int varve_storage_map(const struct varve_file *file, enum varve_dtype dtype, unsigned ndim, const int64_t *shape,
                      struct varve_storage **storage_out, struct varve_message *message)
{
    const struct mode *mode = mode_find(file->mode != NULL ? file->mode : "r+");
    if (mode == NULL) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "'%s' is no mode; there are r, r+, w+ and c",
                                 file->mode);
    }
    if (varve_dtype_bytes(dtype) == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "%d is no type of elements", (int)dtype);
    }
    int fd = open(file->path, mode->flags | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) {
        return mapping_error(file->path, "can't be opened", message);
    }
    int error = map_file(fd, file, mode, dtype, ndim, shape, storage_out, message);
    close(fd);
    return object_created(error, storage_out, __builtin_return_address(0));
}
