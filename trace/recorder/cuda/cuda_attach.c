/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that runs already has asked for the driver's functions, and keeps what it was told: runtime libraries and
 * wrappers in static variables (cudart, also one that is linked in; PyTorch's DriverAPI), programs that link the driver
 * in the tables of the loader. All of these lie in what an object may write, where a word that is the address of a
 * recorded function is that function. Each is exchanged by one comparison and store, and noted, to be put back. Who is
 * bound to the driver from then on, by its first call or because it is loaded later, finds ours in the driver's table
 * of symbols.
 *
 * Not seen is what was kept elsewhere, in memory that the program has allocated.
 */
#include "trace/recorder/cuda/cuda_attach.h"
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/guest/elf_entries.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/guest_memory.h"
#include "base/syscall.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#define WORDS_MAX 4096U
#define COPY_BYTES ((uintptr_t)4096) /* a page, or part of one */
#define ENTRIES_MAX 512U
/* An entry of the kernel's table of pages, proc_pid_pagemap(5) */
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_OF_FILE (UINT64_C(1) << 61)

/* A word that led to the driver; 0: forgotten. */
struct word {
    uintptr_t at;
    const struct elf_replacement *replacement;
};

/* Of one walk over all objects. */
struct word_walk {
    uintptr_t copy[COPY_BYTES / sizeof(uintptr_t)];
    uint64_t entries[ENTRIES_MAX]; /* of the pages from `first` on */
    uintptr_t first, count, page_bytes;
    int file; /* of entries; -1: the kernel does not tell */
};

static struct elf_replacement functions[CUDA_HOOK_COUNT]; /* by address of the driver's */
static unsigned function_count;
static uintptr_t driver_address; /* in it */
static struct word words[WORDS_MAX];
static unsigned word_count;

/* ---- what is looked for ---- */

static void function_insert(const struct elf_replacement *function)
{
    unsigned at = function_count;
    while (at > 0 && functions[at - 1].from >= function->from) {
        at--;
    }
    if (at < function_count && functions[at].from == function->from) {
        return; /* two names of one function */
    }
    for (unsigned i = function_count; i > at; i--) {
        functions[i] = functions[i - 1];
    }
    functions[at] = *function;
    function_count++;
}

/* Asked of the loader's list: a look-up of what is not there allocates, which a program without CUDA need not be
 * ready for. */
static int driver_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    static const char name[] = "libcuda.so";
    (void)bytes;
    const char *slash = info->dlpi_name != NULL ? strrchr(info->dlpi_name, '/') : NULL;
    return slash != NULL && strncmp(slash + 1, name, sizeof(name) - 1) == 0 && elf_symbol_tables(info, context);
}

/* False: no driver is loaded. */
static bool driver_object(struct elf_object *driver_out)
{
    return elf_each_object(driver_visit, driver_out) != 0;
}

static void driver_functions_find(void)
{
    struct elf_replacement function;
    for (unsigned i = 0; cuda_lookup_driver((enum cuda_hook)i, &function); i++) {
        if (function.from != 0) {
            driver_address = function.from;
            function_insert(&function);
        }
    }
}

static const struct elf_replacement *function_at(uintptr_t address)
{
    unsigned low = 0, high = function_count;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (functions[middle].from < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < function_count && functions[low].from == address ? &functions[low] : NULL;
}

/* ---- objects ---- */

static bool is_in_segment(const struct dl_phdr_info *info, const ElfW(Phdr) * header, uintptr_t address)
{
    return address - (info->dlpi_addr + header->p_vaddr) < header->p_memsz;
}

/* The driver's own tables, and ours. */
static bool is_left_alone(const struct dl_phdr_info *info)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_LOAD &&
            (is_in_segment(info, header, driver_address) || is_in_segment(info, header, (uintptr_t)words))) {
            return true;
        }
    }
    return false;
}

/* Beyond what the loader has closed after binding, which begins where the segment does. */
static uintptr_t writable_from(const struct dl_phdr_info *info, const ElfW(Phdr) * segment)
{
    uintptr_t from = info->dlpi_addr + segment->p_vaddr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t end = info->dlpi_addr + header->p_vaddr + header->p_memsz;
        if (header->p_type == PT_GNU_RELRO && header->p_vaddr >= segment->p_vaddr &&
            header->p_vaddr < segment->p_vaddr + segment->p_memsz && end > from) {
            from = end;
        }
    }
    return (from + sizeof(uintptr_t) - 1) & ~(sizeof(uintptr_t) - 1);
}

/* The page of a word can be written now, whatever its object says of it. Kernels before 5.14 can't tell. */
static bool may_store(uintptr_t at)
{
#ifdef MADV_POPULATE_WRITE
    const uintptr_t page_bytes = getauxval(AT_PAGESZ);
    const long result = recorder_sys_madvise((void *)(at & ~(page_bytes - 1)), page_bytes, MADV_POPULATE_WRITE);
    return result == 0 || result == -EINVAL;
#else
    (void)at;
    return true;
#endif
}

static bool word_exchange(uintptr_t at, uintptr_t from, uintptr_t to)
{
    return may_store(at) &&
           __atomic_compare_exchange_n((uintptr_t *)at, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* `copy`: of the words at `from`. */
static void words_visit(uintptr_t from, const uintptr_t *copy, size_t count)
{
    const uintptr_t lowest = functions[0].from, span = functions[function_count - 1].from - lowest;
    for (size_t i = 0; i < count; i++) {
        const struct elf_replacement *function = copy[i] - lowest <= span ? function_at(copy[i]) : NULL;
        const uintptr_t at = from + i * sizeof(*copy);
        if (function != NULL && word_count < WORDS_MAX && word_exchange(at, function->from, function->to)) {
            words[word_count++] = (struct word){at, function};
        }
    }
}

/* A page that is still its file's, or was never there, has no address: hundreds of megabytes of CUDA's libraries. To
 * read those would hold the thread, and make them resident. */
static bool was_written(struct word_walk *walk, uintptr_t at)
{
    const uintptr_t page = at / walk->page_bytes;
    if (walk->file >= 0 && page - walk->first >= walk->count) {
        const long bytes =
            recorder_sys_pread(walk->file, walk->entries, sizeof(walk->entries), page * sizeof(walk->entries[0]));
        walk->first = page;
        walk->count = bytes > 0 ? (uintptr_t)bytes / sizeof(walk->entries[0]) : 0;
    }
    if (walk->file < 0 || walk->count == 0) {
        return true;
    }
    const uint64_t entry = walk->entries[page - walk->first];
    return (entry & ENTRY_SWAPPED) != 0 || (entry & (ENTRY_PRESENT | ENTRY_OF_FILE)) == ENTRY_PRESENT;
}

/* NULL: no memory. */
static struct word_walk *word_walk_begin(void)
{
    struct word_walk *walk = recorder_map(sizeof(*walk));
    if (walk != NULL) {
        walk->page_bytes = getauxval(AT_PAGESZ);
        walk->file = recorder_sys_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
        if (!was_written(walk, (uintptr_t)&walk->file)) { /* a kernel that tells nothing of any page */
            recorder_sys_close(walk->file);
            walk->file = -1;
        }
    }
    return walk;
}

static void word_walk_end(struct word_walk *walk)
{
    if (walk->file >= 0) {
        recorder_sys_close(walk->file);
    }
    recorder_unmap(walk, sizeof(*walk));
}

/* A program may have closed pages of what an object can write, or its file may have become shorter: those are left out,
 * since they can't be copied. */
static void range_visit(uintptr_t from, uintptr_t end, struct word_walk *walk)
{
    while (from + sizeof(walk->copy[0]) <= end) {
        const uintptr_t next = (from & ~(COPY_BYTES - 1)) + COPY_BYTES;
        const size_t bytes = (next < end ? next : end) - from;
        if (was_written(walk, from) && recorder_read_memory(walk->copy, from, bytes)) {
            words_visit(from, walk->copy, bytes / sizeof(walk->copy[0]));
        }
        from = next;
    }
}

static bool is_writable(const ElfW(Phdr) * header)
{
    return header->p_type == PT_LOAD && (header->p_flags & PF_W) != 0;
}

static int exchange_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    for (unsigned i = 0; i < info->dlpi_phnum && !is_left_alone(info); i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (is_writable(header)) {
            range_visit(writable_from(info, header), info->dlpi_addr + header->p_vaddr + header->p_memsz, context);
        }
    }
    return 0;
}

/* Of objects that are still there. */
static int restore_visit(struct dl_phdr_info *info, size_t bytes, void *context)
{
    (void)bytes;
    (void)context;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        for (unsigned at = 0; is_writable(header) && at < word_count; at++) {
            if (is_in_segment(info, header, words[at].at)) {
                (void)word_exchange(words[at].at, words[at].replacement->to, words[at].replacement->from);
            }
        }
    }
    return 0;
}

unsigned cuda_attach_prepare(struct elf_replacement *rows, unsigned room)
{
    struct elf_object driver;
    function_count = 0;
    __atomic_store_n(&cuda_wanted, CUDA_WANTED_UNKNOWN, __ATOMIC_RELEASE);
    if (!cuda_is_wanted() || room < CUDA_HOOK_COUNT + 1) {
        return 0;
    }
    unsigned count = cuda_lookup_dlsym_replace(&rows[0]);
    if (driver_object(&driver)) {
        driver_functions_find();
        dlerror(); /* of names that this driver has not */
        (void)elf_definitions_replace(&driver, functions, function_count);
        memcpy(rows + count, functions, function_count * sizeof(*rows));
        count += function_count;
    }
    return count;
}

void cuda_attach_begin(void)
{
    struct word_walk *walk = function_count > 0 ? word_walk_begin() : NULL;
    if (walk != NULL) {
        elf_each_object(exchange_visit, walk);
        word_walk_end(walk);
    }
}

void cuda_attach_end(void)
{
    struct elf_object driver;
    __atomic_store_n(&cuda_wanted, CUDA_WANTED_NO, __ATOMIC_RELEASE);
    if (function_count > 0 && driver_object(&driver)) {
        (void)elf_definitions_restore(&driver, functions, function_count);
    }
    if (word_count > 0) {
        elf_each_object(restore_visit, NULL);
    }
    word_count = 0;
    cuda_lookup_dlsym_restore();
}
