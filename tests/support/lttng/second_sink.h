/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * A second sink without LTTng: programs/lttng/lib_second_sink_fake.c writes down all that it is told, by whatever
 * process, into one file that the test maps too and rules the library through. Beside it a collector in a
 * process of its own, which follows what the test records and at the end compares the database with the file,
 * event by event. The library includes this header for the layout alone and defines MIRROR_LAYOUT_ONLY.
 */
#ifndef VARVE_TESTS_SUPPORT_LTTNG_SECOND_SINK_H
#define VARVE_TESTS_SUPPORT_LTTNG_SECOND_SINK_H

#include "trace/format/sink_provider.h"

#define MIRROR_LOG_ENVIRONMENT "VARVE_TEST_MIRROR_LOG" /* path of the file */
#define MIRROR_KINDS 256U
#define MIRROR_RECORDS_MAX (1U << 19)
#define MIRROR_FACTS_MAX 16384U
#define MIRROR_FACT_BYTES 8192U
#define MIRROR_OWN_SIZE 77777U /* of whatever the library allocates and emits itself */

/* What the provider was told: a record … */
struct mirror_told {
    struct varve_mirror_origin origin;
    uint64_t ring_seq;
    struct varve_record record;
    int32_t teller;    /* pid of the process that called */
    uint32_t is_whole; /* the call returned */
};

/* … or anything else, as a line of text "word field=value …". */
struct mirror_fact {
    int32_t teller;
    uint32_t is_whole;
    char text[MIRROR_FACT_BYTES - 8];
};

/* Atomic where a test changes it while the library is open. */
struct mirror_log {
    /* before the library is opened */
    uint32_t version; /* that it can talk; another one: it says NULL */
    uint32_t reports_starts;
    uint32_t threads_at_load, threads_at_open; /* of its own */
    uint64_t emit; /* address of the varve_emit_record of a program that does not export it, 0: look it up */
    uint64_t inside; /* address of a void (*)(const struct mirror_told *), called in the middle of a record */
    int32_t enabled[MIRROR_KINDS];       /* in workloads */
    int32_t enabled_there[MIRROR_KINDS]; /* in the collector */
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
    struct mirror_fact facts[MIRROR_FACTS_MAX];
    struct mirror_told records[MIRROR_RECORDS_MAX];
};

#ifndef MIRROR_LAYOUT_ONLY

#include "support/collector.h"
#include "support/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/prctl.h>

#define MIRROR_FAKE VARVE_BUILD_DIR "/programs/lib_mirror_fake.so"

#define ATOMIC_GET(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define ATOMIC_SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELEASE)

/* ---- the file ---- */

/* Everything is wanted, nothing is said yet. From here on processes that open the library write into it. */
static inline struct mirror_log *mirror_log_open(const char *folder)
{
    char path[128];
    struct mirror_log *log;
    int fd;

    snprintf(path, sizeof(path), "%.100s/told", folder);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, sizeof(*log)) == 0);
    log = mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(log != MAP_FAILED);
    close(fd);
    setenv(MIRROR_LOG_ENVIRONMENT, path, 1);
    log->version = MIRROR_INTERFACE_VERSION;
    log->reports_starts = 1;
    for (unsigned kind = 0; kind < MIRROR_KINDS; kind++) {
        log->enabled[kind] = log->enabled_there[kind] = 1;
    }
    return log;
}

static inline void mirror_log_close(struct mirror_log *log)
{
    munmap(log, sizeof(*log));
}

static inline void mirror_enable(struct mirror_log *log, int32_t value)
{
    for (unsigned kind = 0; kind < MIRROR_KINDS; kind++) {
        __atomic_store_n(&log->enabled[kind], value, __ATOMIC_SEQ_CST);
    }
}

/* Waits until a number that others count up has come so far; false: it takes too long. */
static inline bool mirror_wait(const uint32_t *number, uint32_t least)
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
static inline bool mirror_start(struct mirror_log *log)
{
    return mirror_wait(&log->starts_done, __atomic_add_fetch(&log->starts_wanted, 1, __ATOMIC_ACQ_REL));
}

/* Facts that begin so. */
static inline unsigned mirror_facts(const struct mirror_log *log, const char *begin)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < ATOMIC_GET(log->fact_count); i++) {
        count += strncmp(log->facts[i].text, begin, strlen(begin)) == 0;
    }
    return count;
}

#define MIRROR_ANY UINT32_MAX

/* Records that a workload (else the collector) told, of this ring of this process. */
static inline unsigned mirror_count(const struct mirror_log *log, bool by_workload, uint32_t process,
                                    uint32_t ring)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < ATOMIC_GET(log->record_count); i++) {
        const struct mirror_told *told = &log->records[i];
        bool is_flagged = (varve_record_flags(&told->record) & VARVE_FLAG_MIRRORED) != 0;
        count += is_flagged == by_workload && (process == MIRROR_ANY || told->origin.process == process) &&
                 (ring == MIRROR_ANY || told->origin.ring == ring);
    }
    return count;
}

/* ---- the database against the file ---- */

static inline int mirror_order(const void *a, const void *b)
{
    const struct mirror_told *x = *(const struct mirror_told *const *)a;
    const struct mirror_told *y = *(const struct mirror_told *const *)b;

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
    return sqlite3_column_type(row, column) == SQLITE_INTEGER &&
           (uint64_t)sqlite3_column_int64(row, column) == value;
}

/* NULL if, and only if, events of this kind have no such column. */
static inline bool column_is_if(bool has_column, sqlite3_stmt *row, int column, uint64_t value)
{
    return has_column ? column_is(row, column, value) : sqlite3_column_type(row, column) == SQLITE_NULL;
}

static inline bool mirror_has_columns(sqlite3_stmt *row, const struct varve_record *record)
{
    static const struct {
        const char *group, *addr, *arg; /* "": the kind does not use it */
    } kinds[256] = {
#define MIRROR_KIND(code, NAME, name, group, addr, size, requested, arg, meaning) \
    [code] = {#group, addr, arg},
        VARVE_EVENT_LIST(MIRROR_KIND)
#undef MIRROR_KIND
    };
    unsigned kind = varve_record_kind(record);
    bool is_known = kinds[kind].group != NULL;
    bool is_of_device =
        is_known && strcmp(kinds[kind].group, "heap") != 0 && strcmp(kinds[kind].group, "process") != 0;

    return column_is_if(is_known && kinds[kind].addr[0] != '\0', row, 7, record->addr) &&
           column_is_if(is_known && kinds[kind].arg[0] != '\0', row, 8, record->arg) &&
           column_is_if(is_of_device, row, 9, record->device) &&
           column_is_if(is_of_device, row, 10, varve_record_dev_seq(record)) &&
           column_is_if(is_of_device, row, 11, varve_record_stream(record)) &&
           column_is_if(is_of_device, row, 12, record->pool);
}

/* `floor_ns`: of the event before it in its ring; where a handler interrupted its thread, times wait. */
static inline bool mirror_is_event(sqlite3_stmt *row, struct collector *collector,
                                   const struct mirror_told *told, int64_t floor_ns)
{
    const struct varve_record *record = &told->record;
    int64_t ns = collect_clock_ns(&collector->clock, record->ticks);

    return column_is(row, 0, told->origin.process) && column_is(row, 1, told->origin.ring) &&
           column_is(row, 2, told->ring_seq) && column_is(row, 3, (uint64_t)told->origin.pid) &&
           column_is(row, 4, (uint64_t)told->origin.tid) && column_is(row, 5, varve_record_kind(record)) &&
           column_is(row, 6, varve_record_flags(record) & VARVE_FLAGS_STORED) &&
           mirror_has_columns(row, record) &&
           sqlite3_column_int64(row, 13) == (ns > floor_ns ? ns : floor_ns);
}

/* Records told, in the order of their numbers; the caller frees it. `was_killed`: one may be in the middle.
 */
static inline const struct mirror_told **mirror_sorted(const struct mirror_log *log, bool was_killed,
                                                       uint32_t *count_out)
{
    uint32_t told = ATOMIC_GET(log->record_count);
    const struct mirror_told **sorted = calloc(told + 1, sizeof(struct mirror_told *));
    uint32_t count = 0;

    CHECK(sorted != NULL && told <= MIRROR_RECORDS_MAX, "%u records told", told);
    for (uint32_t i = 0; i < told; i++) {
        bool is_whole = ATOMIC_GET(log->records[i].is_whole) == 1;

        CHECK(is_whole || was_killed, "record %u told is in the middle", i);
        sorted[count] = &log->records[i];
        count += is_whole;
    }
    qsort(sorted, count, sizeof(struct mirror_told *), mirror_order);
    *count_out = count;
    return sorted;
}

static inline sqlite3_stmt *mirror_rows(const struct collector *collector, sqlite3 **db_out)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    sqlite3_stmt *rows = NULL;

    snprintf(path, sizeof(path), "%s/trace.db", collector->directory.path);
    CHECK(sqlite3_open_v2(path, db_out, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK, "%.200s", path);
    CHECK(
        sqlite3_prepare_v2(*db_out,
                           "SELECT t.process_id, t.ring, e.ring_seq, e.pid, e.tid, e.kind, e.flags, e.addr, "
                           "e.arg, e.device, e.dev_seq, e.stream, e.pool, e.ts_ns FROM event e JOIN thread t "
                           "ON t.id = e.thread_id ORDER BY 1, 2, 3",
                           -1, &rows, NULL) == SQLITE_OK,
        "%s", sqlite3_errmsg(*db_out));
    return rows;
}

struct mirror_run {
    struct session session;
    struct mirror_log *log;
    pid_t collector;
    bool is_killed;    /* the workload will be, at any moment */
    bool has_handlers; /* that emit: their records may be a little later than the next one */
};

/* Told under a number that comes before the row's, or under the same one. */
static inline bool mirror_is_up_to(const struct mirror_told *told, sqlite3_stmt *row)
{
    const struct mirror_told of_row = {.origin = {.process = (uint32_t)sqlite3_column_int64(row, 0),
                                                  .ring = (uint32_t)sqlite3_column_int64(row, 1)},
                                       .ring_seq = (uint64_t)sqlite3_column_int64(row, 2)};
    const struct mirror_told *x = told, *y = &of_row;

    return mirror_order(&x, &y) <= 0;
}

static inline bool mirror_goes_back(const struct mirror_told *from, const struct mirror_told *to)
{
    return from != NULL && from->origin.process == to->origin.process &&
           from->origin.ring == to->origin.ring && to->record.ticks < from->record.ticks;
}

/* In a child. Every event of the database was told, once, with the same number and the same fields, and
 * nothing else was. Killed, the workload may have told what it never committed, and its number may go
 * to a handler's record that waited for it; or it had told a record that it put aside, and the collector
 * tells that again. */
static inline void mirror_compare(struct collector *collector, const struct mirror_run *run)
{
    const struct mirror_told **sorted, *told, *before = NULL;
    bool was_killed = run->is_killed;
    int64_t floor_ns = INT64_MIN;
    uint32_t count, at = 0;
    sqlite3_stmt *row;
    sqlite3 *db;

    sorted = mirror_sorted(run->log, was_killed, &count);
    row = mirror_rows(collector, &db);
    while (sqlite3_step(row) == SQLITE_ROW) {
        if (before != NULL &&
            !(column_is(row, 0, before->origin.process) && column_is(row, 1, before->origin.ring))) {
            floor_ns = INT64_MIN;
        }
        while (was_killed && at < count && !mirror_is_event(row, collector, sorted[at], floor_ns) &&
               mirror_is_up_to(sorted[at], row)) {
            verdict->figures[7]++;
            at++;
        }
        told = at < count ? sorted[at] : sorted[0];
        CHECK(at < count && mirror_is_event(row, collector, told, floor_ns),
              "event p%lld.r%lld %lld kind %lld is told as p%u.r%u %llu kind %u flags %u (%u of %u)",
              sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1), sqlite3_column_int64(row, 2),
              sqlite3_column_int64(row, 5), told->origin.process, told->origin.ring,
              (unsigned long long)told->ring_seq, varve_record_kind(&told->record),
              varve_record_flags(&told->record), at, count);
        CHECK(run->has_handlers || !mirror_goes_back(before, told), "time goes back in p%u.r%u at %llu",
              told->origin.process, told->origin.ring, (unsigned long long)told->ring_seq);
        floor_ns = sqlite3_column_int64(row, 13);
        before = told;
        at++;
        while (was_killed && at < count && mirror_is_event(row, collector, sorted[at], floor_ns)) {
            at++;
        }
    }
    verdict->figures[7] += count - at;
    CHECK(was_killed || at == count, "%u records told, %u events", count, at);
    sqlite3_finalize(row);
    sqlite3_close(db);
    free(sorted);
}

/* ---- a collector beside what is recorded ---- */

static inline void mirror_collect(struct mirror_run *run)
{
    struct collector *collector = calloc(1, sizeof(*collector));
    struct varve_message message = {""};
    struct mirror_log *log = run->log;
    uint64_t moved;

    alarm(100);
    CHECK(collector != NULL, "no memory");
    collector->directory = run->session.directory;
    collector->quiet = true;
    CHECK(collector_open(collector, STORE_CREATE, &message) == VARVE_OK, "%s", message.text);
    CHECK(collect_mirror_open(collector, MIRROR_FAKE, &message) == VARVE_OK, "%s", message.text);
    collect_clock_anchor(&collector->clock);
    usleep(2000);
    collect_clock_anchor(&collector->clock);
    ATOMIC_SET(log->collector_ready, 1);
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
    mirror_compare(collector, run);
    verdict->figures[6] = collector->seq;
    collector_close(collector);
    free(collector);
}

/* What a hook does of the preload library, which is not here. */
static inline void mirror_hook(const struct varve_record *record)
{
    if (recorder_reentrant_depth == 0) {
        varve_emit(record);
    }
}

/* The session asks for the fake; a collector follows it from now on. */
static inline void mirror_begin(struct mirror_run *run, uint32_t overflow, uint32_t capacity)
{
    struct session_control settings = session_settings(overflow, capacity);

    memset(run, 0, sizeof(*run));
    settings.trace_id &= INT64_MAX;
    settings.mirror = SESSION_MIRROR_LTTNG;
    snprintf(settings.mirror_path, sizeof(settings.mirror_path), "%s", MIRROR_FAKE);
    session_begin(&run->session, &settings);
    run->log = mirror_log_open(run->session.folder);
    run->log->emit = (uintptr_t)mirror_hook;
}

static inline void mirror_follow(struct mirror_run *run)
{
    verdict_open();
    fflush(NULL);
    run->collector = fork();
    assert_true(run->collector >= 0);
    if (run->collector == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that failed does not stop it */
        mirror_collect(run);
        exit(0);
    }
    assert_true(mirror_wait(&run->log->collector_ready, 1));
}

/* Lets the collector finish and compare, unless it did so before. The numbers of events and of records told
 * too many are in the figures 6 and 7. */
static inline void mirror_finish(struct mirror_run *run, const char *what)
{
    int wait_status = 0;

    ATOMIC_SET(run->log->collector_stop, 1);
    assert_int_equal(waitpid(run->collector, &wait_status, 0), run->collector);
    child_judge(wait_status, what);
}

/* One scenario, whose context is the log, from the session to the comparison. */
static inline void mirror_record(struct mirror_run *run, scenario act, const char *what)
{
    mirror_follow(run);
    run_scenario(&run->session, act, run->log, what);
    mirror_finish(run, what);
}

static inline void mirror_end(struct mirror_run *run)
{
    mirror_log_close(run->log);
    session_end(&run->session);
}

/* ---- in the workload ---- */

static inline bool mirror_detour_is_on(void)
{
    return __atomic_load_n(&varve_emit_is_mirrored, __ATOMIC_ACQUIRE) != 0;
}

static inline void mirror_emit(uint64_t first, uint64_t last)
{
    for (uint64_t at = first; at <= last; at++) {
        errno = 4711;
        emit(at % 3 == 0 ? VARVE_KIND_HEAP_FREE : VARVE_KIND_HEAP_ALLOC, 0x1000 * at, 16);
        CHECK(errno == 4711, "errno became %d", errno);
    }
}

/* While it emits nothing: everything is read and its space handed back. */
static inline void mirror_drain(struct mirror_log *log)
{
    CHECK(mirror_wait(&log->drains_done, __atomic_add_fetch(&log->drains_asked, 1, __ATOMIC_ACQ_REL)),
          "the collector does not come");
}

/* ---- a collector by hand, with the fake open in this process ---- */

static inline struct mirror_log *lab_mirror(struct lab *lab, uint32_t threads)
{
    struct mirror_log *log = mirror_log_open(lab->folder);

    log->threads_at_open = threads;
    LAB_OK(lab, collect_mirror_open(lab->collector, MIRROR_FAKE, &lab->message));
    return log;
}

static inline void lab_mirror_end(struct lab *lab, struct mirror_log *log)
{
    ATOMIC_SET(log->must_stop, 1);
    while (ATOMIC_GET(log->own_running) > 0) {
        usleep(200);
    }
    mirror_log_close(log);
    lab_end(lab);
}

#endif
#endif
