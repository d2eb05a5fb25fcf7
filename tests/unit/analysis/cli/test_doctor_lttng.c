/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, its lines on LTTng, with scripts in the place of lttng and lttng-sessiond: a daemon that answers, one
 * that does not, none; sessions of recorders that are gone. LTTng itself is not asked.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *folder;

static int setup(void **state)
{
    static const char daemon[] = "#!/bin/sh\n[ \"$1\" = --version ] && echo 2.99.7\n";
    (void)state;
    folder = test_folder_enter();
    file_write("lttng-sessiond", daemon, sizeof(daemon) - 1);
    assert_int_equal(chmod("lttng-sessiond", 0755), 0);
    char path[8192];
    snprintf(path, sizeof(path), "%s:%s", folder, getenv("PATH") != NULL ? getenv("PATH") : "/usr/bin:/bin");
    return setenv("PATH", path, 1);
}

static int teardown(void **state)
{
    (void)state;
    test_folder_leave(folder);
    return 0;
}

/* The answer to `list`: a line of shell. */
static void lttng_is(const char *list)
{
    char script[4096];
    int length = snprintf(script, sizeof(script),
                          "#!/bin/sh\n"
                          "[ \"$*\" = '--no-sessiond --mi xml list' ] || exit 9\n"
                          "%s\n",
                          list);
    unlink("lttng");
    file_write("lttng", script, (size_t)length);
    assert_int_equal(chmod("lttng", 0755), 0);
}

TEST(test_daemon)
{
    lttng_is("echo 'Error: none' >&2; exit 1");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_tools\",\"state\":\"ok\",\"found\":\"LTTng 2.99.7, ");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"none runs; ");
    lttng_is("echo '<sessions><session><name>one</name></session></sessions>'");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"runs; it has 1 session\"");
    lttng_is("sleep 600");
    EXPECT(0, "doctor --json",
           "{\"key\":\"lttng_daemon\",\"state\":\"warning\",\"found\":\"the session daemon does not answer");
}

TEST(test_sessions)
{
    pid_t gone = fork();
    if (gone == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    char list[1024];
    snprintf(list, sizeof(list),
             "for name in varve-%d-00abcd varve-1-00abcd varve-x varve- other-%d-1; do\n"
             "    echo \"<session><name>$name</name></session>\"\n"
             "done",
             (int)gone, (int)gone);
    lttng_is(list);
    snprintf(list, sizeof(list), "{\"key\":\"lttng_session\",\"state\":\"warning\",\"found\":\"varve-%d-00abcd\"",
             (int)gone);
    EXPECT(0, "doctor --json", list);
    EXPECT(0, "doctor --json", "!\"found\":\"varve-x\"");
    EXPECT(0, "doctor --json", "!\"found\":\"varve-\"");
    EXPECT(0, "doctor --json", "!\"found\":\"other-");
    EXPECT(0, "doctor --json", "runs; it has 5 sessions");
}

/* Sessions are made by liblttng-ctl: the program lttng only shows them. */
TEST(test_tools_missing)
{
    const char *given = getenv("PATH");
    char *path = strdup(given != NULL ? given : "");
    assert_int_equal(setenv("PATH", folder, 1), 0);
    unlink("lttng");
    EXPECT(0, "doctor --json", "{\"key\":\"lttng_tools\",\"state\":\"ok\",\"found\":\"LTTng 2.99.7, ");
    EXPECT(0, "doctor --json",
           "{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"not asked for its sessions: no lttng in PATH");
    assert_int_equal(unlink("lttng-sessiond"), 0);
    EXPECT(0, "doctor --json",
           "{\"key\":\"lttng_tools\",\"state\":\"missing\",\"found\":\"no lttng-sessiond in PATH\"");
    EXPECT(0, "doctor --json", "!\"lttng_daemon\"");
    assert_int_equal(setenv("PATH", path, 1), 0);
    free(path);
}

TEST_FILE(setup, teardown)
