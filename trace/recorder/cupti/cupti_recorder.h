/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recorder inside libvarve-cupti.so. All of it runs in the recorded program: in the thread that
 * initializes the driver, in threads that call it, in CUPTI's own worker thread, and in exit handlers.
 * Nothing here waits for another thread, and nothing is held while CUPTI or the driver is called.
 */
#ifndef VARVE_TRACE_RECORDER_CUPTI_CUPTI_RECORDER_H
#define VARVE_TRACE_RECORDER_CUPTI_CUPTI_RECORDER_H

#include "trace/recorder/cupti/cupti_driver.h"
#include "trace/producer.h"
#include "trace/record.h"

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

#endif
