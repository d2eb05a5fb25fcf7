/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions behind ours. A function that a look-up resolved to ours has one slot for the real one,
 * filled at that look-up. A program that links the driver calls the symbols that we export: behind these is
 * whatever would have been found without us, which may be another library that stands in front of the
 * driver and comes back to us for it; that call is nested then and not recorded again.
 */
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"

#include <errno.h>
#include <string.h>

static cuda_function resolved[CUDA_HOOK_COUNT];
cuda_function cuda_exported[CUDA_HOOK_COUNT];

static const char *const names[] = {
#define CUDA_NAME(exported, ...) #exported,
    CUDA_HOOK_LIST(CUDA_NAME)
#undef CUDA_NAME
};

static struct cuda_queries queries;
static const struct cuda_queries *queries_found;
static uint32_t queries_lock;

static cuda_function cuda_real_function_at(void *address)
{
    cuda_function function;
    memcpy(&function, &address, sizeof(function));
    return function;
}

static void *address_of(cuda_function function)
{
    void *address;
    memcpy(&address, &function, sizeof(address));
    return address;
}

static void *find_query(const char *symbol, const char *older)
{
    void *found = cuda_objects_driver_symbol(symbol);
    return found != NULL ? found : cuda_objects_driver_symbol(older);
}

/* The lock keeps two threads from filling it in; nobody waits who is in a signal handler, which cannot look
 * anything up. */
static void queries_find(void)
{
    if (__atomic_load_n(&queries_found, __ATOMIC_ACQUIRE) != NULL ||
        __atomic_exchange_n(&queries_lock, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
#define CUDA_QUERY_FIND(field, symbol, older, parameters)                         \
    {                                                                             \
        cuda_function found = cuda_real_function_at(find_query(#symbol, #older)); \
        memcpy(&queries.field, &found, sizeof(found));                            \
    }
    CUDA_QUERY_LIST(CUDA_QUERY_FIND)
#undef CUDA_QUERY_FIND
    if (queries.context_current != NULL) {
        __atomic_store_n(&queries_found, &queries, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&queries_lock, 0, __ATOMIC_RELEASE);
}

const struct cuda_queries *cuda_queries(void)
{
    return __atomic_load_n(&queries_found, __ATOMIC_ACQUIRE);
}

cuda_function cuda_real_resolved(enum cuda_hook hook)
{
    return __atomic_load_n(&resolved[hook], __ATOMIC_ACQUIRE);
}

void cuda_real_store(enum cuda_hook hook, cuda_function function)
{
    if (__atomic_load_n(&resolved[hook], __ATOMIC_ACQUIRE) != function) {
        cuda_objects_hold(address_of(function));
        __atomic_store_n(&resolved[hook], function, __ATOMIC_RELEASE);
    }
    queries_find();
}

static cuda_function find_linked(enum cuda_hook hook)
{
    struct recorder_signals saved;
    int saved_errno = errno;
    recorder_reentrant_begin(&saved);
    void *found = cuda_objects_behind_us(names[hook]);
    if (found == NULL) {
        found = cuda_objects_driver_symbol(names[hook]); /* of a library that was opened for itself alone */
    }
    if (found != NULL) {
        cuda_objects_hold(found);
        queries_find();
    }
    recorder_reentrant_end(&saved);
    errno = saved_errno;
    return cuda_real_function_at(found);
}

cuda_function cuda_real_exported(enum cuda_hook hook)
{
    cuda_function function = __atomic_load_n(&cuda_exported[hook], __ATOMIC_ACQUIRE);
    if (function == NULL) {
        cuda_is_wanted(); /* finds the real dlsym */
        function = find_linked(hook);
        __atomic_store_n(&cuda_exported[hook], function, __ATOMIC_RELEASE);
    }
    return function;
}

/* ---- the runtime library ---- */

static void *find_runtime(const char *name, const char *soname, const void *caller)
{
    static const char *const sonames[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    void *behind = cuda_objects_behind_us(name);
    if (behind != NULL && !cuda_is_runtime_code(behind)) {
        return behind; /* of another library that stands in front of it */
    }
    void *found = NULL;
    if (soname != NULL) {
        found = cuda_objects_symbol_of(soname, name);
    }
    if (found == NULL) {
        found = cuda_objects_symbol_for(caller, name);
    }
    if (found == NULL) {
        found = behind;
    }
    for (size_t i = 0; i < sizeof(sonames) / sizeof(sonames[0]) && found == NULL; i++) {
        found = cuda_objects_symbol_of(sonames[i], name);
    }
    return found;
}

cuda_function cuda_real_runtime(const char *name, const char *soname, const void *caller)
{
    int saved_errno = errno;
    cuda_is_wanted();
    struct recorder_signals saved;
    recorder_reentrant_begin(&saved);
    void *found = find_runtime(name, soname, caller);
    if (found != NULL) {
        cuda_objects_hold(found);
    }
    recorder_reentrant_end(&saved);
    errno = saved_errno;
    return cuda_real_function_at(found);
}
