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

static int (*each_object)(int (*)(struct dl_phdr_info *, size_t, void *), void *) = dl_iterate_phdr;

struct search {
    const char *name;
    struct elf_object *object;
};

/* The loader makes most of these absolute; the kernel's own object keeps offsets. */
static const void *absolute(uintptr_t bias, ElfW(Addr) value)
{
    return (const void *)(value < bias ? value + bias : value);
}

static bool tables_read(const char *path, uintptr_t bias, const ElfW(Dyn) * entry,
                        struct elf_object *object_out)
{
    *object_out = (struct elf_object){.path = path, .bias = bias, .dynamic = entry};
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) {
            object_out->symbols = absolute(bias, entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_STRTAB) {
            object_out->strings = absolute(bias, entry->d_un.d_ptr);
        } else if (entry->d_tag == DT_GNU_HASH) {
            object_out->hash = absolute(bias, entry->d_un.d_ptr);
        }
    }
    return object_out->symbols != NULL && object_out->strings != NULL && object_out->hash != NULL;
}

bool elf_symbol_tables(const struct dl_phdr_info *info, struct elf_object *object_out)
{
    const ElfW(Dyn) *entry = NULL;

    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
        }
    }
    return tables_read(info->dlpi_name, info->dlpi_addr, entry, object_out);
}

bool elf_symbol_tables_of_map(const struct link_map *map, struct elf_object *object_out)
{
    return tables_read(map->l_name, map->l_addr, map->l_ld, object_out);
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;

    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

void *elf_symbol_in(const struct elf_object *object, const char *name)
{
    const ElfW(Sym) *symbols = object->symbols;
    uint32_t wanted = hash_of(name);
    uint32_t bucket_count = object->hash[0];
    uint32_t first = object->hash[1];
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(object->hash + 4) + object->hash[2]);
    const uint32_t *chains = buckets + bucket_count;
    uint32_t at = bucket_count > 0 ? buckets[wanted % bucket_count] : 0;

    for (bool is_last = at < first; !is_last; at++) {
        const ElfW(Sym) *symbol = &symbols[at];
        uint32_t hash = chains[at - first];
        if ((hash | 1) == (wanted | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(object->strings + symbol->st_name, name) == 0) {
            return (void *)(object->bias + symbol->st_value);
        }
        is_last = (hash & 1) != 0;
    }
    return NULL;
}

static int visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct search *search = context;

    (void)bytes;
    return elf_symbol_tables(info, search->object) && elf_symbol_in(search->object, search->name) != NULL;
}

bool elf_symbol_object_at(const void *header, struct elf_object *object_out)
{
    const ElfW(Ehdr) *elf = header;
    struct dl_phdr_info info = {.dlpi_name = ""};
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
    return at < info.dlpi_phnum && elf_symbol_tables(&info, object_out);
}

void elf_symbol_prepare(void)
{
    struct elf_object object;
    void *found = NULL;

    for (const struct link_map *map = _r_debug.r_map; map != NULL && found == NULL; map = map->l_next) {
        if (elf_symbol_tables_of_map(map, &object) &&
            elf_symbol_in(&object, "gnu_get_libc_version") != NULL) {
            found = elf_symbol_in(&object, "dl_iterate_phdr");
        }
    }
    if (found != NULL) {
        memcpy(&each_object, &found, sizeof(found));
    }
}

int elf_symbol_each_object(int (*visitor)(struct dl_phdr_info *info, size_t bytes, void *context),
                           void *context)
{
    return each_object(visitor, context);
}

bool elf_symbol_object(const char *name, struct elf_object *object_out)
{
    struct search search = {name, object_out};

    return each_object(visit, &search) != 0;
}
