/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the torch_*.c and replace_*.c of alloc/ */
/*
 * What libvarve-torch.so and libvarve-replace.so are made of: one allocator per device, opened when the
 * device is first used and never closed, since programs free in destructors that run when the driver has
 * gone.
 *
 *   entry.cc, error.cc      what PyTorch calls, and what throws
 *   frontend/replace/replace.c                      what cudaMalloc becomes
 *      └─► requests.c, pools.c, oom.c
 *   answers.c, snapshot.c   what the Python shim asks
 *      └─► state.c                the table of devices; opening
 *            └─► setup.c          environment and settings
 *            └─► device.c         a device, what it is called, why it failed
 *            └─► record.c, history.c
 */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_STATE_H
#define VARVE_ALLOC_FRONTEND_TORCH_STATE_H

#include "alloc/core/allocator.h"
#include "alloc/frontend/torch/entry.h"
#include "alloc/frontend/torch/torch.h"

/* ---- history.c: the last events of a device, for snapshots ---- */

/* Guarded by the allocator's lock. A ring once it has reached its limit: `start` is the oldest then. */
struct torch_history {
    struct varve_torch_event *events;
    uint64_t count, capacity, start;
    uint64_t limit; /* 0: nothing is kept */
    /* What the numbers of the newest event mean: mostly those of the next one as well. */
    struct {
        bool is_known;
        uint16_t pool, stream;
        uint64_t handle;
        struct varve_pool_id id;
    } recent;
};

void torch_history_add(struct torch_history *history, struct varve_alloc *alloc,
                       const struct varve_record *record);
/// Forget what was kept, and keep so many from now on.
void torch_history_begin(struct torch_history *history, uint64_t limit);
/// Oldest first, `count` of them.
void torch_history_copy(const struct torch_history *history, struct varve_torch_event *events_out);

/* ---- devices ---- */

struct torch_device {
    int ordinal;
    uint32_t forks;   /* when it was opened: a fork child can do nothing with it */
    bool is_recorded; /* into a trace */
    bool has_sites;   /* so far a request had a call site; atomic, written with the allocator's lock */
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct torch_history history;
    struct torch_device *next_gone; /* of those that were reset */
};

enum torch_device_kind {
    TORCH_DEVICE_CUDA,
    TORCH_DEVICE_HOST,
    TORCH_DEVICE_SIM,
};

/* ---- setup.c ---- */

/* What a library is, told before anything else is called. */
struct torch_plan {
    const char *prefix; /* of its environment variables */
    const char *config; /* variable with the configuration; NULL: PyTorch's own */
    unsigned records;   /* enum varve_records: what a session must want for a trace of the decisions */
    void (*oom)(void *context,
                const struct varve_alloc_oom *oom); /* NULL; context: the struct torch_device */
};

extern const struct torch_plan torch_plan_pytorch;

/* What devices are opened with. */
struct torch_setup {
    enum torch_device_kind kind;
    uint64_t limit_bytes; /* 0: none */
    char policy[32];
    struct varve_alloc_config config;
};

/// From the environment. Errors: VARVE_ERROR_INVALID.
int torch_setup_read(const struct torch_plan *plan, struct torch_setup *setup_out,
                     struct varve_message *message);
/// May an allocator on that device have it? Errors: VARVE_ERROR_UNSUPPORTED.
int torch_setup_check(const struct varve_alloc_config *config, const struct varve_device *device,
                      struct varve_message *message);
const char *torch_device_kind_name(enum torch_device_kind kind);

/* ---- state.c ---- */

/// For a library that is not PyTorch's; before anything else.
void torch_begin(const struct torch_plan *plan);
/// The device, opened if it is new. Errors: VARVE_ERROR_INVALID (no such number, the configuration),
/// UNSUPPORTED (a fork child), those of varve_cuda_open and varve_alloc_open.
int torch_device_get(int ordinal, struct torch_device **device_out, struct varve_message *message);
/// The device if it is open and of use in this process, else NULL.
struct torch_device *torch_device_find(int ordinal);
/// The first of those behind `ordinal` (-1: of all); NULL at the end.
struct torch_device *torch_device_after(int ordinal);
/// The device was reset: what it had is gone, and the next request opens it anew. What this process knew of
/// it is not freed, since other threads may be at it.
void torch_device_forget(int ordinal);
/// Everything that is there belongs to a parent.
bool torch_is_inherited(void);
/// A copy, with the last change. Errors: those of torch_setup_read.
int torch_setup_get(struct torch_setup *setup_out, struct varve_message *message);
/// For devices that are open and those to come. Errors: VARVE_ERROR_UNSUPPORTED, with nothing changed.
int torch_setup_change(const struct varve_alloc_config *config, struct varve_message *message);
void torch_history_change(uint64_t limit, bool clear);
uint64_t torch_history_limit(void);
/// The calling thread's, for varve_torch_message.
struct varve_message *torch_message(void);

/* ---- device.c ---- */

/// Owner: the caller, by ops->close.
int torch_device_make(const struct torch_setup *setup, int ordinal, struct varve_device **device_out,
                      struct varve_message *message);
/// Tell the trace what it is, unless somebody has.
void torch_device_describe(enum torch_device_kind kind, struct varve_device *device);
/// Why its last call failed; "" if none has.
void torch_device_reason(const struct varve_device *device, struct varve_message *message_out);

/* ---- record.c ---- */

/* Call site of the request that the thread has under way; 0: none. */
extern __thread uint32_t torch_callsite __attribute__((tls_model("initial-exec")));

void torch_record(void *context, const struct varve_record *record);
/// With the allocator's lock: its decisions go to the trace, to the history, to both or nowhere.
void torch_record_route(struct torch_device *device);
/// The first call site of a device's request: from now on records carry one. Takes the allocator's lock.
void torch_record_sites(struct torch_device *device);

/// The request that is about to be made of a recorded device comes from there; 0: not known.
static inline void torch_callsite_set(struct torch_device *device, uint32_t callsite)
{
    torch_callsite = callsite;
    if (__builtin_expect(callsite != 0 && !__atomic_load_n(&device->has_sites, __ATOMIC_RELAXED), 0)) {
        torch_record_sites(device);
    }
}

/* ---- oom.c ---- */

void torch_oom_tell(void *context, const struct varve_alloc_oom *oom);

#endif
