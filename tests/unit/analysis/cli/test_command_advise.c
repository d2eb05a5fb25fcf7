/* SPDX-License-Identifier: Apache-2.0 */
/* `varve advise`: what it refuses, and that an answer of a small trace has every part. What it advises: tests/conformance/test_advise.py. */
#include <cmocka.h>

#include "support/command.h"

#include <string.h>

/* Buffers that grow: each is freed before the next, larger one. */
static const char growing[] =
    "INSERT INTO process(id, pid, executable, start_ns, end_ns) VALUES (1, 500, 'python3', 0, 30000000);"
    "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 0, 500, 500);"
    "INSERT INTO meta VALUES ('complete', 1);"
    "INSERT INTO event(seq, ts_ns, thread_id, device, kind, stream, pool, id, addr, size, requested, arg, cause) VALUES "
    "(1, 1000, 1, 0, 6, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(2, 1000, 1, 0, 1, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(3, 1000, 1, 0, 2, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(4, 1000, 1, 0, 3, 0, 0, 1, 4294967296, 41943040, 41943040, 1, 0),"
    "(5, 1000, 1, 0, 6, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0),"
    "(6, 1000, 1, 0, 1, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0),"
    "(7, 1000, 1, 0, 2, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0),"
    "(8, 1000, 1, 0, 3, 0, 0, 2, 8589934592, 83886080, 83886080, 2, 0);";

static void expect(struct command_outcome outcome, const char *const *words)
{
    if (outcome.status != 0) {
        fail_msg("%s", outcome.err);
    }
    for (; *words != NULL; words++) {
        if (strstr(outcome.out, *words) == NULL) {
            fail_msg("no %s in\n%s", *words, outcome.out);
        }
    }
    command_outcome_free(&outcome);
}

TEST(test_answer)
{
    trace_database_make("growing.db", (const char *const[]){NULL});
    sql_run("growing.db", growing);
    expect(command_run("advise", "growing.db", NULL),
           (const char *const[]){"export PYTORCH_ALLOC_CONF=expandable_segments:True\n",
                                 "PYTORCH_CUDA_ALLOC_CONF", "peak reserved", "120 MiB  80.0 MiB\n",
                                 "needs at least", "modelled time", "lost at the peak",
                                 "cached whole segments", "varve replay --conf", NULL});
    expect(command_run("advise", "--json", "growing.db", NULL),
           (const char *const[]){"\"conf\":\"expandable_segments:True\"", "\"reason\":\"best\"",
                                 "\"peak_reserved\":83886080", "\"cached_segments\":41943040",
                                 "\"load_bytes\":83886080", "\"memory_limit\":null", NULL});
    /* given back when the device is full: it fits, after a retry */
    expect(command_run("advise", "--capacity", "100M", "growing.db", NULL),
           (const char *const[]){"100 MiB: fits as it is\n", "headroom", "retries", NULL});
}

TEST(test_refusals)
{
    command_refused(command_run("advise", "small.db", NULL), "no GPU part",
                    "no events of a caching allocator");
    command_refused(command_run("advise", "nosuch.pickle", NULL), "no file", "nosuch.pickle");
    command_refused(command_run("advise", "--capacity", "79M", "growing.db", NULL), "too small",
                    "largest request is 80.0 MiB");
    command_refused(command_run("advise", "--capacity", "0", "growing.db", NULL), "no size", "--capacity");
    command_refused(command_run("advise", "--capacity", "much", "growing.db", NULL), "no size", "--capacity");
}

TEST_FILE(test_folder_small_setup, test_folder_teardown)
