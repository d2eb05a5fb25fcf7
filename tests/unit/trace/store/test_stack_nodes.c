/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks given as lists come back from the view `frame` as they were, and two stacks share exactly the frames that
 * begin them alike. How the view is
 * looked at: test_row_views.c.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/query.h"
#include "support/random.h"
#include "base/error.h"
#include "trace/store/store.h"
#include "trace/model/derive.h"
#include "trace/store/stack_nodes.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYMBOLS 7
#define STACKS 400
#define DEPTH_MAX 12

struct list {
    uint32_t symbols[DEPTH_MAX]; /* outermost first */
    uint32_t depth;
    uint32_t node;
};

static char folder[] = "/tmp/test_stack_nodes.XXXXXX";
static char path[64];

static int folder_make(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/trace.db", folder);
    return 0;
}

static int folder_remove(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static struct store *store_make(void)
{
    for (size_t i = 0; i < 3; i++) {
        static const char *const suffixes[] = {"", "-wal", "-shm"};
        char name[96];
        snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
        unlink(name);
    }
    struct varve_message message;
    struct store *store;
    assert_int_equal(store_open(path, STORE_CREATE, &store, &message), VARVE_OK);
    for (uint32_t i = 1; i <= SYMBOLS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%u", i);
        const struct store_symbol symbol = {.function = name, .line = i};
        assert_int_equal(store_symbol(store, &symbol), i);
    }
    return store;
}

static void enter(struct stack_nodes *nodes, struct store *store, struct list *list)
{
    list->node = 0;
    for (uint32_t i = 0; i < list->depth; i++) {
        assert_int_equal(stack_nodes_find(nodes, store, list->node, list->symbols[i], &list->node), VARVE_OK);
    }
}

/* Few symbols, so that beginnings and whole stacks come again. */
static void random_lists(struct list *lists, uint64_t *seed)
{
    for (uint32_t i = 0; i < STACKS; i++) {
        lists[i] = (struct list){.depth = (uint32_t)random_below(seed, DEPTH_MAX + 1)};
        for (uint32_t j = 0; j < lists[i].depth; j++) {
            lists[i].symbols[j] = 1 + (uint32_t)random_below(seed, j < 6 ? 3 : SYMBOLS);
        }
    }
}

/* Different beginnings of all stacks, as the view has them: what the tree must have, and no more. */
#define BEGINNINGS                                                                                                 \
    "SELECT count(DISTINCT frames) FROM (SELECT group_concat(line) OVER (PARTITION BY callsite_id ORDER BY depth " \
    "DESC) AS frames FROM frame)"

static void expect_frames(sqlite3 *db, uint32_t callsite, const struct list *list)
{
    sqlite3_stmt *query;
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT depth, line, pc IS NULL, function = 'f' || line FROM "
                                        "frame WHERE callsite_id = ?1",
                                        -1, &query, NULL),
                     SQLITE_OK);
    sqlite3_bind_int64(query, 1, callsite);
    for (uint32_t depth = 0; depth < list->depth; depth++) {
        assert_int_equal(sqlite3_step(query), SQLITE_ROW);
        assert_int_equal(sqlite3_column_int64(query, 0), depth);
        assert_int_equal(sqlite3_column_int64(query, 1), list->symbols[list->depth - 1 - depth]);
        assert_int_equal(sqlite3_column_int64(query, 2), 1);
        assert_int_equal(sqlite3_column_int64(query, 3), 1);
    }
    assert_int_equal(sqlite3_step(query), SQLITE_DONE);
    sqlite3_finalize(query);
}

TEST(test_lists_come_back)
{
    static struct list lists[STACKS];
    uint64_t seed = test_first_seed(1);
    for (int round = 0; round < 5; round++) {
        struct stack_nodes nodes = {0};
        struct store *store = store_make();
        random_lists(lists, &seed);
        for (uint32_t i = 0; i < STACKS; i++) {
            enter(&nodes, store, &lists[i]);
            assert_int_equal(store_callsite(store, i + 1, lists[i].node, lists[i].depth, 0, 0), VARVE_OK);
        }
        for (uint32_t i = 0; i < STACKS; i++) {
            uint32_t before = lists[i].node;
            enter(&nodes, store, &lists[i]);
            assert_int_equal(lists[i].node, before);
        }
        const uint64_t beginnings = nodes.index.count;
        assert_true(index_check(&nodes.index));
        stack_nodes_free(&nodes);
        struct varve_message message;
        struct derive *derive;
        assert_int_equal(derive_open("allocations", &derive, &message), VARVE_OK);
        assert_int_equal(derive_finish(derive, store, NULL, NULL, &message), VARVE_OK);
        assert_int_equal(store_finish(store, NULL, NULL, &message), VARVE_OK);
        derive_close(derive);
        store_close(store);
        sqlite3 *db;
        assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
        for (uint32_t i = 0; i < STACKS; i++) {
            expect_frames(db, i + 1, &lists[i]);
        }
        assert_int_equal(query_integer(db, "SELECT count(*) FROM stack_node"), beginnings);
        assert_int_equal(query_integer(db, BEGINNINGS), beginnings);
        assert_int_equal(query_integer(db, "SELECT count(*) - count(DISTINCT symbol_id) FROM stack_frame"), 0);
        assert_int_equal(query_integer(db, "SELECT count(*) FROM callsite WHERE (node_id IS NULL) <> (depth = 0)"), 0);
        assert_int_equal(query_integer(db, "SELECT count(*) = (SELECT sum(depth) FROM callsite) FROM frame"), 1);
        sqlite3_close(db);
    }
}

TEST(test_refused)
{
    struct stack_nodes nodes = {0};
    struct store *store = store_make();
    uint32_t node = 77;
    assert_int_equal(stack_nodes_find(&nodes, store, 1, 1, &node), VARVE_ERROR_INVALID);
    assert_int_equal(stack_nodes_find(&nodes, store, 0, 1, &node), VARVE_OK);
    assert_int_equal(node, 1);
    assert_int_equal(stack_nodes_find(&nodes, store, 2, 1, &node), VARVE_ERROR_INVALID);
    assert_int_equal(stack_nodes_find(&nodes, store, 1, 1, &node), VARVE_OK);
    assert_int_equal(node, 2);
    assert_int_equal(nodes.index.count, 2);
    stack_nodes_free(&nodes);
    store_close(store);
}

TEST_FILE(folder_make, folder_remove)
