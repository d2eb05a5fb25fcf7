/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the driver from its beginning to its record. The driver is the truth: one record per call of it that
 * returned, whichever entry point it came through. The driver is never called while a lock is held, nor before a
 * call of the program has shown that it works in this process image (in a fork child it does not), and errno
 * stays the program's.
 */
#ifndef VARVE_TRACE_RECORDER_CUDA_CUDA_CALL_H
#define VARVE_TRACE_RECORDER_CUDA_CUDA_CALL_H

#include "trace/record.h"
#include "trace/recorder/cuda/cuda_hooks.h"
#include "trace/recorder/cuda/cuda_record.h"
#include "trace/recorder/cuda/driver_calls.h"
#include "trace/recorder/heap/heap_hooks.h"
#include "trace/stacks/native_stack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The functions behind ours, and what we ask the driver ourselves. */

typedef void (*cuda_function)(void);

/* By enum cuda_hook, what a program that links the driver would have got without us; NULL: not asked yet. */
extern cuda_function cuda_exported[CUDA_HOOK_COUNT] __attribute__((visibility("hidden")));

/// The driver's own function, as a look-up gave it that we answered with ours. Never NULL then.
cuda_function cuda_real_resolved(enum cuda_hook hook);
/// Remember it. `function` lies in the driver.
void cuda_real_store(enum cuda_hook hook, cuda_function function);
/// What a program that links the driver would have got without us; NULL: there is no driver.
cuda_function cuda_real_exported(enum cuda_hook hook);
/// A function of the runtime library: of version `soname`, or if that is NULL of the one that the code at
/// `caller` uses. NULL: there is none.
cuda_function cuda_real_runtime(const char *name, const char *soname, const void *caller);

/// Is this the code of a driver library (libcuda.so.1, under whatever path)?
bool cuda_is_driver_code(const void *address);
/// Does the runtime library (any version of it) own the code?
bool cuda_is_runtime_code(const void *address);

/* X(field, symbol, symbol of older drivers, parameters): what we ask the driver ourselves; NULL if it has no
 * such function. */
/* clang-format off */
#define CUDA_QUERY_LIST(X)                                                                                       \
    X(context_current, cuCtxGetCurrent, cuCtxGetCurrent, (void **context_out))                                   \
    X(context_device, cuCtxGetDevice, cuCtxGetDevice, (int *device_out))                                         \
    X(primary_state, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState,                                     \
      (int device, unsigned *flags_out, int *is_active_out))                                                     \
    X(device_uuid, cuDeviceGetUuid_v2, cuDeviceGetUuid, (unsigned char *uuid_out, int device))                   \
    X(device_total, cuDeviceTotalMem_v2, cuDeviceTotalMem_v2, (size_t *bytes_out, int device))                   \
    X(device_name, cuDeviceGetName, cuDeviceGetName, (char *name_out, int bytes, int device))                    \
    X(memory_info, cuMemGetInfo_v2, cuMemGetInfo_v2, (size_t *free_out, size_t *total_out))                      \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *mode))           \
    X(stream_captures, cuStreamIsCapturing, cuStreamIsCapturing, (void *stream, int *status_out))                \
    X(stream_captures_own, cuStreamIsCapturing_ptsz, cuStreamIsCapturing_ptsz, (void *stream, int *status_out))  \
    X(stream_device, cuStreamGetDevice, cuStreamGetDevice, (void *stream, int *device_out))                      \
    X(handle_properties, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle,         \
      (struct cuda_memory_kind *properties_out, uint64_t handle))                                                 \
    X(pool_default, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (void **pool_out, int device))         \
    X(pool_current, cuDeviceGetMemPool, cuDeviceGetMemPool, (void **pool_out, int device))
/* clang-format on */

struct cuda_queries {
#define CUDA_QUERY_FIELD(field, symbol, older, parameters) int(*field) parameters;
    CUDA_QUERY_LIST(CUDA_QUERY_FIELD)
#undef CUDA_QUERY_FIELD
};

/// What can be asked; NULL as long as no function of the driver was found.
const struct cuda_queries *cuda_queries(void);

/*
 * Is anything of CUDA wanted; the real dlsym, and what dlsym answers when a program asks for a function of
 * the driver.
 */

enum cuda_wanted {
    CUDA_WANTED_UNKNOWN = 0,
    CUDA_WANTED_NO = 1,
    CUDA_WANTED_YES = 2,
};

/* Read by the jump of dlsym. Hidden, or its code could not reach them. */
extern uint8_t cuda_wanted __attribute__((visibility("hidden")));
extern void *(*cuda_dlsym_real)(void *handle, const char *name) __attribute__((visibility("hidden")));

/// Find the real dlsym and decide whether the session wants CUDA. Before anything else here; may come long
/// before any constructor. Threads: any.
void cuda_prepare(void);

static inline bool cuda_is_wanted(void)
{
    if (__builtin_expect(__atomic_load_n(&cuda_wanted, __ATOMIC_ACQUIRE) == CUDA_WANTED_UNKNOWN, 0)) {
        cuda_prepare();
    }
    return __atomic_load_n(&cuda_wanted, __ATOMIC_RELAXED) == CUDA_WANTED_YES;
}

/* Off is the state to be fast in: decided, and nothing is wanted. */
static inline bool cuda_is_off(void)
{
    return __builtin_expect(__atomic_load_n(&cuda_wanted, __ATOMIC_RELAXED) == CUDA_WANTED_NO, 1);
}

/// What dlsym says of `name`, if that is one of ours; NULL: whatever the C library says. `caller`: an address
/// in the code that asks. Called by the jump of dlsym.
void *cuda_dlsym_answer(void *handle, const char *name, const void *caller) __attribute__((visibility("hidden")));

/// Of a program that runs already: names of the driver's functions, where they lie, and ours for them; `from` 0: this
/// driver has none of that name, or it is of no interest. False: `hook` is none.
struct elf_replacement;
bool cuda_lookup_driver(enum cuda_hook hook, struct elf_replacement *function_out);
/// Who is bound to the C library's dlsym from now on is bound to ours; 1: `row_out` says what of the loaded objects is,
/// too. 0: it is not known. And back.
unsigned cuda_lookup_dlsym_replace(struct elf_replacement *row_out);
void cuda_lookup_dlsym_restore(void);

/* Questions to the dynamic loader, asked between recorder_reentrant_begin and _end. Threads: any. */

/// What dlsym(RTLD_DEFAULT, name) will say to the code at `caller`, if that is certain; else NULL.
void *cuda_objects_default(const char *name, const void *caller);
/// The same of RTLD_NEXT.
void *cuda_objects_next(const char *name, const void *caller);

/// A symbol of the driver library; NULL: no such symbol, or no such library is loaded.
void *cuda_objects_driver_symbol(const char *name);
/// Keep the object that holds `address` loaded from now on: pointers to its functions will be kept.
void cuda_objects_hold(const void *address);
/// A symbol as the next object behind us defines it, for all programs alike.
void *cuda_objects_behind_us(const char *name);
/// A symbol of a loaded library, which stays loaded from then on; `name` NULL is not allowed.
void *cuda_objects_symbol_of(const char *library, const char *name);
/// A symbol as the object that holds `caller` sees it among its own libraries.
void *cuda_objects_symbol_for(const void *caller, const char *name);

/* Between cuda_lookup.c and the one file dlsym_hook_*.c that fits the processor, which defines dlsym itself. */

/* Versions of the C library's own dlsym, NULL at the end; all are the same function, one of them is there.
 * None: ours does not exist, so that the plain name is the C library's. */
extern const char *const cuda_dlsym_versions[];

/* How a call got here. */
struct cuda_entry {
    cuda_function real;
    struct callsite_start start; /* the program's side of it */
};

/* What this thread is in the middle of. */
struct cuda_thread {
    uint32_t depth;                     /* calls of the driver: only the outermost one is recorded */
    uint32_t replacing;                 /* the allocator that serves cudaMalloc: it is not served by itself */
    enum varve_cause cause;             /* the outermost function of the runtime library, or NONE */
    const struct callsite_start *start; /* its caller; NULL without one */
    int reset_device;                   /* 1 + the device that is being reset, of which nothing was recorded; or 0 */
};

extern __thread struct cuda_thread cuda_thread __attribute__((tls_model("initial-exec")));

struct cuda_scope {
    struct cuda_entry entry;
    const struct cuda_rule *rule;
    const void *arguments;        /* the struct that the rule reads */
    struct cuda_parameters given; /* what they say */
    struct cuda_call call;
    uint64_t stream; /* handle; becomes call.stream when the device is known */
    uint64_t began_ns;
    int saved_errno;
    bool is_recorded; /* not nested in another call, and recorded at all */
    bool has_device;  /* call.device was filled in */
    bool has_context; /* call.context, too */
    bool is_captured; /* becomes part of a graph: the driver is asked nothing, which could end the capture */
};

/// Number of the program's stack: of a runtime function's caller, if the call came through one; 0: none.
uint32_t cuda_callsite(const struct cuda_entry *entry);
/// A call begins: `scope` holds its entry, and zeros. False: it was served by another allocator, call.result says how.
bool cuda_call_begin(struct cuda_scope *scope, enum cuda_driver_call number, const void *arguments);
/// The real function has returned `result`, which is returned.
int cuda_call_end(struct cuda_scope *scope, int result);
/// The program has reset this device, in a way that no hook of the driver saw.
void cuda_reset_emit(int device);

/* cudaMalloc and cudaFree served by an allocator of ours. */

/// Is it to be, on this thread?
bool cuda_replace_is_on(void);
/// True: served, or refused for good: *result_out says. False: the driver is to be called.
bool cuda_replace_alloc(const struct cuda_entry *entry, uint64_t bytes, uint64_t *addr_out, int *result_out);
bool cuda_replace_free(const struct cuda_entry *entry, uint64_t addr, int *result_out);
bool cuda_replace_range(uint64_t addr, uint64_t *base_out, uint64_t *bytes_out);
void cuda_replace_forget(int device);

/*
 * The two entry points of a function that is recorded: the one that look-ups get in the place of the
 * driver's, and the one that a linked program binds to. Both are frames of their own, whose return address
 * is the program's.
 */

#define CUDA_SCOPE(function)                                              \
    {                                                                     \
        .entry = {.real = (function), .start = hook_start(HOOK_FRAME()) } \
    }

#define CUDA_REAL(real, exported) ((cuda_type_##exported *)(real))

/* A version that dlsym does not find, so that it answers as if we were not there; that references without a
 * version find all the same, the driver's have none (recorder/exports.map). */
#define CUDA_EXPORT(function, name, node) __asm__(".symver " #function "," #name "@" node)

/* `call` is an expression that uses `scope`, a struct cuda_scope. Where nothing is recorded programs that link the
 * driver go straight through. */
#define CUDA_ENTRIES(exported, parameters, arguments, call)                                           \
    __attribute__((noinline)) int cuda_resolved_##exported parameters                                 \
    {                                                                                                 \
        struct cuda_scope scope = CUDA_SCOPE(cuda_real_resolved(CUDA_HOOK_##exported));               \
        return call;                                                                                  \
    }                                                                                                 \
    HOOK int cuda_exported_##exported parameters                                                      \
    {                                                                                                 \
        cuda_function real = __atomic_load_n(&cuda_exported[CUDA_HOOK_##exported], __ATOMIC_ACQUIRE); \
        if (cuda_is_off() && real != NULL) {                                                          \
            return CUDA_REAL(real, exported) arguments;                                               \
        }                                                                                             \
        struct cuda_scope scope = CUDA_SCOPE(cuda_real_exported(CUDA_HOOK_##exported));               \
        return scope.entry.real == NULL ? CUDA_RESULT_NOT_INITIALIZED : call;                         \
    }                                                                                                 \
    CUDA_EXPORT(cuda_exported_##exported, exported, "VARVE_CUDA")

/* Device, context, pool and stream of a call, as the numbers that records hold. */

/// Ordinal of the current context's device; -1: there is none, or the driver may not be asked.
int cuda_device_current(void);

/// Before anything else of it. False: no memory.
bool cuda_resources_prepare(void);
/// A call has worked: from now on we may ask the driver too, until a fork.
void cuda_driver_works(void);
/// NULL: it may not be asked now.
const struct cuda_queries *cuda_driver_asked(void);

/// Fill in what a call did not say of itself.
void cuda_resolve(struct cuda_scope *scope);
/// The call is about a stream. `is_own`: handle 0 is the thread's own one.
void cuda_resolve_stream(struct cuda_scope *scope, void *stream, bool is_own);
/// Is the stream recording a graph?
bool cuda_is_captured(void *stream, bool is_own);
/// … about a pool. NULL: the current one of the call's device.
void cuda_resolve_pool(struct cuda_scope *scope, void *pool);
/// … about physical memory of this handle.
void cuda_resolve_handle(struct cuda_scope *scope, uint64_t handle);
/// … about a context. It gets a number if it has none.
void cuda_resolve_context(struct cuda_scope *scope, void *context);

/// A pool of this kind was made, or is no more.
void cuda_pool_made(void *pool, const struct cuda_scope *scope);
void cuda_pool_gone(void *pool);
/// A context is no more; all contexts of a device.
void cuda_context_gone(void *context);
void cuda_device_gone(unsigned device);

/// Emit what the driver says of the current device's memory: at most now and then, unless `is_urgent`.
void cuda_memory_emit(bool is_urgent);

#endif
