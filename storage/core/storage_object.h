/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object behind a storage or view, and its references. Objects come from a list that gives back the one that was
 * released longest ago, and their memory is never given back: a second release finds a storage without
 * references, and says so.
 */
#ifndef VARVE_STORAGE_CORE_STORAGE_OBJECT_H
#define VARVE_STORAGE_CORE_STORAGE_OBJECT_H

#include "storage/cuda/gpu_work.h"
#include "storage/storage.h"

/* Bytes for storages: of the C library, or blocks of an allocator. */

struct staging;

#define MEMORY_STREAMS_MAX 16U

struct varve_memory {
    struct varve_alloc *alloc;   /* NULL: the C library */
    struct varve_device *device; /* NULL there */
    uint64_t alignment;          /* of what is not asked to be aligned otherwise */
    bool is_addressable;
    uint64_t users;                       /* pieces that are in use. Atomic */
    struct gpu *gpu;                      /* NULL until somebody asks for it. Atomic */
    bool has_no_gpu;                      /* and never will have: it was asked for. Atomic */
    struct staging *staging;              /* likewise */
    uint64_t streams[MEMORY_STREAMS_MAX]; /* of the device. 0 until somebody asks for them. Atomic */
};

/* Of element [0, 0, …], whether there is one or not. */
static inline uint64_t array_addr(const struct varve_array *array)
{
    return (uint64_t)(uintptr_t)array->data + (uint64_t)array->geometry.offset * varve_dtype_bytes(array->dtype);
}

/* Of all its elements. */
static inline uint64_t array_bytes(const struct varve_array *array)
{
    return (uint64_t)varve_geometry_count(&array->geometry) * varve_dtype_bytes(array->dtype);
}

/* Is one and the same place to compute in: the processor's, or one device? */
static inline bool memory_is_beside(const struct varve_memory *memory, const struct varve_memory *other)
{
    return memory->is_addressable ? other->is_addressable : memory->device == other->device;
}

/* A piece of memory that somebody owns. */
struct memory_piece {
    void *data;                         /* aligned as was asked for; NULL: 0 bytes */
    struct varve_allocation allocation; /* of an allocator */
    uint64_t alignment, stream;         /* as they were asked for: another piece in its place gets the same */
};

/// Until a device's stream has done what it has. Errors: the device's.
int memory_wait(struct varve_memory *memory, uint64_t stream, struct varve_message *message);
/// What launches kernels on the memory's device, opened at the first question; as long as the memory. NULL: the device
/// runs no programs, the build has none, or there was no memory for it. Threads: any.
struct gpu *memory_gpu(struct varve_memory *memory);
/// One of the streams that the memory has for work of its own, opened at the first question; as long as the memory, so
/// that blocks that the allocator keeps for a stream are used again. `number`: below MEMORY_STREAMS_MAX. Threads: any.
/// Errors: the device's.
int memory_side_stream(struct varve_memory *memory, unsigned number, uint64_t *stream_out,
                       struct varve_message *message);
/// `alignment`: a power of two; 0: the memory's usual. 0 bytes need none. Errors: VARVE_ERROR_NO_MEMORY,
/// the allocator's.
int memory_allocate(struct varve_memory *memory, uint64_t bytes, uint64_t alignment, uint64_t stream,
                    struct memory_piece *piece_out, struct varve_message *message);
/// A contiguous array of the shape of `like` and another type, its elements undefined, in such a piece. Errors: as
/// memory_allocate.
int memory_array(struct varve_memory *memory, const struct varve_array *like, enum varve_dtype dtype, uint64_t stream,
                 struct varve_array *array_out, struct memory_piece *piece_out, struct varve_message *message);
void memory_free(struct varve_memory *memory, const struct memory_piece *piece);
/// The memory is in use, without a piece of it: by foreign memory of its kind.
void memory_hold(struct varve_memory *memory);
void memory_drop(struct varve_memory *memory);

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

/* All storages that are alive at a moment, kept alive while they are looked at. */

struct living_entry {
    struct varve_storage *storage; /* with a reference of ours */
    uint32_t references;           /* at that moment, without ours */
    uint32_t internal;             /* of them, those of other storages: views and attachments */
    bool is_reached;               /* from a storage that the program has a reference to */
};

struct living {
    struct living_entry *entries; /* by id */
    size_t count, capacity;
};

/// Errors: VARVE_ERROR_NO_MEMORY, with nothing held.
int living_open(struct living *living, struct varve_message *message);
/// Gives the references back: what nobody else has goes.
void living_close(struct living *living);
/// The entry of a storage; NULL: it came later.
struct living_entry *living_find(const struct living *living, const struct varve_storage *storage);

static inline uint32_t living_external(const struct living_entry *entry)
{
    return entry->references > entry->internal ? entry->references - entry->internal : 0;
}

/* A piece of a file in the process' addresses, as the memory of a storage. */

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

/* Bytes between host memory and a device's. */

/// Without effect on NULL. Pinned memory that the device still reads is waited for.
void staging_close(struct staging *staging);

/// Copy to (`is_fetch`: from) the device, behind what `stream` has. The bytes are there when it returns. Threads: any;
/// large ones to one memory's device go one after the other. Errors: the device's, VARVE_ERROR_UNSUPPORTED (it
/// copies nothing).
int transfer_bytes(struct varve_memory *memory, uint64_t device_addr, void *host, uint64_t bytes, bool is_fetch,
                   uint64_t stream, struct varve_message *message);

/* Elements from one memory to another. */

/* What a device's work is ordered by. Work of the processor has been done when a call returns, in any case. */
struct copy_order {
    uint64_t stream;
    bool is_asynchronous; /* what the device does by itself may go on behind the call */
};

/// As varve_array_copy, in whatever memory both lie. Errors: VARVE_ERROR_UNSUPPORTED, the device's.
int copy_elements(struct varve_memory *target_memory, const struct varve_array *target,
                  struct varve_memory *source_memory, const struct varve_array *source, struct copy_order order,
                  struct varve_message *message);
/// As varve_array_fill, in whatever memory. Errors: as copy_elements.
int fill_elements(struct varve_memory *memory, const struct varve_array *array, struct varve_scalar value,
                  struct copy_order order, struct varve_message *message);

/*
 * What happens to storages becomes records of the process' trace: the only module where they get their fields. Without
 * a recording session it costs a call, a load and a branch.
 */

/// The storage was created, is about to go, is a new view, shared or mapped: `arg` as the list of events says, of the
/// kinds that leave it to the caller.
void emit_storage(enum varve_kind kind, struct varve_storage *storage, uint64_t arg);
/// It looks like a leak, to the tracker, which has a reference of its own; the cause says why, as far as that
/// lies in the object.
void emit_leak(struct varve_storage *storage, enum varve_cause cause, uint64_t now_ns);
/// Elements of `source`, at an address, came to the target: copied, converted or brought from another memory. Its
/// storage's id, or 0.
void emit_copy(const struct varve_storage *target, struct varve_memory *source_memory, const struct varve_array *source,
               uint64_t source_id);

#endif
