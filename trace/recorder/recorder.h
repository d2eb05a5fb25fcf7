/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs inside the workload */
/*
 * What the files that run inside the workload share. Rules for all of them: no malloc (memory comes from
 * recorder_map), no stdio, no lock held across a call into foreign code, no thread; errno is preserved by the
 * hooks. Code that may call malloc all the same (dlsym, the Python API) runs
 * between recorder_foreign_begin and recorder_foreign_end: signals blocked, hooks pass through unrecorded.
 */
#ifndef VARVE_TRACE_RECORDER_RECORDER_H
#define VARVE_TRACE_RECORDER_RECORDER_H

#include "trace/record.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- recorder/guest/memory.c: memory and files without the C library's allocator ---- */

/// Zeroed pages, never given to the program's allocator; NULL if there is none. Threads: any.
void *recorder_map(size_t bytes);
void recorder_unmap(void *memory, size_t bytes);

/// Map `bytes` of a file, shared with the collector; `fork_private`: not mapped in fork children.
void *recorder_map_file(int fd, size_t bytes, bool fork_private);
/// The same of a file that is only read here, kept in fork children.
void *recorder_map_file_read(int fd, size_t bytes);

/// A piece of a file, shared with the collector, not mapped in fork children; `offset` at a page.
void *recorder_map_window(int fd, uint64_t offset, size_t bytes);

/// Pages that read as zeros in a fork child, which is how a child notices that it must attach anew.
void *recorder_map_wiped(size_t bytes);
/// The same, for what the process has one of: made by the first call, the same pages for all. NULL: no
/// memory.
void *recorder_map_wiped_once(void **slot, size_t bytes);

/// Whole content of a small file, at most `bytes`; returns its length or -1. No allocation.
long recorder_read_file(const char *path, char *buffer, size_t bytes);

/// Copy memory of this process that may not be there, or not for long: false instead of a fault. False too
/// where a sandbox lets nobody look. Costs a system call. Threads: any; async-signal-safe.
bool recorder_read_memory(void *out, uintptr_t address, size_t bytes);

/// printf for paths, cut to fit; async-signal-safe subset: %s and %u only.
void recorder_format(char *buffer, size_t bytes, const char *format, ...);

/// The decimal number at the start of `text`, 0 if there is none.
uint64_t recorder_number(const char *text);

/// Lock of one process, 0 = free; who must wait sleeps. Taken only with signals blocked; not held across
/// calls that may wait for anything else.
void recorder_lock(uint32_t *lock);
/// The same; false: it could not be had within a second, since its holder is stopped.
bool recorder_lock_soon(uint32_t *lock);
void recorder_unlock(uint32_t *lock);

struct recorder_signals {
    uint64_t mask;   /* the kernel's, not the larger one of the C library */
    bool is_blocked; /* false: they are as they were, the thread is confined */
};

void recorder_signals_block(struct recorder_signals *saved);
void recorder_signals_restore(const struct recorder_signals *saved);

/// Around a call that makes a file longer, with signals blocked: past RLIMIT_FSIZE it returns -EFBIG and
/// raises SIGXFSZ. `end` takes that signal back, unless one of the program's own was pending at `begin`.
bool recorder_size_signal_begin(void);
void recorder_size_signal_end(bool was_pending, long result);

/// Blocks behind `bytes` of a file from `offset` on, which nothing was stored in so far: a store into a
/// mapped page of them does not raise SIGBUS then. Signals are blocked. 0 or -errno.
long recorder_file_allocate(int fd, uint64_t offset, uint64_t bytes);
/// Length of a file, without blocks. Signals are blocked. 0 or -errno.
long recorder_file_resize(int fd, uint64_t bytes);

/* ---- clock.c ---- */

/// A thread is about to lose the time stamp counter: from now on all ask varve_clock_ticks_elsewhere.
void recorder_clock_leave(void);

/* What failed is tried again, at rising intervals. */
struct recorder_retry {
    uint64_t next_ns; /* CLOCK_MONOTONIC, not before; 0: it has not failed. Atomic, like the next */
    uint64_t step_ns;
};

bool recorder_retry_is_due(const struct recorder_retry *retry);
void recorder_retry_later(struct recorder_retry *retry);

/* ---- session.c: the session and this process in it ---- */

enum recorder_stage {
    RECORDER_STAGE_NONE = 0,
    RECORDER_STAGE_ATTACHED = 1, /* `control` is there */
    RECORDER_STAGE_SITES = 2,    /* and so is the call-site file, if it can be had */
};

/* Of one process image, in a wiped page: all zero in a fork child. */
struct recorder_process {
    uint32_t lock;  /* guards taking `id` */
    uint32_t stage; /* enum recorder_stage; grows; a futex, atomic */
    uint32_t id;
    uint32_t late_lock;          /* of the one shared ring of late events */
    struct recorder_retry retry; /* of attaching */
    struct process_control *control;
    struct recorder_retry late_retry;
    struct recorder_thread *late; /* set once */
    const struct mirror_provider
        *mirror; /* the second sink, while this process may call it; NULL: it may not */
};

/// The session named by the environment, or NULL; looked up once, inherited by fork children. Not writable.
const struct session_control *recorder_session(void);
/// The look itself, on the program's stack and with signals open: for a process so young that it has no
/// handlers, and of which is not known yet whether it may call the kernel at all.
void recorder_session_look(void);
/// What all processes of the session count in; NULL without a session.
struct session_counts *recorder_session_counts(void);
const char *recorder_directory(void);

/// This process image, attached or not; NULL without a session.
struct recorder_process *recorder_process_page(void);
/// This process image, attached now if it was not; NULL if that failed. Threads: any.
struct recorder_process *recorder_process_attach(void);
/// The same without attaching: NULL before the first event.
struct recorder_process *recorder_process_current(void);

/// An object before the recorder defines malloc: the program's heap is not ours to see. Set before the first
/// attach, for the control pages of this process and its fork children.
extern bool recorder_malloc_is_foreign;

/// Who the calling process is, also in a vfork child. Async-signal-safe.
void process_identity_read(struct process_identity *identity);

/// Note in the process' control page that it ends, or executes `path` (NULL: not any more).
void recorder_process_exited(void);
void recorder_process_executing(const char *path);

/* ---- exec_note.c: programs that are about to run, for the collector ---- */

/* What an exec function was given. */
struct exec_call {
    const char *path;   /* NULL: `fd` */
    char *const *envp;  /* what the program gets */
    int fd;             /* of fexecve */
    bool is_searched;   /* along PATH, and by the shell if it is of no known format */
    bool is_in_process; /* exec itself: the program will run in the calling process */
};

struct exec_noted {
    uint32_t order; /* 0: there is no note */
};

/// Before the call: look at the program, and note it if it can't be recorded, or if its recorder should say
/// that it was loaded. Async-signal-safe, also in a vfork child. After the call, if it came back without
/// having run the program: exec_note_failed.
void exec_note_begin(struct exec_noted *noted, const struct exec_call *call);
void exec_note_failed(const struct exec_noted *noted);
/// In a new program: the recorder is here.
void exec_note_loaded(void);

/* ---- ring.c: making and retiring rings; overflow.c: full rings ---- */

#define OVERFLOW_PACKED_BYTES (RECORD_BLOCK_ALIGNMENT + RING_STAGING_RECORDS * RECORD_PACKED_MAX)

/* One mapping per thread: the producer end first (varve_producer_current points to it), then what is cold. */
struct recorder_thread {
    struct varve_producer producer;
    struct ring_header *ring;
    uint64_t ring_bytes;
    uint32_t capacity;  /* of the ring, records */
    uint64_t populated; /* ring slots that have memory behind them, grows during the first lap */
    uint64_t lost_open; /* lost since the last `lost` event */
    uint64_t lost_open_bytes;
    uint32_t nested_lost_kinds[VARVE_KIND_LIMIT]; /* nested events for which no slot was free; atomic */
    uint8_t *packed;                              /* OVERFLOW_PACKED_BYTES, made by the first spill */
    uint64_t packed_position;                     /* of its first record in the spill, plus 1; 0: empty */
    const struct recorder_signals *outer_signals; /* the program's mask while naps may open it, else NULL */
    struct varve_record *staging;                 /* NULL: it has no memory yet */
    bool is_spilling;
    struct recorder_retry ring_retry;    /* of slots of the ring that have no memory yet */
    struct recorder_retry staging_retry; /* and of the staging slots */
    bool is_on_disk;                     /* the ring is in the recording directory itself */
    bool has_mirrored;                   /* the second sink knows this thread: it allocates no more */
    char path[4096];                     /* of the file that is being opened */
};

int recorder_ring_create(struct recorder_thread *thread, const struct recorder_process *process,
                         uint32_t index);
void recorder_ring_retire(struct recorder_thread *thread);
/// Let the ring use more of its file (first lap). False: it has all of it, or there is no memory for it now.
bool recorder_ring_grow(struct recorder_thread *thread);
/// The ring is full for want of memory: it is not the collector that will make room.
bool recorder_ring_is_short(const struct recorder_thread *thread);
bool recorder_ring_staging_is_apart(const struct recorder_thread *thread);

/// Put a record where the overflow policy says; `emitted` was counted already.
void overflow_put(struct recorder_thread *thread, const struct varve_record *record);
/// Commit a record where the thread produces to; there is space.
void recorder_commit(struct recorder_thread *thread, const struct varve_record *record);
/// Where the fast path puts what follows: the slots of the ring, or the staging slots of the spill. These get
/// memory by the first spill; false: there is none.
void recorder_produce_to_ring(struct recorder_thread *thread);
bool recorder_produce_to_spill(struct recorder_thread *thread);
/// Slots the producer may fill before it has to look again; 0 = full.
uint64_t recorder_ring_space(struct recorder_thread *thread);

/* ---- recorder.c: threads, emission off the fast path ---- */

/// Find the session and prepare the process, before its first event and while it has one thread. False:
/// nothing is to be recorded, hooks can switch off.
bool recorder_prepare(void);

/// This thread is about to confine itself (recorder/guest/confine.h): what it may need later is made now.
void recorder_thread_prepare(void);

/// Enter and leave code that may allocate by itself on this thread: its calls are not recorded.
/// Blocks all signals meanwhile, so that a handler's allocations are never taken for our own. Nests.
void recorder_foreign_begin(struct recorder_signals *saved);
void recorder_foreign_end(const struct recorder_signals *saved);

/// Above 0 between the two, on this thread: hooks must pass through.
extern __thread uint32_t recorder_foreign_depth __attribute__((tls_model("initial-exec")));

/* ---- state_sources.c: who can tell what is there when a trace begins in mid-run ---- */

/// Ask every source that is there now, one after the other; one dump at a time, the next ones wait. Nothing
/// in a fork child but what was added there. Threads: any, with no lock in hand that a source could want.
void state_sources_dump(const struct varve_state_sink *sink);

/* ---- second_sink.c: the second sink (format/sink_provider.h) ---- */

/// Open the provider library if the session asks for it. Once per process image, from a constructor.
void recorder_mirror_open(void);
/// Tell it a record that is about to be committed, and mark the record, if it wants that kind.
void recorder_mirror_tell(struct recorder_thread *thread, struct varve_record *record);
/// Now and then: events may be enabled in a trace that has begun, which nobody tells.
void recorder_mirror_look(void);
/// From the program's exit handlers on: does this code belong to the provider, which now tidies up?
bool recorder_mirror_owns_code(uintptr_t pc);
extern bool recorder_mirror_is_closed;
/// This thread is one of the provider's own: it works for us, and nothing that it does is the program's.
bool recorder_mirror_owns_thread(void);

/* ---- recorder/stacks/callsite.c: stacks to 32-bit numbers ---- */

/// The state of the hook's caller: what the registers will be when the hook returns.
struct callsite_start {
    uintptr_t pc; /* return address of the hook */
    uintptr_t sp;
    uintptr_t fp; /* rbp on x86-64 */
};

/// Prepare for this process image: opens `sites_path` for appending. `stacks` and `depth` as in
/// session_control. Called once per process image, again in a fork child (numbers start again at 1, all
/// earlier state is forgotten). Returns 0 or a negative varve_error; then capture returns 0 from there on.
int callsite_attach(const char *sites_path, unsigned stacks, unsigned depth);

/// Number of the current stack, 0 if there is none (stacks off, nested call in a signal handler, no memory).
/// The call site is in the file before the number is returned. Threads: any; async-signal-safe.
uint32_t callsite_capture(const struct callsite_start *start);
/// The same, with the frames that another thread has lent where this one has no Python frames.
uint32_t callsite_capture_borrowing(const struct callsite_start *start);

/// The set of loaded objects may have changed (after dlopen, before dlclose): rescans at the next capture.
void callsite_modules_changed(void);

/* ---- recorder/stacks/modules.c: loaded objects into the call-site file ---- */

/// Write MODULE_GONE for the objects in the call-site file that are not loaded any more; MODULE entries are
/// written with the first call site that needs them. Returns how many entries were written.
unsigned modules_scan(void);

/* ---- recorder/stacks/native/stack.c ---- */

/// Return addresses from `start` outwards, start->pc first, at most `max`. Frame pointers where the unwind
/// tables say that the frame has one, cached unwind rules elsewhere; ends at what these cannot express.
/// Threads: any; async-signal-safe.
unsigned native_stack_capture(const struct callsite_start *start, uint64_t *pcs, unsigned max);

/// This thread ends: what is kept for its next walk goes. Signals are blocked.
void native_stack_thread_end(void);

/// Forget cached rules: an object was unloaded and its addresses may be reused.
void native_stack_forget(void);

/* ---- recorder/stacks/python/stack.c: frames of a CPython interpreter in this process ---- */

/// One interpreter frame, by identity only: resolved when a new call site is written.
struct python_frame {
    const void *code; /* the code object */
    const void *name; /* its co_name and co_filename objects: with them a reused address is noticed */
    const void *filename;
    uint32_t instruction; /* offset in the bytecode, in the unit of its version */
    uint32_t first_line;
    bool is_entry; /* the frame that entered the interpreter loop */
};

/// Frames of this thread, innermost first, at most `max`; 0 if there is no interpreter, its version is
/// unknown, or this thread has no frames. Never allocates, never runs Python code.
unsigned python_stack_capture(struct python_frame *frames, unsigned max);

/// Function name and file name as UTF-8 (cut to fit, NUL-terminated) and the line of a frame just captured.
/// Returns false if they cannot be read safely.
bool python_stack_describe(const struct python_frame *frame, char *name, size_t name_bytes, char *file,
                           size_t file_bytes, uint32_t *line);

/// This thread ends: what is kept for its next walk goes. Signals are blocked.
void python_stack_thread_end(void);

/// An object is about to be unloaded: if an interpreter was found, its library stays. Only where the program
/// itself calls the loader, since this does.
void python_stack_keep(void);

/// The set of loaded objects has changed: an interpreter that was absent is looked for at the next capture.
/// Threads: any; async-signal-safe.
void python_stack_modules_changed(void);

#endif
