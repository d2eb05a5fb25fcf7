/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded objects into the call-site file. Guarded by the lock of callsite_here.c, whose holders are called
 * writers here.
 */
#ifndef VARVE_TRACE_STACKS_MODULES_H
#define VARVE_TRACE_STACKS_MODULES_H

#include "trace/guest/loaded_object.h"

#include <stdint.h>

#define MODULE_BUILD_ID_MAX 64U
#define MODULE_PATH_MAX 1024U

/* What the file holds about one object. */
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

/// Write MODULE_GONE for the objects in the call-site file that are not loaded any more; MODULE entries are
/// written with the first call site that needs them. Returns how many entries were written.
unsigned modules_scan(void);

#endif
