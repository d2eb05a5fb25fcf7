/* SPDX-License-Identifier: Apache-2.0 */
/*
 * View function_total against its definition: for each call site the functions of view frame, each once. Stacks are
 * random, of few functions, so that most have recursions; some functions have several lines, some no name.
 */
#include <cmocka.h>

#include "support/derive/derived.h"
#include "support/random.h"

#include <stdio.h>

#define SYMBOLS 14U
#define NODES 300U
#define CALLSITES 90U
#define BLOCKS 50U
#define EVENTS 3000U

static uint64_t random_state;

static uint32_t add_symbol(struct store *store, uint32_t number)
{
    char function[16], module[16];
    snprintf(function, sizeof(function), "f%u", number / 2);
    snprintf(module, sizeof(module), "lib%u.so", number % 3);
    struct store_symbol symbol = {.function = function, .file = number < 4 ? "a.c" : "b.c", .line = number};
    if (number >= SYMBOLS - 3) {
        symbol = (struct store_symbol){.module = module};
    }
    return store_symbol(store, &symbol);
}

static void fill_stacks(struct store *store)
{
    uint32_t symbols[SYMBOLS];
    for (uint32_t i = 0; i < SYMBOLS; i++) {
        symbols[i] = add_symbol(store, i);
        assert_int_equal(store_stack_frame(store, i + 1, symbols[i], -1), VARVE_OK);
    }
    for (uint32_t node = 1; node <= NODES; node++) {
        uint32_t parent = (uint32_t)random_below(&random_state, node);
        uint32_t frame = 1 + (uint32_t)random_below(&random_state, SYMBOLS);
        assert_int_equal(store_stack_node(store, node, parent, frame), VARVE_OK);
    }
    for (uint32_t i = 1; i < CALLSITES; i++) { /* the last one has no row: some programs leave such call sites */
        uint32_t node = (uint32_t)random_below(&random_state, NODES + 1);
        assert_int_equal(store_callsite(store, i, node, 0, symbols[0], symbols[0]), VARVE_OK);
    }
}

static struct event next_event(uint64_t seq, bool is_live[BLOCKS])
{
    uint64_t block = random_below(&random_state, BLOCKS);
    bool is_map = block % 5 == 0;
    struct event event = {.ts_ns = (int64_t)seq * 1000, .addr = 0x10000 * (1 + block)};
    if (is_live[block]) {
        event.kind = is_map ? VARVE_KIND_MUNMAP : VARVE_KIND_HEAP_FREE;
        event.cause = is_map ? VARVE_CAUSE_MUNMAP : VARVE_CAUSE_FREE;
        event.size = is_map ? 0x10000 : 0;
    } else {
        event.kind = is_map ? VARVE_KIND_MMAP : VARVE_KIND_HEAP_ALLOC;
        event.cause = is_map ? VARVE_CAUSE_MMAP : VARVE_CAUSE_CALLOC;
        event.size = is_map ? 0x10000 : 1 + random_below(&random_state, 5000);
        event.callsite = (uint32_t)random_below(&random_state, CALLSITES + 1);
    }
    is_live[block] = !is_live[block];
    return event;
}

/* Rows of one that the other lacks. */
static int64_t missing(sqlite3 *db, const char *rows, const char *others)
{
    char sql[256];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM (SELECT * FROM %s EXCEPT SELECT * FROM %s)", rows, others);
    return query_integer(db, sql);
}

static void check_totals(sqlite3 *db)
{
    static const char definition[] =
        "CREATE TEMP TABLE passed AS SELECT DISTINCT t.callsite_id, t.domain, f.function, f.file, f.module, f.is_python"
        "  FROM callsite_total t CROSS JOIN frame f ON f.callsite_id = t.callsite_id;"
        "CREATE TEMP VIEW defined AS SELECT p.domain, p.function, p.file, p.module, p.is_python, count(*),"
        "  sum(t.allocations), sum(t.frees), sum(t.bytes), sum(t.live_allocations), sum(t.live_bytes),"
        "  sum(t.peak_allocations), sum(t.peak_bytes), sum(t.temporary) FROM passed p JOIN callsite_total t"
        "  ON t.callsite_id = p.callsite_id AND t.domain = p.domain GROUP BY 1, 2, 3, 4, 5;"
        "CREATE TEMP VIEW stored AS SELECT domain, function, file, module, is_python, callsites, allocations, frees,"
        "  bytes, live_allocations, live_bytes, peak_allocations, peak_bytes, temporary FROM function_total";
    assert_int_equal(sqlite3_exec(db, definition, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(missing(db, "defined", "stored"), 0);
    assert_int_equal(missing(db, "stored", "defined"), 0);
    int64_t rows = query_integer(db, "SELECT count(*) FROM stored");
    assert_int_equal(rows, query_integer(db, "SELECT count(*) FROM defined"));
    assert_true(rows > 10);
    /* there was what counts once: functions that are in a stack several times */
    assert_true(query_integer(db, "SELECT count(*) FROM (SELECT 1 FROM frame GROUP BY callsite_id, function, file,"
                                  " module HAVING count(*) > 1)") > 10);
}

TEST(test_random_stacks)
{
    static bool is_live[BLOCKS];
    random_state = test_first_seed(1);
    struct derived derived;
    derived_begin(&derived);
    for (uint64_t seq = 1; seq <= EVENTS; seq++) {
        derived_event(&derived, next_event(seq, is_live), seq, 1);
    }
    derived_process(&derived, (struct store_process){.id = 1, .rank = -1, .end_ns = -1});
    fill_stacks(derived.store);
    sqlite3 *db = derived_end(&derived);
    check_totals(db);
    sqlite3_close(db);
}

TEST_FILE(test_folder_setup, test_folder_teardown)
