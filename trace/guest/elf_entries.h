/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions put in the place of others in objects that are loaded already, by the entries through which these call
 * them (GOT, tables of function pointers): for a program that was not started with the library in front.
 */
#ifndef VARVE_TRACE_GUEST_ELF_ENTRIES_H
#define VARVE_TRACE_GUEST_ELF_ENTRIES_H

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

#endif
