/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGKILL between any two instructions of an event: what varve_emit has returned from is in the ring (or its
 * spill, or the slots of nested events), once, whole and in order, and at most one event more was being
 * written. The ring is read as after a crash, from its file, when the process is gone.
 * Costs: 7 s
 */
#include "support/step.h"

#define RUNS_PER_CASE (IS_ASAN ? 12U : 40U)

enum figure {
    FIGURE_PROGRAM,  /* events of the program that varve_emit has returned from */
    FIGURE_HANDLERS, /* of handlers */
    FIGURE_BEGUN,    /* of handlers: varve_emit was called */
};

struct settings {
    const char *name;
    uint32_t overflow;
    uint64_t before, stepped;
    uint64_t signal_at; /* a handler that emits runs at this step, 0: none */
    uint64_t kill_at;   /* 0: never */
};

static void on_signal(int number)
{
    (void)number;
    verdict->figures[FIGURE_BEGUN]++;
    emit(VARVE_KIND_HEAP_FREE, verdict->figures[FIGURE_BEGUN], 3);
    verdict->figures[FIGURE_HANDLERS]++;
}

static void scenario_killed(struct session *session, void *context)
{
    const struct settings *settings = context;
    (void)session;
    step_handle(SIGUSR1, on_signal);
    for (uint64_t i = 1; i <= settings->before; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, i, i * 3);
        verdict->figures[FIGURE_PROGRAM] = i;
    }
    step_begin();
    for (uint64_t i = settings->before + 1; i <= settings->before + settings->stepped; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, i, i * 3);
        verdict->figures[FIGURE_PROGRAM] = i;
    }
    step_end();
}

static int choose(void *context, uint64_t step)
{
    const struct settings *settings = context;
    if (step == settings->kill_at && step != 0) {
        return SIGKILL;
    }
    return step == settings->signal_at && step != 0 ? SIGUSR1 : 0;
}

struct found {
    uint64_t program, handlers, reported, nested;
};

static void find(struct found *found, const struct varve_record *record, const char *what)
{
    switch (varve_record_kind(record)) {
    case VARVE_KIND_HEAP_ALLOC:
        if (record->addr != found->program + found->reported + 1 || record->size != record->addr * 3) {
            fail_msg("%s: event %llu (size %llu) after %llu", what, (unsigned long long)record->addr,
                     (unsigned long long)record->size, (unsigned long long)found->program);
        }
        found->program++;
        break;
    case VARVE_KIND_HEAP_FREE:
        if (record->addr != found->handlers + 1) {
            fail_msg("%s: the handler's event %llu after %llu", what, (unsigned long long)record->addr,
                     (unsigned long long)found->handlers);
        }
        found->handlers++;
        found->nested += varve_record_flags(record) == VARVE_FLAG_NESTED ? 1 : 0;
        break;
    case VARVE_KIND_LOST:
        found->reported += record->arg;
        break;
    default:
        break;
    }
}

/* Without a producer: by its file, as the collector and `recover` do. Returns the number of nested events. */
static uint64_t check_ring(struct session *session, const struct settings *settings, const char *what)
{
    uint64_t acknowledged = verdict->figures[FIGURE_PROGRAM];
    struct found found = {0};
    struct varve_message message = {""};
    struct consumer consumer;
    if (!consumer_try_open(&consumer, session, 1, 1)) {
        fail_msg("%s: no ring", what);
    }
    consumer.process.has_ended = true;
    const struct ring_header *ring = consumer.reader->ring;
    ring_reader_refresh(consumer.reader);
    /* 2: with a `lost` record in front, or of a handler that came before the clock was read */
    uint64_t in_flight = ring->emitted - ring->head - ring->spill_head - ring->lost;
    if (ring_check(ring, false, &message) != VARVE_OK || in_flight > 2) {
        fail_msg("%s: %llu events in flight %s", what, (unsigned long long)in_flight, message.text);
    }
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        find(&found, &record, what);
    }
    if (settings->overflow == SESSION_OVERFLOW_DROP) {
        found.program += ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC];
        found.handlers += ring->lost_by_kind[VARVE_KIND_HEAP_FREE];
    }
    if (found.program < acknowledged || found.program > acknowledged + 1 ||
        found.handlers < verdict->figures[FIGURE_HANDLERS] || found.handlers > verdict->figures[FIGURE_BEGUN]) {
        fail_msg("%s: %llu events of %llu (handlers: %llu of %llu)", what, (unsigned long long)found.program,
                 (unsigned long long)acknowledged, (unsigned long long)found.handlers,
                 (unsigned long long)verdict->figures[FIGURE_HANDLERS]);
    }
    assert_int_equal(consumer.reader->unreadable, 0);
    consumer_close(&consumer);
    return found.nested;
}

struct outcome {
    uint64_t steps, nested;
};

static struct outcome run_once(struct settings *settings)
{
    const struct session_control control = session_settings(settings->overflow, 64);
    struct stepping stepping = {.choose = choose, .context = settings, .step_handlers = true};
    struct session session;
    session_begin(&session, &control);
    int wait_status = step_scenario(&session, scenario_killed, settings, &stepping);
    char what[96];
    snprintf(what, sizeof(what), "%s, signal at %llu, killed at %llu", settings->name,
             (unsigned long long)settings->signal_at, (unsigned long long)settings->kill_at);
    if (settings->kill_at == 0) {
        child_judge(wait_status, what);
    } else if (!WIFSIGNALED(wait_status) || WTERMSIG(wait_status) != SIGKILL) {
        fail_msg("%s: wait status %d", what, wait_status);
    }
    struct outcome outcome;
    outcome.nested = check_ring(&session, settings, what);
    outcome.steps = stepping.steps;
    session_end(&session);
    return outcome;
}

/* Killed at moments spread over the whole case, another one in each pass. */
static void run_case(struct settings settings)
{
    uint64_t random = settings.before * 31 + settings.signal_at + 1;
    if (IS_TSAN) {
        skip("single steps through the sanitizer's run time take minutes");
    }
    uint64_t steps = run_once(&settings).steps;
    assert_true(steps > settings.stepped * 20);
    uint64_t stride = steps / RUNS_PER_CASE + 1;
    for (uint64_t at = 1; at < steps; at += stride) {
        settings.kill_at = at + random_next(&random) % stride;
        if (settings.kill_at < steps) {
            run_once(&settings);
        }
    }
}

TEST(test_killed_in_the_ring)
{
    run_case((struct settings){.name = "ring", .before = 3, .stepped = 2});
}

TEST(test_killed_going_over_to_the_spill)
{
    run_case((struct settings){.name = "ring full", .before = 61, .stepped = 2});
    run_case((struct settings){.name = "spilling", .before = 90, .stepped = 1});
}

TEST(test_killed_while_dropping)
{
    run_case((struct settings){.name = "drop", .overflow = SESSION_OVERFLOW_DROP, .before = 61, .stepped = 3});
}

/* A handler's event put aside, and moved to the ring afterwards. Where in an event that happens depends on
 * the compiler: tried out. */
static void run_nested_case(struct settings settings)
{
    struct outcome signalled = {0, 0};
    if (IS_TSAN) {
        skip("single steps through the sanitizer's run time take minutes");
    }
    struct outcome plain = run_once(&settings);
    while (signalled.nested == 0) {
        settings.signal_at += plain.steps / 37 + 1;
        if (settings.signal_at >= plain.steps) {
            fail_msg("%s: no moment for a nested event", settings.name);
        }
        signalled = run_once(&settings);
    }
    run_case(settings);
}

TEST(test_killed_with_nested_events)
{
    run_nested_case((struct settings){.name = "nested", .before = 3, .stepped = 1});
}

/* In the middle of packing and writing a block of the spill file: hundreds of thousands of steps, a few of
 * them. */
TEST(test_killed_while_flushing)
{
    struct settings settings = {.name = "flush", .before = 62 + RING_STAGING_RECORDS, .stepped = 1};
    if (IS_TSAN) {
        skip("single steps through the sanitizer's run time take minutes");
    }
    for (settings.kill_at = 150; settings.kill_at < 20000; settings.kill_at = settings.kill_at * 3 + 7) {
        run_once(&settings);
    }
}
