/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the end of a recording advises where its database is large: how large it would have been with less in it.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include "analysis/query/loss_note.h"
#include "trace/collect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is said of small.db once its file has that many bytes, at whose end there is a hole. */
static char *advice_at(long long bytes)
{
    struct varve_collect_result result = {.database_path = "small.db"};
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(truncate("small.db", bytes), 0);
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    report_result_size(out, &result);
    fclose(out);
    return text;
}

static void check_advice(long long bytes, const char *words, const char *not_said)
{
    char *text = advice_at(bytes);
    if ((words[0] == '\0' && text[0] != '\0') || strstr(text, words) == NULL || strstr(text, not_said) != NULL) {
        fail_msg("%lld bytes: %s", bytes, text);
    }
    free(text);
}

TEST_WITH(test_advice, test_folder_small_setup, test_folder_teardown)
{
    check_advice(100000000, "", "varve");
    check_advice(205000000, "the database has 196 MiB; with --keep totals it would have about", "--max-size");
    check_advice(2097152000, ", with --max-size 200M that size, and rows of about the first 10 % of the events\n", "?");
    check_advice(100000000000, "the database has 93.1 GiB; with --keep totals it would have about", "--max-size");
}
