/* SPDX-License-Identifier: Apache-2.0 */
/* Which loaded object an address belongs to, asked without the loader's lock. */
#ifndef VARVE_TRACE_GUEST_LOADED_OBJECT_H
#define VARVE_TRACE_GUEST_LOADED_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

struct loaded_object {
    uintptr_t start; /* first mapped address */
    uintptr_t end;
    uintptr_t bias;                    /* address in memory minus address in the ELF file */
    const unsigned char *eh_frame_hdr; /* NULL if there is none */
    const void *handle;                /* distinguishes two objects at one address, never dereferenced */
    const char *name;                  /* the loader's own string, "" for the main program */
};

/// False if no object is there. `name` and the tables stay valid while a frame of the object is on a stack.
/// Threads: any; async-signal-safe; takes no lock.
bool loaded_object_find(uintptr_t address, struct loaded_object *object);

/// Is there one at all? Takes less of the stack. Threads: as loaded_object_find.
bool loaded_object_is_at(uintptr_t address);

/// The same by the loader's list of objects, as loaded_object_find does it with C libraries before
/// glibc 2.35.
bool loaded_object_find_listed(uintptr_t address, struct loaded_object *object);

/// An object may have been unloaded: read the list anew when it is next asked.
void loaded_object_forget(void);

/// Same object with the same contents, as far as that shows without reading memory of either.
bool loaded_object_equal(const struct loaded_object *a, const struct loaded_object *b);

#endif
