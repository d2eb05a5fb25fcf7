/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The call tree on random stacks, with any options, against a plain list of paths: which nodes there are, what each has, and
 * that the parts of each node add up to it.
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/random.h"

#include "analysis/query/db.h"
#include "analysis/query/tree/call_tree.h"
#include "trace/trace.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 60
#define SYMBOLS 8
#define NODES 30
#define CALLSITES 40
#define DEPTH (NODES + 1)
#define PATHS (2 * CALLSITES * DEPTH)

/* What stands on a path: names of functions, from the root of the tree on. */
struct path {
    char names[DEPTH + 1];
    int64_t total[CALL_TREE_FIGURES], own[CALL_TREE_FIGURES];
};

struct model {
    char letters[SYMBOLS + 1]; /* of symbols: equal ones are the same function, line and module */
    bool is_plumbing['z' + 1];
    int parents[NODES + 1], symbols[NODES + 1];
    int nodes[CALLSITES + 1]; /* of call sites; 0: no stack */
    int users[CALLSITES + 1]; /* symbols of their lines; 0: unknown */
    int64_t figures[CALLSITES + 1][CALL_TREE_FIGURES];
    struct path paths[PATHS]; /* 0: the root */
    size_t path_count;
};

static uint64_t random_state;

static int below(int limit)
{
    return (int)random_below(&random_state, (uint64_t)limit);
}

/* ---- a trace ---- */

static void make_model(struct model *model)
{
    memset(model, 0, sizeof(*model));
    for (int i = 1; i <= SYMBOLS; i++) {
        model->letters[i] = (char)('a' + below(SYMBOLS - 2));
        model->is_plumbing[(int)model->letters[i]] = below(4) == 0;
    }
    for (int i = 1; i <= NODES; i++) {
        model->parents[i] = below(3) > 0 ? i - 1 : below(i);
        model->symbols[i] = 1 + below(SYMBOLS);
    }
    for (int i = 1; i <= CALLSITES; i++) {
        model->nodes[i] = below(NODES + 1);
        model->users[i] = below(SYMBOLS + 1);
        model->figures[i][CALL_TREE_BYTES] = below(4) == 0 ? 0 : below(1000);
        model->figures[i][CALL_TREE_ALLOCATIONS] = below(4) == 0 ? 0 : below(20);
    }
}

static void make_database(const char *path, const struct model *model)
{
    static char sql[64 * 1024];
    size_t used = (size_t)snprintf(
        sql, sizeof(sql),
        "BEGIN; INSERT INTO meta VALUES ('complete', 1);"
        "INSERT OR IGNORE INTO domain(code, name, meaning) VALUES (1, 'heap', ''), (2, 'mmap', '');"
        "INSERT INTO callsite_stat(callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes, "
        "peak_allocations, peak_bytes, temporary, lifetime_ns) VALUES (1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9);");

    for (int i = 1; i <= SYMBOLS; i++) {
        used += (size_t)snprintf(
            sql + used, sizeof(sql) - used,
            "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined, user_rank) VALUES (%d, '%c', "
            "NULL, NULL, '/lib/m', 0, %d, %d);",
            i, model->letters[i], below(2),
            model->is_plumbing[(int)model->letters[i]] ? below(3) : 3 + below(5));
    }
    for (int i = 1; i <= NODES; i++) {
        used += (size_t)snprintf(
            sql + used, sizeof(sql) - used,
            "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (%d, %s%d, %d, %d);", i,
            model->parents[i] == 0 ? "NULL + " : "", model->parents[i], model->symbols[i], below(5));
    }
    for (int i = 1; i <= CALLSITES; i++) {
        const long long bytes = model->figures[i][0], allocations = model->figures[i][1];

        used += (size_t)snprintf(
            sql + used, sizeof(sql) - used,
            "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) VALUES (%d, nullif(%d, 0), 1, NULL, "
            "nullif(%d, 0));"
            "INSERT INTO callsite_stat(callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes, "
            "peak_allocations, peak_bytes, temporary, lifetime_ns) VALUES (%d, 1, %lld, 0, %lld, %lld, %lld, %lld, %lld, "
            "%lld, 0);",
            i, model->nodes[i], model->users[i], i, allocations, bytes, allocations, bytes, allocations,
            bytes, allocations);
    }
    snprintf(sql + used, sizeof(sql) - used, "COMMIT");
    trace_database_make(path, (const char *const[]){NULL});
    sql_run(path, sql);
}

/* ---- the plain list ---- */

static struct path *find_path(struct model *model, const char *names, bool may_add)
{
    for (size_t i = 0; i < model->path_count; i++) {
        if (strcmp(model->paths[i].names, names) == 0) {
            return &model->paths[i];
        }
    }
    if (!may_add) {
        return NULL;
    }
    assert_true(model->path_count < PATHS);
    model->paths[model->path_count] = (struct path){{0}, {0}, {0}};
    snprintf(model->paths[model->path_count].names, DEPTH + 1, "%s", names);
    return &model->paths[model->path_count++];
}

/* The names of a call site's stack in the order of the tree; '-' stands for none. Inverted, a stack begins at the line of its call
 * site. */
static void spell(const struct model *model, int callsite, const struct call_tree_options *options,
                  char *names)
{
    char user = model->users[callsite] != 0 ? model->letters[model->users[callsite]] : '-';
    size_t count = 0;
    const char *begin;

    for (int at = model->nodes[callsite]; at != 0; at = model->parents[at]) {
        char letter = model->letters[model->symbols[at]];

        if (options->all_frames ||
            (!model->is_plumbing[(int)letter] && (count == 0 || names[count - 1] != letter))) {
            names[count++] = letter;
        }
    }
    if (count == 0) {
        names[count++] = user;
    }
    names[count] = '\0';
    begin = strchr(names, user);
    if (options->is_inverted && !options->all_frames && begin != NULL) {
        count -= (size_t)(begin - names);
        memmove(names, begin, count + 1);
    }
    for (size_t i = 0; !options->is_inverted && i < count / 2; i++) {
        char letter = names[i];

        names[i] = names[count - 1 - i];
        names[count - 1 - i] = letter;
    }
}

static void list_paths(struct model *model, const struct call_tree_options *options)
{
    model->path_count = 0;
    find_path(model, "", true);
    for (int i = 1; i <= CALLSITES; i++) {
        int64_t figures[] = {options->metric == CALL_TREE_TEMPORARY ? 0 : model->figures[i][0],
                             model->figures[i][1]};
        char names[DEPTH + 1];
        char prefix[DEPTH + 1] = "";

        if (figures[0] == 0 && figures[1] == 0) {
            continue;
        }
        spell(model, i, options, names);
        for (size_t length = 0; length <= strlen(names); length++) {
            struct path *path;

            snprintf(prefix, sizeof(prefix), "%.*s", (int)length, names);
            path = find_path(model, prefix, true);
            for (int figure = 0; figure < CALL_TREE_FIGURES; figure++) {
                path->total[figure] += figures[figure];
                path->own[figure] += length == strlen(names) ? figures[figure] : 0;
            }
        }
    }
}

/* ---- the comparison ---- */

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

static bool is_large(const struct model *model, const struct call_tree_options *options,
                     const int64_t *figures)
{
    return (double)figures[options->figure] * CALL_TREE_SHARE_ONE >=
           (double)options->share_min * (double)model->paths[0].total[options->figure];
}

/* How many children the list has below a path, and how many of them are large enough. */
static uint32_t count_children(const struct model *model, const struct call_tree_options *options,
                               const char *names, uint32_t *large)
{
    uint32_t count = 0;

    *large = 0;
    for (size_t i = 1; i < model->path_count; i++) {
        const struct path *path = &model->paths[i];

        if (strlen(path->names) == strlen(names) + 1 && strncmp(path->names, names, strlen(names)) == 0) {
            count++;
            *large += is_large(model, options, path->total) ? 1 : 0;
        }
    }
    return count;
}

static void check_node(struct model *model, const struct call_tree *tree, size_t number)
{
    const struct call_tree_node *node = &tree->nodes[number];
    const struct call_tree_options *options = &tree->options;
    int64_t sums[] = {node->own[0] + node->left_out[0], node->own[1] + node->left_out[1]};
    int64_t least = INT64_MAX;
    uint32_t children = 0, large, all;
    char names[DEPTH + 1];
    const struct path *path;

    name_node(tree, number, names);
    path = find_path(model, names, false);
    assert_non_null(path);
    assert_memory_equal(path->total, node->total, sizeof(node->total));
    assert_memory_equal(path->own, node->own, sizeof(node->own));
    for (size_t i = number + 1; i < tree->count; i++) {
        const struct call_tree_node *child = &tree->nodes[i];

        if (child->parent == number) {
            assert_true(child->depth == node->depth + 1 && child->level - node->level <= 1);
            assert_true(child->level <= options->depth);
            assert_true(child->total[options->figure] <= least); /* the largest first */
            assert_true(is_large(model, options, child->total));
            least = child->total[options->figure];
            children++;
            sums[0] += child->total[0];
            sums[1] += child->total[1];
        }
    }
    assert_memory_equal(sums, node->total, sizeof(sums));
    assert_int_equal(children, node->children);
    all = count_children(model, options, names, &large);
    assert_int_equal(children + node->children_left_out, all);
    large = large < options->top ? large : (uint32_t)options->top;
    if (children != large) {
        assert_int_equal(children, 0);
        assert_true(node->level + 1 > options->depth);
    }
}

static void check(struct model *model, struct database *database, const struct call_tree_options *options)
{
    struct call_tree tree;
    struct varve_message message = {""};

    assert_int_equal(call_tree_load(&tree, database, options, &message), VARVE_OK);
    assert_int_equal(database_error(database, &message), VARVE_OK);
    list_paths(model, &tree.options);
    assert_int_equal(tree.nodes[0].depth, 0);
    for (size_t i = 0; i < tree.count; i++) {
        assert_true(i == 0 || tree.nodes[i].parent < i);
        check_node(model, &tree, i);
    }
    if (options->share_min == 0 && options->top > PATHS && options->depth > DEPTH) {
        assert_int_equal(tree.count, model->path_count); /* nothing was left out */
    }
    call_tree_free(&tree);
}

TEST(test_random)
{
    static struct model model;

    random_state = test_first_seed(1);
    for (int round = 0; round < ROUNDS; round++) {
        struct varve_message message = {""};
        struct database *database;
        char path[32];

        snprintf(path, sizeof(path), "random%d.db", round);
        make_model(&model);
        make_database(path, &model);
        assert_int_equal(database_open(path, DATABASE_DERIVED, &database, &message), VARVE_OK);
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

            check(&model, database, &options);
        }
        database_close(database);
        assert_int_equal(remove(path), 0);
    }
}

TEST_FILE(test_folder_setup, test_folder_teardown)
