/* SPDX-License-Identifier: Apache-2.0 */
/* C only: private to the collector */
/*
 * The collector's own state: the recording directory, the clock, the processes and rings it follows.
 * One thread owns all of it. Data flow of one round (collector.c):
 *
 *   discover processes and rings ─► refresh every ring ─► merge what is older than the watermark
 *   ─► derive ─► store ─► (now and then) commit ─► hand ring space back, retire what ended
 */
#ifndef VARVE_TRACE_COLLECTOR_COLLECTOR_H
#define VARVE_TRACE_COLLECTOR_COLLECTOR_H

#include "trace/collector/clock.h"
#include "trace/error.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "trace/trace.h"

/* ---- session_directory.c: TRACE.db.d ---- */

#define DIRECTORY_PATH_BYTES 4096U

struct session_directory {
    char path[DIRECTORY_PATH_BYTES];  /* absolute, TRACE.db.d */
    char rings[DIRECTORY_PATH_BYTES]; /* where the mapped files are; not a link */
    int fd, rings_fd;                 /* of the two; -1 */
    int owner_fd;                     /* holds the lock; -1 */
    uint64_t trace_id;                /* as `owner` has it */
    bool is_empty;                    /* adopted: nothing was recorded, or nothing is left to be done */
    struct session_control *control;
    struct session_counts *counts; /* never NULL where control is not */
};

/// Make the directory, the folder for rings (on tmpfs where there is room) and the session file.
/// Errors: VARVE_ERROR_BUSY (another collector, or an unfinished recording lies there, or something else),
/// PERMISSION, FULL, IO.
int session_directory_create(struct session_directory *directory, const char *database_path,
                             const struct session_control *settings, struct varve_message *message);

enum session_file_kind {
    SESSION_FILE_PROCESS = 1, /* p<N> */
    SESSION_FILE_RING = 2,    /* p<N>.r<K> */
    SESSION_FILE_SPILL = 3,   /* p<N>.r<K>.spill */
    SESSION_FILE_SITES = 4,   /* p<N>.sites */
    SESSION_FILE_STAGING = 5, /* p<N>.r<K>.staging */
};

/* What the name of a file says. */
struct session_file {
    enum session_file_kind kind;
    uint32_t process;
    uint32_t ring; /* 0 where the kind has none */
};

/* Numbers beyond are not followed: they come from pages that programs write, and from names of files. */
#define SESSION_PROCESS_MAX (UINT32_C(1) << 22)
#define SESSION_RING_MAX (UINT32_C(1) << 24)

/// Numbers as the recorder writes them, none beyond the limits above; false: another name.
bool session_file_parse(const char *name, struct session_file *file_out);

/// Open a file of a recording, wherever in it it lies: a plain one of this user with one name, no link. -1
/// and errno otherwise; EPERM: it is something else.
int session_file_open(const struct session_directory *directory, const char *name, int flags);
void session_file_remove(const struct session_directory *directory, const char *name);

/// The files of processes, by process, ring and kind. Owner of the result: the caller, by free. Errors:
/// NO_MEMORY, IO.
int session_directory_scan(const struct session_directory *directory, struct session_file **files_out,
                           size_t *count_out);

/// Take over the directory of a dead collector; of this user: also root takes over only what is root's.
/// `control` stays NULL if its rings are gone. Errors, before anything is changed: NOT_FOUND, FORMAT,
/// VERSION, BUSY.
int session_directory_adopt(struct session_directory *directory, const char *path,
                            struct varve_message *message);

/// Remove all that a finished database does not need: what is left is trace.db and the lock.
void session_directory_clear(struct session_directory *directory);
/// Remove everything that belongs to the recording; files that are not ours stay and keep the folder.
void session_directory_remove(struct session_directory *directory);
/// Let go of it, files stay.
void session_directory_close(struct session_directory *directory);

/* ---- ring_reader.c: the consumer's end of one ring ---- */

struct traced_process;

struct ring_reader {
    struct traced_process *process;
    struct ring_header *ring;
    uint64_t ring_bytes; /* of the file: slots beyond it are gone */
    uint32_t capacity;   /* as checked when it was opened: the header may be overwritten later */
    uint32_t index;
    uint32_t thread_id;
    int32_t tid;
    uint64_t read;                  /* ring records taken by the merge */
    uint64_t spill_read;            /* spilled records taken */
    uint64_t stored;                /* read + spill_read at the last commit */
    uint64_t head_seen, spill_seen; /* published, as of the last refresh */
    uint64_t last_ticks;            /* of the last record taken */
    int64_t last_ns;
    uint64_t sequence;       /* number of the last one, lost records counted */
    uint64_t gaps, gap_rows; /* of a rebuilt recording: records that are missing, markers that say so */
    uint64_t key;            /* merge.c: when the next record is due */
    bool is_held_back;       /* merge.c: its next record waited for another ring once */
    uint64_t held_addr;
    bool is_in_flight; /* a record was being written at the last refresh */
    bool is_retired;   /* the producer said that nothing follows */
    bool saw_end;      /* the last refresh came after the process had ended */
    /* records of signal handlers, put aside when their thread was killed */
    uint32_t orphans_first, orphans_seen, orphans_read;
    bool has_counted_orphans;
    const char *damage;  /* 'cut' or 'damaged': the header's figures are not to be believed; NULL */
    int spill_fd;        /* -1: not open */
    uint64_t unreadable; /* published records that stood in what is gone of the files */
    const struct varve_record *staging; /* NULL: not looked for yet */
    bool has_staging_apart;             /* it is a mapping of its own */
    struct varve_record *buffer;        /* spill records [buffer_from, buffer_to) */
    uint64_t buffer_from, buffer_to;
    uint8_t *packed;         /* one block of the spill file */
    uint64_t spill_position; /* first record of the block at spill_offset */
    uint64_t spill_offset;
};

int ring_reader_open(struct ring_reader **reader_out, const struct session_directory *directory,
                     struct traced_process *process, uint32_t index);
void ring_reader_close(struct ring_reader *reader);
/// The database does not know all that was handed back to the producer (its last part is gone): what may have
/// been overwritten since counts as unreadable. Before the first refresh.
void ring_reader_skip_overwritten(struct ring_reader *reader);
/// Look at what the producer has published by now.
void ring_reader_refresh(struct ring_reader *reader);
/// Next record in the producer's order, NULL if none is published; valid until ring_reader_pop.
const struct varve_record *ring_reader_peek(struct ring_reader *reader,
                                            const struct session_directory *directory);
void ring_reader_pop(struct ring_reader *reader);
/// Hand the space of everything taken back to the producer: after the commit, never before.
void ring_reader_release(struct ring_reader *reader);
int ring_check(const struct ring_header *ring, bool producer_is_dead, struct varve_message *message);

/* ---- process.c: processes and their rings come and go ---- */

struct traced_process {
    uint32_t id;
    int32_t pid;
    struct process_control *control; /* NULL once closed */
    int pidfd;                       /* -1: not to be had */
    uint32_t rings_seen;             /* ring numbers below were opened or given up */
    bool late_opened;
    bool has_ended;       /* no thread of it can emit any more */
    bool is_replaced;     /* by exec: another image runs under its pid */
    bool saw_end;         /* its rings were counted after it had ended */
    bool is_child;        /* of the collector: waitpid will tell how it ended */
    bool is_closed;       /* all its rings are retired, its row is final */
    bool is_made_up;      /* its control page is gone, or damaged: this one is ours, and says little */
    uint32_t readers;     /* open ones */
    uint32_t rings_found; /* not counting those that the database of an interrupted recording knows */
    int64_t start_ns, end_ns;
    int wait_status;        /* -1 if not known */
    uint32_t rings_missing; /* numbers given up so far: a thread that was stopped may make its ring late */
    uint8_t *opened;        /* a bit for each ring number */
    size_t opened_bytes;
    uint32_t attach_limit;   /* ring numbers below were taken when the present wait began */
    uint64_t attach_seen_ns; /* CLOCK_MONOTONIC when a ring number without a file was first seen, 0 = none */
    uint64_t attach_bound;   /* no record of that ring is older than this, ticks */
    struct process_identity identity; /* as the control page had it when it was first seen */
    bool is_ours;                     /* its pid is a number of our namespace, as far as is known */
    int life_fd;                      /* of the control page, whose lock says that it lives; -1: pid checks */
    uint64_t next_search_ns;          /* when /proc may be searched for it again */
};

/* Of an interrupted recording: its row is complete, and its control page most often gone. */
struct ended_process {
    uint32_t id, parent_id;
};

/* A process that waitpid told of before its control page was seen. */
struct reaped {
    int32_t pid;
    int wait_status;
};

#define REAPED_KEPT 256U

/* What was found out about an executable. */
#define KNOWN_PROGRAMS 64U
struct known_program {
    char path[1024];
    const char *allocator; /* of collect_allocator_of */
};
/* ---- life.c: who lives, by locks ---- */

/// Somebody holds a lock of the file of `fd`.
bool collect_life_is_locked(int fd);
/// On the file system of this file of the session a mapping keeps the locks of its file.
bool collect_life_locks_work(const struct session_directory *directory, const char *name);
/// Our own PID namespace, as process_identity has it.
uint64_t collect_life_namespace(void);
/// The number, here, of a process of any namespace; 0: there is none. Reads all of /proc.
int32_t collect_life_find(const struct process_identity *identity);
/// Some process other than this one was started with this session in its environment. Reads all of /proc.
bool collect_life_has_followers(const char *session);

/* ---- exec.c: programs that could not be recorded ---- */

struct collector;
struct collect_execs;

int collect_execs_open(struct collector *collector);
void collect_execs_close(struct collector *collector);
/// A process is about to run a program that should load the recorder.
void collect_execs_await(struct collector *collector, const struct process_identity *process,
                         const char *path);
/// Take the notes that programs have written, once per round.
void collect_execs_take(struct collector *collector);
/// Many notes wait for a commit.
bool collect_execs_are_tight(const struct collector *collector);
/// Before a commit, and after it.
int collect_execs_store(struct collector *collector);
void collect_execs_committed(struct collector *collector);
/// Programs other than the first were run.
bool collect_execs_any(const struct collector *collector);
/// The recording is over: what is still awaited never came. Sets sum.unrecorded.
int collect_execs_finish(struct collector *collector);

/* ---- collector.c ---- */

/* The second sink, as the collector sees it. */
struct collect_mirror {
    const struct mirror_provider *provider; /* NULL: there is none */
    uint32_t starts_answered;
    size_t anchors_told;
    char **meta; /* key, value, key, value, … as text, to be told again */
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
    struct collect_mirror mirror;
    struct collect_lttng lttng;
    struct collect_clock clock;
    struct derive *derive;
    struct callsites *callsites;
    struct store *store;
    struct traced_process **processes; /* [id - 1], NULL: not (or never) opened */
    uint32_t process_count, process_capacity;
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
    struct ring_reader **heap; /* merge.c; capacity as readers */
    size_t heap_count;
    uint32_t held_count;   /* readers held back */
    bool must_rebuild;     /* one of them was released: the heap is out of order */
    uint32_t thread_count; /* rings ever opened */
    uint64_t seq;
    uint64_t seq_committed;
    uint64_t commits;     /* of the database, those that it lost included */
    uint64_t watermark;   /* of the present round */
    uint64_t round_ticks; /* clock at the beginning of an earlier round, at least ROUND_MIN_NS ago */
    uint64_t candidate_ticks, candidate_ns; /* the next round_ticks, once it is old enough */
    uint64_t next_heartbeat_ns;
    char **
        doomed; /* files of rings and processes that ended: removed once the commit with their rows is done */
    size_t doomed_count, doomed_capacity;
    struct reaped reaped[REAPED_KEPT]; /* the newest ones, a circle */
    uint32_t reaped_count;
    uint32_t process_limit;   /* like attach_limit, for process numbers */
    uint64_t process_seen_ns; /* like traced_process.attach_seen_ns */
    uint64_t process_bound;
    uint32_t processes_missing; /* numbers given up so far whose control page may still come */
    uint64_t next_missing_ns;   /* when to look for these again */
    uint64_t first_pending_ns;  /* CLOCK_MONOTONIC of the oldest uncommitted event, 0 = none */
    uint64_t next_check_ns, next_anchor_ns;
    struct {
        uint64_t emitted, stored, lost, lost_bytes, uncommitted, unattached, spilled, unreadable, stragglers,
            unrecorded, own_allocators, damaged, threads, processes, loss_rows;
    } sum;
    struct known_program programs[KNOWN_PROGRAMS]; /* the newest ones, a circle */
    uint32_t program_count;
    uint64_t newest_ts_ns; /* of merged events */
    bool is_store_full;
    bool is_draining;   /* rounds without a watermark: the last look at everything */
    bool is_recovering; /* the program is gone: whatever a ring lacks will not come */
    bool is_unstored;   /* no database: the second sink gets everything */
    bool was_killed;    /* a process did not end by itself */
    bool quiet;
    bool may_replace;  /* what is where the database goes */
    bool locks_work;   /* collect_life_locks_work of the folder of rings */
    bool is_cut_short; /* the recording was ended before its processes */
    int counts_fd;     /* of the session's counts, whose lock says that somebody lives; -1 */
    uint64_t pid_namespace;
    uint64_t next_followers_ns; /* when /proc may be searched for followers again */
    bool found_no_follower;     /* by the last search */
    struct collect_execs *execs;
    int64_t program_start_ns, program_end_ns; /* of the trace; -1 if not known */
};

/// Open the database, the derivation and the clock for collector->directory.
int collector_open(struct collector *collector, enum store_mode mode, struct varve_message *message);

/// One pass over everything; `*moved_out` = events merged. With `drain` the watermark is ignored.
int collector_round(struct collector *collector, bool drain, uint64_t *moved_out,
                    struct varve_message *message);
/// Events taken since the last commit.
uint64_t collector_pending(const struct collector *collector);
int collector_commit(struct collector *collector, struct varve_message *message);
/// Rounds without a watermark until nothing moves: every producer is dead or told to stop.
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

/* ---- second_sink.c: what the second sink is told from here (format/sink_provider.h) ---- */

/// Open the provider library in this process. Errors: VARVE_ERROR_UNSUPPORTED, with the reason.
int collect_mirror_open(struct collector *collector, const char *provider_path,
                        struct varve_message *message);
void collect_mirror_close(struct collector *collector);
/// In every round: new anchors, and everything again when a trace has begun in mid-run.
void collect_mirror_round(struct collector *collector);
/// A record is taken; the workload may have told it already.
void collect_mirror_record(struct collector *collector, const struct ring_reader *reader,
                           const struct varve_record *record, uint64_t sequence);
void collect_mirror_process(const struct collector *collector, const struct traced_process *process);
void collect_mirror_process_end(const struct collector *collector, const struct traced_process *process);
void collect_mirror_thread(const struct collector *collector, const struct ring_reader *reader);
void collect_mirror_thread_end(struct collector *collector, const struct ring_reader *reader);
/// A row of `meta`, into the database and the second sink.
int collect_meta_text(struct collector *collector, const char *key, const char *value);
int collect_meta_integer(struct collector *collector, const char *key, int64_t value);

/* ---- collector/lttng.c: the LTTng session around a recording ---- */

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
int collect_lttng_publish(struct collector *collector, const char *database_path,
                          struct varve_collect_result *result, struct varve_message *message);
/// No trace is wanted any more; nothing of it stays.
void collect_lttng_abandon(struct collector *collector);
/// The session of a collector that died; false: there is none.
bool collect_lttng_adopt(struct collector *collector, struct varve_message *message);
/// TRACE.db → TRACE.ctf
void collect_lttng_path(const char *database_path, char *path, size_t bytes);

/* ---- rings.c: numbers that were taken, and their files ---- */

/// A number without a file: hold the merge at the time before it was taken. False: waited long enough.
bool collect_file_wait(const struct collector *collector, uint64_t *seen_ns, uint64_t *seen_bound,
                       uint64_t *bound);
/// The rings of an interrupted recording that have no file any more and no complete row.
int collect_rings_gone(struct collector *collector);
/// At the end of a process: rings that it made, and that nobody has seen.
int collect_rings_missing(struct collector *collector, const struct traced_process *process);
/// Recovering: open all rings of a process.
int collect_rings_open(struct collector *collector, struct traced_process *process);
/// A ring file that was found: is it one that was given up?
int collect_ring_missing(struct collector *collector, struct traced_process *process, uint32_t index);
/// Open the rings of a process that have come since the last time.
int collect_rings_discover(struct collector *collector, struct traced_process *process, uint64_t *bound);

/* ---- process.c, again ---- */

int collect_processes_discover(struct collector *collector, uint64_t *bound);
void collect_processes_check(struct collector *collector);
void collect_process_reaped(struct collector *collector, int32_t pid, int wait_status);
/// After a commit: remove the files of what was retired before it.
void collect_files_remove(struct collector *collector);
/// After a commit: close the rings that ended and the processes all of whose rings did.
int collect_processes_retire(struct collector *collector);
/// Field 22 of /proc/pid/stat, also of a process that nobody has waited for; 0: there is none.
uint64_t collect_process_started(int32_t pid);
/// The pid of the process image with this number if it still runs, else 0.
int32_t collect_process_alive(const struct session_directory *directory, uint32_t id);
/// A process of the session may still record something, whether it has a page yet or not: it found the
/// session, or was forked from one that did, or has just been started with the session in its environment.
bool collect_session_lives(struct collector *collector);
void collect_processes_close(struct collector *collector);
/// Of an interrupted recording, after the rounds' own discovery: an ended process that has no page any more.
bool collect_process_is_over(const struct collector *collector, const struct ended_process *ended);
/// How many numbers processes have taken, as far as these are followed.
uint32_t collect_processes_announced(const struct collector *collector);
/// Numbers that processes took without ever making a page for them: what they did is not recorded.
uint32_t collect_processes_unattached(const struct collector *collector);
/// Control pages that were made, and that nobody has seen.
uint32_t collect_processes_missing(const struct collector *collector);
/// A counter of a page that programs write; 0 if nobody can have counted so far.
uint64_t collect_plausible(uint64_t count);
/// Executable and arguments as rows show them: ends with NUL, arguments separated by blanks.
void collect_process_command(const struct process_control *control, char *text, size_t bytes);
int collect_process_row(struct collector *collector, const struct traced_process *process);

/* ---- allocator.c ---- */

/// What is linked into the program and serves its heap, so that no hook sees it: "jemalloc" and so on, a
/// literal; NULL: nothing known, or the file can't be read.
const char *collect_allocator_of(const char *path);
/// Tell in `stats` if a process had such an allocator. Once per process, at its end.
int collect_allocator_row(struct collector *collector, const struct traced_process *process);
/// After all processes: the same of the program that was started, if it came to no event and so to no row.
int collect_allocator_launched(struct collector *collector, const char *path);
int collect_thread_row(struct collector *collector, const struct ring_reader *reader, int64_t end_ns);

/* ---- merge.c: rings into one order ---- */

/// Take every record older than collector->watermark, oldest first.
int merge_run(struct collector *collector, uint64_t *moved_out, struct varve_message *message);

/* ---- variables.c: what the program's environment says besides ---- */

#define RECORD_VARIABLES 8

struct record_variables {
    char *items[RECORD_VARIABLES + 1]; /* "NAME=VALUE", NULL at the end */
};

/// By the roads that `options` asks for; `torch_history` (4096 bytes) gets the prefix of what PyTorch's own
/// history is written to, "" if it isn't asked for. Errors: VARVE_ERROR_NOT_FOUND (a library is missing, or
/// the database's folder), NO_MEMORY.
int record_variables_make(struct record_variables *variables, const struct varve_collect_options *options,
                          char *torch_history, struct varve_message *message);
void record_variables_free(struct record_variables *variables);

#endif
