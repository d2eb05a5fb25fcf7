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

#include "base/downsample.h"
#include "base/error.h"
#include "trace/collect.h"
#include "trace/collector/collector_clock.h"
#include "trace/collector/session/recording_directory.h"
#include "trace/format/session_format.h"
#include "trace/model/domain.h"
#include "trace/model/group_leaders.h"
#include "trace/record.h"
#include "trace/store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Resident memory of the recorded processes over time, as the kernel counts it. */

struct collector;
struct traced_process;

/* Of one process. */
struct process_rss {
    int folder_fd;  /* its folder in /proc, which stays its own when the pid is given out anew; -1: not to be had */
    bool is_sought; /* all of /proc was searched for it */
    bool is_stored;
    uint64_t now_bytes;        /* of the last sample; 0: unknown, or it has ended */
    uint64_t peak_bytes;       /* the largest that the kernel reported; 0: unknown */
    uint64_t ended_peak_bytes; /* of waitpid, its waited-for children and earlier images included; 0: unknown */
    struct downsample samples; /* rows of time, bytes, and the most since the row before */
};

/* Of all of them. */
struct collect_rss {
    struct downsample samples; /* sums over those that live */
    uint64_t now_bytes;        /* the last one */
    uint64_t next_ns, next_search_ns;
    uint64_t own_bytes; /* of the collector when it started the program, which had as much until exec; 0: unknown */
    uint64_t points_written; /* rows of processes that ended */
};

/// The process is watched from here on, and sampled once. Before it ends.
void collect_rss_begin(struct collector *collector, struct traced_process *process);
/// In every round: a sample of all processes, if it is time for one.
void collect_rss_round(struct collector *collector, uint64_t now_ns);
/// The largest resident memory of a process, as far as it is known; 0: not known.
uint64_t collect_rss_peak(const struct collector *collector, const struct traced_process *process);
/// The process has ended, or the recording: its rows.
int collect_rss_rows(struct collector *collector, struct traced_process *process);
/// The recording has ended: the rows of all processes together.
int collect_rss_finish(struct collector *collector);
/// Let go of /proc.
void collect_rss_end(struct traced_process *process);

/* Processes of the recording come and go. */

struct session_directory;

struct traced_process {
    uint32_t id;
    int32_t pid;
    struct process_control *control; /* NULL once closed */
    int pidfd;                       /* -1: not to be had */
    uint32_t rings_seen;             /* ring numbers below were opened or given up */
    bool late_opened;
    bool has_ended;            /* no thread of it can emit any more */
    bool is_replaced;          /* by exec: another image runs under its pid */
    bool was_executing;        /* is_closed: the last that it did was to exec */
    bool saw_end;              /* its rings were counted after it had ended */
    bool is_child;             /* of the collector: waitpid will report how it ended */
    bool is_closed;            /* all its rings are retired, its row is final */
    bool is_made_up;           /* its control page is gone, or damaged: this one is ours, and says little */
    uint32_t readers;          /* open ones */
    uint64_t live_allocations; /* of its heap, at the last moment of live_figures.c */
    uint32_t rings_found;      /* not counting those that the database of an interrupted recording knows */
    int64_t start_ns, end_ns;
    int wait_status;        /* -1 if not known */
    uint32_t rings_missing; /* numbers given up so far: a thread that was stopped may make its ring late */
    uint8_t *opened;        /* a bit for each ring number */
    size_t opened_bytes;
    uint32_t attach_limit;            /* ring numbers below were taken when the present wait began */
    uint64_t attach_seen_ns;          /* CLOCK_MONOTONIC when a ring number without a file was first seen, 0 = none */
    uint64_t attach_bound;            /* no record of that ring is older than this, ticks */
    struct process_identity identity; /* as the control page had it when it was first seen */
    bool is_ours;                     /* its pid is a number of our namespace, as far as is known */
    int lock_fd;                      /* of the control page, whose lock says that it lives; -1: pid checks */
    uint64_t next_search_ns;          /* when /proc may be searched for it again */
    struct process_rss rss;
};

/* Of an interrupted recording: its row is complete, and its control page most often gone. */
struct ended_process {
    uint32_t id, parent_id;
};

/* A process that waitpid reported before its control page was seen. */
struct reaped {
    int32_t pid;
    int wait_status;
    uint64_t peak_rss_bytes;
};

#define REAPED_KEPT 256U

int collect_processes_discover(struct collector *collector, uint64_t *bound);
void collect_processes_check(struct collector *collector);
void collect_process_reaped(struct collector *collector, int32_t pid, int wait_status, uint64_t peak_rss_bytes);
/// An image that `identity` names has recorded something, and has not executed another program since.
bool collect_process_has_page(const struct collector *collector, const struct process_identity *identity);
/// The pid of the process image with this number if it still runs, else 0.
int32_t collect_process_alive(const struct session_directory *directory, uint32_t id);
/// A process of the session may still record something, whether it has a page yet or not: it found the
/// session, or was forked from one that did, or has just been started with the session in its environment.
bool collect_session_lives(struct collector *collector);
/// Announce the call sites of a process, which are in a file of their own or in the reserve.
int collect_process_callsites(struct collector *collector, uint32_t id);
/// Those that are in the reserve get a file, before their slot is released.
int collect_process_callsites_keep(struct collector *collector, const struct traced_process *process);
/// Its control page, and what says that it lives.
void collect_process_release(struct traced_process *process);
void collect_processes_close(struct collector *collector);
/// Of an interrupted recording, after the rounds' own discovery: an ended process that has no page any more.
bool collect_process_is_over(const struct collector *collector, const struct ended_process *ended);
/// How many numbers processes have taken, as far as these are followed.
uint32_t collect_processes_announced(const struct collector *collector);
/// Numbers of processes that could not make a page: what they did is not recorded.
uint32_t collect_processes_unattached(const struct collector *collector);
/// Of an interrupted recording: records up to this time are in rings that are open.
uint64_t collect_files_bound(const struct collector *collector);
/// Control pages that were made, and that nobody has seen.
uint32_t collect_processes_missing(const struct collector *collector);

/* Programs whose heap no hook sees, because an allocator is linked into them. */

/* What was found out about an executable. */
#define KNOWN_PROGRAMS 64U
struct known_program {
    char path[1024];
    const char *allocator; /* of collect_allocator_of */
    bool has_python;       /* an interpreter is linked into it */
};

/// What is linked into the program and serves its heap, so that no hook sees it: "jemalloc" and so on, a
/// literal; NULL: nothing known, or the file can't be read.
const char *collect_allocator_of(const char *path);
/// Report in `stats` if a process had such an allocator, libraries that are not recorded, or an interpreter of Python
/// whose frames are not read. Once per process, at its end.
int collect_allocator_row(struct collector *collector, const struct traced_process *process);
/// After all processes: the same of the program that was started, if it came to no event and so to no row.
int collect_allocator_launched(struct collector *collector, const char *path);

/* Figures of the recording for whoever watches it (`varve top`): once a second, and only while somebody does. */

struct live_before {
    uint64_t allocations, bytes;
};

/* Of a call site that leads: members of a JSON object. */
struct live_name {
    char *text;
    uint32_t callsite;
    int64_t number; /* of the last moment that had it */
};

/* All zero: nobody has watched. */
struct collect_live {
    int64_t number; /* of the last moment; 0: nobody watches */
    int64_t ts_ns;  /* at that moment, and all below */
    uint64_t events;
    struct live_before totals[SLOT_LIMIT];
    struct live_name *names;
    size_t name_count, name_capacity;
    struct leaders leaders;
    uint64_t next_ns;        /* when to ask whether somebody does */
    uint64_t next_moment_ns; /* when figures are due */
};

/// In every round.
void collect_live_round(struct collector *collector, uint64_t now_ns);
/// After the last event, before anything is put together for the database: the last figures.
void collect_live_end(struct collector *collector);
void collect_live_close(struct collector *collector);

/* How much memory and disk the rings of all processes may have together. */

struct collect_bounds {
    uint64_t spill_bytes_asked, spill_bytes_disk; /* for all pieces, as the user says, or 0; on the disk alone */
    uint64_t memory_bytes;                        /* of the memory file system; 0: not known */
    char *groups[SESSION_GROUPS_MAX];             /* of the collector and of processes, as /proc/PID/cgroup has them */
    size_t group_count;
};

/// Before the program starts. `spill_bytes_asked`: see above; `spill_bytes_disk`, `memory_bytes`: what the disk and the
/// memory file system have room for.
void collect_bounds_begin(struct collector *collector, uint64_t spill_bytes_asked, uint64_t spill_bytes_disk,
                          uint64_t memory_bytes);
/// A process of this machine's that records: its control groups count from now on.
void collect_bounds_process(struct collector *collector, int32_t pid);
/// Now and then: what is free changes.
void collect_bounds_round(struct collector *collector);
void collect_bounds_end(struct collector *collector);

struct callsites;
struct collect_execs;
struct derive;
struct sink_provider;
struct ring_reader;
struct store;
struct varve_message;

/* The second sink, as the collector sees it. */
struct collect_sink_meta {
    char *key, *text; /* text NULL: it is an integer */
    int64_t integer;
};

struct collect_sink {
    const struct sink_provider *provider; /* NULL: there is none */
    uint32_t starts_answered;
    size_t anchors_emitted;
    struct collect_sink_meta *meta; /* to be emitted again */
    size_t meta_count, meta_capacity;
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
    struct session_file *files; /* what its folder of rings held when it was taken over, by process or by `begin` */
    size_t file_count, files_opened;
    struct ring_reader **readers;
    size_t reader_count, reader_capacity;
    struct ring_reader **heap; /* ring_merge.c */
    size_t heap_count, heap_capacity;
    struct ring_reader *deferred; /* ring_merge.c: readers whose next record is deferred */
    bool must_rebuild;            /* one of them was released: the heap is out of order */
    uint32_t thread_count;        /* rings ever opened */
    uint64_t seq;
    uint64_t seq_committed;
    uint64_t seq_committing;                /* the commit under way goes up to it */
    uint64_t commits;                       /* of the database, those that it lost included */
    uint64_t watermark;                     /* of the present round */
    uint64_t round_ticks;                   /* clock at the beginning of an earlier round, at least ROUND_MIN_NS ago */
    uint64_t candidate_ticks, candidate_ns; /* the next round_ticks, once it is old enough */
    uint64_t next_heartbeat_ns;
    char **unlinks; /* files of rings and processes that ended: removed once the commit with their rows is done */
    size_t unlink_count, unlink_capacity;
    size_t unlink_committing;          /* of these, the first ones, whose rows are in the commit under way */
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
    bool is_committing;    /* a commit was begun, and what follows from its success was not done yet */
    bool is_store_full;
    bool is_draining;   /* rounds without a watermark: the last look at everything */
    bool is_recovering; /* the program is gone: whatever a ring lacks will not come */
    bool is_imported;   /* and its files are made of a trace, in which some processes may not have ended */
    bool has_joined;    /* see collect_keep_join */
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
/// Events taken that are not known to be in the database.
uint64_t collector_pending(const struct collector *collector);
/// All that was taken is in the database when this returns VARVE_OK, and its space in the rings is free.
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

/* Memory for rings and call-site files of programs that can't open or enlarge files any more. */

/// Give what producers have asked for (struct session_growth), or refuse it, and keep slots of the reserve ready. In
/// each round: nothing is done where nothing is wanted.
void collect_grants(struct collector *collector);

/* How much of what happens the database keeps (enum varve_keep). */

/// Before the program starts: what collector->keep and bytes_max say, into the database and in force.
int collect_keep_begin(struct collector *collector);
/// After a commit: is the database as large as it may be?
int collect_keep_check(struct collector *collector);
/// After the last event and callsites_merge_all, before the totals are written: call sites that are one row are put
/// together, and, where only totals are kept, small ones.
int collect_keep_join(struct collector *collector, struct varve_message *message);
/// A recording is continued whose stored events are about to be derived again: what was kept of them.
int collect_keep_read(struct collector *collector);
/// They have been: the same is in force, and what nobody knows is counted.
int collect_keep_resume(struct collector *collector);

/* Programs that were run and could not be recorded. */

struct process_identity;

int collect_execs_open(struct collector *collector);
void collect_execs_close(struct collector *collector);
/// The child of the collector is about to run a program that should load the recorder.
void collect_execs_await(struct collector *collector, const struct process_identity *process, const char *path);
/// A child of the collector ended: how is known of it alone.
void collect_execs_ended(struct collector *collector, int32_t pid, int wait_status);
/// A collector before this one has made `commits` commits: notes that it had counted are taken again if theirs is not
/// among them. Before the first collect_execs_take().
void collect_execs_resume(struct collector *collector, uint64_t commits);
/// Take the notes that programs have written, once per round. Returns whether there were any that wait for a commit.
bool collect_execs_take(struct collector *collector);
/// Many notes wait for a commit.
bool collect_execs_are_tight(const struct collector *collector);
/// Before a commit, and after it.
int collect_execs_store(struct collector *collector);
void collect_execs_committed(struct collector *collector);
/// Programs other than the first were run.
bool collect_execs_any(const struct collector *collector);
/// The recording is over: what is still awaited never came. Sets sum.unrecorded.
int collect_execs_finish(struct collector *collector);

/* Ring numbers that processes took, and their files. */

/// A number without a file: hold the merge at the time before it was taken. False: waited long enough.
bool collect_file_wait(const struct collector *collector, uint64_t *seen_ns, uint64_t *seen_bound, uint64_t *bound);
/// The rings of an interrupted recording that have no file any more and no complete row.
int collect_rings_gone(struct collector *collector);
/// At the end of a process: rings that it made, and that nobody has seen.
int collect_rings_missing(struct collector *collector, const struct traced_process *process);
/// Recovering: open a ring of a process.
int collect_ring_left(struct collector *collector, struct traced_process *process, uint32_t index);
/// A ring file that was found: is it one that was given up?
int collect_ring_missing(struct collector *collector, struct traced_process *process, uint32_t index);
/// Open the rings of a process that have come since the last time.
int collect_rings_discover(struct collector *collector, struct traced_process *process, uint64_t *bound);

/* Rings and processes that ended: their rows become final, their files go after the commit. */

struct process_control;

/// After a commit: remove the files of what was retired before it.
void collect_files_remove(struct collector *collector);
/// After a commit: close the rings that ended and the processes all of whose rings did.
int collect_processes_retire(struct collector *collector);
/// A counter of a page that programs write; 0 if nobody can have counted so far.
uint64_t collect_plausible(uint64_t count);
/// Executable and arguments as rows show them: ends with NUL, arguments separated by blanks.
void collect_process_command(const struct process_control *control, char *text, size_t bytes);
/// Events lost so far, as far as rings and pages say.
uint64_t collect_lost(const struct collector *collector);
int collect_process_row(struct collector *collector, struct traced_process *process);
int collect_thread_row(struct collector *collector, const struct ring_reader *reader, int64_t end_ns);

/* Records of all rings into one order of time. */

/* How long a record that seems to come too early is deferred, in ns. Threads that compete for the CPUs read their
 * clocks up to 16,172 ticks (7 us) early, as the read is not fenced, and may be descheduled between the read and the
 * commit; with 20 us, 2 of 1,000 runs under load on 16 cores had a free before its allocation. */
#define MERGE_HOLD_BACK_NS 200000

/// Take every record older than collector->watermark, oldest first.
int merge_run(struct collector *collector, uint64_t *moved_out, struct varve_message *message);

/*
 * The consumer's end of one ring: its records in the producer's order, from the ring, its pieces and what signal
 * handlers put aside.
 */

struct ring_header;

/* How far a ring was read. */
struct ring_mark {
    uint64_t read, spill_read, orphans_read;
    uint32_t piece; /* those before it were read to their end */
};

struct ring_reader {
    struct traced_process *process;
    struct ring_header *ring;
    uint64_t ring_bytes; /* of the file: slots beyond it are gone */
    uint32_t capacity;   /* as checked: the header may be overwritten later */
    uint32_t index;
    uint32_t thread_id;
    int32_t tid;
    uint64_t read;                  /* ring records taken by the merge */
    uint64_t spill_read;            /* spilled records taken */
    uint64_t stored;                /* of these and orphans_read, as of the last commit */
    struct ring_mark committing;    /* what the commit under way holds */
    uint64_t head_seen, spill_seen; /* published, as of the last refresh */
    uint64_t resume_seen;           /* spilled records before this one are older than those in the ring */
    uint64_t last_ticks;            /* of the last record taken */
    int64_t last_ns;
    uint64_t sequence;               /* number of the last one, lost records counted */
    uint64_t gaps, gap_rows;         /* of a rebuilt recording: records that are missing, markers that say so */
    uint64_t key;                    /* ring_merge.c: when the next record is due */
    const struct varve_record *next; /* ring_merge.c: the next record, as long as none is taken */
    bool is_deferred;                /* ring_merge.c: its next record waited for another ring once */
    uint64_t deferred_addr;
    struct ring_reader *next_deferred;
    bool is_in_flight; /* a record was being written at the last refresh */
    bool is_retired;   /* the producer said that nothing follows */
    bool saw_end;      /* the last refresh came after the process had ended */
    /* records of signal handlers, put aside when their thread was killed */
    uint32_t orphans_first, orphans_seen, orphans_read;
    bool has_counted_orphans;
    const char *damage; /* 'cut' or 'damaged': the header's figures are not to be believed; NULL */
    const struct session_directory *directory;
    int piece_fd;           /* -1: not open */
    uint64_t granted_bytes; /* of memory that the collector has given to its file */
    uint64_t unreadable;    /* published records that stood in what is gone of the files */
    uint64_t unfolded;      /* events taken, beyond one for each record taken (trace/record_fold.h) */
    uint32_t parts;         /* ring_merge.c: of these, of the record that comes next, which is not taken yet */
    const struct varve_record *staging; /* NULL: not looked for yet */
    bool has_staging_apart;             /* it is a mapping of its own */
    struct varve_record *buffer;        /* spill records [buffer_from, buffer_to) */
    uint64_t buffer_from, buffer_to;
    uint8_t *packed;       /* one block of a piece */
    uint32_t piece;        /* the oldest one that may hold records to be read */
    uint32_t piece_kept;   /* the oldest one that was not removed */
    uint64_t piece_offset; /* of the next block to be looked at */
};

/* Its events that are in the database, or will be with the next commit. */
static inline uint64_t ring_reader_stored(const struct ring_reader *reader)
{
    return reader->read + reader->spill_read + reader->orphans_read + reader->unfolded - reader->unreadable;
}

int ring_reader_open(struct ring_reader **reader_out, const struct session_directory *directory,
                     struct traced_process *process, uint32_t index);
void ring_reader_close(struct ring_reader *reader);
/// The database does not know all that was handed back to the producer (its last part is gone): what may have
/// been overwritten since counts as unreadable. Before the first refresh.
void ring_reader_skip_overwritten(struct ring_reader *reader);
/// Look at what the producer has published by now.
void ring_reader_refresh(struct ring_reader *reader);
/// Next record in the producer's order, NULL if none is published; valid until ring_reader_pop.
const struct varve_record *ring_reader_peek(struct ring_reader *reader, const struct session_directory *directory);
void ring_reader_pop(struct ring_reader *reader);
/// What was taken until now goes with the commit that begins.
void ring_reader_commit(struct ring_reader *reader);
/// Hand its space back to the producer, and remove pieces that hold nothing else: after that commit, never before.
void ring_reader_release(struct ring_reader *reader);
int ring_check(const struct ring_header *ring, bool producer_is_dead, struct varve_message *message);

#endif
