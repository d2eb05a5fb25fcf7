/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pickle decoder remembers: values, containers with reference counts, the memo and interned texts. Kept
 * small for files of millions of events: a memo entry is 8 bytes, and a container that was replaced gives its
 * memory back once only its memo entry refers to it, which then holds the replacement itself. Invariants:
 * object.references = values of the stack, of containers and of the memo that name it; an object with a
 * memo_slot is named by that entry and no other. Called by the decoder and its sinks.
 */
#ifndef VARVE_ANALYSIS_SNAPSHOT_PICKLE_MEMORY_H
#define VARVE_ANALYSIS_SNAPSHOT_PICKLE_MEMORY_H

#include "analysis/base/key_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0 is an empty memo entry; entries have four bits for it. */
enum pickle_type {
    PICKLE_NONE = 1,
    PICKLE_BOOL,
    PICKLE_INTEGER,  /* int64_t */
    PICKLE_UNSIGNED, /* uint64_t above INT64_MAX */
    PICKLE_BIG,      /* an integer of more than 64 bits; its value is not kept */
    PICKLE_FLOAT,
    PICKLE_TEXT,      /* number in texts */
    PICKLE_LONG_TEXT, /* more than PICKLE_TEXT_MAX bytes, not kept */
    PICKLE_BYTES,     /* not kept */
    PICKLE_LIST,      /* these three: number of an object */
    PICKLE_TUPLE,
    PICKLE_DICT,
    PICKLE_REPLACED, /* by a sink: its tag << 32 | its number */
};

#define PICKLE_TEXT_MAX 65536
#define PICKLE_TAG_CONSUMED 0 /* of a replacement: the items went to the sink; a sink's own tags are 1…255 */

struct pickle_value {
    uint64_t type : 8;    /* enum pickle_type */
    uint64_t offset : 56; /* of the opcode that pushed it */
    uint64_t bits;
};

#define PICKLE_ROLE_UNDECIDED 0 /* never filled so far */
#define PICKLE_ROLE_PLAIN 1     /* the decoder keeps its items */

struct pickle_object {
    struct pickle_value *items; /* of a dict: key, value, key, value, … */
    uint32_t count, capacity;
    uint32_t references;
    uint32_t memo_slot; /* PICKLE_SLOT_NONE, PICKLE_SLOT_MANY, or the one entry that names it */
    uint32_t number;    /* the sink's own; of a replaced object: what it stands for */
    uint8_t type;
    uint8_t role; /* PICKLE_ROLE_*, or the sink's own */
    uint8_t tag;  /* of the replacement */
    bool is_replaced;
};

#define PICKLE_SLOT_NONE UINT32_MAX
#define PICKLE_SLOT_MANY (UINT32_MAX - 1)

struct pickle_text {
    const char *bytes; /* no zero at the end */
    uint32_t count;
    uint32_t known; /* the sink's own, 0 at first */
};

struct pickle_memory {
    uint64_t **memo; /* pages, NULL if untouched */
    size_t memo_pages;
    uint64_t memo_count; /* entries in use */
    uint64_t *wide;      /* what does not fit into an entry */
    size_t wide_count, wide_capacity;

    struct pickle_object **slabs;
    size_t slab_count;
    uint32_t object_limit; /* numbers below were in use once */
    uint32_t spare_dicts, spare_others;
    uint32_t unreferenced; /* objects that nothing refers to, linked, while they are taken apart */

    struct pickle_text *texts;
    size_t text_count, text_capacity;
    struct map text_numbers; /* by hash */
    char **text_chunks;
    size_t text_chunk_count, text_chunk_capacity;
    size_t text_chunk_left;
};

void pickle_memory_init(struct pickle_memory *memory);
void pickle_memory_close(struct pickle_memory *memory);

static inline bool pickle_is_object(struct pickle_value value)
{
    return value.type >= PICKLE_LIST && value.type <= PICKLE_DICT;
}

struct pickle_object *pickle_object(const struct pickle_memory *memory, struct pickle_value value);
/// A new empty object with one reference, which the value is.
struct pickle_value pickle_object_new(struct pickle_memory *memory, enum pickle_type type);
void pickle_object_add(struct pickle_object *object, const struct pickle_value *items, size_t count);
void pickle_retain(struct pickle_memory *memory, struct pickle_value value);
void pickle_release(struct pickle_memory *memory, struct pickle_value value);
/// From now on the object stands for `number` of `tag`; its items are released. Whoever holds a reference
/// sees that through pickle_resolve.
void pickle_replace(struct pickle_memory *memory, struct pickle_object *object, uint8_t tag, uint32_t number);
/// The value itself, or PICKLE_REPLACED if its object was replaced.
struct pickle_value pickle_resolve(const struct pickle_memory *memory, struct pickle_value value);

void pickle_memo_put(struct pickle_memory *memory, uint64_t index, struct pickle_value value);
/// With a reference of its own; false if nothing was stored there.
bool pickle_memo_get(struct pickle_memory *memory, uint64_t index, struct pickle_value *value_out);

uint32_t pickle_text(struct pickle_memory *memory, const char *bytes, size_t count); /* interned */
/// "a list", "an integer", "the text 'abc'": for messages.
const char *pickle_describe(const struct pickle_memory *memory, struct pickle_value value, char *buffer,
                            size_t buffer_bytes);
#define PICKLE_DESCRIBE_BYTES 80

#endif
