/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve tree` and `varve flamegraph`: text, JSON, folded stacks and SVG of a small trace, sums of all that is printed,
 * files that exist, names that hold anything, and databases that are empty, lack call sites, or are malformed.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A row of stacks below each other; the peak has 400 bytes of work and 600 of load, called in two lines of main. */
static const char small_sql[] =
    "INSERT INTO meta VALUES ('complete', 1), ('duration_ns', 10000);"
    "INSERT OR IGNORE INTO domain(code, name, meaning) VALUES (1, 'heap', 'the malloc family'), (2, 'mmap', 'mmap');"
    "INSERT INTO symbol(id, function, file, line, module, is_python, is_inlined, user_rank) VALUES (1, 'main', "
    "'main.c', 12, "
    "'/bin/a', 0, 0, 4), (2, 'main', 'main.c', 14, '/bin/a', 0, 0, 4), (3, 'work', 'work.c', 3, '/bin/a', 0, 0, 4), "
    "(4, "
    "'load', 'load.c', 7, '/bin/a', 0, 0, 4), (5, 'begin', NULL, NULL, '/bin/a', 0, 0, 3), (6, NULL, NULL, NULL, "
    "'/lib/strange.so', 0, 0, 2), (7, 'work', 'work.c', 4, '/bin/a', 0, 0, 4), (8, 'xmalloc', 'wrap.c', 5, '/bin/a', "
    "0, "
    "0, 0);"
    "INSERT INTO stack_node(id, parent_id, symbol_id, pc) VALUES (1, NULL, 5, 1), (2, 1, 1, 2), (3, 2, 3, 3), (4, 1, "
    "2, 4),"
    "    (5, 4, 4, 5), (6, 5, 6, 6), (7, 6, 6, 7), (8, 3, 7, 8), (9, 8, 7, 9), (10, 3, 8, 10);"
    "INSERT INTO callsite(id, node_id, depth, symbol_id, user_symbol_id) VALUES (1, 10, 4, 8, 3), (2, 7, 5, 6, 4), "
    "(3, 5, 3, "
    "4, 4), (4, 9, 5, 7, 7);"
    "INSERT INTO callsite_stat_row(id, allocations, frees, bytes, live_allocations, live_bytes, "
    "peak_allocations, peak_bytes, temporary, lifetime_ns) VALUES (1, 10, 10, 5000, 0, 0, 3, 300, 7, "
    "1), (2, 2, 1, 500, 1, 250, 2, 500, 0, 1), (3, 1, 1, 100, 0, 0, 1, 100, 1, 1), "
    "(4, 1, 1, 100, 0, 0, 1, 100, 0, 1);"
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

static void expect(const char *line, const char *wanted)
{
    char *text = command_answer(line);
    assert_string_equal(text, wanted);
    free(text);
}

TEST(test_text)
{
    expect("tree t.db", "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
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
    expect("tree --inverted --min-share=15% t.db",
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
    expect("tree --metric=temporary --depth=1 t.db", "heap, freed before the thread allocated again: 8 allocations\n"
                                                     "\n"
                                                     "   share allocations  function, callees below\n"
                                                     " 100.0 %           8  begin  (a)\n");
    EXPECT(0, "tree --count --top=1 t.db", "400 B   57.1 %           4  ├ main  main.c:12", "└ … 1 more");
    EXPECT(0, "tree --metric=allocated --all t.db", "heap, allocated: 5.57 KiB (5,700)", "├ main", "xmalloc  wrap.c:5",
           "└ main", "unresolved code in strange.so\n", "unresolved code in strange.so\n");
    EXPECT(0, "tree --metric=leaked --domain=heap t.db", "live at the end: 250 B in 1 allocation\n", "begin",
           "main.c:14", "load");
    expect("tree --inverted --min-share=90 t.db",
           "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
           "each of its 3 frames has less than --min-share of it\n");
    expect("tree --domain=mmap t.db", "mmap, at the peak: 0 B in 0 allocations\n");
}

TEST(test_json)
{
    EXPECT(0, "tree --json t.db", "{\"database\":\"t.db\",\"domain\":\"heap\",\"metric\":\"peak\",\"order\":\"bytes\",",
           "\"inverted\":false,\"pid\":null,\"tid\":null,\"from_ns\":null,",
           "\"to_ns\":null,\"bytes\":1000,\"allocations\":7,\"left_out\":0,",
           "\"nodes\":[{\"id\":1,\"parent_id\":null,\"depth\":1,\"bytes\":1000,\"allocations\":7,",
           "\"self_bytes\":0,\"self_allocations\":0,\"left_out\":0,", "\"function\":\"begin\"",
           "{\"id\":3,\"parent_id\":2,\"depth\":3,\"bytes\":600,\"allocations\":3,\"self_bytes\":600,");
    EXPECT(0, "tree --json --metric=temporary t.db", "\"bytes\":null");
    EXPECT(0, "tree --json --inverted --min-share=0 t.db",
           "{\"id\":3,\"parent_id\":2,\"depth\":3,\"bytes\":600,\"allocations\":3,\"self_bytes\":600,"
           "\"self_allocations\":3,\"left_out\":0,\"left_out_bytes\":0,\"left_out_allocations\":0,");
}

/* What is printed, with -o - too, is what is written to a file. */
static void expect_file(const char *print, const char *write, const char *path)
{
    char *printed = command_answer(print);
    expect(write, "");
    char *written = file_read(path, NULL);

    assert_string_equal(printed, written);
    free(printed);
    free(written);
}

TEST(test_folded)
{
    expect("flamegraph --folded t.db", "begin (a);main (main.c:14);load (load.c:7) 600\n"
                                       "begin (a);main (main.c:12);work (work.c:3) 300\n"
                                       "begin (a);main (main.c:12);work (work.c:3);work (work.c:4) 100\n");
    expect("flamegraph --folded --count --min-share=30 --inverted --output=- t.db",
           "(smaller) 1\n"
           "load (load.c:7);main (main.c:14);begin (a) 3\n"
           "work (work.c:3);main (main.c:12);begin (a) 3\n");
    expect_file("flamegraph --folded t.db", "flamegraph --folded -o t.folded t.db", "t.folded");
}

TEST(test_svg)
{
    EXPECT(0, "flamegraph -o - t.db", "<?xml", "<svg ", "heap, at the peak: 1000 B in 7 allocations",
           "<title>all\n1000 B",
           "<title>main  main.c:14\n600 B, 3 allocations, 60.0 %</title><rect x=\"10.00\" y=\"96\" width=\"707.70\"",
           "<script>", "</svg>\n");
    expect_file("flamegraph -o - t.db", "flamegraph -o t.svg t.db", "t.svg");
    EXPECT(2, "flamegraph -o t.svg t.db", "t.svg");
    EXPECT(0, "flamegraph --min-share=45 -o - t.db", "; left out: 1 smaller frame with 400 B");
    expect_file("flamegraph --min-share=45 -o - t.db", "flamegraph --min-share=45 -f -o t.svg t.db", "t.svg");
}

/* A name of 1 MB, one with control characters, one with what XML and folded stacks have a meaning for. */
TEST(test_names)
{
    make("names.db", small_sql,
         "UPDATE symbol SET function = 'a' || char(27) || '[2J;' || char(10) || '<b>&\"]]>' || char(0x9b) || "
         "char(0xffff) WHERE id = 5; UPDATE symbol SET function = replace(hex(zeroblob(500000)), '0', 'n') WHERE id = "
         "4; "
         "UPDATE symbol SET file = CAST(x'ff3cfe' AS TEXT) WHERE id = 3");
    char *text = command_answer("flamegraph -o - names.db");

    assert_true(strlen(text) < 100000);
    free(text);
    EXPECT(0, "flamegraph -o - names.db", "!\x1b", "!\xff", "!\xef\xbf\xbf",
           "<title>a?[2J; &lt;b&gt;&amp;&quot;]]&gt;???  a\n", "nnn…");
    EXPECT(0, "flamegraph --folded names.db", "a?[2J: <b>&\"]]>?", ";main (main.c:14);nnn", "… (load.c:7) 600\n");
    text = command_answer("tree names.db");
    assert_true(strlen(text) < 5000);
    free(text);
}

/* Inverted, a stack begins at the user's line, whatever that calls. */
/* ---- parts of a recording ---- */

static int64_t number_of(const char *line, const char *key)
{
    char *text = command_answer(line);
    const char *at = key[0] != '\0' ? strstr(text, key) : text;
    assert_non_null(at);
    const int64_t number = strtoll(at + strlen(key), NULL, 10);
    free(text);
    return number;
}

/* The whole of the tree beside the sum of the allocations that a condition picks, of a database with two processes and
 * three threads. */
static void check_part(const char *options, const char *condition)
{
    char line[700];
    snprintf(line, sizeof(line), "tree --json %s parts.db", options);
    const int64_t bytes = number_of(line, "\"bytes\":"), allocations = number_of(line, "\"allocations\":");
    snprintf(line, sizeof(line),
             "query --no-header --csv parts.db `SELECT coalesce(sum(size), 0) FROM allocation WHERE domain = 1 AND %s`",
             condition);
    const int64_t wanted = number_of(line, "");
    snprintf(line, sizeof(line),
             "query --no-header --csv parts.db `SELECT count(*) FROM allocation WHERE domain = 1 AND "
             "%s`",
             condition);
    if (bytes != wanted || allocations != number_of(line, "")) {
        fail_msg("%s: %" PRId64 " bytes in %" PRId64 " allocations, not %" PRId64, options, bytes, allocations, wanted);
    }
}

TEST(test_parts)
{
    trace_database_make("parts.db", (const char *const[]){"small.sql", NULL});
    static const char *const whose[][2] = {{"", "1"},
                                           {"--pid 4001", "pid = 4001"},
                                           {"--thread 4002", "tid = 4002"},
                                           {"--pid 4000 --thread 4002", "pid = 4000 AND tid = 4002"},
                                           {"--pid 4001 --thread 4002", "0"}};
    char options[200], condition[400];
    for (size_t i = 0; i < sizeof(whose) / sizeof(whose[0]); i++) {
        for (int ms = 20; ms < 300; ms += 40) {
            const int64_t ns = ms * 1000000, from = ns / 3;
            snprintf(options, sizeof(options), "--at %dms %s", ms, whose[i][0]);
            snprintf(condition, sizeof(condition),
                     "%s AND alloc_ns <= %" PRId64 " AND ifnull(free_ns, 9e18) > %" PRId64, whose[i][1], ns, ns);
            check_part(options, condition);
            snprintf(options, sizeof(options), "--from %" PRId64 "ns --to %dms %s", from, ms, whose[i][0]);
            snprintf(condition, sizeof(condition), "%s AND alloc_ns BETWEEN %" PRId64 " AND %" PRId64, whose[i][1],
                     from + 1, ns);
            check_part(options, condition);
            const size_t used = strlen(condition);
            snprintf(condition + used, sizeof(condition) - used, " AND ifnull(free_ns, 9e18) > %" PRId64, ns);
            snprintf(options, sizeof(options), "--metric leaked --from %" PRId64 "ns --to %dms %s", from, ms,
                     whose[i][0]);
            check_part(options, condition);
        }
    }
    EXPECT(0, "tree --thread 4002 parts.db", "heap, at the peak, by thread 4002: ");
    EXPECT(0, "tree --from 10ms --to 200ms parts.db",
           "heap, allocated later than 10.0 ms and until 200 ms after the start:");
    EXPECT(0, "tree --metric leaked --to 200ms parts.db", "heap, live 200 ms after the start: ");
    EXPECT(0, "tree --at 100ms --pid 4000 parts.db", "heap, live 100 ms after the start, of process 4000: ");
    EXPECT(0, "flamegraph --at 100ms -o - parts.db", "heap, live 100 ms after the start: ");
}

TEST(test_parts_that_are_none)
{
    EXPECT(2, "tree --at soon parts.db", "--at must be a time such as 1.5s");
    EXPECT(2, "tree --at 1000s parts.db", "the recording ended");
    EXPECT(2, "tree --from 20ms --to 10ms parts.db", "--from must be before --to");
    EXPECT(2, "tree --at 1ms --to 10ms parts.db", "mutually exclusive");
    EXPECT(2, "tree --at 1ms --metric leaked parts.db", "--at has one metric");
    EXPECT(2, "tree --metric peak --to 10ms parts.db", "no metric peak");
    EXPECT(2, "tree --thread 1 parts.db", "no thread 1;");
    EXPECT(2, "tree --pid 1 parts.db", "no process 1");
    sql_run("parts.db", "INSERT INTO meta VALUES ('keep', 'totals')");
    EXPECT(2, "tree --thread 4002 parts.db", "has not the allocations that a part needs");
    EXPECT(0, "tree parts.db", "heap, at the peak");
}

TEST(test_user_line)
{
    make("outer.db", small_sql, "UPDATE callsite SET user_symbol_id = 2 WHERE id = 3");
    EXPECT(0, "tree --inverted --min-share=0 outer.db", "500 B   50.0 %           2  load  load.c:7",
           "100 B   10.0 %           1  main  main.c:14\n", "begin  (a)");
}

/* Stacks without a name are a line for each module. */
TEST(test_unnamed)
{
    make("unnamed.db", small_sql, "UPDATE symbol SET function = NULL, file = NULL, line = NULL, user_rank = 2");
    expect("tree unnamed.db", "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
                              "\n"
                              "     bytes    share allocations  function, callees below\n"
                              "    1000 B  100.0 %           7  unresolved code in a\n");
}

TEST(test_nothing)
{
    make("empty.db", "INSERT INTO meta VALUES ('complete', 1);",
         "INSERT OR IGNORE INTO domain(code, name, meaning) VALUES (1, 'heap', '')");
    expect("tree empty.db", "heap, at the peak: 0 B in 0 allocations\n");
    expect("flamegraph --folded empty.db", "");
    EXPECT(0, "flamegraph -o - empty.db", "0 allocations", "</svg>");
    make("stackless.db", small_sql, "DELETE FROM callsite");
    expect("tree stackless.db", "heap, at the peak: 1000 B in 7 allocations, 6.00 us after the start\n"
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
        "UPDATE callsite_stat_row SET peak_bytes = -1",
        "UPDATE callsite_stat_row SET peak_allocations = 9223372036854775807",
        "DROP TABLE stack_node_row",
        "DROP TABLE symbol; CREATE TABLE symbol(words)",
        "DELETE FROM meta WHERE key = 'complete'",
    };
    for (size_t i = 0; i < sizeof(damage) / sizeof(damage[0]); i++) {
        remove("damage.db");
        make("damage.db", small_sql, damage[i]);
        EXPECT(0, "tree --min-share=0 damage.db", "1000 B in 7 allocations");
        EXPECT(0, "tree --inverted damage.db", "1000 B in 7 allocations");
        EXPECT(0, "flamegraph -o - damage.db", "1000 B in 7 allocations");
    }
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        remove("damage.db");
        make("damage.db", small_sql, refused[i]);
        EXPECT(2, "tree damage.db", "damage.db");
        EXPECT(2, "flamegraph -o no.svg damage.db", "damage.db");
        EXPECT(2, "flamegraph --folded damage.db", "damage.db");
    }
    assert_null(fopen("no.svg", "r"));
}

TEST_FILE(enter, test_folder_teardown)
