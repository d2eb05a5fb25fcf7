/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References follow the usual protocol of two counts: the memory goes with the last strong one, the object with the
 * last weak one, of which all strong ones together hold one.
 */
#include "storage/core/storage_object.h"

#include "base/error.h"
#include "trace/emit.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 16U /* objects that are made at a time: as many as stay in the cache */

static struct {
    pthread_mutex_t lock;
    struct varve_storage *first, *last; /* spare objects, by the time of their release */
    struct varve_storage *newest;       /* of all objects, by the time of their making. Atomic */
    uint64_t ids;
    uint64_t live; /* atomic */
} objects = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- objects; the lock is held ---- */

static void spare_add(struct varve_storage *storage)
{
    storage->next_spare = NULL;
    if (objects.last != NULL) {
        objects.last->next_spare = storage;
    } else {
        objects.first = storage;
    }
    objects.last = storage;
}

static struct varve_storage *spare_take(void)
{
    if (objects.first == NULL) {
        struct varve_storage *chunk = calloc(CHUNK, sizeof(*chunk));
        for (unsigned i = 0; chunk != NULL && i < CHUNK; i++) {
            spare_add(&chunk[i]);
            chunk[i].next_made = objects.newest;
            __atomic_store_n(&objects.newest, &chunk[i], __ATOMIC_RELEASE);
        }
    }
    struct varve_storage *storage = objects.first;
    if (storage != NULL) {
        objects.first = storage->next_spare;
        objects.last = objects.first != NULL ? objects.last : NULL;
    }
    return storage;
}

struct varve_storage *object_new(void)
{
    pthread_mutex_lock(&objects.lock);
    struct varve_storage *storage = spare_take();
    if (storage != NULL) {
        storage->id = ++objects.ids;
    }
    pthread_mutex_unlock(&objects.lock);
    if (storage == NULL) {
        return NULL;
    }
    __atomic_add_fetch(&objects.live, 1, __ATOMIC_RELAXED);
    storage->views = 0;
    storage->is_foreign = storage->is_read_only = false;
    storage->array.data = NULL;
    storage->bytes = 0;
    storage->memory = NULL;
    storage->base = NULL;
    storage->piece = (struct memory_piece){0};
    storage->release = NULL;
    storage->context = NULL;
    storage->name[0] = '\0';
    storage->attachments = NULL;
    storage->is_touched = false;
    storage->caller = NULL;
    storage->created_ns = storage->callsite = 0;
    if (__atomic_load_n(&object_tracking, __ATOMIC_RELAXED) != 0) {
        storage->created_ns = varve_clock_monotonic_ns();
    }
    storage->weak = 1;
    return storage;
}

uint32_t object_tracking;

const struct varve_storage *object_newest(void)
{
    return __atomic_load_n(&objects.newest, __ATOMIC_ACQUIRE);
}

uint64_t object_last_id(void)
{
    pthread_mutex_lock(&objects.lock);
    uint64_t id = objects.ids;
    pthread_mutex_unlock(&objects.lock);
    return id;
}

static void object_spare(struct varve_storage *storage)
{
    pthread_mutex_lock(&objects.lock);
    spare_add(storage);
    pthread_mutex_unlock(&objects.lock);
}

static void count_dead(void)
{
    __atomic_sub_fetch(&objects.live, 1, __ATOMIC_RELAXED);
}

void object_publish(struct varve_storage *storage)
{
    __atomic_store_n(&storage->strong, 1, __ATOMIC_RELEASE);
}

void object_discard(struct varve_storage *storage)
{
    count_dead();
    object_spare(storage);
}

void object_name(struct varve_storage *storage, const char *name)
{
    size_t bytes = name != NULL ? strnlen(name, sizeof(storage->name) - 1) : 0;
    memcpy(storage->name, bytes > 0 ? name : "", bytes);
    storage->name[bytes] = '\0';
}

uint64_t varve_storage_live(void)
{
    return __atomic_load_n(&objects.live, __ATOMIC_RELAXED);
}

/* ---- references ---- */

struct varve_storage *varve_storage_retain(struct varve_storage *storage)
{
    __atomic_add_fetch(&storage->strong, 1, __ATOMIC_RELAXED);
    return storage;
}

static void weak_drop(struct varve_storage *storage)
{
    if (__atomic_sub_fetch(&storage->weak, 1, __ATOMIC_ACQ_REL) == 0) {
        object_spare(storage);
    }
}

int varve_storage_attach(struct varve_storage *storage, struct varve_storage *kept, struct varve_message *message)
{
    struct attachment *attachment = malloc(sizeof(*attachment));
    if (attachment == NULL) {
        return varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to attach a storage");
    }
    *attachment = (struct attachment){.next = storage->attachments, .kept = varve_storage_retain(kept)};
    storage->attachments = attachment;
    return VARVE_OK;
}

int varve_storage_detach(struct varve_storage *storage, struct varve_storage *kept, struct varve_message *message)
{
    for (struct attachment **place = &storage->attachments; *place != NULL; place = &(*place)->next) {
        struct attachment *attachment = *place;
        if (attachment->kept == kept) {
            *place = attachment->next;
            free(attachment);
            return varve_storage_release(kept, message);
        }
    }
    return varve_message_set(message, VARVE_ERROR_NOT_FOUND, "storage %" PRIu64 " is not attached to storage %" PRIu64,
                             kept->id, storage->id);
}

/* One strong reference less. The number before; 0: there was none. */
static uint32_t strong_drop(struct varve_storage *storage)
{
    uint32_t count = __atomic_load_n(&storage->strong, __ATOMIC_RELAXED);
    while (count > 0 && !__atomic_compare_exchange_n(&storage->strong, &count, count - 1, true, __ATOMIC_ACQ_REL,
                                                     __ATOMIC_RELAXED)) {
    }
    return count;
}

/* Onto the list of those whose last strong reference has gone: nobody else looks at their fields. */
static void gone_add(struct varve_storage **gone, struct varve_storage *storage)
{
    if (strong_drop(storage) == 1) {
        storage->next_spare = *gone;
        *gone = storage;
    }
}

/* Without what it keeps alive, which goes onto the list: chains may be long. */
static void dispose(struct varve_storage *storage, struct varve_storage **gone)
{
    emit_storage(VARVE_KIND_STORAGE_DESTROY, storage, 0);
    count_dead();
    if (storage->base != NULL) {
        __atomic_sub_fetch(&storage->base->views, 1, __ATOMIC_RELEASE);
        gone_add(gone, storage->base);
    } else if (!storage->is_foreign) {
        memory_free(storage->memory, &storage->piece);
    } else {
        if (storage->release != NULL) {
            storage->release(storage->context, storage->array.data);
        }
        memory_drop(storage->memory);
    }
    while (storage->attachments != NULL) {
        struct attachment *attachment = storage->attachments;
        storage->attachments = attachment->next;
        gone_add(gone, attachment->kept);
        free(attachment);
    }
}

int varve_storage_release(struct varve_storage *storage, struct varve_message *message)
{
    const uint32_t count = storage != NULL ? strong_drop(storage) : UINT32_MAX;
    if (count == 0) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "storage %" PRIu64 " has been released already",
                                 storage->id);
    }
    struct varve_storage *gone = NULL;
    if (count == 1) {
        storage->next_spare = NULL;
        gone = storage;
    }
    while (gone != NULL) {
        struct varve_storage *last = gone;
        gone = last->next_spare;
        dispose(last, &gone);
        weak_drop(last);
    }
    return VARVE_OK;
}

uint32_t varve_storage_use_count(const struct varve_storage *storage)
{
    return __atomic_load_n(&storage->strong, __ATOMIC_RELAXED);
}

/* A weak reference is the object itself under another type. */

struct varve_storage_weak *varve_storage_weak_retain(struct varve_storage *storage)
{
    __atomic_add_fetch(&storage->weak, 1, __ATOMIC_RELAXED);
    return (struct varve_storage_weak *)storage;
}

void varve_storage_weak_release(struct varve_storage_weak *weak)
{
    if (weak != NULL) {
        weak_drop((struct varve_storage *)weak);
    }
}

struct varve_storage *varve_storage_weak_lock(struct varve_storage_weak *weak)
{
    struct varve_storage *storage = (struct varve_storage *)weak;
    uint32_t count = __atomic_load_n(&storage->strong, __ATOMIC_RELAXED);
    do {
        if (count == 0) {
            return NULL;
        }
    } while (
        !__atomic_compare_exchange_n(&storage->strong, &count, count + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    return storage;
}

/* ---- questions ---- */

void varve_storage_get_array(const struct varve_storage *storage, struct varve_array *array_out)
{
    object_touch(storage);
    *array_out = storage->array;
}

void *object_data(const struct varve_storage *storage)
{
    const struct varve_array *array = &storage->array;
    return varve_geometry_count(&array->geometry) > 0 ? (void *)(uintptr_t)array_addr(array) : NULL;
}

int object_check_writable(const struct varve_storage *storage, struct varve_message *message)
{
    return storage->is_read_only ? varve_message_set(message, VARVE_ERROR_PERMISSION, "the storage may only be read")
                                 : VARVE_OK;
}

void *varve_storage_data(const struct varve_storage *storage)
{
    object_touch(storage);
    return object_data(storage);
}

enum varve_dtype varve_storage_dtype(const struct varve_storage *storage)
{
    return storage->array.dtype;
}

int64_t varve_storage_count(const struct varve_storage *storage)
{
    return varve_geometry_count(&storage->array.geometry);
}

uint64_t varve_storage_bytes(const struct varve_storage *storage)
{
    return array_bytes(&storage->array);
}

bool varve_storage_is_read_only(const struct varve_storage *storage)
{
    return storage->is_read_only;
}

struct varve_memory *varve_storage_memory(const struct varve_storage *storage)
{
    return storage->memory;
}

struct varve_storage *varve_storage_base(const struct varve_storage *storage)
{
    return storage->base;
}

struct varve_allocation varve_storage_allocation(const struct varve_storage *storage)
{
    return storage->base != NULL ? storage->base->piece.allocation : storage->piece.allocation;
}

uint64_t varve_storage_id(const struct varve_storage *storage)
{
    return storage->id;
}

const char *varve_storage_name(const struct varve_storage *storage)
{
    return storage->name;
}

void varve_storage_set_name(struct varve_storage *storage, const char *name)
{
    object_name(storage, name);
}

/* ---- the walker ---- */

static int corrupt(const struct varve_storage *storage, const char *what, struct varve_message *message)
{
    return varve_message_set(message, VARVE_ERROR_CORRUPT, "storage %" PRIu64 ": %s", storage->id, what);
}

int varve_storage_check(const struct varve_storage *storage, struct varve_message *message)
{
    const struct varve_storage *base = storage->base;
    int64_t first, end;
    varve_geometry_range(&storage->array.geometry, &first, &end);
    if (varve_storage_use_count(storage) == 0 || storage->weak == 0) {
        return corrupt(storage, "has no reference", message);
    }
    if (first < 0 || (uint64_t)end * varve_dtype_bytes(storage->array.dtype) > storage->bytes) {
        return corrupt(storage, "has elements beyond its bytes", message);
    }
    if (base != NULL && (base->base != NULL || base->views == 0 || varve_storage_use_count(base) == 0)) {
        return corrupt(storage, "is a view of what is no living base", message);
    }
    if (base != NULL && (base->array.data != storage->array.data || base->bytes != storage->bytes)) {
        return corrupt(storage, "is a view of other bytes than its base", message);
    }
    struct varve_allocation_info info;
    if (storage->piece.allocation.block != NULL &&
        (varve_alloc_describe(storage->memory->alloc, storage->piece.allocation, &info) != VARVE_OK ||
         info.block.bytes < storage->bytes)) {
        return corrupt(storage, "has no such block", message);
    }
    return VARVE_OK;
}
