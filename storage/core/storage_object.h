/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object behind a storage or view, and its references. Objects come from a list that gives back the one that was
 * released longest ago, and their memory is never given back: a second release finds a storage without
 * references, and says so.
 */
#ifndef VARVE_STORAGE_CORE_STORAGE_OBJECT_H
#define VARVE_STORAGE_CORE_STORAGE_OBJECT_H

#include "storage/core/storage_memory.h"

#define OBJECT_NAME_BYTES 64

/* One storage that another one keeps alive. */
struct attachment {
    struct attachment *next;
    struct varve_storage *kept; /* with a reference of ours */
};

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
    struct attachment *attachments;   /* storages that it keeps alive */
    struct varve_storage *next_spare; /* of spare objects, and before, of those that are being released */
    struct varve_storage *next_made;  /* of all objects of the process */
    /* what the tracker notes; 0 for what came before it was enabled */
    uint64_t created_ns; /* CLOCK_MONOTONIC */
    const void *caller;  /* of the function that made it */
    uint32_t callsite;   /* of the recorded trace */
    bool is_touched;     /* its elements were asked for, or written. Atomic */
    char name[OBJECT_NAME_BYTES];
};

/// An object that is not a storage yet: without a reference, so that nobody takes one. The fields that say what it is
/// are zero or NULL, its geometry is not set. NULL: no memory.
struct varve_storage *object_new(void);
/// It is complete: one reference, the caller's.
void object_publish(struct varve_storage *storage);
/// It never became a storage.
void object_discard(struct varve_storage *storage);
/// As varve_storage_data, without a look at the elements.
void *object_data(const struct varve_storage *storage);
/// Errors: VARVE_ERROR_PERMISSION.
int object_check_writable(const struct varve_storage *storage, struct varve_message *message);
/// Name it; NULL: "".
void object_name(struct varve_storage *storage, const char *name);

/// 1 while the tracker is enabled. Atomic.
extern uint32_t object_tracking;
/// The newest object of the process, of a list that only grows (next_made).
const struct varve_storage *object_newest(void);
/// The number of the storage that was created last.
uint64_t object_last_id(void);

/* Of a function that makes a storage: the outermost one is the last to say who called it. */
static inline int object_created(int error, struct varve_storage *const *storage, const void *caller)
{
    if (__atomic_load_n(&object_tracking, __ATOMIC_RELAXED) != 0 && error == VARVE_OK) {
        __atomic_store_n(&(*storage)->caller, caller, __ATOMIC_RELAXED);
    }
    return error;
}

/* Somebody is about to look at its elements, or to change them. */
static inline void object_touch(const struct varve_storage *storage)
{
    struct varve_storage *touched = (struct varve_storage *)(uintptr_t)storage;

    __atomic_store_n(&touched->is_touched, true, __ATOMIC_RELAXED);
    if (touched->base != NULL) {
        __atomic_store_n(&touched->base->is_touched, true, __ATOMIC_RELAXED);
    }
}

static inline struct varve_storage *object_base(struct varve_storage *storage)
{
    return storage->base != NULL ? storage->base : storage;
}

#endif
