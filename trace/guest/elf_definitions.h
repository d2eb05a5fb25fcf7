/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions put in the place of others where the loader looks names up: in the table of symbols of the object that
 * defines them. Whoever is bound to the definition from then on, at once or by its first call, gets the other one:
 * objects of RTLD_DEEPBIND and of other namespaces, which ask that object before any that was preloaded, and dlsym.
 */
#ifndef VARVE_TRACE_GUEST_ELF_DEFINITIONS_H
#define VARVE_TRACE_GUEST_ELF_DEFINITIONS_H

#include "trace/guest/elf_entries.h"
#include "trace/guest/elf_symbol.h"

#include <stdbool.h>

/// Symbols of `object` named as a replacement, of whatever version, that lie at its `from` lie at its `to` afterwards,
/// by one store each; others stay. The pages of its table become this process's own. False: they can't be written, and
/// nothing has changed. Takes no lock, allocates nothing. `object` stays loaded meanwhile. Threads: one at a time.
bool elf_definitions_replace(const struct elf_object *object, const struct elf_replacement *replacements,
                             unsigned count);

/// And back: what lies at `to` lies at `from`.
bool elf_definitions_restore(const struct elf_object *object, const struct elf_replacement *replacements,
                             unsigned count);

#endif
