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
#include "trace/symbols/running_process.h"
#include "base/error.h"
#include "trace/emit.h"

#include <stdio.h>
#include <string.h>

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

/* Takes the first of the known ones that are defined there. */
static void take_known(void *context, const char *function)
{
    size_t *best = context;
    for (size_t i = 0; i < *best; i++) {
        if (strcmp(function, known[i].symbol) == 0) {
            *best = i;
        }
    }
}

/* Into the two facts that are kept of a program. */
static void own_allocators_look_at(const char *path, struct known_program *program)
{
    size_t best = KNOWN;
    symbols_file_each_function(path, take_known, &best);
    program->allocator = best < KNOWN                                   ? known[best].allocator
                         : symbols_file_has_section(path, ".gopclntab") ? KNOWN_GO
                                                                        : NULL;
    program->has_python = symbols_file_has_section(path, ".PyRuntime");
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
