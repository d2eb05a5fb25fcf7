/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Equal things get equal numbers. Everything that repeats is stored once and named by a number from 1 (0 = none),
 * because a recording has many more stacks than distinct frames:
 *
 *   text  ◄─ pair (module: path, build id; code object: function, file) ◄─ frame ◄─ node (parent, frame) ◄─ stack
 */
#ifndef VARVE_TRACE_CALLSITES_CALLSITE_INTERN_H
#define VARVE_TRACE_CALLSITES_CALLSITE_INTERN_H

#include "base/hash_index.h"

#include <stddef.h>
#include <stdint.h>

struct interned_entry {
    uint32_t start; /* in units of 8 bytes */
    uint32_t length;
};

/* Bytes of any length, each at a multiple of 8: things of 8 or 16 bytes are an array, number n at [n - 1]. */
struct interned {
    void *bytes;
    size_t used, capacity;
    struct interned_entry *entries; /* of number n at [n - 1] */
    size_t entry_capacity;
    uint32_t count;
    struct index index;
};

struct callsites_frame {
    uint64_t position;  /* native: return address in the module; Python: callsite_file_python.line */
    uint32_t owner;     /* native: module, 0 if no module was there; Python: code object, 0 if unknown */
    uint32_t is_python; /* 0 or 1 */
};

/// Number of what is equal, a new one if nothing is; 0 without memory (or past 2^31 entries). `zeros`: so many zero
/// bytes follow a new one.
uint32_t intern(struct interned *interned, const void *bytes, size_t length, size_t zeros);
void interned_free(struct interned *interned);

/// Text of a number; "" for 0. Borrowed until the next text is interned.
const char *callsites_text(const struct interned *texts, uint32_t number, size_t *length_out);
#endif
