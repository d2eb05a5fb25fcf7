/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one public header of trace/: the vocabulary of events (event_list.h, record.h, record_fold.h), errors (error.h),
 * the emit path for code that runs inside a recorded process, and the collector that makes a database of it.
 *
 * Unless a comment says otherwise: functions may be called from any thread; sizes are bytes, times ns;
 * functions return 0 or a negative enum varve_error, with a reason in `message` (caller-owned, may be NULL).
 */
#ifndef VARVE_TRACE_H
#define VARVE_TRACE_H

#include "trace/error.h"
#include "trace/event_list.h"
#include "trace/sink.h"
#include "trace/record.h"
#include "trace/record_fold.h"
#include "trace/replacement.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VARVE_API __attribute__((visibility("default")))
#define VARVE_EMIT_AHEAD 16U /* slots */

/* PRAGMA application_id ("VRVE") and user_version of a trace database; readers refuse others and newer ones.
 */
#define VARVE_DATABASE_APPLICATION_ID 0x56525645
#define VARVE_DATABASE_SCHEMA_VERSION 6
/* The same ("VRVL") of what a recording under way says of itself (trace/store/live.sql). */
#define VARVE_LIVE_APPLICATION_ID 0x5652564c
#define VARVE_LIVE_SCHEMA_VERSION 1

/* ---- Emitting, inside the recorded process (libvarve_trace.so) ---- */

/* A thread's end of its ring. The page it lies in reads as zeros in a fork child, which sends the child's
 * first event down the slow path: it attaches anew and never touches the ring of its parent. */
struct varve_producer {
    uint64_t head;
    uint64_t limit; /* head may grow up to here without a look at the consumer */
    struct varve_record *records;
    uint64_t mask;
    uint64_t *emitted;   /* in the ring's header: records begun */
    uint64_t *published; /* there too: records committed, of the ring or of its spill */
    uint32_t busy;       /* a record is being written: what a signal handler emits now is put aside (idle: always) */
    uint32_t nested;     /* records were put aside: they come before anything new */
};

/// This thread's producer; never NULL (an idle one with limit 0 before the first event).
extern VARVE_API __thread struct varve_producer *varve_producer_current __attribute__((tls_model("initial-exec")));

/// 1 if `ticks` are TSC ticks in this session, and all threads may read it.
extern VARVE_API uint32_t varve_clock_is_tsc;

/// 1 while events also go to a second sink: then none of them takes the fast path.
extern VARVE_API uint32_t varve_emit_has_sink;

/// 1 while several events of a call may be one record: this process records, and no second sink gets each of them.
extern VARVE_API uint32_t varve_emit_may_fold;

/// Everything that the fast path leaves out: first event of a thread, full ring, nested events, fork
/// children, the second sink.
VARVE_API void varve_emit_slow(const struct varve_record *record);
VARVE_API void varve_emit_nested(void);

/// CLOCK_MONOTONIC, past the C library. Async-signal-safe.
VARVE_API uint64_t varve_clock_monotonic_ns(void);

/// The session's clock where that is not the TSC, or where this thread may not read it.
VARVE_API uint64_t varve_clock_ticks_elsewhere(void);

static inline uint64_t varve_clock_ticks(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(varve_clock_is_tsc != 0, 1)) {
        return __builtin_ia32_rdtsc();
    }
#endif
    return varve_clock_ticks_elsewhere();
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

/* The collector has read the slots of the lap before: fetch a later one back from its core for writing, long
 * before it is its turn. */
static inline void varve_emit_fetch(const struct varve_record *slot)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*slot));
#else
    __builtin_prefetch(slot, 1);
#endif
}

/* The last eight bytes of a record. */
static inline uint64_t varve_record_last(uint32_t callsite, unsigned pool, unsigned device, unsigned cause)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return callsite | (uint64_t)pool << 32 | (uint64_t)device << 48 | (uint64_t)cause << 56;
#else
#error "the order of the last fields"
#endif
}

/* A word of a record goes into its slot as it is: compilers would gather pairs of them in a vector register, which
 * takes longer than the second store, and spill what they gather. */
static inline void varve_emit_store(void *to, uint64_t word)
{
    typedef volatile uint64_t __attribute__((may_alias)) varve_word;

    *(varve_word *)to = word;
}

/* The slow path wants a record in memory. */
static __attribute__((noinline, unused, cold)) void varve_emit_words_slow(uint64_t ticks, uint64_t addr, uint64_t size,
                                                                          uint64_t requested, uint64_t arg,
                                                                          uint64_t id_stream, uint64_t tag,
                                                                          uint64_t last)
{
    struct varve_record record;

    record.ticks = ticks;
    record.addr = addr;
    record.size = size;
    record.requested = requested;
    record.arg = arg;
    record.id_stream = id_stream;
    record.dev_seq_kind_flags = tag;
    record.callsite = (uint32_t)last;
    record.pool = (uint16_t)(last >> 32);
    record.device = (uint8_t)(last >> 48);
    record.cause = (uint8_t)(last >> 56);
    varve_emit_slow(&record);
}

/// Write one record, given as the words it consists of (`tag`: varve_record_tag, `last`: varve_record_last), which so
/// stay in registers until they are in its slot. The time is filled in here. Async-signal-safe; never allocates;
/// no system call unless the ring is full or new. Without a session the record is dropped at once.
static inline __attribute__((always_inline)) void varve_emit_words(uint64_t addr, uint64_t size, uint64_t requested,
                                                                   uint64_t arg, uint64_t id_stream, uint64_t tag,
                                                                   uint64_t last)
{
    struct varve_producer *producer = varve_producer_current;
    struct varve_record *slot;
    uint64_t ticks;
    uint64_t head;

    if (__builtin_expect(
            (producer->busy | producer->nested | __atomic_load_n(&varve_emit_has_sink, __ATOMIC_RELAXED)) != 0 ||
                producer->head >= producer->limit,
            0)) {
        varve_emit_words_slow(0, addr, size, requested, arg, id_stream, tag, last);
        return;
    }
    varve_emit_count(producer->emitted);
    ticks = varve_clock_ticks(); /* after the count, which is what a watermark rests on: see collector/ring_merge.c */
    producer->busy = 1;
    __asm__ volatile("" ::: "memory"); /* from here on a signal handler puts its events, which are later, aside */
    head = producer->head;
    if (__builtin_expect(head >= producer->limit, 0)) {
        producer->busy = 0; /* a handler has filled the ring meanwhile */
        varve_emit_words_slow(ticks, addr, size, requested, arg, id_stream, tag, last);
        return;
    }
    slot = &producer->records[head & producer->mask];
    varve_emit_fetch(&producer->records[(head + VARVE_EMIT_AHEAD) & producer->mask]);
    varve_emit_store(&slot->ticks, ticks);
    varve_emit_store(&slot->addr, addr);
    varve_emit_store(&slot->size, size);
    varve_emit_store(&slot->requested, requested);
    varve_emit_store(&slot->arg, arg);
    varve_emit_store(&slot->id_stream, id_stream);
    varve_emit_store(&slot->dev_seq_kind_flags, tag);
    varve_emit_store(&slot->callsite, last);
    __atomic_store_n(producer->published, head + 1, __ATOMIC_RELEASE);
    producer->head = head + 1;
    __asm__ volatile("" ::: "memory");
    producer->busy = 0;
    __asm__ volatile("" ::: "memory");
    if (__builtin_expect(producer->nested != 0, 0)) {
        varve_emit_nested();
    }
}

/// The same for a record whose `ticks` are 0. The compiler makes words of its fields where it sees them being set.
static inline __attribute__((always_inline)) void varve_emit(const struct varve_record *record)
{
    varve_emit_words(record->addr, record->size, record->requested, record->arg, record->id_stream,
                     record->dev_seq_kind_flags,
                     varve_record_last(record->callsite, record->pool, record->device, record->cause));
}

/// The same, not inline, for those who find it by dlsym: a program that is being recorded.
VARVE_API void varve_emit_record(const struct varve_record *record);

/// Number of the calling thread's stack, for varve_record.callsite, beginning with the caller; 0: none is
/// wanted. Async-signal-safe, never allocates. It is in the call-site file before it is returned.
VARVE_API uint32_t varve_callsite_here(void);

/// Publish the Python frames of the calling thread, without the `skip` innermost, as the parent stack that other
/// threads inherit in varve_callsite_here: until the matching withdrawal, for which this thread stays inside the
/// frames. Who has Python frames already puts them inside of these, unless its outermost one runs `thread_code`: the
/// code object in which threads that Python starts begin; borrowed, NULL: none. Nests; one thread publishes at a time.
/// The caller holds the GIL.
VARVE_API void varve_python_stack_publish(uint32_t skip, const void *thread_code);
VARVE_API void varve_python_stack_withdraw(void);

/// Is anything of these kinds (enum varve_records) wanted by the session that this process belongs to?
/// False without a session. A load and a branch.
enum varve_records {
    VARVE_RECORDS_HEAP = 1,    /* the malloc family, mmap */
    VARVE_RECORDS_CUDA = 2,    /* calls of the CUDA driver about memory */
    VARVE_RECORDS_CUPTI = 4,   /* the same as CUPTI reports them */
    VARVE_RECORDS_TORCH = 8,   /* PyTorch's allocator, or ours in its place */
    VARVE_RECORDS_PYTHON = 16, /* what Python interpreters cut from their arenas */
};
VARVE_API bool varve_records_wanted(unsigned records);

/* Not to be called by others. */
static inline void varve_mark_emit(enum varve_kind kind, const char *name)
{
    uint64_t words[3] = {0};
    char *text = (char *)words;

    if (!varve_records_wanted(UINT32_MAX)) {
        return;
    }
    for (unsigned i = 0; i < sizeof(words) && name[i] != '\0'; i++) {
        text[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    }
    varve_emit_words(words[0], words[1], words[2], 0, 0, varve_record_tag(0, kind, 0),
                     varve_record_last(varve_callsite_here(), 0, 0, 0));
}

/// A phase of the program begins, of all its threads: what is created in it and outlives it is growth (view
/// storage_growth). Phases nest. Of the name the first 24 bytes count, and others than printable ASCII become '?'.
static inline void varve_mark_begin(const char *name)
{
    varve_mark_emit(VARVE_KIND_MARK_BEGIN, name);
}

/// The innermost phase of that name ends; nothing if there is none.
static inline void varve_mark_end(const char *name)
{
    varve_mark_emit(VARVE_KIND_MARK_END, name);
}

/// A number for a stream of a device, for varve_record.id_stream: 0 for handle 0, else the same number for
/// the same handle until the process ends; described once by a STREAM event. 65535: there are too many.
VARVE_API unsigned varve_stream_number(unsigned device, uint64_t handle);
/// Report once what `device`, a number of this process, is: DEVICE and DEVICE_NAME events. Later calls for the
/// same device do nothing. The collector numbers devices of all processes by their UUID.
VARVE_API void varve_device_describe(unsigned device, const unsigned char uuid[16], uint64_t total_bytes,
                                     const char *name);
VARVE_API bool varve_device_is_described(unsigned device);

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
    VARVE_KEEP_ALLOCATIONS, /* no rows of events */
    VARVE_KEEP_TOTALS, /* neither these nor allocations that were freed: call sites, peaks, timeline, what is live */
};

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

/// End this process as the recorded program ended: same exit status, or same signal, without a core file.
void varve_collect_exit_like(int wait_status) __attribute__((noreturn));

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
/// The newest figures: an SQLite database (trace/store/live.sql) of `*bytes_out` bytes. Owner: the caller, by free.
/// NULL: there are none now. From whom they are is checked, what they are is not.
void *varve_watch_read(const struct varve_watch *watch, size_t *bytes_out);
const char *varve_watch_directory(const struct varve_watch *watch); /* absolute */
void varve_watch_close(struct varve_watch *watch);

/// Directories in which processes of this user record now; with `pid` that of this process alone, which may be the
/// collector or a program that it records. At most `limit`; the result is how many there are. Owner of each path: the
/// caller, by free.
size_t varve_watch_find(int32_t pid, char **paths, size_t limit);

/* ---- Results that are there whole or not at all (varve_collect) ---- */

/// May a result be put at `path`? What is there must be a file, or a link (which is not followed: it would be
/// replaced itself) that does not lead to anything else. Errors: VARVE_ERROR_INVALID.
int varve_publish_check(const char *path, bool may_replace, struct varve_message *message);
/// A new folder beside `path`, for what will be moved there; its name into `folder`. Errors: as
/// varve_publish_check; VARVE_ERROR_INVALID (too long a name), NOT_FOUND, PERMISSION, FULL, IO.
int varve_publish_folder_make(const char *path, bool may_replace, char *folder, size_t folder_bytes,
                              struct varve_message *message);
/// The folder goes, with the files in it.
void varve_publish_folder_remove(const char *folder);
/// Move the file or folder `from` to `path`, a file to another file system by way of a copy beside `path`; without
/// may_replace nothing is ever overwritten. Errors: VARVE_ERROR_INVALID (something is there), FULL, IO;
/// `from` stays then.
int varve_publish_move(const char *from, const char *path, bool may_replace, struct varve_message *message);
/// The folder that is being filled goes: for those about to call _exit, and for handlers of signals. Needs no memory.
void varve_publish_abandon(void);

/* ---- Writing a trace database without a recording (varve_collect) ---- */

/* One thread at a time. Texts are borrowed for the call, NULL is NULL. Errors stick: after the first one
 * every call returns it (those that give a number: 0), and varve_writer_finish returns the reason. */
struct varve_writer;

struct varve_writer_process {
    int32_t pid;                           /* at least 1 */
    int32_t rank;                          /* < 0: none */
    const char *executable, *command_line; /* may be NULL */
};

struct varve_writer_symbol {
    const char *function, *file, *module; /* NULL if unknown */
    uint32_t line;                        /* 0 if unknown */
    bool is_python, is_inlined;
};

/// Nothing appears at `path` before varve_writer_finish succeeded. Errors: VARVE_ERROR_INVALID (it exists and
/// may not be replaced), NOT_FOUND (no such folder), PERMISSION, FULL, IO, DATABASE.
int varve_writer_open(const char *path, bool replace, struct varve_writer **writer_out, struct varve_message *message);

int varve_writer_meta_text(struct varve_writer *writer, const char *key, const char *value);
int varve_writer_meta_integer(struct varve_writer *writer, const char *key, int64_t value);
/// The process of the events that follow; without it there is one of pid 1 and without a name. Each pid is one
/// process, described by the last call. The number of its first thread, 0 on an error.
uint32_t varve_writer_process(struct varve_writer *writer, const struct varve_writer_process *process);
/// A thread of that process, at most 65536 in all; the first one is that which came with it, unless it has had events
/// already. `name` may be NULL. Its number, for varve_writer_use_thread; 0 on an error.
uint32_t varve_writer_thread(struct varve_writer *writer, int32_t tid, const char *name);
/// The events that follow are of this thread, and of its process.
int varve_writer_use_thread(struct varve_writer *writer, uint32_t number);
/// A row of `stats` of source 'import': what was wrong with the source; a loss is in every report.
int varve_writer_stat(struct varve_writer *writer, const char *name, bool is_loss, uint64_t value);
/// total_bytes 0: unknown.
int varve_writer_device(struct varve_writer *writer, unsigned index, const char *name, uint64_t total_bytes);
/// What a stream number of records means.
int varve_writer_stream(struct varve_writer *writer, unsigned device, unsigned number, uint64_t handle);
/// What a pool number of records means; ids {0, 0}: the default pool. Without it bit 0 says whether the pool
/// is a small one, and bits 1 to 15 number the private pools, 0 the default one.
int varve_writer_pool(struct varve_writer *writer, unsigned device, unsigned number, uint64_t capture_id,
                      uint64_t user_id, bool is_small);
/// A number for varve_writer_callsite; equal symbols have one.
uint32_t varve_writer_symbol(struct varve_writer *writer, const struct varve_writer_symbol *symbol);
/// `symbols`: the frames, innermost first. Every call gives a new number, 1, 2, …, for varve_record.callsite.
uint32_t varve_writer_callsite(struct varve_writer *writer, const uint32_t *symbols, uint32_t depth);
/// The next event, copied: its number is one more than that of the one before. `ticks` of the record is not
/// looked at; ts_ns is since the trace began. Ids become rows: of `allocation` (ALLOC, FREE_REQUESTED,
/// FREE_COMPLETED, RECORD_STREAM), of `segment` (SEGMENT_*, SPLIT, MERGE), found by address; where `arg` is a
/// segment id, 0 means unknown.
int varve_writer_event(struct varve_writer *writer, const struct varve_record *record, int64_t ts_ns);
uint64_t varve_writer_events(const struct varve_writer *writer);
/// Derived tables, indexes; then the file moves to its place. Ends the writer, after an error too; then
/// nothing is left behind.
int varve_writer_finish(struct varve_writer *writer, varve_collect_progress progress, void *context,
                        struct varve_message *message);
/// End without a database; nothing is left behind. NULL is allowed.
void varve_writer_abandon(struct varve_writer *writer);

/* ---- Which frame of a stack is the user's (varve_collect) ---- */

/* From the outermost frame of a stack inwards, a frame becomes the user's line unless that has a larger rank already:
 * so the innermost frame of the largest rank is. None above VARVE_FRAME_PLUMBING: the stack has no user's line. */
enum varve_frame_rank {
    VARVE_FRAME_PLUMBING = 0, /* allocation functions, their wrappers; what has neither name nor module */
    VARVE_FRAME_RUNTIME,      /* a native function of a run-time library or an interpreter */
    VARVE_FRAME_UNNAMED,      /* native code without a symbol */
    VARVE_FRAME_NAMED,        /* a native function */
    VARVE_FRAME_SOURCE,       /* a native function whose source line is known; Python code that runs other code */
    VARVE_FRAME_LIBRARY,      /* a line of Python's own library, or of an installed package */
    VARVE_FRAME_GENERATED,    /* Python code that is in no file: exec, -c, a cell of a notebook */
    VARVE_FRAME_USER,         /* another line of Python */
};

/* The table of patterns. One thread at a time adds to it; any number may ask. */
struct varve_plumbing;

/// The built-in table; owner: the caller, by varve_plumbing_close. Errors: VARVE_ERROR_NO_MEMORY.
int varve_plumbing_open(struct varve_plumbing **plumbing_out);
void varve_plumbing_close(struct varve_plumbing *plumbing);
/// One more pattern: `function:`, `file:`, `module:`, `library:` or `framework:` and a text in which * stands for any
/// characters; without such a word it is of functions, with a slash in it of files and modules. Copied. Errors:
/// VARVE_ERROR_INVALID (it is empty), NO_MEMORY.
int varve_plumbing_add(struct varve_plumbing *plumbing, const char *pattern, struct varve_message *message);
/// A line a pattern; spaces around it, empty lines and lines that begin with # are passed over. Errors as above, with
/// the line's number.
int varve_plumbing_add_lines(struct varve_plumbing *plumbing, const char *text, struct varve_message *message);
enum varve_frame_rank varve_plumbing_rank(const struct varve_plumbing *plumbing,
                                          const struct varve_writer_symbol *symbol);

/* ---- Rebuilding a recording from a trace of its second sink (varve_collect) ---- */

/* One thread at a time. Errors stick, as in a writer. Nothing appears at the target before
 * varve_rebuild_finish succeeded; until then everything lies in a folder beside it. */
struct varve_rebuild;

/// Errors: those of varve_writer_open.
int varve_rebuild_open(const char *path, bool replace, struct varve_rebuild **rebuild_out,
                       struct varve_message *message);
/// One record, with its flag SINKED or without. In any order, and more than once: records of a ring are put
/// in the order of ring_seq, the first of equal ones is taken, missing ones become a `lost` event and a row
/// of `stats`. Rings and processes that nobody describes are made up from `origin`.
int varve_rebuild_record(struct varve_rebuild *rebuild, const struct varve_sink_origin *origin, uint64_t ring_seq,
                         const struct varve_record *record);
/* Each may come more than once (then the last one counts; of call sites the first) and in any order, but a
 * call site comes after the modules and code objects of its frames. Of two recordings in one trace the one
 * whose trace_id comes first is taken, and records of processes that belong to the other are left out. */
int varve_rebuild_process(struct varve_rebuild *rebuild, const struct varve_sink_process *process);
int varve_rebuild_process_end(struct varve_rebuild *rebuild, const struct varve_sink_process_end *end);
int varve_rebuild_thread(struct varve_rebuild *rebuild, const struct varve_sink_thread *thread);
int varve_rebuild_thread_end(struct varve_rebuild *rebuild, const struct varve_sink_thread_end *end);
int varve_rebuild_clock(struct varve_rebuild *rebuild, const struct varve_sink_clock *clock);
int varve_rebuild_module(struct varve_rebuild *rebuild, const struct varve_sink_module *module);
int varve_rebuild_module_gone(struct varve_rebuild *rebuild, uint32_t process, int32_t pid, uint32_t number);
int varve_rebuild_code(struct varve_rebuild *rebuild, const struct varve_sink_code *code);
int varve_rebuild_callsite(struct varve_rebuild *rebuild, const struct varve_sink_callsite *callsite);
int varve_rebuild_meta_text(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key, const char *value);
int varve_rebuild_meta_integer(struct varve_rebuild *rebuild, uint64_t trace_id, const char *key, int64_t value);
/// Any of these. An item of kind NONE is nothing.
int varve_rebuild_item(struct varve_rebuild *rebuild, const struct varve_sink_item *item);
/// A row of `stats` of source 'lttng': what the sink itself says of its losses. Equal names are added up.
int varve_rebuild_stat(struct varve_rebuild *rebuild, const char *name, bool is_loss, uint64_t value);
/// Events taken so far.
uint64_t varve_rebuild_events(const struct varve_rebuild *rebuild);
/// Order, derive, store; then the database moves to its place. Ends the rebuild, after an error too.
/// VARVE_ERROR_FORMAT: there was nothing in it, neither an event nor a word of a recording.
int varve_rebuild_finish(struct varve_rebuild *rebuild, varve_collect_progress progress, void *context,
                         struct varve_collect_result *result, struct varve_message *message);
void varve_rebuild_abandon(struct varve_rebuild *rebuild); /* NULL is allowed */

/* ---- Layout: the segments and blocks of one device's allocator at a moment (varve_collect) ---- */

enum varve_layout_state {
    VARVE_LAYOUT_FREE = 0,
    VARVE_LAYOUT_USED = 1,
    VARVE_LAYOUT_PENDING = 2, /* given back, but other streams may still use it */
};

struct varve_layout_block {
    uint64_t addr;
    uint64_t extent;         /* bytes up to the next block, or to the end of what is mapped */
    uint64_t size;           /* the same, unless the trace contradicts itself */
    uint64_t requested;      /* of a free block what it was last asked for (stale, as PyTorch leaves it) */
    uint64_t segment_id;     /* row of `segment`; 0: implied */
    uint32_t segment_number; /* the allocator's own */
    uint32_t segment;        /* distinguishes segments of this layout */
    uint16_t stream, pool;
    enum varve_layout_state state;
    bool is_expandable;
    bool is_implied; /* no event names its segment: the trace began later */
};

/* One thread at a time for each. */
struct varve_layout;

/// Empty. Owner: the caller, by varve_layout_free (NULL allowed). NULL: no memory.
struct varve_layout *varve_layout_new(void);
void varve_layout_free(struct varve_layout *layout);
/// Become what a row of the table `keyframe` says. Errors: VARVE_ERROR_CORRUPT, NO_MEMORY; then it is only
/// good to be freed or decoded into again.
int varve_layout_decode(struct varve_layout *layout, const void *bytes, size_t count);
/// Take an event of this device, as it is in the table `event` (ids are rows); kinds that change no block are
/// ignored. VARVE_ERROR_NO_MEMORY.
int varve_layout_apply(struct varve_layout *layout, const struct varve_record *record);
/// The first block that ends after `from`; false if there is none. Going on: from = addr + extent.
bool varve_layout_block(const struct varve_layout *layout, uint64_t from, struct varve_layout_block *block_out);
/// The trace has no splits and merges: sizes of blocks follow from requests alone.
bool varve_layout_is_approximate(const struct varve_layout *layout);

#ifdef __cplusplus
}
#endif

#endif
