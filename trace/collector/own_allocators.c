/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs with an allocator linked into them. Their calls of malloc, or of what it is called there, never
 * leave the executable, so no hook sees them. The recorder in the program notices a malloc in front of its
 * own (process_control.malloc_is_unhooked); an allocator under other names, or one that is not exported, shows
 * only in the symbol tables of the file, which are read here, as far as they were not stripped. Files are the
 * users': sizes are capped, everything is read by position. Called before the start and at the end of each
 * process.
 */
#include "trace/collector/collector.h"

#include "trace/store/store.h"
#include "base/error.h"
#include "trace/emit.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTIONS_MAX 4096U
#define NAMES_BYTES_MAX (UINT64_C(64) << 20) /* of a string table; larger ones are not looked at */
#define SYMBOLS_AT_ONCE 2048U

/* The first that is found names it; a sanitizer or an allocator defines malloc as well. */
static const struct {
    const char *symbol, *allocator;
} known[] = {
    {"__asan_init", "AddressSanitizer"},
    {"__hwasan_init", "HWAddressSanitizer"},
    {"__tsan_init", "ThreadSanitizer"},
    {"__msan_init", "MemorySanitizer"},
    {"__lsan_init", "LeakSanitizer"},
    {"_rjem_malloc", "jemalloc"},
    {"je_malloc", "jemalloc"},
    {"mallocx", "jemalloc"},
    {"tc_malloc", "tcmalloc"},
    {"mi_malloc", "mimalloc"},
    {"rpmalloc", "rpmalloc"},
    {"malloc", "its own malloc"},
};

#define KNOWN (sizeof(known) / sizeof(known[0]))

#define KNOWN_GO "the Go runtime" /* by a section that remains in stripped programs */

struct file {
    int fd;
    unsigned section_names; /* index of their table */
    Elf64_Shdr sections[SECTIONS_MAX];
    unsigned section_count;
};

static bool own_allocators_read_at(int fd, void *buffer, size_t bytes, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fd, buffer, bytes, (off_t)offset) == (ssize_t)bytes;
}

static bool read_sections(struct file *file)
{
    Elf64_Ehdr header;
    struct stat status;
    if (fstat(file->fd, &status) != 0 || !S_ISREG(status.st_mode) ||
        !own_allocators_read_at(file->fd, &header, sizeof(header), 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0 ||
        header.e_shnum > SECTIONS_MAX) {
        return false;
    }
    file->section_count = header.e_shnum;
    file->section_names = header.e_shstrndx;
    return own_allocators_read_at(file->fd, file->sections, header.e_shnum * sizeof(Elf64_Shdr), header.e_shoff);
}

/* NULL: not to be had. With a NUL behind it, whatever the file says. */
static char *read_names(const struct file *file, const Elf64_Shdr *table)
{
    const Elf64_Shdr *names = table->sh_link < file->section_count ? &file->sections[table->sh_link] : NULL;
    char *text = NULL;
    if (names != NULL && names->sh_type == SHT_STRTAB && names->sh_size <= NAMES_BYTES_MAX) {
        text = calloc(1, names->sh_size + 1);
    }
    if (text != NULL && !own_allocators_read_at(file->fd, text, names->sh_size, names->sh_offset)) {
        free(text);
        text = NULL;
    }
    return text;
}

static size_t own_allocators_find_known(const char *name, size_t best)
{
    for (size_t i = 0; i < best; i++) {
        if (strcmp(name, known[i].symbol) == 0) {
            return i;
        }
    }
    return best;
}

static size_t search_table(const struct file *file, const Elf64_Shdr *table, size_t best)
{
    char *names = read_names(file, table);
    uint64_t names_bytes = names != NULL ? file->sections[table->sh_link].sh_size : 0;
    uint64_t count = names != NULL ? table->sh_size / sizeof(Elf64_Sym) : 0;
    Elf64_Sym symbols[SYMBOLS_AT_ONCE];
    for (uint64_t at = 0; at < count; at += SYMBOLS_AT_ONCE) {
        size_t some = count - at < SYMBOLS_AT_ONCE ? (size_t)(count - at) : SYMBOLS_AT_ONCE;
        if (!own_allocators_read_at(file->fd, symbols, some * sizeof(symbols[0]),
                                    table->sh_offset + at * sizeof(symbols[0]))) {
            break;
        }
        for (size_t i = 0; i < some; i++) {
            if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF &&
                symbols[i].st_name < names_bytes) {
                best = own_allocators_find_known(names + symbols[i].st_name, best);
            }
        }
    }
    free(names);
    return best;
}

static bool own_allocators_has_section(const struct file *file, const char *section)
{
    const Elf64_Shdr link = {.sh_link = file->section_names};
    char *names = read_names(file, &link);
    bool found = false;
    for (unsigned i = 0; names != NULL && i < file->section_count && !found; i++) {
        uint32_t name = file->sections[i].sh_name;
        found = name < file->sections[file->section_names].sh_size && strcmp(names + name, section) == 0;
    }
    free(names);
    return found;
}

/* Into the two facts that are kept of a program. */
static void own_allocators_look_at(const char *path, struct known_program *program)
{
    program->allocator = NULL;
    program->has_python = false;
    struct file *file = malloc(sizeof(*file));
    if (file == NULL) {
        return;
    }
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file->fd >= 0 && read_sections(file)) {
        size_t best = KNOWN;
        for (unsigned i = 0; i < file->section_count; i++) {
            if (file->sections[i].sh_type == SHT_SYMTAB || file->sections[i].sh_type == SHT_DYNSYM) {
                best = search_table(file, &file->sections[i], best);
            }
        }
        program->allocator = best < KNOWN                                     ? known[best].allocator
                             : own_allocators_has_section(file, ".gopclntab") ? KNOWN_GO
                                                                              : NULL;
        program->has_python = own_allocators_has_section(file, ".PyRuntime");
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    free(file);
}

const char *collect_allocator_of(const char *path)
{
    struct known_program program;
    own_allocators_look_at(path, &program);
    return program.allocator;
}

/* A thousand processes of a build are a few programs. */
static const struct known_program *remembered(struct collector *collector, const char *path)
{
    struct known_program *program = collector->programs;
    for (unsigned i = 0; i < KNOWN_PROGRAMS; i++, program++) {
        if (strcmp(program->path, path) == 0) {
            return program;
        }
    }
    program = &collector->programs[collector->program_count++ % KNOWN_PROGRAMS];
    snprintf(program->path, sizeof(program->path), "%s", path);
    own_allocators_look_at(path, program);
    return program;
}

static int own_allocators_report(struct collector *collector, uint32_t process_id, const char *allocator,
                                 const char *path)
{
    collector->own_allocators++;
    char source[1200];
    snprintf(source, sizeof(source), "%s, linked into %.1024s", allocator, path);
    return collector->is_unstored
               ? VARVE_OK
               : store_stat(collector->store, "heap_not_recorded", process_id, "data_loss", source, 1);
}

int collect_allocator_launched(struct collector *collector, const char *path)
{
    const char *allocator = NULL;
    if ((collector->directory.control->records & VARVE_RECORDS_HEAP) != 0 && collector->own_allocators == 0) {
        allocator = remembered(collector, path)->allocator;
    }
    return allocator != NULL ? own_allocators_report(collector, 0, allocator, path) : VARVE_OK;
}

/* Libraries of a process that the recorder could not get in front of. */
static int report_unhooked(struct collector *collector, const struct traced_process *process)
{
    static const char *const words[] = {
#define UNHOOKED_WORDS(name, text) text,
        UNHOOKED_REASON_LIST(UNHOOKED_WORDS)
#undef UNHOOKED_WORDS
    };
    const struct process_control *control = process->control;
    const uint32_t count = __atomic_load_n(&control->unhooked_count, __ATOMIC_ACQUIRE);
    int error = VARVE_OK;
    for (uint32_t i = 0; i < UNHOOKED_MAX && i < count && error == VARVE_OK && !collector->is_unstored; i++) {
        char source[400];
        const uint32_t reason = __atomic_load_n(&control->unhooked[i].reason, __ATOMIC_ACQUIRE);
        snprintf(source, sizeof(source), "%.*s: %s", (int)sizeof(control->unhooked[i].path) - 1,
                 control->unhooked[i].path, reason < UNHOOKED_LIMIT ? words[reason] : "");
        error = store_stat(collector->store, "library_not_recorded", process->id, "data_loss", source, 1);
    }
    if (count > UNHOOKED_MAX && error == VARVE_OK && !collector->is_unstored) {
        error = store_stat(collector->store, "library_not_recorded", process->id, "data_loss", "others",
                           count - UNHOOKED_MAX);
    }
    return error;
}

/* An interpreter whose frames were not read, which the recorder knows; or did not find, which the file shows. */
static int report_python(struct collector *collector, const struct traced_process *process, bool has_python)
{
    const struct process_control *control = process->control;
    const uint32_t state = __atomic_load_n(&control->python, __ATOMIC_ACQUIRE);
    char source[PROCESS_PYTHON_BYTES + 1];
    if ((collector->directory.control->stacks & SESSION_STACKS_PYTHON) == 0 || collector->is_unstored ||
        state == PROCESS_PYTHON_READ) {
        return VARVE_OK;
    }
    if (state == PROCESS_PYTHON_UNREAD) {
        snprintf(source, sizeof(source), "%.*s", (int)sizeof(control->python_text) - 1, control->python_text);
    } else if (has_python && __atomic_load_n(&control->ring_count, __ATOMIC_RELAXED) > 1) {
        snprintf(source, sizeof(source), "a stripped one in the program");
    } else {
        return VARVE_OK;
    }
    return store_stat(collector->store, "python_lines_missing", process->id, "info", source, 1);
}

int collect_allocator_row(struct collector *collector, const struct traced_process *process)
{
    if ((collector->directory.control->records & VARVE_RECORDS_HEAP) == 0) {
        return VARVE_OK;
    }
    char executable[sizeof(process->control->executable)];
    snprintf(executable, sizeof(executable), "%.*s", (int)sizeof(executable) - 1, process->control->executable);
    const struct known_program *program = remembered(collector, executable);
    const char *allocator = program->allocator;
    int error = report_unhooked(collector, process);
    VARVE_THEN(error, report_python(collector, process, program->has_python));
    if (error != VARVE_OK) {
        return error;
    }
    if (allocator == NULL && process->control->malloc_is_unhooked != 0) {
        allocator = "a malloc";
    }
    return allocator != NULL ? own_allocators_report(collector, process->id, allocator, executable) : VARVE_OK;
}
