/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pickle machine that makes values and runs nothing, made for files whose lists are larger than memory
 * should be. A sink looks at each container when it is filled for the first time; of those that it knows by
 * their place it takes the items as they come, and they are gone afterwards. All other containers are kept as
 * long as the stack, another container or the memo refers to them.
 *
 *   input_stream ─► reader.c (loop) ─► opcodes.c, scalars.c ─► memory.c
 *                                                containers.c ─► sink (history/pytorch/pytorch.c)
 *
 * What keeps the memory small: picklers memoise every container and string, so the memo outgrows all else. An
 * entry is 8 bytes, texts are interned, and a container that a sink has taken or replaced gives its memory
 * back as soon as only its memo entry refers to it: the entry then holds the replacement itself.
 *
 * Invariants: object.references = values of the stack, of containers and of the memo that name it; an object
 * with a memo_slot is named by that entry and no other entry.
 */
#ifndef VARVE_ANALYSIS_HISTORY_PICKLE_PICKLE_H
#define VARVE_ANALYSIS_HISTORY_PICKLE_PICKLE_H

#include "analysis/history/input/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    PICKLE_LIST,      /* these four: number of an object */
    PICKLE_TUPLE,
    PICKLE_SET,
    PICKLE_DICT,
    PICKLE_REPLACED, /* by a sink: its tag << 32 | its number */
};

#define PICKLE_TEXT_MAX 65536
#define PICKLE_TAG_CONSUMED \
    0 /* of a replacement: the items went to the sink; a sink's own tags are 1…255 \
       */

struct pickle_value {
    uint64_t type : 8;    /* enum pickle_type */
    uint64_t offset : 56; /* of the opcode that pushed it */
    uint64_t bits;
};

#define PICKLE_ROLE_UNDECIDED 0 /* never filled so far */
#define PICKLE_ROLE_PLAIN 1     /* the machine keeps its items */

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

struct pickle;

/* Both are called before the items leave the stack. */
struct pickle_sink {
    void *context;
    /* Role of a list, or of a dict at the bottom, that is filled for the first time and is, or will be, at
     * stack[position]. */
    uint8_t (*role)(void *context, struct pickle *pickle, size_t position, struct pickle_object *container);
    /* Items for a container with a role of the sink's. They are released when this returns. */
    int (*take)(void *context, struct pickle *pickle, struct pickle_object *container,
                const struct pickle_value *items, size_t count);
};

struct pickle {
    struct input_stream *input;
    const struct pickle_sink *sink;
    struct progress *progress;
    struct varve_message *message;
    uint64_t offset;      /* of the opcode at work */
    unsigned char opcode; /* the one at work */
    bool is_stopped;

    struct pickle_value *stack;
    size_t height, stack_capacity;
    uint32_t *marks; /* heights */
    size_t mark_count, mark_capacity;

    uint64_t **memo; /* pages, NULL if untouched */
    size_t memo_pages;
    uint64_t memo_count; /* entries in use */
    uint64_t *wide;      /* what does not fit into an entry */
    size_t wide_count, wide_capacity;

    struct pickle_object **slabs;
    size_t slab_count;
    uint32_t object_limit; /* numbers below were in use once */
    uint32_t spare_dicts, spare_others;
    uint32_t doomed; /* objects that nothing refers to, while they are taken apart */
    bool is_draining;

    struct pickle_text *texts;
    size_t text_count, text_capacity;
    uint32_t *text_slots; /* number + 1; open addressing */
    unsigned text_bits;
    char **text_chunks;
    size_t text_chunk_count, text_chunk_capacity;
    size_t text_chunk_left;
};

/* ---- reader.c ---- */

/// Everything is borrowed. `words`: texts that get the numbers 0, 1, … (ends with NULL).
void pickle_init(struct pickle *pickle, struct input_stream *input, const struct pickle_sink *sink,
                 const char *const *words, struct progress *progress, struct varve_message *message);
/// Run to STOP. `*root_out` stays valid until pickle_close. Errors: VARVE_ERROR_FORMAT, or what input and
/// sink return.
int pickle_run(struct pickle *pickle, struct pickle_value *root_out);
void pickle_close(struct pickle *pickle);
/// VARVE_ERROR_FORMAT with "PATH: at byte OFFSET: reason".
int pickle_fail(struct pickle *pickle, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int pickle_fail_truncated(struct pickle *pickle); /* within the opcode at work */

/* ---- opcodes.c; what runs an opcode returns 0 or the error that ends the reading ---- */

struct pickle_opcode {
    const char *name; /* NULL: no opcode */
    int (*run)(struct pickle *pickle);
};

extern const struct pickle_opcode pickle_opcodes[256];

/* ---- containers.c ---- */

int pickle_stack_grow(struct pickle *pickle);

static inline int pickle_push(struct pickle *pickle, enum pickle_type type, uint64_t bits)
{
    struct pickle_value *top;

    if (pickle->height == pickle->stack_capacity) {
        int error = pickle_stack_grow(pickle);

        if (error != VARVE_OK) {
            return error;
        }
    }
    top = &pickle->stack[pickle->height++];
    top->type = (unsigned char)type;
    top->offset = pickle->offset;
    top->bits = bits;
    return VARVE_OK;
}

/// Push the value with the reference that it is; releases it if that fails.
int pickle_push_object(struct pickle *pickle, struct pickle_value value);
/// Values above the last mark, which an opcode may take.
size_t pickle_available(const struct pickle *pickle);
int pickle_fail_underflow(struct pickle *pickle);
int pickle_run_mark(struct pickle *pickle);
int pickle_run_pop(struct pickle *pickle);
int pickle_run_pop_mark(struct pickle *pickle);
int pickle_run_dup(struct pickle *pickle);
int pickle_run_none(struct pickle *pickle);
int pickle_run_true(struct pickle *pickle);
int pickle_run_false(struct pickle *pickle);
int pickle_run_empty_list(struct pickle *pickle);
int pickle_run_empty_dict(struct pickle *pickle);
int pickle_run_empty_tuple(struct pickle *pickle);
int pickle_run_empty_set(struct pickle *pickle);
int pickle_run_appends(struct pickle *pickle);
int pickle_run_setitems(struct pickle *pickle);
int pickle_run_additems(struct pickle *pickle);
int pickle_run_append(struct pickle *pickle);
int pickle_run_setitem(struct pickle *pickle);
int pickle_run_list(struct pickle *pickle);
int pickle_run_dict(struct pickle *pickle);
int pickle_run_tuple(struct pickle *pickle);
int pickle_run_frozenset(struct pickle *pickle);
int pickle_run_small_tuple(struct pickle *pickle);

/* ---- scalars.c ---- */

int pickle_run_int(struct pickle *pickle);
int pickle_run_long(struct pickle *pickle);
int pickle_run_float(struct pickle *pickle);
int pickle_run_binint(struct pickle *pickle);
int pickle_run_binint1(struct pickle *pickle);
int pickle_run_binint2(struct pickle *pickle);
int pickle_run_long1(struct pickle *pickle);
int pickle_run_long4(struct pickle *pickle);
int pickle_run_binfloat(struct pickle *pickle);
int pickle_run_string(struct pickle *pickle);
int pickle_run_unicode(struct pickle *pickle);
int pickle_run_text1(struct pickle *pickle);
int pickle_run_text4(struct pickle *pickle);
int pickle_run_text8(struct pickle *pickle);
int pickle_run_bytes1(struct pickle *pickle);
int pickle_run_bytes4(struct pickle *pickle);
int pickle_run_bytes8(struct pickle *pickle);
/// The decimal number that an opcode of protocol 0 has behind it, up to the end of the line.
int pickle_read_decimal(struct pickle *pickle, struct pickle_value *value_out);

/// `count` bytes behind the opcode, NULL (see pickle_fail_truncated) if the data end before. count <= 256.
static inline const unsigned char *pickle_take_bytes(struct pickle *pickle, size_t count)
{
    const unsigned char *bytes = pickle->input->next;

    if ((size_t)(pickle->input->end - bytes) < count) {
        return NULL;
    }
    pickle->input->next += count;
    return bytes;
}

/* ---- memory.c ---- */

static inline bool pickle_is_object(struct pickle_value value)
{
    return value.type >= PICKLE_LIST && value.type <= PICKLE_DICT;
}

struct pickle_object *pickle_object(const struct pickle *pickle, struct pickle_value value);
/// A new empty object with one reference, which the value is.
struct pickle_value pickle_object_new(struct pickle *pickle, enum pickle_type type);
void pickle_object_add(struct pickle_object *object, const struct pickle_value *items, size_t count);
void pickle_retain(struct pickle *pickle, struct pickle_value value);
void pickle_release(struct pickle *pickle, struct pickle_value value);
/// From now on the object stands for `number` of `tag`; its items are released. Whoever holds a reference
/// sees that through pickle_resolve.
void pickle_replace(struct pickle *pickle, struct pickle_object *object, uint8_t tag, uint32_t number);
/// The value itself, or PICKLE_REPLACED if its object was replaced.
struct pickle_value pickle_resolve(const struct pickle *pickle, struct pickle_value value);

void pickle_memo_put(struct pickle *pickle, uint64_t index, struct pickle_value value);
/// With a reference of its own; false if nothing was stored there.
bool pickle_memo_get(struct pickle *pickle, uint64_t index, struct pickle_value *value_out);

uint32_t pickle_text(struct pickle *pickle, const char *bytes, size_t count); /* interned */
void pickle_memory_close(struct pickle *pickle);
/// "a list", "an integer", "the text 'abc'": for messages.
const char *pickle_describe(const struct pickle *pickle, struct pickle_value value, char *buffer,
                            size_t buffer_bytes);
#define PICKLE_DESCRIBE_BYTES 80

#ifdef __cplusplus
}
#endif

#endif
