/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of loaded objects without dlsym (elf_symbol.c says why). Threads: any. Nothing here allocates, and
 * nothing takes a lock but where it says so.
 */
#ifndef VARVE_TRACE_GUEST_ELF_SYMBOL_H
#define VARVE_TRACE_GUEST_ELF_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dl_phdr_info;
struct link_map;

/* Places in an object that the loader has filled with addresses: ElfW(Rela), `bytes` of them, of which the first
 * `relative` are of no symbol. */
struct elf_relocations {
    const void *first;
    size_t bytes;
    size_t relative;
};

/* A loaded object; valid until it is unloaded. Owner of all pointers: the loader. */
struct elf_object {
    const char *path; /* "" for the program itself */
    uintptr_t bias;
    const void *dynamic; /* its dynamic section, ElfW(Dyn) up to DT_NULL */
    const void *symbols;
    const uint16_t *versions; /* of the symbols, ElfW(Versym); NULL: they have none */
    const char *strings;
    struct elf_relocations data, calls; /* DT_RELA, DT_JMPREL */
    bool has_search_path;               /* of its own: DT_RPATH or DT_RUNPATH */
    bool may_go;                        /* it may be unloaded at any moment: read with care */
    /* DT_GNU_HASH: buckets, first symbol, filter words, shift, filter, buckets, chains */
    const uint32_t *hash;
    const uint32_t *chains; /* DT_HASH: buckets, symbols; for objects that have no other table */
};

typedef int elf_visit(struct dl_phdr_info *info, size_t bytes, void *context);

/// dl_iterate_phdr of the C library: a sanitizer's, which stands in front of it, can't be called before that
/// one's constructor has run. Takes the loader's lock: not in hooks.
int elf_each_object(elf_visit *visit, void *context);
/// The tables of an object that dl_iterate_phdr shows. False: it has none that can be read.
bool elf_symbol_tables(const struct dl_phdr_info *info, struct elf_object *object_out);
/// The same of one in the loader's list.
bool elf_symbol_tables_of_map(const struct link_map *map, struct elf_object *object_out);
/* A walk through the loader's list, in load order, while it may change. */
struct elf_walk {
    const struct link_map *next;
    const struct link_map *at; /* of the last object that was found */
    unsigned seen;
    bool is_still; /* set by the caller: it does not change now */
};

void elf_walk_begin(struct elf_walk *walk);
/// The next object whose tables can be read; false: there is none.
bool elf_walk_next(struct elf_walk *walk, struct elf_object *object_out);
/* The last object of the loader's list, by where it is described and what stands there. Two words, each atomic: one
 * that is read half changed is another end. */
struct elf_list_end {
    const struct link_map *at;
    uint64_t hash;
};

/// What the end is now.
void elf_list_end_note(struct elf_list_end *end_out);
/// Does the list still end like this? New objects come at the end. Costs a system call or two.
bool elf_list_end_is(const struct elf_list_end *end);
/// Is `library` named, by its soname, among those that `by` needs? `by` must stay loaded.
bool elf_symbol_is_needed(const struct elf_object *library, const struct elf_object *by);
/// The first object, in load order, that defines `name`, of at most 63 characters. False if there is none.
bool elf_symbol_object(const char *name, struct elf_object *object_out);
/// The object whose ELF header is mapped at `header`, which may be the kernel's own (its `path` is "").
/// False for NULL and for an object without a hash table. Takes no lock.
bool elf_symbol_object_at(const void *header, struct elf_object *object_out);
/// Address of a symbol that `object` defines, else NULL.
void *elf_symbol_in(const struct elf_object *object, const char *name);
/// Will dlsym find the name there? Not a symbol of an old version, which only programs have that were linked with it.
bool elf_symbol_is_offered(const struct elf_object *object, const char *name);
/// The next entry of the name in the table of symbols, behind the `after`-th: there may be one for each version.
/// 0: there is none.
uint32_t elf_symbol_index(const struct elf_object *object, const char *name, uint32_t after);
/* Where a symbol lies; 0 bytes: nowhere. */
struct elf_range {
    uintptr_t start;
    uintptr_t bytes;
};
struct elf_range elf_symbol_range(const struct elf_object *object, const char *name);

/* Symbols of the program's own file that no other object can see, which are not in memory. */

/// Addresses in this process of `count` symbols of the program, by the table that linkers write for debuggers; NULL for
/// those that are not there. False: the program has no such table, or no section of that name (a few system calls
/// decide that). Not in hooks of programs whose calls are confined. Needs some hundred bytes of the stack; allocates
/// nothing. Threads: any.
bool elf_file_symbols(const char *section, const char *const *names, unsigned count, void **addresses_out);

#endif
