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
    assert_string_equal(from_file, "main,12,69431296\nload_batch,10,20971520\nparse_line,41,11350\n,,372\n");
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
