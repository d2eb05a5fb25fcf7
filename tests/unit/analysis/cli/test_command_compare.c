/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve compare` and `varve frontier` as commands: their layouts, what is one answer and what an array. Figures are
 * compared with replays by tests/conformance/test_compare.py.
 * Runs threads: plays.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdlib.h>
#include <string.h>

#define TRACES VARVE_SOURCE_DIR "/tests/conformance/pytorch/"

#define SMALL TRACES "multistream_record.pickle.xz"
#define OTHER TRACES "cudagraph_private_pool.pickle.xz"

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        count++;
    }
    return count;
}

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
        assert_int_equal(count_of(many, "\"policy\":"), 8);
        assert_int_equal(count_of(many, "\"conf\":\"expandable_segments:True\""), 4);
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
        size_t fields = count_of(line, ","), lines = 0;
        assert_int_equal(strncmp(line, "trace,policy,conf,", 18), 0);
        while ((line = strtok_r(NULL, "\r\n", &save)) != NULL) {
            assert_int_equal(count_of(line, ","), fields);
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
    EXPECT(0, "frontier " SMALL, "\n  pytorch ", "!none");
}
