/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of loaded objects: where the loader has put the address of a symbol, by the relocations of the object's own
 * dynamic section. An entry is changed only if it holds what is to be replaced: code that was bound to another
 * definition of the name (a library's own, one of RTLD_DEEPBIND) stays with it, and an entry that is not bound yet will
 * be by the table of symbols (elf_definitions.c). Entries in pages that the loader has protected (RELRO) are made
 * writable for the store, and only those that are not: of an object that another thread is loading, the loader has that
 * still to do.
 */
#include "trace/guest/elf_entries.h"
#include "trace/guest/elf_symbol.h"
#include "base/syscall.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define FILTER_BITS 16384U

#if defined(__aarch64__)
#define RELOCATION_CALL R_AARCH64_JUMP_SLOT
#define RELOCATION_ENTRY R_AARCH64_GLOB_DAT
#define RELOCATION_ADDRESS R_AARCH64_ABS64
#else
#define RELOCATION_CALL R_X86_64_JUMP_SLOT
#define RELOCATION_ENTRY R_X86_64_GLOB_DAT
#define RELOCATION_ADDRESS R_X86_64_64
#endif

struct replacing {
    const struct elf_replacement *replacements;
    unsigned count;
    bool is_back;
    unsigned changed;
    uintptr_t page_bytes;              /* of the kernel */
    uint64_t filter[FILTER_BITS / 64]; /* of what entries are to hold */
};

/* What is known of the object at hand. */
struct replaced_object {
    struct elf_object object;
    const struct dl_phdr_info *info;
    uintptr_t protected_start, protected_end; /* RELRO */
    uintptr_t page_bytes;
    uintptr_t writable_page; /* the last one that was looked at */
};

/* One that stands for a name that is to be replaced. */
struct entry {
    const struct elf_replacement *replacement;
    uintptr_t at;
};

static unsigned filter_bit(uintptr_t value)
{
    return (unsigned)((value >> 4 ^ value >> 18) % FILTER_BITS);
}

static uintptr_t value_before(const struct replacing *replacing, const struct elf_replacement *replacement)
{
    return replacing->is_back ? replacement->to : replacement->from;
}

/* By the value first: names of large libraries lie far apart, and few entries hold one of these. */
static const struct elf_replacement *replacement_of(const struct replacing *replacing, uintptr_t value,
                                                    const char *name)
{
    for (unsigned i = 0; i < replacing->count; i++) {
        const struct elf_replacement *replacement = &replacing->replacements[i];
        if (value_before(replacing, replacement) == value && strcmp(replacement->name, name) == 0) {
            return replacement;
        }
    }
    return NULL;
}

static bool may_be_replaced(const struct replacing *replacing, uintptr_t value)
{
    const unsigned bit = filter_bit(value);
    return (replacing->filter[bit / 64] >> bit % 64 & 1) != 0;
}

/* ---- one object ---- */

static void protection_read(struct replaced_object *of)
{
    for (unsigned i = 0; i < of->info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &of->info->dlpi_phdr[i];
        const uintptr_t at = of->info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_GNU_RELRO) {
            of->protected_start = at & ~(of->page_bytes - 1);
            of->protected_end = (at + header->p_memsz) & ~(of->page_bytes - 1);
        }
    }
}

/* In a segment of data: relocations of code are left alone. */
static bool is_data(const struct replaced_object *of, uintptr_t at)
{
    for (unsigned i = 0; i < of->info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &of->info->dlpi_phdr[i];
        const uintptr_t start = of->info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W) != 0 && at >= start &&
            at + sizeof(uintptr_t) <= start + header->p_memsz) {
            return true;
        }
    }
    return false;
}

/* Kernels before 5.14 do not know the advice, and all pages look protected: making one writable that
 * is does no harm. */
static bool page_is_writable(struct replaced_object *of, uintptr_t page)
{
#ifdef MADV_POPULATE_WRITE
    if (page != of->writable_page && recorder_sys_madvise((void *)page, of->page_bytes, MADV_POPULATE_WRITE) == 0) {
        of->writable_page = page;
    }
#endif
    return page == of->writable_page;
}

static bool entry_set(struct replaced_object *of, uintptr_t at, uintptr_t value)
{
    const uintptr_t page = at & ~(of->page_bytes - 1);
    const bool is_protected = page >= of->protected_start && page < of->protected_end;
    const bool is_writable = page_is_writable(of, page);
    if (!is_writable && recorder_sys_mprotect((void *)page, of->page_bytes, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    __atomic_store_n((uintptr_t *)at, value, __ATOMIC_RELEASE);
    if (!is_writable && is_protected) {
        recorder_sys_mprotect((void *)page, of->page_bytes, PROT_READ);
    }
    return true;
}

/* ---- relocations ---- */

static bool elf_entries_entry_find(const struct replacing *replacing, const struct replaced_object *of,
                                   const ElfW(Rela) * relocation, struct entry *entry)
{
    const unsigned type = ELF64_R_TYPE(relocation->r_info);
    if ((type != RELOCATION_CALL && type != RELOCATION_ENTRY &&
         (type != RELOCATION_ADDRESS || relocation->r_addend != 0)) ||
        ELF64_R_SYM(relocation->r_info) == 0) {
        return false;
    }
    entry->at = of->info->dlpi_addr + relocation->r_offset;
    if (entry->at % sizeof(uintptr_t) != 0) {
        return false;
    }
    const uintptr_t value = __atomic_load_n((const uintptr_t *)entry->at, __ATOMIC_RELAXED);
    if (!may_be_replaced(replacing, value) || !is_data(of, entry->at)) {
        return false;
    }
    const ElfW(Sym) *symbol = (const ElfW(Sym) *)of->object.symbols + ELF64_R_SYM(relocation->r_info);
    entry->replacement = replacement_of(replacing, value, of->object.strings + symbol->st_name);
    return entry->replacement != NULL;
}

static void relocations_visit(struct replacing *replacing, struct replaced_object *of,
                              const struct elf_relocations *relocations)
{
    const ElfW(Rela) *relocation = relocations->first;
    struct entry entry;
    for (size_t i = relocations->relative; relocation != NULL && i < relocations->bytes / sizeof(*relocation); i++) {
        if (!elf_entries_entry_find(replacing, of, &relocation[i], &entry)) {
            continue;
        }
        const struct elf_replacement *replacement = entry.replacement;
        replacing->changed += entry_set(of, entry.at, replacing->is_back ? replacement->from : replacement->to);
    }
}

static int object_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct replacing *replacing = context;
    struct replaced_object of = {.info = info, .page_bytes = replacing->page_bytes};
    (void)bytes;
    if (elf_symbol_tables(info, &of.object) && of.object.dynamic != _DYNAMIC) {
        protection_read(&of);
        relocations_visit(replacing, &of, &of.object.calls);
        relocations_visit(replacing, &of, &of.object.data);
    }
    return 0;
}

/* ---- all objects ---- */

static unsigned replace(const struct elf_replacement *replacements, unsigned count, bool is_back)
{
    struct replacing replacing = {
        .replacements = replacements, .count = count, .is_back = is_back, .page_bytes = getauxval(AT_PAGESZ)};
    for (unsigned i = 0; i < count; i++) {
        const unsigned bit = filter_bit(value_before(&replacing, &replacements[i]));
        replacing.filter[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    elf_each_object(object_visit, &replacing);
    return replacing.changed;
}

unsigned elf_entries_replace(const struct elf_replacement *replacements, unsigned count)
{
    return replace(replacements, count, false);
}

unsigned elf_entries_restore(const struct elf_replacement *replacements, unsigned count)
{
    return replace(replacements, count, true);
}
