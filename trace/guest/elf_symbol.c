/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols of loaded objects, read from their own hash tables. dlsym would do, but a failing dlsym formats a
 * translated message, which takes the lock of the C library's locale: a malloc inside setlocale holds it
 * already, and the program would hang. Called from inside hooks, so the loader's lock is not taken either:
 * its list of objects is read as it is, by copies that fail where something has just been unloaded.
 */
#include "trace/guest/elf_symbol.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/stack_hash.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#define OBJECTS_MAX 10000U  /* a list that is read while it changes may look like a ring */
#define ENTRIES_AT_ONCE 40U /* of the dynamic section, which rarely has more: each read is a system call */
#define NAME_BYTES_MAX 64U

typedef int elf_each(elf_visit *visit, void *context);

static bool fetch(const struct elf_object *object, void *out, const void *from, size_t bytes)
{
    if (object->may_go) {
        return recorder_read_memory(out, (uintptr_t)from, bytes);
    }
    memcpy(out, from, bytes);
    return true;
}

/* The loader makes most of these absolute; the kernel's own object keeps offsets. */
static const void *absolute(uintptr_t bias, ElfW(Addr) value)
{
    return (const void *)(value < bias ? value + bias : value);
}

/* Takes over one entry of the dynamic section; false at its end. */
static bool elf_symbol_entry_take(struct elf_object *object, const ElfW(Dyn) * entry)
{
    if (entry->d_tag == DT_SYMTAB) {
        object->symbols = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_STRTAB) {
        object->strings = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_VERSYM) {
        object->versions = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_GNU_HASH) {
        object->hash = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_HASH) {
        object->chains = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_RELA) {
        object->data.first = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_RELASZ) {
        object->data.bytes = entry->d_un.d_val;
    } else if (entry->d_tag == DT_RELACOUNT) {
        object->data.relative = entry->d_un.d_val;
    } else if (entry->d_tag == DT_JMPREL) {
        object->calls.first = absolute(object->bias, entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_PLTRELSZ) {
        object->calls.bytes = entry->d_un.d_val;
    } else if (entry->d_tag == DT_RPATH || entry->d_tag == DT_RUNPATH) {
        object->has_search_path = true;
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
    while (is_more) {
        if (!fetch(object_out, some, entry, count * sizeof(some[0]))) {
            is_more = count > 1;
            count = 1; /* the section may end where memory does */
            continue;
        }
        for (size_t i = 0; is_more && i < count; i++) {
            is_more = elf_symbol_entry_take(object_out, &some[i]);
        }
        entry += count;
    }
    return object_out->symbols != NULL && object_out->strings != NULL &&
           (object_out->hash != NULL || object_out->chains != NULL);
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

static uint32_t elf_symbol_hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++) {
        hash = hash * 33 + (unsigned char)*name;
    }
    return hash;
}

static bool elf_symbol_is_named(const struct elf_object *object, const ElfW(Sym) * symbol, const char *name)
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
    return head[0] != 0 && head[2] != 0 && fetch(object, &word, &filter[hash / bits % head[2]], sizeof(word)) &&
           (word >> hash % bits & word >> (hash >> head[3] % 32) % bits & 1) != 0;
}

/* Versions that are not the default one have the highest bit. */
static bool elf_symbol_is_default(const struct elf_object *object, uint32_t at)
{
    uint16_t version = 0;
    return object->versions == NULL ||
           (fetch(object, &version, &object->versions[at], sizeof(version)) && (version & 0x8000) == 0);
}

/* Without a GNU hash table: one after the other, since such objects are few. */
static uint32_t index_listed(const struct elf_object *object, const char *name, uint32_t after)
{
    const ElfW(Sym) *symbols = object->symbols;
    uint32_t head[2] = {0, 0}; /* buckets, symbols */
    ElfW(Sym) symbol;
    if (!fetch(object, head, object->chains, sizeof(head))) {
        return 0;
    }
    for (uint32_t at = after + 1; at < head[1] && fetch(object, &symbol, &symbols[at], sizeof(symbol)); at++) {
        if (elf_symbol_is_named(object, &symbol, name)) {
            return at;
        }
    }
    return 0;
}

uint32_t elf_symbol_index(const struct elf_object *object, const char *name, uint32_t after)
{
    const ElfW(Sym) *symbols = object->symbols;
    const uint32_t wanted = elf_symbol_hash_of(name);
    uint32_t head[4]; /* buckets, first symbol, filter words, shift */
    uint32_t hash = 0;
    if (object->hash == NULL) {
        return index_listed(object, name, after);
    }
    if (!fetch(object, head, object->hash, sizeof(head)) || !may_have(object, head, wanted)) {
        return 0;
    }
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(object->hash + 4) + head[2]);
    uint32_t at;
    if (!fetch(object, &at, &buckets[wanted % head[0]], sizeof(at)) || at < head[1]) {
        return 0;
    }
    for (; (hash & 1) == 0 && fetch(object, &hash, &buckets[head[0] + at - head[1]], sizeof(hash)); at++) {
        ElfW(Sym) symbol;
        if (at > after && (hash | 1) == (wanted | 1) && fetch(object, &symbol, &symbols[at], sizeof(symbol)) &&
            elf_symbol_is_named(object, &symbol, name)) {
            return at;
        }
    }
    return 0;
}

static struct elf_range elf_symbol_find(const struct elf_object *object, const char *name, bool any_version)
{
    const ElfW(Sym) *symbols = object->symbols;
    ElfW(Sym) symbol;
    for (uint32_t at = 0; (at = elf_symbol_index(object, name, at)) != 0;) {
        if ((any_version || elf_symbol_is_default(object, at)) &&
            fetch(object, &symbol, &symbols[at], sizeof(symbol))) {
            return (struct elf_range){object->bias + symbol.st_value, symbol.st_size};
        }
    }
    return (struct elf_range){0};
}

struct elf_range elf_symbol_range(const struct elf_object *object, const char *name)
{
    return elf_symbol_find(object, name, true);
}

bool elf_symbol_is_offered(const struct elf_object *object, const char *name)
{
    return elf_symbol_find(object, name, false).start != 0;
}

void *elf_symbol_in(const struct elf_object *object, const char *name)
{
    return (void *)elf_symbol_range(object, name).start;
}

bool elf_symbol_object_at(const void *header, struct elf_object *object_out)
{
    const ElfW(Ehdr) *elf = header;
    struct dl_phdr_info info = {.dlpi_name = ""};
    if (elf == NULL) {
        return false;
    }
    info.dlpi_phdr = (const ElfW(Phdr) *)((const char *)header + elf->e_phoff);
    info.dlpi_phnum = elf->e_phnum;
    unsigned at = 0;
    while (at < info.dlpi_phnum && info.dlpi_phdr[at].p_type != PT_LOAD) {
        at++;
    }
    info.dlpi_addr = at < info.dlpi_phnum ? (uintptr_t)header - info.dlpi_phdr[at].p_vaddr : 0;
    return at < info.dlpi_phnum && elf_symbol_tables(&info, object_out);
}

/* The C library's own, which is known by a function that nobody interposes. */
static elf_each *find_each(void)
{
    elf_each *each = dl_iterate_phdr;
    struct elf_walk walk;
    elf_walk_begin(&walk);
    struct elf_object object;
    void *address = NULL;
    while (address == NULL && elf_walk_next(&walk, &object)) {
        if (elf_symbol_in(&object, "__libc_start_main") != NULL) {
            address = elf_symbol_in(&object, "dl_iterate_phdr");
        }
    }
    if (address != NULL) {
        memcpy(&each, &address, sizeof(each)); /* no cast in ISO C */
    }
    return each;
}

int elf_each_object(elf_visit *visit, void *context)
{
    static elf_each *found; /* atomic */
    elf_each *each = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (each == NULL) {
        each = find_each();
        __atomic_store_n(&found, each, __ATOMIC_RELAXED);
    }
    return each(visit, context);
}

void elf_walk_begin(struct elf_walk *walk)
{
    *walk = (struct elf_walk){.next = _r_debug.r_map};
}

bool elf_walk_next(struct elf_walk *walk, struct elf_object *object_out)
{
    struct link_map map;
    while (walk->next != NULL && walk->seen < OBJECTS_MAX) {
        walk->at = walk->next;
        if (walk->is_still) {
            map = *walk->at;
        } else if (!recorder_read_memory(&map, (uintptr_t)walk->at, sizeof(map))) {
            return false;
        }
        walk->next = map.l_next;
        walk->seen++;
        if (tables_read(map.l_name, map.l_addr, map.l_ld, !walk->is_still, object_out)) {
            return true;
        }
    }
    return false;
}

/* 0: nothing can be read there, or it is no part of the list any more: the one before it leads elsewhere. */
static uint64_t map_hash(const struct link_map *at, const struct link_map **next_out)
{
    struct link_map map, before;
    if (at == NULL || !recorder_read_memory(&map, (uintptr_t)at, sizeof(map)) ||
        (map.l_prev != NULL &&
         (!recorder_read_memory(&before, (uintptr_t)map.l_prev, sizeof(before)) || before.l_next != at))) {
        return 0;
    }
    const uint64_t words[] = {map.l_addr, (uintptr_t)map.l_name, (uintptr_t)map.l_ld, (uintptr_t)map.l_prev};
    struct stack_hash hash = {1, 0};
    stack_hash_words(&hash, words, sizeof(words) / sizeof(words[0]));
    *next_out = map.l_next;
    return hash.low | 1;
}

void elf_list_end_note(struct elf_list_end *end_out)
{
    const struct link_map *next = _r_debug.r_map;
    const struct link_map *at = NULL;
    uint64_t hash = 0;
    for (unsigned seen = 0; next != NULL && seen < OBJECTS_MAX; seen++) {
        at = next;
        hash = map_hash(at, &next);
        if (hash == 0) {
            break; /* it changes at this moment */
        }
    }
    __atomic_store_n(&end_out->at, at, __ATOMIC_RELAXED);
    __atomic_store_n(&end_out->hash, hash, __ATOMIC_RELAXED);
}

bool elf_list_end_is(const struct elf_list_end *end)
{
    const struct link_map *next = NULL;
    const uint64_t hash = map_hash(__atomic_load_n(&end->at, __ATOMIC_RELAXED), &next);
    return hash != 0 && next == NULL && hash == __atomic_load_n(&end->hash, __ATOMIC_RELAXED);
}

/* The next entry with this tag, from `*at` on. */
static bool elf_symbol_entry_find(const struct elf_object *object, const ElfW(Dyn) * *at, ElfW(Sxword) tag,
                                  ElfW(Dyn) * entry_out)
{
    for (; fetch(object, entry_out, *at, sizeof(*entry_out)) && entry_out->d_tag != DT_NULL; (*at)++) {
        if (entry_out->d_tag == tag) {
            return true;
        }
    }
    return false;
}

bool elf_symbol_is_needed(const struct elf_object *library, const struct elf_object *by)
{
    const ElfW(Dyn) *at = library->dynamic;
    ElfW(Dyn) soname, needed;
    if (!elf_symbol_entry_find(library, &at, DT_SONAME, &soname)) {
        return false;
    }
    char own[NAME_BYTES_MAX];
    for (at = by->dynamic; elf_symbol_entry_find(by, &at, DT_NEEDED, &needed); at++) {
        const char *wanted = by->strings + needed.d_un.d_val;
        size_t bytes = strlen(wanted) + 1;
        if (bytes <= sizeof(own) && fetch(library, own, library->strings + soname.d_un.d_val, bytes) &&
            memcmp(own, wanted, bytes) == 0) {
            return true;
        }
    }
    return false;
}

bool elf_symbol_object(const char *name, struct elf_object *object_out)
{
    struct elf_walk walk;
    elf_walk_begin(&walk);
    while (elf_walk_next(&walk, object_out)) {
        if (elf_symbol_in(object_out, name) != NULL) {
            return true;
        }
    }
    return false;
}
