/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the half of trace/ that runs outside the workload */
/*
 * What the collector's files share: from rings to a database. One thread, the collector's, calls all of it.
 *
 *   ring_reader ─► merge (order by time) ─► derive (pair, total) ─► store (SQLite)
 *                        sites (call sites of each process) ─► symbols at the end ─► store
 */
#ifndef VARVE_COLLECT_INTERNAL_H
#define VARVE_COLLECT_INTERNAL_H

#include "trace/error.h"
#include "trace/record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An event as it is stored: decoded, in global order. 0 in id and callsite means none. */
struct event {
    uint64_t seq;  /* 1, 2, … in global order */
    int64_t ts_ns; /* since the trace began */
    uint32_t process_id;
    uint32_t thread_id; /* row of `thread`: number of the ring in the session */
    int32_t pid;
    int32_t tid;
    uint8_t kind;
    uint8_t cause;
    uint8_t device;
    uint8_t flags;
    bool is_stored; /* read back from a database: `device` is the collector's number already */
    uint16_t pool;
    uint16_t stream;
    uint32_t callsite; /* row of `callsite`, the same number for equal stacks of all processes */
    uint64_t ring_seq; /* of its ring: 1, 2, …, numbers of lost records included; 0: none */
    uint64_t dev_seq;
    uint64_t id; /* heap, mmap, device: given by derive_event */
    uint64_t addr;
    uint64_t size;
    uint64_t requested;
    uint64_t arg;
};

/* ---- base/array.c ---- */

/// Make room for `needed` elements in a grown array; false without memory.
bool array_grow(void **array, size_t *capacity, size_t needed, size_t element_bytes);

enum domain {
    DOMAIN_HEAP = 1,    /* malloc and its kin */
    DOMAIN_MMAP = 2,    /* mmap by the program itself, not by the C library */
    DOMAIN_DEVICE = 3,  /* CUDA API: memory of a device */
    DOMAIN_BLOCK = 4,   /* blocks of a caching allocator */
    DOMAIN_PINNED = 5,  /* CUDA API: memory of the host that devices reach */
    DOMAIN_MANAGED = 6, /* CUDA API: memory that moves between host and devices */
    DOMAIN_CUPTI = 7,   /* what DOMAIN_DEVICE is, as CUPTI tells it beside the CUDA recorder */
    DOMAIN_LIMIT = 8,
};

/* ---- collector/clock.c, for all; the rest of it is in collector/collector.h ---- */

uint64_t collect_monotonic_ns(void);

/* ---- event_names.c: tables made from the lists ---- */

struct event_kind_info {
    const char *name;
    const char *group;
    const char *addr, *size, *requested, *arg; /* "" if the kind does not use the field */
    const char *meaning;
};

const struct event_kind_info *event_kind_info(unsigned kind); /* NULL if there is no such kind */
const char *event_cause_text(unsigned cause);                 /* NULL if there is no such cause */

/* ---- store/publish.c; the rest of it is in trace.h ---- */

/// Move trace.db of `folder` to `path`. Errors: as varve_publish_move.
int publish_file(const char *folder, const char *path, bool may_replace, struct varve_message *message);

/* ---- model/derive.c, derive_*.c: what follows from the events in their order ---- */

struct derive;
struct store;

/// `scratch_path`: a file of the recording directory that holds one fixed-size row per allocation until the
/// end; created or emptied. Owner of the result: the caller, until derive_close.
int derive_open(const char *scratch_path, struct derive **derive_out, struct varve_message *message);

/// Take one event in order of seq; completes it: ids and sizes of frees, requested, causes `inherited` and
/// `unknown_address`, size and callsite of what a free refers to; of an allocator's event the row of its
/// allocation or segment as id; the number of the device in its process becomes the one of the trace
/// (DEVICE and STREAM events keep the former as id). After an error (VARVE_ERROR_FULL, NO_MEMORY) nothing has
/// changed: the same event may be tried again.
int derive_event(struct derive *derive, struct event *event, struct varve_message *message);

/// True if `event` allocates an address that is still live in its process, or frees one that is not: then the
/// free, or the allocation, that must have come before it is still to be read from another ring (the clocks
/// of two CPUs were read within ns of each other), and the merge should let other rings go first for a
/// moment. The same of physical memory of a device, which a handle names. Events of a caching allocator are
/// numbered (dev_seq): true if numbers before this one are missing.
bool derive_is_premature(const struct derive *derive, const struct event *event);

/// A process image ended or was replaced: its live allocations stay recorded as leaks, its index entries go.
/// `forked_from`: a child inherits what its parent had; frees of that are marked `inherited`.
void derive_process_start(struct derive *derive, uint32_t process_id, uint32_t forked_from);
void derive_process_end(struct derive *derive, uint32_t process_id);

/// Allocations seen so far.
uint64_t derive_allocations(const struct derive *derive);
/// Sizes of damaged records, larger than any block can be: these count as 0 bytes.
uint64_t derive_sizes_refused(const struct derive *derive);

/// Write allocation, callsite_stat, total_stat, sample, segment, oom, keyframe into the store, and of the
/// device API device, process_device, stream, pool, device_call_stat, stream_stat, device_memory,
/// device_event.
int derive_finish(struct derive *derive, struct store *store, struct varve_message *message);
void derive_close(struct derive *derive);

/// Walk everything and compare the sums; 0 or VARVE_ERROR_CORRUPT with the reason.
int derive_check(const struct derive *derive, struct varve_message *message);

/* ---- store/writer.c (and store/schema.c, store/image.c, store/derived.c): the database ---- */

enum store_mode {
    STORE_CREATE, /* the file must not exist */
    /* The same, and nobody reads it or wants it before store_finish: the first error leaves it useless. */
    STORE_CREATE_PRIVATE,
    STORE_RESUME, /* a recording whose collector died: continue it */
};

/// Owner of the result: the caller, until store_close. Errors: VARVE_ERROR_BUSY if another collector writes
/// it.
int store_open(const char *path, enum store_mode mode, struct store **store_out,
               struct varve_message *message);

/// After STORE_RESUME: everything was stored and derived; only store_finish is left to be called, and nothing
/// else.
bool store_is_complete(const struct store *store);

/// Append one event (copied): it goes into the database with the next commit. VARVE_ERROR_FULL: the event was
/// taken, but no other can be before a commit (a million or more wait for one).
int store_append(struct store *store, const struct event *event, struct varve_message *message);

/// Events appended since the last commit.
uint64_t store_pending(const struct store *store);

struct store_ring_position {
    uint32_t thread_id;
    uint32_t process_id;
    uint32_t ring;
    uint64_t tail;       /* ring records taken so far */
    uint64_t spill_tail; /* spilled records taken so far */
    uint64_t sequence;   /* event.ring_seq of the last one */
    uint64_t orphans;    /* records put aside by signal handlers, taken so far */
    uint64_t unreadable; /* of all these, those that could not be stored */
    uint64_t last_ticks; /* of the last record */
    int64_t last_ns;
    bool is_final; /* read back: the row of its thread is complete, and its file may be gone */
    /* by a collector that continues: its file is there, can't be read */
    bool is_found, is_damaged;
};

/// Insert what is pending, store the positions of the rings that advanced, and commit: all or nothing. After
/// an error (VARVE_ERROR_FULL) everything since the last commit is kept, and the call may be repeated.
int store_commit(struct store *store, const struct store_ring_position *positions, size_t count,
                 struct varve_message *message);

/* Rows of the small tables; text pointers are borrowed for the call, NULL is SQL NULL. Inside the open
 * transaction. */
int store_meta_text(struct store *store, const char *key, const char *value);
int store_meta_integer(struct store *store, const char *key, int64_t value);

struct store_process {
    uint32_t id, parent_id;
    int32_t pid, parent_pid, rank;
    const char *executable, *command_line, *end_cause, *exec_path;
    int64_t start_ns, end_ns; /* end_ns < 0: NULL */
    int exit_status;          /* < 0: NULL */
    uint64_t unattached, unattached_bytes;
};

struct store_thread {
    uint32_t id, process_id, ring;
    int32_t pid, tid;
    const char *name;
    int64_t start_ns, end_ns; /* end_ns < 0: NULL */
    uint64_t emitted, stored, spilled, lost, lost_bytes, uncommitted, unreadable;
    const char *damage; /* 'missing', 'cut', 'damaged'; NULL: none */
};

/* The books of all rings and processes, as the tables have them. */
struct store_sums {
    uint64_t emitted, stored, spilled, lost, lost_bytes, uncommitted, unreadable;
    uint64_t damaged; /* rings whose contents are not known for sure */
    uint64_t threads, processes;
    uint64_t unattached, unattached_bytes;
};

int store_process(struct store *store, const struct store_process *row); /* insert or replace */
int store_thread(struct store *store, const struct store_thread *row);   /* insert or replace */
/// Nothing more can be read of a ring: its row says what of it had been stored, and why that is all.
int store_thread_gone(struct store *store, const struct store_ring_position *position, const char *damage,
                      int64_t end_ns);
/// Over all rows of process and thread, those of the open transaction too.
int store_sum(struct store *store, struct store_sums *sums_out, struct varve_message *message);
int store_stat(struct store *store, const char *name, int64_t idx, const char *severity, const char *source,
               int64_t value);
/// Add to the number of times that a program ran and could not be recorded.
int store_unrecorded(struct store *store, const char *path, const char *reason, int64_t count);
/// Forget those that failed to run after all; `total_out`: how many ran.
int store_unrecorded_finish(struct store *store, int64_t *total_out);
int store_clock_anchor(struct store *store, uint64_t ticks, int64_t mono_ns, int64_t real_ns);

/* What the numbers in allocators' events mean. */
int store_device(struct store *store, unsigned device, const char *name, uint64_t total_bytes);
int store_stream(struct store *store, uint32_t process_id, unsigned device, unsigned number, uint64_t handle);
int store_pool(struct store *store, uint32_t process_id, unsigned device, unsigned number,
               uint64_t capture_id, uint64_t user_id, bool is_small);

struct store_symbol {
    const char *function, *file, *module; /* NULL if unknown */
    uint32_t line;                        /* 0 if unknown */
    bool is_python, is_inlined;
};

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex);
/// Returns the symbol's row (equal symbols get one row), 0 on failure.
uint32_t store_symbol(struct store *store, const struct store_symbol *symbol);
int store_callsite(struct store *store, uint32_t id, uint32_t depth, uint32_t symbol_id);
int store_callsite_frame(struct store *store, uint32_t callsite_id, uint32_t depth, uint32_t symbol_id,
                         int64_t pc); /* pc < 0: NULL */

/// For STORE_RESUME: hand back every stored event in order of seq (to feed derive_event again), the ring
/// positions, the anchors, the meta values.
int store_each_event(struct store *store, int (*take)(void *context, struct event *event), void *context,
                     struct varve_message *message);
int store_each_ring_position(struct store *store,
                             int (*take)(void *context, const struct store_ring_position *), void *context,
                             struct varve_message *message);
int store_each_clock_anchor(struct store *store,
                            int (*take)(void *context, uint64_t ticks, int64_t mono_ns, int64_t real_ns),
                            void *context, struct varve_message *message);
/// The processes whose rows are complete, by number; parent_id 0: none, or unknown.
int store_each_ended_process(struct store *store,
                             int (*take)(void *context, uint32_t process_id, uint32_t parent_id),
                             void *context, struct varve_message *message);
int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t site);
int store_each_callsite_origin(struct store *store,
                               int (*take)(void *context, uint32_t callsite_id, uint32_t process_id,
                                           uint32_t site),
                               void *context, struct varve_message *message);
/// Rows of view data_loss.
int store_count_losses(struct store *store, uint64_t *count_out, struct varve_message *message);
/// The figures of one name, as store_stat took them.
int store_each_stat(struct store *store, const char *name,
                    int (*take)(void *context, int64_t idx, int64_t value), void *context,
                    struct varve_message *message);
/// Key of the number of commits, until the recording is finished.
#define STORE_META_COMMITS "commits"
int store_meta_get_integer(struct store *store, const char *key,
                           int64_t *value_out); /* VARVE_ERROR_NOT_FOUND */

/// The recording that a complete database is of; nothing is changed. Errors: VARVE_ERROR_NOT_FOUND (no
/// complete trace database is at `path`).
int store_peek_trace(const char *path, int64_t *trace_id_out);
/// The figures that a recovery says of its recording, from the database at `path`; the rest of `result` is
/// left alone. Errors: VARVE_ERROR_NOT_FOUND (it can't be read).
struct varve_collect_result;
int store_peek_result(const char *path, struct varve_collect_result *result);

typedef void (*store_progress)(void *context, const char *stage, uint64_t done, uint64_t total);

/// Last steps: indexes, ANALYZE, ring_position emptied, meta.complete = 1, WAL folded in,
/// journal_mode=DELETE: afterwards the database is one file that opens read-only. derive_finish comes before.
int store_finish(struct store *store, store_progress progress, void *context, struct varve_message *message);
void store_close(struct store *store);

/* ---- symbols/callsites/reader.c: the call-site files of the processes ---- */

struct sites;

int sites_open(struct sites **sites_out);
void sites_close(struct sites *sites);

struct sites_entry;

/// Called with each sound entry of a call-site file (format/callsite_file.h), in the order of the file. Borrowed.
typedef void sites_listener(void *context, uint32_t process_id, const struct sites_entry *entry,
                            const uint8_t *payload);
void sites_listen(struct sites *sites, sites_listener *listener, void *context);
/// Tell the listener again all entries that were taken of files that are still there.
void sites_retell(const struct sites *sites);

/// Announce the call-site file of a process (it may not exist yet, or never).
int sites_process(struct sites *sites, uint32_t process_id, const char *path);
/// Done with the file of a process: reads what is left and closes it.
void sites_process_end(struct sites *sites, uint32_t process_id);

/// Number of a call site, equal for equal stacks (module, address in the module, Python frames) of all
/// processes; `local` is varve_record.callsite, 0 gives 0. 0 also for a number that the file does not hold.
uint32_t sites_global(struct sites *sites, uint32_t process_id, uint32_t local);

/// Before each store_commit: remembers where the call sites numbered since the last one were first seen
/// (table callsite_origin), so that an interrupted recording can be continued with the same numbers.
int sites_commit(struct sites *sites, struct store *store);
/// After all processes of an interrupted recording were announced: takes the numbers from callsite_origin.
int sites_resume(struct sites *sites, struct store *store, struct varve_message *message);
/// Write module, symbol, callsite, callsite_frame: symbols are resolved now, with elfutils, in parallel with
/// nothing. Native and Python frames are merged: each run of interpreter-loop frames stands for its Python
/// frames.
int sites_finish(struct sites *sites, struct store *store, store_progress progress, void *context,
                 struct varve_message *message);

/* ---- symbols/symbols.c: address in a module → function, file, line, inlined frames ---- */

struct symbols;

struct symbols_frame {
    const char *function; /* demangled; NULL if unknown; borrowed for the call */
    const char *file;
    uint32_t line;
    bool is_inlined;
};

int symbols_open(struct symbols **symbols_out, struct varve_message *message);
void symbols_close(struct symbols *symbols);

/// Calls `take` for each frame at `address` (of the ELF file), innermost first; at least once. Separate debug
/// files are found by build id or debuglink under /usr/lib/debug; a file whose build id differs is not used.
int symbols_resolve(struct symbols *symbols, const char *path, const uint8_t *build_id, size_t build_id_bytes,
                    uint64_t address, void (*take)(void *context, const struct symbols_frame *frame),
                    void *context);

/* ---- collector/launch.c: the program under record ---- */

struct launch_check {
    char path[4096];        /* what will be executed, found along PATH */
    char interpreter[4096]; /* of a script; "" otherwise */
};

/// Look at the program before it is started: VARVE_ERROR_NOT_FOUND, VARVE_ERROR_PERMISSION (not executable, a
/// directory), VARVE_ERROR_UNSUPPORTED (statically linked, other machine, setuid or setgid, file
/// capabilities), each with one line that says what is wrong and what to do.
int launch_check(const char *program, struct launch_check *check_out, struct varve_message *message);

struct launch {
    int32_t pid;
    int pidfd;
    int signal_fd; /* SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT of the collector arrive here */
    bool has_ended;
    int wait_status;     /* of waitpid, once has_ended */
    unsigned interrupts; /* SIGINT seen since the program ended */
};

/// Start `argv` with `preload` put in front of LD_PRELOAD, `session_directory` as VARVE_SESSION, and
/// `variables` ("NAME=VALUE", NULL at the end, borrowed) in place of the environment's own. The program gets
/// the signal mask and dispositions that the collector had before; daemons of it become children of whoever
/// adopts them without varve. Errors of exec come back here.
int launch_start(struct launch *launch, char *const argv[], const char *preload,
                 const char *session_directory, char *const *variables, struct varve_message *message);

/// Handle the signals that arrived, reap children, forward SIGTERM, SIGHUP, SIGQUIT to the program. SIGINT
/// from a terminal reaches the program by itself: it is forwarded only if it was sent to the collector alone.
/// `ended` is called for each process reaped. Never blocks.
void launch_poll(struct launch *launch, void (*ended)(void *context, int32_t pid, int wait_status),
                 void *context);

/// Wait until the program has ended, handing signals on meanwhile: for a collector that can't go on. Returns
/// `error` unchanged. Others that end meanwhile are reaped silently.
int launch_wait(struct launch *launch, int error);

/// End this process as the program ended: the same exit status, or the same signal (without a core file).
void launch_exit_like(const struct launch *launch) __attribute__((noreturn));

#endif
