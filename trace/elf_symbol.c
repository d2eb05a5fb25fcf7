/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of loaded objects, read from their own hash tables. dlsym would do, but a failing dlsym formats a
 * translated message, which takes the lock of the C library's locale: a malloc inside setlocale holds it
 * already, and the program would hang. Called from inside hooks, so the loader's lock is not taken either:
 * its list of objects is read as it is, by copies that fail where something has just been unloaded.
 */
#include "trace/elf_symbol_internal.h"
#include "trace/recorder_internal.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#define OBJECTS_MAX 10000U /* a list that is read while it changes may look like a ring */
#define ENTRIES_AT_ONCE 8U
#define NAME_BYTES_MAX 64U

static bool fetch(const struct elf_object *object, void *out, const void *from, size_t bytes)
{
    if (object->may_go) {
        return recorder_read_memory(out, (uintptr_t)from, bytes);
    }
    memcpy(out, from, bytes);
    return true;
}
static int (*each_object)(int (*)(struct dl_phdr_info *, size_t, void *), void *) = dl_iterate_phdr;

/* The loader makes most of these absolute; the kernel's own object keeps offsets. */
static const void *absolute(uintptr_t bias, ElfW(Addr) value)
{
    return (const void *)(value < bias ? value + bias : value);
}

/* Takes over one entry of the dynamic section; false at its end. */
static bool entry_take(struct elf_object *object, const ElfW(Dyn) * entry)
{
    if (entry->d_tag == DT_SYMTAB) {
        object->symbols = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_STRTAB) {
        object->strings = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_GNU_HASH) {
        object->hash = absolute(object->bias, entry->d_un.d_ptr);
    }
    return entry->d_tag != DT_NULL;
}

static bool tables_read(const char *path, uintptr_t bias, const ElfW(Dyn) * entry, bool may_go,
                        struct elf_object *object_out)
{
    ElfW(Dyn) some[ENTRIES_AT_ONCE] = {{.d_tag = DT_NULL}};
    size_t count = may_go ? ENTRIES_AT_ONCE : 1;
    bool is_more = entry != NULL;

    *object_out = (struct elf_object){.path = path, .bias = bias, .dynamic = entry, .may_go = may_go};
    for (; is_more && fetch(object_out, some, entry, count * sizeof(some[0])); entry += count) {
        for (size_t i = 0; is_more && i < count; i++) {
            is_more = entry_take(object_out, &some[i]);
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
    return tables_read(info->dlpi_name, info->dlpi_addr, entry, false, object_out);
}

bool elf_symbol_tables_of_map(const struct link_map *map, struct elf_object *object_out)
{
    return tables_read(map->l_name, map->l_addr, map->l_ld, false, object_out);
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 5381;

    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

static bool is_named(const struct elf_object *object, const ElfW(Sym) * symbol, const char *name)
{
    char text[NAME_BYTES_MAX];
    size_t bytes = strlen(name) + 1;

    return symbol->st_shndx != SHN_UNDEF && bytes <= sizeof(text) &&
           fetch(object, text, object->strings + symbol->st_name, bytes) && memcmp(text, name, bytes) == 0;
}

/* What the filter says: false if the object has no such symbol, for sure. */
static bool may_have(const struct elf_object *object, const uint32_t head[4], uint32_t hash)
{
    const unsigned bits = 8 * sizeof(ElfW(Addr));
    const ElfW(Addr) *filter = (const ElfW(Addr) *)(object->hash + 4);
    ElfW(Addr) word;

    return head[0] != 0 && head[2] != 0 &&
           fetch(object, &word, &filter[hash / bits % head[2]], sizeof(word)) &&
           (word >> hash % bits & word >> (hash >> head[3] % 32) % bits & 1) != 0;
}

void *elf_symbol_in(const struct elf_object *object, const char *name)
{
    const ElfW(Sym) *symbols = object->symbols;
    const uint32_t wanted = hash_of(name);
    const uint32_t *buckets;
    uint32_t head[4]; /* buckets, first symbol, filter words, shift */
    uint32_t hash = 0;
    uint32_t at;

    if (!fetch(object, head, object->hash, sizeof(head)) || !may_have(object, head, wanted)) {
        return NULL;
    }
    buckets = (const uint32_t *)((const ElfW(Addr) *)(object->hash + 4) + head[2]);
    if (!fetch(object, &at, &buckets[wanted % head[0]], sizeof(at)) || at < head[1]) {
        return NULL;
    }
    for (; (hash & 1) == 0 && fetch(object, &hash, &buckets[head[0] + at - head[1]], sizeof(hash)); at++) {
        ElfW(Sym) symbol;

        if ((hash | 1) == (wanted | 1) && fetch(object, &symbol, &symbols[at], sizeof(symbol)) &&
            is_named(object, &symbol, name)) {
            return (void *)(object->bias + symbol.st_value);
        }
    }
    return NULL;
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
    struct link_map map = {.l_next = _r_debug.r_map};

    for (unsigned i = 0; map.l_next != NULL && i < OBJECTS_MAX &&
                         recorder_read_memory(&map, (uintptr_t)map.l_next, sizeof(map));
         i++) {
        if (tables_read(map.l_name, map.l_addr, map.l_ld, true, object_out) &&
            elf_symbol_in(object_out, name) != NULL) {
            return true;
        }
    }
    return false;
}
