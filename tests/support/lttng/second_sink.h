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
    uint32_t version; /* that it can talk; another one: it says NULL */
    uint32_t reports_starts;
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
    log->reports_starts = 1;
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

static inline int sink_order(const void *a, const void *b)
{
    const struct sink_event *x = *(const struct sink_event *const *)a;
    const struct sink_event *y = *(const struct sink_event *const *)b;
    if (x->origin.process != y->origin.process) {
        return x->origin.process < y->origin.process ? -1 : 1;
    }
    if (x->origin.ring != y->origin.ring) {
        return x->origin.ring < y->origin.ring ? -1 : 1;
    }
    return x->ring_seq < y->ring_seq ? -1 : x->ring_seq > y->ring_seq;
}

static inline bool column_is(sqlite3_stmt *row, int column, uint64_t value)
{
    return sqlite3_column_type(row, column) == SQLITE_INTEGER && (uint64_t)sqlite3_column_int64(row, column) == value;
}

/* NULL if, and only if, events of this kind have no such column. */
static inline bool column_is_if(bool has_column, sqlite3_stmt *row, int column, uint64_t value)
{
    return has_column ? column_is(row, column, value) : sqlite3_column_type(row, column) == SQLITE_NULL;
}

static inline bool sink_has_columns(sqlite3_stmt *row, const struct varve_record *record)
{
    static const struct {
        const char *group, *addr, *arg; /* "": the kind does not use it */
    } kinds[256] = {
#define SINK_KIND(code, NAME, name, group, addr, size, requested, arg, meaning) [code] = {#group, addr, arg},
        VARVE_EVENT_LIST(SINK_KIND)
#undef SINK_KIND
    };
    unsigned kind = varve_record_kind(record);
    bool is_known = kinds[kind].group != NULL;
    bool is_of_device = is_known && strcmp(kinds[kind].group, "heap") != 0 && strcmp(kinds[kind].group, "process") != 0;
    return column_is_if(is_known && kinds[kind].addr[0] != '\0', row, 7, record->addr) &&
           column_is_if(is_known && kinds[kind].arg[0] != '\0', row, 8, record->arg) &&
           column_is_if(is_of_device, row, 9, record->device) &&
           column_is_if(is_of_device, row, 10, varve_record_dev_seq(record)) &&
           column_is_if(is_of_device, row, 11, varve_record_stream(record)) &&
           column_is_if(is_of_device, row, 12, record->pool);
}

/* `floor_ns`: of the event before it in its ring; where a handler interrupted its thread, times wait. */
static inline bool sink_is_event(sqlite3_stmt *row, struct collector *collector, const struct sink_event *reported,
                                 int64_t floor_ns)
{
    const struct varve_record *record = &reported->record;
    int64_t ns = collect_clock_ns(&collector->clock, record->ticks);
    return column_is(row, 0, reported->origin.process) && column_is(row, 1, reported->origin.ring) &&
           column_is(row, 2, reported->ring_seq) && column_is(row, 3, (uint64_t)reported->origin.pid) &&
           column_is(row, 4, (uint64_t)reported->origin.tid) && column_is(row, 5, varve_record_kind(record)) &&
           column_is(row, 6, varve_record_flags(record) & VARVE_FLAGS_STORED) && sink_has_columns(row, record) &&
           sqlite3_column_int64(row, 13) == (ns > floor_ns ? ns : floor_ns);
}

/* Records emitted, in the order of their numbers; the caller frees it. `was_killed`: one may be in the middle.
 */
static inline const struct sink_event **sink_sorted(const struct sink_log *log, bool was_killed, uint32_t *count_out)
{
    uint32_t reported = ATOMIC_GET(log->record_count);
    const struct sink_event **sorted = calloc(reported + 1, sizeof(struct sink_event *));
    uint32_t count = 0;
    CHECK(sorted != NULL && reported <= SINK_RECORDS_MAX, "%u records reported", reported);
    for (uint32_t i = 0; i < reported; i++) {
        bool is_whole = ATOMIC_GET(log->records[i].is_whole) == 1;
        CHECK(is_whole || was_killed, "record %u reported is in the middle", i);
        sorted[count] = &log->records[i];
        count += is_whole;
    }
    qsort(sorted, count, sizeof(struct sink_event *), sink_order);
    *count_out = count;
    return sorted;
}

static inline sqlite3_stmt *sink_rows(const struct collector *collector, sqlite3 **db_out)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    sqlite3_stmt *rows = NULL;
    snprintf(path, sizeof(path), "%s/trace.db", collector->directory.path);
    CHECK(sqlite3_open_v2(path, db_out, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK, "%.200s", path);
    CHECK(sqlite3_prepare_v2(*db_out,
                             "SELECT t.process_id, t.ring, e.ring_seq, e.pid, e.tid, e.kind, e.flags, e.addr, "
                             "e.arg, e.device, e.dev_seq, e.stream, e.pool, e.ts_ns FROM event e JOIN thread t "
                             "ON t.id = e.thread_id ORDER BY 1, 2, 3",
                             -1, &rows, NULL) == SQLITE_OK,
          "%s", sqlite3_errmsg(*db_out));
    return rows;
}

struct sink_run {
    struct session session;
    struct sink_log *log;
    pid_t collector;
    bool is_killed;    /* the workload will be, at any moment */
    bool has_handlers; /* that emit: their records may be a little later than the next one */
};

/* Reported under a number that comes before the row's, or under the same one. */
static inline bool sink_is_up_to(const struct sink_event *reported, sqlite3_stmt *row)
{
    const struct sink_event of_row = {
        .origin = {.process = (uint32_t)sqlite3_column_int64(row, 0), .ring = (uint32_t)sqlite3_column_int64(row, 1)},
        .ring_seq = (uint64_t)sqlite3_column_int64(row, 2)};
    const struct sink_event *x = reported, *y = &of_row;
    return sink_order(&x, &y) <= 0;
}

static inline bool sink_goes_back(const struct sink_event *from, const struct sink_event *to)
{
    return from != NULL && from->origin.process == to->origin.process && from->origin.ring == to->origin.ring &&
           to->record.ticks < from->record.ticks;
}

/* In a child. Every event of the database was emitted, once, with the same number and the same fields, and
 * nothing else was. Killed, the workload may have emitted what it never committed, and its number may go
 * to a handler's record that waited for it; or it had emitted a record that it put aside, and the collector
 * emits that again. */
static inline void sink_compare(struct collector *collector, const struct sink_run *run)
{
    const struct sink_event *reported, *before = NULL;
    bool was_killed = run->is_killed;
    int64_t floor_ns = INT64_MIN;
    uint32_t count, at = 0;
    sqlite3 *db;
    const struct sink_event **sorted = sink_sorted(run->log, was_killed, &count);
    sqlite3_stmt *row = sink_rows(collector, &db);
    while (sqlite3_step(row) == SQLITE_ROW) {
        if (before != NULL && !(column_is(row, 0, before->origin.process) && column_is(row, 1, before->origin.ring))) {
            floor_ns = INT64_MIN;
        }
        while (was_killed && at < count && !sink_is_event(row, collector, sorted[at], floor_ns) &&
               sink_is_up_to(sorted[at], row)) {
            verdict->figures[7]++;
            at++;
        }
        reported = at < count ? sorted[at] : sorted[0];
        CHECK(at < count && sink_is_event(row, collector, reported, floor_ns),
              "event p%lld.r%lld %lld kind %lld is reported as p%u.r%u %llu kind %u flags %u (%u of %u)",
              sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2),
              sqlite3_column_int64(row, 5), reported->origin.process, reported->origin.ring,
              (unsigned long long)reported->ring_seq, varve_record_kind(&reported->record),
              varve_record_flags(&reported->record), at, count);
        CHECK(run->has_handlers || !sink_goes_back(before, reported), "time goes back in p%u.r%u at %llu",
              reported->origin.process, reported->origin.ring, (unsigned long long)reported->ring_seq);
        floor_ns = sqlite3_column_int64(row, 13);
        before = reported;
        at++;
        while (was_killed && at < count && sink_is_event(row, collector, sorted[at], floor_ns)) {
            at++;
        }
    }
    verdict->figures[7] += count - at;
    CHECK(was_killed || at == count, "%u records reported, %u events", count, at);
    sqlite3_finalize(row);
    sqlite3_close(db);
    free(sorted);
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
