/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `varve doctor`, its lines on LTTng, with scripts in the place of lttng and lttng-sessiond: a daemon that answers, one that
 * does not, none; sessions of recorders that are gone. LTTng itself is not asked.
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
    char path[8192];

    (void)state;
    folder = test_folder_enter();
    file_write("lttng-sessiond", daemon, sizeof(daemon) - 1);
    assert_int_equal(chmod("lttng-sessiond", 0755), 0);
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

static void expect(const char *text, bool is_there)
{
    struct command_outcome outcome = command_run("doctor", "--json", NULL);
    bool is_found = strstr(outcome.out, text) != NULL;

    assert_int_equal(outcome.status, 0);
    if (is_found != is_there) {
        fail_msg("%s: %s", is_there ? "missing" : "not wanted", text);
    }
    command_outcome_free(&outcome);
}

TEST(test_daemon)
{
    lttng_is("echo 'Error: none' >&2; exit 1");
    expect("{\"key\":\"lttng_tools\",\"state\":\"ok\",\"found\":\"LTTng 2.99.7, ", true);
    expect("{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"none runs; ", true);
    lttng_is("echo '<sessions><session><name>one</name></session></sessions>'");
    expect("{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"runs; it has 1 session\"", true);
    lttng_is("sleep 600");
    expect("{\"key\":\"lttng_daemon\",\"state\":\"warning\",\"found\":\"the session daemon does not answer",
           true);
}

TEST(test_sessions)
{
    char list[1024];
    pid_t gone = fork();

    if (gone == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    snprintf(list, sizeof(list),
             "for name in varve-%d-00abcd varve-1-00abcd varve-x varve- other-%d-1; do\n"
             "    echo \"<session><name>$name</name></session>\"\n"
             "done",
             (int)gone, (int)gone);
    lttng_is(list);
    snprintf(list, sizeof(list),
             "{\"key\":\"lttng_session\",\"state\":\"warning\",\"found\":\"varve-%d-00abcd\"", (int)gone);
    expect(list, true);
    expect("\"found\":\"varve-x\"", false);
    expect("\"found\":\"varve-\"", false);
    expect("\"found\":\"other-", false);
    expect("runs; it has 5 sessions", true);
}

/* Sessions are made by liblttng-ctl: the program lttng only shows them. */
TEST(test_tools_missing)
{
    const char *given = getenv("PATH");
    char *path = strdup(given != NULL ? given : "");

    assert_int_equal(setenv("PATH", folder, 1), 0);
    unlink("lttng");
    expect("{\"key\":\"lttng_tools\",\"state\":\"ok\",\"found\":\"LTTng 2.99.7, ", true);
    expect(
        "{\"key\":\"lttng_daemon\",\"state\":\"ok\",\"found\":\"not asked for its sessions: no lttng in PATH",
        true);
    assert_int_equal(unlink("lttng-sessiond"), 0);
    expect("{\"key\":\"lttng_tools\",\"state\":\"missing\",\"found\":\"no lttng-sessiond in PATH\"", true);
    expect("\"lttng_daemon\"", false);
    assert_int_equal(setenv("PATH", path, 1), 0);
    free(path);
}

TEST_FILE(setup, teardown)
