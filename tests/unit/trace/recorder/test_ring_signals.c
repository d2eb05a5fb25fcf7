/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signal handlers that emit: at every instruction of an event of the same thread, inside each other, in such
 * numbers that they find no place, and from a timer. No event may get lost uncounted, come twice or change
 * its order within the program or within the handler.
 * Costs: 5 s
 */
#include "support/step.h"

#include <sys/time.h>

#define MOST 20000U

struct settings {
    uint32_t overflow;
    uint64_t before; /* events emitted before the stepping begins: they put the ring into a state */
    uint64_t stepped;
    uint64_t gap;  /* a signal after so many steps */
    uint64_t once; /* not 0: one signal only, at this step */
    uint64_t random;
    uint64_t most; /* signals, where handlers are stepped as well: else they might never get ahead */
    bool nests;
};

static uint64_t handled; /* atomic: events begun by handlers */

static void on_signal(int number)
{
    (void)number;
    emit(VARVE_KIND_HEAP_FREE, __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED), 3);
    step_handler_done();
}

/* ---- what must be in the ring ---- */

struct seen {
    uint64_t program, handlers; /* events */
    uint64_t reported;          /* sum of the `lost` records */
    uint8_t handler_seen[MOST];
};

static void see(struct seen *seen, const struct varve_record *record, bool in_order)
{
    unsigned flags = varve_record_flags(record);
    switch (varve_record_kind(record)) {
    case VARVE_KIND_HEAP_ALLOC:
        CHECK(record->addr > seen->program || !in_order, "the program's event %llu comes after %llu",
              (unsigned long long)record->addr, (unsigned long long)seen->program);
        CHECK(flags == 0, "the program's event %llu has flags %u", (unsigned long long)record->addr, flags);
        seen->program = record->addr;
        break;
    case VARVE_KIND_HEAP_FREE:
        CHECK(record->addr < MOST && seen->handler_seen[record->addr] == 0, "the handlers' event %llu comes twice",
              (unsigned long long)record->addr);
        CHECK((flags & ~(unsigned)VARVE_FLAG_NESTED) == 0, "flags %u", flags);
        seen->handler_seen[record->addr] = 1;
        seen->handlers++;
        break;
    case VARVE_KIND_LOST:
        seen->reported += record->arg;
        break;
    default:
        CHECK(varve_record_kind(record) == VARVE_KIND_PROCESS_START ||
                  varve_record_kind(record) == VARVE_KIND_THREAD_START,
              "kind %u", varve_record_kind(record));
    }
}

/* Everything emitted by this thread: `program` events of its own and `handled` of handlers. */
static void check_all(struct session *session, uint64_t program)
{
    struct seen *seen = calloc(1, sizeof(*seen));
    uint64_t in_ring = 0, handlers_ahead = 0;
    CHECK(seen != NULL, "no memory");
    struct consumer consumer;
    consumer_open(&consumer, session, 1, 1);
    const struct ring_header *ring = consumer.reader->ring;
    check_conserved(ring, "at the end");
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        in_ring += varve_record_kind(&record) == VARVE_KIND_HEAP_ALLOC ? 1 : 0;
        see(seen, &record, true);
        handlers_ahead = varve_record_kind(&record) == VARVE_KIND_HEAP_FREE ? record.addr : handlers_ahead;
    }
    CHECK(in_ring + ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC] == program,
          "%llu of the program's %llu events, %llu lost", (unsigned long long)in_ring, (unsigned long long)program,
          (unsigned long long)ring->lost_by_kind[VARVE_KIND_HEAP_ALLOC]);
    CHECK(seen->handlers + ring->lost_by_kind[VARVE_KIND_HEAP_FREE] == handled,
          "%llu of the handlers' %llu events, %llu lost, last one %llu", (unsigned long long)seen->handlers,
          (unsigned long long)handled, (unsigned long long)ring->lost_by_kind[VARVE_KIND_HEAP_FREE],
          (unsigned long long)handlers_ahead);
    verdict->figures[0] = handled;
    verdict->figures[1] = ring->lost;
    verdict->figures[2] = ring->spill_head;
    consumer_close(&consumer);
    free(seen);
}

/* ---- at every instruction ---- */

static void scenario_stepped(struct session *session, void *context)
{
    const struct settings *settings = context;
    uint64_t total = settings->before + settings->stepped;
    step_handle(SIGUSR1, on_signal);
    step_handle(SIGUSR2, on_signal);
    for (uint64_t i = 1; i <= settings->before; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, i, 8);
    }
    step_begin();
    for (uint64_t i = settings->before + 1; i <= total; i++) {
        emit(VARVE_KIND_HEAP_ALLOC, i, 8);
    }
    step_end();
    check_all(session, total);
    CHECK(recorder_process_current()->control->ring_count == 2, "%u rings for one thread",
          recorder_process_current()->control->ring_count - 1);
}

static int choose_by_gap(void *context, uint64_t step)
{
    struct settings *settings = context;
    if (settings->once != 0) {
        return step == settings->once ? SIGUSR1 : 0;
    }
    if (!settings->nests) {
        return step % settings->gap == 0 ? SIGUSR1 : 0;
    }
    if (settings->most == 0 || random_next(&settings->random) % settings->gap != 0) {
        return 0;
    }
    settings->most--;
    return random_next(&settings->random) % 2 == 0 ? SIGUSR1 : SIGUSR2;
}

/* Returns the number of steps. */
static uint64_t run_stepped(struct settings settings)
{
    const struct session_control control = session_settings(settings.overflow, 64);
    struct stepping stepping = {.choose = choose_by_gap, .context = &settings, .step_handlers = settings.nests};
    if (IS_TSAN || IS_ASAN) {
        skip("the sanitizer delivers signals at its own moments");
    }
    settings.gap *= IS_ASAN ? 5 : 1; /* with more instructions between */
    struct session session;
    session_begin(&session, &control);
    int wait_status = step_scenario(&session, scenario_stepped, &settings, &stepping);
    char what[96];
    snprintf(what, sizeof(what), "overflow %u, %llu before, gap %llu, %llu steps, %llu signals", settings.overflow,
             (unsigned long long)settings.before, (unsigned long long)settings.gap, (unsigned long long)stepping.steps,
             (unsigned long long)stepping.sent);
    child_judge(wait_status, what);
    assert_true(settings.once != 0 || stepping.sent > 5);
    /* while they are blocked, equal signals become one */
    assert_true(verdict->figures[0] > 0 && verdict->figures[0] <= stepping.sent);
    session_end(&session);
    return stepping.steps;
}

TEST(test_signal_at_each_instruction)
{
    run_stepped((struct settings){.before = 3, .stepped = 4, .gap = 1});
    run_stepped((struct settings){.before = 3, .stepped = 30, .gap = 13});
    run_stepped((struct settings){.before = 3, .stepped = 30, .gap = 67});
}

/* The ring of 64 is full: into the spill, within the spill, and over the end of the staging slots. */
TEST(test_signal_while_spilling)
{
    run_stepped((struct settings){.before = 58, .stepped = 8, .gap = 43});
    run_stepped((struct settings){.before = 61, .stepped = 1, .gap = 1});
    run_stepped((struct settings){.before = 100, .stepped = 20, .gap = 7});
    run_stepped((struct settings){.before = 62 + RING_STAGING_RECORDS - 8, .stepped = 12, .gap = 23});
    assert_true(verdict->figures[2] > RING_STAGING_RECORDS);
}

TEST(test_signal_while_dropping)
{
    run_stepped((struct settings){.overflow = SESSION_OVERFLOW_DROP, .before = 55, .stepped = 12, .gap = 11});
    run_stepped((struct settings){.overflow = SESSION_OVERFLOW_DROP, .before = 70, .stepped = 2, .gap = 1});
    assert_true(verdict->figures[1] > 0);
}

TEST(test_signal_while_blocking)
{
    run_stepped((struct settings){.overflow = SESSION_OVERFLOW_BLOCK, .before = 60, .stepped = 4, .gap = 17});
}

/* The first event of a process: its thread must not get two rings. */
TEST(test_signal_in_the_first_event)
{
    for (uint64_t once = 1; once < 320; once += IS_ASAN ? 25 : 5) {
        run_stepped((struct settings){.before = 0, .stepped = 1, .once = once});
    }
}

/* Two kinds of signals, each handler can be interrupted by the other one. */
TEST(test_handlers_interrupt_each_other)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        run_stepped((struct settings){
            .before = 3, .stepped = 8, .gap = 20 + seed * 10, .random = seed * 77, .most = 300, .nests = true});
    }
}

/* ---- without ptrace ---- */

/* In the middle of an append by hand: `busy` is what says so. */
static void scenario_flood(struct session *session, void *context)
{
    (void)context;
    step_handle(SIGUSR1, on_signal);
    emit(VARVE_KIND_HEAP_ALLOC, 1, 8);
    for (uint64_t i = 2; i <= 4; i++) {
        varve_producer_current->busy = 1;
        for (unsigned n = 0; n < RING_NESTED_SLOTS + 10 * (unsigned)i; n++) {
            raise(SIGUSR1);
        }
        varve_producer_current->busy = 0;
        emit(VARVE_KIND_HEAP_ALLOC, i, 8);
    }
    check_all(session, 4);
    CHECK(own_ring()->lost == 20 + 30 + 40, "%llu lost", (unsigned long long)own_ring()->lost);
}

/* More than there are slots for: the rest is counted as lost, and reported. */
TEST(test_flood_of_nested_events)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 8192, scenario_flood, NULL, "flood");
    assert_true(verdict->figures[1] > 0);
}

static void scenario_timer(struct session *session, void *context)
{
    const struct itimerval every = {{0, 150}, {0, 150}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    uint64_t end = support_monotonic_ns() + UINT64_C(300000000);
    uint64_t i = 0;
    (void)context;
    step_handle(SIGALRM, on_signal);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0, "no timer");
    while (support_monotonic_ns() < end || handled < 20) {
        emit(VARVE_KIND_HEAP_ALLOC, ++i, 8);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    check_all(session, i);
}

TEST(test_timer)
{
    run_in_session(SESSION_OVERFLOW_SPILL, 1024, scenario_timer, NULL, "timer, spill");
    assert_true(verdict->figures[2] > 0);
    run_in_session(SESSION_OVERFLOW_DROP, 1024, scenario_timer, NULL, "timer, drop");
    assert_true(verdict->figures[1] > 0);
}
