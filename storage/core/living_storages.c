/* SPDX-License-Identifier: Apache-2.0 */
/*
 * References between storages are those of views to their bases and of attachments. What the program refers to, and
 * what that keeps alive, is reached; the rest keeps itself alive, as unreachable cycles do in a collector of garbage.
 */
#include "storage/core/storage_object.h"

#include <stdlib.h>

static int living_storages_compare(const void *left, const void *right)
{
    const struct living_entry *a = left, *b = right;
    return (a->storage->id > b->storage->id) - (a->storage->id < b->storage->id);
}

static bool living_storages_add(struct living *living, struct varve_storage *storage)
{
    if (living->count == living->capacity) {
        size_t capacity = living->capacity * 2 + 64;
        struct living_entry *entries = realloc(living->entries, capacity * sizeof(*entries));
        if (entries == NULL) {
            return false;
        }
        living->entries = entries;
        living->capacity = capacity;
    }
    living->entries[living->count++] =
        (struct living_entry){.storage = storage, .references = varve_storage_use_count(storage) - 1};
    return true;
}

struct living_entry *living_find(const struct living *living, const struct varve_storage *storage)
{
    size_t from = 0, to = living->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (living->entries[middle].storage->id < storage->id) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < living->count && living->entries[from].storage == storage ? &living->entries[from] : NULL;
}

static void count_internal(struct living *living)
{
    for (size_t i = 0; i < living->count; i++) {
        const struct varve_storage *storage = living->entries[i].storage;
        struct living_entry *entry = storage->base != NULL ? living_find(living, storage->base) : NULL;
        if (entry != NULL) {
            entry->internal++;
        }
        for (const struct attachment *attachment = storage->attachments; attachment != NULL;
             attachment = attachment->next) {
            entry = living_find(living, attachment->kept);
            if (entry != NULL) {
                entry->internal++;
            }
        }
    }
}

/* `waiting` has room for all entries, each of which comes there at most once. */
static void reach_all(struct living *living, struct living_entry **waiting)
{
    size_t count = 0;
    for (size_t i = 0; i < living->count; i++) {
        if (living_external(&living->entries[i]) > 0) {
            living->entries[i].is_reached = true;
            waiting[count++] = &living->entries[i];
        }
    }
    while (count > 0) {
        const struct varve_storage *storage = waiting[--count]->storage;
        const struct attachment *attachment = storage->attachments;
        struct living_entry *entry = storage->base != NULL ? living_find(living, storage->base) : NULL;
        do {
            if (entry != NULL && !entry->is_reached) {
                entry->is_reached = true;
                waiting[count++] = entry;
            }
            entry = attachment != NULL ? living_find(living, attachment->kept) : NULL;
            attachment = attachment != NULL ? attachment->next : NULL;
        } while (entry != NULL || attachment != NULL);
    }
}

int living_open(struct living *living, struct varve_message *message)
{
    *living = (struct living){NULL, 0, 0};
    bool has_memory = true;
    for (const struct varve_storage *each = object_newest(); each != NULL && has_memory; each = each->next_made) {
        struct varve_storage *storage = varve_storage_weak_lock((struct varve_storage_weak *)(uintptr_t)each);
        if (storage != NULL && !living_storages_add(living, storage)) {
            varve_storage_release(storage, NULL);
            has_memory = false;
        }
    }
    struct living_entry **waiting = NULL;
    if (has_memory && living->count > 0) {
        waiting = malloc(living->count * sizeof(struct living_entry *));
        has_memory = waiting != NULL;
    }
    if (!has_memory) {
        living_close(living);
        varve_message_set(message, VARVE_ERROR_NO_MEMORY, "no memory to list the storages that are alive");
        return VARVE_ERROR_NO_MEMORY;
    }
    if (living->count > 0) {
        qsort(living->entries, living->count, sizeof(*living->entries), living_storages_compare);
        count_internal(living);
        reach_all(living, waiting);
    }
    free(waiting);
    return VARVE_OK;
}

void living_close(struct living *living)
{
    for (size_t i = 0; i < living->count; i++) {
        varve_storage_release(living->entries[i].storage, NULL);
    }
    free(living->entries);
}
