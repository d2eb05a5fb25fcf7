/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that begins and ends while the program runs. The library was loaded by dlopen, so no name leads to its
 * hooks: they are put into the entries by which the program and its libraries call (guest/elf_entries.c), and taken out
 * again. A thread that is in a hook at that moment goes on in it; the library stays loaded for good.
 */
#include "trace/recorder/heap/attach.h"
#include "trace/recorder/emit.h"
#include "trace/recorder/guest/elf_entries.h"
#include "trace/recorder/guest/elf_symbol.h"
#include "trace/recorder/guest/loaded_object.h"
#include "trace/recorder/guest/lock.h"
#include "trace/recorder/heap/hooks.h"
#include "trace/recorder/heap/main_end.h"
#include "trace/recorder/heap/operator_new.h"
#include "trace/recorder/heap/real.h"
#include "trace/recorder/session.h"
#include "trace/recorder/stacks/callsite.h"
#include "trace/format/attach.h"
#include "trace/format/session.h"
#include "trace/trace.h"

#include <link.h>
#include <string.h>

#define REPLACED_MAX 96U

/* Hooks that are defined here and are no function of struct heap_real. */
static const char *const others[] = {"reallocarray", "mmap64", "_Exit", "execl", "execlp", "execle"};

static struct elf_replacement replacements[REPLACED_MAX]; /* made once */
static unsigned replacement_count;
static uint32_t replace_lock;
static void *(*real_dlopen)(const char *file, int mode);

static void replacement_add(const char *name, void *real, void *hook)
{
    if (real != NULL && hook != NULL && real != hook && replacement_count < REPLACED_MAX) {
        replacements[replacement_count++] =
            (struct elf_replacement){.name = name, .from = (uintptr_t)real, .to = (uintptr_t)hook};
    }
}

/* ---- objects that are loaded later ---- */

/* Where the C library looks for a file depends on who asks. */
static bool depends_on_caller(const char *file, uintptr_t caller)
{
    struct loaded_object asking;
    if (file == NULL || strchr(file, '$') != NULL || !loaded_object_find(caller - 1, &asking)) {
        return true;
    }
    if (strchr(file, '/') != NULL) {
        return false;
    }
    struct elf_walk walk;
    elf_walk_begin(&walk);
    struct elf_object object;
    while (elf_walk_next(&walk, &object)) {
        if (object.has_search_path && object.path[0] != '\0') {
            return true;
        }
    }
    return false;
}

static __attribute__((noinline)) void replace_in_new(void)
{
    struct recorder_signals saved;
    const int saved_errno = errno;
    recorder_reentrant_begin(&saved);
    if (recorder_lock_soon(&replace_lock)) {
        if (preload_is_on) {
            elf_entries_replace(replacements, replacement_count, true);
        }
        recorder_unlock(&replace_lock);
    }
    recorder_reentrant_end(&saved);
    errno = saved_errno;
}

/* The C library knows the caller by its return address: where that matters it must see the program's own, and new
 * objects are found with the next ones. */
static void *dlopen_hook(const char *file, int mode)
{
    if (depends_on_caller(file, HOOK_FRAME()[1])) {
        return real_dlopen(file, mode);
    }
    void *handle = real_dlopen(file, mode);
    if (handle != NULL && hook_is_recording()) {
        replace_in_new();
    }
    return handle;
}

/* ---- all hooks ---- */

/* Of our own definitions by their names: in C these would be the program's. */
static void replacements_make(void)
{
    struct elf_object own;
    const char *name;
    void *found;
    unsigned at = 0;
    if (replacement_count > 0 || !elf_symbol_object(ATTACH_FUNCTION, &own)) {
        return;
    }
#define HEAP_REPLACE(name, result, parameters)                \
    __builtin_memcpy(&found, &heap_real.name, sizeof(found)); \
    replacement_add(#name, found, elf_symbol_in(&own, #name));
    HEAP_REQUIRED_LIST(HEAP_REPLACE)
    HEAP_OPTIONAL_LIST(HEAP_REPLACE)
#undef HEAP_REPLACE
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        replacement_add(others[i], heap_real_find(others[i]), elf_symbol_in(&own, others[i]));
    }
    while (heap_cxx_each_recorded(&at, &name, &found)) {
        replacement_add(name, found, elf_symbol_in(&own, name));
    }
    found = heap_real_find("dlopen");
    __builtin_memcpy(&real_dlopen, &found, sizeof(found));
    replacement_add("dlopen", found, (void *)(uintptr_t)dlopen_hook);
}

static enum attach_answer begin(const char *directory)
{
    const bool is_first = replacement_count == 0;
    if (!heap_is_late) {
        return ATTACH_NOT_LATE;
    }
    if (heap_state != HEAP_STATE_OFF || recorder_session() != NULL) {
        return ATTACH_RECORDED;
    }
    if (!recorder_session_begin(directory) || !recorder_prepare()) {
        return ATTACH_NO_SESSION;
    }
    replacements_make();
    if (is_first) {
        main_end_prepare();
    }
    main_end_find_python();
    heap_with_stacks = recorder_session()->stacks;
    preload_is_on = true;
    (void)recorder_process_attach();
    recorder_lock(&replace_lock);
    elf_entries_replace(replacements, replacement_count, false);
    recorder_unlock(&replace_lock);
    /* Only now: an allocation that was recorded while some entry of free was still the program's own
     * would never end. */
    __atomic_store_n(&heap_state, HEAP_STATE_ON, __ATOMIC_RELEASE);
    return ATTACH_DONE;
}

int varve_preload_attach(const char *directory)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    enum attach_answer answer = begin(directory);
    recorder_reentrant_end(&saved);
    return (int)answer;
}

int varve_preload_detach(void)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    __atomic_store_n(&heap_state, HEAP_STATE_OFF, __ATOMIC_RELEASE);
    preload_is_on = false;
    __atomic_store_n(&main_end_is_watched, false, __ATOMIC_RELAXED);
    bool is_locked =
        recorder_lock_soon(&replace_lock); /* its holder may be this thread: then it changes nothing any more */
    elf_entries_restore(replacements, replacement_count);
    if (is_locked) {
        recorder_unlock(&replace_lock);
    }
    recorder_reentrant_end(&saved);
    return ATTACH_DONE;
}

int varve_preload_release(void)
{
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    recorder_threads_release();
    callsite_release();
    recorder_session_end();
    recorder_reentrant_end(&saved);
    return ATTACH_DONE;
}
