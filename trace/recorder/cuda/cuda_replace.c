/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudaMalloc and cudaFree served by an allocator of ours, where the session asks for it: a library that is
 * opened at the first allocation. It emits what it serves itself, as blocks; what it asks of the driver
 * comes back through the hooks and is recorded as such, with the program's stack. If it cannot be opened
 * the program is served by the driver, and a line says so.
 */
#include "trace/recorder/cuda/cuda_call.h"
#include "trace/guest/reentrant.h"
#include "trace/guest/guest_signals.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/session.h"
#include "trace/stacks/native_stack.h"
#include "base/syscall.h"
#include "trace/replacement.h"
#include "trace/record.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum state { STATE_CLOSED = 0, STATE_OPEN = 1, STATE_FAILED = 2 };

static uint32_t state; /* enum state; atomic */
static const struct varve_replacement *replacement;

/* What a call into the allocator changes on this thread. */
struct inside {
    struct recorder_signals signals;
    enum varve_cause cause;
    const struct callsite_start *start;
};

static void cuda_replace_enter(struct inside *inside, const struct callsite_start *start)
{
    recorder_reentrant_begin(&inside->signals);
    inside->cause = cuda_thread.cause;
    inside->start = cuda_thread.start;
    cuda_thread.cause = VARVE_CAUSE_NONE;
    cuda_thread.start = inside->start != NULL ? inside->start : start;
    cuda_thread.replacing++;
}

static void cuda_replace_leave(const struct inside *inside)
{
    cuda_thread.replacing--;
    cuda_thread.cause = inside->cause;
    cuda_thread.start = inside->start;
    recorder_reentrant_end(&inside->signals);
}

static void cuda_replace_complain(const char *what, const char *why)
{
    char line[1024];
    recorder_format(line, sizeof(line), "varve: cudaMalloc is served by the driver: %s: %s", what, why);
    size_t length = strlen(line);
    line[length++] = '\n'; /* over the NUL */
    recorder_sys_write(STDERR_FILENO, line, length);
}

/* NULL: it can't be used, for the reason in `why_out`. */
static const struct varve_replacement *open_library(const char *path, const char **why_out)
{
    /* a relative one would be looked for wherever the program stands */
    void *handle = path[0] == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (handle == NULL) {
        *why_out = path[0] == '/' ? dlerror() : NULL;
        *why_out = *why_out != NULL ? *why_out : "it cannot be opened";
        return NULL;
    }
    const struct varve_replacement *found = cuda_dlsym_real(handle, VARVE_REPLACEMENT_SYMBOL);
    if (found == NULL || found->version != VARVE_REPLACEMENT_VERSION) {
        *why_out = "it belongs to another version of varve";
        return NULL;
    }
    return found;
}

/* No lock is held while it is opened, since the loader has one of its own: who comes at the same time opens
 * the same library, and all store the same. */
static const struct varve_replacement *cuda_replace_get(const struct callsite_start *start)
{
    uint32_t before = STATE_CLOSED;
    const char *path = recorder_session()->replace_path;
    const char *why = "";
    struct inside inside;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == STATE_CLOSED) {
        cuda_replace_enter(&inside, start);
        const struct varve_replacement *opened = open_library(path, &why);
        if (opened != NULL) {
            __atomic_store_n(&replacement, opened, __ATOMIC_RELEASE);
        }
        if (__atomic_compare_exchange_n(&state, &before, opened != NULL ? STATE_OPEN : STATE_FAILED, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
            opened == NULL) {
            cuda_replace_complain(path, why);
        }
        cuda_replace_leave(&inside);
    }
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == STATE_OPEN ? replacement : NULL;
}

bool cuda_replace_is_on(void)
{
    return cuda_is_wanted() && recorder_session()->replace_path[0] != '\0' && cuda_thread.replacing == 0 &&
           cuda_thread.depth == 0;
}

bool cuda_replace_alloc(const struct cuda_entry *entry, uint64_t bytes, uint64_t *addr_out, int *result_out)
{
    int saved_errno = errno;
    const struct varve_replacement *server = cuda_replace_get(&entry->start);
    const struct cuda_queries *driver = cuda_queries();
    errno = saved_errno;
    int device = 0;
    if (server == NULL || addr_out == NULL || driver == NULL || driver->context_device == NULL ||
        driver->context_device(&device) != 0) {
        return false; /* without a context the driver has the right answer */
    }
    uint32_t callsite = cuda_callsite(entry);
    struct inside inside;
    cuda_replace_enter(&inside, &entry->start);
    uint64_t addr = 0;
    *result_out = server->alloc(device, bytes, callsite, &addr);
    cuda_replace_leave(&inside);
    if (*result_out == 0) {
        *addr_out = addr;
    }
    errno = saved_errno;
    return true;
}

bool cuda_replace_free(const struct cuda_entry *entry, uint64_t addr, int *result_out)
{
    int saved_errno = errno;
    if (addr == 0 || __atomic_load_n(&state, __ATOMIC_ACQUIRE) != STATE_OPEN) {
        return false; /* nothing was served yet */
    }
    struct inside inside;
    cuda_replace_enter(&inside, &entry->start);
    *result_out = replacement->free(addr);
    cuda_replace_leave(&inside);
    errno = saved_errno;
    return *result_out >= 0;
}

bool cuda_replace_range(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out)
{
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == STATE_OPEN &&
           replacement->range(addr, base_out, bytes_out) == 1;
}

void cuda_replace_forget(int device)
{
    struct inside inside;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == STATE_OPEN) {
        cuda_replace_enter(&inside, NULL);
        replacement->forget(device);
        cuda_replace_leave(&inside);
    }
}
