/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events become a database, for bench_store.py. They are those of a program with four threads and 5,000 call sites of
 * 12 frames each, some of which are used much more than others; most blocks die young, a few live long, some never end.
 *
 *   bench_store WAY PATH EVENTS
 *
 * WAY: `insert`, where derive_event is timed apart, and whose database is not completed; `prepared`, a prepared
 * statement per row into a table as anybody would make it, with the same settings, in one transaction; `whole`, what
 * `varve record` does: derive_event, store_append, derived tables, indexes, ANALYZE, one file at the end. Making the
 * events is not measured, nor what derive_event adds to those of the first two ways. One JSON object.
 */
#include "bench/bench.h"
#include "support/random.h"
#include "base/error.h"
#include "trace/model/derive.h"
#include "trace/model/model_event.h"
#include "trace/record.h"
#include "trace/store/store.h"
#include "trace/store/stack_nodes.h"

#include <sqlite3.h>
#include <unistd.h>

#define PID 31415
#define THREADS 4U
#define CALLSITES 5000U
#define SYMBOLS 9000U
#define DEPTH 12U
#define SLOTS 65536U   /* blocks that can be live at the same time, those that never end aside */
#define SLOTS_HOT 256U /* most allocations use these: short lives */
#define COMMIT_EVENTS 65536U

struct maker {
    uint64_t random, seq, next_addr;
    int64_t ts_ns;
    uint64_t of_thread[THREADS];
    uint64_t live[SLOTS];
};

/* `store` or the peer's statement. */
struct bench {
    struct maker maker;
    struct event events[COMMIT_EVENTS];
    struct store *store;
    struct derive *derive;
    sqlite3 *peer;
    sqlite3_stmt *insert;
    struct varve_message message;
};

#define OK(bench, call) CHECK((call) == VARVE_OK, (bench)->message.text[0] != '\0' ? (bench)->message.text : #call)

/* ---- a program ---- */

/* Small numbers much more often than large ones, below `limit`. */
static uint32_t random_skewed(uint64_t random, uint32_t limit)
{
    uint64_t unit = random & 0xffff;
    return (uint32_t)((unit * unit >> 16) * (random >> 16 & 0xffff) * limit >> 32);
}

/* Sizes of a usual program: small ones mostly, a power of two more with each step. */
static uint64_t random_size(uint64_t random)
{
    unsigned shift = (unsigned)__builtin_ctzll(random | 1U << 12);
    return 8 + (random >> 32) % (UINT64_C(24) << shift);
}

static void event_next(struct maker *maker, struct event *event)
{
    uint64_t random = random_next(&maker->random);
    uint32_t slot = (uint32_t)(random % 8 != 0 ? (random >> 8) % SLOTS_HOT : (random >> 8) % SLOTS);
    uint32_t thread = slot % THREADS;
    maker->ts_ns += 20 + (int64_t)(random >> 32) % 300;
    *event = (struct event){.seq = ++maker->seq, .ts_ns = maker->ts_ns, .process_id = 1, .pid = PID};
    event->thread_id = 1 + thread;
    event->ring_seq = ++maker->of_thread[thread];
    event->tid = PID + (int32_t)thread;
    event->callsite = 1 + random_skewed(random_next(&maker->random), CALLSITES);
    if (maker->live[slot] != 0) {
        event->kind = VARVE_KIND_HEAP_FREE;
        event->cause = VARVE_CAUSE_FREE;
        event->addr = maker->live[slot];
        maker->live[slot] = 0;
        return;
    }
    event->kind = VARVE_KIND_HEAP_ALLOC;
    event->cause = random % 16 == 0 ? VARVE_CAUSE_CALLOC : VARVE_CAUSE_MALLOC;
    event->size = random_size(random_next(&maker->random));
    event->addr = slot < SLOTS_HOT ? 0x55d0c0de0000 + slot * UINT64_C(65536) : maker->next_addr;
    maker->next_addr += slot < SLOTS_HOT ? 0 : 16 + (event->size + 15) / 16 * 16;
    if (random % 1024 != 7 || slot < SLOTS_HOT) { /* else: never freed */
        maker->live[slot] = event->addr;
    }
}

static void add_callsites(struct bench *bench)
{
    static uint32_t symbols[SYMBOLS];
    struct store *store = bench->store;
    uint64_t random = 1234567;
    struct stack_nodes nodes = {0};
    for (uint32_t i = 0; i < SYMBOLS; i++) {
        char function[64], file[64];
        snprintf(function, sizeof(function), "component_%u::operation_%u(int, char const*)", i / 100, i);
        snprintf(file, sizeof(file), "source/component_%u/part_%u.cc", i / 100, i / 10);
        const struct store_symbol symbol = {
            .function = function, .file = file, .module = "/usr/lib/libcomponent.so", .line = 1 + i % 700};
        symbols[i] = store_symbol(store, &symbol);
        CHECK(symbols[i] != 0, "cannot store a symbol");
    }
    for (uint32_t callsite = 1; callsite <= CALLSITES; callsite++) {
        uint32_t first = (uint32_t)(random_next(&random) % SYMBOLS);
        uint32_t node = 0;
        for (uint32_t depth = DEPTH; depth-- > 0;) {
            /* outer frames are shared by many call sites */
            uint32_t symbol = depth == 0 ? first : (uint32_t)(random_next(&random) % (SYMBOLS >> depth));
            OK(bench, stack_nodes_find(&nodes, store, node, symbols[symbol], &node));
        }
        OK(bench, store_callsite(store, callsite, node, DEPTH, symbols[first], symbols[first]));
    }
    stack_nodes_free(&nodes);
}

static void add_rows(struct bench *bench)
{
    struct store *store = bench->store;
    const struct maker *maker = &bench->maker;
    const struct store_process process = {.id = 1,
                                          .pid = PID,
                                          .parent_pid = 1,
                                          .rank = -1,
                                          .executable = "/usr/bin/example",
                                          .command_line = "example --threads 4",
                                          .end_cause = "exit",
                                          .end_ns = maker->ts_ns};
    OK(bench, store_process(store, &process));
    for (uint32_t i = 0; i < THREADS; i++) {
        const struct store_thread thread = {.id = 1 + i,
                                            .process_id = 1,
                                            .ring = 1 + i,
                                            .pid = PID,
                                            .tid = PID + (int32_t)i,
                                            .name = "example",
                                            .end_ns = maker->ts_ns,
                                            .emitted = maker->of_thread[i],
                                            .stored = maker->of_thread[i]};
        OK(bench, store_thread(store, &thread));
    }
    OK(bench, store_meta_text(store, "command", "example --threads 4"));
    OK(bench, store_meta_integer(store, "duration_ns", maker->ts_ns));
    OK(bench, store_stat(store, "events_emitted", -1, "info", "ring", (int64_t)maker->seq));
    OK(bench, store_stat(store, "events_stored", -1, "info", "ring", (int64_t)maker->seq));
    OK(bench, store_stat(store, "events_lost", -1, "data_loss", "ring", 0));
}

/* ---- the ways ---- */

static void append(struct bench *bench, size_t count, bool is_derived_now)
{
    for (size_t i = 0; i < count; i++) {
        if (is_derived_now) {
            OK(bench, derive_event(bench->derive, &bench->events[i], &bench->message));
        }
        OK(bench, store_append(bench->store, bench->derive, &bench->events[i], &bench->message));
    }
    OK(bench, store_commit(bench->store, NULL, 0, &bench->message));
}

static void peer_run(struct bench *bench, const char *sql)
{
    CHECK(sqlite3_exec(bench->peer, sql, NULL, NULL, NULL) == SQLITE_OK, sqlite3_errmsg(bench->peer));
}

/* A database of our settings, in which event is a table of its own. */
static void peer_open(struct bench *bench, const char *path)
{
    store_close(bench->store);
    bench->store = NULL;
    CHECK(sqlite3_open(path, &bench->peer) == SQLITE_OK, "cannot open the peer's database");
    peer_run(bench,
             "DROP VIEW event; CREATE TABLE event(seq INTEGER PRIMARY KEY, ts_ns INTEGER NOT NULL, pid INTEGER NOT "
             "NULL, tid INTEGER NOT NULL, device INTEGER, dev_seq INTEGER, kind INTEGER NOT NULL, stream INTEGER, pool "
             "INTEGER, id INTEGER, addr INTEGER, size INTEGER, requested INTEGER, arg INTEGER, cause INTEGER, "
             "callsite_id INTEGER, thread_id INTEGER, flags INTEGER, ring_seq INTEGER) STRICT; PRAGMA synchronous = "
             "OFF; PRAGMA secure_delete = OFF; PRAGMA cache_size = -8192; PRAGMA temp_store = FILE; BEGIN");
    CHECK(sqlite3_prepare_v2(bench->peer, "INSERT INTO event VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", -1,
                             &bench->insert, NULL) == SQLITE_OK,
          sqlite3_errmsg(bench->peer));
}

/* What is not bound stays NULL, as in our rows. */
static void peer_append(struct bench *bench, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct event *event = &bench->events[i];
        bool is_alloc = event->kind == VARVE_KIND_HEAP_ALLOC;
        const struct {
            int column;
            int64_t value;
        } fields[] = {{1, (int64_t)event->seq},
                      {2, event->ts_ns},
                      {3, event->pid},
                      {4, event->tid},
                      {7, event->kind},
                      {10, (int64_t)event->id},
                      {11, (int64_t)event->addr},
                      {12, (int64_t)event->size},
                      {15, event->cause},
                      {16, event->callsite},
                      {17, event->thread_id},
                      {18, event->flags},
                      {19, (int64_t)event->ring_seq}};
        for (size_t k = 0; k < sizeof(fields) / sizeof(fields[0]); k++) {
            sqlite3_bind_int64(bench->insert, fields[k].column, fields[k].value);
        }
        if (is_alloc) {
            sqlite3_bind_int64(bench->insert, 13, (int64_t)event->requested);
            sqlite3_bind_int64(bench->insert, 14, (int64_t)event->arg);
        }
        CHECK(sqlite3_step(bench->insert) == SQLITE_DONE, sqlite3_errmsg(bench->peer));
        sqlite3_reset(bench->insert);
        sqlite3_clear_bindings(bench->insert);
    }
}

static void end(struct bench *bench, bool is_whole)
{
    if (bench->peer != NULL) {
        sqlite3_finalize(bench->insert);
        peer_run(bench, "COMMIT");
        sqlite3_close(bench->peer);
        return;
    }
    add_rows(bench);
    if (is_whole) {
        derive_process_end(bench->derive, 1);
        add_callsites(bench);
        OK(bench, derive_finish(bench->derive, bench->store, NULL, NULL, &bench->message));
        OK(bench, store_finish(bench->store, NULL, NULL, &bench->message));
    } else {
        OK(bench, store_commit(bench->store, NULL, 0, &bench->message));
    }
    store_close(bench->store);
}

int main(int argc, char **argv)
{
    if (bench_is_started_alone(argc, "bench_store.py")) {
        return EXIT_SUCCESS;
    }
    CHECK(argc == 4, "usage: bench_store insert|prepared|whole PATH EVENTS");
    bool is_whole = strcmp(argv[1], "whole") == 0;
    uint64_t count = strtoull(argv[3], NULL, 10);
    struct bench *bench = calloc(1, sizeof(*bench));
    CHECK(bench != NULL, "no memory");
    bench->maker = (struct maker){.random = 88172645463325252U, .next_addr = 0x7f10c0de0000};
    char scratch[4096];
    snprintf(scratch, sizeof(scratch), "%s.scratch", argv[2]);
    double seconds = 0, derived = 0, begin = bench_now();
    OK(bench, store_open(argv[2], STORE_CREATE, &bench->store, &bench->message));
    OK(bench, derive_open(scratch, &bench->derive, &bench->message));
    derive_process_start(bench->derive, 1, 0);
    if (strcmp(argv[1], "prepared") == 0) {
        peer_open(bench, argv[2]);
    }
    seconds += bench_now() - begin;
    while (bench->maker.seq < count) {
        size_t left = count - bench->maker.seq, batch = left < COMMIT_EVENTS ? left : COMMIT_EVENTS;
        for (size_t i = 0; i < batch; i++) {
            event_next(&bench->maker, &bench->events[i]);
        }
        begin = bench_now();
        for (size_t i = 0; !is_whole && i < batch; i++) {
            OK(bench, derive_event(bench->derive, &bench->events[i], &bench->message));
        }
        derived += bench_now() - begin;
        begin = bench_now();
        if (bench->peer != NULL) {
            peer_append(bench, batch);
        } else {
            append(bench, batch, is_whole);
        }
        seconds += bench_now() - begin;
    }
    const double stored = seconds;
    begin = bench_now();
    end(bench, is_whole);
    seconds += bench_now() - begin;
    derive_close(bench->derive);
    unlink(scratch);
    printf("{\"seconds\": %.3f, \"stored_s\": %.3f, \"derive_s\": %.3f}\n", seconds, stored, derived);
    free(bench);
    return EXIT_SUCCESS;
}
