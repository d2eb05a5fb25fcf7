/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs inside the workload */
/*
 * What the files of the call-site half share:
 *
 *   callsite.c ─► callsite_table.c   hash to number
 *       ├───────► callsite_file.c    the call-site file
 *       └───────► modules.c ─► recorder/guest/loaded_object.c (the dynamic loader)
 *
 * The lock of callsite.c guards the tables ("writers" below are those that hold it). Nothing else is asked
 * for while it is held: neither the loader nor the disk.
 */
#ifndef VARVE_TRACE_RECORDER_STACKS_CALLSITE_H
#define VARVE_TRACE_RECORDER_STACKS_CALLSITE_H

#include "trace/recorder/stacks/native/unwind.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- callsite_table.c: hash to number, read without a lock ---- */

struct callsite_hash {
    uint64_t low; /* never 0 in a table */
    uint64_t high;
};

/* Source: the mixing step of wyhash (W. Yi, public domain). */
static inline uint64_t callsite_mix(uint64_t a, uint64_t b)
{
    __uint128_t product = (__uint128_t)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Two independent chains over pairs of words. */
static inline void callsite_hash_words(struct callsite_hash *hash, const uint64_t *words, unsigned count)
{
    unsigned i = 0;

    for (; i + 1 < count; i += 2) {
        hash->low = callsite_mix(words[i] ^ UINT64_C(0xa0761d6478bd642f), words[i + 1] ^ hash->low);
        hash->high = callsite_mix(words[i] ^ UINT64_C(0xe7037ed1a0b428db), words[i + 1] ^ hash->high);
    }
    if (i < count) {
        hash->low = callsite_mix(words[i] ^ UINT64_C(0x8ebc6af09c88c6e3), hash->low);
        hash->high = callsite_mix(words[i] ^ UINT64_C(0x589965cc75374cc3), hash->high);
    }
}

/* All zero is an empty table. Owner: its user, who also orders the writers. */
struct callsite_table {
    _Atomic uintptr_t entries; /* pages; the low 12 bits hold the logarithm of the number of entries */
    uint32_t count;            /* writers only */
};

/// Number stored for `hash`, 0 if there is none (or not yet visible to this thread). Threads: any.
uint32_t callsite_table_find(const struct callsite_table *table, struct callsite_hash hash);

/// Make room for one more entry. Returns VARVE_OK or VARVE_ERROR_NO_MEMORY. Threads: writers.
int callsite_table_reserve(struct callsite_table *table);

/// Store a number for a hash that is not in the table; callsite_table_reserve went before. Threads: writers.
void callsite_table_insert(struct callsite_table *table, struct callsite_hash hash, uint32_t number);

/// Empty it and give its memory back. Threads: writers, while there are no readers.
void callsite_table_reset(struct callsite_table *table);

/* ---- callsite_file.c: the file that entries are appended to ---- */

struct callsite_part {
    const void *data;
    size_t bytes;
};

#define CALLSITE_PARTS_MAX 3U
#define CALLSITE_ROOM_BYTES (16U << 10) /* there is this much before the lock is used to append */

/* A piece of the file, mapped; `bytes` is NULL if there is none. */
struct callsite_window {
    unsigned char *bytes;
    size_t size;
    uint64_t offset; /* in the file */
};

/// Make `path` and its first window, forgetting the file before: this process' own if `is_again`, else its
/// parent's, which is not mapped here. Returns VARVE_OK or a negative varve_error. Threads: one, nobody
/// appends.
int callsite_file_open(const char *path, bool is_again);

/// Append one entry of at most CALLSITE_PARTS_MAX parts, padded: all of it or nothing. It is in the file
/// afterwards. Returns VARVE_OK or VARVE_ERROR_FULL. Threads: writers.
int callsite_file_append(uint32_t tag, const struct callsite_part *parts, unsigned count);

/// Note in the file that a call site could not be stored. Threads: writers.
void callsite_file_lost(void);

/// Is there too little room to go on? Then `window` says where the next one begins. Threads: writers.
bool callsite_window_is_wanted(struct callsite_window *window);
/// Allocate and map it, if that is possible. Takes as long as the disk does. Threads: any, without the lock.
void callsite_window_open(struct callsite_window *window);
/// Go on in it, if it is there. `window` is then what is not needed any more, to be unmapped. Threads:
/// writers.
void callsite_window_install(struct callsite_window *window);
void callsite_window_unmap(const struct callsite_window *window);

/* ---- modules.c: loaded objects into the call-site file ---- */

#define MODULE_BUILD_ID_MAX 64U
#define MODULE_PATH_MAX 1024U

/* What the file is told about one object. */
struct module_description {
    struct loaded_object object;
    uintptr_t build_id_address; /* where it was read, 0 if there is none */
    uint16_t build_id_bytes;
    uint16_t path_bytes;
    unsigned char build_id[MODULE_BUILD_ID_MAX];
    char path[MODULE_PATH_MAX];
};

enum module_state {
    MODULE_KNOWN,
    MODULE_NEW,
    MODULE_CHANGED, /* another object used to be at its addresses */
};

/// Is this object in the file already? Threads: writers.
enum module_state module_lookup(const struct loaded_object *object);

/// Read what the file needs to know. Threads: any thread with a frame of the object on its stack, so that
/// nobody can unload it; not while holding the lock.
void module_describe(const struct loaded_object *object, struct module_description *module);

/// Write what was described, after entries for what it replaces. Returns as callsite_file_append.
/// Threads: writers.
int module_write(const struct module_description *module);

/// Forget all of it: a new file begins. Threads: writers.
void modules_forget(void);

#endif
