/* SPDX-License-Identifier: Apache-2.0 */
/* The recording directory and the three kinds of control page in it. */
#ifndef VARVE_TRACE_FORMAT_SESSION_FORMAT_H
#define VARVE_TRACE_FORMAT_SESSION_FORMAT_H

#include "trace/record.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/*
 *   TRACE.db.d/                 made by `varve record` beside the database; removed when all is stored
 *     owner                     pid of the collector and trace id, locked while it lives (flock)
 *     ring -> /dev/shm/varve-…  where the mapped files are (a real folder where there is no tmpfs); its name
 *                               ends with the trace id, and no other one is accepted
 *     ring/session              struct session_control; programs can only read it
 *     ring/counts               struct session_counts, then the slots of the reserve; programs write it
 *     ring/watch                locked by who watches (collector/session/watch.h)
 *     ring/live.json            figures, while somebody does
 *     variables, torch.…        of an attached process' Python (attach_format.h)
 *     ring/p<N>                 struct process_control of the N-th process image that recorded something
 *     ring/p<N>.r<K>            its K-th ring (ring_format.h); K = 0 is the shared ring of late events
 *     ring/p<N>.r<K>.spill<M>   its M-th piece: records that did not fit the ring, packed (record_pack.c)
 *     p<N>, p<N>.r<K>, p<N>.r<K>.spill<M>
 *                               those that memory had no room for
 *     p<N>.r<K>.staging         the ring's staging slots, where memory had no room for them
 *     p<N>.sites                call sites and modules (callsite_format.h)
 *     allocations               the collector's own scratch file
 *     trace.db-events           events that are committed and not in the database yet
 *     trace.db-rows             rows of large tables until the end; it has no name after it was opened
 *     trace.db-whole            at the end, what takes the place of trace.db
 *
 * A process image takes the next N by an atomic add on session_counts.process_count, a thread the next K on
 * process_control.ring_count; the collector learns of both by watching the counters, without any call from
 * the workload to it. What it opens are the files that are there, whatever the counters say. Folders have
 * mode 0700, files 0600, and all belong to the user who records. The environment variable VARVE_SESSION
 * names TRACE.db.d for the workload.
 */

#define SESSION_MAGIC UINT64_C(0x7373655345565256) /* "VRVESess" */
#define PROCESS_MAGIC UINT64_C(0x636f725045565256) /* "VRVEProc" */
#define SESSION_CONTROL_BYTES 4096U
#define SESSION_COUNTS_BYTES (69U * 4096U)
#define PROCESS_CONTROL_BYTES 16384U
#define SESSION_ENVIRONMENT "VARVE_SESSION"
#define SESSION_UNRECORDED \
    "VARVE_UNRECORDED" /* in the environment of a program that varve's own part of this one runs */
#define SESSION_STACK_DEPTH_MAX 256U
#define SESSION_GROUPS_MAX 16U /* different sets of control groups that are looked at */

enum session_overflow {
    SESSION_OVERFLOW_SPILL = 0,
    SESSION_OVERFLOW_BLOCK = 1,
    SESSION_OVERFLOW_DROP = 2,
};

enum session_stacks {
    SESSION_STACKS_NONE = 0,
    SESSION_STACKS_NATIVE = 1,
    SESSION_STACKS_PYTHON = 2,
    SESSION_STACKS_ALL = 3, /* bit mask of the two */
};

enum session_state {
    SESSION_STATE_RECORDING = 1,
    SESSION_STATE_CLOSED = 2, /* no collector will read what is emitted now: recorders switch off */
};

enum session_sink {
    SESSION_SINK_LTTNG = 1, /* open sink_path and emit every record to it */
};

/* Written by the collector alone, before the program starts except where said. Programs map it read-only,
 * from a descriptor that is: one that has dropped its privileges keeps its mappings, and must not be able to
 * name to others what to open or to load. */
struct session_control {
    uint64_t magic;
    uint32_t version; /* VARVE_TRANSPORT_VERSION */
    uint32_t state;   /* enum session_state; atomic */
    uint32_t overflow;
    uint32_t stacks;
    uint32_t stack_depth;      /* frames kept per stack, from 1 to SESSION_STACK_DEPTH_MAX */
    uint32_t ring_capacity;    /* records */
    uint32_t clock_kind;       /* enum varve_clock_kind, the same for all processes */
    uint32_t records;          /* bit mask of enum varve_records */
    uint64_t block_timeout_ns; /* a full ring waits at most so long for space */
    uint64_t spill_bytes_max;  /* of all pieces together; 0: no limit; atomic, as memory comes and goes */
    uint64_t growth_bytes_max; /* of the pieces in memory together; 0: no limit; atomic */
    uint64_t memory_bytes_max; /* of all rings and pieces together in /dev/shm; 0: no limit; atomic */
    uint64_t trace_id;         /* random; a directory and its database carry the same */
    int32_t collector_pid;
    uint32_t sink;           /* bit mask of enum session_sink */
    uint32_t stacks_max;     /* different stacks kept per process; 0: CALLSITES_MAX of callsite_here.c */
    char sink_path[1024];    /* the provider library (sink_provider.h) */
    char replace_path[1024]; /* serves cudaMalloc (replacement.h); "": the driver does */

    uint32_t seccomp_mode;     /* of the collector, as /proc/self/status has it; a program with another */
    uint32_t seccomp_filters;  /* mode or number of filters was started by one that confined itself */
    int32_t attached_pid;      /* of the process that ran already; 0: the program was started to be recorded */
    uint32_t memory_is_scarce; /* in a control group: rings stay small and wait, as files are its memory too; atomic */

    _Alignas(64) uint64_t heartbeat_ns; /* atomic: CLOCK_MONOTONIC of its last round */
    uint64_t heartbeat_ticks;           /* atomic: the clock of records then; for programs that can't read it */
    /* Of the database; one that knows of fewer was cut or changed since its collector died. */
    uint64_t commits;
    /* Atomic: session_groups_number of the control groups whose memory bounds what rings may have; 0: none more. */
    uint64_t groups_bounded[SESSION_GROUPS_MAX];
};

static_assert(sizeof(struct session_control) <= SESSION_CONTROL_BYTES, "fits its page");

/// Of the text of /proc/PID/cgroup; never 0. By FNV-1a (RFC 9923).
static inline uint64_t session_groups_number(const char *text)
{
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    for (; *text != '\0'; text++) {
        number = (number ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return number | 1;
}

/* A process, whatever PID namespace gave it its number. */
struct process_identity {
    uint64_t pid_namespace;    /* inode of /proc/self/ns/pid, 0 where that can't be read */
    uint64_t start_ticks_proc; /* field 22 of /proc/pid/stat, 0 where that can't be read */
    int32_t pid;               /* in that namespace */
};

/// The same process, as far as both know: 0 in one of them says nothing.
static inline bool process_identity_agrees(const struct process_identity *a, const struct process_identity *b)
{
    return a->pid == b->pid &&
           (a->pid_namespace == b->pid_namespace || a->pid_namespace == 0 || b->pid_namespace == 0) &&
           (a->start_ticks_proc == b->start_ticks_proc || a->start_ticks_proc == 0 || b->start_ticks_proc == 0);
}

/* Why a program can't be recorded: the words of table unrecorded_program. */
#define EXEC_REASON_LIST(X)                                  \
    X(NONE, "")                                              \
    X(STATIC, "statically linked")                           \
    X(SETUID, "setuid")                                      \
    X(SETGID, "setgid")                                      \
    X(CAPABILITIES, "file capabilities")                     \
    X(OTHER_USER, "started with the rights of another user") \
    X(MACHINE, "for another machine")                        \
    X(LIBC, "another C library")                             \
    X(ENVIRONMENT, "environment without the recorder")       \
    X(SESSION, "recorded by another session")                \
    X(UNREACHABLE, "recorder or recording not within reach") \
    X(NOT_LOADED, "did not load the recorder")               \
    X(SANITIZER, "a sanitizer that must come first")         \
    X(NOT_SEEN, "ended before it had loaded the recorder, or never did")

enum exec_reason {
#define EXEC_REASON_CODE(name, text) EXEC_REASON_##name,
    EXEC_REASON_LIST(EXEC_REASON_CODE)
#undef EXEC_REASON_CODE
        EXEC_REASON_LIMIT
};

enum exec_kind {
    EXEC_KIND_BEGUN = 1,  /* an exec, or another call that runs a program, is about to happen */
    EXEC_KIND_FAILED = 2, /* the one with number `of` came back */
    EXEC_KIND_LOADED = 3, /* the process, which may have executed another program, runs the recorder */
};

enum exec_state {
    EXEC_STATE_FREE = 0,
    EXEC_STATE_WRITING = 1, /* by one process */
    EXEC_STATE_WRITTEN = 2,
    EXEC_STATE_COUNTED = 3, /* by the collector; free again after its commit */
};

#define SESSION_EXEC_PATH_BYTES 444U

/* A note for the collector: see recorder/exec_note.c and collector/unrecorded_programs.c. */
struct session_exec {
    uint32_t state; /* enum exec_state; atomic */
    uint32_t kind;
    uint32_t reason;     /* of a program that can't be recorded; 0: it will say LOADED, or has failed to */
    uint32_t is_awaited; /* LOADED will come from this very process */
    uint32_t order, of;  /* numbers of notes */
    struct process_identity process;
    char path[SESSION_EXEC_PATH_BYTES]; /* its end, if it is longer */
    uint32_t commit;                    /* while counted: number of the commit that stores it */
};

#define EXEC_COMMIT_NONE UINT32_MAX /* none was begun yet */

#define SESSION_EXECS 500U

/*
 * The reserve: memory of the collector's making for programs that can't make files any more (another user, another
 * root, no descriptors, no file sizes). Every process has `counts` mapped from its start and hands that on to its fork
 * children; the kernel gives it more of the same file without a descriptor (mremap). Slot I begins at
 * SESSION_COUNTS_BYTES + I * RESERVE_SLOT_BYTES and holds what a file would: a ring, or the page of a process with its
 * call-site file behind it. The collector keeps some slots READY, with memory behind what is used first; a producer
 * takes one by compare-and-swap and names it; the collector empties it when what it holds is stored.
 */
#define RESERVE_SLOTS 1024U
#define RESERVE_SLOT_BYTES (UINT64_C(4608) << 10) /* a ring of RING_CAPACITY_DEFAULT with its staging slots */
#define RESERVE_SITES_OFFSET PROCESS_CONTROL_BYTES
#define RESERVE_SITES_FIRST_BYTES (UINT64_C(64) << 10)

enum reserve_state {
    RESERVE_STATE_EMPTY = 0,
    RESERVE_STATE_READY = 1,
    RESERVE_STATE_TAKEN = 2,   /* its producer names it */
    RESERVE_STATE_PROCESS = 3, /* struct process_control, then call sites */
    RESERVE_STATE_RING = 4,
};

struct reserve_slot {
    uint32_t state; /* enum reserve_state; atomic */
    uint32_t process, ring;
    uint32_t padding;
};

/* Memory that a producer can't get for itself: it says up to where it wants some, the collector up to where there is
 * some. In the unit of what it is about. */
struct session_growth {
    uint64_t wanted;  /* atomic; of the producer */
    uint64_t granted; /* atomic; of the collector */
};

#define GROWTH_REFUSED UINT64_MAX /* in `granted`: there will be no more */

/* Written by every process of the session, whoever it runs as: for the collector it is numbers to be checked
 * and nothing else. The file is locked (a shared lock of its open file description, which the mapping keeps)
 * by every process image that found the session, and by all its fork children, to their end. */
struct session_counts {
    uint32_t process_count; /* atomic add takes a number, the first is 1 */
    uint32_t process_pages; /* control pages that were made complete; atomic. Fewer found: some are gone */
    /* events of processes that have no page of their own (no descriptor, no memory, no rights, no room),
     * per kind; atomic */
    _Alignas(64) uint64_t unattached;
    uint64_t unattached_bytes;
    uint64_t unattached_by_kind[VARVE_KIND_LIMIT];
    _Alignas(64) uint64_t spill_bytes; /* of the pieces that there are; atomic */
    uint64_t growth_bytes;             /* of these, in memory; atomic */
    uint64_t memory_bytes;             /* of the rings and pieces that there are in /dev/shm; atomic */
    uint64_t patience_used_ns;         /* how long threads have waited for room, all together; atomic */

    _Alignas(64) uint32_t execs_noted; /* atomic add takes a number, the first is 1 */
    uint32_t execs_written;            /* atomic: notes written so far */
    uint32_t execs_dropped;            /* atomic: notes for which no slot was free */
    _Alignas(64) struct session_exec execs[SESSION_EXECS];
    _Alignas(64) struct reserve_slot reserve[RESERVE_SLOTS];
};

static_assert(sizeof(struct session_counts) <= SESSION_COUNTS_BYTES, "fits its page");

/* The number on a line of /proc/PID/status that begins with `name`; 0 if there is none. */
static inline uint32_t session_status_number(const char *text, const char *name)
{
    const char *at = text;
    uint32_t number = 0;

    while (at != NULL && strncmp(at, name, strlen(name)) != 0) {
        at = strchr(at, '\n');
        at = at != NULL ? at + 1 : NULL;
    }
    for (at = at != NULL ? at + strlen(name) : ""; *at == ' ' || *at == '\t' || (*at >= '0' && *at <= '9'); at++) {
        number = *at >= '0' ? number * 10 + (uint32_t)(*at - '0') : number;
    }
    return number;
}

enum process_state {
    PROCESS_STATE_RUNNING = 1,
    PROCESS_STATE_EXITED = 2,    /* reached its exit handlers or _exit */
    PROCESS_STATE_EXECUTING = 3, /* calls exec: exec_path says what; back to RUNNING if that failed */
    PROCESS_STATE_DETACHED = 4,  /* goes on unrecorded */
};

/* Why allocations of a library in a recorded process are not recorded: words of data_loss. */
#define UNHOOKED_REASON_LIST(X)                                                    \
    X(NONE, "")                                                                    \
    X(ALLOCATOR, "an allocator of its own that could not be hooked")               \
    X(NAMESPACE, "a namespace of its own, which this C library does not show")     \
    X(DEEPBIND, "opened with RTLD_DEEPBIND beside an allocator that is preloaded") \
    X(PROTECTED, "its table of symbols can't be written: only calls that were bound before are recorded")

enum unhooked_reason {
#define UNHOOKED_REASON_CODE(name, text) UNHOOKED_##name,
    UNHOOKED_REASON_LIST(UNHOOKED_REASON_CODE)
#undef UNHOOKED_REASON_CODE
        UNHOOKED_LIMIT
};

#define UNHOOKED_MAX 8U /* named; more are counted */

struct process_unhooked {
    uint32_t reason; /* enum unhooked_reason; atomic, set when the path is there */
    char path[252];  /* its end, if it is longer */
};

/* Is there an interpreter of Python, and are its frames read? */
enum process_python {
    PROCESS_PYTHON_NONE = 0, /* none was found */
    PROCESS_PYTHON_READ = 1,
    PROCESS_PYTHON_UNREAD = 2, /* python_text says which, and why */
};

#define PROCESS_PYTHON_BYTES 128U

/* Written by the workload; the collector only reads it. */
struct process_control {
    uint64_t magic;
    uint32_t version;
    uint32_t process_id; /* N */
    uint32_t parent_id;  /* N of the process that forked this one, 0 if unknown (exec, first) */
    int32_t pid;
    int32_t parent_pid;
    int32_t rank;              /* from RANK and the like, -1 if there is none */
    uint64_t start_ticks_proc; /* field 22 of /proc/pid/stat: with the pid it names a process for good */
    uint64_t start_ticks;      /* clock ticks at attach */
    uint32_t state;            /* enum process_state; atomic */
    uint32_t late_created;     /* ring 0 exists; atomic */
    char executable[1024];
    char exec_path[1024];
    char command_line[4096];     /* arguments separated by NUL, ends with an empty one, cut to fit */
    uint32_t malloc_is_unhooked; /* the program brings its own malloc, which no hook sees */
    uint32_t is_bounded;         /* the collector has looked at its control groups; atomic */

    _Alignas(64) uint32_t ring_count; /* atomic add takes a ring number; starts at 1 */
    uint32_t rings_made;              /* files of rings that were made complete; atomic */
    /* events that no ring could take (no memory, no descriptor, directory gone), per kind; atomic */
    _Alignas(64) uint64_t unattached;
    uint64_t unattached_bytes;
    uint64_t unattached_by_kind[VARVE_KIND_LIMIT];

    _Alignas(64) uint64_t pid_namespace; /* of pid and parent_pid: inode of /proc/self/ns/pid, 0 if unknown */
    uint32_t is_locked;                  /* the mapping keeps a lock of this file, to the end of the image */
    uint32_t is_in_reserve;              /* this page and the call sites are */
    struct session_growth sites;         /* bytes of the call-site file */

    uint32_t unhooked_count; /* libraries that are not recorded; atomic */
    struct process_unhooked unhooked[UNHOOKED_MAX];
    uint32_t python; /* enum process_python; atomic, set when the text is there */
    char python_text[PROCESS_PYTHON_BYTES];
};

static_assert(sizeof(struct process_control) <= PROCESS_CONTROL_BYTES, "fits its pages");

#endif
