/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judged by the stack: each frame's object and the exported function before its address. The C library's allocator is
 * mostly functions without a name in the file: the part of the code in which they lie is that of its exported ones. A
 * stack that can't be unwound to its end (code made at run time) is judged by the frames that are known: allocators and
 * the loader call nothing of that kind. Called by thread_look.c.
 */
#include "trace/collector/programs/thread_look.h"

#include "base/grown_array.h"
#include "base/proc_file.h"
#include "trace/symbols/running_process.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#define STACK_BYTES_MAX (256U << 10) /* deeper ones are unwound, which asks for a stop */
#define SYMBOLS_MAX 50000            /* of an object that names are looked for in without need: the thread waits */

static const char *const allocator_functions[] = {
    "malloc",       "free",        "calloc",        "realloc", "memalign",  "posix_memalign",
    "valloc",       "pvalloc",     "malloc_trim",   "mallopt", "mallinfo2", "malloc_usable_size",
    "malloc_stats", "malloc_info", "aligned_alloc", NULL};

/* They hold locks that dlopen, or a constructor, takes; or end the process. */
static const char *const unsafe_functions[] = {
    "fork",           "_Fork",           "vfork",     "posix_spawn",    "posix_spawnp", "dlopen",
    "dlclose",        "dlsym",           "dlvsym",    "dladdr",         "dlinfo",       "dlerror",
    "dladdr1",        "dl_iterate_phdr", "exit",      "__cxa_finalize", "__cxa_atexit", "__cxa_thread_atexit_impl",
    "pthread_create", "pthread_exit",    "setlocale", "newlocale",      "freelocale",   NULL};

/* Hooks that may wait for long in the function itself, and touch nothing of the recording after that. */
static const char *const waiting_hooks[] = {"syscall", "system", NULL};

static bool thread_place_is_among(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0) {
        names++;
    }
    return *names != NULL;
}

static const char *thread_place_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_unsafe(const struct place_rules *rules, const char *path, uint64_t function_pc)
{
    bool is_found = false;
    for (unsigned i = 0; i < PLACE_UNSAFE_MAX && function_pc != 0 && !is_found; i++) {
        is_found = rules->unsafe[i] == function_pc;
    }
    return is_found && strcmp(path, rules->target->libc.path) == 0;
}

void place_rules_init(struct place_rules *rules, const struct target *target)
{
    *rules = (struct place_rules){.target = target};
    _Static_assert(sizeof(unsafe_functions) / sizeof(unsafe_functions[0]) <= PLACE_UNSAFE_MAX, "room for each");
    symbols_file_functions(target->libc.path, unsafe_functions, rules->unsafe);
    (void)symbols_file_span(target->libc.path, allocator_functions, &rules->malloc_start, &rules->malloc_end);
}

struct judgement {
    const struct place_rules *rules;
    struct symbols_running *running;
    unsigned place;
    unsigned frames; /* before */
};

static bool is_allocator(const struct target *target, const char *path)
{
    for (unsigned i = 0; i < target->allocator_count; i++) {
        if (strcmp(target->allocators[i], path) == 0) {
            return true;
        }
    }
    return false;
}

static bool judge_frame(void *context, const struct symbols_running_frame *frame)
{
    struct judgement *judgement = context;
    const struct place_rules *rules = judgement->rules;
    const char *path = frame->path != NULL ? frame->path : "";
    const bool may_allocate = is_allocator(rules->target, path);
    uint64_t function_pc = 0;
    const char *function = may_allocate || frame->symbols <= SYMBOLS_MAX
                               ? symbols_running_function(judgement->running, frame, &function_pc)
                               : NULL;
    function = function != NULL ? function : "";
    const bool is_innermost = judgement->frames++ == 0;
    if (strncmp(thread_place_base_name(path), "libvarve_preload.so", 19) == 0) {
        judgement->place |= is_innermost || !thread_place_is_among(function, waiting_hooks) ? PLACE_RECORDER : 0U;
    } else if (strncmp(thread_place_base_name(path), "ld-linux", 8) == 0 ||
               strncmp(thread_place_base_name(path), "ld-2.", 5) == 0 ||
               thread_place_is_among(function, unsafe_functions) || is_unsafe(rules, path, function_pc)) {
        judgement->place |= PLACE_LOADER;
    } else if (strcmp(path, rules->target->libc.path) == 0) {
        if (frame->file_pc >= rules->malloc_start && frame->file_pc < rules->malloc_end) {
            judgement->place |= PLACE_ALLOCATOR;
        }
    } else if (may_allocate && (strstr(thread_place_base_name(path), ".so") != NULL ||
                                strstr(function, "alloc") != NULL || strstr(function, "free") != NULL)) {
        judgement->place |= PLACE_ALLOCATOR; /* of a program only its functions with such names */
    }
    return true;
}

unsigned place_of(const struct place_rules *rules, struct symbols_running *running, int32_t tid)
{
    struct judgement judgement = {.rules = rules, .running = running};
    return symbols_running_stack(running, tid, judge_frame, &judgement) ? judgement.place : PLACE_UNKNOWN;
}

/* Where memory that can be written begins and ends, as it is now. */
static void read_ranges(struct place_rules *rules, int32_t tid)
{
    struct proc_maps maps;
    struct proc_map map;
    rules->range_count = 0;
    (void)proc_maps_open(&maps, tid);
    while (proc_maps_next(&maps, &map) && ARRAY_GROW(rules->ranges, rules->range_room, rules->range_count + 1)) {
        if (map.rights[1] == 'w') {
            rules->ranges[rules->range_count++] = (struct place_range){map.start, map.end};
        }
    }
    proc_maps_close(&maps);
}

/* The end of the memory in which a stack is; 0: unknown. */
static uint64_t stack_end(struct place_rules *rules, int32_t tid, uint64_t sp)
{
    for (unsigned tries = 0; tries < 2; tries++) {
        for (size_t i = 0; i < rules->range_count; i++) {
            if (sp >= rules->ranges[i].start && sp < rules->ranges[i].end) {
                return rules->ranges[i].end;
            }
        }
        read_ranges(rules, tid);
    }
    return 0;
}

unsigned place_asleep(struct place_rules *rules, struct symbols_running *running, int32_t tid, uint64_t pc, uint64_t sp)
{
    const uint64_t end = stack_end(rules, tid, sp);
    const size_t bytes = end - sp <= STACK_BYTES_MAX ? end - sp : 0;
    uint64_t *words = bytes != 0 ? malloc(bytes) : NULL;
    const struct iovec to = {words, bytes}, from = {(void *)(uintptr_t)sp, bytes};
    struct judgement judgement = {.rules = rules, .running = running};
    struct symbols_running_frame frame;
    if (words == NULL || process_vm_readv(tid, &to, 1, &from, 1, 0) != (ssize_t)bytes ||
        !symbols_running_frame(running, pc, &frame)) {
        free(words);
        return PLACE_ANY;
    }
    judge_frame(&judgement, &frame);
    for (size_t i = 0; i < bytes / sizeof(*words); i++) {
        if (symbols_running_frame(running, words[i] - 1, &frame)) {
            judge_frame(&judgement, &frame);
        }
    }
    free(words);
    return judgement.place;
}
