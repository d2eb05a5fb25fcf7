/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of loaded objects: where the loader has put the address of a symbol, by the relocations of the object's own
 * dynamic section. An entry is changed only if it holds what is to be replaced: code that was bound to another
 * definition of the name (a library's own, one of RTLD_DEEPBIND) stays with it. Entries in pages that the loader has
 * protected (RELRO) are made writable for the store, and only those that are not: of an object that another thread is
 * loading, the loader has that still to do.
 *
 * An entry that is not bound yet leads into its own object, and to which definition it will be bound the loader alone
 * knows: RTLD_DEEPBIND shows nowhere. But all names are looked up in the same order of objects. One that an entry of
 * the same object is bound to, in place of what is replaced here, keeps all names that it defines; one that an entry is
 * not bound to although it defines the name comes too late for all. If neither is known of some other allocator that
 * is loaded, the unbound entry is left alone: calls by it are not recorded, but no block gets to an allocator that
 * is not its own.
 */
#include "trace/recorder/guest/elf_entries.h"
#include "trace/recorder/guest/elf_symbol.h"
#include "trace/recorder/guest/loaded_object.h"
#include "trace/base/syscall.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define FILTER_BITS 1024U
#define ALLOCATORS_MAX 8U
#define OTHERS_MAX 4U
#define UNBOUND_MAX 4096U

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
    unsigned skip; /* objects that were seen before */
    unsigned objects;
    unsigned changed;
    unsigned long long unloaded;       /* as dl_iterate_phdr counts */
    uintptr_t page_bytes;              /* of the kernel */
    uint64_t filter[FILTER_BITS / 64]; /* of names */
    /* Objects with definitions of `free` or operator delete that are not those that are replaced. */
    struct elf_object allocators[ALLOCATORS_MAX];
    unsigned allocator_count;
};

/* What is known of the object at hand. */
struct replaced_object {
    struct elf_object object;
    const struct dl_phdr_info *info;
    uintptr_t start, end;
    uintptr_t protected_start, protected_end; /* RELRO */
    uintptr_t page_bytes;
    uintptr_t writable_page; /* the last one that was looked at */
    /* What its entries that are bound say of definitions elsewhere. */
    struct elf_object others[OTHERS_MAX]; /* they come first */
    unsigned other_count;
    uint32_t too_late; /* bit mask of replacing->allocators */
};

/* One that stands for a name that is to be replaced. */
struct entry {
    const struct elf_replacement *replacement;
    uintptr_t at, value;
    bool is_unbound;
};

/* The objects as the last replacement has left them. */
static struct {
    unsigned objects;
    unsigned long long unloaded;
} seen;

/* Entries that were not bound when they were replaced, and what they held. */
static struct {
    uintptr_t at, value;
} unbound[UNBOUND_MAX];
static unsigned unbound_count;

static unsigned filter_bit(const char *name)
{
    unsigned hash = 0;
    for (unsigned i = 0; i < 6 && name[i] != '\0'; i++) {
        hash = hash * 31 + (unsigned char)name[i];
    }
    return hash % FILTER_BITS;
}

static const struct elf_replacement *replacement_of(const struct replacing *replacing, const char *name)
{
    const unsigned bit = filter_bit(name);
    if ((replacing->filter[bit / 64] >> bit % 64 & 1) == 0) {
        return NULL;
    }
    for (unsigned i = 0; i < replacing->count; i++) {
        if (strcmp(replacing->replacements[i].name, name) == 0) {
            return &replacing->replacements[i];
        }
    }
    return NULL;
}

/* ---- one object ---- */

static void segments_read(struct replaced_object *of)
{
    of->start = UINTPTR_MAX;
    for (unsigned i = 0; i < of->info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &of->info->dlpi_phdr[i];
        const uintptr_t at = of->info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD) {
            of->start = at < of->start ? at : of->start;
            of->end = at + header->p_memsz > of->end ? at + header->p_memsz : of->end;
        } else if (header->p_type == PT_GNU_RELRO) {
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

/* ---- entries that are not bound ---- */

/* The lookup of a call that was never made begins in the object itself. */
static bool is_unbound(const struct replaced_object *of, const ElfW(Sym) * symbol, unsigned type, uintptr_t value)
{
    return type == RELOCATION_CALL && symbol->st_shndx == SHN_UNDEF && value >= of->start && value < of->end;
}

static unsigned unbound_find(uintptr_t at)
{
    unsigned i = 0;
    while (i < unbound_count && unbound[i].at != at) {
        i++;
    }
    return i;
}

/* More than there is room for are bound when the replacement ends. */
static void unbound_note(const struct entry *entry)
{
    const unsigned i = unbound_find(entry->at);
    if (i < unbound_count) {
        unbound[i].value = entry->is_unbound ? entry->value : 0; /* of another object that is there now */
    } else if (entry->is_unbound && i < UNBOUND_MAX) {
        unbound[i].at = entry->at;
        unbound[i].value = entry->value;
        unbound_count++;
    }
}

static uintptr_t value_before(const struct replaced_object *of, const struct entry *entry)
{
    const unsigned i = unbound_find(entry->at);
    return i < unbound_count && unbound[i].value >= of->start && unbound[i].value < of->end ? unbound[i].value
                                                                                            : entry->replacement->from;
}

static bool defines(const struct elf_object *object, const char *name, uintptr_t at)
{
    const uintptr_t its = (uintptr_t)elf_symbol_in(object, name);
    return its != 0 && (at == 0 || its == at);
}

/* What an entry that is bound says of the order in which its object looks names up. */
static void bound_look(const struct replacing *replacing, struct replaced_object *of, const struct entry *entry)
{
    const char *name = entry->replacement->name;
    struct elf_object *other = &of->others[of->other_count];
    if (entry->is_unbound) {
        return;
    }
    if (entry->value == entry->replacement->from || entry->value == entry->replacement->to) {
        for (unsigned i = 0; i < replacing->allocator_count; i++) {
            of->too_late |= (uint32_t)defines(&replacing->allocators[i], name, 0) << i;
        }
        return;
    }
    for (unsigned i = 0; i < of->other_count; i++) {
        if (defines(&of->others[i], name, entry->value)) {
            return;
        }
    }
    struct loaded_object at;
    if (of->other_count < OTHERS_MAX && loaded_object_find(entry->value, &at) &&
        memcmp((const void *)at.start, ELFMAG, SELFMAG) == 0 && elf_symbol_object_at((const void *)at.start, other) &&
        defines(other, name, entry->value)) {
        of->other_count++;
    }
}

/* It will, or may, be bound to something else than what is replaced. */
static bool may_be_of_another(const struct replacing *replacing, const struct replaced_object *of, const char *name)
{
    for (unsigned i = 0; i < of->other_count; i++) {
        if (defines(&of->others[i], name, 0)) {
            return true;
        }
    }
    for (unsigned i = 0; i < replacing->allocator_count; i++) {
        if ((of->too_late >> i & 1) == 0 && replacing->allocators[i].dynamic != of->object.dynamic &&
            defines(&replacing->allocators[i], name, 0)) {
            return true;
        }
    }
    return false;
}

/* ---- relocations ---- */

static bool entry_find(const struct replacing *replacing, const struct replaced_object *of,
                       const ElfW(Rela) * relocation, struct entry *entry)
{
    const unsigned type = ELF64_R_TYPE(relocation->r_info);
    const ElfW(Sym) *symbol = (const ElfW(Sym) *)of->object.symbols + ELF64_R_SYM(relocation->r_info);
    if ((type != RELOCATION_CALL && type != RELOCATION_ENTRY &&
         (type != RELOCATION_ADDRESS || relocation->r_addend != 0)) ||
        ELF64_R_SYM(relocation->r_info) == 0) {
        return false;
    }
    entry->at = of->info->dlpi_addr + relocation->r_offset;
    entry->replacement = replacement_of(replacing, of->object.strings + symbol->st_name);
    if (entry->replacement == NULL || entry->at % sizeof(uintptr_t) != 0 || !is_data(of, entry->at)) {
        return false;
    }
    entry->value = __atomic_load_n((const uintptr_t *)entry->at, __ATOMIC_RELAXED);
    entry->is_unbound = is_unbound(of, symbol, type, entry->value);
    return true;
}

static void entry_replace(struct replacing *replacing, struct replaced_object *of, const struct entry *entry)
{
    const struct elf_replacement *replacement = entry->replacement;
    if (entry->value == replacement->from ||
        (entry->is_unbound && !may_be_of_another(replacing, of, replacement->name))) {
        unbound_note(entry);
        replacing->changed += entry_set(of, entry->at, replacement->to);
    }
}

static void entry_restore(struct replacing *replacing, struct replaced_object *of, const struct entry *entry)
{
    if (entry->value == entry->replacement->to) {
        replacing->changed += entry_set(of, entry->at, value_before(of, entry));
    }
}

enum step { STEP_LOOK, STEP_REPLACE, STEP_RESTORE };

static void relocations_visit(struct replacing *replacing, struct replaced_object *of,
                              const struct elf_relocations *relocations, enum step step)
{
    const ElfW(Rela) *relocation = relocations->first;
    struct entry entry;
    for (size_t i = 0; relocation != NULL && i < relocations->bytes / sizeof(*relocation); i++) {
        if (!entry_find(replacing, of, &relocation[i], &entry)) {
            continue;
        }
        if (step == STEP_LOOK) {
            bound_look(replacing, of, &entry);
        } else if (step == STEP_REPLACE) {
            entry_replace(replacing, of, &entry);
        } else {
            entry_restore(replacing, of, &entry);
        }
    }
}

static void object_step(struct replacing *replacing, struct replaced_object *of, enum step step)
{
    relocations_visit(replacing, of, &of->object.calls, step);
    relocations_visit(replacing, of, &of->object.data, step);
}

static int object_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct replacing *replacing = context;
    struct replaced_object of = {.info = info, .page_bytes = replacing->page_bytes};
    (void)bytes;
    replacing->unloaded = info->dlpi_subs;
    if (replacing->objects++ == 0 && replacing->unloaded != seen.unloaded) {
        replacing->skip = 0;
    }
    if (replacing->objects <= replacing->skip || !elf_symbol_tables(info, &of.object) ||
        of.object.dynamic == _DYNAMIC) {
        return 0;
    }
    segments_read(&of);
    if (replacing->is_back) {
        object_step(replacing, &of, STEP_RESTORE);
    } else {
        object_step(replacing, &of, STEP_LOOK);
        object_step(replacing, &of, STEP_REPLACE);
    }
    return 0;
}

static bool is_other_allocator(const struct replacing *replacing, const struct elf_object *object)
{
    static const char *const names[] = {"free", "_ZdlPv"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct elf_replacement *replacement = replacement_of(replacing, names[i]);
        if (replacement != NULL && defines(object, names[i], 0) && !defines(object, names[i], replacement->from)) {
            return true;
        }
    }
    return false;
}

/* The loader of some C libraries has a `free` of its own, which is bound before theirs is there. */
static int allocator_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    struct replacing *replacing = context;
    struct elf_object *object = &replacing->allocators[replacing->allocator_count];
    struct replaced_object of = {.info = info};
    (void)bytes;
    if (replacing->allocator_count == ALLOCATORS_MAX || !elf_symbol_tables(info, object) ||
        object->dynamic == _DYNAMIC || !is_other_allocator(replacing, object)) {
        return 0;
    }
    segments_read(&of);
    if ((uintptr_t)&_r_debug < of.start || (uintptr_t)&_r_debug >= of.end) {
        object->may_go = true; /* once this returns */
        replacing->allocator_count++;
    }
    return 0;
}

/* ---- all objects ---- */

static void replace(struct replacing *replacing)
{
    for (unsigned i = 0; i < replacing->count; i++) {
        const unsigned bit = filter_bit(replacing->replacements[i].name);
        replacing->filter[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    replacing->page_bytes = getauxval(AT_PAGESZ);
    if (!replacing->is_back) {
        elf_each_object(allocator_visit, replacing);
    }
    elf_each_object(object_visit, replacing);
}

unsigned elf_entries_replace(const struct elf_replacement *replacements, unsigned count, bool only_new)
{
    struct replacing replacing = {.replacements = replacements, .count = count, .skip = only_new ? seen.objects : 0};
    replace(&replacing);
    seen.objects = replacing.objects;
    seen.unloaded = replacing.unloaded;
    return replacing.changed;
}

unsigned elf_entries_restore(const struct elf_replacement *replacements, unsigned count)
{
    struct replacing replacing = {.replacements = replacements, .count = count, .is_back = true};
    replace(&replacing);
    unbound_count = 0;
    return replacing.changed;
}
