/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve advise`: an answer of a small trace has every part. What it advises: tests/conformance/test_advise.py.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <string.h>

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
