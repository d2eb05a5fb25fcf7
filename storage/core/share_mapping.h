/* SPDX-License-Identifier: Apache-2.0 */
/* A piece of a file in the process' addresses, as the memory of a storage. */
#ifndef VARVE_STORAGE_CORE_SHARE_MAPPING_H
#define VARVE_STORAGE_CORE_SHARE_MAPPING_H

#include "storage/storage.h"

enum mapping_access {
    MAPPING_READ,
    MAPPING_WRITE, /* changes reach the file */
    MAPPING_COPY,  /* changes stay here */
};

/// The storage of `geometry` at `offset` bytes of the file, which has that many bytes; `what` names it in messages,
/// `kind` is the event. The descriptor stays the caller's. Errors: VARVE_ERROR_NO_MEMORY, PERMISSION, IO.
int mapping_storage(int fd, const char *what, uint64_t offset, enum mapping_access access, enum varve_kind kind,
                    enum varve_dtype dtype, const struct varve_geometry *geometry, struct varve_storage **storage_out,
                    struct varve_message *message);
/// A message about a file, with what errno says; returns the error that stands for it.
int mapping_error(const char *what, const char *action, struct varve_message *message);

#endif
