/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of loaded objects, read from their own hash tables. dlsym would do, but a failing dlsym formats a
 * translated message, which takes the lock of the C library's locale: a malloc inside setlocale holds it
 * already, and the program would hang. Called from inside hooks.
 */
#include "trace/elf_symbol_internal.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t
        *hash; /* DT_GNU_HASH: buckets, first symbol, filter words, shift, filter, buckets, chains */
};

struct search {
    const char *name;
    struct elf_object *object;
};

/* The loader makes most of these absolute; the kernel's own object keeps offsets. */
static const void *absolute(const struct dl_phdr_info *info, ElfW(Addr) value)
{
    return (const void *)(value < info->dlpi_addr ? value + info->dlpi_addr : value);
}

static bool tables_find(const struct dl_phdr_info *info, struct tables *tables)
{
    const ElfW(Dyn) *entry = NULL;

    memset(tables, 0, sizeof(*tables));
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        }
    }
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) {
            tables->symbols = absolute(info, entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_STRTAB) {
            tables->strings = absolute(info, entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_GNU_HASH) {
            tables->hash = absolute(info, entry->d_un.d_ptr);
        }
    }
    return tables->symbols != NULL && tables->strings != NULL && tables->hash != NULL;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;

    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

static void *lookup(const struct tables *tables, uintptr_t bias, const char *name)
{
    uint32_t wanted = hash_of(name);
    uint32_t bucket_count = tables->hash[0];
    uint32_t first = tables->hash[1];
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(tables->hash + 4) + tables->hash[2]);
    const uint32_t *chains = buckets + bucket_count;
    uint32_t at = bucket_count > 0 ? buckets[wanted % bucket_count] : 0;

    for (bool is_last = at < first; !is_last; at++) {
        const ElfW(Sym) *symbol = &tables->symbols[at];
        uint32_t hash = chains[at - first];
        if ((hash | 1) == (wanted | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(tables->strings + symbol->st_name, name) == 0) {
            return (void *)(bias + symbol->st_value);
        }
        is_last = (hash & 1) != 0;
    }
    return NULL;
}

void *elf_symbol_in(const struct elf_object *object, const char *name)
{
    const struct tables tables = {object->symbols, object->strings, object->hash};

    return lookup(&tables, object->bias, name);
}

static int visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct search *search = context;
    struct tables tables;

    (void)bytes;
    if (!tables_find(info, &tables) || lookup(&tables, info->dlpi_addr, search->name) == NULL) {
        return 0;
    }
    search->object->path = info->dlpi_name;
    search->object->bias = info->dlpi_addr;
    search->object->symbols = tables.symbols;
    search->object->strings = tables.strings;
    search->object->hash = tables.hash;
    return 1;
}

bool elf_symbol_object_at(const void *header, struct elf_object *object_out)
{
    const ElfW(Ehdr) *elf = header;
    struct dl_phdr_info info = {.dlpi_name = ""};
    struct tables tables;
    unsigned at = 0;

    if (elf == NULL) {
        return false;
    }
    info.dlpi_phdr = (const ElfW(Phdr) *)((const char *)header + elf->e_phoff);
    info.dlpi_phnum = elf->e_phnum;
    while (at < info.dlpi_phnum && info.dlpi_phdr[at].p_type != PT_LOAD) {
        at++;
    }
    info.dlpi_addr = at < info.dlpi_phnum ? (uintptr_t)header - info.dlpi_phdr[at].p_vaddr : 0;
    if (at == info.dlpi_phnum || !tables_find(&info, &tables)) {
        return false;
    }
    *object_out = (struct elf_object){"", info.dlpi_addr, tables.symbols, tables.strings, tables.hash};
    return true;
}

bool elf_symbol_object(const char *name, struct elf_object *object_out)
{
    struct search search = {name, object_out};

    return dl_iterate_phdr(visit, &search) != 0;
}
