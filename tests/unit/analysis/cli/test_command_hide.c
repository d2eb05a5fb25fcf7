/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --hide and the file of the configuration folder: the user's line by other patterns, the same in reports and in SQL;
 * patterns that hide everything.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASK(option)                            \
    "query small.db --csv --no-header " option \
    " `SELECT user_function, user_line, sum(bytes) FROM callsite_total GROUP BY 1, 2 ORDER BY 3 DESC, 1`"

/* A pattern of the command line, and of the file, takes the largest line away. */
TEST(test_file)
{
    char *before = command_answer(ASK("")), line[256];
    assert_non_null(strchr(before, ','));
    char *hidden = command_answer(ASK("--hide function:map_weights"));
    snprintf(line, sizeof(line), "# ours\n[plumbing]\nfunction = %.*s\n", (int)strcspn(before, ","), before);
    assert_string_equal(line, "# ours\n[plumbing]\nfunction = map_weights\n");
    assert_int_equal(setenv("VARVE_CONFIG", "config", 1), 0);
    file_write("config", line, strlen(line));
    char *from_file = command_answer(ASK(""));
    assert_string_equal(from_file, "main,12,69431296\nload_batch,10,20971520\nparse_line,41,11350\n,,372\n");
    assert_string_equal(hidden, from_file);
    file_write("config", "[plumbing]\nfile = a\nmodule =\n", 28);
    EXPECT(2, "report small.db", "config:3: pattern '': nothing to look for");
    assert_int_equal(unsetenv("VARVE_CONFIG"), 0);
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
