/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chapters of `varve report` that are there for some recordings only, on the golden databases with a change each: what
 * they say as they are is in tests/golden.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>

static void make(const char *script, const char *sql)
{
    remove("t.db");
    trace_database_make("t.db", (const char *const[]){script, NULL});
    sql_run("t.db", sql);
}

TEST(test_gpu)
{
    make("gpu.sql", "UPDATE device SET name = 'Fake ' || char(27) || '[31mGPU' WHERE id = 0;"
                    "UPDATE device SET name = NULL, total_bytes = NULL, uuid = NULL WHERE id = 1");
    EXPECT(0, "report --all t.db", "GPU 0  Fake ?[31mGPU, 140 GiB", "GPU 1  (no name)\n");
    EXPECT(0, "report --json t.db", "\"name\":\"Fake \\u001b[31mGPU\"");
    /* the allocation that CUPTI missed is gone: both recorders agree */
    make("gpu.sql", "DELETE FROM allocation_row WHERE size = 1073741824;"
                    "UPDATE total_stat SET allocations = 2 WHERE domain = 3 AND process_id = 1");
    EXPECT(0, "report --all t.db", "CUDA recorder and CUPTI recorded the same 2 allocations\n");
    EXPECT(0, "report --json t.db", "\"agree\":true,\"by_cuda\":2,\"by_cupti\":2,\"differences\":[]");
    make("nothing.sql", "SELECT 1");
    EXPECT(0, "report --json t.db", "!\"gpu\"", "!\"rematerialization\"");
    EXPECT(0, "report --all t.db", "!CUPTI", "!Rematerialization");
}

TEST(test_rematerialization)
{
    make("remat.sql", "DELETE FROM remat_failure_stat");
    EXPECT(0, "report --all t.db", "\nRematerialization\n", "!did not get", "6,536 storages recomputed");
    make("remat.sql",
         "UPDATE operator_stat SET name = 'an operator whose name is ' || char(27) || '[31mlonger than that' "
         "WHERE name = 'matmul'");
    EXPECT(0, "report --all t.db", "an operator whose name is ?[31ml");
}

TEST_FILE(test_folder_setup, test_folder_teardown)
