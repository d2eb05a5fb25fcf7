/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one public header of trace/: the vocabulary of events (event_list.h, record.h), errors (error.h), the
 * emit path for code that runs inside a recorded process, and the collector that makes a database of it.
 *
 * Unless a comment says otherwise: functions may be called from any thread; sizes are bytes, times ns;
 * functions return 0 or a negative enum varve_error, with a reason in `message` (caller-owned, may be NULL).
 */
#ifndef VARVE_TRACE_H
#define VARVE_TRACE_H

#include "trace/error.h"
#include "trace/event_list.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_API __attribute__((visibility("default")))

/* PRAGMA application_id ("VRVE") and user_version of a trace database; readers refuse others and newer ones.
 */
#define VARVE_DATABASE_APPLICATION_ID 0x56525645
#define VARVE_DATABASE_SCHEMA_VERSION 1

/* ---- Emitting, inside the recorded process (libvarve_trace.so) ---- */

/* A thread's end of its ring. The page it lies in reads as zeros in a fork child, which sends the child's
 * first event down the slow path: it attaches anew and never touches the ring of its parent. */
struct varve_producer {
    uint64_t head;
    uint64_t limit; /* head may grow up to here without a look at the consumer */
    struct varve_record *records;
    uint64_t mask;
    uint64_t *emitted;   /* in the ring's header: events begun */
    uint64_t *published; /* there too: records committed, of the ring or of its spill */
    uint32_t
        busy; /* a record is being written: what a signal handler emits now is put aside (idle: always) */
    uint32_t nested; /* records were put aside: they come before anything new */
};

/// This thread's producer; never NULL (an idle one with limit 0 before the first event).
extern VARVE_API __thread struct varve_producer *varve_producer_current
    __attribute__((tls_model("initial-exec")));

/// 1 if `ticks` are TSC ticks in this session.
extern VARVE_API uint32_t varve_clock_is_tsc;

/// Everything that the fast path leaves out: first event of a thread, full ring, nested events, fork
/// children.
VARVE_API void varve_emit_slow(const struct varve_record *record);
VARVE_API void varve_emit_nested(void);

static inline uint64_t varve_clock_ticks(void)
{
    struct timespec now;

#if defined(__x86_64__)
    if (__builtin_expect(varve_clock_is_tsc != 0, 1)) {
        return __builtin_ia32_rdtsc();
    }
#endif
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The slow path wants an address; a copy lets the compiler keep the fast path's record in registers. */
static inline void varve_emit_copy(struct varve_record copy, uint64_t ticks)
{
    copy.ticks = ticks;
    varve_emit_slow(&copy);
}

/* One instruction, so that a signal handler that emits comes before it or after it; no other thread writes.
 */
static inline void varve_emit_count(uint64_t *emitted)
{
#if defined(__x86_64__)
    __asm__ volatile("addq $1, %0" : "+m"(*emitted) : : "cc", "memory");
#else
    __atomic_fetch_add(emitted, 1, __ATOMIC_RELAXED);
#endif
}

/// Write one event; `ticks` of `record` must be 0, the time is filled in here. Async-signal-safe; never
/// allocates; no system call unless the ring is full or new. Without a session the event is dropped at once.
static inline __attribute__((always_inline)) void varve_emit(const struct varve_record *record)
{
    struct varve_producer *producer = varve_producer_current;
    struct varve_record *slot;
    uint64_t ticks;
    uint64_t head;

    if (__builtin_expect((producer->busy | producer->nested) != 0 || producer->head >= producer->limit, 0)) {
        varve_emit_copy(*record, 0);
        return;
    }
    varve_emit_count(producer->emitted);
    ticks = varve_clock_ticks(); /* after the count, which is what a watermark rests on: see merge.c */
    producer->busy = 1;
    __asm__ volatile(
        "" ::
            : "memory"); /* from here on a signal handler puts its events, which are later, aside */
    head = producer->head;
    if (__builtin_expect(head >= producer->limit, 0)) {
        producer->busy = 0; /* a handler has filled the ring meanwhile */
        varve_emit_copy(*record, ticks);
        return;
    }
    slot = &producer->records[head & producer->mask];
    slot->ticks = ticks;
    slot->addr = record->addr;
    slot->size = record->size;
    slot->requested = record->requested;
    slot->arg = record->arg;
    slot->id_stream = record->id_stream;
    slot->dev_seq_kind_flags = record->dev_seq_kind_flags;
    slot->callsite = record->callsite;
    slot->pool = record->pool;
    slot->device = record->device;
    slot->cause = record->cause;
    __atomic_store_n(producer->published, head + 1, __ATOMIC_RELEASE);
    producer->head = head + 1;
    __asm__ volatile("" ::: "memory");
    producer->busy = 0;
    __asm__ volatile("" ::: "memory");
    if (__builtin_expect(producer->nested != 0, 0)) {
        varve_emit_nested();
    }
}

/* ---- Collecting, in a process of its own (varve_collect) ---- */

enum varve_overflow {
    VARVE_OVERFLOW_SPILL = 0, /* a full ring: its thread goes on in a file */
    VARVE_OVERFLOW_BLOCK = 1, /* … waits for the collector */
    VARVE_OVERFLOW_DROP = 2,  /* … drops and counts */
};

enum varve_stacks {
    VARVE_STACKS_NONE = 0,
    VARVE_STACKS_NATIVE = 1,
    VARVE_STACKS_PYTHON = 2,
    VARVE_STACKS_ALL = 3,
};

/// `stage` is a word such as "recording", "draining", "symbols", "indexes"; total 0 = unknown.
typedef void (*varve_collect_progress)(void *context, const char *stage, uint64_t done, uint64_t total);

struct varve_collect_options {
    const char *database_path; /* the recording directory is this + ".d" while it lasts */
    const char *preload_path;  /* libvarve_preload.so */
    char *const *argv;         /* the program and its arguments, NULL at the end */
    unsigned overflow;         /* enum varve_overflow */
    unsigned stacks;           /* enum varve_stacks */
    unsigned stack_depth;      /* frames kept per stack, at most 256 */
    unsigned ring_records;     /* per thread; a power of two */
    bool heap;
    bool replace; /* an existing database may be overwritten (when the new one is complete) */
    bool quiet;   /* no remarks on stderr */
    int64_t
        linger_ns; /* how long to wait for recorded processes after the program ended; < 0: until all ended */
    varve_collect_progress progress;
    void *progress_context;
};

struct varve_collect_result {
    uint64_t events, lost, uncommitted; /* emitted = events + lost + uncommitted */
    uint64_t processes, threads, allocations;
    int wait_status; /* of the program, as waitpid tells it */
    bool started;    /* the program ran: its status is the one to pass on, whatever the recording's fate */
    char database_path[4096];
};

void varve_collect_options_init(struct varve_collect_options *options);

/// Start the program, record it and all its descendants, finish the database. Signals are handled meanwhile:
/// SIGINT is left to the program, SIGTERM, SIGHUP and SIGQUIT are passed on. Not re-entrant, main thread
/// only. Errors: VARVE_ERROR_NOT_FOUND, PERMISSION, UNSUPPORTED (program), BUSY (another recorder on this
/// output), IO, FULL, DATABASE (recording; the directory is kept for varve_collect_recover if it holds data).
int varve_collect_record(const struct varve_collect_options *options, struct varve_collect_result *result,
                         struct varve_message *message);

/// Finish a recording directory whose collector died. `database_path` NULL: the one beside the directory.
/// Errors: VARVE_ERROR_NOT_FOUND, FORMAT (no recording directory), VERSION, BUSY (its collector lives), IO,
/// FULL, DATABASE.
int varve_collect_recover(const char *directory, const char *database_path, varve_collect_progress progress,
                          void *progress_context, struct varve_collect_result *result,
                          struct varve_message *message);

/// End this process as the recorded program ended: same exit status, or same signal, without a core file.
void varve_collect_exit_like(int wait_status) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif

#endif
