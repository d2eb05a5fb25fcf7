/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session that the environment names, and this process image in it. Attaching happens at the first
 * event, not before.
 */
#ifndef VARVE_TRACE_RECORDER_SESSION_H
#define VARVE_TRACE_RECORDER_SESSION_H

#include "trace/guest/guest_clock.h"
#include "trace/format/session_format.h"
#include "trace/format/sink_provider.h"

#include <stdbool.h>
#include <stdint.h>

struct recorder_thread;

enum recorder_stage {
    RECORDER_STAGE_NONE = 0,
    RECORDER_STAGE_ATTACHED = 1,  /* `control` is there */
    RECORDER_STAGE_CALLSITES = 2, /* and so is the call-site file, if it can be had */
};

/* Of one process image, in a wiped page: all zero in a fork child. */
struct recorder_process {
    uint32_t lock;  /* guards taking `id` */
    uint32_t stage; /* enum recorder_stage; grows; a futex, atomic */
    uint32_t id;
    uint32_t late_lock;          /* of `late` and of its being made */
    uint32_t takes_from_reserve; /* a thread makes the page of the process there; atomic */
    struct recorder_retry retry; /* of attaching */
    struct process_control *control;
    struct recorder_retry late_retry;
    struct recorder_thread *late; /* what the threads share whose own ring is gone; set once, not atomic */
    /* While this process may call it; NULL: it may not. */
    const struct sink_provider *second_sink;
    bool main_has_ended;   /* atomic */
    uint32_t loading_lock; /* of heap/loading.c */
    uint32_t loaders;      /* threads that load; atomic */
    uint32_t threads_lock;
    struct recorder_thread *threads; /* a list of all that have a ring, guarded by threads_lock */
};

/// The session named by the environment, or NULL; looked up once, inherited by fork children. Not writable.
const struct session_control *recorder_session(void);
/// The look itself, on the program's stack and with signals open: for a process so young that it has no
/// handlers, and of which is not known yet whether it may call the kernel at all.
void recorder_session_find(void);
/// There is none, whatever the environment says: for a library that a running program loads.
void recorder_session_forgo(void);
/// The session of this recording directory, in a process that has none. False: it can't be reached, or the process is
/// confined. Threads: one that nothing is recorded of, as all others.
bool recorder_session_begin(const char *directory);
/// And none again; what was mapped for it goes. No thread is inside the recorder.
void recorder_session_end(void);
/// What all processes of the session count in; NULL without a session.
struct session_counts *recorder_session_counts(void);
const char *recorder_directory(void);
/// Neither rings nor files of the recording may grow much (session_control).
bool recorder_memory_is_scarce(void);
/// Nobody will read what is emitted: it has closed the session, or was not heard of for seconds.
bool recorder_collector_is_gone(void);

/// This process image, attached or not; NULL without a session.
struct recorder_process *recorder_process_page(void);
/// This process image, attached now if it was not; NULL if that failed. Threads: any.
struct recorder_process *recorder_process_attach(void);
/// The same without attaching: NULL before the first event.
struct recorder_process *recorder_process_current(void);

/// An object before the recorder defines malloc: the program's heap is not ours to see. Set before the first
/// attach, for the control pages of this process and its fork children.
extern bool recorder_malloc_is_unhooked;

/// A library of this process is not recorded, and its fork children's neither. A path that was noted with that reason
/// is not noted again. Threads: any; async-signal-safe.
void recorder_note_unhooked(const char *path, enum unhooked_reason reason);

/// Who the calling process is, also in a vfork child. Async-signal-safe.
void process_identity_read(struct process_identity *identity);

/// Note in the process' control page that it ends, or executes `path` (NULL: not any more).
void recorder_process_exited(void);
/// Its main is over. True: the event is to be emitted, which happens once in a process. One that is not attached gets
/// it if it ever is. Threads: any; async-signal-safe.
bool recorder_process_main_ends(void);
void recorder_process_executing(const char *path);

#endif
