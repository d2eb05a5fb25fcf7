/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve top` of what is no recording: one line each. What it shows of recordings is in tests/conformance/test_top.py.
 */
#include <cmocka.h>

#include "support/command.h"

#include <sys/stat.h>

TEST(test_no_recordings)
{
    command_refused(command_run("top", "nothing.db", NULL), "no file",
                    "no recording nothing.db is under way");
    command_refused(command_run("top", "small.db", NULL), "a finished database", "varve report");
    command_refused(command_run("top", "1", NULL), "a process that records nothing", "records nothing");
    command_refused(command_run("top", "99999999999", NULL), "no process at all", "no recording");
    command_refused(command_run("top", ".", NULL), "any folder", "not a recording directory");
    assert_int_equal(mkdir("small.db.d", 0700), 0);
    command_refused(command_run("top", "small.db", NULL), "an empty folder", "not a recording directory");
}

TEST(test_options)
{
    command_refused(command_run("top", "--every", "0.2", "small.db", NULL), "more often than figures come",
                    "--every");
    command_refused(command_run("top", "--sort", "size", "small.db", NULL), "no order", "--sort");
    command_refused(command_run("top", "-n", "0", "small.db", NULL), "no row", "--top");
    command_refused(command_run("top", "a", "b", NULL), "two recordings", "b");
}

TEST_FILE(test_folder_small_setup, test_folder_teardown)
