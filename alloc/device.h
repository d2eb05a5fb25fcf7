/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an allocator wants from a device, as a table of operations; part of alloc.h. Three devices fill it:
 * `sim` (addresses only: scripted capacity, faults, bases, completions, a virtual clock), `host` (real memory
 * of this machine within a byte limit, real threads) and `cuda`. The operations are those of the CUDA driver:
 * cuMemAlloc/cuMemFree, cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap, cuMemRelease,
 * cuMemAddressFree, cuStreamSynchronize, cuEvent*, cuMemAllocFromPoolAsync/cuMemFreeAsync, cuMemPoolTrimTo,
 * cuStreamCreate/cuStreamDestroy, cuMemcpyAsync, cuMemcpy2DAsync, cuMemset*Async, cuMemHostAlloc/cuMemFreeHost,
 * cuModuleLoadData, cuModuleGetFunction, cuLaunchKernel, cuMemGetInfo, cuDeviceCanAccessPeer, cuIpc*.
 *
 * Every operation returns 0 or a negative enum varve_error. VARVE_ERROR_NO_MEMORY means that the device has
 * not enough memory and that a smaller request, or a later one, may succeed; any other error is fatal to the
 * request. Sizes are bytes, addresses integers of the device's address space, streams the driver's handles as
 * integers (0: the default stream). Threads: an allocator calls with its lock held, but for segment_alloc
 * under release_lock_on_cudamalloc; so a device that serves several allocators, or one with that option,
 * locks for itself. No operation may call the allocator back while the lock is held.
 */
#ifndef VARVE_ALLOC_DEVICE_H
#define VARVE_ALLOC_DEVICE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_IPC_HANDLE_BYTES 64

struct varve_ipc_handle {
    unsigned char bytes[VARVE_IPC_HANDLE_BYTES];
};

/* Which segment a reservation of addresses is for. A real device does not care; a scripted one does. */
struct varve_device_reservation {
    uint64_t stream;
    uint64_t pool_id[2]; /* {0, 0}: the default pool */
    bool is_small;
};

/* Where the two ends of a copy lie. The device's is memory that this device has handed out, which is checked. A
 * peer's is memory of another device of the same kind: the driver knows from its address which one. */
enum varve_copy_direction {
    VARVE_COPY_WITHIN, /* both ends in the device */
    VARVE_COPY_HOST_TO_DEVICE,
    VARVE_COPY_DEVICE_TO_HOST,
    VARVE_COPY_PEER_TO_DEVICE,
    VARVE_COPY_DEVICE_TO_PEER,
    VARVE_COPY_DIRECTION_LIMIT,
};

/* Rows of bytes. A pitch is the distance of one row's first byte from that of the next, row_bytes at least where
 * there is more than one row; what lies between two rows is neither read nor written. */
struct varve_copy_2d {
    enum varve_copy_direction direction;
    uint64_t target_addr, target_pitch;
    uint64_t source_addr, source_pitch;
    uint64_t row_bytes, rows;
};

/* How a function of a program runs: so many blocks of so many threads. */
struct varve_launch {
    unsigned blocks[3], threads[3]; /* 1 where an axis is not used */
    unsigned shared_bytes;          /* of each block, beside what the function declares itself */
    void **arguments;               /* the address of each; read before the call returns */
};

struct varve_device;

struct varve_device_ops {
    const char *name;

    /* Memory at an address of the device's choice. `stream` is for accounting. */
    int (*segment_alloc)(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
    int (*segment_free)(struct varve_device *device, uint64_t addr, uint64_t bytes);

    /* Virtual memory. NULL vmm_reserve: the device has none. Sizes and addresses of mappings are multiples of
     * vmm_granularity; 0: any. */
    uint64_t vmm_granularity;
    int (*vmm_reserve)(struct varve_device *device, uint64_t bytes, const struct varve_device_reservation *reservation,
                       uint64_t *addr_out);
    int (*vmm_create)(struct varve_device *device, uint64_t bytes, uint64_t *handle_out);
    int (*vmm_map)(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t handle);
    /* For device `peer`, an index; the device's own for itself. The range is made of whole mappings, as is
     * that of vmm_unmap. A handle released with mappings is gone with the last of them. */
    int (*vmm_set_access)(struct varve_device *device, uint64_t addr, uint64_t bytes, int peer);
    int (*vmm_unmap)(struct varve_device *device, uint64_t addr, uint64_t bytes);
    int (*vmm_release)(struct varve_device *device, uint64_t handle, uint64_t bytes);
    int (*vmm_address_free)(struct varve_device *device, uint64_t addr, uint64_t bytes);

    /* Streams and events; stream_wait_event and stream_create are below. event_query returns 1 if everything
     * before the record has completed, 0 if not. */
    int (*stream_synchronize)(struct varve_device *device, uint64_t stream);
    int (*event_create)(struct varve_device *device, uint64_t *event_out);
    int (*event_destroy)(struct varve_device *device, uint64_t event);
    int (*event_record)(struct varve_device *device, uint64_t event, uint64_t stream);
    int (*event_query)(struct varve_device *device, uint64_t event);
    int (*event_synchronize)(struct varve_device *device, uint64_t event);

    /* A pool of the device's own, in whose memory the order of a stream's work takes the place of waiting.
     * All four or none; NULL alloc_async: the device has none. `addr` is good for work that is given to
     * `stream` from now on; free_async gives it back behind the work that `stream` has by then. What the pool
     * holds unused it keeps until pool_trim, which gives back all but `keep_bytes`, as far as streams are
     * done with it. VARVE_ERROR_BUSY: the stream is being captured. */
    int (*alloc_async)(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out);
    int (*free_async)(struct varve_device *device, uint64_t addr, uint64_t bytes, uint64_t stream);
    /* A stream of the device's own, made when it is first asked for and there until the device closes. No
     * program's work is on it, nor does any wait for it: what it waits for holds up nobody. */
    int (*join_stream)(struct varve_device *device, uint64_t *stream_out);
    int (*pool_trim)(struct varve_device *device, uint64_t keep_bytes);

    /* Work given to `stream` from now on comes after the event's last record of now. There where alloc_async or
     * copy is. */
    int (*stream_wait_event)(struct varve_device *device, uint64_t stream, uint64_t event);

    /* ---- Transfers: all seven entries below or none. NULL copy: the device has none of them; whoever is handed a
     * device looks before the first use. Threads: any. ----
     *
     * A stream of the caller's own, ordered neither with the default one nor with any other. Its handle is good
     * for all operations that take a stream. Destroyed, it takes no more work, and what it has is still done;
     * the device's close destroys those that are left. Errors: VARVE_ERROR_NO_MEMORY; stream_destroy: NOT_FOUND
     * (not of stream_create), BUSY (the stream is being captured). */
    int (*stream_create)(struct varve_device *device, uint64_t *stream_out);
    int (*stream_destroy)(struct varve_device *device, uint64_t stream);

    /* Copy bytes, and set `count` elements of `pattern_bytes` bytes (1, 2, 4 or 8) to the lowest bytes of
     * `pattern`, as work on `stream`: behind what it has by now, in front of what it is given later. Addresses of
     * host memory are those of this process.
     *
     * Checked at once: a range in the device lies in one segment, import or allocation of the pool, or in
     * mappings of one reservation to which the device itself was given access; or, cuda, in memory of the same GPU
     * that others have got from the driver, of which is known what the driver says. `addr` of a fill is a multiple of
     * pattern_bytes. What is read and what is written have no address in common; of rows with different pitches,
     * neither have the ranges from the first byte to the last. Memory that is mapped at two addresses is not
     * recognized. Of 0 bytes nothing is checked.
     *
     * By the time that the call returns,
     *   cuda  has enqueued the work. Both ends stay as they are until it is done (event_record, event_query). Only
     *         pinned host memory is sure to be copied while the program goes on; else the call may wait. On a
     *         stream under capture the work becomes a part of the graph. Between devices that can't reach each
     *         other's memory the driver copies by way of the host; memory that is virtual or of a pool needs
     *         peer_enable before.
     *   host  has done the work; or, where the stream is held back (varve_host_stream_block), has queued it.
     *         Freeing memory of the device or of host_alloc that it uses then waits for it, as the driver does;
     *         vmm_unmap, before which streams are to be synchronized, is VARVE_ERROR_BUSY.
     *   sim   has moved its clock on.
     *
     * Errors: VARVE_ERROR_INVALID (sizes, pitches, alignment, overlap; a range that ends behind its memory, or in
     * which something is not mapped or without access), NOT_FOUND (no memory of the device begins there; the
     * stream was destroyed), NO_MEMORY (of the queue), BUSY (cuda: the default stream, while one is captured that
     * it would wait for), IO. After an error of the driver a part may have been written, after others nothing. */
    int (*copy)(struct varve_device *device, uint64_t target_addr, uint64_t source_addr, uint64_t bytes,
                enum varve_copy_direction direction, uint64_t stream);
    int (*copy_2d)(struct varve_device *device, const struct varve_copy_2d *copy, uint64_t stream);
    /* Patterns of 8 bytes whose halves differ take cuda two passes, one for each half. */
    int (*fill)(struct varve_device *device, uint64_t addr, uint64_t pattern, unsigned pattern_bytes, uint64_t count,
                uint64_t stream);

    /* Host memory that the device can copy from and to by itself (cuda: pinned, and known to every CUDA device;
     * sim and host: plain memory), at a multiple of 256 bytes, not zeroed. It counts for no limit. It goes back
     * after the work that uses it; the device's close frees what is left. Errors: VARVE_ERROR_INVALID (0 bytes),
     * NO_MEMORY; host_free: NOT_FOUND (nothing of host_alloc begins there). */
    int (*host_alloc)(struct varve_device *device, uint64_t bytes, uint64_t *addr_out);
    int (*host_free)(struct varve_device *device, uint64_t addr);

    /* ---- Programs that run on the device ----
     *
     * All four entries or none. NULL program_load: it has none. Threads: any.
     *
     * `image` is what the device's compiler has made (cuda: a fat binary, a cubin, or PTX with a NUL at its end); it is
     * read by program_load alone. What is not unloaded stays until the device closes; unloaded, once its
     * launches are done.
     * Errors: VARVE_ERROR_UNSUPPORTED (nothing in the image is for this GPU), INVALID, NO_MEMORY;
     * program_unload: NOT_FOUND. */
    int (*program_load)(struct varve_device *device, const void *image, uint64_t *program_out);
    int (*program_unload)(struct varve_device *device, uint64_t program);
    /* A function of a program by its name; good as long as the program. Errors: VARVE_ERROR_UNSUPPORTED
     * (there is none). */
    int (*program_find)(struct varve_device *device, uint64_t program, const char *name, uint64_t *function_out);
    /* Enqueue one run of a function on `stream`, as a copy is. What it reads and writes is not checked. Errors:
     * VARVE_ERROR_INVALID (sizes that the GPU has not), NOT_FOUND (the stream was destroyed), BUSY (as copy), IO. */
    int (*launch)(struct varve_device *device, uint64_t function, const struct varve_launch *launch, uint64_t stream);

    int (*memory_info)(struct varve_device *device, uint64_t *free_out, uint64_t *total_out);

    /* Peers and other processes. NULL: the device has none. */
    int (*peer_enable)(struct varve_device *device, int peer);
    int (*ipc_export)(struct varve_device *device, uint64_t addr, struct varve_ipc_handle *handle_out);
    int (*ipc_open)(struct varve_device *device, const struct varve_ipc_handle *handle, uint64_t *addr_out);
    int (*ipc_close)(struct varve_device *device, uint64_t addr);

    /* Physical memory for other processes, as descriptors of files: all three or none. NULL: the device gives none, as
     * one that was not opened to share. vmm_export: the descriptor is the device's, and closed when the handle is
     * released. vmm_import: a handle as of vmm_create, of memory that another process has exported with that size; `fd`
     * stays the caller's. synchronize waits for all work that the device has by now. */
    int (*vmm_export)(struct varve_device *device, uint64_t handle, int *fd_out);
    int (*vmm_import)(struct varve_device *device, int fd, uint64_t bytes, uint64_t *handle_out);
    int (*synchronize)(struct varve_device *device);

    /* Why the last call that failed did so, in one line; "" if none has failed. */
    void (*reason)(const struct varve_device *device, struct varve_message *message_out);

    /* Everything the device holds goes; no allocator may use it any more. */
    void (*close)(struct varve_device *device);
};

/* The head of every device's own structure. */
struct varve_device {
    const struct varve_device_ops *ops;
    int index; /* as records carry it, 0…255 */
};

/* ---- sim: addresses only ----
 *
 * Its pool of stream-ordered memory is an ideal one: what is free in it serves any request, so it grows by
 * 2 MiB steps only when all of it is in use, and frees take effect at once. A driver's pool needs more.
 */

/* Operations that a script can make fail. */
enum varve_device_call {
    VARVE_DEVICE_SEGMENT_ALLOC,
    VARVE_DEVICE_SEGMENT_FREE,
    VARVE_DEVICE_VMM_RESERVE,
    VARVE_DEVICE_VMM_CREATE,
    VARVE_DEVICE_VMM_MAP,
    VARVE_DEVICE_VMM_SET_ACCESS,
    VARVE_DEVICE_VMM_UNMAP,
    VARVE_DEVICE_VMM_RELEASE,
    VARVE_DEVICE_EVENT_RECORD,
    VARVE_DEVICE_EVENT_QUERY,
    VARVE_DEVICE_ALLOC_ASYNC,
    VARVE_DEVICE_FREE_ASYNC,
    VARVE_DEVICE_STREAM_WAIT_EVENT,
    VARVE_DEVICE_POOL_TRIM,
    VARVE_DEVICE_STREAM_CREATE,
    VARVE_DEVICE_COPY, /* also of rows */
    VARVE_DEVICE_FILL,
    VARVE_DEVICE_HOST_ALLOC,
    VARVE_DEVICE_CALL_LIMIT,
};

/* Where the next segment or reservation begins; returns 0 or an error, which the call then returns. Called
 * with the device's lock held, after the capacity is known to do; it may ask the device, not allocate there.
 */
typedef int (*varve_sim_address)(void *context, uint64_t bytes, uint64_t stream,
                                 const struct varve_device_reservation *reservation, uint64_t *addr_out);

struct varve_sim_options {
    int index;
    uint64_t capacity_bytes;  /* physical memory; 0: without limit */
    uint64_t total_bytes;     /* what memory_info reports as total; 0: capacity_bytes, or 80 GiB */
    uint64_t first_addr;      /* bases without a script count up from here; 0: 0x7f0000000000 */
    uint64_t alignment;       /* of those bases; 0: 2 MiB */
    bool has_latency;         /* calls advance the virtual clock by their measured costs */
    bool events_are_scripted; /* events complete by varve_sim_event_complete only; else at once */
    bool reuses_addresses;    /* bases without a script: the lowest free ones; else freed ones never again */
    bool places_as_cuda; /* segments without a script: where the CUDA driver puts them (device/sim_places.c); and its
                                 pool reserves what the driver's would (device/sim_pool.c) */
    varve_sim_address segment_address;     /* NULL: count up. `reservation` is NULL there */
    varve_sim_address reservation_address; /* NULL: count up */
    int (*grant)(void *context); /* asked, under the lock, for each unit of memory to map; NULL: all are granted */
    void *address_context;
};

/// Owner of the result: the caller, by ops->close. Errors: VARVE_ERROR_INVALID, NO_MEMORY.
int varve_sim_open(const struct varve_sim_options *options, struct varve_device **device_out,
                   struct varve_message *message);
/// Let the `nth` call (1: the next) of `call` from now on return `error`, and `count - 1` calls after it.
/// At most 64 such rules wait at a time.
int varve_sim_fail(struct varve_device *device, enum varve_device_call call, uint64_t nth, uint64_t count, int error);
/// Complete one recorded event; VARVE_ERROR_NOT_FOUND if it is not pending.
int varve_sim_event_complete(struct varve_device *device, uint64_t event);
/// Complete all that were recorded on `stream` before now.
int varve_sim_stream_complete(struct varve_device *device, uint64_t stream);
uint64_t varve_sim_clock_ns(const struct varve_device *device);
void varve_sim_clock_advance(struct varve_device *device, uint64_t ns);
/// Calls made so far, and bytes in use now.
uint64_t varve_sim_calls(const struct varve_device *device, enum varve_device_call call);
uint64_t varve_sim_used(const struct varve_device *device);
/// The most that was ever in use, what its pool holds unused included.
uint64_t varve_sim_used_peak(const struct varve_device *device);
/// Every address range, handle and event is accounted for; VARVE_ERROR_CORRUPT with the reason.
int varve_sim_check(const struct varve_device *device, struct varve_message *message);

/* ---- host: memory of this machine ---- */

struct varve_host_options {
    int index;
    uint64_t limit_bytes; /* 0: a quarter of the machine's memory */
};

/// Segments and handles are parts of one memfd, mapped so that other processes can open segments; a fork
/// child inherits none of it (VARVE_ERROR_UNSUPPORTED) and opens a device of its own. Streams run in order
/// and at once, so copies and fills are done when their call returns and an event is complete when it is recorded,
/// unless varve_host_stream_block holds their stream back, or a stream that theirs waits for (stream_wait_event).
int varve_host_open(const struct varve_host_options *options, struct varve_device **device_out,
                    struct varve_message *message);
/// Copies and fills given to `stream` from now on are queued, and events recorded on it stay incomplete, until
/// varve_host_stream_release. That call does the work, in the order in which it was given, also of streams that
/// waited for this one. What is queued when the device closes is never done. Threads: any. Errors:
/// VARVE_ERROR_INVALID (blocked already; not blocked), NO_MEMORY.
int varve_host_stream_block(struct varve_device *device, uint64_t stream);
int varve_host_stream_release(struct varve_device *device, uint64_t stream);
/// As varve_sim_check, while no free waits.
int varve_host_check(const struct varve_device *device, struct varve_message *message);

/* ---- cuda: memory of an NVIDIA GPU ---- */

struct varve_cuda_options {
    int index;            /* as records carry it; the device with index + n is CUDA device ordinal + n */
    int ordinal;          /* CUDA's number of the device in this process */
    uint64_t limit_bytes; /* 0: what the device has */
    bool shares;          /* physical memory can be exported as file descriptors, where the GPU can */
};

/// The driver is found at run time. Memory is that of the device's primary context, so code on the run-time
/// API (PyTorch) can use it; the context that a calling thread has is left as it is. Operations may be called
/// while streams are being captured and do them no harm, but a stream that is captured can't be waited for
/// and takes no events: VARVE_ERROR_BUSY. Once the driver has shut down, at exit, giving things back is no
/// error and the rest is VARVE_ERROR_UNSUPPORTED; so it is after a reset of the GPU, if the device is closed
/// before anybody uses the GPU again. In a fork child everything is VARVE_ERROR_UNSUPPORTED.
/// A handle of ipc_export is good for the life of its segment. ipc_open gives the same address for the same
/// handle; for one of the same device object, which CUDA would refuse, that of the segment itself, without a
/// mapping. It must be closed before the exporter frees the segment.
/// Threads: any, of this function and of all operations. Errors: VARVE_ERROR_UNSUPPORTED (no driver, no
/// device, too old), PERMISSION, NOT_FOUND (no such device), INVALID, NO_MEMORY, BUSY (another process has
/// the device for itself).
int varve_cuda_open(const struct varve_cuda_options *options, struct varve_device **device_out,
                    struct varve_message *message);
/// UUID and name of CUDA's device; zeros and "" where the driver does not say.
void varve_cuda_identify(int ordinal, unsigned char uuid_out[16], char *name_out, size_t name_bytes);
/// CUDA's number of the device in this process, which its index need not be.
int varve_cuda_ordinal(const struct varve_device *device);
/// Is the device's primary context the calling thread's current one?
bool varve_cuda_is_current(const struct varve_device *device);
/// Make it so, and put back what was current before, as cuCtxPushCurrent and cuCtxPopCurrent do. Returns
/// CUDA's result, 0 for success; after any other, no pop.
int varve_cuda_push(const struct varve_device *device);
void varve_cuda_pop(const struct varve_device *device);
/// As varve_sim_check, while no operation is under way.
int varve_cuda_check(const struct varve_device *device, struct varve_message *message);

#ifdef __cplusplus
}
#endif

#endif
