/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve compare`, `varve frontier` and `varve advise` as commands: their layouts, what is one answer and what an
 * array, every part of an advice. Figures are compared with replays by tests/conformance/test_compare.py and
 * test_advise.py. Runs threads: plays.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdlib.h>
#include <string.h>

#define TRACES VARVE_SOURCE_DIR "/tests/conformance/pytorch/"

#define SMALL TRACES "multistream_record.pickle.xz"
#define OTHER TRACES "cudagraph_private_pool.pickle.xz"

TEST(test_one_and_many)
{
    static const char *const lines[][2] = {
        {"compare --policies first-fit --json " SMALL,
         "compare --policies first-fit,pytorch --conf `` --conf expandable_segments:True --json " SMALL " " OTHER},
        {"frontier --policies first-fit --json " SMALL,
         "frontier --policies first-fit,pytorch --conf `` --conf expandable_segments:True --json " SMALL " " OTHER}};
    for (size_t i = 0; i < 2; i++) {
        char *one = command_answer(lines[i][0]), *many = command_answer(lines[i][1]);
        assert_int_equal(one[0], '{');
        assert_int_equal(text_count(many, "\"policy\":"), 8);
        assert_int_equal(text_count(many, "\"conf\":\"expandable_segments:True\""), 4);
        assert_int_equal(strncmp(many, "[{\"trace\":", 10), 0);
        assert_true(strstr(many, "\"policy\":\"pytorch\"") < strstr(many, "\"policy\":\"first-fit\""));
        free(one);
        free(many);
    }
}

/* Each line has as many fields as the first. */
TEST(test_csv)
{
    char *texts[] = {command_answer("compare --csv --policies pytorch,none --memory-limit=100M " SMALL),
                     command_answer("frontier --csv --policies pytorch,none " SMALL)};
    for (size_t i = 0; i < 2; i++) {
        char *save = NULL;
        char *line = strtok_r(texts[i], "\r\n", &save);
        size_t fields = text_count(line, ","), lines = 0;
        assert_int_equal(strncmp(line, "trace,policy,conf,", 18), 0);
        while ((line = strtok_r(NULL, "\r\n", &save)) != NULL) {
            assert_int_equal(text_count(line, ","), fields);
            lines++;
        }
        assert_int_equal(lines, 2);
        free(texts[i]);
    }
}

TEST(test_tables)
{
    EXPECT(0, "compare --policies pytorch,none " SMALL, "multistream_record", "peak reserved", "\n  none ", "\n  none ",
           "GMLake");
    EXPECT(0, "frontier " SMALL, "\n  pytorch  78.0 MiB (81,788,928)   1.136 ", "!none");
}

/* Buffers that grow: each is freed before the next, larger one. */
static const char growing[] =
    "INSERT INTO process(id, pid, executable, start_ns, end_ns) VALUES (1, 500, 'python3', 0, 30000000);"
    "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 0, 500, 500);"
    "INSERT INTO meta VALUES ('complete', 1);"
    "INSERT INTO event(seq, ts_ns, thread_id, device, kind, stream, pool, id, addr, size, requested, arg, cause) "
    "VALUES "
    "(1, 1000, 1, 0, 6, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(2, 1000, 1, 0, 1, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(3, 1000, 1, 0, 2, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(4, 1000, 1, 0, 3, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(5, 1000, 1, 0, 6, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0),"
    "(6, 1000, 1, 0, 1, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0),"
    "(7, 1000, 1, 0, 2, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0),"
    "(8, 1000, 1, 0, 3, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0);";

TEST(test_answer)
{
    trace_database_make("growing.db", (const char *const[]){NULL});
    sql_run("growing.db", growing);
    EXPECT(0, "advise growing.db", "export PYTORCH_ALLOC_CONF=expandable_segments:True\n",
           "peak reserved             120 MiB  80.0 MiB\n", "needs at least", "modelled time", "lost at the peak",
           "cached whole segments", "PYTORCH_CUDA_ALLOC_CONF", "varve replay --conf");
    EXPECT(0, "advise --json growing.db", "\"memory_limit\":null", "\"load_bytes\":83886080",
           "\"cached_segments\":41943040",
           "\"conf\":\"expandable_segments:True\",\"reason\":\"best\",\"peak_reserved\":83886080");
    /* given back when the device is full: it fits, after a retry */
    EXPECT(0, "advise --capacity 100M growing.db", "100 MiB: fits as it is\n", "headroom", "retries");
    EXPECT(2, "advise --capacity 79M growing.db", "largest request is 80.0 MiB");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
