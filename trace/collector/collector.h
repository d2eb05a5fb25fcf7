/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collector's own state: the recording directory, the clock, the processes and rings it follows.
 * One thread owns all of it. Data flow of one round (collector.c):
 *
 *   discover processes and rings ─► refresh every ring ─► merge what is older than the watermark
 *   ─► derive ─► store ─► (now and then) commit ─► hand ring space back, retire what ended
 */
#ifndef VARVE_TRACE_COLLECTOR_COLLECTOR_H
#define VARVE_TRACE_COLLECTOR_COLLECTOR_H

#include "trace/collector/own_allocators.h"
#include "trace/collector/memory_bounds.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/live_figures.h"
#include "trace/collector/traced_process.h"
#include "trace/collector/rss.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/record.h"
#include "trace/store/small_tables.h"
#include "trace/store/store.h"
#include "base/error.h"
#include "trace/collect.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct callsites;
struct collect_execs;
struct derive;
struct sink_provider;
struct ring_reader;
struct store;
struct varve_message;

/* The second sink, as the collector sees it. */
struct collect_sink {
    const struct sink_provider *provider; /* NULL: there is none */
    uint32_t starts_answered;
    size_t anchors_emitted;
    char **meta; /* key, value, key, value, … as text, to be emitted again */
    size_t meta_count;
};

/* The LTTng session of the recording. */
struct collect_lttng {
    struct lttng_recording *session; /* NULL: none, or it has ended */
    varve_collect_numbers *numbers;  /* NULL: what the trace lacks is not counted */
    struct lttng_ring *rings;        /* those that were read to their end */
    size_t ring_count, ring_capacity;
    bool may_block;
    char name[64];
    char output[DIRECTORY_PATH_BYTES]; /* "": there is no trace */
};

struct collector {
    struct session_directory directory;
    struct collect_sink sink;
    struct collect_lttng lttng;
    struct collect_clock clock;
    struct derive *derive; /* NULL once its tables are written */
    struct callsites *callsites;
    struct store *store;
    struct traced_process **processes; /* [id - 1], NULL: not (or never) opened */
    uint32_t process_count;
    size_t process_capacity;
    uint32_t numbers_seen;    /* taken by processes, and opened or given up */
    uint32_t processes_alive; /* opened and not ended */
    uint32_t first_open;      /* processes before this one are closed */
    /* of an interrupted recording */
    struct store_ring_position *known; /* its rings, by process and number: where the database ends */
    size_t known_count, known_capacity;
    struct ended_process *ended; /* its processes whose rows are complete, by number */
    size_t ended_count, ended_capacity;
    struct session_file *files; /* what its folder of rings held when it was taken over */
    size_t file_count;
    bool has_opened_files;
    struct ring_reader **readers;
    size_t reader_count, reader_capacity;
    struct ring_reader **heap; /* ring_merge.c */
    size_t heap_count, heap_capacity;
    struct ring_reader *deferred; /* ring_merge.c: readers whose next record is deferred */
    bool must_rebuild;            /* one of them was released: the heap is out of order */
    uint32_t thread_count;        /* rings ever opened */
    uint64_t seq;
    uint64_t seq_committed;
    uint64_t commits;                       /* of the database, those that it lost included */
    uint64_t watermark;                     /* of the present round */
    uint64_t round_ticks;                   /* clock at the beginning of an earlier round, at least ROUND_MIN_NS ago */
    uint64_t candidate_ticks, candidate_ns; /* the next round_ticks, once it is old enough */
    uint64_t next_heartbeat_ns;
    char **unlinks; /* files of rings and processes that ended: removed once the commit with their rows is done */
    size_t unlink_count, unlink_capacity;
    struct reaped reaped[REAPED_KEPT]; /* the newest ones, a circle */
    uint32_t reaped_count;
    struct collect_rss rss;
    struct collect_live live;
    uint32_t process_limit;   /* like attach_limit, for process numbers */
    uint64_t process_seen_ns; /* like traced_process.attach_seen_ns */
    uint64_t process_bound;
    uint32_t processes_missing; /* numbers given up so far whose control page may still come */
    uint64_t next_missing_ns;   /* when to look for these again */
    uint64_t first_pending_ns;  /* CLOCK_MONOTONIC of the oldest uncommitted event, 0 = none */
    uint64_t next_check_ns, next_anchor_ns;
    struct collect_bounds bounds;
    struct store_sums sum;
    uint64_t unrecorded, own_allocators, loss_rows;
    struct known_program programs[KNOWN_PROGRAMS]; /* the newest ones, a circle */
    uint32_t program_count;
    uint64_t allocations;  /* once the derivation is closed: it is over then */
    uint64_t newest_ts_ns; /* of merged events */
    unsigned keep;         /* enum varve_keep */
    uint64_t bytes_max;    /* of the database, then it goes on with totals; 0: no limit */
    uint64_t kept_events;  /* before it did; 0: it has not */
    bool has_forgotten;    /* events before these were added up by a collector that died, and its sums are gone */
    bool is_store_full;
    bool is_draining;   /* rounds without a watermark: the last look at everything */
    bool is_recovering; /* the program is gone: whatever a ring lacks will not come */
    bool is_unstored;   /* no database: the second sink gets everything */
    bool was_killed;    /* a process did not end by itself */
    bool quiet;
    bool may_replace;  /* what is where the database goes */
    bool locks_work;   /* liveness_locks_work of the folder of rings */
    bool is_cut_short; /* the recording was ended before its processes */
    int counts_fd;     /* of the session's counts, whose lock says that somebody lives; -1 */
    uint64_t pid_namespace;
    uint64_t next_followers_ns; /* when /proc may be searched for followers again */
    bool found_no_follower;     /* by the last search */
    struct collect_execs *execs;
    int64_t program_end_ns;   /* -1 if not known */
    int64_t stopped_ns;       /* when the recording was; 0: nobody knows */
    int64_t processes_end_ns; /* of the last process that ended, or stopped_ns if others were left running */
};

/// Open the database, the derivation and the clock for collector->directory.
int collector_open(struct collector *collector, enum store_mode mode, struct varve_message *message);

/// One pass over everything; `*moved_out` = events merged. With `drain` the watermark is ignored.
int collector_round(struct collector *collector, bool drain, uint64_t *moved_out, struct varve_message *message);
/// Between rounds that had little to do: a millisecond's work on what else the end is made of. True if
/// there is more of it.
bool collector_idle(struct collector *collector);
/// Events that were taken and records that wait in rings and behind them, as the last round has seen them.
uint64_t collector_events_known(const struct collector *collector);
/// Events taken since the last commit.
uint64_t collector_pending(const struct collector *collector);
int collector_commit(struct collector *collector, struct varve_message *message);
/// Rounds without a watermark until nothing moves: every producer is dead or was asked to stop.
int collector_drain(struct collector *collector, varve_collect_progress progress, void *context,
                    struct varve_message *message);
/// Write what ends a recording: thread and process rows, derived tables, symbols, indexes.
int collector_finish(struct collector *collector, varve_collect_progress progress, void *context,
                     struct varve_message *message);
/// The sums of the rows in the database, whoever stored them.
int collector_load_sums(struct collector *collector, struct varve_message *message);
/// Move the finished database to its place.
int collector_publish(struct collector *collector, const char *database_path, struct varve_message *message);
void collector_close(struct collector *collector);
void collector_result(const struct collector *collector, struct varve_collect_result *result);

/* sink_state.c: what the second sink gets from here (format/sink_provider.h) */

/// Open the provider library in this process. Errors: VARVE_ERROR_UNSUPPORTED, with the reason.
int collect_sink_open(struct collector *collector, const char *provider_path, struct varve_message *message);
/// The provider gets call sites from now on.
void collect_sink_listen(struct collector *collector);
void collect_sink_close(struct collector *collector);
/// In every round: new anchors, and everything again when a trace has begun in mid-run.
void collect_sink_round(struct collector *collector);
/// A record is taken; the workload may have emitted it already.
void collect_sink_record(struct collector *collector, const struct ring_reader *reader,
                         const struct varve_record *record, uint64_t sequence);
void collect_sink_process(const struct collector *collector, const struct traced_process *process);
void collect_sink_process_end(const struct collector *collector, const struct traced_process *process);
void collect_sink_thread(const struct collector *collector, const struct ring_reader *reader);
void collect_sink_thread_end(struct collector *collector, const struct ring_reader *reader);
/// A row of `meta`, into the database and the second sink.
int collect_meta_text(struct collector *collector, const char *key, const char *value);
int collect_meta_integer(struct collector *collector, const char *key, int64_t value);

/* collector/lttng_recording.c: the LTTng session around a recording */

/// Before the program is started. Without LTTng: a remark, and VARVE_OK, unless it is the only sink.
int collect_lttng_start(struct collector *collector, const struct varve_collect_options *options,
                        struct varve_message *message);
/// A ring was read to its end.
void collect_lttng_ring(struct collector *collector, const struct ring_reader *reader);
/// After the last record was emitted: end the session. If a process was killed, count what the trace lacks.
/// Sets `discarded`, `lttng_missing`.
void collect_lttng_finish(struct collector *collector, struct varve_collect_result *result);
/// Count what the trace lacks; sets `lttng_missing`. After all rings were read.
void collect_lttng_count(struct collector *collector, struct varve_collect_result *result);
/// Move the trace beside the database; sets `ctf_path`.
int collect_lttng_publish(struct collector *collector, const char *database_path, struct varve_collect_result *result,
                          struct varve_message *message);
/// No trace is wanted any more; nothing of it stays.
void collect_lttng_abandon(struct collector *collector);
/// The session of a collector that died; false: there is none.
bool collect_lttng_adopt(struct collector *collector, struct varve_message *message);
/// TRACE.db → TRACE.ctf
void collect_lttng_path(const char *database_path, char *path, size_t bytes);

#endif
