/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole programs under the preload library with the fake as second sink: threads and their ends, forks,
 * execs, signal handlers, call sites, a trace that comes and goes, SIGKILL. What workload and collector emitted
 * together is what the database has; nothing in it comes from the library's own threads, which allocate too.
 * Costs: 4 s
 */
#include "support/lttng/second_sink.h"

#include <sys/stat.h>

#define PRELOAD VARVE_BUILD_DIR "/libvarve_preload.so"

/* A program of programs/ and its arguments, blanks between. */
static pid_t launch(const struct sink_run *run, const char *command)
{
    char text[256], path[512];
    char *argv[8] = {NULL};
    snprintf(text, sizeof(text), "%s", command);
    for (size_t i = 0; i < 7; i++) {
        argv[i] = strtok(i == 0 ? text : NULL, " ");
    }
    snprintf(path, sizeof(path), "%s/programs/%s", VARVE_BUILD_DIR, argv[0]);
    argv[0] = path;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        setenv(SESSION_ENVIRONMENT, run->session.directory.path, 1);
        setenv("LD_PRELOAD", PRELOAD, 1);
        execv(path, argv);
        _exit(127);
    }
    return child;
}

static void begin(struct sink_run *run, uint32_t overflow, uint32_t capacity)
{
    sink_begin(run, overflow, capacity);
    run->log->emit = 0; /* the hooks are real */
}

/* From now on: threads of the library's own in each process that opens it. */
static void follow(struct sink_run *run)
{
    sink_follow(run);
    run->log->threads_at_load = run->log->threads_at_open = 1;
}

static void expect_nothing_of_the_library_s(const struct sink_log *log)
{
    for (uint32_t i = 0; i < log->record_count; i++) {
        if (log->records[i].record.size == SINK_OWN_SIZE) {
            fail_msg("record %u, ring %u: the library's own", i, log->records[i].origin.ring);
        }
    }
}

/* Runs it to its end and compares. */
static void record(struct sink_run *run, const char *command)
{
    int wait_status = 0;
    follow(run);
    pid_t child = launch(run, command);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    sink_finish(run, command);
    if (wait_status != 0) {
        fail_msg("%s: wait status %#x", command, (unsigned)wait_status);
    }
    assert_true(verdict->figures[6] > 0);
    expect_nothing_of_the_library_s(run->log);
}

TEST(test_threads_and_their_ends)
{
    struct sink_run run;
    begin(&run, SESSION_OVERFLOW_SPILL, 64);
    record(&run, "threadend 30");
    assert_int_equal(run.log->opened, 2); /* by the program and the collector */
    assert_true(sink_count(run.log, true, 1, 5) > 0);
    assert_true(sink_count(run.log, false, 1, 0) > 0); /* late events */
    assert_int_equal(sink_count(run.log, true, 1, 0), 0);
    sink_end(&run);
}

TEST(test_forks)
{
    static const char *const commands[] = {"forker storm 20", "forker threads 5", "forker vfork"};
    struct sink_run run;
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        begin(&run, SESSION_OVERFLOW_SPILL, 256);
        record(&run, commands[i]);
        assert_true(sink_count(run.log, true, 1, SINK_ANY) > 0);
        assert_true(i == 2 || sink_count(run.log, false, 5, SINK_ANY) > 0);
        assert_true(i == 2 || sink_count(run.log, true, 5, SINK_ANY) == 0);
        sink_end(&run);
    }
}

/* Each image opens the library anew. */
TEST(test_exec)
{
    struct sink_run run;
    begin(&run, SESSION_OVERFLOW_SPILL, 256);
    record(&run, "execer chain 3");
    assert_int_equal(run.log->opened, 1 + 4);
    for (uint32_t process = 1; process <= 4; process++) {
        assert_true(sink_count(run.log, true, process, 1) > 0);
    }
    assert_true(sink_facts(run.log, "process_end ") == 4);
    sink_end(&run);
}

TEST(test_handlers_of_a_timer)
{
    struct sink_run run;
    begin(&run, SESSION_OVERFLOW_SPILL, 1024);
    run.has_handlers = true;
    record(&run, "signaler 20000");
    assert_true(sink_count(run.log, true, 1, 1) > 10000);
    sink_end(&run);
}

/* Every number of a call site that a record carries was emitted. */
TEST(test_call_sites)
{
    static uint8_t reported[65536];
    struct sink_run run;
    unsigned callsites = 0;
    begin(&run, SESSION_OVERFLOW_SPILL, 256);
    run.session.directory.control->stacks = SESSION_STACKS_NATIVE;
    run.session.directory.control->stack_depth = 16;
    record(&run, "counted");
    for (uint32_t i = 0; i < run.log->fact_count; i++) {
        unsigned number = 0;
        if (strncmp(run.log->facts[i].text, "callsite 1 ", 11) == 0 &&
            sscanf(strstr(run.log->facts[i].text, "callsite="), "callsite=%u", &number) == 1) {
            assert_true(number > 0 && number < sizeof(reported));
            assert_int_equal(reported[number]++, 0);
            callsites++;
        }
    }
    assert_true(callsites > 10 && sink_facts(run.log, "module 1 ") > 1);
    for (uint32_t i = 0; i < run.log->record_count; i++) {
        uint32_t number = run.log->records[i].record.callsite;
        assert_true(number < sizeof(reported));
        assert_true(number == 0 || reported[number] == 1);
    }
    sink_end(&run);
}

/* Four busy threads; the second sink wants their records now and then. */
static void run_switched(uint32_t overflow)
{
    struct sink_run run;
    int wait_status = 0;
    begin(&run, overflow, 512);
    follow(&run);
    pid_t child = launch(&run, "churn --ops 15000 --seed 5 --pace 5");
    while (waitpid(child, &wait_status, WNOHANG) == 0) {
        sink_enable(run.log, 0);
        usleep(4000);
        sink_enable(run.log, 1);
        __atomic_add_fetch(&run.log->starts_wanted, 1, __ATOMIC_ACQ_REL);
        usleep(4000);
    }
    sink_finish(&run, "switched");
    assert_int_equal(wait_status, 0);
    expect_nothing_of_the_library_s(run.log);
    assert_true(run.log->starts_done > 0);
    assert_true(sink_count(run.log, true, 1, SINK_ANY) > 0);
    assert_true(sink_count(run.log, false, 1, SINK_ANY) > 0);
    sink_end(&run);
}

TEST(test_switched_while_it_runs)
{
    run_switched(SESSION_OVERFLOW_SPILL);
    run_switched(SESSION_OVERFLOW_DROP);
}

/* Each thread may have emitted one record that it did not live to commit. */
TEST(test_killed)
{
    struct sink_run run;
    int wait_status;
    pid_t child;
    for (unsigned turn = 0; turn < 3; turn++) {
        begin(&run, SESSION_OVERFLOW_DROP, 1024);
        run.is_killed = true;
        follow(&run);
        child = launch(&run, "churn --seconds 60");
        assert_true(sink_wait(&run.log->record_count, 5000 + 3000 * turn));
        /* some of these are the collector's */
        for (unsigned i = 0; i < 30000 && sink_count(run.log, true, 1, SINK_ANY) < 5000; i++) {
            usleep(1000);
        }
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &wait_status, 0), child);
        sink_finish(&run, "killed");
        assert_true(WIFSIGNALED(wait_status));
        assert_true(verdict->figures[7] <= 1 + 4);
        assert_true(sink_count(run.log, true, 1, SINK_ANY) >= 5000);
        expect_nothing_of_the_library_s(run.log);
        sink_end(&run);
    }
}
