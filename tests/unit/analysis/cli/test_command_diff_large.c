/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff --events` in memory that does not grow with what one side lacks: two rings in turn, then one of them
 * lacks nearly half of all events in one piece, which must not wait for anything.
 * Costs: 3 s, full 11 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EVENT_BYTES 1000000 /* memory says nothing */
#else
#define EVENT_BYTES 64 /* of one that is kept, at least */
#endif

/* Run in a child, whose memory is its own. Returns how much it took, in KiB. */
static long run_alone(int status, const char *words)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct command_outcome outcome = command_run_line("diff --events --json a.db b.db");
        bool is_right = outcome.status == status && strstr(outcome.out, words) != NULL;
        if (!is_right) {
            fprintf(stderr, "status %d: %s%s\n", outcome.status, outcome.out, outcome.err);
        }
        _exit(is_right ? 0 : 1);
    }
    struct rusage usage;
    int wait_status;
    assert_int_equal(wait4(child, &wait_status, 0, &usage), child);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    return usage.ru_maxrss;
}

TEST(test_large)
{
    int events = test_is_full() ? 500000 : 100000;
    char *folder = test_folder_enter(), sql[700], words[100];
    trace_database_make("a.db", (const char *const[]){NULL});
    snprintf(sql, sizeof(sql),
             "INSERT INTO meta VALUES ('complete', 1);"
             "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (1, 1, 1, 1, 1), (2, 1, 2, 1, 2);"
             "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < %d) "
             "INSERT INTO event(seq, ts_ns, pid, tid, kind, addr, size, id, thread_id, flags, ring_seq) "
             "SELECT seq, seq * 50, 1, 1, 33 - seq %% 2, seq / 2 %% 9973 * 4096, seq * 7919 %% 16384, (seq + 1) / 2, "
             "1 + seq %% 2, 0, (seq + 1) / 2 FROM n",
             events);
    sql_run("a.db", sql);
    size_t count;
    char *bytes = file_read("a.db", &count);

    file_write("b.db", bytes, count);
    free(bytes);
    long kib = run_alone(0, "\"equal\":true");

    snprintf(sql, sizeof(sql),
             "DELETE FROM event WHERE thread_id = 2 AND seq BETWEEN 1000 AND %d;"
             "UPDATE event SET size = 7777777 WHERE seq = %d",
             events - 1000, events - 502);
    sql_run("b.db", sql);
    snprintf(words, sizeof(words), "\"only_in_a\":%d,\"only_in_b\":0,\"differing\":1,", (events - 2000) / 2);
    long kib_apart = run_alone(1, words);

    if (kib_apart - kib >= (long)events / 2 * EVENT_BYTES / 1024) {
        fail_msg("%ld KiB and then %ld", kib, kib_apart);
    }
    test_folder_leave(folder);
}
