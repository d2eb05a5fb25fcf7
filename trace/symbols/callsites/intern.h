/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to trace/symbols/callsites */
/*
 * Equal things get equal numbers. Everything that repeats is stored once and named by a number from 1 (0 = none), because a
 * recording has many more stacks than distinct frames:
 *
 *   text  ◄─ pair (module: path, build id; code object: function, file) ◄─ frame ◄─ site (numbers of frames)
 *
 * A site of depth 30 takes 120 bytes plus about 40, whatever its frames are called.
 */
#ifndef VARVE_TRACE_SYMBOLS_CALLSITES_INTERN_H
#define VARVE_TRACE_SYMBOLS_CALLSITES_INTERN_H

#include "trace/base/index.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Texts (and build ids, which are bytes), NUL-terminated, one after the other. */
struct callsites_texts {
    char *bytes;
    size_t bytes_used, bytes_capacity;
    uint64_t *starts; /* of text n at [n - 1]; its end is where the next one starts */
    uint32_t count, capacity;
    struct index index;
};

struct callsites_pair {
    uint32_t first;  /* text: path of a module, function of a code object */
    uint32_t second; /* text: build id, file; 0 if there is none */
};

struct callsites_pairs {
    struct callsites_pair *pairs;
    uint32_t count, capacity;
    struct index index;
};

struct callsites_frame {
    uint64_t position;  /* native: return address in the module; Python: callsite_file_python.line */
    uint32_t owner;     /* native: module, 0 if no module was there; Python: code object, 0 if unknown */
    uint32_t is_python; /* 0 or 1 */
};

struct callsites_frames {
    struct callsites_frame *frames;
    uint32_t count, capacity;
    struct index index;
};

struct callsites_stack {
    uint32_t start; /* in frame_ids[] */
    uint16_t native_count;
    uint16_t python_count;
    uint32_t process_id; /* where it was first seen: together the key of callsite_origin */
    uint32_t local;
};

struct callsites_stacks {
    struct callsites_stack *stacks;
    uint32_t count, capacity;
    uint32_t *frame_ids; /* frame numbers: native, then Python, each innermost first */
    size_t frame_ids_used, frame_ids_capacity;
    struct index index;
};

/// Number of what is equal, a new one if nothing is; 0 without memory (or past 2^31 entries).
uint32_t callsites_text_intern(struct callsites_texts *texts, const void *bytes, size_t length);
uint32_t callsites_pair_intern(struct callsites_pairs *pairs, struct callsites_pair pair);
uint32_t callsites_frame_intern(struct callsites_frames *frames, struct callsites_frame frame);
/// `words`: native_count + python_count frame numbers. process_id and local are kept of the first one only.
uint32_t callsites_stack_intern(struct callsites_stacks *stacks, const struct callsites_stack *stack,
                                const uint32_t *frame_ids);

/// Text of a number; "" for 0. Borrowed until the next text is interned.
const char *callsites_text(const struct callsites_texts *texts, uint32_t number, size_t *length_out);

/// Empty the index of the stacks and enter all of them again, in order of their numbers (equal ones: the
/// first).
bool callsites_stacks_reindex(struct callsites_stacks *stacks);

/* Sparse map of the numbers in a process' file to ours; reading a number that is not there gives 0. One above
 * CALLSITE_FILE_NUMBER_MAX is taken for damage. */
#define CALLSITES_MAP_PAGE 256U

struct callsites_map {
    uint32_t **pages;
    size_t page_count;
};

static inline uint32_t callsites_map_get(const struct callsites_map *map, uint32_t number)
{
    size_t page = number / CALLSITES_MAP_PAGE;

    return page < map->page_count && map->pages[page] ? map->pages[page][number % CALLSITES_MAP_PAGE] : 0;
}

bool callsites_map_set(struct callsites_map *map, uint32_t number, uint32_t value);
void callsites_map_free(struct callsites_map *map);

#endif
