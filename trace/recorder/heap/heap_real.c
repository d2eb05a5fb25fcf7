/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions behind our hooks, found by dlsym when the first of them is called, which may be long before
 * any constructor: the loader itself allocates. Whether anything is recorded is decided here too, once.
 */
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/recorder/emit_slow.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/guest_lock.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"
#include "trace/format/session_format.h"
#include "trace/emit.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

struct heap_real heap_real;
uint32_t heap_state;
uint32_t heap_with_stacks;
size_t heap_page_bytes;
bool preload_is_on;
bool heap_is_late;

static uint32_t find_lock;
static bool main_end_waits; /* for the constructor: in a hook the program's allocator may hold its lock */

/* The loader's list itself, which does not change now: the program has one thread, or this one is in dlopen. */
static bool is_behind_c_library(void)
{
    struct elf_object object;
    for (const struct link_map *map = _r_debug.r_map; map != NULL && map->l_ld != _DYNAMIC; map = map->l_next) {
        if (elf_symbol_tables_of_map(map, &object) && elf_symbol_in(&object, "__libc_start_main") != NULL) {
            return true;
        }
    }
    return false;
}

/* A program that is linked at a fixed address may have an entry of its own under the name, which only leads on. */
static void *find_late(const char *name)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    struct loaded_object own, its;
    if (function == NULL || !loaded_object_find((uintptr_t)_DYNAMIC, &own) ||
        !loaded_object_find((uintptr_t)function, &its)) {
        return NULL;
    }
    if (its.handle == own.handle) {
        return NULL;
    }
    struct elf_object object;
    if (its.name[0] != '\0' || !elf_symbol_object(name, &object) || object.path[0] == '\0') {
        return function;
    }
    return object.dynamic != _DYNAMIC ? elf_symbol_in(&object, name) : NULL;
}

/* A dlsym that finds nothing says so in memory of malloc, which may be the program's own: it maps its first memory
 * under its lock, and we are called for that. */
static bool is_behind_us(const char *name)
{
    const struct link_map *map = _r_debug.r_map;
    while (map != NULL && map->l_ld != _DYNAMIC) {
        map = map->l_next;
    }
    struct elf_object object;
    for (map = map != NULL ? map->l_next : NULL; map != NULL; map = map->l_next) {
        if (elf_symbol_tables_of_map(map, &object) && elf_symbol_is_offered(&object, name)) {
            return true;
        }
    }
    return false;
}

/* The next definition in the order of symbol lookup: the C library's, or another allocator's behind us. */
void *heap_real_find(const char *name)
{
    return heap_is_late ? find_late(name) : dlsym(RTLD_NEXT, name);
}

static void heap_real_die(const char *name)
{
    static const char text[] = "varve: the C library has no ";
    recorder_sys_write(STDERR_FILENO, text, sizeof(text) - 1);
    recorder_sys_write(STDERR_FILENO, name, __builtin_strlen(name));
    recorder_sys_write(STDERR_FILENO, "\n", 1);
    __builtin_trap();
}

static void find_all(void)
{
    void *found;

    /* a conversion of void * to a function pointer, which C leaves undefined and POSIX requires to work */
#define HEAP_FIND_REQUIRED(name, result, parameters) \
    found = heap_real_find(#name);                   \
    if (found == NULL) {                             \
        heap_real_die(#name);                        \
    }                                                \
    __builtin_memcpy(&heap_real.name, &found, sizeof(found));
#define HEAP_FIND_OPTIONAL(name, result, parameters)                            \
    found = heap_is_late || is_behind_us(#name) ? heap_real_find(#name) : NULL; \
    __builtin_memcpy(&heap_real.name, &found, sizeof(found));
    HEAP_REQUIRED_LIST(HEAP_FIND_REQUIRED)
    HEAP_OPTIONAL_LIST(HEAP_FIND_OPTIONAL)
#undef HEAP_FIND_REQUIRED
#undef HEAP_FIND_OPTIONAL
}

bool heap_ready(void)
{
    if (recorder_reentrant_depth > 0 && __atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) < HEAP_STATE_OFF) {
        return false; /* an allocation by dlsym, inside the lookup of this very thread */
    }
    heap_is_late = is_behind_c_library();
    if (heap_is_late) {
        recorder_session_forgo();
    } else {
        recorder_session_find();
    }
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    if (!recorder_lock_soon(&find_lock)) { /* its holder waits for the loader, which may wait for this thread */
        recorder_reentrant_end(&saved);
        return false;
    }
    if (heap_state == HEAP_STATE_NEW) {
        __atomic_store_n(&heap_state, HEAP_STATE_FINDING, __ATOMIC_RELEASE);
        heap_page_bytes = getauxval(AT_PAGESZ);
        find_all();
        preload_is_on = recorder_prepare();
        bool is_on = preload_is_on && varve_records_wanted(VARVE_RECORDS_HEAP);
        heap_with_stacks = preload_is_on && varve_records_wanted(VARVE_RECORDS_HEAP | VARVE_RECORDS_PYTHON)
                               ? recorder_session()->stacks
                               : SESSION_STACKS_NONE;
        const bool is_malloc_ours = heap_cxx_prepare(is_on || heap_is_late);
        recorder_malloc_is_unhooked = !is_malloc_ours && (is_on || heap_is_late);
        main_end_waits = preload_is_on && !is_malloc_ours;
        if (preload_is_on && is_malloc_ours) {
            main_end_prepare();
        }
        if (is_on && is_malloc_ours) {
            loading_begin();
        }
        __atomic_store_n(&heap_state, is_on ? HEAP_STATE_ON : HEAP_STATE_OFF, __ATOMIC_RELEASE);
    }
    recorder_unlock(&find_lock);
    recorder_reentrant_end(&saved);
    return true;
}

/* Programs that never allocate before they start threads get the lookup over with while there is one. Those
 * whose malloc is not ours may never come to an event: they attach now, so that the collector knows of them. */
__attribute__((constructor)) static void heap_real_prepare(void)
{
    if (__atomic_load_n(&heap_state, __ATOMIC_ACQUIRE) < HEAP_STATE_OFF) {
        heap_ready();
    }
    struct recorder_signals saved;
    if (!preload_is_on) {
        return;
    }
    recorder_reentrant_begin(&saved);
    if (main_end_waits) {
        main_end_prepare();
    }
    if (recorder_malloc_is_unhooked) {
        (void)recorder_process_attach();
    }
    recorder_reentrant_end(&saved);
}
