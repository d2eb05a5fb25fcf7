/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve segments` and `varve oom`: a moment by number and by time, and databases that say what cannot be. The states
 * themselves are compared with PyTorch's by tests/conformance/test_replay_pytorch.py, the words are the golden tests'.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int enter(void **state)
{
    *state = test_folder_enter();
    trace_database_make("t.db", (const char *const[]){"blocks.sql", NULL});
    return 0;
}

/* The state at an event is that at its time, until the next one happens. */
TEST_WITH(test_moments, enter, test_folder_teardown)
{
    char *times =
        command_answer("query --no-header --csv t.db `SELECT seq, lead(ts_ns) OVER (ORDER BY seq) - 1 FROM event`");
    size_t compared = 0;
    for (char *rest = times, *line; (line = strsep(&rest, "\n")) != NULL && strchr(line, ',') != NULL;) {
        long long seq, ns = -1;
        if (sscanf(line, "%lld,%lld", &seq, &ns) == 2) {
            char by_number[100], by_time[100];
            snprintf(by_number, sizeof(by_number), "segments --json --at %lld t.db", seq);
            snprintf(by_time, sizeof(by_time), "segments --json --at %lldns t.db", ns);
            char *one = command_answer(by_number), *same = command_answer(by_time);

            assert_string_equal(one, same);
            compared++;
            free(one);
            free(same);
        }
    }
    assert_true(compared > 10);
    free(times);
    EXPECT(0, "segments --device 7 t.db", "no caching allocator");
}

/* Requests that no allocator can have had: no block is looked for behind the last one. Then a keyframe that is none. */
TEST_WITH(test_damage, enter, test_folder_teardown)
{
    static const char *const requested[] = {"0", "-1", "4611686018427387904", "9223372036854775807"};
    for (size_t i = 0; i < sizeof(requested) / sizeof(requested[0]); i++) {
        char sql[100];
        snprintf(sql, sizeof(sql), "UPDATE oom SET requested = %s", requested[i]);
        sql_run("t.db", sql);
        EXPECT(0, "oom t.db", "");
    }
    sql_run("t.db", "INSERT INTO keyframe(seq, process_id, device, data) VALUES (5, 1, 0, x'01000a')");
    EXPECT(2, "segments t.db", "keyframe of device 0 is damaged");
}
