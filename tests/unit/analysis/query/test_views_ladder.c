/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fragmentation ladder, scene by scene: each rung where only it can be, memory that is mapped and unmapped in pieces, and traces that
 * begin late or contradict themselves. Events go through the derivation as a collector does it; what the views give after each of
 * them is written out. Whole histories against a model: conformance/test_ladder.py.
 */
#include "support/query.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/rows.h"
#include "trace/store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* In KiB, so that what is expected can be read. */
#define KIB 1024U
#define AT(kib) (0x10000000 + (uint64_t)(kib)*KIB)
#define ARG(segment, units) ((uint64_t)(units) << 32 | (segment))

#define LADDER                                                                                                 \
    "SELECT seq, reserved / 1024.0, live_requested / 1024.0, rounding / 1024.0, unsplit_remainder / 1024.0,"   \
    " segment_quantum / 1024.0, pool_segregation / 1024.0, stream_pending / 1024.0, cached_segments / 1024.0," \
    " external_holes / 1024.0 FROM ladder"

struct scene {
    char directory[32];
    sqlite3 *db;
};

static struct event segment(uint8_t kind, uint16_t pool, uint64_t at, uint64_t kib)
{
    return (struct event){.kind = kind,
                          .pool = pool,
                          .addr = AT(at),
                          .size = kib * KIB,
                          .requested = kib * KIB,
                          .arg = 1U + pool};
}

/* A block of so many KiB, for a request of `requested` bytes whose rounded size is in the record. */
static struct event block(uint8_t kind, uint16_t pool, uint64_t at, uint64_t kib, uint64_t requested,
                          uint64_t rounded)
{
    return (struct event){.kind = kind,
                          .pool = pool,
                          .addr = AT(at),
                          .size = kib * KIB,
                          .requested = requested,
                          .arg = ARG(1U + pool, rounded / 512)};
}

#define RESERVE(pool, at, kib) segment(VARVE_KIND_SEGMENT_ALLOC, pool, at, kib)
#define RELEASE(pool, at, kib) segment(VARVE_KIND_SEGMENT_FREE, pool, at, kib)
#define MAP(pool, at, kib) segment(VARVE_KIND_SEGMENT_MAP, pool, at, kib)
#define UNMAP(pool, at, kib) segment(VARVE_KIND_SEGMENT_UNMAP, pool, at, kib)
#define ALLOC(pool, at, kib) block(VARVE_KIND_ALLOC, pool, at, kib, (kib)*KIB, (kib)*KIB)
#define REQUEST(pool, at, kib) block(VARVE_KIND_FREE_REQUESTED, pool, at, kib, 0, 0)
#define COMPLETE(pool, at, kib) block(VARVE_KIND_FREE_COMPLETED, pool, at, kib, 0, 0)

/* With two processes the second half of the events is of the other one, which has addresses of its own. */
static void play_kept(struct scene *scene, const struct event *events, size_t count, bool has_totals_only,
                      unsigned processes)
{
    struct store_process process = {.id = 1, .pid = 101, .rank = -1, .end_ns = 50000, .end_cause = "exit"};
    struct store_thread thread = {.id = 1, .process_id = 1, .pid = 101, .tid = 101, .end_ns = -1};
    struct varve_message message;
    struct store *store;
    struct derive *derive;
    char path[64], scratch[64];

    snprintf(scene->directory, sizeof(scene->directory), "/tmp/test_ladder.XXXXXX");
    assert_non_null(mkdtemp(scene->directory));
    snprintf(path, sizeof(path), "%s/trace.db", scene->directory);
    snprintf(scratch, sizeof(scratch), "%s/allocations", scene->directory);
    assert_int_equal(store_open(path, STORE_CREATE, &store, &message), VARVE_OK);
    assert_int_equal(derive_open(scratch, &derive, &message), VARVE_OK);
    store_keep(store, !has_totals_only, !has_totals_only);
    if (has_totals_only) {
        derive_forget(derive);
    }
    for (size_t i = 0; i < count; i++) {
        struct event event = events[i];
        event.seq = i + 1;
        event.dev_seq = i % (count / processes) + 1;
        event.ts_ns = 1000 * (int64_t)(i + 1);
        event.process_id = event.thread_id = 1 + (uint32_t)(i * processes / count);
        event.pid = event.tid = 100 + (int32_t)event.process_id;
        assert_int_equal(derive_event(derive, &event, &message), VARVE_OK);
        assert_int_equal(derive_check(derive, &message), VARVE_OK);
        assert_int_equal(store_append(store, &event, &message), VARVE_OK);
    }
    for (unsigned i = 1; i <= processes; i++) {
        process.id = thread.id = thread.process_id = i;
        process.pid = thread.pid = thread.tid = 100 + (int32_t)i;
        assert_int_equal(store_process(store, &process), VARVE_OK);
        assert_int_equal(store_thread(store, &thread), VARVE_OK);
    }
    assert_int_equal(derive_finish(derive, store, NULL, NULL, &message), VARVE_OK);
    assert_int_equal(store_finish(store, NULL, NULL, &message), VARVE_OK);
    derive_close(derive);
    store_close(store);
    assert_int_equal(sqlite3_open_v2(path, &scene->db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    query_expect(
        scene->db,
        "SELECT count(*) FROM ladder WHERE reserved - live_requested <> rounding + unsplit_remainder +"
        " segment_quantum + pool_segregation + stream_pending + cached_segments + external_holes",
        "0\n");
}

static void play(struct scene *scene, const struct event *events, size_t count)
{
    play_kept(scene, events, count, false, 1);
}

static void end(struct scene *scene)
{
    char command[64];

    sqlite3_close(scene->db);
    snprintf(command, sizeof(command), "rm -rf %s", scene->directory);
    assert_int_equal(system(command), 0);
}

#define PLAY(scene, ...)                         \
    const struct event script[] = {__VA_ARGS__}; \
    play(scene, script, sizeof(script) / sizeof(script[0]))

/* A segment without blocks is cached; then what the block does not take is quantum until a block has had it. */
TEST(test_quantum_and_cached)
{
    struct scene scene = {.db = NULL};
    PLAY(&scene, RESERVE(0, 0, 20), ALLOC(0, 0, 6), ALLOC(0, 6, 4), REQUEST(0, 6, 4), COMPLETE(0, 6, 4),
         REQUEST(0, 0, 6), COMPLETE(0, 0, 6), ALLOC(0, 0, 2), RELEASE(0, 0, 20));
    query_expect(scene.db, LADDER,
                 "1 20.0 0.0 0.0 0.0 0.0 0.0 0.0 20.0 0.0\n"
                 "2 20.0 6.0 0.0 0.0 14.0 0.0 0.0 0.0 0.0\n"
                 "3 20.0 10.0 0.0 0.0 10.0 0.0 0.0 0.0 0.0\n"
                 "4 20.0 6.0 0.0 0.0 10.0 0.0 4.0 0.0 0.0\n"
                 "5 20.0 6.0 0.0 0.0 10.0 0.0 0.0 0.0 4.0\n"
                 "6 20.0 0.0 0.0 0.0 10.0 0.0 6.0 0.0 4.0\n"
                 "7 20.0 0.0 0.0 0.0 0.0 0.0 0.0 20.0 0.0\n"
                 "8 20.0 2.0 0.0 0.0 10.0 0.0 0.0 0.0 8.0\n"
                 "9 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0\n");
    query_expect(
        scene.db,
        "SELECT process_id, pid, device, seq, ts_ns, live_requested, segment_quantum FROM ladder_peak",
        "1 101 0 3 3000 10240 10240\n");
    end(&scene);
}

/* 1000 bytes are 1 KiB by the rules; the block is one of 4 KiB, given out whole. Of one that was cut the record has the larger block
 * that it was cut from; of PyTorch's own events it has nothing. */
TEST(test_rounding_and_unsplit)
{
    struct scene scene = {.db = NULL};
    PLAY(&scene, RESERVE(0, 0, 20), block(VARVE_KIND_ALLOC, 0, 0, 4, 1000, 1024),
         block(VARVE_KIND_ALLOC, 0, 4, 1, 512, 16 * KIB), block(VARVE_KIND_ALLOC, 0, 5, 2, 1024, 0),
         REQUEST(0, 0, 4), COMPLETE(0, 0, 4));
    query_expect(
        scene.db,
        "SELECT live_requested, rounding, unsplit_remainder, stream_pending FROM ladder WHERE seq > 1",
        "1000 24 3072 0\n1512 536 3072 0\n2536 1560 3072 0\n1536 1536 0 4096\n1536 1536 0 0\n");
    end(&scene);
}

/* The holes of a pool are external as long as that pool asked last: pool 1 asks, pool 0 fails, and so on. Quantum stays quantum. */
TEST(test_pools)
{
    const struct event oom = {
        .kind = VARVE_KIND_OOM, .addr = 4 * KIB, .size = 64 * KIB, .flags = VARVE_FLAG_FAILED};
    struct scene scene = {.db = NULL};
    PLAY(&scene, RESERVE(0, 0, 10), ALLOC(0, 0, 4), ALLOC(0, 4, 4), REQUEST(0, 0, 4), COMPLETE(0, 0, 4),
         RESERVE(1, 100, 8), ALLOC(1, 100, 3), ALLOC(1, 103, 5), REQUEST(1, 100, 3), COMPLETE(1, 100, 3),
         oom);
    query_expect(scene.db, LADDER " WHERE seq IN (5, 6, 8, 10, 11)",
                 "5 10.0 4.0 0.0 0.0 2.0 0.0 0.0 0.0 4.0\n"
                 "6 18.0 4.0 0.0 0.0 2.0 4.0 0.0 8.0 0.0\n"
                 "8 18.0 12.0 0.0 0.0 2.0 4.0 0.0 0.0 0.0\n"
                 "10 18.0 9.0 0.0 0.0 2.0 4.0 0.0 0.0 3.0\n"
                 "11 18.0 9.0 0.0 0.0 2.0 3.0 0.0 0.0 4.0\n");
    query_expect(scene.db, "SELECT seq, live_requested FROM ladder_peak", "8 12288\n");
    query_expect(scene.db, "SELECT addr, size, before_id, before_size, behind_id, behind_size FROM peak_hole",
                 "268435456 4096 - - 2 4096\n268443648 2048 2 4096 - -\n");
    end(&scene);
}

/* Runs of mappings are cached by themselves; what is unmapped and mapped again is as new; a mapping between two runs joins them. */
TEST(test_expandable)
{
    struct scene scene = {.db = NULL};
    PLAY(&scene, MAP(0, 0, 10), ALLOC(0, 0, 10), MAP(0, 10, 10), ALLOC(0, 10, 2), ALLOC(0, 12, 6),
         REQUEST(0, 0, 10), COMPLETE(0, 0, 10), REQUEST(0, 10, 2), COMPLETE(0, 10, 2), UNMAP(0, 4, 6),
         MAP(0, 4, 6), UNMAP(0, 2, 10), MAP(0, 40, 5), UNMAP(0, 40, 5));
    query_expect(scene.db, LADDER " WHERE seq > 2",
                 "3 20.0 10.0 0.0 0.0 10.0 0.0 0.0 0.0 0.0\n"
                 "4 20.0 12.0 0.0 0.0 8.0 0.0 0.0 0.0 0.0\n"
                 "5 20.0 18.0 0.0 0.0 2.0 0.0 0.0 0.0 0.0\n"
                 "6 20.0 8.0 0.0 0.0 2.0 0.0 10.0 0.0 0.0\n"
                 "7 20.0 8.0 0.0 0.0 2.0 0.0 0.0 0.0 10.0\n"
                 "8 20.0 6.0 0.0 0.0 2.0 0.0 2.0 0.0 10.0\n"
                 "9 20.0 6.0 0.0 0.0 2.0 0.0 0.0 0.0 12.0\n"
                 "10 14.0 6.0 0.0 0.0 2.0 0.0 0.0 4.0 2.0\n"
                 "11 20.0 6.0 0.0 0.0 8.0 0.0 0.0 0.0 6.0\n"
                 "12 10.0 6.0 0.0 0.0 2.0 0.0 0.0 2.0 0.0\n"
                 "13 15.0 6.0 0.0 0.0 2.0 0.0 0.0 7.0 0.0\n"
                 "14 10.0 6.0 0.0 0.0 2.0 0.0 0.0 2.0 0.0\n");
    end(&scene);
}

/* A block where nothing was reserved is no part of it; one that is handed out twice, or says that it is larger than its segment, is
 * what fits. */
TEST(test_contradictions)
{
    struct scene scene = {.db = NULL};
    PLAY(&scene, ALLOC(0, 200, 4), RESERVE(0, 0, 10), ALLOC(0, 0, 4), ALLOC(0, 2, 4), ALLOC(0, 8, 5),
         REQUEST(0, 200, 4), COMPLETE(0, 200, 4), RELEASE(0, 0, 10));
    query_expect(scene.db, LADDER,
                 "1 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0\n"
                 "2 10.0 0.0 0.0 0.0 0.0 0.0 0.0 10.0 0.0\n"
                 "3 10.0 4.0 0.0 0.0 6.0 0.0 0.0 0.0 0.0\n"
                 "4 10.0 4.0 0.0 0.0 4.0 0.0 0.0 0.0 2.0\n"
                 "5 10.0 6.0 0.0 0.0 2.0 0.0 0.0 0.0 2.0\n"
                 "6 10.0 6.0 0.0 0.0 2.0 0.0 0.0 0.0 2.0\n"
                 "7 10.0 6.0 0.0 0.0 2.0 0.0 0.0 0.0 2.0\n"
                 "8 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0\n");
    end(&scene);
}

/* Two processes on one device have two allocators, each with its own sums and peak; the peaks are there without any event, too. */
TEST(test_processes_and_totals)
{
    const struct event script[] = {RESERVE(0, 0, 10), ALLOC(0, 0, 4), ALLOC(0, 4, 4),
                                   MAP(0, 0, 6),      ALLOC(0, 0, 1), UNMAP(0, 2, 4)};
    struct scene scene = {.db = NULL};
    for (int has_totals_only = 0; has_totals_only < 2; has_totals_only++) {
        play_kept(&scene, script, sizeof(script) / sizeof(script[0]), has_totals_only, 2);
        query_expect(scene.db, LADDER " WHERE seq IN (3, 6)",
                     has_totals_only ? ""
                                     : "3 10.0 8.0 0.0 0.0 2.0 0.0 0.0 0.0 0.0\n"
                                       "6 2.0 1.0 0.0 0.0 1.0 0.0 0.0 0.0 0.0\n");
        query_expect(
            scene.db,
            "SELECT process_id, pid, device, seq, reserved / 1024, live_requested / 1024, segment_quantum / 1024"
            " FROM ladder_peak",
            "1 101 0 3 10 8 2\n2 102 0 5 6 1 5\n");
        end(&scene);
    }
}
