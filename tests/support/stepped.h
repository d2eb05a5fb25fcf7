/* SPDX-License-Identifier: Apache-2.0 */
/* C only: helpers of cmocka programs */
/*
 * A program of numbered events and handlers that emit as well, stepped from a chosen event on, with signals or SIGKILL
 * at chosen steps; and what of all that must be found afterwards, whoever looks for it.
 */
#ifndef VARVE_TESTS_SUPPORT_STEPPED_H
#define VARVE_TESTS_SUPPORT_STEPPED_H

#include "support/step.h"

#define HANDLED_MOST 20000U

enum figure {
    FIGURE_PROGRAM, /* events of the program that varve_emit has returned from */
    FIGURE_BEGUN,   /* of handlers: varve_emit was called */
    FIGURE_HANDLED, /* of handlers: it has returned */
    FIGURE_LOST,
    FIGURE_SPILLED,
    FIGURE_EMITTED,
};

struct settings {
    const char *name;
    uint32_t overflow;
    uint64_t before; /* events before the stepping begins: they put the ring into a state */
    uint64_t stepped;
    uint64_t gap;       /* a signal after so many steps, 0: none */
    uint64_t signal_at; /* not 0: one signal only, at this step */
    uint64_t kill_at;   /* 0: never */
    uint64_t random;
    uint64_t most;       /* signals, where handlers are stepped as well: else they might never get ahead */
    bool nests;          /* two kinds of signals, each handler can be interrupted by the other one */
    bool steps_handlers; /* else they run at full speed, unless they nest or a kill is near */
    bool has_sink;
};

static void on_signal(int number)
{
    (void)number;
    emit(VARVE_KIND_MUNMAP, __atomic_add_fetch(&verdict->figures[FIGURE_BEGUN], 1, __ATOMIC_RELAXED), 3);
    __atomic_add_fetch(&verdict->figures[FIGURE_HANDLED], 1, __ATOMIC_RELAXED);
    step_handler_done();
}

static inline void scenario_stepped(struct session *session, void *context)
{
    const struct settings *settings = context;
    (void)session;
    step_handle(SIGUSR1, on_signal);
    step_handle(SIGUSR2, on_signal);
    if (settings->has_sink) {
        second_sink_open();
    }
    for (uint64_t i = 1; i <= settings->before + settings->stepped; i++) {
        if (i == settings->before + 1) {
            step_begin();
        }
        emit_numbered(i, i);
        verdict->figures[FIGURE_PROGRAM] = i;
    }
    step_end();
    check_conserved(own_ring(), settings->name);
    CHECK_EQUAL(recorder_process_current()->control->ring_count, 2);
    verdict->figures[FIGURE_LOST] = own_ring()->lost;
    verdict->figures[FIGURE_SPILLED] = own_ring()->spill_head;
    verdict->figures[FIGURE_EMITTED] = own_ring()->emitted;
}

static inline int choose_signal(void *context, uint64_t step)
{
    struct settings *settings = context;
    if (step != 0 && step == settings->kill_at) {
        return SIGKILL;
    }
    if (settings->signal_at != 0) {
        return step == settings->signal_at ? SIGUSR1 : 0;
    }
    if (settings->gap == 0 || (!settings->nests && step % settings->gap != 0)) {
        return 0;
    }
    if (!settings->nests) {
        return SIGUSR1;
    }
    if (settings->most == 0 || random_next(&settings->random) % settings->gap != 0) {
        return 0;
    }
    settings->most--;
    return random_next(&settings->random) % 2 == 0 ? SIGUSR1 : SIGUSR2;
}

/* Steps through it, in the session; its wait status is what the settings say. */
static inline struct stepping play_stepped(struct session *session, struct settings *settings)
{
    struct stepping stepping = {.choose = choose_signal, .context = settings};
    stepping.step_handlers = settings->nests || settings->kill_at != 0 || settings->steps_handlers;
    int wait_status = step_scenario(session, scenario_stepped, settings, &stepping);
    char what[128];
    snprintf(what, sizeof(what), "%s, overflow %u, gap %llu, signal at %llu, killed at %llu, %llu steps, %llu signals",
             settings->name, settings->overflow, (unsigned long long)settings->gap,
             (unsigned long long)settings->signal_at, (unsigned long long)settings->kill_at,
             (unsigned long long)stepping.steps, (unsigned long long)stepping.sent);
    if (settings->kill_at == 0) {
        child_judge(wait_status, what);
    } else if (wait_status != SIGKILL && (wait_status != 0 || stepping.steps > settings->kill_at)) { /* that step was */
        fail_msg("%s: wait status %#x", what, (unsigned)wait_status);
    }
    return stepping;
}

/* Killed at moments spread over the whole case, another one in each pass; `run` returns its number of steps. */
static inline void run_killed(struct settings settings, unsigned runs, uint64_t (*run)(struct settings settings))
{
    uint64_t random = settings.before * 31 + settings.signal_at + 1;
    uint64_t steps = run(settings), stride = steps / runs + 1;
    for (uint64_t at = 1; at < steps; at += stride) {
        settings.kill_at = at + random_next(&random) % stride;
        if (settings.kill_at < steps) {
            run(settings);
        }
    }
}

/* ---- what is found ---- */

struct found {
    const char *what;
    uint64_t last;              /* of the program */
    uint64_t program, handlers; /* events */
    uint64_t reported, nested;
    uint8_t handler_seen[HANDLED_MOST];
};

/* The program's events come in their order, no event of a handler twice. */
static inline void find(struct found *found, const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record), flags = varve_record_flags(record) & ~(unsigned)VARVE_FLAG_SECOND_SINK;
    const struct varve_record expected = numbered(record->addr);
    if (kind == VARVE_KIND_MUNMAP) {
        if (record->addr >= HANDLED_MOST || found->handler_seen[record->addr]++ != 0 || record->size != 3 ||
            (flags & ~(unsigned)VARVE_FLAG_NESTED) != 0) {
            fail_msg("%s: the handlers' event %llu, flags %u", found->what, (unsigned long long)record->addr, flags);
        }
        found->handlers++;
        found->nested += flags == VARVE_FLAG_NESTED;
    } else if (kind == VARVE_KIND_LOST) {
        found->reported += record->arg;
    } else if (kind != VARVE_KIND_PROCESS_START && kind != VARVE_KIND_THREAD_START) {
        if (record->addr <= found->last || kind != varve_record_kind(&expected) || record->size != expected.size ||
            flags != 0) {
            fail_msg("%s: kind %u, event %llu, size %llu, flags %u after %llu", found->what, kind,
                     (unsigned long long)record->addr, (unsigned long long)record->size, flags,
                     (unsigned long long)found->last);
        }
        found->last = record->addr;
        found->program++;
    }
}

/* Without a producer: the ring by its file, as the collector and `recover` do. What varve_emit has returned from is in
 * it, or counted as lost; of a killed process at most one event more, of the program and of each handler. Returns the
 * number of nested events. */
static inline uint64_t find_in_ring(const struct session *session, const char *what, bool was_killed)
{
    static struct found found;
    struct varve_message message = {""};
    struct consumer consumer;
    if (!consumer_try_open(&consumer, session, 1, 1)) {
        fail_msg("%s: no ring", what);
    }
    consumer.process.has_ended = true;
    const struct ring_header *ring = consumer.reader->ring;
    memset(&found, 0, sizeof(found));
    found.what = what;
    ring_reader_refresh(consumer.reader);
    /* 2: with a `lost` record in front, or of a handler that came before the clock was read */
    uint64_t in_flight = ring->emitted - ring->head - ring->spill_head - ring->lost;
    if (ring_check(ring, !was_killed, &message) != VARVE_OK || in_flight > (was_killed ? 2 : 0)) {
        fail_msg("%s: %llu events in flight %s", what, (unsigned long long)in_flight, message.text);
    }
    struct varve_record record;
    while (consumer_next(&consumer, session, &record)) {
        find(&found, &record);
    }
    uint64_t program = found.program + ring->lost - ring->lost_by_kind[VARVE_KIND_MUNMAP];
    uint64_t handlers = found.handlers + ring->lost_by_kind[VARVE_KIND_MUNMAP];
    uint64_t begun = verdict->figures[FIGURE_PROGRAM] + was_killed;
    if (program < verdict->figures[FIGURE_PROGRAM] || program > begun || found.last > begun ||
        handlers < verdict->figures[FIGURE_HANDLED] || handlers > verdict->figures[FIGURE_BEGUN] ||
        found.reported > ring->lost) {
        fail_msg("%s: %llu events of %llu (handlers: %llu of %llu to %llu), %llu lost", what,
                 (unsigned long long)program, (unsigned long long)verdict->figures[FIGURE_PROGRAM],
                 (unsigned long long)handlers, (unsigned long long)verdict->figures[FIGURE_HANDLED],
                 (unsigned long long)verdict->figures[FIGURE_BEGUN], (unsigned long long)ring->lost);
    }
    assert_int_equal(consumer.reader->unreadable, 0);
    consumer_close(&consumer);
    return found.nested;
}

#endif
