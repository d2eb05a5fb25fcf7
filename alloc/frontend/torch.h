/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface of libvarve-torch.so: what PyTorch's CUDAPluggableAllocator calls, and what the Python shim
 * asks in place of the questions that the pluggable interface cannot pass on. One allocator per device serves
 * them, opened when the device is first used.
 *
 * Made for ctypes: plain C types only, flags are uint32_t (0 or 1), devices are CUDA's ordinals in this
 * process, streams are handles. Functions that return int return 0 or a negative enum varve_error and leave a
 * line in varve_torch_message(). Only what PyTorch calls, of torch_entry.cc and torch_methods.cc, throws. Threads: any.
 *
 * Environment, read at the first use:
 *   PYTORCH_CUDA_ALLOC_CONF, PYTORCH_ALLOC_CONF   as PyTorch reads them
 *   VARVE_TORCH_POLICY    name of a policy; default pytorch
 *   VARVE_TORCH_DEVICE    cuda (default), host or sim: for tests
 *   VARVE_TORCH_LIMIT     bytes that a device has; 0 or unset: its own
 */
#ifndef VARVE_ALLOC_FRONTEND_TORCH_H
#define VARVE_ALLOC_FRONTEND_TORCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TORCH_API __attribute__((visibility("default")))

#define VARVE_TORCH_INTERFACE_VERSION 1
#define VARVE_TORCH_DEVICES 64 /* ordinals are smaller */
#define VARVE_TORCH_DIVISIONS 16

/* What PyTorch calls */

/// CUDAPluggableAllocator's alloc_fn. 0 bytes give NULL. When there is no memory it throws
/// c10::OutOfMemoryError (torch.OutOfMemoryError), or std::runtime_error where c10 can't be found; for other
/// errors std::runtime_error.
TORCH_API void *varve_torch_alloc(size_t bytes, int device, void *stream);
/// Its free_fn. NULL, unknown addresses and fork children: nothing happens.
TORCH_API void varve_torch_free(void *addr, size_t bytes, int device, void *stream);

/* For set_init_fn, set_reset_fn, set_memory_fraction_fn, set_base_alloc_fn, set_record_stream_fn. */
TORCH_API void varve_torch_init(int device_count);
TORCH_API void varve_torch_reset(void); /* empty_cache of all devices */
TORCH_API void varve_torch_memory_fraction(double fraction, int device);
TORCH_API void *varve_torch_base_alloc(void *addr, size_t *bytes_out); /* `addr` itself if it is not ours */
TORCH_API void varve_torch_record_stream(void *addr, void *stream);

/// What the C++ method cacheInfo(DeviceIndex, size_t *) of PyTorch's allocators does, for the slot of that
/// name in the table of virtual functions, since it has no hook: `self` is not looked at. `*largest` becomes
/// at least the largest cached block; 0 asks for the device's free memory as well. Unchanged after an error.
TORCH_API void varve_torch_cache_info_method(void *self, int8_t device, size_t *largest);

/* For set_begin_allocate_to_pool, set_end_allocate_to_pool_fn, set_release_pool, which pass C++ types by
 * value. Only their addresses matter to C and Python: void varve_torch_begin_allocate_to_pool(int,
 * std::pair<uint64_t, uint64_t>, std::function<bool(cudaStream_t)>); void
 * varve_torch_end_allocate_to_pool(int, std::pair<uint64_t, uint64_t>); void varve_torch_release_pool(int,
 * std::pair<uint64_t, uint64_t>). So it is with the other varve_torch_…_method (torch_methods.cc). */

/* What the shim asks: errors and state */

TORCH_API uint32_t varve_torch_interface_version(void);
/// Why the calling thread's last call failed; "" if none has. Valid until its next call.
TORCH_API const char *varve_torch_message(void);
/// The name that a virtual function of PyTorch's allocators gives itself when it refuses to answer: "… does not
/// yet support NAME". `functions`: the table of functions of its class. 1, or 0 if it is not such a one: it was
/// called then, with arguments that mean nothing.
TORCH_API int varve_torch_refusal(void *function, void *const *functions, char *name_out, size_t size);
/// The count that varve_torch_init was called with, 0 before.
TORCH_API int varve_torch_device_count(void);
/// 1 if the device's allocator exists: something was allocated there, or asked for by varve_torch_open.
TORCH_API int varve_torch_is_open(int device);
/// Open it now. Errors: those of the device and of the configuration.
TORCH_API int varve_torch_open(int device);
/// 1 if decisions are recorded into a trace.
TORCH_API int varve_torch_is_recording(void);

/* Statistics */

/// Every figure of torch.cuda.memory_stats under its flat key ("allocation.all.current", "num_ooms", …), in
/// order of the keys; zeros for a device that was not used yet.
TORCH_API int varve_torch_stats(int device, void (*take)(void *context, const char *key, int64_t value), void *context);
/// The four that programs ask for all the time: bytes allocated, its peak, reserved, its peak.
TORCH_API int varve_torch_memory(int device, int64_t figures_out[4]);
TORCH_API int varve_torch_reset_peak_stats(int device);
TORCH_API int varve_torch_reset_accumulated_stats(int device);
TORCH_API int varve_torch_set_memory_fraction(int device, double fraction); /* 0 < fraction <= 1 */
TORCH_API double varve_torch_get_memory_fraction(int device);
/// cacheInfo: the largest block that might be had.
TORCH_API int varve_torch_cache_info(int device, uint64_t *largest_out);
/// Unused segments go back: of `device` (-1: all), of one private pool, or {0, 0}: of the default pool and
/// the private pools without a reference.
TORCH_API int varve_torch_empty_cache(int device, uint64_t pool_capture, uint64_t pool_user);

/* Private pools: what torch.cuda.MemPool needs beyond begin, end and release */

/// createOrIncrefPool: one reference more; varve_torch_drop_pool drops it.
TORCH_API int varve_torch_take_pool(int device, uint64_t pool_capture, uint64_t pool_user);
TORCH_API int varve_torch_drop_pool(int device, uint64_t pool_capture, uint64_t pool_user);
TORCH_API int varve_torch_set_use_on_oom(int device, uint64_t pool_capture, uint64_t pool_user, uint32_t is_used);
TORCH_API int varve_torch_set_no_split(int device, uint64_t pool_capture, uint64_t pool_user);
/// References to the pool, 0 if there is no such pool; negative: an error.
TORCH_API int varve_torch_pool_use_count(int device, uint64_t pool_capture, uint64_t pool_user);

/* Out of memory */

/// Called after a request has failed, no lock held, in the thread that asked, before the error is thrown,
/// with PyTorch's arguments: the segment that was wanted, the limit (else the total) of the device, what it
/// has free. At most 8 observers: VARVE_ERROR_FULL.
typedef void (*varve_torch_oom_observer)(void *context, int device, uint64_t alloc_bytes, uint64_t device_total,
                                         uint64_t device_free);
TORCH_API int varve_torch_add_oom_observer(varve_torch_oom_observer observer, void *context);
TORCH_API int varve_torch_remove_oom_observer(varve_torch_oom_observer observer, void *context);

/* Snapshot */

enum varve_torch_block_state {
    VARVE_TORCH_INACTIVE = 0,            /* "inactive" */
    VARVE_TORCH_ACTIVE_ALLOCATED = 1,    /* "active_allocated" */
    VARVE_TORCH_ACTIVE_PENDING_FREE = 2, /* "active_pending_free" */
};

struct varve_torch_block {
    uint64_t addr, bytes, requested;
    uint64_t allocation_id; /* counts the device's allocations; 0 for inactive blocks */
    uint32_t state;         /* enum varve_torch_block_state */
    uint32_t reserved;
};

struct varve_torch_segment {
    uint64_t addr, bytes;
    uint64_t allocated, active, requested; /* bytes; allocated_size, active_size, requested_size */
    uint64_t stream;
    uint64_t pool_capture, pool_user;  /* segment_pool_id; {0, 0}: the default pool */
    uint64_t first_block, block_count; /* in the snapshot's blocks, by address */
    int32_t device;
    uint32_t segment_id;
    uint32_t is_small; /* segment_type: "small" or "large" */
    uint32_t is_expandable;
};

enum varve_torch_action {
    VARVE_TORCH_ALLOC = 0,          /* "alloc" */
    VARVE_TORCH_FREE_REQUESTED = 1, /* "free_requested" */
    VARVE_TORCH_FREE_COMPLETED = 2, /* "free_completed" */
    VARVE_TORCH_SEGMENT_ALLOC = 3,  /* "segment_alloc" */
    VARVE_TORCH_SEGMENT_FREE = 4,   /* "segment_free" */
    VARVE_TORCH_SEGMENT_MAP = 5,    /* "segment_map" */
    VARVE_TORCH_SEGMENT_UNMAP = 6,  /* "segment_unmap" */
    VARVE_TORCH_OOM = 7,            /* "oom": addr is what the device had free ("device_free") */
    VARVE_TORCH_SNAPSHOT = 8,       /* "snapshot": one was taken, of so many active bytes */
};

/* An entry of device_traces, oldest first. */
struct varve_torch_event {
    uint64_t addr, bytes;
    uint64_t stream;
    uint64_t pool_capture, pool_user;
    int64_t time_us; /* of CLOCK_REALTIME since 1970 */
    int32_t device;
    uint32_t action; /* enum varve_torch_action */
};

struct varve_torch_snapshot {
    const struct varve_torch_segment *segments; /* by device and address */
    const struct varve_torch_block *blocks;
    const struct varve_torch_event *events; /* by device and time; empty unless a history was asked for */
    uint64_t segment_count, block_count, event_count;
};

/// Of `device`, -1: of all. Owner: the caller, by varve_torch_snapshot_free, which must be called exactly
/// once after a success.
TORCH_API int varve_torch_take_snapshot(int device, struct varve_torch_snapshot *snapshot_out);
TORCH_API void varve_torch_snapshot_free(struct varve_torch_snapshot *snapshot);

/// Keep the last `max_entries` events of each device for snapshots (0: none, what was kept goes). A change of
/// the number forgets what was kept; `clear` 1: so does a call with the same number.
TORCH_API int varve_torch_history(uint64_t max_entries, int clear);
TORCH_API int varve_torch_history_is_on(void);
/// What PyTorch itself has kept of its own allocator, as its snapshot, a pickle, into this file. 1: this PyTorch has no
/// such function, or it throws. Errors, without a line: VARVE_ERROR_IO. Not with the interpreter's lock, which PyTorch
/// takes.
TORCH_API int varve_torch_write_history(const char *path);

/* Settings: allocator_settings of a snapshot */

struct varve_torch_settings {
    char text[1024]; /* PYTORCH_CUDA_ALLOC_CONF as it was parsed */
    char policy[32];
    char device[32];         /* cuda, host or sim */
    uint64_t max_split_size; /* bytes; UINT64_MAX: unlimited (PyTorch's -1) */
    uint64_t max_non_split_rounding_size;
    uint64_t large_segment_size;
    uint64_t roundup_power2_divisions[VARVE_TORCH_DIVISIONS]; /* entry i: sizes from 2^(20+i); 0: off */
    double garbage_collection_threshold;
    double memory_fraction; /* at the opening of a device */
    uint32_t expandable_segments;
    uint32_t release_lock_on_cudamalloc;
    uint32_t graph_capture_record_stream_reuse;
    uint32_t reserved;
};

/// Errors: VARVE_ERROR_INVALID if the environment's configuration can't be parsed.
TORCH_API int varve_torch_get_settings(struct varve_torch_settings *settings_out);
/// _set_allocator_settings: PyTorch's syntax, over the defaults; for devices that are open too.
TORCH_API int varve_torch_set_settings(const char *text);

#ifdef __cplusplus
}
#endif

#endif
