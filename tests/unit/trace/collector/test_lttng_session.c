/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LTTng's sessions with the real LTTng: alone, side by side and beside those of others, killed programs, killed
 * recorders, daemons that are killed, hang or do not start. Nothing of ours may be left afterwards, and nothing of
 * others be missing.
 * Costs: 2 s
 */
#include "support/lttng/session.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct varve_message message;

static struct lttng_recording_options options_for(const char *name)
{
    struct lttng_recording_options options = {.name = name, .output = place("trace-%s", name), .buffer_bytes = 1};
    return options;
}

static struct lttng_recording *must_start(const char *name)
{
    struct lttng_recording_options options = options_for(name);
    struct lttng_recording *session;
    if (lttng_recording_start(&options, &session, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_non_null(session);
    return session;
}

/* Nothing is started, and why is said. */
static void must_fail(const struct lttng_recording_options *options, int code, const char *words)
{
    struct lttng_recording *session;
    assert_int_equal(lttng_recording_start(options, &session, &message), code);
    assert_null(session);
    assert_non_null(strstr(message.text, words));
}

static void must_stop(struct lttng_recording *session, struct lttng_recording_loss *loss)
{
    if (lttng_recording_stop(session, loss, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

TEST(test_life)
{
    struct lttng_recording_loss loss = {1, 1};
    lttng_or_skip();
    assert_int_equal(daemon_pid(), 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    struct lttng_recording *session = must_start("life");
    assert_int_not_equal(daemon_pid(), 0);
    assert_int_not_equal(parent_pid(daemon_pid()), getpid());
    assert_false(exists(place("home/.lttngrc")));
    emit(1000, "");
    must_stop(session, &loss);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    assert_int_equal(loss.discarded_events, 0);
    assert_int_equal(loss.discarded_packets, 0);
    assert_events(1000, place("trace-life"));
    assert_family_ends();
}

TEST(test_side_by_side)
{
    lttng_or_skip();
    struct lttng_recording *first = must_start("first");
    struct lttng_recording *second = must_start("second");
    pid_t pid = daemon_pid();
    emit(100, "");
    must_stop(first, NULL);
    assert_int_equal(daemon_pid(), pid);
    emit(100, "");
    must_stop(second, NULL);
    assert_family_ends();
    assert_events(100, place("trace-first"));
    assert_events(200, place("trace-second"));
}

/* A daemon that was there and its session are as they were. */
TEST(test_daemon_of_others)
{
    struct lttng_recording_options options = options_for("ours");
    lttng_or_skip();
    shell("lttng-sessiond --daemonize --no-kernel");
    shell("lttng create theirs --output=%s", place("theirs"));
    pid_t pid = daemon_pid();
    struct lttng_recording *session = must_start("ours");
    assert_true(holds(place("home/.lttngrc"), "session=theirs\n"));

    options.output = place("taken");
    must_fail(&options, VARVE_ERROR_IO, "already exists");
    emit(50, "");
    must_stop(session, NULL);
    assert_events(50, place("trace-ours"));
    assert_int_equal(daemon_pid(), pid);
    assert_true(holds(place("home/.lttngrc"), "session=theirs\n"));
    shell("lttng destroy theirs");
    session = must_start("again");
    must_stop(session, NULL);
    assert_int_equal(daemon_pid(), pid); /* idle now, and yet not ours to end */
    family_kill(SIGTERM);
}

/* Between two events: LTTng delivers all. */
TEST(test_killed)
{
    lttng_or_skip();
    struct lttng_recording *session = must_start("killed");
    emit(2999, "kill");
    must_stop(session, NULL);
    assert_events(2999, place("trace-killed"));
}

/* Killed in the middle of an event: LTTng's consumer does not get past that place, and `lttng destroy` would
 * wait for it. In about one kill of four; but all must end, soon, and leave nothing. */
TEST(test_killed_in_an_event)
{
    lttng_or_skip();
    lttng_limit_set(UINT64_C(60000000000)); /* which any wait for ever would take */
    for (int i = 0; i < 4; i++) {
        struct lttng_recording *session = must_start("storm");
        emit(1, "storm");
        must_stop(session, NULL);
        assert_family_ends();
        shell("rm -rf %s", place("trace-storm"));
    }
    lttng_limit_set(UINT64_C(20000000000));
}

TEST(test_discarded)
{
    lttng_or_skip();
    struct lttng_recording *session = must_start("discarded");
    emit(1, ""); /* the consumer is there from now on */
    consumer_signal(SIGSTOP);
    emit(100000, "");
    consumer_signal(SIGCONT);
    struct lttng_recording_loss loss;
    must_stop(session, &loss);
    assert_in_range(loss.discarded_events, 1, 99999);
    assert_events(100001 - loss.discarded_events, place("trace-discarded"));
}

/* The recorder was killed: another process takes its session over, or what is left of it. */
TEST(test_adopt)
{
    struct lttng_recording_options options = options_for("orphan");
    lttng_or_skip();
    struct lttng_recording *session;
    assert_int_equal(lttng_recording_adopt(&options, &session, &message), VARVE_ERROR_NOT_FOUND);
    assert_null(session);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(lttng_recording_start(&options, &session, NULL) == VARVE_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    emit(10, "");
    assert_int_equal(lttng_recording_adopt(&options, &session, &message), VARVE_OK);
    must_stop(session, NULL);
    assert_events(10, place("trace-orphan"));
    assert_family_ends();
}

/* The trace stays as far as it goes. */
static void daemon_killed(const char *name, bool consumer_too)
{
    struct lttng_recording_options options = options_for(name);
    struct lttng_recording *session = must_start(name);
    emit(77, "");
    if (consumer_too) {
        consumer_signal(SIGKILL);
        family_kill(SIGKILL);
    } else {
        assert_int_equal(kill(daemon_pid(), SIGKILL), 0);
        family_wait();
    }
    assert_int_equal(lttng_recording_stop(session, NULL, &message), VARVE_ERROR_IO);
    assert_non_null(strstr(message.text, "No session daemon"));
    assert_int_equal(lttng_recording_adopt(&options, &session, &message), VARVE_ERROR_NOT_FOUND);
    assert_null(session);
}

TEST(test_daemon_killed)
{
    lttng_or_skip();
    daemon_killed("dead", true);
    daemon_killed("headless", false);
}

/* It is given up after a time, and what it was asked for is not done in its place. */
TEST(test_daemon_hangs)
{
    struct lttng_recording_options options = options_for("hanging");
    lttng_or_skip();
    shell("lttng-sessiond --daemonize --no-kernel");
    pid_t pid = daemon_pid();
    assert_int_equal(kill(pid, SIGSTOP), 0);
    lttng_limit_set(300000000);
    must_fail(&options, VARVE_ERROR_IO, "LTTng did not answer within 0.3 s");
    lttng_limit_set(UINT64_C(20000000000));
    assert_int_equal(kill(pid, SIGCONT), 0);
    family_kill(SIGTERM);
}

/* A collector ignores and blocks signals and has variables that are for the program: neither keeps the daemon from
 * ending, and the variables do not reach it. */
TEST(test_surroundings)
{
    lttng_or_skip();
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigset_t before;
    sigprocmask(SIG_BLOCK, &blocked, &before);
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(setenv("LD_PRELOAD", "libvarve-is-not-here.so", 1), 0);
    struct lttng_recording *session = must_start("around");
    assert_int_equal(unsetenv("LD_PRELOAD"), 0);
    assert_true(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
    sigprocmask(SIG_SETMASK, &before, NULL);
    char command[64];
    snprintf(command, sizeof(command), "/proc/%d/environ", (int)daemon_pid());
    shell("grep -q LTTNG_HOME %s && ! grep -q LD_PRELOAD %s", command, command);
    must_stop(session, NULL);
    assert_family_ends();
}

/* ---- what needs no LTTng ---- */

TEST(test_buffer_sizes)
{
    static const struct {
        uint64_t bytes, free_bytes;
        unsigned cpus;
        uint64_t sub_buffer_bytes;
        unsigned sub_buffers;
    } cases[] = {
        {0, UINT64_C(24) << 30, 2, 4U << 20, 16},   /* the most that is used for one CPU */
        {0, UINT64_C(24) << 30, 16, 1U << 20, 16},  /* 256 MiB in all */
        {0, UINT64_C(24) << 30, 256, 1U << 16, 16}, /* 1 MiB per CPU */
        {0, UINT64_C(64) << 20, 2, 1U << 19, 16},   /* a quarter of what is free */
        {0, 0, 2, 1U << 16, 16},
        {1, UINT64_C(24) << 30, 2, 1U << 16, 8},
        {UINT64_C(3) << 20, UINT64_C(24) << 30, 2, 1U << 16, 16}, /* rounded down */
        {UINT64_C(4) << 30, UINT64_C(24) << 30, 2, 4U << 20, 16},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lttng_buffers plan = lttng_buffers_plan(cases[i].bytes, cases[i].free_bytes, cases[i].cpus);
        if (plan.sub_buffer_bytes != cases[i].sub_buffer_bytes || plan.sub_buffers != cases[i].sub_buffers) {
            fail_msg("case %zu: %u x %llu", i, plan.sub_buffers, (unsigned long long)plan.sub_buffer_bytes);
        }
        assert_int_equal(plan.bytes, (plan.sub_buffer_bytes * plan.sub_buffers + (512U << 10)) * cases[i].cpus);
    }
    assert_true(lttng_buffers_fit(&(struct lttng_buffers){.bytes = 15U << 20}, 16U << 20));
    assert_false(lttng_buffers_fit(&(struct lttng_buffers){.bytes = 16U << 20}, 16U << 20));
    assert_true(lttng_buffers_cpus() >= (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
}

TEST(test_daemon_missing)
{
    struct lttng_recording_options options = options_for("missing");
    lttng_or_skip();
    assert_int_equal(setenv("PATH", place("nowhere"), 1), 0);
    assert_false(lttng_recording_is_possible(&message));
    assert_non_null(strstr(message.text, "lttng-sessiond is not in PATH"));
    assert_non_null(strstr(message.text, "apt install lttng-tools"));
    struct lttng_recording *session;
    must_fail(&options, VARVE_ERROR_UNSUPPORTED, "lttng-sessiond is not in PATH");
    assert_int_equal(lttng_recording_adopt(&options, &session, &message), VARVE_ERROR_UNSUPPORTED);
    assert_null(session);
    assert_int_equal(setenv("PATH", place_path, 1), 0);
}

/* One that fails to start leaves nothing; scripts in its place. */
TEST(test_daemon_fails)
{
    struct lttng_recording_options options = options_for("failing");
    lttng_or_skip();
    shell("mkdir -p %s && printf '#!/bin/sh\nexit 3\n' > %s/lttng-sessiond && chmod 755 %s/lttng-sessiond",
          place("fake"), place("fake"), place("fake"));
    char path[8192];
    snprintf(path, sizeof(path), "%s:%s", place("fake"), place_path);
    assert_int_equal(setenv("PATH", path, 1), 0);
    must_fail(&options, VARVE_ERROR_IO, "lttng-sessiond cannot be started (exit status 3)");
    assert_false(exists(options.output));
    shell("printf '#!/bin/sh\nexec sleep 600\n' > %s/lttng-sessiond", place("fake"));
    lttng_limit_set(300000000);
    must_fail(&options, VARVE_ERROR_IO, "did not answer within 0.3 s");
    lttng_limit_set(UINT64_C(20000000000));
    assert_int_equal(setenv("PATH", place_path, 1), 0);
}

TEST_FILE(place_make, place_remove)
