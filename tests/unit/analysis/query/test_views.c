/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The views against their definitions: a random heap history of several processes is recorded, and each view
 * must give what plain SQL over `event` alone gives, with window functions and joins instead of our sums.
 * Costs: 4 s
 */
#include <cmocka.h>

#include "support/derive/derived.h"
#include "support/random.h"

#include <stdio.h>

#define EVENTS 6000U
#define PROCESSES 3U
#define BLOCKS 60U

static sqlite3 *db; /* opened once for all tests, read-only */

static uint64_t random_state = 17;

/* malloc, free and mmap of whole ranges; every block is freed by its own address, some never. */
static struct event history_event(uint64_t seq, uint32_t process, bool is_live[PROCESSES + 1][BLOCKS])
{
    uint64_t block = random_below(&random_state, BLOCKS);
    bool is_map = block % 6 == 0;
    struct event event = {.ts_ns = (int64_t)seq * 1000 + (int64_t)random_below(&random_state, 900),
                          .addr = 0x10000 * (1 + block)};
    if (is_live[process][block]) {
        event.kind = is_map ? VARVE_KIND_MUNMAP : VARVE_KIND_HEAP_FREE;
        event.cause = is_map ? VARVE_CAUSE_MUNMAP : VARVE_CAUSE_FREE;
        event.size = is_map ? 0x10000 : 0;
    } else if (random_below(&random_state, 40) == 0) {
        event.kind = VARVE_KIND_HEAP_ALLOC;
        event.cause = VARVE_CAUSE_MALLOC;
        event.flags = VARVE_FLAG_FAILED;
        event.addr = 0;
        event.size = UINT64_C(1) << 60;
        return event;
    } else {
        event.kind = is_map ? VARVE_KIND_MMAP : VARVE_KIND_HEAP_ALLOC;
        event.cause = is_map ? VARVE_CAUSE_MMAP : VARVE_CAUSE_CALLOC;
        event.size = is_map ? 0x10000 : 1 + random_below(&random_state, 5000);
        event.requested = is_map ? 0xf123 : 0;
        event.callsite = (uint32_t)random_below(&random_state, 8);
    }
    is_live[process][block] = !is_live[process][block];
    return event;
}

static void fill_names(struct store *store)
{
    for (uint32_t i = 1; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "site%u", i);
        const struct store_symbol inner = {.function = "malloc", .module = "libc.so.6"};
        const struct store_symbol outer = {.function = name, .file = "a.c", .line = i};
        uint32_t inner_id = store_symbol(store, &inner);
        uint32_t outer_id = store_symbol(store, &outer);
        assert_int_equal(store_stack_frame(store, 2 * i, outer_id, -1), VARVE_OK);
        assert_int_equal(store_stack_frame(store, 2 * i + 1, inner_id, 16), VARVE_OK);
        assert_int_equal(store_stack_node(store, 2 * i, 0, 2 * i), VARVE_OK);
        assert_int_equal(store_stack_node(store, 2 * i + 1, 2 * i, 2 * i + 1), VARVE_OK);
        assert_int_equal(store_callsite(store, i, 2 * i + 1, 2, outer_id, outer_id), VARVE_OK);
    }
    assert_int_equal(store_stat(store, "lost", 1, "data_loss", "ring", 0), VARVE_OK);
    assert_int_equal(store_stat(store, "lost", 2, "data_loss", "ring", 5), VARVE_OK);
    assert_int_equal(store_stat(store, "emitted", 2, "info", "ring", 5), VARVE_OK);
}

static int record(void **state)
{
    static bool is_live[PROCESSES + 1][BLOCKS];
    test_folder_setup(state);
    struct derived derived;
    derived_begin(&derived);
    for (uint64_t seq = 1; seq <= EVENTS; seq++) {
        uint32_t process = 1 + (uint32_t)random_below(&random_state, PROCESSES);
        derived_event(&derived, history_event(seq, process, is_live), seq, process);
    }
    for (uint32_t i = 1; i <= PROCESSES; i++) {
        derived_process(&derived, (struct store_process){.id = i, .rank = -1, .end_ns = -1});
    }
    fill_names(derived.store);
    db = derived_end(&derived);
    /* The definitions: what each event does to the sums, and each allocation with its end. */
    return sqlite3_exec(db,
                        "CREATE TEMP TABLE step AS SELECT e.seq, e.ts_ns, t.process_id,"
                        "  CASE WHEN e.kind >= 35 THEN 'mmap' ELSE 'heap' END AS domain, e.id,"
                        "  CASE WHEN e.kind IN (32, 35) THEN 1 ELSE -1 END AS change, e.size"
                        "  FROM event e JOIN (SELECT DISTINCT thread_id, thread_id AS process_id FROM event) t"
                        "  USING (thread_id) WHERE e.id IS NOT NULL;"
                        "CREATE TEMP TABLE life AS SELECT a.id, d.domain, d.process_id, a.pid, a.size, a.callsite_id,"
                        "  a.seq AS alloc_seq, a.ts_ns AS alloc_ns, f.seq AS free_seq, f.ts_ns AS free_ns"
                        "  FROM event a JOIN step d ON d.seq = a.seq"
                        "  LEFT JOIN event f ON f.id = a.id AND f.kind IN (33, 36)"
                        "  WHERE a.kind IN (32, 35) AND a.id IS NOT NULL;",
                        NULL, NULL, NULL);
}

static int forget(void **state)
{
    sqlite3_close(db);
    return test_folder_teardown(state);
}

/* Both queries give the same rows, and at least `least` of them. */
static void expect_same(const char *view, const char *definition, int least)
{
    const char *const orders[2][2] = {{view, definition}, {definition, view}};
    for (int i = 0; i < 2; i++) {
        char sql[4096];
        snprintf(sql, sizeof(sql), "SELECT count(*) FROM (SELECT * FROM (%s) EXCEPT SELECT * FROM (%s))", orders[i][0],
                 orders[i][1]);
        if (query_integer(db, sql) != 0) {
            fail_msg("rows of the first are not in the second: %s", sql);
        }
        snprintf(sql, sizeof(sql), "SELECT count(*) FROM (%s)", orders[i][0]);
        assert_true(query_integer(db, sql) >= least);
    }
}

TEST(test_events)
{
    expect_same("SELECT seq, kind, cause, size FROM events",
                "SELECT seq, CASE kind WHEN 32 THEN 'heap_alloc' WHEN 33 THEN 'heap_free' WHEN 35 THEN 'mmap'"
                " ELSE 'munmap' END, CASE kind WHEN 32 THEN iif(flags = 1, 'malloc', 'calloc') WHEN 33 THEN 'free'"
                " WHEN 35 THEN 'mmap' ELSE 'munmap' END, size FROM event",
                EVENTS);
}

TEST(test_allocations)
{
    expect_same("SELECT id, domain, process_id, pid, size, callsite_id, alloc_seq, alloc_ns, free_completed_seq,"
                " free_ns, lifetime_ns FROM allocations",
                "SELECT id, domain, process_id, pid, size, callsite_id, alloc_seq, alloc_ns, free_seq, free_ns,"
                " free_ns - alloc_ns FROM life",
                2000);
    expect_same("SELECT id, domain, size, callsite_id, alloc_seq FROM leak",
                "SELECT id, domain, size, callsite_id, alloc_seq FROM life WHERE free_seq IS NULL", 20);
    expect_same("SELECT id FROM allocations WHERE temporary = 1",
                "SELECT a.id FROM life a JOIN step s ON s.id = a.id AND s.change = -1 WHERE NOT EXISTS (SELECT 1 FROM"
                " event e JOIN event w ON w.seq = a.alloc_seq WHERE e.thread_id = w.thread_id AND e.seq > a.alloc_seq"
                " AND e.seq < a.free_seq)",
                5);
}

/* The running sum of what events add and take away. */
#define RUNNING(rows)                                                                                        \
    "SELECT process_id, domain, seq, ts_ns, sum(change * size) OVER w AS bytes, sum(change) OVER w AS live " \
    "FROM (" rows ") WINDOW w AS (PARTITION BY process_id, domain ORDER BY seq)"
#define ALL_STEPS                                                             \
    "SELECT process_id, domain, seq, ts_ns, change, size FROM step UNION ALL" \
    " SELECT 0, domain, seq, ts_ns, change, size FROM step"

TEST(test_timeline_and_peak)
{
    expect_same(
        "SELECT 0, domain, seq, ts_ns, allocated, allocated_max, live_allocations FROM timeline",
        "SELECT process_id, domain, seq, ts_ns, bytes, bytes, live FROM (" RUNNING(ALL_STEPS) ") WHERE process_id = 0",
        EVENTS * 9 / 10);
    /* that of a process is thinned: the maximum since its row before */
    expect_same(
        "SELECT process_id, pid, domain, seq, ts_ns, allocated, allocated_max, live_allocations FROM timeline_process",
        "SELECT r.process_id, 100 + r.process_id, r.domain, r.seq, r.ts_ns, r.bytes, max(o.bytes), r.live"
        " FROM (SELECT process_id, domain, seq, lag(seq, 1, 0) OVER (PARTITION BY process_id, domain ORDER BY seq)"
        "   AS before FROM timeline_process) t"
        " JOIN (" RUNNING(
            "SELECT * FROM step") ") r ON r.seq = t.seq AND r.domain = t.domain"
                                  " JOIN (" RUNNING(
                                      "SELECT * FROM step") ") o ON o.process_id = t.process_id AND o.domain = t.domain"
                                                            "   AND o.seq > t.before AND o.seq <= t.seq GROUP BY "
                                                            "t.process_id, t.domain, t.seq",
        100);
    expect_same(
        "SELECT 0 AS process_id, domain, seq, ts_ns, bytes, allocations FROM peak_time UNION ALL"
        " SELECT process_id, domain, seq, ts_ns, bytes, allocations FROM peak_time_process",
        "SELECT process_id, domain, min(seq), ts_ns, bytes, live FROM (SELECT *, max(bytes) OVER "
        "(PARTITION BY"
        " process_id, domain) AS top FROM (" RUNNING(ALL_STEPS) ")) WHERE bytes = top GROUP BY process_id, domain",
        2 * (PROCESSES + 1));
    expect_same("SELECT process_id, pid FROM peak_time_process", "SELECT thread_id, pid FROM event", PROCESSES);
}

TEST(test_totals)
{
    expect_same(
        "SELECT 0 AS process_id, domain, allocations, frees, bytes, live_allocations, live_bytes FROM total UNION ALL"
        " SELECT process_id, domain, allocations, frees, bytes, live_allocations, live_bytes FROM total_process",
        "SELECT process_id, domain, count(*), count(free_seq), sum(size), count(*) - count(free_seq),"
        " sum(iif(free_seq IS NULL, size, 0)) FROM (SELECT process_id, domain, size, free_seq FROM life "
        "UNION ALL"
        " SELECT 0, domain, size, free_seq FROM life) GROUP BY process_id, domain",
        2 * (PROCESSES + 1));
    expect_same("SELECT process_id, failed FROM total_process WHERE domain = 'heap' UNION ALL"
                " SELECT 0, failed FROM total WHERE domain = 'heap'",
                "SELECT thread_id, sum(flags & 1) FROM event GROUP BY thread_id UNION SELECT 0, sum(flags & "
                "1) FROM event",
                PROCESSES + 1);
}

TEST(test_call_sites)
{
    expect_same("SELECT callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes, "
                "mean_lifetime_ns,"
                " function, line FROM callsite_total",
                "SELECT callsite_id, domain, count(*), count(free_seq), sum(size), count(*) - count(free_seq),"
                " sum(iif(free_seq IS NULL, size, 0)), sum(free_ns - alloc_ns) / nullif(count(free_seq), 0),"
                " iif(callsite_id > 0, 'site' || callsite_id, NULL), nullif(callsite_id, 0) FROM life"
                " GROUP BY callsite_id, domain",
                14);
    expect_same("SELECT callsite_id, domain, bytes, allocations FROM peak",
                "SELECT l.callsite_id, l.domain, sum(l.size), count(*) FROM life l JOIN peak_time p ON"
                " p.domain = l.domain WHERE l.alloc_seq <= p.seq AND (l.free_seq IS NULL OR l.free_seq > p.seq)"
                " GROUP BY l.callsite_id, l.domain",
                10);
    expect_same("SELECT callsite_id, depth, function, pc FROM frame",
                "SELECT id, 0, 'malloc', 16 FROM callsite UNION SELECT id, 1, 'site' || id, NULL FROM callsite", 14);
}

TEST(test_data_loss)
{
    expect_same("SELECT name, idx, source, value FROM data_loss", "SELECT 'lost', 2, 'ring', 5", 1);
}

/* Nothing of this trace is in them, but they must be queries that work. */
TEST(test_views_of_allocators)
{
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM fragmentation; SELECT * FROM oom_retry", NULL, NULL, NULL),
                     SQLITE_OK);
}

TEST_FILE(record, forget)
