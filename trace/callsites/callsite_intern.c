/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interning for the call sites of all processes: texts and frames are bytes, one after the other, with a hash index
 * beside them. Called by callsite_reader.c and callsite_resolver.c.
 */
#include "trace/callsites/callsite_intern.h"

#include "base/grown_array.h"
#include "base/hash_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX (UINT32_C(1) << 31)
#define UNIT 8U
#define BYTES_MAX ((size_t)UNIT * UINT32_MAX)

struct wanted {
    const struct interned *interned;
    const void *bytes;
    size_t length;
};

/* What has this number; borrowed until the next is interned. */
static const void *interned_at(const struct interned *interned, uint32_t number, size_t *length_out)
{
    assert(number >= 1 && number <= interned->count);
    const struct interned_entry *entry = &interned->entries[number - 1];
    *length_out = entry->length;
    return entry->length > 0 ? (const char *)interned->bytes + (size_t)entry->start * UNIT : "";
}

static bool is_equal(const void *context, uint64_t number)
{
    const struct wanted *wanted = context;
    size_t length;
    const void *bytes = interned_at(wanted->interned, (uint32_t)number, &length);
    return length == wanted->length && (length == 0 || memcmp(bytes, wanted->bytes, length) == 0);
}

uint32_t intern(struct interned *interned, const void *bytes, size_t length, size_t zeros)
{
    const struct wanted wanted = {interned, bytes, length};
    uint64_t hash = index_hash(bytes, length, 1);
    size_t end = interned->used + (length + zeros + UNIT - 1) / UNIT * UNIT;
    struct index_slot *slot = index_find_equal(&interned->index, hash, is_equal, &wanted);
    if (slot == NULL || slot->number != 0) {
        return slot != NULL ? (uint32_t)slot->number : 0;
    }
    if (interned->count >= COUNT_MAX || end > BYTES_MAX || !array_grow(&interned->bytes, &interned->capacity, end, 1) ||
        !ARRAY_GROW(interned->entries, interned->entry_capacity, (size_t)interned->count + 1)) {
        return 0;
    }
    char *to = (char *)interned->bytes + interned->used;
    memset(to, 0, end - interned->used);
    if (length > 0) {
        memcpy(to, bytes, length);
    }
    interned->entries[interned->count++] = (struct interned_entry){(uint32_t)(interned->used / UNIT), (uint32_t)length};
    interned->used = end;
    index_fill(&interned->index, slot, hash, interned->count);
    return interned->count;
}

void interned_free(struct interned *interned)
{
    free(interned->bytes);
    free(interned->entries);
    index_free(&interned->index);
}

const char *callsites_text(const struct interned *texts, uint32_t number, size_t *length_out)
{
    size_t length = 0;
    const char *text = number != 0 ? interned_at(texts, number, &length) : "";
    if (length_out != NULL) {
        *length_out = length;
    }
    return text;
}
