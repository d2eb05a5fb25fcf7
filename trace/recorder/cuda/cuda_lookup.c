/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two questions by which programs find functions of the driver: dlsym and cuGetProcAddress. Where the
 * answer is a function of the driver that is recorded, ours is returned instead; every other answer is left
 * as it is. What dlsym finds with RTLD_DEFAULT and RTLD_NEXT depends on who asks, so it cannot be asked
 * again from here: cuda_objects.c says what the answer will be, if that is certain; else the C library answers,
 * and the caller gets the driver's own function.
 */
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/guest/elf_entries.h"
#include "trace/guest/elf_symbol.h"
#include "trace/guest/loaded_object.h"
#include "trace/guest/guest_lock.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"
#include "trace/emit.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct row {
    const char *exported;
    const char *symbol;
    int version;
    unsigned flags;
    cuda_function resolved;
};

/* In the order of enum cuda_hook. */
static const struct row rows[] = {
#define CUDA_ROW(exported, symbol, version, flags, ...) \
    {#exported, #symbol, version, flags, (cuda_function)cuda_resolved_##exported},
    CUDA_HOOK_LIST(CUDA_ROW)
#undef CUDA_ROW
};

uint8_t cuda_wanted;
void *(*cuda_dlsym_real)(void *handle, const char *name);

static void cuda_lookup_die(void)
{
    static const char text[] = "varve: the C library has no dlsym that can be found\n";
    recorder_sys_write(STDERR_FILENO, text, sizeof(text) - 1);
    __builtin_trap();
}

/* The next one in the order of look-up: the C library's, or another recorder's behind us. */
static void *find_dlsym(void)
{
    void *found = NULL;
    for (size_t i = 0; cuda_dlsym_versions[i] != NULL && found == NULL; i++) {
        found = dlvsym(RTLD_NEXT, "dlsym", cuda_dlsym_versions[i]);
    }
    if (cuda_dlsym_versions[0] == NULL) {
        cuda_function plain = (cuda_function)dlsym;
        memcpy(&found, &plain, sizeof(found));
    }
    return found;
}

/* The C library's dlsym and ours, if that is the one behind us; of another recorder's, which stands between and may ask
 * the C library in its turn, nothing is known. */
static bool dlsym_definition(struct elf_object *c_library, struct elf_replacement *row_out)
{
    const void *real = (const void *)(uintptr_t)cuda_dlsym_real;
    struct loaded_object at;
    struct elf_object own;
    if (cuda_dlsym_versions[0] == NULL || !loaded_object_find((uintptr_t)real, &at) ||
        !elf_symbol_object_at((const void *)at.start, c_library) ||
        elf_symbol_in(c_library, "__libc_start_main") == NULL || !loaded_object_find((uintptr_t)&cuda_wanted, &at) ||
        !elf_symbol_object_at((const void *)at.start, &own)) {
        return false;
    }
    *row_out = (struct elf_replacement){
        .name = "dlsym", .from = (uintptr_t)real, .to = (uintptr_t)elf_symbol_in(&own, "dlsym")};
    return row_out->to != 0;
}

unsigned cuda_lookup_dlsym_replace(struct elf_replacement *row_out)
{
    struct elf_object c_library;
    const bool is_found = dlsym_definition(&c_library, row_out);
    if (is_found) {
        (void)elf_definitions_replace(&c_library, row_out, 1);
    }
    return is_found;
}

/* Objects of RTLD_DEEPBIND ask the C library for its dlsym, and get ours too. Once, and not while the hooks of the heap
 * are put there. */
static void definition_replace(void)
{
    static bool is_begun; /* atomic */
    struct elf_replacement row;
    struct recorder_process *process = recorder_process_page();
    if (process != NULL && !__atomic_exchange_n(&is_begun, true, __ATOMIC_ACQ_REL) &&
        recorder_lock_soon(&process->loading_lock)) {
        (void)cuda_lookup_dlsym_replace(&row);
        recorder_unlock(&process->loading_lock);
    }
}

void cuda_lookup_dlsym_restore(void)
{
    struct elf_object c_library;
    struct elf_replacement row;
    if (cuda_dlsym_real != NULL && dlsym_definition(&c_library, &row)) {
        (void)elf_definitions_restore(&c_library, &row, 1);
    }
}

void cuda_prepare(void)
{
    struct recorder_signals saved;
    void *(*real)(void *, const char *) = NULL;
    void *(*none)(void *, const char *) = NULL;
    recorder_reentrant_begin(&saved);
    if (__atomic_load_n(&cuda_dlsym_real, __ATOMIC_ACQUIRE) == NULL) {
        void *found = find_dlsym();
        if (found == NULL) {
            cuda_lookup_die();
        }
        memcpy(&real, &found, sizeof(real));
        /* Who comes late may have found ours, by the definition that another thread has replaced meanwhile. */
        __atomic_compare_exchange_n(&cuda_dlsym_real, &none, real, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    recorder_reentrant_end(&saved);
    if (__atomic_load_n(&cuda_wanted, __ATOMIC_ACQUIRE) == CUDA_WANTED_UNKNOWN) {
        bool is_wanted = varve_records_wanted(VARVE_RECORDS_CUDA) && cuda_resources_prepare();
        if (is_wanted) {
            recorder_reentrant_begin(&saved);
            definition_replace();
            recorder_reentrant_end(&saved);
        }
        __atomic_store_n(&cuda_wanted, is_wanted ? CUDA_WANTED_YES : CUDA_WANTED_NO, __ATOMIC_RELEASE);
    }
}

static bool is_of_interest(const struct row *row)
{
    return (row->flags & CUDA_HOOK_REPLACE) == 0 || recorder_session()->replace_path[0] != '\0';
}

static const struct row *row_exported(const char *name)
{
    for (size_t i = 0; i < CUDA_HOOK_COUNT; i++) {
        if (strcmp(name, rows[i].exported) == 0) {
            return is_of_interest(&rows[i]) ? &rows[i] : NULL;
        }
    }
    return NULL;
}

/* The function that the driver means by `symbol`: the newest one that the program's version knows, and of two
 * the one that the flags ask for. */
static const struct row *row_asked(const char *symbol, int version, uint64_t flags)
{
    const struct row *best = NULL;
    for (size_t i = 0; i < CUDA_HOOK_COUNT; i++) {
        const struct row *row = &rows[i];
        bool is_own = (row->flags & CUDA_HOOK_PER_THREAD) != 0;
        if (strcmp(symbol, row->symbol) != 0 || row->version > version || !is_of_interest(row) ||
            (is_own && (flags & CUDA_ADDRESS_PER_THREAD) == 0)) {
            continue;
        }
        if (best == NULL || is_own || ((best->flags & CUDA_HOOK_PER_THREAD) == 0 && row->version > best->version)) {
            best = row;
        }
    }
    return best != NULL ? best : row_exported(symbol);
}

static enum cuda_hook hook_of(const struct row *row)
{
    return (enum cuda_hook)(row - rows);
}

static void *resolve_to_ours(const struct row *row, void *real)
{
    cuda_function function;
    memcpy(&function, &real, sizeof(function));
    cuda_real_store(hook_of(row), function);
    void *resolved;
    memcpy(&resolved, &row->resolved, sizeof(resolved));
    return resolved;
}

bool cuda_lookup_driver(enum cuda_hook hook, struct elf_replacement *function_out)
{
    if (hook >= CUDA_HOOK_COUNT) {
        return false;
    }
    const struct row *row = &rows[hook];
    void *real = is_of_interest(row) ? cuda_objects_driver_symbol(row->exported) : NULL;
    *function_out = (struct elf_replacement){.name = row->exported};
    if (real != NULL && cuda_is_driver_code(real)) {
        function_out->from = (uintptr_t)real;
        function_out->to = (uintptr_t)resolve_to_ours(row, real);
    }
    return true;
}

void *cuda_dlsym_answer(void *handle, const char *name, const void *caller)
{
    const struct row *row = row_exported(name);
    int saved_errno = errno;
    if (row == NULL) {
        return NULL;
    }
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    void *real;
    if (handle == RTLD_DEFAULT) {
        real = cuda_objects_default(name, caller);
    } else if (handle == RTLD_NEXT) {
        real = cuda_objects_next(name, caller);
    } else {
        real = cuda_dlsym_real(handle, name);
    }
    void *resolved = NULL;
    if (real != NULL && cuda_is_driver_code(real)) {
        resolved = resolve_to_ours(row, real);
        dlerror(); /* what went wrong meanwhile went wrong for us; the program's call has worked */
    }
    recorder_reentrant_end(&saved);
    errno = saved_errno;
    return resolved;
}

/* ---- cuGetProcAddress ---- */

/* Who asks for a newer version than we know of may get another prototype, unless it is the very function that
 * the library exports (under ours, where one was attached to). */
static bool is_known(const struct row *row, int version, const void *real)
{
    const cuda_function exported = cuda_real_resolved(hook_of(row));
    return version <= CUDA_HOOK_VERSION_KNOWN || cuda_objects_driver_symbol(row->exported) == real ||
           memcmp(&exported, &real, sizeof(real)) == 0;
}

static void cuda_lookup_answer(const char *symbol, void **function_out, int version, uint64_t flags)
{
    int saved_errno = errno;
    if (!cuda_is_wanted() || symbol == NULL || function_out == NULL || *function_out == NULL) {
        return;
    }
    const struct row *row = row_asked(symbol, version, flags);
    if (row == NULL) {
        return;
    }
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    if (cuda_is_driver_code(*function_out) && is_known(row, version, *function_out)) {
        *function_out = resolve_to_ours(row, *function_out);
    }
    recorder_reentrant_end(&saved);
    errno = saved_errno;
}

static int address_get(cuda_function real, const char *symbol, void **function_out, int version, uint64_t flags)
{
    int result = CUDA_REAL(real, cuGetProcAddress)(symbol, function_out, version, flags);
    if (result == 0) {
        cuda_lookup_answer(symbol, function_out, version, flags);
    }
    return result;
}

static int address_get_v2(cuda_function real, const char *symbol, void **function_out, int version, uint64_t flags,
                          enum cuda_address_status *status_out)
{
    int result = CUDA_REAL(real, cuGetProcAddress_v2)(symbol, function_out, version, flags, status_out);
    if (result == 0) {
        cuda_lookup_answer(symbol, function_out, version, flags);
    }
    return result;
}

CUDA_ENTRIES(cuGetProcAddress, (const char *symbol, void **function_out, int version, uint64_t flags),
             (symbol, function_out, version, flags),
             address_get(scope.entry.real, symbol, function_out, version, flags));
CUDA_ENTRIES(cuGetProcAddress_v2,
             (const char *symbol, void **function_out, int version, uint64_t flags,
              enum cuda_address_status *status_out),
             (symbol, function_out, version, flags, status_out),
             address_get_v2(scope.entry.real, symbol, function_out, version, flags, status_out));
