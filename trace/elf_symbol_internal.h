/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs inside the workload */
/*
 * Symbols of loaded objects without dlsym (elf_symbol.c says why). Threads: any. Takes the loader's lock for
 * a moment, never allocates.
 */
#ifndef VARVE_ELF_SYMBOL_INTERNAL_H
#define VARVE_ELF_SYMBOL_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dl_phdr_info;
struct link_map;

/* A loaded object; valid until it is unloaded. Owner of all pointers: the loader. */
struct elf_object {
    const char *path; /* "" for the program itself */
    uintptr_t bias;
    const void *dynamic; /* its dynamic section, ElfW(Dyn) up to DT_NULL */
    const void *symbols;
    const char *strings;
    const uint32_t
        *hash; /* DT_GNU_HASH: buckets, first symbol, filter words, shift, filter, buckets, chains */
};

/// The tables of an object that dl_iterate_phdr shows. False: it has none that can be read.
bool elf_symbol_tables(const struct dl_phdr_info *info, struct elf_object *object_out);
/// The same of one in the loader's list.
bool elf_symbol_tables_of_map(const struct link_map *map, struct elf_object *object_out);
/// The C library's own dl_iterate_phdr: the name may be an interceptor's, which is not ready before its
/// constructor has run.
int elf_symbol_each_object(int (*visit)(struct dl_phdr_info *info, size_t bytes, void *context),
                           void *context);
/// Find it, while there is one thread. Without: dl_iterate_phdr by its name.
void elf_symbol_prepare(void);
/// The first object, in load order, that defines `name`. False if there is none.
bool elf_symbol_object(const char *name, struct elf_object *object_out);
/// The object whose ELF header is mapped at `header`, which may be the kernel's own (its `path` is "").
/// False for NULL and for an object without a GNU hash table. Takes no lock.
bool elf_symbol_object_at(const void *header, struct elf_object *object_out);
/// Address of a symbol that `object` defines, else NULL.
void *elf_symbol_in(const struct elf_object *object, const char *name);

#endif
