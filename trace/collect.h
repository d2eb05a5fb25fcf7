/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording programs: the collector, in a process of its own (varve_collect), and whoever watches it.
 *
 * Functions may be called from any thread; sizes are bytes, times ns; functions return 0 or a negative enum
 * varve_error, with a reason in `message` (caller-owned, may be NULL), unless a comment says otherwise.
 */
#ifndef VARVE_TRACE_COLLECT_H
#define VARVE_TRACE_COLLECT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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

/// `stage` is a word such as "recording", "writing events", "symbols", "summarising"; total 0 = unknown.
typedef void (*varve_collect_progress)(void *context, const char *stage, uint64_t done, uint64_t total);

/// Calls `take` for ranges of record numbers, each number in one range, until every record that the LTTng traces
/// below `folder` hold was named once. In any order.
typedef int varve_collect_numbers(const char *folder,
                                  void (*take)(void *context, uint32_t process, uint32_t ring, uint64_t first,
                                               uint64_t last),
                                  void *context, struct varve_message *message);

enum varve_torch {
    VARVE_TORCH_OFF = 0,
    VARVE_TORCH_ALLOCATE = 1, /* PyTorch allocates from varve */
    VARVE_TORCH_OBSERVE = 2,  /* PyTorch keeps its own allocator; its own history is kept at the end */
};

enum varve_keep {
    VARVE_KEEP_EVENTS = 0,  /* everything */
    VARVE_KEEP_LASTING,     /* but what of the heap and of Python was freed within VARVE_SHORT_EVENTS events */
    VARVE_KEEP_ALLOCATIONS, /* no rows of events */
    VARVE_KEEP_TOTALS, /* neither these nor allocations that were freed: call sites, peaks, timeline, what is live */
};

/* An allocation is short-lived if it is freed so many events, of all threads, after it was made, or sooner. */
#define VARVE_SHORT_EVENTS 4096U

/* The tables of so many stacks take 200 MB in a process. */
#define VARVE_STACKS_MAX (3U << 20)

struct varve_collect_options {
    const char *database_path;      /* the recording directory is this + ".d" while it lasts */
    const char *preload_path;       /* libvarve_preload.so */
    const char *provider_path;      /* libvarve_lttng.so; only for lttng */
    char *const *argv;              /* the program and its arguments, NULL at the end */
    unsigned overflow;              /* enum varve_overflow */
    unsigned stacks;                /* enum varve_stacks */
    unsigned stack_depth;           /* frames kept per stack, at most 256; a quarter are outermost */
    unsigned stacks_max;            /* different stacks kept of a process, at most VARVE_STACKS_MAX */
    unsigned ring_records;          /* per thread; a power of two */
    varve_collect_numbers *numbers; /* to count what the LTTng trace of a killed program lacks; NULL: not counted */
    const char *cupti_path;         /* libvarve-cupti.so; only for cupti */
    const char *replace_path;       /* libvarve-replace.so: it serves cudaMalloc; NULL: the driver does */
    const char *torch_path;         /* libvarve-torch.so; only for torch */
    const char *python_path;        /* the folder with our sitecustomize.py; only for torch */
    const char *on_oom_path;        /* where the state goes when GPU memory is out; only for torch, NULL: nowhere */
    bool heap;
    bool python_allocators;
    bool cuda;
    bool cupti;
    unsigned torch;           /* enum varve_torch */
    bool lttng;               /* to LTTng too: DB without .db, with .ctf */
    bool no_sqlite;           /* to LTTng alone */
    bool replace;             /* an existing database may be overwritten (when the new one is complete) */
    bool quiet;               /* no remarks on stderr */
    uint64_t spill_bytes_max; /* of the records that did not fit the rings; 0: half of what the disk has free */
    unsigned keep;            /* enum varve_keep */
    uint64_t bytes_max;       /* a database of that size goes on with totals; 0: no limit */
    int64_t linger_ns;  /* how long to wait for recorded processes after the program ended; < 0: until all ended */
    int32_t attach_pid; /* a process that runs already, in place of argv; 0: none */
    int64_t attach_ns;  /* end its recording after so long; < 0: when it ends, or by a signal */
    varve_collect_progress progress;
    void *progress_context;
    /* Ctrl-C has come twice while the database is written: called by the handler of the signal, to end the process; the
     * directory keeps what was recorded. NULL: Ctrl-C is answered, and no more. */
    void (*interrupted)(void);
};

struct varve_collect_result {
    uint64_t events, lost, uncommitted; /* emitted = events + lost + uncommitted */
    uint64_t loss_rows;                 /* of view data_loss: it is not complete, also where `lost` is 0 */
    uint64_t processes, threads, allocations;
    uint64_t images;     /* programs that the processes executed, one after the other */
    uint64_t unattached; /* processes of which nothing but the number of lost events is known */
    int wait_status;     /* of the program, as waitpid reports it */
    bool started;        /* the program ran: its status is the one to pass on, whatever the recording's fate */
    char database_path[4096];
    char ctf_path[4096];      /* "": no such trace */
    char torch_history[4096]; /* PyTorch's own histories are this + ".PID.pickle"; "": not asked for */
    uint64_t discarded;       /* events that LTTng says that it discarded */
    uint64_t lttng_missing;   /* of a killed recording: records that the LTTng trace lacks */
    uint64_t own_allocators;  /* processes whose heap was not recorded: their program brings its allocator */
    uint64_t running;         /* recorded processes that lived on when the recording stopped */
    uint64_t unrecorded;      /* times that a program ran which could not be recorded */
    uint64_t kept_events; /* the database had its largest size then and has totals of what followed; 0: it had not */
    uint64_t attach_stopped_ns; /* how long a thread of the process that runs already was held by attaching */
    bool was_detached;          /* its recording ended before it did */
    uint32_t hooked_count;      /* processes, that one or children of it, of which the recorder could not let go: */
    int32_t hooked_pid;         /* the first of them, */
    struct varve_message hooked_why;
    struct varve_message torch_remark; /* of an attached process' PyTorch: what is not as asked for; "": nothing */
};

void varve_collect_options_init(struct varve_collect_options *options);

/// Start the program, record it and all its descendants, finish the database. Signals are handled meanwhile:
/// SIGINT is left to the program, SIGTERM, SIGHUP and SIGQUIT are passed on. Not re-entrant, main thread
/// only. Errors: VARVE_ERROR_NOT_FOUND, PERMISSION, UNSUPPORTED (program), BUSY (another recorder on this
/// output), IO, FULL, DATABASE (recording; the directory is kept for varve_collect_recover if it holds data).
int varve_collect_record(const struct varve_collect_options *options, struct varve_collect_result *result,
                         struct varve_message *message);

/// Record a process that runs already, options->attach_pid, and its fork children: from now to its end, or until this
/// process gets SIGINT, SIGTERM, SIGHUP or SIGQUIT; then it goes on without the recorder. Errors, with the process as
/// it was: those of varve_collect_record, NOT_FOUND (no such process), PERMISSION (it is another user's, or
/// may not be traced).
int varve_collect_attach(const struct varve_collect_options *options, struct varve_collect_result *result,
                         struct varve_message *message);

/// End the recording that varve_collect_attach makes of `pid`, in another process, and wait until its database is
/// there. Where that process has died only the hooks are taken out. Errors: those of varve_collect_attach; NOT_FOUND:
/// it is not recorded. `was_alone_out`: there was nobody left to finish the database.
int varve_collect_detach(int32_t pid, bool *was_alone_out, struct varve_message *message);

/// Finish a recording directory whose collector died. `database_path` NULL: the one beside the directory;
/// `numbers` as in varve_collect_options.
/// Errors: VARVE_ERROR_NOT_FOUND, FORMAT (no recording directory), VERSION, BUSY (its collector lives), IO,
/// FULL, DATABASE.
int varve_collect_recover(const char *directory, const char *database_path, varve_collect_numbers *numbers,
                          varve_collect_progress progress, void *progress_context, struct varve_collect_result *result,
                          struct varve_message *message);

/* ---- Watching a recording under way, from another process (varve_collect) ---- */

enum varve_watch_state {
    VARVE_WATCH_RECORDING,
    VARVE_WATCH_FINISHING, /* the program is over, its database is being written */
    VARVE_WATCH_ENDED,     /* the directory is gone: the database is complete, or nothing was kept */
    VARVE_WATCH_DEAD,      /* nobody works on the directory: it wants varve_collect_recover */
};

struct varve_watch;

/// Watch the recording in `directory` (TRACE.db.d): from here on its collector writes figures once a second, until the
/// last watcher is closed, or has died. Nothing in the directory is changed. Owner of the result: the caller, until
/// varve_watch_close. Threads: one. Errors: VARVE_ERROR_NOT_FOUND, PERMISSION (another user's), FORMAT (no recording
/// directory), VERSION, UNSUPPORTED (it has no database, and no figures).
int varve_watch_open(const char *directory, struct varve_watch **watch_out, struct varve_message *message);
enum varve_watch_state varve_watch_state(const struct varve_watch *watch);
/* Of the document that a recording under way says its figures with (trace/collector/live_figures.c). */
#define VARVE_LIVE_VERSION 2
/// The newest figures: that document, JSON of `*bytes_out` bytes. Owner: the caller, by free. NULL: there are none now.
/// From whom they are is checked, what they are is not.
void *varve_watch_read(const struct varve_watch *watch, size_t *bytes_out);

/* What PyTorch has in the process that `varve attach --torch` records. */
struct varve_watch_torch {
    char path[4096 + 32]; /* of its snapshot, without a history */
    uint64_t bytes;       /* 0: this PyTorch makes none without its history */
    int64_t written_ns;   /* by CLOCK_REALTIME: another number, another snapshot */
    int64_t age_ns;       /* since then */
};

/// The newest snapshot; they come once a second or less often. False: there is none now.
bool varve_watch_torch(const struct varve_watch *watch, struct varve_watch_torch *torch_out);
const char *varve_watch_directory(const struct varve_watch *watch); /* absolute */
void varve_watch_close(struct varve_watch *watch);

/// Directories in which processes of this user record now; with `pid` that of this process alone, which may be the
/// collector or a program that it records. At most `limit`; the result is how many there are. Owner of each path: the
/// caller, by free.
size_t varve_watch_find(int32_t pid, char **paths, size_t limit);

#ifdef __cplusplus
}
#endif

#endif
