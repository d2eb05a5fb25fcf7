/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder inside libvarve-cupti.so. All of it runs in the recorded program: in the thread that
 * initializes the driver, in threads that call it, in CUPTI's own worker thread, and in exit handlers.
 * Nothing here waits for another thread, and nothing is held while CUPTI or the driver is called.
 */
#ifndef VARVE_TRACE_RECORDER_CUPTI_CUPTI_RECORDER_H
#define VARVE_TRACE_RECORDER_CUPTI_CUPTI_RECORDER_H

#include "base/error.h"
#include "trace/producer.h"
#include "trace/record.h"
#include "trace/recorder/cupti/cupti_driver.h"

#include <stdbool.h>
#include <stdint.h>

/// What the driver calls once in cuInit, by the name that it knows. Returns 1.
VARVE_API int varve_cupti_initialize(void) __asm__("InitializeInjection");
/// Leave CUPTI's subscription to another profiler (torch.profiler) for the rest of the process: what CUPTI still
/// holds is recorded, then nothing more comes from here. To be called while no other thread is in a call of
/// CUDA. Returns 0, or 1 if we were not subscribed, or a negative enum varve_error. Threads: any.
VARVE_API int varve_cupti_release(void);

/* Lies in a page that a fork child finds zeroed: there CUDA is dead, and CUPTI is left alone. */
struct cupti_recorder {
    bool is_on;        /* we are subscribed; atomic */
    bool has_activity; /* buffers go back and forth; atomic */
    bool has_ended;    /* the last records are emitted; atomic */
    uint32_t version;  /* of CUPTI */
    uint32_t flags;    /* of every record of a call: VARVE_FLAG_DUPLICATE or 0 */
    cupti_subscriber subscriber;
    struct cupti_functions functions;
};

/// The recorder of this process; NULL before InitializeInjection. Threads: any.
struct cupti_recorder *cupti_recorder_get(void);
/// Emit a CUPTI_STATE record: what became of us, `number` as `cause` says, `ns` CUPTI's time or 0. `what` is
/// 0, or the kind of activity records that it is about.
void cupti_state_emit(enum varve_cause cause, uint64_t what, uint64_t number, uint64_t ns);
/// After a call of the driver's: exit handlers that it has registered by now run after ours.
void cupti_exit_watch_again(void);

/* Finding libcupti. */

/// Find and open libcupti and look its functions up. The library stays open until the process ends. Errors:
/// VARVE_ERROR_NOT_FOUND (none found, or too old a one).
int cupti_library_open(struct cupti_functions *functions, struct varve_message *message);

/* CUPTI's callbacks of the driver's functions. */

/// Ask CUPTI for the callbacks that we want. Returns the CUptiResult of the first one that matters and was
/// refused, or 0.
cupti_result cupti_calls_enable(const struct cupti_recorder *recorder);
/// A callback of the driver's domain.
void cupti_calls_on_callback(struct cupti_recorder *recorder, uint32_t id, const struct cupti_callback_data *data);
/// The current call of this thread ended a context.
void cupti_calls_mark_end(void);

/* CUPTI's activity records: enrichment, without which all goes on. */

/// Begin to collect activity records: enrichment, without which all goes on. Returns a CUptiResult.
cupti_result cupti_activity_begin(struct cupti_recorder *recorder);
/// Have CUPTI hand over what is complete, or (`is_forced`) all there is.
void cupti_activity_flush(struct cupti_recorder *recorder, bool is_forced);
/// The same, and no more of them.
void cupti_activity_end(struct cupti_recorder *recorder);

/* Devices, streams and pools as records name them. */

/// The device of a context, 0 if CUPTI can't say. `context_id` is CUPTI's number of it.
unsigned cupti_device_of(const struct cupti_recorder *recorder, cupti_context context, uint32_t context_id);
/// Find the driver's functions that the two below ask. Once, in cuInit.
void cupti_driver_find(void);
/// Emit what `device` is, once per process; until then each call asks the driver. In a callback of a call
/// that is not captured.
void cupti_device_describe(unsigned device);
/// Does what is called on this stream become part of a graph? Asks the driver: in a callback, when a call
/// begins. `stream`: its handle, 2 for the thread's own.
bool cupti_stream_is_captured(uint64_t stream);
/// A number of 12 bits for a pool of the driver's, 0 if there are too many.
unsigned cupti_pool_number(uint64_t handle);
/// A pool of this kind of memory was made. Of others nothing is known: they are the device's.
void cupti_pool_made(uint64_t handle, enum varve_memory_kind memory);
enum varve_memory_kind cupti_pool_memory(unsigned number);
/// The pool is gone; its number may be given out again.
void cupti_pool_forget(uint64_t handle);

#endif
