/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve tree` and `varve flamegraph`: text, JSON, folded stacks and SVG of a small trace, sums of all that is printed, files
 * that exist, names that hold anything, and databases that are empty, lack call sites, or are malformed.
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row of stacks below each other; the peak has 400 bytes of work and 600 of load, called in two lines of main. */
static const char small_sql[] =
    "INSERT INTO meta VALUES ('complete', 1), ('duration_ns', 10000);"
    "INSERT OR IGNORE INTO domain(code, name, meaning) VALUES (1, 'heap', 'the malloc family'), (2, 'mmap', 'mmap');"
    "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined, user_rank) VALUES (1, 'main', 'main.c', 12, "
    "'/bin/a', 0, 0, 4), (2, 'main', 'main.c', 14, '/bin/a', 0, 0, 4), (3, 'work', 'work.c', 3, '/bin/a', 0, 0, 4), (4, "
    "'load', 'load.c', 7, '/bin/a', 0, 0, 4), (5, 'begin', NULL, NULL, '/bin/a', 0, 0, 3), (6, NULL, NULL, NULL, "
    "'/lib/strange.so', 0, 0, 2), (7, 'work', 'work.c', 4, '/bin/a', 0, 0, 4), (8, 'xmalloc', 'wrap.c', 5, '/bin/a', 0, "
    "0, 0);"
    "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 5, 1), (2, 1, 1, 2), (3, 2, 3, 3), (4, 1, 2, 4),"
    "    (5, 4, 4, 5), (6, 5, 6, 6), (7, 6, 6, 7), (8, 3, 7, 8), (9, 8, 7, 9), (10, 3, 8, 10);"
    "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) VALUES (1, 10, 4, 8, 3), (2, 7, 5, 6, 4), (3, 5, 3, "
    "4, 4), (4, 9, 5, 7, 7);"
    "INSERT INTO callsite_stat(callsite_id, domain, allocations, frees, bytes, live_allocations, live_bytes, "
    "peak_allocations, peak_bytes, temporary, lifetime_ns) VALUES (1, 1, 10, 10, 5000, 0, 0, 3, 300, 7, 1), (2, 1, 2, 1, 500, 1, "
    "250, 2, 500, 0, 1), (3, 1, 1, 1, 100, 0, 0, 1, 100, 1, 1), (4, 1, 1, 1, 100, 0, 0, 1, 100, 0, 1);"
    "INSERT INTO total_stat SELECT 0, 1, 0, sum(allocations), sum(frees), sum(bytes), sum(live_allocations), "
    "sum(live_bytes), sum(peak_bytes), sum(peak_allocations), 6, 6000, sum(temporary), 0 FROM callsite_stat;";

static void make(const char *path, const char *sql, const char *more)
{
    trace_database_make(path, (const char *const[]){NULL});
    sql_run(path, sql);
    sql_run(path, more);
}

static int enter(void **state)
{
    *state = test_folder_enter();
    make("t.db", small_sql, "");
    return 0;
}

static char *answer(const char *const *arguments)
{
    struct command_outcome outcome = command_run_list(arguments);
    char *text = outcome.out;

    if (outcome.status != 0) {
        fail_msg("status %d: %s", outcome.status, outcome.err);
    }
    assert_string_equal(outcome.err, "");
    free(outcome.err);
    return text;
}

#define ANSWER(...) answer((const char *const[]){__VA_ARGS__, NULL})

static void expect(char *text, const char *wanted)
{
    assert_string_equal(text, wanted);
    free(text);
}

/* Each of `words` is in the text, one behind the other. */
static void expect_words(char *text, const char *const *words)
{
    const char *at = text;

    for (; *words != NULL; words++) {
        at = strstr(at, *words);
        if (at == NULL) {
            fail_msg("no '%s' (there) in: %s", *words, text);
            return;
        }
        at += strlen(*words);
    }
    free(text);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(test_text)
{
    expect(ANSWER("tree", "t.db"), "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
                                   "\n"
                                   "     bytes    share allocations  function, callees below\n"
                                   "    1000 B  100.0 %           7  begin  (a)\n"
                                   "     600 B   60.0 %           3  ├ main  main.c:14\n"
                                   "                                 │ load  load.c:7\n"
                                   "     400 B   40.0 %           4  └ main  main.c:12\n"
                                   "                                   work  work.c:3\n"
                                   "     300 B   30.0 %           3    ├ (itself)\n"
                                   "     100 B   10.0 %           1    └ work  work.c:4\n");
}

TEST(test_options)
{
    expect(ANSWER("tree", "--inverted", "--min-share=15%", "t.db"),
           "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
           "\n"
           "     bytes    share allocations  allocating line, callers below\n"
           "     600 B   60.0 %           3  load  load.c:7\n"
           "                                 main  main.c:14\n"
           "                                 begin  (a)\n"
           "     300 B   30.0 %           3  work  work.c:3\n"
           "                                 main  main.c:12\n"
           "                                 begin  (a)\n"
           "     100 B   10.0 %           1  … 1 more\n");
    expect(ANSWER("tree", "--metric=temporary", "--depth=1", "t.db"),
           "heap, freed before the thread allocated again: 8 allocations\n"
           "\n"
           "   share allocations  function, callees below\n"
           " 100.0 %           8  begin  (a)\n");
    expect_words(ANSWER("tree", "--count", "--top=1", "t.db"),
                 WORDS("400 B   57.1 %           4  ├ main  main.c:12", "└ … 1 more"));
    expect_words(ANSWER("tree", "--metric=allocated", "--all", "t.db"),
                 WORDS("heap, allocated: 5.57 KiB (5,700)", "├ main", "xmalloc  wrap.c:5", "└ main",
                       "unresolved code in strange.so\n", "unresolved code in strange.so\n"));
    expect_words(ANSWER("tree", "--metric=leaked", "--domain=heap", "t.db"),
                 WORDS("never freed: 250 B in 1 allocation\n", "begin", "main.c:14", "load"));
    expect(ANSWER("tree", "--inverted", "--min-share=90", "t.db"),
           "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
           "each of its 3 frames has less than --min-share of it\n");
    expect(ANSWER("tree", "--domain=mmap", "t.db"), "mmap, at the peak: 0 B in 0 allocations\n");
}

TEST(test_json)
{
    expect_words(
        ANSWER("tree", "--json", "t.db"),
        WORDS("{\"database\":\"t.db\",\"domain\":\"heap\",\"metric\":\"peak\",\"order\":\"bytes\",",
              "\"inverted\":false,\"bytes\":1000,\"allocations\":7,\"left_out\":0,",
              "\"nodes\":[{\"id\":1,\"parent_id\":null,\"depth\":1,\"bytes\":1000,\"allocations\":7,",
              "\"self_bytes\":0,\"self_allocations\":0,\"left_out\":0,", "\"function\":\"begin\"",
              "{\"id\":3,\"parent_id\":2,\"depth\":3,\"bytes\":600,\"allocations\":3,\"self_bytes\":600,"));
    expect_words(ANSWER("tree", "--json", "--metric=temporary", "t.db"), WORDS("\"bytes\":null"));
}

TEST(test_folded)
{
    char *text;
    size_t bytes;

    expect(ANSWER("flamegraph", "--folded", "t.db"),
           "begin (a);main (main.c:14);load (load.c:7) 600\n"
           "begin (a);main (main.c:12);work (work.c:3) 300\n"
           "begin (a);main (main.c:12);work (work.c:3);work (work.c:4) 100\n");
    expect(ANSWER("flamegraph", "--folded", "--count", "--min-share=30", "--inverted", "--output=-", "t.db"),
           "(smaller) 1\n"
           "load (load.c:7);main (main.c:14);begin (a) 3\n"
           "work (work.c:3);main (main.c:12);begin (a) 3\n");
    expect(ANSWER("flamegraph", "--folded", "-o", "t.folded", "t.db"), "");
    text = file_read("t.folded", &bytes);
    expect_words(text, WORDS("begin (a);main (main.c:14);load (load.c:7) 600\n"));
}

TEST(test_svg)
{
    char *text;

    expect(ANSWER("flamegraph", "-o", "t.svg", "t.db"), "");
    expect_words(
        file_read("t.svg", NULL),
        WORDS(
            "<?xml", "<svg ", "heap, at the peak: 1000 B in 7 allocations", "<title>all\n1000 B",
            "<title>main  main.c:14\n600 B, 3 allocations, 60.0 %</title><rect x=\"10.00\" y=\"96\" width=\"707.70\"",
            "<script>", "</svg>\n"));
    command_refused(command_run("flamegraph", "-o", "t.svg", "t.db", NULL), "flamegraph", "t.svg");
    expect(ANSWER("flamegraph", "-f", "-o", "t.svg", "--min-share=45", "t.db"), "");
    expect_words(file_read("t.svg", NULL), WORDS("; left out: 1 smaller frame with 400 B"));
    text = ANSWER("flamegraph", "-o", "-", "t.db");
    expect_words(text, WORDS("<?xml", "</svg>\n"));
}

/* A name of 1 MB, one with control characters, one with what XML and folded stacks have a meaning for. */
TEST(test_names)
{
    char *text;

    make(
        "names.db", small_sql,
        "UPDATE symbol SET function = 'a' || char(27) || '[2J;' || char(10) || '<b>&\"]]>' || char(0x9b) || char(0xffff) "
        "WHERE id = 5; UPDATE symbol SET function = replace(hex(zeroblob(500000)), '0', 'n') WHERE id = 4; UPDATE symbol "
        "SET file = CAST(x'ff3cfe' AS TEXT) WHERE id = 3");
    text = ANSWER("flamegraph", "-o", "-", "names.db");
    assert_true(strlen(text) < 100000);
    assert_null(strchr(text, 27));
    assert_null(strstr(text, "\xff"));
    assert_null(strstr(text, "\xef\xbf\xbf"));
    expect_words(text, WORDS("<title>a?[2J; &lt;b&gt;&amp;&quot;]]&gt;???  a\n", "nnn…"));
    text = ANSWER("flamegraph", "--folded", "names.db");
    expect_words(text, WORDS("a?[2J: <b>&\"]]>?", ";main (main.c:14);nnn", "… (load.c:7) 600\n"));
    text = ANSWER("tree", "names.db");
    assert_true(strlen(text) < 5000);
    free(text);
}

/* Stacks without a name are a line for each module. */
TEST(test_unnamed)
{
    make("unnamed.db", small_sql,
         "UPDATE symbol SET function = NULL, file = NULL, line = NULL, user_rank = 2");
    expect(ANSWER("tree", "unnamed.db"),
           "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
           "\n"
           "     bytes    share allocations  function, callees below\n"
           "    1000 B  100.0 %           7  unresolved code in a\n");
}

TEST(test_nothing)
{
    make("empty.db", "INSERT INTO meta VALUES ('complete', 1);",
         "INSERT OR IGNORE INTO domain(code, name, meaning) VALUES (1, 'heap', '')");
    expect(ANSWER("tree", "empty.db"), "heap, at the peak: 0 B in 0 allocations\n");
    expect(ANSWER("flamegraph", "--folded", "empty.db"), "");
    expect_words(ANSWER("flamegraph", "-o", "-", "empty.db"), WORDS("0 allocations", "</svg>"));
    make("stackless.db", small_sql, "DELETE FROM callsite");
    expect(ANSWER("tree", "stackless.db"),
           "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
           "no call site has a stack: they were not recorded\n"
           "\n"
           "     bytes    share allocations  function, callees below\n"
           "    1000 B  100.0 %           7  (no stack was recorded)\n");
}

/* Rows that no recording writes: each is answered, or refused with a line. */
TEST(test_malformed)
{
    static const char *const damage[] = {
        "UPDATE stack_node_row SET parent_lag = 0",
        "UPDATE stack_node_row SET parent_lag = -1",
        "UPDATE stack_node_row SET parent_lag = 9223372036854775807",
        "UPDATE stack_node_row SET frame_id = 77 WHERE id % 2",
        "UPDATE stack_node_row SET id = id * 1000000007",
        "UPDATE stack_node_row SET id = -id",
        "DELETE FROM symbol WHERE id % 2",
        "UPDATE symbol SET id = id + 4611686018427387904",
        "UPDATE callsite SET node_id = 99 WHERE id = 2",
        "UPDATE callsite SET node_id = -1, symbol_id = -1",
        "DELETE FROM stack_frame",
        "DELETE FROM total_stat",
    };
    static const char *const refused[] = {
        "UPDATE callsite_stat SET peak_bytes = -1",
        "UPDATE callsite_stat SET peak_allocations = 9223372036854775807",
        "DROP TABLE stack_node_row",
        "DROP TABLE symbol; CREATE TABLE symbol(words)",
        "DELETE FROM meta WHERE key = 'complete'",
    };
    char path[32];

    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        snprintf(path, sizeof(path), "damage%zu.db", i);
        make(path, small_sql, damage[i]);
        expect_words(ANSWER("tree", "--min-share=0", path), WORDS("1000 B in 7 allocations"));
        expect_words(ANSWER("tree", "--inverted", path), WORDS("1000 B in 7 allocations"));
        expect_words(ANSWER("flamegraph", "-o", "-", path), WORDS("1000 B in 7 allocations"));
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        snprintf(path, sizeof(path), "refused%zu.db", i);
        make(path, small_sql, refused[i]);
        command_refused(command_run("tree", path, NULL), "tree", path);
        command_refused(command_run("flamegraph", "-o", "no.svg", path, NULL), "flamegraph", path);
        command_refused(command_run("flamegraph", "--folded", path, NULL), "flamegraph", path);
    }
    assert_null(fopen("no.svg", "r"));
}

TEST(test_bad_use)
{
    static const char *const lines[][6] = {
        {"tree", "--min-share=-1", "t.db"},
        {"tree", "--min-share=101", "t.db"},
        {"tree", "--min-share=nan", "t.db"},
        {"tree", "--min-share=", "t.db"},
        {"tree", "--depth=0", "t.db"},
        {"tree", "--domain=nowhere", "t.db"},
        {"tree", "--metric=size", "t.db"},
        {"flamegraph", "t.db"},
        {"flamegraph", "-o", "no/where.svg", "t.db"},
        {"flamegraph", "-o", ".", "-f", "t.db"},
        {"flamegraph", "-o", "t.db", "t.db"},
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        command_refused(command_run_list(lines[i]), lines[i][0], "");
    }
}

TEST_FILE(enter, test_folder_teardown)
