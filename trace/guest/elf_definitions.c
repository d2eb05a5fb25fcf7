/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value of a symbol is counted from the address at which its object lies, in 64 bits that wrap around: it reaches
 * code of any other object. Tables of symbols lie in a segment that is mapped from the file, privately and in most
 * objects read-only; in old ones it is that of the code, which others execute meanwhile.
 */
#include "trace/guest/elf_entries.h"
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

/* Where the entries to be changed lie, and what their pages allow now. */
struct change {
    uintptr_t first, end;
    int protection;
};

/* Calls with each entry that is to be changed; `entry` of the object's own table. */
static unsigned entries_visit(const struct elf_object *object, const struct elf_replacement *replacements,
                              unsigned count, bool is_back,
                              void (*visit)(ElfW(Sym) * entry, uintptr_t to, void *context), void *context)
{
    ElfW(Sym) *symbols = (ElfW(Sym) *)(uintptr_t)object->symbols;
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        const uintptr_t from = is_back ? replacements[i].to : replacements[i].from;
        const uintptr_t to = is_back ? replacements[i].from : replacements[i].to;
        for (uint32_t at = 0; (at = elf_symbol_index(object, replacements[i].name, at)) != 0;) {
            if (object->bias + symbols[at].st_value == from) {
                visit(&symbols[at], to - object->bias, context);
                found++;
            }
        }
    }
    return found;
}

static void entry_measure(ElfW(Sym) * entry, uintptr_t to, void *context)
{
    struct change *change = context;
    (void)to;
    change->first = (uintptr_t)entry < change->first ? (uintptr_t)entry : change->first;
    change->end = (uintptr_t)(entry + 1) > change->end ? (uintptr_t)(entry + 1) : change->end;
}

static void entry_store(ElfW(Sym) * entry, uintptr_t to, void *context)
{
    (void)context;
    __atomic_store_n(&entry->st_value, to, __ATOMIC_RELEASE);
}

/* What the segment of the table allows; 0: that is not known. The headers lie at the first mapped address, which is the
 * object's own where that begins at 0: only what leads to its dynamic section is believed. */
static int protection_of(const struct elf_object *object)
{
    ElfW(Ehdr) file;
    ElfW(Phdr) header;
    bool is_it = false;
    int protection = 0;
    if (!recorder_read_memory(&file, object->bias, sizeof(file)) || memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
        file.e_phentsize != sizeof(header)) {
        return 0;
    }
    const uintptr_t offset = (uintptr_t)object->symbols - object->bias;
    for (unsigned i = 0; i < file.e_phnum; i++) {
        if (!recorder_read_memory(&header, object->bias + file.e_phoff + i * sizeof(header), sizeof(header))) {
            return 0;
        }
        if (header.p_type == PT_LOAD && offset >= header.p_vaddr && offset - header.p_vaddr < header.p_memsz) {
            protection = PROT_READ | ((header.p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
                         ((header.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
        }
        is_it = is_it || (header.p_type == PT_DYNAMIC && object->bias + header.p_vaddr == (uintptr_t)object->dynamic);
    }
    return is_it ? protection : 0;
}

static bool elf_definitions_change(const struct elf_object *object, const struct elf_replacement *replacements,
                                   unsigned count, bool is_back)
{
    const uintptr_t page_bytes = getauxval(AT_PAGESZ);
    struct change change = {.first = UINTPTR_MAX};
    if (entries_visit(object, replacements, count, is_back, entry_measure, &change) == 0) {
        return true;
    }
    change.protection = protection_of(object);
    void *start = (void *)(change.first & ~(page_bytes - 1));
    const size_t bytes = ((change.end + page_bytes - 1) & ~(page_bytes - 1)) - (uintptr_t)start;
    const bool is_protected = (change.protection & PROT_WRITE) == 0;
    if (change.protection == 0 ||
        (is_protected && recorder_sys_mprotect(start, bytes, change.protection | PROT_WRITE) != 0)) {
        return false;
    }
    entries_visit(object, replacements, count, is_back, entry_store, NULL);
    if (is_protected) {
        recorder_sys_mprotect(start, bytes, change.protection);
    }
    return true;
}

bool elf_definitions_replace(const struct elf_object *object, const struct elf_replacement *replacements,
                             unsigned count)
{
    return elf_definitions_change(object, replacements, count, false);
}

bool elf_definitions_restore(const struct elf_object *object, const struct elf_replacement *replacements,
                             unsigned count)
{
    return elf_definitions_change(object, replacements, count, true);
}
