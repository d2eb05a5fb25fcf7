/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a process, looked at one after the other: is none where it must not be, and which may make a call?
 * Threads: one, in a process as thread_look.h wants it.
 */
#ifndef VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_LOOK_H
#define VARVE_TRACE_COLLECTOR_PROGRAMS_THREAD_LOOK_H

#include "base/error.h"
#include "trace/collector/programs/attach_target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * May a thread call dlopen where it stands? Not within the allocator, the loader and other places of the C library that
 * hold a lock which dlopen takes.
 */

struct symbols_running;

struct place_range {
    uint64_t start, end;
};

#define PLACE_UNSAFE_MAX 32U

struct place_rules {
    const struct target *target;
    uint64_t malloc_start, malloc_end; /* of the C library's allocator, in its file */
    uint64_t unsafe[PLACE_UNSAFE_MAX]; /* where functions of the C library that hold such a lock begin, in its file */
    struct place_range *ranges;        /* where stacks may lie, once asked for; until the end of this process */
    size_t range_count, range_room;
};

void place_rules_init(struct place_rules *rules, const struct target *target);

/* Where a thread is, a bit mask; 0: where it may call anything. */
enum place {
    PLACE_ALLOCATOR = 1,
    PLACE_LOADER = 2, /* or another holder of a lock that dlopen takes, or a constructor */
    PLACE_RECORDER = 4,
    PLACE_UNKNOWN = 8,
    PLACE_ANY = 15,
};

/// Of a thread that is traced and stopped.
unsigned place_of(const struct place_rules *rules, struct symbols_running *running, int32_t tid);
/// Of one that sleeps there, traced or not. More than is so: what has been called before has left its traces.
unsigned place_asleep(struct place_rules *rules, struct symbols_running *running, int32_t tid, uint64_t pc,
                      uint64_t sp);

struct look {
    const struct target *target;
    struct place_rules rules;
    struct symbols_running *running;
    struct varve_message *message;
    int32_t parent; /* without it, killed meanwhile, a search ends; 0: it goes on */
    int error;      /* what has ended the search; the message has it in words */
};

/// Returns once no thread is in `place`, PLACE_LOADER or PLACE_RECORDER. Of a thread that can't be looked at it is
/// taken that it is not inside the loader, and that it is inside the recorder. Errors: BUSY after 5 s, or somebody else
/// traces a thread; PERMISSION; NOT_FOUND: the process has ended.
int look_for_none(struct look *look, unsigned place);
/// A thread that is in none of the places `avoids`, a mask, which is stopped now, since `stopped_ns`. Errors: the same.
int look_for_caller(struct look *look, unsigned avoids, int32_t *tid_out, uint64_t *stopped_ns_out);

/// It is not what it was: it has ended, or has executed a program.
int look_say_gone(struct look *look);

/* What a thread waits for in the kernel, seen without stopping it: a stop ends the wait. */

/* What the program sees of a stop, once the thread goes on. */
enum asleep_harm {
    ASLEEP_UNHARMED, /* nothing */
    ASLEEP_ANEW,     /* a time limit begins anew */
    ASLEEP_CUT,      /* the call ends, with less done than it was asked for or an error */
};

struct asleep {
    enum asleep_harm harm;
    uint64_t pc, sp; /* of the program */
};

/// False: it runs, or can't be looked at.
bool asleep_look(int32_t tid, struct asleep *asleep_out);
/// Has it been so since? Another call of the same kind from the same place is not told from that.
bool asleep_still(int32_t tid, const struct asleep *asleep);

/*
 * Threads of another process, traced and stopped by this one, which has one thread, no children of its own and all
 * signals blocked. Every call returns in its time.
 */

#define STOP_NS UINT64_C(100000000) /* for a thread to stop: one in vfork, or waiting for a disk, does not */

enum stop_taken {
    STOP_TAKEN,
    STOP_TAKEN_NOT,        /* it has ended, or its process is executing a program */
    STOP_TAKEN_FORBIDDEN,  /* it may not be traced */
    STOP_TAKEN_BY_ANOTHER, /* somebody else traces it */
};

/// The thread is traced. `tracer_out`: by whom else. One that does not stop is let go of when it does, by any of these
/// functions.
enum stop_taken stop_take(int32_t tid, int32_t *tracer_out);

enum stop {
    STOP_GONE,
    STOP_NONE,   /* in time */
    STOP_ASKED,  /* by stop_thread */
    STOP_WHOLE,  /* its process is stopped, by SIGSTOP or alike */
    STOP_SIGNAL, /* it is about to get one */
};

/// A traced thread is stopped, with no signal of the program's on its way; one that arrives first is delivered.
enum stop stop_thread(int32_t tid);
/// The next stop of a traced thread that runs. `signal_out`: of STOP_SIGNAL.
enum stop stop_await(int32_t tid, uint64_t limit_ns, int *signal_out);
/// Threads that were waited for in vain and have stopped or ended since are let go of.
void stop_late(void);
/// A stopped thread runs, and gets this signal, if it is not 0. False: it has ended.
bool stop_go_on(int32_t tid, int number);
/// It is traced no more, and runs, unless its process is stopped.
void stop_let_go(int32_t tid);

/* Restartable sequences (rseq(2)): code that is begun again elsewhere when the thread was interrupted in it. */

struct registers;

/// The thread is stopped, with these registers, and will do other things before it gets them back: if it is in such a
/// sequence, they become those with which the kernel would have aborted that. The kernel itself sees only where the
/// thread goes on.
void sequence_abort(int32_t tid, struct registers *registers);

#endif
