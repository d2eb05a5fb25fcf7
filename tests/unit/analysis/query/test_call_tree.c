/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call tree on random stacks, with any options, against paths that SQL works out of the stacks: which nodes there
 * are, what each has, and that the parts of each node add up to it.
 * Costs: 2 s, full 9 s
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/query.h"
#include "support/random.h"

#include "analysis/query/db.h"
#include "analysis/query/tree/call_tree.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYMBOLS 8
#define NODES 30
#define CALLSITES 40
#define PATH_BYTES (NODES + 2)

static uint64_t random_state;

static int below(int limit)
{
    return (int)random_below(&random_state, (uint64_t)limit);
}

/* Functions are letters, some of them of two symbols; those of less than rank 3 are plumbing. */
static void make_database(const char *path)
{
    char *sql = NULL;
    size_t bytes;
    FILE *out = open_memstream(&sql, &bytes);
    fputs("BEGIN; INSERT INTO meta VALUES ('complete', 1);"
          "INSERT OR IGNORE INTO domain(code, name, meaning) VALUES (1, 'heap', ''), (2, 'mmap', '');"
          "INSERT INTO callsite_stat(callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes, "
          "peak_allocations, peak_bytes, temporary, lifetime_ns) VALUES (1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9);",
          out);
    int ranks[SYMBOLS];
    for (int i = 0; i < SYMBOLS; i++) {
        int letter = below(SYMBOLS - 2);
        ranks[i] = below(4) == 0 ? below(3) : 3 + below(5);
        fprintf(
            out,
            "INSERT INTO symbol(id, function, module, is_python, is_inlined, user_rank) VALUES (%d, '%c', '/lib/m', 0, "
            "%d, coalesce((SELECT user_rank FROM symbol WHERE function = '%c'), %d));",
            i + 1, 'a' + letter, below(2), 'a' + letter, ranks[i]);
    }
    for (int i = 1; i <= NODES; i++) {
        fprintf(out, "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (%d, nullif(%d, 0), %d, %d);", i,
                below(3) > 0 ? i - 1 : below(i), 1 + below(SYMBOLS), below(5));
    }
    for (int i = 1; i <= CALLSITES; i++) {
        int of_bytes = below(4) == 0 ? 0 : below(1000), allocations = below(4) == 0 ? 0 : below(20);
        fprintf(
            out,
            "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) VALUES (%d, nullif(%d, 0), 1, NULL, "
            "nullif(%d, 0)); INSERT INTO callsite_stat(callsite_id, domain, allocations, frees, bytes, "
            "live_allocations, "
            "live_bytes, peak_allocations, peak_bytes, temporary, lifetime_ns) VALUES (%d, 1, %d, 0, %d, %d, %d, %d, "
            "%d, "
            "%d, 0);",
            i, below(NODES + 1), below(SYMBOLS + 1), i, allocations, of_bytes, allocations, of_bytes, allocations,
            of_bytes, allocations);
    }
    fputs("COMMIT", out);
    fclose(out);
    trace_database_make(path, (const char *const[]){NULL});
    sql_run(path, sql);
    free(sql);
}

/*
 * Of each call site its frames, innermost first: without plumbing, and once where a function comes again at once; all
 * of them with ?1. If none is left, its own line, '-' for none. Inverted (?2) a stack begins at the line of its call
 * site; else it is turned round. ?3: bytes do not count.
 */
static const char paths_sql[] =
    "CREATE TEMP TABLE path AS WITH RECURSIVE w(id, node, names) AS (SELECT id, node_id, '' FROM callsite UNION ALL "
    "SELECT w.id, n.parent_id, CASE WHEN ?1 OR (y.user_rank >= 3 AND substr(names, -1) <> y.function) THEN names || "
    "y.function "
    "ELSE names END FROM w JOIN stack_node n ON n.id = w.node JOIN symbol y ON y.id = n.symbol_id), "
    "u AS (SELECT c.id, coalesce(y.function, '-') AS user FROM callsite c LEFT JOIN symbol y ON y.id = "
    "c.user_symbol_id), "
    "f AS (SELECT w.id, user, iif(names = '', user, names) AS names FROM w JOIN u USING (id) WHERE node IS NULL), "
    "i AS (SELECT id, CASE WHEN ?2 AND NOT ?1 AND instr(names, user) > 0 THEN substr(names, instr(names, user)) ELSE "
    "names END "
    "AS names FROM f), "
    "r(id, rest, names) AS (SELECT id, names, '' FROM i UNION ALL SELECT id, substr(rest, 2), iif(?2, names || "
    "substr(rest, 1, "
    "1), substr(rest, 1, 1) || names) FROM r WHERE rest <> '') "
    "SELECT names, iif(?3, 0, bytes) AS bytes, allocations FROM r JOIN callsite_stat s ON s.callsite_id = r.id AND "
    "domain = 1 "
    "WHERE rest = '' AND (allocations > 0 OR (bytes > 0 AND NOT ?3))";

static void list_paths(sqlite3 *db, const struct call_tree_options *options)
{
    sqlite3_exec(db, "DROP TABLE IF EXISTS temp.path", NULL, NULL, NULL);
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, paths_sql, -1, &statement, NULL) != SQLITE_OK) {
        fail_msg("%s", sqlite3_errmsg(db));
    }
    sqlite3_bind_int(statement, 1, options->all_frames);
    sqlite3_bind_int(statement, 2, options->is_inverted);
    sqlite3_bind_int(statement, 3, options->metric == CALL_TREE_TEMPORARY);
    assert_int_equal(sqlite3_step(statement), SQLITE_DONE);
    sqlite3_finalize(statement);
}

static const char *const figure_names[] = {[CALL_TREE_BYTES] = "bytes", [CALL_TREE_ALLOCATIONS] = "allocations"};

static int64_t sum(sqlite3 *db, int figure, const char *names, const char *more)
{
    char sql[200];
    snprintf(sql, sizeof(sql), "SELECT coalesce(sum(%s), 0) FROM path WHERE substr(names, 1, %zu) = '%s'%s",
             figure_names[figure], strlen(names), names, more);
    return query_integer(db, sql);
}

static void name_node(const struct call_tree *tree, size_t number, char *names)
{
    size_t depth = tree->nodes[number].depth;
    names[depth] = '\0';
    for (; number != 0; number = tree->nodes[number].parent) {
        const struct call_tree_frame *frame = &tree->frames[tree->nodes[number].frame];
        names[--depth] = frame->is_missing ? '-' : frame->function[0];
    }
    assert_int_equal(depth, 0);
}

static bool is_large(const struct call_tree *tree, int64_t figure)
{
    return (double)figure * CALL_TREE_SHARE_ONE >=
           (double)tree->options.share_min * (double)tree->nodes[0].total[tree->options.figure];
}

/* Children that SQL finds below a path, and how many of them are large enough. */
static uint32_t count_children(sqlite3 *db, const struct call_tree *tree, const char *names, uint32_t *large)
{
    uint32_t count = 0;
    *large = 0;
    char sql[300];
    snprintf(sql, sizeof(sql),
             "SELECT sum(%s) FROM path WHERE substr(names, 1, %zu) = '%s' AND length(names) > %zu "
             "GROUP BY substr(names, %zu, 1)",
             figure_names[tree->options.figure], strlen(names), names, strlen(names), strlen(names) + 1);
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    for (; sqlite3_step(statement) == SQLITE_ROW; count++) {
        *large += is_large(tree, sqlite3_column_int64(statement, 0));
    }
    sqlite3_finalize(statement);
    return count;
}

static void check_node(sqlite3 *db, const struct call_tree *tree, size_t number)
{
    const struct call_tree_node *node = &tree->nodes[number];
    const struct call_tree_options *options = &tree->options;
    int64_t sums[] = {node->own[0] + node->left_out[0], node->own[1] + node->left_out[1]}, least = INT64_MAX;
    uint32_t children = 0, large;
    char names[PATH_BYTES], exactly[40];
    name_node(tree, number, names);
    snprintf(exactly, sizeof(exactly), " AND length(names) = %zu", strlen(names));
    for (int figure = 0; figure < CALL_TREE_FIGURES; figure++) {
        assert_int_equal(node->total[figure], sum(db, figure, names, ""));
        assert_int_equal(node->own[figure], sum(db, figure, names, exactly));
    }
    for (size_t i = number + 1; i < tree->count; i++) {
        const struct call_tree_node *child = &tree->nodes[i];
        if (child->parent == number) {
            assert_true(child->depth == node->depth + 1 && child->level - node->level <= 1);
            assert_true(child->level <= options->depth);
            assert_true(child->total[options->figure] <= least); /* the largest first */
            assert_true(is_large(tree, child->total[options->figure]));
            least = child->total[options->figure];
            children++;
            sums[0] += child->total[0];
            sums[1] += child->total[1];
        }
    }
    assert_memory_equal(sums, node->total, sizeof(sums));
    assert_int_equal(children, node->children);
    assert_int_equal(children + node->children_left_out, count_children(db, tree, names, &large));
    large = large < options->top ? large : (uint32_t)options->top;
    assert_true(children == large || (children == 0 && node->level + 1 > options->depth));
}

TEST(test_random)
{
    random_state = test_first_seed(1);
    for (int round = 0; round < test_rounds(12, 60); round++) {
        struct varve_message message = {""};
        make_database("random.db");
        struct database *database;
        assert_int_equal(database_open("random.db", DATABASE_DERIVED, &database, &message), VARVE_OK);
        sqlite3 *db;
        assert_int_equal(sqlite3_open("random.db", &db), SQLITE_OK);
        for (int i = 0; i < 16; i++) {
            struct call_tree_options options = {
                .domain = "heap",
                .metric = (enum call_tree_metric)(i % CALL_TREE_METRICS),
                .figure = (enum call_tree_figure)below(CALL_TREE_FIGURES),
                .is_inverted = i & 4,
                .all_frames = below(2) == 0,
                .share_min = i & 8 ? below(200000) : 0,
                .top = i & 8 ? 1 + below(4) : INT64_MAX,
                .depth = i & 8 ? 1 + below(6) : CALL_TREE_FRAMES_MAX,
            };
            struct call_tree tree;
            assert_int_equal(call_tree_load(&tree, database, &options, &message), VARVE_OK);
            assert_int_equal(database_error(database, &message), VARVE_OK);
            list_paths(db, &tree.options);
            assert_int_equal(tree.nodes[0].depth, 0);
            for (size_t node = 0; node < tree.count; node++) {
                assert_true(node == 0 || tree.nodes[node].parent < node);
                check_node(db, &tree, node);
            }
            call_tree_free(&tree);
        }
        sqlite3_close(db);
        database_close(database);
        assert_int_equal(remove("random.db"), 0);
    }
}

TEST_FILE(test_folder_setup, test_folder_teardown)
