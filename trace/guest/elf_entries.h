/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions put in the place of others in objects that are loaded already, by the entries through which these call
 * them (GOT, tables of function pointers): for a program that was not started with the library in front.
 */
#ifndef VARVE_TRACE_GUEST_ELF_ENTRIES_H
#define VARVE_TRACE_GUEST_ELF_ENTRIES_H

#include "trace/guest/elf_symbol.h"

#include <stdbool.h>
#include <stdint.h>

struct elf_replacement {
    const char *name;
    uintptr_t from, to;
};

/// In all loaded objects of the program's namespace but the one that this is part of: entries of `name` that hold
/// `from` hold `to` afterwards, by one store each. The number of entries changed. Takes the loader's lock: not in hooks
/// that may be called with a lock held. Threads: one at a time.
unsigned elf_entries_replace(const struct elf_replacement *replacements, unsigned count);

/// And back: entries that hold `to` hold `from`.
unsigned elf_entries_restore(const struct elf_replacement *replacements, unsigned count);

/*
 * Functions put in the place of others where the loader looks names up: in the table of symbols of the object that
 * defines them. Whoever is bound to the definition from then on, at once or by its first call, gets the other one:
 * objects of RTLD_DEEPBIND and of other namespaces, which ask that object before any that was preloaded, and dlsym.
 */

/// Symbols of `object` named as a replacement, of whatever version, that lie at its `from` lie at its `to` afterwards,
/// by one store each; others stay. The pages of its table become this process's own. False: they can't be written, and
/// nothing has changed. Takes no lock, allocates nothing. `object` stays loaded meanwhile. Threads: one at a time.
bool elf_definitions_replace(const struct elf_object *object, const struct elf_replacement *replacements,
                             unsigned count);

/// And back: what lies at `to` lies at `from`.
bool elf_definitions_restore(const struct elf_object *object, const struct elf_replacement *replacements,
                             unsigned count);

#endif
