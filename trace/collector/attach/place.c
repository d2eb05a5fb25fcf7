/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judged by the stack: each frame's object and the exported function before its address. The C library's allocator is
 * mostly functions without a name in the file: the part of the code in which they lie is that of its exported ones. A
 * stack that can't be unwound to its end (code made at run time) is judged by the frames that are known: allocators and
 * the loader call nothing of that kind. Called by inject.c.
 */
#include "trace/collector/attach/place.h"

#include "trace/symbols/running.h"

#include <stddef.h>
#include <string.h>

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

static bool is_among(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0) {
        names++;
    }
    return *names != NULL;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void place_rules_init(struct place_rules *rules, const struct target *target)
{
    *rules = (struct place_rules){.target = target};
    (void)symbols_file_span(target->libc.path, allocator_functions, &rules->malloc_start, &rules->malloc_end);
}

struct judgement {
    const struct place_rules *rules;
    unsigned place;
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
    const char *function = frame->function != NULL ? frame->function : "";
    if (strncmp(base_name(path), "libvarve_preload.so", 19) == 0) {
        judgement->place |= PLACE_RECORDER;
    } else if (strncmp(base_name(path), "ld-linux", 8) == 0 || strncmp(base_name(path), "ld-2.", 5) == 0 ||
               is_among(function, unsafe_functions)) {
        judgement->place |= PLACE_LOADER;
    } else if (strcmp(path, rules->target->libc.path) == 0) {
        if (frame->file_pc >= rules->malloc_start && frame->file_pc < rules->malloc_end) {
            judgement->place |= PLACE_ALLOCATOR;
        }
    } else if (is_allocator(rules->target, path) &&
               (strstr(base_name(path), ".so") != NULL || strstr(function, "alloc") != NULL ||
                strstr(function, "free") != NULL)) {
        judgement->place |= PLACE_ALLOCATOR; /* of a program only its functions with such names */
    }
    return true;
}

unsigned place_of(const struct place_rules *rules, struct symbols_running *running, int32_t tid)
{
    struct judgement judgement = {.rules = rules};
    return symbols_running_stack(running, tid, judge_frame, &judgement) ? judgement.place : PLACE_UNKNOWN;
}
