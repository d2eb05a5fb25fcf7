/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace database as those who fill it see it: open, append events, commit, finish. The small tables are in
 * store.h, what follows from the events in store.h, reading back in store_resume.h. One thread at a
 * time owns a store.
 */
#ifndef VARVE_TRACE_STORE_STORE_H
#define VARVE_TRACE_STORE_STORE_H

#include "trace/collect.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct derive;
struct event;
struct varve_message;

struct store;

enum store_mode {
    STORE_CREATE, /* the file must not exist */
    /* The same, and nobody reads it or wants it before store_finish: the first error leaves it useless. */
    STORE_CREATE_PRIVATE,
    STORE_CREATE_DIRECT, /* the same, and call sites have their rows before events name them: these need no log */
    STORE_RESUME,        /* a recording whose collector died: continue it */
};

/// Owner of the result: the caller, until store_close. Errors: VARVE_ERROR_BUSY if another collector writes
/// it.
int store_open(const char *path, enum store_mode mode, struct store **store_out, struct varve_message *message);

/// After STORE_RESUME: everything was stored and derived; only store_finish is left to be called, and nothing
/// else.
bool store_is_complete(const struct store *store);

/// Append one event (copied), which `derive` took just now: from the next commit on it is safe, in a log beside the
/// database until its row, or that of its allocation, which may hold it, is written.
int store_append(struct store *store, struct derive *derive, const struct event *event, struct varve_message *message);
/// One of the log, which `derive` took again just now; `is_held`: its allocation's row holds it. A row that held it
/// before does so again.
void store_hold_again(struct store *store, struct derive *derive, const struct event *event, bool is_held);
/// After the last event: events of the log that have rows of their own become those.
int events_finish(struct store *store, const struct derive *derive, struct varve_message *message);

/// What is put into the database of events from here on, and of all allocations; at first all. Storages are kept as
/// allocations are. Events of VARVE_KEEP_ALLOCATIONS are in the log alone, for a collector that resumes.
void store_keep(struct store *store, enum varve_keep keep);
/// Rows that name a call site get `rows[n]` for call site n from here on, below `limit`. Borrowed until the next call,
/// or store_close. At first each gets its own number.
void store_callsite_rows(struct store *store, const uint32_t *rows, size_t limit);
/// About what the database would take if the recording ended now.
uint64_t store_bytes(struct store *store, const struct derive *derive);
/// After STORE_RESUME: events up to this one were taken, whether there are rows of them or not.
void store_continue_at(struct store *store, uint64_t seq);

/// Events appended since the last commit was begun.
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
    uint64_t unfolded;   /* events stored, beyond one for each record taken */
    uint64_t parts;      /* of these, of the record that comes next, which is not taken yet */
    uint64_t last_ticks; /* of the last record */
    int64_t last_ns;
    bool is_final; /* read back: the row of its thread is complete, and its file may be gone */
    /* by a collector that continues: its file is there, can't be read */
    bool is_found, is_damaged;
};

/* Events of it that are stored. */
static inline uint64_t ring_position_stored(const struct store_ring_position *position)
{
    return position->tail + position->spill_tail + position->orphans + position->unfolded - position->unreadable;
}

/// Begin to insert what was written, with the positions of the rings that advanced: all or nothing. A thread does it;
/// the commit before is waited for. After an error (VARVE_ERROR_FULL), which may be that one's, nothing was begun,
/// everything is kept, and the call may be repeated.
int store_commit(struct store *store, const struct store_ring_position *positions, size_t count,
                 struct varve_message *message);
/// Until what was committed is in the database. After an error, which `message`, if it is not NULL, explains, the next
/// call tries again; of a private database the error stays.
int store_wait(struct store *store, struct varve_message *message);
/// store_wait would have to wait.
bool store_is_committing(const struct store *store);

/// Key of the number of commits, until the recording is finished.
#define STORE_META_COMMITS "commits"
/// Key of the number of the last event taken, and of the bytes of the log that hold the events, until then.
#define STORE_META_TAKEN "events_taken"
#define STORE_META_LOG "events_bytes"

typedef void (*store_progress)(void *context, const char *stage, uint64_t done, uint64_t total);

/// Last steps: a new file of all small tables and the pages of the others, indexes, ANALYZE, meta.complete = 1; then it
/// takes the place of the database: one file that opens read-only. derive_finish comes before. Until then the database
/// is as it was. VARVE_ERROR_BUSY: somebody reads it, and went on for ten seconds.
int store_finish(struct store *store, store_progress progress, void *context, struct varve_message *message);
void store_close(struct store *store);

/// After the last event, and the last store_callsite_rows: a thread begins with the rows of `allocation`; `derive` may
/// be read and its totals changed meanwhile. derive_finish waits for it; if it was not begun it is begun there.
int allocations_begin(struct store *store, struct derive *derive, struct varve_message *message);
/// Until that thread has ended.
int allocations_finish(struct store *store, store_progress progress, void *context, struct varve_message *message);
/// All rows of `storage`.
int storages_finish(struct store *store, struct derive *derive, struct varve_message *message);

/* What the derivation gathered becomes tables of the database. */

/// After the last event: write allocation, storage, callsite_stat, total_stat, sample, segment, oom, mark, keyframe
/// into the store, and of the device API device, process_device, stream, pool, device_call_stat, stream_stat,
/// device_memory, device_event. `progress` may be NULL.
int derive_finish(struct derive *derive, struct store *store, store_progress progress, void *context,
                  struct varve_message *message);

/* Rows of the small tables. Text pointers are borrowed for the call, NULL is SQL NULL. */

int store_meta_text(struct store *store, const char *key, const char *value);
int store_meta_integer(struct store *store, const char *key, int64_t value);

struct store_process {
    uint32_t id, parent_id;
    int32_t pid, parent_pid, rank;
    const char *executable, *command_line, *end_cause, *exec_path;
    int64_t start_ns, end_ns; /* end_ns < 0: NULL */
    int exit_status;          /* < 0: NULL */
    uint64_t unattached, unattached_bytes;
    uint64_t peak_rss_bytes; /* 0: NULL */
};

struct store_thread {
    uint32_t id, process_id, ring;
    int32_t pid, tid;
    const char *name;
    int64_t start_ns, end_ns; /* end_ns < 0: NULL */
    uint64_t emitted, stored, spilled, lost, lost_bytes, uncommitted, unreadable;
    const char *damage; /* 'missing', 'cut', 'damaged'; NULL: none */
};

/* The accounts of all rings and processes, as the tables have them. */
struct store_sums {
    uint64_t emitted, stored, spilled, lost, lost_bytes, uncommitted, unreadable;
    uint64_t damaged; /* rings whose contents are not known for sure */
    uint64_t threads, processes;
    uint64_t images; /* of processes: a new one with each program that is executed */
    uint64_t unattached, unattached_bytes;
};

int store_process(struct store *store, const struct store_process *row); /* insert or replace */
/// Resident memory of a process (0: of all together) at a moment, and the most since the row before.
int store_rss(struct store *store, uint32_t process_id, int64_t ts_ns, uint64_t bytes, uint64_t bytes_max);
int store_thread(struct store *store, const struct store_thread *row); /* insert or replace */
/// Nothing more can be read of a ring: its row says what of it had been stored, and why that is all.
int store_thread_gone(struct store *store, const struct store_ring_position *position, const char *damage,
                      int64_t end_ns);
/// Of the row of a thread that has ended, so many events that were stored can't be read any more.
int store_thread_cut(struct store *store, uint32_t thread_id, uint64_t events);
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
int store_pool(struct store *store, uint32_t process_id, unsigned device, unsigned number, uint64_t capture_id,
               uint64_t user_id, bool is_small);

struct store_symbol {
    const char *function, *file, *module; /* NULL if unknown */
    uint32_t line;                        /* 0 if unknown */
    uint32_t rank;                        /* enum varve_frame_rank; of equal symbols that of the first */
    bool is_python, is_inlined;
};

int store_module(struct store *store, uint32_t id, const char *path, const char *build_id_hex);
/// Returns the symbol's row (equal symbols get one row), 0 on failure.
uint32_t store_symbol(struct store *store, const struct store_symbol *symbol);
/// There are no nodes, call sites, symbols and modules yet, or no more: an end that was interrupted is repeated whole.
int store_callsites_begin(struct store *store, struct varve_message *message);
/// The same of symbols, modules, frames and their addresses alone.
int store_symbols_begin(struct store *store, struct varve_message *message);
/// A frame of stacks: a symbol, of code without a name a function. pc < 0: NULL. Ids grow.
int store_stack_frame(struct store *store, uint32_t id, uint32_t symbol_id, int64_t pc);
/// An address of a frame that has several. Ids grow.
int store_frame_address(struct store *store, uint32_t id, uint32_t frame_id, int64_t pc);
/// A frame, called from `parent_id` (0: from nowhere), which must be smaller than `id`: else VARVE_ERROR_INVALID. Ids
/// grow. Equal frames of equal callers should be one node; stack_nodes.h finds them.
int store_stack_node(struct store *store, uint32_t id, uint32_t parent_id, uint32_t frame_id);
/// Ids grow. `node_id`: the innermost of its `depth` frames, 0: it has none. Symbols 0: NULL.
int store_callsite(struct store *store, uint32_t id, uint32_t node_id, uint32_t depth, uint32_t symbol_id,
                   uint32_t user_symbol_id);
/// Call sites from `callsite_id` on, `count` of them, are those of the process from `callsite` on.
int store_callsite_origin(struct store *store, uint32_t callsite_id, uint32_t process_id, uint32_t callsite,
                          uint32_t count);

#endif
