/* SPDX-License-Identifier: Apache-2.0 */
/* From an address to its frame description entry, and the bytes of its tables. */
#ifndef VARVE_TRACE_STACKS_UNWIND_TABLE_H
#define VARVE_TRACE_STACKS_UNWIND_TABLE_H

#include "trace/guest/loaded_object.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct unwind_reader {
    const unsigned char *at;
    const unsigned char *end;
    bool bad; /* something was read past the end, or has an unknown encoding */
};

/* What a frame description entry and its common information entry say. */
struct unwind_entry {
    uintptr_t start; /* of the code it covers */
    uint64_t bytes;
    uint64_t code_alignment;
    int64_t data_alignment;
    uint64_t return_register;
    bool is_signal_frame;
    bool has_augmentation; /* the FDE holds data of a length of its own before its instructions */
    unsigned char pointer_encoding;
    struct unwind_reader common; /* call frame instructions of the two */
    struct unwind_reader special;
};

/* Inline, with a constant number of bytes: the instructions of a function with thousands of calls are thousands of
 * bytes, which are read once per call site. */
static inline uint64_t unwind_read_fixed(struct unwind_reader *reader, unsigned bytes)
{
    uint64_t value = 0;

    if ((size_t)(reader->end - reader->at) < bytes) {
        reader->bad = true;
        reader->at = reader->end;
        return 0;
    }
    memcpy(&value, reader->at, bytes); /* little endian, as x86-64 is */
    reader->at += bytes;
    return value;
}

uint64_t unwind_read_long_uleb(struct unwind_reader *reader);

static inline uint64_t unwind_read_uleb(struct unwind_reader *reader)
{
    return reader->at < reader->end && *reader->at < 0x80 ? *reader->at++ : unwind_read_long_uleb(reader);
}

int64_t unwind_read_sleb(struct unwind_reader *reader);
uint64_t unwind_read_pointer(struct unwind_reader *reader, unsigned encoding, uintptr_t data_base);

/// False if the object has no table, the table does not cover `address`, or it is malformed.
bool unwind_entry_find(const struct loaded_object *object, uintptr_t address, struct unwind_entry *entry);

#endif
