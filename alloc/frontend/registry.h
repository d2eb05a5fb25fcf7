/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of a front end, one allocator each, opened when the device is first used; and the
 * configuration that they are opened with. Called by torch_*.c and replace_malloc.c.
 */
#ifndef VARVE_ALLOC_FRONTEND_REGISTRY_H
#define VARVE_ALLOC_FRONTEND_REGISTRY_H

#include "alloc/alloc.h"
#include "alloc/frontend/registry_config.h"

/*
 * The last events of a device, for the snapshots of torch.cuda.memory._snapshot(): what
 * _record_memory_history turns on. A ring that grows up to its limit. Guarded by the allocator's lock.
 */

struct history_event {
    uint64_t addr; /* of an OOM: what the device had free */
    uint64_t bytes;
    uint64_t stream;
    struct varve_pool_id pool;
    int64_t time_us;      /* of CLOCK_REALTIME since 1970 */
    enum varve_kind kind; /* VARVE_KIND_NONE: a snapshot was taken, `bytes` were active */
};

struct history {
    struct history_event *events;
    uint64_t count, capacity;
    uint64_t start; /* the oldest, once the ring has reached its limit */
    uint64_t limit; /* 0: nothing is kept */
    /* What the numbers of the newest event mean: mostly those of the next one as well. */
    struct {
        bool is_known;
        uint16_t pool_number, stream_number;
        uint64_t stream;
        struct varve_pool_id pool;
    } recent;
};

/// Keep what PyTorch's history has of it: allocations, frees, segments and failures.
void history_add(struct history *history, struct varve_alloc *alloc, struct varve_device *device,
                 const struct varve_record *record);
/// A snapshot was taken when so many bytes were active: later ones have that, too.
void history_add_snapshot(struct history *history, uint64_t active_bytes);
/// Forget what was kept, and keep so many from now on.
void history_begin(struct history *history, uint64_t limit);
/// Event `i` of `count`, the oldest first.
const struct history_event *history_at(const struct history *history, uint64_t i);

/*
 * A device of a front end: the device itself, its allocator, and where that one's decisions go. Made by
 * registry.c and never freed, since programs free memory in destructors that run when the driver has gone.
 */

struct frontend_device {
    int ordinal;        /* CUDA's number in this process, and the device's index */
    uint32_t forks;     /* when it was opened: a fork child can do nothing with it */
    bool is_recorded;   /* into a trace */
    bool has_callsites; /* a request had a call site: atomic, written with the allocator's lock */
    bool is_shared;     /* other processes were given memory of it: atomic */
    struct varve_device *device;
    struct varve_alloc *alloc;
    struct varve_alloc_recorder recorder;
    struct history history;
    struct frontend_device *next_forgotten; /* of those that were reset */
};

/// Owner: the caller, by ops->close. Errors: those of varve_cuda_open.
int frontend_device_open(const struct frontend_config *config, int ordinal, struct varve_device **device_out,
                         struct varve_message *message);
/// Record name, UUID and memory of the device into the trace, unless that was done.
void frontend_device_describe(enum frontend_device_kind kind, struct varve_device *device);
/// One of CUDA's?
bool frontend_device_is_cuda(const struct varve_device *device);

#define REGISTRY_DEVICES 64 /* ordinals are smaller */

/* What a library is, given before anything else is called. */
struct frontend {
    const char *prefix;         /* of its environment variables */
    const char *alloc_variable; /* with the allocator's configuration; NULL: PyTorch's own */
    unsigned records;           /* enum varve_records: what a session must want for a trace of the decisions */
};

/// Before any other function here, of a library that is not PyTorch's; `frontend` must stay.
void registry_begin(const struct frontend *frontend);
/// The device, opened if it is new. Errors: VARVE_ERROR_INVALID (no such number, the configuration),
/// UNSUPPORTED (a fork child), those of varve_cuda_open and varve_alloc_open.
int registry_get(int ordinal, struct frontend_device **device_out, struct varve_message *message);
/// The device if it is open and of use in this process, else NULL.
struct frontend_device *registry_find(int ordinal);
/// The first open device behind `ordinal` (-1: of all); NULL at the end.
struct frontend_device *registry_next(int ordinal);
/// The device was reset: what it had is gone, and the next request opens it anew. What this process knew of
/// it is not freed, since other threads may be using it.
void registry_forget(int ordinal);
/// Everything that is open belongs to a parent process.
bool registry_is_inherited(void);
/// A copy, with the last change. Errors: those of frontend_config_read.
int registry_get_config(struct frontend_config *config_out, struct varve_message *message);
/// For devices that are open and those to come. Errors: VARVE_ERROR_UNSUPPORTED, with nothing changed.
int registry_set_config(const struct varve_alloc_config *config, struct varve_message *message);
/// Keep so many events of each device, 0: none; what was kept goes if that is a change, or on request.
void registry_set_history(uint64_t limit, bool clear);
uint64_t registry_history_limit(void);
/// Called after a request of any device has failed, with no lock held.
void registry_set_oom_observer(void (*observer)(const struct frontend_device *device,
                                                const struct varve_alloc_oom *oom));
/// The calling thread's own message: for errors of functions that have nowhere to put one.
struct varve_message *registry_message(void);

/*
 * Where the decisions of a device's allocator go: into the trace, with the call site of the request that made
 * them, and into the history that snapshots show.
 */

/* Call site of the request that the thread has under way; 0: none. */
extern __thread uint32_t frontend_callsite __attribute__((tls_model("initial-exec")));

/// The device's recorder, before its allocator is opened.
struct varve_alloc_recorder frontend_recorder_of(struct frontend_device *device);
/// With the allocator's lock: its decisions go to the trace, to the history, to both or nowhere.
void frontend_recorder_route(struct frontend_device *device);
/// The first call site of a device's request: from now on records carry one. Takes the allocator's lock.
void frontend_recorder_begin_callsites(struct frontend_device *device);

/// The request that is about to be made of a recorded device comes from there; 0: not known.
static inline void frontend_callsite_set(struct frontend_device *device, uint32_t callsite)
{
    frontend_callsite = callsite;
    if (__builtin_expect(callsite != 0 && !__atomic_load_n(&device->has_callsites, __ATOMIC_RELAXED), 0)) {
        frontend_recorder_begin_callsites(device);
    }
}

#endif
