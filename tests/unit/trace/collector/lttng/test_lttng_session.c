/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lttng_session*.c with the real LTTng: sessions alone, side by side and beside those of others, killed
 * programs, killed recorders, killed daemons. Nothing of ours may be left afterwards, and nothing of others
 * be missing. What is called, and what happens when a call fails or hangs: test_lttng_session_steps.c.
 */
#include "support/lttng_session.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct varve_message message;

static struct lttng_session_options options_for(const char *name)
{
    struct lttng_session_options options = {
        .name = name, .output = place("trace-%s", name), .shm = shm_place(name), .buffer_bytes = 1};

    return options;
}

static struct lttng_session *must_start(const char *name)
{
    struct lttng_session_options options = options_for(name);
    struct lttng_session *session;

    if (lttng_session_start(&options, &session, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    assert_non_null(session);
    return session;
}

static void must_stop(struct lttng_session *session, struct lttng_session_loss *loss)
{
    if (lttng_session_stop(session, loss, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

static void test_life(void **state)
{
    struct lttng_session_loss loss = {1, 1};
    struct lttng_session *session;

    (void)state;
    lttng_or_skip();
    assert_int_equal(daemon_pid(), 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    session = must_start("life");
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
    assert_false(exists(shm_place("life")));
    assert_int_equal(family_size(), 0);
}

static void test_side_by_side(void **state)
{
    struct lttng_session *first;
    struct lttng_session *second;
    pid_t pid;

    (void)state;
    lttng_or_skip();
    first = must_start("first");
    second = must_start("second");
    pid = daemon_pid();
    emit(100, "");
    must_stop(first, NULL);
    assert_int_equal(daemon_pid(), pid);
    emit(100, "");
    must_stop(second, NULL);
    assert_int_equal(family_size(), 0);
    assert_events(100, place("trace-first"));
    assert_events(200, place("trace-second"));
}

/* A daemon that was there and its session are as they were. */
static void test_daemon_of_others(void **state)
{
    struct lttng_session_options options = options_for("ours");
    struct lttng_session *session;
    struct lttng_session *twin;
    pid_t pid;

    (void)state;
    lttng_or_skip();
    shell("lttng-sessiond --daemonize --no-kernel");
    shell("lttng create theirs --output=%s", place("theirs"));
    pid = daemon_pid();
    session = must_start("ours");
    assert_true(holds(place("home/.lttngrc"), "session=theirs\n"));

    options.output = place("taken");
    options.shm = shm_place("taken");
    assert_int_equal(lttng_session_start(&options, &twin, &message), VARVE_ERROR_IO);
    assert_non_null(strstr(message.text, "already exists"));
    assert_false(exists(options.shm));

    options.name = "other";
    shell("mkdir %s && touch %s/file", place("taken"), place("taken"));
    assert_int_equal(lttng_session_start(&options, &twin, &message), VARVE_ERROR_INVALID);
    assert_non_null(strstr(message.text, "needs a new or an empty folder"));

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
static void test_killed(void **state)
{
    struct lttng_session *session;

    (void)state;
    lttng_or_skip();
    session = must_start("killed");
    emit(2999, "kill");
    must_stop(session, NULL);
    assert_events(2999, place("trace-killed"));
}

/* Killed in the middle of an event: LTTng's consumer does not get past that place, and `lttng destroy` would
 * wait for it. In about one kill of four; but all must end, soon, and leave nothing. */
static void test_killed_in_an_event(void **state)
{
    (void)state;
    lttng_or_skip();
    lttng_tool_limit_set(UINT64_C(60000000000)); /* which any wait for ever would take */
    for (int i = 0; i < 4; i++) {
        struct lttng_session *session = must_start("storm");

        emit(1, "storm");
        must_stop(session, NULL);
        assert_false(exists(shm_place("storm")));
        assert_int_equal(family_size(), 0);
        shell("rm -rf %s", place("trace-storm"));
    }
    lttng_tool_limit_set(UINT64_C(20000000000));
}

static void test_discarded(void **state)
{
    struct lttng_session_loss loss;
    struct lttng_session *session;

    (void)state;
    lttng_or_skip();
    session = must_start("discarded");
    emit(1, ""); /* the consumer is there from now on */
    consumer_signal(SIGSTOP);
    emit(100000, "");
    consumer_signal(SIGCONT);
    must_stop(session, &loss);
    assert_in_range(loss.discarded_events, 1, 99999);
    assert_events(100001 - loss.discarded_events, place("trace-discarded"));
}

/* The recorder was killed: another process takes its session over, or what is left of it. */
static void test_adopt(void **state)
{
    struct lttng_session_options options = options_for("orphan");
    struct lttng_session *session;
    int status;
    pid_t pid;

    (void)state;
    lttng_or_skip();
    assert_int_equal(lttng_session_adopt(&options, &session, &message), VARVE_ERROR_NOT_FOUND);
    assert_null(session);
    pid = fork();
    if (pid == 0) {
        _exit(lttng_session_start(&options, &session, NULL) == VARVE_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    emit(10, "");
    assert_int_equal(lttng_session_adopt(&options, &session, &message), VARVE_OK);
    must_stop(session, NULL);
    assert_events(10, place("trace-orphan"));
    assert_false(exists(options.shm));
    assert_int_equal(family_size(), 0);
}

/* Nothing of it stays but the trace, as far as it goes. */
static void daemon_killed(const char *name, bool consumer_too)
{
    struct lttng_session_options options = options_for(name);
    struct lttng_session *session = must_start(name);

    emit(77, "");
    if (consumer_too) {
        consumer_signal(SIGKILL);
        family_kill(SIGKILL);
    } else {
        assert_int_equal(kill(daemon_pid(), SIGKILL), 0);
        family_wait();
    }
    assert_int_equal(lttng_session_stop(session, NULL, &message), VARVE_ERROR_IO);
    assert_non_null(strstr(message.text, "No session daemon"));
    assert_true(exists(options.shm));
    assert_int_equal(lttng_session_adopt(&options, &session, &message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(session);
    must_stop(session, NULL);
    assert_false(exists(options.shm));
}

static void test_daemon_killed(void **state)
{
    (void)state;
    lttng_or_skip();
    daemon_killed("dead", true);
    daemon_killed("headless", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_daemon_of_others),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_killed_in_an_event),
        cmocka_unit_test(test_discarded),
        cmocka_unit_test(test_adopt),
        cmocka_unit_test(test_daemon_killed),
    };

    return cmocka_run_group_tests(tests, place_make, place_remove);
}
