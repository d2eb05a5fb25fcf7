/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lttng_session*.c with scripts in the place of LTTng's programs: what they are called with and what they
 * inherit, and what is taken back when one is missing, fails or hangs.
 */
#include "support/lttng_session.h"

#include "trace/format/session.h"

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

static void test_buffer_sizes(void **state)
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

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lttng_buffers plan = lttng_buffers_plan(cases[i].bytes, cases[i].free_bytes, cases[i].cpus);

        if (plan.sub_buffer_bytes != cases[i].sub_buffer_bytes || plan.sub_buffers != cases[i].sub_buffers) {
            fail_msg("case %zu: %u x %llu", i, plan.sub_buffers, (unsigned long long)plan.sub_buffer_bytes);
        }
        assert_int_equal(plan.bytes,
                         (plan.sub_buffer_bytes * plan.sub_buffers + (512U << 10)) * cases[i].cpus);
    }
    assert_true(lttng_buffers_fit(&(struct lttng_buffers){.bytes = 15U << 20}, 16U << 20));
    assert_false(lttng_buffers_fit(&(struct lttng_buffers){.bytes = 16U << 20}, 16U << 20));
    assert_true(lttng_buffers_cpus() >= (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
}

static void test_wrong_options(void **state)
{
    static const char *const names[] = {"", "two words", "a/b", "-x;y", "\303\244"};
    struct lttng_session_options options = options_for("fine");
    struct lttng_session *session;

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        options.name = names[i];
        assert_int_equal(lttng_session_start(&options, &session, &message), VARVE_ERROR_INVALID);
        assert_int_equal(lttng_session_adopt(&options, &session, &message), VARVE_ERROR_INVALID);
        assert_null(session);
    }
    options.name = "fine";
    options.output = "trace";
    assert_int_equal(lttng_session_start(&options, &session, &message), VARVE_ERROR_INVALID);
}

static void test_tools_missing(void **state)
{
    struct lttng_session_options options = options_for("missing");
    struct lttng_session *session;

    (void)state;
    fake_begin();
    assert_true(lttng_session_is_possible(&message));
    assert_int_equal(unlink(place("fake/lttng-sessiond")), 0);
    assert_int_equal(setenv("PATH", place("fake"), 1), 0);
    assert_false(lttng_session_is_possible(&message));
    assert_non_null(strstr(message.text, "lttng-sessiond is not in PATH"));
    assert_non_null(strstr(message.text, "apt install lttng-tools"));
    assert_int_equal(lttng_session_start(&options, &session, &message), VARVE_ERROR_UNSUPPORTED);
    assert_int_equal(lttng_session_adopt(&options, &session, &message), VARVE_ERROR_UNSUPPORTED);
    assert_null(session);
    assert_false(exists(options.shm));
    fake_end();
}

static void test_calls(void **state)
{
    struct lttng_session_options options = options_for("calls");
    struct lttng_session_loss loss;
    struct lttng_session *session;

    (void)state;
    fake_begin();
    options.may_block = true;
    assert_int_equal(lttng_session_start(&options, &session, &message), VARVE_OK);
    must_stop(session, &loss);
    /* 2^63 too many, as LTTng's consumer counts them sometimes, in one of two channels */
    assert_int_equal(loss.discarded_events, 12 + 30);
    assert_int_equal(loss.discarded_packets, 3);
    assert_true(fake_has("lttng-sessiond --daemonize --no-kernel"));
    assert_true(
        fake_has("lttng --no-sessiond create calls --output=%s --shm-path=%s", options.output, options.shm));
    assert_true(fake_has("lttng --no-sessiond enable-channel --userspace --session=calls "
                         "--subbuf-size=65536 --num-subbuf=8 --discard varve "
                         "--blocking-timeout=1000000"));
    assert_true(fake_has("lttng --no-sessiond enable-channel --userspace --session=calls --subbuf-size=65536 "
                         "--num-subbuf=8 --discard varve_meta --blocking-timeout=1000000"));
    assert_true(
        fake_has("lttng --no-sessiond enable-event --userspace --session=calls --channel=varve varve:"));
    assert_true(fake_has("varve:heap_alloc,varve:heap_free,"));
    assert_true(fake_has("lttng --no-sessiond enable-event --userspace --session=calls --channel=varve_meta "
                         "varve:meta_*,varve:statedump_*"));
    assert_false(fake_has("--exclude")); /* crashes the daemon of 2.13.9 */
    assert_true(fake_has("lttng --no-sessiond start calls"));
    assert_true(fake_has("lttng --no-sessiond stop calls"));
    assert_true(fake_has("lttng --no-sessiond destroy calls --no-wait"));
    assert_false(exists(options.shm));
    fake_end();

    fake_begin();
    assert_int_equal(setenv("FAKE_FORMATS", "--trace-format", 1), 0);
    must_stop(must_start("calls"), NULL);
    assert_int_equal(unsetenv("FAKE_FORMATS"), 0);
    assert_true(fake_has("lttng --no-sessiond create calls --output=%s --shm-path=%s "
                         "--trace-format=ctf-1.8",
                         options.output, options.shm));
    assert_false(fake_has("--discard varve --blocking-timeout"));
    fake_end();
}

/* What a program of LTTng's inherits of a collector: no preload, no blocked signal, none ignored. */
static void test_surroundings(void **state)
{
    sigset_t blocked;
    sigset_t before;

    (void)state;
    fake_begin();
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    assert_int_equal(setenv("LD_PRELOAD", "libvarve-is-not-here.so", 1), 0);
    assert_int_equal(setenv(SESSION_ENVIRONMENT, "/nowhere", 1), 0);
    must_stop(must_start("around"), NULL);
    assert_int_equal(unsetenv("LD_PRELOAD"), 0);
    assert_int_equal(unsetenv(SESSION_ENVIRONMENT), 0);
    assert_true(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_true(fake_has("lttng --no-sessiond destroy around"));
    assert_false(fake_has("LD_PRELOAD"));
    assert_false(fake_has(SESSION_ENVIRONMENT));
    assert_false(fake_has("Sig"));
    assert_false(fake_has("input"));
    fake_end();
}

static void test_failing_steps(void **state)
{
    static const char *const steps[] = {"sessiond", "create", "enable-channel", "enable-event", "start"};
    struct lttng_session_options options = options_for("failing");
    struct lttng_session *session;

    (void)state;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        fake_begin();
        assert_int_equal(setenv("FAKE_FAIL", steps[i], 1), 0);
        assert_int_equal(lttng_session_start(&options, &session, &message), VARVE_ERROR_IO);
        assert_int_equal(unsetenv("FAKE_FAIL"), 0);
        assert_null(session);
        if (strstr(message.text, "no such luck") == NULL || strstr(message.text, steps[i]) == NULL) {
            fail_msg("%s: %s", steps[i], message.text);
        }
        assert_int_equal(fake_has("lttng --no-sessiond destroy failing"), i >= 2);
        assert_false(exists(options.shm));
        assert_false(exists(options.output));
        fake_end();
    }
}

/* LTTng has made the session, and then cannot write down that it is the current one. */
static void test_home_not_writable(void **state)
{
    (void)state;
    fake_begin();
    assert_int_equal(setenv("FAKE_NO_HOME", "1", 1), 0);
    must_stop(must_start("homeless"), NULL);
    assert_int_equal(unsetenv("FAKE_NO_HOME"), 0);
    assert_true(fake_has("lttng --no-sessiond start homeless"));
    assert_true(fake_has("lttng --no-sessiond destroy homeless"));
    fake_end();
}

static void test_hanging(void **state)
{
    struct lttng_session_options options = options_for("hanging");
    struct lttng_session *session;
    int naps = 0;

    (void)state;
    fake_begin();
    assert_int_equal(setenv("FAKE_HANG", "create", 1), 0);
    lttng_tool_limit_set(300000000);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    assert_int_equal(lttng_session_start(&options, &session, &message), VARVE_ERROR_IO);
    assert_non_null(strstr(message.text, "lttng create did not end within 0.3 s"));
    lttng_tool_limit_set(UINT64_C(20000000000));
    assert_int_equal(unsetenv("FAKE_HANG"), 0);
    assert_false(exists(options.shm));
    /* The script was reaped, and what it had started dies with it, as an orphan. */
    while (waitpid(-1, NULL, WNOHANG) >= 0 && naps++ < PATIENCE) {
        usleep(10000);
    }
    assert_in_range(naps, 0, PATIENCE - 1);
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
    fake_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffer_sizes),      cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_tools_missing),     cmocka_unit_test(test_calls),
        cmocka_unit_test(test_surroundings),      cmocka_unit_test(test_failing_steps),
        cmocka_unit_test(test_home_not_writable), cmocka_unit_test(test_hanging),
    };

    return cmocka_run_group_tests(tests, place_make, place_remove);
}
