/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mappings begin at a page, elements where they are said to: what lies between is mapped too. Called by
 * share_memory.c and share_file.c.
 */
#include "storage/core/storage_object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct mapping {
    void *start;
    uint64_t bytes;
    bool reaches_file;
};

int mapping_error(const char *what, const char *action, struct varve_message *message)
{
    int error = VARVE_ERROR_IO;
    switch (errno) {
    case ENOENT:
    case ENOTDIR:
        error = VARVE_ERROR_NOT_FOUND;
        break;
    case EACCES:
    case EPERM:
    case EROFS:
        error = VARVE_ERROR_PERMISSION;
        break;
    case EEXIST:
        error = VARVE_ERROR_BUSY;
        break;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        error = VARVE_ERROR_NO_MEMORY;
        break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        error = VARVE_ERROR_FULL;
        break;
    case EINVAL:
    case ENAMETOOLONG:
        error = VARVE_ERROR_INVALID;
        break;
    default:
        break;
    }
    return varve_message_set(message, error, "%s: %s: %s", what, action, strerror(errno));
}

static void mapping_release(void *context, void *data)
{
    struct mapping *mapping = context;
    (void)data;
    if (mapping->bytes > 0) {
        munmap(mapping->start, mapping->bytes);
    }
    free(mapping);
}

static int share_mapping_map(int fd, const char *what, uint64_t offset, uint64_t bytes, enum mapping_access access,
                             struct mapping *mapping, struct varve_message *message)
{
    uint64_t before = offset % (uint64_t)sysconf(_SC_PAGESIZE);
    int protection = access == MAPPING_READ ? PROT_READ : PROT_READ | PROT_WRITE;
    *mapping = (struct mapping){.bytes = bytes > 0 ? bytes + before : 0, .reaches_file = access == MAPPING_WRITE};
    if (bytes == 0) {
        return VARVE_OK;
    }
    mapping->start = mmap(NULL, mapping->bytes, protection, access == MAPPING_COPY ? MAP_PRIVATE : MAP_SHARED, fd,
                          (off_t)(offset - before));
    return mapping->start != MAP_FAILED ? VARVE_OK : mapping_error(what, "can't be mapped", message);
}

int mapping_storage(int fd, const char *what, uint64_t offset, enum mapping_access access, enum varve_kind kind,
                    enum varve_dtype dtype, const struct varve_geometry *geometry, struct varve_storage **storage_out,
                    struct varve_message *message)
{
    uint64_t bytes = (uint64_t)varve_geometry_count(geometry) * varve_dtype_bytes(dtype);
    struct mapping *mapping = malloc(sizeof(*mapping));
    struct varve_foreign foreign = {
        .bytes = bytes, .release = mapping_release, .context = mapping, .is_read_only = access == MAPPING_READ};
    if (mapping == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "%s: no memory to map it", what);
    }
    int error = share_mapping_map(fd, what, offset, bytes, access, mapping, message);
    if (error != VARVE_OK) {
        free(mapping);
        return error;
    }
    foreign.data = bytes > 0 ? (char *)mapping->start + (mapping->bytes - bytes) : NULL;
    error = varve_storage_wrap(&foreign, dtype, geometry, what, storage_out, message);
    if (error != VARVE_OK) {
        mapping_release(mapping, NULL);
        return error;
    }
    emit_storage(kind, *storage_out, kind == VARVE_KIND_MAP ? offset : 0);
    return VARVE_OK;
}

int varve_storage_flush(struct varve_storage *storage, struct varve_message *message)
{
    struct varve_storage *base = object_base(storage);
    const struct mapping *mapping = base->context;
    if (base->release != mapping_release) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "the storage is no mapped file");
    }
    if (mapping->bytes > 0 && mapping->reaches_file && msync(mapping->start, mapping->bytes, MS_SYNC) != 0) {
        return mapping_error(base->name, "can't be written back", message);
    }
    return VARVE_OK;
}
