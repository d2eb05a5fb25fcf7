/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast events become a database, beside the ways that others take, on the same rows in the same run:
 *
 *   insert    store_append and store_commit (virtual table, INSERT … SELECT)
 *   prepared  a prepared statement per row, same table and connection settings, one transaction
 *   import    the sqlite3 shell's .import of the rows as CSV into the same table, same settings
 *   whole     derive_event, store_append, derived tables, indexes, ANALYZE, one file at the end
 *
 * Each ends with a closed database. Events are those of a program with a working set of a few thousand
 * blocks, few of them long-lived, as a heap trace looks. In the CSV unused fields are 0, since .import knows
 * no NULL.
 *
 *   bench_sqlite [--dir DIR] [--keep] [EVENTS]       default: 1000000 events in a new directory in $TMPDIR
 */
#include "bench/bench.h"
#include "support/random.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define PID 12345
#define REPETITIONS 3
#define LIVE_BLOCKS 4096U
#define COMMIT_EVENTS 32768U /* as the collector commits */

/* Sizes of a usual program: small ones mostly, a power of two more with each step. */
static uint64_t random_size(uint64_t *state)
{
    uint64_t random = random_next(state);
    unsigned shift = (unsigned)__builtin_ctzll(random | 1U << 14);
    return 8 + (random >> 32) % (UINT64_C(24) << shift);
}

static void events_make(struct event *events, size_t count)
{
    static struct event live[LIVE_BLOCKS]; /* too large for the stack */
    uint64_t state = 88172645463325252U;
    uint64_t next_addr = 0x55d0c0de0000;
    int64_t ts_ns = 1000000;
    memset(live, 0, sizeof(live));
    for (size_t i = 0; i < count; i++) {
        struct event *event = &events[i];
        uint64_t random = random_next(&state);
        /* Most frees hit what was allocated just before. */
        size_t slot = random % 8 != 0 ? random / 8 % 64 : random / 8 % LIVE_BLOCKS;
        ts_ns += 20 + (int64_t)(random >> 40) % 400;
        *event = (struct event){.seq = i + 1, .ring_seq = i + 1, .ts_ns = ts_ns, .process_id = 1, .pid = PID};
        event->thread_id = 1 + (uint32_t)(slot % THREADS);
        event->tid = PID + (int32_t)(slot % THREADS);
        if (live[slot].addr != 0) {
            event->kind = VARVE_KIND_HEAP_FREE;
            event->cause = VARVE_CAUSE_FREE;
            event->addr = live[slot].addr;
            live[slot].addr = 0;
            continue;
        }
        event->kind = VARVE_KIND_HEAP_ALLOC;
        event->cause = random % 16 == 0 ? VARVE_CAUSE_CALLOC : VARVE_CAUSE_MALLOC;
        event->size = random_size(&state);
        event->addr = slot < 64 ? 0x55d0beef0000 + slot * 4096 : (next_addr += 16 + (event->size + 15) / 16 * 16);
        event->callsite = 1 + (uint32_t)(random_next(&state) % 900);
        live[slot] = *event;
    }
}

static const char *path_in(const char *directory, const char *name)
{
    static char path[4096]; /* one path at a time */
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static void database_remove(const char *directory, const char *name)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char file[64];
    for (size_t i = 0; i < 4; i++) {
        snprintf(file, sizeof(file), "%s%s", name, suffixes[i]);
        unlink(path_in(directory, file));
    }
}

static double bytes_of(const char *directory, const char *name)
{
    struct stat status;
    CHECK(stat(path_in(directory, name), &status) == 0, "no database");
    return (double)status.st_size;
}

static struct store *store_new(const char *directory, const char *name)
{
    database_remove(directory, name);
    struct store *store;
    struct varve_message message;
    CHECK(store_open(path_in(directory, name), STORE_CREATE, &store, &message) == VARVE_OK, message.text);
    for (uint32_t i = 0; i < THREADS; i++) {
        const struct store_thread thread = {
            .id = 1 + i, .process_id = 1, .pid = PID, .tid = PID + (int32_t)i, .end_ns = -1};
        CHECK(store_thread(store, &thread) == VARVE_OK, "cannot store a thread");
    }
    return store;
}

static void events_append(struct store *store, struct derive *derive, const struct event *events, size_t count)
{
    struct varve_message message;
    for (size_t i = 0; i < count; i++) {
        struct event event = events[i];
        if (derive != NULL) {
            CHECK(derive_event(derive, &event, &message) == VARVE_OK, message.text);
        }
        CHECK(store_append(store, &event, &message) == VARVE_OK, message.text);
        if (store_pending(store) == COMMIT_EVENTS) {
            CHECK(store_commit(store, NULL, 0, &message) == VARVE_OK, message.text);
        }
    }
    CHECK(store_commit(store, NULL, 0, &message) == VARVE_OK, message.text);
}

/* Complete the events as derive_event does, once, so that all ways store equal rows. */
static void events_complete(const char *directory, struct event *events, size_t count)
{
    struct derive *derive;
    struct varve_message message;
    CHECK(derive_open(path_in(directory, "scratch"), &derive, &message) == VARVE_OK, message.text);
    double start = bench_now();
    for (size_t i = 0; i < count; i++) {
        CHECK(derive_event(derive, &events[i], &message) == VARVE_OK, message.text);
    }
    printf("{\"bench\":\"sqlite\",\"case\":\"derive_event\",\"events\":%zu,\"ns_per_event\":%.1f}\n", count,
           (bench_now() - start) / (double)count * 1e9);
    derive_close(derive);
}

static double run_insert(const char *directory, const struct event *events, size_t count)
{
    double start = bench_now();
    struct store *store = store_new(directory, "insert.db");
    events_append(store, NULL, events, count);
    store_close(store);
    return bench_now() - start;
}

static double run_whole(const char *directory, const struct event *events, size_t count)
{
    struct derive *derive;
    struct varve_message message;
    double start = bench_now();
    struct store *store = store_new(directory, "whole.db");
    CHECK(derive_open(path_in(directory, "scratch"), &derive, &message) == VARVE_OK, message.text);
    derive_process_start(derive, 1, 0);
    events_append(store, derive, events, count);
    derive_process_end(derive, 1);
    double appended = bench_now();
    CHECK(derive_finish(derive, store, NULL, NULL, &message) == VARVE_OK, message.text);
    double derived = bench_now();
    CHECK(store_finish(store, NULL, NULL, &message) == VARVE_OK, message.text);
    derive_close(derive);
    store_close(store);
    double end = bench_now();
    fprintf(stderr, "whole: append %.2f s, derive_finish %.2f s, store_finish %.2f s\n", appended - start,
            derived - appended, end - derived);
    return end - start;
}

/* A database of our settings, in which event is a table as anybody would make it: for the peers. */
static void peer_begin(const char *directory, const char *name)
{
    store_close(store_new(directory, name));
    sqlite3 *db;
    CHECK(sqlite3_open(path_in(directory, name), &db) == SQLITE_OK, "peer: open");
    CHECK(sqlite3_exec(db,
                       "DROP VIEW event; CREATE TABLE event(seq INTEGER PRIMARY KEY, ts_ns INTEGER NOT NULL,"
                       " pid INTEGER NOT NULL, tid INTEGER NOT NULL, device INTEGER, dev_seq INTEGER,"
                       " kind INTEGER NOT NULL, stream INTEGER, pool INTEGER, id INTEGER, addr INTEGER, size INTEGER,"
                       " requested INTEGER, arg INTEGER, cause INTEGER, callsite_id INTEGER, thread_id INTEGER,"
                       " flags INTEGER, ring_seq INTEGER) STRICT",
                       NULL, NULL, NULL) == SQLITE_OK,
          "peer: table");
    sqlite3_close(db);
}

#define PEER_SETTINGS                                                                                       \
    "PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF; PRAGMA cache_size = -8192; PRAGMA temp_store = " \
    "FILE;"

static double run_prepared(const char *directory, const struct event *events, size_t count)
{
    double start = bench_now();
    peer_begin(directory, "prepared.db");
    sqlite3 *db;
    CHECK(sqlite3_open(path_in(directory, "prepared.db"), &db) == SQLITE_OK, "prepared: open");
    CHECK(sqlite3_exec(db, PEER_SETTINGS "BEGIN", NULL, NULL, NULL) == SQLITE_OK, "prepared: settings");
    sqlite3_stmt *insert;
    CHECK(sqlite3_prepare_v2(db, "INSERT INTO event VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", -1, &insert,
                             NULL) == SQLITE_OK,
          "prepared: prepare");
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &events[i];
        bool is_alloc = event->kind == VARVE_KIND_HEAP_ALLOC;
        /* What is not bound stays NULL, as in our rows. */
        sqlite3_bind_int64(insert, 1, (int64_t)event->seq);
        sqlite3_bind_int64(insert, 2, event->ts_ns);
        sqlite3_bind_int(insert, 3, event->pid);
        sqlite3_bind_int(insert, 4, event->tid);
        sqlite3_bind_int(insert, 7, event->kind);
        sqlite3_bind_int64(insert, 10, (int64_t)event->id);
        sqlite3_bind_int64(insert, 11, (int64_t)event->addr);
        sqlite3_bind_int64(insert, 12, (int64_t)event->size);
        if (is_alloc) {
            sqlite3_bind_int64(insert, 13, (int64_t)event->requested);
            sqlite3_bind_int64(insert, 14, (int64_t)event->arg);
        } else {
            sqlite3_bind_null(insert, 13);
            sqlite3_bind_null(insert, 14);
        }
        sqlite3_bind_int(insert, 15, event->cause);
        sqlite3_bind_int64(insert, 16, event->callsite);
        sqlite3_bind_int64(insert, 17, event->thread_id);
        sqlite3_bind_int(insert, 18, event->flags);
        sqlite3_bind_int64(insert, 19, (int64_t)event->ring_seq);
        CHECK(sqlite3_step(insert) == SQLITE_DONE, "prepared: step");
        sqlite3_reset(insert);
    }
    sqlite3_finalize(insert);
    CHECK(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK, "prepared: commit");
    sqlite3_close(db);
    return bench_now() - start;
}

static void csv_write(const char *path, const struct event *events, size_t count)
{
    FILE *csv = fopen(path, "w");
    CHECK(csv != NULL, "cannot write the CSV file");
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &events[i];
        bool is_alloc = event->kind == VARVE_KIND_HEAP_ALLOC;
        fprintf(csv, "%llu,%lld,%d,%d,0,0,%u,0,0,%llu,%llu,%llu,%llu,%llu,%u,%u,%u,%u,%llu\n",
                (unsigned long long)event->seq, (long long)event->ts_ns, event->pid, event->tid, event->kind,
                (unsigned long long)event->id, (unsigned long long)event->addr, (unsigned long long)event->size,
                (unsigned long long)(is_alloc ? event->requested : 0), (unsigned long long)event->arg, event->cause,
                event->callsite, event->thread_id, event->flags, (unsigned long long)event->ring_seq);
    }
    CHECK(fclose(csv) == 0, "cannot write the CSV file");
}

/* Negative if there is no sqlite3 program. */
static double run_import(const char *directory)
{
    double start = bench_now();
    peer_begin(directory, "import.db");
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork");
    if (pid == 0) {
        CHECK(chdir(directory) == 0, "chdir");
        /* The settings answer with their values. */
        CHECK(freopen("/dev/null", "w", stdout) != NULL, "freopen");
        execlp("sqlite3", "sqlite3", "-batch", "import.db", PEER_SETTINGS, ".mode csv", ".import events.csv event",
               (char *)NULL);
        _exit(127);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        return -1;
    }
    CHECK(status == 0, "sqlite3 failed");
    return bench_now() - start;
}

/* All rows are there: equal counts and sums as in the events. */
static void rows_check(const char *directory, const char *name, const struct event *events, size_t count)
{
    int64_t addr = 0;
    for (size_t i = 0; i < count; i++) {
        addr += (int64_t)events[i].addr % 1000;
    }
    sqlite3 *db;
    CHECK(sqlite3_open_v2(path_in(directory, name), &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK, "cannot open");
    sqlite3_stmt *query;
    CHECK(sqlite3_prepare_v2(db, "SELECT count(*), max(seq), sum(addr % 1000) FROM event", -1, &query, NULL) ==
              SQLITE_OK,
          "cannot query");
    CHECK(sqlite3_step(query) == SQLITE_ROW, "cannot query");
    CHECK(sqlite3_column_int64(query, 0) == (int64_t)count && sqlite3_column_int64(query, 1) == (int64_t)count &&
              sqlite3_column_int64(query, 2) == addr,
          "rows differ");
    sqlite3_finalize(query);
    sqlite3_close(db);
}

static void report(const char *name, double seconds, double bytes, size_t count)
{
    printf("{\"bench\":\"sqlite\",\"case\":\"%s\",\"events\":%zu,\"seconds\":%.3f,\"rows_per_s\":%.0f,"
           "\"bytes_per_event\":%.1f}\n",
           name, count, seconds, (double)count / seconds, bytes / (double)count);
}

static void run_all(const char *directory, struct event *events, size_t count, bool is_kept)
{
    static const char *const names[] = {"insert", "prepared", "import", "whole"};
    events_make(events, count);
    events_complete(directory, events, count);
    csv_write(path_in(directory, "events.csv"), events, count);
    double seconds[4][REPETITIONS];
    for (int i = 0; i < REPETITIONS; i++) {
        seconds[0][i] = run_insert(directory, events, count);
        seconds[1][i] = run_prepared(directory, events, count);
        seconds[2][i] = run_import(directory);
        seconds[3][i] = run_whole(directory, events, count);
    }
    double medians[4];
    for (int k = 0; k < 4; k++) {
        char file[32];
        snprintf(file, sizeof(file), "%s.db", names[k]);
        medians[k] = bench_median(seconds[k], REPETITIONS);
        if (medians[k] > 0) {
            rows_check(directory, file, events, count);
            report(names[k], medians[k], bytes_of(directory, file), count);
        } else {
            fprintf(stderr, "bench_sqlite: no sqlite3 program, so no comparison with it\n");
        }
        if (!is_kept) {
            database_remove(directory, file);
        }
    }
    printf("{\"bench\":\"sqlite\",\"case\":\"ratios\",\"insert_vs_prepared\":%.2f,\"insert_vs_import\":%.2f,"
           "\"whole_vs_import\":%.2f}\n",
           medians[1] / medians[0], medians[2] / medians[0], medians[2] / medians[3]);
    unlink(path_in(directory, "events.csv"));
    unlink(path_in(directory, "scratch"));
}

int main(int argc, char **argv)
{
    size_t count = 1000000;
    bool is_kept = false;
    const char *directory = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dir") == 0 && i + 1 < argc) {
            directory = argv[++i];
        } else if (strcmp(argv[i], "--keep") == 0) {
            is_kept = true;
        } else {
            count = strtoul(argv[i], NULL, 10);
            CHECK(count > 0, "usage: bench_sqlite [--dir DIR] [--keep] [EVENTS]");
        }
    }
    char temporary[4096];
    const char *parent = getenv("TMPDIR");
    snprintf(temporary, sizeof(temporary), "%s/bench_sqlite.XXXXXX", parent != NULL ? parent : "/tmp");
    if (directory == NULL) {
        directory = mkdtemp(temporary);
        CHECK(directory != NULL, "no temporary directory");
    }
    struct event *events = malloc(count * sizeof(*events));
    CHECK(events != NULL, "no memory");
    run_all(directory, events, count, is_kept);
    free(events);
    if (directory == temporary && !is_kept) {
        rmdir(directory);
    }
    return 0;
}
