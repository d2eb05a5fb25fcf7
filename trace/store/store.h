/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace database as those who fill it see it: open, append events, commit, finish. The small tables are in
 * small_tables.h, what follows from the events in derived_tables.h, reading back in store_resume.h. One thread at a
 * time owns a store.
 */
#ifndef VARVE_TRACE_STORE_STORE_H
#define VARVE_TRACE_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event;
struct varve_message;

struct store;

enum store_mode {
    STORE_CREATE, /* the file must not exist */
    /* The same, and nobody reads it or wants it before store_finish: the first error leaves it useless. */
    STORE_CREATE_PRIVATE,
    STORE_RESUME, /* a recording whose collector died: continue it */
};

/// Owner of the result: the caller, until store_close. Errors: VARVE_ERROR_BUSY if another collector writes
/// it.
int store_open(const char *path, enum store_mode mode, struct store **store_out, struct varve_message *message);

/// After STORE_RESUME: everything was stored and derived; only store_finish is left to be called, and nothing
/// else.
bool store_is_complete(const struct store *store);

/// Append one event (copied): it goes into the database with the next commit. VARVE_ERROR_FULL: the event was
/// taken, but no other can be before a commit (a million or more wait for one).
int store_append(struct store *store, const struct event *event, struct varve_message *message);

/// What store_append, allocations_gather and storages_gather put into the database from here on; at first all. Storages
/// are kept as allocations are. `events` false with `allocations` true: events are stored, for a collector that
/// resumes, and deleted by store_finish.
void store_keep(struct store *store, bool events, bool allocations);
/// The database, so far as it is committed.
uint64_t store_bytes(struct store *store);
/// After STORE_RESUME: events up to this one were taken, whether there are rows of them or not.
void store_continue_at(struct store *store, uint64_t seq);

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
    uint64_t unfolded;   /* events stored, beyond one for each record taken */
    uint64_t parts;      /* of these, of the record that comes next, which is not taken yet */
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

/// The program is over: from here on, if nobody reads the database now, nobody can before store_finish, and what is
/// written goes straight into its file rather than by way of a log.
void store_settle(struct store *store);

/// Key of the number of commits, until the recording is finished.
#define STORE_META_COMMITS "commits"
/// Key of the number of the last event taken, where not all are stored, until then.
#define STORE_META_TAKEN "events_taken"

typedef void (*store_progress)(void *context, const char *stage, uint64_t done, uint64_t total);

/// Last steps: indexes, ANALYZE, ring_position emptied, meta.complete = 1, WAL folded in,
/// journal_mode=DELETE: afterwards the database is one file that opens read-only. derive_finish comes before.
int store_finish(struct store *store, store_progress progress, void *context, struct varve_message *message);
void store_close(struct store *store);

#endif
