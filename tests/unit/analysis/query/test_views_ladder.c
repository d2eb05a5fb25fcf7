/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fragmentation ladder, scene by scene: each rung where only it can be, memory that is mapped and unmapped in
 * pieces, and traces that begin late or contradict themselves. Events go through the derivation as a collector does it;
 * what the views give after each of them is written out.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/derive/derived.h"

/* In KiB, so that what is expected can be read. */
#define KIB 1024U
#define AT(kib) (0x10000000 + (uint64_t)(kib)*KIB)
#define ARG(segment, units) ((uint64_t)(units) << 32 | (segment))

#define LADDER                                                                                                 \
    "SELECT seq, reserved / 1024.0, live_requested / 1024.0, rounding / 1024.0, unsplit_remainder / 1024.0,"   \
    " segment_quantum / 1024.0, pool_segregation / 1024.0, stream_pending / 1024.0, cached_segments / 1024.0," \
    " external_holes / 1024.0 FROM ladder"

static sqlite3 *db;

static struct event segment(uint8_t kind, uint16_t pool, uint64_t at, uint64_t kib)
{
    return (struct event){
        .kind = kind, .pool = pool, .addr = AT(at), .size = kib * KIB, .requested = kib * KIB, .arg = 1U + pool};
}

/* A block of so many KiB, for a request of `requested` bytes whose rounded size is in the record. */
static struct event block(uint8_t kind, uint16_t pool, uint64_t at, uint64_t kib, uint64_t requested, uint64_t rounded)
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
static void play(const struct event *events, size_t count, bool has_totals_only, unsigned processes)
{
    struct derived derived;
    derived_begin(&derived);
    store_keep(derived.store, has_totals_only ? VARVE_KEEP_TOTALS : VARVE_KEEP_EVENTS);
    if (has_totals_only) {
        derive_forget(derived.derive);
    }
    for (size_t i = 0; i < count; i++) {
        struct event event = events[i];
        event.dev_seq = i % (count / processes) + 1;
        derived_event(&derived, event, i + 1, 1 + (uint32_t)(i * processes / count));
    }
    for (unsigned i = 1; i <= processes; i++) {
        derived_process(&derived, (struct store_process){.id = i, .rank = -1, .end_ns = 50000, .end_cause = "exit"});
    }
    sqlite3_close(db); /* of an earlier play */
    db = derived_end(&derived);
    query_expect(db,
                 "SELECT count(*) FROM ladder WHERE reserved - live_requested <> rounding + unsplit_remainder +"
                 " segment_quantum + pool_segregation + stream_pending + cached_segments + external_holes",
                 "0\n");
}

static int end(void **state)
{
    sqlite3_close(db);
    db = NULL;
    return test_folder_teardown(state);
}

#define PLAY(...)                                \
    const struct event script[] = {__VA_ARGS__}; \
    play(script, sizeof(script) / sizeof(script[0]), false, 1)
#define SCENE(name) TEST_WITH(name, test_folder_setup, end)

/* A segment without blocks is cached; then what the block does not take is quantum until a block has had it. */
SCENE(test_quantum_and_cached)
{
    PLAY(RESERVE(0, 0, 20), ALLOC(0, 0, 6), ALLOC(0, 6, 4), REQUEST(0, 6, 4), COMPLETE(0, 6, 4), REQUEST(0, 0, 6),
         COMPLETE(0, 0, 6), ALLOC(0, 0, 2), RELEASE(0, 0, 20));
    query_expect(db, LADDER,
                 "1 20.0 0.0 0.0 0.0 0.0 0.0 0.0 20.0 0.0\n"
                 "2 20.0 6.0 0.0 0.0 14.0 0.0 0.0 0.0 0.0\n"
                 "3 20.0 10.0 0.0 0.0 10.0 0.0 0.0 0.0 0.0\n"
                 "4 20.0 6.0 0.0 0.0 10.0 0.0 4.0 0.0 0.0\n"
                 "5 20.0 6.0 0.0 0.0 10.0 0.0 0.0 0.0 4.0\n"
                 "6 20.0 0.0 0.0 0.0 10.0 0.0 6.0 0.0 4.0\n"
                 "7 20.0 0.0 0.0 0.0 0.0 0.0 0.0 20.0 0.0\n"
                 "8 20.0 2.0 0.0 0.0 10.0 0.0 0.0 0.0 8.0\n"
                 "9 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0\n");
    query_expect(db, "SELECT process_id, pid, device, seq, ts_ns, live_requested, segment_quantum FROM ladder_peak",
                 "1 101 0 3 3000 10240 10240\n");
}

/* 1000 bytes are 1 KiB by the rules; the block is one of 4 KiB, given out whole. Of one that was cut the record has
 * the larger block that it was cut from; of PyTorch's own events it has nothing. */
SCENE(test_rounding_and_unsplit)
{
    PLAY(RESERVE(0, 0, 20), block(VARVE_KIND_ALLOC, 0, 0, 4, 1000, 1024),
         block(VARVE_KIND_ALLOC, 0, 4, 1, 512, 16 * KIB), block(VARVE_KIND_ALLOC, 0, 5, 2, 1024, 0), REQUEST(0, 0, 4),
         COMPLETE(0, 0, 4));
    query_expect(db, "SELECT live_requested, rounding, unsplit_remainder, stream_pending FROM ladder WHERE seq > 1",
                 "1000 24 3072 0\n1512 536 3072 0\n2536 1560 3072 0\n1536 1536 0 4096\n1536 1536 0 0\n");
}

/* The holes of a pool are external as long as that pool asked last: pool 1 asks, pool 0 fails, and so on. Quantum
 * stays quantum. */
SCENE(test_pools)
{
    const struct event oom = {.kind = VARVE_KIND_OOM, .addr = 4 * KIB, .size = 64 * KIB, .flags = VARVE_FLAG_FAILED};
    PLAY(RESERVE(0, 0, 10), ALLOC(0, 0, 4), ALLOC(0, 4, 4), REQUEST(0, 0, 4), COMPLETE(0, 0, 4), RESERVE(1, 100, 8),
         ALLOC(1, 100, 3), ALLOC(1, 103, 5), REQUEST(1, 100, 3), COMPLETE(1, 100, 3), oom);
    query_expect(db, LADDER " WHERE seq IN (5, 6, 8, 10, 11)",
                 "5 10.0 4.0 0.0 0.0 2.0 0.0 0.0 0.0 4.0\n"
                 "6 18.0 4.0 0.0 0.0 2.0 4.0 0.0 8.0 0.0\n"
                 "8 18.0 12.0 0.0 0.0 2.0 4.0 0.0 0.0 0.0\n"
                 "10 18.0 9.0 0.0 0.0 2.0 4.0 0.0 0.0 3.0\n"
                 "11 18.0 9.0 0.0 0.0 2.0 3.0 0.0 0.0 4.0\n");
    query_expect(db, "SELECT seq, live_requested FROM ladder_peak", "8 12288\n");
    query_expect(db, "SELECT addr, size, before_id, before_size, behind_id, behind_size FROM peak_hole",
                 "268435456 4096 - - 2 4096\n268443648 2048 2 4096 - -\n");
}

/* Runs of mappings are cached by themselves; what is unmapped and mapped again is as new; a mapping between two runs
 * joins them. */
SCENE(test_expandable)
{
    PLAY(MAP(0, 0, 10), ALLOC(0, 0, 10), MAP(0, 10, 10), ALLOC(0, 10, 2), ALLOC(0, 12, 6), REQUEST(0, 0, 10),
         COMPLETE(0, 0, 10), REQUEST(0, 10, 2), COMPLETE(0, 10, 2), UNMAP(0, 4, 6), MAP(0, 4, 6), UNMAP(0, 2, 10),
         MAP(0, 40, 5), UNMAP(0, 40, 5));
    query_expect(db, LADDER " WHERE seq > 2",
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
}

/* A block where nothing was reserved is no part of it; one that is handed out twice, or says that it is larger than
 * its segment, is what fits. */
SCENE(test_contradictions)
{
    PLAY(ALLOC(0, 200, 4), RESERVE(0, 0, 10), ALLOC(0, 0, 4), ALLOC(0, 2, 4), ALLOC(0, 8, 5), REQUEST(0, 200, 4),
         COMPLETE(0, 200, 4), RELEASE(0, 0, 10));
    query_expect(db, LADDER,
                 "1 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0\n"
                 "2 10.0 0.0 0.0 0.0 0.0 0.0 0.0 10.0 0.0\n"
                 "3 10.0 4.0 0.0 0.0 6.0 0.0 0.0 0.0 0.0\n"
                 "4 10.0 4.0 0.0 0.0 4.0 0.0 0.0 0.0 2.0\n"
                 "5 10.0 6.0 0.0 0.0 2.0 0.0 0.0 0.0 2.0\n"
                 "6 10.0 6.0 0.0 0.0 2.0 0.0 0.0 0.0 2.0\n"
                 "7 10.0 6.0 0.0 0.0 2.0 0.0 0.0 0.0 2.0\n"
                 "8 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0\n");
}

/* Two processes on one device have two allocators, each with its own sums and peak; the peaks are there without any
 * event, too. */
SCENE(test_processes_and_totals)
{
    const struct event script[] = {RESERVE(0, 0, 10), ALLOC(0, 0, 4), ALLOC(0, 4, 4),
                                   MAP(0, 0, 6),      ALLOC(0, 0, 1), UNMAP(0, 2, 4)};
    for (int has_totals_only = 0; has_totals_only < 2; has_totals_only++) {
        play(script, sizeof(script) / sizeof(script[0]), has_totals_only, 2);
        query_expect(db, LADDER " WHERE seq IN (3, 6)",
                     has_totals_only ? ""
                                     : "3 10.0 8.0 0.0 0.0 2.0 0.0 0.0 0.0 0.0\n"
                                       "6 2.0 1.0 0.0 0.0 1.0 0.0 0.0 0.0 0.0\n");
        query_expect(
            db,
            "SELECT process_id, pid, device, seq, reserved / 1024, live_requested / 1024, segment_quantum / 1024"
            " FROM ladder_peak",
            "1 101 0 3 10 8 2\n2 102 0 5 6 1 5\n");
    }
}
