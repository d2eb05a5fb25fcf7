/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --hide and the file of the configuration folder: the user's line by other patterns, the same in reports and in SQL,
 * against the rule on random stacks; patterns that hide everything.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Functions f0 to f11: of three each of a run-time library by the built-in table, unnamed, named and with source. */
#define SYMBOLS 12
#define NODES 400

static const char *const modules[SYMBOLS / 3] = {"/lib/libc.so.6", "/opt/stripped", "/opt/named", "/opt/source"};

struct scene {
    unsigned parents[NODES + 1], symbols[NODES + 1]; /* of node n at [n] */
};

static void scene_make(struct scene *scene, uint64_t seed)
{
    char *sql = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&sql, &bytes);
    assert_non_null(out);
    fputs("BEGIN; INSERT OR REPLACE INTO meta VALUES ('complete', 1);", out);
    for (unsigned i = 0; i < SYMBOLS; i++) {
        fprintf(out,
                "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined) VALUES "
                "(%u, iif(%d, NULL, 'f%u'), iif(%d, 'a.c', NULL), %u, '%s', 0, 0);",
                i + 1, i / 3 == 1, i, i / 3 == 3, i + 1, modules[i / 3]);
    }
    for (unsigned node = 1; node <= NODES; node++) {
        scene->parents[node] = (unsigned)(random_next(&seed) % (node < 20 ? 1 : node));
        scene->symbols[node] = (unsigned)(random_next(&seed) % SYMBOLS) + 1;
        fprintf(out,
                "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (%u, nullif(%u, 0), %u, 4);"
                "INSERT INTO callsite(id, node_id, depth, symbol_id) VALUES (%u, %u, 1, %u);",
                node, scene->parents[node], scene->symbols[node], node, node, scene->symbols[node]);
    }
    fputs("COMMIT;", out);
    assert_int_equal(fclose(out), 0);
    unlink("hide.db");
    trace_database_make("hide.db", (const char *const[]){NULL});
    sql_run("hide.db", sql);
    free(sql);
}

/* By the definition: the innermost frame of the largest rank, else the one that `callsite` names. */
static unsigned naive_user(const struct scene *scene, unsigned node, unsigned hidden)
{
    unsigned best = 0, best_rank = 0;
    for (unsigned at = node; at != 0; at = scene->parents[at]) {
        const unsigned symbol = scene->symbols[at];
        const unsigned rank = symbol == hidden ? 0 : (symbol - 1) / 3 + 1;
        if (rank > best_rank) {
            best_rank = rank;
            best = symbol;
        }
    }
    return best != 0 ? best : scene->symbols[node];
}

static void expect_users(const struct scene *scene, const char *pattern, unsigned hidden)
{
    struct command_outcome outcome = command_run(
        "query", "hide.db", "--csv", "--no-header", "--hide", pattern,
        "SELECT s.id FROM callsite c JOIN symbol s ON s.id = coalesce(c.user_symbol_id, c.symbol_id) ORDER BY c.id",
        NULL);
    const char *at = outcome.out;
    assert_int_equal(outcome.status, 0);
    for (unsigned node = 1; node <= NODES; node++) {
        char *end;
        if (strtoul(at, &end, 10) != naive_user(scene, node, hidden)) {
            fail_msg("--hide %s: call site %u", pattern, node);
        }
        at = strchr(end, '\n') + 1;
    }
    command_outcome_free(&outcome);
}

TEST(test_random)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct scene scene;
        scene_make(&scene, seed);
        expect_users(&scene, "nothing*", 0);
        for (unsigned i = 6; i < SYMBOLS; i++) {
            char pattern[16];
            snprintf(pattern, sizeof(pattern), "f%u", i);
            expect_users(&scene, pattern, i + 1);
        }
    }
}

#define ASK(option)                            \
    "query small.db --csv --no-header " option \
    " `SELECT user_function, sum(bytes) FROM callsite_total GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 1`"

/* A pattern of the command line, and of the file, takes the largest line away. */
TEST(test_file)
{
    char *before = command_answer(ASK("")), line[256], config[4096];
    assert_non_null(strchr(before, ','));
    char *hidden = command_answer(ASK("--hide function:map_weights"));
    snprintf(line, sizeof(line), "# ours\nfunction:%.*s\n", (int)strcspn(before, ","), before);
    assert_string_equal(line, "# ours\nfunction:map_weights\n");
    assert_non_null(getcwd(config, sizeof(config)));
    assert_int_equal(setenv("XDG_CONFIG_HOME", config, 1), 0);
    assert_int_equal(mkdir("varve", 0700), 0);
    file_write("varve/plumbing.txt", line, strlen(line));
    char *from_file = command_answer(ASK(""));
    assert_string_not_equal(before, from_file);
    assert_string_equal(hidden, from_file);
    file_write("varve/plumbing.txt", "a\nmodule:\n", 10);
    EXPECT(2, "report small.db", "plumbing.txt: line 2");
    unlink("varve/plumbing.txt");
    assert_int_equal(rmdir("varve"), 0);
    free(before);
    free(hidden);
    free(from_file);
}

TEST(test_everything)
{
    EXPECT(0, "report small.db --hide function:* --hide */* --hide file:*", "Totals",
           "the patterns hide every frame of all");
}

TEST_FILE(test_folder_small_setup, test_folder_teardown)
