/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * A second sink without LTTng: programs/lttng/lib_second_sink_fake.c writes down all that it gets, by whatever
 * process, into one file that the test maps too and rules the library through. Beside it a collector in a
 * process of its own, which follows what the test records and at the end compares the database with the file,
 * event by event. The library includes this header for the layout alone and defines SINK_LAYOUT_ONLY.
 */
#ifndef VARVE_TESTS_SUPPORT_LTTNG_SECOND_SINK_H
#define VARVE_TESTS_SUPPORT_LTTNG_SECOND_SINK_H

#include "trace/format/sink_provider.h"

#define SINK_LOG_ENVIRONMENT "VARVE_TEST_SINK_LOG" /* path of the file */
#define SINK_KINDS 256U
#define SINK_RECORDS_MAX (1U << 19)
#define SINK_FACTS_MAX 16384U
#define SINK_FACT_BYTES 8192U
#define SINK_OWN_SIZE 77777U /* of whatever the library allocates and emits itself */

/* What the provider got: a record … */
struct sink_event {
    struct varve_sink_origin origin;
    uint64_t ring_seq;
    struct varve_record record;
    int32_t emitter;   /* pid of the process that called */
    uint32_t is_whole; /* the call returned */
};

/* … or anything else, as a line of text "word field=value …". */
struct sink_fact {
    int32_t emitter;
    uint32_t is_whole;
    char text[SINK_FACT_BYTES - 8];
};

/* Atomic where a test changes it while the library is open. */
struct sink_log {
    /* before the library is opened */
    uint32_t version;                          /* that it can talk; another one: it says NULL */
    uint32_t threads_at_load, threads_at_open; /* of its own */
    uint64_t emit;   /* address of the varve_emit_record of a program that does not export it, 0: look it up */
    uint64_t inside; /* address of a void (*)(const struct sink_event *), called in the middle of a record */
    int32_t enabled[SINK_KINDS];       /* in workloads */
    int32_t enabled_there[SINK_KINDS]; /* in the collector */
    /* commands for one of its own threads */
    uint32_t starts_wanted, starts_done; /* call `started` so often */
    uint32_t emits_wanted, emits_done;   /* allocate and emit so often */
    uint32_t must_stop;
    uint32_t must_hold; /* in front of `started`, until it is 0 again */
    uint32_t holding;   /* atomic counts from here on */
    uint32_t own_running, late_acts;
    uint32_t opened, refused;
    /* between the test's processes */
    uint32_t collector_ready, collector_stop;
    uint32_t drains_asked, drains_done;
    uint32_t fact_count, record_count;
    struct sink_fact facts[SINK_FACTS_MAX];
    struct sink_event records[SINK_RECORDS_MAX];
};

#ifndef SINK_LAYOUT_ONLY

#include "support/collector.h"
#include "support/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/prctl.h>

#define SINK_FAKE VARVE_BUILD_DIR "/programs/lib_second_sink_fake.so"

#define ATOMIC_GET(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define ATOMIC_SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

/* ---- the file ---- */

/* Everything is wanted, nothing is said yet. From here on processes that open the library write into it. */
static inline struct sink_log *sink_log_open(const char *folder)
{
    char path[128];
    snprintf(path, sizeof(path), "%.100s/reported", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct sink_log *log;
    assert_true(fd >= 0 && ftruncate(fd, sizeof(*log)) == 0);
    log = mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(log != MAP_FAILED);
    close(fd);
    setenv(SINK_LOG_ENVIRONMENT, path, 1);
    log->version = SINK_INTERFACE_VERSION;
    for (unsigned kind = 0; kind < SINK_KINDS; kind++) {
        log->enabled[kind] = log->enabled_there[kind] = 1;
    }
    return log;
}

static inline void sink_log_close(struct sink_log *log)
{
    munmap(log, sizeof(*log));
}

static inline void sink_enable(struct sink_log *log, int32_t value)
{
    for (unsigned kind = 0; kind < SINK_KINDS; kind++) {
        __atomic_store_n(&log->enabled[kind], value, __ATOMIC_SEQ_CST);
    }
}

/* Waits until a number that others count up has come so far; false: it takes too long. */
static inline bool sink_wait(const uint32_t *number, uint32_t least)
{
    const struct timespec nap = {0, 200000};
    for (unsigned i = 0; i < 150000; i++) {
        if (__atomic_load_n(number, __ATOMIC_ACQUIRE) >= least) {
            return true;
        }
        nanosleep(&nap, NULL);
    }
    return false;
}

/* One of the library's threads calls `started`, to the end. */
static inline bool sink_start(struct sink_log *log)
{
    return sink_wait(&log->starts_done, __atomic_add_fetch(&log->starts_wanted, 1, __ATOMIC_ACQ_REL));
}

/* Facts that begin so. */
static inline unsigned sink_facts(const struct sink_log *log, const char *begin)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < ATOMIC_GET(log->fact_count); i++) {
        count += strncmp(log->facts[i].text, begin, strlen(begin)) == 0;
    }
    return count;
}

#define SINK_ANY UINT32_MAX

/* Records that a workload (else the collector) emitted, of this ring of this process. */
static inline unsigned sink_count(const struct sink_log *log, bool by_workload, uint32_t process, uint32_t ring)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < ATOMIC_GET(log->record_count); i++) {
        const struct sink_event *reported = &log->records[i];
        bool is_flagged = (varve_record_flags(&reported->record) & VARVE_FLAG_SECOND_SINK) != 0;
        count += is_flagged == by_workload && (process == SINK_ANY || reported->origin.process == process) &&
                 (ring == SINK_ANY || reported->origin.ring == ring);
    }
    return count;
}

/* ---- the database against the file ---- */

struct sink_run {
    struct session session;
    struct sink_log *log;
    pid_t collector;
    bool is_killed;    /* the workload will be, at any moment */
    bool has_handlers; /* that emit: their records may be a little later than the next one */
};

static inline void sink_sql(sqlite3 *db, const char *sql)
{
    CHECK(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
}

/* What was reported, into table `said`. */
static inline void sink_load(sqlite3 *db, struct collector *collector, const struct sink_run *run)
{
    const uint32_t count = ATOMIC_GET(run->log->record_count);
    CHECK(count <= SINK_RECORDS_MAX, "%u records reported", count);
    sqlite3_stmt *insert;
    sink_sql(db, "PRAGMA temp_store = MEMORY");
    sink_sql(db, "CREATE TEMP TABLE said(process INT, ring INT, ring_seq INT, pid, tid, kind, flags, "
                 "addr, arg, device, dev_seq, stream, pool, ns, ticks); BEGIN");
    sqlite3_prepare_v2(db, "INSERT INTO said VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", -1, &insert, NULL);
    for (uint32_t i = 0; i < count; i++) {
        const struct sink_event *reported = &run->log->records[i];
        const struct varve_record *record = &reported->record;
        if (ATOMIC_GET(reported->is_whole) != 1) {
            CHECK(run->is_killed, "record %u reported is in the middle", i);
            continue;
        }
        const int64_t values[] = {reported->origin.process,
                                  reported->origin.ring,
                                  (int64_t)reported->ring_seq,
                                  reported->origin.pid,
                                  reported->origin.tid,
                                  varve_record_kind(record),
                                  varve_record_flags(record) & VARVE_FLAGS_STORED,
                                  (int64_t)record->addr,
                                  (int64_t)record->arg,
                                  record->device,
                                  (int64_t)varve_record_dev_seq(record),
                                  varve_record_stream(record),
                                  record->pool,
                                  collect_clock_ns(&collector->clock, record->ticks),
                                  (int64_t)record->ticks};
        for (int k = 0; k < 15; k++) {
            sqlite3_bind_int64(insert, k + 1, values[k]);
        }
        CHECK(sqlite3_step(insert) == SQLITE_DONE, "%s", sqlite3_errmsg(db));
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    sink_sql(db, "COMMIT");
}

/* The integer that it gives, and what the row says beside it. */
static inline int64_t sink_ask(sqlite3 *db, const char *sql, char *text, size_t bytes)
{
    sqlite3_stmt *query;
    CHECK(sqlite3_prepare_v2(db, sql, -1, &query, NULL) == SQLITE_OK && sqlite3_step(query) == SQLITE_ROW, "%s: %s",
          sql, sqlite3_errmsg(db));
    int64_t value = sqlite3_column_int64(query, 0);
    const char *row = (const char *)sqlite3_column_text(query, 1);
    snprintf(text, bytes, "%s", row != NULL ? row : "");
    sqlite3_finalize(query);
    return value;
}

#define SINK_COLUMNS(of)                                                                                      \
    "(" of "pid, " of "tid, " of "kind, " of "flags, " of "addr, " of "arg, " of "device, " of "dev_seq, " of \
    "stream, " of "pool)"
/* Times in a ring wait for the event before, where a handler interrupted its thread. */
#define SINK_MATCH                                                                             \
    "s.process = r.process AND s.ring = r.ring AND s.ring_seq = r.ring_seq AND " SINK_COLUMNS( \
        "s.") " IS " SINK_COLUMNS("r.") " AND r.ts_ns = max(s.ns, coalesce(r.floor, s.ns))"
static const char sink_tables[] =
    "CREATE TEMP TABLE seen AS SELECT process, ring, ring_seq, pid, tid, kind, flags, CASE WHEN k.addr <> '' THEN "
    "s.addr END AS addr, CASE WHEN k.arg <> '' THEN s.arg END AS arg, CASE WHEN is_of_device THEN device END AS "
    "device, CASE WHEN is_of_device THEN dev_seq END AS dev_seq, CASE WHEN is_of_device THEN stream END AS stream, "
    "CASE WHEN is_of_device THEN pool END AS pool, ns, ticks FROM said s LEFT JOIN (SELECT *, grp NOT IN ('heap', "
    "'process') AS is_of_device FROM event_kind) k ON k.code = s.kind;"
    "CREATE INDEX temp.seen_number ON seen(process, ring, ring_seq);"
    "CREATE TEMP TABLE stored(process INT, ring INT, ring_seq INT, pid, tid, kind, flags, addr, arg, device, dev_seq, "
    "stream, pool, ts_ns, floor);"
    "INSERT INTO stored SELECT process, ring, ring_seq, pid, tid, kind, flags, addr, arg, device, dev_seq, stream, "
    "pool, ts_ns, lag(ts_ns) OVER (PARTITION BY thread_id ORDER BY ring_seq) FROM event JOIN "
    "(SELECT id AS thread_id, process_id AS process, ring FROM thread) USING (thread_id);"
    "CREATE INDEX temp.stored_number ON stored(process, ring, ring_seq)";

/* In a child. Every event of the database was emitted, once, with the same number and the same fields, and
 * nothing else was. Killed, the workload may have emitted what it never committed, and its number may go
 * to a handler's record that waited for it; or it had emitted a record that it put aside, and the collector
 * emits that again. */
static inline void sink_compare(struct collector *collector, const struct sink_run *run)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    char text[256];
    sqlite3 *db;
    snprintf(path, sizeof(path), "%s/trace.db", collector->directory.path);
    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK, "%.200s", path);
    sink_load(db, collector, run);
    sink_sql(db, sink_tables);
    CHECK(sink_ask(db,
                   "SELECT count(*), min(printf('p%d.r%d %d kind %d flags %d', process, ring, ring_seq, kind, flags)) "
                   "FROM stored r WHERE NOT EXISTS (SELECT 1 FROM seen s WHERE " SINK_MATCH ")",
                   text, sizeof(text)) == 0,
          "not reported as it is stored: %s", text);
    verdict->figures[7] = (uint64_t)sink_ask(
        db, "SELECT count(*) FROM seen s WHERE NOT EXISTS (SELECT 1 FROM stored r WHERE " SINK_MATCH ")", text,
        sizeof(text));
    CHECK(run->is_killed || sink_ask(db,
                                     "SELECT (SELECT count(*) FROM seen) - count(*), (SELECT count(*) FROM seen) || "
                                     "' records reported, events: ' || count(*) FROM stored",
                                     text, sizeof(text)) == 0,
          "%s", text);
    CHECK(run->has_handlers ||
              sink_ask(
                  db,
                  "SELECT count(*), min(printf('p%d.r%d at %d', process, ring, ring_seq)) FROM (SELECT *, lag(ticks) "
                  "OVER (PARTITION BY process, ring ORDER BY ring_seq) AS before FROM seen) WHERE ticks < before",
                  text, sizeof(text)) == 0,
          "time goes back in %s", text);
    sqlite3_close(db);
}

/* ---- a collector beside what is recorded ---- */

static inline void sink_collect(struct sink_run *run)
{
    struct collector *collector = calloc(1, sizeof(*collector));
    struct varve_message message = {""};
    struct sink_log *log = run->log;
    CHECK(collector != NULL, "no memory");
    collector->directory = run->session.directory;
    collector->quiet = true;
    CHECK(collector_open(collector, STORE_CREATE, &message) == VARVE_OK, "%s", message.text);
    CHECK(collect_sink_open(collector, SINK_FAKE, &message) == VARVE_OK, "%s", message.text);
    collect_clock_anchor(&collector->clock);
    usleep(2000);
    collect_clock_anchor(&collector->clock);
    ATOMIC_SET(log->collector_ready, 1);
    uint64_t moved;
    while (ATOMIC_GET(log->collector_stop) == 0) {
        CHECK(collector_round(collector, false, &moved, &message) == VARVE_OK, "%s", message.text);
        if (ATOMIC_GET(log->drains_asked) != log->drains_done) {
            CHECK(collector_drain(collector, NULL, NULL, &message) == VARVE_OK &&
                      collector_commit(collector, &message) == VARVE_OK,
                  "%s", message.text);
            ATOMIC_SET(log->drains_done, log->drains_done + 1);
        }
        usleep(moved > 0 ? 0 : 300);
    }
    CHECK(collector_drain(collector, NULL, NULL, &message) == VARVE_OK, "%s", message.text);
    CHECK(collector_finish(collector, NULL, NULL, &message) == VARVE_OK, "%s", message.text);
    sink_compare(collector, run);
    verdict->figures[6] = collector->seq;
    collector_close(collector);
    free(collector);
}

/* What a hook does of the preload library, which is not here. */
static inline void sink_hook(const struct varve_record *record)
{
    if (recorder_reentrant_depth == 0) {
        varve_emit(record);
    }
}

/* The session asks for the fake; a collector follows it from now on. */
static inline void sink_begin(struct sink_run *run, uint32_t overflow, uint32_t capacity)
{
    struct session_control settings = session_settings(overflow, capacity);
    memset(run, 0, sizeof(*run));
    settings.trace_id &= INT64_MAX;
    settings.sink = SESSION_SINK_LTTNG;
    snprintf(settings.sink_path, sizeof(settings.sink_path), "%s", SINK_FAKE);
    session_begin(&run->session, &settings);
    run->log = sink_log_open(run->session.folder);
    run->log->emit = (uintptr_t)sink_hook;
}

static inline void sink_follow(struct sink_run *run)
{
    verdict_open();
    fflush(NULL);
    run->collector = fork();
    assert_true(run->collector >= 0);
    if (run->collector == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that failed does not stop it */
        sink_collect(run);
        exit(0);
    }
    assert_true(sink_wait(&run->log->collector_ready, 1));
}

/* Lets the collector finish and compare, unless it did so before. The numbers of events and of records emitted
 * too many are in the figures 6 and 7. */
static inline void sink_finish(struct sink_run *run, const char *what)
{
    int wait_status = 0;
    ATOMIC_SET(run->log->collector_stop, 1);
    assert_int_equal(waitpid(run->collector, &wait_status, 0), run->collector);
    child_judge(wait_status, what);
}

/* One scenario, whose context is the log, from the session to the comparison. */
static inline void sink_record(struct sink_run *run, scenario act, const char *what)
{
    sink_follow(run);
    run_scenario(&run->session, act, run->log, what);
    sink_finish(run, what);
}

static inline void sink_end(struct sink_run *run)
{
    sink_log_close(run->log);
    session_end(&run->session);
}

/* ---- in the workload ---- */

static inline bool sink_detour_is_on(void)
{
    return __atomic_load_n(&varve_emit_has_sink, __ATOMIC_ACQUIRE) != 0;
}

static inline void sink_emit(uint64_t first, uint64_t last)
{
    for (uint64_t at = first; at <= last; at++) {
        errno = 4711;
        emit(at % 3 == 0 ? VARVE_KIND_HEAP_FREE : VARVE_KIND_HEAP_ALLOC, 0x1000 * at, 16);
        CHECK(errno == 4711, "errno became %d", errno);
    }
}

/* While it emits nothing: everything is read and its space handed back. */
static inline void sink_drain(struct sink_log *log)
{
    CHECK(sink_wait(&log->drains_done, __atomic_add_fetch(&log->drains_asked, 1, __ATOMIC_ACQ_REL)),
          "the collector does not come");
}

/* ---- a collector by hand, with the fake open in this process ---- */

static inline struct sink_log *lab_sink(struct lab *lab, uint32_t threads)
{
    struct sink_log *log = sink_log_open(lab->folder);
    log->threads_at_open = threads;
    LAB_OK(lab, collect_sink_open(lab->collector, SINK_FAKE, &lab->message));
    return log;
}

static inline void lab_sink_end(struct lab *lab, struct sink_log *log)
{
    ATOMIC_SET(log->must_stop, 1);
    while (ATOMIC_GET(log->own_running) > 0) {
        usleep(200);
    }
    sink_log_close(log);
    lab_end(lab);
}

#endif
#endif
