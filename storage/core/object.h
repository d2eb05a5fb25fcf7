/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to storage/ */
/*
 * The object behind a storage or view, and its references. Objects come from a list that gives back the one that was released
 * longest ago, and their memory is never given back: a second release finds a storage without references, and says so.
 */
#ifndef VARVE_STORAGE_CORE_OBJECT_H
#define VARVE_STORAGE_CORE_OBJECT_H

#include "storage/core/memory.h"

#define OBJECT_NAME_BYTES 64

struct varve_storage {
    uint32_t strong; /* references. Atomic */
    uint32_t weak;   /* weak references, and one for all strong ones together. Atomic */
    uint32_t views;  /* of a base: views that are alive. Atomic */
    bool is_foreign;
    bool is_read_only;
    struct varve_array array; /* data: of the base's first byte */
    uint64_t bytes;           /* that `data` has */
    struct varve_memory *memory;
    struct varve_storage *base;                 /* of a view; it has a reference of ours */
    struct memory_piece piece;                  /* of a storage that owns its memory */
    void (*release)(void *context, void *data); /* of foreign memory; may be NULL */
    void *context;
    uint64_t id;
    struct varve_storage *next_spare;
    char name[OBJECT_NAME_BYTES];
};

/// One strong reference; the fields that say what it is are zero or NULL, its geometry is not set. NULL: no memory.
struct varve_storage *object_new(void);
/// It never became a storage.
void object_discard(struct varve_storage *storage);
/// Name it; NULL: "".
void object_name(struct varve_storage *storage, const char *name);

static inline struct varve_storage *object_base(struct varve_storage *storage)
{
    return storage->base != NULL ? storage->base : storage;
}

#endif
