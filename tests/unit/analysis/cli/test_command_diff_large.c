/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve diff --events` on half a million events, in memory that does not grow with what one side lacks.
 */
#include <cmocka.h>

#include "support/command.h"
#include "support/random.h"

#include "trace/trace.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LARGE_EVENTS 100000 /* all is slower, and memory says nothing */
#define KIB_MAX LONG_MAX
#else
#define LARGE_EVENTS 500000
#define KIB_MAX (200L << 10)
#endif

static void large_make(const char *path)
{
    struct varve_writer *writer;
    struct varve_message message;
    uint64_t seed = 1;

    assert_int_equal(varve_writer_open(path, true, &writer, &message), 0);
    for (uint64_t i = 0; i < LARGE_EVENTS; i += 2) {
        struct varve_record record = {
            .addr = 0x10000000 + (i % 9973) * 4096,
            .size = 1 + (random_next(&seed) >> 50),
            .dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_HEAP_ALLOC, 0),
            .cause = VARVE_CAUSE_MALLOC,
        };

        assert_int_equal(varve_writer_event(writer, &record, (int64_t)i * 100), 0);
        record.dev_seq_kind_flags = varve_record_tag(0, VARVE_KIND_HEAP_FREE, 0);
        record.cause = VARVE_CAUSE_FREE;
        assert_int_equal(varve_writer_event(writer, &record, (int64_t)i * 100 + 50), 0);
    }
    assert_int_equal(varve_writer_finish(writer, NULL, NULL, &message), 0);
}

/* Run in a child, whose memory is its own. Returns how much it took, in KiB. */
static long expect_large(const char *option, int status, const char *words)
{
    struct rusage usage;
    int wait_status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct command_outcome outcome =
            command_run("diff", "--events", option, "a_large.db", "b_large.db", NULL);
        bool is_right = outcome.status == status && strstr(outcome.out, words) != NULL;

        if (!is_right) {
            fprintf(stderr, "status %d: %s%s\n", outcome.status, outcome.out, outcome.err);
        }
        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(wait4(child, &wait_status, 0, &usage), child);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    assert_true(usage.ru_maxrss < KIB_MAX);
    return usage.ru_maxrss;
}

/* Two rings in turn; then one of them lacks nearly half of all events in one piece, which must not wait for
 * anything. */
TEST(test_large)
{
    char *folder = test_folder_enter();
    char words[100];
    char sql[200];
    char *bytes;
    size_t count;
    long kib_equal;

    large_make("a_large.db");
    sql_run("a_large.db", "INSERT INTO thread(id, process_id, ring, pid, tid) VALUES (2, 1, 5, 1, 2);"
                          "UPDATE event SET thread_id = 2 WHERE seq % 2 = 0");
    bytes = file_read("a_large.db", &count);
    file_write("b_large.db", bytes, count);
    free(bytes);
    kib_equal = expect_large("--json", 0, "\"equal\":true");
    snprintf(sql, sizeof(sql),
             "DELETE FROM event WHERE thread_id = 2 AND seq BETWEEN 1000 AND %d;"
             "UPDATE event SET size = 7777777 WHERE seq = %d",
             LARGE_EVENTS - 1000, LARGE_EVENTS - 501);
    sql_run("b_large.db", sql);
    snprintf(words, sizeof(words), "\"only_in_a\":%d,\"only_in_b\":0,\"differing\":1,",
             (LARGE_EVENTS - 2000) / 2 + 1);
    assert_true(expect_large("--json", 1, words) < kib_equal + (32L << 10));
    expect_large("--quiet", 1, "");
    test_folder_leave(folder);
}
